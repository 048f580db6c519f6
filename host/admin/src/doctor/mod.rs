//! `postern doctor` shows the defects of this node, with their effects and remedies. It changes nothing.

mod code;
mod conflicts;
mod dhcp;
mod directories;
mod files;
mod kernel;
mod lists;
mod node_file;
mod overlap;
mod placed;
mod policies;
mod pools;
pub mod probe;
mod rules;
mod served;
mod state;
mod vlans;

pub use code::{SHIPPED, installed, installer};

use crate::account;
use crate::lists::{CNI_BIN, List};
use crate::output::{self, Colour, one_line};
use anyhow::Result;
use nix::unistd::geteuid;
use postern_account::attachment::Account;
use postern_account::node_state::NodeState;
use postern_account::{
    adopt::{self, Leftover, Scope},
    all_namespaces,
};
use postern_gate::PluginError;
use postern_gate::catalogs::Catalogs;
use postern_gate::places::Places;
use serde::Serialize;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit status when there are errors.
const ERRORS: u8 = 1;
/// Exit status when there are warnings only.
const WARNINGS: u8 = 3;
/// The remedy if a part of the node can't be looked at.
const ELSEWHERE: &str = "run `postern doctor` as root in the host's PID namespace, where it sees all namespaces";
/// The largest number of files and names that one check looks at. Further files and names are only counted.
const MOST: usize = 4096;

/// The colours of the words at the beginning of findings, and of the last line.
const COLOURS: [(&str, Colour); 3] = [("ERROR", Colour::Bad), ("WARNING", Colour::Doubtful), ("healthy", Colour::Good)];

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    /// Runs fail, or state leaks.
    Error,
    /// An operation will fail, or has another effect than it seems to have.
    Warning,
    /// Useful to know.
    Note,
}

/// One finding.
#[derive(Debug, Serialize)]
struct Finding {
    severity: Severity,
    /// The area of the check that made the finding.
    area: &'static str,
    /// The file, link, rule or attachment.
    place: String,
    what: String,
    why: String,
    /// The remedy, or empty.
    remedy: String,
    /// True if the remedy is a command.
    is_command: bool,
}

/// The object that `--json` prints. Keys are only ever added.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// True if there are no errors and no warnings.
    healthy: bool,
    findings: Vec<Finding>,
    /// The objects that were looked at.
    looked_at: Vec<String>,
    /// The objects that could not be looked at, with the reason.
    left_out: Vec<String>,
}

/// A report in progress. Each check adds to it.
#[derive(Default)]
struct Examination {
    area: &'static str,
    report: Report,
}

/// The remedy of a finding.
enum Remedy {
    Command(String),
    Words(String),
    None,
}

impl Remedy {
    /// Takes the first command that a message of the host executable quotes. If the message quotes no command, the
    /// message itself contains the remedy.
    fn quoted_in(message: &str) -> Self {
        message.split('`').nth(1).map_or(Self::None, |command| {
            match ["make ", "postern install"].iter().any(|start| command.starts_with(start)) {
                true => Self::Words(format!("`{command}`")),
                false => Self::Command(command.to_owned()),
            }
        })
    }
}

impl Examination {
    /// Begins the check of an area, and names the checked object.
    fn look(&mut self, area: &'static str, at: impl Into<String>) {
        self.area = area;
        self.report.looked_at.push(at.into());
    }

    fn leave_out(&mut self, what: impl Into<String>) {
        self.report.left_out.push(what.into());
    }

    fn found(&mut self, severity: Severity, place: impl ToString, what: impl Into<String>, why: &str, remedy: Remedy) {
        let (remedy, is_command) = match remedy {
            Remedy::Command(command) => (command, true),
            Remedy::Words(words) => (words, false),
            Remedy::None => (String::new(), false),
        };
        self.report.findings.push(Finding {
            severity,
            area: self.area,
            place: place.to_string(),
            what: what.into(),
            why: why.to_owned(),
            remedy,
            is_command,
        });
    }
}

/// The data that the checks share: directories, and the state of the node.
struct Node {
    places: Places,
    /// The catalogs, or the reason why there is none.
    catalogs: Result<Catalogs, PluginError>,
    /// Names of the installed plugins.
    plugins: Vec<String>,
    lists: Vec<List>,
    /// The CNI bin directories.
    bins: Bins,
    /// The state of the kernel, or the reason why it can't be looked at.
    node_state: Result<NodeState, String>,
    accounts: Vec<Account>,
    native: OnceCell<Vec<String>>,
}

/// The CNI bin directories that doctor looks at.
struct Bins {
    /// The directories that a runtime searches: the requested directory, or the operator's, or the usual directory.
    searched: Vec<PathBuf>,
    /// True if the command line names the directory.
    is_requested: bool,
}

impl Bins {
    fn of(requested: Option<PathBuf>) -> Self {
        let is_requested = requested.is_some();
        let own = || Some(node_file::plugin_directories()).filter(|own| !own.is_empty());
        let usual = || vec![PathBuf::from(CNI_BIN)];
        let searched = requested.map(|bin| vec![bin]).or_else(own).unwrap_or_else(usual);
        Self { searched, is_requested }
    }

