//! A guest's linear memories: address space that is reserved before the process is sealed.
//!
//! A sealed process can't map memory, so its memory has a real limit. The kernel's limit on data (`RLIMIT_DATA`)
//! doesn't count all memory. It misses shared memory, stacks, pages that were written and then hidden, and the page
//! tables of a large empty mapping. A sealed process can only make more of its reservation writable. The kernel counts
//! this memory, and the process can't undo the change.
#![allow(unsafe_code, reason = "maps memory, and gives it to wasmtime for guests")]

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use wasmtime::{LinearMemory, MemoryCreator, MemoryType, Result, bail, error::Context};

/// The address space of one memory in bytes, without the guards on both sides. Compiled code relies on this size and on
/// [`GUARD`]. It checks no bounds, because every address that a 32-bit index can reach is reserved.
pub const RESERVATION: u64 = 4 << 30;
/// See [`RESERVATION`].
pub const GUARD: u64 = 32 << 20;

/// The unit in which memory is made writable: a page of wasm, and a multiple of every page size of the kernel.
const UNIT: usize = 64 << 10;

/// The beginning of the part that a guest writes first: the last page of its stack. See [`Slot::make_present`].
const STACK: usize = (1 << 20) - 4096;

/// The largest number of bytes that become present before a guest starts.
const PRESENT: usize = 256 << 10;

/// The largest number of pages of wasm that become writable before a guest starts.
const MOST_READY: usize = 64;

/// The address space that must stay free if the address space is limited. A process at its limit of address space can
/// make memory writable without a check of `RLIMIT_DATA`.
const ROOM: usize = 1 << 30;

/// Reserved memories without a guest.
#[derive(Clone, Default)]
pub struct Reserve(Arc<Mutex<Vec<Slot>>>);

/// One reserved memory.
struct Slot {
    start: NonNull<c_void>,
    /// The number of bytes from `start` that are writable. These bytes are all zero while the slot is in the reserve.
    writable: usize,
}

// SAFETY: the pointer leads to a mapping that only the slot's owner uses, and that is never undone.
unsafe impl Send for Slot {}
// SAFETY: as for `Send`; a shared slot is only read.
unsafe impl Sync for Slot {}

impl Reserve {
    /// Reserves `count` memories. A single memory, which begins with `pages` pages of wasm, is made ready: the part
    /// that a guest writes first becomes present. This preparation takes less time than later page faults, which would
    /// delay the gate.
    ///
    /// # Errors
    /// The address space is too small: a text with a hint.
    pub fn fill(&self, count: usize, pages: usize) -> Result<()> {
        for _ in 0..count {
            let mut slot = Slot::new()?;
            // A guest that begins with more memory may be refused later.
            if count == 1 && pages <= MOST_READY {
                slot.grow_to(pages * UNIT)?;
                slot.make_present();
            }
            self.give_back(slot);
        }
        let limit = getrlimit(Resource::RLIMIT_AS)?.0;
        if limit != RLIM_INFINITY {
            let room = map(ROOM)?;
            // SAFETY: the mapping was made above, and nothing refers to it.
            unsafe { munmap(room, ROOM) }?;
        }
        Ok(())
    }

    fn take(&self) -> Option<Slot> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.pop()
    }

    fn give_back(&self, slot: Slot) {
        // The memory with the smallest writable part is given out next.
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.push(slot);
        slots.sort_by_key(|slot| std::cmp::Reverse(slot.writable));
    }
}

/// Maps address space without memory.
fn map(length: usize) -> Result<NonNull<c_void>> {
    let Some(length) = NonZeroUsize::new(length) else { bail!("nothing to reserve") };
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    unsafe { mmap_anonymous(None, length, ProtFlags::PROT_NONE, flags) }.with_context(|| {
        let gibibytes = length.get().div_ceil(1 << 30);
        format!(
            "cannot reserve {gibibytes} GiB of address space for a plugin (this takes no memory); raise `ulimit -v`"
        )
    })
}

impl Slot {
    fn new() -> Result<Self> {
        let guard = usize::try_from(GUARD)?;
        let whole = map(usize::try_from(RESERVATION)? + 2 * guard)?;
        // SAFETY: behind the first guard is the reservation, in the same mapping.
        let start = unsafe { whole.byte_add(guard) };
        Ok(Self { start, writable: 0 })
    }

    /// Makes at least this many bytes writable.
    fn grow_to(&mut self, size: usize) -> Result<()> {
        let wanted = size.next_multiple_of(UNIT);
        if wanted as u64 > RESERVATION {
            bail!("a memory of {size} bytes is more than is reserved");
        }
        if wanted > self.writable {
            // SAFETY: both ends are in the slot, as was checked above.
            let from = unsafe { self.start.byte_add(self.writable) };
            let flags = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            // SAFETY: this part of the slot has been inaccessible, so nothing refers to it.
            unsafe { mprotect(from, wanted - self.writable, flags) }.context("the sandbox has no memory left")?;
            self.writable = wanted;
        }
        Ok(())
    }

