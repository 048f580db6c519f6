//! The faults of a run, and all places in a run where they can occur.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The file of strace's trace, in a separate directory of the node, which the node's picture omits.
pub const TRACE: &str = "/var/log/trace";

/// System calls that may fail, with their errors. The first error is always tried, the other errors only in a sweep of
/// all faults. A missing answer (recvfrom) simulates an act that the kernel completed and that looks failed.
const ERRORS: &[(&str, &[&str])] = &[
    ("sendto", &["ENOBUFS", "ENOMEM", "EINTR"]),
    ("sendmsg", &["ENOBUFS", "ENOMEM", "EINTR"]),
    ("recvfrom", &["ENOBUFS", "EINTR"]),
    ("recvmsg", &["ENOBUFS", "EINTR"]),
    // glibc's calls name a directory. musl opens and looks by path only.
    ("open", &["EIO", "EMFILE", "EROFS", "ENOSPC"]),
    ("openat", &["EIO", "EMFILE", "EROFS", "ENOSPC"]),
    ("openat2", &["EIO", "EMFILE", "EROFS", "ENOSPC", "ENOSYS"]),
    ("read", &["EIO", "EINTR"]),
    ("pread64", &["EIO"]),
    ("write", &["ENOSPC", "EIO", "EINTR"]),
    ("pwrite64", &["ENOSPC", "EIO"]),
    ("ftruncate", &["EIO"]),
    ("linkat", &["ENOSPC", "EIO", "EROFS"]),
    ("unlinkat", &["EIO", "EROFS"]),
    ("unlink", &["EIO", "EROFS"]),
    ("renameat", &["ENOSPC", "EIO", "EROFS"]),
    ("renameat2", &["ENOSPC", "EIO", "EROFS"]),
    ("mkdirat", &["ENOSPC", "EROFS"]),
    ("mkdir", &["ENOSPC", "EROFS"]),
    ("utimensat", &["EIO"]),
    // Calls on the directories of state and libraries.
    ("access", &["ENOMEM"]),
    ("stat", &["EIO"]),
    ("lstat", &["EIO"]),
    ("fstat", &["EIO"]),
    ("newfstatat", &["EIO"]),
    ("statx", &["EIO"]),
    ("statfs", &["EIO"]),
    ("fstatfs", &["EIO"]),
    ("readlink", &["EIO"]),
    ("readlinkat", &["EIO"]),
    // Calls on a view of the links below /sys.
    ("fsopen", &["ENOMEM"]),
    ("fsconfig", &["ENOMEM"]),
    ("fsmount", &["ENOMEM"]),
    ("getdents64", &["EIO"]),
    ("flock", &["ENOLCK", "EINTR"]),
    ("socket", &["EMFILE", "ENOBUFS"]),
    ("socketpair", &["EMFILE"]),
    ("connect", &["ENOMEM", "EINTR", "EAGAIN"]),
    ("setsockopt", &["ENOMEM"]),
    ("fcntl", &["EMFILE"]),
    // By this call the run finds its own namespace. Without CAP_NET_ADMIN, the run uses a path in /proc.
    ("ioctl", &["EMFILE", "EPERM"]),
    ("setns", &["EPERM", "ENOMEM"]),
    ("bpf", &["EPERM", "ENOMEM"]),
    ("clone", &["EAGAIN"]),
    ("fork", &["EAGAIN"]),
    ("clone3", &["EAGAIN"]),
    ("poll", &["EINTR"]),
    ("capget", &["EPERM"]),
    ("capset", &["EPERM"]),
    ("prctl", &["EPERM"]),
    // These errors come from a sandbox around the runtime, or after a change of a cpuset.
    ("sched_getaffinity", &["EPERM"]),
    ("sched_getscheduler", &["EPERM"]),
    ("sched_setaffinity", &["EINVAL", "EPERM"]),
    ("landlock_create_ruleset", &["EMFILE"]),
    ("landlock_add_rule", &["ENOMEM"]),
    ("landlock_restrict_self", &["EPERM"]),
];

