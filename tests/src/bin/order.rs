//! The order in which runs first use the functions of the host executable. The linker places functions in that order,
//! so that a run touches few pages of the executable.
//!
//! `postern-order run DIRECTORY FILE` calls each plugin in DIRECTORY with its verbs, in private namespaces, and writes
//! the order to FILE, one symbol per line. DIRECTORY/postern must have its symbols. `tests/order` makes the directory.
//!
//! `postern-order trace PROGRAM FILE COMMAND...` runs one command, and appends a line to FILE for each function that a
//! process of PROGRAM uses for the first time. Each function has a breakpoint, which is removed when it is hit. A
//! forked process has all breakpoints again.

#![allow(clippy::print_stderr, reason = "people read it")]

use anyhow::{Context, Result, bail, ensure};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};
use postern_tests::shipped;
use postern_tests::tour::{Leg, legs};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, OpenOptions, read_link};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

/// The breakpoint instruction of x86-64.
const BREAKPOINT: u8 = 0xcc;

fn main() -> Result<()> {
    ensure!(cfg!(target_arch = "x86_64"), "this program needs x86-64");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["run", directory, file] => run(Path::new(directory), Path::new(file)),
        ["trace", program, file, command, rest @ ..] => trace(Path::new(program), Path::new(file), command, rest),
        _ => bail!("usage: postern-order run DIRECTORY FILE, or trace PROGRAM FILE COMMAND..."),
    }
}

/// Calls the plugins, and writes the merged order.
fn run(directory: &Path, file: &Path) -> Result<()> {
    ensure!(std::env::var_os("POSTERN_PRIVATE").is_some(), "start this program with tests/in-namespaces");
    let mut traces = Vec::new();
    for plugin in shipped()? {
        let legs = legs(&plugin)?;
        if legs.is_empty() {
            eprintln!("{plugin}: this kernel lacks the plugin's links, or the tour has no network for the plugin");
        }
        for leg in legs {
            traces.extend(calls(directory, &leg)?);
        }
    }
    let order = merged(&traces);
    let text: String = order.iter().flat_map(|symbol| [symbol, "\n"]).collect();
    std::fs::write(file, text).with_context(|| file.display().to_string())?;
    eprintln!("{} runs use {} functions", traces.len(), order.len());
    Ok(())
}

/// The functions of one run.
struct Trace {
    /// True for VERSION, which is the shortest run: each page that it touches counts most.
    is_version: bool,
    /// The functions of each process, in the order of first use. The gate is first, then come the sandboxes.
    processes: Vec<Vec<String>>,
}

/// Calls all verbs of one plugin on a new node. Returns the functions of each run.
fn calls(directory: &Path, leg: &Leg) -> Result<Vec<Trace>> {
    let own = std::env::current_exe()?;
    let program = directory.join("postern");
    let words = |path: &Path| path.display().to_string();
    let wrapper = [words(&own), "trace".to_owned(), words(&program), "/run/trace".to_owned()];
    let mut all = Vec::new();
    leg.walk(directory, |node, verb, call| {
        let traced = node.path("/run/trace");
        let _ = std::fs::remove_file(&traced);
        let answer = node.call_under(&wrapper, call)?;
        if answer.status != 0 {
            eprintln!("{} {verb}: status {}: {} {}", leg.name, answer.status, answer.stdout, answer.stderr);
        }
        let text = std::fs::read_to_string(&traced).unwrap_or_default();
        let mut processes: Vec<(&str, Vec<String>)> = Vec::new();
        for (process, symbol) in text.lines().filter_map(|line| line.split_once(' ')) {
            match processes.iter_mut().find(|(known, _)| *known == process) {
                Some((_, symbols)) => symbols.push(symbol.to_owned()),
                None => processes.push((process, vec![symbol.to_owned()])),
            }
        }
        ensure!(!processes.is_empty(), "{} {verb}: nothing was traced: {}", leg.name, answer.stderr);
        all.push(Trace {
            is_version: verb == "VERSION",
            processes: processes.into_iter().map(|(_, symbols)| symbols).collect(),
        });
        Ok(answer)
    })?;
    Ok(all)
}

