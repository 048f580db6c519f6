//! The state of the simulation, and which part of it answers which operation.

use super::services::{Ipam, Lease};
use ipnet::IpNet;
use postern_types::{
    Address, Backend, Dns, ErrorCode, Handle, LinkInfo, LinkSysctl, Mac, OpError, Operation, PortSpec,
};
use postern_types::{Reply, Route};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The one that `CNI_NETNS` names.
    Container,
    /// The one that the runtime called from.
    Host,
}

/// A simulated link.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Where it is.
    pub place: Place,
    /// What the kernel would say of it.
    pub info: LinkInfo,
    /// The other end of a veth.
    pub peer: Option<Handle>,
    /// The bridge that it is a port of.
    pub master: Option<Handle>,
    /// How it joined the bridge.
    pub port: Option<PortSpec>,
    /// Promiscuous mode.
    pub promisc: bool,
    /// A bridge that filters VLANs.
    pub vlan_filtering: bool,
    /// A bridge whose address was set, and which no longer takes that of its lowest port.
    pub pinned: bool,
    /// A bridge's address before a port lent it one: what it is pinned to.
    pub lent_over: Option<Mac>,
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// Routes through it, the kernel's own prefix routes among them.
    pub routes: Vec<Route>,
    /// What was written to its settings.
    pub sysctls: Vec<(LinkSysctl, bool)>,
}

/// A simulated host with one attachment, as far as plugins can tell it from a real one. Every field may be set before
/// the plugin runs, and looked at afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_NETNS` leads to a namespace.
    pub netns: bool,
    /// The kernel knows IPv6.
    pub ipv6: bool,
    /// Bridges can filter VLANs.
    pub vlans: bool,
    /// All links.
    pub links: BTreeMap<Handle, Link>,
    /// `lo` of the container: up, and its addresses.
    pub lo: (bool, Vec<Address>),
    /// Forwarding is on.
    pub forwarding: bool,
    /// The backends that carry the attachment's masquerading.
    pub masquerade: Vec<Backend>,
    /// The address that the attachment may send from.
    pub mac_guard: Option<Mac>,
    /// What the delegate answers.
    pub ipam: Ipam,
    /// Addresses of the attachment with their gateways, beside those that [`Kernel::ipam`] has: for who runs delegates
    /// outside of the simulation, and answers `ipam.*` itself.
    pub attachment: Vec<(IpNet, Option<IpAddr>)>,
    /// What the host's end of a new pair is called; `None` makes a name up.
    pub host_end_name: Option<String>,
    /// host-local's store.
    pub leases: Vec<Lease>,
    /// The file that `ipam.resolvConf` names, if it can be read.
    pub resolv_conf: Option<Dns>,
    /// How many objects of attachments that are gone lie about.
    pub garbage: u32,
    /// The number of the operation that fails, counted from 0, and how.
    pub fail: Option<(usize, OpError)>,
    /// Every operation so far.
    pub log: Vec<Operation>,
}

impl Default for Kernel {
    /// A host with nothing on it, and an empty namespace.
    fn default() -> Self {
        Self {
            ifname: "eth0".to_owned(),
            netns: true,
            ipv6: true,
            vlans: true,
            links: BTreeMap::new(),
            lo: (false, Vec::new()),
            forwarding: false,
            masquerade: Vec::new(),
            mac_guard: None,
            ipam: Ipam::default(),
            attachment: Vec::new(),
            host_end_name: None,
            leases: Vec::new(),
            resolv_conf: None,
            garbage: 0,
            fail: None,
            log: Vec::new(),
        }
    }
}

impl Kernel {
    /// A host whose IPAM plugin answers ADD with this result, in JSON.
    pub fn with_ipam(result: &str) -> Self {
        Self { ipam: Ipam { result: Ok(result.to_owned()), ..Ipam::default() }, ..Self::default() }
    }

    /// Lets the operation number `n`, counted from 0 and from now, fail with an error of this kind.
    pub fn fail_at(&mut self, n: usize, code: ErrorCode) {
        let error = OpError::new(code, "", format!("operation {n} was made to fail"));
        self.fail = Some((self.log.len() + n, error));
    }

    /// Carries out one operation.
    ///
    /// # Errors
    /// Those that the host has for it, and the one that [`Kernel::fail`] asks for.
    pub fn call(&mut self, operation: &Operation) -> Result<Reply, OpError> {
        let number = self.log.len();
        self.log.push(operation.clone());
        let outcome = match &self.fail {
            Some((n, error)) if *n == number => Err(error.clone()),
            _ => self.answer(operation),
        };
        outcome.map_err(|error| OpError { operation: operation.name().to_owned(), ..error })
    }

