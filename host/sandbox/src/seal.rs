//! The last step of confinement, between loading a guest and running it: a filter of system calls (seccomp(2)).

#[cfg(feature = "reader")]
use postern_confine::NO_NEW_CODE;
use postern_confine::{Argument, CallRule, ConfineError, DefaultAction, Filter};

/// Seals the process: from now on it can use its channel and its reserved memory, and exit. Any other system call kills
/// the process.
///
/// Nothing can be mapped, moved or unmapped any more, and writable memory stays writable. So the limits of `confine.rs`
/// count all possible memory.
///
/// Call this function after loading, which maps the guest's code and makes it executable. Call it also after
/// `PR_SET_NO_NEW_PRIVS`: without this flag the kernel accepts a filter only from root.
///
/// # Errors
/// The kernel has no system call filters.
pub fn seal() -> Result<(), ConfineError> {
    SEALED.ready().install()
}

static SEALED: Filter = Filter::new(&[ALLOWED], &[RESERVED_MEMORY], DefaultAction::Kill);

/// Seals a process that only computes. It has one thread, its own memory up to its limits, and one descriptor to write
/// to. Nothing can be made executable. Other system calls fail.
///
/// # Errors
/// As [`seal`].
#[cfg(feature = "reader")]
pub(crate) fn seal_to_memory() -> Result<(), ConfineError> {
    COMPUTING.ready().install()
}

#[cfg(feature = "reader")]
static COMPUTING: Filter = Filter::new(&[ALLOWED, FOR_COMPUTING], &[NO_NEW_CODE], DefaultAction::Absent);

/// The system calls that a compiler needs besides [`ALLOWED`]. All of them are about the process's own memory.
#[cfg(feature = "reader")]
const FOR_COMPUTING: &[libc::c_long] = &[
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_sched_yield,
    libc::SYS_rt_sigaction, // without this call, abort(3) can't remove the process's own handler, and does not end
    libc::SYS_membarrier,   // some architectures need this call after code was written; compiled code never runs here
];

/// The system calls that are allowed with any arguments.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_recvfrom,       // the channel: no other descriptor is open, and none can be opened
    libc::SYS_sendto,         // the channel
    libc::SYS_read,           // the channel
    libc::SYS_write,          // the channel
    libc::SYS_rt_sigreturn,   // the return from the signal of a guest's trap
    libc::SYS_rt_sigprocmask, // before and after such a signal
    libc::SYS_sigaltstack,    // the stack of such a signal
    libc::SYS_futex,          // the standard library's locks
    libc::SYS_getrandom,      // the seed of a `HashMap`, and a guest's wasi:random
    libc::SYS_clock_gettime,  // where the vDSO has no clock
    libc::SYS_exit_group,     // the end
];

const RESERVED_MEMORY: &[CallRule] = &[
    // mprotect(2) may only make reserved memory readable and writable, less than 512 MiB at once. It can't make memory
    // executable. It can't hide written memory, which would then no longer count as data. It has no flag for stacks.
    // With a limited address space, the kernel doesn't count a piece that would exceed this limit as a new mapping.
    CallRule(
        libc::SYS_mprotect,
        &[
            Argument::OneOf(2, &[(libc::PROT_READ | libc::PROT_WRITE) as u32]),
            Argument::Lacks(1, 0xe000_0000),
            Argument::High(1, 0),
        ],
    ),
    // Memory may be given back.
    CallRule(libc::SYS_madvise, &[Argument::OneOf(2, &[libc::MADV_DONTNEED as u32])]),
];
