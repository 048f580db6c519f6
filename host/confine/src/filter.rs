//! A filter of system calls (seccomp(2)): an allow-list, compiled for the kernel's classic BPF machine.
#![allow(unsafe_code, reason = "installs the filter by prctl(2)")]

use crate::ConfineError;
use libc::{
    BPF_ABS, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, c_long, sock_filter,
    sock_fprog,
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
    /// Allowed if all of these conditions hold.
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
        rules.sort_unstable_by_key(|rule| rule.call());
        let mut program = Builder { reversed: Vec::with_capacity(256), refusal, allows: None, refuses: None };
        let search = program.search(&spans(&rules));
        // Without rules there is no search.
        program.place(search);
        program.push(statement(BPF_LD | BPF_W | BPF_ABS, NUMBER));
        // A library never makes calls of another architecture by mistake.
        program.push(statement(BPF_RET | BPF_K, libc::SECCOMP_RET_KILL_PROCESS));
        program.push(jump(BPF_JEQ, ARCHITECTURE, 1, 0));
        program.push(statement(BPF_LD | BPF_W | BPF_ABS, ARCHITECTURE_AT));
        Self(program.finish())
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

/// The number of system calls that the kernel has, and a few more. It only decides on the shape of the search.
const NUMBERS: u32 = 480;

/// Numbers that follow each other and are decided alike: by the rules of one call, or always in the same way.
struct Span<'a> {
    first: u32,
    last: u32,
    /// None: all are refused.
    rules: &'a [Rule],
}

/// Returns all numbers as spans, from sorted rules. Calls that are always allowed share one. The kernel checks and
/// translates each instruction, so fewer spans are better.
fn spans(rules: &[Rule]) -> Vec<Span<'_>> {
    let is_free = |rules: &[Rule]| rules.iter().any(|rule| matches!(rule, Rule::Any(_)));
    let mut spans: Vec<Span<'_>> = Vec::with_capacity(128);
    let mut next = 0;
    for rules in rules.chunk_by(|one, other| one.call() == other.call()) {
        let Some(call) = rules.first().map(|rule| rule.call() as u32) else { continue };
        match spans.last_mut() {
            Some(before) if next == call && is_free(before.rules) && is_free(rules) => before.last = call,
            _ => {
                if next < call {
                    spans.push(Span { first: next, last: call - 1, rules: &[] });
                }
                spans.push(Span { first: call, last: call, rules });
            }
        }
        next = call + 1;
    }
    spans.push(Span { first: next, last: u32::MAX, rules: &[] });
    spans
}

/// Builds a program from its end, so that a jump knows how far it goes. All jumps share two verdicts: the kernel takes
/// less time to compile a short program.
///
/// A place is the length of the program that begins there.
struct Builder {
    /// The last instruction comes first.
    reversed: Vec<sock_filter>,
    /// The verdict on calls that no rule allows.
    refusal: u32,
    /// The nearest place of this verdict.
    allows: Option<usize>,
    /// The nearest place of this verdict.
    refuses: Option<usize>,
}

/// The aim of a jump.
#[derive(Clone, Copy)]
enum Aim {
    Allow,
    Refuse,
    At(usize),
}

/// The instructions that a conditional jump may skip. It has 8 bits, and the other aim may need an instruction in between.
const NEAR: usize = 250;

impl Builder {
    fn push(&mut self, instruction: sock_filter) {
        self.reversed.push(instruction);
    }

    fn finish(mut self) -> Vec<sock_filter> {
        self.reversed.reverse();
        self.reversed
    }

    fn here(&self) -> Aim {
        Aim::At(self.reversed.len())
    }

