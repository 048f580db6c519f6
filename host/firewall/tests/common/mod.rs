//! Shared parts of the tests: a network namespace for each test, and the system's own tools to verify results.

#![allow(dead_code, reason = "each test program uses a part")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "clippy does not see that this module belongs to tests")]

use std::process::Command;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use nix::sched::{CloneFlags, unshare};
use postern_firewall::{AttachmentKey, Nft};

/// Moves the calling thread, and all that it starts, into its own network namespace, because tests of one program
/// run in parallel.
pub fn own_namespace() {
    assert_eq!(
        std::env::var("POSTERN_PRIVATE").as_deref(),
        Ok("1"),
        "run this test by cargo: cargo's runner (tests/in-namespaces) keeps tests away from the machine's network"
    );
    unshare(CloneFlags::CLONE_NEWNET).expect("unshare the network namespace");
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

pub fn nft() -> Nft {
    Nft::open(soon()).unwrap()
}

/// Runs a tool of the Debian package `package` and returns the text that it prints.
pub fn tool(package: &str, script: &str) -> String {
    let output = Command::new("sh").args(["-euc", script]).output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() != Some(127),
        "{script}: a program is missing, try: apt-get install {package}: {complaints}"
    );
    assert!(output.status.success(), "{script}: {complaints}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the whole rule set, as nft prints it.
pub fn ruleset() -> String {
    tool("nftables", "nft list ruleset")
}

pub fn key(container_id: &str) -> AttachmentKey {
    AttachmentKey { network: "mynet".into(), container_id: container_id.into(), ifname: "eth0".into() }
}

pub fn addrs(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}
