//! The DHCP service. It renews the leases of attachments. The client runs in a sandbox. The service gives the client
//! only frames of one link and timers, and keeps the client's state.
//!
//! All processes of the service are forked from one process:
//!
//! - The service ([`service`]) has the sockets, the timers and the files of leases. It writes and reads headers of
//!   frames ([`frame`], [`frame6`]). It checks only the payloads that it sends ([`payload`], [`payload6`]).
//! - Two processes run steps of the client, each step in a sandbox of its own ([`steps`]). The output of a step has
//!   limits ([`output`]).
//! - One process opens network namespaces by their paths ([`opener`]).
//! - One process removes the service's own socket at the end ([`leaving`]), if systemd has not made the socket.
//!
//! [`process`] starts each process.
//!
//! Between two events a lease has no open sockets.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open files without postern_state::Dir"))]
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic if nobody reads: use `say!` or `streams`")]

mod asks;
mod budget;
mod clock;
mod confine;
mod connections;
mod events;
mod frame;
mod frame6;
mod gone;
mod lease;
mod leaving;
mod listen;
mod namespace;
mod opener;
mod options;
mod output;
mod packet;
mod payload;
mod payload6;
mod probe;
mod process;
mod service;
mod steps;
mod store;
mod wire;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use options::{DhcpCommand, Options};
use postern_confine::forget_environment;
use postern_gate::places::Places;
use postern_gate::{Engine, streams};
use std::time::{Duration, Instant};

/// The number of processes for steps: while one process hangs, the other process works.
const RUNNERS: usize = 2;

/// The wanted limit of open files: two files for each lease that speaks with a server, one file for each connection to
/// the service's socket.
const FILES: u64 = 4096;

/// Runs the command, and returns its exit status.
pub fn main(arguments: &[String], engine: Engine) -> u8 {
    match options::parse(arguments) {
        Ok(DhcpCommand::Help) => {
            let until = Instant::now() + Duration::from_secs(1);
            u8::from(streams::write(std::io::stdout(), options::HELP.as_bytes(), until).is_err())
        }
        Ok(DhcpCommand::Serve(options)) => match serve(options, engine) {
            Ok(()) => 0,
            Err(words) => {
                postern_gate::say!("postern dhcp: {words}");
                1
            }
        },
        Err(words) => {
            postern_gate::say!("postern dhcp: {words}; `postern dhcp serve --help` shows the options");
            2
        }
    }
}

fn serve(options: Options, engine: Engine) -> Result<(), String> {
    // The first reading of the clock looks up the kernel's clock function (vDSO), with calls that a filter would forbid
    // later.
    let _ = clock::since_boot();
    postern_gate::put_right();
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(FILES.min(hard)), hard);
    }
    let places = Places::find().map_err(|error| error.to_string())?;
    let store = store::Store::open(&places.library)?;
    let home = namespace::OwnNamespace::open()?;
    let (listener, own) = listen::open(&options)?;
    let remover = leaving::start(&own)
        .map_err(|error| format!("the process that removes the socket can't be started: {error}"))?;
    // Each process is forked before this process has data of a lease, and while this process has one thread.
    let mut runners = Vec::new();
    for _ in 0..RUNNERS {
        let runner = steps::Runner::start(engine, &places.state);
        runners.push(runner.map_err(|error| format!("a process for steps can't be started: {error}"))?);
    }
    let opener = opener::Opener::start()
        .map_err(|error| format!("the process that opens namespaces can't be started: {error}"))?;
    let words = |errno: Errno| errno.to_string();
    let stops = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    stops.thread_block().map_err(words)?;
    let signals = SignalFd::with_flags(&stops, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(words)?;
    let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
    let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags).map_err(words)?;
    let _ = prctl::set_name(c"dhcp service");
    forget_environment();
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    confine::service(&store.path, &places.logs)
        .map_err(|error| format!("the service cannot confine itself: {error}"))?;
    let mut service = service::Service::new(options, home, opener, store, places.logs, runners)?;
    let ended = service.run(&listener, &signals, &timer);
    drop(listener);
    service.end();
    if let Some(remover) = remover {
        remover.end();
    }
    ended
}
