//! One worker: its acts on its containers, and its knowledge about them.

use crate::kills::test_node::{Container, TestNode, steps};
use anyhow::{Context, Result, bail, ensure};
use postern_tests::proof::{Refusal, is_whole};
use postern_tests::{Answer, Random};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

/// The knowledge about a container.
#[derive(Clone, Debug)]
pub enum State {
    /// The container is not attached: it never was, or its DEL succeeded.
    Absent,
    /// The container is attached. The value is its ADD's output.
    Attached(Value),
    /// The last run for the container was killed. The value is its verb.
    Unknown(&'static str),
}

/// The acts and their outcomes.
#[derive(Clone, Debug, Default)]
pub struct Figures(BTreeMap<(&'static str, &'static str), u64>);

impl Figures {
    fn note(&mut self, what: &'static str, verb: &'static str) {
        *self.0.entry((what, verb)).or_default() += 1;
    }

    /// Returns the sum of these figures and `other`.
    pub fn and(mut self, other: &Self) -> Self {
        for (what, count) in &other.0 {
            *self.0.entry(*what).or_default() += count;
        }
        self
    }

    fn of(&self, what: &str) -> u64 {
        self.0.iter().filter(|((is, _), _)| *is == what).map(|(_, count)| count).sum()
    }

    /// Returns the number of runs that a kill ended.
    pub fn kills(&self) -> u64 {
        self.of(KILLED)
    }

    /// Returns the number of ADDs that succeeded.
    pub fn added(&self) -> u64 {
        self.0.get(&(SUCCEEDED, "ADD")).copied().unwrap_or_default()
    }

    /// Returns the number of killed runs whose containers were restored.
    pub fn recovered(&self) -> u64 {
        self.of(BROUGHT_BACK)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for what in [KILLED, TOO_LATE, SUCCEEDED, EXISTS, BROUGHT_BACK] {
            write!(formatter, "{what:<28}{:>7}:", self.of(what))?;
            for ((_, verb), count) in self.0.iter().filter(|((is, _), _)| *is == what) {
                write!(formatter, " {verb} {count}")?;
            }
            writeln!(formatter)?;
        }
        Ok(())
    }
}

const KILLED: &str = "killed";
const TOO_LATE: &str = "ended before the kill";
const SUCCEEDED: &str = "succeeded";
const EXISTS: &str = "refused because still complete";
const BROUGHT_BACK: &str = "restored by";

/// The expected time of a verb's run, until one run of the verb has ended.
const FIRST: Duration = Duration::from_millis(30);

/// A worker, which acts on its own containers.
pub struct Worker {
    pub containers: Vec<(Container, State)>,
    pub figures: Figures,
    random: Random,
    /// The time of each verb's last run that no kill ended.
    usual: BTreeMap<(&'static str, &'static str, &'static str), Duration>,
}

impl Worker {
    /// Makes a worker with these containers, none of which is attached.
    pub fn new(containers: &[Container], seed: u64) -> Self {
        Self {
            containers: containers.iter().map(|container| (container.clone(), State::Absent)).collect(),
            figures: Figures::default(),
            random: Random::new(seed),
            usual: BTreeMap::new(),
        }
    }

    /// Returns the worker's containers with their states.
    pub fn states(&self) -> impl Iterator<Item = (&Container, &State)> {
        self.containers.iter().map(|(container, state)| (container, state))
    }

    /// Does the next act, for one of the worker's containers.
    pub fn act(&mut self, test_node: &TestNode) -> Result<()> {
        let at = self.random.index(self.containers.len());
        let Some((container, state)) = self.containers.get(at).cloned() else { return Ok(()) };
        if self.random.below(10) == 0 {
            return self.collect(test_node, &container);
        }
        let verb = match state {
            State::Absent => "ADD",
            State::Attached(_) => self.random.one_of(&["DEL", "DEL", "CHECK"]),
            // After an incomplete list, a runtime calls DEL.
            State::Unknown(_) if container.network.plugins.len() > 1 => "DEL",
            // DEL or ADD restores the container. Runs of other workers may come first.
            State::Unknown(_) => self.random.one_of(&["DEL", "ADD"]),
        };
        let next = self.attachment(test_node, &container, &state, verb).with_context(|| {
            format!("{verb} of {} in {}, which was {state:?}", container.name, container.network.name)
        })?;
        if let Some((_, state)) = self.containers.get_mut(at) {
            *state = next;
        }
        Ok(())
    }

