//! The memory that a compromised sandbox can get, tried from inside with every call that gives memory.
#![allow(unsafe_code, reason = "takes memory as an intruder does")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test, but without a harness that marks it as a test")]

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};
use postern_confine::fork;
use postern_sandbox::{confine, seal};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The limit in `docs/security/confinement.md`: pages, page tables and shared memory together, in bytes.
const CEILING: u64 = 512 << 20;

/// The memory that each attempt tries to get, far above the ceiling.
const WANTED: usize = 768 << 20;

const STEP: usize = 16 << 20;
const PAGE: usize = 4096;

/// The size of a guest's memory that is reserved before the process is sealed.
const RESERVED: usize = 4 << 30;

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// A name, and the attempt from inside, with the reservation as its argument.
type Attempt = (&'static str, fn(*mut u8));

/// A limit from outside: the resource, the soft limit and the hard limit. Both are cut to the test's own hard limit.
type Limit = (Resource, u64, u64);

const ATTEMPTS: [Attempt; 19] = [
    ("private memory", |_| mapped(PRIVATE, RW)),
    ("shared memory", |_| mapped(libc::MAP_SHARED | libc::MAP_ANONYMOUS, RW)),
    ("memory that grows downwards", |_| mapped(PRIVATE | libc::MAP_GROWSDOWN, RW)),
    ("memory without reservation", |_| mapped(PRIVATE | libc::MAP_NORESERVE, RW)),
    ("large pages", |_| mapped(PRIVATE | libc::MAP_HUGETLB, RW)),
    ("the reservation", the_reservation),
    ("the reservation as a stack", the_reservation_as_a_stack),
    ("memory that is hidden again", |_| hidden_again(libc::PROT_NONE)),
    ("memory that is made read-only again", |_| hidden_again(libc::PROT_READ)),
    ("the reservation, hidden again", the_reservation_hidden_again),
    ("memory that is moved", moved),
    ("the heap", |_| the_heap()),
    ("the heap's reservation", |_| what_the_heap_has_reserved()),
    ("the heap's reservation, and the reservation", |reserved| {
        what_the_heap_has_reserved();
        the_reservation(reserved);
    }),
    ("the program break", |_| the_program_break()),
    ("the stack", |_| the_stack()),
    ("page tables of the zero page", |_| page_tables()),
    ("page tables that outlive their pages", page_tables_that_stay),
    ("page tables of the reservation", page_tables_of_the_reservation),
];

/// Tries every attempt without limits from outside, and with limits as an operator may have set them: soft and hard.
pub fn a_taken_over_sandbox_has_half_a_gibibyte() {
    let for_good = (Resource::RLIMIT_AS, 6 << 30, 6 << 30);
    for limits in [
        &[][..],
        &[(Resource::RLIMIT_STACK, RLIM_INFINITY, RLIM_INFINITY)],
        &[(Resource::RLIMIT_AS, 6 << 30, RLIM_INFINITY)],
        &[for_good],
    ] {
        for (name, attempt) in ATTEMPTS {
            let most = most_of(attempt, limits);
            assert!(most <= CEILING, "{name}: {} MiB, limits {limits:?}", most >> 20);
        }
    }
}

/// Returns the largest memory that the attempt ever had.
fn most_of(attempt: fn(*mut u8), limits: &[Limit]) -> u64 {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let child = match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            drop(ours);
            sealed(theirs, attempt, limits)
        }
        ForkResult::Parent { child } => child,
    };
    drop(theirs);
    let mut ready = [0];
    assert_eq!(ours.read(&mut ready).unwrap(), 1, "the attempt did not begin");
    let until = Instant::now() + Duration::from_secs(20);
    let mut most = 0;
    // The child exits after its attempt, or is killed for the attempt.
    while Instant::now() < until && most <= CEILING {
        most = most.max(memory_of(child));
        match waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap() {
            WaitStatus::StillAlive => std::thread::sleep(Duration::from_millis(2)),
            WaitStatus::Exited(_, 0) | WaitStatus::Signaled(..) => return most,
            other => panic!("{other:?}"),
        }
    }
    kill(child, Signal::SIGKILL).unwrap();
    waitpid(child, None).unwrap();
    most
}

