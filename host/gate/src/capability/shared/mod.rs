//! What several capabilities leave, and how what they changed comes back.

pub mod link_state;
pub mod multipath;
pub mod numbers;
