//! `postern gc`: the garbage of attachments that are gone.

use crate::account;
use crate::chains::Chains;
use crate::lists;
use crate::output::{self, confirmed, one_line};
use anyhow::{Error, Result};
use postern_account::garbage::{self, Garbage, Outcome, Programs, Report, Rules, Shared};
use postern_account::{
    adopt::{self, Leftover, Scope},
    all_namespaces,
};
use postern_gate::Header;
use postern_gate::places::Places;
use postern_state::plugin_of;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The options of `postern gc`.
pub struct Options {
    /// Remove without asking.
    pub yes: bool,
    /// Print one JSON object.
    pub json: bool,
    /// Look also at leftovers of native plugins.
    pub native: bool,
    /// Directories of leases besides the default one.
    pub data_dir: Vec<PathBuf>,
    /// The directory of the network lists.
    pub conf_dir: PathBuf,
    /// The directories of native plugins, as `CNI_PATH`.
    pub cni_path: String,
}

/// Returns the question before the removal.
fn question(count: usize) -> String {
    match count {
        1 => "remove what this one left?".to_owned(),
        _ => format!("remove what these {count} left?"),
    }
}

/// Returns the last line after the removal. Of `partly` objects only the addresses are left, which another program may
/// still use.
fn total(removed: usize, count: usize, partly: usize) -> String {
    let partly = match partly {
        0 => String::new(),
        _ => format!("; of {partly} all but the addresses, which are kept"),
    };
    format!("removed {removed} of {count}{partly}")
}

/// Returns the input of a native IPAM program of a network: only the operator's configuration is used.
fn config(directory: &Path, network: &str, plugin: &str) -> Option<String> {
    let lists = lists::of_directory(directory).into_iter().filter_map(|(_, list)| list.ok());
    let mut own = lists.filter(|list| list.name() == network);
    own.find_map(|list| {
        list.requests().find(|(entry, _)| entry.ipam() == plugin).map(|(_, request)| request.to_string())
    })
}

/// Shows the garbage and removes it: with `yes` at once, on a terminal after a yes.
pub fn run(options: &Options) -> Result<ExitCode> {
    let places = Places::find().map_err(Error::msg)?;
    let scope = Scope { places: &places, directories: &options.data_dir, namespaces: all_namespaces };
    let chains = Chains::new(&options.conf_dir);
    let report = garbage::find(&places, &|header| chains.leaves_rules(header)).map_err(Error::msg)?;
    let native = options.native.then(|| adopt::find(scope)).transpose().map_err(Error::msg)?;
    let leftovers = native.as_ref().map(|native| native.leftovers.as_slice()).unwrap_or_default();
    let count = report.garbage.len() + leftovers.len();
    if !options.json {
        show(&report, native.as_ref())?;
        if native.is_none() {
            hint(scope)?;
        }
    }
    let act = count > 0 && (options.yes || !options.json && confirmed(&question(count))?);
    let (mut removed, mut partly, mut failed) = (0, 0, Vec::new());
    if act {
        let config = |network: &str, plugin: &str| config(&options.conf_dir, network, plugin);
        let rules = Rules::default();
        let programs = Programs { path: &options.cni_path, config: &config, rules: &rules };
        let shared = Shared::default();
        for item in &report.garbage {
            match garbage::remove(&places, item, &programs, &shared) {
                Ok(Outcome::Removed) => removed += 1,
                Ok(Outcome::AddressesKept) => partly += 1,
                Ok(Outcome::TakenUp) => {}
                Err(error) => failed.push(format!("{}: {error}", name(&item.header))),
            }
        }
        if !leftovers.is_empty() {
            match adopt::remove(scope, leftovers) {
                Ok((count, errors)) => {
                    removed += count;
                    failed.extend(errors);
                }
                Err(error) => failed.push(error),
            }
        }
    }
    if options.json {
        output::json(&as_json(&report, native.as_ref(), &failed, act))?;
    } else if act {
        output::text(&total(removed, count, partly))?;
    } else if count > 0 {
        let flag = if options.native { " --native" } else { "" };
        output::text(&format!("nothing was changed; `postern gc{flag} --yes` removes it"))?;
    }
    for error in &failed {
        output::say(one_line(error));
    }
    let whole = failed.is_empty() && problems(&report, native.as_ref()).next().is_none();
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn problems<'a>(report: &'a Report, native: Option<&'a adopt::Report>) -> impl Iterator<Item = &'a String> {
    report.problems.iter().chain(native.into_iter().flat_map(|native| &native.problems))
}

fn show(report: &Report, native: Option<&adopt::Report>) -> Result<()> {
    let mut lines = Vec::new();
    for item in &report.garbage {
        let part =
            item.section.as_ref().map(|section| format!(", what {} did", plugin_of(section))).unwrap_or_default();
        lines.push(format!("{}{part}: {}", name(&item.header), item.reason));
        lines.extend(item.words().iter().map(|words| format!("  {}", one_line(words))));
    }
    let kept = report.kept.iter().map(|(header, reason)| format!("{} stays: {}", name(header), one_line(reason)));
    lines.extend(kept);
    for problem in problems(report, native) {
        output::say(one_line(problem));
    }
    if report.garbage.is_empty() {
        lines.push(format!("no garbage; attachments in use: {}", report.live));
    }
    if let Some(native) = native {
        lines.extend(native_lines(native));
    }
    output::text(&lines.join("\n"))
}

/// Returns the leftovers of native plugins, by attachment.
fn native_lines(native: &adopt::Report) -> Vec<String> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for leftover in &native.leftovers {
        let heading = format!("left by native plugins: {}: {}", one_line(&leftover.attachment()), leftover.reason);
        let object = format!("  {}", one_line(&leftover.object()));
        match groups.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, objects)) => objects.push(object),
            None => groups.push((heading, vec![object])),
        }
    }
    let mut lines: Vec<String> =
        groups.into_iter().flat_map(|(heading, objects)| std::iter::once(heading).chain(objects)).collect();
    lines.extend(native.kept.iter().map(|(object, why)| format!("{} stays: {}", one_line(object), one_line(why))));
    if native.leftovers.is_empty() {
        lines.push("native plugins left nothing that can be told to be unused".to_owned());
    }
    lines
}

