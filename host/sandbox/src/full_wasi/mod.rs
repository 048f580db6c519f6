//! All of WASI 0.2, without real files and sockets. Python, JavaScript and C programs import all of WASI, but never use
//! most of it.
//!
//! The implementation is wasmtime-wasi, so that such a program gets the expected behaviour. The program finds a clock,
//! and streams in memory. It finds no directory and no argument, and can't make a socket. `wasi:http` has no
//! implementation: a request can be built, but sending it is refused. Random numbers come from [`crate::wasi`]. The
//! process has no further thread and no further open descriptor, and is sealed like every sandbox.

mod http;
mod streams;
mod wait;

use crate::imports::LinkedInterface;
use crate::state::State;
use crate::wasi::{GuestOutput, OverLimit};
use postern_types::Start;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use streams::Shared;
use tokio::runtime::{Builder, Runtime};
use wasmtime::Result;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::cli::{WasiCli, WasiCliView};
use wasmtime_wasi::clocks::{WasiClocks, WasiClocksView};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::{cli, clocks, filesystem, sockets, sync};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsView};
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, I32Exit, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_io::bindings::wasi::io::error;

pub use http::{is_request, refuse};

/// The part of WASI that belongs to one run.
#[derive(Default)]
pub struct FullWasi {
    /// `Some` in runs that need all of WASI.
    context: Option<WasiCtx>,
    runtime: Option<Arc<Runtime>>,
    stdout: Shared,
    stderr: Shared,
}

impl FullWasi {
    /// Makes the state of a run with this input, and with the clock of `runtime`.
    pub fn new(start: &Start, runtime: Arc<Runtime>) -> Self {
        let stdout = Shared::new(GuestOutput::new(start.limits.stdout, OverLimit::Trap));
        let stderr = Shared::new(GuestOutput::new(start.limits.stderr, OverLimit::Drop));
        // Without further settings, the guest has no arguments, directories, networks and name resolution.
        let context = WasiCtx::builder()
            .stdin(MemoryInputPipe::new(start.stdin.as_bytes().to_vec()))
            .stdout(stdout.clone())
            .stderr(stderr.clone())
            .envs(&start.env)
            .wall_clock(Clock(Instant::now()))
            .monotonic_clock(Clock(Instant::now()))
            .build();
        Self { context: Some(context), runtime: Some(runtime), stdout, stderr }
    }

    /// Returns the standard output since the last call.
    pub fn take_stdout(&self) -> Vec<u8> {
        self.stdout.take()
    }

    /// Returns the standard error since the last call.
    pub fn take_stderr(&self) -> Vec<u8> {
        self.stderr.take()
    }
}

/// Does the work that needs to open files, before the process is sealed. A wasmtime-wasi context makes a random
/// generator. The first generator of a thread reads its seed from a device. The guest's random numbers come from
/// another source (`crate::wasi`).
pub fn make_ready() {
    drop(wasmtime_wasi::thread_rng());
}

/// Makes the runtime that waits for a clock, in the calling thread only. Call this function before the process is
/// sealed.
///
/// # Errors
/// There is not enough memory.
pub fn runtime() -> Result<Arc<Runtime>> {
    Ok(Arc::new(Builder::new_current_thread().enable_time().build()?))
}

/// The status that a guest has asked to exit with; runtimes get 0 or 1.
pub fn exit_status(error: &wasmtime::Error) -> Option<u8> {
    error.downcast_ref::<I32Exit>().map(|exit| u8::from(exit.0 != 0))
}

/// The kernel's clocks, read by two system calls that a sealed process may use. The monotonic clock begins with the
/// run.
struct Clock(Instant);

impl HostWallClock for Clock {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }

    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

impl HostMonotonicClock for Clock {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let ctx = self.whole.context.get_or_insert_with(WasiCtx::default);
        WasiCtxView { ctx, table: &mut self.table }
    }
}

fn table(state: &mut State) -> &mut ResourceTable {
    &mut state.table
}

