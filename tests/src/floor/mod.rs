//! The floor of a run: only the necessary work of an ADD or a DEL, mostly netlink messages to the kernel. The time of
//! a plugin beyond the floor is avoidable. `tests/bench` links the floor like the host executable.
//!
//! `postern-floor [--inside] add|del PARTS NETNS BRIDGE ADDRESS NAME`. PARTS is a list of words, separated by `+`:
//!
//! * `none`: only reads these arguments. `lease`: the lease files of an address.
//! * `loopback`, `bridge`, `ptp`, `macvlan`: the link with its address. `macvlan-alone`: a macvlan without an address.
//!   `BRIDGE` is the bridge, or the parent link. `route`: the default route.
//! * `masquerade`, `masquerade-iptables`, `guard`, `portmap-nftables`, `portmap`, `firewall`: rules in existing tables.
//! * `bandwidth`, `tuning`: changes of an existing pair. `BRIDGE` is the host end.
//!
//! With `--inside` the program prints the wall time and processor time (µs) and the page faults of the work. The start
//! of the program and the opening of the namespaces don't count.

mod links;
mod nft;

use crate::measure::{Sample, usage};
use anyhow::{Context, Result, bail};
pub use nft::Behind;
use nft::{Guard, Masquerade, Nft};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::resource::UsageWho;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// The directory of leases.
const LEASES: &str = "/run/floor-leases";

/// The arguments of the work.
#[derive(Clone, Debug)]
pub struct Task {
    /// The words of PARTS.
    pub parts: String,
    /// The path of the container's namespace.
    pub netns: String,
    /// The bridge, the parent link, or the host end.
    pub bridge: String,
    /// The address, with its prefix length.
    pub address: ipnet::Ipv4Net,
    /// The name of the link in the container, and of the attachment.
    pub name: String,
}

/// Returns the path of `postern-floor`: `$POSTERN_FLOOR`, or beside the running program.
fn program() -> Result<PathBuf> {
    match std::env::var_os("POSTERN_FLOOR") {
        Some(path) => Ok(path.into()),
        None => Ok(std::env::current_exe()?.with_file_name("postern-floor")),
    }
}

/// Returns the command of `postern-nothing`, which ends at once. It lies beside `postern-floor`.
///
/// # Errors
/// The running program has no path.
pub fn nothing() -> Result<Command> {
    Ok(Command::new(program()?.with_file_name("postern-nothing")))
}

/// True if `postern-floor` is built.
#[must_use]
pub fn is_built() -> bool {
    program().is_ok_and(|program| program.is_file())
}

impl Task {
    /// Returns the command that does this task.
    ///
    /// # Errors
    /// The running program has no path.
    pub fn command(&self, verb: &str) -> Result<Command> {
        let mut command = Command::new(program()?);
        let address = self.address.to_string();
        command.args([verb, &self.parts, &self.netns, &self.bridge, &address, &self.name]);
        Ok(command)
    }

    /// Measures the work alone.
    ///
    /// # Errors
    /// The program fails.
    pub fn measure(&self, verb: &str) -> Result<Sample> {
        let whole = self.command(verb)?;
        let output = Command::new(whole.get_program()).arg("--inside").args(whole.get_args()).output();
        let output = output.with_context(|| format!("{whole:?}: tests/bench builds it"))?;
        let text = String::from_utf8(output.stdout)?;
        let numbers: Vec<i64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        match numbers[..] {
            [wall, cpu, faults] => Ok(Sample { wall, cpu, faults }),
            _ => bail!("{whole:?}: {text}{}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

/// Does the work that the arguments name, and prints figures with `--inside`.
///
/// # Errors
/// The arguments are wrong, or the kernel refuses the work.
#[allow(clippy::print_stdout, reason = "its output is figures")]
pub fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (inside, words) = match words.split_first() {
        Some((&"--inside", rest)) => (true, rest),
        _ => (false, &words[..]),
    };
    let [verb @ ("add" | "del"), parts, netns, bridge, address, name] = words[..] else {
        bail!("usage: postern-floor [--inside] add|del PARTS NETNS BRIDGE ADDRESS NAME")
    };
    let [list, netns, bridge, name] = [parts, netns, bridge, name].map(str::to_owned);
    let task = Task { parts: list, netns, bridge, address: address.parse()?, name };
    let parts: Vec<&str> = parts.split('+').collect();
    let place = match parts.iter().any(|part| links::PARTS.contains(part)) {
        true => Some(links::Place::open(&task, verb)?),
        false => None,
    };
    let (before, start) = (usage(UsageWho::RUSAGE_SELF)?, Instant::now());
    // After a deletion, closing this socket waits for the kernel. So the socket is closed after the links are removed,
    // as in our plugins.
    let mut nft = None;
    // DEL removes rules before links.
    let order: Vec<&str> = if verb == "add" { parts } else { parts.into_iter().rev().collect() };
    for part in order {
        match &place {
            Some(place) if links::PARTS.contains(&part) => place.act(part, verb, &task)?,
            _ => other(part, verb, &task, &mut nft).with_context(|| part.to_owned())?,
        }
    }
    drop(nft);
    if inside {
        let wall = start.elapsed().as_micros();
        let Sample { cpu, faults, .. } = usage(UsageWho::RUSAGE_SELF)?.beyond(before);
        println!("{wall} {cpu} {faults}");
    }
    Ok(())
}

/// Does a part that concerns no link.
fn other(part: &str, verb: &str, task: &Task, socket: &mut Option<Nft>) -> Result<()> {
    match part {
        "none" => return Ok(()),
        "lease" => return lease(task, verb),
        _ => {}
    }
    let nft = match socket {
        Some(nft) => nft,
        None => socket.insert(Nft::open()?),
    };
    let name = task.name.as_str();
    match (part, verb) {
        ("masquerade", "add") => nft.add_masquerade(&Masquerade { address: task.address, name }),
        ("masquerade", _) => nft.delete_masquerade(name),
        ("guard", "add") => {
            nft.add_guard(&Guard { id: &format!("floor-{name}"), port: &format!("e{name}"), mac: [2, 0, 0, 0, 0, 1] })
        }
        ("guard", _) => nft.delete_guard(&format!("floor-{name}")),
        (part, verb) => {
            let behind = Behind::of(part).with_context(|| format!("there is no part {part}"))?;
            if verb == "add" { nft.add_behind(&behind) } else { nft.delete_behind(&behind) }
        }
    }
}

/// Makes or removes the lease files of an address, in host-local's form.
fn lease(task: &Task, verb: &str) -> Result<()> {
    fs::create_dir_all(LEASES)?;
    let address = task.address.addr().to_string();
    let file = |name: &str| format!("{LEASES}/{name}");
    let lock = File::create(file("lock"))?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
    if verb == "add" {
        File::create_new(file(&address))?.write_all(format!("{}\r\neth0", task.name).as_bytes())?;
        fs::write(file("last_reserved_ip.0"), &address)?;
    } else {
        fs::remove_file(file(&address))?;
    }
    Ok(())
}
