//! The namespaces that a search finds, for every object that can keep a namespace alive. Other tests run meanwhile, and
//! these tests can't look at all processes of the machine. So each test checks only the namespaces that it made.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "tests open files without postern_state::Dir")]

#[path = "../../kernel/tests/common/mod.rs"]
mod common;

use common::{Container, run};
use nix::sched::{CloneFlags, unshare};
use postern_account::namespaces::{LiveNamespace, Namespaces};
use postern_kernel::Netlink;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Waits until no other test of this file runs. A search enters every namespace. Another test would count the search's
/// thread, or could not unmount the namespace.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find() -> Namespaces {
    assert_eq!(std::env::var("POSTERN_PRIVATE").as_deref(), Ok("1"), "run these tests through cargo's runner");
    Namespaces::find(Duration::from_secs(60), BTreeSet::new()).unwrap()
}

fn identity(path: &str) -> (u64, u64) {
    let metadata = fs::metadata(path).unwrap();
    (metadata.dev(), metadata.ino())
}

fn of(namespaces: &Namespaces, identity: (u64, u64)) -> Option<&LiveNamespace> {
    namespaces.found.iter().find(|found| found.identity == identity)
}

/// A process that lives as long as this value.
struct Process(Child);

impl Process {
    /// Runs a script, which has to end with `sleep`, until the script prints `ready`. Also returns the script's earlier
    /// output.
    fn start(script: &str) -> (Self, String) {
        let script = format!("exec 2>&1\n{script}");
        let mut child = Command::new("sh").args(["-ec", &script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut message = String::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            match line.unwrap() {
                line if line == "ready" => return (Self(child), message),
                line => message += &line,
            }
        }
        panic!("{script}: {message}");
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_namespace_that_only_a_process_keeps() {
    let _alone = alone();
    let (process, _) = Process::start(
        "exec unshare --net sh -ec 'ip link set lo up; ip address add 192.0.2.1/32 dev lo; echo ready; exec sleep 99'",
    );
    let path = format!("/proc/{}/ns/net", process.id());
    let namespaces = find();
    let found = of(&namespaces, identity(&path)).unwrap();
    assert_eq!(found.path, Path::new(&path));
    assert_eq!((found.processes, found.process), (1, Some(process.id())));
    assert_eq!((found.links.len(), found.links[0].name.text()), (1, Some("lo")));
    let addresses: Vec<_> = found.addresses.iter().map(|(link, have)| (*link, have.net.to_string())).collect();
    assert_eq!(addresses, [(1, "127.0.0.1/8".into()), (1, "192.0.2.1/32".into()), (1, "::1/128".into())]);
    assert_eq!(found.unread, None);
    let by_address = namespaces.with_address("192.0.2.1".parse().unwrap()).unwrap();
    assert_eq!(by_address.identity, found.identity);
    assert_eq!(namespaces.by_cookie(found.cookie).unwrap().identity, found.identity);
    assert!(namespaces.with_address("192.0.2.2".parse().unwrap()).is_none());
    let identity = found.identity;
    drop(process);
    assert!(of(&find(), identity).is_none(), "the namespace has gone with its process");
}

#[test]
fn a_namespace_that_only_a_thread_is_in() {
    let _alone = alone();
    let container = Container::new();
    let namespaces = find();
    let cookie = postern_kernel::Worker::start(&container.namespace, || Ok(())).unwrap().cookie().unwrap();
    let found = namespaces.by_cookie(cookie).unwrap();
    assert_eq!((found.processes, found.process), (1, Some(std::process::id())));
    let task = format!("/proc/{}/task/", std::process::id());
    assert!(found.path.to_str().unwrap().starts_with(&task), "{}", found.path.display());
}

/// Makes a namespace that only two mounts keep alive, one for each name. Returns the namespace's cookie.
fn mounted(names: [&str; 2]) -> u64 {
    for name in names {
        fs::write(name, "").unwrap();
    }
    let names = names.map(str::to_owned);
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        for name in &names {
            run("mount", &format!("--bind /proc/self/ns/net {name}"));
        }
        Netlink::open().unwrap().cookie().unwrap()
    });
    thread.join().unwrap()
}

#[test]
fn a_namespace_that_only_a_mount_keeps_is_one_by_any_name() {
    let _alone = alone();
    let names = ["/run/netns/first", "/run/netns/second"];
    let cookie = mounted(names);
    let namespaces = find();
    let found = namespaces.by_cookie(cookie).unwrap();
    assert_eq!(found.identity, identity(names[0]));
    assert!(names.map(Path::new).contains(&found.path.as_path()), "{}", found.path.display());
    assert_eq!((found.processes, found.process), (0, None));
    assert_eq!(namespaces.found.iter().filter(|found| found.cookie == cookie).count(), 1);

    let (process, _) = Process::start(&format!("exec nsenter --net={} sh -c 'echo ready; exec sleep 99'", names[0]));
    let namespaces = find();
    let found = namespaces.by_cookie(cookie).unwrap();
    assert_eq!((found.processes, found.process), (1, Some(process.id())));
    assert!(names.map(Path::new).contains(&found.path.as_path()), "a name goes before a process");
    drop(process);

    run("umount", names[0]);
    assert_eq!(find().by_cookie(cookie).unwrap().path, Path::new(names[1]));
    run("umount", names[1]);
    assert!(find().by_cookie(cookie).is_none());
}

#[test]
fn a_namespace_that_a_mount_elsewhere_keeps() {
    let _alone = alone();
    let (process, inode) = Process::start(
        "exec unshare --mount --propagation private sh -ec '
           mkdir \"/run/else where\"; touch \"/run/else where/it\"
           unshare --net sh -ec \"mount --bind /proc/self/ns/net \\\"/run/else where/it\\\"\"
           stat -Lc %i \"/run/else where/it\"; echo ready; exec sleep 99'",
    );
    let namespaces = find();
    let inode: u64 = inode.trim().parse().unwrap();
    let found = namespaces.found.iter().find(|found| found.identity.1 == inode).unwrap();
    assert_eq!(found.path, Path::new(&format!("/proc/{}/root/run/else where/it", process.id())));
    assert_eq!((found.processes, found.links.len()), (0, 1));
}

/// Only a process in another namespace keeps the namespace alive: the process has the namespace open.
#[test]
fn a_namespace_that_only_a_descriptor_keeps() {
    let _alone = alone();
    let names = ["/run/netns/first", "/run/netns/second"];
    let cookie = mounted(names);
    let (process, _) = Process::start(&format!("exec 7<{}; echo ready; exec sleep 99", names[0]));
    for name in names {
        run("umount", &format!("--lazy {name}"));
    }
    let namespaces = find();
    let found = namespaces.by_cookie(cookie).unwrap();
    assert_eq!(found.path, Path::new(&format!("/proc/{}/fd/7", process.id())));
    assert_eq!((found.processes, found.links.len(), namespaces.is_alive(cookie)), (0, 1, true));
    drop(process);
    assert!(!find().is_alive(cookie));
}

/// Only a socket keeps the namespace alive.
#[test]
fn a_namespace_that_only_a_socket_keeps() {
    let _alone = alone();
    let make = || {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            (Netlink::open().unwrap().cookie().unwrap(), socket)
        });
        made.join().unwrap()
    };
    let (cookie, socket) = make();
    let namespaces = find();
    assert!(namespaces.is_alive(cookie));
    assert!(namespaces.by_cookie(cookie).unwrap().path.starts_with(format!("/proc/{}/fd", std::process::id())));
    assert!(namespaces.held.is_empty(), "{:?}", namespaces.held);
    drop(socket);
    assert!(!find().is_alive(cookie));
}

