//! Finds the operations that a change of a policy would refuse on this node. Networks are known from their lists,
//! attachments from their records.
//!
//! A runtime gives plugins the network's present list, or the list in its cache that made the attachment. So an
//! attachment is judged by both lists.
//!
//! Each network is played twice on a simulation of the node: under the present policies, and under the new policies.
//! The additional refusals of the new policies are the effect of the change.

use super::finding::{Severity, Sheet, below};
use super::network::Entry;
use super::{Places, Report, contents, policy, text};
use crate::lists::{self, List};
use crate::plan::{self, Call, Refusal};
use anyhow::{Context, Result, anyhow, bail, ensure};
use postern_gate::catalogs::Catalogs;
use postern_net::{Cache, Cached};
use postern_policy::{Policy, PolicyError, Text};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// An attachment of this node.
#[derive(Debug, Serialize)]
pub struct Attachment {
    pub network: String,
    pub container: String,
    pub interface: String,
    /// The operations of the attachment's later verbs that the new policy would refuse.
    pub refused: Vec<Refused>,
}

/// An operation that the changed policy refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    pub verb: &'static str,
    pub plugin: String,
    pub operation: &'static str,
    pub words: String,
    pub missing: Option<String>,
}

/// Judges the change. `only` is the file of a single network.
pub fn check(
    report: &mut Report,
    file: &Path,
    plugin: Option<&str>,
    only: Option<&Path>,
    places: &Places,
) -> Result<()> {
    let policies = policies(file, plugin)?;
    let names: Vec<&str> = policies.iter().map(|(name, _)| name.as_str()).collect();
    let all = || places.directories.iter().flat_map(|directory| lists::files(directory)).collect();
    let files = only.map_or_else(all, |only| vec![only.to_owned()]);
    let arguments = super::capability_args()?;
    let mut networks: BTreeMap<String, PathBuf> = BTreeMap::new();
    for path in files {
        let list = match List::read(&path) {
            Ok(list) => list,
            Err(reason) if only.is_some() => bail!("network {} {reason}", path.display()),
            Err(reason) => {
                report.notes.push(format!("{} was left out: the file {reason}", path.display()));
                continue;
            }
        };
        if !list.entries().iter().any(|entry| concerns(entry, &names)) {
            continue;
        }
        let call = Call { policies: &policies, ..Call::of(&path, &arguments, &places.cni_path) };
        let refused = refused(report, &call)?;
        network(report, &path, refused.iter().filter(|one| one.verb == "ADD"))?;
        networks.entry(list.name().to_owned()).or_insert(path);
    }
    attachments(report, &networks, &policies, places)
}

/// True if an entry calls one of these plugins, also as its IPAM plugin or delegate.
fn concerns(entry: &lists::Entry, names: &[&str]) -> bool {
    let delegate = entry.get("delegate").and_then(|delegate| delegate.get("type")).and_then(serde_json::Value::as_str);
    let own = [entry.plugin(), entry.ipam(), delegate.unwrap_or_default()];
    // The list need not name the plugins that flannel delegates to.
    own.iter().any(|name| names.contains(name))
        || entry.plugin() == "flannel" && ["bridge", "host-local"].iter().any(|name| names.contains(name))
}

