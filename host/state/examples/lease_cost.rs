//! Measures the cost of a reservation and of a release with 10, 1,000 and 10,000 leases in the directory. Also measures
//! a reservation after another process changed the directory. Prints medians in microseconds.
//!
//! `cargo run --release -p postern-state --example lease_cost [DIRECTORY]` (default: the temporary directory).
#![allow(clippy::disallowed_methods, reason = "measurements open files without postern_state::Dir")]

use postern_state::{LeaseOwner, LeaseStore, Leases};
use postern_types::{LeaseRange, RangeSet, canonicalize};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROUNDS: usize = 500;

fn main() -> Result<(), Box<dyn Error>> {
    let base = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let input = LeaseRange { subnet: "10.0.0.0/8".parse()?, start: None, end: None, gateway: None };
    let sets = canonicalize(vec![vec![input]])?;
    println!("{:>8} {:>12} {:>12} {:>20}", "leases", "reserve", "release", "after others");
    for count in [10, 1_000, 10_000] {
        let directory = base.join(format!("postern-lease-cost-{}", std::process::id()));
        let outcome = measure(&directory, &sets, count);
        std::fs::remove_dir_all(&directory)?;
        let [reserve, release, after_others] = outcome?.map(|time| time.as_secs_f64() * 1e6);
        println!("{count:>8} {reserve:>9.1} us {release:>9.1} us {after_others:>17.1} us");
    }
    Ok(())
}

fn measure(directory: &Path, sets: &[RangeSet], count: usize) -> Result<[Duration; 3], Box<dyn Error>> {
    let store = LeaseStore {
        data_dir: directory.join("data"),
        network: "net".to_owned(),
        index_root: directory.join("index"),
        boot_id: "boot".to_owned(),
    };
    let deadline = Instant::now() + Duration::from_secs(600);
    for number in 0..count {
        let owner = LeaseOwner::new(format!("resident{number}"), "eth0");
        Leases::open(&store)?.reserve_others(&owner, sets, &[], &[], deadline)?;
    }
    let (mut reserves, mut releases) = (Vec::new(), Vec::new());
    for number in 0..ROUNDS {
        let owner = LeaseOwner::new(format!("passing{number}"), "eth0");
        // The leases are opened each time, because each CNI call is a separate process.
        let begun = Instant::now();
        Leases::open(&store)?.reserve_others(&owner, sets, &[], &[], deadline)?;
        reserves.push(begun.elapsed());
        let begun = Instant::now();
        Leases::open(&store)?.release(&owner, deadline)?;
        releases.push(begun.elapsed());
    }
    let mut after_others = Vec::new();
    for number in 0..ROUNDS / 20 {
        let foreign = directory.join("data/net/foreign");
        std::fs::write(&foreign, "")?;
        std::fs::remove_file(&foreign)?;
        let begun = Instant::now();
        Leases::open(&store)?.reserve_others(
            &LeaseOwner::new(format!("late{number}"), "eth0"),
            sets,
            &[],
            &[],
            deadline,
        )?;
        after_others.push(begun.elapsed());
    }
    Ok([median(reserves), median(releases), median(after_others)])
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