/// Orders all functions so that the functions of one process lie together. Functions that only sandboxes use come
/// first, then shared functions, then functions that only gates use. Other processes that a gate starts count as
/// sandboxes. On both sides, functions that more processes use lie nearer to the middle. For gates, runs of VERSION
/// count separately, and the higher share decides. Equal functions are in the order of their first use.
fn merged(traces: &[Trace]) -> Vec<&str> {
    let (mut gates, mut sandboxes, mut versions) = (Users::default(), Users::default(), Users::default());
    let mut order = Vec::new();
    for trace in traces {
        if trace.is_version {
            trace.processes.first().into_iter().for_each(|symbols| versions.add(symbols));
        }
        for (at, symbols) in trace.processes.iter().enumerate() {
            if at == 0 {
                gates.add(symbols)
            } else {
                sandboxes.add(symbols)
            }
            order.extend(symbols.iter().map(String::as_str));
        }
    }
    let mut seen = HashSet::new();
    order.retain(|symbol| seen.insert(*symbol));
    let by_gates =
        |symbol| gates.rarity(symbol).map(|rarity| versions.rarity(symbol).map_or(rarity, |of| of.min(rarity)));
    order.sort_by_key(|symbol| match (by_gates(symbol), sandboxes.rarity(symbol)) {
        (None, rarity) => -rarity.unwrap_or_default(),
        (Some(_), Some(_)) => 1,
        (Some(rarity), None) => 1 + rarity,
    });
    order
}

/// The number of processes of one kind, and for each function the number of processes that use it.
#[derive(Default)]
struct Users<'a> {
    processes: usize,
    of: HashMap<&'a str, usize>,
}

impl<'a> Users<'a> {
    /// Counts a process that uses these functions.
    fn add(&mut self, symbols: &'a [String]) {
        self.processes += 1;
        for symbol in symbols {
            *self.of.entry(symbol).or_default() += 1;
        }
    }

    /// Returns 1 to 3: a larger number for a function that fewer processes use. `None` if no process uses it. A finer
    /// order would separate functions that are used together.
    fn rarity(&self, symbol: &str) -> Option<i8> {
        let share = self.of.get(symbol)? * 100 / self.processes.max(1);
        Some(match share {
            50.. => 1,
            10.. => 2,
            _ => 3,
        })
    }
}

/// The functions of a program: address in the file's address space, and symbol.
struct Functions {
    by_address: HashMap<u64, String>,
    /// Address and length of the section `.text`.
    text: (u64, u64),
}

impl Functions {
    fn read(program: &Path) -> Result<Self> {
        let data = std::fs::read(program).with_context(|| program.display().to_string())?;
        let file = object::File::parse(data.as_slice())?;
        let text = file.section_by_name(".text").context("no section .text")?;
        let end = text.address() + text.size();
        // A function in assembler may lack a size and a kind, such as the C library's entry point.
        let is_text = |symbol: &object::Symbol<'_, '_>| {
            (symbol.kind() == SymbolKind::Text || symbol.kind() == SymbolKind::Unknown && symbol.is_global())
                && (text.address()..end).contains(&symbol.address())
        };
        let mut by_address: HashMap<u64, String> = HashMap::new();
        for symbol in file.symbols().filter(is_text) {
            let Ok(name) = symbol.name() else { continue };
            by_address.insert(symbol.address(), name.to_owned());
        }
        ensure!(text.kind() == SectionKind::Text && by_address.len() > 100, "{} has no symbols", program.display());
        Ok(Self { by_address, text: (text.address(), text.size()) })
    }
}

/// A traced process of the program.
#[derive(Clone)]
struct Process {
    /// The address of the file's first byte.
    base: u64,
    /// The remaining breakpoints, with the bytes that they replaced.
    left: BTreeMap<u64, u8>,
    /// All breakpoints.
    all: Rc<BTreeMap<u64, u8>>,
}

/// Runs a command, and writes each function of the program that the command's processes use.
fn trace(program: &Path, file: &Path, command: &str, rest: &[&str]) -> Result<()> {
    let functions = Functions::read(program)?;
    let program = program.canonicalize()?;
    let mut output = OpenOptions::new().create(true).append(true).open(file)?;
    // The shell waits for this tracer before it becomes the command.
    let child = Command::new("/bin/sh").args(["-c", "kill -STOP $$; exec \"$@\"", "sh", command]).args(rest).spawn()?;
    let first = Pid::from_raw(i32::try_from(child.id())?);
    waitpid(first, Some(WaitPidFlag::WUNTRACED))?;
    let options = Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(first, options)?;
    kill(first, Signal::SIGCONT)?;
    let mut processes: HashMap<Pid, Process> = HashMap::new();
    let mut status = 1;
    loop {
        let event = match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Ok(event) => event,
            Err(nix::errno::Errno::ECHILD) => break,
            Err(error) => return Err(error.into()),
        };
        let Some(pid) = event.pid() else { continue };
        let signal = match event {
            WaitStatus::Exited(_, code) => {
                processes.remove(&pid);
                if pid == first {
                    status = code;
                }
                continue;
            }
            WaitStatus::Signaled(..) => {
                processes.remove(&pid);
                continue;
            }
            // If the process was killed meanwhile, reading its memory fails. The next wait reports its end.
            WaitStatus::PtraceEvent(_, Signal::SIGTRAP, number) => {
                let _ = happened(pid, number, &program, &functions, &mut processes);
                None
            }
            WaitStatus::PtraceEvent(..) => None,
            WaitStatus::Stopped(_, Signal::SIGTRAP) => match hit(pid, &functions, &mut processes) {
                Ok(Some(symbol)) => {
                    writeln!(output, "{pid} {symbol}")?;
                    None
                }
                Ok(None) => Some(Signal::SIGTRAP),
                Err(_) => None,
            },
            WaitStatus::Stopped(_, signal) => Some(signal),
            _ => None,
        };
        let _ = ptrace::cont(pid, signal);
    }
    std::process::exit(status);
}

