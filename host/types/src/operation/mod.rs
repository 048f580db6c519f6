//! All that a guest can ask for, grouped by capability.
//!
//! Each capability has one file with its operations and their table. The table says what each operation is called,
//! where it acts, what it leaves, and which handles it takes.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

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
mod point_to_point;
mod port_mappings;
mod resolv_conf;
mod routes;
mod source_routes;
mod table;
mod tap;
mod veth;
mod vlan;
mod vrf;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use table::table;

pub use table::{ActsIn, Kind, Lasting, Row, Table, Takes, WithoutGrant};

/// A guest's number for an object that the gate has given to one run. The number alone means nothing. The gate keeps
/// namespace, index, name and permitted verbs for it, and checks them at every use.
pub type Handle = u32;

/// Makes [`Capability`] and [`Operation`] from one row per capability: its type, its file, and the name of its WIT
/// interface.
macro_rules! capabilities {
    ($($operations:ident: $file:ident, $name:literal;)+) => {
        /// The operations, an enum per capability.
        pub mod ops {
            $(pub use super::$file::$operations;)+
        }

        /// A WIT interface with privileges, which a policy grants. In the order of `wit/world.wit`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "the file of each capability describes it")]
        pub enum Capability {
            $($operations,)+
        }

        impl Capability {
            /// All capabilities.
            pub const ALL: &'static [Self] = &[$(Self::$operations,)+];

            /// The name of the WIT interface, and of the policy's table.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$operations => $name,)+
                }
            }

            /// The rows of its operations.
            pub const fn rows(self) -> &'static [Row] {
                match self {
                    $(Self::$operations => <ops::$operations as Table>::ROWS,)+
                }
            }
        }

        /// One privileged request. The gate chooses the names, paths and keys that it lacks, from the operator's
        /// configuration, the run's environment or its own record.
        ///
        /// In JSON it has the form of its capability: `{"op":"bridge-find","name":"cni0"}`.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        #[serde(untagged)]
        #[allow(missing_docs, reason = "the file of each capability describes it")]
        pub enum Operation {
            $($operations(ops::$operations),)+
        }

        $(impl From<ops::$operations> for Operation {
            fn from(operation: ops::$operations) -> Self {
                Self::$operations(operation)
            }
        })+

        /// Selects the capability by `op`, so that only its form is tried. serde's untagged form tries them all, which
        /// takes ten times as long.
        impl<'de> Deserialize<'de> for Operation {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let object = Map::deserialize(deserializer)?;
                let capability = Capability::of_tag(&object).map_err(D::Error::custom)?;
                let object = Value::Object(object);
                match capability {
                    $(Capability::$operations => ops::$operations::deserialize(object).map(Self::$operations),)+
                }
                .map_err(D::Error::custom)
            }
        }

        impl Operation {
            /// Returns the capability that policy has to grant.
            pub fn capability(&self) -> Capability {
                match self {
                    $(Self::$operations(_) => Capability::$operations,)+
                }
            }

            /// Returns its row in the table of its capability.
            pub fn row(&self) -> &'static Row {
                match self {
                    $(Self::$operations(operation) => operation.row(),)+
                }
            }

            /// Returns the handles that it names, each with the kind of object that it must stand for.
            pub fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
                match self {
                    $(Self::$operations(operation) => operation.handles(),)+
                }
            }
        }
    };
}

capabilities! {
    Link: link, "link";
    Veth: veth, "veth";
    Addresses: addresses, "addresses";
    Routes: routes, "routes";
    LinkSysctl: link_sysctl, "link-sysctl";
    Bridge: bridge, "bridge";
    PointToPoint: point_to_point, "point-to-point";
    Forwarding: forwarding, "forwarding";
    Masquerade: masquerade, "masquerade";
    MacGuard: mac_guard, "mac-guard";
    Ipam: ipam, "ipam";
    Leases: leases, "leases";
    ResolvConf: resolv_conf, "resolv-conf";
    Loopback: loopback, "loopback";
    Attachments: attachments, "attachments";
    Parent: parent, "parent";
    Macvlan: macvlan, "macvlan";
    Vlan: vlan, "vlan";
    Ipvlan: ipvlan, "ipvlan";
    Dummy: dummy, "dummy";
    Tap: tap, "tap";
    Device: device, "device";
    PortMappings: port_mappings, "port-mappings";
    Firewall: firewall, "firewall";
    Bandwidth: bandwidth, "bandwidth";
    NamespaceSysctl: namespace_sysctl, "namespace-sysctl";
    LinkSettings: link_settings, "link-settings";
    Delegate: delegate, "delegate";
    SourceRoutes: source_routes, "source-routes";
    Vrf: vrf, "vrf";
    Dhcp: dhcp, "dhcp";
}

impl Capability {
    /// Returns the capability of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|capability| capability.name() == name)
    }

    /// Returns the capability of an operation in JSON: `op` is the capability's name, `-`, and the function.
    fn of_tag(object: &Map<String, Value>) -> Result<Self, String> {
        let tag = object.get("op").and_then(Value::as_str).ok_or("an operation has no `op`")?;
        let is_own = |capability: &Self| {
            // The audit log has always used this name.
            let name = if *capability == Self::LinkSysctl { "sysctl" } else { capability.name() };
            let function = tag.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
            function.is_some_and(|function| capability.rows().iter().any(|row| row.function() == function))
        };
        Self::ALL.iter().copied().find(is_own).ok_or_else(|| format!("there is no operation `{tag}`"))
    }

    /// True if some of its operations act in the container's namespace.
    pub fn acts_in_container(self) -> bool {
        self.rows().iter().any(|row| match row.acts {
            ActsIn::Container | ActsIn::Both => true,
            ActsIn::Host | ActsIn::Nowhere => false,
        })
    }

    /// True if one of its operations makes the attachment's own link.
    pub fn makes_links(self) -> bool {
        self.rows().iter().any(|row| row.lasting == Lasting::Link)
    }

    /// True if some of its operations act in a network namespace: they use netlink or a sysctl.
    pub fn acts_in_kernel(self) -> bool {
        self.rows().iter().any(|row| match row.acts {
            ActsIn::Container | ActsIn::Host | ActsIn::Both => true,
            ActsIn::Nowhere => false,
        })
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Operation {
    /// Returns the WIT interface and function, for messages and the audit log.
    pub fn name(&self) -> &'static str {
        self.row().name
    }

    /// Returns what the operation leaves behind.
    pub fn lasting(&self) -> Lasting {
        self.row().lasting
    }
}
