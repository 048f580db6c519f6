//! The compiler of filters: from rules to the kernel's classic BPF machine (linux/filter.h). It runs at build time
//! only.
#![allow(clippy::indexing_slicing, reason = "it runs at build time: a fault fails the build")]

use crate::filter::{Argument, CallRule, DefaultAction};
use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO,
    SECCOMP_RET_KILL_PROCESS, c_long, sock_filter,
};

/// The most instructions of a program. A jump has 8 bits: in a program of at most 255 instructions a jump reaches every
/// later instruction.
pub const LONGEST: usize = 160;

/// A number above all numbers of system calls. Kernels have some 470.
const NUMBERS: usize = 480;

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

// All programs end with the two verdicts. A place is the number of instructions from an instruction to the end.
const ALLOW: usize = 1;
const REFUSE: usize = 2;

/// The kind of decision on a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// No list and no rule allows the call.
    Refused,
    /// The call is allowed with any arguments.
    Free,
    /// The call's rules decide.
    Ruled,
}

/// Compiles lists of calls without conditions, and lists of rules. Returns the instructions; for each instruction, the
/// number of the value that is put in later; and the index of the first instruction.
pub const fn compile(
    calls: &[&[c_long]],
    rules: &[&[CallRule]],
    refusal: DefaultAction,
    values: usize,
) -> ([sock_filter; LONGEST], [Option<u8>; LONGEST], usize) {
    let refusal = match refusal {
        DefaultAction::Kill => SECCOMP_RET_KILL_PROCESS,
        DefaultAction::Absent => SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
    };
    let kill = statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    let mut builder = Builder {
        kinds: kinds(calls, rules),
        rules,
        values,
        instructions: [kill; LONGEST],
        given: [None; LONGEST],
        length: 0,
    };
    builder.push(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    builder.push(statement(BPF_RET | BPF_K, refusal));
    let search = builder.search(0, NUMBERS);
    assert!(search == builder.length, "the search must come next");
    builder.push(statement(BPF_LD | BPF_W | BPF_ABS, NUMBER));
    // A library never makes calls of another architecture by mistake.
    builder.push(kill);
    builder.push(jump(BPF_JEQ, ARCHITECTURE, 1, 0));
    builder.push(statement(BPF_LD | BPF_W | BPF_ABS, ARCHITECTURE_AT));
    (builder.instructions, builder.given, LONGEST - builder.length)
}

/// Returns the kind of decision for each call. The last number also stands for all higher numbers, which are refused.
const fn kinds(calls: &[&[c_long]], rules: &[&[CallRule]]) -> [Kind; NUMBERS] {
    let mut kinds = [Kind::Refused; NUMBERS];
    let mut list = 0;
    while list < rules.len() {
        let mut at = 0;
        while at < rules[list].len() {
            let CallRule(call, conditions) = rules[list][at];
            assert!(!conditions.is_empty(), "a rule has conditions");
            kinds[call as usize] = Kind::Ruled;
            at += 1;
        }
        list += 1;
    }
    list = 0;
    while list < calls.len() {
        let mut at = 0;
        while at < calls[list].len() {
            kinds[calls[list][at] as usize] = Kind::Free;
            at += 1;
        }
        list += 1;
    }
    assert!(matches!(kinds[NUMBERS - 1], Kind::Refused), "no call has this number");
    kinds
}

/// Builds a program from its end, so that the distance of each jump is known. All jumps share two verdicts, so the
/// program is short and the kernel compiles it faster.
struct Builder<'a> {
    kinds: [Kind; NUMBERS],
    rules: &'a [&'a [CallRule]],
    /// The number of values that are put in later.
    values: usize,
    /// The array is filled from its end.
    instructions: [sock_filter; LONGEST],
    /// The numbers of the values that are put in later.
    given: [Option<u8>; LONGEST],
    length: usize,
}