/// The other system calls of runs. A node can cause no error in them, or the run ignores the error.
const HARMLESS: &[&str] = &[
    // Calls about the process itself. Without memory the process ends, as if killed.
    "arch_prctl",
    "brk",
    "execve",
    "exit_group",
    "futex",
    "mmap",
    "mprotect",
    "munmap",
    "prlimit64",
    "rt_sigaction",
    "rt_sigprocmask",
    "set_tid_address",
    "sigaltstack",
    "umask",
    // These calls succeed on every kernel on which a run can begin.
    "geteuid",
    "getrandom",
    "getsockopt",
    // The run continues, whatever these calls return. User-mode Linux needs a call to read the clock and the number of
    // the processor.
    "clock_gettime",
    "clock_nanosleep",
    "getcpu",
    "close",
    "close_range",
    "kill",
    "lseek",
    "madvise",
    "wait4",
];

/// Returns the system calls of a trace that are in neither list. Another C library makes other calls.
pub fn unlisted(trace: &str) -> BTreeSet<&str> {
    let is_listed = |call: &str| ERRORS.iter().any(|(name, _)| *name == call) || HARMLESS.contains(&call);
    trace.lines().filter_map(call_of).filter(|call| !is_listed(call)).collect()
}

/// Returns the name of the system call in a line of the trace.
fn call_of(line: &str) -> Option<&str> {
    let (call, _) = line.split_once('(')?;
    call.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_').then_some(call)
}

/// One fault in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A plugin gets refusals after this number of allowed operations.
    Operations { plugin: String, allowed: usize },
    /// The gate's n-th system call of this name is not made, and fails.
    Error { call: String, errno: &'static str, at: usize },
    /// The gate is killed at its n-th system call of this name.
    Kill { call: String, at: usize },
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operations { plugin, allowed } => write!(formatter, "{plugin} may ask for {allowed} operations"),
            Self::Error { call, errno, at } => write!(formatter, "{errno} instead of {call} {at}"),
            Self::Kill { call, at } => write!(formatter, "SIGKILL at {call} {at}"),
        }
    }
}

impl Fault {
    /// Returns the command that starts the gate; empty for a normal start.
    pub fn wrapper(&self) -> Vec<String> {
        let inject = match self {
            Self::Operations { .. } => return Vec::new(),
            Self::Error { call, errno, at } => format!("inject={call}:error={errno}:when={at}"),
            Self::Kill { call, at } => format!("inject={call}:signal=KILL:when={at}"),
        };
        ["strace", "-qq", "-o", "/dev/null", "-e", "signal=none", "-e", &inject].map(str::to_owned).to_vec()
    }
}

/// Starts the gate so that [`TRACE`] shows its system calls. Only the gate's own thread is traced, not the sandbox,
/// worker or helper.
pub fn tracing() -> Vec<String> {
    ["strace", "-qq", "-o", TRACE, "-e", "signal=none"].map(str::to_owned).to_vec()
}

/// The kinds of faults, for the figures.
pub const KINDS: [&str; 3] = ["operations refused", "system calls failed", "killed"];

/// Returns every fault that a run can have, by kind, from its trace and from the number of operations of each plugin.
/// With `all`, each call fails with every error that suits it.
pub fn of_run(trace: &str, operations: &BTreeMap<String, usize>, all: bool) -> [Vec<Fault>; 3] {
    let [mut refused, mut failed, mut killed] = [const { Vec::new() }; 3];
    for (plugin, count) in operations {
        refused.extend((0..*count).map(|allowed| Fault::Operations { plugin: plugin.clone(), allowed }));
    }
    // strace counts each name separately.
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    // The first call starts the program itself.
    for line in trace.lines().skip(1) {
        let Some(call) = call_of(line) else { continue };
        let at = seen.entry(call).or_default();
        *at += 1;
        let (call, at) = (call.to_owned(), *at);
        let errors = ERRORS.iter().find(|(name, _)| *name == call).map_or(&[][..], |(_, errors)| errors);
        for errno in errors.iter().take(if all { usize::MAX } else { 1 }) {
            failed.push(Fault::Error { call: call.clone(), errno, at });
        }
        killed.push(Fault::Kill { call, at });
    }
    [refused, failed, killed]
}
