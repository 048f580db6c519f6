//! The effect of running another main plugin, with a configuration that the host made.

use crate::capability::ipam::effect::undo_native;
use crate::capability::leaves::{ByContents, EffectKind};
use crate::capability::link_settings::effect::no_directory;
use crate::context::{Context, View};
use crate::delegation::FILE_LIMIT;
use crate::effect::{Addresses, in_record};
use crate::errors::state_error;
use crate::right::Right;
use postern_cni::{Json, NetConf};
use postern_state::{Backups, StateError};
use postern_types::{ErrorCode, OpError};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Another main plugin was run. If the delegate is a component, the record also lists the delegate's effects. A native
/// program must be run again to remove its effects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegated {
    /// The delegate's name.
    pub plugin: String,
    /// True for a native program of `CNI_PATH`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub native: bool,
    /// The delegate's configuration.
    pub config: String,
    /// The directory of the native plugin's file with this configuration, if the file was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl EffectKind for Delegated {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        if self.native {
            undo_native(run, &self.plugin, self.config.clone())?;
        }
        let directory = self.directory.as_deref();
        directory.map_or(Ok(()), |directory| remove(run, directory, &self.config))
    }

    fn words(&self) -> String {
        match self.native {
            true => format!("the effects of native {}", self.plugin),
            false => format!("the delegation to {}", self.plugin),
        }
    }

    fn right(&self) -> Right<'_> {
        Right::Delegate {
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

/// Returns the directory for the native plugin's file; `None` if the file in `directory` is about another attachment.
pub(crate) fn place(view: View<'_>, directory: &str) -> Result<Option<String>, OpError> {
    let id = &view.request.container_id;
    if !Path::new(directory).is_absolute() {
        let message = format!("dataDir {directory} is no absolute path");
        return Err(OpError::new(ErrorCode::InvalidArgument, directory, message));
    }
    let files = Backups::open(Path::new(directory)).map_err(state_error)?;
    let files = files.ok_or_else(|| no_directory(directory))?;
    let Some(content) = files.read(id, FILE_LIMIT).map_err(state_error)? else {
        return Ok(Some(directory.to_owned()));
    };
    let content = String::from_utf8_lossy(&content);
    let name = NetConf::parse(Json::parse(content.as_bytes(), content.len()).unwrap_or(Json::Null));
    let of_other_network = name.is_ok_and(|conf| !conf.name.is_empty() && conf.name != view.request.conf.name);
    let key = view.key()?;
    let others = postern_state::list_with(&view.fixed.places.state, id).map_err(state_error)?;
    let is_others = others
        .iter()
        .filter(|other| other.key.as_ref() != Some(&key))
        .any(|other| in_record::<Delegated>(other).any(|delegated| delegated.config == content));
    if of_other_network || is_others {
        crate::say!("postern: {directory}/{id} stays: it is about another attachment of this container");
        return Ok(None);
    }
    Ok(Some(directory.to_owned()))
}

pub(crate) fn write(view: View<'_>, directory: &str, content: &str) -> Result<(), OpError> {
    let Some(files) = Backups::open(Path::new(directory)).map_err(state_error)? else { return Ok(()) };
    files.write(&view.request.container_id, &view.key()?, content.as_bytes()).map_err(state_error)
}

/// Removes the native plugin's file, if it has this content. A file that other users could have written stays.
pub(crate) fn remove(run: &Context, directory: &str, content: &str) -> Result<(), OpError> {
    let id = &run.request.container_id;
    let key = run.view().key()?;
    let found = Backups::open(Path::new(directory)).and_then(|files| {
        let Some(files) = files else { return Ok(None) };
        files.remove_unfinished(id, &key)?;
        Ok(files.read(id, FILE_LIMIT)?.map(|found| (files, found)))
    });
    match found {
        Ok(Some((files, found))) if found == content.as_bytes() => {
            files.remove(id, &key).map(drop).map_err(state_error)
        }
        Ok(_) => Ok(()),
        Err(error @ StateError::Untrusted { .. }) => {
            crate::say!("postern: {directory}/{id} stays: {error}");
            Ok(())
        }
        Err(error) => Err(state_error(error)),
    }
}
