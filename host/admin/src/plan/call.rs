//! A plan for other commands: an ADD under given policies, and the verbs after it.

use super::node::Node;
use super::report::{OperationReport, Report};
use super::stage::{Played, Stage};
use super::{Attachment, planned, verbs};
use crate::lists::List;
use anyhow::{Result, anyhow};
use postern_policy::Policy;
use serde_json::{Map, Value};
use std::path::Path;

/// The call of a runtime.
#[derive(Clone, Debug)]
pub struct Call<'c> {
    /// The network's file.
    pub path: &'c Path,
    /// The text that replaces the file's text.
    pub text: Option<&'c [u8]>,
    /// Values for capabilities.
    pub arguments: &'c Map<String, Value>,
    /// `CNI_PATH`.
    pub cni_path: &'c str,
    /// `CNI_IFNAME`.
    pub ifname: &'c str,
    /// Policies that replace the policies on disk, by plugin.
    pub policies: &'c [(String, Policy)],
}

/// An operation that policy refuses.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The verb of the runtime.
    pub verb: &'static str,
    /// The place of the plugin in the list.
    pub at: usize,
    /// The operation.
    pub operation: OperationReport,
}

impl<'c> Call<'c> {
    /// An ADD of `eth0` under the policies of this node.
    pub fn of(path: &'c Path, arguments: &'c Map<String, Value>, cni_path: &'c str) -> Self {
        Self { path, text: None, arguments, cni_path, ifname: "eth0", policies: &[] }
    }

    fn attachment(&self) -> Attachment {
        Attachment {
            // No container has this ID. So the simulated ADD gets an address if any address is free.
            container: "postern-validate".to_owned(),
            ifname: self.ifname.to_owned(),
            netns: None,
            args: String::new(),
            capability_args: Value::Object(self.arguments.clone()).to_string(),
            conf_dir: None,
            cni_path: Some(self.cni_path.to_owned()),
        }
    }

    fn stage(&self) -> Result<Stage> {
        let mut stage = Stage::new(Node::read(self.ifname)?).map_err(anyhow::Error::msg)?;
        stage.policies = self.policies.to_vec();
        Ok(stage)
    }
}

/// Makes the plan of an ADD.
///
/// # Errors
/// There is no catalog, the node can't be looked at, or the file is no network.
pub fn report(call: &Call<'_>) -> Result<Report> {
    let list = read(call)?;
    planned(&list, None, &call.attachment(), &mut call.stage()?)
}

fn read(call: &Call<'_>) -> Result<List> {
    let list = call.text.map_or_else(|| List::read(call.path), |text| List::of(call.path, text));
    list.map_err(|reason| anyhow!("network {} {reason}", call.path.display()))
}

/// Plays ADD. Then plays those verbs of CHECK, STATUS, GC and DEL that the network's version has. Returns the refusals
/// of policy, and the reasons why some verbs could not be played.
///
/// # Errors
/// As [`report`].
pub fn refused(call: &Call<'_>) -> Result<(Vec<Refusal>, Vec<String>)> {
    let list = read(call)?;
    let mut stage = call.stage()?;
    let mut notes = Vec::new();
    let mut refusals = Vec::new();
    let attachment = call.attachment();
    let added = planned(&list, None, &attachment, &mut stage)?;
    for (at, plugin) in added.plugins.iter().enumerate() {
        let denied = plugin.operations.iter().filter(|operation| !operation.is_allowed());
        refusals.extend(denied.map(|operation| Refusal { verb: "ADD", at, operation: operation.clone() }));
        if let Some(error) = &plugin.error {
            let text = error.get("msg").and_then(Value::as_str).unwrap_or_default();
            notes.push(format!(
                "network {}: ADD could not be played to its end: {}: {text}",
                list.name(),
                plugin.plugin
            ));
        }
    }
    let previous = Some(&added.result).filter(|result| !result.is_null());
    if added.is_cut {
        let why = added.notes.last().map_or("", String::as_str);
        notes.push(format!("network {}: ADD could not be played to its end: {why}", list.name()));
    }
    if previous.is_none() {
        return Ok((refusals, notes));
    }
    for verb in verbs(&added.version) {
        let mut order: Vec<(usize, String)> = list.plugins().map(str::to_owned).enumerate().collect();
        if verb == "DEL" {
            order.reverse();
        }
        for (at, plugin) in order {
            let Some(plugin) = stage.component(call.cni_path, &plugin) else { continue };
            let mut request = list.request(at, previous.filter(|_| !["STATUS", "GC"].contains(&verb)), call.arguments);
            if verb == "GC"
                && let Some(keys) = request.as_object_mut()
            {
                keys.insert("cni.dev/valid-attachments".to_owned(), Value::Array(Vec::new()));
            }
            let env = super::env(&attachment, verb)?;
            // A failure doesn't count: the simulated node is no longer the node on which ADD was played.
            let _: Played = stage.play(&plugin, &env, request.to_string().as_bytes());
            let denied = std::mem::take(&mut stage.operations).into_iter().filter(|operation| !operation.is_allowed());
            refusals.extend(denied.map(|operation| Refusal { verb, at, operation }));
        }
    }
    Ok((refusals, notes))
}
