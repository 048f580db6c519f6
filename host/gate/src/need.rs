//! What a gate keeps of its rights, as capabilities and effects ask for it. How it keeps that is [`crate::confinement`]'s
//! matter.

use std::borrow::Cow;

/// Something that a confined gate can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need<'a> {
    /// The kernel's network.
    Network,
    /// That, in the container's namespace.
    Container,
    /// That, and the programs of iptables.
    Iptables,
    /// A directory of leases.
    Leases(Cow<'a, str>),
    /// A file, to be read.
    File(Cow<'a, str>),
    /// A native IPAM program.
    Program(Cow<'a, str>),
}
