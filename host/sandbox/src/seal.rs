//! The last step of confinement, between loading a guest and running it: a filter of system calls (seccomp(2)).

use postern_confine::{ConfineError, Filter, Refusal, Rule};

/// From here on the process can talk on its channel, handle memory that is not executable, and exit. Any other system
/// call kills it.
///
/// Comes after loading, which makes the guest's code executable, and after `PR_SET_NO_NEW_PRIVS`, without which the
/// kernel takes a filter from root only.
///
/// # Errors
/// The kernel has no filters.
pub fn seal() -> Result<(), ConfineError> {
    let executable = libc::PROT_EXEC as u32;
    let mut rules: Vec<Rule> = ALLOWED.iter().copied().map(Rule::Any).collect();
    rules.extend(ALLOWED_FOR_DATA.iter().map(|call| Rule::Lacks(*call, 2, executable)));
    Filter::new(&rules, Refusal::Kill).install()
}

/// What is allowed whatever its arguments.
const ALLOWED: [libc::c_long; 15] = [
    libc::SYS_recvfrom,       // the channel: no other descriptor is open, and none can be opened
    libc::SYS_sendto,         // the channel
    libc::SYS_read,           // the channel
    libc::SYS_write,          // the channel
    libc::SYS_munmap,         // memory of a guest that has ended
    libc::SYS_mremap,         // memory that grows
    libc::SYS_madvise,        // memory that is given back
    libc::SYS_brk,            // memory
    libc::SYS_rt_sigreturn,   // a guest's traps arrive as signals, and are left by this one
    libc::SYS_rt_sigprocmask, // around those signals
    libc::SYS_sigaltstack,    // their stack
    libc::SYS_futex,          // the standard library's locks
    libc::SYS_getrandom,      // the seed of a `HashMap`, and a guest's wasi:random
    libc::SYS_clock_gettime,  // where the vDSO has no clock
    libc::SYS_exit_group,     // the end
];

/// What is allowed if its third argument, the protection, lacks `PROT_EXEC`.
const ALLOWED_FOR_DATA: [libc::c_long; 2] = [
    libc::SYS_mmap,     // a guest's memory
    libc::SYS_mprotect, // the part of it that is in use
];
