//! One plugin's run: from its name to its result. A delegate runs in the same way as the plugin that the runtime
//! called.

use crate::budget::Common;
use crate::context::Context;
use crate::gate::{DelegateRun, Delegates, Gate, Ran};
use crate::guest_state::GuestState;
use crate::outcome::RunFacts;
use crate::plugin_error::AGAIN;
use crate::prepared::{Prepared, Process, unavailable};
use crate::process::Sandbox;
use crate::request::Request;
use crate::{attached, call, collect, collector, outcome, settings};
use postern_cni::terminal::one_line;
use postern_cni::{CniResult, Error, Verb, code, config_version};
use postern_confine::processor;
use postern_policy::Granted;
use postern_types::channel::{ChannelError, MAX_MESSAGE};
use postern_types::{Capability, ErrorCode, FromSandbox, NO_CODE_ALLOWED, OpError, Operation, Reply, Start, ToSandbox};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time to wait for the reason of a sandbox's end, if no message can be sent to the sandbox any more.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Runs a plugin. The effects of a failed ADD are undone.
///
/// The outcome's error is the plugin's own error object, or has code 999 with the plugin's name and the reason.
pub fn run(run: &mut Context, common: &mut Common, delegates: Delegates<'_>, plugin: &Prepared, depth: u32) -> Ran {
    let (before, own) = (run.journal.made_so_far(), run.own.addresses.len());
    let ran = run_once(run, common, delegates, plugin, depth);
    if run.request.verb == Verb::Add && ran.outcome.is_err() {
        collect::undo(run, before);
        // The addresses of a failed ADD were given back, and may belong to another attachment now.
        run.own.addresses.truncate(own);
    }
    ran
}

fn run_once(run: &mut Context, common: &mut Common, delegates: Delegates<'_>, plugin: &Prepared, depth: u32) -> Ran {
    let request = run.request;
    let mut process = match plugin.process() {
        Ok(process) => process,
        Err(reason) => return Ran::hindered(unavailable(request.verb, &reason)),
    };
    let granted = match plugin.granted_for(request) {
        Ok(granted) => granted,
        Err(error) => return Ran::hindered(Error::new(code::INVALID_NETWORK_CONFIG, error.to_string())),
    };
    // The version of the configuration was already checked for the plugin that the runtime called, except on DEL.
    if (depth > 0 || request.verb == Verb::Del)
        && let Err(error) = config_version(request.conf.raw()).and_then(|version| plugin.speaks(request.verb, &version))
    {
        return Ran { outcome: Err(error), hindered: false };
    }
    let mut run = run.with(request);
    let guest = GuestState::new(&plugin.name, depth, &granted, common);
    let digest = &plugin.digest;
    let mut gate = Gate { run: &mut run, common, hindered: false, delegates, ran: None, digest, guest };
    let outcome = serve_with(&mut gate, plugin, &mut process);
    Ran { outcome, hindered: gate.hindered }
}

/// Runs a plugin's process to its end, and reads its output.
fn serve_with(gate: &mut Gate<'_>, plugin: &Prepared, process: &mut Process) -> Result<Option<CniResult>, Error> {
    let (request, depth) = (gate.run.request, gate.guest.depth);
    let (verb, name) = (request.verb, plugin.name.as_str());
    let (stdout, status) = match process {
        Process::Sandbox(sandbox) => {
            let (start, deadline) = (start(request, verb, gate.guest.granted()), gate.run.fixed.deadline.at());
            // `StartLast` is for the plugin that the runtime called: only processes of delegates are used again.
            let first: fn(Start) -> ToSandbox = if depth == 0 { ToSandbox::StartLast } else { ToSandbox::Start };
            let ended = serve(first, name, sandbox, start, deadline, |operation| {
                let reply = answer(gate, operation);
                gate.guest.spent().map_or(Ok(reply), |words| Err(words.into()))
            });
            // A delegate's process may be needed again until the plugin that the runtime called has ended. Then all
            // processes end, while the answer is being made.
            if depth == 0 || matches!(&ended, Err(BadEnd { lost: true, .. })) {
                *process = Process::Ended;
            }
            if depth == 0 {
                gate.delegates.launcher.dismiss();
            }
            ended.map_err(|end| {
                gate.hindered = true;
                end.of(name)
            })?
        }
        // The host's errors are read like a guest's output: a native program's error may have no code.
        Process::Host | Process::Ended => match collect_by_host(gate, plugin) {
            Ok(()) => return Ok(None),
            Err(error) => (error.to_json(), 1),
        },
    };
    let loopback = plugin.policy.grants(Capability::Loopback);
    let (run, common) = (&*gate.run, &*gate.common);
    let facts = RunFacts {
        request: run.request,
        own: &run.own.addresses,
        common,
        seen: &|interface| outcome::seen(run, interface),
        unmet_demand: &|granted| attached::unmet_demand(run, granted),
    };
    match outcome::read(&facts, gate.guest.granted(), name, verb, &stdout, status, loopback) {
        // A fault of the node makes STATUS fail only with the operator's setting `strict`.
        Err(error) if verb == Verb::Status && common.is_fault(&error) && settings::is_said(run.view(), &error) => {
            Ok(None)
        }
        outcome => outcome,
    }
}