    /// Makes the end of the writable part present, if a guest may write it first. Compilers for wasm put the stack
    /// first (1 MiB that ends at the data), and the heap after the data. A kernel before Linux 5.14 refuses this call.
    /// Then the guest only starts slower.
    fn make_present(&self) {
        let Some(length) = self.writable.checked_sub(STACK).filter(|length| *length <= PRESENT) else { return };
        // SAFETY: the range is in the writable part, as was checked above. Its contents stay.
        unsafe { libc::madvise(self.start.byte_add(STACK).as_ptr(), length, libc::MADV_POPULATE_WRITE) };
    }
}

// SAFETY: each memory is a separate slot, reserved and guarded as compiled code expects. It is zero at first: new from
// the kernel, or returned by `Memory`'s `drop`.
unsafe impl MemoryCreator for Reserve {
    fn new_memory(
        &self,
        _ty: MemoryType,
        minimum: usize,
        _maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let fits = |size: usize, there: u64| size as u64 <= there;
        if !reserved.is_none_or(|size| fits(size, RESERVATION)) || !fits(guard, GUARD) {
            return Err("the engine wants a reservation of another size".to_owned());
        }
        let slot = match self.take() {
            Some(slot) => slot,
            // A new slot is made only outside of a sandbox process. A sandbox process has reserved all memories that
            // its component needs.
            None => Slot::new().map_err(|error| format!("{error:#}"))?,
        };
        let mut memory = Memory { slot: Some(slot), size: 0, reserve: self.clone() };
        memory.grow_to(minimum).map_err(|error| format!("{error:#}"))?;
        Ok(Box::new(memory))
    }
}

/// A memory of a guest.
struct Memory {
    /// `Some` until the slot is returned.
    slot: Option<Slot>,
    size: usize,
    reserve: Reserve,
}

// SAFETY: the base never moves, and `size` bytes from there are writable while the memory lives. In a slot that was
// used before, bytes behind `size` may be writable too. They are zero, within the reservation, and not used by anything
// else.
unsafe impl LinearMemory for Memory {
    fn byte_size(&self) -> usize {
        self.size
    }

    fn byte_capacity(&self) -> usize {
        usize::try_from(RESERVATION).unwrap_or(usize::MAX)
    }

    fn grow_to(&mut self, size: usize) -> Result<()> {
        let Some(slot) = &mut self.slot else { bail!("the memory is gone") };
        slot.grow_to(size)?;
        self.size = size;
        Ok(())
    }

    fn as_ptr(&self) -> *mut u8 {
        self.slot.as_ref().map_or(std::ptr::null_mut(), |slot| slot.start.as_ptr().cast())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        // SAFETY: wasmtime no longer uses the memory; a private mapping without a file reads as zeroes afterwards.
        let forgotten =
            slot.writable == 0 || unsafe { madvise(slot.start, slot.writable, MmapAdvise::MADV_DONTNEED) }.is_ok();
        // A slot that may still contain a guest's bytes is not used again.
        if forgotten {
            self.reserve.give_back(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(reserve: &Reserve, size: usize) -> Box<dyn LinearMemory> {
        let ty = MemoryType::new(0, None);
        let guard = usize::try_from(GUARD).unwrap();
        reserve.new_memory(ty, size, None, Some(RESERVATION as usize), guard).unwrap()
    }

    #[test]
    fn what_a_guest_leaves_is_not_there_for_the_next() {
        let reserve = Reserve::default();
        reserve.fill(1, 0).unwrap();
        let mut first = memory(&reserve, UNIT);
        first.grow_to(3 * UNIT).unwrap();
        let start = first.as_ptr();
        for at in 0..3 * UNIT {
            unsafe { start.add(at).write(7) };
        }
        drop(first);
        let second = memory(&reserve, UNIT);
        assert_eq!((second.as_ptr(), second.byte_size()), (start, UNIT));
        assert!((0..3 * UNIT).all(|at| unsafe { start.add(at).read() } == 0));
        assert_ne!(memory(&reserve, UNIT).as_ptr(), start);
    }

    #[test]
    fn a_single_memory_is_ready_before_its_guest() {
        let reserve = Reserve::default();
        reserve.fill(1, 18).unwrap();
        let ready: Vec<usize> = reserve.0.lock().unwrap().iter().map(|slot| slot.writable).collect();
        assert_eq!(ready, [18 * UNIT]);
        let memory = memory(&reserve, 18 * UNIT);
        assert_eq!(memory.byte_size(), 18 * UNIT);
        assert!((0..18 * UNIT).all(|at| unsafe { memory.as_ptr().add(at).read() } == 0));
        // A larger memory is not made ready, because its guest may be refused later.
        let other = Reserve::default();
        other.fill(1, MOST_READY + 1).unwrap();
        assert_eq!(other.0.lock().unwrap()[0].writable, 0);
    }

    #[test]
    fn nothing_larger_than_the_reservation() {
        let reserve = Reserve::default();
        let mut memory = memory(&reserve, 0);
        assert!(memory.grow_to(RESERVATION as usize + 1).is_err());
        let ty = MemoryType::new(0, None);
        assert!(reserve.new_memory(ty, 0, None, Some(RESERVATION as usize + UNIT), 0).is_err());
    }
}
