//! The floor of WASI 0.2 that a command needs in order to start: interface by interface.
//!
//! What is not here is absent: a component that imports a file system or a socket does not link, whatever it would have
//! done with it. wasmtime-wasi's linkers for whole worlds would bring both.

use crate::state::State;
use wasmtime::component::{HasData, Linker, ResourceTable};
use wasmtime_wasi::WasiView;
use wasmtime_wasi::cli::{WasiCli, WasiCliView};
use wasmtime_wasi::p2::bindings::sync::io::{poll, streams};
use wasmtime_wasi::p2::bindings::{cli, io, random};
use wasmtime_wasi::random::{WasiRandom, WasiRandomView};

/// What is linked, as `package/interface`: the compiler's check names what is not.
#[cfg(feature = "compiler")]
pub const FLOOR: [&str; 16] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
];

struct Io;

impl HasData for Io {
    type Data<'a> = &'a mut ResourceTable;
}

/// Adds the interfaces of [`FLOOR`].
pub fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    io::error::add_to_linker::<State, Io>(linker, |state| state.ctx().table)?;
    poll::add_to_linker::<State, Io>(linker, |state| state.ctx().table)?;
    streams::add_to_linker::<State, Io>(linker, |state| state.ctx().table)?;

    cli::environment::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::exit::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::stdin::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::stdout::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::stderr::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::terminal_input::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::terminal_output::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::terminal_stdin::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::terminal_stdout::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::terminal_stderr::add_to_linker::<State, WasiCli>(linker, State::cli)?;

    // Rust's `HashMap` takes its seed from here.
    random::random::add_to_linker::<State, WasiRandom>(linker, State::random)?;
    random::insecure::add_to_linker::<State, WasiRandom>(linker, State::random)?;
    random::insecure_seed::add_to_linker::<State, WasiRandom>(linker, State::random)?;
    Ok(())
}
