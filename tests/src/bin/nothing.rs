//! A process that ends at once. Every plugin takes at least this time.

fn main() {}
