//! Taps against a real kernel.

mod common;

use common::{Container, isolated, link, run};
use nix::errno::Errno;
use postern_kernel::{TapSpec, Worker};
use std::io::Write;

const MAC: [u8; 6] = [0x02, 0, 0x5e, 0x10, 0, 1];

fn spec() -> TapSpec {
    TapSpec {
        name: "eth0".to_owned(),
        mac: MAC,
        owner: Some(0),
        group: None,
        multi_queue: false,
        packet_information: false,
        vnet_header: false,
    }
}

/// True if this node has the file that taps need.
fn has_taps() -> bool {
    let here = std::fs::metadata(postern_kernel::tap::TUN).is_ok();
    if !here {
        let test = std::thread::current();
        // The line bypasses the test program's output capture: `tests/suite` counts skipped tests.
        let name = test.name().unwrap_or("test");
        let _ = writeln!(std::io::stdout(), "SKIPPED: {name}: there is no {}", postern_kernel::tap::TUN);
    }
    here
}

#[test]
fn a_tap_stays_only_if_it_is_kept() {
    if !has_taps() {
        return;
    }
    isolated(|| {
        let container = Container::new();
        let start = || Worker::start_for(&container.namespace, Some(None), || Ok(())).unwrap();
        let look = Worker::start(&container.namespace, || Ok(())).unwrap();
        let worker = start();
        worker.make_tap(&spec()).unwrap();
        let made = link(look.netlink().unwrap(), "eth0");
        assert_eq!((made.kind.as_str(), made.mac, made.up), ("tun", Some(MAC), false));
        // The worker has one descriptor, for one tap.
        assert!(worker.make_tap(&TapSpec { name: "eth1".to_owned(), ..spec() }).unwrap_err().is(Errno::EBADFD));
        drop(worker);
        for _ in 0..100 {
            if look.netlink().unwrap().link_by_name("eth0").unwrap().is_none() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(look.netlink().unwrap().link_by_name("eth0").unwrap(), None);

        let worker = start();
        assert!(worker.keep_tap().unwrap_err().is(Errno::EBADFD));
        worker.make_tap(&spec()).unwrap();
        worker.keep_tap().unwrap();
        assert!(worker.keep_tap().unwrap_err().is(Errno::EBADFD));
        drop(worker);
        let kept = link(look.netlink().unwrap(), "eth0");
        assert_eq!((kept.kind.as_str(), kept.mac), ("tun", Some(MAC)));

        // An existing tap is never used or changed.
        let busy = start().make_tap(&TapSpec { mac: [0x02, 0, 0x5e, 0x10, 0, 2], ..spec() }).unwrap_err();
        assert!(busy.is(Errno::EBUSY), "{busy}");
        assert_eq!(link(look.netlink().unwrap(), "eth0"), kept);
    });
}

#[test]
fn failures_name_what_failed_and_leave_nothing() {
    if !has_taps() {
        return;
    }
    isolated(|| {
        let container = Container::new();
        let look = Worker::start(&container.namespace, || Ok(())).unwrap();
        // The kernel numbers links one after the other, so the next number shows whether a link was made meanwhile.
        let next = || {
            let worker = Worker::start_for(&container.namespace, Some(None), || Ok(())).unwrap();
            worker.make_tap(&spec()).unwrap();
            let index = link(look.netlink().unwrap(), "eth0").index;
            drop(worker);
            while look.netlink().unwrap().link_by_name("eth0").unwrap().is_some() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            index
        };
        let first = next();
        for (changed, operation) in [
            (TapSpec { owner: Some(1000), ..spec() }, "set owner of tap"),
            (TapSpec { owner: Some(0), group: Some(1000), ..spec() }, "set group of tap"),
        ] {
            let worker = Worker::start_for(&container.namespace, Some(None), || Ok(())).unwrap();
            let error = worker.make_tap(&changed).unwrap_err();
            assert!(error.is(Errno::EINVAL) && error.operation == operation, "{error}");
            assert!(error.message.ends_with("the user namespace of the runtime does not have this ID"), "{error}");
        }
        assert_eq!(next(), first + 1, "a tap was made for a user that is not there");
        for (changed, errno, operation) in [
            (TapSpec { owner: Some(1000), ..spec() }, Errno::EINVAL, "set owner of tap"),
            (TapSpec { owner: Some(u32::MAX), ..spec() }, Errno::EINVAL, "set owner of tap"),
            (TapSpec { group: Some(1000), ..spec() }, Errno::EINVAL, "set group of tap"),
            (TapSpec { mac: [1, 0, 0x5e, 0, 0, 1], ..spec() }, Errno::EADDRNOTAVAIL, "set address of"),
            (TapSpec { name: "tap%d".to_owned(), ..spec() }, Errno::EINVAL, "create tap"),
            (TapSpec { name: "x".repeat(16), ..spec() }, Errno::EINVAL, "create tap"),
        ] {
            let worker = Worker::start_for(&container.namespace, Some(None), || Ok(())).unwrap();
            let error = worker.make_tap(&changed).unwrap_err();
            assert!(error.is(errno) && error.operation == operation, "{error}");
            assert_eq!(look.netlink().unwrap().links().unwrap().len(), 1, "{error}");
        }
        // A thread that was started without `tap` has no descriptor.
        assert!(look.make_tap(&spec()).unwrap_err().is(Errno::EBADFD));
        run("mount", "-t tmpfs none /dev/net");
        let worker = Worker::start_for(&container.namespace, Some(None), || Ok(())).unwrap();
        let error = worker.make_tap(&spec()).unwrap_err();
        assert!(error.is(Errno::ENOENT) && error.operation == "open", "{error}");
        run("umount", "/dev/net");
    });
}