    /// Makes the runs of a verb for a container. Returns the new knowledge about the container.
    fn attachment(
        &mut self,
        test_node: &TestNode,
        container: &Container,
        state: &State,
        verb: &'static str,
    ) -> Result<State> {
        let mut result = if let State::Attached(result) = state { result.clone() } else { Value::Null };
        let killed = matches!(state, State::Unknown(_));
        for plugin in steps(&container.network, verb) {
            let call = test_node.call(&plugin, verb, container, &result, &json!({}));
            let Some(answer) = self.run(test_node, (container.network.name, plugin.0), verb, &call)? else {
                return Ok(match (verb, state) {
                    // CHECK changes nothing. A half removed attachment may stay half removed.
                    ("CHECK", _) | ("ADD", State::Unknown(_)) => state.clone(),
                    _ => State::Unknown(verb),
                });
            };
            match (verb, answer.status) {
                ("ADD", 0) => result = answer.success()?,
                // The ADD was killed after its last act, or the DEL before its first act.
                ("ADD", 1) if killed => {
                    let refusal = Refusal::of(&answer)?;
                    let whole = is_whole(&test_node.node, &container.name)?;
                    ensure!(whole, "remains of a killed run block ADD: {}", refusal.text);
                    self.figures.note(EXISTS, "ADD");
                    return Ok(state.clone());
                }
                ("DEL" | "CHECK", 0) => {}
                _ => bail!("{}: {answer:?}", plugin.0),
            }
        }
        if killed {
            self.figures.note(BROUGHT_BACK, verb);
        }
        Ok(match verb {
            "ADD" => State::Attached(result),
            "DEL" => State::Absent,
            _ => state.clone(),
        })
    }

    /// Collects garbage in a container's network. The list of valid attachments has the attachments that are
    /// known to be alive, and the present and future attachments of other workers. GC collects the objects of this
    /// worker's killed runs.
    fn collect(&mut self, test_node: &TestNode, of: &Container) -> Result<()> {
        let is_lost =
            |name: &str| self.states().any(|(own, state)| own.name == name && !matches!(state, State::Attached(_)));
        let valid: Vec<Value> = test_node
            .containers
            .iter()
            .filter(|container| !is_lost(&container.name))
            .map(|container| json!({"containerID": container.name, "ifname": "eth0"}))
            .collect();
        let mut ended = true;
        for plugin in steps(&of.network, "GC") {
            let call = test_node.call(&plugin, "GC", of, &Value::Null, &json!({"cni.dev/valid-attachments": valid}));
            match self.run(test_node, (of.network.name, plugin.0), "GC", &call)? {
                Some(answer) => drop(answer.success().with_context(|| format!("GC of {}", of.network.name))?),
                None => ended = false,
            }
        }
        for (container, state) in &mut self.containers {
            if container.network.name == of.network.name && matches!(state, State::Unknown(_)) {
                if ended {
                    *state = State::Absent;
                    self.figures.note(BROUGHT_BACK, "GC");
                } else {
                    *state = State::Unknown("GC");
                }
            }
        }
        Ok(())
    }

    /// Makes a run. Three of four runs get a kill at a random instant of the verb's usual time. Returns `None` if the
    /// kill ended the run.
    fn run(
        &mut self,
        test_node: &TestNode,
        (network, plugin): (&'static str, &'static str),
        verb: &'static str,
        call: &postern_tests::Call,
    ) -> Result<Option<Answer>> {
        let usual = self.usual.get(&(network, plugin, verb)).copied().unwrap_or(FIRST);
        let kill = self.random.chance(3);
        let after = Duration::from_micros(self.random.below(u64::try_from(usual.as_micros())?));
        let start = Instant::now();
        let mut child = test_node.node.start(call)?;
        if kill {
            std::thread::sleep(after.saturating_sub(start.elapsed()));
            child.kill()?;
        }
        let output = child.wait_with_output()?;
        if output.status.signal().is_some() {
            ensure!(kill, "{verb} ended by a signal that is not the worker's: {}", output.status);
            self.figures.note(KILLED, verb);
            return Ok(None);
        }
        if kill {
            self.figures.note(TOO_LATE, verb);
        }
        self.usual.insert((network, plugin, verb), start.elapsed());
        let status = output.status.code().unwrap_or(-1);
        if status == 0 {
            self.figures.note(SUCCEEDED, verb);
        }
        Ok(Some(Answer {
            status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }))
    }
}
