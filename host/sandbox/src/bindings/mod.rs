//! The guest's typed imports: one file per WIT interface. They only translate.
//!
//! A call becomes an [`Operation`], goes through the [`crate::Gate`], and its [`Reply`] becomes the WIT value. Values
//! that a guest builds before it acts (options, a port, a route) stay in its own resource table on this side.

mod addresses;
mod attachments;
mod bandwidth;
mod bridge;
mod delegate;
mod device;
mod dhcp;
mod dummy;
mod firewall;
mod forwarding;
mod ipam;
mod ipvlan;
mod leases;
mod link;
mod link_settings;
mod link_sysctl;
mod loopback;
mod mac_guard;
mod macvlan;
mod masquerade;
mod namespace_sysctl;
mod parent;
mod parse;
mod point_to_point;
mod port_mappings;
mod resolv_conf;
mod routes;
mod source_routes;
mod tap;
mod types;
mod veth;
mod vlan;
mod vrf;

use crate::imports::{Interface, Own, own};
use crate::state::State;
use postern_types::{Capability, OpError, Operation, Reply};
use wasmtime::component::ResourceTableError;

pub use generated::postern::cni as wit;

#[allow(missing_docs, reason = "generated; the WIT files are the documentation")]
mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "plugin",
        imports: { default: trappable },
        wasmtime_crate: crate::by_need,
        trappable_error_type: { "postern:cni/types.error" => super::Failure },
        with: {
            "postern:cni/link.link": super::link::Link,
            "postern:cni/veth.options": super::veth::Options,
            "postern:cni/veth.host-end": super::veth::HostEnd,
            "postern:cni/routes.route": super::routes::Route,
            "postern:cni/bridge.options": super::bridge::Options,
            "postern:cni/bridge.port": super::bridge::Port,
            "postern:cni/bridge.bridge": super::bridge::Bridge,
            "postern:cni/parent.parent": super::parent::Parent,
            "postern:cni/tap.options": super::tap::Options,
            "postern:cni/macvlan.options": super::macvlan::Options,
            "postern:cni/link-settings.settings": super::link_settings::Settings,
        },
    });
}

/// The failure of an imported function.
#[derive(Debug)]
pub enum Failure {
    /// The guest gets the error as a value.
    Answer(OpError),
    /// The guest ends: it used a resource that it doesn't have, or too many.
    Trap(wasmtime::Error),
}

impl From<OpError> for Failure {
    fn from(error: OpError) -> Self {
        Self::Answer(error)
    }
}

impl From<ResourceTableError> for Failure {
    fn from(error: ResourceTableError) -> Self {
        Self::Trap(error.into())
    }
}

/// The interface without authority; all other interfaces take their records from it.
const TYPES: Interface = ("postern:cni/types", |linker| wit::types::add_to_linker::<_, Own>(linker, own));

/// Returns each interface with the function that adds it to a linker.
pub fn interfaces() -> impl Iterator<Item = Interface> {
    Capability::ALL.iter().map(|capability| interface(*capability)).chain([TYPES])
}

