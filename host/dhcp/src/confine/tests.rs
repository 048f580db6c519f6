//! Calls that an attacker would try in a process of the service.
#![allow(unsafe_code, reason = "fork(2), and raw system calls as shellcode makes them")]

use super::*;
use libc::{SYS_close, SYS_openat, c_int};
use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, pipe, read, write};
use postern_confine::fork;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::AsRawFd;

/// A system call: its words, its number, its arguments.
type Try = (&'static str, c_long, [u64; 6]);

const AT: u64 = libc::AT_FDCWD as u64;
/// A process ID that no process has. So a call does no harm if the kernel executes it.
const NOBODY: u64 = i32::MAX as u64;
/// The path of a file that does not exist.
const NOWHERE: &CStr = c"/postern-nowhere/file";

/// Makes a directory with a file.
fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("postern-dhcp-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("file"), "").unwrap();
    path
}

fn text(path: PathBuf) -> CString {
    CString::new(path.into_os_string().into_encoded_bytes()).unwrap()
}

fn path(path: &'static CStr) -> u64 {
    path.as_ptr() as u64
}

/// Calls that no process of the service needs.
fn never() -> Vec<Try> {
    let shell = path(c"/bin/sh");
    vec![
        ("start a program", libc::SYS_execve, [shell, 0, 0, 0, 0, 0]),
        ("start a program by descriptor", libc::SYS_execveat, [AT, shell, 0, 0, 0, 0]),
        ("trace a process", libc::SYS_ptrace, [libc::PTRACE_SEIZE.into(), NOBODY, 0, 0, 0, 0]),
        ("read a process", libc::SYS_process_vm_readv, [NOBODY, 0, 0, 0, 0, 0]),
        ("write a process", libc::SYS_process_vm_writev, [NOBODY, 0, 0, 0, 0, 0]),
        ("take a descriptor of a process", libc::SYS_pidfd_getfd, [0, 0, 0, 0, 0, 0]),
        ("end a process kindly", libc::SYS_kill, [NOBODY, libc::SIGTERM as u64, 0, 0, 0, 0]),
        ("send a signal to a thread", libc::SYS_tgkill, [NOBODY, NOBODY, 9, 0, 0, 0]),
        ("connect to the Internet", libc::SYS_socket, [libc::AF_INET as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0]),
        ("connect to a service", libc::SYS_socket, [libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0]),
        ("look at the packet filter", libc::SYS_socket, [16, 3, libc::NETLINK_NETFILTER as u64, 0, 0, 0]),
        ("make namespaces", libc::SYS_unshare, [libc::CLONE_NEWUSER as u64, 0, 0, 0, 0, 0]),
        ("enter a mount namespace", libc::SYS_setns, [0, libc::CLONE_NEWNS as u64, 0, 0, 0, 0]),
        ("mount", libc::SYS_mount, [0, path(NOWHERE), path(c"tmpfs"), 0, 0, 0]),
        ("change the root", libc::SYS_chroot, [path(NOWHERE), 0, 0, 0, 0, 0]),
        ("make a thread", libc::SYS_clone3, [0, 0, 0, 0, 0, 0]),
        ("open by handle", libc::SYS_open_by_handle_at, [0, 0, 0, 0, 0, 0]),
        ("queue calls that no filter sees", libc::SYS_io_uring_setup, [1, 0, 0, 0, 0, 0]),
        ("load a program into the kernel", libc::SYS_bpf, [0, 0, 0, 0, 0, 0]),
        ("watch the kernel", libc::SYS_perf_event_open, [0, 0, 0, 0, 0, 0]),
        ("use keys of others", libc::SYS_keyctl, [0, 0, 0, 0, 0, 0]),
        ("load a module", libc::SYS_init_module, [0, 0, 0, 0, 0, 0]),
        ("set the clock", libc::SYS_clock_settime, [0, 0, 0, 0, 0, 0]),
        ("give files away", libc::SYS_fchownat, [AT, path(NOWHERE), 1, 1, 0, 0]),
        ("change modes", libc::SYS_fchmodat, [AT, path(NOWHERE), 0o777, 0, 0, 0]),
        ("make a link", libc::SYS_symlinkat, [path(NOWHERE), AT, path(NOWHERE), 0, 0, 0]),
        ("make a device", libc::SYS_mknodat, [AT, path(NOWHERE), 0o20666, 0, 0, 0]),
        ("set attributes", libc::SYS_setxattr, [path(NOWHERE), path(c"user.x"), path(c"x"), 1, 0, 0]),
    ]
}

/// Opens a file that the process does not need.
fn open(what: &'static str, flags: c_int) -> Try {
    (what, SYS_openat, [AT, path(c"/etc/passwd"), flags as u64, 0o600, 0, 0])
}

/// Maps a file, or anonymous memory if `file` is `u64::MAX`.
fn map(protection: c_int, file: u64) -> Try {
    let flags = if file == u64::MAX { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS } else { libc::MAP_PRIVATE };
    ("map memory", libc::SYS_mmap, [0, 4096, protection as u64, flags as u64, file, 0])
}

/// Makes the calls in a process that `confine` has confined. Returns the error number of each call; 0 is success. A new
/// descriptor is closed again.
fn errors(confine: impl FnOnce() -> Result<(), ConfineError>, tries: &[Try]) -> Vec<i32> {
    let (ours, theirs) = pipe().unwrap();
    // SAFETY: the child allocates nothing after `confine`, and never returns.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            if let Err(error) = confine() {
                postern_gate::say!("{error}");
                // SAFETY: `_exit` has no preconditions.
                unsafe { libc::_exit(1) };
            }
            for (_, call, [a, b, c, d, e, f]) in tries {
                // SAFETY: a call that succeeds only opens a file, or removes a file of the test. The other calls fail.
                let result = unsafe { libc::syscall(*call, *a, *b, *c, *d, *e, *f) };
                let error = if result == -1 { Errno::last_raw() } else { 0 };
                if *call == SYS_openat && result >= 0 {
                    // SAFETY: nothing else has this descriptor.
                    unsafe { libc::syscall(SYS_close, result) };
                }
                let _ = write(&theirs, &error.to_ne_bytes());
            }
            // SAFETY: `_exit` has no preconditions.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop(theirs);
            let mut errors = Vec::new();
            let mut number = [0; 4];
            while read(&ours, &mut number).unwrap() == 4 {
                errors.push(i32::from_ne_bytes(number));
            }
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0), "after {errors:?}");
            assert_eq!(errors.len(), tries.len());
            errors
        }
    }
}

