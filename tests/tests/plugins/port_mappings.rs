//! Ports of the node that lead to containers: real connections, two containers that want the same port, 16,384 ports,
//! and addresses that stay closed.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{PRIVATE_ETC, Refusal};
use postern_tests::{Answer, Attachment, Network, Node, merge, native_bin, plugin_bin, skip_part};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Instant;

const TALK: &str = env!("CARGO_BIN_EXE_postern-talk");

/// A link `wire0` of the node with both IP versions. The link's peer is in the namespace `outside`.
const WIRE: &str = "
    ip link set lo up; sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0
    ip link add wire0 type veth peer name wire1; ip link set wire1 netns outside
    ip addr add 192.0.2.1/24 dev wire0; ip addr add 2001:db8::1/64 dev wire0 nodad; ip link set wire0 up";

struct Place {
    node: Node,
    backend: &'static str,
    bins: [PathBuf; 2],
    servers: Vec<Child>,
}

impl Drop for Place {
    fn drop(&mut self) {
        for server in &mut self.servers {
            drop(server.stdin.take());
            let _ = server.wait();
        }
    }
}

impl Place {
    fn new(backend: &'static str) -> Result<Self> {
        let node = Node::new()?;
        ["c1", "c2", "c3", "outside"].iter().try_for_each(|container| node.add_container(container))?;
        node.sh(PRIVATE_ETC)?;
        node.sh(WIRE)?;
        let peer = "ip link set lo up; ip addr add 192.0.2.2/24 dev wire1; ip addr add 2001:db8::2/64 dev wire1 nodad; ip link set wire1 up";
        node.sh_in("outside", peer)?;
        for container in ["c1", "c2", "c3"] {
            node.sh_in(container, "ip link set lo up; echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad")?;
        }
        Ok(Self { node, backend, bins: [plugin_bin()?, plugin_bin()?], servers: Vec::new() })
    }

    /// Sets the directories of the interface plugin and of portmap.
    fn by(mut self, bridge: PathBuf, portmap: PathBuf) -> Self {
        self.bins = [bridge, portmap];
        self
    }

