//! A process that ends at once. No plugin can take less time.

fn main() {}
