//! `postern net`: a runtime's verbs for one container.
//!
//! Simple arguments are carried out here, without starting the sibling `postern-admin`. The sibling gets all other
//! arguments: it has the parser, with its help and error messages.

use postern_cni::terminal::printable;
use postern_gate::policies::node_directories;
use postern_net::{Arguments, run};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};

/// Carries out a verb, and returns the exit status. `None` if the sibling has to read the arguments.
pub fn main(arguments: &[OsString]) -> Option<u8> {
    let Arguments { command, places } = Arguments::read(arguments)?;
    // SIGCHLD must not be ignored: otherwise this process could not read the exit statuses of its programs.
    postern_gate::put_right();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let why = panic.payload_as_str().unwrap_or_default();
        postern_gate::say!("postern: postern itself failed at {place}: this is a bug. {why}");
        std::process::exit(1);
    }));
    let places = places.or(|| node_directories().map_err(|error| error.to_string()));
    let answered = places.and_then(|places| run(&command, &places)).and_then(|result| match result {
        Some(result) => print(&result).map_err(|error| error.to_string()),
        None => Ok(()),
    });
    Some(match answered {
        Ok(()) => 0,
        Err(words) => {
            let _ = writeln!(io::stderr().lock(), "{}", printable(&words));
            1
        }
    })
}

/// Prints a result as it is, without a newline at its end.
fn print(result: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(result.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
