//! Gives the linker the order in which runs first use the functions of this executable (`order.txt`, which
//! `tests/order` makes). Then functions that a run uses together are together in memory, and a run touches fewer pages.
//!
//! A name that the executable no longer has is ignored. A linker without support for an order builds a slower
//! executable, and prints a warning.

#[path = "../link.rs"]
mod link;

use std::env::var;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../link.rs");
    println!("cargo:rerun-if-changed=order.txt");
    // The speed of other builds does not matter.
    if var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    let Ok(directory) = var("CARGO_MANIFEST_DIR") else { return };
    let order = Path::new(&directory).join("order.txt");
    let order = [format!("--symbol-ordering-file={}", order.display()), "--no-warn-symbol-ordering".to_owned()];
    if !link::with(&order) {
        println!(
            "cargo:warning=this linker can't place functions in the order of their use (LLD can): each run takes up to a tenth longer"
        );
    }
    link::without_tables();
    link::packed();
}
