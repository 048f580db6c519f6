//! Killing a program with all that it has started.

use nix::sys::signal::{Signal, kill as signal, killpg};
use nix::unistd::{Pid, getpid};
use std::collections::BTreeSet;
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

/// How long the end of what was killed is waited for. A process that waits for a dead disk can't be killed: it is left to
/// the kernel then, and does not keep this process.
const WITHIN: Duration = Duration::from_millis(500);

/// Kills a program with its process group and all its descendants, those that have left the group included. Where this
/// process adopts orphans (`PR_SET_CHILD_SUBREAPER`), so are those whose parents have ended.
pub(crate) fn kill(child: &mut Child) {
    let until = Instant::now() + WITHIN;
    let leader = i32::try_from(child.id()).map(Pid::from_raw);
    let mut pause = Duration::from_micros(200);
    loop {
        // Looked for first: whose parent is killed is nobody's descendant any more. An error means that a process has ended
        // meanwhile, which is what is wanted.
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

/// The living descendants of a program, and the orphans that this process has adopted, with theirs.
fn descendants(program: Pid) -> BTreeSet<Pid> {
    let processes = processes();
    let adopts = nix::sys::prctl::get_child_subreaper().unwrap_or(false);
    let mut found: BTreeSet<Pid> = BTreeSet::from([program]);
    if adopts {
        found.insert(getpid());
    }
    // Children of what was found, until there are no more.
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

/// All processes that have not ended, each with its parent.
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

/// The parent in `/proc/PID/stat` (proc(5)), unless the process has ended. Its name stands in parentheses, and can have some.
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
