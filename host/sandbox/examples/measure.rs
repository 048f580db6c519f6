//! `measure compare ROUNDS BUSY CODE`: compares a guest in a separate process with a guest in this process.
//!
//! `measure fork BUSY CODE` and `measure inside BUSY CODE` are one run each, with a gate that answers at once and does
//! nothing. `measure empty` starts and ends. BUSY is the time in microseconds for which the gate works before it starts
//! the guest; a separate sandbox loads meanwhile. `measure steps CODE` times the parts of a run inside this process.
#![allow(unsafe_code, reason = "fork(2), as the gate does it")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a measurement may panic")]

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::ForkResult;
use postern_confine::fork;
use postern_sandbox::{CallReceiver, Guest, GuestOutcome, child};
use postern_types::channel::{pair, receive, send_to_sandbox};
use postern_types::{
    BridgeInfo, FromSandbox, GuestLimits, LinkInfo, OpError, Operation, Reply, Start, ToSandbox, VethPair, ops,
};
use std::env;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: postern_sandbox::Heap = postern_sandbox::Heap::new();

struct Mock;

impl CallReceiver for Mock {
    fn call(&mut self, operation: Operation) -> Result<Reply, OpError> {
        Ok(answer(&operation))
    }

    fn stderr(&mut self, text: String) {
        eprint!("{text}");
    }
}

/// Answers a call of the bridge plugin as if all its objects existed.
fn answer(operation: &Operation) -> Reply {
    let made = match operation {
        Operation::Ipam(ops::Ipam::Add) => Reply::of(
            &r#"{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0"}]}"#,
        ),
        Operation::Link(ops::Link::Attributes { link: 1 }) => Reply::of(&link(1, "cni0")),
        Operation::Link(ops::Link::Attributes { link: 2 }) => Reply::of(&link(2, "eth0")),
        Operation::Link(ops::Link::Attributes { .. }) | Operation::Veth(ops::Veth::WaitRunning { .. }) => {
            Reply::of(&link(3, "vethab12cd34"))
        }
        Operation::Veth(ops::Veth::Create { .. }) => {
            Reply::of(&VethPair { container: link(2, "eth0"), host: link(3, "vethab12cd34"), bridge: None })
        }
        Operation::Bridge(ops::Bridge::Ensure { .. }) => {
            Reply::of(&BridgeInfo { link: link(1, "cni0"), promisc: false })
        }
        Operation::Bridge(ops::Bridge::EnsureGateways { .. } | ops::Bridge::PreviousLink) => {
            Reply::of(&None::<LinkInfo>)
        }
        _ => Reply::of(&()),
    };
    made.unwrap()
}

fn link(handle: u32, name: &str) -> LinkInfo {
    LinkInfo {
        handle,
        name: name.to_owned(),
        mac: Some("02:00:5e:10:00:01".parse().unwrap()),
        mtu: 1500,
        kind: "veth".to_owned(),
        up: true,
        running: true,
    }
}

const BRIDGE: &str =
    r#"{"cniVersion":"1.1.0","name":"net","type":"bridge","bridge":"cni0","ipam":{"type":"host-local"}}"#;

fn start(stdin: &str) -> Start {
    Start {
        env: ["CNI_COMMAND=ADD", "CNI_CONTAINERID=0123456789ab", "CNI_NETNS=/run/netns/x", "CNI_IFNAME=eth0"]
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        stdin: stdin.to_owned().into(),
        limits: GuestLimits::default(),
    }
}

fn inside(busy: &str, code: &str) {
    work(busy);
    let guest = Guest::load(File::open(code).unwrap().into()).unwrap();
    let ended = guest.run(start(BRIDGE), Box::new(Mock));
    report(ended.outcome.clone());
}

fn forked(busy: &str, code: &str) {
    let code = File::open(code).unwrap();
    let (gate, sandbox) = pair().unwrap();
    // SAFETY: this process has one thread.
    if let ForkResult::Child = unsafe { fork() }.unwrap() {
        child::run(sandbox.into(), code.into());
    }
    drop(sandbox);
    work(busy);
    report(serve(&gate, BRIDGE));
}

/// Lets the sandbox run, and answers its calls.
fn serve(gate: &UnixStream, stdin: &str) -> GuestOutcome {
    send_to_sandbox(gate, &ToSandbox::Start(start(stdin)), None).unwrap();
    loop {
        match receive(gate, None).unwrap() {
            FromSandbox::Call(operation) => {
                send_to_sandbox(gate, &ToSandbox::Answer(Ok(answer(&operation))), None).unwrap()
            }
            FromSandbox::Stderr(text) => eprint!("{text}"),
            FromSandbox::Finished { stdout, status } => return GuestOutcome::Finished { stdout, status },
            FromSandbox::Failed(reason) | FromSandbox::Unloadable(reason) => return GuestOutcome::Failed(reason),
        }
    }
}

/// Computes for this many microseconds.
fn work(busy: &str) {
    let end = Instant::now() + Duration::from_micros(busy.parse().unwrap());
    while Instant::now() < end {}
}

/// Prints and exits without destructors, as the gate does.
fn report(outcome: GuestOutcome) {
    match outcome {
        GuestOutcome::Finished { stdout, .. } => print!("{stdout}"),
        GuestOutcome::Failed(reason) => panic!("{reason}"),
    }
    // SAFETY: `_exit` has no preconditions. `print!` has flushed the output at its last line end.
    unsafe { libc::_exit(0) }
}

fn steps(code: &str) {
    let begin = Instant::now();
    let guest = Guest::load(File::open(code).unwrap().into()).unwrap();
    let loaded = Instant::now();
    let ended = guest.run(start(BRIDGE), Box::new(Mock));
    println!("load {:?}, run {:?}: {:?}", loaded - begin, loaded.elapsed(), ended.outcome);
    let begin = Instant::now();
    let _ended = guest.run(start(BRIDGE), Box::new(Mock));
    println!("run again {:?}", begin.elapsed());
}

fn compare(rounds: usize, busy: &str, code: &str) {
    let ways = ["empty", "inside", "fork"];
    let mut wall = vec![Vec::new(); ways.len()];
    let mut cpu = vec![Vec::new(); ways.len()];
    for _ in 0..rounds {
        for (index, way) in ways.iter().enumerate() {
            let spent = || {
                let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
                usage.user_time().num_microseconds() + usage.system_time().num_microseconds()
            };
            let (begin, before) = (Instant::now(), spent());
            let status = Command::new("/proc/self/exe").args([way, busy, code]).stdout(Stdio::null()).status().unwrap();
            assert!(status.success());
            wall[index].push(begin.elapsed().as_micros());
            cpu[index].push(spent() - before);
        }
    }
    for (index, way) in ways.iter().enumerate() {
        wall[index].sort_unstable();
        cpu[index].sort_unstable();
        let low = rounds / 10;
        println!(
            "{way:8} wall µs: median {:5}, lowest tenth {:5}; CPU µs of the ended processes: median {:5}",
            wall[index][rounds / 2],
            wall[index][low],
            cpu[index][rounds / 2]
        );
    }
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "inside", busy, code] => inside(busy, code),
        [_, "fork", busy, code] => forked(busy, code),
        [_, "steps", code] => steps(code),
        [_, "empty", ..] => {}
        [_, "compare", rounds, busy, code] => compare(rounds.parse().unwrap(), busy, code),
        _ => panic!("usage: measure compare ROUNDS BUSY CODE"),
    }
}
