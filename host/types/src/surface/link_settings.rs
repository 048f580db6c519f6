//! `link-settings`: attributes of the attachment's own link, for a plugin that comes after the plugin that made the
//! link.
//!
//! Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.

use super::Operation;
use crate::log::Line;
use crate::table::{ActsIn, Lasting, OperationTable, Row, Takes};
use crate::{Handle, OpError, Reply};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

const CHANGE: Row = Row::new("link-settings.change", "link-settings-change", ActsIn::Both, Lasting::Attachment);
const CHECK: Row = Row::new("link-settings.check", "link-settings-check", ActsIn::Container, Lasting::Nothing);
const RESTORE: Row = Row::new("link-settings.restore", "link-settings-restore", ActsIn::Both, Lasting::Removal);

/// The operations of `link-settings`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "a variant's own line and `wit/link-settings.wit` describe its fields")]
pub enum LinkSettings {
    /// Container's namespace: changes the attributes.
    Change { link: Handle, settings: crate::LinkSettings },
    /// Compares the attributes with the kernel's attributes.
    Check { link: Handle, settings: crate::LinkSettings },
    /// Container's namespace: restores the attributes that this plugin changed, from the record.
    Restore,
}

/// Answers the operations. Each function returns the reply, or the error that the guest gets.
pub trait Host {
    /// Answers `link-settings.change`.
    fn change(&mut self, link: Handle, settings: &crate::LinkSettings) -> Result<(), OpError>;

    /// Answers `link-settings.check`.
    fn check(&mut self, link: Handle, settings: &crate::LinkSettings) -> Result<(), OpError>;

    /// Answers `link-settings.restore`.
    fn restore(&mut self) -> Result<(), OpError>;
}

impl LinkSettings {
    /// Lets `node` answer this operation.
    ///
    /// # Errors
    /// The error that the guest gets.
    pub fn ask(&self, node: &mut impl Host) -> Result<Reply, OpError> {
        match self {
            Self::Change { link, settings } => node.change(*link, settings).and_then(|reply| Reply::of(&reply)),
            Self::Check { link, settings } => node.check(*link, settings).and_then(|reply| Reply::of(&reply)),
            Self::Restore => node.restore().and_then(|reply| Reply::of(&reply)),
        }
    }

    pub(super) fn log<M: SerializeMap>(&self, line: &mut Line<M>) -> Result<(), M::Error> {
        match self {
            Self::Change { link, settings } => {
                line.add("link", link)?;
                line.add("settings", settings)?;
            }
            Self::Check { link, settings } => {
                line.add("link", link)?;
                line.add("settings", settings)?;
            }
            Self::Restore => {}
        }
        Ok(())
    }
}

impl From<LinkSettings> for Operation {
    fn from(operation: LinkSettings) -> Self {
        Self::LinkSettings(operation)
    }
}

impl OperationTable for LinkSettings {
    const ROWS: &'static [Row] = &[CHANGE, CHECK, RESTORE];

    fn row(&self) -> &'static Row {
        match self {
            Self::Change { .. } => &CHANGE,
            Self::Check { .. } => &CHECK,
            Self::Restore => &RESTORE,
        }
    }

    fn handles(&mut self) -> Vec<(&mut Handle, Takes)> {
        match self {
            Self::Change { link, .. } => vec![(link, Takes::Own)],
            Self::Check { link, .. } => vec![(link, Takes::Own)],
            _ => Vec::new(),
        }
    }
}
