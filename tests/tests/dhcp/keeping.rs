//! Leases over time: renewal, expiry, restarts of the service, boots, and jumps of the clock.

use crate::attacks::{ask_with_offer, binds};
use crate::lab::{Lab, address, attachment, refused, scripted_bin, wait};
use anyhow::{Context, Result, ensure};
use postern_dhcp_channel::{Answer, Ask, Lease, Standing};
use postern_tests::skip;
use serde_json::json;
use std::time::Duration;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Returns a lab, and the lease that its container c1 has from Kea. The lease's address is on c1's link.
fn leased(length: u32) -> Result<(Lab, Lease)> {
    let lab = Lab::new(&["c1"])?;
    lab.kea("10.5.0.50-10.5.0.59", length)?;
    lab.serve("")?;
    let lease = lab.acquire(&attachment("c1", &json!({})))?;
    lab.configure("c1", &lease)?;
    Ok((lab, lease))
}

/// The service renews a lease before it expires, over more than two lease times and several kills of the service.
#[test]
fn a_lease_outlives_its_time_and_a_killed_service() -> Result<()> {
    let (lab, lease) = leased(6)?;
    for pause in [1300, 2100, 700, 2900] {
        std::thread::sleep(Duration::from_millis(pause));
        lab.kill("service", "KILL")?;
        lab.serve("")?;
    }
    std::thread::sleep(seconds(5));
    let c1 = attachment("c1", &json!({}));
    let now = lab.ask(&Ask::Check(c1.clone()))?;
    let Answer::Lease(now) = now else { anyhow::bail!("{now:?}\n{}\n{}", lab.log("service"), lab.log("kea")) };
    ensure!(address(&now) == address(&lease));
    ensure!(lab.is_up("c1")?);
    let renewals =
        lab.log("kea").matches("DHCP4_LEASE_ALLOC").count() + lab.log("kea").matches("DHCP4_LEASE_RENEW").count();
    ensure!(renewals >= 4, "{renewals} grants: {}", lab.log("kea"));
    // Between two events the service has no open socket, because a socket would keep the namespace.
    wait(seconds(5), || Ok(lab.node.sh_in("c1", "tail -n +2 /proc/self/net/packet")?.is_empty()))?;
    ensure!(lab.ask(&Ask::Release(c1))? == Answer::Done);
    Ok(())
}

/// A server that comes back in time renews the lease. After a server ends for good, the service sets the link down at
/// the end of the lease.
#[test]
fn a_server_that_is_gone_for_a_while_and_for_good() -> Result<()> {
    let (lab, _) = leased(9)?;
    lab.kill("kea", "KILL")?;
    std::thread::sleep(seconds(4));
    lab.kea("10.5.0.50-10.5.0.59", 6)?;
    let c1 = attachment("c1", &json!({}));
    wait(seconds(8), || Ok(lab.log("kea").contains("DHCP4_LEASE_ALLOC")))
        .with_context(|| format!("not renewed: {}", lab.log("service")))?;
    ensure!(matches!(lab.ask(&Ask::Check(c1.clone()))?, Answer::Lease(_)), "{}", lab.log("service"));
    lab.kill("kea", "KILL")?;
    wait(seconds(15), || Ok(!lab.is_up("c1")?)).with_context(|| lab.log("service"))?;
    refused(&lab.ask(&Ask::Check(c1.clone()))?, "is lost")?;
    ensure!(matches!(lab.leases()?.as_slice(), [one] if matches!(one.standing, Standing::Lost(_))));
    // The reason stays after a restart of the service.
    lab.kill("service", "KILL")?;
    lab.serve("")?;
    refused(&lab.ask(&Ask::Check(c1.clone()))?, "is lost")?;
    ensure!(lab.ask(&Ask::Release(c1))? == Answer::Done);
    ensure!(lab.leases()?.is_empty());
    Ok(())
}

/// A server that now has other addresses refuses the renewal, and the service sets the link down.
#[test]
fn a_lease_that_is_taken_back_sets_the_link_down() -> Result<()> {
    let (lab, _) = leased(9)?;
    lab.kill("kea", "KILL")?;
    lab.kea("10.5.0.70-10.5.0.79", 9)?;
    wait(seconds(12), || Ok(!lab.is_up("c1")?))
        .with_context(|| format!("{}\n{}", lab.log("service"), lab.log("kea")))?;
    refused(&lab.ask(&Ask::Check(attachment("c1", &json!({}))))?, "is lost")?;
    // The lost lease has no timer. If its container dies without DEL, the service no longer lists the lease.
    lab.node.remove_container("c1")?;
    ensure!(lab.leases()?.is_empty(), "{:?}", lab.leases()?);
    let files = lab.node.sh("ls /var/lib/postern/dhcp")?;
    ensure!(files.is_empty(), "{files}");
    Ok(())
}

