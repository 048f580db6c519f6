//! The thread in the container's namespace.

mod common;

use common::{Container, isolated, link, veth, veth_in};
use nix::errno::Errno;
use postern_kernel::{Namespace, Netlink, Sysctl, Worker, sysctl};

fn conf(link: &str, key: &'static str) -> Sysctl {
    Sysctl::Ipv4Conf { link: link.to_owned(), key }
}

#[test]
fn the_worker_is_inside_and_the_caller_stays_outside() {
    isolated(|| {
        let here = Namespace::current().unwrap();
        let container = Container::new();
        let worker = Worker::start(&container.namespace, || Ok(())).unwrap();
        let host = Netlink::open().unwrap();
        assert_ne!(worker.cookie().unwrap(), host.cookie().unwrap());
        assert_eq!(worker.cookie().unwrap(), worker.netlink().unwrap().cookie().unwrap());
        let again = Worker::start(&container.namespace, || Ok(())).unwrap();
        assert_eq!(again.cookie().unwrap(), worker.cookie().unwrap());
        assert!(Namespace::current().unwrap().same_as(&here).unwrap());
        assert!(!here.same_as(&container.namespace).unwrap());

        host.set_up(1).unwrap();
        assert!(!link(worker.netlink().unwrap(), "lo").up);
    });
}

#[test]
fn sysctls_belong_to_the_namespace_and_are_written_only_if_they_differ() {
    isolated(|| {
        let container = Container::new();
        let worker = Worker::start(&container.namespace, || Ok(())).unwrap();
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

        let v6 = Sysctl::Ipv6Conf { link: "eth0.100".to_owned(), key: "accept_ra" };
        assert!(worker.sysctl_set(&v6, "0").unwrap());
        assert_eq!(sysctl::get(&v6).unwrap().as_deref(), Some("1"));

        for key in [Sysctl::Ipv4Forward, Sysctl::Ipv6Forwarding] {
            assert_eq!(sysctl::get(&key).unwrap().as_deref(), Some("0"), "{key}");
            assert!(sysctl::set(&key, "1").unwrap(), "{key}");
            assert_eq!(sysctl::get(&key).unwrap().as_deref(), Some("1"), "{key}");
            assert_eq!(worker.sysctl_get(&key).unwrap().as_deref(), Some("0"), "{key}");
        }
    });
}

#[test]
fn absent_keys_and_bad_values_are_told_apart() {
    isolated(|| {
        let container = Container::new();
        let worker = Worker::start(&container.namespace, || Ok(())).unwrap();
        let absent = conf("eth7", "arp_notify");
        assert_eq!(worker.sysctl_get(&absent).unwrap(), None);
        let error = worker.sysctl_set(&absent, "1").unwrap_err();
        assert!(error.is(Errno::ENOENT), "{error}");
        assert_eq!(error.to_string(), "write sysctl net/ipv4/conf/eth7/arp_notify: no such file or directory");
        assert!(worker.sysctl_set(&conf("lo", "arp_notify"), "x").unwrap_err().is(Errno::EINVAL));
        assert!(worker.sysctl_get(&conf("../lo", "arp_notify")).unwrap_err().is(Errno::EINVAL));
    });
}

#[test]
fn what_is_no_network_namespace_can_be_opened_but_not_entered() {
    isolated(|| {
        for path in ["/proc/self/ns/mnt", "/proc/self/status"] {
            let worker = Worker::start(&Namespace::open(path).unwrap(), || Ok(())).unwrap();
            for error in [worker.netlink().map(drop).unwrap_err(), worker.cookie().map(drop).unwrap_err()] {
                assert!(error.is(Errno::EINVAL) && error.object == path, "{error}");
            }
            assert!(worker.sysctl_get(&Sysctl::Ipv4Forward).unwrap_err().is(Errno::EINVAL));
        }
    });
}