impl Builder<'_> {
    const fn push(&mut self, instruction: sock_filter) {
        assert!(self.length < LONGEST, "the list is too long for one filter");
        self.length += 1;
        self.instructions[LONGEST - self.length] = instruction;
    }

    const fn branch(&mut self, comparison: u32, k: u32, yes: usize, no: usize) {
        self.push(jump(comparison, k, (self.length - yes) as u8, (self.length - no) as u8));
    }

    /// Searches for the call's number from `first` to below `end`, and returns the place of the search.
    ///
    /// When the filter is installed, the kernel runs it once for every number, and takes some 20 ns for each
    /// instruction. So each comparison halves the range of numbers, and not the list of calls: most numbers are
    /// refused, in a few wide ranges. The kernel runs the filter again at every call with compared arguments.
    const fn search(&mut self, first: usize, end: usize) -> usize {
        let (mut border, mut nearest) = (first, usize::MAX);
        let (mut allowed, mut one) = (0, first);
        let mut at = first;
        while at < end {
            if !matches!(self.kinds[at], Kind::Refused) {
                (allowed, one) = (allowed + 1, at);
            }
            let distance = (2 * at).abs_diff(first + end);
            if at > first && distance < nearest && self.is_border(at) {
                (border, nearest) = (at, distance);
            }
            at += 1;
        }
        if allowed == 1 && end - first > 1 {
            // One comparison separates a single number from its neighbours.
            let verdict = self.decide(one);
            self.branch(BPF_JEQ, one as u32, verdict, REFUSE);
        } else if border == first {
            return self.decide(first);
        } else {
            let high = self.search(border, end);
            let low = self.search(first, border);
            self.branch(BPF_JGE, border as u32, high, low);
        }
        self.length
    }

    /// True if the decision on this number differs from the decision on the previous number. A single number stays
    /// together with the refused numbers before it.
    const fn is_border(&self, at: usize) -> bool {
        match (self.kinds[at - 1], self.kinds[at]) {
            (Kind::Refused, Kind::Free) => matches!(self.kinds[at + 1], Kind::Free),
            (Kind::Refused, _) | (Kind::Free, Kind::Free) => false,
            _ => true,
        }
    }

    /// Allows or refuses one call, and returns the place of this decision.
    const fn decide(&mut self, number: usize) -> usize {
        match self.kinds[number] {
            Kind::Refused => return REFUSE,
            Kind::Free => return ALLOW,
            Kind::Ruled => {}
        }
        let mut next = REFUSE;
        let mut list = 0;
        while list < self.rules.len() {
            let mut at = 0;
            while at < self.rules[list].len() {
                let CallRule(call, conditions) = self.rules[list][at];
                if call as usize == number {
                    next = self.rule(conditions, next);
                }
                at += 1;
            }
            list += 1;
        }
        next
    }

    /// Allows a call if the conditions are true, or goes to `next`. Returns the place of the first condition.
    const fn rule(&mut self, conditions: &[Argument], next: usize) -> usize {
        let mut holds = ALLOW;
        let mut at = 0;
        while at < conditions.len() {
            holds = self.check(conditions[at], holds, next);
            at += 1;
        }
        holds
    }

    /// Goes to `holds` or to `fails`, and returns the place of the comparison.
    const fn check(&mut self, condition: Argument, holds: usize, fails: usize) -> usize {
        let (argument, half) = match condition {
            Argument::OneOf(argument, values) => {
                assert!(!values.is_empty(), "a rule has values");
                let (mut next, mut at) = (fails, 0);
                while at < values.len() {
                    self.branch(BPF_JEQ, values[at], holds, next);
                    next = self.length;
                    at += 1;
                }
                (argument, 0)
            }
            Argument::Given(argument, number) => {
                assert!((number as usize) < self.values, "the filter has no value of this number");
                self.branch(BPF_JEQ, 0, holds, fails);
                self.given[LONGEST - self.length] = Some(number);
                (argument, 0)
            }
            Argument::Lacks(argument, bits) => {
                self.branch(BPF_JSET, bits, fails, holds);
                (argument, 0)
            }
            Argument::High(argument, value) => {
                self.branch(BPF_JEQ, value, holds, fails);
                (argument, 4)
            }
        };
        assert!(argument < 6, "a system call has six arguments");
        self.push(statement(BPF_LD | BPF_W | BPF_ABS, ARGUMENTS + 8 * argument as u32 + half));
        self.length
    }
}

const fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Skips `jt` instructions if the comparison is true, else `jf` instructions.
const fn jump(comparison: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | comparison | BPF_K) as u16, jt, jf, k }
}

#[cfg(test)]
#[path = "../tests/machine/mod.rs"]
mod machine;

#[cfg(test)]
mod tests {
    use super::machine;
    use super::*;
    use crate::filter::Filter;

    fn program(calls: &[c_long], rules: &[CallRule], refusal: DefaultAction) -> Vec<sock_filter> {
        let filter: Filter = Filter::new(&[calls], &[rules], refusal);
        filter.ready().instructions().to_vec()
    }

    fn verdict(program: &[sock_filter], call: c_long, arguments: [u64; 6]) -> u32 {
        machine::verdict(program, machine::ARCHITECTURE, call, arguments)
    }

    fn allow_or_kill(is_allowed: bool) -> u32 {
        if is_allowed { SECCOMP_RET_ALLOW } else { SECCOMP_RET_KILL_PROCESS }
    }

    #[test]
    fn allows_what_is_listed_and_nothing_else() {
        for length in 0..60 {
            let listed: Vec<c_long> = (0..length).map(|number| number * 7 % 61 * 3).collect();
            let program = program(&listed, &[], DefaultAction::Kill);
            for call in 0..500 {
                let expected = allow_or_kill(listed.contains(&call));
                assert_eq!(verdict(&program, call, [0; 6]), expected, "call {call} of {length}");
                assert_eq!(machine::verdict(&program, ARCHITECTURE ^ 1, call, [0; 6]), SECCOMP_RET_KILL_PROCESS);
            }
            // The x32 calls of x86-64 have the same numbers with one more bit.
            for call in listed {
                assert_eq!(verdict(&program, call | 0x4000_0000, [0; 6]), SECCOMP_RET_KILL_PROCESS);
            }
        }
    }

