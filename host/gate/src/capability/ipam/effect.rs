//! The effect of a native IPAM program.

use crate::capability::leaves::{ByContents, EffectKind};
use crate::context::Context;
use crate::effect::Addresses;
use crate::native;
use crate::right::Right;
use postern_cni::Verb;
use postern_types::{ErrorCode, OpError};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A native IPAM program was run. It must be run again to remove its effects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Native {
    /// The program's name in `CNI_PATH`.
    pub plugin: String,
    /// The program's configuration, if it differs from the called plugin's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

impl Native {
    /// Returns the effect of a program that is run now.
    pub fn of_run(plugin: &str, run: &Context) -> Self {
        let config = run.request.is_made_by_host.then(|| run.request.stdin.to_string());
        Self { plugin: plugin.to_owned(), config }
    }
}

impl EffectKind for Native {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        undo_native(run, &self.plugin, self.config.clone().unwrap_or_else(|| run.request.stdin.to_string()))
    }

    fn words(&self) -> String {
        format!("the effects of native {}", self.plugin)
    }

    fn right(&self) -> Right<'_> {
        Right::Program(Cow::from(&self.plugin))
    }
}

impl ByContents for Native {
    fn addresses(&self) -> Addresses<'_> {
        Addresses::GivenBy(&self.plugin)
    }
}

/// Runs DEL of a native program with the configuration of its ADD.
pub(crate) fn undo_native(run: &Context, plugin: &str, config: String) -> Result<(), OpError> {
    // A program with an invalid name was never run.
    if native::check_name(plugin).is_err() {
        return Ok(());
    }
    let done =
        native::find(plugin, &run.request.path).and_then(|program| native::run_with(&program, run, Verb::Del, config));
    done.map(drop).map_err(|error| OpError::new(ErrorCode::Delegate, plugin, error.to_string()))
}
