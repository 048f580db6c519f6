//! The plugin dhcp with the service and a real server.

use crate::lab::{Lab, wait};
use anyhow::{Result, ensure};
use postern_dhcp_channel::Standing;
use postern_tests::{Network, plugin_bin};
use serde_json::{Value, json};
use std::time::Duration;

/// Returns a lab with the built service, and with a container without links.
pub fn lab() -> Result<Lab> {
    lab_with("--dhcp-authoritative", "")
}

/// As [`lab`], with options of the server, and with a script that changes the node.
pub fn lab_with(options: &str, script: &str) -> Result<Lab> {
    let lab = Lab::with_client(&[], plugin_bin()?)?;
    lab.node.add_container("c1")?;
    lab.node.sh(script)?;
    lab.dnsmasq(options)?;
    lab.serve("")?;
    Ok(lab)
}

/// Returns a network of this main plugin, with leases of the lab's service.
pub fn network(lab: &Lab, main: &Value) -> Result<Network> {
    let ipam = json!({"ipam": {"type": "dhcp", "daemonSocketPath": lab.socket()}});
    Ok(Network::new(&lab.node, main)?.with(&ipam))
}

/// Tests an attachment from ADD to DEL. DEL releases the lease.
fn whole_life(main: &Value) -> Result<()> {
    let lab = lab()?;
    let attachment = network(&lab, main)?.add("c1")?;
    let address = attachment.addresses().into_iter().next().unwrap_or_default();
    ensure!(address.starts_with("10.5.0.") && address.ends_with("/24"), "{}", attachment.result);
    lab.node.sh_in("c1", "ping -c1 -W2 10.5.0.1")?;
    let held = lab.leases()?;
    ensure!(held.len() == 1 && held.iter().all(|one| one.standing == Standing::Bound), "{held:?}");
    let attachment = attachment.check()?;
    ensure!(!lab.log("dnsmasq").contains("DHCPRELEASE"));
    attachment.del()?;
    lab.until_said("dnsmasq", "DHCPRELEASE")?;
    let links = lab.node.sh_in("c1", "ip -o link show | grep -v ' lo:' || true")?;
    ensure!(links.is_empty() && lab.leases()?.is_empty(), "{links} {:?}", lab.leases()?);
    attachment.del()
}

#[test]
fn a_bridge_has_a_lease_and_gives_it_back() -> Result<()> {
    whole_life(&json!({"type": "bridge", "bridge": "br0"}))
}

#[test]
fn a_macvlan_has_a_lease_and_gives_it_back() -> Result<()> {
    whole_life(&json!({"type": "macvlan", "master": "br0"}))
}

/// Returns a lab whose server has both families and advertises itself as the router.
fn lab_of_both() -> Result<Lab> {
    let lab = Lab::with_client(&[], plugin_bin()?)?;
    lab.node.add_container("c1")?;
    lab.ipv6()?;
    lab.dnsmasq("--dhcp-authoritative --enable-ra --dhcp-range=2001:db8:5::50,2001:db8:5::99,64,2m")?;
    lab.serve("")?;
    // Some runtimes disable IPv6, and expect the plugins to enable it.
    lab.node.sh_in("c1", "sysctl -qw net.ipv6.conf.default.disable_ipv6=1")?;
    Ok(lab)
}

