//! DHCP over links that this kernel may lack. `tests/vm/kernel` runs these tests in a virtual machine whose kernel has
//! these links.

use crate::lab::{Lab, wait};
use crate::plugin::{lab_with, network};
use anyhow::{Context, Result, ensure};
use postern_dhcp_channel::Standing;
use postern_tests::kernel::has_or_skips;
use postern_tests::{Attachment, skip};
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime};

/// A script that makes the node's link to the switch, and the container c2.
const MASTER: &str =
    "ip link add m0 type veth peer name m1 && ip link set m1 master br0 up && ip link set m0 up; ip netns add c2";

/// Options of the server: leases are renewed after 3 s, by unicast.
const SOON: &str = "--dhcp-authoritative --dhcp-option-force=58,3 --dhcp-option-force=59,100";

fn acknowledged(lab: &Lab) -> usize {
    lab.log("dnsmasq").matches("DHCPACK(").count()
}

/// Tests two containers: they get leases, renew them, and release them.
fn lives_of_two(lab: &Lab, main: &Value) -> Result<()> {
    let network = network(lab, main)?;
    let mut attachments = Vec::new();
    for container in ["c1", "c2"] {
        // A parent link can have each VLAN only once.
        let is_vlan = main.get("type").is_some_and(|kind| kind == "vlan");
        let other = if container == "c2" && is_vlan { json!({"master": "m2"}) } else { json!({}) };
        let attachment = network.clone().with(&other).add(container)?;
        ensure!(attachment.addresses().concat().starts_with("10.5.0."), "{}", attachment.result);
        lab.node.sh_in(container, "ping -c1 -W2 10.5.0.1")?;
        attachments.push(attachment);
    }
    let addresses: Vec<_> = attachments.iter().map(Attachment::addresses).collect();
    let differ = |pair: &[Vec<String>]| matches!(pair, [one, other] if one.first() != other.first());
    ensure!(differ(&addresses), "one address for both: {addresses:?}");
    let before = acknowledged(lab);
    wait(Duration::from_secs(20), || Ok(acknowledged(lab) >= before + 2))
        .with_context(|| format!("not renewed: {}", lab.log("dnsmasq")))?;
    attachments.into_iter().try_for_each(|attachment| attachment.check()?.del())?;
    wait(Duration::from_secs(5), || Ok(lab.log("dnsmasq").matches("DHCPRELEASE(").count() == 2))?;
    ensure!(lab.leases()?.is_empty());
    Ok(())
}

#[test]
fn vlans_have_leases_of_their_servers() -> Result<()> {
    if !has_or_skips("vlan")? {
        return Ok(());
    }
    // The server is only in VLAN 5.
    let script = format!(
        "{MASTER}; ip link add m2 type veth peer name m3 && ip link set m3 master br0 up && ip link set m2 up
         ip -n srv link set s0 down; ip -n srv link set s0 name t0; ip -n srv addr flush dev t0; ip -n srv link set t0 up
         ip -n srv link add link t0 name s0 type vlan id 5
         ip -n srv addr add 10.5.0.1/24 dev s0; ip -n srv link set s0 up"
    );
    let lab = lab_with(SOON, &script)?;
    lives_of_two(&lab, &json!({"type": "vlan", "master": "m0", "vlanId": 5}))
}

/// ipvlans of one parent link have the same hardware address. So servers distinguish them by client identifiers, and
/// answer by broadcast.
#[test]
fn ipvlans_have_leases_of_their_own() -> Result<()> {
    if !has_or_skips("ipvlan")? {
        return Ok(());
    }
    let lab = lab_with(SOON, MASTER)?;
    lives_of_two(&lab, &json!({"type": "ipvlan", "master": "m0"}))
}

/// In the modes `l3` and `l3s` an ipvlan sends no broadcast, so no server is found. The plugin reports this at once.
#[test]
fn ipvlans_that_route_have_no_lease_and_say_why() -> Result<()> {
    if !has_or_skips("ipvlan")? {
        return Ok(());
    }
    for mode in ["l3", "l3s"] {
        let lab = lab_with(SOON, MASTER)?;
        let network = network(&lab, &json!({"type": "ipvlan", "master": "m0", "mode": mode}))?;
        let answer = network.call("ADD", "c1")?;
        let words = format!("is an ipvlan in mode {mode}, which carries no broadcasts");
        ensure!(answer.status != 0 && answer.stdout.contains(&words), "{answer:?}");
        ensure!(answer.stdout.contains("\"code\": 7"), "{answer:?}");
        let links = lab.node.sh_in("c1", "ip -o link show | grep -v ' lo:' || true")?;
        ensure!(links.is_empty() && lab.leases()?.is_empty(), "{links} {:?}", lab.leases()?);
    }
    Ok(())
}

/// Jumps of the wall clock by a day do not change a lease. Only `tests/vm/kernel` can set the clock.
#[test]
fn a_clock_that_is_set_changes_no_lease() -> Result<()> {
    if std::env::var_os("POSTERN_CLOCK_IS_SET").is_none() {
        skip("the test must not set the clock of this machine");
        return Ok(());
    }
    let lab = lab_with("--dhcp-authoritative", "true")?;
    let attachment = network(&lab, &json!({"type": "bridge", "bridge": "br0"}))?.add("c1")?;
    let (begun, mut days, mut before) = (Instant::now(), 0, SystemTime::now());
    while days < 3 {
        ensure!(begun.elapsed() < Duration::from_secs(30), "no program sets the clock");
        std::thread::sleep(Duration::from_millis(50));
        let now = SystemTime::now();
        let jump = now.duration_since(before).unwrap_or_else(|error| error.duration());
        days += usize::from(jump > Duration::from_secs(60 * 60));
        before = now;
    }
    let held = lab.leases()?;
    let left = held.first().and_then(|one| one.seconds_left).unwrap_or_default();
    let passed = begun.elapsed().as_secs();
    ensure!(held.iter().all(|one| one.standing == Standing::Bound), "{held:?}");
    ensure!((117..=121).contains(&(left + passed)), "{left} s after {passed} s");
    ensure!(acknowledged(&lab) == 1, "the service requested the lease more than once: {}", lab.log("dnsmasq"));
    attachment.check()?.del()
}
