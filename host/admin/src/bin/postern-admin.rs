//! The program `postern-admin`. It has nothing but the commit: so another commit builds this file alone, and not the commands.

use std::process::ExitCode;

/// The commit that this program is built from. `make` and `packages/programs` ask git for it.
const COMMIT: Option<&str> = option_env!("POSTERN_COMMIT");

fn main() -> ExitCode {
    postern_admin::main(COMMIT)
}
