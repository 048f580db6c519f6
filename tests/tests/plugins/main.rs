//! The effects of each plugin on a node, alone and in a list, with real connections.

mod bandwidth;
mod chained;
mod chains;
mod default_filter;
mod devices;
mod dhcp_plugin;
mod end_to_end;
mod firewall;
mod flannel;
mod held_devices;
mod inner_links;
mod languages;
mod multus;
mod plugin_pages;
mod port_mappings;
mod previous_link;
mod sbr;
mod sections;
mod tap;
mod traffic;
mod tuning;
mod vlan;
mod vrf;
