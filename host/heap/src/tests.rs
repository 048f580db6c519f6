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
    let before = unsafe { (*STATE.blocks.get()).allocator().left.get() };
    for _ in 0..1000 {
        drop(black_box(vec![1_u8; 8 << 20]));
    }
    let after = unsafe { (*STATE.blocks.get()).allocator().left.get() };
    assert!(before - after < 100 << 20, "{before} {after}");
}

#[test]
fn the_first_piece_reserves_nothing_and_a_reservation_lies_behind_it() {
    // No other thread maps anything there meanwhile.
    let in_a_free_place = |act: fn(&Space, usize) -> i32| {
        apart(move || {
            let free = map(3 * SPACE, NONE).unwrap();
            unsafe { munmap(free.cast(), 3 * SPACE) }.unwrap();
            act(&Space::new(), free.addr().get() + 2 * SPACE)
        })
    };
    let ended = in_a_free_place(|space, below| {
        let Some(start) = space.begin(PIECE, below) else { return 1 };
        if space.left.get() > 0 || space.begin(PIECE, below).is_some() || space.reserve(PIECE).is_none() {
            return 2;
        }
        let next = space.grow(PIECE).map(|next| next.addr().get());
        i32::from(next != Some(start.addr().get() + PIECE) || space.left.get() != SPACE - PIECE)
    });
    assert!(matches!(ended, Some(WaitStatus::Exited(_, 0))), "{ended:?}");
    // Until then nothing is mapped behind it: what is written there ends the process.
    let ended = in_a_free_place(|space, below| {
        let Some(start) = space.begin(PIECE, below) else { return 1 };
        unsafe { start.as_ptr().add(PIECE).write_volatile(1) };
        2
    });
    assert!(matches!(ended, Some(WaitStatus::Signaled(_, Signal::SIGSEGV, _))), "{ended:?}");
    // A place that is taken, or a piece that is longer.
    let ended = in_a_free_place(|space, below| {
        let taken = map_at((below - SPACE - PIECE) / PAGES * PAGES, PIECE, NONE).is_none()
            || space.begin(PIECE, below).is_some();
        i32::from(taken || space.begin(2 * PIECE, below - 4 * PIECE).is_some() || space.grow(PIECE).is_none())
    });
    assert!(matches!(ended, Some(WaitStatus::Exited(_, 0))), "{ended:?}");
}

#[test]
fn a_fork_reserves_address_space() {
    let ended = apart(|| {
        let is_reserved = |blocks: &mut Dlmalloc<Space>| !blocks.allocator().next.get().is_null();
        with(|blocks| blocks.allocator().next.set(null_mut()));
        // SAFETY: the child ends at once.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => unsafe { libc::_exit(i32::from(!with(is_reserved))) },
            ForkResult::Parent { child } => match waitpid(child, None).unwrap() {
                WaitStatus::Exited(_, status) if with(is_reserved) => status,
                _ => 2,
            },
        }
    });
    assert!(matches!(ended, Some(WaitStatus::Exited(_, 0))), "{ended:?}");
}

#[test]
fn the_next_blocks_lie_in_what_was_made_present() {
    // Some blocks are written before, as a gate's.
    let before = black_box(vec![7_u8; 50 << 10]);
    let ended = apart(|| {
        make_present(150 << 10);
        let block = Vec::<u8>::with_capacity(100 << 10);
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let first = block.as_ptr().addr().next_multiple_of(page);
        let mut are_there = [0_u8; 64];
        let length = (90 << 10) / page * page;
        let asked = unsafe { libc::mincore(first as *mut libc::c_void, length, are_there.as_mut_ptr()) };
        i32::from(asked != 0 || are_there.iter().take(length / page).any(|is_there| is_there & 1 == 0))
    });
    assert!(matches!(ended, Some(WaitStatus::Exited(_, 0))), "{ended:?}");
    assert!(before.iter().all(|byte| *byte == 7));
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

/// Runs this in a process of its own. Returns how it ended, or `None` if it hangs.
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
    // The panic's words are allocated.
    let ended = apart(|| with(|_| panic!("a fault of {}", black_box("the heap"))));
    assert!(matches!(ended, Some(WaitStatus::Signaled(_, Signal::SIGABRT, _))), "{ended:?}");
    // A gate answers.
    let ended = apart(|| {
        ANSWERS.store(true, Ordering::Relaxed);
        with(|_| i32::from(black_box(vec![0_u8; 100]).is_empty()))
    });
    assert!(matches!(ended, Some(WaitStatus::Exited(_, 1))), "{ended:?}");
}

