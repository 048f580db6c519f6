//! The two ways into the container's namespace: a thread, and descriptors that were opened in the namespace.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod common;

use common::{Container, isolated, link, veth, veth_in};
use nix::errno::Errno;
use postern_kernel::sysctl::Setting;
use postern_kernel::{Namespace, Netlink, Sysctl, Worker, sysctl};

fn conf(link: &str, key: &'static str) -> Sysctl {
    Sysctl::Ipv4Conf(link.to_owned(), key)
}

/// A setting that only the node's first namespace has.
fn first() -> Setting {
    Setting::new(["core", "dev_weight"]).unwrap()
}

/// Returns both ways into `namespace`.
fn ways(namespace: &Namespace) -> [Worker; 2] {
    let entered = Worker::enter(namespace, &Namespace::current().unwrap(), &[first()]).unwrap();
    [Worker::start(namespace, || Ok(())).unwrap(), entered.expect("this kernel needs no thread for it")]
}

#[test]
fn the_worker_is_inside_and_the_caller_stays_outside() {
    for way in 0..2 {
        isolated(move || inside_and_outside(way));
    }
}

fn inside_and_outside(way: usize) {
    let here = Namespace::current().unwrap();
    let container = Container::new();
    let worker = ways(&container.namespace).into_iter().nth(way).unwrap();
    let host = Netlink::open().unwrap();
    assert_ne!(worker.cookie().unwrap(), host.cookie().unwrap());
    assert_eq!(worker.cookie().unwrap(), worker.netlink().unwrap().cookie().unwrap());
    let again = Worker::start(&container.namespace, || Ok(())).unwrap();
    assert_eq!(again.cookie().unwrap(), worker.cookie().unwrap());
    assert!(Namespace::current().unwrap().same_as(&here).unwrap());
    assert!(!here.same_as(&container.namespace).unwrap());

    host.set_up(1).unwrap();
    assert!(!link(worker.netlink().unwrap(), "lo").up);
}

/// The worker also writes settings of the node's links. A link of the container may have the same name.
#[test]
fn a_setting_at_home_is_the_callers_own() {
    for way in 0..2 {
        isolated(move || at_home(way));
    }
}

fn at_home(way: usize) {
    let container = Container::new();
    let worker = ways(&container.namespace).into_iter().nth(way).unwrap();
    let key = conf("lo", "arp_notify");
    assert!(worker.sysctl_set_at_home(&key, "1").unwrap());
    assert_eq!(sysctl::get(&key).unwrap().as_deref(), Some("1"));
    assert_eq!(worker.sysctl_get(&key).unwrap().as_deref(), Some("0"));
    assert!(!worker.sysctl_set_at_home(&key, "1").unwrap());
}

#[test]
fn sysctls_belong_to_the_namespace_and_are_written_only_if_they_differ() {
    for way in 0..2 {
        isolated(move || sysctls(way));
    }
}

fn sysctls(way: usize) {
    let container = Container::new();
    let worker = ways(&container.namespace).into_iter().nth(way).unwrap();
    let host = Netlink::open().unwrap();
    veth(&host, "eth0.100", "other.1");
    veth_in(&container.namespace, worker.netlink().unwrap(), "eth0.100", "other.1");

    let key = conf("eth0.100", "arp_notify");
    assert_eq!(worker.sysctl_get(&key).unwrap().as_deref(), Some("0"));
    assert!(worker.sysctl_set(&key, "1").unwrap());
    assert!(!worker.sysctl_set(&key, "1").unwrap());
    assert_eq!(worker.sysctl_get(&key).unwrap().as_deref(), Some("1"));
    assert_eq!(sysctl::get(&key).unwrap().as_deref(), Some("0"));
    assert!(sysctl::set(&key, "1").unwrap());
    assert!(!sysctl::set(&key, "1").unwrap());

    let v6 = Sysctl::Ipv6Conf("eth0.100".to_owned(), "accept_ra");
    assert!(worker.sysctl_set(&v6, "0").unwrap());
    assert_eq!(sysctl::get(&v6).unwrap().as_deref(), Some("1"));

    for key in [Sysctl::Ipv4Forward, Sysctl::Ipv6Forwarding] {
        assert_eq!(sysctl::get(&key).unwrap().as_deref(), Some("0"), "{key}");
        assert!(sysctl::set(&key, "1").unwrap(), "{key}");
        assert_eq!(sysctl::get(&key).unwrap().as_deref(), Some("1"), "{key}");
        let inside = worker.sysctl_get(&key);
        match key {
            Sysctl::Ipv4Forward if way == 1 => assert!(inside.unwrap_err().to_string().contains("needs a thread")),
            _ => assert_eq!(inside.unwrap().as_deref(), Some("0"), "{key}"),
        }
    }
    // The link is made after the worker left the namespace.
    veth_in(&container.namespace, worker.netlink().unwrap(), "later", "other.2");
    assert!(worker.sysctl_set(&conf("later", "arp_notify"), "1").unwrap());
    assert_eq!(worker.sysctl_get(&conf("later", "arp_notify")).unwrap().as_deref(), Some("1"));
    assert_eq!(sysctl::get(&conf("later", "arp_notify")).unwrap(), None);
}

