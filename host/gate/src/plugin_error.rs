//! The reasons why a plugin is not run.

use crate::places::PlaceError;
use postern_policy::PolicyError;

/// The reason why a plugin is not run, with the way out: words for people. No code tells one from another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PluginError(pub(crate) String);

/// The way out of every fault of an installed plugin.
pub(crate) const AGAIN: &str = "install it again: `make install`, or `postern add FILE.wasm --policy FILE`";

impl PluginError {
    /// It runs already, or has ended, or the host has confined itself.
    pub(crate) fn taken(plugin: &str) -> Self {
        Self(format!("plugin \"{plugin}\" is running already, or ended badly: it is not started again in this run"))
    }
}

impl From<PlaceError> for PluginError {
    fn from(error: PlaceError) -> Self {
        Self(error.to_string())
    }
}

impl From<PolicyError> for PluginError {
    fn from(error: PolicyError) -> Self {
        Self(error.to_string())
    }
}
