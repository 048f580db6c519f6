//! The floor of WASI 0.2: the imports of a command that only computes. `wasi/floor.wit` lists these imports.
//!
//! Everything happens in memory: input is known before the guest starts, output is kept until the guest ends, and
//! nothing waits. So this floor needs no runtime, no thread and no descriptor. The file systems and sockets of a
//! complete implementation are not part of the executable.

mod cli;
mod io;
mod random;

use crate::imports::{LinkedInterface, Own, own};

pub use cli::Exit;
pub use generated::FloorPre;
#[cfg(feature = "wasi")]
pub use io::BLOCK;
pub use io::{GuestOutput, Input, OverLimit};

use generated::wasi;

#[allow(missing_docs, reason = "generated; WASI's specification is the documentation")]
mod generated {
    wasmtime::component::bindgen!({
        path: ["../../wit/deps/io.wit", "../../wit/deps/random.wit", "../../wit/deps/cli.wit", "wasi/floor.wit"],
        world: "postern:floor/floor",
        imports: { default: trappable },
        wasmtime_crate: crate::by_need,
        with: {
            "wasi:io/poll.pollable": super::io::Pollable,
            "wasi:io/streams.input-stream": super::io::InputStream,
            "wasi:io/streams.output-stream": super::io::OutputStream,
        },
    });
}

/// Each interface, and the function that adds it to a linker.
pub const INTERFACES: [LinkedInterface; 16] = [
    ("wasi:cli/environment", |linker| wasi::cli::environment::add_to_linker::<_, Own>(linker, own)),
    ("wasi:cli/exit", |linker| wasi::cli::exit::add_to_linker::<_, Own>(linker, own)),
    ("wasi:cli/stderr", |linker| wasi::cli::stderr::add_to_linker::<_, Own>(linker, own)),
    ("wasi:cli/stdin", |linker| wasi::cli::stdin::add_to_linker::<_, Own>(linker, own)),
    ("wasi:cli/stdout", |linker| wasi::cli::stdout::add_to_linker::<_, Own>(linker, own)),
    ("wasi:cli/terminal-input", |linker| wasi::cli::terminal_input::add_to_linker::<_, Own>(linker, own)),
    ("wasi:cli/terminal-output", |linker| wasi::cli::terminal_output::add_to_linker::<_, Own>(linker, own)),
    ("wasi:cli/terminal-stderr", |linker| wasi::cli::terminal_stderr::add_to_linker::<_, Own>(linker, own)),
    ("wasi:cli/terminal-stdin", |linker| wasi::cli::terminal_stdin::add_to_linker::<_, Own>(linker, own)),
    ("wasi:cli/terminal-stdout", |linker| wasi::cli::terminal_stdout::add_to_linker::<_, Own>(linker, own)),
    ("wasi:io/error", |linker| wasi::io::error::add_to_linker::<_, Own>(linker, own)),
    ("wasi:io/poll", |linker| wasi::io::poll::add_to_linker::<_, Own>(linker, own)),
    ("wasi:io/streams", |linker| wasi::io::streams::add_to_linker::<_, Own>(linker, own)),
    ("wasi:random/insecure", |linker| wasi::random::insecure::add_to_linker::<_, Own>(linker, own)),
    ("wasi:random/insecure-seed", |linker| wasi::random::insecure_seed::add_to_linker::<_, Own>(linker, own)),
    ("wasi:random/random", |linker| wasi::random::random::add_to_linker::<_, Own>(linker, own)),
];
