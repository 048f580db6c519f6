//! Directories: their owners, and the suitability of their file systems.

use super::{Examination, Node, Remedy, Severity};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::geteuid;
use postern_account::writable::{self, Obstacle};
use postern_gate::capability::leases::DEFAULT_DIRECTORY;
use postern_gate::catalogs::Catalogs;
use postern_gate::effect::Lease;
use postern_gate::places;
use postern_gate::shell::quoted;
use postern_state::trust_way;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The number of bytes that should be free: a node's records and leases take kilobytes, its log a few megabytes.
const SPARE: u64 = 4 << 20;

pub fn examine(examination: &mut Examination, node: &Node) {
    let places = &node.places;
    let mut paths = vec![places.state.clone(), places.library.clone(), places.logs.clone()];
    match &node.catalogs {
        Ok(catalogs) => {
            paths.extend(catalogs.all().map(Path::to_owned));
            trusted(examination, catalogs.own());
            flags(examination, catalogs.own(), false);
            operators_catalog(examination, catalogs);
        }
        Err(reason) => {
            let remedy = Remedy::Words(format!("{} makes one", super::installer()));
            examination.area = "directories";
            examination.found(Severity::Error, places::CATALOG, reason.to_string(), "no plugin can be run", remedy);
        }
    }
    let policy = Path::new(postern_policy::OPERATOR_DIRECTORY);
    if policy.exists() {
        paths.push(policy.to_owned());
        operators(examination, node, policy);
    }
    for directory in [&places.state, &places.library] {
        if directory.exists() {
            trusted(examination, directory);
            flags(examination, directory, true);
        }
    }
    if places.logs.exists() {
        let open = places::directory(&places.logs);
        if let Err(reason) = open.and_then(|open| Ok(places::trust_file(&places.logs, open)?)) {
            untrusted(examination, &places.logs, reason.to_string());
        }
        flags(examination, &places.logs, true);
    }
    if let Some(what) = places::why_logs_moved(&places.logs) {
        examination.area = "directories";
        // A user without privileges has no other directory for the log.
        let severity = if geteuid().is_root() { Severity::Warning } else { Severity::Note };
        let why = "the log is lost with the state directory at the next boot";
        let remedy = Remedy::Words(format!("make {} a directory that postern's user can write to", places::LOGS));
        examination.found(severity, places.logs.display(), what, why, remedy);
    }
    for directory in lease_directories(node) {
        if directory.exists() {
            leases(examination, &directory);
            flags(examination, &directory, true);
            let why = "host-local can't give out addresses of this network";
            let networks = postern_state::networks(&directory).ok().flatten().unwrap_or_default();
            let networks = networks.iter().take(super::MOST).map(|network| directory.join(network));
            let is_readable = writable::refused(&directory, why).is_none();
            let refused = networks.filter(|_| is_readable).filter_map(|network| writable::refused(&network, why));
            refused.filter(is_certain).for_each(|obstacle| refuse(examination, &obstacle));
        }
        paths.push(directory);
    }
    // A read-only file system is reported once, with the directory itself.
    let reported: Vec<String> = examination.report.findings.iter().map(|finding| finding.place.clone()).collect();
    let is_new = |obstacle: &Obstacle| !reported.contains(&obstacle.path.display().to_string());
    writable::obstacles(places).iter().filter(|one| is_new(one)).for_each(|one| refuse(examination, one));
    memory(examination, &places.state);
    let mut seen = BTreeSet::new();
    paths.retain(|path| path.exists() && seen.insert(path.clone()));
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    examination.look("directories", format!("directories: {}", paths.join(", ")));
}

/// Returns the data directories of leases: the default, and the directories in records and in network lists.
pub fn lease_directories(node: &Node) -> BTreeSet<PathBuf> {
    let effects = node.accounts.iter().flat_map(|account| &account.effects);
    let recorded = effects.filter_map(Lease::of).map(|lease| PathBuf::from(&lease.directory));
    let listed = node.lists.iter().flat_map(|list| list.entries()).filter_map(|plugin| plugin.data_directory());
    recorded.chain(listed).chain([PathBuf::from(DEFAULT_DIRECTORY)]).filter(|path| path.is_absolute()).collect()
}

fn trusted(examination: &mut Examination, path: &Path) {
    if let Err(reason) = places::trust(path) {
        untrusted(examination, path, reason.to_string());
    }
}

/// True if the obstacle is certain. For a user other than root, runs of root may still be able to write.
fn is_certain(obstacle: &Obstacle) -> bool {
    obstacle.is_command || geteuid().is_root()
}

fn refuse(examination: &mut Examination, obstacle: &Obstacle) {
    examination.area = "directories";
    let severity = if obstacle.is_survived { Severity::Warning } else { Severity::Error };
    let remedy = obstacle.remedy.clone();
    let remedy = if obstacle.is_command { Remedy::Command(remedy) } else { Remedy::Words(remedy) };
    examination.found(severity, obstacle.path.display(), obstacle.what.clone(), obstacle.why, remedy);
}

/// Checks the operator's catalog, if there is one. Runs of the installation's plugins do not look at it.
fn operators_catalog(examination: &mut Examination, catalogs: &Catalogs) {
    let added = catalogs.added();
    // A link that leads nowhere counts too.
    if added.symlink_metadata().is_err() {
        return;
    }
    if let Err(reason) = catalogs.judge() {
        examination.area = "directories";
        let reason = reason.to_string();
        let remedy = Remedy::quoted_in(&reason);
        let why = "every run of a plugin in this directory is refused";
        examination.found(Severity::Error, added.display(), reason, why, remedy);
    }
}

