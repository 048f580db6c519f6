//! Passes the names of the shipped plugins, the directories of `guests/`, to `postern doctor`, and the version of the WIT to
//! `postern --version`.

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
    // A line of each file is `package postern:cni@0.1.1;`.
    let world = Path::new(&own).join("../../wit/world.wit");
    println!("cargo::rerun-if-changed={}", world.display());
    let text = fs::read_to_string(world)?;
    let package = text.lines().find_map(|line| line.strip_prefix("package ")?.strip_suffix(';'));
    println!("cargo::rustc-env=POSTERN_WIT={}", package.ok_or(std::io::ErrorKind::InvalidData)?);
    Ok(())
}
