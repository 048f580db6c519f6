//! `link`: the attachment's own link: the link named `CNI_IFNAME` in the container's network namespace.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes, WithoutGrant};
use crate::{Handle, LinkInfo, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const ATTRIBUTES: Row = Row::new("link.attributes", "link-attributes", ActsIn::Both, Lasting::Nothing);
const UP: Row = Row::new("link.up", "link-up", ActsIn::Container, Lasting::Part);
const DELETE: Row = Row::new("link.delete", "link-delete", ActsIn::Container, Lasting::Removal)
    .without_grant(WithoutGrant::IfLinkMaker);
const OWN: Row =
    Row::new("link.own", "link-own", ActsIn::Container, Lasting::Nothing).without_grant(WithoutGrant::IfLinkMaker);

/// The operations of `link`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/link.wit` describe its fields")]
pub enum Link {
    /// Reads the link again.
    Attributes { link: Handle },
    /// Container's namespace: sets the link up (`IFF_UP`).
    Up { link: Handle },
    /// Container's namespace: deletes the link; the kernel also removes the other end of a veth, and the link's
    /// addresses and routes.
    Delete { link: Handle },
    /// Looks up the attachment's link.
    Own,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `link.attributes`.
    fn attributes(&mut self, link: Handle) -> Result<LinkInfo, OpError>;

    /// Answers `link.up`.
    fn up(&mut self, link: Handle) -> Result<(), OpError>;

    /// Answers `link.delete`.
    fn delete(&mut self, link: Handle) -> Result<(), OpError>;

    /// Answers `link.own`.
    fn own(&mut self) -> Result<Option<LinkInfo>, OpError>;
}

impl Link {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Attributes { link } => node.attributes(*link).and_then(|reply| Reply::of(&reply)),
            Self::Up { link } => node.up(*link).and_then(|reply| Reply::of(&reply)),
            Self::Delete { link } => node.delete(*link).and_then(|reply| Reply::of(&reply)),
            Self::Own => node.own().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Attributes { link } => {
                line.add("link", link)?;
            }
            Self::Up { link } => {
                line.add("link", link)?;
            }
            Self::Delete { link } => {
                line.add("link", link)?;
            }
            Self::Own => {}
        }
        Ok(())
    }
}

impl From<Link> for Operation {
    fn from(operation: Link) -> Self {
        Self::Link(operation)
    }
}

impl OperationTable for Link {
    const ROWS: &'static [Row] = &[ATTRIBUTES, UP, DELETE, OWN];

    fn row(&self) -> &'static Row {
        match self {
            Self::Attributes { .. } => &ATTRIBUTES,
            Self::Up { .. } => &UP,
            Self::Delete { .. } => &DELETE,
            Self::Own => &OWN,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        match self {
            Self::Attributes { link, .. } => vec![(link, Takes::Any)],
            Self::Up { link, .. } => vec![(link, Takes::Own)],
            Self::Delete { link, .. } => vec![(link, Takes::Own)],
            _ => Vec::new(),
        }
    }
}
