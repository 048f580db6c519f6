//! A filter of system calls (seccomp(2)): an allow-list, compiled for the kernel's classic BPF machine.
#![allow(unsafe_code, reason = "installs the filter by prctl(2)")]

use crate::ConfineError;
use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, c_long, sock_filter, sock_fprog,
};
use nix::errno::Errno;

/// One allowed system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Allowed with any arguments.
    Any(c_long),
    /// Allowed if the argument of this number (0 to 5) has this value. Only the low 32 bits are compared: for arguments
    /// that the kernel takes as `int`.
    Equal(c_long, u8, u32),
    /// Allowed if both arguments have their values, compared as for `Equal`.
    Both(c_long, [(u8, u32); 2]),
    /// Allowed if the argument of this number has none of these bits.
    Lacks(c_long, u8, u32),
    /// Allowed if all of these conditions hold; 100 at most.
    Where(c_long, &'static [Condition]),
}

/// A condition on one argument (0 to 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The low 32 bits have this value.
    Equal(u8, u32),
    /// The low 32 bits have none of these.
    Lacks(u8, u32),
    /// The high 32 bits have this value.
    HighEqual(u8, u32),
}

impl Rule {
    fn call(self) -> c_long {
        match self {
            Self::Any(call)
            | Self::Equal(call, ..)
            | Self::Both(call, _)
            | Self::Lacks(call, ..)
            | Self::Where(call, _) => call,
        }
    }
}

/// The result of a call that no rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The process is killed at once.
    Kill,
    /// The call fails with `ENOSYS`, as if the kernel did not have it. A C library that tries a newer call first then
    /// uses the older one.
    Absent,
}

/// `AUDIT_ARCH_*` of linux/audit.h. A process can make system calls of another architecture (32 bits, on x86-64), with
/// other numbers.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
const ARCHITECTURE: u32 = 0xc000_00f3;

// The offsets in linux/seccomp.h's `struct seccomp_data`. An argument has 64 bits; on the architectures above, the low
// half comes first.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS: u32 = 16;

/// A list of allowed calls, ready to be installed.
#[derive(Debug)]
pub struct Filter(Vec<sock_filter>);

impl Filter {
    /// Compiles a list. Several rules for one call allow it if one of them does.
    pub fn new(rules: &[Rule], refusal: Refusal) -> Self {
        let refusal = match refusal {
            Refusal::Kill => libc::SECCOMP_RET_KILL_PROCESS,
            Refusal::Absent => libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
        };
        let mut rules = rules.to_vec();
        rules.sort_by_key(|rule| rule.call());
        let groups: Vec<&[Rule]> = rules.chunk_by(|one, other| one.call() == other.call()).collect();
        let mut program = vec![
            statement(BPF_LD | BPF_W | BPF_ABS, ARCHITECTURE_AT),
            jump(BPF_JEQ, ARCHITECTURE, 1, 0),
            // A library never makes calls of another architecture by mistake.
            statement(BPF_RET | BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
            statement(BPF_LD | BPF_W | BPF_ABS, NUMBER),
        ];
        program.extend(search(&groups, refusal));
        Self(program)
    }

    /// Filters the calling thread from now on, and all that it starts. Needs `PR_SET_NO_NEW_PRIVS`.
    ///
    /// # Errors
    /// The kernel has no filters.
    pub fn install(&self) -> Result<(), ConfineError> {
        let mut program = self.0.clone();
        let program = sock_fprog { len: u16::try_from(program.len()).unwrap_or(0), filter: program.as_mut_ptr() };
        // SAFETY: the kernel copies the program, which is alive until the call returns and as long as it says.
        let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) };
        Errno::result(result).map(drop).map_err(|e| ConfineError::new("PR_SET_SECCOMP", e))
    }
}

/// Builds a binary search for the call's number. The kernel runs the filter once for every number when it is installed.
/// It runs it again at every call with compared arguments.
fn search(groups: &[&[Rule]], refusal: u32) -> Vec<sock_filter> {
    if let [_, _, _, _, ..] = groups {
        let (low, high) = groups.split_at(groups.len() / 2);
        let first = high.first().and_then(|group| group.first()).map_or(0, |rule| rule.call());
        let (low, high) = (search(low, refusal), search(high, refusal));
        // Half of a list of a hundred calls is well below the 255 instructions that a jump can skip.
        let mut program = vec![jump(BPF_JGE, first as u32, low.len() as u8, 0)];
        program.extend(low);
        program.extend(high);
        return program;
    }
    let mut program: Vec<sock_filter> = groups.iter().flat_map(|group| decide(group, refusal)).collect();
    program.push(statement(BPF_RET | BPF_K, refusal));
    program
}

