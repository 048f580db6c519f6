//! The files that policies are read from: beside the plugin's code, and the operator's. What they say is
//! [`postern_policy`]'s matter.

use crate::places::{self, PlaceError};
use crate::plugin_error::PluginError;
use postern_policy::{OPERATOR_DIRECTORY, Policy, Text};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Reads `<catalog>/<plugin>.toml` and, if there is one, the operator's file of the same name.
///
/// # Errors
/// No policy (a plugin without one is not run), not to be trusted, or not to be understood.
pub fn load(catalog: &Path, plugin: &str) -> Result<Policy, PluginError> {
    let path = catalog.join(format!("{plugin}.toml"));
    let Some(open) = places::open_trusted(&path)? else {
        return Err(PluginError::NoPolicy { plugin: plugin.to_owned(), file: path });
    };
    let shipped = read(&path, open)?;
    let own = Path::new(OPERATOR_DIRECTORY).join(format!("{plugin}.toml"));
    let operator = || match File::open(&own) {
        Ok(open) => {
            places::trust(&own).map_err(PlaceError::from)?;
            Ok(Some(read(&own, open)?))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(PlaceError::unreadable(&own, e).into()),
    };
    // The shipped file's mistakes are told before the operator's file is looked at.
    Policy::of_both(shipped, operator)
}

/// The file that came with the plugin alone: what it was made for, whatever an operator's file says. `None` if there is
/// none, or none that can be read and trusted.
pub fn load_shipped(catalog: &Path, plugin: &str) -> Option<Policy> {
    let path = catalog.join(format!("{plugin}.toml"));
    let open = places::open_trusted(&path).ok()??;
    let shipped = read(&path, open).ok()?;
    Policy::parse(&shipped.text, &shipped.path).ok()
}

fn read(path: &Path, mut open: File) -> Result<Text, PlaceError> {
    places::trust_file(path, &open)?;
    let mut text = String::new();
    open.read_to_string(&mut text).map_err(|e| PlaceError::unreadable(path, e))?;
    Ok(Text { path: path.display().to_string(), text })
}