/// Carries out the operations that a plugin's guest would ask for on GC. All operations are tried; the first failure is
/// returned.
fn collect_by_host(gate: &mut Gate<'_>, plugin: &Prepared) -> Result<(), Error> {
    let operations = collector::operations(&plugin.policy, gate.run.request);
    let answers = operations.iter().map(|operation| answer(gate, operation).map(drop));
    // Each operation is tried, even if an earlier operation failed.
    let failed = answers.fold(Ok(()), Result::and);
    failed.map_err(Error::from)
}

/// Answers an operation. If the operation needs a delegate, the delegate runs first.
fn answer(gate: &mut Gate<'_>, operation: &Operation) -> Result<Reply, OpError> {
    let (call, delegate) = call::begin(gate, operation);
    let outcome = delegate.and_then(|delegate| {
        gate.ran = delegate.map(|delegate| run_delegate(gate, &delegate));
        operation.ask(gate)
    });
    call::end(gate, call, outcome)
}

/// Runs a delegate with its own request.
fn run_delegate(gate: &mut Gate<'_>, wanted: &DelegateRun) -> Ran {
    let request = &wanted.request;
    let plugin = match gate.delegates.launcher.delegate(&wanted.plugin) {
        Ok(plugin) => plugin,
        Err(reason) => return Ran::hindered(unavailable(request.verb, &reason)),
    };
    run(&mut gate.run.with(request), gate.common, gate.delegates, plugin, gate.guest.depth + 1)
}

/// Returns the data for a guest's start.
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
    /// The rest of a sentence that begins with the plugin's name.
    words: String,
    /// The hint, if there is one.
    details: Option<&'static str>,
    /// True if the plugin's process can't be used again.
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

/// Serves the guest until it ends, and returns the guest's output and status. `call` answers the guest's requests. An
/// error of `call` itself stops the guest. The error's text is the rest of a sentence that begins with the plugin's
/// name. `first` makes the first message.
///
/// # Errors
/// The reason why the guest ended without a result.
pub fn serve(
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
        processor::unpin_if_late();
        // A sandbox that has ended takes no message, but may have sent the reason of its end. So a failed send is
        // followed by a receive.
        let sent = match sandbox.send(&answer, deadline) {
            Err(ChannelError::TooLarge(_)) => {
                let operation = last.unwrap_or("the guest's start");
                let message =
                    format!("the answer is longer than a message may be: over {MAX_MESSAGE} bytes for {operation}");
                let error = OpError::new(ErrorCode::Exhausted, "answer", message);
                sandbox.send(&ToSandbox::Answer(Err(error)), deadline)
            }
            sent => sent,
        };
        // If the answer could not be sent, the sandbox may still wait for the answer, and send nothing. So the wait is
        // short.
        let until = if sent.is_ok() { deadline } else { deadline.min(Instant::now() + LAST_WORDS) };
        let message = loop {
            match sandbox.receive(until) {
                Ok(FromSandbox::Stderr(text)) => stderr.show(&text),
                Ok(message) => break message,
                Err(error) => return Err(describe(&sent.err().unwrap_or(error), last).into()),
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
                // If the kernel or the systemd unit allows no code, a new installation does not help.
                let details = (!reason.starts_with(NO_CODE_ALLOWED)).then_some(AGAIN);
                return Err(BadEnd { words: format!("cannot load the compiled code: {reason}"), details, lost: true });
            }
            FromSandbox::Stderr(_) => {}
        }
    }
}

/// Returns the reason why a sandbox sends no further message.
fn describe(error: &ChannelError, last: Option<&str>) -> String {
    let last = last.map(|last| format!("; its last operation was {last}")).unwrap_or_default();
    match error {
        ChannelError::Timeout => format!("ran past its deadline and was stopped{last}"),
        ChannelError::TooLarge(_) => "sent a message that is too long".to_owned(),
        reason => format!("ended without an answer: {reason}{last}"),
    }
}

/// The guest's standard error. The host copies it to its own standard error, and each line begins with the plugin's
/// name.
struct Stderr<'a> {
    plugin: &'a str,
    left: usize,
}

impl Stderr<'_> {
    /// Prints lines up to the limit. The name before each line counts too.
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
                    crate::say!("{}: (the rest is not shown)", self.plugin);
                }
            }
        }
    }
}
