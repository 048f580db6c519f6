//! The heap of every executable that has a sandbox: `#[global_allocator] static HEAP: Heap = Heap::new();`.
//!
//! A sealed sandbox can map no memory, and C libraries allocate by mapping. So the whole executable allocates from
//! address space that is reserved before its first fork or confinement. Pieces of it become writable as they are needed,
//! which the kernel counts as data, and they stay so. The first piece is mapped alone, in front of the place of the
//! reservation: VERSION needs no more, and so reserves nothing. The blocks are dlmalloc's.
#![allow(unsafe_code, reason = "it is the allocator")]

use dlmalloc::{Allocator, Dlmalloc};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use postern_confine::{AroundFork, keep_around_forks};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::num::NonZeroUsize;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// The address space that is reserved at once, in bytes. A sandbox may have less memory than that, so it never needs a
/// second piece. A gate needs some MiB, and the compiler more.
const SPACE: usize = 512 << 20;

/// The least address space that is tried, where it is limited.
const LEAST: usize = 1 << 20;

/// The bytes that become writable at once: a multiple of every page size of the kernel. A run needs one or two pieces.
const PIECE: usize = 256 << 10;

/// The most bytes from the beginning of an executable to its data.
const ROOM: usize = 64 << 20;

/// A multiple of every page size of the kernel.
const PAGES: usize = 64 << 10;

/// The bytes of its heap that a run of VERSION writes.
const FIRST: usize = 24 << 10;

/// The address space: its beginning, and what is left of it.
struct Space {
    first: Cell<*mut u8>,
    next: Cell<*mut u8>,
    left: Cell<usize>,
}

// SAFETY: the pointer leads to a mapping that nothing else uses.
unsafe impl Send for Space {}

impl Space {
    const fn new() -> Self {
        Self { first: Cell::new(null_mut()), next: Cell::new(null_mut()), left: Cell::new(0) }
    }

    /// Reserves address space for this many bytes, with room for more if no limit is in the way. What was left of an
    /// earlier reservation is given back.
    fn reserve(&self, size: usize) -> Option<()> {
        let least = size.max(LEAST);
        let mut length = size.max(SPACE);
        let mut start = self.behind(length).or_else(|| map(length, NONE));
        if start.is_none() && raise_address_space() {
            start = map(length, NONE);
        }
        if start.is_none() {
            while start.is_none() && length > least {
                length = least.max(length / 2);
                start = map(length, NONE);
            }
            // Stacks of threads and the plugin's code need some of what is left, too.
            let half = length / 2;
            if half >= least && half.is_multiple_of(PIECE) {
                // SAFETY: the second half of the new mapping, which nothing uses yet.
                unsafe { munmap(start?.byte_add(half).cast(), length - half) }.ok()?;
                length = half;
            }
        }
        let start = start?;
        self.give_back();
        self.next.set(start.as_ptr());
        self.left.set(length);
        Some(())
    }

    /// Gives back what is left of the reservation.
    fn give_back(&self) {
        if let Some(start) = NonNull::new(self.next.get())
            && self.left.get() > 0
        {
            // SAFETY: this part of the reservation has been inaccessible, so nothing refers to it. An error leaves it
            // there, and it is not used any more.
            let _ = unsafe { munmap(start.cast(), self.left.get()) };
        }
        self.left.set(0);
    }

    /// Returns the first piece. The reservation can be made behind it, and ends at `below` then. Nothing is mapped there until
    /// then. `None` if the piece has been returned, more is needed, or its place is taken.
    fn begin(&self, size: usize, below: usize) -> Option<NonNull<u8>> {
        if size != PIECE || !self.first.get().is_null() || !self.next.get().is_null() {
            return None;
        }
        let place = below.checked_sub(SPACE + PIECE)? / PAGES * PAGES;
        let start = map_at(place, PIECE, WRITABLE)?;
        make_writable_present(start, FIRST);
        self.first.set(start.as_ptr());
        Some(start)
    }

    /// Reserves this much address space behind the first piece, if it is the first reservation and the place is free.
    fn behind(&self, length: usize) -> Option<NonNull<u8>> {
        if self.first.get().is_null() || !self.next.get().is_null() {
            return None;
        }
        map_at(self.first.get().addr() + PIECE, length, NONE)
    }

