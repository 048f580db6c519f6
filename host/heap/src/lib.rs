//! The heap of each executable that starts sandboxes: `#[global_allocator] static HEAP: Heap = Heap::new();`.
//!
//! A sealed sandbox can map no memory, but usual allocators map memory when they need more. So this heap reserves
//! address space at its first allocation, which comes before any fork or confinement. Pieces of this space become
//! writable when they are needed, and stay writable. The kernel counts writable pieces as data (`RLIMIT_DATA` of
//! getrlimit(2)). dlmalloc manages the blocks in the pieces.
//!
//! malloc(3) still uses the C library's heap. The standard library keeps its list of thread-locals with destructors in
//! C's memory, and makes this list before a sandbox is sealed. A sealed sandbox that needs more of C's memory is
//! killed.
#![allow(unsafe_code, reason = "it is the allocator")]

use dlmalloc::{Allocator, Dlmalloc};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use postern_confine::{AroundFork, end_process, keep_around_forks};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The address space that is reserved at once, in bytes. A sandbox's limit of memory is lower, so a sandbox never needs
/// a second reservation. A gate needs some MiB, and the compiler needs more.
const SPACE: usize = 512 << 20;

/// The least reservation if the address space is limited, in bytes. Stacks of threads and the plugin's code need
/// address space, too.
const LEAST: usize = 1 << 20;

/// The bytes that become writable at once: a multiple of every page size of the kernel.
const PIECE: usize = 256 << 10;

/// The part of a reservation that has no blocks yet.
struct Space {
    next: AtomicPtr<u8>,
    left: AtomicUsize,
}

impl Space {
    const fn new() -> Self {
        Self { next: AtomicPtr::new(null_mut()), left: AtomicUsize::new(0) }
    }

    fn left(&self) -> usize {
        self.left.load(Relaxed)
    }

    /// Reserves address space for at least `size` bytes, and for more if the limits allow it. The rest of an earlier
    /// reservation is given back.
    fn reserve(&self, size: usize) -> Option<()> {
        let mut length = size.max(SPACE);
        let mut start = map(length);
        if start.is_none() && raise_address_space() {
            start = map(length);
        }
        if start.is_none() {
            length = size.max(LEAST);
            start = map(length);
        }
        let start = start?;
        self.give_back();
        self.next.store(start.as_ptr(), Relaxed);
        self.left.store(length, Relaxed);
        Some(())
    }

    /// Gives back the unused rest of the reservation. Returns its size in bytes.
    fn give_back(&self) -> usize {
        let left = self.left.swap(0, Relaxed);
        if left > 0 {
            unmap(self.next.load(Relaxed), left);
        }
        left
    }

    /// Makes the next bytes writable.
    fn grow(&self, size: usize) -> Option<NonNull<u8>> {
        if self.left() < size {
            self.reserve(size)?;
        }
        let left = self.left().checked_sub(size)?;
        let start = NonNull::new(self.next.load(Relaxed))?;
        // SAFETY: this part of the reservation has been inaccessible, so nothing refers to it.
        unsafe { mprotect(start.cast(), size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE) }.ok()?;
        self.left.store(left, Relaxed);
        self.next.store(start.as_ptr().wrapping_add(size), Relaxed);
        Some(start)
    }
}

/// Maps address space without memory. It is not readable yet.
fn map(length: usize) -> Option<NonNull<u8>> {
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let start = unsafe { mmap_anonymous(None, NonZeroUsize::new(length)?, ProtFlags::PROT_NONE, flags) };
    start.ok().map(NonNull::cast)
}

/// Gives back a part of a mapping that never became writable.
fn unmap(start: *mut u8, length: usize) {
    if let Some(start) = NonNull::new(start) {
        // SAFETY: this part was never accessible, so nothing refers to it. If munmap fails, the part only stays mapped.
        let _ = unsafe { munmap(start.cast(), length) };
    }
}

/// Raises the limit of the address space to the hard limit. This is harmless: a reservation uses no memory.
fn raise_address_space() -> bool {
    let limits = getrlimit(Resource::RLIMIT_AS);
    limits.is_ok_and(|(soft, hard)| soft < hard && setrlimit(Resource::RLIMIT_AS, hard, hard).is_ok())
}

// SAFETY: each piece is handed out once, readable and writable.
unsafe impl Allocator for Space {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let Some(size) = size.checked_next_multiple_of(PIECE) else { return (null_mut(), 0, 0) };
        self.grow(size).map_or((null_mut(), 0, 0), |start| (start.as_ptr(), size, 0))
    }

    fn remap(&self, _ptr: *mut u8, _oldsize: usize, _newsize: usize, _can_move: bool) -> *mut u8 {
        null_mut()
    }

    fn free_part(&self, _ptr: *mut u8, _oldsize: usize, _newsize: usize) -> bool {
        false
    }

    fn free(&self, _ptr: *mut u8, _size: usize) -> bool {
        false
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PIECE
    }
}

static BLOCKS: Mutex<Dlmalloc<Space>> = Mutex::new(Dlmalloc::new_with_allocator(Space::new()));

