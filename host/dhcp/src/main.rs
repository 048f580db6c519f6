//! The executable of the DHCP service: `postern dhcp serve`. It has the sandbox, and no compiler.

use postern_gate::Engine;
use postern_gate::streams::say;

/// The heap for a sealed sandbox, which can't map memory.
#[global_allocator]
static HEAP: postern_sandbox::Heap = postern_sandbox::Heap::new();

fn main() {
    let arguments: Result<Vec<String>, _> = std::env::args_os().skip(1).map(std::ffi::OsString::into_string).collect();
    let Ok(arguments) = arguments else {
        say(format_args!("postern dhcp: an argument is not UTF-8"));
        std::process::exit(2);
    };
    let engine = Engine {
        main: |channel, code| postern_sandbox::child::run(channel, code),
        fingerprint: postern_sandbox::engine::fingerprint,
    };
    std::process::exit(postern_dhcp_service::main(&arguments, engine).into());
}