    /// Makes the next bytes writable.
    fn grow(&self, size: usize) -> Option<NonNull<u8>> {
        if self.left.get() < size {
            self.reserve(size)?;
        }
        let left = self.left.get().checked_sub(size)?;
        let start = NonNull::new(self.next.get())?;
        // SAFETY: this part of the reservation has been inaccessible, so nothing refers to it.
        unsafe { mprotect(start.cast(), size, WRITABLE) }.ok()?;
        self.left.set(left);
        // SAFETY: `size` bytes from there are in the reservation.
        self.next.set(unsafe { start.as_ptr().add(size) });
        Some(start)
    }
}

const NONE: ProtFlags = ProtFlags::PROT_NONE;
const WRITABLE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);
const FLAGS: MapFlags = MapFlags::MAP_PRIVATE.union(MapFlags::MAP_NORESERVE);

/// Maps address space. No memory is behind it yet.
fn map(length: usize, access: ProtFlags) -> Option<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let start = unsafe { mmap_anonymous(None, NonZeroUsize::new(length)?, access, FLAGS) };
    start.ok().map(NonNull::cast)
}

/// Maps address space at this place. `None` if something is there.
fn map_at(place: usize, length: usize, access: ProtFlags) -> Option<NonNull<u8>> {
    let (place, length) = (NonZeroUsize::new(place)?, NonZeroUsize::new(length)?);
    // SAFETY: a new mapping touches no memory in use. A kernel before Linux 4.17 takes the place for a wish.
    let start = unsafe { mmap_anonymous(Some(place), length, access, FLAGS | MapFlags::MAP_FIXED_NOREPLACE) }.ok()?;
    if start.addr() != place {
        // SAFETY: the new mapping, which nothing uses yet.
        let _ = unsafe { munmap(start, length.get()) };
        return None;
    }
    Some(start.cast())
}

/// Raises the limit of the address space as far as the runtime allows. A reservation is no memory.
fn raise_address_space() -> bool {
    match getrlimit(Resource::RLIMIT_AS) {
        Ok((soft, hard)) => soft < hard && setrlimit(Resource::RLIMIT_AS, hard, hard).is_ok(),
        Err(_) => false,
    }
}

// SAFETY: each piece is handed out once, readable and writable.
unsafe impl Allocator for Space {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let Some(size) = size.checked_next_multiple_of(PIECE) else { return (null_mut(), 0, 0) };
        // The kernel chooses the executable's place at random. The heap is as far from it in each run, so its place is as random.
        let below = (&raw const STATE).addr().saturating_sub(ROOM);
        let piece = self.begin(size, below).or_else(|| self.grow(size));
        piece.map_or((null_mut(), 0, 0), |start| (start.as_ptr(), size, 0))
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

/// The states of the lock: a futex (futex(2)). A lock of the C library costs more than the block itself.
const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and perhaps another thread sleeps.
const AWAITED: u32 = 2;

const FUTEX_WAIT: i32 = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
const FUTEX_WAKE: i32 = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;

/// dlmalloc's bookkeeping, and its lock.
struct State {
    lock: AtomicU32,
    /// For the owner of the lock alone.
    blocks: UnsafeCell<Dlmalloc<Space>>,
}

// SAFETY: the blocks are used under the lock.
unsafe impl Sync for State {}

static STATE: State =
    State { lock: AtomicU32::new(FREE), blocks: UnsafeCell::new(Dlmalloc::new_with_allocator(Space::new())) };

/// True once an executable allocates from the heap.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// True in a process whose last words are an error of CNI.
static ANSWERS: AtomicBool = AtomicBool::new(false);

/// The thread that has the lock, or 0. Nobody writes it in a process without threads.
static OWNER: AtomicUsize = AtomicUsize::new(0);

/// True if this process may have a second thread. Until then nobody takes the lock with an atomic instruction, which costs as
/// much as a block. With musl `of_c::pthread_create` tells. Other C libraries don't call that one.
static HAS_THREADS: AtomicBool = AtomicBool::new(cfg!(not(target_env = "musl")));

/// True if this executable allocates from the heap. Any other allocator would map memory.
pub fn is_used() -> bool {
    IS_USED.load(Ordering::Relaxed)
}

/// Reserves address space, if that was never done. A confined process may not raise its limits for it, and a sealed one can
/// map none.
fn reserve() {
    with(|blocks| {
        let space = blocks.allocator();
        if space.next.get().is_null() {
            // Without it, an allocation that needs more than the first piece fails.
            let _ = space.reserve(PIECE);
        }
    });
}

/// Prepares the heap of a sandbox: it has address space for this many bytes, as it can map none later. From now on the
/// heap says nothing.
///
/// A gate that was started under a low limit, or that has allocated much, has less than that.
///
/// # Errors
/// The limits of this process leave no such address space.
pub fn prepare_for_sealing(size: usize) -> Result<(), &'static str> {
    ANSWERS.store(false, Ordering::Relaxed);
    with(|blocks| {
        let space = blocks.allocator();
        if space.left.get() < size {
            space.reserve(size)?;
        }
        Some(())
    })
    .ok_or("there is no address space for its heap")
}

