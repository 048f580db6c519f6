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
    let flags = [format!("--symbol-ordering-file={}", order.display()), "--no-warn-symbol-ordering".to_owned()];
    if !is_known(&flags) {
        println!(
            "cargo:warning=this linker can't place functions in the order of their use (LLD can): each run takes up to a tenth longer"
        );
        return;
    }
    for flag in flags {
        println!("cargo:rustc-link-arg-bins=-Xlinker");
        println!("cargo:rustc-link-arg-bins={flag}");
    }
}

/// True if the linker takes these flags: an empty program is linked with them.
fn is_known(flags: &[String]) -> bool {
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
        command.args(["-C", "link-arg=-Xlinker", "-C", &format!("link-arg={flag}")]);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
