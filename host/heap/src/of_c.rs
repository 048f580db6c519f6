//! The heap for whoever calls malloc(3) by its name. The standard library does so for the destructors of its thread-locals.
//! musl's own allocator would map memory at the first call, which takes 15 µs of each sandbox.
//!
//! Some functions of musl use its own heap all the same (atexit(3), pthread_atfork(3), posix_spawn(3)), and give it back
//! there. No sandbox calls them.
//!
//! Whoever makes a thread comes by here too: the heap's lock depends on it.
//!
//! malloc(3), posix_memalign(3), malloc_usable_size(3), pthread_create(3). Before each block lie its size and its distance from what the
//! heap gave, because free(3) is not told.

use super::{HAS_THREADS, keep_usable_in_children, with};
use libc::{EINVAL, ENOMEM, c_int, c_void, pthread_attr_t, pthread_t, size_t};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

/// What lies before a block.
#[repr(C, align(16))]
struct Header {
    /// The size that was asked for, in bytes.
    size: usize,
    /// The bytes from the heap's block to this one: a power of two.
    distance: usize,
}

/// The size of a header, and the alignment of all types of C.
const LEAST: usize = size_of::<Header>();

fn fail(errno: c_int) {
    // SAFETY: musl returns the place of this thread's error number.
    unsafe { *libc::__errno_location() = errno };
}

/// Allocates, and writes the header. `alignment` is a power of two.
fn allocate(size: usize, alignment: usize, is_zeroed: bool) -> *mut c_void {
    let distance = alignment.max(LEAST);
    keep_usable_in_children();
    // As of any layout of Rust: dlmalloc's sums don't overflow below that.
    let whole = size.checked_add(distance).filter(|whole| *whole <= isize::MAX as usize - distance);
    let block = whole.map_or(null_mut(), |whole| {
        // SAFETY: the size and the power of two are those of a possible layout.
        with(|blocks| unsafe {
            if is_zeroed { blocks.calloc(whole, distance) } else { blocks.malloc(whole, distance) }
        })
    });
    if block.is_null() {
        fail(ENOMEM);
        return null_mut();
    }
    // SAFETY: the block is longer than `distance`, which is at least the size of a header, and aligned to both.
    unsafe {
        let given = block.add(distance);
        given.cast::<Header>().sub(1).write(Header { size, distance });
        given.cast()
    }
}

/// Returns the header of a block of [`allocate`].
///
/// # Safety
/// The block was returned by one of the functions below, and not freed.
unsafe fn header(block: *mut c_void) -> Header {
    // SAFETY: `allocate` wrote it.
    unsafe { block.cast::<Header>().sub(1).read() }
}

