//! How executables are linked, for the build scripts of those that are installed.

use std::env::var;
use std::path::Path;
use std::process::{Command, Stdio};

/// Unwinding ends a panic in tests. In what is installed, a panic aborts, and nothing reads the tables for it: a sixth of
/// an executable.
const WITHOUT_TABLES: &str =
    "SECTIONS { /DISCARD/ : { *(.eh_frame) *(.gcc_except_table .gcc_except_table.*) } } INSERT AFTER .text;\n";

/// Leaves out what an executable never reads, and packs the list of places that it relocates at its start.
pub fn compactly() {
    let Ok(out) = var("OUT_DIR") else { return };
    let script = Path::new(&out).join("without-tables.lds");
    if std::fs::write(&script, WITHOUT_TABLES).is_ok() {
        with(&[format!("-T{}", script.display())]);
    }
    // glibc reads the packed list since 2.36. Where this executable can't be tried, it stays unpacked.
    with(&["--pack-dyn-relocs=relr".to_owned()]);
}

/// Links with these flags, if the linker knows them, and what it makes with them can start.
pub fn with(flags: &[String]) -> bool {
    // The linker itself, or a compiler that calls it.
    for through in [&[][..], &["-Xlinker"]] {
        let flags: Vec<&str> = flags.iter().flat_map(|flag| through.iter().copied().chain([flag.as_str()])).collect();
        if works_with(&flags) {
            flags.iter().for_each(|flag| println!("cargo:rustc-link-arg-bins={flag}"));
            return true;
        }
    }
    false
}

/// True if an empty program can be linked with these flags, and started.
fn works_with(flags: &[&str]) -> bool {
    let (Ok(rustc), Ok(target), Ok(out)) = (var("RUSTC"), var("TARGET"), var("OUT_DIR")) else { return false };
    let (source, empty) = (Path::new(&out).join("empty.rs"), Path::new(&out).join("empty"));
    if std::fs::write(&source, "fn main() {}").is_err() {
        return false;
    }
    let mut command = Command::new(rustc);
    command.args(["--target", &target, "--crate-type", "bin", "-C", "panic=abort", "-o"]).arg(&empty).arg(source);
    if let Ok(linker) = var("RUSTC_LINKER") {
        command.args(["-C", &format!("linker={linker}")]);
    }
    let inherited = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    command.args(inherited.split('\u{1f}').filter(|flag| !flag.is_empty()));
    for flag in flags {
        command.args(["-C", &format!("link-arg={flag}")]);
    }
    let succeeds = |command: &mut Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    succeeds(&mut command) && succeeds(&mut Command::new(empty))
}
