//! `postern plan`: the operations of an ADD on this node.
//!
//! The installed guests run in their usual sandbox under their usual policy. Their operations go to a simulation of the
//! node (`postern-sim`), which starts from data that any user can read. So nothing is changed, not even in Postern's
//! own directories, and no privilege is needed.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

mod call;
mod handles;
mod names;
mod node;
mod report;
mod stage;
mod text;

use crate::lists::{self, List};
use crate::output;
use anyhow::{Context, Result, anyhow, bail, ensure};
pub use call::{Call, Refusal, refused, report};
pub use names::Names;
pub use node::HOST_END;
use node::Node;
use postern_cni::{Env, Verb, Version};
use postern_gate::rehearsal;
use postern_types::Mac;
pub use report::{PluginReport, Report};
use serde_json::{Map, Value, json};
use stage::{Played, Stage};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit status when policy refuses an operation.
pub const REFUSED: u8 = 3;

/// The text for a link-layer address that the host chooses at random.
const UNKNOWN_MAC: &str = "XX:XX:XX:XX:XX:XX";

/// The arguments of the runtime.
#[derive(Debug, clap::Args)]
pub struct Attachment {
    /// CNI_CONTAINERID.
    #[arg(long, value_name = "ID", default_value = "plan")]
    container: String,
    /// CNI_IFNAME.
    #[arg(long, value_name = "NAME", default_value = "eth0")]
    ifname: String,
    /// CNI_NETNS. The plan reads this namespace if the user may enter it. Otherwise the namespace counts as empty
    /// [default: /run/netns/ID, which counts as empty].
    #[arg(long, value_name = "PATH")]
    netns: Option<String>,
    /// CNI_ARGS.
    #[arg(long, value_name = "K=V;...", default_value = "")]
    args: String,
    /// Arguments for the capabilities that the list declares, as one JSON object.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    capability_args: String,
    /// The directory of network lists [default: NETCONFPATH, node.toml, or /etc/cni/net.d].
    #[arg(long, value_name = "DIR")]
    conf_dir: Option<PathBuf>,
    /// Directories of native plugins, separated by colons [default: CNI_PATH, node.toml, or
    /// /opt/cni/bin, /usr/lib/cni, /usr/libexec/cni].
    #[arg(long, value_name = "DIRS")]
    cni_path: Option<String>,
}

/// Makes the plan and prints it.
pub fn run(target: &str, plugin: Option<&str>, attachment: &Attachment, json: bool) -> Result<ExitCode> {
    let directories = lists::directories(attachment.conf_dir.as_deref())?;
    let report = lists::find(target, &directories).and_then(|path| plan(&path, plugin, attachment));
    // Even after an error, all sandbox processes are reaped.
    rehearsal::reap();
    let report = report?;
    if json {
        output::json(&report)?;
    } else {
        output::text(&text::text(&report))?;
    }
    let failed = report.plugins.iter().any(|plugin| plugin.error.is_some());
    Ok(match (report.allowed, failed) {
        (false, _) => ExitCode::from(REFUSED),
        (true, true) => ExitCode::FAILURE,
        (true, false) => ExitCode::SUCCESS,
    })
}

fn plan(path: &Path, only: Option<&str>, attachment: &Attachment) -> Result<Report> {
    let label = path.display();
    let list = List::read(path).map_err(|reason| anyhow!("network {label} {reason}"))?;
    if let Some(only) = only {
        let named: Vec<&str> = list.plugins().collect();
        ensure!(named.contains(&only), "network {label} has no plugin \"{only}\", only {}", named.join(", "));
    }
    // A mistake in the arguments is reported before the node is looked at.
    arguments(attachment)?;
    env(attachment, "ADD")?;
    let mut node = Node::read(&attachment.ifname)?;
    if let Some(netns) = &attachment.netns {
        node.look_into(netns).map_err(anyhow::Error::msg)?;
    }
    let mut stage = Stage::new(node).map_err(anyhow::Error::msg)?;
    planned(&list, only, attachment, &mut stage)
}

fn arguments(attachment: &Attachment) -> Result<Map<String, Value>> {
    serde_json::from_str(&attachment.capability_args).context("--capability-args is no JSON object")
}

/// Returns the variables of a verb.
fn env(attachment: &Attachment, verb: &str) -> Result<Env> {
    let env = Env {
        command: verb.to_owned(),
        container_id: attachment.container.clone(),
        netns: attachment.netns.clone().unwrap_or_else(|| format!("/run/netns/{}", attachment.container)),
        ifname: attachment.ifname.clone(),
        args: attachment.args.clone(),
        path: lists::cni_path(attachment.cni_path.as_deref())?,
        netns_override: String::new(),
    };
    match env.validate() {
        Err(error) => bail!("{error}"),
        Ok(_) => Ok(env),
    }
}

/// Runs ADD in the simulation.
fn planned(list: &List, only: Option<&str>, attachment: &Attachment, stage: &mut Stage) -> Result<Report> {
    let found = stage.kernel.links.len();
    let End { plugins, result, unknown } = play(list, only, &env(attachment, "ADD")?, &arguments(attachment)?, stage);
    let is_cut = unknown.is_some();
    stage.notes.extend(unknown);
    let mut report = Report {
        network: list.name().to_owned(),
        version: list.version.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned(),
        container: attachment.container.clone(),
        ifname: attachment.ifname.clone(),
        allowed: plugins.iter().all(|plugin| plugin.operations.iter().all(report::OperationReport::is_allowed)),
        plugins,
        result: result.unwrap_or_default(),
        notes: stage.notes.clone(),
        is_blind: stage.is_blind,
        is_cut,
    };
    hide_unknown(&mut report, &made_up(stage, found));
    Ok(report)
}