/// A search reports a mounted namespace that it can't reach. Here another mount hides the namespace's mount.
#[test]
fn what_cant_be_reached_is_told() {
    let _alone = alone();
    let (process, inode) = Process::start(
        "exec unshare --mount --propagation private sh -ec '
           mkdir /run/hidden; touch /run/hidden/it
           unshare --net sh -ec \"mount --bind /proc/self/ns/net /run/hidden/it\"
           stat -Lc %i /run/hidden/it; mkfifo /run/fifo; mount --bind /run/fifo /run/hidden/it
           echo ready; exec sleep 99'",
    );
    let begun = Instant::now();
    let namespaces = find();
    assert!(begun.elapsed() < Duration::from_secs(30), "the FIFO was opened");
    let inode: u64 = inode.trim().parse().unwrap();
    assert!(!namespaces.found.iter().any(|found| found.identity.1 == inode));
    let path = format!("/proc/{}/root/run/hidden/it", process.id());
    let unseen = namespaces.unseen.iter().find(|unseen| unseen.path == Path::new(&path)).unwrap();
    assert_eq!(unseen.reason, "another mount hides this path");
    assert!(!namespaces.is_complete() && namespaces.gap().is_some());
}

#[test]
fn the_time_is_kept() {
    let _alone = alone();
    let begun = Instant::now();
    let namespaces = Namespaces::find(Duration::ZERO, BTreeSet::new()).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(namespaces.found.is_empty());
    assert!(namespaces.gap().unwrap().contains("the time is up"), "{:?}", namespaces.gap());
}

#[test]
fn processes_that_vanish_meanwhile_are_no_error() {
    let _alone = alone();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                run("unshare", "--net true");
            }
        });
        for _ in 0..20 {
            let namespaces = find();
            let own = format!("/proc/{}/", std::process::id());
            for unseen in &namespaces.unseen {
                assert!(
                    unseen.reason == "permission denied" || unseen.reason == "another mount hides this path",
                    "{unseen:?}"
                );
                assert!(!unseen.path.starts_with(&own), "{unseen:?}");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
