//! Links `postern-floor` (`src/floor`) like the host executable, because the benchmark compares both programs. Test
//! programs are linked as usual.

#[path = "../host/link.rs"]
mod link;

fn main() {
    link::installed("../host/link.rs");
}
