//! The system calls of a gate while guests run. The filter (seccomp(2)) refuses all other calls.

use nix::unistd::Pid;
use postern_confine::{Argument, COMMON, CallRule, ConfineError, DESCRIPTOR_FLAGS, DefaultAction, Filter, NO_NEW_CODE};
use postern_kernel::{tap, tcx};

/// The most sandboxes of a run: for the plugin, its delegate, and the IPAM plugin.
pub const SANDBOXES: usize = 3;

/// The system calls of a gate and its thread. The filter's variables are the process IDs of the sandboxes.
pub static GATE: Filter<SANDBOXES> =
    Filter::new(&[COMMON, CALLS, OLD_CALLS], &[NO_NEW_CODE, DESCRIPTOR_FLAGS, RULES], DefaultAction::Absent);

/// Like [`GATE`], for a gate that may bring a device back to the node.
pub static WITH_LOOK: Filter<SANDBOXES> =
    Filter::new(&[COMMON, CALLS, OLD_CALLS], &[NO_NEW_CODE, DESCRIPTOR_FLAGS, RULES, LOOK], DefaultAction::Absent);

/// Like [`GATE`], for a thread that makes a tap.
pub static WITH_TAP: Filter<SANDBOXES> =
    Filter::new(&[COMMON, CALLS, OLD_CALLS], &[NO_NEW_CODE, DESCRIPTOR_FLAGS, RULES, TAP], DefaultAction::Absent);

/// Returns the process IDs of these sandboxes, for the filters above. It is an error if a filter has too few places for
/// these process IDs.
pub fn sandboxes(pids: &[Pid]) -> Result<[u32; SANDBOXES], ConfineError> {
    if pids.len() > SANDBOXES {
        let reason = format!("{} sandboxes are to be stopped, and the filter has places for {SANDBOXES}", pids.len());
        return Err(ConfineError::new("the filter of system calls", reason));
    }
    // An unused place has a process ID that no process can have.
    let mut numbers = [i32::MAX as u32; SANDBOXES];
    for (number, pid) in numbers.iter_mut().zip(pids) {
        *number = pid.as_raw() as u32;
    }
    Ok(numbers)
}

const RULES: &[CallRule] = &[
    // Links, addresses, routes and nftables. Other netlink protocols (udev listens to one of them) and other sockets
    // are not allowed.
    CallRule(
        libc::SYS_socket,
        &[
            Argument::OneOf(0, &[libc::AF_NETLINK as u32]),
            Argument::OneOf(2, &[libc::NETLINK_ROUTE as u32, libc::NETLINK_NETFILTER as u32]),
        ],
    ),
    // The calling thread may set its own processors, when it no longer shares a processor with its sandbox.
    CallRule(libc::SYS_sched_setaffinity, &[Argument::OneOf(0, &[0])]),
    // The gate may stop its sandboxes, and no other process.
    CallRule(libc::SYS_kill, &[Argument::Given(0, 0)]),
    CallRule(libc::SYS_kill, &[Argument::Given(0, 1)]),
    CallRule(libc::SYS_kill, &[Argument::Given(0, 2)]),
];

/// The gate may ask whether a BPF program reads the device's packets. The gate may not load, attach or remove BPF
/// programs.
const LOOK: &[CallRule] = &[CallRule(libc::SYS_bpf, &[Argument::OneOf(0, &[tcx::BPF_PROG_QUERY])])];

/// The only requests of ioctl(2) that are allowed.
const TAP: &[CallRule] = &[CallRule(libc::SYS_ioctl, &[Argument::OneOf(1, &tap::REQUESTS)])];