/// As above, in a process that never had a second thread: its lock is a plain word.
#[cfg(target_env = "musl")]
#[test]
fn a_heap_without_threads_that_is_used_inside_of_itself_ends_the_process() {
    let ended = apart(|| {
        HAS_THREADS.store(false, Ordering::Relaxed);
        with(|_| i32::from(black_box(vec![0_u8; 100]).is_empty()))
    });
    assert!(matches!(ended, Some(WaitStatus::Signaled(_, Signal::SIGABRT, _))), "{ended:?}");
    let ended = apart(|| {
        HAS_THREADS.store(false, Ordering::Relaxed);
        with(|_| panic!("a fault of {}", black_box("the heap")))
    });
    assert!(matches!(ended, Some(WaitStatus::Signaled(_, Signal::SIGABRT, _))), "{ended:?}");
}

/// A process takes the lock with atomic instructions as soon as it makes a thread.
#[cfg(target_env = "musl")]
#[test]
fn the_first_thread_makes_the_lock_one_for_threads() {
    let ended = apart(|| {
        HAS_THREADS.store(false, Ordering::Relaxed);
        drop(black_box(vec![0_u8; 100]));
        if HAS_THREADS.load(Ordering::Relaxed) {
            return 1;
        }
        let seen = std::thread::spawn(|| HAS_THREADS.load(Ordering::Relaxed)).join();
        if matches!(seen, Ok(true)) { 0 } else { 2 }
    });
    assert!(matches!(ended, Some(WaitStatus::Exited(_, 0))), "{ended:?}");
}

/// Sets the limit of the address space to what is mapped and some bytes more.
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
        i32::from(space.reserve(PIECE).is_none() || space.left.get() < SPACE)
    });
    assert!(matches!(raised, Some(WaitStatus::Exited(_, 0))), "{raised:?}");
    let shared = apart(|| {
        limit(100 << 20, None);
        let space = new();
        let is_there = space.reserve(PIECE).is_some() && space.left.get() == 32 << 20;
        i32::from(!is_there || map(64 << 20, NONE).is_none())
    });
    assert!(matches!(shared, Some(WaitStatus::Exited(_, 0))), "{shared:?}");
    // What is needed at once comes before what others may need.
    let large = apart(|| {
        limit(100 << 20, None);
        let space = new();
        let is_whole = space.reserve(90 << 20).is_some() && space.left.get() == 90 << 20;
        // And what is left of it is given back.
        i32::from(!is_whole || space.reserve(PIECE).is_none() || map(90 << 20, NONE).is_none())
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
            ANSWERS.store(answers, Ordering::Relaxed);
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
        with(|blocks| blocks.allocator().left.set(PIECE));
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
                        let before = count.load(Ordering::Relaxed);
                        std::thread::yield_now();
                        count.store(before + 1, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 2000);
}

/// Each child allocates, whatever the other threads of its parent were doing.
#[test]
fn a_child_of_a_process_with_threads_can_allocate() {
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let until = Instant::now() + Duration::from_secs(20);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
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
                    done.store(true, Ordering::Relaxed);
                    kill(child, Signal::SIGKILL).unwrap();
                    panic!("a child hangs");
                }
                std::thread::yield_now();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Only the process that was started as a plugin has a runtime to answer.
#[test]
fn a_child_answers_no_runtime() {
    let ended = apart(|| {
        ANSWERS.store(true, Ordering::Relaxed);
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => unsafe { libc::_exit(i32::from(ANSWERS.load(Ordering::Relaxed))) },
            ForkResult::Parent { child } => match waitpid(child, None).unwrap() {
                WaitStatus::Exited(_, status) if ANSWERS.load(Ordering::Relaxed) => status,
                _ => 2,
            },
        }
    });
    assert!(matches!(ended, Some(WaitStatus::Exited(_, 0))), "{ended:?}");
}
