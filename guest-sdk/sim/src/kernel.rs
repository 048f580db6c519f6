//! The state of the simulation, and the choice of the code that answers an operation.

use super::capability;
use super::services::{Ipam, Lease};
use ipnet::IpNet;
use postern_types::{
    Address, Backend, DhcpLease, Dns, ErrorCode, Forward, Handle, IngressPolicy, IpvlanMode, LinkInfo, LinkSettings,
    LinkSysctl, Mac, MacvlanMode, OpError, Operation, PortSpec, RateLimit, Reply, Route, SubnetFile, VlanId,
};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The namespace that `CNI_NETNS` names.
    Container,
    /// The runtime's namespace.
    Host,
}

/// A simulated link.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The namespace of the link.
    pub place: Place,
    /// The kernel's data about the link.
    pub info: LinkInfo,
    /// The other end of a veth.
    pub peer: Option<Handle>,
    /// The bridge of which the link is a port.
    pub master: Option<Handle>,
    /// The port's settings.
    pub port: Option<PortSpec>,
    /// The PCI device of the link.
    pub pci: Option<String>,
    /// The path below `/sys/devices`, including the link's own directory.
    pub path: Option<String>,
    /// The link's name on the host, if the link was moved from the host.
    pub home: Option<String>,
    /// True in promiscuous mode.
    pub promisc: bool,
    /// True if the link takes all multicast frames.
    pub allmulti: bool,
    /// The length of the link's queue, in packets.
    pub tx_queue_length: u32,
    /// True for a bridge that filters VLANs.
    pub vlan_filtering: bool,
    /// True for a bridge whose address was set. The bridge then keeps this address when ports join.
    pub pinned: bool,
    /// A bridge's address before a port's address replaced it. Pinning restores this address.
    pub lent_over: Option<Mac>,
    /// Mode of a macvlan.
    pub macvlan_mode: Option<MacvlanMode>,
    /// Mode of an ipvlan.
    pub ipvlan_mode: Option<IpvlanMode>,
    /// The VLAN of a VLAN link.
    pub vlan_id: Option<VlanId>,
    /// The link below a VLAN or an ipvlan.
    pub stands_on: Option<Handle>,
    /// The addresses of the link.
    pub addresses: Vec<Address>,
    /// Routes through the link, including the kernel's own prefix routes.
    pub routes: Vec<Route>,
    /// The kernel settings that were written.
    pub sysctls: Vec<(LinkSysctl, bool)>,
}

