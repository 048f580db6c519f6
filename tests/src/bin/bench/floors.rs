//! Measures the floor of a call and of a list, by a program that does only the necessary work.

use crate::scenarios::{Scenario, WIRE};
use anyhow::{Result, ensure};
use postern_tests::floor::Task;
use postern_tests::measure::{Sample, timed};

/// The bridge that the floor uses, and the container's link.
const BRIDGE: &str = "bench3";
const LINK: &str = "eth0";

/// Returns the task of the floor for these PARTS (see `postern_tests::floor`).
fn task(parts: &str, netns: &str) -> Result<Task> {
    let (bridge, name) = match parts {
        "loopback" => ("", "lo"),
        "bandwidth" => ("eeth0", "limit0"),
        parts if parts.contains("macvlan") => (WIRE, LINK),
        _ => (BRIDGE, LINK),
    };
    let [parts, netns, bridge, name] = [parts, netns, bridge, name].map(str::to_owned);
    Ok(Task { parts, netns, bridge, address: "10.3.0.7/16".parse()?, name })
}

fn run(task: &Task, verb: &str) -> Result<Sample> {
    let made = timed(&mut task.command(verb)?, b"")?;
    ensure!(made.succeeded, "the floor {verb} {}", task.parts);
    Ok(made.sample)
}

/// Measures one round of the floor. A verb that the floor lacks has no sample.
pub fn round(parts: &str, scenario: &Scenario, netns: &str) -> Result<Vec<Option<Sample>>> {
    let (link, task) = (task("bridge", netns)?, task(parts, netns)?);
    let needs_link = ["bandwidth", "tuning"].contains(&parts);
    if needs_link {
        run(&link, "add")?;
    }
    let samples = scenario.verbs.iter().map(|verb| match *verb {
        "ADD" | "VERSION" => run(&task, "add").map(Some),
        "DEL" => run(&task, "del").map(Some),
        _ => Ok(None),
    });
    let samples = samples.collect::<Result<_>>()?;
    if needs_link {
        run(&link, "del")?;
    }
    Ok(samples)
}

/// Measures the floor of a list, with a process for each plugin. Returns the sum of the ADDs or DELs.
pub fn list(parts: &[&str], netns: &str, verb: &str) -> Result<Sample> {
    let mut tasks: Vec<Task> = parts.iter().map(|parts| task(parts, netns)).collect::<Result<_>>()?;
    if verb == "del" {
        tasks.reverse();
    }
    tasks.iter().map(|task| run(task, verb)).sum()
}
