//! The last step of confinement, between loading a guest and running it: a filter of system calls (seccomp(2)).

use postern_confine::{Condition, ConfineError, Filter, Refusal, Rule};

/// Seals the process: from here on it can use its channel and its reserved memory, and exit. Any other system call
/// kills it.
///
/// Nothing can be mapped, moved or unmapped any more, and writable memory stays writable. So the limits of `confine.rs`
/// count all memory that there can be.
///
/// It must come after loading, which maps the guest's code and makes it executable. It must also come after
/// `PR_SET_NO_NEW_PRIVS`: without that the kernel accepts a filter only from root.
///
/// # Errors
/// The kernel has no system call filters.
pub fn seal() -> Result<(), ConfineError> {
    let mut rules: Vec<Rule> = ALLOWED.iter().copied().map(Rule::Any).collect();
    rules.push(Rule::Where(libc::SYS_mprotect, WRITABLE));
    rules.push(Rule::Equal(libc::SYS_madvise, 2, libc::MADV_DONTNEED as u32));
    Filter::new(&rules, Refusal::Kill).install()
}

/// Seals a process that only computes. It has one thread, its own memory up to its limits, and one descriptor to write
/// to. Nothing can be made executable. Other system calls fail.
///
/// # Errors
/// As [`seal`].
#[cfg(feature = "compiler")]
pub(crate) fn seal_to_memory() -> Result<(), ConfineError> {
    let mut rules: Vec<Rule> = ALLOWED.iter().chain(&FOR_COMPUTING).copied().map(Rule::Any).collect();
    let executable = libc::PROT_EXEC as u32;
    rules.extend([libc::SYS_mmap, libc::SYS_mprotect].map(|call| Rule::Lacks(call, 2, executable)));
    Filter::new(&rules, Refusal::Absent).install()
}

/// The system calls that a compiler needs besides [`ALLOWED`], all about its own memory.
#[cfg(feature = "compiler")]
const FOR_COMPUTING: [libc::c_long; 6] = [
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_sched_yield,
    libc::SYS_rt_sigaction, // without it a handler of its own keeps a process alive that wants to abort
    libc::SYS_membarrier,   // some architectures want it after code was written, which nobody runs here
];

/// The system calls that are allowed with any arguments.
const ALLOWED: [libc::c_long; 11] = [
    libc::SYS_recvfrom,       // the channel: no other descriptor is open, and none can be opened
    libc::SYS_sendto,         // the channel
    libc::SYS_read,           // the channel
    libc::SYS_write,          // the channel
    libc::SYS_rt_sigreturn,   // a guest's traps arrive as signals, and are left by this one
    libc::SYS_rt_sigprocmask, // around those signals
    libc::SYS_sigaltstack,    // their stack
    libc::SYS_futex,          // the standard library's locks
    libc::SYS_getrandom,      // the seed of a `HashMap`, and a guest's wasi:random
    libc::SYS_clock_gettime,  // where the vDSO has no clock
    libc::SYS_exit_group,     // the end
];

/// mprotect(2) may only make reserved memory readable and writable, less than 512 MiB of it at once. It can't make
/// memory executable. It can't hide written memory, which would then no longer count as data. It has no flag for
/// stacks. With a limited address space, the kernel doesn't count a piece that would exceed that limit if it were new.
const WRITABLE: &[Condition] = &[
    Condition::Equal(2, (libc::PROT_READ | libc::PROT_WRITE) as u32),
    Condition::Lacks(1, 0xe000_0000),
    Condition::HighEqual(1, 0),
];
