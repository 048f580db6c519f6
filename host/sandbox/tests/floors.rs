//! The sandbox has two implementations of WASI: the small floor (`wasi`), and the whole floor (`full_wasi`) for
//! components that import all of WASI. These tests compare both with unchanged wasmtime-wasi. The same component must
//! get the same answers.
//!
//! wasmtime-wasi is the oracle. A program that only computes gets the same answers from wasmtime-wasi and both floors.
#![allow(unsafe_code, reason = "loads what it has just compiled")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use postern_sandbox::compile::precompile;
use postern_sandbox::{CallReceiver, Guest, GuestOutcome, engine};
use postern_types::{ErrorCode, GuestLimits, OpError, Operation, Reply, Start};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::{Engine, Store};
use wasmtime_wasi::p2::bindings::sync::Command;
use wasmtime_wasi::p2::pipe::{MemoryInputPipe, MemoryOutputPipe};
use wasmtime_wasi::{I32Exit, WasiCtx, WasiCtxView, WasiView};

/// The outcome of a program: standard output, standard error, and the exit status; no status after a trap.
#[derive(Debug, PartialEq, Eq)]
struct ProgramOutcome {
    stdout: String,
    stderr: String,
    status: Option<u8>,
}

fn guest(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/wasm32-wasip2/guest").join(name);
    fs::read(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; `make build` and `tests/setup test` make this file", path.display())
    })
}

fn start(command: &str, arguments: &str, stdin: &str) -> Start {
    let env = [("CNI_COMMAND", command), ("CNI_CONTAINERID", "c1"), ("CNI_IFNAME", "eth0"), ("CNI_ARGS", arguments)];
    Start {
        env: env.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec(),
        stdin: Arc::new(stdin.to_owned()),
        limits: GuestLimits::default(),
    }
}

/// A gate that refuses everything.
#[derive(Clone, Default)]
struct Refusing(Arc<Mutex<String>>);

impl CallReceiver for Refusing {
    fn call(&mut self, _operation: Operation) -> Result<Reply, OpError> {
        Err(OpError::new(ErrorCode::Denied, "", "refused".to_owned()))
    }

    fn stderr(&mut self, text: String) {
        self.0.lock().unwrap().push_str(&text);
    }
}

fn code(name: &str, cwasm: &[u8]) -> File {
    let path = std::env::temp_dir().join(format!("postern-floors-{}-{name}", std::process::id()));
    File::create(&path).unwrap().write_all(cwasm).unwrap();
    let file = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file
}

fn ours(guest: &Guest, start: Start) -> ProgramOutcome {
    let gate = Refusing::default();
    let ended = guest.run(start, Box::new(gate.clone()));
    let (stdout, status) = match ended.outcome {
        GuestOutcome::Finished { ref stdout, status } => (stdout.clone(), Some(status)),
        GuestOutcome::Failed(_) => (String::new(), None),
    };
    let stderr = gate.0.lock().unwrap().clone();
    ProgramOutcome { stdout, stderr, status }
}

struct WasmtimeWasi {
    context: WasiCtx,
    table: ResourceTable,
}

impl WasiView for WasmtimeWasi {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.context, table: &mut self.table }
    }
}

/// Runs the component with wasmtime-wasi as its documentation describes: with its own streams, clock, random numbers
/// and runtime.
fn stock(engine: &Engine, component: &Component, start: &Start) -> ProgramOutcome {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_sync(&mut linker).unwrap();
    let (stdout, stderr) = (MemoryOutputPipe::new(1 << 20), MemoryOutputPipe::new(1 << 20));
    let context = WasiCtx::builder()
        .stdin(MemoryInputPipe::new(start.stdin.as_bytes().to_vec()))
        .stdout(stdout.clone())
        .stderr(stderr.clone())
        .envs(&start.env)
        .build();
    let mut store = Store::new(engine, WasmtimeWasi { context, table: ResourceTable::new() });
    let ended = Command::instantiate(&mut store, component, &linker)
        .and_then(|command| command.wasi_cli_run().call_run(&mut store));
    let status = match ended {
        Ok(result) => Some(u8::from(result.is_err())),
        Err(error) => error.downcast_ref::<I32Exit>().map(|exit| u8::from(exit.0 != 0)),
    };
    let text = |pipe: &MemoryOutputPipe| String::from_utf8(pipe.contents().to_vec()).unwrap();
    // A runtime gets no output of a program that was ended.
    let stdout = status.map_or_else(String::new, |_| text(&stdout));
    ProgramOutcome { stdout, stderr: text(&stderr), status }
}

