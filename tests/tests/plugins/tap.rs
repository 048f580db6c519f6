//! tap on a node: a program in the container gets the frames of its tap, with one queue or several, alone or as a port
//! of a bridge. Other tests of this file are about errors of ADD. `inner_links.rs` tests plans, accounts, failures and
//! GC of taps.

#![allow(clippy::indexing_slicing, reason = "absent keys of a JSON object are null")]

use anyhow::{Context, Result, ensure};
use postern_tests::kernel::has_or_skips;
use postern_tests::proof::{Refusal, each};
use postern_tests::{Names, Network, Node, compare, plugin_bin};
use serde_json::{Value, json};
use std::fs;

/// The program that opens the tap. It has no more rights than a user's program.
const USER: &str =
    concat!("setpriv --bounding-set -all --inh-caps -all --no-new-privs ", env!("CARGO_BIN_EXE_postern-tap-user"));

/// A node with a container, or `None` on a kernel without taps.
struct Place {
    node: Node,
}

impl Place {
    fn new() -> Result<Option<Self>> {
        if !has_or_skips("tap")? {
            return Ok(None);
        }
        let node = Node::new()?;
        node.add_container("c1")?;
        node.sh_in("c1", "ip link set lo up")?;
        Ok(Some(Self { node }))
    }

    /// A network with one fixed address.
    fn net(&self, patch: &Value) -> Result<Network> {
        let ipam = json!({"type": "static", "addresses": [{"address": "10.8.0.2/24"}]});
        Ok(Network::new(&self.node, &json!({"name": "taps", "type": "tap", "ipam": ipam}))?.with(patch))
    }

    /// Returns iproute2's description of the link.
    fn shown(&self) -> Result<Value> {
        let [shown]: [Value; 1] = serde_json::from_str(&self.node.sh_in("c1", "ip -j -d link show dev eth0")?)?;
        Ok(shown)
    }

    /// Runs the program with this number of queues. Returns true if a ping through the tap was answered.
    fn answers(&self, queues: u32) -> Result<bool> {
        let script = format!(
            "{USER} eth0 {queues} 10.8.0.9 20 > /run/tap-user 2>&1 & user=$!
             for t in 1 2 3 4 5 6 7 8 9 10; do
               kill -0 $user 2> /dev/null || break
               if ping -c 1 -W 1 10.8.0.9 > /dev/null 2>&1; then echo yes; break; fi; sleep .1
             done
             kill $user 2> /dev/null || true; wait $user 2> /dev/null || true"
        );
        Ok(self.node.sh_in("c1", &script)? == "yes\n")
    }

    fn snapshot(&self) -> Result<Value> {
        let mut seen = self.node.snapshot(&["c1"], &mut Names::new(""))?;
        seen["files"] = Value::Null;
        Ok(seen)
    }
}

fn refused(net: &Network, code: u64, words: &str) -> Result<()> {
    Refusal::of(&net.call("ADD", "c1")?)?.expect(code, words)
}

/// Calls DEL without the result of the ADD.
fn del(net: &Network) -> Result<()> {
    net.attachment("c1").del()
}

#[test]
fn a_program_has_the_frames_of_its_tap() -> Result<()> {
    let Some(place) = Place::new()? else { return Ok(()) };
    each(
        [json!({}), json!({"owner": 0}), json!({"group": 0}), json!({"owner": 0, "group": 0, "mtu": 1400})],
        ToString::to_string,
        |keys| {
            let net = place.net(keys)?;
            net.add("c1")?;
            ensure!(place.answers(1)?, "no answer; the program said {}", place.node.sh("cat /run/tap-user")?);
            // The network allows one queue, so only one descriptor at a time.
            ensure!(!place.answers(2)?, "a tap with one queue was opened with two queues");
            // The tap stays when its program ends, and the next program can open it.
            ensure!(place.answers(1)?, "no second answer");
            del(&net)?;
            ensure!(!place.node.sh_in("c1", "ip -o link")?.contains("eth0"), "the tap stays");
            Ok(())
        },
    )
}

#[test]
fn several_queues_are_open_at_once() -> Result<()> {
    let Some(place) = Place::new()? else { return Ok(()) };
    let net = place.net(&json!({"multiQueue": true, "owner": 0}))?;
    net.add("c1")?;
    ensure!(place.answers(2)?, "no answer; the program said {}", place.node.sh("cat /run/tap-user")?);
    let shown = place.shown()?;
    ensure!(shown["linkinfo"]["info_data"]["multi_queue"] == true, "{shown}");
    del(&net)
}

/// The bridge is in the container. The node also has a bridge with this name, which does not count.
#[test]
fn a_tap_is_a_port_of_the_containers_bridge() -> Result<()> {
    let Some(place) = Place::new()? else { return Ok(()) };
    place.node.sh("ip link add br0 type bridge; ip link set br0 up")?;
    let net = place.net(&json!({"bridge": "br0", "ipam": null}))?;
    let before = place.snapshot()?;
    refused(&net, 999, "failed to get bridge br0: Link not found")?;
    place.node.sh_in("c1", "ip link add br0 type ifb || ip link add br0 type veth peer name other0")?;
    refused(&net, 999, "failed to set tap eth0 as a port of bridge br0: operation not supported")?;
    place.node.sh_in("c1", "ip link delete br0")?;
    let left: Vec<String> = compare(&before, &place.snapshot()?).iter().map(ToString::to_string).collect();
    ensure!(left.is_empty(), "a failed ADD leaves {}", left.join("\n"));
    place.node.sh_in("c1", "ip link add br0 type bridge; ip link set br0 up; ip addr add 10.8.0.2/24 dev br0")?;
    net.add("c1")?;
    ensure!(place.shown()?["master"] == "br0", "{}", place.shown()?);
    ensure!(place.answers(1)?, "no answer; the program said {}", place.node.sh("cat /run/tap-user")?);
    let show = place.node.sh(&format!("{} show c1 || [ $? -le 1 ]", plugin_bin()?.join("postern").display()))?;
    ensure!(show.contains("eth0, a port of br0 in the container"), "{show}");
    del(&net)
}

