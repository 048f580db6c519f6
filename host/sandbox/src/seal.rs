//! The last step of confinement, between loading a guest and running it: a filter of system calls (seccomp(2)).
#![allow(unsafe_code, reason = "installs the filter by prctl(2)")]

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, c_long, sock_filter, sock_fprog};
use nix::errno::Errno;

/// From here on the process can talk on its channel, handle memory that is not executable, and exit. Any other system
/// call kills it.
///
/// Comes after loading, which makes the guest's code executable, and after `PR_SET_NO_NEW_PRIVS`, without which the
/// kernel takes a filter from root only.
///
/// # Errors
/// The kernel has no filters.
pub fn seal() -> nix::Result<()> {
    let mut filter = filter();
    let program = sock_fprog { len: u16::try_from(filter.len()).unwrap_or(0), filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which is alive until the call returns and as long as it says.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) };
    Errno::result(result).map(drop)
}

/// What is allowed whatever its arguments. The most frequent ones come first: each is one comparison, and the kernel
/// tries the filter on every system call there is when it is installed.
const ALLOWED: [c_long; 15] = [
    // The channel. No other descriptor is open, and none can be opened.
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_read,
    libc::SYS_write,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // Traps of the guest arrive as signals, and are left by this one.
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    // The standard library: locks, the seed of a `HashMap`, clocks where the vDSO has none.
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_exit_group,
];

/// What is allowed if its third argument, the protection, lacks `PROT_EXEC`.
const ALLOWED_FOR_DATA: [c_long; 2] = [libc::SYS_mmap, libc::SYS_mprotect];

/// `AUDIT_ARCH_*` of linux/audit.h: a process can make system calls of another architecture (32 bits, on x86-64), and
/// those have other numbers.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const ARCHITECTURE: u32 = 0xc000_00f3;

// Where linux/seccomp.h's `struct seccomp_data` has them. The arguments are 64 bits wide; of the protection, all flags
// are in the low half, which is the first one on the architectures above.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const THIRD_ARGUMENT: u32 = 32;

/// A program for the kernel's classic BPF machine: load a word, compare, jump forward, return a verdict.
fn filter() -> Vec<sock_filter> {
    let allowed = ALLOWED.len() as u8;
    let for_data = ALLOWED_FOR_DATA.len() as u8;
    let mut program = vec![
        statement(BPF_LD | BPF_W | BPF_ABS, ARCHITECTURE_AT),
        // To `kill`, which lies behind the load of the number and both lists.
        jump(BPF_JEQ, ARCHITECTURE, 0, 1 + allowed + for_data),
        statement(BPF_LD | BPF_W | BPF_ABS, NUMBER),
    ];
    // Behind the lists come: kill, load the argument, test it, kill, allow.
    for (left, call) in (0..allowed).rev().zip(ALLOWED) {
        program.push(jump(BPF_JEQ, call as u32, left + for_data + 4, 0));
    }
    for (left, call) in (0..for_data).rev().zip(ALLOWED_FOR_DATA) {
        program.push(jump(BPF_JEQ, call as u32, left + 1, 0));
    }
    program.extend([
        statement(BPF_RET | BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
        statement(BPF_LD | BPF_W | BPF_ABS, THIRD_ARGUMENT),
        jump(BPF_JSET, libc::PROT_EXEC as u32, 0, 1),
        statement(BPF_RET | BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
        statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW),
    ]);
    program
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Skips `jt` instructions if the comparison holds, else `jf`.
fn jump(comparison: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | comparison | BPF_K) as u16, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel would.
    fn verdict(architecture: u32, call: c_long, protection: u32) -> u32 {
        let program = filter();
        let (mut at, mut word) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            let holds = match u32::from(code) {
                code if code == BPF_LD | BPF_W | BPF_ABS => {
                    word = match k {
                        NUMBER => call as u32,
                        ARCHITECTURE_AT => architecture,
                        THIRD_ARGUMENT => protection,
                        other => panic!("loads {other}"),
                    };
                    at += 1;
                    continue;
                }
                code if code == BPF_RET | BPF_K => return k,
                code if code == BPF_JMP | BPF_JEQ | BPF_K => word == k,
                code if code == BPF_JMP | BPF_JSET | BPF_K => word & k != 0,
                other => panic!("instruction {other:#x}"),
            };
            at += 1 + usize::from(if holds { jt } else { jf });
        }
    }

    #[test]
    fn allows_what_is_listed_and_nothing_else() {
        for call in 0..1000 {
            for protection in [libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ | libc::PROT_EXEC] {
                let executable = protection & libc::PROT_EXEC != 0;
                let allowed = ALLOWED.contains(&call) || (ALLOWED_FOR_DATA.contains(&call) && !executable);
                let expected = if allowed { libc::SECCOMP_RET_ALLOW } else { libc::SECCOMP_RET_KILL_PROCESS };
                assert_eq!(verdict(ARCHITECTURE, call, protection as u32), expected, "system call {call}");
                assert_eq!(verdict(ARCHITECTURE ^ 1, call, protection as u32), libc::SECCOMP_RET_KILL_PROCESS);
            }
        }
        // The x32 calls of x86-64 are the same ones with a bit on top.
        assert_eq!(verdict(ARCHITECTURE, libc::SYS_read | 0x4000_0000, 0), libc::SECCOMP_RET_KILL_PROCESS);
    }
}
