//! The DHCP service with real servers: dnsmasq, Kea and busybox's udhcpd.

mod attacks;
mod differential;
mod handover;
mod keeping;
mod kills;
mod lab;
mod links;
mod native;
mod plugin;
mod v6;

use anyhow::{Result, ensure};
use lab::{Lab, address, attachment, refused};
use postern_dhcp_channel::{Answer, Ask, Standing};
use serde_json::json;

/// Tests a lease of a server that has just started, from ADD to DEL.
fn whole_life(lab: &Lab, first: &str) -> Result<()> {
    lab.serve("")?;
    let c1 = attachment("c1", &json!({}));
    let lease = lab.acquire(&c1)?;
    ensure!(address(&lease).starts_with(first), "{lease:?}");
    ensure!(lease.addresses.first().and_then(|one| one.gateway) == Some("10.5.0.1".parse()?), "{lease:?}");
    lab.configure("c1", &lease)?;
    lab.node.sh_in("c1", "ping -c1 -W2 10.5.0.1")?;
    ensure!(lab.acquire(&c1)? == lease, "a second ADD keeps the lease");
    ensure!(lab.ask(&Ask::Check(c1.clone()))? == Answer::Lease(lease.clone()));
    let held = lab.leases()?;
    ensure!(held.len() == 1 && held.iter().all(|one| one.standing == Standing::Bound), "{held:?}");
    ensure!(lab.ask(&Ask::Release(c1.clone()))? == Answer::Done);
    ensure!(lab.ask(&Ask::Release(c1.clone()))? == Answer::Done, "a second release succeeds");
    ensure!(lab.leases()?.is_empty());
    refused(&lab.ask(&Ask::Check(c1))?, "keeps no lease")?;
    let files = lab.node.sh("ls /var/lib/postern/dhcp")?;
    ensure!(files.is_empty(), "{files}");
    Ok(())
}

#[test]
fn a_lease_of_dnsmasq() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.dnsmasq("--dhcp-authoritative")?;
    whole_life(&lab, "10.5.0.")?;
    lab.until_said("dnsmasq", "DHCPRELEASE")
}

#[test]
fn a_lease_of_kea() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.kea("10.5.0.50-10.5.0.99", 120)?;
    whole_life(&lab, "10.5.0.50/24")?;
    lab.until_said("kea", "DHCP4_RELEASE")
}

#[test]
fn a_lease_of_busybox() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.udhcpd()?;
    whole_life(&lab, "10.5.0.")
}

/// Two links of one container, and the same link name in another container, have different leases.
#[test]
fn attachments_have_leases_of_their_own() -> Result<()> {
    let lab = Lab::new(&["c1", "c2"])?;
    lab.link("c1", "eth1")?;
    lab.dnsmasq("--dhcp-authoritative")?;
    lab.serve("")?;
    let first = attachment("c1", &json!({}));
    let mut second = first.clone();
    second.ifname = "eth1".to_owned();
    let third = attachment("c2", &json!({}));
    let addresses = [lab.acquire(&first)?, lab.acquire(&second)?, lab.acquire(&third)?];
    let [a, b, c] = addresses.each_ref().map(address);
    ensure!(a != b && b != c && a != c, "{addresses:?}");
    ensure!(lab.ask(&Ask::Release(first))? == Answer::Done);
    for (attachment, lease) in [(second, &addresses[1]), (third, &addresses[2])] {
        ensure!(lab.ask(&Ask::Check(attachment))? == Answer::Lease(lease.clone()));
    }
    Ok(())
}

/// A request without a link fails: ptp requests an address before it makes the link.
#[test]
fn what_has_no_link_or_namespace_is_told_so() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.serve("")?;
    let mut wrong = attachment("c1", &json!({}));
    wrong.ifname = "eth7".to_owned();
    refused(&lab.ask(&Ask::Acquire(wrong.clone()))?, "has no link \"eth7\"")?;
    wrong.netns = "/run/netns/none".to_owned();
    refused(&lab.ask(&Ask::Acquire(wrong.clone()))?, "there is no network namespace")?;
    wrong.netns = "/run".to_owned();
    refused(&lab.ask(&Ask::Acquire(wrong.clone()))?, "unknown FS magic")?;
    wrong.netns = "/proc/self/ns/net".to_owned();
    refused(&lab.ask(&Ask::Acquire(wrong.clone()))?, "is the namespace of the node")?;
    wrong.container_id = String::new();
    refused(&lab.ask(&Ask::Acquire(wrong))?, "the container ID is empty")?;
    let c1 = attachment("c1", &json!({"ipam": {"type": "dhcp", "provide": [{"option": "nonsense", "value": "x"}]}}));
    refused(&lab.ask(&Ask::Acquire(c1))?, "nonsense")
}

/// Without a server, a request fails after the time limits of the service's command line.
#[test]
fn without_a_server_there_is_no_lease() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.serve("-resendtimeout 3s -timeout=1s --resendmax 1s")?;
    refused(&lab.ask(&Ask::Acquire(attachment("c1", &json!({}))))?, "no DHCP lease for container c1")?;
    ensure!(lab.leases()?.is_empty());
    Ok(())
}