const CALLS: &[libc::c_long] = &[
    libc::SYS_read,            // channels, files
    libc::SYS_write,           // files, standard output and error
    libc::SYS_writev,          // standard error, in one piece
    libc::SYS_pread64,         // the lease index
    libc::SYS_pwrite64,        // the lease index
    libc::SYS_lseek,           // the length of a file
    libc::SYS_openat,          // files, within Landlock's rules
    libc::SYS_openat2,         // openat of cap-std
    libc::SYS_newfstatat,      // owner and mode of opened files
    libc::SYS_fstat,           // newfstatat of older C libraries
    libc::SYS_statx,           // newfstatat of the standard library
    libc::SYS_faccessat,       // whether the state directory is writable
    libc::SYS_faccessat2,      // faccessat of newer C libraries
    libc::SYS_readlinkat,      // paths of native plugins
    libc::SYS_getdents64,      // listing records and leases
    libc::SYS_mkdirat,         // state and network directories
    libc::SYS_renameat,        // complete files replace old files
    libc::SYS_renameat2,       // renameat of newer C libraries
    libc::SYS_unlinkat,        // removing leases and records
    libc::SYS_linkat,          // a lease appears with its content
    libc::SYS_ftruncate,       // a torn line of a record
    libc::SYS_utimensat,       // the lease directory's time
    libc::SYS_flock,           // locks of leases, records and the log
    libc::SYS_rt_sigprocmask,  // around the end of a thread
    libc::SYS_sched_yield,     // locks between the two threads, under contention
    libc::SYS_getrandom,       // names and addresses of links
    libc::SYS_clock_gettime,   // the clock, if the vDSO has none
    libc::SYS_clock_nanosleep, // waiting for a link, a lock
    libc::SYS_nanosleep,       // clock_nanosleep of older C libraries
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
    libc::SYS_geteuid,         // the user whose files are trusted
    libc::SYS_wait4,           // waiting for ended sandboxes
];

/// System calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[libc::c_long] = &[
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
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[libc::c_long] = &[];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::allows;

    fn program(filter: &Filter<SANDBOXES>, pids: &[i32]) -> Vec<libc::sock_filter> {
        let pids: Vec<Pid> = pids.iter().copied().map(Pid::from_raw).collect();
        filter.with(sandboxes(&pids).unwrap()).instructions().to_vec()
    }

    /// Returns the allowed values of a call's argument, among `near` and values that differ from `near` in one bit.
    fn allowed(filter: &Filter<SANDBOXES>, call: libc::c_long, argument: usize, near: &[u32]) -> Vec<u32> {
        let program = program(filter, &[7]);
        let near = near.iter().flat_map(|value| (0..32).map(move |bit| value ^ 1 << bit));
        let is_allowed = |value: &u32| {
            let mut arguments = [0; 6];
            arguments[argument] = u64::from(*value);
            allows(&program, call, arguments)
        };
        let mut allowed: Vec<u32> = near.chain(0..0x1_0000).filter(is_allowed).collect();
        allowed.sort_unstable();
        allowed.dedup();
        allowed
    }

    #[test]
    fn only_the_thread_that_makes_a_tap_has_requests_for_it() {
        // SIOCSIFHWADDR, TUNSETIFF, TUNSETPERSIST, TUNSETOWNER, TUNSETGROUP of linux/sockios.h and linux/if_tun.h.
        let five = [0x8924, 0x4004_54ca, 0x4004_54cb, 0x4004_54cc, 0x4004_54ce];
        for (filter, expected) in [(&GATE, &[][..]), (&WITH_LOOK, &[]), (&WITH_TAP, &five)] {
            assert_eq!(allowed(filter, libc::SYS_ioctl, 1, &five), expected);
        }
    }

    /// A gate that could move other processes could bind all processes of root to one processor.
    #[test]
    fn a_gate_moves_itself_to_other_processors_and_nothing_else() {
        assert_eq!(allowed(&GATE, libc::SYS_sched_setaffinity, 0, &[0, u32::MAX]), [0]);
    }

    /// One request of bpf(2) is allowed, for the thread that may bring a device back to the node.
    #[test]
    fn only_a_gate_that_may_bring_a_device_home_asks_for_programs() {
        for (filter, expected) in [(&GATE, &[][..]), (&WITH_TAP, &[]), (&WITH_LOOK, &[tcx::BPF_PROG_QUERY])] {
            assert_eq!(allowed(filter, libc::SYS_bpf, 0, &[tcx::BPF_PROG_QUERY]), expected);
        }
    }

    /// All three filters have places for sandboxes, and an unused place allows nothing.
    #[test]
    fn a_gate_stops_its_sandboxes_and_nothing_else() {
        for filter in [&GATE, &WITH_LOOK, &WITH_TAP] {
            for pids in [&[][..], &[70], &[70, 80], &[70, 80, 90]] {
                let program = program(filter, pids);
                for pid in (-200..200).chain([i32::MIN, i32::MIN + 1, 4_194_304]) {
                    let arguments = [u64::from(pid as u32), 9, 0, 0, 0, 0];
                    assert_eq!(allows(&program, libc::SYS_kill, arguments), pids.contains(&pid), "{pid} of {pids:?}");
                }
            }
        }
        let error = sandboxes(&[1, 2, 3, 4].map(Pid::from_raw)).unwrap_err();
        assert!(error.to_string().contains("4 sandboxes"), "{error}");
    }
}
