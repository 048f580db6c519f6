//! What the service keeps. It reads frames of strangers only after this.

use libc::c_long;
use postern_confine::{Access, Capability, ConfineError, Confinement, Files, Filter, Refusal, Rule};
use std::path::Path;

/// Confines the service: to its leases, the audit log, and what leases need of the kernel.
///
/// # Errors
/// The step that failed.
pub fn service(leases: &Path, logs: &Path) -> Result<(), ConfineError> {
    let files = Files::new([(leases, Access::Own), (logs, Access::Own)])?;
    if !files.enforced() {
        postern_gate::say!(
            "postern dhcp: this kernel has no Landlock: a service that was taken over would reach files"
        );
    }
    // To enter namespaces, to open packet sockets, and to set links up and down.
    let capabilities = vec![Capability::CAP_SYS_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_NET_ADMIN];
    let mut rules: Vec<Rule> = COMMON.iter().chain(&SERVICE).copied().map(Rule::Any).collect();
    rules.extend(memory());
    // Network namespaces, and no others.
    rules.push(Rule::Equal(libc::SYS_setns, 1, libc::CLONE_NEWNET as u32));
    rules.push(Rule::Both(libc::SYS_socket, [(0, libc::AF_NETLINK as u32), (2, libc::NETLINK_ROUTE as u32)]));
    rules.push(Rule::Both(libc::SYS_socket, [(0, libc::AF_PACKET as u32), (2, 0)]));
    #[cfg(target_arch = "x86_64")]
    rules.extend([libc::SYS_poll, libc::SYS_rename, libc::SYS_unlink, libc::SYS_mkdir].map(Rule::Any));
    Confinement { capabilities, files, filter: Filter::new(&rules, Refusal::Absent) }.apply()
}

/// Confines the process that opens namespaces. Files stay in reach, because a namespace's path may be anywhere: it
/// hands out namespaces only. Landlock would also forbid the way below `/proc/PID`.
///
/// # Errors
/// The step that failed.
pub fn opener() -> Result<(), ConfineError> {
    nix::sys::prctl::set_no_new_privs().map_err(|errno| ConfineError::new("PR_SET_NO_NEW_PRIVS", errno))?;
    postern_confine::keep_capabilities(&[Capability::CAP_SYS_PTRACE, Capability::CAP_DAC_READ_SEARCH])?;
    let mut rules: Vec<Rule> = COMMON.iter().copied().map(Rule::Any).collect();
    rules.extend([libc::SYS_statfs, libc::SYS_fstatfs].map(Rule::Any));
    rules.extend(memory());
    #[cfg(target_arch = "x86_64")]
    rules.extend([libc::SYS_poll, libc::SYS_unlink, libc::SYS_lstat].map(Rule::Any));
    Filter::new(&rules, Refusal::Absent).install()
}

/// Memory is allowed, but no new code. Descriptors may be asked for their flags.
fn memory() -> Vec<Rule> {
    let executable = libc::PROT_EXEC as u32;
    let mut rules = vec![Rule::Lacks(libc::SYS_mmap, 2, executable), Rule::Lacks(libc::SYS_mprotect, 2, executable)];
    let commands = [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL];
    rules.extend(commands.map(|command| Rule::Equal(libc::SYS_fcntl, 1, command as u32)));
    rules
}

/// What both processes call.
const COMMON: [c_long; 30] = [
    libc::SYS_read,            // streams, the timer, signals
    libc::SYS_write,           // files, words for people
    libc::SYS_writev,          // words for people
    libc::SYS_close,           // any descriptor
    libc::SYS_openat,          // files, within Landlock's rules; namespaces
    libc::SYS_openat2,         // the same, of cap-std
    libc::SYS_newfstatat,      // owner and mode of what is opened
    libc::SYS_fstat,           // the same, of older C libraries
    libc::SYS_statx,           // the same, of the standard library
    libc::SYS_unlinkat,        // leases that have ended; the socket at the end
    libc::SYS_munmap,          // memory
    libc::SYS_mremap,          // memory
    libc::SYS_madvise,         // memory
    libc::SYS_brk,             // memory
    libc::SYS_rt_sigreturn,    // the end of a signal handler
    libc::SYS_rt_sigprocmask,  // around a panic
    libc::SYS_rt_sigaction,    // around a panic
    libc::SYS_sigaltstack,     // the stack for overflows
    libc::SYS_futex,           // locks of the standard library
    libc::SYS_getrandom,       // random numbers for steps
    libc::SYS_clock_gettime,   // the clock, if the vDSO has none
    libc::SYS_restart_syscall, // a wait that was interrupted
    libc::SYS_ppoll,           // waiting
    libc::SYS_sendmsg,         // messages with a descriptor
    libc::SYS_recvmsg,         // messages with a descriptor, frames
    libc::SYS_sendto,          // messages, frames
    libc::SYS_recvfrom,        // messages
    libc::SYS_getpid,          // names of temporary files
    libc::SYS_exit,            // the end
    libc::SYS_exit_group,      // the end
];

/// What only the service calls.
const SERVICE: [c_long; 22] = [
    libc::SYS_lseek,           // the length of the log
    libc::SYS_getdents64,      // listing leases
    libc::SYS_renameat,        // files appear whole
    libc::SYS_renameat2,       // the same, of newer C libraries
    libc::SYS_linkat,          // setting the log aside
    libc::SYS_mkdirat,         // the directory of leases, if somebody removed it
    libc::SYS_ftruncate,       // the log
    libc::SYS_flock,           // the log
    libc::SYS_nanosleep,       // waiting for the log's lock
    libc::SYS_clock_nanosleep, // the same, of newer C libraries
    libc::SYS_bind,            // sockets
    libc::SYS_connect,         // netlink sockets
    libc::SYS_getsockname,     // a netlink socket's own port
    libc::SYS_setsockopt,      // timeouts and filters
    libc::SYS_getsockopt,      // who connects
    libc::SYS_accept4,         // connections
    libc::SYS_shutdown,        // the end of the process that opens namespaces
    libc::SYS_timerfd_settime, // timers
    libc::SYS_gettid,          // names in messages of a panic
    libc::SYS_geteuid,         // the user with trusted files
    libc::SYS_wait4,           // the end of that process
    libc::SYS_faccessat,       // the log's directory
];