/// Reads the new policies of the operator.
fn policies(file: &Path, plugin: Option<&str>) -> Result<Vec<(String, Policy)>> {
    let catalogs = Catalogs::find().map_err(|error| anyhow!("{error}"))?;
    let files: Vec<PathBuf> = if file.is_dir() {
        ensure!(plugin.is_none(), "--plugin goes with a policy file, and {} is a directory", file.display());
        let entries = fs::read_dir(file).with_context(|| file.display().to_string())?.flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
        files.sort();
        files
    } else {
        vec![file.to_owned()]
    };
    let mut policies = Vec::new();
    for path in files {
        let name = match plugin {
            Some(plugin) => plugin.to_owned(),
            None => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        };
        ensure!(!name.contains('/') && !name.is_empty(), "\"{name}\" is no plugin's name");
        let catalog = catalogs.of(&name).map_err(|error| anyhow!("{error}"))?;
        let shipped = catalog.join(format!("{name}.toml"));
        let read = |path: &Path| fs::read_to_string(path).with_context(|| path.display().to_string());
        ensure!(
            shipped.is_file(),
            "there is no plugin \"{name}\" in {}: --plugin names the policy's plugin",
            catalog.display()
        );
        let (shipped, own) = (text_of(&shipped, read(&shipped)?), text_of(&path, read(&path)?));
        let policy = Policy::of_both(shipped, None, || Ok::<_, PolicyError>(Some(own)));
        policies.push((name, policy.map_err(|error| anyhow!("{error}"))?));
    }
    ensure!(!policies.is_empty(), "{} has no policy: policy files are named PLUGIN.toml", file.display());
    Ok(policies)
}

fn text_of(path: &Path, text: String) -> Text {
    Text { path: path.display().to_string(), text }
}

/// Returns the operations of ADD and later verbs that only the changed policies refuse.
fn refused(report: &mut Report, call: &Call<'_>) -> Result<Vec<Refusal>> {
    let (before, _) = plan::refused(&Call { policies: &[], ..call.clone() })?;
    let (after, notes) = plan::refused(call)?;
    report.notes.extend(notes);
    let is_old = |new: &Refusal| {
        let is_same = |old: &Refusal| {
            (old.verb, old.at, old.operation.operation) == (new.verb, new.at, new.operation.operation)
                && old.operation.request == new.operation.request
        };
        before.iter().any(is_same)
    };
    Ok(after.into_iter().filter(|new| !is_old(new)).collect())
}

/// Reports the operations of an ADD that the change would refuse.
fn network<'r>(report: &mut Report, path: &Path, refused: impl Iterator<Item = &'r Refusal>) -> Result<()> {
    let text = contents(path)?;
    let mut sheet = Sheet::new(&path.display().to_string(), &text);
    let node = text::read(&text).map_err(|fault| anyhow!("{}: {}", path.display(), fault.message))?;
    let is_list = node.get("plugins").is_some();
    let items = node.get("plugins").map(text::Node::items).unwrap_or_default();
    for one in refused {
        let entry = match items.get(one.at) {
            Some(node) => Entry { path: super::finding::item("plugins", one.at), node },
            None if is_list => continue,
            None => Entry { path: String::new(), node: &node },
        };
        let operation = &one.operation;
        let (at, path) = policy::asked(entry.node, &entry.path, &operation.request).unwrap_or_else(|| {
            (entry.node.get("type").map_or(entry.node.at, |node| node.at), below(&entry.path, "type"))
        });
        let message =
            format!("the new policy of {} refuses to {} ({})", operation.plugin, operation.words, operation.operation);
        sheet.add(Severity::Error, "policy-change", at, &path, message, operation.missing.clone().unwrap_or_default());
    }
    super::take(report, sheet);
    Ok(())
}

