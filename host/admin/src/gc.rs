//! `postern gc`: what attachments left that are gone.

use crate::output::{self, one_line};
use anyhow::{Error, Result};
use postern_gate::Header;
use postern_gate::garbage::{self, Garbage, Report};
use postern_gate::places::Places;
use serde_json::{Value, json};
use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

/// Shows what nobody needs, and removes it: with `yes` at once, on a terminal if the answer is yes.
pub fn run(yes: bool, json: bool) -> Result<ExitCode> {
    let places = Places::find().map_err(Error::msg)?;
    let report = garbage::find(&places).map_err(Error::msg)?;
    if !json {
        show(&report)?;
    }
    let act = !report.garbage.is_empty() && (yes || !json && asked(report.garbage.len())?);
    let mut failed = Vec::new();
    if act {
        for item in &report.garbage {
            match garbage::remove(&places, item) {
                Ok(_) => {}
                Err(error) => failed.push(format!("{}: {error}", name(&item.header))),
            }
        }
    }
    if json {
        output::json(&as_json(&report, &failed, act))?;
    } else if act {
        output::text(&format!("removed {} of {}", report.garbage.len() - failed.len(), report.garbage.len()))?;
    } else if !report.garbage.is_empty() {
        output::text("nothing was changed; `postern gc --yes` removes it")?;
    }
    for error in &failed {
        eprintln!("postern: {error}");
    }
    let whole = failed.is_empty() && report.problems.is_empty();
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(report: &Report) -> Result<()> {
    let mut lines = Vec::new();
    for item in &report.garbage {
        let part = item.plugin.as_ref().map(|plugin| format!(", what {plugin} did")).unwrap_or_default();
        lines.push(format!("{}{part}: {}", name(&item.header), item.reason));
        lines.extend(item.words().iter().map(|words| format!("  {}", one_line(words))));
    }
    let kept = report.kept.iter().map(|(header, reason)| format!("{} stays: {}", name(header), one_line(reason)));
    lines.extend(kept);
    for problem in &report.problems {
        eprintln!("postern: {}", one_line(problem));
    }
    if report.garbage.is_empty() {
        lines.push(format!("no garbage; attachments in use: {}", report.live));
    }
    output::text(&lines.join("\n"))
}

/// Asks whoever sits there. Nobody: no.
fn asked(count: usize) -> Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Ok(false);
    }
    print!("remove what these {count} left? [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn name(header: &Header) -> String {
    one_line(&format!("{}/{}/{}", header.network, header.container_id, header.ifname))
}

fn as_json(report: &Report, failed: &[String], done: bool) -> Value {
    let garbage = |item: &Garbage| {
        let header = &item.header;
        json!({
            "network": header.network, "container": header.container_id, "interface": header.ifname,
            "plugin": item.plugin, "reason": item.reason.to_string(), "removes": item.words(),
        })
    };
    let kept = |(header, reason): &(Header, String)| {
        json!({
            "network": header.network, "container": header.container_id, "interface": header.ifname, "reason": reason,
        })
    };
    let problems: Vec<&String> = report.problems.iter().chain(failed).collect();
    json!({
        "garbage": report.garbage.iter().map(garbage).collect::<Vec<Value>>(),
        "kept": report.kept.iter().map(kept).collect::<Vec<Value>>(),
        "live": report.live, "problems": problems, "done": done,
    })
}
