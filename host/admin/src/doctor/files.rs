//! The files that runtimes start: the plugins' files in CNI bin directories.

use super::{Bins, Examination, Node, Remedy, Severity, placed};
use crate::install::bin_dir::Found;
use crate::install::files::are_same;
use crate::install::layout::{InstallLayout, OPTIONAL, PROGRAMS};
use crate::lists::CNI_DIRECTORIES;
use postern_gate::shell::quoted;
use postern_state::{TrustError, trust};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The harm of a program that another user can write.
const OPEN: &str = "runtimes and services start it as root: a user who can write there has the host's privileges";

pub fn examine(examination: &mut Examination, node: &Node) {
    let Ok(layout) = InstallLayout::own() else { return };
    let host = layout.host();
    if !host.is_file() {
        return examination
            .leave_out("the programs that runtimes start: there is no postern beside postern-admin to compare with");
    }
    let means = layout.means().map(|means| format!(", installed by {means}")).unwrap_or_default();
    examination.look("plugins", format!("this postern in {}{means}", layout.directory().display()));
    let directories = directories(&layout, &node.bins);
    if !node.bins.is_requested {
        elsewhere(examination, node, &directories);
    }
    placed::examine(examination, node, &layout, &directories);
    for directory in directories {
        if !directory.is_dir() {
            examination
                .leave_out(format!("the CNI bin directory: there is no {} (--bin names another)", directory.display()));
            continue;
        }
        examination.look("plugins", format!("the files of plugins in {}", directory.display()));
        for plugin in &node.plugins {
            file(examination, &directory, plugin, &host);
        }
        programs(examination, node, &directory);
    }
    owners(examination, &host);
}

/// Checks a host executable, and the programs beside it, against the rules for code and policies. Services and runs
/// start these programs with all privileges.
fn owners(examination: &mut Examination, host: &Path) {
    let beside = host.parent().unwrap_or(Path::new("/"));
    PROGRAMS.iter().chain(&OPTIONAL).for_each(|name| trusted(examination, &beside.join(name)));
}

/// Checks the plugins' files of a directory, and the host executables that they start, against the same rules.
fn programs(examination: &mut Examination, node: &Node, directory: &Path) {
    let mut hosts = BTreeSet::new();
    for path in node.plugins.iter().map(|plugin| directory.join(plugin)) {
        match Found::at(&path) {
            Found::File(file) => _ = hosts.insert(file.host),
            Found::Link(_) | Found::Copy => {}
            Found::Nothing | Found::Foreign | Found::Directory => continue,
        }
        trusted(examination, &path);
    }
    hosts.iter().for_each(|host| owners(examination, host));
}

/// Reports a program that a user other than root and this user could replace.
fn trusted(examination: &mut Examination, path: &Path) {
    let Err(error) = trust(path) else { return };
    let reason = error.to_string();
    let place = match error {
        // Other checks report a missing file.
        TrustError::Unknown { .. } => return,
        TrustError::Defect { path, .. } => path,
    };
    // The fault of a directory concerns everything below it, and may be reported with the catalog.
    if examination.report.findings.iter().any(|finding| finding.what == reason) {
        return;
    }
    examination.area = "plugins";
    let remedy = Remedy::quoted_in(&reason);
    examination.found(Severity::Error, place.display(), reason, OPEN, remedy);
}

/// Returns the directories that files were placed in, and the requested directory. If no file was placed, the first
/// directory of a runtime's search should have the files.
fn directories(layout: &InstallLayout, bins: &Bins) -> BTreeSet<PathBuf> {
    let mut directories: BTreeSet<PathBuf> = layout.bins().into_iter().collect();
    if directories.is_empty() || bins.is_requested {
        directories.extend(bins.searched.first().cloned());
    }
    directories
}

/// Reports native plugins in a directory without files of Postern. They may be in the directory on purpose.
fn elsewhere(examination: &mut Examination, node: &Node, directories: &BTreeSet<PathBuf>) {
    let searched = node.bins.searched.iter().map(PathBuf::as_path);
    let all: BTreeSet<&Path> = CNI_DIRECTORIES.map(Path::new).into_iter().chain(searched).collect();
    for directory in all.into_iter().filter(|place| !directories.contains(*place)) {
        let is_native = |plugin: &&String| Found::at(&directory.join(plugin)) == Found::Foreign;
        let native: Vec<&str> = node.plugins.iter().filter(is_native).map(String::as_str).collect();
        if !native.is_empty() {
            let what = format!("has native programs of these names: {}", native.join(", "));
            let why = "a runtime that looks there first runs them, with all of the host's privileges";
            let remedy = Remedy::Words("see that the runtime's plugin directories begin with Postern's".to_owned());
            examination.area = "plugins";
            examination.found(Severity::Note, directory.display(), what, why, remedy);
        }
    }
}

fn file(examination: &mut Examination, directory: &Path, plugin: &str, host: &Path) {
    let path = directory.join(plugin);
    // This command keeps a foreign file of that name.
    let again = || {
        Remedy::Command(format!("postern add {} --bin {}", quoted(plugin), quoted(&directory.display().to_string())))
    };
    let mut found =
        |severity, what: &str, why: &str, remedy| examination.found(severity, path.display(), what, why, remedy);
    let other = "another Postern, with a catalog of its own, answers for the plugin";
    match Found::at(&path) {
        Found::File(file) if file.plugin != plugin => {
            let what = format!("starts plugin \"{}\"", file.plugin);
            found(Severity::Error, &what, "networks run another plugin than the one they name", again());
        }
        Found::File(file) if !file.host.exists() => {
            let what = format!("starts {}, which is not there", file.host.display());
            found(Severity::Error, &what, "every run of it fails, with \"no such file or directory\"", again());
        }
        Found::File(file) if !same(&file.host, host) => {
            let what = format!("is not this postern: it starts {}", file.host.display());
            found(Severity::Warning, &what, other, again());
        }
        Found::File(_) if !is_executable(&path) => {
            let remedy = Remedy::Command(format!("chmod 755 {}", quoted(&path.display().to_string())));
            found(Severity::Error, "is not executable", "every run of it fails, with \"permission denied\"", remedy);
        }
        Found::Link(_) | Found::Copy if !same(&path, host) => {
            found(Severity::Warning, "is not this postern", other, again());
        }
        Found::Link(_) => {
            let why =
                "a program that copies a file to this path overwrites the host executable, and with it all plugins";
            found(Severity::Note, "is a link to this postern", why, again());
        }
        Found::File(_) | Found::Copy => {}
        // One finding has all of these files.
        Found::Nothing | Found::Foreign => {}
        Found::Directory => {
            let remedy = Remedy::Words("remove it, then run `postern add` again".to_owned());
            found(Severity::Error, "is a directory", "runtimes cannot start the plugin", remedy);
        }
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o111 == 0o111)
}

/// True if both are the same file, or copies: a copy of the host executable is as good as the original.
fn same(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (fs::canonicalize(one), fs::canonicalize(other)) else { return false };
    if one == other {
        return true;
    }
    are_same(&one, &other)
}
