//! DHCPv6: real servers, the router of the link, attachments with both families, and hostile stations.

use crate::attacks::{ask_aside, in_server, sends};
use crate::lab::{Lab, address, attachment, refused, scripted_bin, wait};
use anyhow::{Context, Result, ensure};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket, sockopt};
use postern_dhcp_channel::{Answer, Ask, Attachment, Family, Lease, Standing};
use serde_json::json;
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Returns an attachment of a container with these families. It requests name servers and domains.
fn with(container: &str, families: &[Family]) -> Attachment {
    let request = json!([{"option": "6"}, {"option": "119"}]);
    let mut made = attachment(container, &json!({"ipam": {"type": "dhcp", "request": request}}));
    made.families = families.to_vec();
    made
}

fn six(container: &str) -> Attachment {
    with(container, &[Family::Ipv6])
}

/// Returns a lab with a router, and a lease of Kea for container c1. The link of c1 has the lease's address.
fn leased(length: u32) -> Result<(Lab, Lease)> {
    let lab = Lab::new(&["c1"])?;
    lab.ipv6()?;
    lab.router()?;
    lab.kea6("2001:db8:5::50-2001:db8:5::59", length)?;
    lab.serve("")?;
    let lease = lab.acquire(&six("c1"))?;
    lab.configure("c1", &lease)?;
    Ok((lab, lease))
}

/// A lease from ADD to DEL: the address has the router's prefix length, and the router is the gateway.
#[test]
fn a_lease_of_kea_and_the_router_of_the_link() -> Result<()> {
    let (lab, lease) = leased(60)?;
    let c1 = six("c1");
    let router = Some(lab.router_address()?);
    ensure!(address(&lease) == "2001:db8:5::50/64" && lease.addresses[0].gateway == router, "{lease:?}");
    ensure!(lease.routes.len() == 1 && lease.routes[0].dst == "::/0".parse()?, "{lease:?}");
    ensure!(lease.routes[0].gw == router && lease.seconds == 60, "{lease:?}");
    ensure!(lease.dns.nameservers == ["2001:db8:5::53".parse::<std::net::IpAddr>()?], "{lease:?}");
    ensure!(lease.dns.search == ["one.example", "two.example"], "{lease:?}");
    wait(seconds(5), || Ok(lab.node.sh_in("c1", "ping -6 -c1 -W1 2001:db8:5::1").is_ok()))?;
    ensure!(lab.acquire(&c1)? == lease, "a second ADD keeps the lease");
    ensure!(lab.ask(&Ask::Check(c1.clone()))? == Answer::Lease(lease));
    let held = lab.leases()?;
    ensure!(matches!(held.as_slice(), [one] if one.family == Family::Ipv6 && one.standing == Standing::Bound));
    refused(&lab.ask(&Ask::Check(attachment("c1", &json!({}))))?, "keeps no lease for container c1")?;
    ensure!(lab.ask(&Ask::Release(attachment("c1", &json!({}))))? == Answer::Done, "a release needs only the names");
    lab.until_said("kea6", "DHCP6_RELEASE_NA")?;
    ensure!(lab.leases()?.is_empty() && lab.node.sh("ls /var/lib/postern/dhcp")?.is_empty());
    Ok(())
}