/// Endless leases have no timer. Leases of containers that are gone end when a client lists the leases or requests
/// another lease.
#[test]
fn endless_leases_of_containers_that_are_gone_do_not_pile_up() -> Result<()> {
    let lab = Lab::with_client(&["c1", "c2", "c3", "c4"], scripted_bin()?)?;
    lab.serve("")?;
    let acquire = |container: &str, last: u8| -> Result<()> {
        let address = format!("10.5.0.{last}/24");
        let lease = json!({"addresses": [{"address": address}], "seconds": u32::MAX, "t1": u32::MAX, "t2": u32::MAX});
        let answer = ask_with_offer(&lab, &attachment(container, &binds(&lease)), [10, 5, 0, last])?;
        ensure!(matches!(answer, Answer::Lease(_)), "{answer:?}");
        Ok(())
    };
    let files = || lab.node.sh("ls /var/lib/postern/dhcp | wc -l").map(|text| text.trim().to_owned());
    for (container, last) in [("c1", 7), ("c2", 8), ("c3", 9)] {
        acquire(container, last)?;
    }
    lab.node.remove_container("c1")?;
    // Only the link of c2 is gone; the container lives.
    lab.node.sh_in("c2", "ip link delete eth0")?;
    ensure!(files()? == "3", "nothing wakes an idle service");
    acquire("c4", 10)?;
    // The service looks only at leases without a step under way, and only on a request. So the test asks again.
    wait(seconds(20), || lab.leases().and_then(|_| Ok(files()? == "2"))).with_context(|| lab.log("service"))?;
    lab.node.remove_container("c3")?;
    wait(seconds(20), || Ok(matches!(lab.leases()?.as_slice(), [one] if one.container_id == "c4")))?;
    let log = lab.node.sh("grep -c dhcp.forget /var/log/postern/audit.jsonl")?;
    ensure!(log.trim() == "3", "{log}");
    // The service remembers leases of an earlier boot for a day.
    lab.kill("service", "TERM")?;
    lab.node.sh("sed -i 's/\"boot\":\"[^\"]*\"/\"boot\":\"another\"/' /var/lib/postern/dhcp/*.json")?;
    // The machine may run for more than a day, so the service gets an earlier clock.
    let uptime: f64 = lab.node.sh("cut -d ' ' -f 1 /proc/uptime")?.trim().parse()?;
    lab.serve_after(60 - uptime as i64)?;
    let remembered = lab.leases()?;
    ensure!(matches!(remembered.as_slice(), [one] if one.standing == Standing::Remembered), "{remembered:?}");
    lab.kill("service", "TERM")?;
    lab.serve_after(24 * 60 * 60 + 60 - uptime as i64)?;
    wait(seconds(5), || Ok(lab.leases()?.is_empty()))
}

/// Another station has the address that the server offers first.
#[test]
fn an_address_that_another_station_has_is_declined() -> Result<()> {
    let lab = Lab::new(&["c1", "c2"])?;
    lab.node.sh_in("c2", "ip link set eth0 up && ip addr add 10.5.0.50/24 dev eth0")?;
    lab.kea("10.5.0.50-10.5.0.51", 60)?;
    lab.serve("")?;
    let lease = lab.acquire(&attachment("c1", &json!({})))?;
    ensure!(address(&lease) == "10.5.0.51/24", "{lease:?}");
    ensure!(lab.log("service").contains("another station has 10.5.0.50"), "{}", lab.log("service"));
    lab.until_said("kea", "DECLINE")
}

/// The service remembers a lease of an earlier boot, and requests the same address again for the container.
#[test]
fn a_container_that_comes_back_after_a_reboot_has_its_address() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.dnsmasq("--dhcp-authoritative")?;
    lab.serve("")?;
    let c1 = attachment("c1", &json!({}));
    let lease = lab.acquire(&c1)?;
    lab.kill("service", "TERM")?;
    ensure!(!lab.socket().exists(), "the service has left its socket");
    lab.node.sh("sed -i 's/\"boot\":\"[^\"]*\"/\"boot\":\"another\"/' /var/lib/postern/dhcp/*.json")?;
    lab.node.remove_container("c1")?;
    lab.serve("")?;
    ensure!(matches!(lab.leases()?.as_slice(), [one] if one.standing == Standing::Remembered));
    let asked = lab.log("dnsmasq").matches("DHCPDISCOVER").count();
    lab.node.add_container("c1")?;
    lab.link("c1", "eth0")?;
    ensure!(address(&lab.acquire(&c1)?) == address(&lease));
    ensure!(lab.log("dnsmasq").matches("DHCPDISCOVER").count() == asked, "the service sent a DISCOVER");
    Ok(())
}

