//! The entry point of the executable, before that of the C library. It does at once, or faster, what would follow.
//!
//! A position-independent executable begins with its tables of pointers (`.data.rel.ro`, 30 pages): to each pointer it adds
//! the address at which the kernel has placed the executable.
//!
//! * The kernel copies each page of the tables at the first write to it, by a page fault for each. One call lets it copy all
//!   of them. A kernel before Linux 5.14 refuses (madvise(2)), and copies them one by one.
//! * The pages below the first one of the stack are made present in the same way. Each run writes two of them before it
//!   knows its verb.
//! * The list of the pointers has a bit for each word of the tables (`DT_RELR` of the generic ABI, "Relative relocations").
//!   musl looks at each bit. Going from one set bit to the next takes half the time. The length of the list is then set to
//!   zero, so that musl finds nothing to do.
//! * `_init` of the C library lies in a section of its own (`.init`), behind all code: a page fault for three instructions,
//!   which do nothing. `build.rs` has the linker put an empty function in its place. `tests/order --check` fails if that
//!   section has more.
//!
//! `build.rs` gives the linker this entry point where it exists. Elsewhere the executable begins as usual. The executable must
//! be position independent: another one has no `_DYNAMIC`, and is not linked.
#![allow(unsafe_code, reason = "nothing but assembler comes before the C library")]

// SAFETY: the kernel gives the stack, and in `rdx` a function for the end of the process (System V ABI for AMD64, 3.4.1:
// Process Initialization). Both are as before when `_start` begins. `madvise` changes no contents. The linker gives all
// addresses: `_DYNAMIC` is its table of entries of two words (number and value, 0 at the end), and `__ehdr_start` is the
// executable's first byte, which it was linked to have at 0. The linker makes the list, whose pointers lie in the executable's
// own segments that can be written until the C library begins. No other thread is there.
std::arch::global_asm!(
    ".pushsection .text.postern_start, \"ax\", @progbits",
    ".globl postern_start",
    ".type postern_start, @function",
    "postern_start:",
    "mov r8, rdx",
    "lea rdi, [rsp - {stack}]",
    "and rdi, -{page}",
    "mov esi, {stack}",
    "mov edx, {populate}",
    "mov eax, {madvise}",
    "syscall",
    "lea rdi, [rip + __init_array_start]",
    "and rdi, -{page}",
    "lea rsi, [rip + _end]",
    "sub rsi, rdi",
    "mov edx, {populate}",
    "mov eax, {madvise}",
    "syscall",
    // rsi: the list; r9: the place of its length in bytes.
    "xor esi, esi",
    "xor r9d, r9d",
    "lea rdi, [rip + _DYNAMIC]",
    "2: mov rax, [rdi]",
    "cmp rax, {relr}",
    "cmove rsi, [rdi + 8]",
    "lea rcx, [rdi + 8]",
    "cmp rax, {relr_size}",
    "cmove r9, rcx",
    "add rdi, 16",
    "test rax, rax",
    "jnz 2b",
    "test r9, r9",
    "jz 7f",
    // rdi: the address to add; r10: the end of the list.
    "lea rdi, [rip + __ehdr_start]",
    "add rsi, rdi",
    "mov r10, [r9]",
    "mov qword ptr [r9], 0",
    "add r10, rsi",
    "jmp 6f",
    // An even entry is the place of a pointer. rdx: the word behind it.
    "3: mov rax, [rsi]",
    "add rsi, 8",
    "test al, 1",
    "jnz 4f",
    "lea rdx, [rdi + rax + 8]",
    "add [rdx - 8], rdi",
    "jmp 6f",
    // An odd one has a bit for each of the next 63 words.
    "4: shr rax, 1",
    "jz 8f",
    "5: bsf rcx, rax",
    "add [rdx + 8 * rcx], rdi",
    "lea rcx, [rax - 1]",
    "and rax, rcx",
    "jnz 5b",
    "8: add rdx, 63 * 8",
    "6: cmp rsi, r10",
    "jb 3b",
    "7: mov rdx, r8",
    "jmp _start",
    ".size postern_start, . - postern_start",
    ".globl __wrap__init",
    ".type __wrap__init, @function",
    "__wrap__init: ret",
    ".size __wrap__init, . - __wrap__init",
    ".popsection",
    page = const 4096,
    populate = const libc::MADV_POPULATE_WRITE,
    stack = const 2 * 4096,
    madvise = const libc::SYS_madvise,
    // DT_RELR and DT_RELRSZ of elf.h.
    relr = const 36,
    relr_size = const 35,
);