/// The kernel keeps each name that is looked up in a foreign namespace until that namespace ends, and later look-ups
/// are slower. Other processes may add names meanwhile, so one round without new names is enough.
#[test]
fn entering_leaves_no_names_in_the_kernel() {
    isolated(|| {
        const TIMES: i64 = 3_000;
        let (container, home) = (Container::new(), Namespace::current().unwrap());
        let names = || -> i64 {
            let state = std::fs::read_to_string("/proc/sys/fs/dentry-state").unwrap();
            state.split_whitespace().next().unwrap().parse().unwrap()
        };
        let more = || {
            let before = names();
            for _ in 0..TIMES {
                Worker::enter(&container.namespace, &home, &[]).unwrap().expect("no thread is needed");
            }
            names() - before
        };
        let rounds: Vec<i64> = std::iter::repeat_with(more).take(3).collect();
        assert!(
            rounds.iter().any(|more| *more < TIMES / 2),
            "the kernel keeps {rounds:?} more names after {TIMES} entries each"
        );
    });
}

#[test]
fn absent_keys_and_bad_values_are_told_apart() {
    isolated(|| {
        let container = Container::new();
        ways(&container.namespace).iter().for_each(tell_apart);
    });
}

fn tell_apart(worker: &Worker) {
    let absent = conf("eth7", "arp_notify");
    assert_eq!(worker.sysctl_get(&absent).unwrap(), None);
    let error = worker.sysctl_set(&absent, "1").unwrap_err();
    assert!(error.is(Errno::ENOENT), "{error}");
    assert_eq!(error.to_string(), "write sysctl net/ipv4/conf/eth7/arp_notify: no such file or directory");
    assert!(worker.sysctl_set(&conf("lo", "arp_notify"), "x").unwrap_err().is(Errno::EINVAL));
    assert!(worker.sysctl_get(&conf("../lo", "arp_notify")).unwrap_err().is(Errno::EINVAL));
}

#[test]
fn settings_of_links_need_no_thread() {
    isolated(|| {
        let container = Container::new();
        let [thread, entered] = ways(&container.namespace);
        let host = Netlink::open().unwrap();
        veth(&host, "eth0", "other");
        veth_in(&container.namespace, entered.netlink().unwrap(), "eth0", "other");
        let setting = Setting::new(["ipv4", "conf", "eth0", "arp_filter"]).unwrap();
        entered.setting_write(&setting, "1").unwrap();
        for worker in [&thread, &entered] {
            assert_eq!(worker.setting_read(&setting).unwrap(), "1");
            let found = worker.setting_look(&setting).unwrap().unwrap();
            assert!(found.is_file && found.readable && found.writable);
            assert_eq!(worker.setting_look(&first()).unwrap(), None);
            let absent = Setting::new(["ipv4", "conf", "eth7", "arp_filter"]).unwrap();
            assert_eq!(worker.setting_look(&absent).unwrap(), None);
            assert!(worker.setting_read(&absent).unwrap_err().is(Errno::ENOENT));
            assert!(worker.setting_write(&absent, "1").unwrap_err().is(Errno::ENOENT));
        }
        assert_eq!(std::fs::read_to_string(format!("/proc/sys/{setting}")).unwrap(), "0\n");
        // Without a thread, the worker opens only settings of links. Other directories may lead to the caller's
        // namespace.
        for parts in [&["core", "somaxconn"][..], &["ipv4", "ip_forward"], &["ipv4", "conf"]] {
            let other = Setting::new(parts.iter().copied()).unwrap();
            assert!(
                entered
                    .setting_look(&other)
                    .unwrap_err()
                    .to_string()
                    .ends_with("this setting needs a thread in the link's namespace")
            );
            assert!(entered.setting_read(&other).is_err() && entered.setting_write(&other, "1").is_err());
        }
    });
}

/// A descriptor that leads into the caller's own namespace would set the node's sysctls.
#[test]
fn a_namespace_that_is_the_callers_own_needs_a_thread() {
    isolated(|| {
        let here = Namespace::current().unwrap();
        assert!(Worker::enter(&Namespace::current().unwrap(), &here, &[]).unwrap().is_none());
    });
}

#[test]
fn the_sysctls_of_a_namespace_that_is_gone_are_absent() {
    isolated(|| {
        let container = Container::new();
        let worker = ways(&container.namespace).into_iter().nth(1).unwrap();
        let held = worker.netlink().unwrap().cookie().unwrap();
        let host = Netlink::open().unwrap();
        host.set_up(1).unwrap();
        veth(&host, "eth0", "other");
        // The worker's own socket keeps the container's namespace alive, and the open files stay valid.
        drop(container);
        assert_eq!(worker.cookie().unwrap(), held);
        assert_eq!(worker.sysctl_get(&conf("eth0", "arp_notify")).unwrap(), None);
        assert!(worker.sysctl_set(&conf("eth0", "arp_notify"), "1").unwrap_err().is(Errno::ENOENT));
        assert_eq!(sysctl::get(&conf("eth0", "arp_notify")).unwrap().as_deref(), Some("0"));
    });
}

#[test]
fn what_is_no_network_namespace_can_be_opened_but_not_entered() {
    isolated(|| {
        for path in ["/proc/self/ns/mnt", "/proc/self/status"] {
            for worker in ways(&Namespace::open(path).unwrap()) {
                for error in [worker.netlink().map(drop).unwrap_err(), worker.cookie().map(drop).unwrap_err()] {
                    assert!(error.is(Errno::EINVAL) && error.object == path, "{error}");
                }
                assert!(worker.sysctl_get(&Sysctl::Ipv4Forward).unwrap_err().is(Errno::EINVAL));
            }
        }
    });
}
