//! What every operation has to say of itself, whatever it does.

use crate::{Capability, Handle};

/// Where an operation acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// In the container's network namespace.
    Container,
    /// In the host's.
    Host,
    /// In both.
    Both,
    /// In none: it is about files, or about another plugin.
    Nowhere,
}

/// What an operation leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// Nothing: it reads. Allowed on every verb.
    Nothing,
    /// Removed by a failed ADD, and by DEL.
    Attachment,
    /// The same, and it is the attachment's own link: nothing of the attachment outlives it.
    Link,
    /// Removed by a failed ADD only: it dies with the container's namespace.
    Namespace,
    /// It configures what goes away with another effect.
    Part,
    /// A node object: shared, removed by neither.
    Node,
    /// It removes what is this attachment's.
    Removal,
    /// It gives back what the next attachment may take at once, while this one could go on using it: on DEL alone.
    Release,
    /// It removes what is left of attachments that are gone.
    Collection,
}

impl Lasting {
    /// Whether the record must tell that something is being made. What dies with the container's namespace needs none.
    pub fn is_recorded(self) -> bool {
        match self {
            Self::Attachment | Self::Link | Self::Part | Self::Node => true,
            Self::Nothing | Self::Namespace | Self::Removal | Self::Release | Self::Collection => false,
        }
    }

    /// As plans and logs have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Attachment | Self::Link => "attachment",
            Self::Namespace => "namespace",
            Self::Part => "part",
            Self::Node => "node",
            Self::Removal => "removal",
            Self::Release => "release",
            Self::Collection => "collection",
        }
    }
}

/// What a handle can stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The attachment's link in the container.
    Own,
    /// Its other end on the host.
    HostEnd,
    /// A link of the host that a plugin before made.
    Port,
    /// A bridge that policy grants.
    Bridge,
    /// A link to stack others on, that policy grants.
    Parent,
}

impl Kind {
    /// The capability that gives such handles out: who has it may look at the link.
    pub fn giver(self) -> Capability {
        match self {
            Self::Own => Capability::Link,
            Self::HostEnd => Capability::Veth,
            Self::Port | Self::Bridge => Capability::Bridge,
            Self::Parent => Capability::Parent,
        }
    }
}

/// What an operation takes for a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// The attachment's link in the container.
    Own,
    /// Its other end on the host, where this run or the record made it.
    HostEnd,
    /// The same, or a link of the host that a plugin before made: what can be a bridge's port.
    Port,
    /// The same, and a host end that only seems to belong to the container's link: to look at.
    SeenEnd,
    /// A bridge that policy grants.
    Bridge,
    /// A link to stack others on, that policy grants.
    Parent,
    /// Whatever was given out: to look at.
    Any,
}

/// An operation's row in the table of its capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// WIT interface and function, for messages and the audit log.
    pub name: &'static str,
    /// Where it acts.
    pub acts: Where,
    /// What it leaves.
    pub lasting: Lasting,
}

impl Row {
    /// The function alone.
    pub fn function(&self) -> &'static str {
        self.name.split_once('.').map_or("", |(_, function)| function)
    }
}

/// What the operations of one capability have in common.
pub trait Table {
    /// All of them.
    const ROWS: &'static [Row];

    /// This one.
    fn row(&self) -> &'static Row;

    /// The handles that it names, each with what it has to stand for.
    fn handles(&mut self) -> Vec<(&mut Handle, Takes)>;
}

/// The table of a capability: `VARIANT { HANDLE: TAKES, ... } => NAME, WHERE, LASTING;` for each operation. One without a
/// row does not compile.
macro_rules! table {
    ($operations:ident; $($variant:ident { $($handle:ident: $takes:ident),* } => $name:literal, $acts:ident, $lasting:ident;)+) => {
        impl super::table::Table for $operations {
            const ROWS: &'static [super::table::Row] = &[$(super::table::Row {
                name: $name,
                acts: super::table::Where::$acts,
                lasting: super::table::Lasting::$lasting,
            }),+];

            fn row(&self) -> &'static super::table::Row {
                match self {
                    $(Self::$variant { .. } => &super::table::Row {
                        name: $name,
                        acts: super::table::Where::$acts,
                        lasting: super::table::Lasting::$lasting,
                    }),+
                }
            }

            fn handles(&mut self) -> Vec<(&mut crate::Handle, super::table::Takes)> {
                match self {
                    $(Self::$variant { $($handle,)* .. } => vec![$(($handle, super::table::Takes::$takes)),*]),+
                }
            }
        }
    };
}

pub(super) use table;
