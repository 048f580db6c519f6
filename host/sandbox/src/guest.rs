//! Loading and running one guest.

use crate::by_need::Linker;
use crate::code;
use crate::engine::engine_with;
#[cfg(feature = "wasi")]
use crate::full_wasi::FullWasi;
use crate::imports::{WasiFloor, link};
use crate::limits::{Ceiling, OutOfMemory};
use crate::memory::Reserve;
use crate::state::{CallReceiver, State};
use crate::wasi::{Exit, FloorPre};
use postern_types::Start;
use std::os::fd::OwnedFd;
#[cfg(feature = "wasi")]
use std::sync::Arc;
#[cfg(feature = "wasi")]
use tokio::runtime::Runtime;
use wasmtime::{Engine, Result, Store, Trap};

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestOutcome {
    /// The guest returned, or exited with a status.
    Finished {
        /// The guest's standard output.
        stdout: String,
        /// Exit status: 0, or 1 for failure.
        status: u8,
    },
    /// The guest failed. The text is one short reason, without a plugin's name.
    Failed(String),
}

/// A component that is mapped, linked and ready to run.
pub struct Guest {
    engine: Engine,
    program: FloorPre<State>,
    /// The linker is kept only because dropping it takes time ([`link`]).
    _linker: Linker<State>,
    /// `Some` if all of WASI is linked.
    #[cfg(feature = "wasi")]
    runtime: Option<Arc<Runtime>>,
}

/// A run that has ended, with its memory. A process that exits need not drop the memory, because unmapping takes time.
pub struct Ended {
    /// The outcome.
    pub outcome: GuestOutcome,
    _store: Store<State>,
}

impl Guest {
    /// Maps precompiled code and links it. Does all the work that doesn't depend on the run.
    ///
    /// The caller guarantees that the compiling program made the file, and that no other user can write to it. Any
    /// other machine code in the file would be executed too.
    ///
    /// # Errors
    /// The file is not code for this engine ([`crate::engine::fingerprint`]) or this architecture. The component
    /// imports something that is not linked. The address space is too small for the component's memories.
    pub fn load(code: OwnedFd) -> Result<Self> {
        Self::load_on(WasiFloor::Small, code)
    }

    /// As [`Guest::load`], for a component that needs all of WASI, without real files and sockets.
    ///
    /// # Errors
    /// As [`Guest::load`].
    #[cfg(feature = "wasi")]
    pub fn load_whole(code: OwnedFd) -> Result<Self> {
        let mut guest = Self::load_on(WasiFloor::Whole, code)?;
        guest.runtime = Some(crate::full_wasi::runtime()?);
        Ok(guest)
    }

    fn load_on(floor: WasiFloor, code: OwnedFd) -> Result<Self> {
        let reserve = Reserve::default();
        let engine = engine_with(&reserve)?;
        let component = code::load(&engine, code)?;
        let (program, linker) = link(&engine, &component, floor)?;
        let program = FloorPre::new(program)?;
        // If the component has too many memories, its start is refused later.
        let needed = component.resources_required();
        let memories = needed.as_ref().map_or(0, |needed| needed.num_memories);
        let pages = needed.and_then(|needed| needed.max_initial_memory_size).unwrap_or(0);
        reserve.fill(usize::try_from(memories)?.min(Ceiling::MEMORIES), usize::try_from(pages)?)?;
        // This call maps the stack of the signal handler, because a sealed process can't map memory.
        Engine::tls_eager_initialize();
        Ok(Self {
            engine,
            program,
            _linker: linker,
            #[cfg(feature = "wasi")]
            runtime: None,
        })
    }

    /// Runs the guest. Each run has its own memory.
    pub fn run(&self, start: Start, gate: Box<dyn CallReceiver>) -> Ended {
        let limits = start.limits;
        #[cfg(feature = "wasi")]
        let (_entered, whole) = (
            self.runtime.as_ref().map(|runtime| runtime.enter()),
            self.runtime.as_ref().map(|runtime| FullWasi::new(&start, Arc::clone(runtime))).unwrap_or_default(),
        );
        let mut store = Store::new(&self.engine, State::new(start, gate));
        #[cfg(feature = "wasi")]
        {
            store.data_mut().whole = whole;
        }
        store.limiter(|state| &mut state.ceiling);
        store.set_hostcall_fuel(limits.call);
        store.set_max_component_handles(limits.resources);

        let ended = self
            .program
            .instantiate(&mut store)
            .and_then(|program| program.wasi_cli_run().call_run(&mut store))
            .map(|result| u8::from(result.is_err()));
        store.data_mut().forward_stderr();
        let outcome = match ended.or_else(exit_status) {
            Ok(status) => match String::from_utf8(store.data_mut().take_stdout()) {
                Ok(stdout) => GuestOutcome::Finished { stdout, status },
                Err(_) => GuestOutcome::Failed("wrote bytes to standard output that are not UTF-8".to_owned()),
            },
            Err(error) => GuestOutcome::Failed(reason(&error)),
        };
        Ended { outcome, _store: store }
    }
}

fn exit_status(error: wasmtime::Error) -> Result<u8> {
    if let Some(&Exit(status)) = error.downcast_ref::<Exit>() {
        return Ok(status);
    }
    #[cfg(feature = "wasi")]
    if let Some(status) = crate::full_wasi::exit_status(&error) {
        return Ok(status);
    }
    Err(error)
}

/// Returns the reason of the guest's end, in one line that can follow a plugin's name.
fn reason(error: &wasmtime::Error) -> String {
    if let Some(error) = error.downcast_ref::<OutOfMemory>() {
        return error.to_string();
    }
    match error.downcast_ref::<Trap>() {
        Some(trap) => {
            let text = trap.to_string();
            format!("trapped: {}", text.strip_prefix("wasm trap: ").unwrap_or(&text))
        }
        // The innermost cause is the real cause. The contexts around it are only addresses and function names.
        None => format!("trapped: {}", error.root_cause()),
    }
}
