//! Measures the cost of the journal for an ADD and for its DEL. A record is begun, gets the effects and stages
//! of an attachment, and is removed. Prints medians in microseconds. Nothing is synced to a disk (see the crate's
//! documentation).
//!
//! `cargo run --release -p postern-state --example record_cost [DIRECTORY]` (default: a directory in `/dev/shm`, which
//! is in memory as `/run` is).
#![allow(clippy::disallowed_methods, reason = "measurements open files without postern_state::Dir")]

use postern_state::{Header, Record, boot_id};
use serde_json::{Value, json};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROUNDS: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let base = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let root = base.join(format!("postern-record-cost-{}", std::process::id()));
    std::fs::create_dir_all(&root)?;
    let outcome = measure(&root);
    std::fs::remove_dir_all(&root)?;
    for (what, time) in outcome? {
        println!("{what:<44}{:>8.1}", time.as_secs_f64() * 1e6);
    }
    Ok(())
}

/// The effects of a bridge attachment with all options.
fn effects() -> [Value; 5] {
    [
        json!({"effect": "veth", "host": "veth01234567", "mac": "02:00:00:00:00:01"}),
        json!({"effect": "mac-guard"}),
        json!({"effect": "lease", "directory": "/var/lib/cni/networks"}),
        json!({"effect": "masquerade", "backend": "nftables", "addresses": ["10.1.0.2/24"]}),
        json!({"effect": "native", "plugin": "dhcp"}),
    ]
}

fn measure(root: &Path) -> Result<Vec<(&'static str, Duration)>, Box<dyn Error>> {
    let header = Header {
        network: "net".to_owned(),
        container_id: "0123456789abcdef".repeat(4),
        ifname: "eth0".to_owned(),
        boot_id: boot_id()?,
        host_netns_cookie: 1,
        netns_cookie: Some(2),
        netns_path: "/run/netns/0123456789abcdef".to_owned(),
        created: 0,
    };
    let digest = "0123456789abcdef".repeat(4);
    let mut times = [const { Vec::new() }; 5];
    for _ in 0..ROUNDS {
        let mut last = Instant::now();
        let mut stages = times.iter_mut();
        let mut lap = || {
            let now = Instant::now();
            stages.next().into_iter().for_each(|times| times.push(now - last));
            last = now;
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut record = Record::<Value>::open_or_create(root, &header, deadline)?;
        record.begin("bridge", &digest, "", 0)?;
        lap();
        for effect in effects() {
            record.append("bridge", &effect, false)?;
        }
        lap();
        record.made("bridge", vec!["10.1.0.2/24".to_owned()], postern_state::DataPath::default())?;
        record.given("bridge", 0)?;
        drop(record);
        lap();
        // The DEL is a separate process.
        let Some(mut record) = Record::<Value>::open_existing(root, &header.key(), deadline)? else {
            return Err("the record has gone".into());
        };
        lap();
        for effect in record.effects(None) {
            record.mark_removed(effect.seq)?;
        }
        record.end(None)?;
        record.remove_file()?;
        lap();
    }
    let of = times.map(median);
    let [begin, append, stages, ..] = of;
    let names = [
        "record: begin",
        "note 5 effects",
        "stages, and close",
        "open the record for DEL",
        "note 5 removed effects, end, remove",
    ];
    let mut rows: Vec<_> = names.into_iter().zip(of).collect();
    rows.insert(3, ("journal of an ADD", begin + append + stages));
    rows.push(("journal of a DEL", of.iter().skip(3).sum()));
    Ok(rows)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
