//! The rights that each process of the service keeps. The service itself reads frames of other machines only after it
//! is confined.

#[cfg(test)]
mod tests;

use libc::c_long;
use postern_confine::{
    Access, Argument, COMMON, CallRule, CapabilitySet, ConfineError, Confinement, DESCRIPTOR_FLAGS, DefaultAction,
    Files, Filter, NO_NEW_CODE,
};
use std::path::{Path, PathBuf};

/// Confines the service to its leases, the audit log, and the kernel functions that leases need.
pub fn service(leases: &Path, logs: &Path) -> Result<(), ConfineError> {
    let files = Files::new([(leases, Access::Own), (logs, Access::Own)])?;
    if !files.enforced() {
        postern_gate::say!(
            "postern dhcp: this kernel has no Landlock: a service that an attacker controls would reach files"
        );
    }
    // The capabilities for entering namespaces, opening packet sockets, and setting links up and down.
    let capabilities = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN;
    Confinement { capabilities, files, filter: SERVICE.ready().clone() }.apply()
}

static SERVICE: Filter = Filter::new(
    &[COMMON, MESSAGES, SERVICE_CALLS, OLD_CALLS],
    &[NO_NEW_CODE, DESCRIPTOR_FLAGS, SERVICE_RULES],
    DefaultAction::Absent,
);

const SERVICE_RULES: &[CallRule] = &[
    // The service may enter network namespaces, and no other kind of namespace.
    CallRule(libc::SYS_setns, &[Argument::OneOf(1, &[libc::CLONE_NEWNET as u32])]),
    CallRule(
        libc::SYS_socket,
        &[Argument::OneOf(0, &[libc::AF_NETLINK as u32]), Argument::OneOf(2, &[libc::NETLINK_ROUTE as u32])],
    ),
    CallRule(libc::SYS_socket, &[Argument::OneOf(0, &[libc::AF_PACKET as u32]), Argument::OneOf(2, &[0])]),
];

/// Confines the process that opens namespaces. A namespace's path may be anywhere, and Landlock would forbid paths
/// below `/proc/PID`. So the filter makes files useless to this process. The process can open files for reading, but
/// has no call that reads, maps, changes or removes a file.
pub fn opener() -> Result<(), ConfineError> {
    nix::sys::prctl::set_no_new_privs().map_err(|errno| ConfineError::new("PR_SET_NO_NEW_PRIVS", errno))?;
    postern_confine::keep_capabilities(CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH)?;
    OPENER.ready().install()
}

static OPENER: Filter = Filter::new(&[COMMON, MESSAGES, OPENER_CALLS], &[NO_FILE, OPENER_RULES], DefaultAction::Absent);

const OPENER_CALLS: &[c_long] = &[libc::SYS_statfs, libc::SYS_fstatfs];

const OPENER_RULES: &[CallRule] = &[
    CallRule(libc::SYS_openat, &[Argument::Lacks(2, CHANGING)]),
    // musl uses this call.
    #[cfg(target_arch = "x86_64")]
    CallRule(libc::SYS_open, &[Argument::Lacks(1, CHANGING)]),
];

/// Confines the process that removes the service's own files. The process can only remove files in these directories.
pub fn remover<'a>(directories: impl IntoIterator<Item = &'a Path>) -> Result<(), ConfineError> {
    let files = Files::new(directories.into_iter().map(|directory| (directory, Access::RemoveFiles)))?;
    Confinement { capabilities: CapabilitySet::empty(), files, filter: REMOVER.ready().clone() }.apply()
}

static REMOVER: Filter = Filter::new(&[COMMON, MESSAGES, REMOVER_CALLS], &[NO_FILE], DefaultAction::Absent);

const REMOVER_CALLS: &[c_long] = &[
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
];

/// Confines a process that runs steps. The process may read code and policies, and write notes about verified code. Its
/// children become sandboxes. So the process keeps the rights that a sandbox gives up at its start, and the calls by
/// which a sandbox gives rights up.
pub fn steps(read: &[PathBuf], notes: &Path) -> Result<(), ConfineError> {
    let read = read.iter().map(|path| (path.as_path(), Access::Read));
    let files = Files::new(read.chain([(notes, Access::Own)]))?;
    let capabilities = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SETPCAP | CapabilitySet::KILL;
    Confinement { capabilities, files, filter: STEPS.ready().clone() }.apply()
}

static STEPS: Filter =
    Filter::new(&[COMMON, MESSAGES, STEPS_CALLS, OLD_CALLS], &[DESCRIPTOR_FLAGS, STEPS_RULES], DefaultAction::Absent);

const STEPS_RULES: &[CallRule] = &[
    // A clone gets its own memory, and stays in the namespaces of this process.
    CallRule(libc::SYS_clone, &[Argument::Lacks(0, SHARING)]),
    // The sockets between this process and its child.
    CallRule(libc::SYS_socketpair, &[Argument::OneOf(0, &[libc::AF_UNIX as u32]), Argument::OneOf(2, &[0])]),
    // This process kills the process of a step when the step ends.
    CallRule(libc::SYS_kill, &[Argument::OneOf(1, &[libc::SIGKILL as u32])]),
];

/// System calls that newer architectures lack. glibc uses some of these calls, and musl all.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[c_long] = &[
    libc::SYS_open,   // as openat
    libc::SYS_stat,   // as newfstatat
    libc::SYS_lstat,  // as newfstatat
    libc::SYS_poll,   // as ppoll
    libc::SYS_mkdir,  // as mkdirat
    libc::SYS_rename, // as renameat
    libc::SYS_unlink, // as unlinkat
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[c_long] = &[];