    /// A bridge network, and portmap with these mappings behind it.
    fn named(&self, name: &str, mappings: &Value) -> Result<Network> {
        let digit = u32::from(name == "other") + 1;
        let ranges = json!([[{"subnet": format!("10.{digit}.0.0/24")}], [{"subnet": format!("fd00:{digit}::/64")}]]);
        let ipam = json!({"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]});
        let list = json!({"cniVersion": "1.0.0", "name": name, "plugins": [
            {"type": "bridge", "bridge": format!("br{digit}"), "isGateway": true, "hairpinMode": true, "ipam": ipam},
            {"type": "portmap", "backend": self.backend, "runtimeConfig": {"portMappings": mappings}},
        ]});
        Ok(Network::new(&self.node, &list)?.at_by(0, &self.bins[0]).at_by(1, &self.bins[1]))
    }

    fn net(&self, mappings: &Value) -> Result<Network> {
        self.named("net", mappings)
    }

    fn add(&self, container: &str, mappings: &Value) -> Result<Attachment> {
        self.net(mappings)?.add(container)
    }

    fn serve(&mut self, container: Option<&str>, protocol: &str, address: &str) -> Result<()> {
        let mut command = match container {
            Some(container) => self.node.command_in(container, TALK),
            None => self.node.command(TALK),
        };
        command.args(["serve", protocol, address]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout")?).read_line(&mut line)?;
        self.servers.push(child);
        ensure!(line.trim() == "ready", "{protocol} {address} is not served");
        Ok(())
    }

    fn stop(&mut self, number: usize) -> Result<()> {
        let server = self.servers.get_mut(number).context("no such server")?;
        drop(server.stdin.take());
        server.wait().map(drop).context("server")
    }

    /// Returns the sender that the server saw, or `nobody`.
    fn ask(&self, from: Option<&str>, protocol: &str, address: &str) -> Result<String> {
        let script = format!("{TALK} ask {protocol} {address}");
        let answer = match from {
            Some(container) => self.node.sh_in(container, &script)?,
            None => self.node.sh(&script)?,
        };
        Ok(answer.trim().to_owned())
    }

    fn rules(&self) -> Result<String> {
        self.node.sh("nft -s list ruleset 2>/dev/null; for save in iptables-save ip6tables-save; do $save -t nat | grep -v '^#' | sed 's/ \\[.*//' || true; done")
    }
}

fn mapping(host: u16, container: u16, protocol: &str) -> Value {
    json!({"hostPort": host, "containerPort": container, "protocol": protocol})
}

/// Attaches a container by bridge. Returns the attachment and portmap's answer.
fn attach(net: &Network, container: &str) -> Result<(Attachment, Answer)> {
    let attachment = net.add_first(1, container)?;
    let answer = attachment.call_at(1, "ADD")?;
    Ok((attachment, answer))
}

/// Returns a list of one mapping, for one address of the node.
fn of_host(ip: &str, host: u16, container: u16, protocol: &str) -> Value {
    let mut port = mapping(host, container, protocol);
    merge(&mut port, &json!({"hostIP": ip}));
    json!([port])
}

/// Connections from everywhere, with both packet filters, both IP versions, TCP and UDP.
fn everywhere(backend: &'static str) -> Result<()> {
    let mut place = Place::new(backend)?;
    let c1 =
        place.add("c1", &json!([mapping(8080, 80, "tcp"), mapping(5353, 53, "udp"), mapping(9090, 80, "sctp")]))?;
    place.add("c2", &json!([]))?;
    let mut protocols = vec![("tcp", 8080, 80), ("udp", 5353, 53)];
    match place.node.sh(&format!("{TALK} has sctp"))?.trim() {
        "yes" => protocols.push(("sctp", 9090, 80)),
        _ => skip_part("SCTP", "this kernel has no SCTP"),
    }
    for (protocol, _, port) in &protocols {
        for address in ["10.1.0.2", "[fd00:1::2]"] {
            place.serve(Some("c1"), protocol, &format!("{address}:{port}"))?;
        }
    }
    c1.call_at(1, "CHECK")?.success()?;
    for (protocol, port, inside) in protocols {
        for (from, address, seen) in [
            // From outside, the container sees the sender.
            (Some("outside"), "192.0.2.1", "192.0.2.2"),
            (Some("outside"), "[2001:db8::1]", "2001:db8::2"),
            (None, "192.0.2.1", "192.0.2.1"),
            (None, "127.0.0.1", "10.1.0.1"),
            (None, "[2001:db8::1]", "2001:db8::1"),
            // Connections of a neighbour and of the container itself have the node's address as sender.
            (Some("c2"), "192.0.2.1", "10.1.0.1"),
            (Some("c2"), "10.1.0.1", "10.1.0.1"),
            (Some("c2"), "[2001:db8::1]", "fd00:1::1"),
            (Some("c1"), "192.0.2.1", "10.1.0.1"),
            (Some("c1"), "[2001:db8::1]", "fd00:1::1"),
        ] {
            let answer = place.ask(from, protocol, &format!("{address}:{port}"))?;
            ensure!(answer == seen, "{backend} {protocol} {from:?} to {address}: {answer}, not {seen}");
        }
        // Direct connections from the container's neighbours keep their sender.
        ensure!(place.ask(Some("c2"), protocol, &format!("10.1.0.2:{inside}"))? == "10.1.0.3", "masqueraded too much");
        // A port of another node does not lead to the container.
        ensure!(place.ask(Some("c2"), protocol, &format!("192.0.2.2:{port}"))? == "nobody", "hijacked");
    }
    c1.call_at(1, "DEL")?.success()?;
    for (protocol, address) in [("tcp", "192.0.2.1:8080"), ("udp", "192.0.2.1:5353"), ("tcp", "[2001:db8::1]:8080")] {
        ensure!(place.ask(Some("outside"), protocol, address)? == "nobody", "{address} after DEL");
    }
    c1.call_at(1, "DEL")?.success()?;
    ensure!(!place.rules()?.contains("10.1.0.2"), "rules are left: {}", place.rules()?);
    Ok(())
}

#[test]
fn connections_from_everywhere_by_nftables() -> Result<()> {
    everywhere("nftables")
}

#[test]
fn connections_from_everywhere_by_iptables() -> Result<()> {
    everywhere("iptables")
}

/// The effects of `masqAll`, `snat: false`, a host IP, and conditions.
#[test]
fn keys_decide_who_comes_through_as_whom() -> Result<()> {
    for backend in ["nftables", "iptables"] {
        for (patch, mapped, from, address, seen) in [
            (json!({"masqAll": true}), "", "outside", "192.0.2.1", "10.1.0.1"),
            (json!({"masqAll": true}), "", "outside", "[2001:db8::1]", "fd00:1::1"),
            (json!({"snat": false}), "", "outside", "192.0.2.1", "192.0.2.2"),
            (json!({}), "192.0.2.1", "outside", "192.0.2.1", "192.0.2.2"),
            (json!({}), "192.0.2.1", "outside", "[2001:db8::1]", "nobody"),
            (json!({}), "10.1.0.1", "outside", "192.0.2.1", "nobody"),
            (json!({}), "2001:db8::1", "outside", "[2001:db8::1]", "2001:db8::2"),
            (json!({}), "0.0.0.0", "outside", "192.0.2.1", "192.0.2.2"),
            (json!({}), "0.0.0.0", "outside", "[2001:db8::1]", "nobody"),
            (
                json!({"conditionsV4": if backend == "nftables" { json!(["ip", "saddr", "!=", "192.0.2.0/24"]) } else { json!(["!", "-s", "192.0.2.0/24"]) }}),
                "",
                "outside",
                "192.0.2.1",
                "nobody",
            ),
            (
                json!({"conditionsV4": if backend == "nftables" { json!(["iifname", "wire0"]) } else { json!(["-i", "wire0"]) }}),
                "",
                "outside",
                "192.0.2.1",
                "192.0.2.2",
            ),
        ] {
            let mut place = Place::new(backend)?;
            let c1 = place.net(&of_host(mapped, 8080, 80, "tcp"))?.at_with(1, &patch).add("c1")?;
            place.add("c2", &json!([]))?;
            place.serve(Some("c1"), "tcp", "10.1.0.2:80")?;
            place.serve(Some("c1"), "tcp", "[fd00:1::2]:80")?;
            c1.call_at(1, "CHECK")?.success()?;
            let answer = place.ask(Some(from), "tcp", &format!("{address}:8080"))?;
            ensure!(answer == seen, "{backend} {patch} {mapped} from {from} to {address}: {answer}, not {seen}");
        }
    }
    Ok(())
}

/// Forwards need `route_localnet` on the bridge. Even so, a container does not reach the node's own 127.0.0.1.
#[test]
fn the_nodes_127_0_0_1_stays_closed() -> Result<()> {
    for backend in ["nftables", "iptables"] {
        let mut place = Place::new(backend)?;
        place.add("c1", &json!([mapping(8080, 80, "tcp")]))?;
        place.serve(None, "tcp", "127.0.0.1:7777")?;
        ensure!(
            place.node.sh("cat /proc/sys/net/ipv4/conf/br1/route_localnet")?.trim() == "1",
            "route_localnet is off"
        );
        let attack =
            "ip addr del 127.0.0.1/8 dev lo; ip route del local 127.0.0.0/8 dev lo table local 2>/dev/null || true
            ip route add 127.0.0.0/8 via 10.1.0.1; sysctl -qw net.ipv4.conf.all.route_localnet=1";
        place.node.sh_in("c1", attack)?;
        ensure!(place.ask(Some("c1"), "tcp", "127.0.0.1:7777")? == "nobody", "{backend}: 127.0.0.1 is open");
        // Without the guard the port is open, so the test above has proved the effect of the guard.
        place.node.sh("nft delete table ip postern_localnet")?;
        ensure!(
            place.ask(Some("c1"), "tcp", "127.0.0.1:7777")? != "nobody",
            "{backend}: the attack has no effect even without the guard"
        );
    }
    Ok(())
}

/// Forwards need `route_localnet` on the bridge. Even so, a container can't send packets from 127.0.0.x to the node.
#[test]
fn nothing_comes_from_the_nodes_127_0_0_0() -> Result<()> {
    for backend in ["nftables", "iptables"] {
        let place = Place::new(backend)?;
        place.add("c1", &json!([mapping(8080, 80, "tcp")]))?;
        place.node.sh("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.br1.rp_filter=0
            nft 'table ip seen { chain input { type filter hook input priority 0; iifname br1 ip saddr 127.0.0.0/8 counter; }; }'")?;
        let attack = "sysctl -qw net.ipv4.conf.all.route_localnet=1; ip addr del 127.0.0.1/8 dev lo
            ip addr add 127.0.0.5/32 dev eth0; python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((\"127.0.0.5\", 0))
s.sendto(b\"x\", (\"10.1.0.1\", 7777))'";
        let seen = || place.node.sh("nft list table ip seen | grep -o 'packets [0-9]*'");
        place.node.sh_in("c1", attack)?;
        ensure!(seen()?.trim() == "packets 0", "{backend}: {}", seen()?);
        // Without the guard the packets arrive, so the test above has proved the effect of the guard.
        place.node.sh("nft delete table ip postern_localnet")?;
        place.node.sh_in(
            "c1",
            "python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((\"127.0.0.5\", 0))
s.sendto(b\"x\", (\"10.1.0.1\", 7777))'",
        )?;
        ensure!(
            seen()?.trim() == "packets 1",
            "{backend}: the attack has no effect even without the guard: {}",
            seen()?
        );
    }
    Ok(())
}

/// `route_localnet` is set only for forwards that need it, and only on their link. `postern gc --node` switches the
/// setting off when no forward needs the setting. A later run removes the guard.
#[test]
fn route_localnet_only_where_needed_and_given_back() -> Result<()> {
    let port = |ip: &str| of_host(ip, 8080, 80, "tcp");
    for backend in ["nftables", "iptables"] {
        let place = Place::new(backend)?;
        let on = || place.node.sh("cd /proc/sys/net/ipv4/conf; grep -l 1 */route_localnet || true");
        let gc = || place.node.sh(&format!("{}/postern gc --node --yes", plugin_bin()?.display()));
        let guard = || place.node.sh("nft list table ip postern_localnet 2>/dev/null || true");
        for (mappings, patch) in [(json!([]), json!({})), (port(""), json!({"snat": false})), (port("::"), json!({}))] {
            let c1 = place.net(&mappings)?.at_with(1, &patch).add("c1")?;
            ensure!(on()?.is_empty() && guard()?.is_empty(), "{mappings} {patch}: {}", on()?);
            c1.call_at(1, "DEL")?.success()?;
            c1.network.call("DEL", "c1")?.success()?;
        }
        let c1 = place.add("c1", &port(""))?;
        place.add("c2", &json!([]))?;
        ensure!(on()? == "br1/route_localnet\n", "{}", on()?);
        let said = gc()?;
        ensure!(said.contains("route-localnet of link br1 stays: ports of the node lead to 10.1.0."), "{said}");
        ensure!(on()? == "br1/route_localnet\n" && guard()?.contains("127.0.0.0/8 drop"), "{}", guard()?);
        // The record still needs `route_localnet`, because `postern reapply` puts back removed rules.
        place.node.sh("nft flush chain ip cni_hostport hostports 2>/dev/null || iptables -t nat -F")?;
        ensure!(gc()?.contains("route-localnet of link br1 stays"), "{}", gc()?);
        c1.call_at(1, "DEL")?.success()?;
        let shown = place.node.sh(&format!("{}/postern gc --node < /dev/null", plugin_bin()?.display()))?;
        ensure!(shown.contains("unused: route-localnet of link br1, which is switched off"), "{shown}");
        ensure!(on()? == "br1/route_localnet\n", "gc without `--yes` switched route_localnet off: {}", on()?);
        let said = gc()?;
        ensure!(said.contains("removed route-localnet of link br1"), "{said}");
        // The next run of `postern gc --node` removes the guard's table, because no link has `route_localnet` any more.
        gc()?;
        ensure!(on()?.is_empty() && guard()?.is_empty(), "{} {}", on()?, guard()?);
    }
    Ok(())
}

/// After a reboot, ports of the earlier boot are free, and a late DEL removes no rules of other attachments.
#[test]
fn ports_of_an_earlier_boot_are_free() -> Result<()> {
    for backend in ["nftables", "iptables"] {
        let place = Place::new(backend)?;
        let c1 = place.add("c1", &json!([mapping(8080, 80, "tcp")]))?;
        place.node.sh(
            "nft flush ruleset; ip link delete br1; for veth in $(ip -o link | grep -o 'veth[0-9a-f]*'); do ip link delete $veth; done
             sed -i 's/\"boot_id\":\"[^\"]*\"/\"boot_id\":\"another\"/' /run/postern/attachments/*",
        )?;
        let c2 = c1.network.add("c2").context("the port is not free")?;
        let before = place.rules()?;
        c1.call_at(1, "DEL")?.success()?;
        // This DEL has no earlier result.
        c1.network.attachment("c1").del()?;
        ensure!(place.rules()? == before, "{backend}: {}\n---\n{before}", place.rules()?);
        c2.call_at(1, "CHECK")?.success()?;
        let records = place.node.sh("ls /run/postern/attachments | wc -l")?;
        ensure!(records.trim() == "1", "{records} records");
    }
    Ok(())
}

/// Two containers can't have the same port, and the error names the other container. One container can have the port on
/// several networks.
#[test]
fn one_port_has_one_container() -> Result<()> {
    for backend in ["nftables", "iptables"] {
        let place = Place::new(backend)?;
        let c1 = place.add("c1", &json!([mapping(8080, 80, "tcp"), mapping(8081, 81, "tcp")]))?;
        let before = place.rules()?;
        for (mappings, words) in [
            (of_host("", 8080, 80, "tcp"), "the node's tcp port 8080 is taken: container c1 of network \"net\" has it"),
            (of_host("192.0.2.1", 8081, 80, "tcp"), "tcp port 8081 is taken"),
            (of_host("::", 8081, 80, "tcp"), "tcp port 8081 is taken"),
        ] {
            let (c2, answer) = attach(&place.net(&mappings)?, "c2")?;
            Refusal::of(&answer)?.expect(999, words)?;
            c2.network.call("DEL", "c2")?.success()?;
        }
        let after = place.rules()?;
        ensure!(after == before, "a refused ADD left rules: {before}\nafter:\n{after}");
        place.add("c2", &of_host("", 8080, 80, "udp")).context("the same port of another protocol is refused")?;
        // Podman requests the same ports on another network of the same container.
        let second = json!([mapping(8080, 80, "tcp"), mapping(8081, 81, "tcp")]);
        let eth1 = place.named("other", &second)?.interface("eth1").add("c1")?;
        eth1.call_at(1, "CHECK")?.success()?;
        c1.call_at(1, "DEL")?.success()?;
        // The other network's rules are still there.
        eth1.call_at(1, "CHECK")?.success().context("after DEL of the first")?;
        let net = place.net(&of_host("", 8080, 80, "tcp"))?;
        let (_, answer) = attach(&net, "c3")?;
        Refusal::of(&answer)?.expect(999, "container c1 of network \"other\" has it")?;
        eth1.call_at(1, "DEL")?.success()?;
        net.call("DEL", "c3")?.success()?;
        net.add("c3").context("the port is not free after DEL")?;
    }
    Ok(())
}

/// portmap deletes tracked UDP connections that began before the forward, or remain after the forward. Connections of
/// other programs stay.
#[test]
fn udp_follows_the_forward() -> Result<()> {
    let of_family = [
        ("192.0.2.1", "192.0.2.2", "10.1.0.2", "192.0.2.2"),
        ("[2001:db8::1]", "[2001:db8::2]", "[fd00:1::2]", "2001:0db8:0000:0000:0000:0000:0000:0002"),
    ];
    for (backend, family) in ["nftables", "iptables"].iter().flat_map(|backend| of_family.map(|of| (backend, of))) {
        let (here, peer, inside, in_kernel) = family;
        let seen = peer.trim_matches(['[', ']']);
        let mut place = Place::new(backend)?;
        place.serve(None, "udp", &format!("{here}:5353"))?;
        place.serve(Some("outside"), "udp", &format!("{peer}:5353"))?;
        let fixed = |to: &str, from: &str, port: u16| format!("{TALK} ask udp {to}:5353 {from}:{port}");
        // A sender with a fixed port first talks to the node's own program.
        let own = place.node.sh_in("outside", &fixed(here, peer, 40_000))?;
        ensure!(own.trim() == seen, "{own}");
        let foreign = |place: &Place| {
            let words = format!("dst={in_kernel}.*dport=5353");
            place.node.sh(&format!("cat /proc/net/nf_conntrack 2>/dev/null | grep -c '{words}' || true"))
        };
        place.node.sh(&fixed(peer, here, 40_001))?;
        let before = foreign(&place)?;
        let c1 = place.add("c1", &json!([mapping(5353, 53, "udp")]))?;
        place.serve(Some("c1"), "udp", &format!("{inside}:53"))?;
        // Now only the container can answer on this port.
        place.stop(0)?;
        let led = place.node.sh_in("outside", &fixed(here, peer, 40_000))?;
        ensure!(led.trim() == seen, "{backend} {here}: the forward does not catch the old connection: {led}");
        ensure!(foreign(&place)? == before, "connections to another node's port were deleted");
        // After DEL the same connection reaches the node again. The container no longer answers.
        c1.call_at(1, "DEL")?.success()?;
        place.stop(2)?;
        place.serve(None, "udp", &format!("{here}:5353"))?;
        let back = place.node.sh_in("outside", &fixed(here, peer, 40_000))?;
        ensure!(back.trim() == seen, "{backend} {here}: the connection still leads to the container: {back}");
    }
    Ok(())
}

/// A forward from one of the node's addresses deletes the tracked connections to this address only.
#[test]
fn udp_of_another_host_ip_goes_on() -> Result<()> {
    for backend in ["nftables", "iptables"] {
        let mut place = Place::new(backend)?;
        place.node.sh("ip addr add 192.0.2.7/24 dev wire0")?;
        let of_host = |ip: &str| of_host(ip, 5353, 53, "udp");
        let ask = |place: &Place, to: &str, from: u16| -> Result<bool> {
            let answer = place.node.sh_in("outside", &format!("{TALK} ask udp {to}:5353 192.0.2.2:{from}"))?;
            Ok(answer.trim() == "192.0.2.2")
        };
        // The first connection leads to c2. Then c2's rules are removed, and only the kernel's connection tracking
        // leads the connection to c2.
        let c2 = place.add("c2", &of_host("192.0.2.1"))?;
        place.serve(Some("c2"), "udp", "10.1.0.2:53")?;
        ensure!(ask(&place, "192.0.2.1", 40_000)?, "{backend}: the forward does not work");
        place.node.sh(match backend {
            "nftables" => "nft flush chain ip cni_hostport hostports",
            _ => "iptables -t nat -F CNI-HOSTPORT-DNAT",
        })?;
        ensure!(ask(&place, "192.0.2.1", 40_000)?, "{backend}: the kernel itself deleted the first connection");
        // The second connection leads to the node.
        place.serve(None, "udp", "192.0.2.7:5353")?;
        ensure!(ask(&place, "192.0.2.7", 40_001)?, "{backend}: the node does not answer");
        place.stop(1)?;
        let c1 = place.add("c1", &of_host("192.0.2.7"))?;
        place.serve(Some("c1"), "udp", "10.1.0.3:53")?;
        ensure!(ask(&place, "192.0.2.7", 40_001)?, "{backend}: the forward does not catch the old connection");
        ensure!(ask(&place, "192.0.2.1", 40_000)?, "{backend}: a connection to another address was deleted");
        c1.call_at(1, "DEL")?.success()?;
        ensure!(!ask(&place, "192.0.2.7", 40_001)?, "{backend}: the connection still leads to the container");
        ensure!(ask(&place, "192.0.2.1", 40_000)?, "{backend}: DEL deleted a connection to another address");
        // The DEL of c2 deletes the first connection.
        c2.call_at(1, "DEL")?.success()?;
        ensure!(!ask(&place, "192.0.2.1", 40_000)?, "{backend}: the first connection still leads to the container");
    }
    Ok(())
}

/// One call takes 16,384 mappings. A call with one more is refused before it makes anything.
#[test]
fn as_many_ports_as_podman_expands() -> Result<()> {
    let legacy = "for family in iptables ip6tables; do for tool in '' -save -restore; do
        ln -sf /usr/sbin/$family-legacy$tool /etc/alternatives/$family$tool; done; done";
    for (backend, script) in [("nftables", ""), ("iptables", ""), ("iptables", legacy)] {
        let count = 16_384;
        let mut place = Place::new(backend)?;
        place.node.sh(script)?;
        // The longest form in which a runtime may write mappings: each has an address.
        let with_address = |step| json!({"hostPort": 10_000 + step, "containerPort": 20_000 + step, "protocol": "tcp", "hostIP": "0.0.0.0"});
        let all = |count: u16| (0..count).map(with_address).collect::<Value>();
        let before = place.rules()?;
        let (c2, answer) = attach(&place.net(&all(16_385))?, "c2")?;
        Refusal::of(&answer)?.expect(999, "16385 port mappings are more than 16384")?;
        ensure!(place.rules()? == before, "a refused ADD made rules");
        c2.network.call("DEL", "c2")?.success()?;
        let started = Instant::now();
        let c1 = place.add("c1", &all(count))?;
        println!("{backend}: ADD with {count} mappings took {:?}", started.elapsed());
        let (last, inside) = (10_000 + count - 1, 20_000 + count - 1);
        place.serve(Some("c1"), "tcp", &format!("10.1.0.3:{inside}"))?;
        ensure!(
            place.ask(Some("outside"), "tcp", &format!("192.0.2.1:{last}"))? == "192.0.2.2",
            "the last port does not lead to the container"
        );
        c1.call_at(1, "CHECK")?.success()?;
        let started = Instant::now();
        c1.call_at(1, "DEL")?.success()?;
        println!("{backend}: DEL with {count} mappings took {:?}", started.elapsed());
        ensure!(!place.rules()?.contains("10.1.0.3"), "rules are left");
    }
    Ok(())
}

/// Native plugins before and after ours, with both packet filters.
#[test]
fn mixed_lists() -> Result<()> {
    let (native, ours) = (native_bin()?, plugin_bin()?);
    for backend in ["nftables", "iptables"] {
        // Our portmap after a native bridge: the addresses count only while the container has them.
        let mut place = Place::new(backend)?.by(native.clone(), ours.clone());
        let mappings = json!([mapping(8080, 80, "tcp")]);
        let operators = place.node.path("/etc/postern/policy/portmap.toml");
        std::fs::write(&operators, "[previous]\nin-container = \"false\"\n")?;
        let (c1, answer) = attach(&place.net(&mappings)?, "c1")?;
        Refusal::of(&answer)?.expect(
            DENIED,
            "prevResult names 10.1.0.2, and no record says that an earlier plugin gave this address…`previous = { in-container = \"true\" }`…portmap.toml",
        )?;
        std::fs::remove_file(&operators)?;
        place.node.sh_in("c1", "ip addr del 10.1.0.2/24 dev eth0")?;
        let answer = c1.call_at(1, "ADD")?;
        let words = "prevResult names 10.1.0.2, and no record says that an earlier plugin gave this address: \"eth0\" of the container does not have it";
        Refusal::of(&answer)?.expect(DENIED, words)?;
        place.node.sh_in("c1", "ip addr add 10.1.0.2/24 dev eth0; ip route add default via 10.1.0.1")?;
        c1.call_at(1, "ADD")?.success()?;
        place.serve(Some("c1"), "tcp", "10.1.0.2:80")?;
        ensure!(
            place.ask(Some("outside"), "tcp", "192.0.2.1:8080")? == "192.0.2.2",
            "our portmap after the native bridge"
        );
        c1.by(&native).call_at(1, "CHECK")?.success().context("native CHECK of ours")?;
        c1.call_at(1, "DEL")?.success()?;
        // The native portmap after our bridge: rollback and return while the container runs.
        let mut place = Place::new(backend)?;
        let c1 = place.add("c1", &mappings)?;
        place.serve(Some("c1"), "tcp", "10.1.0.2:80")?;
        c1.by(&native).call_at(1, "DEL")?.success().context("native DEL of ours")?;
        ensure!(place.ask(Some("outside"), "tcp", "192.0.2.1:8080")? == "nobody", "after the native DEL");
        c1.by(&native).call_at(1, "ADD")?.success()?;
        ensure!(place.ask(Some("outside"), "tcp", "192.0.2.1:8080")? == "192.0.2.2", "after the native ADD");
        c1.call_at(1, "CHECK")?;
        c1.call_at(1, "DEL")?.success().context("our DEL of native rules")?;
        let rules = place.rules()?;
        ensure!(!rules.contains("10.1.0.2:80"), "{backend}: {rules}");
    }
    Ok(())
}

/// CHECK of forwards that a native plugin made by nftables: in the forms of 1.9.1, of older and of later versions, and
/// in damaged forms.
#[test]
fn native_forms_by_nftables() -> Result<()> {
    let place = Place::new("nftables")?.by(plugin_bin()?, native_bin()?);
    let made = place.add("c1", &json!([mapping(8080, 80, "tcp"), mapping(8081, 81, "udp")]))?;
    let c1 = made.by(&plugin_bin()?);
    let all = "nft list table ip cni_hostport > /run/forms; nft list table ip6 cni_hostport >> /run/forms";
    place.node.sh(all)?;
    let own = "ip saddr 10.1.0.2 ip daddr 10.1.0.2 masquerade";
    for (change, patch, is_whole) in [
        ("", json!({}), true),
        // The native plugins' main branch masquerades the container's network, or all networks.
        (&*format!("s,{own},ip saddr 10.1.0.0/24 ip daddr 10.1.0.2 masquerade,"), json!({}), true),
        (&format!("s,{own},ip saddr 0.0.0.0/0 ip daddr 10.1.0.2 masquerade,"), json!({"masqAll": true}), true),
        (&format!("s,{own},ip daddr 10.1.0.2 masquerade,"), json!({"masqAll": true}), true),
        // 1.9.1 forgets `masqAll`.
        ("", json!({"masqAll": true}), true),
        (&format!("/{own}/d"), json!({"snat": false}), true),
        // Conditions stand in the shared chains.
        (
            "/^table ip cni/,/^}/ s,fib daddr type local jump,ip saddr != 192.0.2.0/24 &,",
            json!({"conditionsV4": ["ip", "saddr", "!=", "192.0.2.0/24"]}),
            true,
        ),
        // 1.9.0 has forwards with a host IP in a separate chain.
        (
            "/^table ip6/,$ d; /tcp dport 8080 dnat to 10.1.0.2:80/d; s,chain hostip_hostports {,&\\n ip daddr 192.0.2.1 tcp dport 8080 dnat to 10.1.0.2:80 comment \"c1\",",
            json!({"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.1"}]}}),
            true,
        ),
        (&format!("/{own}/d"), json!({}), false),
        ("/saddr 127.0.0.1 /d", json!({}), false),
        ("s,ip saddr 10.1.0.2 ip daddr,ip saddr 10.1.0.3 ip daddr,", json!({}), false),
        ("/udp dport 8081 /d", json!({}), false),
        ("s,dnat to 10.1.0.2:80 ,dnat to 10.1.0.2:88 ,", json!({}), false),
        ("s,dnat to 10.1.0.2:80 ,dnat to 10.1.0.3:80 ,", json!({}), false),
        ("s,comment \"c1\",comment \"c2\",", json!({}), false),
        // Packets for other destinations would be forwarded (CVE-2025-67499).
        ("s,fib daddr type local jump,jump,", json!({}), false),
        ("/^\\tchain output/,/^\\t}/ s/fib .*//", json!({}), false),
        ("s,jump hostports$,,", json!({}), false),
        ("/^table ip6/,$ s,tcp dport 8080 dnat.*,,", json!({}), false),
    ] {
        let script = format!(
            "nft delete table ip cni_hostport; nft delete table ip6 cni_hostport 2>/dev/null || true; sed '{change}' /run/forms | nft -f -"
        );
        place.node.sh(&script).with_context(|| change.to_owned())?;
        let mut asked = c1.clone();
        asked.network = asked.network.at_with(1, &patch);
        let answer = asked.call_at(1, "CHECK")?;
        match is_whole {
            true => answer.success().map(drop).with_context(|| format!("{change} {patch}"))?,
            false => Refusal::of(&answer)
                .and_then(|refusal| refusal.expect(999, "the forwards to…are incomplete"))
                .with_context(|| format!("{change} {patch}"))?,
        }
    }
    c1.call_at(1, "DEL")?.success()?;
    let rules = place.rules()?;
    ensure!(!rules.contains("10.1.0.2"), "{rules}");
    Ok(())
}

/// Below 0.4.0, DEL has no `prevResult`. The addresses come from the record, or without a record from rules with the
/// container's names.
#[test]
fn del_without_an_earlier_result() -> Result<()> {
    for backend in ["nftables", "iptables"] {
        for (bridge, portmap) in
            [(native_bin()?, plugin_bin()?), (plugin_bin()?, native_bin()?), (native_bin()?, native_bin()?)]
        {
            for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1"] {
                let place = Place::new(backend)?.by(bridge.clone(), portmap.clone());
                let ipam = json!({"type": "host-local", "ranges": null, "subnet": "10.1.0.0/24", "routes": null});
                let net = place.net(&json!([mapping(8080, 80, "tcp")]))?.with(&json!({"cniVersion": version}));
                let c1 = net.at_with(0, &json!({"ipam": ipam})).add("c1").with_context(|| version.to_owned())?;
                ensure!(place.rules()?.contains("10.1.0.2:80"), "{version}: no rules");
                let ours = c1.by(&plugin_bin()?).network;
                for _ in 0..2 {
                    ours.call_at(1, "DEL", "c1", &json!({}))?.success()?;
                    let rules = place.rules()?;
                    ensure!(!rules.contains("10.1.0.2"), "{backend} {version}: rules are left: {rules}");
                }
            }
        }
    }
    Ok(())
}

/// Below 0.4.0, with our own interface plugin, the record has the addresses.
#[test]
fn del_by_the_record_alone() -> Result<()> {
    for backend in ["nftables", "iptables"] {
        let place = Place::new(backend)?;
        let net = place.net(&json!([mapping(8080, 80, "tcp")]))?.with(&json!({"cniVersion": "0.3.1"}));
        net.add("c1")?;
        net.call_at(1, "DEL", "c1", &json!({}))?.success()?;
        ensure!(!place.rules()?.contains("10.1.0.2:80"), "rules are left");
    }
    Ok(())
}

/// An operator renames the chain that leads to the forwards, or adds a rule that leads to them. DEL leaves no forward.
#[test]
fn forwards_go_whoever_leads_to_them() -> Result<()> {
    for (script, stays) in [
        ("nft rename chain ip nat CNI-HOSTPORT-DNAT FOO; nft rename chain ip6 nat CNI-HOSTPORT-DNAT FOO", false),
        ("iptables -t nat -A PREROUTING -j $(iptables -t nat -S | sed -n 's/^-N \\(CNI-DN-.*\\)/\\1/p')", true),
    ] {
        let place = Place::new("iptables")?;
        let c1 = place.add("c1", &json!([mapping(8080, 80, "tcp")]))?;
        place.node.sh(script)?;
        c1.call_at(1, "DEL")?.success()?;
        let rules = place.rules()?;
        ensure!(!rules.contains("10.1.0.2:80") && !rules.contains("[fd00:1::2]:80"), "{script}: {rules}");
        ensure!(rules.contains("CNI-DN-") == stays, "{script}: {rules}");
        c1.call_at(1, "DEL")?.success()?;
    }
    Ok(())
}

/// nftables' rules contain only the first 128 bytes of a container's ID. Another ID with the same beginning keeps its
/// forwards: a native plugin's forwards, and forwards that a record lists.
#[test]
fn forwards_of_ids_that_begin_alike() -> Result<()> {
    let id = |end: &str| format!("{}{end}", "x".repeat(128));
    let ours = plugin_bin()?;
    // The native plugin accepts no ID longer than 128 bytes.
    for (keeper, ends) in [(native_bin()?, ["", ""].as_slice()), (ours.clone(), &["one", "two"])] {
        let place = Place::new("nftables")?;
        // Makes a call with this ID, in the container's namespace.
        let call = |net: &Network, at: usize, verb: &str, container: &str, end: &str, previous: &Value| {
            let request = net.request(at, verb, container, &json!({"prevResult": previous}))?;
            place.node.call(&request.env("CNI_CONTAINERID", &id(end)))
        };
        let mut made = Vec::new();
        for (container, end) in ["c1", "c2"].iter().zip(ends).take(if keeper == ours { 2 } else { 1 }) {
            let net = place.net(&json!([mapping(8080 + made.len() as u16, 80, "tcp")]))?.by(&keeper);
            let result = call(&net, 0, "ADD", container, end, &Value::Null)?.success()?;
            call(&net, 1, "ADD", container, end, &result)?.success()?;
            made.push((net.by(&ours), result));
        }
        let before = place.rules()?;
        ensure!(before.contains("10.1.0.2:80"), "{before}");
        let (net, result) = made.first().context("an attachment")?;
        // An attachment without a record is removed. Its `prevResult` has another address or none.
        for previous in [Value::Null, json!({"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.99/24"}]})] {
            let answer = call(net, 1, "DEL", "c1", "three", &previous)?;
            ensure!(answer.stderr.contains("only the beginning of this container's ID"), "{answer:?}");
            answer.success()?;
            ensure!(place.rules()? == before, "{}", place.rules()?);
        }
        call(net, 1, "DEL", "c1", ends[0], result)?.success()?;
        let rules = place.rules()?;
        ensure!(!rules.contains("10.1.0.2:80"), "{rules}");
        ensure!(keeper != ours || rules.contains("10.1.0.3:80"), "{rules}");
    }
    Ok(())
}

/// Ports that an operator keeps for the node.
#[test]
fn ports_that_policy_keeps() -> Result<()> {
    let place = Place::new("nftables")?;
    let policy = "[grant.port-mappings]\nports = [\"1024-9099\", \"9101-65535\"]\nbackends = [\"nftables\"]\n";
    std::fs::write(place.node.path("/etc/postern/policy/portmap.toml"), policy)?;
    for (port, words) in [
        (22, "policy does not allow plugin \"portmap\" port-mappings.ensure on the node's port 22…\"22\""),
        (9100, "on the node's port 9100"),
    ] {
        let (c1, answer) = attach(&place.net(&json!([mapping(port, 80, "tcp")]))?, "c1")?;
        Refusal::of(&answer)?.expect(DENIED, words)?;
        c1.network.call("DEL", "c1")?.success()?;
    }
    let net = place.net(&json!([mapping(8080, 80, "tcp")]))?.at_with(1, &json!({"backend": "iptables"}));
    let (_, answer) = attach(&net, "c1")?;
    Refusal::of(&answer)?.expect(DENIED, "policy does not allow forwards by iptables")
}

/// The code of a refusal by policy.
const DENIED: u64 = 110;
