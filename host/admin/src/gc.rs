//! `postern gc`: the garbage of attachments that are gone.

use crate::account;
use crate::chains::Chains;
use crate::detach::{Detacher, Detachment};
use crate::lists;
use crate::output::{self, confirmed, one_line};
use anyhow::{Error, Result};
use postern_account::garbage::{self, Garbage, LazyServed, Outcome, Programs, Report, Shared};
use postern_account::{
    adopt::{self, Leftover, Scope},
    all_namespaces, held,
};
use postern_gate::Header;
use postern_gate::capability::device::held::HeldNote;
use postern_gate::places::Places;
use postern_state::plugin_of;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The options of `postern gc`.
pub struct Options {
    /// Remove without asking.
    pub yes: bool,
    /// Print one JSON object.
    pub json: bool,
    /// Look also at leftovers of native plugins.
    pub native: bool,
    /// Directories of leases, besides the default directory.
    pub data_dir: Vec<PathBuf>,
    /// The directories of the network lists.
    pub conf_dirs: Vec<PathBuf>,
    /// The directories of native plugins, as `CNI_PATH`.
    pub cni_path: String,
    /// The time limit for each program of a list.
    pub limit: Duration,
    /// Unbind held devices from their drivers.
    pub unbind: bool,
}

/// Returns the question that comes before the removal and the look. `left` is the number of attachments whose objects
/// are removed. `held` is the number of held objects that are looked at.
fn question(left: usize, held: usize) -> String {
    let left = match left {
        0 => None,
        1 => Some("remove the objects of this attachment".to_owned()),
        left => Some(format!("remove the objects of these {left} attachments")),
    };
    let held = match held {
        0 => None,
        1 => Some("look at the held object again".to_owned()),
        held => Some(format!("look at the {held} held objects again")),
    };
    let parts: Vec<String> = [left, held].into_iter().flatten().collect();
    format!("{}?", parts.join(", and "))
}

/// Returns the last line after the removal. `partly` counts attachments whose addresses are kept, because packets may
/// still go to these addresses.
fn total(removed: usize, left: usize, partly: usize) -> String {
    let partly = match partly {
        0 => String::new(),
        _ => format!(", and {partly} partly: the addresses are kept"),
    };
    format!("removed {removed} of {left}{partly}")
}

/// Returns the last line after the look at held objects.
fn total_held(freed: usize, held: usize) -> String {
    format!("{freed} of {} no longer held", output::count(held, "held object is", "held objects are"))
}

/// Returns the input of a native IPAM program of a network: only the operator's configuration is used.
fn config(directories: &[PathBuf], network: &str, plugin: &str) -> Option<String> {
    let lists = lists::of_directories(directories).into_iter().filter_map(|(_, list)| list.ok());
    let mut own = lists.filter(|list| list.name() == network);
    own.find_map(|list| {
        list.requests().find(|(entry, _)| entry.ipam() == plugin).map(|(_, request)| request.to_string())
    })
}

