//! The executable that runtimes start. It runs as a plugin in two cases: a plugin's file starts it with the option
//! `--plugin=NAME`, or a copy or symbolic link with a plugin's name is started. Under its own name it is the command
//! for people: it carries out `postern net`, and executes `postern-dhcpd` for `postern dhcp serve`. For all other
//! commands it executes `postern-admin`. Only `postern-admin` has the argument parser.

#![cfg_attr(not(test), no_main)]

#[cfg(not(test))]
mod entry;
mod net;

use postern_cni::Error;
use postern_gate::Engine;
use postern_gate::plugin_file::{HOST, OPTION};
use postern_gate::streams;
use postern_gate::tap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A sandbox needs this heap, because a sealed sandbox can map no memory.
#[global_allocator]
static HEAP: postern_sandbox::Heap = postern_sandbox::Heap::of_a_run();

/// The sibling that carries out the commands of people.
const ADMIN: &str = "postern-admin";

/// The sibling that keeps DHCP leases alive.
const DHCP: &str = "postern-dhcpd";

/// Carries out the command of the arguments. The first argument is the name by which the program was called.
#[cfg_attr(test, allow(dead_code, reason = "the tests have a program of their own"))]
fn run(arguments: Vec<OsString>) {
    let mut arguments = arguments.into_iter();
    let called = arguments.next().unwrap_or_default();
    if called == tap::NAME {
        tap::main();
        return;
    }
    let first = arguments.next();
    let option = first.as_ref().and_then(|first| first.to_string_lossy().strip_prefix(OPTION).map(str::to_owned));
    // The option has priority over the program's name and the environment: with the option, the name is the host
    // executable's own.
    let name = match &option {
        Some(plugin) => plugin.clone(),
        None => Path::new(&called).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
    };
    if option.is_none() && name == HOST {
        let arguments: Vec<OsString> = first.into_iter().chain(arguments).collect();
        if let Some((verb, rest)) = arguments.split_first()
            && verb == "net"
            && let Some(status) = net::main(rest)
        {
            std::process::exit(status.into());
        }
        match arguments.split_first() {
            // This command has its own program, because it runs sandboxes: a sandbox must not share a process with
            // the commands of people.
            Some((verb, rest)) if verb == "dhcp" && rest.first().is_some_and(|next| next == "serve") => {
                hand_over(DHCP, rest.to_vec());
            }
            _ => hand_over(ADMIN, arguments),
        }
    }
    // The kernel puts the path of the plugin's file behind the option, and a runtime sets `CNI_COMMAND`.
    let rest: Vec<OsString> = arguments.collect();
    let is_file = rest.first().is_some_and(|file| file.as_bytes().contains(&b'/'));
    let words: Vec<OsString> =
        if option.is_some() { rest.into_iter().skip(1).collect() } else { first.into_iter().chain(rest).collect() };
    // A unit file for the native plugin starts the DHCP daemon in this way.
    if name == "dhcp" && words.first().is_some_and(|word| word == "daemon") {
        hand_over(DHCP, words);
    }
    if option.is_some() && !is_file && std::env::var_os("CNI_COMMAND").is_none() {
        postern_gate::say!(
            "postern: {OPTION}NAME is for the first line of a plugin's file; `postern help` shows the commands"
        );
    }
    // A panic is a bug of Postern, but a runtime must still get an error that it can read.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let error = Error::internal(format!("postern itself failed at {place}: this is a bug")).to_json();
        // A runtime that has closed the pipe must not cause a second panic.
        let _ = streams::write(std::io::stdout(), error.as_bytes(), Instant::now() + Duration::from_secs(1));
        postern_gate::say!("{panic}");
        std::process::exit(1);
    }));
    let engine = Engine {
        main: |channel, code| postern_sandbox::child::run(channel, code),
        fingerprint: postern_sandbox::engine::fingerprint,
    };
    postern_gate::end(postern_gate::protocol::main(&name, engine))
}

/// Executes a sibling program, which is beside this program or where `make install` puts it.
fn hand_over(sibling: &str, arguments: Vec<OsString>) -> ! {
    let own = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let beside = own.parent().unwrap_or(Path::new("/")).join(sibling);
    let places = [
        beside,
        PathBuf::from("/usr/local/lib/postern").join(sibling),
        PathBuf::from("/usr/lib/postern").join(sibling),
    ];
    for place in places {
        if place.is_file() {
            let error = Command::new(&place).args(&arguments).exec();
            postern_gate::say!("postern: cannot start {}: {error}", place.display());
            std::process::exit(1);
        }
    }
    let package = if sibling == DHCP { "postern-dhcp" } else { "postern" };
    postern_gate::say!("postern: there is no {sibling} beside {}: install the package {package}", own.display());
    std::process::exit(1);
}