    /// True if one of the directories has an object with this name.
    fn have(&self, name: &str) -> bool {
        !name.contains('/') && self.searched.iter().any(|bin| bin.join(name).symlink_metadata().is_ok())
    }

    fn words(&self) -> String {
        self.searched.iter().map(|bin| bin.display().to_string()).collect::<Vec<_>>().join(" or ")
    }
}

impl Node {
    /// Returns the catalog of a plugin. `None` if there is none, or if runs refuse it: the check of directories says so.
    fn catalog_of(&self, plugin: &str) -> Option<&Path> {
        self.catalogs.as_ref().ok()?.of(plugin).ok()
    }

    /// True if `postern gc --native` offers to remove a leftover with this mark.
    fn is_offered(&self, mark: &str) -> bool {
        let offered = self.native.get_or_init(|| {
            let directories: Vec<PathBuf> = directories::lease_directories(self).into_iter().collect();
            let scope = Scope { places: &self.places, directories: &directories, namespaces: all_namespaces };
            // An object that can't be looked at is not offered.
            let offered = adopt::find(scope).unwrap_or_default().leftovers;
            offered.iter().map(Leftover::mark).collect()
        });
        offered.iter().any(|offered| offered == mark)
    }
}

/// Runs all checks and prints the findings.
///
/// # Errors
/// Standard output can't be written.
pub fn run(conf_dir: Option<&Path>, bin: Option<PathBuf>, json: bool) -> Result<ExitCode> {
    let mut examination = Examination::default();
    let node = prepare(&mut examination, conf_dir, bin);
    if !geteuid().is_root() {
        examination.leave_out("namespaces, files and rules that only root may look at (this is not root)");
    }
    kernel::examine(&mut examination, &node);
    directories::examine(&mut examination, &node);
    code::examine(&mut examination, &node);
    files::examine(&mut examination, &node);
    policies::examine(&mut examination, &node);
    node_file::examine(&mut examination);
    lists::examine(&mut examination, &node);
    dhcp::examine(&mut examination, &node);
    overlap::examine(&mut examination, &node);
    pools::examine(&mut examination, &node);
    vlans::examine(&mut examination, &node);
    state::examine(&mut examination, &node);
    rules::examine(&mut examination, &node);
    served::examine(&mut examination, &node);
    conflicts::examine(&mut examination, &node);
    let mut report = examination.report;
    report.findings.sort_by_key(|finding| finding.severity);
    let worst = report.findings.first().map(|finding| finding.severity);
    report.healthy = !matches!(worst, Some(Severity::Error | Severity::Warning));
    if json {
        output::json(&report)?;
    } else {
        output::coloured(&text(&report), &COLOURS)?;
    }
    Ok(ExitCode::from(match worst {
        Some(Severity::Error) => ERRORS,
        Some(Severity::Warning) => WARNINGS,
        Some(Severity::Note) | None => 0,
    }))
}

fn prepare(examination: &mut Examination, conf_dir: Option<&Path>, bin: Option<PathBuf>) -> Node {
    let places = postern_account::places::expected();
    let catalogs = Catalogs::find();
    let plugins = catalogs.as_ref().map(code::installed).unwrap_or_default();
    let lists = lists::read(examination, &node_file::list_directories(conf_dir));
    let bins = Bins::of(bin);
    let (node_state, accounts) = match account::look(&places) {
        Ok((node_state, Ok(accounts))) => (Ok(node_state), accounts),
        Ok((_, Err(reason))) => {
            // The check of directories reports records that can't be trusted. No check uses the content of the records.
            examination.leave_out(format!("records of attachments: {reason}"));
            (Err("without the records, the owners of objects are unknown".to_owned()), Vec::new())
        }
        Err(reason) => (Err(reason), Vec::new()),
    };
    Node { places, catalogs, plugins, lists, bins, node_state, accounts, native: OnceCell::new() }
}

fn text(report: &Report) -> String {
    let mut lines = Vec::new();
    for finding in &report.findings {
        let severity = match finding.severity {
            Severity::Error => "ERROR",
            Severity::Warning => "WARNING",
            Severity::Note => "note",
        };
        lines.push(format!("{severity:<8} {}: {}", one_line(&finding.place), one_line(&finding.what)));
        if !finding.why.is_empty() {
            lines.push(format!("         {}", one_line(&finding.why)));
        }
        if !finding.remedy.is_empty() {
            lines.push(format!("         remedy: {}", output::remedy(&finding.remedy, finding.is_command)));
        }
    }
    if !lines.is_empty() {
        lines.push(String::new());
    }
    lines.push("looked at:".to_owned());
    lines.extend(report.looked_at.iter().map(|at| format!("  {}", one_line(at))));
    if !report.left_out.is_empty() {
        lines.push("left out:".to_owned());
        lines.extend(report.left_out.iter().map(|what| format!("  {}", one_line(what))));
    }
    let count = |severity| report.findings.iter().filter(|finding| finding.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    lines.push(match report.healthy {
        true => "healthy".to_owned(),
        false => {
            format!("{}, {}", output::count(errors, "error", "errors"), output::count(warnings, "warning", "warnings"))
        }
    });
    lines.join("\n")
}
