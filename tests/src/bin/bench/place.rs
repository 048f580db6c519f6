//! Copies the programs of all sides into one directory, where they are measured.
//!
//! The kernel keeps a file in larger or smaller pieces of memory, depending on how the file was written or read. A
//! program in larger pieces has fewer page faults, and starts up to 280 µs earlier. So `cp` writes the copies of all
//! sides into the same file system, directly before the measurement. Then all pages of the copies are in memory.

use anyhow::{Context, Result, ensure};
use postern_tests::copy_bin;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Both directories of plugins, netavark's package, and a description of the copies.
pub struct Place {
    pub native: PathBuf,
    pub ours: PathBuf,
    pub netavark: Option<PathBuf>,
    pub state: String,
}

/// Copies all sides into a directory. An old copy is removed.
pub fn copy(native: &Path, ours: &Path, netavark: Option<&Path>, directory: &Path) -> Result<Place> {
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    std::fs::create_dir_all(directory)?;
    let directory = directory.canonicalize()?;
    let [to_native, to_ours, to_netavark] = ["native", "ours", "netavark"].map(|side| directory.join(side));
    let mut copies = vec![(native, &to_native)];
    copies.extend(netavark.map(|package| (package, &to_netavark)));
    let copies: Vec<String> = copies
        .into_iter()
        .map(|(from, to)| format!("cp -a --reflink=never --sparse=never {} {}", from.display(), to.display()))
        .collect();
    // `--reflink=never`: a copy that shared blocks with the original could keep pages that other programs map.
    let script = format!(
        "umask 022; {}; {}; sync -f {}",
        copies.join("; "),
        copy_bin(ours, &to_ours.display().to_string()),
        directory.display()
    );
    ensure!(Command::new("sh").args(["-ec", &script]).status()?.success(), "the plugins can't be copied: {script}");
    let to_netavark = netavark.map(|_| to_netavark);
    [&to_native, &to_ours].into_iter().chain(&to_netavark).try_for_each(|directory| are_in_memory(directory))?;
    // Each run of our plugins reads and hashes code that has changed within the last two seconds.
    std::thread::sleep(Duration::from_millis(2_500));
    let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(&directory).output()?;
    let kind = String::from_utf8_lossy(&kind.stdout).trim().to_owned();
    let state = format!("all sides copied afresh into one directory ({kind}), all pages in memory");
    Ok(Place { native: to_native, ours: to_ours, netavark: to_netavark, state })
}

/// Fails if a page of a file is not in memory.
fn are_in_memory(directory: &Path) -> Result<()> {
    let find = Command::new("find")
        .arg(directory)
        .args(["-type", "f", "-size", "+0", "-exec", "fincore", "--noheadings", "--raw", "--output", "PAGES,SIZE,FILE"])
        .args(["--bytes", "{}", "+"])
        .output()?;
    ensure!(find.status.success(), "fincore (package util-linux): {}", String::from_utf8_lossy(&find.stderr));
    let text = String::from_utf8(find.stdout)?;
    ensure!(!text.is_empty(), "{} is empty", directory.display());
    for line in text.lines() {
        let mut words = line.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (pages, size) = number().zip(number()).with_context(|| line.to_owned())?;
        ensure!(pages == size.div_ceil(4096), "not all pages of a fresh copy are in memory: {line}");
    }
    Ok(())
}
