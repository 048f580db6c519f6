//! A run continues after a single error, and no later run acts wrongly because of this error. Each test names the calls
//! that fail, one after the other.

use crate::faults::fault::{Fault, TRACE, of_run, tracing};
use crate::faults::place::{Outcome, Place, RESTORATIONS, Restoration};
use crate::faults::scenarios::{self, Scenario};
use anyhow::{Context, Result, anyhow, ensure};
use postern_tests::dhcp::{lease, play};
use postern_tests::proof::PRIVATE_ETC;
use postern_tests::{Answer, Call, Node, merge, plugin_bin};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

fn scenario(name: &str) -> Result<Scenario> {
    scenarios::all().into_iter().find(|scenario| scenario.name == name).ok_or(anyhow!("no scenario {name}"))
}

/// A node with two containers. By default, their network has the bridge `br9`, with gateways.
struct Bridged {
    node: Node,
}

impl Bridged {
    fn new() -> Result<Self> {
        let node = Node::new()?;
        ["c1", "c2"].iter().try_for_each(|container| node.add_container(container))?;
        node.sh(PRIVATE_ETC)?;
        Ok(Self { node })
    }

    fn call_under(&self, fault: &[String], verb: &str, plugin: &str, container: &str, patch: &Value) -> Result<Answer> {
        let mut config = json!({
            "cniVersion": "1.1.0", "name": "net", "type": plugin, "bridge": "br9", "isGateway": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
        });
        merge(&mut config, patch);
        let call = Call::new(&plugin_bin()?, plugin, verb, config.to_string());
        self.node.call_under(fault, &call.attachment(container, &self.node.netns(container), "eth0"))
    }

    fn call(&self, verb: &str, plugin: &str, container: &str, patch: &Value) -> Result<Value> {
        self.call_under(&[], verb, plugin, container, patch)?.success().with_context(|| format!("{verb} of {plugin}"))
    }

    /// Returns the errors that a run can have in these system calls. `run` makes the run.
    fn errors(&self, calls: &[&str], run: impl FnOnce(&[String]) -> Result<Answer>) -> Result<Vec<Fault>> {
        run(&tracing())?;
        let [_, errors, _] = of_run(&fs::read_to_string(self.node.path(TRACE))?, &BTreeMap::new(), false);
        let is_meant = |fault: &Fault| matches!(fault, Fault::Error { call, .. } if calls.contains(&call.as_str()));
        let errors: Vec<Fault> = errors.into_iter().filter(is_meant).collect();
        ensure!(!errors.is_empty(), "the run makes no call of {calls:?}");
        Ok(errors)
    }
}

/// A device that returns to the node is up, even if reading the kernel's state failed once.
#[test]
fn a_device_that_comes_home_is_up() -> Result<()> {
    let mut place = Place::new(&scenario("host-device")?, "DEL")?;
    for (call, errno) in [("readlink", "EIO"), ("bpf", "ENOMEM")] {
        for at in 1..=4 {
            let fault = Fault::Error { call: call.to_owned(), errno, at };
            place.run(&fault, Restoration::Del).with_context(|| fault.to_string())?;
        }
    }
    Ok(())
}

/// If an ADD fails to read a device's setting once, it reads the setting again. Otherwise DEL would not know the old
/// value, and the device would stay down.
#[test]
fn a_setting_that_was_not_read_at_once_is_put_back() -> Result<()> {
    let mut place = Place::new(&scenario("host-device L2")?, "ADD")?;
    let mut succeeded = 0;
    for at in 1..=45 {
        let fault = Fault::Error { call: "read".to_owned(), errno: "EIO", at };
        let outcome = place.run(&fault, Restoration::Del).with_context(|| fault.to_string())?;
        succeeded += usize::from(outcome == Outcome::Succeeded);
    }
    ensure!(succeeded > 10, "only {succeeded} ADDs succeeded: no fault hit the read of a setting");
    Ok(())
}

/// DEL of loopback sets `lo` down, although one request for the container's links fails.
#[test]
fn loopback_is_down_after_a_question_that_failed() -> Result<()> {
    let mut place = Place::new(&scenario("loopback")?, "DEL")?;
    for at in 1..=6 {
        let fault = Fault::Error { call: "sendto".to_owned(), errno: "ENOMEM", at };
        place.run(&fault, Restoration::Gc).with_context(|| fault.to_string())?;
    }
    Ok(())
}

