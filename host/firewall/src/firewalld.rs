//! firewalld: an attachment's addresses as sources of a zone.
//!
//! Calls on the system's message bus add sources, as in the native plugin. A source stays until firewalld is reloaded.
//! The program `busctl` makes the calls; a confined gate lets its helper run `busctl` ([`postern_confine::bus`]).

use std::net::IpAddr;
use std::path::Path;

use postern_confine::bus::{self, BUSCTL, FIREWALLD, Method};
use postern_confine::{Program, locate};

pub use postern_confine::bus::source;

use crate::FirewallError;
use crate::iptables::ProgramRunner;

/// The socket of the system's message bus.
const SOCKET: &str = "/run/dbus/system_bus_socket";

/// True if firewalld may run here: it is installed, and there is a message bus. The bus is not called.
#[must_use]
pub fn installed() -> bool {
    locate("firewalld").is_some() && Path::new(SOCKET).exists()
}

/// True if firewalld's name has an owner on the message bus.
///
/// # Errors
/// `busctl` is missing or fails, the bus does not answer, or the deadline passes.
pub fn runs(runner: ProgramRunner<'_>) -> Result<bool, FirewallError> {
    if !installed() {
        return Ok(false);
    }
    let ask = || owned(answer("ask for", bus::question(), runner)?);
    // A refusal can be temporary, so the question is repeated. If a refusal counted as "does not run", an address would
    // stay in a zone after its container is gone.
    ask().or_else(|_| ask())
}

/// Reads the answer to the question whether firewalld's name has an owner.
fn owned(answer: Result<String, String>) -> Result<bool, FirewallError> {
    match answer {
        Ok(text) if text == "b true" => Ok(true),
        Ok(text) if text == "b false" => Ok(false),
        Ok(text) | Err(text) => {
            let hint = format!("the bus does not tell if firewalld runs: {text}; mend the bus, or stop firewalld");
            Err(FirewallError::new("ask for", FIREWALLD, hint))
        }
    }
}

/// Puts an address in a zone. An address that is already in the zone is no error.
///
/// # Errors
/// firewalld refuses (the hint is its reason). [`runs`] has the other errors.
pub fn add(zone: &str, address: IpAddr, runner: ProgramRunner<'_>) -> Result<(), FirewallError> {
    called(Method::AddSource, zone, address, &["ZONE_ALREADY_SET", "ALREADY_ENABLED"], runner).map(drop)
}

/// Takes an address out of a zone. A missing address or zone is no error.
///
/// # Errors
/// As [`add`]. After an error, the address may still be in the zone.
pub fn remove(zone: &str, address: IpAddr, runner: ProgramRunner<'_>) -> Result<(), FirewallError> {
    let fine = &["UNKNOWN_SOURCE", "NOT_ENABLED", "INVALID_ZONE"];
    let Err(error) = called(Method::RemoveSource, zone, address, fine, runner) else { return Ok(()) };
    // An error of firewalld must not make DEL fail if firewalld does not have the address.
    match query(zone, address, runner) {
        Ok(false) => Ok(()),
        Ok(true) | Err(_) => Err(FirewallError { hint: format!("{}; {WAY_OUT}", error.hint), ..error }),
    }
}

/// The hint if firewalld refuses to remove an address.
const WAY_OUT: &str = "mend firewalld, or stop it: its rules for this address end with it";

/// True if the address is in the zone.
///
/// # Errors
/// As [`add`].
pub fn query(zone: &str, address: IpAddr, runner: ProgramRunner<'_>) -> Result<bool, FirewallError> {
    Ok(called(Method::QuerySource, zone, address, &["INVALID_ZONE"], runner)? == "b true")
}

/// Calls a method. An answer with a word of `fine` counts as an empty answer.
fn called(
    method: Method,
    zone: &str,
    address: IpAddr,
    fine: &[&str],
    runner: ProgramRunner<'_>,
) -> Result<String, FirewallError> {
    match answer(method.name(), bus::call(method, zone, address), runner)? {
        Ok(text) => Ok(text),
        Err(refusal) if fine.iter().any(|word| refusal.contains(word)) => Ok(String::new()),
        Err(refusal) => {
            Err(FirewallError::new(method.name(), format!("{} in zone {zone}", bus::source(address)), refusal))
        }
    }
}

