//! Attacks on a node with other owners' objects. Each attack is refused with known words. Afterwards everything else on
//! the node is bit-identical: links, addresses, routes, rules, nftables, iptables, sysctls, files, records.
//!
//! There are two attackers. `hostile` is a component that misbehaves within its sandbox. `rogue` is a compromised
//! sandbox process that speaks to the gate itself (`src/bin/rogue.rs`). An attack without preparation is one line of a
//! table. Other attacks are functions.

mod addresses;
mod attacked_node;
mod bandwidth;
mod behind;
mod bridge;
mod configuration;
mod delegation;
mod devices;
mod dhcp;
mod endings;
mod firewall;
mod flannel;
mod handles;
mod leases;
mod limits;
mod namespaces;
mod notes;
mod output;
mod pairs;
mod parents;
mod port_mappings;
mod previous;
mod release;
mod results;
mod sequences;
mod source_routes;
mod state;
mod taps;
mod tuning;
mod vrf;
mod wire;

use anyhow::{Result, anyhow, ensure};
use attacked_node::AttackedNode;
use postern_tests::proof::{Refusal, each};
use postern_tests::{Answer, merge};
use serde_json::{Value, json};
use std::time::Duration;

/// One attack: the attacker, its steps, its policy, and the expected end.
#[derive(Clone, Debug)]
struct Attack {
    name: &'static str,
    plugin: &'static str,
    verb: &'static str,
    config: Value,
    /// The configuration's text, instead of `config`.
    raw: Option<String>,
    /// The operator's policy file for the plugin. Empty means no file.
    policy: &'static str,
    env: Vec<(&'static str, &'static str)>,
    code: u64,
    words: &'static str,
}

/// Returns the network configuration that all attacks begin with.
fn base() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "hostile",
        "ipam": {"type": "host-local", "dataDir": "/var/lib/hostile", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    })
}

/// Makes an attack by the component `hostile`, with a behaviour of `tests/guests/hostile`.
fn hostile(name: &'static str, behaviour: &str) -> Attack {
    attack(name, "hostile", json!({"hostile": behaviour}))
}

/// Makes an attack by the process `rogue`, with steps of `src/bin/rogue.rs`. A bare operation is a call that ends the
/// attack if it is refused. A name alone is an operation without arguments.
fn rogue(name: &'static str, steps: &str) -> Attack {
    let Value::Array(steps) = written(steps) else { return attack(name, "rogue", Value::Null) };
    let step = |step: Value| match step {
        Value::String(op) => json!({"call": {"op": op}}),
        bare if bare.get("op").is_some() => json!({"call": bare}),
        step => step,
    };
    let steps: Vec<Value> = steps.into_iter().map(step).collect();
    attack(name, "rogue", json!({"type": "rogue", "rogue": steps}))
}

/// Makes an attack on a shipped plugin by the input alone.
fn honest(name: &'static str, plugin: &'static str, patch: &str) -> Attack {
    attack(name, plugin, json!({"type": plugin})).with(patch)
}

/// Parses JSON that a test contains.
#[allow(clippy::expect_used, reason = "a test that is not well-formed has to fail")]
fn written(json: &str) -> Value {
    serde_json::from_str(json).expect(json)
}

fn attack(name: &'static str, plugin: &'static str, orders: Value) -> Attack {
    let mut config = base();
    merge(&mut config, &orders);
    Attack { name, plugin, verb: "ADD", config, raw: None, policy: "", env: Vec::new(), code: 0, words: "" }
}

impl Attack {
    /// Changes the configuration.
    fn with(mut self, patch: &str) -> Self {
        merge(&mut self.config, &written(patch));
        self
    }

    /// Sets this text as the configuration.
    fn raw(mut self, text: impl Into<String>) -> Self {
        self.raw = Some(text.into());
        self
    }

    /// Sets a verb other than ADD.
    fn on(mut self, verb: &'static str) -> Self {
        self.verb = verb;
        merge(&mut self.config, &json!({"on": verb}));
        self
    }

    /// Sets an operator's policy file.
    fn policy(mut self, toml: &'static str) -> Self {
        self.policy = toml;
        self
    }

    /// Sets an environment variable.
    fn env(mut self, key: &'static str, value: &'static str) -> Self {
        self.env.push((key, value));
        self
    }

    /// Sets the expected end: the error's code, and parts of its words separated by `…`. Code 0 is success without
    /// harm.
    fn ends(mut self, code: u64, words: &'static str) -> Self {
        (self.code, self.words) = (code, words);
        self
    }

    /// Makes the runtime's call.
    fn call(&self, attacked: &AttackedNode) -> Result<Answer> {
        let stdin = self.raw.clone().unwrap_or_else(|| self.config.to_string());
        let call = attacked.request(self.plugin, self.verb, stdin)?;
        attacked.node().call(&self.env.iter().fold(call, |call, (key, value)| call.env(key, value)))
    }

    /// Calls `rogue`, which pauses after operation `after`, and calls `act` during the pause. The audit log gets the
    /// line of a look-up only with the next change, so operation `after` must change something.
    fn call_while(&self, attacked: &AttackedNode, after: &str, act: impl FnOnce() -> Result<String>) -> Result<Answer> {
        let logged =
            || Ok::<_, anyhow::Error>(attacked.audit()?.matches(&format!("\"operation\":\"{after}\"")).count());
        let before = logged()?;
        std::thread::scope(|scope| {
            let running = scope.spawn(|| self.call(attacked));
            while logged()? == before && !running.is_finished() {
                std::thread::sleep(Duration::from_millis(20));
            }
            ensure!(!running.is_finished(), "rogue ended before its pause");
            let done = act();
            let answer = running.join().map_err(|_| anyhow!("the caller panicked"))?;
            done.and(answer)
        })
    }

    /// Runs the attack. Fails if the attack ends in another way than expected, or if the node has changed.
    fn withstood_by(&self, attacked: &mut AttackedNode) -> Result<()> {
        attacked.operator_policy(self.plugin, self.policy)?;
        let answer = self.call(attacked);
        if self.code == 0 && self.verb == "ADD" {
            // The attack's DEL removes the effects that were allowed.
            Attack { verb: "DEL", ..self.clone() }.call(attacked)?.success()?;
        }
        let unchanged = attacked.unchanged();
        let ended = answer.and_then(|answer| match self.code {
            0 => answer.success().map(drop),
            code => Refusal::of(&answer)?.expect(code, self.words),
        });
        attacked.operator_policy(self.plugin, "")?;
        if unchanged.is_err() {
            attacked.mend()?;
        }
        // If the attack's end is wrong and the node has changed, both errors are reported.
        match (ended, unchanged) {
            (Err(ended), Err(changed)) => Err(ended.context(format!("and {changed:#}"))),
            (ended, changed) => ended.and(changed),
        }
    }
}

/// Carries out a table of attacks on a fresh node.
fn withstand(attacks: &[Attack]) -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    println!("{} attacks", attacks.len());
    each(attacks, |attack| attack.name.to_owned(), |attack| attack.withstood_by(&mut attacked))
}
