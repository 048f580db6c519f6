//! A filter of system calls (seccomp(2)): an allow-list, compiled for the kernel's classic BPF machine.
//!
//! The code that confines a process has the list in a `static`. The list is compiled at build time, with the numbers of
//! the target architecture. A run only puts in values that the build can't know.
#![allow(unsafe_code, reason = "installs the filter by prctl(2)")]

use crate::ConfineError;
use crate::bpf::{LONGEST, compile};
use libc::{c_long, sock_filter, sock_fprog};
use nix::errno::Errno;

/// A system call that is allowed if all conditions hold. If a call has several rules, one rule is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRule(pub c_long, pub &'static [Argument]);

/// A condition on one argument (0 to 5) of a system call. `High` compares the argument's high 32 bits. The other
/// conditions compare only the low 32 bits, for arguments that the kernel takes as `int`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The argument is one of these values.
    OneOf(u8, &'static [u32]),
    /// The argument equals the value that the run puts in under this number.
    Given(u8, u8),
    /// The argument has none of these bits.
    Lacks(u8, u32),
    /// The argument's high 32 bits have this value.
    High(u8, u32),
}

/// The result of a call that no rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultAction {
    /// The process is killed at once.
    Kill,
    /// The call fails with `ENOSYS`, as if the kernel did not have it. If a C library tries a newer call first, it then
    /// uses the older call.
    Absent,
}

/// Calls of every process. None of them makes or opens anything.
pub const COMMON: &[c_long] = &[
    libc::SYS_close,           // any descriptor
    libc::SYS_munmap,          // memory
    libc::SYS_mremap,          // memory
    libc::SYS_madvise,         // memory, also of a thread that ends
    libc::SYS_brk,             // memory
    libc::SYS_rt_sigreturn,    // the end of a signal handler
    libc::SYS_rt_sigaction,    // the handling of SIGPIPE, and Rust's runtime at the end of postern-admin
    libc::SYS_sigaltstack,     // the stack for overflows, of a thread that ends
    libc::SYS_futex,           // locks
    libc::SYS_restart_syscall, // a wait that was interrupted
    libc::SYS_exit,            // the end of a thread
    libc::SYS_exit_group,      // the end of the process
];

/// Memory is allowed, but no new code.
pub const NO_NEW_CODE: &[CallRule] = &[
    CallRule(libc::SYS_mmap, &[Argument::Lacks(2, libc::PROT_EXEC as u32)]),
    CallRule(libc::SYS_mprotect, &[Argument::Lacks(2, libc::PROT_EXEC as u32)]),
];

/// Descriptors may be copied, their flags may be read, and they may be closed on exec. Other commands of fcntl(2) could
/// send signals to any process.
pub const DESCRIPTOR_FLAGS: &[CallRule] = &[CallRule(
    libc::SYS_fcntl,
    &[Argument::OneOf(
        1,
        &[libc::F_DUPFD_CLOEXEC as u32, libc::F_GETFD as u32, libc::F_SETFD as u32, libc::F_GETFL as u32],
    )],
)];

/// A compiled list of allowed calls. A run still has to put in `VALUES` values.
#[derive(Debug)]
pub struct Filter<const VALUES: usize = 0> {
    program: ReadyFilter,
    /// For each instruction that compares with a value of the run: the number of this value.
    given: [Option<u8>; LONGEST],
}

impl<const VALUES: usize> Filter<VALUES> {
    /// Compiles lists of calls that are allowed with any arguments, and lists of rules. Call this function in a
    /// `static`: then a senseless list fails the build.
    pub const fn new(calls: &[&[c_long]], rules: &[&[CallRule]], refusal: DefaultAction) -> Self {
        let (instructions, given, begin) = compile(calls, rules, refusal, VALUES);
        Self { program: ReadyFilter { instructions, begin }, given }
    }

    /// Returns the program with these values.
    pub fn with(&self, values: [u32; VALUES]) -> ReadyFilter {
        let mut program = self.program.clone();
        for (instruction, given) in program.instructions.iter_mut().zip(self.given) {
            if let Some(value) = given.and_then(|number| values.get(usize::from(number))) {
                instruction.k = *value;
            }
        }
        program
    }
}

impl Filter {
    /// Returns the program of a filter without values.
    pub fn ready(&self) -> &ReadyFilter {
        &self.program
    }
}

/// A filter that is ready to be installed.
#[derive(Clone, Debug)]
pub struct ReadyFilter {
    instructions: [sock_filter; LONGEST],
    begin: usize,
}

impl ReadyFilter {
    /// The kernel's instructions.
    pub fn instructions(&self) -> &[sock_filter] {
        self.instructions.get(self.begin..).unwrap_or_default()
    }

    /// Filters the calling thread from now on, and all threads and processes that this thread starts. Needs
    /// `PR_SET_NO_NEW_PRIVS`.
    ///
    /// # Errors
    /// The kernel has no seccomp filters.
    pub fn install(&self) -> Result<(), ConfineError> {
        let instructions = self.instructions();
        let program = sock_fprog {
            len: u16::try_from(instructions.len()).unwrap_or(0),
            filter: instructions.as_ptr().cast_mut(),
        };
        // SAFETY: the kernel copies the program. The program lives until the call returns, and `len` is its length.
        let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) };
        Errno::result(result).map(drop).map_err(|e| ConfineError::new("PR_SET_SECCOMP", e))
    }
}
