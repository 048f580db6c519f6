//! Network lists: whether what they name can run.

use super::{Examination, MOST, Node, Remedy, Severity};
use postern_gate::drift::quoted;
use postern_gate::policy::Policy;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of a list; longer ones are no lists.
const LONGEST: u64 = 4 << 20;

/// A network list, or a configuration of one plugin, as runtimes read them.
pub struct List {
    /// Its file.
    pub path: PathBuf,
    /// The network's name.
    pub name: String,
    plugins: Vec<Entry>,
}

/// One plugin of a list, with the name and version of the list.
pub struct Entry(pub Value);

impl List {
    /// The plugins of the list.
    pub fn plugins(&self) -> &[Entry] {
        &self.plugins
    }
}

impl Entry {
    /// A text; empty if it is absent or no text.
    pub fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether a key has a value that asks for something.
    pub fn has(&self, key: &str) -> bool {
        match self.0.get(key) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Number(number)) => number.as_u64() != Some(0),
            Some(Value::Array(list)) => !list.is_empty(),
            Some(_) => true,
        }
    }

    /// Whether a switch is on.
    pub fn is_on(&self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    /// host-local's data directory, if it has one of its own.
    pub fn data_directory(&self) -> Option<PathBuf> {
        Some(self.text("/ipam/dataDir")).filter(|path| !path.is_empty()).map(PathBuf::from)
    }
}

/// Reads the lists of a directory; what is no list is a finding.
pub fn read(examination: &mut Examination, directory: &Path) -> Vec<List> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory).into_iter().flatten().flatten().take(MOST).map(|entry| entry.path()).collect();
    paths.retain(|path| {
        path.extension().is_some_and(|ending| ["conflist", "conf", "json"].iter().any(|one| ending == *one))
    });
    paths.sort();
    examination.look("networks", format!("network lists in {}: {}", directory.display(), paths.len()));
    let mut lists = Vec::new();
    for path in paths {
        match list(&path) {
            Ok(list) => lists.push(list),
            Err(reason) => {
                let why = "runtimes skip it, or fail with it";
                let remedy = Remedy::Words("correct it, or take it away".to_owned());
                examination.found(Severity::Warning, path.display(), reason, why, remedy);
            }
        }
    }
    lists
}

fn list(path: &Path) -> Result<List, String> {
    let meta = fs::metadata(path).map_err(|e| e.to_string())?;
    if !meta.is_file() || meta.len() > LONGEST {
        return Err("is no regular file, or far too long".to_owned());
    }
    let text = fs::read(path).map_err(|e| e.to_string())?;
    let file: Value = serde_json::from_slice(&text).map_err(|e| format!("is no JSON: {e}"))?;
    let name = file.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err("has no \"name\"".to_owned());
    }
    let mut plugins = match file.get("plugins") {
        Some(Value::Array(plugins)) => plugins.clone(),
        Some(_) => return Err("its \"plugins\" are no list".to_owned()),
        None => vec![file.clone()],
    };
    for plugin in plugins.iter_mut().filter_map(Value::as_object_mut) {
        for key in ["name", "cniVersion"] {
            if let Some(value) = file.get(key) {
                plugin.insert(key.to_owned(), value.clone());
            }
        }
    }
    Ok(List { path: path.to_owned(), name, plugins: plugins.into_iter().map(Entry).collect() })
}

pub fn examine(examination: &mut Examination, node: &Node, bin: &Path) {
    examination.area = "networks";
    for (at, list) in node.lists.iter().enumerate() {
        if let Some(first) = node.lists.iter().take(at).find(|first| first.name == list.name) {
            let what = format!("network \"{}\" is in {} too", list.name, first.path.display());
            let why = "runtimes take one of the two; leases and records of both are the same network's";
            let remedy = Remedy::Words("give one of them another name, or take it away".to_owned());
            examination.found(Severity::Warning, list.path.display(), what, why, remedy);
        }
        for plugin in list.plugins() {
            examine_plugin(examination, node, list, plugin, bin);
        }
    }
}

fn examine_plugin(examination: &mut Examination, node: &Node, list: &List, entry: &Entry, bin: &Path) {
    let plugin = entry.text("/type");
    let is_installed = |name: &str| node.plugins.iter().any(|one| one == name);
    let is_name = !plugin.is_empty() && !plugin.contains('/');
    if !is_installed(plugin) {
        if is_name && bin.join(plugin).exists() {
            let what = format!("plugin \"{plugin}\" is not in the catalog: it runs natively");
            let why = "a native program has all of the host's privileges";
            return examination.found(Severity::Note, list.path.display(), what, why, Remedy::None);
        }
        let what = format!("there is no plugin \"{plugin}\", neither in the catalog nor in {}", bin.display());
        let remedy = Remedy::Words(
            "postern add FILE.wasm --policy FILE, or the native program; --bin names another directory of them"
                .to_owned(),
        );
        // Without a directory of programs this one has none either, and a runtime may look elsewhere.
        let severity = if bin.is_dir() { Severity::Error } else { Severity::Note };
        return examination.found(severity, list.path.display(), what, "every ADD of the network fails", remedy);
    }
    let ipam = entry.text("/ipam/type");
    if ipam.is_empty() {
        return;
    }
    let Ok(policy) = node.catalog.as_ref().map_err(Clone::clone).and_then(|catalog| Policy::load(catalog, plugin))
    else {
        return;
    };
    let Ok(granted) = policy.resolve(&entry.0.clone().into(), "") else { return };
    let view = granted.view();
    let values = |key: &str| -> Vec<String> {
        let ipam = view.iter().find(|grant| grant.capability == "ipam");
        let found = ipam.and_then(|grant| grant.objects.iter().find(|(name, _)| *name == key));
        found.map(|(_, values)| values.clone()).unwrap_or_default()
    };
    let may = |key: &str| values(key).iter().any(|pattern| matches(pattern, ipam));
    let why = format!("every ADD of network \"{}\" fails, with code 110", list.name);
    let file = quoted(&format!("{}/{plugin}.toml", postern_gate::places::OPERATOR_POLICY));
    if !may("types") {
        let what = format!("\"{plugin}\" may not use IPAM plugin \"{ipam}\"");
        let remedy = Remedy::Words(format!("types = [\"{ipam}\"] below [grant.ipam] in {file}"));
        examination.found(Severity::Error, list.path.display(), what, &why, remedy);
    } else if !is_installed(ipam) && !may("native") {
        let what = format!("IPAM plugin \"{ipam}\" is not in the catalog, and \"{plugin}\" may not run it natively");
        let remedy = Remedy::Words(format!(
            "install it with `postern add`, or native = [\"{ipam}\"] below [grant.ipam] in {file}"
        ));
        examination.found(Severity::Error, list.path.display(), what, &why, remedy);
    }
}

/// Whether a value of a policy, in which `*` is any run of characters, covers a name.
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
