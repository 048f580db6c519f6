//! `postern gc --node`: the node objects of Postern that no attachment uses any more.

use crate::output::{self, confirmed, one_line};
use anyhow::{Error, Result};
use postern_account::node;
use postern_gate::places::Places;
use serde_json::json;
use std::process::ExitCode;

/// Shows the unused objects and removes them: at once with `yes`, otherwise after a yes on a terminal.
pub fn run(forwarding: bool, yes: bool, as_json: bool) -> Result<ExitCode> {
    let places = Places::find().map_err(Error::msg)?;
    let report = node::find(&places, forwarding).map_err(Error::msg)?;
    let count = report.unused.len();
    for problem in &report.problems {
        output::say(one_line(problem));
    }
    if !as_json {
        let mut lines: Vec<String> = report.unused.iter().map(|unused| format!("unused: {unused}")).collect();
        lines.extend(report.kept.iter().chain(&report.notes).cloned());
        if count == 0 {
            lines.push("no node object that Postern made is unused".to_owned());
        }
        output::text(&lines.iter().map(|line| one_line(line)).collect::<Vec<_>>().join("\n"))?;
    }
    let act = yes
        || count > 0
            && !as_json
            && confirmed(&match count {
                1 => "remove this object?".to_owned(),
                _ => format!("remove these {count} objects?"),
            })?;
    // Notes on objects that are gone are removed even if there is no unused object.
    let removed = if act { node::remove(&places, &report, forwarding).map_err(Error::msg)? } else { Vec::new() };
    if as_json {
        output::json(&json!({
            "unused": report.unused, "kept": report.kept, "notes": report.notes, "problems": report.problems, "removed": removed, "done": act,
        }))?;
    } else if act && count > 0 {
        let lines: Vec<String> = removed.iter().map(|removed| one_line(&format!("removed {removed}"))).collect();
        output::text(&lines.join("\n"))?;
    } else if count > 0 {
        let flag = if forwarding { " --forwarding" } else { "" };
        output::text(&format!("nothing was changed; `postern gc --node{flag} --yes` removes the unused objects"))?;
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
