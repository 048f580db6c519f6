//! Escapes: after confinement, code of the host tries an attacker's steps. Each case runs in its own process, because
//! confinement can't be undone.
#![allow(unsafe_code, reason = "fork(2), and system calls that have no safe form")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test; it has no harness")]

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::ForkResult;
use postern_confine::{
    Access, Allowed, Argument, CallRule, CapabilitySet, Confinement, DefaultAction, Direct, Environment, Files, Filter,
    Helper, Program, Run, close_all_but, forget_environment, fork, keep_capabilities,
};
use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// The system calls that a plain process needs to report its result, with glibc and with musl.
const CALLS: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_openat,
    libc::SYS_fcntl,
    libc::SYS_statx,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_lseek,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_exit_group,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_getdents64,
    libc::SYS_mremap,
    libc::SYS_getrandom,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

/// The calls that change the mode or the owner of a file.
const MODES: &[libc::c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
];

fn confine(files: &[(&Path, Access)], calls: &[libc::c_long], rules: &[CallRule]) {
    let filter: Filter = Filter::new(&[CALLS, calls], &[rules], DefaultAction::Absent);
    let confinement = Confinement {
        capabilities: CapabilitySet::NET_ADMIN,
        files: Files::new(files.iter().copied()).unwrap(),
        filter: filter.ready().clone(),
    };
    confinement.apply().unwrap();
}

/// Runs a case in a child process. A panic of the child fails the test.
fn apart(name: &str, case: impl FnOnce()) {
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            case();
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            let status = waitpid(child, None).unwrap();
            assert!(matches!(status, WaitStatus::Exited(_, 0)), "{name}: {status:?}");
            println!("ok: {name}");
        }
    }
}

fn status_field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
}

fn the_kernel_reports_the_confinement() {
    assert!(Files::new([]).unwrap().enforced(), "these tests need a kernel with Landlock");
    confine(&[(Path::new("/proc"), Access::Read)], &[], &[]);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let only_net_admin = format!("{:016x}", 1_u64 << 12);
    for set in ["CapPrm", "CapEff"] {
        assert_eq!(status_field(&status, set), only_net_admin, "{set}");
    }
    for set in ["CapInh", "CapAmb"] {
        assert_eq!(status_field(&status, set), "0000000000000000", "{set}");
    }
    assert_eq!(status_field(&status, "NoNewPrivs"), "1");
    assert_eq!(status_field(&status, "Seccomp"), "2");
}

/// The bounding set stays. A program that could still be started must gain no capability from it.
fn programs_gain_nothing() {
    let (read, write) = nix::unistd::pipe().unwrap();
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            nix::unistd::dup2_stdout(write).unwrap();
            nix::sys::prctl::set_no_new_privs().unwrap();
            keep_capabilities(CapabilitySet::NET_ADMIN).unwrap();
            let _ = nix::unistd::execv(c"/bin/cat", &[c"cat", c"/proc/self/status"]);
            unsafe { libc::_exit(1) }
        }
        ForkResult::Parent { child } => {
            drop(write);
            let mut status = String::new();
            fs::File::from(read).read_to_string(&mut status).unwrap();
            waitpid(child, None).unwrap();
            assert_eq!(status_field(&status, "CapEff"), format!("{:016x}", 1_u64 << 12), "{status}");
        }
    }
}

fn refused(call: libc::c_long, arguments: [usize; 4]) {
    let [a, b, c, d] = arguments;
    let result = unsafe { libc::syscall(call, a, b, c, d) };
    assert_eq!(Errno::result(result), Err(Errno::ENOSYS), "system call {call}");
}

fn calls_that_escapes_need_are_absent() {
    confine(
        &[],
        &[],
        &[
            CallRule(libc::SYS_socket, &[Argument::OneOf(0, &[libc::AF_NETLINK as u32])]),
            CallRule(libc::SYS_kill, &[Argument::OneOf(0, &[4_194_303])]),
        ],
    );
    let path = c"/bin/sh".as_ptr() as usize;
    for call in [
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_ptrace,
        libc::SYS_process_vm_writev,
        libc::SYS_setns,
        libc::SYS_unshare,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_bpf,
        libc::SYS_init_module,
        libc::SYS_kexec_load,
        libc::SYS_io_uring_setup,
        libc::SYS_userfaultfd,
        libc::SYS_perf_event_open,
        libc::SYS_keyctl,
        libc::SYS_setuid,
        libc::SYS_capset,
        libc::SYS_reboot,
    ] {
        refused(call, [path, 0, 0, 0]);
    }
    // Landlock does not cover modes of files. So the filter must refuse every call that changes a mode.
    for call in MODES {
        refused(*call, [path, 0o4755, 0, 0]);
    }
    for domain in [libc::AF_INET, libc::AF_INET6, libc::AF_PACKET, libc::AF_UNIX, libc::AF_VSOCK] {
        refused(libc::SYS_socket, [domain as usize, libc::SOCK_DGRAM as usize, 0, 0]);
    }
    let netlink = unsafe { libc::syscall(libc::SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, 0) };
    assert!(netlink >= 0, "what is granted works");
    refused(libc::SYS_kill, [1, libc::SIGKILL as usize, 0, 0]);
}