fn interface(capability: Capability) -> Interface {
    match capability {
        Capability::Link => ("postern:cni/link", |linker| wit::link::add_to_linker::<_, Own>(linker, own)),
        Capability::Veth => ("postern:cni/veth", |linker| wit::veth::add_to_linker::<_, Own>(linker, own)),
        Capability::Addresses => {
            ("postern:cni/addresses", |linker| wit::addresses::add_to_linker::<_, Own>(linker, own))
        }
        Capability::Routes => ("postern:cni/routes", |linker| wit::routes::add_to_linker::<_, Own>(linker, own)),
        Capability::LinkSysctl => {
            ("postern:cni/link-sysctl", |linker| wit::link_sysctl::add_to_linker::<_, Own>(linker, own))
        }
        Capability::Bridge => ("postern:cni/bridge", |linker| wit::bridge::add_to_linker::<_, Own>(linker, own)),
        Capability::PointToPoint => {
            ("postern:cni/point-to-point", |linker| wit::point_to_point::add_to_linker::<_, Own>(linker, own))
        }
        Capability::Parent => ("postern:cni/parent", |linker| wit::parent::add_to_linker::<_, Own>(linker, own)),
        Capability::Macvlan => ("postern:cni/macvlan", |linker| wit::macvlan::add_to_linker::<_, Own>(linker, own)),
        Capability::Vlan => ("postern:cni/vlan", |linker| wit::vlan::add_to_linker::<_, Own>(linker, own)),
        Capability::Ipvlan => ("postern:cni/ipvlan", |linker| wit::ipvlan::add_to_linker::<_, Own>(linker, own)),
        Capability::Dummy => ("postern:cni/dummy", |linker| wit::dummy::add_to_linker::<_, Own>(linker, own)),
        Capability::Tap => ("postern:cni/tap", |linker| wit::tap::add_to_linker::<_, Own>(linker, own)),
        Capability::Device => ("postern:cni/device", |linker| wit::device::add_to_linker::<_, Own>(linker, own)),
        Capability::PortMappings => {
            ("postern:cni/port-mappings", |linker| wit::port_mappings::add_to_linker::<_, Own>(linker, own))
        }
        Capability::Firewall => ("postern:cni/firewall", |linker| wit::firewall::add_to_linker::<_, Own>(linker, own)),
        Capability::Bandwidth => {
            ("postern:cni/bandwidth", |linker| wit::bandwidth::add_to_linker::<_, Own>(linker, own))
        }
        Capability::Forwarding => {
            ("postern:cni/forwarding", |linker| wit::forwarding::add_to_linker::<_, Own>(linker, own))
        }
        Capability::Masquerade => {
            ("postern:cni/masquerade", |linker| wit::masquerade::add_to_linker::<_, Own>(linker, own))
        }
        Capability::MacGuard => {
            ("postern:cni/mac-guard", |linker| wit::mac_guard::add_to_linker::<_, Own>(linker, own))
        }
        Capability::Ipam => ("postern:cni/ipam", |linker| wit::ipam::add_to_linker::<_, Own>(linker, own)),
        Capability::Leases => ("postern:cni/leases", |linker| wit::leases::add_to_linker::<_, Own>(linker, own)),
        Capability::ResolvConf => {
            ("postern:cni/resolv-conf", |linker| wit::resolv_conf::add_to_linker::<_, Own>(linker, own))
        }
        Capability::Loopback => ("postern:cni/loopback", |linker| wit::loopback::add_to_linker::<_, Own>(linker, own)),
        Capability::Attachments => {
            ("postern:cni/attachments", |linker| wit::attachments::add_to_linker::<_, Own>(linker, own))
        }
        Capability::NamespaceSysctl => {
            ("postern:cni/namespace-sysctl", |linker| wit::namespace_sysctl::add_to_linker::<_, Own>(linker, own))
        }
        Capability::LinkSettings => {
            ("postern:cni/link-settings", |linker| wit::link_settings::add_to_linker::<_, Own>(linker, own))
        }
        Capability::Delegate => ("postern:cni/delegate", |linker| wit::delegate::add_to_linker::<_, Own>(linker, own)),
        Capability::SourceRoutes => {
            ("postern:cni/source-routes", |linker| wit::source_routes::add_to_linker::<_, Own>(linker, own))
        }
        Capability::Vrf => ("postern:cni/vrf", |linker| wit::vrf::add_to_linker::<_, Own>(linker, own)),
        Capability::Dhcp => ("postern:cni/dhcp", |linker| wit::dhcp::add_to_linker::<_, Own>(linker, own)),
    }
}

impl State {
    /// Calls an operation whose answer is empty.
    fn done(&mut self, operation: impl Into<Operation>) -> Result<(), Failure> {
        match self.call(operation)? {
            Reply::Done => Ok(()),
            other => Err(other.unexpected().into()),
        }
    }
}