    /// Returns a near place that leads to this aim. If there is none yet, it makes one.
    fn place(&mut self, aim: Aim) -> usize {
        let known = match aim {
            Aim::Allow => self.allows,
            Aim::Refuse => self.refuses,
            Aim::At(place) => Some(place),
        };
        let end = self.reversed.len();
        if let Some(place) = known.filter(|place| end - place <= NEAR) {
            return place;
        }
        match aim {
            Aim::Allow => {
                self.push(statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW));
                self.allows = Some(end + 1);
            }
            Aim::Refuse => {
                self.push(statement(BPF_RET | BPF_K, self.refusal));
                self.refuses = Some(end + 1);
            }
            // This jump has 32 bits.
            Aim::At(place) => self.push(statement(BPF_JMP | BPF_JA, (end - place) as u32)),
        }
        end + 1
    }

    fn branch(&mut self, comparison: u32, k: u32, yes: Aim, no: Aim) {
        let (yes, no) = (self.place(yes), self.place(no));
        let end = self.reversed.len();
        self.push(jump(comparison, k, (end - yes) as u8, (end - no) as u8));
    }

    /// Compares a word of the call's data.
    fn compare(&mut self, at: u32, comparison: u32, k: u32, yes: Aim, no: Aim) {
        self.branch(comparison, k, yes, no);
        self.push(statement(BPF_LD | BPF_W | BPF_ABS, at));
    }

    /// A search for the call's number. The kernel runs the filter once for every number that it has when it is installed, and
    /// takes some 20 ns for each instruction. So each comparison halves the numbers, and not the calls: most numbers are
    /// refused, in a few wide spans. The kernel runs the filter again at every call with compared arguments.
    fn search(&mut self, spans: &[Span<'_>]) -> Aim {
        let is_refused = |span: &Span<'_>| span.rules.is_empty();
        match spans {
            [] => return Aim::Refuse,
            [one] => return self.decide(one.rules),
            // One comparison tells a single number from those around it.
            [before, one] | [before, one, _]
                if one.first == one.last && is_refused(before) && spans.get(2).is_none_or(is_refused) =>
            {
                let verdict = self.decide(one.rules);
                self.branch(BPF_JEQ, one.first, verdict, Aim::Refuse);
            }
            [first, .., last] => {
                let twice_the_middle = first.first.saturating_add(last.last.min(NUMBERS));
                let middle = border_near(spans, twice_the_middle);
                let (low, high) = spans.split_at(middle);
                let border = high.first().map_or(0, |span| span.first);
                let high = self.search(high);
                let low = self.search(low);
                self.branch(BPF_JGE, border, high, low);
            }
        }
        self.here()
    }

    /// Allows or refuses one call.
    fn decide(&mut self, group: &[Rule]) -> Aim {
        if group.iter().any(|rule| matches!(rule, Rule::Any(_))) {
            return Aim::Allow;
        }
        let mut next = Aim::Refuse;
        for rule in group.iter().rev() {
            let argument = |number: u8| ARGUMENTS + 8 * u32::from(number);
            match *rule {
                Rule::Any(_) => {}
                Rule::Equal(_, number, value) => self.compare(argument(number), BPF_JEQ, value, Aim::Allow, next),
                Rule::Lacks(_, number, bits) => self.compare(argument(number), BPF_JSET, bits, next, Aim::Allow),
                Rule::Both(_, [(one, first), (other, second)]) => {
                    self.compare(argument(other), BPF_JEQ, second, Aim::Allow, next);
                    let both = self.here();
                    self.compare(argument(one), BPF_JEQ, first, both, next);
                }
                Rule::Where(_, conditions) => {
                    let mut holds = Aim::Allow;
                    for condition in conditions.iter().rev() {
                        match *condition {
                            Condition::Equal(number, value) => {
                                self.compare(argument(number), BPF_JEQ, value, holds, next);
                            }
                            Condition::Lacks(number, bits) => {
                                self.compare(argument(number), BPF_JSET, bits, next, holds);
                            }
                            Condition::HighEqual(number, value) => {
                                self.compare(argument(number) + 4, BPF_JEQ, value, holds, next);
                            }
                        }
                        holds = self.here();
                    }
                    next = holds;
                    continue;
                }
            }
            next = self.here();
        }
        next
    }
}

