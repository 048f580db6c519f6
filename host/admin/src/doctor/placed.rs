//! The files of Postern that were replaced or are gone: one finding has all files of all CNI bin directories, with one
//! remedy. Installers and package managers that know nothing of Postern replace or delete many files at once.

use super::{Examination, Node, Remedy, Severity};
use crate::install::bin_dir::Found;
use crate::install::layout::{CURRENT, InstallLayout};
use crate::lists::{CNI_DIRECTORIES, List};
use postern_gate::shell::quoted;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The harm. A native plugin has all of the host's privileges, without any report.
const HARM: &str = "runtimes start other programs, with all of the host's privileges and none of Postern's records, or \
                    fail because they find no plugin";

/// The lost files of one directory.
struct Lost<'n> {
    directory: &'n Path,
    /// Plugins whose file is another program.
    replaced: Vec<&'n str>,
    /// Plugins whose file is missing.
    gone: Vec<&'n str>,
}

impl Lost<'_> {
    fn count(&self) -> usize {
        self.replaced.len() + self.gone.len()
    }

    fn words(&self) -> Vec<String> {
        let words = |names: &[&str], how: &str| {
            (!names.is_empty()).then(|| format!("{how} {}: {}", self.directory.display(), names.join(", ")))
        };
        [words(&self.replaced, "replaced in"), words(&self.gone, "gone from")].into_iter().flatten().collect()
    }
}

pub fn examine(examination: &mut Examination, node: &Node, layout: &InstallLayout, directories: &BTreeSet<PathBuf>) {
    let placed: BTreeSet<PathBuf> = layout.placed().into_iter().collect();
    let needed = needed(node, layout, directories);
    let mut lost = Vec::new();
    for directory in directories {
        let names = || node.plugins.iter().map(String::as_str);
        let is = |found: Found| move |name: &&str| Found::at(&directory.join(name)) == found;
        let replaced: Vec<&str> = names().filter(is(Found::Foreign)).collect();
        let (gone, absent): (Vec<&str>, Vec<&str>) = names()
            .filter(is(Found::Nothing))
            .partition(|name| placed.contains(&directory.join(name)) || needed.contains(name));
        if !absent.is_empty() && directory.is_dir() {
            absence(examination, directory, &absent);
        }
        lost.push(Lost { directory, replaced, gone });
    }
    lost.retain(|lost| lost.count() > 0);
    if lost.is_empty() {
        return;
    }
    let places: Vec<String> = lost.iter().map(|lost| lost.directory.display().to_string()).collect();
    let count: usize = lost.iter().map(Lost::count).sum();
    let all: Vec<String> = lost.iter().flat_map(Lost::words).collect();
    let of_them = if count == 1 { "file of Postern was" } else { "files of Postern were" };
    let what = format!("{count} {of_them} replaced or removed: {}", all.join("; "));
    let remedy = remedy(node, layout, &placed, &lost);
    examination.area = "plugins";
    examination.found(Severity::Error, places.join(" and "), what, HARM, remedy);
}

/// Reports plugins that were never placed in a directory, which may be on purpose.
fn absence(examination: &mut Examination, directory: &Path, absent: &[&str]) {
    let what = format!("has no file of these plugins: {}", absent.join(", "));
    let bin = quoted(&directory.display().to_string());
    let remedy = Remedy::Words(format!("`postern add PLUGIN --bin {bin}` places a file"));
    examination.area = "plugins";
    let why = "runtimes that look there do not find the plugins";
    examination.found(Severity::Note, directory.display(), what, why, remedy);
}

