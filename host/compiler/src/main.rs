//! The compiler of components: machine code is made when a plugin is added, never while a runtime waits.
//!
//! `postern add` and `postern learn` start it, with an architecture as its argument, nothing in its environment, the
//! component as its standard input, and a socket as its standard output. It gives up all privileges before the compiler
//! sees the component. It is of no use to other programs.

use postern_sandbox::{component_process, engine};
use std::process::ExitCode;

/// The process may map no memory beyond its limits, and this heap knows how much is mapped.
#[global_allocator]
static HEAP: postern_sandbox::Heap = postern_sandbox::Heap::new();

/// The text for a person who types the program's name.
const USAGE: &str = "usage: postern-compiler ARCHITECTURE < FILE.wasm, with a socket as standard output
       postern-compiler --version
postern starts it to compile a component: `postern add FILE.wasm --policy FILE`";

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "nothing else speaks to people here")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [argument] if argument == "--version" => {
            println!("postern-compiler {} ({})", env!("CARGO_PKG_VERSION"), engine::fingerprint());
            ExitCode::SUCCESS
        }
        [architecture] if !architecture.starts_with('-') => component_process::compile_for_parent(architecture),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
