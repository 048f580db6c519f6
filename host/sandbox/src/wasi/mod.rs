//! The floor of WASI 0.2: what a command imports even if it only computes. `wasi/floor.wit` lists it.
//!
//! All of it happens in memory: input is known before the guest starts, output is kept until it ends, nothing is ever
//! waited for. So there is no runtime, no thread and no descriptor behind it, and the file systems and sockets of a
//! complete implementation are not even part of the program.

mod cli;
mod io;
mod random;

use crate::state::State;
use wasmtime::component::{HasSelf, Linker};

pub use cli::Exit;
pub use generated::{Floor, FloorPre};
pub use io::{Beyond, Input, Output};

use generated::wasi;

#[allow(missing_docs, reason = "generated; WASI's specification is the documentation")]
mod generated {
    wasmtime::component::bindgen!({
        path: "wasi/floor.wit",
        world: "floor",
        imports: { default: trappable },
        with: {
            "wasi:io/poll.pollable": super::io::Pollable,
            "wasi:io/streams.input-stream": super::io::InputStream,
            "wasi:io/streams.output-stream": super::io::OutputStream,
        },
    });
}

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

/// Adds every interface of the floor to the linker.
pub fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    Floor::add_to_linker::<State, HasSelf<State>>(linker, |state| state)
}

#[cfg(all(test, feature = "compiler"))]
mod tests {
    use super::FLOOR;

    #[test]
    fn the_list_is_the_one_that_is_linked() {
        let text = include_str!("../../wasi/floor.wit");
        let mut imports: Vec<_> =
            text.lines().filter_map(|line| line.trim().strip_prefix("import ")?.split('@').next()).collect();
        imports.sort_unstable();
        assert_eq!(imports, FLOOR);
    }
}
