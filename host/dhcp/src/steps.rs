//! The processes that run steps of the client. Each process is forked before the service gives up its rights. The
//! process forks a sandbox for each step, gives the sandbox the step's input, and returns the guest's output. A guest
//! that asks for an operation is ended, because this sandbox has no gate.
//!
//! A guest that hangs is killed at its deadline. The service has two such processes, so one of them can serve other
//! leases meanwhile.

use crate::confine;
use crate::output;
use crate::process::Task;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use postern_confine::ConfineError;
use postern_dhcp::{Input, Output};
use postern_gate::rehearsal::{BadEnd, Launcher, reap, serve};
use postern_gate::{Engine, places};
use postern_types::channel::{receive_text, send_text};
use postern_types::{GuestLimits, OpError, Operation, Reply, Start, ToSandbox};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name of the plugin in the catalog. The component of this plugin is also the client.
const PLUGIN: &str = "dhcp";

/// The time for one step. A step takes a few milliseconds, or longer on a busy machine.
const WITHIN: Duration = Duration::from_secs(2);

/// The time for the process's answer: the time of a step, and of the verification of changed code.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The most bytes of a step's standard error that are shown. The client writes nothing to standard error.
const LONGEST_STDERR: usize = 1 << 10;

const TASK: Task = Task { words: "a process for steps", name: c"dhcp steps", inherits: &[0, 1, 2] };

/// A process that runs steps, one after the other.
#[derive(Debug)]
pub struct Runner {
    /// The stream is readable when a step is done.
    pub stream: UnixStream,
}

impl Runner {
    /// Forks the process. The calling process must have a single thread.
    pub fn start(engine: Engine, state: &Path) -> Result<Self, String> {
        let process = TASK.start(|| confined(state), |stream| run(stream, engine, state))?;
        Ok(Self { stream: process.line })
    }

    /// Begins a step.
    pub fn begin(&self, input: &Input) -> Result<(), String> {
        let text = serde_json::to_string(input).map_err(|error| error.to_string())?;
        send_text(&self.stream, &text, Some(Instant::now() + ANSWER_WITHIN)).map_err(|error| error.to_string())
    }

    /// Returns the result of the step: the guest's output, or the reason why there is no output. Fails if the process
    /// has ended, or does not answer.
    pub fn finish(&self) -> Result<Result<Output, String>, String> {
        let text = receive_text(&self.stream, Some(Instant::now() + ANSWER_WITHIN));
        let text = text.map_err(|error| error.to_string())?;
        let answer: Result<String, String> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        Ok(answer.map_err(|words| output::cut(&words)).and_then(|text| output::read(&text)))
    }
}

/// Runs the steps that the service sends, one after the other.
fn run(stream: &UnixStream, engine: Engine, state: &Path) {
    while let Ok(input) = receive_text(stream, None) {
        let answer = step(engine, state, input);
        let text = serde_json::to_string(&answer).unwrap_or_default();
        if send_text(stream, &text, None).is_err() {
            return;
        }
    }
}

/// Gives up all rights that [`confine::steps`] does not keep.
fn confined(state: &Path) -> Result<(), ConfineError> {
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let notes = state.join("verified");
    let _ = postern_state::Dir::make(&notes, 0o700);
    let mut read = ["/usr/local/lib/postern", "/usr/lib/postern", "/etc/postern"].map(PathBuf::from).to_vec();
    // The catalog of the next version is readable too: this process outlives the present version.
    read.extend(places::catalog().ok().into_iter().chain(places::installation()));
    confine::steps(&read, &notes)
}

/// Runs one step.
fn step(engine: Engine, state: &Path, input: String) -> Result<String, String> {
    let mut launcher = Launcher::new(engine);
    let mut plugin = launcher.open(PLUGIN, state).map_err(|error| error.to_string())?;
    // The service checks the length too: an attacker in this process could ignore these limits.
    let limits = GuestLimits { stdout: output::LONGEST, stderr: LONGEST_STDERR, ..GuestLimits::default() };
    let start = Start { env: vec![("CNI_COMMAND".to_owned(), "STEP".to_owned())], stdin: input.into(), limits };
    let refuse = |operation: &Operation| -> Result<Result<Reply, OpError>, BadEnd> {
        Err(BadEnd::from(format!("asked for {}, and the client of a lease has no operation", operation.name())))
    };
    // Only the verb GC has plugins without a process.
    let Some(sandbox) = plugin.sandbox.as_mut() else { return Err("has no process".to_owned()) };
    let ended = serve(ToSandbox::Start, PLUGIN, sandbox, start, Instant::now() + WITHIN, refuse);
    drop(plugin);
    reap();
    match ended {
        Ok((stdout, 0)) => Ok(stdout),
        Ok((stdout, status)) => Err(format!("ended with status {status}: {stdout}")),
        Err(end) => Err(end.of(PLUGIN).to_string()),
    }
}
