//! `postern net validate` checks a network by tables of keys, before a pod needs the network. `postern net schema`
//! prints these tables as JSON Schemas.

mod addresses;
mod chains;
mod change;
mod dhcp;
mod finding;
mod keys;
mod network;
mod plugin;
mod policy;
mod programs;
mod rules;
mod sysctls;
mod text;

use crate::lists;
use crate::output;
use crate::plan::Call;
use anyhow::{Context, Result, anyhow, bail, ensure};
use finding::{Finding, Severity, Sheet};
use postern_cni::unicode;
use postern_keys::schema;
use serde::Serialize;
use serde_json::{Map, Value};
use std::env;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The networks and policies to check.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// A network list (.conflist), a file with one plugin (.conf, .json), or the name of a network. With --policy, the
    /// default is all networks.
    #[arg(value_name = "FILE|NETWORK", required_unless_present = "policy")]
    target: Option<String>,
    /// Check the file alone, for CI, without programs, policy and this node.
    #[arg(long, conflicts_with = "policy")]
    file_only: bool,
    /// A new policy file of the operator, or a directory of new policy files. Shows which networks and attachments of
    /// this node the new policy would refuse.
    #[arg(long, value_name = "FILE|DIR")]
    policy: Option<PathBuf>,
    /// The plugin of the policy file [default: the file's name].
    #[arg(long, value_name = "NAME", requires = "policy")]
    plugin: Option<String>,
    /// Print one JSON object. Later versions may add keys.
    ///
    /// Keys: valid, errors, warnings (numbers), findings [{severity (error, warning), code, file, line, column (from 1,
    /// in characters), path, message, help}], notes, files (the files that were read). With --policy also attachments
    /// [{network, container, interface, refused [{verb, operation, words, missing}]}].
    #[arg(long)]
    json: bool,
}

/// The object that `--json` prints. Keys are only ever added.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// True if there is no error.
    pub valid: bool,
    pub errors: usize,
    pub warnings: usize,
    pub findings: Vec<Finding>,
    /// The checks that were left out, each with its reason.
    pub notes: Vec<String>,
    pub files: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Vec<change::Attachment>>,
}

/// The places of networks and plugins.
#[derive(Debug)]
pub struct Places {
    /// The directories of networks.
    pub directories: Vec<PathBuf>,
    /// Directories of plugins, separated by colons.
    pub cni_path: String,
}

