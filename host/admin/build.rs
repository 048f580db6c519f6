//! The plugins that come with Postern are those in `guests/`: their names, for `postern doctor`.

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests");
    println!("cargo::rerun-if-changed={}", guests.display());
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
