//! The cost of confinement, step by step, each step in a fresh process. The command for medians of 200 runs, in µs:
//! `cargo run --release -p postern-confine --example confine_cost`.
#![allow(unsafe_code, reason = "fork(2): confinement can't be undone")]
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

use nix::unistd::ForkResult;
use postern_confine::{
    Access, Argument, CallRule, CapabilitySet, Confinement, DefaultAction, Files, Filter, forget_environment, fork,
    keep_capabilities,
};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

/// A filter with the size of the gate's filter. It also allows the calls that this process needs.
static FILTER: Filter = Filter::new(&[&OTHERS, OWN], &[RULES], DefaultAction::Absent);

const OWN: &[libc::c_long] = &[
    libc::SYS_write,
    libc::SYS_sendto,
    libc::SYS_exit_group,
    libc::SYS_clock_gettime,
    libc::SYS_close,
    libc::SYS_munmap,
];

const OTHERS: [libc::c_long; 55] = {
    let mut numbers = [0; 55];
    let mut at = 0;
    while at < numbers.len() {
        numbers[at] = 100 + at as libc::c_long;
        at += 1;
    }
    numbers
};

const RULES: &[CallRule] = &[CallRule(10, &[Argument::Lacks(2, 4)]), CallRule(41, &[Argument::OneOf(0, &[16])])];

fn files() -> Files {
    let paths =
        ["/run", "/var/lib", "/var/log", "/proc/sys/net", "/proc/sys/kernel/random/boot_id", "/proc/thread-self/net"];
    Files::new(paths.map(|path| (Path::new(path), Access::Own))).unwrap()
}

const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::KILL);

type Step = (&'static str, fn() -> Box<dyn FnOnce()>);

fn median(prepare: fn() -> Box<dyn FnOnce()>) -> f64 {
    let mut times: Vec<u64> = (0..200)
        .map(|_| {
            let (mut ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            match unsafe { fork() }.unwrap() {
                ForkResult::Child => {
                    let step = prepare();
                    let start = Instant::now();
                    step();
                    let took = u64::try_from(start.elapsed().as_nanos()).unwrap();
                    theirs.write_all(&took.to_le_bytes()).unwrap();
                    unsafe { libc::_exit(0) }
                }
                ForkResult::Parent { child } => {
                    let mut took = [0; 8];
                    ours.read_exact(&mut took).unwrap();
                    nix::sys::wait::waitpid(child, None).unwrap();
                    u64::from_le_bytes(took)
                }
            }
        })
        .collect();
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |nanos| *nanos as f64 / 1000.0)
}

fn main() {
    let steps: [Step; 6] = [
        ("forget the environment", || Box::new(forget_environment)),
        ("install the filter", || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            let filter = FILTER.ready().clone();
            Box::new(move || filter.install().unwrap())
        }),
        ("drop capabilities", || Box::new(|| keep_capabilities(KEPT).unwrap())),
        ("make Landlock rules", || Box::new(|| std::mem::forget(files()))),
        ("enforce Landlock rules, drop capabilities, filter", || {
            let confinement = Confinement { capabilities: KEPT, files: files(), filter: FILTER.ready().clone() };
            Box::new(move || confinement.apply().unwrap())
        }),
        ("all of it", || {
            Box::new(|| {
                forget_environment();
                let confinement = Confinement { capabilities: KEPT, files: files(), filter: FILTER.ready().clone() };
                confinement.apply().unwrap();
            })
        }),
    ];
    for (name, step) in steps {
        println!("{:>8.1}  {name}", median(step));
    }
}
