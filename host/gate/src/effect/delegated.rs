//! The run of another main plugin, with a configuration that the host made.

use super::{Addresses, ByContents, Leaves};
use crate::need::Need;
use crate::session::Session;
use crate::{delegation, native};
use postern_cni::{Error, Verb};
use postern_types::{ErrorCode, OpError};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Another main plugin was run. The effects of a component are in the record by themselves; a native program must be run
/// again to remove its effects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegated {
    /// Its name.
    pub plugin: String,
    /// True for a native program of `CNI_PATH`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub native: bool,
    /// Its configuration.
    pub config: String,
    /// The directory with the native plugin's file of this content, if it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl Delegated {
    /// Returns the effect that this attachment's record lists.
    pub fn recorded(session: &Session) -> Option<Self> {
        let effects = session.record().map(|record| record.effects(None)).unwrap_or_default();
        effects.iter().rev().find_map(|noted| Self::of(&noted.effect)).cloned()
    }

    fn del(&self, session: &Session) -> Result<(), Error> {
        let program = native::find(&self.plugin, &session.request.path)?;
        native::run_with(&program, session, Verb::Del, self.config.clone()).map(drop)
    }
}

impl Leaves for Delegated {
    fn remove(&self, session: &Session, _: Option<&[IpAddr]>) -> Result<(), OpError> {
        if self.native && native::check_name(&self.plugin).is_ok() {
            let failed = |error: Error| OpError::new(ErrorCode::Delegate, &self.plugin, error.to_string());
            self.del(session).map_err(failed)?;
        }
        let directory = self.directory.as_deref();
        directory.map_or(Ok(()), |directory| delegation::remove(session, directory, &self.config))
    }

    fn words(&self) -> String {
        match self.native {
            true => format!("what native {} did", self.plugin),
            false => format!("the delegation to {}", self.plugin),
        }
    }

    fn needs(&self) -> Need<'_> {
        Need::Delegate {
            program: self.native.then(|| self.plugin.as_str().into()),
            directory: self.directory.as_deref().map(Into::into),
        }
    }
}

impl ByContents for Delegated {
    fn addresses(&self) -> Addresses<'_> {
        if self.native { Addresses::GivenBy(&self.plugin) } else { Addresses::Unconcerned }
    }
}
