//! `postern reapply`: rules that another program wiped.

use crate::account;
use crate::output::{self, one_line};
use anyhow::{Error, Result};
use postern_account::reapply::{self, Report};
use postern_gate::Header;
use postern_gate::places::Places;
use postern_gate::upkeep::SharedNft;
use serde_json::{Value, json};
use std::process::ExitCode;

/// An attachment with missing rules.
struct Row {
    header: Header,
    /// The missing rules, in sentences.
    missing: Vec<String>,
    /// The rules that were put back, in words.
    rules: Vec<String>,
}

/// Puts missing rules back, and prints them. With `dry_run`, only prints the missing rules.
///
/// # Errors
/// Records or kernel can't be looked at.
pub fn run(dry_run: bool, json: bool) -> Result<ExitCode> {
    let places = Places::find().map_err(Error::msg)?;
    let report = output::during("looking at the node's rules", || reapply::find(&places)).map_err(Error::msg)?;
    let nft = SharedNft::default();
    let (mut rows, mut problems) = (Vec::new(), report.problems.clone());
    for (header, missing) in &report.wiped {
        let restored = if dry_run { Ok(Vec::new()) } else { reapply::run(&places, header, &nft) };
        let rules = match restored {
            Ok(effects) => effects.iter().map(postern_gate::effect::Effect::words).collect(),
            Err(failed) => {
                problems.extend(failed.iter().map(|error| format!("{}: {error}", account::name(header))));
                Vec::new()
            }
        };
        rows.push(Row { header: header.clone(), missing: missing.clone(), rules });
    }
    if json {
        output::json(&as_json(&rows, &report, &problems, !dry_run))?;
    } else {
        output::text(&lines(&rows, &report, dry_run).join("\n"))?;
        for problem in &problems {
            output::say(one_line(problem));
        }
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn lines(rows: &[Row], report: &Report, dry_run: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for Row { header, missing, rules } in rows {
        lines.push(one_line(&account::name(header)));
        lines.extend(missing.iter().map(|what| format!("  {}", one_line(what))));
        lines.extend(rules.iter().map(|rule| format!("  put back: {}", one_line(rule))));
    }
    let skipped = report.skipped.iter();
    lines.extend(skipped.map(|(header, reason)| one_line(&format!("{} stays: {reason}", account::name(header)))));
    if rows.is_empty() && report.problems.is_empty() {
        lines.push(format!("no rules are missing; attachments with all their rules: {}", report.complete));
    } else if dry_run && !rows.is_empty() {
        lines.push("nothing was changed; `postern reapply` puts the rules back".to_owned());
    }
    lines
}

fn as_json(rows: &[Row], report: &Report, problems: &[String], done: bool) -> Value {
    let named = |header: &Header| json!({"network": header.network, "container": header.container_id, "interface": header.ifname});
    let with = |header: &Header, key: &str, value: Value| {
        let mut object = named(header);
        if let Some(object) = object.as_object_mut() {
            object.insert(key.to_owned(), value);
        }
        object
    };
    let row = |row: &Row| {
        let mut object = with(&row.header, "missing", json!(row.missing));
        if let Some(object) = object.as_object_mut() {
            object.insert("rules".to_owned(), json!(row.rules));
        }
        object
    };
    json!({
        "restored": rows.iter().map(row).collect::<Vec<Value>>(),
        "skipped": report.skipped.iter().map(|(header, why)| with(header, "reason", json!(why))).collect::<Vec<Value>>(),
        "complete": report.complete, "problems": problems, "done": done,
    })
}
