//! Tests of the heap. Most of them end a process.

use super::*;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::ForkResult;
use postern_confine::fork;
use std::hint::black_box;
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: Heap = Heap::new();

#[test]
fn blocks_have_their_size_and_alignment_and_are_used_again() {
    for align in [1, 16, 4096, 1 << 20] {
        for size in [1, 100, 5000, 3 << 20] {
            let layout = Layout::from_size_align(size, align).unwrap();
            unsafe {
                let block = HEAP.alloc_zeroed(layout);
                assert_eq!(block.addr() % align, 0);
                assert!((0..size).all(|at| block.add(at).read() == 0));
                block.write_bytes(7, size);
                let larger = HEAP.realloc(block, layout, size * 2);
                assert!((0..size).all(|at| larger.add(at).read() == 7));
                HEAP.dealloc(larger, Layout::from_size_align(size * 2, align).unwrap());
            }
        }
    }
    let before = with(|blocks| blocks.allocator().left());
    for _ in 0..1000 {
        drop(black_box(vec![1_u8; 8 << 20]));
    }
    let after = with(|blocks| blocks.allocator().left());
    assert!(before - after < 100 << 20, "{before} {after}");
}

#[test]
fn a_space_that_is_used_up_is_followed_by_another() {
    let space = Space::new();
    let first = space.grow(PIECE).unwrap();
    let second = space.grow(PIECE).unwrap();
    assert_eq!(first.addr().get() + PIECE, second.addr().get());
    let large = space.grow(SPACE).unwrap();
    unsafe { large.as_ptr().add(SPACE - 1).write(1) };
    assert!(space.grow(PIECE).is_some());
    assert!(space.grow(usize::MAX / 2).is_none());
}

/// Runs `act` in a new process. Returns how the process ended, or `None` if it hangs.
fn apart(act: impl FnOnce() -> i32) -> Option<WaitStatus> {
    let child = match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let status = act();
            unsafe { libc::_exit(status) }
        }
        ForkResult::Parent { child } => child,
    };
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap() {
            WaitStatus::StillAlive => std::thread::yield_now(),
            ended => return Some(ended),
        }
    }
    kill(child, Signal::SIGKILL).unwrap();
    waitpid(child, None).unwrap();
    None
}

#[test]
fn a_heap_that_is_used_inside_of_itself_ends_the_process() {
    let ended = apart(|| with(|_| i32::from(black_box(vec![0_u8; 100]).is_empty())));
    assert!(matches!(ended, Some(WaitStatus::Signaled(_, Signal::SIGABRT, _))), "{ended:?}");
    // The panic's message is allocated.
    let ended = apart(|| with(|_| panic!("a fault of {}", black_box("the heap"))));
    assert!(matches!(ended, Some(WaitStatus::Signaled(_, Signal::SIGABRT, _))), "{ended:?}");
    // A gate prints an error of CNI.
    let ended = apart(|| {
        ANSWERS.store(true, Relaxed);
        with(|_| i32::from(black_box(vec![0_u8; 100]).is_empty()))
    });
    assert!(matches!(ended, Some(WaitStatus::Exited(_, 1))), "{ended:?}");
}

/// Sets the limit of the address space to the mapped bytes and `more` bytes. Returns the number of mapped bytes.
fn limit(more: u64, hard: Option<u64>) -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let mapped = pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096;
    setrlimit(Resource::RLIMIT_AS, mapped + more, hard.unwrap_or(mapped + more)).unwrap();
    mapped
}

