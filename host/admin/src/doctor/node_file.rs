//! The directories that the operator's settings name (`node.toml`). The check of policies reports an unreadable file.

use super::{Examination, Remedy, Severity};
use crate::lists::directories;
use postern_gate::places;
use postern_gate::policies::{node_directories, node_settings};
use postern_policy::NODE_FILE;
use std::path::{Path, PathBuf};

/// Returns the directories of network lists: the given directory, or the directories that other commands take. If the
/// settings can't be read, these are the runtimes' directories.
pub fn list_directories(given: Option<&Path>) -> Vec<PathBuf> {
    directories(given).unwrap_or_else(|_| postern_net::Places::default().conf_dirs())
}

/// Returns the operator's directories of plugins.
pub fn plugin_directories() -> Vec<PathBuf> {
    let (_, plugins) = node_directories().unwrap_or_default();
    plugins.into_iter().map(PathBuf::from).collect()
}

pub fn examine(examination: &mut Examination) {
    let Ok(settings) = node_settings() else { return };
    let lists = settings.network_directories.iter().map(|path| (path, "another user could add or change networks"));
    let plugins = settings.plugin_directories.iter().map(|path| (path, "another user could replace plugins"));
    for (path, harm) in lists.chain(plugins) {
        examination.area = "directories";
        if !Path::new(path).is_dir() {
            let what = format!("{path}, which is no directory");
            let remedy = Remedy::Words("make the directory, or correct the file".to_owned());
            examination.found(Severity::Warning, NODE_FILE, what, "commands find nothing there", remedy);
        } else if let Err(reason) = places::trust(Path::new(path)) {
            let reason = reason.to_string();
            let remedy = Remedy::quoted_in(&reason);
            examination.found(Severity::Error, path, reason, harm, remedy);
        }
    }
}
