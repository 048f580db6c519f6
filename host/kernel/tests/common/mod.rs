//! Helpers for this crate's tests. The tests run in the private namespaces of the cargo runner, and each in its own
//! network namespace.

#![allow(dead_code, reason = "every test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use nix::sched::{CloneFlags, unshare};
use postern_kernel::{Link, Namespace, Netlink, VethSpec};
use serde_json::Value;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

fn enter_new() {
    assert_eq!(std::env::var("POSTERN_PRIVATE").as_deref(), Ok("1"), "run these tests through cargo's runner");
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
}

/// Runs `test` on a thread in a network namespace that is new and empty.
pub fn isolated(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(|| {
        enter_new();
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// A second namespace, for the container. It lives as long as this value.
pub struct Container {
    pub namespace: Namespace,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Container {
    pub fn new() -> Self {
        let (opened, namespace) = channel();
        let (end, ended) = channel::<()>();
        let thread = thread::spawn(move || {
            enter_new();
            opened.send(Namespace::current().unwrap()).unwrap();
            let _ = ended.recv();
        });
        Self { namespace: namespace.recv().unwrap(), end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.end.take();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Returns the output of a program, which must succeed. The program runs in the calling thread's namespace.
pub fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program).args(arguments.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the output of `ip -d -j`.
pub fn ip(arguments: &str) -> Value {
    let text = run("ip", &format!("-d -j {arguments}"));
    serde_json::from_str(if text.trim().is_empty() { "[]" } else { &text }).unwrap()
}

/// Makes a veth pair in the calling thread's namespace, and sets both ends up. `netlink` must belong to this namespace.
pub fn veth(netlink: &Netlink, name: &str, peer_name: &str) -> (Link, Link) {
    veth_in(&Namespace::current().unwrap(), netlink, name, peer_name)
}

/// Makes a veth pair in `namespace`, and sets both ends up. `netlink` must belong to this namespace.
pub fn veth_in(namespace: &Namespace, netlink: &Netlink, name: &str, peer_name: &str) -> (Link, Link) {
    let peer_mac = postern_kernel::random_mac();
    let spec = VethSpec { name, mtu: None, mac: None, peer_name, peer_mac, peer_ns: namespace.fd() };
    netlink.create_veth(&spec).unwrap();
    [name, peer_name]
        .map(|name| {
            let link = link(netlink, name);
            netlink.set_up(link.index).unwrap();
            link
        })
        .into()
}

/// Returns the link with this name, which must exist.
pub fn link(netlink: &Netlink, name: &str) -> Link {
    netlink.link_by_name(name).unwrap().unwrap()
}