/// An attachment with both families gets one answer. The service has a lease and a file for each family.
#[test]
fn an_attachment_has_a_lease_of_each_family() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.ipv6()?;
    lab.dnsmasq("--dhcp-authoritative --enable-ra --dhcp-range=2001:db8:5::50,2001:db8:5::99,64,2m")?;
    lab.serve("")?;
    let both = with("c1", &Family::ALL);
    let lease = lab.acquire(&both)?;
    let [four, six] = lease.addresses.as_slice() else { anyhow::bail!("{lease:?}") };
    ensure!(four.address.to_string().starts_with("10.5.0.") && four.gateway == Some("10.5.0.1".parse()?));
    ensure!(six.address.to_string().starts_with("2001:db8:5::") && six.gateway == Some(lab.router_address()?));
    ensure!(lease.routes.len() == 2, "{lease:?}");
    ensure!(lab.ask(&Ask::Check(both.clone()))? == Answer::Lease(lease.clone()));
    ensure!(lab.leases()?.len() == 2 && lab.node.sh("ls /var/lib/postern/dhcp")?.lines().count() == 2);
    // A restarted service keeps both leases.
    lab.kill("service", "KILL")?;
    lab.serve("")?;
    ensure!(lab.acquire(&both)? == lease);
    ensure!(lab.ask(&Ask::Release(both.clone()))? == Answer::Done);
    lab.until_said("dnsmasq", "DHCPRELEASE(s0)")?;
    wait(seconds(5), || Ok(lab.log("dnsmasq").matches("DHCPRELEASE(s0)").count() == 2))
        .with_context(|| lab.log("dnsmasq"))?;
    ensure!(lab.leases()?.is_empty() && lab.node.sh("ls /var/lib/postern/dhcp")?.is_empty());
    // If one family gets no lease, the request fails, and the service releases the lease of the other family.
    lab.kill("dnsmasq", "KILL")?;
    lab.kill("service", "KILL")?;
    lab.dnsmasq("--dhcp-authoritative")?;
    lab.serve("-resendtimeout 3s -resendmax 1s")?;
    refused(&lab.ask(&Ask::Acquire(both.clone()))?, "no DHCPv6 lease for container c1")?;
    wait(seconds(5), || Ok(lab.leases()?.is_empty()))?;
    wait(seconds(5), || Ok(lab.log("dnsmasq").matches("DHCPRELEASE(s0)").count() == 3))
        .with_context(|| lab.log("dnsmasq"))?;
    // An earlier lease of the attachment stays, because its address is in use.
    let four = with("c1", &[Family::Ipv4]);
    let lease = lab.acquire(&four)?;
    refused(&lab.ask(&Ask::Acquire(both))?, "no DHCPv6 lease for container c1")?;
    ensure!(lab.ask(&Ask::Check(four))? == Answer::Lease(lease));
    ensure!(lab.log("dnsmasq").matches("DHCPRELEASE(s0)").count() == 3, "{}", lab.log("dnsmasq"));
    Ok(())
}

/// The service renews a lease over more than two lease times and several kills of the service. The service does not
/// keep the container's namespace alive.
#[test]
fn a_lease_outlives_its_time_and_a_killed_service() -> Result<()> {
    let (lab, lease) = leased(6)?;
    for pause in [1300, 3100] {
        std::thread::sleep(Duration::from_millis(pause));
        lab.kill("service", "KILL")?;
        lab.serve("")?;
    }
    std::thread::sleep(seconds(5));
    let Answer::Lease(now) = lab.ask(&Ask::Check(six("c1")))? else {
        anyhow::bail!("{}\n{}", lab.log("service"), lab.log("kea6"))
    };
    ensure!(address(&now) == address(&lease) && now.addresses[0].gateway == lease.addresses[0].gateway, "{now:?}");
    let renewals = lab.log("kea6").matches("DHCP6_LEASE_RENEW").count();
    ensure!(renewals >= 3 || lab.log("kea6").matches("DHCP6_LEASE_ALLOC").count() >= 3, "{}", lab.log("kea6"));
    wait(seconds(12), || Ok(lab.node.sh_in("c1", "tail -n +2 /proc/self/net/packet")?.is_empty()))?;
    // The new server has another identity, so it answers only a rebind, which goes to all servers. It must listen before
    // the rebind, three seconds after the last renewal.
    let leases = || lab.log("kea6").matches("DHCP6_LEASE_").count();
    let present = leases();
    wait(seconds(6), || Ok(leases() > present))?;
    lab.kill("kea6", "KILL")?;
    lab.node.sh(&format!("rm -f {}/kea-dhcp6-serverid", lab.dir.display()))?;
    let before = lab.log("service");
    lab.kea6("2001:db8:5::50-2001:db8:5::59", 6)?;
    std::thread::sleep(seconds(6));
    let rebound = lab.ask(&Ask::Check(six("c1")))?;
    let is_rebound = matches!(&rebound, Answer::Lease(lease) if address(lease) == address(&now));
    ensure!(is_rebound, "{rebound:?} {before} {} {}", lab.log("service"), lab.log("kea6"));
    Ok(())
}

