//! A list in one process: the process keeps what all plugins need, and each of them may do what its own policy says.

use crate::attacked_node::{AttackedNode, good};
use crate::common::{each, test_bin};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

/// The configuration of a plugin in the attacker's network, with the steps of a sandbox that was taken over.
fn input(plugin: &str, steps: &Value) -> Value {
    let mut config = crate::base();
    postern_tests::merge(&mut config, &json!({"type": plugin, "rogue": steps}));
    config
}

/// Runs `rogue` with these steps and then `chained` with the others, in one process. Returns what each answered.
fn run(attacked: &AttackedNode, first: &Value, second: &Value) -> Result<Vec<Value>> {
    let bin = test_bin()?;
    let request = json!({
        "env": {
            "command": "ADD", "container_id": "c1", "netns": attacked.netns("c1"), "ifname": "eth0", "args": "",
            "path": bin.display().to_string(), "netns_override": "",
        },
        "plan": [
            {"plugin": "rogue", "input": input("rogue", first)},
            {"plugin": "chained", "input": input("chained", second)},
        ],
    });
    let mut command = attacked.node().command(bin.join("rogue"));
    command.arg("--list").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().context("no standard input")?.write_all(request.to_string().as_bytes())?;
    let output = child.wait_with_output()?;
    let answers: Value = serde_json::from_slice(&output.stdout)?;
    answers.as_array().cloned().with_context(|| format!("no list: {answers}"))
}

/// What the first plugin does with its own, wide policy: it has a link, a lease and rules.
fn wide() -> Value {
    json!([
        {"call": {"op": "veth-create"}},
        {"call": {"op": "leases-reserve", "sets": [[{"subnet": "10.9.0.0/24"}]], "requested": []}},
        {"call": {"op": "bridge-find", "name": "hostile0"}},
    ])
}

#[test]
fn a_later_plugin_has_its_own_policy_alone() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.operator_policy("rogue", "")?;
    let asked = [
        json!({"op": "veth-create"}),
        json!({"op": "leases-reserve", "sets": [[{"subnet": "10.9.0.0/24"}]], "requested": []}),
        json!({"op": "leases-release"}),
        json!({"op": "bridge-find", "name": "hostile0"}),
        json!({"op": "parent-find", "name": "wire0", "in_container": false}),
        json!({"op": "link-own"}),
        // Handles of the run before.
        json!({"op": "link-up", "link": 0}),
        json!({"op": "bridge-attach", "bridge": 2, "host": 1, "port": {"hairpin": false, "isolated": false, "trunk": [], "preserve_default_vlan": false}}),
        json!({"op": "addresses-add", "link": 0, "addresses": ["10.9.0.2/24"]}),
        json!({"op": "routes-add", "link": 0, "routes": [{"dst": "11.0.0.0/8"}]}),
        json!({"op": "ipam-add"}),
    ];
    println!("{} attacks", asked.len());
    each(
        &asked,
        |operation| operation.to_string(),
        |operation| {
            let answers = run(&attacked, &wide(), &json!([{"call": operation}]))?;
            let [first, second] = answers.as_slice() else { anyhow::bail!("{answers:?}") };
            ensure!(first.get(0) == Some(&json!(0)), "the first plugin: {first}");
            let text = second.get(1).and_then(Value::as_str).unwrap_or_default();
            let error: Value = serde_json::from_str(text).with_context(|| second.to_string())?;
            ensure!(second.get(0) == Some(&json!(1)), "{second}");
            ensure!(
                error.get("code") == Some(&json!(110)) || text.contains("no plugin"),
                "not refused by policy: {text}"
            );
            // DEL of the list removes what the first plugin was allowed to make.
            attacked.plugin("hostile", "DEL", &good())?.success()?;
            attacked.plugin("rogue", "DEL", &input("rogue", &json!([])))?.success()?;
            attacked.unchanged()
        },
    )
}

#[test]
fn a_later_plugin_does_not_speak_for_an_earlier_one() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    // It claims success with an address before it is asked, while the first plugin waits for its deadline.
    let claim = json!([{"say": {"finished": {"stdout": "{\"cniVersion\": \"1.1.0\", \"ips\": [{\"address\": \"10.66.6.6/24\"}]}", "status": 0}}}]);
    let answers = run(&attacked, &json!([{"sleep": 200}, {"leave": true}]), &claim)?;
    let [first, second] = answers.as_slice() else { anyhow::bail!("{answers:?}") };
    let text = |answer: &Value| answer.get(1).and_then(Value::as_str).unwrap_or_default().to_owned();
    ensure!(text(first).contains("\"rogue\\\" ended without an answer"), "{first}");
    ensure!(text(second).contains("\"chained\\\" claims address 10.66.6.6/24"), "{second}");
    attacked.unchanged()
}