/// True once an executable allocates from the heap.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// True in a process that must report a lack of memory as an error of CNI.
static ANSWERS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True while this thread is inside the allocator.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The lock of the blocks, while this thread forks.
    static AROUND_FORK: Cell<Option<ManuallyDrop<MutexGuard<'static, Dlmalloc<Space>>>>> = const { Cell::new(None) };
}

/// True if this executable allocates from the heap. A sandbox needs this heap: any other allocator would map memory.
pub fn is_used() -> bool {
    IS_USED.load(Relaxed)
}

/// Prepares the heap of a sandbox: reserves address space for `size` bytes, because a sealed sandbox can map none. From
/// now on the heap prints no error of CNI.
///
/// Without this call the heap may have less address space, if the process has a low limit or has allocated much.
///
/// # Errors
/// The limits of this process leave no such address space.
pub fn prepare_for_sealing(size: usize) -> Result<(), &'static str> {
    ANSWERS.store(false, Relaxed);
    with(|blocks| {
        let space = blocks.allocator();
        if space.left() < size { space.reserve(size) } else { Some(()) }
    })
    .ok_or("there is no address space for the sandbox's heap")
}

/// Gives back the address space that the heap does not use yet, and returns its size in bytes. A limit on the address
/// space of a process counts this unused part, too.
pub fn give_back() -> u64 {
    with(|blocks| blocks.allocator().give_back() as u64)
}

/// The allocator that the module describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap {
    answers: bool,
}

impl Heap {
    /// Makes the heap of an executable. If no memory is left, the process ends by a signal, like other Rust programs.
    #[must_use]
    pub const fn new() -> Self {
        Self { answers: false }
    }

    /// Makes the heap of the executable that runtimes start. If no memory is left, the process prints an error of CNI,
    /// and ends with status 1. Its sandboxes end by a signal, which their gate reports.
    #[must_use]
    pub const fn of_a_run() -> Self {
        Self { answers: true }
    }

    /// Returns the block that `act` allocates. If there is none, a process that has to answer the runtime ends with an
    /// error.
    fn allocated(self, act: impl FnOnce(&mut Dlmalloc<Space>) -> *mut u8) -> *mut u8 {
        if !is_used() {
            ANSWERS.store(self.answers, Relaxed);
            keep_around_forks(AroundFork { before: hold, in_parent: let_go, in_child: let_go_in_child });
            IS_USED.store(true, Relaxed);
        }
        let block = with(act);
        if block.is_null() && ANSWERS.load(Relaxed) {
            end("the runtime leaves this process no memory: raise the runtime's limits of data and of address space \
                 (`ulimit -d` and `ulimit -v`, or in the runtime's service)");
        }
        block
    }
}

/// Ends the process with this message, without any allocation.
fn end(words: &str) -> ! {
    if !ANSWERS.load(Relaxed) {
        for part in ["postern: ", words, "\n"] {
            let _ = rustix::io::write(rustix::stdio::stderr(), part.as_bytes());
        }
        std::process::abort();
    }
    for part in ["{\"code\": 999, \"msg\": \"", words, "\"}\n"] {
        // The process ends even if the words can't be written.
        let _ = rustix::io::write(rustix::stdio::stdout(), part.as_bytes());
    }
    end_process(1)
}

/// Calls `act` with the blocks, under their lock.
///
/// A thread that allocates inside `act` would wait for itself. So the process ends. Only a panic inside the heap
/// allocates there, because the panic's message is allocated.
fn with<T>(act: impl FnOnce(&mut Dlmalloc<Space>) -> T) -> T {
    if IS_INSIDE.replace(true) {
        end("the heap failed, and was used inside itself: this is a bug of Postern");
    }
    let done = act(&mut lock());
    IS_INSIDE.set(false);
    done
}

fn lock() -> MutexGuard<'static, Dlmalloc<Space>> {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the lock for the thread that forks. Otherwise another thread could hold the lock at the fork, and the child
/// could never allocate.
fn hold() {
    IS_INSIDE.set(true);
    AROUND_FORK.set(Some(ManuallyDrop::new(lock())));
}

fn let_go() {
    AROUND_FORK.take().map(ManuallyDrop::into_inner);
    IS_INSIDE.set(false);
}

/// Releases the lock in a child. Only the process that the runtime started answers the runtime, so a child prints no
/// error of CNI.
fn let_go_in_child() {
    ANSWERS.store(false, Relaxed);
    let_go();
}

// SAFETY: dlmalloc returns an unused block of the asked size and alignment, or null.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: dlmalloc takes any layout.
        self.allocated(|blocks| unsafe { blocks.malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: dlmalloc takes any layout.
        self.allocated(|blocks| unsafe { blocks.calloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees that the block is from this heap, and has this layout.
        with(|blocks| unsafe { blocks.free(ptr, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the block is from this heap, and has this layout.
        self.allocated(|blocks| unsafe { blocks.realloc(ptr, layout.size(), layout.align(), new_size) })
    }
}

#[cfg(test)]
mod tests;
