//! Gives the linker the order in which runs first use the functions of this executable (`order.txt`, which `tests/order`
//! makes). Functions that are used together lie together then, and a run touches fewer pages.
//!
//! A name that the executable no longer has is ignored. So the linker also writes down where each function lies, into
//! `postern.map` beside the executable, and `tests/order --check` fails if the order is lost. A linker that knows no
//! order builds a slower executable, and a warning says so.

#[path = "../link.rs"]
mod link;

use std::env::var;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../link.rs");
    println!("cargo:rerun-if-changed=order.txt");
    println!("cargo:rerun-if-env-changed=RUSTC_WRAPPER");
    // The speed of other builds does not matter.
    if var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    let Ok(directory) = var("CARGO_MANIFEST_DIR") else { return };
    let order = Path::new(&directory).join("order.txt");
    let order = [format!("--symbol-ordering-file={}", order.display()), "--no-warn-symbol-ordering".to_owned()];
    if link::with(&order) {
        // `OUT_DIR` is build/postern-…/out in the directory of the executable.
        if let Some(place) = var("OUT_DIR").ok().and_then(|out| Some(Path::new(&out).ancestors().nth(3)?.to_owned())) {
            link::with(&[format!("-Map={}", place.join("postern.map").display()), "--no-demangle".to_owned()]);
        }
    } else {
        println!(
            "cargo:warning=this linker can't place functions in the order of their use (LLD can): each run takes up to a tenth longer"
        );
    }
    link::without_tables();
    link::packed();
    let is = |name, expected| var(name).as_deref() == Ok(expected);
    // `src/start.rs` has the entry point.
    if is("CARGO_CFG_TARGET_ARCH", "x86_64") && is("CARGO_CFG_TARGET_ENV", "musl") {
        // Calls of `_init` are calls of `__wrap__init` then (ld(1)), which only this executable has.
        link::with_both("--entry=postern_start", "--wrap=_init");
        // It leaves out a feature of memchr, and of wasmtime-environ (docs/decisions.md).
        if !var("RUSTC_WRAPPER").is_ok_and(|wrapper| Path::new(&wrapper).ends_with(".cargo/rustc")) {
            println!(
                "cargo:warning=another wrapper of rustc than .cargo/rustc: each run asks the processor what it can, and hashes more slowly"
            );
        }
    }
}
