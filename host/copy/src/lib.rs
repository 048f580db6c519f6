//! `memcpy`, `memmove` and `memcmp` (C11, 7.24.2.1, 7.24.2.2 and 7.24.4.1) in place of musl's for x86-64. Elsewhere the C
//! library's are used. An executable has them if it names this crate: `use postern_copy as _;`.
//!
//! A run copies some ten thousand pieces of memory, and most have fewer than eight bytes: the parts of JSON texts. musl's
//! `memcpy` takes some 30 ns for each, most of it for a `rep movsq`. musl's `memcmp` looks at one byte after the other: that
//! was a twentieth of the instructions of a run. docs/decisions.md has the figures.
//!
//! `memcpy` and `memmove` are one function. It reads all of a short piece before it writes, so an overlap does no harm. A piece of more than 64
//! bytes is copied forwards, or backwards where a write would hit what is still to be read.
#![allow(unsafe_code, reason = "memory is copied and compared by address")]

// SAFETY: each access lies in the `rdx` bytes from `rdi` or from `rsi`, which the caller owns. Only registers that a caller
// keeps itself are changed (System V ABI for AMD64, 3.2.1: Registers).
#[cfg(all(target_arch = "x86_64", target_env = "musl"))]
std::arch::global_asm!(
    ".pushsection .text.memcpy, \"ax\", @progbits",
    ".globl memcpy",
    ".globl memmove",
    ".type memcpy, @function",
    ".type memmove, @function",
    ".p2align 4",
    "memcpy:",
    "memmove:",
    "mov rax, rdi",
    "cmp rdx, 16",
    "jae 3f",
    // 8 to 15 bytes: the first and the last 8.
    "cmp edx, 8",
    "jb 2f",
    "mov rcx, [rsi]",
    "mov r8, [rsi + rdx - 8]",
    "mov [rdi], rcx",
    "mov [rdi + rdx - 8], r8",
    "ret",
    // 4 to 7.
    "2:",
    "cmp edx, 4",
    "jb 2f",
    "mov ecx, [rsi]",
    "mov r8d, [rsi + rdx - 4]",
    "mov [rdi], ecx",
    "mov [rdi + rdx - 4], r8d",
    "ret",
    // 1 to 3: the first, the middle and the last.
    "2:",
    "test edx, edx",
    "je 2f",
    "mov r9d, edx",
    "shr r9d, 1",
    "mov cl, [rsi]",
    "mov r8b, [rsi + r9]",
    "mov r10b, [rsi + rdx - 1]",
    "mov [rdi], cl",
    "mov [rdi + r9], r8b",
    "mov [rdi + rdx - 1], r10b",
    "2:",
    "ret",
    // 16 to 32.
    "3:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + rdx - 16]",
    "cmp rdx, 32",
    "ja 3f",
    "movups [rdi], xmm0",
    "movups [rdi + rdx - 16], xmm1",
    "ret",
    // 33 to 64.
    "3:",
    "movups xmm2, [rsi + 16]",
    "movups xmm3, [rsi + rdx - 32]",
    "cmp rdx, 64",
    "ja 4f",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm2",
    "movups [rdi + rdx - 32], xmm3",
    "movups [rdi + rdx - 16], xmm1",
    "ret",
    // More. Backwards if the destination begins inside of the source.
    "4:",
    "mov rcx, rdi",
    "sub rcx, rsi",
    "cmp rcx, rdx",
    "jb 6f",
    // Forwards. The last 32 bytes were read before anything is written.
    "lea r8, [rdi + rdx - 32]",
    "5:",
    "movups xmm0, [rsi]",
    "movups xmm2, [rsi + 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm2",
    "add rsi, 32",
    "add rdi, 32",
    "cmp rdi, r8",
    "jb 5b",
    "movups [r8], xmm3",
    "movups [r8 + 16], xmm1",
    "ret",
    // Backwards. The first 32 bytes were read before anything is written.
    "6:",
    "movups xmm1, [rsi + rdx - 16]",
    "movups xmm3, [rsi + rdx - 32]",
    "movups [rdi + rdx - 16], xmm1",
    "movups [rdi + rdx - 32], xmm3",
    "sub rdx, 32",
    "cmp rdx, 32",
    "ja 6b",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm2",
    "ret",
    ".size memcpy, . - memcpy",
    ".size memmove, . - memmove",
    ".popsection",
);