/// Makes so many bytes present at once, 256 KiB at most: those that the next blocks will lie in. A page fault for each page
/// takes longer. What a parent has written before is not among them: the kernel would copy it. A kernel before Linux 5.14
/// refuses, and makes them present one by one.
pub fn make_present(length: usize) {
    let length = length.min(PIECE);
    with(|blocks| {
        // SAFETY: dlmalloc takes any layout. The block is given back as it was, and nothing refers to it.
        unsafe {
            let block = blocks.malloc(length, 1);
            if let Some(start) = NonNull::new(block) {
                make_writable_present(start, length);
                blocks.free(block, length, 1);
            }
        }
    });
}

/// Makes so many bytes of the heap present. Their contents stay. A page that begins before them is left out.
fn make_writable_present(start: NonNull<u8>, length: usize) {
    // SAFETY: it only asks a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(PIECE);
    let begun = start.as_ptr().addr().next_multiple_of(page) - start.as_ptr().addr();
    let Some(length) = length.checked_sub(begun) else { return };
    // SAFETY: these bytes are writable memory of the heap.
    unsafe { libc::madvise(start.as_ptr().add(begun).cast(), length, libc::MADV_POPULATE_WRITE) };
}

/// Gives back the address space that the heap does not use yet, and returns its size in bytes. A limit on what a process
/// may map counts all of it.
pub fn give_back() -> u64 {
    with(|blocks| {
        let space = blocks.allocator();
        let unused = space.left.get();
        space.give_back();
        unused as u64
    })
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap {
    answers: bool,
}

impl Heap {
    /// The heap of an executable. If no memory is left, the process ends as other programs of Rust do: by a signal.
    #[must_use]
    pub const fn new() -> Self {
        Self { answers: false }
    }

    /// The heap of the executable that runtimes start. If no memory is left, it answers with an error of CNI, and ends
    /// with status 1. Its sandboxes end by a signal, which their gate reports.
    #[must_use]
    pub const fn of_a_run() -> Self {
        Self { answers: true }
    }

    #[inline(always)]
    fn with<T>(self, act: impl FnOnce(&mut Dlmalloc<Space>) -> T) -> T {
        if !is_used() {
            self.begin();
        }
        with(act)
    }

    #[cold]
    fn begin(self) {
        if !IS_USED.swap(true, Ordering::Relaxed) {
            ANSWERS.store(self.answers, Ordering::Relaxed);
            keep_usable_in_children();
        }
    }
}

/// A child must be able to allocate, although another thread allocates while it is forked.
fn keep_usable_in_children() {
    static IS_KEPT: AtomicBool = AtomicBool::new(false);
    if !IS_KEPT.load(Ordering::Relaxed) && !IS_KEPT.swap(true, Ordering::Relaxed) {
        let (before, in_parent, in_child) = (acquire, release, release_in_child);
        keep_around_forks(AroundFork { early: reserve, before, in_parent, in_child });
    }
}

/// Returns the block, or ends a process that has to answer.
#[inline(always)]
fn answered(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        lacks_memory();
    }
    block
}

