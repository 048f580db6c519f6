//! Gives the linker the order in which runs first use the functions of this executable (`order.txt`, which `tests/order`
//! makes). Functions that are used together lie together then, and a run touches fewer pages.
//!
//! A name that the executable no longer has is ignored. A linker that knows no order builds a slower executable, and a
//! warning says so.

use std::env::var;
use std::path::Path;
use std::process::{Command, Stdio};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=order.txt");
    // The speed of other builds does not matter.
    if var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    let Ok(directory) = var("CARGO_MANIFEST_DIR") else { return };
    let order = Path::new(&directory).join("order.txt");
    let order = [format!("--symbol-ordering-file={}", order.display()), "--no-warn-symbol-ordering".to_owned()];
    if !link_with(&order) {
        println!(
            "cargo:warning=this linker can't place functions in the order of their use (LLD can): each run takes up to a tenth longer"
        );
    }
    // The executable relocates itself at its start. Packed, the list of places takes a fraction of the pages. glibc can
    // read that since 2.36, and musl as Rust has it can.
    if var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("musl") {
        link_with(&["--pack-dyn-relocs=relr".to_owned()]);
    }
}

/// Links with these flags, if the linker knows them.
fn link_with(flags: &[String]) -> bool {
    // The linker itself, or a compiler that calls it.
    for through in [&[][..], &["-Xlinker"]] {
        let flags: Vec<&str> = flags.iter().flat_map(|flag| through.iter().copied().chain([flag.as_str()])).collect();
        if is_known(&flags) {
            flags.iter().for_each(|flag| println!("cargo:rustc-link-arg-bins={flag}"));
            return true;
        }
    }
    false
}

/// True if the linker takes these flags: an empty program is linked with them.
fn is_known(flags: &[&str]) -> bool {
    let (Ok(rustc), Ok(target), Ok(out)) = (var("RUSTC"), var("TARGET"), var("OUT_DIR")) else { return false };
    let source = Path::new(&out).join("empty.rs");
    if std::fs::write(&source, "fn main() {}").is_err() {
        return false;
    }
    let mut command = Command::new(rustc);
    command.args(["--target", &target, "--crate-type", "bin", "-o"]).arg(Path::new(&out).join("empty")).arg(source);
    if let Ok(linker) = var("RUSTC_LINKER") {
        command.args(["-C", &format!("linker={linker}")]);
    }
    let inherited = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    command.args(inherited.split('\u{1f}').filter(|flag| !flag.is_empty()));
    for flag in flags {
        command.args(["-C", &format!("link-arg={flag}")]);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