/// Asserts that each of `tries` fails with `ENOSYS`, and each of `out_of_reach` with `EACCES`.
fn refused(confine: impl FnOnce() -> Result<(), ConfineError>, tries: &[Try], out_of_reach: &[Try]) {
    let has_landlock = Files::new([]).unwrap().enforced();
    if !has_landlock {
        postern_gate::say!("SKIPPED: confine (files out of reach): this kernel has no Landlock");
    }
    let out_of_reach = if has_landlock { out_of_reach } else { &[] };
    let all: Vec<Try> = tries.iter().chain(out_of_reach).copied().collect();
    let errors = errors(confine, &all);
    for (at, ((what, call, arguments), error)) in all.iter().zip(&errors).enumerate() {
        let wanted = if at < tries.len() { Errno::ENOSYS } else { Errno::EACCES };
        assert_eq!(Errno::from_raw(*error), wanted, "{what}: system call {call} {arguments:x?}");
    }
}

/// The opener can open a file, but has no call to use it.
#[test]
fn the_opener_has_no_use_for_files() {
    let file = File::open("/etc/passwd").unwrap();
    let fd = file.as_raw_fd() as u64;
    let mut buffer = [0u8; 64];
    let bytes = buffer.as_mut_ptr() as u64;
    let mut tries = never();
    tries.extend([
        ("read", libc::SYS_read, [fd, bytes, 64, 0, 0, 0]),
        ("read in pieces", libc::SYS_readv, [fd, bytes, 1, 0, 0, 0]),
        ("read at a place", libc::SYS_pread64, [fd, bytes, 64, 0, 0, 0]),
        ("read a link", libc::SYS_readlinkat, [AT, path(c"/proc/1/exe"), bytes, 64, 0, 0]),
        ("list a directory", libc::SYS_getdents64, [fd, bytes, 64, 0, 0, 0]),
        ("copy a file", libc::SYS_sendfile, [1, fd, 0, 64, 0, 0]),
        ("copy a range", libc::SYS_copy_file_range, [fd, 0, 1, 0, 64, 0]),
        ("copy through a pipe", libc::SYS_splice, [fd, 0, 1, 0, 64, 0]),
        map(libc::PROT_READ, fd),
        map(libc::PROT_READ | libc::PROT_EXEC, u64::MAX),
        open("write a file", libc::O_WRONLY),
        open("change a file", libc::O_RDWR),
        open("empty a file", libc::O_TRUNC),
        ("make a file", SYS_openat, [AT, path(NOWHERE), libc::O_CREAT as u64, 0o600, 0, 0]),
        ("make a nameless file", SYS_openat, [AT, path(c"/tmp"), (libc::O_TMPFILE | libc::O_RDWR) as u64, 0o600, 0, 0]),
        ("open in another way", libc::SYS_openat2, [AT, path(c"/etc/passwd"), 0, 0, 0, 0]),
        ("remove a file", libc::SYS_unlinkat, [AT, path(NOWHERE), 0, 0, 0, 0]),
        ("rename a file", libc::SYS_renameat2, [AT, path(NOWHERE), AT, path(NOWHERE), 0, 0]),
        ("make a directory", libc::SYS_mkdirat, [AT, path(NOWHERE), 0o700, 0, 0, 0]),
        ("end a process", libc::SYS_kill, [NOBODY, libc::SIGKILL as u64, 0, 0, 0, 0]),
        ("become another user", libc::SYS_setresuid, [1, 1, 1, 0, 0, 0]),
        ("make a process", libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]),
        ("give up the limits", libc::SYS_prlimit64, [0, 0, 0, 0, 0, 0]),
        ("change itself", libc::SYS_prctl, [libc::PR_SET_DUMPABLE as u64, 1, 0, 0, 0, 0]),
    ]);
    #[cfg(target_arch = "x86_64")]
    for (what, flags) in
        [("write a file", libc::O_WRONLY), ("change a file", libc::O_RDWR), ("empty a file", libc::O_TRUNC)]
    {
        tries.push((what, libc::SYS_open, [path(c"/etc/passwd"), flags as u64, 0, 0, 0, 0]));
    }
    refused(opener, &tries, &[]);
    // Opening is the task of this process.
    let opens = open("open a file", libc::O_RDONLY | libc::O_CLOEXEC);
    assert_eq!(errors(opener, &[opens]), [0]);
}

