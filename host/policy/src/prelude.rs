//! What the standard library has for every file, and this crate has of `alloc`.

pub use alloc::borrow::ToOwned;
pub use alloc::string::{String, ToString};
pub use alloc::vec::Vec;
