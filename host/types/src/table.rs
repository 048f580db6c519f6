//! The facts that the host knows about every operation.

use crate::{Capability, Handle};

/// The place where an operation acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActsIn {
    /// In the container's network namespace.
    Container,
    /// In the host's network namespace.
    Host,
    /// In both namespaces.
    Both,
    /// In no namespace: the operation is about files, or about another plugin.
    Nowhere,
}

/// The effect that an operation leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// Nothing: the operation only reads. Allowed on every verb.
    Nothing,
    /// An effect that a failed ADD and DEL remove.
    Attachment,
    /// The attachment's own link. A failed ADD and DEL remove the link, and nothing of the attachment outlives it.
    Link,
    /// An effect that only a failed ADD removes: it ends with the container's namespace.
    Namespace,
    /// A setting of an object. The removal of another effect removes the object.
    Part,
    /// A node object: shared, and removed by neither a failed ADD nor DEL.
    Node,
    /// Nothing: the operation removes objects of this attachment.
    Removal,
    /// Nothing: the operation gives back an object that another attachment may take at once. This attachment could
    /// continue to use the object, so the operation is allowed on DEL only.
    Release,
    /// Nothing: the operation removes garbage.
    Collection,
}

impl Lasting {
    /// True if the record must list the effect before it is made. An effect that ends with the container's namespace
    /// needs no record.
    pub fn is_recorded(self) -> bool {
        match self {
            Self::Attachment | Self::Link | Self::Part | Self::Node => true,
            Self::Nothing | Self::Namespace | Self::Removal | Self::Release | Self::Collection => false,
        }
    }

    /// Returns the name for plans and logs.
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

/// The condition on DEL for an operation that no grant allows.
///
/// If the policy has changed since ADD, the effects would stay, and the runtime would retry for ever. So an operation
/// that removes effects of the attachment needs no grant on DEL. The exception does not widen a plugin's rights: these
/// operations name no object, and act only on the attachment that the runtime removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutGrant {
    /// The operation is refused.
    Refused,
    /// The operation is allowed.
    Allowed,
    /// Allowed if the plugin made the attachment's link. A later plugin of the list needs the grant.
    IfLinkMaker,
    /// Allowed if the network's `ipam.type` is the plugin. Only this plugin gives the network's addresses back.
    IfAddressPlugin,
    /// Allowed if the plugin's policy file names the capability. All attachments of the container share the operation's
    /// object.
    IfNamed,
}

impl WithoutGrant {
    /// Returns the condition for nearly all operations: an operation that removes effects is allowed.
    /// `wit/surface.toml` names the exceptions.
    pub const fn of(lasting: Lasting) -> Self {
        if matches!(lasting, Lasting::Removal) { Self::Allowed } else { Self::Refused }
    }
}

/// The kinds of objects that a handle can stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleKind {
    /// The attachment's link in the container.
    Own,
    /// The attachment's host end.
    HostEnd,
    /// A link of the host that an earlier plugin made.
    Port,
    /// A bridge that policy grants.
    Bridge,
    /// A granted link that other links are stacked on.
    Parent,
}

impl HandleKind {
    /// Returns the capability that gives out these handles. A plugin with this capability may look at the link.
    pub fn giver(self) -> Capability {
        match self {
            Self::Own => Capability::Link,
            Self::HostEnd => Capability::Veth,
            Self::Port | Self::Bridge => Capability::Bridge,
            Self::Parent => Capability::Parent,
        }
    }
}

/// The handles that an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// The attachment's link in the container.
    Own,
    /// The attachment's host end, made by this run or listed in the record.
    HostEnd,
    /// The attachment's host end, or a link of the host that an earlier plugin made: the possible ports of a bridge.
    Port,
    /// Read only: a possible port of a bridge, or a host end that only seems to belong to the container's link.
    SeenEnd,
    /// A bridge that policy grants.
    Bridge,
    /// A granted link that other links are stacked on.
    Parent,
    /// Read only: any handle that was given out.
    Any,
}

/// An operation's row in the table of its capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The WIT interface and function, for messages and the audit log.
    pub name: &'static str,
    /// The name in the audit log's `op`.
    pub log: &'static str,
    /// The place where the operation acts.
    pub acts: ActsIn,
    /// The effect that the operation leaves.
    pub lasting: Lasting,
    /// The condition on DEL if no grant allows the operation.
    pub without_grant: WithoutGrant,
}

impl Row {
    pub(crate) const fn new(name: &'static str, log: &'static str, acts: ActsIn, lasting: Lasting) -> Self {
        Self { name, log, acts, lasting, without_grant: WithoutGrant::of(lasting) }
    }

    pub(crate) const fn without_grant(self, without_grant: WithoutGrant) -> Self {
        Self { without_grant, ..self }
    }

    /// Returns the name of the function alone.
    pub fn function(&self) -> &'static str {
        self.name.split_once('.').map_or("", |(_, function)| function)
    }
}

/// The facts about the operations of one capability.
pub trait OperationTable {
    /// The rows of all operations.
    const ROWS: &'static [Row];

    /// Returns the row of this operation.
    fn row(&self) -> &'static Row;

    /// Returns the operation's handles, each with the kind of object that the handle must stand for.
    fn handles(&mut self) -> Vec<(&mut Handle, Takes)>;
}
