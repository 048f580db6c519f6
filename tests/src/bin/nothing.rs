//! A program that ends at once. Every plugin takes at least as long as this program.

fn main() {}
