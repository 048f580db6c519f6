//! A filter of system calls (seccomp(2)): an allow-list, compiled for the kernel's classic BPF machine.
//!
//! A list stands beside the code that confines a process. It is compiled at build time, with the numbers of the
//! architecture that is built for: a filter is a `static`. A run only puts in the values that nobody knows before it.
#![allow(unsafe_code, reason = "installs the filter by prctl(2)")]

use crate::ConfineError;
use crate::bpf::{LONGEST, compile};
use libc::{c_long, sock_filter, sock_fprog};
use nix::errno::Errno;

/// A system call that is allowed if all conditions hold. Of several rules for one call, one is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRule(pub c_long, pub &'static [Argument]);

/// A condition on one argument (0 to 5) of a system call. All but `High` look at its low 32 bits only: they are for
/// arguments that the kernel takes as `int`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// It is one of these values.
    OneOf(u8, &'static [u32]),
    /// It is the value of this number, of those that the run puts in.
    Given(u8, u8),
    /// It has none of these bits.
    Lacks(u8, u32),
    /// Its high 32 bits have this value.
    High(u8, u32),
}

/// The result of a call that no rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultAction {
    /// The process is killed at once.
    Kill,
    /// The call fails with `ENOSYS`, as if the kernel did not have it. A C library that tries a newer call first then
    /// uses the older one.
    Absent,
}

/// What each process calls, whatever it does: none of it makes or opens anything.
pub const COMMON: &[c_long] = &[
    libc::SYS_close,           // any descriptor
    libc::SYS_munmap,          // memory
    libc::SYS_mremap,          // memory
    libc::SYS_madvise,         // memory, and that of a thread that ends
    libc::SYS_brk,             // memory
    libc::SYS_rt_sigreturn,    // the end of a signal handler
    libc::SYS_rt_sigaction,    // the handling of SIGPIPE; the end of postern-admin, which has Rust's own start
    libc::SYS_sigaltstack,     // the stack for overflows, of a thread that ends
    libc::SYS_futex,           // locks
    libc::SYS_restart_syscall, // a wait that was interrupted
    libc::SYS_exit,            // the end of a thread
    libc::SYS_exit_group,      // the end
];

/// Memory is allowed, but no new code.
pub const NO_NEW_CODE: &[CallRule] = &[
    CallRule(libc::SYS_mmap, &[Argument::Lacks(2, libc::PROT_EXEC as u32)]),
    CallRule(libc::SYS_mprotect, &[Argument::Lacks(2, libc::PROT_EXEC as u32)]),
];

/// Descriptors may be copied and asked for their flags, and close on exec. Another command could send signals to any
/// process.
pub const DESCRIPTOR_FLAGS: &[CallRule] = &[CallRule(
    libc::SYS_fcntl,
    &[Argument::OneOf(
        1,
        &[libc::F_DUPFD_CLOEXEC as u32, libc::F_GETFD as u32, libc::F_SETFD as u32, libc::F_GETFL as u32],
    )],
)];

/// A compiled list of allowed calls. So many values are still to be put in.
#[derive(Debug)]
pub struct Filter<const VALUES: usize = 0> {
    program: ReadyFilter,
    /// For an instruction that compares with a value which is put in: the number of the value.
    given: [Option<u8>; LONGEST],
}

impl<const VALUES: usize> Filter<VALUES> {
    /// Compiles lists of calls that are allowed with any arguments, and lists of rules. It is for a `static`: a list that
    /// makes no sense then fails the build.
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
    /// Returns the program, into which nothing has to be put.
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

    /// Filters the calling thread from now on, and all that it starts. Needs `PR_SET_NO_NEW_PRIVS`.
    ///
    /// # Errors
    /// The kernel has no filters.
    pub fn install(&self) -> Result<(), ConfineError> {
        let instructions = self.instructions();
        let program = sock_fprog {
            len: u16::try_from(instructions.len()).unwrap_or(0),
            filter: instructions.as_ptr().cast_mut(),
        };
        // SAFETY: the kernel copies the program, which is alive until the call returns and as long as it says.
        let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) };
        Errno::result(result).map(drop).map_err(|e| ConfineError::new("PR_SET_SECCOMP", e))
    }
}