/// The server of one family ends for good. The service removes the address of this family from the link. The link stays
/// up for the other family.
#[test]
fn one_family_that_is_lost_leaves_the_other() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.ipv6()?;
    lab.router()?;
    lab.kea6("2001:db8:5::50-2001:db8:5::59", 6)?;
    lab.kea("10.5.0.50-10.5.0.59", 60)?;
    lab.serve("")?;
    let both = with("c1", &Family::ALL);
    let lease = lab.acquire(&both)?;
    for one in &lease.addresses {
        lab.node.sh_in("c1", &format!("ip addr add {} dev eth0", one.address))?;
    }
    lab.kill("kea6", "KILL")?;
    let has_address = || Ok(lab.node.sh_in("c1", "ip -6 -o addr show dev eth0")?.contains("2001:db8:5::50"));
    ensure!(has_address()?);
    wait(seconds(12), || has_address().map(|has| !has)).with_context(|| lab.log("service"))?;
    ensure!(lab.is_up("c1")? && lab.node.sh_in("c1", "ip -4 -o addr show dev eth0")?.contains("10.5.0.50"));
    refused(&lab.ask(&Ask::Check(both.clone()))?, "the DHCPv6 lease of container c1")?;
    ensure!(matches!(lab.ask(&Ask::Check(with("c1", &[Family::Ipv4])))?, Answer::Lease(_)));
    // After a restart, the lease is still lost.
    lab.kill("service", "KILL")?;
    lab.serve("")?;
    refused(&lab.ask(&Ask::Check(both.clone()))?, "is lost")?;
    ensure!(lab.ask(&Ask::Release(both))? == Answer::Done && lab.leases()?.is_empty());
    Ok(())
}

/// A container comes back in another namespace, with only IPv4, while its DHCPv6 lease still has the old namespace.
/// This lease does not keep the new link up.
#[test]
fn a_lease_in_another_namespace_keeps_no_link_up() -> Result<()> {
    let lab = Lab::new(&["c1", "c2"])?;
    lab.ipv6()?;
    lab.kea6("2001:db8:5::50-2001:db8:5::59", 60)?;
    lab.kea("10.5.0.50-10.5.0.59", 6)?;
    lab.serve("")?;
    lab.acquire(&six("c1"))?;
    let mut again = with("c1", &[Family::Ipv4]);
    again.netns = "/run/netns/c2".to_owned();
    lab.acquire(&again)?;
    lab.kill("kea", "KILL")?;
    wait(seconds(12), || Ok(!lab.is_up("c2")?)).with_context(|| lab.log("service"))?;
    ensure!(lab.is_up("c1")? && matches!(lab.ask(&Ask::Check(six("c1")))?, Answer::Lease(_)));
    let lost = lab.ask(&Ask::Check(again))?;
    ensure!(matches!(&lost, Answer::Refused { details, .. } if details.contains("the link was set down")), "{lost:?}");
    Ok(())
}

/// After the server ends for good, the service sets the link down at the end of the lease.
#[test]
fn a_lease_that_expires_sets_the_link_down() -> Result<()> {
    let (lab, _) = leased(6)?;
    lab.kill("kea6", "KILL")?;
    wait(seconds(12), || Ok(!lab.is_up("c1")?)).with_context(|| lab.log("service"))?;
    refused(&lab.ask(&Ask::Check(six("c1")))?, "is lost: the lease of 2001:db8:5::50/64 expired")
}

/// Another station has the address that the server offers first.
#[test]
fn an_address_that_another_station_has_is_declined() -> Result<()> {
    let lab = Lab::new(&["c1", "c2"])?;
    lab.ipv6()?;
    lab.node.sh_in("c2", "ip link set eth0 up && ip addr add 2001:db8:5::50/64 dev eth0 nodad")?;
    lab.kea6("2001:db8:5::50-2001:db8:5::51", 60)?;
    lab.serve("")?;
    let lease = lab.acquire(&six("c1"))?;
    // No router has advertised the prefix of the link.
    ensure!(address(&lease) == "2001:db8:5::51/128" && lease.addresses[0].gateway.is_none(), "{lease:?}");
    ensure!(lab.log("service").contains("another station has 2001:db8:5::50"), "{}", lab.log("service"));
    lab.until_said("kea6", "DECLINE")
}

