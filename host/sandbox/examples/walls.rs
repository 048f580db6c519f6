//! `walls CATALOG PLUGIN`: a run of a shipped plugin with nothing but what safety costs, for `tests/bench`. It is called as
//! the plugin would be: variables, input, answer. CATALOG is the directory with its code.
//!
//! * It looks at its own place and all directories above it, and reads code, manifest and policy.
//! * Guests are in sandboxes as in a run, the IPAM plugin's too. The gate gives up its rights as in a run.
//! * It writes a record of the attachment where a run has one, and a line into a log for each call that changes something.
//!
//! Nothing is decided or done: it has no policy, no namespace, no netlink and no undo, it understands no file, and each call
//! of a guest has the same answer at once.
#![no_main]
#![allow(unsafe_code, reason = "fork(2), as the gate does it")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a measurement may fall over")]

#[path = "../../run/src/entry.rs"]
mod entry;
mod mock;
// `tests/bench` makes it the entry point.
#[cfg(all(target_arch = "x86_64", target_env = "musl"))]
#[path = "../../run/src/start.rs"]
mod start;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};
use postern_confine::{Access, Capability, Confinement, Files, Filter, Refusal, Rule, fork, processor};
// As the executable of runs has it.
use postern_copy as _;
use postern_sandbox::child;
use postern_types::channel::{pair, receive, send_to_sandbox};
use postern_types::{FromSandbox, Lasting, Limits, Operation, Reply, Start, ToSandbox, ops};
use serde_json::Value;
use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[global_allocator]
static HEAP: postern_sandbox::Heap = postern_sandbox::Heap::of_a_run();

/// The directories of records and of the log.
const RECORDS: &str = "/run/walls";
const LOG: &str = "/run/walls-log";
/// What is written when a record begins and when it is complete, for each effect in it, and for each line of the log.
const RECORD: [u8; 400] = [b'r'; 400];
const EFFECT: [u8; 100] = [b'e'; 100];
const LINE: [u8; 350] = [b'l'; 350];

/// Record and log. Both are opened when something is written.
struct Books {
    own: PathBuf,
    record: Option<File>,
    log: Option<File>,
}

impl Books {
    /// Opens the record that an ADD has left.
    fn of(own: PathBuf, verb: &str) -> Self {
        fs::create_dir_all(RECORDS).unwrap();
        fs::create_dir_all(LOG).unwrap();
        let record = (verb != "ADD").then(|| File::options().read(true).append(true).open(&own).ok()).flatten();
        if let Some(mut record) = record.as_ref() {
            record.lock().unwrap();
            record.read_to_end(&mut Vec::with_capacity(4096)).unwrap();
        }
        Self { own, record, log: None }
    }

    /// Writes down a call that changes something.
    fn note(&mut self, call: &Operation) {
        if call.lasting().is_recorded() {
            let record = self.record.get_or_insert_with(|| {
                let mut new = File::options().append(true).create(true).open(&self.own).unwrap();
                new.lock().unwrap();
                new.write_all(&RECORD).unwrap();
                new
            });
            if call.lasting() != Lasting::Part && call.lasting() != Lasting::Node {
                record.write_all(&EFFECT).unwrap();
            }
        }
        if call.lasting() != Lasting::Nothing {
            let log = Path::new(LOG).join("log");
            let log = self.log.get_or_insert_with(|| File::options().append(true).create(true).open(log).unwrap());
            // Other runs write there too.
            log.lock().unwrap();
            log.write_all(&LINE).unwrap();
            log.unlock().unwrap();
        }
    }

    /// Completes the record, or removes it.
    fn close(mut self, verb: &str) {
        match (&mut self.record, verb) {
            (Some(record), "ADD") => record.write_all(&RECORD).unwrap(),
            (Some(_), "DEL") => fs::remove_file(&self.own).unwrap(),
            _ => {}
        }
    }
}

/// A sandbox, and the gate's end of the channel to it.
struct Sandbox {
    process: Pid,
    channel: UnixStream,
}

