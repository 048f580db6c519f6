//! Installed code: complete, matching its manifest, and for this engine.

use super::{Examination, MOST, Node, Remedy, Severity};
use crate::add::default_catalog;
use crate::install::COMPONENT;
use crate::install::layout::InstallLayout;
use crate::lists::List;
use postern_gate::catalog::{self, Manifest, code_path};
use postern_gate::catalogs::Catalogs;
use postern_gate::shell::quoted;
use postern_sandbox::engine;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The plugins that come with Postern, by the directories of `guests/` (`build.rs`).
pub const SHIPPED: &str = env!("POSTERN_SHIPPED");

/// Returns the names of the plugins in the catalogs. A plugin may lack one of its files.
pub fn installed(catalogs: &Catalogs) -> Vec<String> {
    let mut names = BTreeSet::new();
    let entries = catalogs.all().flat_map(|catalog| fs::read_dir(catalog).into_iter().flatten().flatten().take(MOST));
    for entry in entries {
        let path = entry.path();
        let is_part = path.extension().is_some_and(|ending| ["cwasm", "json", "toml"].iter().any(|one| ending == *one));
        if is_part && let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            names.insert(name.to_owned());
        }
    }
    names.into_iter().collect()
}

pub fn examine(examination: &mut Examination, node: &Node) {
    let Ok(catalogs) = &node.catalogs else { return };
    examination.look("plugins", format!("code and manifests of plugins: {}", node.plugins.join(", ")));
    if node.plugins.is_empty() {
        let remedy = Remedy::Words(format!("{} places the plugins that come with it", installer()));
        examination.found(
            Severity::Error,
            catalogs.own().display(),
            "the catalog has no plugin",
            "nothing can be run",
            remedy,
        );
    }
    let engine = engine::fingerprint();
    for plugin in &node.plugins {
        let Some(catalog) = node.catalog_of(plugin) else { continue };
        if catalogs.both_have(plugin) {
            twice(examination, catalogs, plugin);
        }
        // Doctor must not write a note on verified code. So it reads all of the code.
        let verified = catalog::open(catalog, plugin, &engine)
            .and_then(|code| code.program(catalogs.own()).map(|_| code))
            .and_then(|code| code.verify(None));
        if let Err(reason) = verified {
            let place = catalog::code_path(catalog, plugin);
            let (severity, why) = match is_called(node, plugin) {
                true => (Severity::Error, "every run of the plugin is refused"),
                false => (
                    Severity::Warning,
                    "a run of the plugin would be refused; no network and no file starts the plugin",
                ),
            };
            examination.found(severity, place.display(), reason.to_string(), why, again(catalog, plugin));
        }
        let kept = Manifest::read(catalog, plugin).ok().and_then(|manifest| manifest.policy);
        if kept.is_some_and(|policy| !policy.is_true()) {
            let place = Manifest::path(catalog, plugin);
            let what = "the manifest's tables differ from the policy's tables";
            examination.found(
                Severity::Error,
                place.display(),
                what,
                "runs obey the manifest's tables",
                again(catalog, plugin),
            );
        }
    }
}

/// Returns the way to install this Postern again, by the means of its installation.
pub fn installer() -> &'static str {
    match InstallLayout::own().ok().and_then(|layout| layout.means()).as_deref() {
        Some("deb") => "`apt-get install --reinstall postern`",
        Some("rpm") => "`dnf reinstall postern`",
        Some("archive") => "`./install` in the unpacked archive",
        Some("image") => "a new pod of Postern's DaemonSet",
        Some("sysext") => "`systemd-sysext refresh`",
        _ => "`make install` in Postern's source tree",
    }
}

/// Reports a plugin of the operator's catalog whose name the installation has too.
fn twice(examination: &mut Examination, catalogs: &Catalogs, plugin: &str) {
    let (own, added) = (catalogs.own().display(), catalogs.added().display());
    let what = format!("plugin \"{plugin}\" is in {own} and in {added}");
    let why = "runs use the installation's plugin, and never the operator's";
    let remedy = Remedy::Words(format!(
        "add the operator's component under another name, then `postern remove {}` removes it from {added}",
        quoted(plugin)
    ));
    examination.found(Severity::Error, code_path(catalogs.added(), plugin).display(), what, why, remedy);
}

/// True if something can start the plugin: a file for runtimes, or a network that names it.
fn is_called(node: &Node, plugin: &str) -> bool {
    let named = |list: &List| list.entries().iter().any(|entry| [entry.plugin(), entry.ipam()].contains(&plugin));
    let placed = InstallLayout::own().map(|layout| layout.bins()).unwrap_or_default();
    let is_in = |directory: &Path| directory.join(plugin).symlink_metadata().is_ok();
    node.bins.have(plugin) || placed.iter().any(|directory| is_in(directory)) || node.lists.iter().any(named)
}

/// Returns the way to place a plugin again. A catalog keeps the components of added plugins, and not those of shipped ones.
fn again(catalog: &Path, plugin: &str) -> Remedy {
    if SHIPPED.split(' ').any(|shipped| shipped == plugin) {
        return Remedy::Words(format!("{} places the plugin again", installer()));
    }
    let kept = catalog.join(format!("{plugin}.{COMPONENT}"));
    if kept.is_file() {
        let (kept, policy) = (kept.display().to_string(), catalog.join(format!("{plugin}.toml")).display().to_string());
        let at = in_catalog(catalog);
        return Remedy::Command(format!("postern add {} --policy {}{at}", quoted(&kept), quoted(&policy)));
    }
    let component = match Manifest::read(catalog, plugin) {
        Ok(manifest) => format!("the plugin's component (sha256:{})", manifest.digest),
        Err(_) => "the plugin's component".to_owned(),
    };
    Remedy::Words(format!(
        "find {component} and policy: `postern add COMPONENT --name {} --policy POLICY{}` places the plugin again",
        quoted(plugin),
        in_catalog(catalog)
    ))
}

/// Returns the option for a plugin's catalog, if `postern add` would choose another catalog.
fn in_catalog(catalog: &Path) -> String {
    let default = InstallLayout::own().and_then(|layout| default_catalog(&layout)).ok();
    let is_default = default.is_some_and(|default| default == catalog);
    if is_default { String::new() } else { format!(" --catalog {}", quoted(&catalog.display().to_string())) }
}
