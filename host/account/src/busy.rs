//! Finds the processes that hold the lock of a record or of a network's leases. Changes nothing.
//!
//! A process counts as holder of a lock if the kernel shows the lock at an open file of the process
//! (`/proc/PID/fdinfo`). A container can't choose device and inode of the lock, but it can choose the path of an open
//! file.
#![expect(clippy::disallowed_methods, reason = "reads `/proc`")]

use crate::utc::utc;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time after which a run counts as stuck. A normal run takes milliseconds, or seconds if a native IPAM program
/// uses the network.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The longest time for the search.
const WITHIN: Duration = Duration::from_secs(5);

/// The largest number of open files of a process that are looked at.
const MOST_FILES: usize = 65_536;

/// Ticks of a second in `/proc/PID/stat` (`USER_HZ`).
const TICKS: u64 = 100;

/// A file by device and inode.
pub type File = (u64, u64);

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Its process ID in this PID namespace.
    pub pid: u32,
    /// Its own name. The name of a run of the host executable has verb and plugin.
    pub name: String,
    /// Its start time, milliseconds since 1970.
    pub since: u64,
    /// The time since its start.
    #[serde(skip)]
    pub age: Duration,
    /// True if the process was stopped (`SIGSTOP`).
    pub is_stopped: bool,
}

impl Holder {
    /// Returns the verb of a run of the host executable; `None` for any other program.
    pub fn verb(&self) -> Option<&str> {
        let (verb, _) = self.name.split_once(' ')?;
        ["ADD", "DEL", "CHECK", "GC", "STATUS"].contains(&verb).then_some(verb)
    }
}

/// Returns the holders of an object in words.
pub fn words(holders: &[Holder], what: &str) -> String {
    let each = holders.iter().map(|holder| {
        let (_, time) = utc(holder.since);
        let time = time.split('.').next().unwrap_or_default();
        let stopped = if holder.is_stopped { ", stopped" } else { "" };
        format!(
            "process {} ({}{stopped}), started at {time} UTC, {} s ago",
            holder.pid,
            holder.name,
            holder.age.as_secs()
        )
    });
    format!("{what} is locked by {}", each.collect::<Vec<_>>().join(" and "))
}

/// Returns the command that kills the holders, or that continues stopped holders. The next DEL or ADD, or `postern gc`,
/// removes the effects of a killed run.
pub fn remedy(holders: &[Holder]) -> String {
    let signal = if holders.iter().any(|holder| holder.is_stopped) { "CONT" } else { "KILL" };
    let processes: Vec<String> = holders.iter().map(|holder| holder.pid.to_string()).collect();
    format!("kill -{signal} {}", processes.join(" "))
}

/// Returns the processes that hold locks of these files. Processes that can't be looked at are left out.
pub fn holders(files: &[File]) -> BTreeMap<File, Vec<Holder>> {
    let mut found: BTreeMap<File, Vec<Holder>> = BTreeMap::new();
    if files.is_empty() {
        return found;
    }
    let deadline = Instant::now() + WITHIN;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if Instant::now() > deadline {
            break;
        }
        for file in locked_by(&entry.path(), files) {
            let holders = found.entry(file).or_default();
            if !holders.iter().any(|known| known.pid == pid) {
                holders.extend(holder(pid, &entry.path()));
            }
        }
    }
    found
}

/// Returns the given files that a process has open and locked.
fn locked_by(process: &Path, files: &[File]) -> Vec<File> {
    let mut locked = Vec::new();
    for entry in fs::read_dir(process.join("fd")).into_iter().flatten().flatten().take(MOST_FILES) {
        // Regular files have absolute paths. Sockets and pipes have no path. Most descriptors are sockets or pipes.
        if !fs::read_link(entry.path()).is_ok_and(|target| target.is_absolute()) {
            continue;
        }
        let info = fs::read_to_string(process.join("fdinfo").join(entry.file_name())).unwrap_or_default();
        locked.extend(info.lines().filter_map(lock).filter(|file| files.contains(file)));
    }
    locked
}

/// Returns the file of a line `lock: 1: FLOCK  ADVISORY  WRITE 123 00:1a:456 0 EOF`.
fn lock(line: &str) -> Option<File> {
    let words: Vec<&str> = line.strip_prefix("lock:")?.split_whitespace().collect();
    let [_, "FLOCK", _, "WRITE", _, place, ..] = words.as_slice() else { return None };
    let mut parts = place.split(':');
    let major = u32::from_str_radix(parts.next()?, 16).ok()?;
    let minor = u32::from_str_radix(parts.next()?, 16).ok()?;
    let inode = parts.next()?.parse().ok()?;
    Some((nix::libc::makedev(major, minor), inode))
}

fn holder(pid: u32, process: &Path) -> Option<Holder> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    let (name, state, started) = read_stat(&stat)?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    let age = Duration::try_from_secs_f64(uptime).ok()?.saturating_sub(started);
    let since = postern_gate::upkeep::now().saturating_sub(u64::try_from(age.as_millis()).unwrap_or_default());
    Some(Holder { pid, name, since, age, is_stopped: state == 'T' })
}

/// Returns name, state, and start time since boot, from `proc_pid_stat(5)`. The name may contain any character.
fn read_stat(stat: &str) -> Option<(String, char, Duration)> {
    let name = stat.get(stat.find('(')?.saturating_add(1)..stat.rfind(')')?)?.to_owned();
    let mut rest = stat.get(stat.rfind(')')?.saturating_add(1)..)?.split_whitespace();
    let state = rest.next()?.chars().next()?;
    let ticks: u64 = rest.nth(18)?.parse().ok()?;
    Some((name, state, Duration::from_millis(ticks.saturating_mul(1000 / TICKS))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn locks_are_read_as_the_kernel_writes_them() {
        let line = "lock:\t1: FLOCK  ADVISORY  WRITE 4711 00:1a:456 0 EOF";
        assert_eq!(lock(line), Some((nix::libc::makedev(0, 0x1a), 456)));
        for other in ["pos:\t0", "lock:\t1: POSIX  ADVISORY  WRITE 1 00:1a:456 0 EOF", "lock:\t1: FLOCK", "lock:"] {
            assert_eq!(lock(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_may_have_parentheses() {
        let fields = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 500 20";
        let (name, state, started) = read_stat(&format!("7 (a) (b) T {fields}")).unwrap();
        assert_eq!((name.as_str(), state, started), ("a) (b", 'T', Duration::from_secs(5)));
        assert!(read_stat("7 (a").is_none() && read_stat("").is_none());
    }

    #[test]
    fn whoever_holds_a_lock_is_found() {
        let path = std::env::temp_dir().join(format!("postern-busy-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        let meta = file.metadata().unwrap();
        let key = (meta.dev(), meta.ino());
        assert!(holders(&[key]).is_empty());
        file.lock().unwrap();
        let found = holders(&[key]);
        // On some file systems, a file and its lock have different devices. Then no process is found.
        if let Some([one]) = found.get(&key).map(Vec::as_slice) {
            assert_eq!(one.pid, std::process::id());
            assert!(one.verb().is_none() && !one.is_stopped);
        }
        fs::remove_file(&path).unwrap();
    }
}