/// Prints the number of leases that native plugins left. It is known without running a program.
fn hint(scope: Scope<'_>) -> Result<()> {
    match adopt::count_leases(scope) {
        0 => Ok(()),
        count => output::text(&format!(
            "leases of native plugins that nobody uses: {count}; `postern gc --native` shows all that these plugins left"
        )),
    }
}

fn name(header: &Header) -> String {
    one_line(&account::name(header))
}

fn as_json(report: &Report, native: Option<&adopt::Report>, failed: &[String], done: bool) -> Value {
    let garbage = |item: &Garbage| {
        let header = &item.header;
        json!({
            "network": header.network, "container": header.container_id, "interface": header.ifname,
            "plugin": item.section.as_deref().map(plugin_of), "reason": item.reason.to_string(), "removes": item.words(),
        })
    };
    let kept = |(header, reason): &(Header, String)| {
        json!({
            "network": header.network, "container": header.container_id, "interface": header.ifname, "reason": reason,
        })
    };
    let leftover = |leftover: &Leftover| {
        json!({
            "kind": leftover.kind.as_str(), "network": leftover.network(), "container": leftover.container(),
            "interface": leftover.interface(), "object": leftover.object(), "reason": leftover.reason.to_string(),
        })
    };
    let stays = |(object, reason): &(String, String)| json!({"object": object, "reason": reason});
    let problems: Vec<&String> = problems(report, native).chain(failed).collect();
    json!({
        "garbage": report.garbage.iter().map(garbage).collect::<Vec<Value>>(),
        "kept": report.kept.iter().map(kept).collect::<Vec<Value>>(),
        "native": native.map(|native| native.leftovers.iter().map(leftover).collect::<Vec<Value>>()),
        "native_kept": native.map(|native| native.kept.iter().map(stays).collect::<Vec<Value>>()),
        "live": report.live, "problems": problems, "done": done,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(question(1), "remove what this one left?");
        assert_eq!(question(2), "remove what these 2 left?");
        assert_eq!(total(1, 1, 0), "removed 1 of 1");
        assert_eq!(total(0, 1, 1), "removed 0 of 1; of 1 all but the addresses, which are kept");
    }
}
