//! Network lists: checks that their plugins can run.

use super::{Examination, Node, Remedy, Severity};
use crate::lists::{Entry, List, cni_path, is_in, of_directories};
use crate::versions;
use postern_cni::{Flannel, NetConf};
use postern_gate::catalog::Manifest;
use postern_gate::{places, policies, rehearsal};
use postern_types::Capability;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Reads the lists of directories; a file that is not a list is a finding.
pub fn read(examination: &mut Examination, directories: &[PathBuf]) -> Vec<List> {
    let files = of_directories(directories);
    let places: Vec<String> = directories.iter().map(|directory| directory.display().to_string()).collect();
    examination.look("networks", format!("network lists in {}: {}", places.join(" and "), files.len()));
    let mut lists = Vec::new();
    for (path, list) in files {
        match list {
            Ok(list) if !list.name().is_empty() => lists.push(list),
            other => {
                let reason = other.err().unwrap_or_else(|| "has no \"name\"".to_owned());
                let why = "runtimes skip the file, or fail on it";
                let remedy = Remedy::Words("correct the file, or remove it".to_owned());
                examination.found(Severity::Warning, path.display(), reason, why, remedy);
            }
        }
    }
    lists
}

pub fn examine(examination: &mut Examination, node: &Node) {
    examination.area = "networks";
    for (at, list) in node.lists.iter().enumerate() {
        if let Some(first) = node.lists.iter().take(at).find(|first| first.name() == list.name()) {
            let what = format!("network \"{}\" is in {} too", list.name(), first.path.display());
            let why = "runtimes use one of the two files; both networks share leases and records";
            let remedy = Remedy::Words("give one network another name, or remove its file".to_owned());
            examination.found(Severity::Warning, list.path.display(), what, why, remedy);
        }
        for (entry, request) in list.requests() {
            examine_plugin(examination, node, list, (entry, request));
        }
    }
}

fn examine_plugin(examination: &mut Examination, node: &Node, list: &List, (entry, request): (&Entry, Value)) {
    let plugin = entry.plugin();
    let is_installed = |name: &str| node.plugins.iter().any(|one| one == name);
    if !is_installed(plugin) {
        let usual = cni_path(None).unwrap_or_default();
        let native = match (node.bins.have(plugin), is_in(&usual, plugin)) {
            (true, _) => Some("it runs natively".to_owned()),
            // Only the runtime knows in which directory it looks.
            (false, true) => {
                Some(format!("it runs natively, if the runtime looks into the right directory of {usual}"))
            }
            (false, false) => None,
        };
        if let Some(native) = native {
            let what = format!("plugin \"{plugin}\" is not in the catalog: {native}");
            let why = "a native program has all of the host's privileges";
            return examination.found(Severity::Note, list.path.display(), what, why, Remedy::None);
        }
        let what = format!("there is no plugin \"{plugin}\", neither in the catalog nor in {}", node.bins.words());
        let remedy = Remedy::Words(format!(
            "install the program \"{plugin}\" in {}, or a component of this name by `postern add`; --bin names another \
             directory of programs",
            node.bins.words()
        ));
        // A missing directory of programs makes only a note, because the runtime may look in another directory.
        let severity = if node.bins.searched.iter().any(|bin| bin.is_dir()) { Severity::Error } else { Severity::Note };
        return examination.found(severity, list.path.display(), what, "every ADD of the network fails", remedy);
    }
    let Some(catalog) = node.catalog_of(plugin) else { return };
    let Ok(policy) = policies::load_with(None, catalog, plugin) else { return };
    for called in [plugin, entry.ipam()].into_iter().filter(|called| is_installed(called)) {
        examine_version(examination, node, list, &request, called);
    }
    if policy.knows(Capability::Delegate) {
        let granted = policy.resolve(&request.clone().into(), "").ok();
        let may_run = |name: &str| {
            is_installed(name) || granted.as_ref().is_some_and(|granted| granted.allows_native_delegate(name))
        };
        return examine_delegation(examination, list, &request, may_run);
    }
    let ipam = entry.ipam();
    if ipam.is_empty() {
        return;
    }
    let Ok(granted) = policy.resolve(&request.into(), "") else { return };
    let view = granted.view();
    let values = |key: &str| -> Vec<String> {
        let ipam = view.iter().find(|grant| grant.name == Capability::Ipam.name());
        let found = ipam.and_then(|grant| grant.objects.iter().find(|(name, _)| *name == key));
        found.map(|(_, values)| values.clone()).unwrap_or_default()
    };
    let may = |key: &str| values(key).iter().any(|pattern| matches(pattern, ipam));
    let why = format!("every ADD of network \"{}\" fails, with code 110", list.name());
    if !may("types") {
        let what = format!("\"{plugin}\" may not use IPAM plugin \"{ipam}\"");
        let remedy = Remedy::Words(granted.object_hint("ipam.types", ipam));
        examination.found(Severity::Error, list.path.display(), what, &why, remedy);
    } else if !is_installed(ipam) && !may("native") {
        let what = format!("IPAM plugin \"{ipam}\" is not in the catalog, and \"{plugin}\" may not run it natively");
        let hint = granted.native_hint(ipam);
        let remedy = Remedy::Words(format!("place a component of this name by `postern add`; or {hint}"));
        examination.found(Severity::Error, list.path.display(), what, &why, remedy);
    }
}

