//! Postern withstands hostile plugins, bad input and unusual process states.

mod answers;
mod attack;
mod bad_input;
mod confined;
mod names;
mod odd;
mod terminal;
mod trust;
mod wasi;
