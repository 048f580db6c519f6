//! The system calls of a gate while guests run. The filter (seccomp(2)) refuses all others.

use nix::unistd::Pid;
use postern_confine::Rule;
use postern_kernel::{tap, tcx};

/// Returns the system calls of a gate and its thread.
pub fn calls(sandboxes: &[Pid]) -> Vec<Rule> {
    let mut rules: Vec<Rule> = CALLS.iter().copied().map(Rule::Any).collect();
    // Memory is allowed, but no new code.
    let executable = libc::PROT_EXEC as u32;
    rules.extend([Rule::Lacks(libc::SYS_mmap, 2, executable), Rule::Lacks(libc::SYS_mprotect, 2, executable)]);
    // Links, addresses, routes and nftables. No other netlink protocol is allowed (udev listens to one), and no other
    // socket.
    let netlink = |protocol: i32| [(0, libc::AF_NETLINK as u32), (2, protocol as u32)];
    rules.extend([libc::NETLINK_ROUTE, libc::NETLINK_NETFILTER].map(|to| Rule::Both(libc::SYS_socket, netlink(to))));
    // Descriptors that close on exec. Another command could send signals to any process.
    let commands = [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL];
    rules.extend(commands.map(|command| Rule::Equal(libc::SYS_fcntl, 1, command as u32)));
    // The calling thread's own processors, at the end of a meeting.
    rules.push(Rule::Equal(libc::SYS_sched_setaffinity, 0, 0));
    // The gate stops the sandboxes when they are no longer needed, and no other process.
    rules.extend(sandboxes.iter().map(|pid| Rule::Equal(libc::SYS_kill, 0, pid.as_raw() as u32)));
    #[cfg(target_arch = "x86_64")]
    rules.extend(OLD_CALLS.iter().copied().map(Rule::Any));
    rules
}

/// As [`calls`], for a gate that may bring a device home: it asks whether a program reads the device's packets. It loads,
/// attaches and removes none.
pub fn calls_with_look(sandboxes: &[Pid]) -> Vec<Rule> {
    let mut rules = calls(sandboxes);
    rules.push(Rule::Equal(libc::SYS_bpf, 0, tcx::BPF_PROG_QUERY));
    rules
}

/// As [`calls`], for a thread that makes a tap: these requests and no other of ioctl(2).
pub fn calls_with_tap(sandboxes: &[Pid]) -> Vec<Rule> {
    let mut rules = calls(sandboxes);
    rules.extend(tap::REQUESTS.map(|request| Rule::Equal(libc::SYS_ioctl, 1, request as u32)));
    rules
}

const CALLS: [libc::c_long; 55] = [
    libc::SYS_read,            // channels, files
    libc::SYS_write,           // files, standard output and error
    libc::SYS_writev,          // standard error, in one piece
    libc::SYS_pread64,         // the lease index
    libc::SYS_pwrite64,        // the lease index
    libc::SYS_close,           // any descriptor
    libc::SYS_lseek,           // the length of a file
    libc::SYS_openat,          // files, within Landlock's rules
    libc::SYS_openat2,         // the same, of cap-std
    libc::SYS_newfstatat,      // owner and mode of what is opened
    libc::SYS_fstat,           // the same, of older C libraries
    libc::SYS_statx,           // the same, of the standard library
    libc::SYS_faccessat,       // may the state directory be written?
    libc::SYS_faccessat2,      // the same, of newer C libraries
    libc::SYS_readlinkat,      // paths of native plugins
    libc::SYS_getdents64,      // listing records and leases
    libc::SYS_mkdirat,         // state and network directories
    libc::SYS_renameat,        // files appear whole
    libc::SYS_renameat2,       // the same, of newer C libraries
    libc::SYS_unlinkat,        // removing leases and records
    libc::SYS_linkat,          // a lease appears with its content
    libc::SYS_ftruncate,       // a torn line of a record
    libc::SYS_utimensat,       // the lease directory's time
    libc::SYS_flock,           // locks of leases, records and the log
    libc::SYS_munmap,          // memory
    libc::SYS_mremap,          // memory
    libc::SYS_madvise,         // memory of a thread that ends
    libc::SYS_brk,             // memory
    libc::SYS_rt_sigreturn,    // the end of a signal handler
    libc::SYS_rt_sigprocmask,  // around the end of a thread
    libc::SYS_rt_sigaction,    // the handling of SIGPIPE
    libc::SYS_sigaltstack,     // the stack for overflows, of a thread that ends
    libc::SYS_futex,           // locks between the two threads
    libc::SYS_sched_yield,     // the same, under contention
    libc::SYS_getrandom,       // names and addresses of links
    libc::SYS_clock_gettime,   // the clock, if the vDSO has none
    libc::SYS_clock_nanosleep, // waiting for a link, a lock
    libc::SYS_nanosleep,       // the same, of older C libraries
    libc::SYS_restart_syscall, // a wait that was interrupted
    libc::SYS_ppoll,           // waiting for netlink
    libc::SYS_bind,            // netlink sockets
    libc::SYS_connect,         // netlink sockets
    libc::SYS_getsockname,     // a netlink socket's own port
    libc::SYS_setsockopt,      // timeouts and strict checking
    libc::SYS_getsockopt,      // a namespace's cookie
    libc::SYS_sendto,          // requests
    libc::SYS_sendmsg,         // requests
    libc::SYS_recvfrom,        // answers
    libc::SYS_recvmsg,         // answers
    libc::SYS_getpid,          // names of temporary files
    libc::SYS_gettid,          // a thread's own directory in /proc
    libc::SYS_geteuid,         // the user with trusted files
    libc::SYS_wait4,           // waiting for ended sandboxes
    libc::SYS_exit,            // the end of a thread
    libc::SYS_exit_group,      // the end
];

