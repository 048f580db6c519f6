//! Changes of the node that a plugin's CHECK finds. All changes concern the attachment's link, so the tests of every
//! plugin can use this module.

use super::{Kernel, Link, Place};

/// A change of the node between ADD and CHECK.
pub type Change = fn(&mut Kernel);

/// All changes of this module, in their order.
pub const OF_LINK: [Change; 5] = [gone, other_kind, other_mac, down, no_addresses];

/// The container has no links any more.
pub fn gone(node: &mut Kernel) {
    node.links.retain(|_, link| link.place == Place::Host);
}

/// The attachment's link has a kind that no plugin makes.
pub fn other_kind(node: &mut Kernel) {
    own(node, |link| link.info.kind = "bond".to_owned());
}

/// The attachment's link has the MAC address `02:00:00:00:00:99`.
pub fn other_mac(node: &mut Kernel) {
    own(node, |link| link.info.mac = "02:00:00:00:00:99".parse().ok());
}

/// The attachment's link is down.
pub fn down(node: &mut Kernel) {
    own(node, |link| link.info.up = false);
}

/// The attachment's link has no addresses any more.
pub fn no_addresses(node: &mut Kernel) {
    own(node, |link| link.addresses.clear());
}

/// Changes the attachment's link. Without a link nothing changes, CHECK finds nothing, and the test fails.
fn own(node: &mut Kernel, change: impl FnOnce(&mut Link)) {
    node.own_mut().map(change);
}