#[test]
fn a_limit_of_the_address_space_is_raised_or_leaves_some() {
    let new = Space::new;
    let raised = apart(|| {
        let (_, hard) = getrlimit(Resource::RLIMIT_AS).unwrap();
        limit(8 << 20, Some(hard));
        let space = new();
        i32::from(space.reserve(PIECE).is_none() || space.left() < SPACE)
    });
    assert!(matches!(raised, Some(WaitStatus::Exited(_, 0))), "{raised:?}");
    let shared = apart(|| {
        limit(100 << 20, None);
        let space = new();
        let is_there = space.reserve(PIECE).is_some() && space.left() == LEAST;
        i32::from(!is_there || map(64 << 20).is_none())
    });
    assert!(matches!(shared, Some(WaitStatus::Exited(_, 0))), "{shared:?}");
    // A needed reservation is made, even if little address space is left.
    let large = apart(|| {
        limit(100 << 20, None);
        let space = new();
        let is_whole = space.reserve(90 << 20).is_some() && space.left() == 90 << 20;
        // The next reservation gives the unused address space back.
        i32::from(!is_whole || space.reserve(PIECE).is_none() || map(90 << 20).is_none())
    });
    assert!(matches!(large, Some(WaitStatus::Exited(_, 0))), "{large:?}");
    let none = apart(|| {
        limit(LEAST as u64 / 2, None);
        i32::from(new().reserve(PIECE).is_some())
    });
    assert!(matches!(none, Some(WaitStatus::Exited(_, 0))), "{none:?}");
}

#[test]
fn a_heap_without_memory_answers_where_it_has_to() {
    let used_up = |answers: bool| {
        apart(move || {
            ANSWERS.store(answers, Relaxed);
            limit(0, None);
            i32::from(black_box(Vec::<u8>::with_capacity(SPACE * 2)).capacity() == 7)
        })
    };
    assert!(matches!(used_up(false), Some(WaitStatus::Signaled(_, Signal::SIGABRT, _))));
    assert!(matches!(used_up(true), Some(WaitStatus::Exited(_, 1))));
}

#[test]
fn a_sandbox_has_its_heap_before_it_is_sealed() {
    let ended = apart(|| {
        with(|blocks| blocks.allocator().left.store(PIECE, Relaxed));
        let is_ready = prepare_for_sealing(384 << 20).is_ok();
        limit(0, None);
        i32::from(!is_ready || Vec::<u8>::new().try_reserve_exact(384 << 20).is_err())
    });
    assert!(matches!(ended, Some(WaitStatus::Exited(_, 0))), "{ended:?}");
}

#[test]
fn threads_wait_for_each_other() {
    let count = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    with(|_| {
                        let before = count.load(Relaxed);
                        std::thread::yield_now();
                        count.store(before + 1, Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 2000);
}

/// Each child can allocate, even if other threads of its parent were allocating.
#[test]
fn a_child_of_a_process_with_threads_can_allocate() {
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let until = Instant::now() + Duration::from_secs(20);
        scope.spawn(move || {
            while !done.load(Relaxed) {
                drop(black_box(vec![0_u8; 100]));
            }
        });
        for _ in 0..200 {
            let child = match unsafe { fork() }.unwrap() {
                ForkResult::Child => {
                    drop(black_box(vec![0_u8; 100]));
                    unsafe { libc::_exit(0) }
                }
                ForkResult::Parent { child } => child,
            };
            while matches!(waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap(), WaitStatus::StillAlive) {
                if Instant::now() > until {
                    done.store(true, Relaxed);
                    kill(child, Signal::SIGKILL).unwrap();
                    panic!("a child hangs");
                }
                std::thread::yield_now();
            }
        }
        done.store(true, Relaxed);
    });
}

/// Only the process that the runtime started answers the runtime.
#[test]
fn a_child_answers_no_runtime() {
    let ended = apart(|| {
        ANSWERS.store(true, Relaxed);
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => unsafe { libc::_exit(i32::from(ANSWERS.load(Relaxed))) },
            ForkResult::Parent { child } => match waitpid(child, None).unwrap() {
                WaitStatus::Exited(_, status) if ANSWERS.load(Relaxed) => status,
                _ => 2,
            },
        }
    });
    assert!(matches!(ended, Some(WaitStatus::Exited(_, 0))), "{ended:?}");
}
