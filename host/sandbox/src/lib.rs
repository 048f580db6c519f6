//! The unprivileged side: one process that runs one guest and has only a socket to the gate.
//!
//! The gate forks, and the child calls [`child::run`], which gives up every privilege, maps the precompiled component,
//! runs it and exits. The same code runs a guest in the calling process, through [`Guest`] and any [`CallReceiver`].
//! Tests, measurements and hosts without privileges use this way.
//!
//! Two features are for the installation of components. `reader` adds the part of [`component_process`] that reads a
//! component, and `compiler` adds the part that compiles. The executable that runtimes start is built without both.
//!
//! With the feature `wasi` a guest can have all of WASI, without real files and sockets. The executable `postern-wasi`
//! is built with this feature, and the executable that runtimes start without it.

pub mod child;
#[cfg(feature = "reader")]
pub mod component_process;
pub mod confine;
pub mod engine;

mod bindings;
mod by_need;
mod code;
#[cfg(feature = "compiler")]
pub mod compile;
#[cfg(feature = "reader")]
mod component;
#[cfg(feature = "wasi")]
mod full_wasi;
mod guest;
mod imports;
mod limits;
mod memory;
#[cfg(feature = "reader")]
mod read;
mod seal;
mod state;
mod wasi;

/// Every executable that has a sandbox uses this heap.
#[cfg(test)]
#[global_allocator]
static HEAP: Heap = Heap::new();

pub use guest::{Ended, Guest, GuestOutcome};
#[cfg(feature = "reader")]
pub use imports::needs_all_of_wasi;
pub use postern_heap::Heap;
pub use seal::seal;
pub use state::CallReceiver;