/// Follows a fork or an exec.
fn happened(
    pid: Pid,
    number: i32,
    program: &Path,
    functions: &Functions,
    processes: &mut HashMap<Pid, Process>,
) -> Result<()> {
    use nix::libc::{PTRACE_EVENT_CLONE, PTRACE_EVENT_EXEC, PTRACE_EVENT_FORK, PTRACE_EVENT_VFORK};
    match number {
        PTRACE_EVENT_EXEC => {
            processes.remove(&pid);
            if read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program) {
                processes.insert(pid, set_breakpoints(pid, program, functions)?);
            }
        }
        PTRACE_EVENT_FORK | PTRACE_EVENT_VFORK | PTRACE_EVENT_CLONE => {
            let child = Pid::from_raw(i32::try_from(ptrace::getevent(pid)?)?);
            if let Some(mut process) = processes.get(&pid).cloned() {
                // A forked process has its own copy of the memory. A thread or vfork shares the memory.
                if number == PTRACE_EVENT_FORK {
                    process.left = (*process.all).clone();
                    write_breakpoints(child, process.base, functions, process.left.keys())?;
                }
                processes.insert(child, process);
            }
        }
        _ => {}
    }
    Ok(())
}

fn memory(pid: Pid) -> Result<File> {
    OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")).context("memory of a traced process")
}

fn set_breakpoints(pid: Pid, program: &Path, functions: &Functions) -> Result<Process> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let own = maps.lines().find(|line| line.ends_with(&program.display().to_string())).context("program not mapped")?;
    let base = u64::from_str_radix(own.split('-').next().unwrap_or_default(), 16)?;
    let left = write_breakpoints(pid, base, functions, functions.by_address.keys())?;
    Ok(Process { base, all: Rc::new(left.clone()), left })
}

/// Writes breakpoints, and returns the bytes that were there.
fn write_breakpoints<'a>(
    pid: Pid,
    base: u64,
    functions: &Functions,
    addresses: impl Iterator<Item = &'a u64>,
) -> Result<BTreeMap<u64, u8>> {
    let (start, length) = functions.text;
    let memory = memory(pid)?;
    let mut text = vec![0; usize::try_from(length)?];
    memory.read_exact_at(&mut text, base + start)?;
    let mut replaced = BTreeMap::new();
    for address in addresses {
        if let Some(byte) = text.get_mut(usize::try_from(address - start)?) {
            replaced.insert(*address, std::mem::replace(byte, BREAKPOINT));
        }
    }
    memory.write_all_at(&text, base + start)?;
    Ok(replaced)
}

/// Removes the breakpoint at which a process has stopped. Returns the symbol of the function.
fn hit(pid: Pid, functions: &Functions, processes: &mut HashMap<Pid, Process>) -> Result<Option<String>> {
    let Some(process) = processes.get_mut(&pid) else { return Ok(None) };
    let mut registers = ptrace::getregs(pid)?;
    let address = (registers.rip - 1).wrapping_sub(process.base);
    let Some(byte) = process.left.remove(&address) else { return Ok(None) };
    memory(pid)?.write_all_at(&[byte], registers.rip - 1)?;
    registers.rip -= 1;
    ptrace::setregs(pid, registers)?;
    Ok(functions.by_address.get(&address).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(is_version: bool, processes: &[&[&str]]) -> Trace {
        let names = |symbols: &&[&str]| symbols.iter().map(|&symbol| symbol.to_owned()).collect();
        Trace { is_version, processes: processes.iter().map(names).collect() }
    }

    #[test]
    fn functions_lie_by_their_processes_and_those_of_version_with_those_of_most_runs() {
        let mut traces: Vec<Trace> =
            (0..20).map(|_| trace(false, &[&["start", "both", "gate"], &["both", "sandbox"]])).collect();
        traces.push(trace(false, &[&["start", "rare"]]));
        traces.push(trace(true, &[&["start", "version"]]));
        assert_eq!(merged(&traces), ["sandbox", "both", "start", "gate", "version", "rare"]);
        // If the last trace is an ordinary run, it counts like the trace before it.
        traces.last_mut().unwrap().is_version = false;
        assert_eq!(merged(&traces), ["sandbox", "both", "start", "gate", "rare", "version"]);
    }
}