/// The service remembers a lease of an earlier boot, and the container gets its address again.
#[test]
fn a_container_that_comes_back_after_a_reboot_has_its_address() -> Result<()> {
    let (lab, lease) = leased(60)?;
    lab.kill("service", "TERM")?;
    lab.node.sh("sed -i 's/\"boot\":\"[^\"]*\"/\"boot\":\"another\"/' /var/lib/postern/dhcp/*.json")?;
    lab.node.remove_container("c1")?;
    lab.serve("")?;
    ensure!(matches!(lab.leases()?.as_slice(), [one] if one.standing == Standing::Remembered));
    lab.node.add_container("c1")?;
    lab.link("c1", "eth0")?;
    ensure!(address(&lab.acquire(&six("c1"))?) == address(&lease));
    Ok(())
}

/// The leases of a container that is gone end at the next check, for both families. The service does not keep the
/// containers' namespaces alive.
#[test]
fn leases_of_a_container_that_is_gone_end() -> Result<()> {
    let lab = Lab::new(&["c1", "c2"])?;
    lab.ipv6()?;
    lab.kea6("2001:db8:5::50-2001:db8:5::59", 6)?;
    lab.kea("10.5.0.50-10.5.0.59", 6)?;
    lab.serve("")?;
    lab.acquire(&six("c1"))?;
    lab.acquire(&with("c2", &Family::ALL))?;
    let files = || Ok(lab.node.sh("ls /var/lib/postern/dhcp")?.lines().count());
    ensure!(files()? == 3);
    for container in ["c1", "c2"] {
        lab.node.remove_container(container)?;
    }
    // The test looks only at the files, because a request would cause a check.
    wait(seconds(10), || files().map(|count| count == 0)).with_context(|| lab.log("service"))?;
    ensure!(lab.leases()?.is_empty());
    Ok(())
}

#[test]
fn a_link_without_ipv6_is_told_so() -> Result<()> {
    let lab = Lab::new(&["c1"])?;
    lab.node.sh_in("c1", "sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1")?;
    lab.serve("")?;
    refused(&lab.ask(&Ask::Acquire(six("c1")))?, "its link \"eth0\" has no IPv6 link-local address")?;
    ensure!(lab.leases()?.is_empty());
    Ok(())
}

const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

fn option(code: u8, data: &[u8]) -> Vec<u8> {
    [&[0, code, 0, data.len() as u8], data].concat()
}

/// The service drops packets that are not this client's messages. Only the last packet is correct, and arrives.
#[test]
fn a_client_sends_its_own_messages_and_nothing_else() -> Result<()> {
    let lab = Lab::with_client(&["c1"], scripted_bin()?)?;
    lab.ipv6()?;
    lab.serve("")?;
    let index: u32 = lab.node.sh("ip netns exec srv cat /sys/class/net/s0/ifindex")?.trim().parse()?;
    let server = in_server(&lab, move || {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 547))?;
        socket.join_multicast_v6(&SERVERS, index)?;
        socket.set_read_timeout(Some(seconds(8)))?;
        Ok(socket)
    })?;
    let id = option(1, &postern_dhcp::duid("c1", "net", "eth0"));
    let association = |id: u8| option(3, &[&[0, 0, 0, id][..], &[0; 8]].concat());
    let other = option(5, &[&"2001:db8:5::7".parse::<Ipv6Addr>()?.octets()[..], &[0; 8]].concat());
    let of_other = option(3, &[&[0, 0, 0, 1][..], &[0; 8], &other].concat());
    let message = |kind: u8, options: &[&[u8]]| [&[kind, 1, 2, 3][..], &options.concat()].concat();
    let own = message(1, &[&id, &association(1)]);
    let (all, unicast) = (json!("broadcast"), |address: &str| json!({"unicast": address}));
    let cases = [
        (b"no DHCP at all".to_vec(), all.clone()),
        (message(2, &[&id, &association(1)]), all.clone()),
        (message(12, &[&id, &association(1)]), all.clone()),
        (message(134, &[&id, &association(1)]), all.clone()),
        (message(1, &[&option(1, &postern_dhcp::duid("c2", "net", "eth0")), &association(1)]), all.clone()),
        (message(1, &[&id, &association(2)]), all.clone()),
        (message(8, &[&id, &option(2, b"server"), &of_other]), all.clone()),
        (message(1, &[&id, &of_other]), all.clone()),
        (message(3, &[&id, &of_other]), all.clone()),
        (message(9, &[&id, &option(2, b"server"), &of_other]), all.clone()),
        (message(3, &[&id, &association(1), &option(25, &[0; 12])]), all.clone()),
        (vec![1; 20_000], all.clone()),
        (own.clone(), unicast("2001:db8:5::1")),
        (own.clone(), unicast("10.5.0.1")),
        (own.clone(), all),
    ];
    let cases: Vec<_> = cases.iter().map(|(payload, to)| (payload.as_slice(), to.clone())).collect();
    let mut c1 = attachment("c1", &sends(&cases));
    c1.families = vec![Family::Ipv6];
    let asked = ask_aside(&lab, Ask::Acquire(c1.clone()));
    let mut got = vec![0; 70_000];
    let (length, from) = server.recv_from(&mut got).with_context(|| lab.log("service"))?;
    ensure!(got[..length] == own && from.port() == 546, "{length} bytes from {from}");
    ensure!(matches!(from.ip(), std::net::IpAddr::V6(from) if from.is_unicast_link_local()), "{from}");
    server.set_read_timeout(Some(Duration::from_millis(700)))?;
    ensure!(server.recv_from(&mut got).is_err(), "a second packet arrives");
    ensure!(lab.ask(&Ask::Release(c1))? == Answer::Done);
    drop(asked.join());
    let log = lab.node.sh("cat /var/log/postern/audit.jsonl")?;
    ensure!(log.contains("\"operation\":\"dhcp.send\""), "{log}");
    Ok(())
}

