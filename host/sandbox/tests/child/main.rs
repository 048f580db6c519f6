//! The sandbox process against hostile guests, as the gate sees it: one thread, a fork, a channel, an exit status.
//!
//! The gate has one thread when it forks. This test must have one thread too, so it has no harness.

#[cfg(feature = "compiler")]
mod cases;
#[cfg(feature = "compiler")]
mod ceiling;
#[cfg(feature = "compiler")]
mod guests;

#[cfg(feature = "compiler")]
/// A sealed sandbox can map no memory.
#[global_allocator]
static HEAP: postern_sandbox::Heap = postern_sandbox::Heap::new();

#[cfg(feature = "compiler")]
fn main() {
    if std::env::args().nth(1).is_some_and(|option| option == cases::LITTLE_HEAP) {
        cases::with_a_little_heap();
    } else {
        cases::run();
    }
}

#[cfg(not(feature = "compiler"))]
fn main() {
    eprintln!("these tests compile their guests: run them with --features compiler");
    std::process::exit(1);
}