/// Returns the border whose number is nearest to half of `twice`, and the lower one of two. A single number stays with those
/// before it.
fn border_near(spans: &[Span<'_>], twice: u32) -> usize {
    let is_border = |at: &usize| match (spans.get(at.wrapping_sub(1)), spans.get(*at)) {
        (Some(before), Some(one)) => one.first != one.last || !before.rules.is_empty(),
        _ => false,
    };
    let distance = |at: &usize| spans.get(*at).map(|span| span.first.saturating_mul(2).abs_diff(twice));
    let half = spans.partition_point(|span| span.first.saturating_mul(2) < twice);
    let (below, above) = ((1..half).rev().find(is_border), (half.max(1)..spans.len()).find(is_border));
    below.into_iter().chain(above).min_by_key(distance).unwrap_or(1)
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

    #[test]
    fn the_nearest_border_is_that_of_a_look_at_all() {
        let rules: Vec<Rule> = [0, 1, 5, 9, 10, 11, 40, 90, 91, 200, 201, 257, 300, 302, 435]
            .map(|call| if call % 2 == 0 { Rule::Any(call) } else { Rule::Equal(call, 0, 1) })
            .to_vec();
        for count in 0..=rules.len() {
            let spans = spans(&rules[..count]);
            for twice in 0..1000 {
                let border = |at: &usize| spans[*at].first != spans[*at].last || !spans[at - 1].rules.is_empty();
                let nearest = (1..spans.len()).filter(border).min_by_key(|at| (spans[*at].first * 2).abs_diff(twice));
                assert_eq!(border_near(&spans, twice), nearest.unwrap_or(1), "{count} rules, {twice}");
            }
        }
    }

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
                code if code == BPF_JMP | BPF_JA => {
                    at += 1 + k as usize;
                    continue;
                }
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

    /// The search is made for the numbers that a kernel has. It must be right for all others too.
    #[test]
    fn calls_far_beyond_the_kernels_are_decided_too() {
        let listed = [0, 1, 231, c_long::from(NUMBERS), 5_000, 0x3fff_ffff, 0x7fff_ffff];
        let rules = [listed.map(Rule::Any).to_vec(), vec![Rule::Equal(5_001, 0, 7)]].concat();
        let filter = Filter::new(&rules, Refusal::Kill);
        for call in listed.iter().flat_map(|call| [call - 1, *call, call + 1]).chain([0xffff_ffff]) {
            let expected =
                if listed.contains(&call) { libc::SECCOMP_RET_ALLOW } else { libc::SECCOMP_RET_KILL_PROCESS };
            assert_eq!(verdict(&filter, ARCHITECTURE, call, [0; 6]), expected, "{call:#x}");
        }
        assert_eq!(verdict(&filter, ARCHITECTURE, 5_001, [7, 0, 0, 0, 0, 0]), libc::SECCOMP_RET_ALLOW);
    }

    /// Ranges of each length, beside calls that are decided by an argument.
    #[test]
    fn ranges_are_decided_call_by_call() {
        for pattern in 0u32..1 << 12 {
            let rules: Vec<Rule> = (0..12)
                .filter(|call| pattern & 1 << call != 0)
                .map(|call| if call == 5 { Rule::Equal(call, 0, 1) } else { Rule::Any(call) })
                .collect();
            let filter = Filter::new(&rules, Refusal::Kill);
            for call in 0..13 {
                for argument in [0, 1] {
                    let allowed = pattern & 1 << call != 0 && (call != 5 || argument == 1);
                    let expected = if allowed { libc::SECCOMP_RET_ALLOW } else { libc::SECCOMP_RET_KILL_PROCESS };
                    let verdict = verdict(&filter, ARCHITECTURE, call, [argument, 0, 0, 0, 0, 0]);
                    assert_eq!(verdict, expected, "call {call} of {pattern:#b}");
                }
            }
        }
    }

    /// Far more than a conditional jump can skip.
    #[test]
    fn a_long_list_is_decided_as_a_short_one() {
        let rules: Vec<Rule> =
            (0..900).map(|call| if call % 3 == 0 { Rule::Any(call) } else { Rule::Equal(call, 1, 7) }).collect();
        let rules = [rules, (0..900).map(|value| Rule::Equal(1000, 2, value)).collect()].concat();
        let filter = Filter::new(&rules, Refusal::Kill);
        for call in 0..1100 {
            for second in [7, 8] {
                let third = if call % 2 == 0 { 899 } else { 900 };
                let allowed = match call {
                    0..900 => call % 3 == 0 || second == 7,
                    1000 => third < 900,
                    _ => false,
                };
                let expected = if allowed { libc::SECCOMP_RET_ALLOW } else { libc::SECCOMP_RET_KILL_PROCESS };
                assert_eq!(verdict(&filter, ARCHITECTURE, call, [0, second, third, 0, 0, 0]), expected, "call {call}");
            }
        }
        // The first values of the long list are as far away as possible.
        for value in 0..900 {
            assert_eq!(verdict(&filter, ARCHITECTURE, 1000, [0, 0, value, 0, 0, 0]), libc::SECCOMP_RET_ALLOW);
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