/// Judges the verbs after ADD, for the attachments of these networks.
fn attachments(
    report: &mut Report,
    networks: &BTreeMap<String, PathBuf>,
    policies: &[(String, Policy)],
    places: &Places,
) -> Result<()> {
    let state = postern_account::places::expected().state;
    let records = match postern_state::list(&state) {
        Ok(records) => records,
        Err(error) => {
            report.notes.push(format!("attachments were not looked at: {error}"));
            return Ok(());
        }
    };
    let (arguments, cache) = (super::capability_args()?, Cache::usual());
    let mut known: BTreeMap<String, Vec<Refused>> = BTreeMap::new();
    let mut all = Vec::new();
    for record in records {
        let Some(header) = &record.header else { continue };
        let has_part =
            || record.sections.iter().any(|section| policies.iter().any(|(name, _)| *name == section.plugin()));
        let attachment = postern_net::Attachment::new(&header.container_id, "", &header.ifname);
        let cached = cache.find(&header.network, &attachment);
        let lists = lists_of(networks.get(&header.network), cached.as_ref(), policies);
        if lists.is_empty() {
            if has_part() {
                let message = format!(
                    "network {} has no list in the directory of networks or in the runtimes' cache: its attachments \
                     were left out",
                    header.network
                );
                report.notes.push(message);
            }
            continue;
        }
        let mut judged = Attachment {
            network: header.network.clone(),
            container: header.container_id.clone(),
            interface: header.ifname.clone(),
            refused: Vec::new(),
        };
        for (path, text) in lists {
            if text.is_some() {
                let name = format!("{}/{}/{}", judged.network, judged.container, judged.interface);
                report
                    .notes
                    .push(format!("attachment {name}: its list {} in the runtimes' cache was checked", path.display()));
            }
            // Results are kept, because most attachments of a network have equal results.
            let file = if text.is_none() { Some(path) } else { None };
            let key = format!("{:?}", (file, text, &header.ifname));
            if !known.contains_key(&key) {
                let call =
                    Call { text, policies, ifname: &header.ifname, ..Call::of(path, &arguments, &places.cni_path) };
                known.insert(key.clone(), later(report, &call)?);
            }
            let refused = known.get(&key).into_iter().flatten();
            let new: Vec<Refused> = refused.filter(|one| !judged.refused.contains(one)).cloned().collect();
            judged.refused.extend(new);
        }
        all.push(judged);
    }
    report.notes.sort();
    report.notes.dedup();
    report.attachments = Some(all);
    Ok(())
}

/// Returns the lists that a runtime may give to the plugins of an attachment. Each list has a file, and may have a text
/// that replaces the file's text.
fn lists_of<'l>(
    present: Option<&'l PathBuf>,
    cached: Option<&'l Cached>,
    policies: &[(String, Policy)],
) -> Vec<(&'l Path, Option<&'l [u8]>)> {
    let mut lists: Vec<(&Path, Option<&[u8]>)> = present.into_iter().map(|path| (path.as_path(), None)).collect();
    let Some(cached) = cached else { return lists };
    let names: Vec<&str> = policies.iter().map(|(name, _)| name.as_str()).collect();
    let list = List::of(&cached.path, &cached.config);
    let is_concerned = list.is_ok_and(|list| list.entries().iter().any(|entry| concerns(entry, &names)));
    let value = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
    let is_same = present.is_some_and(|path| fs::read(path).is_ok_and(|text| value(&text) == value(&cached.config)));
    if is_concerned && !is_same {
        lists.push((&cached.path, Some(&cached.config)));
    }
    lists
}

/// Returns the operations of the verbs after ADD that only the changed policies refuse.
fn later(report: &mut Report, call: &Call<'_>) -> Result<Vec<Refused>> {
    let refused = refused(report, call)?.into_iter().filter(|one| one.verb != "ADD");
    let refused = refused.map(|one| Refused {
        verb: one.verb,
        plugin: one.operation.plugin,
        operation: one.operation.operation,
        words: one.operation.words,
        missing: one.operation.missing,
    });
    Ok(refused.collect())
}

/// Returns the lines of an attachment; none if nothing is refused.
pub fn words(attachment: &Attachment) -> Option<String> {
    use crate::output::one_line;
    let Attachment { network, container, interface, refused } = attachment;
    let first = refused.first()?;
    let mut lines = vec![format!(
        "attachment {} {} of network {}: {} would be refused",
        one_line(container),
        one_line(interface),
        one_line(network),
        first.verb
    )];
    for one in refused {
        lines.push(format!(
            "  {}: {} may not {} ({})",
            one.verb,
            one_line(&one.plugin),
            one_line(&one.words),
            one.operation
        ));
        lines.extend(one.missing.as_ref().map(|missing| format!("    help: {}", one_line(missing))));
    }
    Some(lines.join("\n"))
}
