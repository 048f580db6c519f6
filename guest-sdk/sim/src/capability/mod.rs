//! The effects of the operations on the simulated node: one file per capability.

// each capability: pub mod {file};
pub mod addresses;
pub mod attachments;
pub mod bandwidth;
pub mod bridge;
pub mod delegate;
pub mod device;
pub mod dhcp;
pub mod dummy;
pub mod firewall;
pub mod forwarding;
pub mod ipam;
pub mod ipvlan;
pub mod leases;
pub mod link;
pub mod link_settings;
pub mod link_sysctl;
pub mod loopback;
pub mod mac_guard;
pub mod macvlan;
pub mod masquerade;
pub mod namespace_sysctl;
pub mod notes;
pub mod parent;
pub mod point_to_point;
pub mod port_mappings;
pub mod resolv_conf;
pub mod routes;
pub mod source_routes;
pub mod tap;
pub mod veth;
pub mod vlan;
pub mod vrf;
// end of the list

use crate::kernel::Kernel;

impl postern_types::Host for Kernel {}
