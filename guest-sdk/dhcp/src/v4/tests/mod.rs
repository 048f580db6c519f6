//! Tests of whole steps, with packets of a server.

mod acquire;
mod keep;
mod lab;
mod lease;
mod random;
mod reply;

pub use reply::{MAC, Reply};