/// Allows or refuses one call; any other call continues after this part.
fn decide(group: &[Rule], refusal: u32) -> Vec<sock_filter> {
    let allow = statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW);
    let Some(first) = group.first() else { return Vec::new() };
    let mut body = Vec::new();
    let load = |argument: u8| statement(BPF_LD | BPF_W | BPF_ABS, ARGUMENTS + 8 * u32::from(argument));
    let high = |argument: u8| statement(BPF_LD | BPF_W | BPF_ABS, ARGUMENTS + 8 * u32::from(argument) + 4);
    for rule in group {
        match *rule {
            Rule::Any(_) => return vec![jump(BPF_JEQ, first.call() as u32, 0, 1), allow],
            Rule::Equal(_, argument, value) => body.extend([load(argument), jump(BPF_JEQ, value, 0, 1), allow]),
            Rule::Lacks(_, argument, bits) => body.extend([load(argument), jump(BPF_JSET, bits, 1, 0), allow]),
            Rule::Both(_, [(one, first), (other, second)]) => {
                body.extend([load(one), jump(BPF_JEQ, first, 0, 3)]);
                body.extend([load(other), jump(BPF_JEQ, second, 0, 1), allow]);
            }
            Rule::Where(_, conditions) => {
                for (at, condition) in conditions.iter().enumerate() {
                    // The number of instructions to skip if it does not hold: two for each later condition, and the
                    // last one.
                    let rest = (2 * (conditions.len() - at - 1) + 1) as u8;
                    body.extend(match *condition {
                        Condition::Equal(argument, value) => [load(argument), jump(BPF_JEQ, value, 0, rest)],
                        Condition::Lacks(argument, bits) => [load(argument), jump(BPF_JSET, bits, rest, 0)],
                        Condition::HighEqual(argument, value) => [high(argument), jump(BPF_JEQ, value, 0, rest)],
                    });
                }
                body.push(allow);
            }
        }
    }
    body.push(statement(BPF_RET | BPF_K, refusal));
    let mut program = vec![jump(BPF_JEQ, first.call() as u32, 0, body.len() as u8)];
    program.extend(body);
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
    fn verdict(filter: &Filter, architecture: u32, call: c_long, arguments: [u64; 6]) -> u32 {
        let (mut at, mut word) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = filter.0[at];
            let holds = match u32::from(code) {
                code if code == BPF_LD | BPF_W | BPF_ABS => {
                    word = match k {
                        NUMBER => call as u32,
                        ARCHITECTURE_AT => architecture,
                        other => {
                            let argument = arguments[(other - ARGUMENTS) as usize / 8];
                            if (other - ARGUMENTS).is_multiple_of(8) {
                                argument as u32
                            } else {
                                (argument >> 32) as u32
                            }
                        }
                    };
                    at += 1;
                    continue;
                }
                code if code == BPF_RET | BPF_K => return k,
                code if code == BPF_JMP | BPF_JEQ | BPF_K => word == k,
                code if code == BPF_JMP | BPF_JGE | BPF_K => word >= k,
                code if code == BPF_JMP | BPF_JSET | BPF_K => word & k != 0,
                other => panic!("instruction {other:#x}"),
            };
            at += 1 + usize::from(if holds { jt } else { jf });
        }
    }

    #[test]
    fn allows_what_is_listed_and_nothing_else() {
        for length in 0..60 {
            let listed: Vec<c_long> = (0..length).map(|number| number * 7 % 61 * 3).collect();
            let rules: Vec<Rule> = listed.iter().copied().map(Rule::Any).collect();
            let filter = Filter::new(&rules, Refusal::Kill);
            for call in 0..500 {
                let allowed = listed.contains(&call);
                let expected = if allowed { libc::SECCOMP_RET_ALLOW } else { libc::SECCOMP_RET_KILL_PROCESS };
                assert_eq!(verdict(&filter, ARCHITECTURE, call, [0; 6]), expected, "call {call} of {length}");
                assert_eq!(verdict(&filter, ARCHITECTURE ^ 1, call, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS);
            }
            // The x32 calls of x86-64 have the same numbers with one more bit.
            for call in listed {
                assert_eq!(verdict(&filter, ARCHITECTURE, call | 0x4000_0000, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS);
            }
        }
    }

    #[test]
    fn arguments_decide_where_they_are_named() {
        let both = [Rule::Both(7, [(0, 16), (2, 0)]), Rule::Both(7, [(0, 16), (2, 12)])];
        let mut rules = vec![Rule::Equal(5, 0, 16), Rule::Equal(5, 0, 17), Rule::Lacks(9, 2, 4), Rule::Any(1)];
        rules.extend(both);
        rules.push(Rule::Where(
            8,
            &[Condition::Equal(2, 3), Condition::Lacks(1, 0xe000_0000), Condition::HighEqual(1, 0)],
        ));
        let filter = Filter::new(&rules, Refusal::Absent);
        let absent = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        let cases = [
            (5, [16, 0, 0, 0, 0, 0], true),
            (5, [17, 0, 0, 0, 0, 0], true),
            (5, [18, 0, 0, 0, 0, 0], false),
            (9, [0, 0, 3, 0, 0, 0], true),
            (9, [0, 0, 7, 0, 0, 0], false),
            (1, [9, 9, 9, 9, 9, 9], true),
            (2, [0; 6], false),
            (7, [16, 3, 0, 0, 0, 0], true),
            (7, [16, 3, 12, 0, 0, 0], true),
            (7, [16, 3, 15, 0, 0, 0], false),
            (7, [2, 3, 0, 0, 0, 0], false),
            (8, [9, 0x1fff_f000, 3, 0, 0, 0], true),
            (8, [9, 0x2000_0000, 3, 0, 0, 0], false),
            (8, [9, 0x1_0000_1000, 3, 0, 0, 0], false),
            (8, [9, 0x1000, 7, 0, 0, 0], false),
            (8, [9, 0x1000, 0, 0, 0, 0], false),
            (8, [9, 0x1000, 0x0100_0003, 0, 0, 0], false),
        ];
        for (call, arguments, allowed) in cases {
            let expected = if allowed { libc::SECCOMP_RET_ALLOW } else { absent };
            assert_eq!(verdict(&filter, ARCHITECTURE, call, arguments), expected, "{call} {arguments:?}");
        }
    }
}