/// Returns resident pages (their peak, with shared pages), page tables and swapped pages, in bytes.
fn memory_of(child: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse::<u64>().ok()
    };
    ["VmHWM", "VmPTE", "VmSwap"].into_iter().filter_map(field).sum::<u64>() << 10
}

fn sealed(mut line: UnixStream, attempt: fn(*mut u8), limits: &[Limit]) -> ! {
    for (resource, soft, hard) in limits {
        let (_, most) = getrlimit(*resource).unwrap();
        setrlimit(*resource, *soft.min(&most), *hard.min(&most)).unwrap();
    }
    find_the_heap();
    let other = line.try_clone().unwrap();
    confine::confine(line.as_fd(), other.as_fd()).unwrap();
    drop(other);
    let flags = PRIVATE | libc::MAP_NORESERVE;
    let reserved = unsafe { libc::mmap(null_mut(), RESERVED, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(reserved, libc::MAP_FAILED);
    seal().unwrap();
    line.write_all(b"x").unwrap();
    attempt(reserved.cast());
    // The observer needs time to look.
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {}
    unsafe { libc::_exit(0) }
}

fn touch(start: *mut u8, length: usize) {
    for at in (0..length).step_by(PAGE) {
        unsafe { start.add(at).write_volatile(1) };
    }
}

fn map(length: usize, flags: i32, protection: i32) -> Option<*mut u8> {
    let start = unsafe { libc::mmap(null_mut(), length, protection, flags, -1, 0) };
    (start != libc::MAP_FAILED).then_some(start.cast())
}

fn mapped(flags: i32, protection: i32) {
    for _ in 0..WANTED / STEP {
        if let Some(start) = map(STEP, flags, protection) {
            touch(start, STEP);
        }
    }
}

fn protected(start: *mut u8, length: usize, protection: i32) -> bool {
    unsafe { libc::mprotect(start.cast(), length, protection) == 0 }
}

fn the_reservation(reserved: *mut u8) {
    // First the whole size is tried at once, because the kernel counts it differently if the address space is limited.
    if protected(reserved, RESERVED / 2, RW) || protected(reserved, WANTED, RW) {
        touch(reserved, WANTED);
    }
    for at in (0..WANTED).step_by(STEP) {
        let start = unsafe { reserved.add(at) };
        if protected(start, STEP, RW) {
            touch(start, STEP);
        }
    }
}

fn the_reservation_as_a_stack(reserved: *mut u8) {
    if protected(reserved, WANTED, RW | libc::PROT_GROWSDOWN) {
        touch(reserved, WANTED);
    }
}

fn hidden_again(protection: i32) {
    for _ in 0..WANTED / STEP {
        if let Some(start) = map(STEP, PRIVATE, RW) {
            touch(start, STEP);
            protected(start, STEP, protection);
        }
    }
}

fn the_reservation_hidden_again(reserved: *mut u8) {
    for at in (0..WANTED).step_by(STEP) {
        let start = unsafe { reserved.add(at) };
        if protected(start, STEP, RW) {
            touch(start, STEP);
            protected(start, STEP, libc::PROT_NONE);
        }
    }
}

fn moved(reserved: *mut u8) {
    protected(reserved, STEP, RW);
    let mut start = reserved;
    for size in (STEP..WANTED).step_by(STEP) {
        let larger = unsafe { libc::mremap(start.cast(), size, size + STEP, libc::MREMAP_MAYMOVE) };
        if larger != libc::MAP_FAILED {
            start = larger.cast();
            touch(start, size + STEP);
        }
    }
}

/// Takes blocks from the heap, as the sandbox's own code does. Only the kernel limits the heap.
fn the_heap() {
    let layout = std::alloc::Layout::from_size_align(STEP, PAGE).unwrap();
    for _ in 0..WANTED / STEP {
        let block = unsafe { std::alloc::alloc(layout) };
        if block.is_null() {
            return;
        }
        touch(block, STEP);
    }
}

/// The address of the rest of the heap's reservation. An intruder finds it in the heap's own data.
static HEAP_BEGIN: AtomicUsize = AtomicUsize::new(0);
static HEAP_END: AtomicUsize = AtomicUsize::new(0);

/// Finds the rest of the heap's reservation: the part after the last block, which can't be used yet.
fn find_the_heap() {
    let block = Box::new(0_u8);
    let at = (&raw const *block).addr();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let regions = maps.lines().filter_map(|line| {
        let (begin, end) = line.split(' ').next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        Some((number(begin)..number(end), line.contains(" ---p ")))
    });
    let mut rest = regions.skip_while(|(range, _)| !range.contains(&at));
    let (heap, _) = rest.next().unwrap();
    let (reserved, is_hidden) = rest.next().unwrap();
    assert!(is_hidden && heap.end == reserved.start && reserved.len() > CEILING as usize / 2, "{maps}");
    HEAP_BEGIN.store(reserved.start, Ordering::Relaxed);
    HEAP_END.store(reserved.end, Ordering::Relaxed);
}

fn what_the_heap_has_reserved() {
    let (begin, end) = (HEAP_BEGIN.load(Ordering::Relaxed), HEAP_END.load(Ordering::Relaxed));
    let start = std::ptr::with_exposed_provenance_mut::<u8>(begin);
    if protected(start, end - begin, RW) {
        touch(start, end - begin);
    }
    for at in (0..end - begin - STEP).step_by(STEP) {
        let start = unsafe { start.add(at) };
        if protected(start, STEP, RW) {
            touch(start, STEP);
        }
    }
}

fn the_program_break() {
    let begin = unsafe { libc::syscall(libc::SYS_brk, 0) };
    for size in (STEP..=WANTED).step_by(STEP) {
        let end = begin + i64::try_from(size).unwrap();
        if unsafe { libc::syscall(libc::SYS_brk, end) } == end {
            let start = std::ptr::with_exposed_provenance_mut::<u8>(usize::try_from(end).unwrap() - STEP);
            touch(start, STEP);
        }
    }
}

fn the_stack() {
    let here = 0_u8;
    let top = (&raw const here).cast_mut();
    for at in (0..WANTED).step_by(PAGE) {
        unsafe { top.wrapping_sub(at).write_volatile(1) };
    }
}

fn page_tables() {
    // Each read in a new range of 2 MiB costs a page table, but no page.
    for _ in 0..512 {
        if let Some(start) = map(1 << 30, PRIVATE | libc::MAP_NORESERVE, libc::PROT_READ) {
            for at in (0..1 << 30).step_by(2 << 20) {
                unsafe { start.add(at).read_volatile() };
            }
        }
    }
}

fn page_tables_that_stay(_: *mut u8) {
    // The page table of a replaced page stays while neighbouring pages are mapped.
    for _ in 0..512 {
        let Some(start) = map(1 << 30, PRIVATE | libc::MAP_NORESERVE, libc::PROT_NONE) else { return };
        for at in (PAGE..1 << 30).step_by(2 << 20) {
            let page = unsafe { start.add(at) };
            if protected(page, PAGE, RW) {
                touch(page, PAGE);
                let fixed = PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED;
                unsafe { libc::mmap(page.cast(), PAGE, libc::PROT_NONE, fixed, -1, 0) };
            }
        }
    }
}

fn page_tables_of_the_reservation(reserved: *mut u8) {
    for at in (PAGE..RESERVED).step_by(2 << 20) {
        let page = unsafe { reserved.add(at) };
        if protected(page, PAGE, RW) {
            touch(page, PAGE);
            unsafe { libc::madvise(page.cast(), PAGE, libc::MADV_DONTNEED) };
        }
    }
    the_reservation(reserved);
}
