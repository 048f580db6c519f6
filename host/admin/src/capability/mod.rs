//! What people's commands know of each capability: one file for each. `postern plan` says what an operation does, `inspect`
//! what an interface amounts to, and `learn` which policy it takes.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

mod addresses;
mod attachments;
mod bridge;
mod device;
mod forwarding;
mod ipam;
mod leases;
mod link;
mod link_sysctl;
mod loopback;
mod mac_guard;
mod macvlan;
mod masquerade;
mod parent;
mod point_to_point;
mod resolv_conf;
mod routes;
mod veth;

use crate::learn::{Key, Source, Widest};
use crate::lists::Network;
use crate::plan::Names;
use crate::sentences::Group;
use postern_types::{Capability, OpError, Operation, Reply};

/// What holds for who uses the attachment's addresses.
pub const OWN_ADDRESSES: &str = "only with addresses that IPAM gave this attachment: it can name no other";

/// That a link may be looked at only. It limits where it stands.
const LOOK_ONLY: Key = Key::one("look-only", Source::Value("", None), Widest::LeftOut);

/// What is said of a capability, whatever is done with it.
pub struct Page {
    /// What a plugin that does not import it cannot do.
    pub cannot: &'static str,
    /// What holds for who imports it, whatever policy says.
    pub always: Option<&'static str>,
    /// What its functions amount to.
    pub groups: &'static [Group],
    /// Where the values of its policy keys usually come from.
    pub keys: &'static [Key],
}

/// What is said of one operation.
pub trait Told {
    /// What it does, with the objects that it would act on.
    fn words(&self, names: &Names<'_>, outcome: &Result<Reply, OpError>) -> String;

    /// The WIT function, where it is not what the audit log calls it.
    fn function(&self) -> Option<String> {
        None
    }

    /// The link of the host that it makes if there is none of this name.
    fn makes(&self) -> Option<&str> {
        None
    }

    /// The objects by the policy keys that decide on them. A setting that is off is no object.
    fn objects(&self, network: &Network) -> Vec<(&'static str, String)>;
}

/// What is said of a capability.
pub const fn page(capability: Capability) -> &'static Page {
    match capability {
        Capability::Link => &link::PAGE,
        Capability::Veth => &veth::PAGE,
        Capability::Addresses => &addresses::PAGE,
        Capability::Routes => &routes::PAGE,
        Capability::LinkSysctl => &link_sysctl::PAGE,
        Capability::Bridge => &bridge::PAGE,
        Capability::Parent => &parent::PAGE,
        Capability::Macvlan => &macvlan::PAGE,
        Capability::Device => &device::PAGE,
        Capability::PointToPoint => &point_to_point::PAGE,
        Capability::Forwarding => &forwarding::PAGE,
        Capability::Masquerade => &masquerade::PAGE,
        Capability::MacGuard => &mac_guard::PAGE,
        Capability::Ipam => &ipam::PAGE,
        Capability::Leases => &leases::PAGE,
        Capability::ResolvConf => &resolv_conf::PAGE,
        Capability::Loopback => &loopback::PAGE,
        Capability::Attachments => &attachments::PAGE,
    }
}

/// What is said of an operation.
pub fn told(operation: &Operation) -> &dyn Told {
    match operation {
        Operation::Link(operation) => operation,
        Operation::Veth(operation) => operation,
        Operation::Addresses(operation) => operation,
        Operation::Routes(operation) => operation,
        Operation::LinkSysctl(operation) => operation,
        Operation::Bridge(operation) => operation,
        Operation::Parent(operation) => operation,
        Operation::Macvlan(operation) => operation,
        Operation::Device(operation) => operation,
        Operation::PointToPoint(operation) => operation,
        Operation::Forwarding(operation) => operation,
        Operation::Masquerade(operation) => operation,
        Operation::MacGuard(operation) => operation,
        Operation::Ipam(operation) => operation,
        Operation::Leases(operation) => operation,
        Operation::ResolvConf(operation) => operation,
        Operation::Loopback(operation) => operation,
        Operation::Attachments(operation) => operation,
    }
}

/// Every group of functions with its capability, in the order of `wit/world.wit`.
pub fn groups() -> impl Iterator<Item = (Capability, &'static Group)> {
    Capability::ALL.iter().flat_map(|capability| page(*capability).groups.iter().map(|group| (*capability, group)))
}

/// The same, of the interface that a component imports by this name.
pub fn groups_of(interface: &str) -> impl Iterator<Item = &'static Group> {
    Capability::parse(interface).into_iter().flat_map(|capability| page(capability).groups)
}

/// Several things in a sentence.
pub fn list<T: ToString>(items: impl IntoIterator<Item = T>, none: &str) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { none.to_owned() } else { items.join(", ") }
}
