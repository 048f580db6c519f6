//! The effect of a native IPAM program.

use super::{Addresses, ByContents, Leaves};
use crate::native;
use crate::need::Need;
use crate::session::Session;
use postern_cni::{Error, Verb};
use postern_types::{ErrorCode, OpError};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::IpAddr;

/// A native IPAM program was run. It must be run again to remove its effects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Native {
    /// Its name in `CNI_PATH`.
    pub plugin: String,
    /// Its configuration, where that was not the called plugin's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

impl Native {
    /// Returns the effect of a program that is run now.
    pub fn of_run(plugin: &str, session: &Session) -> Self {
        let config = session.request.is_made_by_host.then(|| session.request.stdin.to_string());
        Self { plugin: plugin.to_owned(), config }
    }

    fn del(&self, session: &Session) -> Result<(), Error> {
        let program = native::find(&self.plugin, &session.request.path)?;
        let config = self.config.clone().unwrap_or_else(|| session.request.stdin.to_string());
        native::run_with(&program, session, Verb::Del, config).map(drop)
    }
}

impl Leaves for Native {
    fn remove(&self, session: &Session, _: Option<&[IpAddr]>) -> Result<(), OpError> {
        // No program with such a name was ever run.
        if native::check_name(&self.plugin).is_err() {
            return Ok(());
        }
        self.del(session).map_err(|error| OpError::new(ErrorCode::Delegate, &self.plugin, error.to_string()))
    }

    fn words(&self) -> String {
        format!("what native {} did", self.plugin)
    }

    fn needs(&self) -> Need<'_> {
        Need::Program(Cow::from(&self.plugin))
    }
}

impl ByContents for Native {
    fn addresses(&self) -> Addresses<'_> {
        Addresses::GivenBy(&self.plugin)
    }
}