/// Checks, and prints the findings.
pub fn run(options: &Options, places: &Places) -> ExitCode {
    let outcome = report(options, places);
    postern_gate::rehearsal::reap();
    match outcome.and_then(|report| print(&report, options.json).map(|()| report.valid)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            output::say(format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn report(options: &Options, places: &Places) -> Result<Report> {
    let mut report = Report::default();
    match (&options.target, &options.policy) {
        (Some(target), policy) => {
            let file = lists::find(target, &places.directories)?;
            if let Some(policy) = policy {
                change::check(&mut report, policy, options.plugin.as_deref(), Some(&file), places)?;
            } else {
                check_file(&mut report, &file, options.file_only, places)?;
            }
        }
        (None, Some(policy)) => change::check(&mut report, policy, options.plugin.as_deref(), None, places)?,
        (None, None) => bail!("nothing to check"),
    }
    report
        .findings
        .sort_by(|a, b| (&a.file, a.line, a.column, a.severity).cmp(&(&b.file, b.line, b.column, b.severity)));
    // The table of the list's keys and the check of the plugin can find the same fault.
    let same = |a: &Finding, b: &Finding| {
        (&a.file, a.line, a.column, a.code, &a.path) == (&b.file, b.line, b.column, b.code, &b.path)
    };
    report.findings.dedup_by(|a, b| same(a, b));
    let count = |severity| report.findings.iter().filter(|one| one.severity == severity).count();
    (report.errors, report.warnings) = (count(Severity::Error), count(Severity::Warning));
    let refused = report.attachments.iter().flatten().filter(|one| !one.refused.is_empty()).count();
    report.valid = report.errors == 0 && refused == 0;
    Ok(report)
}

fn print(report: &Report, json: bool) -> Result<()> {
    if json {
        return output::json(report);
    }
    let mut lines = vec![finding::text(&report.findings)];
    lines.extend(report.attachments.iter().flatten().filter_map(change::words));
    lines.extend(report.notes.iter().map(|note| format!("note: {}", output::one_line(note))));
    lines.push(verdict(report));
    lines.retain(|line| !line.is_empty());
    output::text(&lines.join("\n"))
}

fn verdict(report: &Report) -> String {
    let errors = output::count(report.errors, "error", "errors");
    let warnings = output::count(report.warnings, "warning", "warnings");
    let files: Vec<String> = report.files.iter().map(|file| output::whole(file)).collect();
    let files = match files.as_slice() {
        [] => "no file".to_owned(),
        [one] => one.clone(),
        more => output::count(more.len(), "file", "files"),
    };
    let attachments = report.attachments.as_ref().map(|all| {
        let refused = all.iter().filter(|one| !one.refused.is_empty()).count();
        format!("; {refused} of {} refused", output::count(all.len(), "attachment", "attachments"))
    });
    format!("{files}: {errors}, {warnings}{}", attachments.unwrap_or_default())
}

/// Reads a file.
fn contents(file: &Path) -> Result<String> {
    let place = || file.display().to_string();
    let opened = lists::open(file).map_err(|reason| anyhow!("{} {reason}", place()))?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(text::LONGEST)?;
    opened.take(limit + 1).read_to_end(&mut bytes).with_context(place)?;
    ensure!(bytes.len() <= text::LONGEST, "{} is far too long for a network", place());
    Ok(unicode::json(&bytes).into_owned())
}

fn check_file(report: &mut Report, file: &Path, file_only: bool, places: &Places) -> Result<()> {
    let text = contents(file)?;
    let mut sheet = Sheet::new(&file.display().to_string(), &text);
    let read = text::read(&text);
    let node = match &read {
        Ok(node) => node,
        Err(fault) => {
            sheet.error("json", fault.at, "", format!("this is no JSON: {}", fault.message), "");
            take(report, sheet);
            return Ok(());
        }
    };
    if !file_only {
        other_names(&mut sheet, node, &places.cni_path);
    }
    let is_installed =
        file.parent().is_some_and(|parent| places.directories.iter().any(|directory| parent == directory));
    if let Some(network) = network::check(&mut sheet, node, is_installed) {
        let further = if network.is_list { folder(report, file, node, &network, file_only, places)? } else { 0 };
        if network.entries.is_empty() && further == 0 {
            let help = "name at least one plugin, or put files into the directory of the network's name";
            sheet.error("missing-key", node.at, "", "`plugins` is missing", help);
        }
        if network.is_list {
            network::chain(&mut sheet, &network.entries);
        }
        as_runtimes_read(&mut sheet, node, &network);
        if !file_only {
            programs::check(&mut sheet, &network.entries, &places.cni_path);
            chains::check(&mut sheet, &network.entries);
            let is_sound = !sheet.has_errors_below("");
            if is_sound && !network.entries.is_empty() {
                let arguments = capability_args()?;
                let named = named(node);
                let text = named.as_deref().map(str::as_bytes);
                policy::check(&mut sheet, &network, &Call { text, ..Call::of(file, &arguments, &places.cni_path) });
            } else {
                sheet.note("policy was not asked, because of the errors".to_owned());
            }
        }
    }
    take(report, sheet);
    Ok(())
}

/// Finds the plugins of this Postern that a network names by the name of a symbolic link.
fn other_names(sheet: &mut Sheet<'_>, node: &text::Node, cni_path: &str) {
    for entry in node.get("plugins").map(text::Node::items).unwrap_or_default().iter().chain([node]) {
        let name = entry.word("type");
        if let Some(plugin) = lists::behind(cni_path, name) {
            sheet.other_name(name, plugin);
        }
    }
}

/// Adds a name to a network without a name, because a runtime adds a name too.
fn named(node: &text::Node) -> Option<String> {
    let Value::Object(mut network) = node.to_value() else { return None };
    if node.get("name").is_some() {
        return None;
    }
    network.insert("name".to_owned(), "unnamed".into());
    Some(Value::Object(network).to_string())
}

/// If no error was found, reads the network again, as `postern net` does. Errors of this reading have the runtimes'
/// messages.
fn as_runtimes_read(sheet: &mut Sheet<'_>, node: &text::Node, network: &network::Network<'_>) {
    if sheet.has_errors_below("") || node.get("name").is_none() {
        return;
    }
    let read = match network.is_list {
        true => postern_net::List::parse(sheet.text.as_bytes()).map(drop),
        false => postern_net::Plugin::parse(sheet.text.as_bytes()).map(drop),
    };
    if let Err(error) = read {
        sheet.error("unreadable", node.at, "", format!("runtimes refuse this network: {}", error.msg), "");
    }
}

/// Checks the files of a list's directory, and returns the number of files. Runtimes append the plugins of these files
/// to the list's plugins.
fn folder(
    report: &mut Report,
    file: &Path,
    node: &text::Node,
    network: &network::Network<'_>,
    file_only: bool,
    places: &Places,
) -> Result<usize> {
    let name = node.word("name");
    let is_alone = node.get("loadOnlyInlinedPlugins").is_some_and(|one| {
        matches!(one.tree, text::Tree::Bool(true)) || one.text().is_some_and(|text| text.eq_ignore_ascii_case("true"))
    });
    if is_alone || postern_cni::validate_network_name(name).is_err() {
        return Ok(0);
    }
    let Some(directory) = file.parent().map(|parent| parent.join(name)) else { return Ok(0) };
    let files =
        lists::files(&directory).into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "conf"));
    let mut number = 0;
    for path in files {
        number += 1;
        let text = contents(&path)?;
        let mut sheet = Sheet::new(&path.display().to_string(), &text);
        match text::read(&text) {
            Ok(node) => {
                plugin::check(&mut sheet, &node, "", network.version);
                if !file_only {
                    let entry = network::Entry { path: String::new(), node: &node };
                    let entries = [entry];
                    programs::check(&mut sheet, &entries, &places.cni_path);
                    chains::check(&mut sheet, &entries);
                }
            }
            Err(fault) => sheet.error("json", fault.at, "", format!("this is no JSON: {}", fault.message), ""),
        }
        take(report, sheet);
    }
    Ok(number)
}

fn take(report: &mut Report, sheet: Sheet<'_>) {
    report.files.push(sheet.file);
    report.findings.extend(sheet.findings);
    report.notes.extend(sheet.notes.into_iter().filter(|note| !note.is_empty()));
    report.notes.dedup();
}

/// Returns the values for capabilities in the variable `CAP_ARGS`, as the other verbs of `postern net` take them.
fn capability_args() -> Result<Map<String, Value>> {
    match env::var("CAP_ARGS").unwrap_or_default().as_str() {
        "" => Ok(Map::new()),
        text => serde_json::from_str(text).context("CAP_ARGS is no JSON object"),
    }
}

/// Prints the schema of a plugin's configuration; without a name, of a list.
pub fn print_schema(plugin: Option<&str>) -> ExitCode {
    let printed = plugin.map_or_else(|| Ok(schema::of_list()), schema_of).and_then(|schema| output::json(&schema));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::say(format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn schema_of(plugin: &str) -> Result<Value> {
    match postern_keys::plugin(plugin) {
        Some(table) => Ok(schema::of_plugin(table)),
        None => {
            let names: Vec<&str> = postern_keys::ALL.iter().map(|plugin| plugin.name).collect();
            let near = postern_keys::nearest(plugin, names.iter().copied());
            let near = near.map(|near| format!("; \"{near}\" may be meant")).unwrap_or_default();
            bail!("\"{plugin}\" is not shipped with Postern{near}; there are schemas of {}", names.join(", "))
        }
    }
}

/// The name of the list's schema among the files.
const LIST_SCHEMA: &str = "conflist";

/// Returns the schemas as files: their names, and the output of [`print_schema`].
pub fn schema_files() -> Result<Vec<(String, String)>> {
    let list = (LIST_SCHEMA, schema::of_list());
    let plugins = postern_keys::ALL.iter().map(|plugin| (plugin.name, schema::of_plugin(plugin)));
    let file =
        |(name, schema): (&str, Value)| Ok((format!("{name}.json"), format!("{}\n", output::json_text(&schema)?)));
    std::iter::once(list).chain(plugins).map(file).collect()
}

#[cfg(test)]
mod tests;