/// System calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: [libc::c_long; 10] = [
    libc::SYS_open,     // as openat
    libc::SYS_stat,     // as newfstatat
    libc::SYS_lstat,    // as newfstatat
    libc::SYS_poll,     // as ppoll
    libc::SYS_access,   // as faccessat
    libc::SYS_readlink, // as readlinkat
    libc::SYS_mkdir,    // as mkdirat
    libc::SYS_rmdir,    // as unlinkat
    libc::SYS_rename,   // as renameat
    libc::SYS_unlink,   // as unlinkat
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rules for one system call.
    fn of(rules: Vec<Rule>, wanted: libc::c_long) -> Vec<Rule> {
        rules
            .into_iter()
            .filter(|rule| {
                let (Rule::Any(call)
                | Rule::Equal(call, ..)
                | Rule::Both(call, _)
                | Rule::Lacks(call, ..)
                | Rule::Where(call, _)) = rule;
                *call == wanted
            })
            .collect()
    }

    #[test]
    fn only_the_thread_that_makes_a_tap_has_requests_for_it() {
        assert_eq!(of(calls(&[]), libc::SYS_ioctl), []);
        assert_eq!(of(calls_with_look(&[]), libc::SYS_ioctl), []);
        // TUNSETIFF, SIOCSIFHWADDR, TUNSETOWNER, TUNSETGROUP, TUNSETPERSIST of linux/if_tun.h and linux/sockios.h.
        let five = [0x4004_54ca, 0x8924, 0x4004_54cc, 0x4004_54ce, 0x4004_54cb];
        let requests = five.map(|request| Rule::Equal(libc::SYS_ioctl, 1, request));
        assert_eq!(of(calls_with_tap(&[]), libc::SYS_ioctl), requests);
    }

    /// It could bind other processes of root to one processor.
    #[test]
    fn a_gate_moves_itself_to_other_processors_and_nothing_else() {
        let own = [Rule::Equal(libc::SYS_sched_setaffinity, 0, 0)];
        assert_eq!(of(calls(&[Pid::from_raw(7)]), libc::SYS_sched_setaffinity), own);
    }

    /// One question of bpf(2), for the thread that may bring a device home.
    #[test]
    fn only_a_gate_that_may_bring_a_device_home_asks_for_programs() {
        assert_eq!(of(calls(&[]), libc::SYS_bpf), []);
        assert_eq!(of(calls_with_tap(&[]), libc::SYS_bpf), []);
        assert_eq!(of(calls_with_look(&[]), libc::SYS_bpf), [Rule::Equal(libc::SYS_bpf, 0, tcx::BPF_PROG_QUERY)]);
    }
}