/// Compares the list's version with a plugin's versions.
fn examine_version(examination: &mut Examination, node: &Node, list: &List, request: &Value, plugin: &str) {
    let Some(catalog) = node.catalog_of(plugin) else { return };
    let (Ok(policy), Ok(manifest)) = (policies::load_with(None, catalog, plugin), Manifest::read(catalog, plugin))
    else {
        return;
    };
    let Ok(supported) = rehearsal::supported(policy.versions(), manifest.versions.as_deref()) else { return };
    let version = request.get("cniVersion").and_then(Value::as_str).filter(|text| !text.is_empty()).unwrap_or("0.1.0");
    if supported.iter().any(|one| one.as_str() == version) {
        return;
    }
    let own = rehearsal::own_versions(manifest.versions.as_deref());
    let is_narrowed = own.iter().any(|one| one.as_str() == version);
    let what = match is_narrowed {
        true => format!("the policy of \"{plugin}\" does not allow CNI version {version} of this network"),
        false => format!("\"{plugin}\" does not support CNI version {version} of this network"),
    };
    let supported = versions::texts(&supported).join(", ");
    let supported = if supported.is_empty() { "none" } else { &supported };
    let policy = if is_narrowed { "; or add the network's version to `versions` of the plugin's policy" } else { "" };
    let remedy = Remedy::Words(format!("write a `cniVersion` that the plugin supports ({supported}){policy}"));
    let why = format!("every ADD of network \"{}\" fails, with code 1", list.name());
    examination.found(Severity::Error, list.path.display(), what, &why, remedy);
}

/// Examines the files that a network of flannel names: the subnet file, and the delegate.
fn examine_delegation(examination: &mut Examination, list: &List, request: &Value, may_run: impl Fn(&str) -> bool) {
    let why = format!("every ADD of network \"{}\" fails", list.name());
    let mut found = |what: String, remedy: &str| {
        let remedy = Remedy::Words(remedy.to_owned());
        examination.found(Severity::Error, list.path.display(), what, &why, remedy);
    };
    let read = NetConf::parse(request.clone().into()).and_then(|conf| Flannel::read(&conf));
    let flannel = match read {
        Ok(flannel) => flannel,
        Err(error) => return found(error.to_string(), "correct the network configuration"),
    };
    if !places::is_there(Path::new(&flannel.subnet_file)) {
        let remedy = "flanneld writes this file: see the log of flannel's pod, or name another file as `subnetFile`";
        found(format!("the subnet file {} is not there", flannel.subnet_file), remedy);
    }
    if !may_run(&flannel.delegate) {
        let remedy = "place a component of this name by `postern add`, or allow the native program by `native` of \
                      [grant.delegate]";
        found(format!("the delegate \"{}\" is not in the catalog", flannel.delegate), remedy);
    }
}

/// True if a value of a policy covers a name; `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return name.ends_with(part);
        }
        match name.find(part) {
            Some(at) => name = name.get(at.saturating_add(part.len())..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_are_runs_of_characters() {
        for (pattern, name, covers) in [
            ("host-local", "host-local", true),
            ("host-local", "host-loca", false),
            ("*", "x", true),
            ("host-*", "host-local", true),
            ("*-lo*l", "host-local", true),
            ("*-lo*x", "host-local", false),
            ("a*", "host-local", false),
        ] {
            assert_eq!(matches(pattern, name), covers, "{pattern} {name}");
        }
    }
}
