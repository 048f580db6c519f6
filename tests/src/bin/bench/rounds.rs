//! Rounds of one scenario: the native plugins, ours and the floor take turns.

use crate::floors;
use crate::scenarios::{Scenario, floor};
use crate::{PluginSet, Sets, WARM_UP};
use anyhow::{Result, ensure};
use postern_tests::floor::is_built;
use postern_tests::measure::{Measured, Sample, timed};
use postern_tests::merge;
use postern_tests::report::{FLOOR, NATIVE, OURS, Row};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

/// The pause before each side's turn. After a DEL, the kernel's workers hold the lock of all links for a while, and the
/// next side would wait for this lock.
pub const REST: Duration = Duration::from_millis(20);

/// The names of the sides, in the order of `Sets`.
pub const SIDES: [&str; 2] = [NATIVE, OURS];

/// The calls of one round: the sample of each verb, and the answer if the verb failed.
type Round = Vec<(Sample, Option<String>)>;

impl PluginSet {
    /// Returns the command and the input of a call.
    pub fn command(&self, plugin: &str, config: &Value, verb: &str, previous: &Value) -> (Command, String) {
        let mut config = config.clone();
        if previous.is_object() {
            merge(&mut config, &json!({"prevResult": previous}));
        }
        let mut command = Command::new(self.bin.join(plugin));
        command
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", format!("container{}", self.number))
            .env("CNI_NETNS", &self.netns)
            .env("CNI_IFNAME", if plugin == "loopback" { "lo" } else { "eth0" })
            .env("CNI_PATH", &self.bin);
        (command, config.to_string().replace("SIDE", &self.number.to_string()))
    }

    /// Makes a call.
    pub fn call(&self, plugin: &str, config: &Value, verb: &str, previous: &Value) -> Result<Measured> {
        let (mut command, input) = self.command(plugin, config, verb, previous);
        timed(&mut command, input.as_bytes())
    }

    /// Calls ADD of the plugin in front of the scenario's plugin, and returns the result of this ADD.
    pub fn front(&self, scenario: &Scenario) -> Result<Value> {
        let Some(front) = &scenario.front else { return Ok(Value::Null) };
        let made = self.call("bridge", front, "ADD", &Value::Null)?;
        ensure!(made.succeeded, "the plugin in front: {}", made.stdout);
        Ok(serde_json::from_str(&made.stdout)?)
    }

    /// Calls DEL of the plugin in front.
    pub fn clear(&self, scenario: &Scenario, in_front: &Value) -> Result<()> {
        if let Some(front) = &scenario.front {
            self.call("bridge", front, "DEL", in_front)?;
        }
        Ok(())
    }

    fn round(&self, scenario: &Scenario, config: &Value, in_front: &Value) -> Result<Round> {
        let (mut previous, mut samples) = (in_front.clone(), Vec::new());
        for verb in scenario.verbs {
            let made = self.call(scenario.plugin, config, verb, &previous)?;
            if *verb == "ADD" && made.succeeded {
                previous = serde_json::from_str(&made.stdout).unwrap_or(Value::Null);
            }
            // With iptables 1.8.9, the first native DEL with `ipMasq` fails. A second DEL finds no addresses and
            // succeeds.
            if !made.succeeded && *verb == "DEL" {
                self.call(scenario.plugin, config, verb, &previous)?;
            }
            samples.push((made.sample, (!made.succeeded).then_some(made.stdout)));
        }
        Ok(samples)
    }
}

/// Measures a program that is a floor. The program's row has no other sides.
pub fn alone(name: &'static str, runs: usize, command: impl Fn() -> Result<Command>) -> Result<Row> {
    let mut row = Row::new(name);
    for run in 0..WARM_UP + runs {
        std::thread::sleep(REST);
        let made = timed(&mut command()?, b"{}")?;
        ensure!(made.succeeded, "{name} failed");
        if run >= WARM_UP {
            row.sample(FLOOR, made.sample);
        }
    }
    crate::print(&row);
    Ok(row)
}

/// Measures a scenario. Returns a row for each verb.
pub fn measure(scenario: &Scenario, sets: &Sets, floor_netns: &str, runs: usize) -> Result<Vec<Row>> {
    let name = |prefix: &str, verb: &str| match scenario.verbs {
        [_] => prefix.to_owned(),
        _ => format!("{prefix}, {verb}"),
    };
    let mut rows: Vec<Row> = scenario.verbs.iter().map(|verb| Row::new(name(scenario.name, verb))).collect();
    let mut alone: Vec<Row> = match scenario.without {
        Some((part, _)) => scenario.verbs.iter().map(|verb| Row::new(name(part, verb))).collect(),
        None => Vec::new(),
    };
    let parts = floor(scenario.name).filter(|_| is_built());
    let mut said = [const { String::new() }; SIDES.len()];
    for run in 0..WARM_UP + runs {
        let counts = run >= WARM_UP;
        // The first side of a round may find colder caches, so all sides take turns.
        for turn in 0..=sets.len() {
            let index = (turn + run) % (sets.len() + 1);
            std::thread::sleep(REST);
            let Some((set, side)) = sets.get(index).zip(SIDES.get(index)) else {
                if let Some(parts) = parts {
                    let samples = floors::round(parts, scenario, floor_netns)?;
                    for (row, sample) in rows.iter_mut().zip(samples).filter(|_| counts) {
                        sample.into_iter().for_each(|sample| row.sample(FLOOR, sample));
                    }
                }
                continue;
            };
            let in_front = set.front(scenario)?;
            let without = match &scenario.without {
                Some((_, config)) => set.round(scenario, config, &in_front)?,
                None => Vec::new(),
            };
            let with = set.round(scenario, &scenario.config, &in_front)?;
            set.clear(scenario, &in_front)?;
            if counts {
                for (row, (sample, failure)) in rows.iter_mut().zip(&with) {
                    row.sample(side, *sample);
                    if let (Some(failure), Some(said)) = (failure, said.get_mut(index)) {
                        *row.failures.entry((*side).to_owned()).or_default() += 1;
                        said.clone_from(failure);
                    }
                }
                for ((row, (sample, _)), (less, _)) in alone.iter_mut().zip(&with).zip(&without) {
                    row.sample(side, sample.beyond(*less));
                }
            }
        }
    }
    rows.extend(alone);
    for row in &rows {
        crate::print(row);
    }
    for (side, text) in SIDES.iter().zip(said).filter(|(_, text)| !text.is_empty()) {
        println!("    {side} failed: {}", crate::short(&text));
    }
    Ok(rows)
}