/// A run may have no descriptor for the DHCP service's socket, or fail to look at the socket. Such a failure says
/// nothing about the service, so the lease stays in the record, and GC releases the lease.
#[test]
fn a_lease_is_not_forgotten() -> Result<()> {
    let mut place = Place::new(&scenario("bridge + dhcp")?, "DEL")?;
    for (call, errno, last) in [("socket", "EMFILE", 4), ("lstat", "EIO", 40)] {
        let mut concerned = 0;
        for at in 1..=last {
            let fault = Fault::Error { call: call.to_owned(), errno, at };
            concerned += usize::from(place.run(&fault, Restoration::Gc).context(fault)? != Outcome::Succeeded);
        }
        ensure!(concerned > 0, "no DEL was affected by a failing {call}");
    }
    Ok(())
}

/// If a write to the record fails, DEL still knows that the lease belongs to the address. No DEL releases the lease
/// before it removes the address.
#[test]
fn a_lost_note_gives_no_lease_back_early() -> Result<()> {
    let mut place = Place::new(&scenario("bridge + dhcp")?, "ADD")?;
    let mut complained = 0;
    for at in 1..=16 {
        let fault = Fault::Error { call: "pwrite64".to_owned(), errno: "ENOSPC", at };
        for way in RESTORATIONS {
            let outcome = place.run(&fault, way).with_context(|| fault.to_string())?;
            complained += usize::from(outcome == Outcome::Complained);
        }
    }
    ensure!(complained > 0, "no ADD continued after a failed note");
    Ok(())
}

