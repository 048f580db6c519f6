//! The system's programs. They come from fixed directories, get no environment variables of this process, and have a
//! deadline.

use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::errno::Errno;
use postern_confine::{Environment, PROGRAMS, Program, Run};

use crate::FirewallError;

/// Returns the program's path. Fails if no fixed directory has the program.
pub(crate) fn locate(name: &str) -> Result<PathBuf, FirewallError> {
    postern_confine::locate(name).ok_or_else(|| {
        let way_out = format!("not found in {}: install iptables, or use the nftables backend", PROGRAMS.join(", "));
        FirewallError { errno: Some(Errno::ENOENT as i32), ..FirewallError::new("locate", name, way_out) }
    })
}

/// Runs a program to its end and returns the text that it printed. If the program fails, the hint is its standard
/// error. At the deadline the program is killed.
pub(crate) fn run(
    runner: &dyn Run,
    path: &Path,
    arguments: &[&str],
    input: &str,
    deadline: Instant,
) -> Result<String, FirewallError> {
    let object = || format!("{} {}", path.display(), arguments.join(" "));
    let program = Program {
        path: path.to_owned(),
        arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        environment: Environment::Empty,
        input: input.to_owned(),
    };
    let output = runner.run(&program, deadline).map_err(|error| FirewallError::io("run", object(), &error))?;
    if output.status == Some(0) {
        return Ok(output.stdout);
    }
    let complaints = output.stderr.trim().replace('\n', "; ");
    Err(FirewallError::new("run", object(), format!("{}: {complaints}", output.ended)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_confine::Direct;
    use std::time::Duration;

    #[test]
    fn complaints_are_in_the_error() {
        let soon = Instant::now() + Duration::from_secs(5);
        let error = run(&Direct, &locate("sh").unwrap(), &["-c", "echo no >&2; exit 3"], "", soon).unwrap_err();
        assert_eq!(error.hint, "exit status: 3: no");
    }

    #[test]
    fn is_killed_at_the_deadline() {
        let soon = Instant::now() + Duration::from_millis(50);
        let error = run(&Direct, &locate("sleep").unwrap(), &["60"], "", soon).unwrap_err();
        assert!(error.is_timeout(), "{error}");
    }

    #[test]
    fn a_missing_program_is_told_apart() {
        let error = locate("no-such-program").unwrap_err();
        assert!(error.hint.contains("install iptables") && error.errno == Some(nix::libc::ENOENT), "{error}");
    }
}