#[test]
fn a_process_for_steps_has_code_and_nothing_else() {
    let (code, notes) = (scratch("code"), scratch("notes"));
    let in_code = text(code.join("file"));
    let confine = || steps(std::slice::from_ref(&code), &notes);
    let clone = |flags: c_int| ("make a process", libc::SYS_clone, [(flags | libc::SIGCHLD) as u64, 0, 0, 0, 0, 0]);
    let mut tries = never();
    tries.extend([
        clone(libc::CLONE_NEWUSER),
        clone(libc::CLONE_NEWNET),
        clone(libc::CLONE_NEWNS),
        clone(libc::CLONE_NEWPID),
        clone(libc::CLONE_VM),
        ("make a link", libc::SYS_linkat, [AT, path(NOWHERE), AT, path(NOWHERE), 0, 0]),
        ("have a packet socket", libc::SYS_socket, [libc::AF_PACKET as u64, libc::SOCK_RAW as u64, 0, 0, 0, 0]),
        ("have a pair of another kind", libc::SYS_socketpair, [libc::AF_INET as u64, 1, 0, 0, 0, 0]),
        ("wait for clients", libc::SYS_listen, [0, 1, 0, 0, 0, 0]),
        ("connect", libc::SYS_connect, [0, 0, 0, 0, 0, 0]),
    ]);
    let out_of_reach = [
        open("read a file of the machine", libc::O_RDONLY),
        (
            "make a file",
            SYS_openat,
            [AT, path(c"/tmp/postern-made"), (libc::O_CREAT | libc::O_WRONLY) as u64, 0o600, 0, 0],
        ),
        (
            "change code",
            SYS_openat,
            [AT, in_code.as_ptr() as u64, (libc::O_CREAT | libc::O_WRONLY) as u64, 0o600, 0, 0],
        ),
        ("make a directory", libc::SYS_mkdirat, [AT, path(c"/tmp/postern-made"), 0o700, 0, 0, 0]),
    ];
    refused(confine, &tries, &out_of_reach);
    assert_eq!(errors(confine, &[("read code", SYS_openat, [AT, in_code.as_ptr() as u64, 0, 0, 0, 0])]), [0]);
    for directory in [code, notes] {
        std::fs::remove_dir_all(directory).unwrap();
    }
}

