//! Questions to records and kernel: whose is this link, this address, this port, and what of `prevResult` counts?

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
