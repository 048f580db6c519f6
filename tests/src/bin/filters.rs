//! The filters of system calls in executables of any architecture, with the names of calls in the kernel's headers. The
//! executables are read, and not started. So one machine can check the filters of another architecture.
//!
//! `postern-filters PROGRAM` prints the calls that each filter of the program allows. `(…)` marks calls that are allowed
//! with some arguments only.
//!
//! `postern-filters X86_64 AARCH64` compares the programs of both architectures: each filter of one program must be in
//! the other program, with the same calls. Calls that aarch64 lacks are left out.

#![allow(clippy::print_stdout, reason = "people read it")]

use anyhow::{Context, Result, bail, ensure};
use nix::libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
    SECCOMP_RET_KILL_PROCESS,
};
use object::read::elf::ElfFile64;
use object::{Architecture, Object};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const LOAD: u32 = BPF_LD | BPF_W | BPF_ABS;
const RETURN: u32 = BPF_RET | BPF_K;
/// The place of the call's number in linux/seccomp.h's `struct seccomp_data`, and the place of the architecture.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// A number above all numbers of system calls.
const NUMBERS: u32 = 600;

/// Calls that aarch64 lacks, and that are the only such call of their filter, with the calls in their place.
const SUCCESSORS: [(&str, &str); 1] = [("rmdir", "unlinkat")];

/// An instruction of linux/filter.h's `struct sock_filter`.
#[derive(Clone, Copy)]
struct Instruction {
    code: u32,
    jt: u8,
    jf: u8,
    k: u32,
}

/// The calls that a filter allows, by name. `true` means: with any arguments.
type Calls = BTreeMap<String, bool>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(Path::new).collect::<Vec<_>>().as_slice() {
        [program] => {
            for filter in filters(program, &names(architecture(program)?)?)? {
                let words =
                    filter.iter().map(|(name, is_free)| if *is_free { name.clone() } else { format!("{name}(…)") });
                println!("{}\n", words.collect::<Vec<_>>().join(" "));
            }
            Ok(())
        }
        [old, new] => compare(old, new),
        _ => bail!("usage: postern-filters PROGRAM, or postern-filters X86_64 AARCH64"),
    }
}

fn compare(old: &Path, new: &Path) -> Result<()> {
    ensure!(architecture(old)? == Architecture::X86_64, "{} is not for x86_64", old.display());
    ensure!(architecture(new)? == Architecture::Aarch64, "{} is not for aarch64", new.display());
    let (old_names, new_names) = (names(Architecture::X86_64)?, names(Architecture::Aarch64)?);
    let known: BTreeSet<&String> = new_names.values().collect();
    let mut wanted = filters(old, &old_names)?;
    for filter in &mut wanted {
        for (call, successor) in SUCCESSORS {
            if filter.contains_key(call) {
                filter.insert(successor.to_owned(), true);
            }
        }
        filter.retain(|name, _| known.contains(name));
    }
    let mut found = filters(new, &new_names)?;
    ensure!(!found.is_empty(), "{} has no filter", new.display());
    wanted.sort();
    found.sort();
    let only =
        |some: &[Calls], others: &[Calls]| some.iter().filter(|one| !others.contains(one)).cloned().collect::<Vec<_>>();
    ensure!(
        wanted == found,
        "the filters differ\nonly in {}: {:#?}\nonly in {}: {:#?}",
        old.display(),
        only(&wanted, &found),
        new.display(),
        only(&found, &wanted)
    );
    println!("{}: the {} filters are those of {}", new.display(), found.len(), old.display());
    Ok(())
}

fn architecture(program: &Path) -> Result<Architecture> {
    let bytes = std::fs::read(program).with_context(|| program.display().to_string())?;
    let file: ElfFile64<'_> = ElfFile64::parse(bytes.as_slice()).with_context(|| program.display().to_string())?;
    Ok(file.architecture())
}

/// Returns the names of the system calls of an architecture by number, as the kernel's headers have them.
fn names(architecture: Architecture) -> Result<BTreeMap<u32, String>> {
    let places: &[&str] = match architecture {
        Architecture::X86_64 => &["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"],
        // aarch64 has the numbers of all newer architectures.
        Architecture::Aarch64 => &["/usr/include/asm-generic/unistd.h"],
        other => bail!("no node has the architecture {other:?}"),
    };
    let text = places.iter().find_map(|place| std::fs::read_to_string(place).ok());
    let text =
        text.with_context(|| format!("there is no {}: apt-get install linux-libc-dev", places.join(" and no ")))?;
    let (mut names, mut shared) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some("#define"), Some(name), Some(value)) = (words.next(), words.next(), words.next()) else { continue };
        // A call with another name on architectures of 32 bits has its number in a third name.
        match (name.strip_prefix("__NR_"), name.strip_prefix("__NR3264_"), value.parse::<u32>()) {
            (Some(name), _, Ok(number)) => {
                names.entry(number).or_insert_with(|| name.to_owned());
            }
            (_, Some(name), Ok(number)) => {
                shared.insert(name.to_owned(), number);
            }
            // The names for 64 bits come first.
            (Some(name), _, Err(_)) => {
                if let Some(number) = value.strip_prefix("__NR3264_").and_then(|of| shared.remove(of)) {
                    names.insert(number, name.to_owned());
                }
            }
            _ => {}
        }
    }
    ensure!(names.len() > 300, "{} lists only {} system calls", places.join(", "), names.len());
    Ok(names)
}

