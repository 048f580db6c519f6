//! Precompiled code in memory.
#![allow(unsafe_code, reason = "maps a file as code, and gives it to wasmtime to execute")]

use nix::sys::mman::{MapFlags, ProtFlags, mmap, mprotect};
use nix::sys::stat::fstat;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use wasmtime::component::Component;
use wasmtime::{CustomCodeMemory, Engine, Result, bail, error::Context};

/// Maps the file and makes a component of it. The mapping stays for the life of the process; the descriptor does not.
///
/// wasmtime's own loader wants a path, and the file of a confined process may have none that it can reach. Mapped
/// read-only at once, the code also never exists in writable memory.
///
/// The caller vouches that the file is what `crate::compile` made and that nobody can change it: compiled code does
/// what it likes. The gate checks owner, modes and place before it opens the file.
pub fn load(engine: &Engine, file: OwnedFd) -> Result<Component> {
    let size = usize::try_from(fstat(&file)?.st_size)?;
    let Some(length) = NonZeroUsize::new(size) else { bail!("the file is empty") };
    // SAFETY: a new private mapping at an address of the kernel's choice touches no memory in use.
    let start = unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE, &file, 0) }
        .context("cannot map the code")?;
    let memory = NonNull::slice_from_raw_parts(start.cast::<u8>(), size);
    // SAFETY: the mapping is never undone or changed, which `deserialize_raw` asks for; that the file holds code of
    // our own compiler is what the caller vouches for.
    unsafe { Component::deserialize_raw(engine, memory) }
}

/// Makes the code part of such a mapping executable.
pub struct Executable;

impl Executable {
    fn protect(start: *const u8, length: usize, flags: ProtFlags) -> Result<()> {
        let Some(start) = NonNull::new(start.cast_mut().cast::<c_void>()) else { bail!("code at address zero") };
        // SAFETY: wasmtime passes page-aligned parts of the mapping made in `load`, read-only data until now.
        Ok(unsafe { mprotect(start, length, flags) }?)
    }
}

impl CustomCodeMemory for Executable {
    fn required_alignment(&self) -> usize {
        // The smallest page. Where pages are larger, the compiler aligns code to those.
        4096
    }

    fn publish_executable(&self, start: *const u8, length: usize) -> Result<()> {
        Self::protect(start, length, ProtFlags::PROT_READ | ProtFlags::PROT_EXEC)
            .context("cannot make the code executable (is its file system mounted noexec?)")
    }

    fn unpublish_executable(&self, start: *const u8, length: usize) -> Result<()> {
        Self::protect(start, length, ProtFlags::PROT_READ)
    }
}
