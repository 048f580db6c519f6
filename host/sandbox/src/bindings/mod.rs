//! The guest's typed imports: one file per WIT interface, written by `cargo xtask surface`. The files only translate.
//!
//! A call becomes an [`postern_types::Operation`], and goes through the [`crate::CallReceiver`]. The answer becomes the
//! WIT value. Values that a guest builds before it acts (options, a port, a route) stay in the guest's resource table
//! in the sandbox.

mod parse;
mod types;

// each capability: mod {file};
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
mod notes;
mod parent;
mod point_to_point;
mod port_mappings;
mod resolv_conf;
mod routes;
mod source_routes;
mod tap;
mod veth;
mod vlan;
mod vrf;
// end of the list

use crate::imports::{LinkedInterface, Own, own};
use crate::state::State;
use postern_types::{ErrorCode, OpError};
use wasmtime::component::{Resource, ResourceTableError};

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
            // each resource: "postern:cni/{name}.{resource}": super::{file}::{Resource},
            "postern:cni/link.link": super::link::Link,
            "postern:cni/veth.options": super::veth::Options,
            "postern:cni/veth.host-end": super::veth::HostEnd,
            "postern:cni/routes.route": super::routes::Route,
            "postern:cni/bridge.options": super::bridge::Options,
            "postern:cni/bridge.port": super::bridge::Port,
            "postern:cni/bridge.bridge": super::bridge::Bridge,
            "postern:cni/parent.parent": super::parent::Parent,
            "postern:cni/macvlan.options": super::macvlan::Options,
            "postern:cni/tap.options": super::tap::Options,
            "postern:cni/link-settings.settings": super::link_settings::Settings,
            // end of the list
        },
    });
}

/// The failure of an imported function.
#[derive(Debug)]
pub enum Failure {
    /// The guest gets the error as a value.
    Answer(OpError),
    /// The guest ends: it used a resource that it doesn't have, or too many resources.
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

/// Every interface with the function that adds it to a linker.
pub const INTERFACES: &[LinkedInterface] = &[
    // each capability: ("postern:cni/{name}", |linker| wit::{file}::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/link", |linker| wit::link::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/veth", |linker| wit::veth::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/addresses", |linker| wit::addresses::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/routes", |linker| wit::routes::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/link-sysctl", |linker| wit::link_sysctl::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/bridge", |linker| wit::bridge::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/point-to-point", |linker| wit::point_to_point::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/forwarding", |linker| wit::forwarding::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/masquerade", |linker| wit::masquerade::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/mac-guard", |linker| wit::mac_guard::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/ipam", |linker| wit::ipam::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/leases", |linker| wit::leases::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/resolv-conf", |linker| wit::resolv_conf::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/loopback", |linker| wit::loopback::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/attachments", |linker| wit::attachments::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/parent", |linker| wit::parent::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/macvlan", |linker| wit::macvlan::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/vlan", |linker| wit::vlan::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/ipvlan", |linker| wit::ipvlan::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/dummy", |linker| wit::dummy::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/tap", |linker| wit::tap::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/device", |linker| wit::device::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/port-mappings", |linker| wit::port_mappings::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/firewall", |linker| wit::firewall::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/bandwidth", |linker| wit::bandwidth::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/namespace-sysctl", |linker| wit::namespace_sysctl::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/link-settings", |linker| wit::link_settings::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/delegate", |linker| wit::delegate::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/source-routes", |linker| wit::source_routes::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/vrf", |linker| wit::vrf::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/dhcp", |linker| wit::dhcp::add_to_linker::<_, Own>(linker, own)),
    ("postern:cni/notes", |linker| wit::notes::add_to_linker::<_, Own>(linker, own)),
    // end of the list
    // This interface gives no authority. All other interfaces take their records from it.
    ("postern:cni/types", |linker| wit::types::add_to_linker::<_, Own>(linker, own)),
];

impl State {
    /// Gives the guest all these values, or none. The guest does not choose their number.
    fn push_all<T: Send + 'static>(
        &mut self,
        interface: &str,
        values: impl ExactSizeIterator<Item = T>,
    ) -> Result<Vec<Resource<T>>, Failure> {
        let (number, mut pushed) = (values.len(), Vec::new());
        for value in values {
            match self.table.push(value) {
                Ok(resource) => pushed.push(resource),
                Err(_) => {
                    for resource in pushed {
                        self.table.delete(resource)?;
                    }
                    let message = format!("the sandbox has no room for {number} {interface}");
                    return Err(OpError::new(ErrorCode::Exhausted, format!("{interface}.list"), message).into());
                }
            }
        }
        Ok(pushed)
    }
}