/// Called by `entry`.
fn run(arguments: Vec<OsString>) {
    let [catalog, plugin] = &arguments[1..] else { panic!("usage: walls CATALOG PLUGIN") };
    let (catalog, plugin) = (Path::new(catalog), plugin.to_str().unwrap());
    let verb = std::env::var("CNI_COMMAND").unwrap();
    fs::read_link("/proc/self/exe").unwrap();
    for directory in catalog.ancestors() {
        fs::symlink_metadata(directory).unwrap();
    }
    if verb == "VERSION" {
        read(catalog, plugin);
        let versions =
            r#"{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}"#;
        end(versions);
    }
    processor::choose();
    let first = begin(catalog, plugin);
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).unwrap();
    let config: Value = serde_json::from_str(&input).unwrap();
    let ipam = config.pointer("/ipam/type").and_then(Value::as_str).filter(|name| *name != plugin);
    let delegate = ipam.map(|name| begin(catalog, name));
    let id = std::env::var("CNI_CONTAINERID").unwrap();
    let own = Path::new(RECORDS).join(format!("{plugin}-{id}"));
    let books = RefCell::new(Books::of(own, &verb));
    let start = Start {
        env: std::env::vars().filter(|(name, _)| name.starts_with("CNI_") && name != "CNI_PATH").collect(),
        stdin: Arc::new(input),
        limits: Limits::default(),
    };
    confine();
    let reply = |call: &Operation| {
        books.borrow_mut().note(call);
        mock::reply(call)
    };
    let answer = serve(&first, ToSandbox::StartLast(start.clone()), &mut |call| match (call, &delegate) {
        (Operation::Ipam(verb), Some(delegate)) => {
            let own = serve(delegate, ToSandbox::Start(start.clone()), &mut |call| reply(call));
            let done = reply(call);
            if *verb == ops::Ipam::Add { Reply::Result(own) } else { done }
        }
        _ => reply(call),
    });
    let sandboxes: Vec<Sandbox> = [Some(first), delegate].into_iter().flatten().collect();
    sandboxes.iter().for_each(|sandbox| kill(sandbox.process, Signal::SIGKILL).unwrap());
    books.into_inner().close(&verb);
    for sandbox in sandboxes {
        drop(sandbox.channel);
        waitpid(sandbox.process, None).unwrap();
    }
    end(&answer);
}

/// Reads a plugin's manifest and policy.
fn read(catalog: &Path, plugin: &str) {
    for kind in ["json", "toml"] {
        fs::read(catalog.join(format!("{plugin}.{kind}"))).unwrap();
    }
}

/// Starts a sandbox, which loads its plugin.
fn begin(catalog: &Path, plugin: &str) -> Sandbox {
    let code = File::open(catalog.join(format!("{plugin}.cwasm"))).unwrap();
    let (gate, sandbox) = pair().unwrap();
    // SAFETY: this process has one thread.
    let process = match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => child::run(sandbox.into(), code.into()),
    };
    read(catalog, plugin);
    Sandbox { process, channel: gate }
}

/// Gives up the rights of this process.
fn confine() {
    processor::meet();
    let files = Files::new([RECORDS, LOG].map(|path| (Path::new(path), Access::Own))).unwrap();
    // What this process does is among them. The kernel's work depends on their number, which is the gate's.
    // Elsewhere the numbers are others, and all are allowed.
    let calls: Vec<Rule> = match cfg!(target_arch = "x86_64") {
        true => (0..64)
            .chain([64, 72, 73, 87, 96, 102, 202, 203, 257, 228, 229, 230, 231, 247, 288, 302])
            .map(Rule::Any)
            .collect(),
        false => (0..450).map(Rule::Any).collect(),
    };
    let filter = Filter::new(&calls, Refusal::Absent);
    Confinement { capabilities: vec![Capability::CAP_KILL], files, filter }.apply().unwrap();
}

/// Lets a sandbox run, and answers it. Returns the guest's output.
fn serve(sandbox: &Sandbox, start: ToSandbox, answer: &mut dyn FnMut(&Operation) -> Reply) -> String {
    send_to_sandbox(&sandbox.channel, &start, None).unwrap();
    loop {
        processor::part_if_late();
        match receive(&sandbox.channel, None).unwrap() {
            FromSandbox::Call(operation) => {
                let answer = ToSandbox::Answer(Ok(answer(&operation)));
                send_to_sandbox(&sandbox.channel, &answer, None).unwrap();
            }
            FromSandbox::Stderr(_) => {}
            FromSandbox::Finished { stdout, status: 0 } => return stdout,
            failed => panic!("{failed:?}"),
        }
    }
}

/// Writes the answer, and ends the process as a run does.
fn end(answer: &str) -> ! {
    nix::unistd::write(std::io::stdout(), answer.as_bytes()).unwrap();
    // SAFETY: `_exit` has no preconditions, and everything is written.
    unsafe { libc::_exit(0) }
}
