//! The rights that a gate keeps, as capabilities and effects request them. [`crate::confinement`] decides how the gate
//! keeps them.

use std::borrow::Cow;

/// An object that a confined gate can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right<'a> {
    /// The kernel's network.
    Network,
    /// The kernel's network, in the container's namespace.
    Container,
    /// Like `Container`. The right also includes the search for BPF programs on the node's links, and the device's
    /// files in this directory of a sysfs.
    Device(Option<Cow<'a, str>>),
    /// The kernel's network, and masquerading by iptables, with the iptables programs if only these can read the rules.
    Iptables,
    /// Like `Iptables`, for forwards from the node's ports.
    HostPorts,
    /// The filter tables of iptables, with its programs if only these can read the tables.
    Forwarding,
    /// Sources in this zone of firewalld.
    Zone(Cow<'a, str>),
    /// Both `Forwarding` and `Zone`. An empty text stands for no zone.
    Filters(Cow<'a, str>),
    /// A directory of leases.
    Leases(Cow<'a, str>),
    /// The kernel's network in the container's namespace, and the directory of a native plugin's files about changed links.
    Backups(Cow<'a, str>),
    /// A native main plugin, and the directory of the native plugin's files about delegates.
    Delegate {
        /// The plugin's name in `CNI_PATH`, if it is a native program.
        program: Option<Cow<'a, str>>,
        /// The directory.
        directory: Option<Cow<'a, str>>,
    },
    /// `/dev/net/tun` for one tap, in the container's namespace; and a process in this SELinux context, if there is one.
    Tap(Option<Cow<'a, str>>),
    /// Connections to the DHCP service at this socket, and the descriptor of the container's namespace.
    Dhcp(Cow<'a, str>),
    /// A file, to be read.
    File(Cow<'a, str>),
    /// A native IPAM program.
    Program(Cow<'a, str>),
}

impl Right<'_> {
    /// True if an effect that needs this right is in the container. Its removal must enter the container.
    pub fn is_in_container(&self) -> bool {
        match self {
            Right::Container | Right::Device(_) | Right::Backups(_) | Right::Tap(_) => true,
            Right::Network
            | Right::Iptables
            | Right::HostPorts
            | Right::Forwarding
            | Right::Zone(_)
            | Right::Filters(_)
            | Right::Leases(_)
            | Right::Delegate { .. }
            | Right::Dhcp(_)
            | Right::File(_)
            | Right::Program(_) => false,
        }
    }
}
