//! The state of the simulation, and which part of it answers which operation.

use super::capability;
use super::services::{Ipam, Lease};
use ipnet::IpNet;
use postern_types::{
    Address, Backend, Dns, ErrorCode, Handle, LinkInfo, LinkSysctl, Mac, MacvlanMode, OpError, Operation, PortSpec,
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
    /// The PCI device that it belongs to.
    pub pci: Option<String>,
    /// Where it is below `/sys/devices`, its own directory included.
    pub path: Option<String>,
    /// What it is called on the host, where it was moved from there.
    pub home: Option<String>,
    /// Promiscuous mode.
    pub promisc: bool,
    /// A bridge that filters VLANs.
    pub vlan_filtering: bool,
    /// A bridge whose address was set, and which no longer takes that of its lowest port.
    pub pinned: bool,
    /// A bridge's address before a port lent it one: what it is pinned to.
    pub lent_over: Option<Mac>,
    /// Mode of a macvlan.
    pub macvlan_mode: Option<MacvlanMode>,
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
    /// The link of the host's default route.
    pub default_link: Option<String>,
    /// That of the container's.
    pub default_link_inside: Option<String>,
    /// PCI devices that a driver of user space has.
    pub userspace: Vec<String>,
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
    /// The link of the host that a plugin before made, and that may be attached.
    pub previous_link: Option<String>,
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
            default_link: None,
            default_link_inside: None,
            userspace: Vec::new(),
            forwarding: false,
            masquerade: Vec::new(),
            mac_guard: None,
            ipam: Ipam::default(),
            attachment: Vec::new(),
            host_end_name: None,
            previous_link: None,
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
            _ => capability::answer(self, operation),
        };
        outcome.map_err(|error| OpError { operation: operation.name().to_owned(), ..error })
    }

    /// Whether the container's namespace is there, or the host's words for a missing one.
    pub(super) fn namespace(&self) -> Result<(), OpError> {
        if self.netns {
            return Ok(());
        }
        Err(OpError::new(ErrorCode::NotFound, "/run/netns/c1", "the container's network namespace is gone"))
    }
}