/// The flags of openat(2) by which a file is made or changed.
const CHANGING: u32 = (libc::O_WRONLY
    | libc::O_RDWR
    | libc::O_CREAT
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;

/// Allows only memory that maps no file and contains no new code.
const NO_FILE: &[CallRule] = &[
    CallRule(libc::SYS_mmap, &[Argument::Lacks(2, libc::PROT_EXEC as u32), Argument::OneOf(4, &[u32::MAX])]),
    CallRule(libc::SYS_mprotect, &[Argument::Lacks(2, libc::PROT_EXEC as u32)]),
];

/// The flags of clone(2) that share memory, or make namespaces.
const SHARING: u32 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_PTRACE
    | libc::CLONE_THREAD
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Further calls of every process of the service. None of them makes or opens an object.
const MESSAGES: &[c_long] = &[
    libc::SYS_write,          // words for people
    libc::SYS_writev,         // words for people
    libc::SYS_newfstatat,     // device and inode of opened files; owner and mode
    libc::SYS_fstat,          // owner and mode, in older C libraries
    libc::SYS_rt_sigprocmask, // around a panic
    libc::SYS_getrandom,      // random numbers for steps, and for hash maps
    libc::SYS_clock_gettime,  // the clock, if the vDSO has none
    libc::SYS_ppoll,          // waiting
    libc::SYS_sendmsg,        // messages with a descriptor
    libc::SYS_recvmsg,        // messages with a descriptor, frames
    libc::SYS_sendto,         // messages, frames
    libc::SYS_recvfrom,       // messages
    libc::SYS_getpid,         // names of temporary files
    libc::SYS_gettid,         // names in messages of a panic
];

/// Further calls of the service.
const SERVICE_CALLS: &[c_long] = &[
    libc::SYS_read,            // files, the timer, signals
    libc::SYS_openat,          // files, within Landlock's rules
    libc::SYS_openat2,         // files, by cap-std
    libc::SYS_statx,           // owner and mode, by the standard library
    libc::SYS_unlinkat,        // leases that have ended
    libc::SYS_lseek,           // the length of the log
    libc::SYS_getdents64,      // listing leases
    libc::SYS_renameat,        // files appear whole
    libc::SYS_renameat2,       // files appear whole, in newer C libraries
    libc::SYS_linkat,          // setting the log aside
    libc::SYS_mkdirat,         // the directory of leases, if somebody removed it
    libc::SYS_ftruncate,       // the log
    libc::SYS_flock,           // the log
    libc::SYS_nanosleep,       // waiting for the log's lock
    libc::SYS_clock_nanosleep, // waiting for the log's lock, in newer C libraries
    libc::SYS_bind,            // sockets
    libc::SYS_connect,         // netlink sockets
    libc::SYS_getsockname,     // a netlink socket's own port
    libc::SYS_setsockopt,      // timeouts and filters
    libc::SYS_getsockopt,      // who connects
    libc::SYS_accept4,         // connections
    libc::SYS_shutdown,        // the end of the process that opens namespaces
    libc::SYS_timerfd_settime, // timers
    libc::SYS_geteuid,         // the user with trusted files
    libc::SYS_wait4,           // the end of the other processes
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link, // as linkat
];

/// Further calls of a process for steps, and of its children until they are sealed.
const STEPS_CALLS: &[c_long] = &[
    libc::SYS_read,            // code, manifest and policy
    libc::SYS_pread64,         // code that is verified
    libc::SYS_openat,          // code, manifest and policy, within Landlock's rules
    libc::SYS_openat2,         // code, manifest and policy, by cap-std
    libc::SYS_statx,           // owners of these files, by the standard library
    libc::SYS_lseek,           // the length of these files
    libc::SYS_readlinkat,      // links in paths of these files
    libc::SYS_getdents64,      // directories in these paths
    libc::SYS_getcwd,          // the present directory
    libc::SYS_unlinkat,        // notes about verified code
    libc::SYS_renameat,        // notes about verified code
    libc::SYS_renameat2,       // notes about verified code
    libc::SYS_mkdirat,         // notes about verified code
    libc::SYS_ftruncate,       // notes about verified code
    libc::SYS_geteuid,         // the user with trusted files
    libc::SYS_setsockopt,      // the deadline of a step
    libc::SYS_wait4,           // the end of a step
    libc::SYS_mmap,            // a child maps the client's code
    libc::SYS_mprotect,        // a child makes the client's code executable
    libc::SYS_close_range,     // a child closes all files but its socket and the code
    libc::SYS_prlimit64,       // a child limits its resources
    libc::SYS_prctl,           // a child gives up capabilities, and filters its calls
    libc::SYS_capget,          // a child gives up capabilities
    libc::SYS_capset,          // a child gives up capabilities
    libc::SYS_setgroups,       // a child becomes a user that owns nothing
    libc::SYS_setresgid,       // a child becomes a user that owns nothing
    libc::SYS_setresuid,       // a child becomes a user that owns nothing
    libc::SYS_getuid,          // a child becomes a user that owns nothing
    libc::SYS_getgid,          // a child becomes a user that owns nothing
    libc::SYS_set_robust_list, // a child's own thread
    libc::SYS_set_tid_address, // a child's own thread
    libc::SYS_rseq,            // a child's own thread
    libc::SYS_membarrier,      // all threads see new code
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink, // as readlinkat
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork, // as clone
];
