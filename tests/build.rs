//! Links the benchmark's floor like the host executable, because the benchmark compares both. Test programs are linked
//! as usual.

#[path = "../host/link.rs"]
mod link;

fn main() {
    link::installed("../host/link.rs");
}
