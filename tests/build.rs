//! Links the benchmark's floor as the executable is linked that it is compared with. Programs of tests are linked as usual.

#[path = "../host/link.rs"]
mod link;

fn main() {
    link::installed("../host/link.rs");
}
