//! One plugin's run: from its name to its result, the one that the runtime called and a delegate alike.

use crate::gate::Gate;
use crate::launcher::Launcher;
use crate::process::{Sandbox, Silence};
use crate::session::Session;
use crate::{collect, outcome};
use postern_cni::{CniResult, Error, Verb, code};
use postern_types::{FromSandbox, Start, ToSandbox};

/// Standard error of one guest in one run, in bytes; what is beyond is counted, not shown.
const STDERR_LIMIT: usize = 64 << 10;

/// Runs a plugin. A failed ADD leaves nothing of what it did.
///
/// # Errors
/// The plugin's own error object, or code 999 naming the plugin and what became of it.
pub fn run(
    session: &mut Session,
    launcher: &mut Launcher,
    plugin: &str,
    verb: Verb,
    depth: u32,
) -> Result<Option<CniResult>, Error> {
    let before = session.undo.len();
    let outer = std::mem::replace(&mut session.request.verb, verb);
    let outcome = run_once(session, launcher, plugin, verb, depth);
    session.request.verb = outer;
    if verb == Verb::Add && outcome.is_err() {
        collect::undo(session, before);
    }
    outcome
}

fn run_once(
    session: &mut Session,
    launcher: &mut Launcher,
    plugin: &str,
    verb: Verb,
    depth: u32,
) -> Result<Option<CniResult>, Error> {
    let ready = launcher.take(plugin).map_err(Error::internal)?;
    let granted = ready
        .policy
        .resolve(&session.request.conf.raw)
        .map_err(|text| Error::new(code::INVALID_NETWORK_CONFIG, text))?;
    let start = Start {
        env: std::iter::once(("CNI_COMMAND".to_owned(), verb.as_str().to_owned()))
            .chain(session.request.env.iter().cloned())
            .collect(),
        stdin: session.request.stdin.clone(),
    };
    let mut sandbox = ready.sandbox;
    let mut gate = Gate::new(session, launcher, plugin, granted, depth);
    let (stdout, status) = serve(&mut gate, &mut sandbox, start).map_err(|text| {
        Error::internal(format!("plugin \"{plugin}\" {text}")).with_details(format!("verb {}", verb.as_str()))
    })?;
    outcome::read(session, plugin, verb, &stdout, status)
}

/// Answers the guest's calls until it ends.
fn serve(gate: &mut Gate<'_>, sandbox: &mut Sandbox, start: Start) -> Result<(String, u8), String> {
    let plugin = gate.plugin;
    let mut stderr = Stderr { plugin, left: STDERR_LIMIT };
    let deadline = gate.session.deadline;
    let silence = |silence: Silence, last: &str| match silence {
        Silence::Deadline => {
            let seconds = gate_seconds(last);
            format!("ran past its deadline and was stopped{seconds}")
        }
        Silence::Broken(reason) => format!("ended without an answer ({reason})"),
    };
    sandbox.send(&ToSandbox::Start(start), deadline).map_err(|e| silence(e, ""))?;
    let mut last = "";
    loop {
        match sandbox.receive(deadline).map_err(|e| silence(e, last))? {
            FromSandbox::Call(operation) => {
                last = operation.name();
                let answer = gate.call(&operation);
                sandbox.send(&ToSandbox::Answer(answer), deadline).map_err(|e| silence(e, last))?;
            }
            FromSandbox::Stderr(text) => stderr.show(&text),
            FromSandbox::Finished { stdout, status } => {
                sandbox.finished();
                return Ok((stdout, status));
            }
            FromSandbox::Failed(reason) => {
                sandbox.finished();
                return Err(reason);
            }
        }
    }
}

fn gate_seconds(last: &str) -> String {
    if last.is_empty() { String::new() } else { format!("; its last operation was {last}") }
}

/// A guest's standard error goes to the runtime's, every line marked with the plugin's name.
struct Stderr<'a> {
    plugin: &'a str,
    left: usize,
}

impl Stderr<'_> {
    fn show(&mut self, text: &str) {
        for line in text.lines() {
            if self.left == 0 {
                return;
            }
            self.left = self.left.saturating_sub(line.len() + 1);
            // Control characters could rewrite an operator's terminal.
            let clean: String =
                line.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect();
            eprintln!("{}: {clean}", self.plugin);
            if self.left == 0 {
                eprintln!("{}: (more was written than is shown)", self.plugin);
            }
        }
    }
}
