//! One plugin's run: from its name to its result. It is the same for the plugin that the runtime called and for a
//! delegate.

use crate::call::call;
use crate::errors::obstacle;
use crate::front::Front;
use crate::gate::Gate;
use crate::launcher::{Launcher, Plugin};
use crate::process::{ExchangeError, Sandbox};
use crate::session::{Request, Session};
use crate::versions::{own_versions, supported};
use crate::{collect, collector, outcome, status};
use postern_cni::terminal::one_line;
use postern_cni::{CniResult, Error, Verb, check_version, code, config_version};
use postern_confine::processor;
use postern_policy::Granted;
use postern_types::channel::MAX_MESSAGE;
use postern_types::{Capability, ErrorCode, FromSandbox, NO_CODE_ALLOWED, OpError, Operation, Reply, Start, ToSandbox};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time that a sandbox that can't be sent to has to report why it ended.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Runs a plugin. A failed ADD leaves none of its effects.
///
/// # Errors
/// The plugin's own error object, or code 999 with the plugin's name and the reason.
pub fn run(
    session: &mut Session,
    launcher: &mut Launcher,
    plugin: &str,
    verb: Verb,
    depth: u32,
) -> Result<Option<CniResult>, Error> {
    let (before, own) = (session.undo.len(), session.own.len());
    let outer = std::mem::replace(&mut session.request.verb, verb);
    let outcome = run_once(session, launcher, plugin, verb, depth);
    session.request.verb = outer;
    if verb == Verb::Add && outcome.is_err() {
        collect::undo(session, before);
        // An address that was given back may belong to another attachment by now.
        session.own.truncate(own);
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
    let ready = launcher.take(plugin, &session.state).map_err(|reason| {
        session.hindered = true;
        match verb {
            Verb::Status => Error::new(code::PLUGIN_NOT_AVAILABLE, reason.to_string()),
            _ => obstacle(reason),
        }
    })?;
    let granted = session.grants(&ready.policy).map_err(|error| {
        session.hindered = true;
        Error::new(code::INVALID_NETWORK_CONFIG, error.to_string())
    })?;
    // The plugin that the runtime called was asked before, except on DEL; a delegate was not.
    spoken(&session.request, &ready, verb)?;
    let start = start(&session.request, verb, &granted);
    let deadline = session.deadline;
    let loopback = ready.policy.grants(Capability::Loopback);
    let Plugin { policy, sandbox, digest, versions } = ready;
    let front = Front::new(plugin, depth, granted, &mut session.common);
    let mut gate = Gate::new(session, launcher, run, &digest, front);
    let Some(mut sandbox) = sandbox else {
        let operations = collector::operations(&policy, &gate.session.request);
        let collected = collector::collect(&mut gate, &operations);
        let granted = gate.front.into_granted();
        let Err(error) = collected else { return Ok(None) };
        // It is read as a guest's output is: a native program's error may have no code.
        return outcome::read(session, &granted, plugin, verb, &error.to_json(), 1, loopback);
    };
    // Only the processes of delegates are used again.
    let first: fn(Start) -> ToSandbox = if depth == 0 { ToSandbox::StartLast } else { ToSandbox::Start };
    let ended = serve_from(first, plugin, &mut sandbox, start, deadline, |operation| {
        let reply = call(&mut gate, operation);
        gate.front.spent().map_or(Ok(reply), |words| Err(words.into()))
    });
    let granted = gate.front.into_granted();
    // A delegate may be needed again, but not once the plugin that the runtime called has ended. All processes end
    // while the answer is being made.
    if depth == 0 {
        drop(sandbox);
        launcher.dismiss();
        // It is not freed: the process ends soon.
        std::mem::forget(policy);
    } else if !matches!(&ended, Err(BadEnd { lost: true, .. })) {
        launcher.put_back(plugin, Plugin { policy, sandbox: Some(sandbox), digest, versions });
    }
    let (stdout, status) = ended.map_err(|end| {
        session.hindered = true;
        end.of(plugin)
    })?;
    match outcome::read(session, &granted, plugin, verb, &stdout, status, loopback) {
        // A fault of the node is no error of STATUS, unless the operator wants it.
        Err(error) if verb == Verb::Status && session.common.is_fault(&error) && status::is_said(session, &error) => {
            Ok(None)
        }
        outcome => outcome,
    }
}

/// Checks that a plugin supports the version of its configuration. On DEL policy does not narrow the versions.
///
/// # Errors
/// Code 1, as by the plugin itself.
fn spoken(request: &Request, ready: &Plugin, verb: Verb) -> Result<(), Error> {
    let named = ready.versions.as_deref();
    let versions = if verb == Verb::Del { own_versions(named) } else { supported(ready.policy.versions(), named)? };
    check_version(verb, &config_version(request.conf.raw())?, &versions).map(drop)
}

/// Returns the data that a guest begins with.
pub fn start(request: &Request, verb: Verb, granted: &Granted) -> Start {
    Start {
        env: std::iter::once(("CNI_COMMAND".to_owned(), verb.as_str().to_owned()))
            .chain(request.env.iter().cloned())
            .collect(),
        stdin: Arc::clone(&request.stdin),
        limits: granted.limits().of_guest(),
    }
}

/// A plugin's end without a result.
pub struct BadEnd {
    /// The rest of a sentence that begins with its name.
    words: String,
    /// The way out, if there is one.
    details: Option<&'static str>,
    /// True if its process can't be used again.
    lost: bool,
}

impl From<String> for BadEnd {
    fn from(words: String) -> Self {
        Self { words, details: None, lost: true }
    }
}

impl BadEnd {
    /// Returns the error of this plugin.
    pub fn of(self, plugin: &str) -> Error {
        let error = Error::internal(format!("plugin \"{plugin}\" {}", self.words));
        match self.details {
            Some(details) => error.with_details(details),
            None => error,
        }
    }
}

/// Serves the guest until it ends, and returns its output and its status. `call` answers the guest's requests. An error
/// of `call` itself stops the guest: it is the rest of a sentence that begins with the plugin's name.
///
/// # Errors
/// The reason why the guest ended without a result.
pub fn serve(
    plugin: &str,
    sandbox: &mut Sandbox,
    start: Start,
    deadline: Instant,
    call: impl FnMut(&Operation) -> Result<Result<Reply, OpError>, BadEnd>,
) -> Result<(String, u8), BadEnd> {
    serve_from(ToSandbox::Start, plugin, sandbox, start, deadline, call)
}

/// Does the same. `first` makes the first message.
fn serve_from(
    first: fn(Start) -> ToSandbox,
    plugin: &str,
    sandbox: &mut Sandbox,
    start: Start,
    deadline: Instant,
    mut call: impl FnMut(&Operation) -> Result<Result<Reply, OpError>, BadEnd>,
) -> Result<(String, u8), BadEnd> {
    let mut stderr = Stderr { plugin, left: start.limits.stderr };
    let mut last = None;
    let mut answer = first(start);
    loop {
        processor::part_if_late();
        // A sandbox that has ended can't be sent to, but may have sent the reason. That is received then.
        let sent = match sandbox.send(&answer, deadline) {
            Err(ExchangeError::TooLarge) => {
                let operation = last.unwrap_or("the guest's start");
                let message = format!(
                    "the answer is longer than a message may be: that to {operation} has over {MAX_MESSAGE} bytes"
                );
                let error = OpError::new(ErrorCode::Exhausted, "answer", message);
                sandbox.send(&ToSandbox::Answer(Err(error)), deadline)
            }
            sent => sent,
        };
        // A sandbox that waits for an answer that could not be sent will not say more: the wait for it is short.
        let until = if sent.is_ok() { deadline } else { deadline.min(Instant::now() + LAST_WORDS) };
        let message = loop {
            match sandbox.receive(until) {
                Ok(FromSandbox::Stderr(text)) => stderr.show(&text),
                Ok(message) => break message,
                Err(error) => return Err(describe(sent.err().unwrap_or(error), last).into()),
            }
        };
        match message {
            FromSandbox::Call(operation) => {
                last = Some(operation.name());
                answer = ToSandbox::Answer(call(&operation)?);
            }
            FromSandbox::Finished { stdout, status } => {
                return Ok((stdout, status));
            }
            FromSandbox::Failed(words) => {
                return Err(BadEnd { words, details: None, lost: false });
            }
            FromSandbox::Unloadable(reason) => {
                // A kernel or a unit that allows no code allows none of a new installation either.
                let details = (!reason.starts_with(NO_CODE_ALLOWED))
                    .then_some("install it again: `make install`, or `postern add FILE.wasm --policy FILE`");
                return Err(BadEnd { words: format!("cannot load the compiled code: {reason}"), details, lost: true });
            }
            FromSandbox::Stderr(_) => {}
        }
    }
}

fn describe(error: ExchangeError, last: Option<&str>) -> String {
    let last = last.map(|last| format!("; its last operation was {last}")).unwrap_or_default();
    match error {
        ExchangeError::Deadline => format!("ran past its deadline and was stopped{last}"),
        ExchangeError::TooLarge => "said more than a message may hold".to_owned(),
        ExchangeError::Broken(reason) => format!("ended without an answer: {reason}{last}"),
    }
}

/// The guest's standard error. It goes to the runtime's, and every line begins with the plugin's name.
struct Stderr<'a> {
    plugin: &'a str,
    left: usize,
}

impl Stderr<'_> {
    /// Prints lines while there is room. The name before each line counts too.
    fn show(&mut self, text: &str) {
        for line in text.lines() {
            if self.left == 0 {
                return;
            }
            let line = one_line(&format!("{}: {line}", self.plugin));
            let fits = line.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end < self.left).last();
            match line.get(..fits.unwrap_or(0)) {
                Some(whole) if whole.len() == line.len() => {
                    self.left -= whole.len() + 1;
                    crate::say!("{whole}");
                }
                cut => {
                    self.left = 0;
                    crate::say!("{}", cut.unwrap_or_default());
                    crate::say!("{}: (more was written than is shown)", self.plugin);
                }
            }
        }
    }
}