    #[test]
    fn calls_beyond_the_kernels_are_refused() {
        let program = program(&[0, 1, 231, 478], &[], DefaultAction::Kill);
        for call in [477, 478, 479, 480, 481, 5_000, 0x3fff_ffff, 0x7fff_ffff, 0xffff_ffff] {
            assert_eq!(verdict(&program, call, [0; 6]), allow_or_kill(call == 478), "{call:#x}");
        }
    }

    #[test]
    #[should_panic(expected = "no call has this number")]
    fn a_list_with_a_number_that_no_call_has_is_no_filter() {
        program(&[479], &[], DefaultAction::Kill);
    }

    /// Ranges of each length, next to calls that an argument decides.
    #[test]
    fn ranges_are_decided_call_by_call() {
        for pattern in 0u32..1 << 12 {
            let listed = |call: &c_long| pattern & 1 << call != 0;
            let calls: Vec<c_long> = (0..12).filter(|call| *call != 5 && listed(call)).collect();
            let one = [CallRule(5, &[Argument::OneOf(0, &[1])])];
            let program = program(&calls, if listed(&5) { &one } else { &[] }, DefaultAction::Kill);
            for call in 0..13 {
                for argument in [0, 1] {
                    let allowed = listed(&call) && (call != 5 || argument == 1);
                    let verdict = verdict(&program, call, [argument, 0, 0, 0, 0, 0]);
                    assert_eq!(verdict, allow_or_kill(allowed), "call {call} of {pattern:#b}");
                }
            }
        }
    }

    /// The longest possible list, with the farthest jumps.
    #[test]
    fn a_long_list_is_decided_as_a_short_one() {
        let calls: Vec<c_long> = (0..33).map(|call| call * 3).collect();
        let rules: Vec<CallRule> = (0..20).map(|call| CallRule(call * 9 + 1, &[Argument::OneOf(1, &[7, 9])])).collect();
        let program = program(&calls, &rules, DefaultAction::Kill);
        assert!(program.len() > LONGEST - 10, "{}", program.len());
        for call in 0..500 {
            for second in 6..11 {
                let allowed = call < 99 && call % 3 == 0 || call < 180 && call % 9 == 1 && (second == 7 || second == 9);
                let verdict = verdict(&program, call, [0, second, 0, 0, 0, 0]);
                assert_eq!(verdict, allow_or_kill(allowed), "call {call}, {second}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "too long")]
    fn a_list_that_is_too_long_is_no_filter() {
        let rules: Vec<CallRule> = (0..100).map(|call| CallRule(call, &[Argument::OneOf(1, &[7, 9])])).collect();
        program(&[], &rules, DefaultAction::Kill);
    }

    #[test]
    fn arguments_decide_where_they_are_named() {
        let rules = [
            CallRule(5, &[Argument::OneOf(0, &[16, 17])]),
            CallRule(5, &[Argument::OneOf(0, &[19])]),
            CallRule(9, &[Argument::Lacks(2, 4)]),
            CallRule(7, &[Argument::OneOf(0, &[16]), Argument::OneOf(2, &[0, 12])]),
            CallRule(8, &[Argument::OneOf(2, &[3]), Argument::Lacks(1, 0xe000_0000), Argument::High(1, 0)]),
        ];
        let program = program(&[1], &rules, DefaultAction::Absent);
        let absent = SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        let cases = [
            (5, [16, 0, 0, 0, 0, 0], true),
            (5, [17, 0, 0, 0, 0, 0], true),
            (5, [18, 0, 0, 0, 0, 0], false),
            (5, [19, 0, 0, 0, 0, 0], true),
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
            let expected = if allowed { SECCOMP_RET_ALLOW } else { absent };
            assert_eq!(verdict(&program, call, arguments), expected, "{call} {arguments:?}");
        }
    }

    /// Each value replaces its number, and the rest of the program stays the same.
    #[test]
    fn values_are_put_in_where_they_are_named() {
        static FILTER: Filter<2> = Filter::new(
            &[&[1]],
            &[&[
                CallRule(5, &[Argument::Given(0, 0)]),
                CallRule(5, &[Argument::Given(0, 1)]),
                CallRule(6, &[Argument::OneOf(0, &[0]), Argument::Given(1, 1)]),
            ]],
            DefaultAction::Absent,
        );
        for [one, other] in [[7, 9], [9, 7], [0, 1 << 31], [4, 4]] {
            let program = FILTER.with([one, other]);
            for value in [0, 4, 7, 9, 1 << 31] {
                let allows = |call, arguments| machine::allows(program.instructions(), call, arguments);
                let word = u64::from(value);
                assert_eq!(allows(5, [word, 0, 0, 0, 0, 0]), value == one || value == other);
                assert_eq!(allows(6, [0, word, 0, 0, 0, 0]), value == other);
                assert!(!allows(6, [1, word, 0, 0, 0, 0]) && allows(1, [word; 6]));
            }
        }
    }

    #[test]
    #[should_panic(expected = "no value of this number")]
    fn a_value_that_nobody_gives_is_no_filter() {
        let _: Filter<1> = Filter::new(&[], &[&[CallRule(5, &[Argument::Given(0, 1)])]], DefaultAction::Absent);
    }
}
