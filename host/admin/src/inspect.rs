//! `postern inspect`: imports, policy, and the abilities from both, for a person who approves a plugin.

use crate::authority::{self, Ability, Grant};
use crate::imports::{FLOOR, WHOLE};
use crate::lists::Network;
use crate::output;
use crate::subject::{Pin, Subject};
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

/// Exit status when policy and imports disagree, or when a new component can do more than the old component.
pub const DISAGREE: u8 = 3;

/// The object that `--json` prints. Keys are only ever added.
#[derive(Serialize)]
struct Report {
    plugin: String,
    /// SHA-256 of the component, hexadecimal.
    digest: String,
    /// The plugin's own version; `null` if its component has no valid version.
    version: Option<String>,
    pin: Option<Pin>,
    engine: String,
    postern: String,
    imports: ImportReport,
    /// True if there is a policy.
    has_policy: bool,
    policy: Vec<Grant>,
    /// Capabilities that a policy file withdraws.
    withdrawn: Vec<&'static str>,
    /// The part that does the work of the verb GC: `host` or `guest`. `null` without a policy.
    gc: Option<&'static str>,
    /// The CNI versions that the policy allows; `null` if it allows all.
    versions: Option<Vec<String>>,
    /// CNI versions that the component named when it was added; `null` for a component in a file, or if it named none.
    component_versions: Option<Vec<String>>,
    /// The network configuration that filled in the values of `policy` and `can`.
    network: Option<String>,
    can: Vec<Ability>,
    always: Vec<&'static str>,
    cannot: Vec<&'static str>,
    unused_grants: Vec<String>,
    ungranted_imports: Vec<String>,
    limits: Vec<Limit>,
    /// True if policy and imports fit: exit status 0.
    agree: bool,
}

#[derive(Serialize)]
struct ImportReport {
    /// Functions of `postern:cni` by interface.
    authority: BTreeMap<String, Vec<String>>,
    /// The other imports.
    floor: Vec<String>,
    /// True if `floor` has more imports of WASI than every component has. No host function is behind the further
    /// imports.
    all_of_wasi: bool,
}

#[derive(Serialize)]
struct Limit {
    name: String,
    value: u32,
    /// True if a file sets the limit; otherwise the limit is the default.
    set: bool,
}

/// Prints the report.
pub fn run(
    target: &str,
    policy: Option<&Path>,
    network: Option<&str>,
    name: Option<&str>,
    json: bool,
) -> Result<ExitCode> {
    let subject = Subject::open(target, policy)?;
    let network = network.map(|target| Network::find(target, name.unwrap_or(&subject.name))).transpose()?;
    let report = report(&subject, network.as_ref())?;
    if json {
        output::json(&report)?;
    } else {
        output::text(&text(&report, &subject)?)?;
    }
    Ok(ExitCode::from(if report.agree { 0 } else { DISAGREE }))
}

fn report(subject: &Subject, network: Option<&Network>) -> Result<Report> {
    let grants = subject.grants(network)?;
    let imports = &subject.imports;
    let pin = subject.pin();
    let (unused, ungranted) = (authority::unused(imports, &grants), authority::ungranted(imports, &grants));
    let limits = subject.policy.as_ref().map(|policy| policy.limits().list()).unwrap_or_default();
    Ok(Report {
        plugin: subject.name.clone(),
        digest: subject.digest.clone(),
        version: subject.version.clone(),
        engine: subject.engine.clone(),
        postern: subject.postern.clone(),
        imports: ImportReport {
            authority: imports
                .authority
                .iter()
                .map(|(interface, functions)| (interface.clone(), functions.iter().cloned().collect()))
                .collect(),
            floor: imports.floor.clone(),
            all_of_wasi: imports.has_all_of_wasi(),
        },
        has_policy: subject.policy.is_some(),
        withdrawn: subject
            .policy
            .iter()
            .flat_map(|policy| policy.withdrawn())
            .map(|capability| capability.name())
            .collect(),
        gc: subject.policy.as_ref().map(|policy| if policy.collects_by_host() { "host" } else { "guest" }),
        versions: subject.policy.as_ref().and_then(|policy| policy.versions().map(<[String]>::to_vec)),
        component_versions: subject.versions.clone(),
        network: network.map(|network| network.label.clone()),
        can: authority::abilities(imports, Some(&grants)),
        always: authority::always(imports),
        cannot: authority::inabilities(imports, &grants),
        agree: unused.is_empty() && ungranted.is_empty() && pin.as_ref().is_none_or(|pin| pin.matches),
        unused_grants: unused,
        ungranted_imports: ungranted,
        policy: grants,
        limits: limits.into_iter().map(|(name, value, set)| Limit { name, value, set }).collect(),
        pin,
    })
}