/// Returns the answer of the bus, or the text of its refusal.
fn answer(
    operation: &'static str,
    program: Option<Program>,
    runner: ProgramRunner<'_>,
) -> Result<Result<String, String>, FirewallError> {
    let way_out = "busctl calls firewalld: install systemd's busctl, or use the iptables backend";
    let program = program.ok_or_else(|| FirewallError::new("locate", BUSCTL, way_out))?;
    let output = runner
        .runner
        .run(&program, runner.deadline)
        .map_err(|error| FirewallError::io(operation, FIREWALLD, &error))?;
    Ok(match output.status {
        Some(0) => Ok(output.stdout.trim().to_owned()),
        // `busctl` puts these words in front of the bus's answer.
        _ => Err(output.stderr.trim().trim_start_matches("Call failed: ").replace('\n', "; ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_confine::{ProgramOutput, Run};
    use std::cell::RefCell;
    use std::io;
    use std::time::{Duration, Instant};

    /// A message bus that gives these answers, one after the other: the text, or a refusal.
    struct Played(RefCell<Vec<Result<&'static str, &'static str>>>);

    impl Run for Played {
        fn run(&self, _: &Program, _: Instant) -> io::Result<ProgramOutput> {
            let answer = self.0.borrow_mut().pop().expect("a call too many");
            let (status, stdout, stderr) = match answer {
                Ok(text) => (Some(0), format!("{text}\n"), String::new()),
                Err(refusal) => (Some(1), String::new(), format!("Call failed: {refusal}\n")),
            };
            Ok(ProgramOutput { status, ended: String::new(), stdout, stderr })
        }
    }

    /// Takes an address out of a zone, with these answers of firewalld.
    fn remove_with(answers: &[Result<&'static str, &'static str>]) -> Result<(), FirewallError> {
        let played = Played(RefCell::new(answers.iter().rev().copied().collect()));
        let deadline = Instant::now() + Duration::from_secs(5);
        let removed =
            remove("trusted", "10.1.0.2".parse().unwrap(), ProgramRunner { runner: &played, deadline, nft: None });
        assert!(played.0.borrow().is_empty(), "not all answers were used: {answers:?}");
        removed
    }

    /// A DEL fails only if firewalld may still have the address.
    #[test]
    fn an_error_of_firewalld_keeps_only_what_it_has() {
        use std::io::Write;
        if locate(BUSCTL).is_none() {
            // The line bypasses the test program's output capture, because `tests/suite` counts these lines.
            let _ = writeln!(
                std::io::stdout(),
                "SKIPPED: an_error_of_firewalld_keeps_only_what_it_has: busctl is not installed"
            );
            return;
        }
        let broken = Err("org.fedoraproject.FirewallD1.Exception: COMMAND_FAILED: nft is broken");
        remove_with(&[Ok("s \"trusted\"")]).unwrap();
        for gone in ["UNKNOWN_SOURCE: 10.1.0.2", "NOT_ENABLED: 10.1.0.2", "INVALID_ZONE: trusted"] {
            remove_with(&[Err(gone)]).unwrap();
        }
        remove_with(&[broken, Ok("b false")]).unwrap();
        remove_with(&[broken, Err("INVALID_ZONE: trusted")]).unwrap();
        for rest in [Ok("b true"), broken, Err("Connection timed out")] {
            let said = remove_with(&[broken, rest]).unwrap_err().to_string();
            assert!(said.contains("nft is broken; mend firewalld, or stop it"), "{rest:?}: {said}");
            assert!(said.contains("10.1.0.2") && said.contains("trusted"), "{rest:?}: {said}");
        }
    }

    /// Only the bus's answer "false" says that firewalld does not run.
    #[test]
    fn no_answer_is_no_answer() {
        assert!(owned(Ok("b true".to_owned())).unwrap());
        assert!(!owned(Ok("b false".to_owned())).unwrap());
        let refused = owned(Err("The maximum number of active connections has been reached".to_owned()));
        assert!(refused.unwrap_err().to_string().contains("maximum number"));
        owned(Ok(String::new())).unwrap_err();
    }
}
