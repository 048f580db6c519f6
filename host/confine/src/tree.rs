//! The end of a program with all processes that it has started.

use nix::sys::signal::{Signal, kill as signal, killpg};
use nix::unistd::{Pid, getpid};
use std::collections::BTreeSet;
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

/// The time to wait for killed processes. A process that waits for a dead disk can't be killed. It is left to the
/// kernel, and does not delay this process.
const WITHIN: Duration = Duration::from_millis(500);

/// Kills a program with its process group and all its descendants, also descendants outside of the group. If this
/// process adopts orphans (`PR_SET_CHILD_SUBREAPER`), it also kills the orphans.
pub(crate) fn kill(child: &mut Child) {
    let until = Instant::now() + WITHIN;
    let leader = i32::try_from(child.id()).map(Pid::from_raw);
    let mut pause = Duration::from_micros(200);
    loop {
        // Descendants are searched first, because children of a killed parent are no longer found as descendants. An
        // error means that a process has ended meanwhile, which is fine.
        let below = leader.map(descendants).unwrap_or_default();
        if let Ok(leader) = leader {
            let _ = killpg(leader, Signal::SIGKILL);
        }
        for pid in &below {
            let _ = signal(*pid, Signal::SIGKILL);
        }
        let ended = matches!(child.try_wait(), Ok(Some(_)) | Err(_));
        if ended && below.is_empty() || Instant::now() >= until {
            return;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Returns the living descendants of a program, and the orphans that this process has adopted, with their descendants.
fn descendants(program: Pid) -> BTreeSet<Pid> {
    let processes = processes();
    let adopts = nix::sys::prctl::get_child_subreaper().unwrap_or(false);
    let mut found: BTreeSet<Pid> = BTreeSet::from([program]);
    if adopts {
        found.insert(getpid());
    }
    // Children are added until there are no more.
    loop {
        let more: Vec<Pid> = processes
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            break;
        }
        found.extend(more);
    }
    found.remove(&program);
    found.remove(&getpid());
    found
}

/// Returns all processes that have not ended, each with its parent.
fn processes() -> Vec<(Pid, Pid)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = parent(&stat)?;
            Some((Pid::from_raw(pid), parent))
        })
        .collect()
}

/// Reads the parent from `/proc/PID/stat` (proc(5)); `None` if the process has ended. The process name is in
/// parentheses, and can contain parentheses.
fn parent(stat: &str) -> Option<Pid> {
    let (_, after) = stat.rsplit_once(')')?;
    let mut words = after.split_ascii_whitespace();
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then(|| Pid::from_raw(parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_read_whatever_a_process_is_called() {
        assert_eq!(parent("7 (a) b) S 5 7 7"), Some(Pid::from_raw(5)));
        assert_eq!(parent("7 (sh) Z 5 7 7"), None);
        assert_eq!((parent(""), parent("7 (sh"), parent("7 (sh) S")), (None, None, None));
    }
}