/// Each interface that `crate::wasi` lacks, and each interface that shares objects with such an interface. Each name
/// has the function that adds the interface to a linker.
pub const INTERFACES: [LinkedInterface; 24] = [
    ("wasi:cli/environment", |linker| cli::environment::add_to_linker::<_, WasiCli>(linker.whole(), State::cli)),
    ("wasi:cli/exit", |linker| cli::exit::add_to_linker::<_, WasiCli>(linker.whole(), State::cli)),
    ("wasi:cli/stderr", |linker| cli::stderr::add_to_linker::<_, WasiCli>(linker.whole(), State::cli)),
    ("wasi:cli/stdin", |linker| cli::stdin::add_to_linker::<_, WasiCli>(linker.whole(), State::cli)),
    ("wasi:cli/stdout", |linker| cli::stdout::add_to_linker::<_, WasiCli>(linker.whole(), State::cli)),
    ("wasi:cli/terminal-input", |linker| cli::terminal_input::add_to_linker::<_, WasiCli>(linker.whole(), State::cli)),
    ("wasi:cli/terminal-output", |linker| {
        cli::terminal_output::add_to_linker::<_, WasiCli>(linker.whole(), State::cli)
    }),
    ("wasi:cli/terminal-stderr", |linker| {
        cli::terminal_stderr::add_to_linker::<_, WasiCli>(linker.whole(), State::cli)
    }),
    ("wasi:cli/terminal-stdin", |linker| cli::terminal_stdin::add_to_linker::<_, WasiCli>(linker.whole(), State::cli)),
    ("wasi:cli/terminal-stdout", |linker| {
        cli::terminal_stdout::add_to_linker::<_, WasiCli>(linker.whole(), State::cli)
    }),
    ("wasi:clocks/monotonic-clock", |linker| {
        clocks::monotonic_clock::add_to_linker::<_, WasiClocks>(linker.whole(), State::clocks)
    }),
    ("wasi:clocks/wall-clock", |linker| {
        clocks::wall_clock::add_to_linker::<_, WasiClocks>(linker.whole(), State::clocks)
    }),
    ("wasi:filesystem/preopens", |linker| {
        filesystem::preopens::add_to_linker::<_, WasiFilesystem>(linker.whole(), State::filesystem)
    }),
    ("wasi:filesystem/types", |linker| {
        sync::filesystem::types::add_to_linker::<_, WasiFilesystem>(linker.whole(), State::filesystem)
    }),
    ("wasi:io/error", |linker| error::add_to_linker::<_, streams::StreamTable>(linker.whole(), table)),
    ("wasi:io/poll", |linker| sync::io::poll::add_to_linker::<_, wait::Waits>(linker.whole(), wait::waits)),
    ("wasi:io/streams", |linker| sync::io::streams::add_to_linker::<_, streams::StreamTable>(linker.whole(), table)),
    ("wasi:sockets/instance-network", |linker| {
        sockets::instance_network::add_to_linker::<_, WasiSockets>(linker.whole(), State::sockets)
    }),
    ("wasi:sockets/ip-name-lookup", |linker| {
        sockets::ip_name_lookup::add_to_linker::<_, WasiSockets>(linker.whole(), State::sockets)
    }),
    ("wasi:sockets/network", |linker| {
        let options = sockets::network::LinkOptions::default();
        sockets::network::add_to_linker::<_, WasiSockets>(linker.whole(), &options, State::sockets)
    }),
    ("wasi:sockets/tcp", |linker| sync::sockets::tcp::add_to_linker::<_, WasiSockets>(linker.whole(), State::sockets)),
    ("wasi:sockets/tcp-create-socket", |linker| {
        sockets::tcp_create_socket::add_to_linker::<_, WasiSockets>(linker.whole(), State::sockets)
    }),
    ("wasi:sockets/udp", |linker| sync::sockets::udp::add_to_linker::<_, WasiSockets>(linker.whole(), State::sockets)),
    ("wasi:sockets/udp-create-socket", |linker| {
        sync::sockets::udp_create_socket::add_to_linker::<_, WasiSockets>(linker.whole(), State::sockets)
    }),
];
