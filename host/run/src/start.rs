//! The entry point of the executable, before that of the C library.
//!
//! A position-independent executable begins with writing to each page of its tables of pointers (`.data.rel.ro`, 29 pages).
//! The kernel copies each page at the first write to it, by a page fault for each. One call lets it copy all of them. A
//! kernel before Linux 5.14 refuses (madvise(2)), and copies them one by one.
//!
//! `build.rs` gives the linker this entry point where it exists. Elsewhere the executable begins as usual.
#![allow(unsafe_code, reason = "nothing but assembler comes before the C library")]

// SAFETY: the kernel gives the stack, and in `rdx` a function for the end of the process (System V ABI for AMD64, 3.4.1:
// Process Initialization). Both are as before when `_start` begins. `madvise` changes no contents. The linker gives the
// first and the last address; whatever lies between is the executable's own writable memory.
std::arch::global_asm!(
    ".pushsection .text.postern_start, \"ax\", @progbits",
    ".globl postern_start",
    ".type postern_start, @function",
    "postern_start:",
    "mov r8, rdx",
    "lea rdi, [rip + __init_array_start]",
    "and rdi, -{page}",
    "lea rsi, [rip + _end]",
    "sub rsi, rdi",
    "mov edx, {populate}",
    "mov eax, {madvise}",
    "syscall",
    "mov rdx, r8",
    "jmp _start",
    ".size postern_start, . - postern_start",
    ".popsection",
    page = const 4096,
    populate = const libc::MADV_POPULATE_WRITE,
    madvise = const libc::SYS_madvise,
);
