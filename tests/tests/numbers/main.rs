//! What a run costs, on an empty and on a full node, alone and among many.

mod concurrency;
mod costs;
mod size;