/// The lease of a container that is gone ends at the next check, and the service does not keep the namespace.
#[test]
fn a_lease_of_a_container_that_is_gone_ends() -> Result<()> {
    let (lab, _) = leased(6)?;
    lab.node.remove_container("c1")?;
    wait(seconds(8), || Ok(lab.leases()?.is_empty())).with_context(|| lab.log("service"))?;
    let files = lab.node.sh("ls /var/lib/postern/dhcp")?;
    ensure!(files.is_empty(), "{files}");
    Ok(())
}

/// T1 and T2 of zero cause no flood of renewals.
#[test]
fn times_of_zero_are_no_flood() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.dnsmasq("--dhcp-authoritative --dhcp-option-force=58,0 --dhcp-option-force=59,0")?;
    lab.serve("")?;
    let lease = lab.acquire(&attachment("c1", &json!({})))?;
    ensure!(lease.t1 > 0, "{lease:?}");
    std::thread::sleep(seconds(3));
    let asked = lab.log("dnsmasq").matches("DHCPREQUEST").count();
    ensure!(asked == 1, "{asked} requests: {}", lab.log("dnsmasq"));
    Ok(())
}

/// A server behind a relay: broadcasts go through the relay, and unicast renewals through the router.
#[test]
fn over_a_relay_and_by_unicast() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    // Router rt has the containers' network on one side, and the server moves to the router's other side.
    lab.node.sh("ip netns add rt
         ip link add r0 netns rt type veth peer name rh && ip link set rh master br0 up
         ip -n rt addr add 10.5.0.2/24 dev r0 && ip -n rt link set r0 up && ip -n rt link set lo up
         ip -n srv link del s0
         ip link add s0 netns srv type veth peer name r1 netns rt
         ip -n srv addr add 10.6.0.1/24 dev s0 && ip -n srv link set s0 up
         ip -n rt addr add 10.6.0.2/24 dev r1 && ip -n rt link set r1 up
         ip -n srv route add 10.5.0.0/24 via 10.6.0.2
         ip netns exec rt sysctl -qw net.ipv4.ip_forward=1")?;
    lab.kea("10.5.0.50-10.5.0.59", 9)?;
    lab.relay()?;
    lab.serve("")?;
    let c1 = attachment("c1", &json!({}));
    let lease = lab.acquire(&c1)?;
    ensure!(lease.server == Some("10.6.0.1".parse()?), "{lease:?}");
    lab.configure("c1", &lease)?;
    lab.node.sh_in("c1", "ip route add default via 10.5.0.2")?;
    // Unicast renewals do not need the relay.
    lab.kill("relay", "KILL")?;
    let before = lab.log("kea").matches("DHCP4_LEASE_ALLOC").count();
    wait(seconds(6), || Ok(lab.log("kea").matches("DHCP4_LEASE_ALLOC").count() > before))
        .with_context(|| format!("not renewed: {}\n{}", lab.log("service"), lab.log("kea")))?;
    ensure!(matches!(lab.ask(&Ask::Check(c1))?, Answer::Lease(_)));
    Ok(())
}

/// The clock of the service jumps forward and back, as on a machine that sleeps, or for a service that is moved. A jump
/// renews or ends a lease, but never extends it.
#[test]
fn a_clock_that_jumps_makes_no_lease_longer() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    if lab.node.sh("unshare --time --boottime 1 true").is_err() {
        skip("this kernel has no time namespaces");
        return Ok(());
    }
    lab.dnsmasq("--dhcp-authoritative")?;
    lab.serve("")?;
    let c1 = attachment("c1", &json!({}));
    let lease = lab.acquire(&c1)?;
    lab.configure("c1", &lease)?;
    let asked = || lab.log("dnsmasq").matches("DHCPACK(").count();
    let left = || -> Result<u64> { Ok(lab.leases()?.first().and_then(|one| one.seconds_left).unwrap_or(0)) };
    let after = |jump: i64| -> Result<()> {
        lab.kill("service", "KILL")?;
        lab.serve_after(jump)
    };
    // More than half of the two minutes is over, so the service renews the lease at once.
    after(70)?;
    wait(seconds(10), || Ok(asked() == 2)).with_context(|| lab.log("dnsmasq"))?;
    wait(seconds(5), || Ok(left()? > 100))?;
    ensure!(address(&lab.acquire(&c1)?) == address(&lease));
    // The clock is earlier than the time in the file.
    after(0)?;
    let now = left()?;
    ensure!((90..=120).contains(&now), "{now} s");
    // The clock jumps by eight hours, so the lease has expired.
    after(8 * 60 * 60)?;
    wait(seconds(10), || Ok(!lab.is_up("c1")?)).with_context(|| lab.log("service"))?;
    refused(&lab.ask(&Ask::Check(c1))?, "is lost")
}