/// Returns the report for people.
fn text(report: &Report, subject: &Subject) -> Result<String> {
    let mut out = String::new();
    // Only a line of Postern itself begins a new paragraph.
    let mut line = |text: &str| match text.strip_prefix('\n') {
        Some(text) => writeln!(out, "\n{}", output::one_line(text)),
        None => writeln!(out, "{}", output::one_line(text)),
    };
    line(&format!("{}  sha256:{}", report.plugin, report.digest))?;
    line(&match &report.pin {
        Some(Pin { file, matches: true, .. }) => format!("  pinned: {file} allows this component only"),
        Some(Pin { file, digest, .. }) => format!("  PINNED TO ANOTHER COMPONENT, and so refused: {file} has {digest}"),
        None => "  not pinned: the policy applies to every component of this name".to_owned(),
    })?;
    line(&format!("  version {}", report.version.as_deref().unwrap_or("unknown: the component says none")))?;
    line(&format!("  postern {}, code for {}", report.postern, report.engine))?;

    if let Some(versions) = &report.component_versions {
        line(&format!("  CNI versions: {}", versions.join(", ")))?;
    }

    line("\nimports (the plugin can ask for nothing else)")?;
    for interface in subject.imports.lines() {
        line(&format!("  {interface}"))?;
    }
    if report.imports.authority.is_empty() {
        line("  no capability: it can only compute")?;
    }
    let functions = report.imports.floor.len();
    line(&match report.imports.all_of_wasi {
        false => format!("  and the floor that every plugin has ({functions} functions): {FLOOR}"),
        true => format!("  and WASI, with nothing behind it ({functions} functions): {WHOLE}"),
    })?;

    match (report.has_policy, &report.network) {
        (false, _) => line("\npolicy: none, so nothing is granted (--policy FILE names one)")?,
        (true, None) => line("\npolicy in force")?,
        (true, Some(network)) => line(&format!("\npolicy in force, with the values of {network}"))?,
    }
    let mut files: Vec<&str> = Vec::new();
    for grant in &report.policy {
        if !files.contains(&grant.file.as_str()) {
            files.push(&grant.file);
        }
        line(&format!("  {:<9} {}", grant.from, grant.capability))?;
        for (key, values) in &grant.objects {
            let values = if values.is_empty() { "none".to_owned() } else { values.join("  ") };
            line(&format!("            {key}: {values}"))?;
        }
    }
    if !report.withdrawn.is_empty() {
        line(&format!("  withdrawn: {}", report.withdrawn.join(", ")))?;
    }
    if let Some(versions) = &report.versions {
        line(&format!("  CNI versions: only {}", versions.join(", ")))?;
    }
    if report.gc == Some("host") {
        line("  GC: the host removes garbage, and starts no guest")?;
    }
    for file in files {
        line(&format!("  from {file}"))?;
    }

    line("\nit can (imports that are granted)")?;
    for ability in report.can.iter().filter(|ability| ability.host_privileges) {
        line(&format!("  !! {}: CAN {} !!", ability.capability, ability.sentence))?;
    }
    for ability in report.can.iter().filter(|ability| !ability.host_privileges) {
        line(&format!("  {}", ability.sentence))?;
    }
    for always in &report.always {
        line(&format!("  always: {always}"))?;
    }
    line(&format!("it cannot: {}", report.cannot.join("; ")))?;

    let limits: Vec<String> = report
        .limits
        .iter()
        .map(|limit| format!("{}{} {}", if limit.set { "*" } else { "" }, limit.name, limit.value))
        .collect();
    if !limits.is_empty() {
        line(&format!("\nlimits (* set by a policy file): {}", limits.join(", ")))?;
    }

    line("")?;
    if !report.unused_grants.is_empty() {
        line(&format!("DISAGREE: granted, but no import uses it: {}", report.unused_grants.join(", ")))?;
    }
    if !report.ungranted_imports.is_empty() {
        line(&format!("DISAGREE: imported, but granted by nothing: {}", report.ungranted_imports.join(", ")))?;
    }
    if report.agree {
        line("policy and imports agree")?;
    }
    Ok(out)
}
