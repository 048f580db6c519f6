//! Precompiled code in memory.
#![allow(unsafe_code, reason = "maps a file as code, and gives it to wasmtime to execute")]

use nix::sys::mman::{MapFlags, ProtFlags, mmap, mprotect};
use nix::sys::stat::fstat;
use postern_types::NO_CODE_ALLOWED;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use wasmtime::component::Component;
use wasmtime::{CustomCodeMemory, Engine, Result, bail, error::Context};

/// Maps the file and makes a component from it. The mapping stays for the life of the process; the descriptor is
/// closed.
///
/// wasmtime's own loader needs a path, but a confined process may be unable to reach a path of the file. The file is
/// mapped read-only at once, so the code is never in writable memory.
///
/// The caller guarantees that `crate::compile` made the file and that it can't be changed: compiled code can do
/// anything. The gate checks owner, modes and place before it opens the file.
pub fn load(engine: &Engine, file: OwnedFd) -> Result<Component> {
    let size = size(&file)?;
    let Some(length) = NonZeroUsize::new(size) else { bail!("the file is empty") };
    // SAFETY: a new private mapping at an address of the kernel's choice touches no memory in use.
    let start = unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE, &file, 0) }
        .context("cannot map the code")?;
    let memory = NonNull::slice_from_raw_parts(start.cast::<u8>(), size);
    // SAFETY: the mapping is never undone or changed, as `deserialize_raw` requires. The caller guarantees that the
    // file holds code of Postern's own compiler.
    unsafe { Component::deserialize_raw(engine, memory) }
}

fn size(file: &OwnedFd) -> nix::Result<usize> {
    Ok(usize::try_from(fstat(file)?.st_size).unwrap_or(0))
}

/// Makes the code in a mapping of [`load`] executable.
pub struct Executable;

impl Executable {
    fn protect(start: *const u8, length: usize, flags: ProtFlags) -> Result<()> {
        let Some(start) = NonNull::new(start.cast_mut().cast::<c_void>()) else { bail!("code at address zero") };
        // SAFETY: wasmtime passes page-aligned parts of the mapping made in `load`, which were read-only data until
        // now.
        Ok(unsafe { mprotect(start, length, flags) }?)
    }
}

impl CustomCodeMemory for Executable {
    fn required_alignment(&self) -> usize {
        // The smallest page size. If pages are larger, the compiler aligns code to the larger size.
        4096
    }

    fn publish_executable(&self, start: *const u8, length: usize) -> Result<()> {
        Self::protect(start, length, ProtFlags::PROT_READ | ProtFlags::PROT_EXEC).with_context(|| {
            format!(
                "{NO_CODE_ALLOWED}: the code's file system is mounted noexec, or the runtime's systemd unit has \
                     MemoryDenyWriteExecute=yes, which plugins inherit (set it to no)"
            )
        })
    }

    fn unpublish_executable(&self, start: *const u8, length: usize) -> Result<()> {
        Self::protect(start, length, ProtFlags::PROT_READ)
    }
}
