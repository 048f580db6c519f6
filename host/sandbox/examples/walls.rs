//! `walls CATALOG PLUGIN`: a run of a shipped plugin with nothing but what safety costs, for `tests/bench`. It is called as
//! the plugin would be: variables, input, answer. CATALOG is the directory with its code.
//!
//! * It looks at its own place and all directories above it, and reads code, manifest and policy.
//! * Guests are in sandboxes as in a run, the IPAM plugin's too. The gate gives up its rights as in a run.
//! * It keeps a record of the attachment where a run has one, and a log with a line for each call of a guest.
//! * It reads as JSON what a run has to understand: configuration, manifest, record, result. It prints the result, and makes
//!   each line of record and log from the call.
//! * It decides on each call, by the shipped policy and this configuration.
//!
//! Nothing is done: it has no namespace, no netlink and no undo, the record is of no use to it, and each call of a guest has the
//! same answer at once.
#![no_main]
#![allow(unsafe_code, reason = "fork(2), as the gate does it")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a measurement may fall over")]

#[path = "../../run/src/entry.rs"]
mod entry;
mod mock;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};
use postern_cni::{Json, NetConf, Verb};
use postern_confine::{Access, Capability, Confinement, Files, Filter, Refusal, Rule, fork, processor};
// As the executable of runs has it.
use postern_policy::{Form, Granted, Policy, PolicyError, Question, Text};
use postern_sandbox::child;
use postern_types::channel::{pair, receive, send_to_sandbox};
use postern_types::{FromSandbox, Kind, Lasting, Limits, Operation, Reply, Start, ToSandbox, ops};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[global_allocator]
static HEAP: postern_sandbox::Heap = postern_sandbox::Heap::of_a_run();

/// The directories of records and of the log.
const RECORDS: &str = "/run/walls";
const LOG: &str = "/run/walls-log";
/// A hash in a line.
const DIGEST: &str = "a6c2c177bec3f6f751b3b633233685d0aed0122bed96d4e07197026a17ad5ddc";

/// The record that bridge leaves, for a plugin behind it.
const LEFT: &str = concat!(
    r#"{"version":1,"writer":"walls","network":"walls","container_id":"walls","ifname":"eth0","boot_id":"d43d287d-2e73-462d-bc9b-e689e08eecde","host_netns_cookie":160838,"netns_cookie":160839,"netns_path":"/run/netns/walls","created":1795578468074}"#,
    "\n",
    r#"{"plugin":"bridge","begun":{"digest":"a6c2c177bec3f6f751b3b633233685d0aed0122bed96d4e07197026a17ad5ddc","time":1795578468074,"config":"c5200c382f36dcd0"}}"#,
    "\n",
    r#"{"seq":1,"plugin":"bridge","effect":{"effect":"veth","host":"veth6d2383ae","mac":"06:30:8a:49:a3:1a"},"link":true}"#,
    "\n",
    r#"{"seq":2,"plugin":"bridge","effect":{"effect":"lease","directory":"/var/lib/cni/networks"}}"#,
    "\n",
    r#"{"plugin":"bridge","made":{"addresses":["10.2.0.2/16"],"path":{"mac":"12:6a:cc:fe:17:e5","up":true,"bridge":"benchm","gateways":["benchm 10.2.0.1/16"]}}}"#,
    "\n",
    r#"{"plugin":"bridge","given":1795578468078}"#,
    "\n",
);

/// Record and log. The log is opened when something is written, and so is the record of an ADD.
struct Books {
    plugin: String,
    own: PathBuf,
    is_behind: bool,
    record: Option<File>,
    log: Option<File>,
    /// The lines of the log that are not written yet.
    lines: Vec<u8>,
}

/// A line of the log.
#[derive(Serialize)]
struct Line<'a> {
    time: u64,
    attachment: &'a str,
    verb: &'a str,
    plugin: &'a str,
    digest: &'a str,
    operation: &'a str,
    request: &'a Operation,
    decision: &'a str,
    rule: &'a str,
    from: &'a str,
    result: &'a str,
    micros: u64,
}

/// An effect in the record.
#[derive(Serialize)]
struct Noted<'a> {
    seq: u64,
    plugin: &'a str,
    effect: &'a Operation,
}

/// Adds a line to these.
fn add(lines: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *lines, line).unwrap();
    lines.push(b'\n');
}

