//! One round on one node: the floor, the witness, and each set of plugins.

use crate::stand::{PER_BRIDGE, Stand, behind, call, filler, network};
use crate::{Options, Side};
use anyhow::{Result, ensure};
use postern_tests::floor::{self, Behind};
use postern_tests::measure::Sample;
use postern_tests::merge;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// The number of the attachment that is measured.
const PROBE: usize = 50_000;
/// The pause before each measured call. After a DEL, the kernel's workers hold the lock of all links for a while,
/// longer with more ports. A run that waits for that lock would count the wait as its own time.
const REST: Duration = Duration::from_millis(60);
/// The verbs of a round.
pub const VERBS: [&str; 4] = ["ADD", "CHECK", "DEL", "GC"];

/// The samples of one round, by verb: `None` for a call that failed or was not measured.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    pub floor: [Option<Sample>; 4],
    /// The witness after the floor's ADD and after its DEL.
    pub witness: [Option<Sample>; 4],
    pub sides: Vec<[Option<Sample>; 4]>,
}

/// The calls that are measured on a node.
pub struct Task {
    /// The configuration of bridge.
    base: Value,
    /// The plugin of `--behind`.
    behind: Option<String>,
    collection: Value,
    floor: floor::Task,
}

impl Task {
    pub fn new(stand: &Stand, options: &Options) -> Result<Self> {
        let base = network(0, &options.patch);
        let mut valid: Vec<Value> = (0..stand.count.min(PER_BRIDGE))
            .map(filler)
            .map(|(container, _, ifname)| json!({"containerID": container, "ifname": ifname}))
            .collect();
        valid.push(json!({"containerID": "probe", "ifname": "eth0"}));
        let mut collection = match &options.behind {
            Some(text) => behind(text, 0, PROBE, &Value::Null)?,
            None => base.clone(),
        };
        merge(&mut collection, &json!({"cni.dev/valid-attachments": valid}));
        let is_on = |key: &str| base.get(key) == Some(&json!(true));
        // The floor makes masquerading rules only for the nftables backend.
        let in_nftables = base.get("ipMasqBackend") == Some(&json!("nftables"));
        let mut parts = vec!["bridge"];
        parts.extend((is_on("ipMasq") && in_nftables).then_some("masquerade"));
        parts.extend(is_on("macspoofchk").then_some("guard"));
        let floor = floor::Task {
            parts: match options.behind {
                Some(_) => Behind::part(&collection),
                None => parts.join("+"),
            },
            netns: "/run/netns/probe".to_owned(),
            bridge: "scale0".to_owned(),
            address: "10.100.255.250/16".parse()?,
            name: "floor0".to_owned(),
        };
        Ok(Self { base, behind: options.behind.clone(), collection, floor })
    }

    /// The plugin that is measured.
    pub fn plugin(&self) -> &str {
        self.collection.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    /// Calls ADD of the plugins before the measured plugin. Returns the measured plugin's configuration.
    pub fn prepare(&self, side: &Side) -> Result<Value> {
        let Some(text) = &self.behind else { return Ok(self.base.clone()) };
        let made = call(&side.bin, "ADD", "probe", "probe", "eth0", &self.base)?;
        ensure!(made.succeeded, "{}: {}", side.label, made.stdout);
        behind(text, 0, PROBE, &serde_json::from_str(&made.stdout)?)
    }

    /// Calls DEL of the plugins before the measured plugin.
    pub fn clear(&self, side: &Side) -> Result<()> {
        if self.behind.is_some() {
            call(&side.bin, "DEL", "probe", "probe", "eth0", &self.base)?;
        }
        Ok(())
    }

    /// Returns the input of a verb.
    pub fn input(&self, verb: &str, config: &Value, previous: &Value) -> Value {
        let mut given = if verb == "GC" { self.collection.clone() } else { config.clone() };
        if previous.is_object() && verb != "GC" {
            merge(&mut given, &json!({"prevResult": previous}));
        }
        given
    }

    /// Measures the witness: a plugin without netlink that does the same work on every node.
    fn witness(side: &Side) -> Result<Option<Sample>> {
        let config = json!({
            "cniVersion": "1.1.0", "name": "witness", "type": "static",
            "ipam": {"type": "static", "addresses": [{"address": "10.99.0.2/24"}]},
        });
        let made = call(&side.bin, "ADD", "probe", "probe", "eth9", &config)?;
        call(&side.bin, "DEL", "probe", "probe", "eth9", &config)?;
        Ok(made.succeeded.then_some(made.sample))
    }

    fn round(&self, options: &Options, number: usize) -> Result<Round> {
        let mut round =
            Round { floor: [None; 4], witness: [None; 4], sides: options.sides.iter().map(|_| [None; 4]).collect() };
        let [floor_add, _, floor_del, _] = &mut round.floor;
        let [witness_add, _, witness_del, _] = &mut round.witness;
        for (verb, floor, witness) in [("add", floor_add, witness_add), ("del", floor_del, witness_del)] {
            std::thread::sleep(REST);
            *floor = Some(self.floor.measure(verb)?);
            if let Some(side) = options.sides.first() {
                *witness = Self::witness(side)?;
            }
        }
        for turn in 0..options.sides.len() {
            let index = (turn + number) % options.sides.len();
            let (Some(side), Some(samples)) = (options.sides.get(index), round.sides.get_mut(index)) else { continue };
            let config = self.prepare(side)?;
            let mut previous = Value::Null;
            for (verb, slot) in VERBS.iter().zip(samples) {
                let given = self.input(verb, &config, &previous);
                std::thread::sleep(REST);
                let made = call(&side.bin, verb, "probe", "probe", "eth0", &given)?;
                if made.succeeded {
                    *slot = Some(made.sample);
                } else {
                    let text: Vec<&str> = made.stdout.split_whitespace().collect();
                    println!("    {} {verb} failed: {}", side.label, text.join(" "));
                    call(&side.bin, "DEL", "probe", "probe", "eth0", &given)?;
                }
                if *verb == "ADD" {
                    previous = serde_json::from_str(&made.stdout).unwrap_or_default();
                }
            }
            self.clear(side)?;
        }
        Ok(round)
    }
}

/// Measures one round on a node.
pub fn measure(stand: &Stand, options: &Options, number: usize) -> Result<Round> {
    let task = Task::new(stand, options)?;
    stand.within(|| task.round(options, number))
}