/// An existing tap may belong to another program. ADD neither opens nor changes it, whatever its settings are.
#[test]
fn a_tap_that_is_there_is_not_taken() -> Result<()> {
    let Some(place) = Place::new()? else { return Ok(()) };
    each(["mode tap", "mode tap user 0", "mode tun", "mode tap multi_queue"], ToString::to_string, |how| {
        place.node.sh_in("c1", &format!("ip tuntap add dev eth0 {how}"))?;
        let before = place.snapshot()?;
        refused(&place.net(&json!({}))?, 999, "failed to create tap: the container has \"eth0\" already")?;
        let changed: Vec<String> = compare(&before, &place.snapshot()?).iter().map(ToString::to_string).collect();
        ensure!(changed.is_empty(), "{}", changed.join("\n"));
        place.node.sh_in("c1", "ip link delete eth0").map(drop)
    })
}

/// The tests' user namespace maps only one user.
#[test]
fn users_that_the_host_does_not_have() -> Result<()> {
    let Some(place) = Place::new()? else { return Ok(()) };
    let before = place.snapshot()?;
    for (keys, words) in [
        (json!({"owner": 1000}), "failed to create tap: owner 1000: invalid argument"),
        (json!({"group": 1000}), "failed to create tap: group 1000: invalid argument"),
        (json!({"owner": 0, "group": 1000}), "failed to create tap: group 1000: invalid argument"),
        (json!({"owner": 4_294_967_295_u32}), "failed to create tap: owner 4294967295: invalid argument"),
        (json!({"mac": "01:00:5e:00:00:01"}), "failed to create tap: address 01:00:5e:00:00:01: cannot assign"),
        (json!({"mtu": 65535}), "failed to set MTU 65535 of the tap: invalid argument"),
        (
            json!({"selinuxContext": "system_u:object_r:x_t:s0"}),
            "failed set socket label: write /proc/thread-self/attr/exec: invalid argument",
        ),
    ] {
        if keys.get("selinuxContext").is_some() && has_selinux()? {
            continue;
        }
        refused(&place.net(&keys)?, 999, words).with_context(|| keys.to_string())?;
        let left: Vec<String> = compare(&before, &place.snapshot()?).iter().map(ToString::to_string).collect();
        ensure!(left.is_empty(), "{keys} leaves {}", left.join("\n"));
    }
    Ok(())
}

/// Returns true if the kernel has SELinux. Without a policy the kernel accepts each context. `tests/vm/selinux` has a
/// policy.
fn has_selinux() -> Result<bool> {
    let has = fs::read_to_string("/proc/filesystems")?.contains("selinuxfs");
    if has {
        println!("this kernel has SELinux: a context that its policy lacks is for tests/vm/selinux");
    }
    Ok(has)
}

/// STATUS makes no tap. It reports whether the node accepts the SELinux context.
#[test]
fn status_is_about_the_file_and_the_context() -> Result<()> {
    let Some(place) = Place::new()? else { return Ok(()) };
    let status = |keys: Value| place.net(&keys)?.call("STATUS", "");
    postern_tests::proof::strict_status(&place.node)?;
    let before = place.snapshot()?;
    status(json!({}))?.success()?;
    if has_selinux()? {
        return Ok(());
    }
    let refusal = Refusal::of(&status(json!({"selinuxContext": "system_u:object_r:x_t:s0"}))?)?;
    refusal.expect(50, "failed set socket label: write /proc/thread-self/attr/exec: invalid argument")?;
    ensure!(refusal.text.contains("leave `selinuxContext` out"), "no remedy: {}", refusal.text);
    let changed: Vec<String> = compare(&before, &place.snapshot()?).iter().map(ToString::to_string).collect();
    ensure!(changed.is_empty(), "{}", changed.join("\n"));
    Ok(())
}

#[test]
fn a_host_without_the_file_for_taps() -> Result<()> {
    let Some(place) = Place::new()? else { return Ok(()) };
    let net = place.net(&json!({}))?;
    net.add("c1")?;
    place.node.sh("mount -t tmpfs none /dev/net")?;
    // DEL does not need `/dev/net/tun`.
    del(&net)?;
    let before = place.snapshot()?;
    let refusal = Refusal::of(&net.call("ADD", "c1")?)?;
    refusal.expect(999, "failed to create tap: open /dev/net/tun: no such file or directory")?;
    ensure!(refusal.text.contains("mknod /dev/net/tun c 10 200"), "no remedy: {}", refusal.text);
    let left: Vec<String> = compare(&before, &place.snapshot()?).iter().map(ToString::to_string).collect();
    ensure!(left.is_empty(), "{}", left.join("\n"));
    // If the operator wants strict STATUS, a plugin that can't make taps is not ready.
    postern_tests::proof::strict_status(&place.node)?;
    let refusal = Refusal::of(&net.call("STATUS", "")?)?;
    refusal.expect(50, "failed to create tap: open /dev/net/tun: no such file or directory")?;
    ensure!(refusal.text.contains("modprobe tun"), "no remedy: {}", refusal.text);
    let doctor = place.node.sh(&format!("{} doctor || [ $? = 3 ]", plugin_bin()?.join("postern").display()))?;
    ensure!(doctor.contains("taps") && doctor.contains("/dev/net/tun"), "{doctor}");
    Ok(())
}
