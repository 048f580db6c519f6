//! Loading and running one guest.

use crate::code;
use crate::engine::engine;
use crate::limits::{Limits, OutOfMemory};
use crate::state::{Gate, State};
use crate::{bindings, wasi};
use postern_types::Start;
use std::os::fd::OwnedFd;
use tokio::runtime::{Builder, Runtime};
use wasmtime::component::Linker;
use wasmtime::error::Context;
use wasmtime::{Engine, Result, Store, Trap};
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::p2::bindings::sync::CommandPre;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By itself.
    Finished {
        /// What the guest wrote to its standard output.
        stdout: String,
        /// Exit status: 0, or what it exited with.
        status: u8,
    },
    /// Not by itself: one short reason, naming no plugin.
    Failed(String),
}

/// A component that is mapped, linked and ready to run.
pub struct Guest {
    engine: Engine,
    program: CommandPre<State>,
    runtime: Runtime,
}

impl Guest {
    /// Maps precompiled code and links it. Does all that can be done before the run is known.
    ///
    /// The caller vouches for the file: it must be what the compiling program made of a component, in a place where
    /// nobody else can write. Machine code of any other origin is executed just the same.
    ///
    /// # Errors
    /// The file is no code for this engine ([`crate::engine::fingerprint`]) or CPU, or the component imports what is
    /// not linked.
    pub fn load(code: OwnedFd) -> Result<Self> {
        let engine = engine()?;
        let component = code::load(&engine, code)?;
        let program = CommandPre::new(linker(&engine)?.instantiate_pre(&component)?)?;
        // wasmtime-wasi's synchronous functions look for a runtime, and start one with a thread for each CPU if there
        // is none. Nothing here ever waits, so the smallest will do: no threads, no timer, no epoll.
        let runtime = Builder::new_current_thread().build().context("cannot make a runtime")?;
        Ok(Self { engine, program, runtime })
    }

    /// Runs the guest, once.
    pub fn run(&self, start: Start, gate: Box<dyn Gate>, limits: &Limits) -> Outcome {
        let _entered = self.runtime.enter();
        let mut store = Store::new(&self.engine, State::new(start, gate, limits));
        store.limiter(|state| &mut state.ceiling);
        store.set_hostcall_fuel(limits.call);
        store.set_max_component_handles(limits.resources);

        let ended = self
            .program
            .instantiate(&mut store)
            .and_then(|command| command.wasi_cli_run().call_run(&mut store))
            .map(|result| u8::from(result.is_err()));
        store.data_mut().forward_stderr();
        match ended.or_else(exit_status) {
            Ok(status) => match String::from_utf8(store.data().stdout.take()) {
                Ok(stdout) => Outcome::Finished { stdout, status },
                Err(_) => Outcome::Failed("wrote bytes to standard output that are not UTF-8".to_owned()),
            },
            Err(error) => Outcome::Failed(reason(&error)),
        }
    }
}

/// Everything that a guest can import.
pub fn linker(engine: &Engine) -> Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    wasi::add_to_linker(&mut linker)?;
    bindings::add_to_linker(&mut linker)?;
    Ok(linker)
}

/// `wasi:cli/exit` unwinds as an error.
fn exit_status(error: wasmtime::Error) -> Result<u8> {
    match error.downcast_ref::<I32Exit>() {
        Some(&I32Exit(status)) => Ok(u8::try_from(status).unwrap_or(1)),
        None => Err(error),
    }
}

/// Why the guest ended, in one line that fits behind a plugin's name.
fn reason(error: &wasmtime::Error) -> String {
    if let Some(error) = error.downcast_ref::<OutOfMemory>() {
        return error.to_string();
    }
    match error.downcast_ref::<Trap>() {
        Some(trap) => {
            let text = trap.to_string();
            format!("trapped: {}", text.strip_prefix("wasm trap: ").unwrap_or(&text))
        }
        // The innermost cause says what happened; the contexts around it are addresses and function names.
        None => format!("trapped: {}", error.root_cause()),
    }
}