/// A simulated host with one attachment. Plugins see no difference from a real host. Every field may be set before the
/// plugin runs, and read afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// True if `CNI_NETNS` leads to a namespace.
    pub netns: bool,
    /// True if the kernel knows IPv6.
    pub ipv6: bool,
    /// True if bridges can filter VLANs.
    pub vlans: bool,
    /// All links.
    pub links: BTreeMap<Handle, Link>,
    /// `lo` of the container: true if it is up, and its addresses.
    pub lo: (bool, Vec<Address>),
    /// The name of the link of the host's default route.
    pub default_link: Option<String>,
    /// The name of the link of the container's default route.
    pub default_link_inside: Option<String>,
    /// PCI devices that a user-space driver has.
    pub userspace: Vec<String>,
    /// True if forwarding is on.
    pub forwarding: bool,
    /// The packet filter for masquerading if the guest names no packet filter.
    pub packet_filter: Backend,
    /// The backends that have the attachment's masquerading.
    pub masquerade: Vec<Backend>,
    /// The ports of the node that lead to the attachment's addresses.
    pub forwards: Vec<(IpAddr, Forward)>,
    /// Ports of the node that other containers have.
    pub taken_ports: Vec<Forward>,
    /// The addresses that the packet filter admits.
    pub admitted: Vec<IpNet>,
    /// The isolation of the attachment's bridge.
    pub isolated: Option<IngressPolicy>,
    /// The limits of the rate to the container, and from the container.
    pub limits: (Option<RateLimit>, Option<RateLimit>),
    /// The only MAC address that the attachment may send from.
    pub mac_guard: Option<Mac>,
    /// The answers of the IPAM plugin.
    pub ipam: Ipam,
    /// Flannel's subnet file, if there is one.
    pub subnet_file: Option<SubnetFile>,
    /// The answers of the main plugin that flannel delegates to.
    pub delegate: Ipam,
    /// The configuration of the last ADD of flannel's delegate.
    pub delegated: Option<String>,
    /// Addresses of the attachment with their gateways, besides the addresses in [`Kernel::ipam`]. This field is for a
    /// caller that runs delegates outside of the simulation, and answers `ipam.*` itself.
    pub attachment: Vec<(IpNet, Option<IpAddr>)>,
    /// The name for the host end of a new pair; the simulation chooses a name for `None`.
    pub host_end_name: Option<String>,
    /// The name for the link that limits traffic from the container; the simulation chooses a name for `None`.
    pub ifb_name: Option<String>,
    /// The link of the host that an earlier plugin made, and that may be attached.
    pub previous_link: Option<String>,
    /// host-local's store.
    pub leases: Vec<Lease>,
    /// The lease that a DHCP server offers; `None` if no service answers.
    pub dhcp: Option<DhcpLease>,
    /// True if the DHCP service keeps a lease for the attachment.
    pub leased: bool,
    /// The file that `ipam.resolvConf` names, if it can be read.
    pub resolv_conf: Option<Dns>,
    /// Kernel settings of the container's namespace that were written, by their keys.
    pub settings: BTreeMap<String, String>,
    /// The attributes of the attachment's link before they were changed.
    pub changed: Option<LinkSettings>,
    /// Source addresses that have their own routing table, each with this table.
    pub rules: Vec<(IpAddr, u32)>,
    /// The plugin's note for the attachment.
    pub note: Option<String>,
    /// The number of garbage objects.
    pub garbage: u32,
    /// The number of the operation that fails, counted from 0, and its error.
    pub fail: Option<(usize, OpError)>,
    /// Every operation so far.
    pub log: Vec<Operation>,
}

impl Default for Kernel {
    /// Returns a host with nothing on it, and an empty namespace.
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
            packet_filter: Backend::Iptables,
            masquerade: Vec::new(),
            forwards: Vec::new(),
            taken_ports: Vec::new(),
            admitted: Vec::new(),
            isolated: None,
            limits: (None, None),
            mac_guard: None,
            ipam: Ipam::default(),
            subnet_file: None,
            delegate: Ipam::default(),
            delegated: None,
            attachment: Vec::new(),
            host_end_name: None,
            ifb_name: None,
            previous_link: None,
            leases: Vec::new(),
            dhcp: Some(capability::dhcp::example(true, false)),
            leased: false,
            resolv_conf: None,
            settings: BTreeMap::new(),
            changed: None,
            rules: Vec::new(),
            note: None,
            garbage: 0,
            fail: None,
            log: Vec::new(),
        }
    }
}

impl Kernel {
    /// Returns a host whose IPAM plugin answers ADD with this result, in JSON.
    pub fn with_ipam(result: &str) -> Self {
        Self { ipam: Ipam { result: Ok(result.to_owned()), ..Ipam::default() }, ..Self::default() }
    }

    /// Makes operation number `n`, counted from 0 and from now, fail with an error of this kind.
    pub fn fail_at(&mut self, n: usize, code: ErrorCode) {
        let error = OpError::new(code, "", format!("operation {n} was made to fail"));
        self.fail = Some((self.log.len() + n, error));
    }

    /// Carries out one operation.
    ///
    /// # Errors
    /// The errors of the real host for this operation, and the error in [`Kernel::fail`].
    pub fn call(&mut self, operation: &Operation) -> Result<Reply, OpError> {
        let number = self.log.len();
        self.log.push(operation.clone());
        let outcome = match &self.fail {
            Some((n, error)) if *n == number => Err(error.clone()),
            _ => operation.ask(self),
        };
        outcome.map_err(|error| OpError { operation: operation.name().to_owned(), ..error })
    }

    /// Returns the host's error if the container's namespace is missing.
    pub(super) fn namespace(&self) -> Result<(), OpError> {
        if self.netns {
            return Ok(());
        }
        Err(OpError::new(ErrorCode::NotFound, "/run/netns/c1", "the container's network namespace is gone"))
    }
}