#[unsafe(no_mangle)]
extern "C" fn malloc(size: size_t) -> *mut c_void {
    allocate(size, LEAST, false)
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    match count.checked_mul(size) {
        Some(size) => allocate(size, LEAST, true),
        None => {
            fail(ENOMEM);
            null_mut()
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    // SAFETY: the caller gives a block of these functions, once. musl returns the place of this thread's error number, which
    // free(3) keeps: the wait for the lock can change it.
    unsafe {
        let errno = *libc::__errno_location();
        let Header { size, distance } = header(block);
        with(|blocks| blocks.free(block.cast::<u8>().sub(distance), size + distance, distance));
        *libc::__errno_location() = errno;
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut c_void, size: size_t) -> *mut c_void {
    let new = malloc(size);
    if !block.is_null() && !new.is_null() {
        // SAFETY: both blocks have as many bytes, and the new one is another. The caller gives the old one up.
        unsafe {
            let had = header(block).size;
            new.copy_from_nonoverlapping(block, had.min(size));
            free(block);
        }
    }
    new
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(alignment: size_t, size: size_t) -> *mut c_void {
    if !alignment.is_power_of_two() {
        fail(EINVAL);
        return null_mut();
    }
    allocate(size, alignment, false)
}

#[unsafe(no_mangle)]
extern "C" fn memalign(alignment: size_t, size: size_t) -> *mut c_void {
    aligned_alloc(alignment, size)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(place: *mut *mut c_void, alignment: size_t, size: size_t) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<*mut c_void>()) {
        return EINVAL;
    }
    let block = allocate(size, alignment, false);
    if block.is_null() {
        return ENOMEM;
    }
    // SAFETY: the caller gives a place for a pointer.
    unsafe { *place = block };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> size_t {
    // SAFETY: the caller gives a block of these functions.
    if block.is_null() { 0 } else { unsafe { header(block) }.size }
}

type Begin = extern "C" fn(*mut c_void) -> *mut c_void;

unsafe extern "C" {
    /// musl's own name of its function. `pthread_create` is another one for it there, which gives way to ours.
    fn __pthread_create(
        thread: *mut pthread_t,
        attributes: *const pthread_attr_t,
        begin: Begin,
        argument: *mut c_void,
    ) -> c_int;
}

/// Makes a thread, as pthread_create(3). From then on the heap's lock is one for several threads. Of musl's functions only
/// thrd_create(3) makes a thread without it, and nobody calls that one. `tests/order --check` looks for both. A dynamic musl
/// does not show its own name, and can't be linked.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    begin: Begin,
    argument: *mut c_void,
) -> c_int {
    HAS_THREADS.store(true, Ordering::Relaxed);
    // SAFETY: the caller gives what pthread_create(3) wants. The new thread sees what was written before it was made.
    unsafe { __pthread_create(thread, attributes, begin, argument) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a pattern to the whole block.
    fn fill(block: *mut c_void, size: usize, byte: u8) {
        // SAFETY: the block has this size.
        unsafe { block.cast::<u8>().write_bytes(byte, size) };
    }

    fn is_filled(block: *mut c_void, size: usize, byte: u8) -> bool {
        // SAFETY: the block has this size, and all of it was written.
        unsafe { std::slice::from_raw_parts(block.cast::<u8>(), size) }.iter().all(|have| *have == byte)
    }

    #[test]
    fn blocks_have_their_size_and_alignment_and_do_not_overlap() {
        let mut blocks = Vec::new();
        for size in [0, 1, 15, 16, 17, 4096, 100_000] {
            for alignment in [1, 8, 16, 64, 4096] {
                let block = aligned_alloc(alignment, size);
                assert!(!block.is_null() && block.addr().is_multiple_of(alignment.max(LEAST)));
                let byte = blocks.len() as u8;
                fill(block, size, byte);
                blocks.push((block, size, byte));
            }
        }
        for (block, size, byte) in blocks {
            assert!(is_filled(block, size, byte));
            // SAFETY: a block from above, once.
            unsafe {
                assert_eq!(malloc_usable_size(block), size);
                free(block);
            }
        }
    }

    #[test]
    fn what_is_grown_keeps_its_content_and_what_is_zeroed_has_none() {
        let block = calloc(10, 30);
        assert!(is_filled(block, 300, 0));
        fill(block, 300, 7);
        // SAFETY: each block is used until it is given up.
        unsafe {
            let grown = realloc(block, 5000);
            assert!(is_filled(grown, 300, 7));
            let shrunk = realloc(grown, 100);
            assert!(is_filled(shrunk, 100, 7));
            free(shrunk);
            free(realloc(null_mut(), 10));
            free(null_mut());
        }
    }

    #[test]
    fn impossible_requests_are_refused() {
        let errno = || std::io::Error::last_os_error().raw_os_error();
        let large = [usize::MAX, usize::MAX - (200 << 10), isize::MAX as usize, isize::MAX as usize - 16];
        let refused = large.map(|size| malloc(size)).into_iter().chain(large.map(|size| calloc(1, size)));
        for refused in refused.chain([calloc(usize::MAX / 2, 3), aligned_alloc(1 << 62, 1 << 62)]) {
            assert_eq!((refused, errno()), (null_mut(), Some(ENOMEM)));
        }
        assert_eq!((aligned_alloc(3, 10), errno()), (null_mut(), Some(EINVAL)));
        let mut place = null_mut();
        // SAFETY: the place is there.
        let refused = unsafe { [posix_memalign(&raw mut place, 4, 1), posix_memalign(&raw mut place, 24, 1)] };
        assert_eq!((refused, place), ([EINVAL, EINVAL], null_mut()));
        let block = malloc(10);
        // SAFETY: it stays as it was.
        unsafe {
            assert!(realloc(block, usize::MAX).is_null());
            assert_eq!(malloc_usable_size(block), 10);
            free(block);
        }
    }

    /// Whoever calls these functions by their names gets ours.
    #[test]
    fn they_are_the_functions_of_the_executable() {
        let theirs = [
            libc::malloc as *const (),
            libc::calloc as *const (),
            libc::realloc as *const (),
            libc::free as *const (),
            libc::aligned_alloc as *const (),
            libc::memalign as *const (),
            libc::posix_memalign as *const (),
            libc::malloc_usable_size as *const (),
            libc::pthread_create as *const (),
        ];
        let ours = [
            malloc as *const (),
            calloc as *const (),
            realloc as *const (),
            free as *const (),
            aligned_alloc as *const (),
            memalign as *const (),
            posix_memalign as *const (),
            malloc_usable_size as *const (),
            pthread_create as *const (),
        ];
        assert_eq!(theirs, ours);
    }
}
