//! Passes the names of the shipped plugins, the directories of `guests/`, to `postern doctor`.

#[path = "../link.rs"]
mod link;

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    // The path is read at run time: a build directory that was moved with its tree may have this program already
    // compiled.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").ok_or(std::io::ErrorKind::NotFound)?;
    let guests = Path::new(&own).join("../../guests");
    println!("cargo::rerun-if-changed={}", guests.display());
    println!("cargo::rerun-if-changed=../link.rs");
    // Tests unwind at a panic, and need the unwind tables. For a profile that inherits from `release`, `PROFILE` is
    // `release`.
    if std::env::var("PROFILE").as_deref() == Ok("release") {
        link::without_tables();
        link::packed();
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(guests)? {
        let entry = entry?;
        if entry.path().join("policy.toml").is_file() {
            names.extend(entry.file_name().into_string());
        }
    }
    names.sort();
    println!("cargo::rustc-env=POSTERN_SHIPPED={}", names.join(" "));
    Ok(())
}
