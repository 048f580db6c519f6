//! The reason why a plugin is not run, or a file or directory of the host is not used.

use postern_policy::PolicyError;
use postern_state::TrustError;
use std::fmt::Display;
use std::path::Path;

/// The error for a plugin, file or directory that is not used. The text is for people, and has a hint. No code
/// distinguishes these errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PluginError(pub(crate) String);

/// The hint for each fault of an installed plugin.
pub(crate) const AGAIN: &str = "install Postern again, or `postern add FILE.wasm --policy FILE`";

impl PluginError {
    /// Makes the error for a plugin that runs already or has ended, or that was not prepared before the gate's
    /// confinement.
    pub(crate) fn taken(plugin: &str) -> Self {
        Self(format!("plugin \"{plugin}\" is running already, or ended badly: it is not started again in this run"))
    }

    /// Makes the error for a file that can't be read.
    pub(crate) fn unreadable(path: &Path, reason: impl Display) -> Self {
        Self(format!("{}: {reason}", path.display()))
    }
}

impl From<TrustError> for PluginError {
    fn from(error: TrustError) -> Self {
        Self(error.to_string())
    }
}

impl From<PolicyError> for PluginError {
    fn from(error: PolicyError) -> Self {
        Self(error.to_string())
    }
}
