//! Policies: checks that they are valid and fit their components.

use super::{Examination, MOST, Node, Remedy, Severity};
use crate::authority;
use crate::subject::{Pin, Subject};
use postern_gate::policies::node_settings;
use postern_policy::NODE_FILE;
use std::fs;
use std::path::Path;

pub fn examine(examination: &mut Examination, node: &Node) {
    if node.catalogs.is_err() {
        return;
    }
    examination.look("policies", "policies, compared with the imports of plugins");
    for plugin in &node.plugins {
        match Subject::open(plugin, None) {
            Ok(subject) => compare(examination, plugin, &subject),
            // The check of the compiled code reports a missing manifest.
            Err(error) if error.to_string().contains(".json is missing") => {}
            Err(error) => {
                let reason = error.to_string();
                let remedy = match Remedy::quoted_in(&reason) {
                    Remedy::Command(command) if command.starts_with("ch") => Remedy::Command(command),
                    _ => Remedy::Words("correct the file; `postern inspect` says whether the policy fits".to_owned()),
                };
                examination.found(Severity::Error, plugin, reason, "every run of the plugin is refused", remedy);
            }
        }
    }
    if let Err(error) = node_settings() {
        let why = "an ADD to a network that names no packet filter is refused";
        let remedy = Remedy::Words("correct the file, or remove it".to_owned());
        examination.found(Severity::Error, NODE_FILE, error.to_string(), why, remedy);
    }
    let own = Path::new(postern_policy::OPERATOR_DIRECTORY);
    for entry in fs::read_dir(own).into_iter().flatten().flatten().take(MOST) {
        let path = entry.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let is_policy = path.extension().is_some_and(|ending| ending == "toml");
        if !is_policy || !node.plugins.iter().any(|plugin| plugin == name) {
            let why = "no run reads this file: an operator's policy file has the plugin's name, with the ending .toml";
            examination.found(Severity::Note, path.display(), "no plugin has this policy", why, Remedy::None);
        }
    }
}

fn compare(examination: &mut Examination, plugin: &str, subject: &Subject) {
    if let Some(Pin { digest, file, matches: false }) = subject.pin() {
        let what = format!("pins sha256:{digest}, and the installed component is sha256:{}", subject.digest);
        let why = format!("every run of {plugin} is refused");
        let remedy = Remedy::Words("look at the component with `postern inspect`, then set `digest`".to_owned());
        examination.found(Severity::Error, file, what, &why, remedy);
    }
    let Ok(grants) = subject.grants(None) else { return };
    let inspect =
        || Remedy::Words(format!("`postern inspect {plugin}` shows imports and grants; then change the policy"));
    let ungranted = authority::ungranted(&subject.imports, &grants);
    if !ungranted.is_empty() {
        let what = format!("imports interfaces that its policy does not grant: {}", ungranted.join(", "));
        examination.found(
            Severity::Warning,
            plugin,
            what,
            "calls of these interfaces are refused, with code 110",
            inspect(),
        );
    }
    let unused = authority::unused(&subject.imports, &grants);
    if !unused.is_empty() {
        let what = format!("its policy grants interfaces that the plugin does not import: {}", unused.join(", "));
        let why = "a later component of this name could use the grant";
        examination.found(Severity::Warning, plugin, what, why, inspect());
    }
}