/// If a record can't be read, ADD does not assume that the record claims no port of the node.
#[test]
fn a_port_does_not_lead_to_two_containers() -> Result<()> {
    let place = Bridged::new()?;
    let ports =
        json!({"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}});
    let of = |container: &str| -> Result<Value> {
        let mut config =
            json!({"backend": "nftables", "prevResult": place.call("ADD", "bridge", container, &json!({}))?});
        merge(&mut config, &ports);
        Ok(config)
    };
    let (first, second) = (of("c1")?, of("c2")?);
    place.call("ADD", "portmap", "c1", &first)?;
    let add = |fault: &[String]| place.call_under(fault, "ADD", "portmap", "c2", &second);
    for fault in place.errors(&["open", "openat", "openat2", "read", "pread64", "fstat", "fcntl"], add)? {
        let answer = add(&fault.wrapper())?;
        ensure!(answer.status == 1, "{fault}: both containers have the port: {answer:?}");
    }
    Ok(())
}

/// A DHCP server offers an address that another attachment has. The first ADD fills the index of addresses. If this
/// ADD could not read a record, an index without the record would never show the record's address.
#[test]
fn an_address_is_not_given_twice() -> Result<()> {
    let place = Bridged::new()?;
    play(&place.node, |ask| match ask.get("acquire").or(ask.get("check")) {
        Some(_) => lease("10.9.0.41/24", "10.9.0.1"),
        None => json!("done"),
    })?;
    let dhcp = json!({"isGateway": false, "ipam": {"type": "dhcp"}});
    place.call("ADD", "bridge", "c1", &dhcp)?;
    let add = |fault: &[String]| place.call_under(fault, "ADD", "bridge", "c2", &dhcp);
    let faults = place.errors(&["open", "openat", "openat2", "read", "pread64", "fstat", "fcntl"], add)?;
    place.node.sh("test -d /run/postern/addresses")?;
    for fault in faults {
        place.node.sh("rm -rf /run/postern/addresses")?;
        for (when, fault) in [("with", fault.wrapper()), ("after", Vec::new())] {
            let answer = add(&fault)?;
            ensure!(answer.status == 1, "{when} {fault:?}: both containers have the address: {answer:?}");
        }
    }
    Ok(())
}

/// If a route can't be read, ADD does not assume that there is no route: the node reaches a port at 127.0.0.1, or the
/// ADD fails. DEL forgets tracked connections to the address before another container gets the address.
#[test]
fn ports_of_localhost_and_their_connections() -> Result<()> {
    let place = Bridged::new()?;
    let result = place.call("ADD", "bridge", "c1", &json!({}))?;
    let ports = json!([{"hostPort": 8053, "containerPort": 53, "protocol": "udp"}]);
    let config = json!({"backend": "nftables", "prevResult": result, "runtimeConfig": {"portMappings": ports}});
    let file = "/proc/sys/net/ipv4/conf/br9/route_localnet";
    let run = |verb: &str, fault: &[String]| place.call_under(fault, verb, "portmap", "c1", &config);
    let before = || {
        run("DEL", &[])?.success()?;
        place.node.sh(&format!("echo 0 > {file}"))
    };
    // Makes the objects that attachments share.
    run("ADD", &[])?.success()?;
    before()?;
    for fault in place.errors(&["sendto", "recvfrom"], |fault| run("ADD", fault))? {
        before()?;
        if run("ADD", &fault.wrapper())?.status == 0 {
            ensure!(place.node.sh(&format!("cat {file}"))?.trim() == "1", "{fault}: 127.0.0.1 is not forwarded");
        }
    }
    run("DEL", &[])?.success()?;
    run("ADD", &[])?.success()?;
    for fault in place.errors(&["sendto", "recvfrom"], |fault| run("DEL", fault))? {
        run("ADD", &[])?.success()?;
        let answer = run("DEL", &fault.wrapper())?;
        ensure!(!answer.stderr.contains("tracked connections"), "{fault}: {}", answer.stderr);
        run("DEL", &[])?.success()?;
    }
    Ok(())
}

/// DEL finds a renamed link by its index. An ADD that can't note the index fails.
#[test]
fn a_renamed_link_is_found() -> Result<()> {
    let place = Bridged::new()?;
    place.node.sh("ip link add parent9 type veth peer name wire9; ip link set parent9 up; ip link set wire9 up")?;
    let config = json!({"master": "parent9"});
    let add = |fault: &[String]| place.call_under(fault, "ADD", "macvlan", "c1", &config);
    for fault in place.errors(&["pwrite64"], add)? {
        place.call("DEL", "macvlan", "c1", &config)?;
        if add(&fault.wrapper())?.status == 0 {
            place.node.sh_in(
                "c1",
                "ip link set eth0 down; ip link set eth0 name other0; ip link set other0 address 02:00:00:00:00:99",
            )?;
        }
        place.call("DEL", "macvlan", "c1", &config)?;
        let left = place.node.sh_in("c1", "ip -o link show type macvlan")?;
        ensure!(left.is_empty(), "{fault}: the lease is released, and the container still has {left}");
    }
    Ok(())
}

/// A bridge that the kernel made has a note, even if the kernel's answer was lost. So `postern gc --node` knows the
/// bridge.
#[test]
fn a_bridge_is_noted() -> Result<()> {
    let place = Bridged::new()?;
    let add = |fault: &[String]| place.call_under(fault, "ADD", "bridge", "c1", &json!({}));
    for fault in place.errors(&["sendto", "recvfrom"], add)? {
        place.call("DEL", "bridge", "c1", &json!({}))?;
        place.node.sh("ip link delete br9 2> /dev/null || true; rm -f /run/postern/node/bridge-*")?;
        let answer = add(&fault.wrapper())?;
        let is_there = !place.node.sh("ip -o link show br9 2> /dev/null || true")?.is_empty();
        let notes = place.node.sh("cat /run/postern/node/bridge-* 2> /dev/null || true")?;
        ensure!(!is_there || !notes.is_empty(), "{fault}: no note of the bridge: {answer:?}");
        let is_complete =
            answer.status != 0 || notes.contains("\"index\"") || answer.stderr.contains("postern gc --node");
        ensure!(is_complete, "{fault}: the note has no index, and no message says so: {notes} {answer:?}");
    }
    Ok(())
}

/// A run reads the leases again if a native plugin made the index of leases out of date. The run takes
/// each lease's boot from the old index.
#[test]
fn leases_keep_their_boot() -> Result<()> {
    /// The size of an entry in the index.
    const UNIT: usize = 64;
    let place = Bridged::new()?;
    let index = || -> Result<Vec<u8>> {
        let path = place.node.sh("find /var/lib /run -name '*.leases'")?;
        Ok(fs::read(place.node.path(path.trim()))?)
    };
    place.call("ADD", "bridge", "c1", &json!({}))?;
    let lease = index()?.chunks(UNIT).skip(1).find(|entry| entry.iter().any(|byte| *byte != 0)).map(<[u8]>::to_vec);
    let lease = lease.context("the index is empty")?;
    let outdate = "cd /var/lib/cni/networks/net; printf other > 10.9.0.99; rm 10.9.0.99";
    place.node.sh(outdate)?;
    let add = |fault: &[String]| place.call_under(fault, "ADD", "bridge", "c2", &json!({}));
    for fault in place.errors(&["open", "openat", "openat2", "read", "pread64", "fstat"], add)? {
        place.call("DEL", "bridge", "c2", &json!({}))?;
        place.node.sh(outdate)?;
        add(&fault.wrapper())?;
        ensure!(index()?.chunks(UNIT).any(|entry| entry == lease), "{fault}: the index has lost the lease's boot");
    }
    Ok(())
}

/// The native flannel's file contains the delegated configuration. If one read of the file fails, DEL still
/// removes the delegate's objects.
#[test]
fn what_a_native_flannel_delegated_goes() -> Result<()> {
    let place = Bridged::new()?;
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
    let written = json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br9", "ipam": ipam});
    let attach = || -> Result<()> {
        place.call("ADD", "bridge", "c1", &json!({"cniVersion": "1.0.0"}))?;
        place.node.sh("mkdir -p -m 700 /var/lib/cni/flannel")?;
        Ok(fs::write(place.node.path("/var/lib/cni/flannel/c1"), written.to_string())?)
    };
    let del = |fault: &[String]| place.call_under(fault, "DEL", "flannel", "c1", &json!({"cniVersion": "1.0.0"}));
    attach()?;
    let mut ran = 0;
    for fault in place.errors(&["open", "openat", "openat2", "read", "fstat", "lstat"], del)? {
        attach()?;
        let answer = del(&fault.wrapper())?;
        // If a plugin's code can't be read, DEL has only the record.
        if answer.status == 0 && !answer.stderr.contains("flannel can't be run") {
            ran += 1;
            let left = place.node.sh_in("c1", "ip -o link show type veth")?;
            ensure!(left.is_empty(), "{fault}: the delegate's link is left: {left} {answer:?}");
        } else {
            del(&[])?.success()?;
        }
    }
    ensure!(ran > 0, "no DEL succeeded with flannel's code");
    Ok(())
}

/// The owner of a directory counts, even if a look at the directory fails once.
#[test]
fn a_directory_of_another_user_holds_no_leases() -> Result<()> {
    let place = Bridged::new()?;
    place.node.sh("mkdir /run/other; chmod 777 /run/other")?;
    let config = json!({"ipam": {"dataDir": "/run/other"}});
    let add = |fault: &[String]| place.call_under(fault, "ADD", "bridge", "c1", &config);
    for fault in place.errors(&["lstat", "stat", "fstat"], add)? {
        let answer = add(&fault.wrapper())?;
        ensure!(answer.status == 1, "{fault}: leases are kept where everybody can write: {answer:?}");
        let left = place.node.sh("ls -A /run/other")?;
        ensure!(left.is_empty(), "{fault}: {left}");
    }
    Ok(())
}

/// Each run uses the same state directory, even if a look at the directory fails.
#[test]
fn state_does_not_move() -> Result<()> {
    let place = Bridged::new()?;
    place.node.sh("mkdir -m 700 /run/user9")?;
    let add = |fault: &[String]| {
        let config = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br9",
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
        });
        let call = Call::new(&plugin_bin()?, "bridge", "ADD", config.to_string()).env("XDG_RUNTIME_DIR", "/run/user9");
        place.node.call_under(fault, &call.attachment("c1", &place.node.netns("c1"), "eth0"))
    };
    for fault in place.errors(&["access", "stat"], add)? {
        place.call("DEL", "bridge", "c1", &json!({}))?;
        add(&fault.wrapper())?;
        let moved = place.node.sh("find /run/user9 -mindepth 1")?;
        ensure!(moved.is_empty(), "{fault}: {moved}");
    }
    Ok(())
}
