//! Installed code: whole, its own manifest's, for this engine, and reached by runtimes.

use super::{Examination, MOST, Node, Remedy, Severity};
use crate::lists::List;
use postern_gate::catalog::{self, Manifest};
use postern_gate::drift::quoted;
use postern_sandbox::engine;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The plugins that come with Postern.
const SHIPPED: [&str; 5] = ["bridge", "host-local", "loopback", "ptp", "static"];

/// Names of the plugins of a catalog, of which there may be halves only.
pub fn installed(catalog: &Path) -> Vec<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(catalog).into_iter().flatten().flatten().take(MOST) {
        let path = entry.path();
        let is_part = path.extension().is_some_and(|ending| ["cwasm", "json", "toml"].iter().any(|one| ending == *one));
        if is_part && let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            names.insert(name.to_owned());
        }
    }
    names.into_iter().collect()
}

pub fn examine(examination: &mut Examination, node: &Node, bin: &Path) {
    let Ok(catalog) = &node.catalog else { return };
    examination.look("plugins", format!("code and manifests of plugins: {}", node.plugins.join(", ")));
    if node.plugins.is_empty() {
        let remedy = Remedy::Words("`make install` in Postern's source tree places those that come with it".to_owned());
        examination.found(Severity::Error, catalog.display(), "there is no plugin in it", "nothing can be run", remedy);
    }
    let engine = engine::fingerprint();
    for plugin in &node.plugins {
        // A note on verified code would be a change: there is no directory for one, and all of the code is read.
        let verified =
            catalog::open(catalog, plugin, &engine).and_then(|code| code.verify(Path::new("/proc/self/none")));
        if let Err(reason) = verified {
            let place = catalog::code_path(catalog, plugin);
            let (severity, why) = match is_called(node, bin, plugin) {
                true => (Severity::Error, "every run of it is refused"),
                false => {
                    (Severity::Warning, "a run of it would be refused; no network asks for it, and nothing starts it")
                }
            };
            examination.found(severity, place.display(), reason, why, again(catalog, plugin));
        }
    }
    links(examination, node, bin);
}

/// Whether anything could start a plugin: a file for runtimes, or a network that names it.
fn is_called(node: &Node, bin: &Path, plugin: &str) -> bool {
    let named = |list: &List| list.entries().iter().any(|entry| [entry.plugin(), entry.ipam()].contains(&plugin));
    bin.join(plugin).symlink_metadata().is_ok() || node.lists.iter().any(named)
}

/// How a plugin is placed once more. The components of those that come with Postern are not installed.
fn again(catalog: &Path, plugin: &str) -> Remedy {
    if SHIPPED.contains(&plugin) {
        return Remedy::Words("`make install` in Postern's source tree places it again".to_owned());
    }
    let component = match Manifest::read(catalog, plugin) {
        Ok(manifest) => format!("its component (sha256:{})", manifest.digest),
        Err(_) => "its component".to_owned(),
    };
    Remedy::Words(format!(
        "have {component} and its policy at hand: `postern add COMPONENT --name {} --policy POLICY` places it again",
        quoted(plugin)
    ))
}

/// What runtimes start under the plugins' names.
fn links(examination: &mut Examination, node: &Node, bin: &Path) {
    if !bin.is_dir() {
        return examination
            .leave_out(format!("the CNI bin directory: there is no {} (--bin names another)", bin.display()));
    }
    examination.look("plugins", format!("what {} has under their names", bin.display()));
    let Some(host) = host() else {
        return examination
            .leave_out("what runtimes start: there is no postern beside postern-admin to compare it with");
    };
    for plugin in &node.plugins {
        let path = bin.join(plugin);
        let link = place(&host, &path);
        if !path.exists() {
            let why = "runtimes that look there do not find the plugin";
            examination.found(Severity::Note, path.display(), "is not there", why, Remedy::Command(link));
        } else if !same(&path, &host) {
            let why =
                "runtimes start that program instead, with all of the host's privileges and none of Postern's records";
            examination.found(Severity::Warning, path.display(), "is not this postern", why, Remedy::Command(link));
        }
    }
}

/// The command that puts a link to the host in a plugin's place, and keeps what is there under a name that is free. It
/// fails where the plugin's name is taken meanwhile.
fn place(host: &Path, path: &Path) -> String {
    let quote = |path: &Path| quoted(&path.display().to_string());
    let link = format!("ln -s {} {}", quote(host), quote(path));
    if path.symlink_metadata().is_err() {
        return link;
    }
    let kept = |number: u32| match number {
        0 => PathBuf::from(format!("{}.native", path.display())),
        more => PathBuf::from(format!("{}.native.{more}", path.display())),
    };
    let free = (0..).map(kept).find(|name| name.symlink_metadata().is_err()).unwrap_or_else(|| kept(0));
    format!("mv -n {} {} && {link}", quote(path), quote(&free))
}

/// The executable that runtimes start, beside this one.
fn host() -> Option<PathBuf> {
    let host = fs::read_link("/proc/self/exe").ok()?.parent()?.join("postern");
    host.is_file().then_some(host)
}

/// Whether both are the same file, or copies: a copy of the host is as good as a link to it.
fn same(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (fs::canonicalize(one), fs::canonicalize(other)) else { return false };
    if one == other {
        return true;
    }
    let length = |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|meta| meta.len());
    let (Some(first), Some(second)) = (length(&one), length(&other)) else { return false };
    first == second && same_bytes(&one, &other).unwrap_or(false)
}

fn same_bytes(one: &Path, other: &Path) -> std::io::Result<bool> {
    let bytes = |path: &Path| File::open(path).map(|file| BufReader::new(file).bytes());
    let (mut one, mut other) = (bytes(one)?, bytes(other)?);
    loop {
        match (one.next().transpose()?, other.next().transpose()?) {
            (None, None) => return Ok(true),
            (first, second) if first == second => {}
            _ => return Ok(false),
        }
    }
}
