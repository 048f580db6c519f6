//! The test cases.
#![allow(unsafe_code, reason = "fork(2), as the gate does it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test, but without a harness that marks it as a test"
)]

use crate::{ceiling, guests};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, wait, waitpid};
use nix::unistd::{ForkResult, Pid};
use postern_confine::fork;
use postern_sandbox::compile::precompile;
use postern_sandbox::{child, confine, seal};
use postern_types::channel::{ChannelError, pair, receive, send_to_sandbox};
use postern_types::{ErrorCode, FromSandbox, GuestLimits, OpError, Reply, Start, ToSandbox, ops};
use std::fs::{self, File};
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::ptr::null_mut;
use std::thread::sleep;
use std::time::{Duration, Instant};

const LIMITS: GuestLimits =
    GuestLimits { memory: 16 << 20, tables: 1 << 10, resources: 64, call: 1 << 20, stdout: 1 << 20, stderr: 64 << 10 };

/// A started sandbox.
struct Sandbox {
    child: Pid,
    channel: UnixStream,
}

impl Sandbox {
    fn start(guest: &str) -> Self {
        let sandbox = Self::fork(code(&precompile(&wat::parse_str(guest).unwrap()).unwrap().cwasm));
        sandbox.begin();
        sandbox
    }

    fn begin(&self) {
        let start =
            Start { env: vec![("CNI_COMMAND".into(), "ADD".into())], stdin: "{}".to_owned().into(), limits: LIMITS };
        send_to_sandbox(&self.channel, &ToSandbox::Start(start), deadline()).unwrap();
    }

