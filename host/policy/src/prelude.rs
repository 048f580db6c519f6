//! Names that the standard library's prelude has, and that this crate takes from `alloc`.

pub use alloc::borrow::ToOwned;
pub use alloc::string::{String, ToString};
pub use alloc::vec::Vec;