/// Checks the operator's policies one by one: a run is refused only if its plugin has a policy in this directory.
fn operators(examination: &mut Examination, node: &Node, directory: &Path) {
    let Err(reason) = places::trust(directory) else { return };
    let reason = reason.to_string();
    let has = |plugin: &&String| directory.join(format!("{plugin}.toml")).exists();
    let refused: Vec<&str> = node.plugins.iter().filter(has).map(String::as_str).collect();
    examination.area = "directories";
    let remedy = Remedy::quoted_in(&reason);
    match refused.as_slice() {
        [] => {
            let why =
                "no plugin has a policy in this directory yet; runs of a plugin with such a policy would be refused";
            examination.found(Severity::Warning, directory.display(), reason, why, remedy);
        }
        plugins => {
            let why =
                format!("every run of {} is refused: another user could have written the policy", plugins.join(", "));
            examination.found(Severity::Error, directory.display(), reason, &why, remedy);
        }
    }
}

fn untrusted(examination: &mut Examination, path: &Path, reason: String) {
    examination.area = "directories";
    let remedy = Remedy::quoted_in(&reason);
    let why = "every run is refused: a user who can write to this directory would have the host's privileges";
    examination.found(Severity::Error, path.display(), reason, why, remedy);
}

/// Native plugins use lease directories too. So a group may write to a network's directory. In a sticky data directory,
/// other users can make directories. These directories are skipped, because no network of this node uses them.
fn leases(examination: &mut Examination, directory: &Path) {
    examination.area = "directories";
    let networks = std::fs::read_dir(directory).into_iter().flatten().flatten().take(super::MOST);
    let networks = networks.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
    let is_sticky = std::fs::metadata(directory).is_ok_and(|meta| meta.mode() & 0o1000 != 0);
    for path in std::iter::once(directory.to_owned()).chain(networks) {
        let Ok(meta) = std::fs::metadata(&path) else { continue };
        let is_above = path == directory;
        let trusted = || if is_above { trust_way(&path, true).map(drop) } else { places::trust(&path) };
        let name = quoted(&path.display().to_string());
        let why = "host-local refuses to give addresses from this directory";
        let foreign = meta.uid() != 0 && meta.uid() != geteuid().as_raw();
        if is_sticky && foreign && !is_above {
            continue;
        }
        if !foreign && meta.mode() & 0o002 != 0 && !(is_sticky && is_above) {
            let what = format!("everybody may write to it (mode {:o})", meta.mode() & 0o7777);
            let remedy = match meta.mode() & 0o1000 {
                0 => Remedy::Command(format!("chmod o-w {name}")),
                _ => Remedy::Words("name a separate directory as ipam.dataDir".to_owned()),
            };
            examination.found(Severity::Error, path.display(), what, why, remedy);
        } else if (foreign || is_above)
            && let Err(reason) = trusted()
        {
            let reason = reason.to_string();
            let remedy = Remedy::quoted_in(&reason);
            examination.found(Severity::Error, path.display(), reason, why, remedy);
        }
    }
}

/// Checks mount flags and free space.
fn flags(examination: &mut Examination, path: &Path, is_written: bool) {
    examination.area = "directories";
    let Ok(system) = statvfs(path) else {
        return examination.leave_out(format!("the file system of {}", path.display()));
    };
    let name = quoted(&path.display().to_string());
    if !is_written {
        if system.flags().contains(FsFlags::ST_NOEXEC) {
            let why = "compiled plugins are executed from this directory: no plugin can be run";
            let remedy = Remedy::Command(format!("mount -o remount,exec \"$(findmnt -nT {name} -o TARGET)\""));
            examination.found(Severity::Error, path.display(), "is mounted noexec", why, remedy);
        }
        return;
    }
    if let Some(obstacle) = writable::refused(path, "runs write to this directory, and fail").filter(is_certain) {
        return refuse(examination, &obstacle);
    }
    let free = system.blocks_available().saturating_mul(system.fragment_size());
    let why = "a run that can't write its record or a lease changes nothing and fails";
    let severity = |left: u64| if left == 0 { Severity::Error } else { Severity::Warning };
    let remedy = || Remedy::Words("free space on the file system".to_owned());
    if system.blocks() > 0 && free < SPARE {
        let what = format!("its file system is full: {} KiB are free", free >> 10);
        examination.found(severity(free), path.display(), what, why, remedy());
    }
    if system.files() > 0 && system.files_available() < 64 {
        let left = system.files_available();
        let what = format!("its file system has no room for files: {left} inodes are free");
        examination.found(severity(left), path.display(), what, why, remedy());
    }
}

/// Records should live as long as the kernel's state.
fn memory(examination: &mut Examination, state: &Path) {
    let Ok(system) = statfs(state) else { return };
    if system.filesystem_type() != TMPFS_MAGIC {
        examination.area = "directories";
        let why = "records survive a boot: Postern recognises old records, and `postern gc` removes them";
        examination.found(Severity::Note, state.display(), "is not in memory (tmpfs)", why, Remedy::None);
    }
}