#[cold]
fn lacks_memory() {
    if ANSWERS.load(Ordering::Relaxed) {
        end(
            "the runtime leaves this process no memory: raise its limits of data and of address space (`ulimit -d`, `ulimit \
             -v`), or in its service",
        );
    }
}

/// Ends the process with these words, without any allocation.
fn end(words: &str) -> ! {
    let answers = ANSWERS.load(Ordering::Relaxed);
    let (stream, parts) =
        if answers { (1, ["{\"code\": 999, \"msg\": \"", words, "\"}\n"]) } else { (2, ["postern: ", words, "\n"]) };
    for part in parts {
        // SAFETY: the bytes are those of a text. If nobody reads them, the process ends all the same.
        unsafe { libc::write(stream, part.as_ptr().cast(), part.len()) };
    }
    if answers {
        // SAFETY: `_exit` has no preconditions.
        unsafe { libc::_exit(1) }
    }
    // SAFETY: `abort` has no preconditions.
    unsafe { libc::abort() }
}

/// Does something with the blocks, under the lock.
#[inline(always)]
fn with<T>(act: impl FnOnce(&mut Dlmalloc<Space>) -> T) -> T {
    acquire();
    // SAFETY: this thread has the lock.
    let done = act(unsafe { &mut *STATE.blocks.get() });
    release();
    done
}

#[inline(always)]
fn acquire() {
    if HAS_THREADS.load(Ordering::Relaxed) {
        acquire_among_threads();
        return;
    }
    if STATE.lock.load(Ordering::Relaxed) != FREE {
        used_inside_itself();
    }
    STATE.lock.store(HELD, Ordering::Relaxed);
}

#[inline(always)]
fn release() {
    if HAS_THREADS.load(Ordering::Relaxed) {
        release_among_threads();
        return;
    }
    STATE.lock.store(FREE, Ordering::Relaxed);
}

#[cold]
fn acquire_among_threads() {
    // SAFETY: it has no preconditions.
    let own = unsafe { libc::pthread_self() } as usize;
    if STATE.lock.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
        wait(own);
    }
    OWNER.store(own, Ordering::Relaxed);
}

#[cold]
fn release_among_threads() {
    OWNER.store(0, Ordering::Relaxed);
    if STATE.lock.swap(FREE, Ordering::Release) == AWAITED {
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_futex, STATE.lock.as_ptr(), FUTEX_WAKE, 1) };
    }
}

/// Waits for the lock, as the standard library does. A thread that has it already would wait for itself. That is a fault
/// in the heap, which panics: the panic's words are an allocation.
#[cold]
fn wait(own: usize) {
    // Only this thread can have stored its own number.
    if OWNER.load(Ordering::Relaxed) == own {
        used_inside_itself();
    }
    while STATE.lock.swap(AWAITED, Ordering::Acquire) != FREE {
        let none = std::ptr::null::<libc::timespec>();
        // SAFETY: the lock has its place for ever. An error only leads to another look.
        unsafe { libc::syscall(libc::SYS_futex, STATE.lock.as_ptr(), FUTEX_WAIT, AWAITED, none) };
    }
}

#[cold]
fn used_inside_itself() -> ! {
    end("the heap failed, and was used inside of itself: this is a bug of Postern");
}

/// In a new process. Only the process that was started as a plugin answers a runtime: another one has no such output.
fn release_in_child() {
    ANSWERS.store(false, Ordering::Relaxed);
    release();
}

// SAFETY: dlmalloc returns blocks of that size and alignment which nothing else uses, or null.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: dlmalloc takes any layout.
        answered(self.with(|blocks| unsafe { blocks.malloc(layout.size(), layout.align()) }))
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        answered(self.with(|blocks| unsafe { blocks.calloc(layout.size(), layout.align()) }))
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller says that the block is one of this heap, with this layout.
        with(|blocks| unsafe { blocks.free(ptr, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        answered(self.with(|blocks| unsafe { blocks.realloc(ptr, layout.size(), layout.align(), new_size) }))
    }
}

#[cfg(target_env = "musl")]
mod of_c;
#[cfg(test)]
mod tests;
