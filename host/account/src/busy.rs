//! Who is at work: the processes that hold the lock of a record or of a network's leases, and since when. Reading only.
//!
//! A process is believed to hold a lock if the kernel says so of one of its open files (`/proc/PID/fdinfo`): device and
//! inode of the lock can't be chosen by a container, as the path of an open file can.
#![expect(clippy::disallowed_methods, reason = "`/proc`, and what processes have mounted")]

use crate::utc::utc;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a run may take until it counts as stuck. One that is well takes milliseconds, or seconds where a native IPAM
/// program asks the network.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long the search may take.
const WITHIN: Duration = Duration::from_secs(5);

/// Open files of a process that are looked at.
const MOST_FILES: usize = 65_536;

/// Ticks of a second in `/proc/PID/stat` (`USER_HZ`).
const TICKS: u64 = 100;

/// A file by device and inode.
pub type File = (u64, u64);

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Its number in this PID namespace.
    pub pid: u32,
    /// What it calls itself: a run of the host says its verb and its plugin.
    pub name: String,
    /// When it was started, milliseconds since 1970.
    pub since: u64,
    /// For how long it has been running.
    #[serde(skip)]
    pub age: Duration,
    /// Somebody has stopped it (`SIGSTOP`).
    pub is_stopped: bool,
}

impl Holder {
    /// The verb of a run of the host; `None` of any other program.
    pub fn verb(&self) -> Option<&str> {
        let (verb, _) = self.name.split_once(' ')?;
        ["ADD", "DEL", "CHECK", "GC", "STATUS"].contains(&verb).then_some(verb)
    }
}

/// Who keeps something, in words.
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

/// What ends it. Whatever a run that is killed leaves, the next DEL or ADD removes, or `postern gc`.
pub fn remedy(holders: &[Holder]) -> String {
    let signal = if holders.iter().any(|holder| holder.is_stopped) { "CONT" } else { "KILL" };
    let processes: Vec<String> = holders.iter().map(|holder| holder.pid.to_string()).collect();
    format!("kill -{signal} {}", processes.join(" "))
}

/// The processes that hold locks of these files. Those that can't be looked at are not among them.
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

/// Which of these files a process has open and locked.
fn locked_by(process: &Path, files: &[File]) -> Vec<File> {
    let mut locked = Vec::new();
    for entry in fs::read_dir(process.join("fd")).into_iter().flatten().flatten().take(MOST_FILES) {
        // Regular files have paths; a socket or a pipe has none, and most descriptors are those.
        if !fs::read_link(entry.path()).is_ok_and(|target| target.is_absolute()) {
            continue;
        }
        let info = fs::read_to_string(process.join("fdinfo").join(entry.file_name())).unwrap_or_default();
        locked.extend(info.lines().filter_map(lock).filter(|file| files.contains(file)));
    }
    locked
}

/// The file of a line `lock: 1: FLOCK  ADVISORY  WRITE 123 00:1a:456 0 EOF`.
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

/// Name, state, and time since boot at which it was started, of `proc_pid_stat(5)`. The name may have anything in it.
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
        // Where a file system tells another device than its locks do, nobody is found.
        if let Some([one]) = found.get(&key).map(Vec::as_slice) {
            assert_eq!(one.pid, std::process::id());
            assert!(one.verb().is_none() && !one.is_stopped);
        }
        fs::remove_file(&path).unwrap();
    }
}
