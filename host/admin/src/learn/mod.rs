//! `postern learn`: runs a plugin in a place where it can do no harm, and prints the smallest policy for its
//! operations.
//!
//! The gate has no mode that ignores a policy's denial, and `learn` adds no such mode. The first runs have the widest
//! policy that the language can express, in namespaces that contain nothing of the node.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

mod before;
mod catalog;
mod device;
mod observed;
mod parent;
mod place;
mod runs;
mod smallest;
mod tap;

pub use observed::LoggedOperation;
pub use smallest::{Key, Source, WidestValue};

use crate::imports::Imports;
use crate::lists::Network;
use crate::output::{self, one_line};
use crate::subject;
use anyhow::{Context, Result, ensure};
use catalog::CopiedFiles;
use observed::ObservedOperations;
use postern_cni::flannel::SUBNET_FILE;
use postern_policy::Policy;
use postern_types::Capability;
use runs::{Outcome, Run};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The object that `--json` prints. Keys are only ever added.
#[derive(Serialize)]
struct Report {
    plugin: String,
    /// SHA-256 of the component, hexadecimal.
    digest: String,
    networks: Vec<NetworkReport>,
    /// Imported functions that no network needed, by capability.
    unused: BTreeMap<String, Vec<String>>,
    /// The smallest policy, as TOML.
    policy: String,
    /// The operations that this policy denied.
    denied: Vec<String>,
    /// True if all runs succeeded, under the widest policy and under this policy.
    verified: bool,
}

#[derive(Serialize)]
struct NetworkReport {
    network: String,
    outcomes: Vec<Outcome>,
    /// The operations that even the widest policy denied: no policy can grant them for this network.
    denied: Vec<String>,
}

/// Learns the policy and prints it.
pub fn run(target: &str, networks: &[String], name: Option<String>, json: bool) -> Result<ExitCode> {
    let file = subject::is_file(target);
    let name = name.unwrap_or_else(|| if file { subject::stem(Path::new(target)) } else { target.to_owned() });
    ensure!(subject::is_name(&name), "\"{name}\" is no name for a plugin: give it one with --name");
    let networks = networks.iter().map(|target| Network::find(target, &name)).collect::<Result<Vec<_>>>()?;
    let copied = CopiedFiles::pack(target)?;
    place::enter(&resolver_files(&networks))?;
    let report = learn(&copied, target, &name, &networks)?;
    if json {
        output::json(&report)?;
    } else {
        output::text(&text(&report).join("\n"))?;
    }
    Ok(if report.verified { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the files that the configurations name as `ipam.resolvConf` and `subnetFile`: the gate reads no other files
/// of the node for a plugin.
fn resolver_files(networks: &[Network]) -> Vec<(PathBuf, Vec<u8>)> {
    let files = networks.iter().flat_map(|network| [network.text("/ipam/resolvConf"), network.text("/subnetFile")]);
    let named = files.chain([SUBNET_FILE]).map(PathBuf::from);
    let absolute = named.filter(|path| path.is_absolute());
    absolute.filter_map(|path| std::fs::read(&path).ok().map(|contents| (path, contents))).collect()
}

fn learn(copied: &CopiedFiles, target: &str, name: &str, networks: &[Network]) -> Result<Report> {
    let unpacked = copied.unpack(target, name)?;
    let imports = Imports::parse(&unpacked.imports);
    let has_tap = imports.has(Capability::Tap);
    let networks: Vec<Network> =
        networks.iter().map(|network| if has_tap { tap::with_own_ids(network) } else { network.clone() }).collect();
    let networks = networks.as_slice();
    // Runtimes name `lo` itself as the interface, and choose any name for other attachments.
    let ifname = if imports.has(Capability::Loopback) { "lo" } else { "eth0" };
    let all = |policy: &str| -> Result<Vec<Run>> {
        catalog::set_policy(name, policy)?;
        networks.iter().map(|network| runs::run(name, ifname, network, &imports)).collect()
    };
    let first = all(&smallest::widest(&imports)?)?;
    let seen = ObservedOperations::of(&first, networks);
    let results: Vec<_> = first.iter().map(|run| run.result.clone()).collect();
    let operations = first.iter().map(Run::operations).max().unwrap_or_default();
    let mut policy = smallest::policy(&seen, networks, &results, operations)?;
    if unpacked.names_no_versions {
        policy.insert_str(0, &smallest::versions(networks));
    }
    Policy::parse(&policy, &format!("{name}.toml"))
        .map_err(anyhow::Error::msg)
        .with_context(|| format!("the learned policy is invalid:\n{policy}"))?;
    let second = all(&policy)?;
    let failed = |run: &Run| run.outcomes.iter().any(|outcome| outcome.error.is_some());
    let mut denied = Vec::new();
    for (run, network) in second.iter().zip(networks) {
        let errors = run
            .outcomes
            .iter()
            .filter_map(|outcome| outcome.error.as_ref().map(|error| format!("{} failed: {error}", outcome.verb)));
        denied.extend(run.denied().into_iter().chain(errors).map(|what| format!("{}: {what}", network.label)));
    }
    Ok(Report {
        plugin: name.to_owned(),
        digest: unpacked.digest,
        unused: smallest::unused(&imports, &seen),
        verified: denied.is_empty() && !first.iter().any(failed),
        networks: networks
            .iter()
            .zip(&first)
            .map(|(network, run)| NetworkReport {
                network: network.label.clone(),
                outcomes: run.outcomes.clone(),
                denied: run.denied(),
            })
            .collect(),
        policy,
        denied,
    })
}

/// Returns the report for people: a policy file with the report in its comments.
fn text(report: &Report) -> Vec<String> {
    let mut lines = vec![format!("# Learned by `postern learn` for {}, from:", report.plugin)];
    for network in &report.networks {
        let verbs: Vec<&str> = network.outcomes.iter().map(|outcome| outcome.verb).collect();
        lines.push(format!("#   {}: {}", one_line(&network.network), verbs.join(", ")));
        for outcome in &network.outcomes {
            if let Some(error) = &outcome.error {
                lines.push(format!("#     {} FAILED: {}", outcome.verb, one_line(error)));
            }
        }
        for denied in &network.denied {
            lines.push(format!("#     denied by the widest policy: {}", one_line(denied)));
        }
    }
    lines.push("# To bind this policy to this component alone:".to_owned());
    lines.push(format!("# digest = \"sha256:{}\"", report.digest));
    // Policy lines are not wrapped, because the policy may be stored as a file.
    lines.extend(report.policy.lines().map(output::whole));
    if !report.unused.is_empty() {
        lines.push(String::new());
        lines.push("# Imported, and never used here. Take unneeded imports out of the component:".to_owned());
        for (capability, functions) in &report.unused {
            lines.push(format!("#   {capability}: {}", functions.join(", ")));
        }
    }
    lines.push(String::new());
    if report.verified {
        lines.push("# verified: the same runs succeed under this policy. Other networks are not tested.".to_owned());
    } else {
        lines.push("# NOT VERIFIED: not every run succeeded.".to_owned());
        lines.extend(report.denied.iter().map(|denied| format!("#   under this policy: {}", one_line(denied))));
    }
    lines
}
