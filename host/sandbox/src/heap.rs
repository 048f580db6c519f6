//! The heap of every executable that has a sandbox: `#[global_allocator] static HEAP: Heap = Heap;`.
//!
//! A sealed sandbox can map no memory, and C libraries allocate by mapping. So the whole executable allocates from
//! address space that is reserved at its first allocation. Pieces of it become writable as they are needed, which the
//! kernel counts as data, and they stay so. The blocks are dlmalloc's.
#![allow(unsafe_code, reason = "it is the allocator")]

use dlmalloc::{Allocator, Dlmalloc};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::num::NonZeroUsize;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

/// The address space that is reserved at once, in bytes. A sandbox may have less memory than that, so it never needs a
/// second piece. A gate needs some MiB, and the compiler more.
const SPACE: usize = 512 << 20;

/// The least address space that is tried, where it is limited.
const LEAST: usize = 1 << 20;

/// The bytes that become writable at once: a multiple of every page size of the kernel. A run needs one or two pieces.
const PIECE: usize = 256 << 10;

/// The address space: what is left of it.
struct Space {
    next: Cell<*mut u8>,
    left: Cell<usize>,
}

// SAFETY: the pointer leads to a mapping that nothing else uses, and that is never undone.
unsafe impl Send for Space {}

impl Space {
    /// Reserves address space for this many bytes, with room for more if no limit is in the way.
    fn reserve(&self, size: usize) -> Option<()> {
        let least = size.max(LEAST);
        let mut length = size.max(SPACE);
        loop {
            let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
            // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
            match unsafe { mmap_anonymous(None, NonZeroUsize::new(length)?, ProtFlags::PROT_NONE, flags) } {
                Ok(start) => {
                    self.next.set(start.as_ptr().cast());
                    self.left.set(length);
                    return Some(());
                }
                Err(_) if length > least => length = least.max(length / 2),
                Err(_) => return None,
            }
        }
    }

    /// Makes the next bytes writable.
    fn grow(&self, size: usize) -> Option<NonNull<u8>> {
        if self.left.get() < size {
            self.reserve(size)?;
        }
        let left = self.left.get().checked_sub(size)?;
        let start = NonNull::new(self.next.get())?;
        let flags = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: this part of the reservation has been inaccessible, so nothing refers to it.
        unsafe { mprotect(start.cast(), size, flags) }.ok()?;
        self.left.set(left);
        // SAFETY: `size` bytes from there are in the reservation.
        self.next.set(unsafe { start.as_ptr().add(size) });
        Some(start)
    }
}

// SAFETY: each piece of the reservation is handed out once, readable and writable.
unsafe impl Allocator for Space {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let size = size.next_multiple_of(PIECE);
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

/// dlmalloc's bookkeeping, and its lock.
struct State {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    /// For the owner of the lock alone.
    blocks: UnsafeCell<Dlmalloc<Space>>,
}

// SAFETY: the blocks are used under the lock.
unsafe impl Sync for State {}

static STATE: State = State {
    lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    blocks: UnsafeCell::new(Dlmalloc::new_with_allocator(Space { next: Cell::new(null_mut()), left: Cell::new(0) })),
};

/// True once an executable allocates from the heap.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// True if this executable allocates from the heap. Any other allocator would map memory.
pub(crate) fn is_used() -> bool {
    IS_USED.load(Ordering::Relaxed)
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Heap;

/// Does something with the blocks, under the lock.
fn with<T>(act: impl FnOnce(&mut Dlmalloc<Space>) -> T) -> T {
    acquire();
    if !is_used() {
        IS_USED.store(true, Ordering::Relaxed);
        keep_after_fork();
    }
    // SAFETY: this thread has the lock.
    let done = act(unsafe { &mut *STATE.blocks.get() });
    release();
    done
}

extern "C" fn acquire() {
    // SAFETY: the lock was initialised, and has its place for ever. A normal lock gives no error.
    unsafe { libc::pthread_mutex_lock(STATE.lock.get()) };
}

extern "C" fn release() {
    // SAFETY: as above; this thread has the lock.
    unsafe { libc::pthread_mutex_unlock(STATE.lock.get()) };
}

/// Holds the lock across each fork: a child must be able to allocate, although another thread allocates meanwhile.
fn keep_after_fork() {
    // SAFETY: the functions can be called around any fork. The C library itself allocates elsewhere.
    unsafe { libc::pthread_atfork(Some(acquire), Some(release), Some(release)) };
}

// SAFETY: dlmalloc returns blocks of that size and alignment which nothing else uses, or null.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: dlmalloc takes any layout.
        with(|blocks| unsafe { blocks.malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        with(|blocks| unsafe { blocks.calloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller says that the block is one of this heap, with this layout.
        with(|blocks| unsafe { blocks.free(ptr, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        with(|blocks| unsafe { blocks.realloc(ptr, layout.size(), layout.align(), new_size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    #[global_allocator]
    static HEAP: Heap = Heap;

    #[test]
    fn blocks_have_their_size_and_alignment_and_are_used_again() {
        for align in [1, 16, 4096, 1 << 20] {
            for size in [1, 100, 5000, 3 << 20] {
                let layout = Layout::from_size_align(size, align).unwrap();
                unsafe {
                    let block = HEAP.alloc_zeroed(layout);
                    assert_eq!(block.addr() % align, 0);
                    assert!((0..size).all(|at| block.add(at).read() == 0));
                    block.write_bytes(7, size);
                    let larger = HEAP.realloc(block, layout, size * 2);
                    assert!((0..size).all(|at| larger.add(at).read() == 7));
                    HEAP.dealloc(larger, Layout::from_size_align(size * 2, align).unwrap());
                }
            }
        }
        let before = unsafe { (*STATE.blocks.get()).allocator().left.get() };
        for _ in 0..1000 {
            drop(black_box(vec![1_u8; 8 << 20]));
        }
        let after = unsafe { (*STATE.blocks.get()).allocator().left.get() };
        assert!(before - after < 100 << 20, "{before} {after}");
    }

    #[test]
    fn a_space_that_is_used_up_is_followed_by_another() {
        let space = Space { next: Cell::new(null_mut()), left: Cell::new(0) };
        let first = space.grow(PIECE).unwrap();
        let second = space.grow(PIECE).unwrap();
        assert_eq!(first.addr().get() + PIECE, second.addr().get());
        let large = space.grow(SPACE).unwrap();
        unsafe { large.as_ptr().add(SPACE - 1).write(1) };
        assert!(space.grow(PIECE).is_some());
        assert!(space.grow(usize::MAX / 2).is_none());
    }

    /// Each child allocates, whatever the other threads of its parent were doing.
    #[test]
    fn a_child_of_a_process_with_threads_can_allocate() {
        let done = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let until = Instant::now() + Duration::from_secs(20);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    drop(black_box(vec![0_u8; 100]));
                }
            });
            for _ in 0..200 {
                let child = match unsafe { fork() }.unwrap() {
                    ForkResult::Child => {
                        drop(black_box(vec![0_u8; 100]));
                        unsafe { libc::_exit(0) }
                    }
                    ForkResult::Parent { child } => child,
                };
                while matches!(waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap(), WaitStatus::StillAlive) {
                    if Instant::now() > until {
                        done.store(true, Ordering::Relaxed);
                        kill(child, Signal::SIGKILL).unwrap();
                        panic!("a child hangs");
                    }
                    std::thread::yield_now();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
