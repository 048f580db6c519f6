//! The cost of the audit log for a run: `cargo run --release -p postern-gate --example audit_cost`.
//!
//! A bridge ADD makes about 20 operations, of which 8 change something. The first figure is for such a run. The second
//! figure is for a run that only reads: such a run writes all lines at its end. Both are medians of 1000 runs in µs,
//! with the log in the directory of temporary files.
#![allow(clippy::disallowed_methods, reason = "measurements open files without postern_state::Dir")]
#![allow(clippy::unwrap_used, reason = "a measurement, not part of the host")]

use postern_cni::Verb;
use postern_gate::audit::{Audit, AuditEntry};
use postern_types::{OpError, Reply, ops};
use std::path::Path;
use std::time::{Duration, Instant};

const RUNS: usize = 1000;
const LINES: usize = 20;
const CHANGING: usize = 8;

fn main() {
    let dir = std::env::temp_dir().join(format!("postern-audit-cost-{}", std::process::id()));
    std::fs::DirBuilder::new().create(&dir).unwrap();
    std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    println!("{LINES} lines, {CHANGING} of them changing: {} µs", measure(&dir, CHANGING));
    println!("{LINES} lines, none of them changing: {} µs", measure(&dir, 0));
    std::fs::remove_dir_all(&dir).unwrap();
}

fn measure(logs: &Path, changing: usize) -> u128 {
    let mut took: Vec<u128> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run(logs, changing);
            start.elapsed().as_micros()
        })
        .collect();
    took.sort_unstable();
    took.get(RUNS / 2).copied().unwrap_or_default()
}

fn run(logs: &Path, changing: usize) {
    let outcome: Result<Reply, OpError> = Reply::of(&());
    let changed = ops::Forwarding::Enable.into();
    let reading = ops::Bridge::Find { name: "cni0".to_owned() }.into();
    let mut audit = Audit::new(logs, "net/0123456789abcdef/eth0".to_owned());
    for line in 0..LINES {
        audit.note(&AuditEntry {
            verb: Verb::Add,
            plugin: "bridge",
            digest: "59cfe3724bf0df813874655b6314093078a2ad3ee05359cabca8eeffcf34c6fa",
            operation: if line < changing { &changed } else { &reading },
            rule: Some("bridge.names"),
            from: Some("shipped"),
            outcome: &outcome,
            took: Duration::from_micros(50),
        });
    }
}