/// Tests an attachment with these families from ADD to DEL.
fn whole_life_with_ipv6(main: &Value, families: &[&str]) -> Result<()> {
    let lab = lab_of_both()?;
    let attachment = network(&lab, main)?.with(&json!({"ipam": {"families": families}})).add("c1")?;
    let result = &attachment.result;
    let router = lab.router_address()?.to_string();
    let last = families.len() - 1;
    let text = |place: &str| result.pointer(place).and_then(Value::as_str).unwrap_or_default();
    let count = result.pointer("/ips").and_then(Value::as_array).map(Vec::len);
    let address = text(&format!("/ips/{last}/address"));
    ensure!(count == Some(families.len()), "{result}");
    ensure!(address.starts_with("2001:db8:5::") && address.ends_with("/64"), "{result}");
    let (gateway, route) = (text(&format!("/ips/{last}/gateway")), text(&format!("/routes/{last}/dst")));
    ensure!(gateway == router && route == "::/0", "{result}");
    lab.node.sh_in("c1", "ping -6 -c1 -W2 2001:db8:5::1")?;
    // The kernel ignores router advertisements: the only address and the only default route are those of the lease.
    let shown = lab.node.sh_in("c1", "ip -6 -o addr show dev eth0 scope global; ip -6 route show default")?;
    ensure!(shown.lines().count() == 2 && shown.contains(&format!("default via {router}")), "{shown}");
    ensure!(lab.node.sh_in("c1", "sysctl -n net.ipv6.conf.eth0.accept_ra")?.trim() == "0");
    let attachment = attachment.check()?;
    ensure!(lab.leases()?.len() == families.len());
    let shown = lab.node.postern("show c1")?;
    let shown = shown.printed()?;
    ensure!(
        shown.contains("2001:db8:5::") && shown.matches("more, by the service").count() == families.len(),
        "{shown}"
    );
    attachment.del()?;
    wait(Duration::from_secs(5), || Ok(lab.log("dnsmasq").matches("DHCPRELEASE(s0)").count() == families.len()))?;
    let links = lab.node.sh_in("c1", "ip -o link show | grep -v ' lo:' || true")?;
    ensure!(links.is_empty() && lab.leases()?.is_empty(), "{links} {:?}", lab.leases()?);
    Ok(())
}

#[test]
fn a_bridge_has_both_families() -> Result<()> {
    whole_life_with_ipv6(&json!({"type": "bridge", "bridge": "br0"}), &["ipv4", "ipv6"])
}

#[test]
fn a_macvlan_has_ipv6_alone() -> Result<()> {
    whole_life_with_ipv6(&json!({"type": "macvlan", "master": "br0"}), &["ipv6"])
}

/// ptp requests a lease before it makes its link, so the service can't reach a server.
#[test]
fn a_ptp_has_no_lease_and_says_why() -> Result<()> {
    let lab = lab()?;
    let network = network(&lab, &json!({"type": "ptp"}))?;
    let answer = network.call("ADD", "c1")?;
    ensure!(answer.status != 0 && answer.stdout.contains("has no link"), "{answer:?}");
    ensure!(lab.leases()?.is_empty());
    network.call("DEL", "c1")?.success().map(drop)
}

/// An ADD that fails after it got a lease releases the lease.
#[test]
fn a_failed_add_gives_its_lease_back() -> Result<()> {
    let lab = lab()?;
    // The bridge must have the gateway already, because a server may not choose an address of the node. This bridge has
    // another address, so ADD fails.
    lab.node.sh("ip address add 10.77.0.1/24 dev br0")?;
    let network = network(&lab, &json!({"type": "bridge", "bridge": "br0", "isGateway": true}))?;
    let answer = network.call("ADD", "c1")?;
    ensure!(answer.status != 0, "{answer:?}");
    lab.until_said("dnsmasq", "DHCPRELEASE")?;
    let links = lab.node.sh_in("c1", "ip -o link show | grep -v ' lo:' || true")?;
    ensure!(links.is_empty() && lab.leases()?.is_empty(), "{links} {answer:?}");
    Ok(())
}

/// If the IPAM plugin is gone, DEL releases the lease that the record lists.
#[test]
fn a_del_by_the_record_gives_its_lease_back() -> Result<()> {
    let lab = lab()?;
    let network = network(&lab, &json!({"type": "bridge", "bridge": "br0"}))?;
    network.add("c1")?;
    network.call_at(0, "DEL", "c1", &json!({"ipam": {"type": "nowhere"}}))?;
    lab.until_said("dnsmasq", "DHCPRELEASE")
}
