//! The resource limits of one guest.

use postern_types::GuestLimits;
use wasmtime::ResourceLimiter;

/// The counters while the guest runs.
#[derive(Debug)]
pub struct Ceiling {
    memory: usize,
    table_entries: usize,
    memory_limit: usize,
    table_limit: usize,
}

impl Ceiling {
    /// The largest number of linear memories of one component.
    pub const MEMORIES: usize = 8;

    pub fn new(limits: &GuestLimits) -> Self {
        Self { memory: 0, table_entries: 0, memory_limit: limits.memory, table_limit: limits.tables }
    }
}

/// The guest asked for more memory than its limit.
#[derive(Debug, thiserror::Error)]
#[error("ran out of memory: the limit is {} MiB", .limit >> 20)]
pub struct OutOfMemory {
    limit: usize,
}

impl ResourceLimiter for Ceiling {
    /// Ends the guest instead of letting `memory.grow` fail, because the guest's allocator would then trap with a less
    /// clear message.
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.memory.saturating_add(desired.saturating_sub(current));
        if total > self.memory_limit {
            return Err(OutOfMemory { limit: self.memory_limit }.into());
        }
        self.memory = total;
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.table_entries.saturating_add(desired.saturating_sub(current));
        if total > self.table_limit {
            return Ok(false);
        }
        self.table_entries = total;
        Ok(true)
    }

    // A component from rustc has a main module and two small modules. A component that is composed of several
    // components has a few more.
    fn instances(&self) -> usize {
        64
    }

    fn tables(&self) -> usize {
        32
    }

    fn memories(&self) -> usize {
        Self::MEMORIES
    }
}
