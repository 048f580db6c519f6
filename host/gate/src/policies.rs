//! Reads the two policy files of a plugin: the file beside its code, and the operator's file. [`postern_policy`]
//! interprets them.

use crate::places;
use crate::plugin_error::PluginError;
use postern_policy::{Form, NODE_FILE, NodeSettings, OPERATOR_DIRECTORY, Policy, Text};
use postern_state::{Dir, OpenMode, if_present};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Reads `<catalog>/<plugin>.toml` and, if there is one, the operator's file of the same name. `form` is the first
/// file's compiled form in the plugin's manifest.
///
/// # Errors
/// The policy is missing (a plugin without a policy is not run), not trusted, or can't be understood.
pub fn load_with(form: Option<Form>, catalog: &Path, plugin: &str) -> Result<Policy, PluginError> {
    // Errors of the shipped file are reported before the operator's file is read.
    Policy::of_both(shipped(catalog, plugin)?, form, || operators_of(plugin))
}

/// Reads only the CNI versions of the two files.
pub fn versions_with(form: Option<Form>, catalog: &Path, plugin: &str) -> Result<Option<Vec<String>>, PluginError> {
    Policy::versions_of_both(shipped(catalog, plugin)?, form, || operators_of(plugin))
}

fn shipped(catalog: &Path, plugin: &str) -> Result<Text, PluginError> {
    let path = catalog.join(format!("{plugin}.toml"));
    match places::open_trusted(&path)? {
        Some(open) => read(&path, open),
        None => Err(PluginError(format!(
            "plugin \"{plugin}\" has no policy at {}, and a plugin without a policy is not run; `postern add FILE.wasm \
             --policy FILE` installs plugin and policy",
            path.display()
        ))),
    }
}

fn operators_of(plugin: &str) -> Result<Option<Text>, PluginError> {
    operators(&Path::new(OPERATOR_DIRECTORY).join(format!("{plugin}.toml")))
}

/// Reads the operator's settings for the whole node. Without the file, no setting is set.
///
/// # Errors
/// The file is not trusted, or can't be understood.
pub fn node_settings() -> Result<NodeSettings, PluginError> {
    Ok(operators(Path::new(NODE_FILE))?.map(|text| NodeSettings::parse(&text)).transpose()?.unwrap_or_default())
}

/// Returns the operator's directories of network lists, and of plugins. Without settings, both are empty.
///
/// # Errors
/// As [`node_settings`].
pub fn node_directories() -> Result<(Vec<String>, Vec<String>), PluginError> {
    node_settings().map(|settings| (settings.network_directories, settings.plugin_directories))
}

/// Returns the operator's file, if there is one. The file may be a symbolic link. The owner of the link decides where
/// the link leads, so the owner is checked too.
fn operators(own: &Path) -> Result<Option<Text>, PluginError> {
    let opened = open_itself(own).or_else(|e| if places::is_link(&e) { behind(own) } else { Err(e) });
    let opened = if_present(opened).map_err(|e| PluginError::unreadable(own, e))?;
    let Some(open) = opened else { return Ok(None) };
    places::trust(own)?;
    if !open.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err(PluginError::unreadable(own, "it is no regular file"));
    }
    places::trust_file(own, &open)?;
    read(own, open).map(Some)
}

/// Opens the target of a symbolic link.
#[expect(
    clippy::disallowed_methods,
    reason = "the target of the operator's link: its path is checked before it is read"
)]
fn behind(link: &Path) -> io::Result<File> {
    open_itself(&std::fs::canonicalize(link)?)
}

/// Opens a file, but not if it is a symbolic link.
fn open_itself(path: &Path) -> io::Result<File> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(ErrorKind::InvalidFilename.into());
    };
    Dir::open(directory)?.file(name, OpenMode::Read)
}

/// Reads only the shipped file. This file shows what the plugin was made for, even if the operator's file differs.
/// `None` if the shipped file is missing, not trusted, or can't be read.
pub fn load_shipped(catalog: &Path, plugin: &str) -> Option<Policy> {
    let shipped = shipped(catalog, plugin).ok()?;
    Policy::parse(&shipped.text, &shipped.path).ok()
}

/// Reads a trusted file. `take` saves a system call: the standard library then does not ask for the file's length.
fn read(path: &Path, open: File) -> Result<Text, PluginError> {
    let mut text = Vec::with_capacity(4096);
    open.take(u64::MAX).read_to_end(&mut text).map_err(|e| PluginError::unreadable(path, e))?;
    let text = String::from_utf8(text).map_err(|e| PluginError::unreadable(path, e))?;
    Ok(Text { path: path.display().to_string(), text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn an_operators_file_may_be_a_link_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("postern-operators-{}", std::process::id()));
        let (policies, kept) = (dir.join("policy"), dir.join("kept"));
        for place in [&dir, &policies, &kept] {
            std::fs::create_dir(place).unwrap();
            std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let read = |name: &str| operators(&policies.join(name)).map(|text| text.map(|text| text.text));
        assert!(operators(&dir.join("none/bridge.toml")).unwrap().is_none());
        assert_eq!(read("bridge.toml"), Ok(None));
        let file = kept.join("bridge.toml");
        std::fs::write(&file, "digest").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        symlink(&file, policies.join("bridge.toml")).unwrap();
        symlink("bridge.toml", policies.join("second.toml")).unwrap();
        symlink("nothing", policies.join("dangling.toml")).unwrap();
        symlink("circle.toml", policies.join("circle.toml")).unwrap();
        for name in ["bridge.toml", "second.toml"] {
            assert_eq!(read(name), Ok(Some("digest".to_owned())));
        }
        assert_eq!(read("dangling.toml"), Ok(None));
        assert!(read("circle.toml").unwrap_err().to_string().contains("circle.toml: "));
        // Other users can write to the link's target.
        std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(read("bridge.toml").unwrap_err().to_string().contains("kept can be written by others"));
        // This pipe has no writer: a run that opened it would wait for ever.
        mkfifo(&policies.join("pipe.toml"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        assert!(read("pipe.toml").unwrap_err().to_string().contains("no regular file"));
        std::fs::create_dir(policies.join("directory.toml")).unwrap();
        std::fs::set_permissions(policies.join("directory.toml"), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(read("directory.toml").unwrap_err().to_string().contains("no regular file"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
