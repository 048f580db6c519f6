//! Reads records and the kernel to find the owner of a link, an address or a port, and the parts of `prevResult` that
//! are accepted.

mod another;
mod asked;
mod holder;
mod link;
mod port;
mod previous;

pub use another::*;
pub use asked::*;
pub use holder::*;
pub use link::*;
pub use port::*;
pub use previous::*;