/// Shows the garbage and removes it: at once with `yes`, otherwise after a yes on a terminal.
pub fn run(options: &Options) -> Result<ExitCode> {
    let places = Places::find().map_err(Error::msg)?;
    let scope = Scope { places: &places, directories: &options.data_dir, namespaces: all_namespaces };
    let chains = Chains::new(&options.conf_dirs);
    let detacher = Detacher::new(&options.conf_dirs, &options.cni_path, options.limit);
    // If DEL of the whole list can be called, the plugins of the list remove their rules.
    let leaves_rules = |header: &Header| match of(&detacher, header) {
        Ok(Some(_)) => None,
        Ok(None) => chains.leaves_rules(header),
        Err(why) => {
            chains.leaves_rules(header).map(|words| format!("{words}; DEL of the list can't be called here: {why}"))
        }
    };
    let find = || garbage::find(&places, &leaves_rules).map_err(Error::msg);
    let report = output::during("looking for garbage", find)?;
    let whole = |item: &Garbage| item.is_whole().then(|| of(&detacher, &item.header).ok().flatten()).flatten();
    let lists: Vec<Option<Detachment>> = report.garbage.iter().map(whole).collect();
    let (cached, unclear) = match options.native {
        true => unrecorded(&detacher, &places)?,
        false => (Vec::new(), Vec::new()),
    };
    let find_native = || output::during("looking for leftovers of native plugins", || adopt::find(scope));
    let native = options.native.then(find_native).transpose().map_err(Error::msg)?;
    let leftovers = native.as_ref().map(|native| native.leftovers.as_slice()).unwrap_or_default();
    // Leftovers that a list's DEL removes are shown again one by one, but count once.
    let others = leftovers.iter().filter(|leftover| !cached.iter().any(|one| is_of(leftover, one))).count();
    let held: Vec<HeldNote> = held::list(&places).map_err(Error::msg)?.into_iter().map(|(_, held)| held).collect();
    let left = report.garbage.len() + cached.len() + others;
    let count = left + held.len();
    if !options.json {
        show(&report, &lists, native.as_ref(), count > 0)?;
        show_cached(&cached, &unclear)?;
        show_held(&held)?;
        if native.is_none() {
            hint(scope)?;
        }
    }
    let act = count > 0 && (options.yes || !options.json && confirmed(&question(left, held.len()))?);
    let (mut removed, mut partly, mut freed, mut failed) = (0, 0, 0, Vec::new());
    let mut remove = || -> Result<()> {
        let config = |network: &str, plugin: &str| config(&options.conf_dirs, network, plugin);
        let rules = LazyServed::default();
        let programs = Programs { path: &options.cni_path, config: &config, rules: &rules };
        let shared = Shared::default();
        // The data are read again: the operator may have taken a long time to confirm.
        let detacher = Detacher::new(&options.conf_dirs, &options.cni_path, options.limit);
        let still = if lists.iter().any(Option::is_some) { find()?.garbage } else { Vec::new() };
        let is_gone = |item: &Garbage| {
            still.iter().any(|other| other.header == item.header && other.is_whole())
                && matches!(of(&detacher, &item.header), Ok(Some(_)))
        };
        for (item, list) in report.garbage.iter().zip(&lists) {
            if let Some(list) = list {
                if !is_gone(item) {
                    continue;
                }
                // Records and leases stay until the whole list has succeeded.
                if let Err(error) = detacher.run(list, &places.logs) {
                    failed.push(format!("{}: its record and addresses stay: {error}", name(&item.header)));
                    continue;
                }
            }
            match garbage::remove(&places, item, &programs, &shared) {
                Ok(Outcome::Removed) => removed += 1,
                Ok(Outcome::AddressesKept) => partly += 1,
                // DEL has removed the record.
                Ok(Outcome::TakenUp) => removed += usize::from(list.is_some()),
                Err(error) => failed.push(format!("{}: {error}", name(&item.header))),
            }
        }
        let mut stay = Vec::new();
        let gone = if cached.is_empty() { Vec::new() } else { unrecorded(&detacher, &places)?.0 };
        for list in &cached {
            if !gone.iter().any(|other| other.name() == list.name()) {
                stay.push(list);
                continue;
            }
            match detacher.run(list, &places.logs) {
                Ok(()) => removed += 1,
                Err(error) => {
                    failed.push(format!("{}: its objects stay: {error}", list.name()));
                    stay.push(list);
                }
            }
        }
        let leftovers: Vec<Leftover> =
            leftovers.iter().filter(|leftover| !stay.iter().any(|one| is_of(leftover, one))).cloned().collect();
        if !leftovers.is_empty() {
            match adopt::remove(scope, &leftovers) {
                Ok((count, errors)) => {
                    removed += count;
                    failed.extend(errors);
                }
                Err(error) => failed.push(error),
            }
        }
        for device in &held {
            match held::mend(&places, device, options.unbind) {
                Ok(None) => freed += 1,
                Ok(Some(held)) => {
                    failed.push(format!("{held} is still held: {}; {}", held.why.join("; "), held.remedy()))
                }
                Err(error) => failed.push(error),
            }
        }
        Ok(())
    };
    if act {
        // An effect may print while it is removed, so this work has no line.
        remove()?;
    }
    if options.json {
        output::json(&as_json(&report, &lists, (&cached, &unclear), native.as_ref(), &held, &failed, act))?;
    } else if act {
        let lines = [(left, total(removed, left, partly)), (held.len(), total_held(freed, held.len()))];
        let lines: Vec<String> = lines.into_iter().filter(|(count, _)| *count > 0).map(|(_, line)| line).collect();
        output::text(&lines.join("\n"))?;
    } else if count > 0 {
        let flag = if options.native { " --native" } else { "" };
        let acts = if left > 0 { "removes the objects" } else { "looks at held objects again" };
        output::text(&format!("nothing was changed; `postern gc{flag} --yes` {acts}"))?;
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

/// Shows garbage and leftovers. `has_more` is true if there is anything to remove or to look at again.
fn show(report: &Report, lists: &[Option<Detachment>], native: Option<&adopt::Report>, has_more: bool) -> Result<()> {
    let mut lines = Vec::new();
    for (item, list) in report.garbage.iter().zip(lists) {
        let part =
            item.section.as_ref().map(|section| format!(", effects of {}", plugin_of(section))).unwrap_or_default();
        lines.push(format!("{}{part}: {}", name(&item.header), item.reason));
        lines.extend(list.iter().flat_map(Detachment::words).map(|words| format!("  {}", one_line(&words))));
        lines.extend(item.words().iter().map(|words| format!("  {}", one_line(words))));
    }
    let kept = report.kept.iter().map(|(header, reason)| format!("{} stays: {}", name(header), one_line(reason)));
    lines.extend(kept);
    for problem in problems(report, native) {
        output::say(one_line(problem));
    }
    if report.garbage.is_empty() {
        let none = if has_more { "" } else { "no garbage; " };
        lines.push(format!("{none}attachments in use: {}", report.live));
    }
    if let Some(native) = native {
        lines.extend(native_lines(native));
    }
    output::text(&lines.join("\n"))
}

fn of(detacher: &Detacher<'_>, header: &Header) -> Result<Option<Detachment>, String> {
    detacher.of(&header.network, &header.container_id, &header.ifname)
}

type Unrecorded = (Vec<Detachment>, Vec<(String, String)>);

/// Returns the attachments that only the runtimes' cache knows.
fn unrecorded(detacher: &Detacher<'_>, places: &Places) -> Result<Unrecorded> {
    let known: Vec<Header> =
        postern_state::list(&places.state)?.into_iter().filter_map(|summary| summary.header).collect();
    Ok(detacher.unrecorded(|cached| {
        known.iter().any(|header| {
            (&header.network, &header.container_id, &header.ifname)
                == (&cached.network, &cached.attachment.container_id, &cached.attachment.ifname)
        })
    }))
}

/// True if the leftover may belong to this attachment.
fn is_of(leftover: &Leftover, list: &Detachment) -> bool {
    let is = |text: Option<&str>, other: &str| text.is_none_or(|text| text == other);
    leftover.container() == Some(list.attachment.container_id.as_str())
        && is(leftover.network(), list.network())
        && is(leftover.interface(), &list.attachment.ifname)
}

fn show_held(held: &[HeldNote]) -> Result<()> {
    let line = |held: &HeldNote| {
        one_line(&format!(
            "{held} is held since {}/{}/{} used it; the last look found: {}",
            held.network,
            held.container_id,
            held.ifname,
            held.why.join("; ")
        ))
    };
    let lines: Vec<String> = held.iter().map(line).collect();
    if lines.is_empty() { Ok(()) } else { output::text(&lines.join("\n")) }
}

fn show_cached(cached: &[Detachment], unclear: &[(String, String)]) -> Result<()> {
    let mut lines = Vec::new();
    for list in cached {
        lines.push(format!("{}: its network namespace is gone, by the runtimes' cache", one_line(&list.name())));
        lines.extend(list.words().iter().map(|words| format!("  {}", one_line(words))));
    }
    lines.extend(unclear.iter().map(|(name, why)| format!("{} stays: {}", one_line(name), one_line(why))));
    if lines.is_empty() { Ok(()) } else { output::text(&lines.join("\n")) }
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
        lines.push("no object of native plugins is known to be unused".to_owned());
    }
    lines
}

/// Prints the number of leases that native plugins left. The count runs no program.
fn hint(scope: Scope<'_>) -> Result<()> {
    match adopt::count_leases(scope) {
        0 => Ok(()),
        count => output::text(&format!(
            "unused leases of native plugins: {count}; `postern gc --native` shows all leftovers of these plugins"
        )),
    }
}

fn name(header: &Header) -> String {
    one_line(&account::name(header))
}

fn as_json(
    report: &Report,
    lists: &[Option<Detachment>],
    (cached, unclear): (&[Detachment], &[(String, String)]),
    native: Option<&adopt::Report>,
    held: &[HeldNote],
    failed: &[String],
    done: bool,
) -> Value {
    let garbage = |(item, list): (&Garbage, &Option<Detachment>)| {
        let header = &item.header;
        let (programs, delegates_in) = list.as_ref().map(Detachment::json).unzip();
        json!({
            "network": header.network, "container": header.container_id, "interface": header.ifname,
            "plugin": item.section.as_deref().map(plugin_of), "reason": item.reason.to_string(), "removes": item.words(),
            "programs": programs, "delegates_in": delegates_in,
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
    let of_cache = |list: &Detachment| {
        let attachment = &list.attachment;
        let (programs, delegates_in) = list.json();
        json!({
            "network": list.network(), "container": attachment.container_id, "interface": attachment.ifname,
            "programs": programs, "delegates_in": delegates_in,
        })
    };
    let problems: Vec<&String> = problems(report, native).chain(failed).collect();
    let device = |held: &HeldNote| {
        json!({
            "object": held.object.to_string(), "network": held.network, "container": held.container_id,
            "interface": held.ifname, "reasons": held.why,
        })
    };
    json!({
        "garbage": report.garbage.iter().zip(lists).map(garbage).collect::<Vec<Value>>(),
        "kept": report.kept.iter().map(kept).collect::<Vec<Value>>(),
        "native": native.map(|native| native.leftovers.iter().map(leftover).collect::<Vec<Value>>()),
        "cached": native.map(|_| cached.iter().map(of_cache).collect::<Vec<Value>>()),
        "native_kept": native.map(|native| native.kept.iter().chain(unclear).map(stays).collect::<Vec<Value>>()),
        "held": held.iter().map(device).collect::<Vec<Value>>(), "live": report.live, "problems": problems, "done": done,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(question(1, 0), "remove the objects of this attachment?");
        assert_eq!(question(2, 1), "remove the objects of these 2 attachments, and look at the held object again?");
        assert_eq!(question(0, 2), "look at the 2 held objects again?");
        assert_eq!(total_held(1, 1), "1 of 1 held object is no longer held");
        assert_eq!(total(1, 1, 0), "removed 1 of 1");
        assert_eq!(total(0, 1, 1), "removed 0 of 1, and 1 partly: the addresses are kept");
    }
}
