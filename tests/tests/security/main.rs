//! How Postern stands against hostile plugins, bad input and odd surroundings.

mod answers;
mod attack;
mod bad_input;
mod confined;
mod names;
mod odd;
mod terminal;
mod trust;
mod wasi;