/// Returns the calls that each filter in an executable allows.
fn filters(program: &Path, names: &BTreeMap<u32, String>) -> Result<Vec<Calls>> {
    let bytes = std::fs::read(program).with_context(|| program.display().to_string())?;
    // AUDIT_ARCH_* of linux/audit.h: the ELF header's number of the architecture, with 64 bits, little-endian.
    let machine =
        bytes.get(18..20).and_then(|two| two.try_into().ok()).map(u16::from_le_bytes).context("no ELF header")?;
    let own = 0xc000_0000 | u32::from(machine);
    let mut found = Vec::new();
    for at in (0..bytes.len()).step_by(4) {
        let Some(bytes) = bytes.get(at..) else { break };
        if let Some(instructions) = filter(bytes) {
            ensure!(
                instructions.get(1).is_some_and(|is| is.k == own),
                "a filter of {} is for another architecture",
                program.display()
            );
            found.push(allowed(&instructions, names).with_context(|| program.display().to_string())?);
        }
    }
    ensure!(!found.is_empty(), "{} has no filter", program.display());
    Ok(found)
}

/// Returns the instructions of a filter that begins here. Each filter of `postern-confine` begins with four known
/// instructions, and ends with the two verdicts.
fn filter(bytes: &[u8]) -> Option<Vec<Instruction>> {
    let mut instructions = bytes.chunks_exact(8).map(instruction);
    let start: Vec<Instruction> = instructions.by_ref().take(4).collect::<Option<_>>()?;
    let [architecture, is_own, other, number] = start.as_slice() else { return None };
    let begins = (architecture.code, architecture.k) == (LOAD, ARCHITECTURE)
        && is_own.code == BPF_JMP | BPF_JEQ | BPF_K
        && (is_own.jt, is_own.jf) == (1, 0)
        && (other.code, other.k) == (RETURN, SECCOMP_RET_KILL_PROCESS)
        && (number.code, number.k) == (LOAD, NUMBER);
    if !begins {
        return None;
    }
    let mut all = start;
    while let Some(next) = instructions.next().flatten() {
        all.push(next);
        if next.code == RETURN && all.iter().rev().nth(1).is_some_and(|last| last.code == RETURN) {
            return Some(all);
        }
    }
    None
}

fn instruction(bytes: &[u8]) -> Option<Instruction> {
    let [c0, c1, jt, jf, k @ ..] = bytes else { return None };
    Some(Instruction {
        code: u16::from_le_bytes([*c0, *c1]).into(),
        jt: *jt,
        jf: *jf,
        k: u32::from_le_bytes(k.try_into().ok()?),
    })
}

fn allowed(filter: &[Instruction], names: &BTreeMap<u32, String>) -> Result<Calls> {
    let mut calls = Calls::new();
    for call in 0..NUMBERS {
        let mut verdicts = BTreeSet::new();
        follow(filter, 3, call, true, &mut verdicts)?;
        if verdicts.contains(&SECCOMP_RET_ALLOW) {
            let name =
                names.get(&call).with_context(|| format!("a filter allows {call}, and no call has this number"))?;
            calls.insert(name.clone(), verdicts.len() == 1);
        }
    }
    Ok(calls)
}

/// Follows all ways from an instruction, for all arguments of a call. `is_number` is true while the loaded word is the
/// call's number, and not an argument.
fn follow(filter: &[Instruction], at: usize, call: u32, is_number: bool, verdicts: &mut BTreeSet<u32>) -> Result<()> {
    let Instruction { code, jt, jf, k } = *filter.get(at).context("a jump leads out of the filter")?;
    if code == RETURN {
        verdicts.insert(k);
        return Ok(());
    }
    if code == LOAD {
        return follow(filter, at + 1, call, k == NUMBER, verdicts);
    }
    let holds = match code {
        _ if !is_number => None,
        code if code == BPF_JMP | BPF_JEQ | BPF_K => Some(call == k),
        code if code == BPF_JMP | BPF_JGE | BPF_K => Some(call >= k),
        code if code == BPF_JMP | BPF_JSET | BPF_K => Some(call & k != 0),
        other => bail!("no filter has the instruction {other:#x}"),
    };
    for (way, is_open) in [(jt, holds != Some(false)), (jf, holds != Some(true))] {
        if is_open {
            follow(filter, at + 1 + usize::from(way), call, is_number, verdicts)?;
        }
    }
    Ok(())
}
