//! Links the executable compactly.

#[path = "../link.rs"]
mod link;

fn main() {
    link::installed("../link.rs");
}
