//! The tables: one file for each plugin.

mod bandwidth;
mod bridge;
mod dhcp;
mod dummy;
mod firewall;
mod flannel;
mod host_device;
mod host_local;
mod ipvlan;
mod loopback;
mod macvlan;
mod portmap;
mod ptp;
mod sbr;
mod static_;
mod tap;
mod tuning;
mod vlan;
mod vrf;

use crate::Plugin;
use crate::key::{Form, Key, Kind};

/// The tables of all shipped plugins, by name.
pub const ALL: &[&Plugin] = &[
    &bandwidth::PLUGIN,
    &bridge::PLUGIN,
    &dhcp::PLUGIN,
    &dummy::PLUGIN,
    &firewall::PLUGIN,
    &flannel::PLUGIN,
    &host_device::PLUGIN,
    &host_local::PLUGIN,
    &ipvlan::PLUGIN,
    &loopback::PLUGIN,
    &macvlan::PLUGIN,
    &portmap::PLUGIN,
    &ptp::PLUGIN,
    &sbr::PLUGIN,
    &static_::PLUGIN,
    &tap::PLUGIN,
    &tuning::PLUGIN,
    &vlan::PLUGIN,
    &vrf::PLUGIN,
];

/// The packet filters that a network can name.
const BACKENDS: Kind = Kind::Text(Form::OneOf(&["nftables", "iptables"]));

/// Makes the key `mac`. bridge, macvlan, tap and tuning read it in several places, such as `runtimeConfig`.
const fn mac(about: &'static str) -> Key {
    Key::new("mac", Kind::Text(Form::Mac), about)
}

/// The keys of masquerading.
const MASQUERADE: Key = Key::flag("ipMasq", "Traffic to other networks leaves under an address of the node");
const MASQUERADE_BACKEND: Key =
    Key::new("ipMasqBackend", BACKENDS, "Packet filter for `ipMasq` [default: the node's]").with(r#"{"ipMasq": true}"#);

/// The result of an earlier plugin: one link of the container, and one link of the host.
const PREVIOUS: &str = r#"{"prevResult": {"cniVersion": "1.0.0",
    "interfaces": [{"name": "veth1", "mac": "02:00:00:00:00:09"},
        {"name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/c1"}],
    "ips": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1", "interface": 1}]}}"#;

/// An IPAM plugin for main plugins that need one.
const WITH_IPAM: &str = r#"{"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.2.0/24"}]]}}"#;
