//! The costs of a run: on an empty and on a full node, alone and among many runs.

mod concurrency;
mod costs;
mod size;
