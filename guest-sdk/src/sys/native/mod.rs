//! The way to the fake host on the build machine: a number stands for each resource. `cargo xtask surface` writes a file
//! for each interface.

// each capability: pub(crate) mod {file};
pub(crate) mod addresses;
pub(crate) mod attachments;
pub(crate) mod bandwidth;
pub(crate) mod bridge;
pub(crate) mod delegate;
pub(crate) mod device;
pub(crate) mod dhcp;
pub(crate) mod dummy;
pub(crate) mod firewall;
pub(crate) mod forwarding;
pub(crate) mod ipam;
pub(crate) mod ipvlan;
pub(crate) mod leases;
pub(crate) mod link;
pub(crate) mod link_settings;
pub(crate) mod link_sysctl;
pub(crate) mod loopback;
pub(crate) mod mac_guard;
pub(crate) mod macvlan;
pub(crate) mod masquerade;
pub(crate) mod namespace_sysctl;
pub(crate) mod notes;
pub(crate) mod parent;
pub(crate) mod point_to_point;
pub(crate) mod port_mappings;
pub(crate) mod resolv_conf;
pub(crate) mod routes;
pub(crate) mod source_routes;
pub(crate) mod tap;
pub(crate) mod veth;
pub(crate) mod vlan;
pub(crate) mod vrf;
// end of the list

use crate::error::Error;
use crate::fake;
use postern_types::Operation;
use serde::de::DeserializeOwned;

/// Lets the fake host answer an operation.
fn ask<T: DeserializeOwned>(operation: impl Into<Operation>) -> Result<T, Error> {
    Ok(fake::call(&operation.into())?.read()?)
}