/// Opens an ICMPv6 socket in the server's namespace. Its packets have this hop limit.
fn icmp_socket(lab: &Lab, hops: i32) -> Result<OwnedFd> {
    in_server(lab, move || {
        let icmp = Some(SockProtocol::IcmpV6);
        let socket = socket(AddressFamily::Inet6, SockType::Raw, SockFlag::SOCK_CLOEXEC, icmp)?;
        setsockopt(&socket, sockopt::Ipv6MulticastHops, &hops)?;
        Ok(socket)
    })
}

/// The service ignores router advertisements from another network, and DHCP messages that look like an advertisement.
/// It accepts the same advertisement from the link.
#[test]
fn only_a_router_of_the_link_becomes_the_gateway() -> Result<()> {
    let lab = Lab::new(&["c1", "c2"])?;
    lab.ipv6()?;
    lab.kea6("2001:db8:5::50-2001:db8:5::59", 60)?;
    lab.serve("")?;
    let index: u32 = lab.node.sh("ip netns exec srv cat /sys/class/net/s0/ifindex")?.trim().parse()?;
    let prefix =
        [&[3, 4, 64, 0xc0, 0, 0, 7, 8, 0, 0, 7, 8, 0, 0, 0, 0][..], &[0x20, 1, 0xd, 0xb8, 0, 5], &[0; 10]].concat();
    let advertisement = [&[134, 0, 0, 0, 64, 0x80, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0][..], &prefix].concat();
    let stations = SocketAddrV6::new("ff02::1".parse()?, 0, 0, index);
    let lease = |container: &str, hops: i32| -> Result<Lease> {
        let icmp = icmp_socket(&lab, hops)?;
        let udp = in_server(&lab, || Ok(UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?))?;
        let (asked, until) = (ask_aside(&lab, Ask::Acquire(six(container))), Instant::now() + seconds(8));
        while !asked.is_finished() && Instant::now() < until {
            let to = nix::sys::socket::SockaddrIn6::from(stations);
            nix::sys::socket::sendto(icmp.as_raw_fd(), &advertisement, &to, nix::sys::socket::MsgFlags::empty())?;
            udp.send_to(&advertisement, SocketAddrV6::new(*stations.ip(), 546, 0, index))?;
            std::thread::sleep(Duration::from_millis(50));
        }
        match asked.join().map_err(|_| anyhow::anyhow!("the thread failed"))?? {
            Answer::Lease(lease) => Ok(lease),
            other => anyhow::bail!("{other:?} {}", lab.log("service")),
        }
    };
    let far = lease("c1", 254)?;
    ensure!(far.addresses[0].gateway.is_none() && far.routes.is_empty(), "{far:?}");
    ensure!(far.addresses[0].address.prefix_len() == 128, "{far:?}");
    let near = lease("c2", 255)?;
    ensure!(near.addresses[0].gateway == Some(lab.router_address()?), "{near:?}");
    ensure!(near.addresses[0].address.prefix_len() == 64, "{near:?}");
    Ok(())
}