    fn fork(code: OwnedFd) -> Self {
        let (channel, other) = pair().unwrap();
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => child::run(other.into(), code),
            ForkResult::Parent { child } => Self { child, channel },
        }
    }

    fn next(&self) -> Result<FromSandbox, ChannelError> {
        receive(&self.channel, deadline())
    }

    fn answer(&self, answer: Result<Reply, OpError>) {
        send_to_sandbox(&self.channel, &ToSandbox::Answer(answer), deadline()).unwrap();
    }

    fn status(self) -> WaitStatus {
        waitpid(self.child, None).unwrap()
    }

    /// Returns the last message of the run. The process exits as soon as no further message can come.
    fn end(self) -> FromSandbox {
        let last = self.next().unwrap();
        let Self { child, channel } = self;
        channel.shutdown(Shutdown::Write).unwrap();
        let after = receive::<FromSandbox>(&channel, deadline());
        assert!(matches!(after, Err(ChannelError::Closed)), "nothing comes after the end");
        assert!(matches!(waitpid(child, None).unwrap(), WaitStatus::Exited(_, 0)));
        last
    }

    fn failed(self) -> String {
        match self.end() {
            FromSandbox::Failed(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    fn unloadable(self) -> String {
        match self.end() {
            FromSandbox::Unloadable(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.child)).unwrap()
    }
}

fn deadline() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

fn code(bytes: &[u8]) -> OwnedFd {
    let path = std::env::temp_dir().join(format!("postern-sandbox-test-{}", std::process::id()));
    File::create(&path).unwrap().write_all(bytes).unwrap();
    let file = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file.into()
}

fn finished(stdout: &str, status: u8) -> FromSandbox {
    FromSandbox::Finished { stdout: stdout.into(), status }
}

fn it_owns_nothing_while_the_guest_runs() {
    let sandbox = Sandbox::start(&guests::calling());
    assert_eq!(sandbox.next().unwrap(), FromSandbox::Call(ops::Forwarding::Enable.into()));

    let status = sandbox.proc("status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(field("NoNewPrivs"), "1");
    assert_eq!(field("Seccomp"), "2");
    assert_eq!(field("Threads"), "1");
    let descriptors = fs::read_dir(format!("/proc/{}/fd", sandbox.child)).unwrap();
    let targets: Vec<_> = descriptors.map(|entry| fs::read_link(entry.unwrap().path()).unwrap()).collect();
    assert!(matches!(targets.as_slice(), [only] if only.to_string_lossy().starts_with("socket:")), "{targets:?}");
    let limits = sandbox.proc("limits");
    for limit in ["Max open files", "Max processes", "Max core file size", "Max file size"] {
        let line = limits.lines().find(|line| line.starts_with(limit)).unwrap();
        assert_eq!(line.trim_start_matches(limit).split_whitespace().next(), Some("0"), "{line}");
    }
    for line in sandbox.proc("maps").lines() {
        assert!(!line.contains(" rwx"), "writable code: {line}");
    }

    sandbox.answer(Reply::of(&()));
    assert_eq!(sandbox.end(), finished("", 0));
}

fn another_system_call_kills_it() {
    let calls = ["open", "execute", "execve", "execveat", "capset", "prctl", "mmap", "munmap", "mremap", "brk", "hide"];
    for (call, expected) in [("none", None)].into_iter().chain(calls.map(|call| (call, Some(Signal::SIGSYS)))) {
        let child = match unsafe { fork() }.unwrap() {
            ForkResult::Child => in_a_sealed_process(call),
            ForkResult::Parent { child } => child,
        };
        match (waitpid(child, None).unwrap(), expected) {
            (WaitStatus::Exited(_, 0), None) => {}
            (WaitStatus::Signaled(_, signal, _), Some(expected)) if signal == expected => {}
            (status, _) => panic!("{call}: {status:?}"),
        }
    }
}

fn in_a_sealed_process(call: &str) -> ! {
    let (one, two) = UnixStream::pair().unwrap();
    let ok = confine::confine(one.as_fd(), two.as_fd()).is_ok() && seal().is_ok();
    match call {
        "open" => drop(File::open("/proc/self/exe")),
        "execute" => {
            use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
            let flags = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
            let length = std::num::NonZeroUsize::new(4096).unwrap();
            let _ = unsafe { mmap_anonymous(None, length, flags, MapFlags::MAP_PRIVATE) };
        }
        "mmap" => {
            unsafe { libc::mmap(null_mut(), 4096, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        }
        "munmap" => {
            unsafe { libc::munmap(null_mut(), 4096) };
        }
        "mremap" => {
            unsafe { libc::mremap(null_mut(), 4096, 8192, libc::MREMAP_MAYMOVE) };
        }
        "brk" => {
            unsafe { libc::syscall(libc::SYS_brk, 0) };
        }
        // The kernel does not count memory as data after it became unwritable.
        "hide" => {
            unsafe { libc::mprotect(null_mut(), 4096, libc::PROT_NONE) };
        }
        "execve" => {
            let nothing: [&std::ffi::CStr; 0] = [];
            let _ = nix::unistd::execve(c"/proc/self/exe", &[c"x"], &nothing);
        }
        "execveat" => {
            unsafe { libc::syscall(libc::SYS_execveat, 0, c"".as_ptr(), 0, 0, libc::AT_EMPTY_PATH) };
        }
        "capset" => {
            unsafe { libc::syscall(libc::SYS_capset, 0, 0) };
        }
        "prctl" => {
            let _ = nix::sys::prctl::set_dumpable(true);
        }
        _ => {}
    }
    unsafe { libc::_exit(i32::from(!ok)) }
}

fn the_gates_error_reaches_the_guest() {
    let sandbox = Sandbox::start(&guests::calling());
    assert!(matches!(sandbox.next(), Ok(FromSandbox::Call(_))));
    sandbox.answer(Err(OpError::new(ErrorCode::Denied, "forwarding", "no").hint("grant it")));
    assert_eq!(sandbox.end(), finished("", 1));
}

fn an_answer_of_the_wrong_kind_is_an_error_of_the_host() {
    let sandbox = Sandbox::start(&guests::calling());
    assert!(matches!(sandbox.next(), Ok(FromSandbox::Call(_))));
    sandbox.answer(Reply::of(&3_u32));
    assert_eq!(sandbox.end(), finished("", 1));
}

fn a_guest_may_say_nothing() {
    assert_eq!(Sandbox::start(&guests::running("i32.const 0")).end(), finished("", 0));
    assert_eq!(Sandbox::start(&guests::running("i32.const 1")).end(), finished("", 1));
}

fn a_trap_is_told_by_its_kind() {
    let reason = Sandbox::start(&guests::running("unreachable")).failed();
    assert_eq!(reason, "trapped: wasm `unreachable` instruction executed");
    let reason = Sandbox::start(&guests::running("(i32.load (i32.const -8))")).failed();
    assert_eq!(reason, "trapped: out of bounds memory access");
    let reason = Sandbox::start(&guests::running("(i32.div_u (i32.const 1) (i32.load (i32.const 0)))")).failed();
    assert_eq!(reason, "trapped: integer divide by zero");
    let reason = Sandbox::start(&guests::running("(call $run)")).failed();
    assert_eq!(reason, "trapped: call stack exhausted");
}

fn it_runs_again_with_a_new_memory() {
    let once = "(if (result i32) (i32.load (i32.const 64)) (then (unreachable)) \
        (else (i32.store (i32.const 64) (i32.const 1)) (i32.const 0)))";
    let sandbox = Sandbox::start(&guests::running(once));
    for _ in 0..3 {
        assert_eq!(sandbox.next().unwrap(), finished("", 0));
        sandbox.begin();
    }
    assert_eq!(sandbox.end(), finished("", 0));
}

fn a_memory_bomb_meets_its_limit() {
    let grow = "(loop (br_if 0 (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) i32.const 0";
    assert_eq!(Sandbox::start(&guests::running(grow)).failed(), "ran out of memory: the limit is 16 MiB");
    let grow = "(drop (table.grow (ref.null func) (i32.const 0x7fffffff))) i32.const 0";
    assert_eq!(Sandbox::start(&guests::running(grow)).end(), finished("", 0));
}

fn a_flood_of_output_ends_the_guest() {
    let reason = Sandbox::start(&guests::writing("stdout", 1_000_000)).failed();
    assert_eq!(reason, "trapped: wrote too much to standard output");
    assert_eq!(Sandbox::start(&guests::writing("stdout", 2)).end(), finished(&"x".repeat(8192), 0));
}

fn a_flood_of_complaints_is_cut() {
    let sandbox = Sandbox::start(&guests::writing("stderr", 1000));
    let Ok(FromSandbox::Stderr(text)) = sandbox.next() else { panic!("no standard error") };
    assert_eq!(text.len(), LIMITS.stderr);
    assert_eq!(sandbox.end(), finished("", 0));
}

/// The option with which this program is started again, under a low limit.
pub const LITTLE_HEAP: &str = "--with-a-little-heap";

/// A process that was started under a low limit has reserved little memory for its heap. Its sandboxes still get the
/// usual memory.
fn a_process_with_a_little_heap_has_whole_sandboxes() {
    let code = code(&precompile(&wat::parse_str(guests::writing("stdout", 4096)).unwrap()).unwrap().cwasm);
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.arg(LITTLE_HEAP).stdin(code);
    #[expect(clippy::disallowed_methods, reason = "nothing is allocated")]
    unsafe {
        again.pre_exec(|| {
            let (_, hard) = getrlimit(Resource::RLIMIT_AS)?;
            Ok(setrlimit(Resource::RLIMIT_AS, 64 << 20, hard)?)
        })
    };
    let output = again.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs in this program after its second start, under a low limit. Raises the limit, as a gate does, and starts a
/// guest. The guest's process makes several copies of the guest's output of 16 MiB.
pub fn with_a_little_heap() {
    let (_, hard) = getrlimit(Resource::RLIMIT_AS).unwrap();
    setrlimit(Resource::RLIMIT_AS, hard, hard).unwrap();
    let sandbox = Sandbox::fork(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let limits = GuestLimits { stdout: 32 << 20, call: 64 << 20, ..LIMITS };
    let start = Start { env: Vec::new(), stdin: String::new().into(), limits };
    send_to_sandbox(&sandbox.channel, &ToSandbox::Start(start), deadline()).unwrap();
    let reason = sandbox.failed();
    assert!(reason.starts_with("wrote too much to standard output: 1677"), "{reason}");
}

fn an_endless_loop_can_be_killed() {
    let sandbox = Sandbox::start(&guests::running("(loop (br 0)) i32.const 0"));
    sleep(Duration::from_millis(50));
    kill(sandbox.child, Signal::SIGKILL).unwrap();
    assert!(matches!(sandbox.next(), Err(ChannelError::Closed)));
    assert!(matches!(sandbox.status(), WaitStatus::Signaled(_, Signal::SIGKILL, _)));
}

fn an_endless_loop_dies_with_the_gate() {
    set_child_subreaper(true).unwrap();
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let _sandbox = Sandbox::start(&guests::running("(loop (br 0)) i32.const 0"));
            sleep(Duration::from_millis(50));
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            assert!(matches!(waitpid(child, None).unwrap(), WaitStatus::Exited(_, 0)));
            assert!(matches!(wait().unwrap(), WaitStatus::Signaled(_, Signal::SIGKILL, _)));
        }
    }
}

fn a_gate_that_leaves_ends_it() {
    let sandbox = Sandbox::fork(code(&precompile(&wat::parse_str(guests::calling()).unwrap()).unwrap().cwasm));
    let Sandbox { child, channel } = sandbox;
    drop(channel);
    // The outcome depends on the time: if the guest is not loaded yet, the process sends a reason that nobody reads.
    assert!(matches!(waitpid(child, None).unwrap(), WaitStatus::Exited(_, 0)));
}

fn foreign_code_is_refused() {
    for (bytes, why) in [(&b""[..], "empty"), (b"\x7fELF and so on", "ELF"), (b"garbage", "ELF")] {
        let reason = Sandbox::fork(code(bytes)).unloadable();
        assert!(reason.contains(why), "{reason}");
    }
    let mut other = precompile(&wat::parse_str(guests::running("i32.const 0")).unwrap()).unwrap().cwasm;
    let fingerprint = postern_sandbox::engine::fingerprint();
    let at = other.windows(fingerprint.len()).position(|bytes| bytes == fingerprint.as_bytes()).unwrap();
    other.get_mut(at).map(|byte| *byte = b'X').unwrap();
    let reason = Sandbox::fork(code(&other)).unloadable();
    assert!(reason.contains("incompatible version"), "{reason}");
}

pub fn run() {
    assert!(std::env::var_os("POSTERN_PRIVATE").is_some(), "must run through the cargo runner");
    let cases: [(&str, fn()); 17] = [
        ("it owns nothing while the guest runs", it_owns_nothing_while_the_guest_runs),
        ("another system call kills it", another_system_call_kills_it),
        ("the gate's error reaches the guest", the_gates_error_reaches_the_guest),
        ("an answer of the wrong kind is an error of the host", an_answer_of_the_wrong_kind_is_an_error_of_the_host),
        ("a guest may say nothing", a_guest_may_say_nothing),
        ("a trap is told by its kind", a_trap_is_told_by_its_kind),
        ("it runs again, with a new memory", it_runs_again_with_a_new_memory),
        ("a memory bomb meets its limit", a_memory_bomb_meets_its_limit),
        ("a flood of output ends the guest", a_flood_of_output_ends_the_guest),
        ("a process with a little heap has whole sandboxes", a_process_with_a_little_heap_has_whole_sandboxes),
        ("a flood of complaints is cut", a_flood_of_complaints_is_cut),
        ("an endless loop can be killed", an_endless_loop_can_be_killed),
        ("an endless loop dies with the gate", an_endless_loop_dies_with_the_gate),
        ("a gate that leaves ends it", a_gate_that_leaves_ends_it),
        ("foreign code is refused", foreign_code_is_refused),
        ("a guest can't hoard resources", guests_cannot_hoard),
        ("a taken-over sandbox has half a gibibyte", ceiling::a_taken_over_sandbox_has_half_a_gibibyte),
    ];
    for (name, case) in cases {
        case();
        println!("ok: {name}");
    }
}

fn guests_cannot_hoard() {
    let reason = Sandbox::start(&guests::hoarding()).failed();
    assert!(reason.starts_with("trapped: "), "{reason}");
}