impl Books {
    /// Opens the record that is there: the one that an ADD has left, or that of the plugin before in a list.
    fn of(plugin: &str, verb: &str, is_given: bool) -> Self {
        fs::create_dir_all(RECORDS).unwrap();
        fs::create_dir_all(LOG).unwrap();
        let path = |of: &str| Path::new(RECORDS).join(format!("{of}-{}", std::env::var("CNI_CONTAINERID").unwrap()));
        let (alone, behind) = (path(plugin), path(&format!("behind-{plugin}")));
        // A DEL is given the result of its own ADD, too.
        let is_behind = if verb == "ADD" { is_given } else { behind.exists() };
        if is_behind && !behind.exists() {
            fs::write(&behind, LEFT).unwrap();
        }
        let (own, is_there) = if is_behind { (behind, true) } else { (alone, verb != "ADD") };
        let mut record = is_there.then(|| File::options().read(true).append(true).open(&own).ok()).flatten();
        if let Some(record) = &mut record {
            record.lock().unwrap();
            let mut text = Vec::with_capacity(4096);
            record.read_to_end(&mut text).unwrap();
            for line in serde_json::Deserializer::from_slice(&text).into_iter::<Value>() {
                black_box(line.unwrap());
            }
        }
        Self { plugin: plugin.to_owned(), own, is_behind, record, log: None, lines: Vec::new() }
    }

    /// Writes down a call that this rule allowed, at once if the call changes something.
    fn note(&mut self, call: &Operation, rule: &postern_policy::Rule) {
        if call.lasting().is_recorded() {
            let mut lines = Vec::new();
            let record = self.record.get_or_insert_with(|| {
                lines.extend(begin_record(&self.plugin));
                let new = File::options().append(true).create(true).open(&self.own).unwrap();
                new.lock().unwrap();
                new
            });
            if call.lasting() != Lasting::Part && call.lasting() != Lasting::Node {
                add(&mut lines, &Noted { seq: 1, plugin: &self.plugin, effect: call });
            }
            record.write_all(&lines).unwrap();
        }
        let line = Line {
            time: 1_795_578_468_074,
            attachment: "walls/walls/eth0",
            verb: "ADD",
            plugin: &self.plugin,
            digest: DIGEST,
            operation: "link.up",
            request: call,
            decision: "allow",
            rule: rule.name,
            from: rule.from.name(),
            result: "ok",
            micros: 139,
        };
        add(&mut self.lines, &line);
        if call.lasting() != Lasting::Nothing {
            self.write_lines();
        }
    }

    fn write_lines(&mut self) {
        let log = Path::new(LOG).join("log");
        let log = self.log.get_or_insert_with(|| File::options().append(true).create(true).open(log).unwrap());
        // Other runs write there too.
        log.lock().unwrap();
        log.write_all(&self.lines).unwrap();
        log.unlock().unwrap();
        self.lines.clear();
    }

    /// Completes the record, or removes it. Behind another plugin, only its own lines are removed.
    fn close(mut self, verb: &str) {
        if !self.lines.is_empty() {
            self.write_lines();
        }
        match (&mut self.record, verb) {
            (Some(record), "DEL") if self.is_behind => record.set_len(LEFT.len() as u64).unwrap(),
            (Some(record), "ADD") => {
                let mut lines = Vec::new();
                let made = json!({"addresses": ["10.2.0.2/16"], "path": {"up": true}});
                add(&mut lines, &json!({"plugin": self.plugin, "made": made}));
                add(&mut lines, &json!({"plugin": self.plugin, "given": 1_795_578_468_078_u64}));
                record.write_all(&lines).unwrap();
            }
            (Some(_), "DEL") => fs::remove_file(&self.own).unwrap(),
            _ => {}
        }
    }
}

/// Returns the first lines of a record.
fn begin_record(plugin: &str) -> Vec<u8> {
    let mut lines = Vec::new();
    add(
        &mut lines,
        &json!({
            "version": 1, "writer": "walls", "network": "walls", "container_id": "walls", "ifname": "eth0",
            "boot_id": "d43d287d-2e73-462d-bc9b-e689e08eecde", "host_netns_cookie": 160_838,
            "netns_cookie": 160_839, "netns_path": "/run/netns/walls", "created": 1_795_578_468_074_u64,
        }),
    );
    add(&mut lines, &json!({"plugin": plugin, "begun": {"digest": DIGEST, "config": "c5200c382f36dcd0"}}));
    lines
}

/// A sandbox, and the gate's end of the channel to it.
struct Sandbox {
    process: Pid,
    channel: UnixStream,
    policy: Policy,
}