/// Returns the plugins that a list needs and that no directory has.
fn needed<'n>(node: &'n Node, layout: &InstallLayout, directories: &BTreeSet<PathBuf>) -> BTreeSet<&'n str> {
    // Without any of these directories, the runtime surely looks in another directory.
    if !directories.iter().any(|directory| directory.is_dir()) {
        return BTreeSet::new();
    }
    let usual = CNI_DIRECTORIES.map(Path::new).into_iter();
    let searched = node.bins.searched.iter().chain(directories).map(PathBuf::as_path);
    let all: Vec<&Path> = usual.chain(searched).chain([layout.directory()]).collect();
    let is_missing = |name: &&str| all.iter().all(|directory| Found::at(&directory.join(name)) == Found::Nothing);
    let is_ours = move |name: &str| node.plugins.iter().any(|plugin| plugin == name);
    let called = |list: &'n List| {
        list.entries().iter().flat_map(move |entry| {
            // A plugin of Postern takes its IPAM plugin from the catalog.
            let ipam = Some(entry.ipam()).filter(|_| !is_ours(entry.plugin()));
            [Some(entry.plugin()), ipam].into_iter().flatten()
        })
    };
    node.lists.iter().flat_map(called).filter(|name| is_ours(name)).filter(is_missing).collect()
}

/// Returns one command that places all lost files again. Foreign files are kept.
fn remedy(node: &Node, layout: &InstallLayout, placed: &BTreeSet<PathBuf>, lost: &[Lost<'_>]) -> Remedy {
    if layout.is_fixed() {
        return on_fixed(layout, lost);
    }
    let prefix = layout.directory().to_str().and_then(|directory| directory.strip_suffix("/lib/postern"));
    let prefix = prefix.filter(|_| layout.directory().join(CURRENT).exists());
    let Some(prefix) = prefix else { return Remedy::Command(one_by_one(lost).join(" && ")) };
    let command = Path::new(prefix).join("bin/postern");
    let is_ours = fs::read_link(&command).is_ok_and(|target| target == layout.host());
    let program = if is_ours { "postern".to_owned() } else { shown(&layout.host()) };
    let prefix = if prefix == "/usr/local" { String::new() } else { format!(" --prefix {}", quoted(prefix)) };
    // Directories that lack the same plugins share a command.
    let mut commands: BTreeMap<String, String> = BTreeMap::new();
    for Lost { directory, replaced, gone } in lost {
        let has_all = node.plugins.iter().all(|plugin| placed.contains(&directory.join(plugin)));
        let names: Vec<&str> = replaced.iter().chain(gone).copied().collect();
        let plugins = if has_all { String::new() } else { format!(" --plugins {}", quoted(&names.join(","))) };
        let bins = commands.entry(plugins).or_default();
        bins.push_str(&format!(" --bin-dir {}", shown(directory)));
    }
    let commands = commands.iter().map(|(plugins, bins)| format!("{program} install{prefix}{bins}{plugins}"));
    Remedy::Command(commands.collect::<Vec<_>>().join(" && "))
}

/// Returns the remedy for an installation that no command changes. The image of a system extension has the files below
/// `/usr`, and no command writes there.
fn on_fixed(layout: &InstallLayout, lost: &[Lost<'_>]) -> Remedy {
    let is_image = layout.means().as_deref() == Some("sysext");
    let (images, others): (Vec<_>, Vec<_>) =
        lost.iter().partition(|lost| is_image && lost.directory.starts_with("/usr"));
    let refresh = (!images.is_empty()).then(|| "systemd-sysext refresh".to_owned());
    let commands: Vec<String> = refresh.into_iter().chain(one_by_one(others)).collect();
    Remedy::Command(commands.join(" && "))
}

/// Returns a command for each lost file.
fn one_by_one<'l, 'n: 'l>(lost: impl IntoIterator<Item = &'l Lost<'n>>) -> Vec<String> {
    let add = |directory: &Path, name: &&str| format!("postern add {} --bin {}", quoted(name), shown(directory));
    let of = |lost: &Lost<'_>| -> Vec<String> {
        lost.replaced.iter().chain(&lost.gone).map(|name| add(lost.directory, name)).collect()
    };
    lost.into_iter().flat_map(of).collect()
}

fn shown(path: &Path) -> String {
    quoted(&path.display().to_string())
}
