//! The cost of proving that code is unchanged since it was compiled: `cargo run --release -p postern-gate --example
//! verify_cost`.
//!
//! The figures are medians of 300 rounds in µs for code of 600 KB. One way reads all of the code. The other way uses
//! the note of an earlier reading.
#![allow(clippy::disallowed_methods, reason = "measurements open files without postern_state::Dir")]
#![allow(clippy::unwrap_used, reason = "a measurement, not part of the host")]

use postern_gate::catalog::{self, Manifest, Names};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const ROUNDS: usize = 300;
const SIZE: usize = 600_000;

fn main() {
    let dir = std::env::temp_dir().join(format!("postern-verify-cost-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let code: Vec<u8> = (0..SIZE).map(|at| u8::try_from(at % 251).unwrap_or(0)).collect();
    let manifest = Manifest {
        plugin: "demo".to_owned(),
        digest: catalog::sha256(b"component"),
        code: catalog::sha256(&code),
        size: SIZE as u64,
        engine: "engine".to_owned(),
        imports: Names::List(vec!["postern:cni/bridge@0.1.0#find".to_owned(); 48]),
        wasi: catalog::WasiExtent::Small,
        versions: None,
        version: None,
        policy: None,
        postern: "0".to_owned(),
    };
    for (path, bytes) in [
        (catalog::code_path(&dir, "demo"), code),
        (Manifest::path(&dir, "demo"), serde_json::to_vec_pretty(&manifest).unwrap()),
    ] {
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    }
    let state = dir.join("state");
    std::fs::create_dir(&state).unwrap();
    // No note is written for a file that has just changed, because a second change within one step of the clock would
    // not be seen.
    std::thread::sleep(Duration::from_millis(2100));
    println!(
        "open (owner, modes, manifest, size, engine): {} µs",
        median(|| drop(catalog::open(&dir, "demo", "engine")))
    );
    let verify =
        |state: Option<&Path>| catalog::open(&dir, "demo", "engine").and_then(|code| code.verify(state)).unwrap();
    println!("open and verify by reading: {} µs", median(|| drop(verify(None))));
    verify(Some(&state));
    println!("open and verify by the note: {} µs", median(|| drop(verify(Some(&state)))));
    std::fs::remove_dir_all(&dir).unwrap();
}

fn median(mut act: impl FnMut()) -> u128 {
    let mut took: Vec<u128> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            act();
            start.elapsed().as_micros()
        })
        .collect();
    took.sort_unstable();
    took.get(ROUNDS / 2).copied().unwrap_or_default()
}
