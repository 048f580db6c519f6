//! `firewall`: the node's packet filter, for the attachment's own addresses and for the bridge that its host end has
//! joined.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, IngressPolicy, OpError, Reply};
use ipnet::IpNet;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const ADMIT: Row = Row::new("firewall.admit", "firewall-admit", ActsIn::Host, Lasting::Attachment);
const ISOLATE: Row = Row::new("firewall.isolate", "firewall-isolate", ActsIn::Both, Lasting::Node);
const CHECK: Row = Row::new("firewall.check", "firewall-check", ActsIn::Host, Lasting::Nothing);
const REMOVE: Row = Row::new("firewall.remove", "firewall-remove", ActsIn::Host, Lasting::Removal);

/// The operations of `firewall`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/firewall.wit` describe its fields")]
pub enum Firewall {
    /// Host's namespace: makes rules that forward the traffic from these addresses, and the answers to it.
    Admit { addresses: Vec<IpNet> },
    /// Host's namespace: drops the traffic to this attachment's bridge that the ingress policy forbids, in the IP
    /// versions of the attachment's addresses.
    Isolate { ingress: IngressPolicy },
    /// Compares the rules for these addresses, and the rules of the bridge, with the expected rules.
    Check { addresses: Vec<IpNet> },
    /// Host's namespace: removes the rules that admit the attachment's addresses.
    Remove,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `firewall.admit`.
    fn admit(&mut self, addresses: &[IpNet]) -> Result<(), OpError>;

    /// Answers `firewall.isolate`.
    fn isolate(&mut self, ingress: IngressPolicy) -> Result<(), OpError>;

    /// Answers `firewall.check`.
    fn check(&mut self, addresses: &[IpNet]) -> Result<(), OpError>;

    /// Answers `firewall.remove`.
    fn remove(&mut self) -> Result<(), OpError>;
}

impl Firewall {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Admit { addresses } => node.admit(addresses).and_then(|reply| Reply::of(&reply)),
            Self::Isolate { ingress } => node.isolate(*ingress).and_then(|reply| Reply::of(&reply)),
            Self::Check { addresses } => node.check(addresses).and_then(|reply| Reply::of(&reply)),
            Self::Remove => node.remove().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Admit { addresses } => {
                line.add("addresses", addresses)?;
            }
            Self::Isolate { ingress } => {
                line.add("ingress", ingress)?;
            }
            Self::Check { addresses } => {
                line.add("addresses", addresses)?;
            }
            Self::Remove => {}
        }
        Ok(())
    }
}

impl From<Firewall> for Operation {
    fn from(operation: Firewall) -> Self {
        Self::Firewall(operation)
    }
}

impl OperationTable for Firewall {
    const ROWS: &'static [Row] = &[ADMIT, ISOLATE, CHECK, REMOVE];

    fn row(&self) -> &'static Row {
        match self {
            Self::Admit { .. } => &ADMIT,
            Self::Isolate { .. } => &ISOLATE,
            Self::Check { .. } => &CHECK,
            Self::Remove => &REMOVE,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        Vec::new()
    }
}