/// The remover removes the files of the service, and reaches no other files.
#[test]
fn the_remover_removes_in_its_directories_alone() {
    let (own, other) = (scratch("own"), scratch("other"));
    let (in_own, in_other) = (text(own.join("file")), text(other.join("file")));
    let confine = || remover([own.as_path()]);
    let mut tries = never();
    tries.extend([
        open("read a file", libc::O_RDONLY),
        ("read", libc::SYS_read, [0, 0, 0, 0, 0, 0]),
        ("rename a file", libc::SYS_renameat2, [AT, in_own.as_ptr() as u64, AT, in_other.as_ptr() as u64, 0, 0]),
        ("end a process", libc::SYS_kill, [NOBODY, libc::SIGKILL as u64, 0, 0, 0, 0]),
        ("make a process", libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]),
    ]);
    let other_file = ("remove a file", libc::SYS_unlinkat, [AT, in_other.as_ptr() as u64, 0, 0, 0, 0]);
    refused(confine, &tries, &[other_file]);
    let own_file = ("remove a file", libc::SYS_unlinkat, [AT, in_own.as_ptr() as u64, 0, 0, 0, 0]);
    assert_eq!(errors(confine, &[own_file]), [0]);
    assert!(!own.join("file").exists() && other.join("file").exists());
    std::fs::remove_dir_all(own).unwrap();
    std::fs::remove_dir_all(other).unwrap();
}

#[test]
fn the_service_reaches_leases_and_log_alone() {
    let (own, other) = (scratch("leases"), scratch("others"));
    let in_other = text(other.join("file"));
    let mut tries = never();
    tries.extend([
        ("make a process", libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]),
        ("end a process", libc::SYS_kill, [NOBODY, libc::SIGKILL as u64, 0, 0, 0, 0]),
        ("become another user", libc::SYS_setresuid, [1, 1, 1, 0, 0, 0]),
        ("enter a user namespace", libc::SYS_setns, [0, libc::CLONE_NEWUSER as u64, 0, 0, 0, 0]),
        map(libc::PROT_READ | libc::PROT_EXEC, u64::MAX),
    ]);
    let out_of_reach = [
        open("read a file of the machine", libc::O_RDONLY),
        (
            "make a file",
            SYS_openat,
            [AT, path(c"/tmp/postern-made"), (libc::O_CREAT | libc::O_WRONLY) as u64, 0o600, 0, 0],
        ),
        ("remove a file", libc::SYS_unlinkat, [AT, in_other.as_ptr() as u64, 0, 0, 0, 0]),
    ];
    refused(|| service(&own, &own), &tries, &out_of_reach);
    for directory in [own, other] {
        std::fs::remove_dir_all(directory).unwrap();
    }
}