fn files_out_of_reach() {
    let dir = std::env::temp_dir().join(format!("postern-confine-{}", std::process::id()));
    fs::create_dir_all(dir.join("mine")).unwrap();
    fs::create_dir_all(dir.join("read")).unwrap();
    fs::write(dir.join("foreign"), "x").unwrap();
    fs::write(dir.join("read/file"), "x").unwrap();
    let open = fs::File::open(dir.join("foreign")).unwrap();
    let (mine, read) = (dir.join("mine"), dir.join("read"));
    confine(&[(&mine, Access::Own), (&read, Access::Read), (Path::new("/nonexistent"), Access::Own)], &[], &[]);

    fs::write(dir.join("mine/file"), "y").unwrap();
    fs::remove_file(dir.join("mine/file")).unwrap();
    assert_eq!(fs::read_to_string(dir.join("read/file")).unwrap(), "x");
    let denied = |result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    };
    denied(fs::write(dir.join("read/file"), "y"));
    denied(fs::read(dir.join("foreign")).map(drop));
    denied(fs::write(dir.join("foreign"), "y"));
    denied(fs::remove_file(dir.join("foreign")));
    denied(fs::create_dir(dir.join("new")));
    denied(fs::read("/etc/passwd").map(drop));
    denied(fs::read(dir.join("mine/../foreign")).map(drop));
    // A file that was opened before the confinement stays readable. So no important file may be open at that time.
    let mut text = String::new();
    (&open).read_to_string(&mut text).unwrap();
    assert_eq!(text, "x");
}

fn the_environment_is_gone() {
    assert!(std::env::var_os("PATH").is_some(), "the test needs something to forget");
    forget_environment();
    assert_eq!(std::env::vars_os().count(), 0);
    let left = fs::read("/proc/self/environ").unwrap();
    assert!(left.iter().all(|byte| *byte == 0), "{}", String::from_utf8_lossy(&left));
}

fn inherited_descriptors_are_closed() {
    let file = fs::File::open("/dev/null").unwrap();
    let other = fs::File::open("/dev/null").unwrap();
    close_all_but(&[0, 1, 2, file.as_raw_fd()]).unwrap();
    assert!(nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_GETFD).is_ok());
    assert!(nix::fcntl::fcntl(&other, nix::fcntl::FcntlArg::F_GETFD).is_err());
    std::mem::forget(other);
}

fn a_helper_runs_what_is_listed_and_nothing_else() {
    let allowed = |path: &str, arguments: fn(&[String]) -> bool| Allowed {
        path: path.into(),
        arguments,
        input: |text| !text.contains("forbidden"),
        variable: None,
    };
    let scripts = |given: &[String]| given.first().is_some_and(|first| first == "-c");
    let helper =
        Helper::start(vec![allowed("/bin/cat", <[String]>::is_empty), allowed("/bin/sh", scripts)], None, None)
            .unwrap();
    confine(&[], &[libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_setsockopt, libc::SYS_clock_gettime], &[]);
    let program = |path: &str, arguments: &[&str], input: String| Program {
        path: path.into(),
        arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
        environment: Environment::Empty,
        input,
    };
    let soon = || Instant::now() + Duration::from_secs(10);
    let large = "\u{1}ä".repeat(1 << 20);
    assert_eq!(helper.run(&program("/bin/cat", &[], large.clone()), soon()).unwrap().stdout, large);
    let failed = helper.run(&program("/bin/sh", &["-c", "echo no >&2; exit 3"], String::new()), soon()).unwrap();
    assert_eq!((failed.status, failed.stderr.as_str()), (Some(3), "no\n"));
    let start = Instant::now();
    let error = helper.run(&program("/bin/sh", &["-c", "sleep 60"], String::new()), start + Duration::from_millis(50));
    assert_eq!(error.unwrap_err().raw_os_error(), Some(Errno::ETIMEDOUT as i32));
    assert!(start.elapsed() < Duration::from_secs(5));
    for refused in [
        program("/bin/sh", &["-x"], String::new()),
        program("/bin/cat", &[], "forbidden".to_owned()),
        Program {
            environment: Environment::Inherited(vec![("LD_PRELOAD".to_owned(), "/x".to_owned())]),
            ..program("/bin/cat", &[], String::new())
        },
    ] {
        let error = helper.run(&refused, soon()).unwrap_err();
        assert!(error.to_string().contains("may not be started with these arguments"), "{error}");
    }
    let other = helper.run(&program("/bin/ls", &[], String::new()), soon()).unwrap_err();
    assert!(other.to_string().contains("/bin/ls is not among the programs"), "{other}");
    assert!(Direct.run(&program("/bin/cat", &[], String::new()), soon()).is_err(), "the confined process itself can't");
}

fn main() {
    assert!(std::env::var_os("POSTERN_PRIVATE").is_some(), "must run through the cargo runner");
    apart("the kernel reports the confinement", the_kernel_reports_the_confinement);
    apart("programs gain nothing", programs_gain_nothing);
    apart("calls that escapes need are absent", calls_that_escapes_need_are_absent);
    apart("files out of reach", files_out_of_reach);
    apart("the environment is gone", the_environment_is_gone);
    apart("inherited descriptors are closed", inherited_descriptors_are_closed);
    apart("a helper runs what is listed and nothing else", a_helper_runs_what_is_listed_and_nothing_else);
}