/// Runs a component on both floors, and with unchanged wasmtime-wasi.
struct BothImplementations {
    small: Guest,
    whole: Guest,
    engine: Engine,
    component: Component,
}

impl BothImplementations {
    fn of(name: &str) -> Self {
        let wasm = guest(name);
        let cwasm = precompile(&wasm).unwrap().cwasm;
        let engine = engine::engine().unwrap();
        let component = unsafe { Component::deserialize(&engine, &cwasm) }.unwrap();
        Self {
            small: Guest::load(code(name, &cwasm).into()).unwrap(),
            whole: Guest::load_whole(code(name, &cwasm).into()).unwrap(),
            engine,
            component,
        }
    }

    fn floors(&self, start: &Start) -> ProgramOutcome {
        let small = ours(&self.small, start.clone());
        assert_eq!(small, ours(&self.whole, start.clone()), "the small floor, and the whole floor: {start:?}");
        small
    }

    fn all(&self, start: &Start) -> ProgramOutcome {
        let small = self.floors(start);
        assert_eq!(small, stock(&self.engine, &self.component, start), "the small floor, and wasmtime-wasi: {start:?}");
        small
    }
}

#[test]
fn what_every_command_imports_is_the_same_everywhere() {
    let floor = BothImplementations::of("floor.wasm");
    let input = "0123456789abcdefghijklmnopqrstuvwxyz".repeat(40_000);
    let tries = [
        ("environment", Some(0)),
        ("input", Some(0)),
        ("output", Some(0)),
        ("poll", Some(0)),
        ("random", Some(0)),
        ("exit-0", Some(0)),
        ("exit-1", Some(1)),
        ("fail", Some(1)),
        ("trap", None),
        ("poll-nothing", None),
        ("zeroes", None),
        ("no such thing", Some(0)),
    ];
    for (what, status) in tries {
        for stdin in ["", "x", "0123456789abcdef", &input] {
            let left = floor.all(&start("ADD", what, stdin));
            assert_eq!(left.status, status, "{what}: {left:?}");
        }
    }
    let left = floor.all(&start("ADD", "input", "0123456789abcdef"));
    assert!(left.stdout.contains("[48, 49, 50]"), "the guest read its input: {left:?}");
    let left = floor.all(&start("ADD", "output", "0123456789abcdef"));
    assert!(left.stdout.starts_with("written and flushed "), "the guest wrote its output: {left:?}");
    assert_eq!(left.stderr, "to standard error\nand by the library\n");
    let left = floor.all(&start("ADD", "random", ""));
    assert!(left.stdout.starts_with("[0, 1, 32, 1000, 60000] [0, 1, 300] true false"), "{left:?}");
}

/// Both floors have the same limits of output. wasmtime-wasi has no limits.
#[test]
fn limits_of_output_are_the_same_on_both_floors() {
    let left = BothImplementations::of("floor.wasm").floors(&start("ADD", "flood", ""));
    assert_eq!(left.status, None);
    assert_eq!(left.stderr.len(), GuestLimits::default().stderr);
}

#[test]
fn the_shipped_plugins_are_the_same_on_both_floors() {
    let ipam = r#"{"cniVersion":"1.1.0","name":"n","type":"bridge","bridge":"b0","ipam":{"type":"static","addresses":[{"address":"10.1.2.3/24"}]}}"#;
    for plugin in ["bridge", "host-local", "loopback", "ptp", "static"] {
        let under = BothImplementations::of(&format!("postern-{plugin}.wasm"));
        for command in ["VERSION", "ADD", "CHECK", "DEL", "STATUS", "GC", "NONE"] {
            for stdin in [ipam, "{}", "", "[", "\u{0}"] {
                let start = start(command, "", stdin);
                let left = if plugin == "static" { under.all(&start) } else { under.floors(&start) };
                assert!(left.status.is_some(), "{plugin} {command}: {left:?}");
            }
        }
    }
}