/// What the handles of [`mock`] stand for.
fn kind(handle: u32) -> Option<Kind> {
    match handle {
        1 => Some(Kind::Bridge),
        2 => Some(Kind::Own),
        3 => Some(Kind::HostEnd),
        5 => Some(Kind::Parent),
        _ => None,
    }
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
        let Manifest { versions, policy } = manifest(catalog, plugin);
        black_box(Policy::versions_of_both(text(catalog, plugin), policy, || Ok::<_, PolicyError>(None)).unwrap());
        end(&json!({"cniVersion": versions.last(), "supportedVersions": versions}).to_string());
    }
    processor::choose();
    let first = begin(catalog, plugin);
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).unwrap();
    let conf = NetConf::parse(Json::parse(input.as_bytes(), 1 << 20).unwrap()).unwrap();
    let verb_read = Verb::parse(&verb).unwrap();
    let granted = |sandbox: &Sandbox| sandbox.policy.resolve(conf.raw(), "").unwrap();
    let own = granted(&first);
    let delegate = (!conf.ipam_type.is_empty() && conf.ipam_type != plugin).then(|| begin(catalog, &conf.ipam_type));
    let delegates = delegate.as_ref().map(granted);
    let books = RefCell::new(Books::of(plugin, &verb, conf.raw_previous_result().is_some()));
    let start = Start {
        env: std::env::vars().filter(|(name, _)| name.starts_with("CNI_") && name != "CNI_PATH").collect(),
        stdin: Arc::new(input),
        limits: Limits::default(),
    };
    confine();
    let reply = |granted: &Granted, operation: &Operation| {
        let question = Question { operation, verb: verb_read, conf: &conf, owns_link: true, kind: &kind };
        let rule = postern_policy::decide(granted, question).unwrap();
        books.borrow_mut().note(operation, &rule);
        mock::reply(operation)
    };
    let answer = serve(&first, ToSandbox::StartLast(start.clone()), &mut |call| match (call, &delegate, &delegates) {
        (Operation::Ipam(verb), Some(delegate), Some(granted)) => {
            let done = reply(&own, call);
            let result = serve(delegate, ToSandbox::Start(start.clone()), &mut |call| reply(granted, call));
            if *verb == ops::Ipam::Add { Reply::Result(result) } else { done }
        }
        _ => reply(&own, call),
    });
    let sandboxes: Vec<Sandbox> = [Some(first), delegate].into_iter().flatten().collect();
    sandboxes.iter().for_each(|sandbox| kill(sandbox.process, Signal::SIGKILL).unwrap());
    books.into_inner().close(&verb);
    for sandbox in sandboxes {
        drop(sandbox.channel);
        waitpid(sandbox.process, None).unwrap();
    }
    if answer.is_empty() {
        end(&answer);
    }
    let result: Value = serde_json::from_str(&answer).unwrap();
    end(&serde_json::to_string_pretty(&result).unwrap());
}

/// Reads a plugin's manifest.
fn manifest(catalog: &Path, plugin: &str) -> Manifest {
    serde_json::from_slice(&fs::read(catalog.join(format!("{plugin}.json"))).unwrap()).unwrap()
}

/// Reads a plugin's policy.
fn text(catalog: &Path, plugin: &str) -> Text {
    let path = catalog.join(format!("{plugin}.toml"));
    Text { text: fs::read_to_string(&path).unwrap(), path: path.display().to_string() }
}

/// What a run reads of a manifest.
#[derive(Deserialize)]
struct Manifest {
    versions: Vec<String>,
    policy: Option<Form>,
}

/// Starts a sandbox, which loads its plugin.
fn begin(catalog: &Path, plugin: &str) -> Sandbox {
    let code = File::open(catalog.join(format!("{plugin}.cwasm"))).unwrap();
    let form = manifest(catalog, plugin).policy;
    let (gate, sandbox) = pair().unwrap();
    // SAFETY: this process has one thread.
    let process = match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => child::run(sandbox.into(), code.into()),
    };
    let policy = Policy::of_both(text(catalog, plugin), form, || Ok::<_, PolicyError>(None)).unwrap();
    Sandbox { process, channel: gate, policy }
}

/// Gives up the rights of this process.
fn confine() {
    processor::meet();
    let files = Files::new([RECORDS, LOG].map(|path| (Path::new(path), Access::Own))).unwrap();
    // What this process does is among them. The kernel's work depends on their number, which is the gate's.
    // Elsewhere the numbers are others, and all are allowed.
    let calls: Vec<Rule> = match cfg!(target_arch = "x86_64") {
        true => (0..64)
            .chain([64, 72, 73, 77, 87, 96, 102, 202, 203, 257, 228, 229, 230, 231, 247, 288, 302])
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