    fn answer(&mut self, operation: &Operation) -> Result<Reply, OpError> {
        use Operation as Op;
        match operation {
            Op::LinkOwn => Ok(Reply::MaybeLink(self.own().map(|link| link.info.clone()))),
            Op::LinkAttributes { link } => Ok(Reply::Link(self.held(*link)?.info.clone())),
            Op::LinkUp { link } => self.link_up(*link),
            Op::LinkDelete { link } => self.link_delete(*link),
            Op::VethCreate { mtu, mac } => self.veth_create(*mtu, *mac),
            Op::VethFind => Ok(Reply::MaybeVeth(self.pair())),
            Op::VethWaitRunning { host } => self.wait_running(*host),
            Op::AddressesAdd { link, addresses } => self.addresses_add(*link, addresses),
            Op::AddressesList { link } => Ok(Reply::Addresses(self.held(*link)?.addresses.clone())),
            Op::AddressesSettle { link } => self.settle(*link),
            Op::RoutesAdd { link, routes } => self.routes_add(*link, routes),
            Op::RoutesRemoveConnected { link, networks } => self.remove_connected(*link, networks),
            Op::RoutesList { link } => Ok(Reply::Routes(self.main_routes(*link)?)),
            Op::SysctlSet { link, key, value } => self.sysctl(*link, *key, *value),
            Op::BridgeEnsure { name, mtu, vlan_filtering, promisc } => {
                self.bridge_ensure(name, *mtu, *vlan_filtering, *promisc)
            }
            Op::BridgeFind { name } => self.bridge_find(name).map(Reply::MaybeBridge),
            Op::BridgeAttach { bridge, host, port } => self.attach(*bridge, *host, port),
            Op::BridgeEnsureGateways { bridge, port, force } => self.ensure_gateways(*bridge, port.vlan, *force),
            Op::PointToPointEnsure { host } => self.point_to_point(*host),
            Op::ForwardingEnable => {
                self.forwarding = true;
                Ok(Reply::Done)
            }
            Op::MasqueradeEnsure { backend } => self.masquerade_ensure(*backend),
            Op::MasqueradeCheck { backend } => self.masquerade_check(*backend),
            Op::MasqueradeRemove => {
                self.masquerade.clear();
                Ok(Reply::Done)
            }
            Op::MacGuardEnsure { host, mac } => self.guard_ensure(*host, *mac),
            Op::MacGuardCheck { host, mac } => self.guard_check(*host, *mac),
            Op::MacGuardRemove => {
                self.mac_guard = None;
                Ok(Reply::Done)
            }
            Op::IpamAdd => self.ipam.result.clone().map(Reply::Result),
            Op::IpamDel => self.ipam.del.clone().map(|()| Reply::Done),
            Op::IpamCheck => self.ipam.check.clone().map(|()| Reply::Done),
            Op::IpamStatus => self.ipam.status.clone().map(|()| Reply::Done),
            Op::IpamGc => self.ipam.gc.clone().map(|()| Reply::Done),
            Op::LeasesReserve { sets, requested } => self.reserve(sets, requested),
            Op::LeasesHeld => Ok(Reply::Leases(self.own_leases())),
            Op::LeasesRelease => {
                self.leases.retain(|lease| !lease.own);
                Ok(Reply::Done)
            }
            Op::LeasesRetain => Ok(Reply::Removed(self.retain())),
            Op::LeasesAvailable { sets } => self.available(sets).map(Reply::Available),
            Op::ResolvConfRead => self.read_resolv_conf(),
            Op::LoopbackUp => self.lo_up(),
            Op::LoopbackDown => {
                self.lo = (false, Vec::new());
                Ok(Reply::Done)
            }
            Op::LoopbackAddresses => {
                self.namespace()?;
                Ok(Reply::Loopback { up: self.lo.0, addresses: self.lo.1.clone() })
            }
            Op::AttachmentsCollect => Ok(Reply::Removed(std::mem::take(&mut self.garbage))),
        }
    }

    /// Whether the container's namespace is there, or the host's words for a missing one.
    pub(super) fn namespace(&self) -> Result<(), OpError> {
        if self.netns {
            return Ok(());
        }
        Err(OpError::new(ErrorCode::NotFound, "/run/netns/c1", "the container's network namespace is gone"))
    }
}
