//! Calls on the system's message bus, by a helper: the question if firewalld runs, and three methods of firewalld, in
//! granted zones.
//!
//! The gate never has a connection to the bus, because root can start units over a connection. The helper has no
//! connection either. It runs `busctl`, only with arguments that this file makes and checks.

use crate::program::{Environment, Program, locate};
use std::net::IpAddr;
use std::path::PathBuf;

/// The name of firewalld on the bus.
pub const FIREWALLD: &str = "org.fedoraproject.FirewallD1";

/// The program that makes a call. It comes with systemd.
pub const BUSCTL: &str = "busctl";

/// A method of firewalld's interface for zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Put a source in a zone.
    AddSource,
    /// Remove a source from a zone.
    RemoveSource,
    /// Ask if a zone has a source.
    QuerySource,
}

impl Method {
    const ALL: [Self; 3] = [Self::AddSource, Self::RemoveSource, Self::QuerySource];

    /// The method's name on the bus.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AddSource => "addSource",
            Self::RemoveSource => "removeSource",
            Self::QuerySource => "querySource",
        }
    }
}

/// The calls that a helper may make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bus {
    /// The program.
    pub(crate) path: PathBuf,
    zones: Vec<String>,
}

impl Bus {
    /// Returns the calls with these zones; `None` if `busctl` is not installed.
    pub fn locate(zones: Vec<String>) -> Option<Self> {
        Some(Self { path: locate(BUSCTL)?, zones })
    }

    /// True if these arguments make one of the allowed calls.
    pub(crate) fn allows(&self, arguments: &[String], environment: &Environment, input: &str) -> bool {
        *environment == Environment::Empty
            && input.is_empty()
            && (arguments == arguments_of_question() || self.is_granted_call(arguments))
    }

    fn is_granted_call(&self, arguments: &[String]) -> bool {
        let [.., zone, source] = arguments else { return false };
        // The source must be one address, in the form of [`source`]: no network, link, or set of addresses.
        let address = source.rsplit_once('/').and_then(|(address, _)| address.parse().ok());
        self.zones.contains(zone)
            && address.is_some_and(|address| {
                Method::ALL.into_iter().any(|method| arguments == arguments_of_call(method, zone, address))
            })
    }
}

/// With these options a call starts no unit, and asks for no password.
const OPTIONS: [&str; 4] = ["--system", "--auto-start=no", "--allow-interactive-authorization=no", "call"];

fn with_options(rest: &[&str]) -> Vec<String> {
    OPTIONS.iter().chain(rest).map(|text| (*text).to_owned()).collect()
}

fn arguments_of_question() -> Vec<String> {
    let bus = "org.freedesktop.DBus";
    with_options(&[bus, "/org/freedesktop/DBus", bus, "NameHasOwner", "s", FIREWALLD])
}

fn arguments_of_call(method: Method, zone: &str, address: IpAddr) -> Vec<String> {
    let interface = format!("{FIREWALLD}.zone");
    let path = "/org/fedoraproject/FirewallD1";
    with_options(&[FIREWALLD, path, &interface, method.name(), "ss", zone, &source(address)])
}

/// Returns an address as firewalld and the native plugin write it.
pub fn source(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}

fn program(arguments: Vec<String>) -> Option<Program> {
    Some(Program { path: locate(BUSCTL)?, arguments, environment: Environment::Empty, input: String::new() })
}

/// Returns the program that asks if firewalld runs; `None` if `busctl` is not installed.
pub fn question() -> Option<Program> {
    program(arguments_of_question())
}

/// Returns the program that calls a method for one address; `None` if `busctl` is not installed.
pub fn call(method: Method, zone: &str, address: IpAddr) -> Option<Program> {
    program(arguments_of_call(method, zone, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_methods_in_granted_zones_and_nothing_else() {
        let bus = Bus { path: "/usr/bin/busctl".into(), zones: vec!["trusted".to_owned(), "--json=short".to_owned()] };
        let (v4, v6): (IpAddr, IpAddr) = ("10.1.0.2".parse().unwrap(), "fd00::2".parse().unwrap());
        let allows = |arguments: &[String]| bus.allows(arguments, &Environment::Empty, "");
        assert!(allows(&arguments_of_question()));
        for method in Method::ALL {
            assert!(
                allows(&arguments_of_call(method, "trusted", v4)) && allows(&arguments_of_call(method, "trusted", v6))
            );
            assert!(!allows(&arguments_of_call(method, "public", v4)), "a zone that is not granted");
        }
        let good = arguments_of_call(Method::AddSource, "trusted", v4);
        let changed = |at: usize, text: &str| {
            let mut words = good.clone();
            words[at] = text.to_owned();
            words
        };
        for (at, text) in [
            (0, "--address=unix:path=/tmp/x"),
            (1, "--auto-start=yes"),
            (3, "set-property"),
            (4, "org.freedesktop.systemd1"),
            (5, "/"),
            (6, "org.fedoraproject.FirewallD1"),
            (7, "removeInterface"),
            (8, "s"),
            (10, "0.0.0.0/0"),
            (10, "10.1.0.2/24"),
            (10, "10.1.0.2"),
            (10, "10.1.0.02/32"),
            (10, "ipset:all"),
            (10, "fd00::2/32"),
        ] {
            assert!(!allows(&changed(at, text)), "{at} {text}");
        }
        assert!(!allows(&good[1..]) && !allows(&[&good[..], &["x".to_owned()]].concat()) && !allows(&[]));
        assert!(
            !bus.allows(&good, &Environment::Inherited(Vec::new()), "") && !bus.allows(&good, &Environment::Empty, "x")
        );
    }
}