/// Returns the verbs that follow an ADD, DEL last. An invalid version has only DEL.
fn verbs(version: &str) -> Vec<&'static str> {
    let version = Version::parse(version).unwrap_or(Version::V0_1_0);
    let all = [Verb::Check, Verb::Status, Verb::Gc, Verb::Del];
    all.into_iter().filter(|verb| version >= verb.since()).map(Verb::as_str).collect()
}

/// The outcome of a list in the simulation.
struct End {
    plugins: Vec<PluginReport>,
    /// The result of the last plugin, if all plugins could be played.
    result: Option<Value>,
    /// The reason why the outcome of the later plugins is unknown, although an ADD might succeed.
    unknown: Option<String>,
}

/// Runs the plugins one after the other, until a plugin fails or the last wanted plugin has ended.
fn play(list: &List, only: Option<&str>, env: &Env, arguments: &Map<String, Value>, stage: &mut Stage) -> End {
    let mut plugins = Vec::new();
    let mut previous: Option<Value> = None;
    // The last native program so far. Its changes to the node and to the result are unknown.
    let mut native: Option<&str> = None;
    for (at, plugin) in list.plugins().enumerate() {
        let component = stage.component(&env.path, plugin);
        let mut report = PluginReport {
            plugin: plugin.to_owned(),
            native: component.is_none(),
            digest: None,
            policy: Vec::new(),
            delegates: Vec::new(),
            operations: Vec::new(),
            error: None,
        };
        let shown = only.is_none_or(|only| only == plugin);
        if report.native && !lists::is_in(&env.path, plugin) {
            report.error = Some(object(&postern_cni::Error::internal(format!(
                "there is no plugin \"{plugin}\": it is not in Postern's catalog, nor a program in {}",
                env.path
            ))));
            plugins.push(report);
            return End { plugins, result: None, unknown: None };
        }
        if report.native {
            native = Some(plugin);
            if shown {
                plugins.push(report);
            }
        } else {
            let component = component.unwrap_or_default();
            report.policy = stage.policy_files(&component);
            let request = list.request(at, previous.as_ref(), arguments);
            let Played { digest, outcome } = stage.play(&component, env, request.to_string().as_bytes());
            report.digest = digest;
            report.operations = std::mem::take(&mut stage.operations);
            report.delegates = std::mem::take(&mut stage.delegates);
            let is_denied = report.operations.iter().any(|operation| !operation.is_allowed());
            let mut unknown = stage.unknown.take();
            let failed = outcome.is_err();
            match outcome {
                Ok(result) => previous = Some(result),
                // This is no failure: policy allows a native delegate, which plan does not run.
                Err(_) if unknown.is_some() => {}
                Err(error) => match native.filter(|_| !is_denied) {
                    Some(native) => unknown = Some(behind(native, plugin, previous.is_some(), &error)),
                    None => report.error = Some(object(&error)),
                },
            }
            if shown || failed {
                plugins.push(report);
            }
            if failed {
                return End { plugins, result: None, unknown };
            }
        }
        if only == Some(plugin) {
            break;
        }
    }
    End { plugins, result: previous, unknown: None }
}

/// Reports that a plugin fails because a native program before it was not run. A real ADD may succeed.
fn behind(native: &str, plugin: &str, has_result: bool, error: &postern_cni::Error) -> String {
    let not_run = format!("{native} is a native program, which plan does not run");
    match has_result {
        true => {
            let failure = format!("without its effects, {plugin} fails ({})", error.msg);
            format!("{not_run}: {failure}; the outcome of later plugins is unknown")
        }
        false => format!("{not_run}: the input of {plugin} and of later plugins is unknown"),
    }
}

fn object(error: &postern_cni::Error) -> Value {
    json!({"code": error.code, "msg": error.msg, "details": error.details})
}

/// Returns the addresses that the simulation invented for its new links. In a run, the host chooses these addresses.
fn made_up(stage: &Stage, found: usize) -> Vec<String> {
    let made = stage.kernel.links.keys().copied().filter(|handle| usize::try_from(*handle).is_ok_and(|at| at > found));
    made.map(|handle| {
        let [_, _, high, low] = handle.to_be_bytes();
        Mac([2, 0, 0, 0, high, low]).to_string()
    })
    .collect()
}

fn hide_unknown(report: &mut Report, made_up: &[String]) {
    let hide = |text: &mut String| {
        for mac in made_up {
            if text.contains(mac.as_str()) {
                *text = text.replace(mac.as_str(), UNKNOWN_MAC);
            }
        }
    };
    each_text(&mut report.result, &hide);
    for plugin in &mut report.plugins {
        for operation in &mut plugin.operations {
            each_text(&mut operation.request, &hide);
            hide(&mut operation.words);
            hide(&mut operation.outcome);
        }
        plugin.error.iter_mut().for_each(|error| each_text(error, &hide));
    }
}

fn each_text(value: &mut Value, act: &impl Fn(&mut String)) {
    match value {
        Value::String(text) => act(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, act)),
        Value::Object(members) => members.values_mut().for_each(|member| each_text(member, act)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