// `bcmp` (POSIX.1-2001) is there too: the compiler calls it where only equality counts.
//
// SAFETY: each access lies in the `rdx` bytes from `rdi` or from `rsi`, which the caller may read. Only registers that a
// caller keeps itself are changed.
#[cfg(all(target_arch = "x86_64", target_env = "musl"))]
std::arch::global_asm!(
    ".pushsection .text.memcmp, \"ax\", @progbits",
    ".globl memcmp",
    ".globl bcmp",
    ".type memcmp, @function",
    ".type bcmp, @function",
    ".p2align 4",
    "memcmp:",
    "bcmp:",
    "cmp rdx, 8",
    "jb 3f",
    // 8 and more: each 8, and in the end the last 8.
    "sub rdx, 8",
    "xor r8d, r8d",
    "2:",
    "mov rax, [rdi + r8]",
    "mov rcx, [rsi + r8]",
    "cmp rax, rcx",
    "jne 6f",
    "add r8, 8",
    "cmp r8, rdx",
    "jb 2b",
    "mov rax, [rdi + rdx]",
    "mov rcx, [rsi + rdx]",
    "cmp rax, rcx",
    "jne 6f",
    "xor eax, eax",
    "ret",
    // 4 to 7: the first and the last 4.
    "3:",
    "cmp edx, 4",
    "jb 4f",
    "mov eax, [rdi]",
    "mov ecx, [rsi]",
    "cmp eax, ecx",
    "jne 6f",
    "mov eax, [rdi + rdx - 4]",
    "mov ecx, [rsi + rdx - 4]",
    "cmp eax, ecx",
    "jne 6f",
    "xor eax, eax",
    "ret",
    // Fewer: byte by byte.
    "4:",
    "xor eax, eax",
    "test edx, edx",
    "je 8f",
    "5:",
    "movzx eax, byte ptr [rdi]",
    "movzx ecx, byte ptr [rsi]",
    "sub eax, ecx",
    "jne 8f",
    "inc rdi",
    "inc rsi",
    "dec edx",
    "jne 5b",
    "ret",
    // The first byte that differs decides. The order of the bytes is turned, so that it counts most.
    "6:",
    "bswap rax",
    "bswap rcx",
    "cmp rax, rcx",
    "sbb eax, eax",
    "or eax, 1",
    "8:",
    "ret",
    ".size memcmp, . - memcmp",
    ".size bcmp, . - bcmp",
    ".popsection",
);

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    const ROOM: usize = 700;

    /// What a copy leaves, made byte by byte.
    fn expected(room: &[u8], from: usize, to: usize, length: usize) -> Vec<u8> {
        let byte = |at: usize| if (to..to + length).contains(&at) { room[at - to + from] } else { room[at] };
        (0..room.len()).map(byte).collect()
    }

    fn check(from: usize, to: usize, length: usize) {
        let room: Vec<u8> = (0..ROOM).map(|at| (at * 7 + at / 256) as u8).collect();
        let mut moved = room.clone();
        let start = moved.as_mut_ptr();
        // SAFETY: both pieces are inside of the room.
        unsafe { std::ptr::copy(start.add(from), start.add(to), black_box(length)) };
        assert_eq!(moved, expected(&room, from, to, length), "{length} bytes from {from} to {to}");
        if from.abs_diff(to) >= length {
            let mut copied = room.clone();
            let start = copied.as_mut_ptr();
            // SAFETY: both pieces are inside of the room, and apart.
            unsafe { std::ptr::copy_nonoverlapping(start.add(from), start.add(to), black_box(length)) };
            assert_eq!(copied, moved, "{length} bytes from {from} to {to}");
        }
    }

    #[test]
    fn every_length_and_distance_is_copied() {
        for length in 0..=200 {
            for distance in 0..=length + 1 {
                check(100, 100 + distance, length);
                check(100 + distance, 100, length);
            }
            // Nothing of one piece is in the other.
            check(10, 400, length);
            check(400, 10, length);
        }
    }

    #[test]
    fn long_pieces_are_copied() {
        let from: Vec<u8> = (0..100_003_u32).map(|at| (at % 251) as u8).collect();
        let mut to = vec![0; from.len()];
        to.copy_from_slice(black_box(&from));
        assert_eq!(from, to);
        to.copy_within(black_box(1..), 0);
        assert_eq!(from[1..], to[..to.len() - 1]);
        to.copy_from_slice(&from);
        to.copy_within(black_box(..from.len() - 17), 17);
        assert_eq!(from[..from.len() - 17], to[17..]);
    }

    unsafe extern "C" {
        fn memcmp(one: *const u8, other: *const u8, length: usize) -> i32;
        fn bcmp(one: *const u8, other: *const u8, length: usize) -> i32;
        fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8;
        fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8;
    }

    /// Writable memory of two pages, between two pages that nobody can read.
    fn between_walls() -> (*mut u8, usize) {
        let page = 4096;
        // SAFETY: a new mapping, and two changes inside of it. It stays until the process ends.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(std::ptr::null_mut(), 4 * page, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            let inside = start.byte_add(page);
            assert_eq!(libc::mprotect(inside, 2 * page, libc::PROT_READ | libc::PROT_WRITE), 0);
            (inside.cast(), 2 * page)
        }
    }

    #[test]
    fn nothing_beside_the_pieces_is_touched_and_the_destination_is_returned() {
        let ((from, size), (to, _)) = (between_walls(), between_walls());
        for length in 0..=300 {
            let ends = [0, size - length];
            for (source, destination) in ends.into_iter().flat_map(|source| ends.map(|at| (source, at))) {
                for function in [memcpy, memmove] {
                    // SAFETY: both pieces are inside of the writable memory, and apart.
                    unsafe {
                        let (source, destination) = (from.add(source), to.add(destination));
                        from.write_bytes(1, size);
                        to.write_bytes(2, size);
                        assert_eq!(black_box(function)(destination, source, length), destination);
                        let ones = (0..size).filter(|at| to.add(*at).read() == 1).count();
                        assert_eq!(ones, length);
                        assert!((0..length).all(|at| destination.add(at).read() == 1), "{length}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_byte_that_differs_decides() {
        for length in 0..=70 {
            let one: Vec<u8> = (0..length).map(|at| (at * 37) as u8).collect();
            let compared = |other: &[u8]| {
                // SAFETY: both pieces have this length.
                unsafe {
                    let order = black_box(memcmp)(one.as_ptr(), other.as_ptr(), length).signum();
                    let differs = black_box(bcmp)(one.as_ptr(), other.as_ptr(), length) != 0;
                    assert_eq!(differs, order != 0, "{one:?} {other:?}");
                    order
                }
            };
            assert_eq!(compared(&one.clone()), 0, "{length}");
            for first in 0..length {
                for (byte, later) in [(0x80_u8, 0), (1, 0xff), (0xff, 1)] {
                    let mut other = one.clone();
                    other[first] ^= byte;
                    // What follows points the other way.
                    if let Some(rest) = other.get_mut(first + 1..) {
                        rest.iter_mut().for_each(|byte| *byte ^= later);
                    }
                    assert_eq!(compared(&other), if one[first] < other[first] { -1 } else { 1 }, "{one:?} {other:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_beside_the_pieces_is_compared() {
        let ((one, size), (other, _)) = (between_walls(), between_walls());
        for length in 0..=100 {
            let ends = [0, size - length];
            for (left, right) in ends.into_iter().flat_map(|left| ends.map(|right| (left, right))) {
                // SAFETY: both pieces are inside of the writable memory.
                unsafe {
                    one.write_bytes(1, size);
                    other.write_bytes(2, size);
                    let (left, right) = (one.add(left), other.add(right));
                    right.write_bytes(1, length);
                    assert_eq!(black_box(memcmp)(left, right, length), 0, "{length}");
                }
            }
        }
    }

    /// The tests above would also pass with the C library's functions.
    #[cfg(all(target_arch = "x86_64", target_env = "musl"))]
    #[test]
    fn the_functions_are_those_of_this_crate() {
        // They are one function each here, and two in musl.
        assert_eq!(black_box(memcpy as *const ()), black_box(memmove as *const ()));
        assert_eq!(black_box(memcmp as *const ()), black_box(bcmp as *const ()));
    }
}
