//! Leases under processes that run at the same time and are killed at any instant.
#![allow(clippy::disallowed_methods, reason = "tests open files without postern_state::Dir")]
#![allow(clippy::unwrap_used, reason = "Clippy does not count the helpers of a test program as test code")]

use postern_state::{LeaseOwner, LeaseStore, Leases};
use postern_types::{LeaseRange, RangeSet, canonicalize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The environment variables of a worker: its directory, and its name.
const PLACE: &str = "POSTERN_TEST_PLACE";
const NAME: &str = "POSTERN_TEST_NAME";

fn store(place: &Path) -> LeaseStore {
    LeaseStore {
        data_dir: place.join("data"),
        network: "net".to_owned(),
        index_root: place.join("index"),
        boot_id: "boot".to_owned(),
    }
}

fn sets() -> Vec<RangeSet> {
    let input = LeaseRange { subnet: "10.0.0.0/22".parse().unwrap(), start: None, end: None, gateway: None };
    canonicalize(vec![vec![input]]).unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn place(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("postern-state-{name}-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    place
}

fn start(worker: &str, place: &Path, name: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", worker, "--ignored", "--quiet"])
        .env(PLACE, place)
        .env(NAME, name.to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

fn task() -> (PathBuf, String) {
    (PathBuf::from(std::env::var_os(PLACE).unwrap()), std::env::var(NAME).unwrap())
}

/// Returns the text of each lease file by address. The text names the lease's owner. The index is not read.
fn files(place: &Path) -> HashMap<String, String> {
    let entries = std::fs::read_dir(place.join("data/net")).unwrap().map(|entry| entry.unwrap());
    entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            name.parse::<std::net::IpAddr>().ok()?;
            Some((name, std::fs::read_to_string(entry.path()).unwrap()))
        })
        .collect()
}

#[test]
#[ignore = "run as a process of its own by hundred_processes_get_distinct_addresses"]
fn reserves_one() {
    let (place, name) = task();
    Leases::open(&store(&place))
        .unwrap()
        .reserve_others(&LeaseOwner::new(name, "eth0"), &sets(), &[], &[], soon())
        .unwrap();
}

#[test]
#[ignore = "run as a process of its own by kills_leave_no_false_answer"]
fn comes_and_goes() {
    let (place, name) = task();
    let until = soon();
    for round in 0.. {
        let owner = LeaseOwner::new(format!("{name}-{}", round % 5), "eth0");
        let leases = Leases::open(&store(&place)).unwrap();
        leases.release(&owner, until).unwrap();
        leases.reserve_others(&owner, &sets(), &[], &[], until).unwrap();
    }
}

#[test]
fn hundred_processes_get_distinct_addresses() {
    let place = place("distinct");
    let workers: Vec<Child> = (0..100).map(|number| start("reserves_one", &place, number)).collect();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    let mut owners: Vec<String> = files(&place).into_values().collect();
    owners.sort();
    owners.dedup();
    assert_eq!(owners.len(), 100);
    std::fs::remove_dir_all(place).unwrap();
}

#[test]
fn kills_leave_no_false_answer() {
    let place = place("kills");
    let leases = Leases::open(&store(&place)).unwrap();
    for round in 0..40 {
        let mut workers: Vec<Child> = (0..2).map(|number| start("comes_and_goes", &place, number)).collect();
        std::thread::sleep(Duration::from_micros(20_000 + round * 977));
        for worker in &mut workers {
            worker.kill().unwrap();
            worker.wait().unwrap();
        }
        let files = files(&place);
        assert!(files.values().all(|text| text.ends_with("\r\neth0")), "a torn file: {files:?}");
        for owner in
            (0..2).flat_map(|number| (0..5).map(move |slot| LeaseOwner::new(format!("{number}-{slot}"), "eth0")))
        {
            let mut held: Vec<String> = leases.held(&owner, soon()).unwrap().iter().map(ToString::to_string).collect();
            let text = format!("{}\r\neth0", owner.container_id);
            let mut expected: Vec<String> =
                files.iter().filter(|(_, content)| **content == text).map(|(ip, _)| ip.clone()).collect();
            held.sort();
            expected.sort();
            assert_eq!(held, expected, "{owner:?}");
        }
    }
    assert!(!files(&place).is_empty(), "the workers did nothing");
    std::fs::remove_dir_all(place).unwrap();
}
