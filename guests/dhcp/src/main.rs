//! dhcp: leases of DHCP servers.
//!
//! One component has two uses. The lease service starts the component for each event of a lease, with
//! `CNI_COMMAND=STEP`: standard input has one event, standard output gets one answer (see `postern_dhcp`). Runtimes
//! start the component as the plugin.

mod plugin;

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::var_os("CNI_COMMAND").is_some_and(|command| command == "STEP") {
        return step();
    }
    plugin::run()
}

/// Takes one step of the client.
fn step() -> ExitCode {
    let mut input = Vec::new();
    if let Err(error) = std::io::stdin().read_to_end(&mut input) {
        return fail(&format!("dhcp: standard input can't be read: {error}"));
    }
    match postern_dhcp::answer(&input) {
        Ok(output) => match std::io::stdout().write_all(output.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => fail(&error),
    }
}

fn fail(words: &str) -> ExitCode {
    // If standard error is closed, the error can't be reported.
    let _ = writeln!(std::io::stderr(), "{words}");
    ExitCode::FAILURE
}
