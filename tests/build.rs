//! Links the benchmark's floor like the host executable, which it is compared with. Test programs are linked as usual.

#[path = "../host/link.rs"]
mod link;

fn main() {
    link::installed("../host/link.rs");
}
