//! Attached containers really reach each other, are masqueraded and guarded, and DEL leaves nothing.

use anyhow::{Context, Result, bail, ensure};
use postern_tests::{Attachment, Names, Network, Node, compare, merge, plugin_bin};
use serde_json::{Value, json};

/// A node with containers of one network.
struct Place {
    node: Node,
    net: Network,
}

impl Place {
    fn new(patch: &Value, containers: &[&str]) -> Result<Self> {
        let ranges = json!([[{"subnet": "10.9.0.0/24"}]]);
        let ipam = json!({"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]});
        let config = json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": "br9", "ipam": ipam});
        let node = Node::new()?;
        containers.iter().try_for_each(|container| node.add_container(container))?;
        Ok(Self { net: Network::new(&node, &config)?.with(patch), node })
    }

    /// Returns true if `address` answers the container within some seconds.
    fn pings(&self, container: &str, address: &str) -> bool {
        self.node
            .sh_in(container, &format!("for i in 1 2 3 4 5; do busybox ping -c1 -W1 {address} && exit; done; exit 1"))
            .is_ok()
    }

    /// Returns true if a single packet to `address` is answered.
    fn pings_once(&self, container: &str, address: &str) -> bool {
        self.node.sh_in(container, &format!("busybox ping -c1 -W1 {address}")).is_ok()
    }

    /// Gives the container's link another hardware address. Returns when the kernel lets packets pass the link again,
    /// some time after it is set up.
    fn change_address(&self, container: &str, mac: &str) -> Result<()> {
        self.node.sh_in(
            container,
            &format!(
                "ip link set eth0 down; ip link set eth0 address {mac}; ip link set eth0 up; \
                 until ip -o link show eth0 | grep -q 'state UP'; do sleep .01; done"
            ),
        )?;
        self.node.sh("while bridge link | grep -q 'state disabled'; do sleep .01; done").map(drop)
    }

    /// Makes a namespace beyond the host without a route back to the containers.
    fn add_outside(&self) -> Result<&'static str> {
        self.node.add_container("outside")?;
        self.node.sh(
            "ip link add up0 type veth peer name up1 netns outside; ip addr add 203.0.113.1/24 dev up0; ip addr add 2001:db8::1/64 dev up0 nodad
             ip link set up0 up; echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
        )?;
        self.node.sh_in(
            "outside",
            "ip addr add 203.0.113.2/24 dev up1; ip addr add 2001:db8::2/64 dev up1 nodad; ip link set up1 up",
        )?;
        Ok("203.0.113.2")
    }
}

fn dual(patch: Value) -> Value {
    let mut config = json!({"ipam": {
        "ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
    }});
    merge(&mut config, &patch);
    config
}

#[test]
fn containers_on_a_bridge_ping_each_other() -> Result<()> {
    let place = Place::new(&dual(json!({"isGateway": true})), &["c1", "c2"])?;
    let c1 = place.net.add("c1")?;
    let addresses = c1.bare_addresses();
    place.net.add("c2")?;
    ensure!(addresses.len() == 2, "{c1:?}");
    for address in addresses.iter().map(String::as_str).chain(["10.9.0.1", "fd00:9::1"]) {
        ensure!(place.pings("c2", address), "no answer from {address}");
    }
    c1.check()?.del()?;
    ensure!(!place.pings_once("c2", "10.9.0.2"), "the deleted container still answers");
    ensure!(place.pings("c2", "10.9.0.1"), "the other container lost its network");
    Ok(())
}

#[test]
fn a_fresh_attachment_answers_the_first_packet() -> Result<()> {
    let place = Place::new(&json!({"isGateway": true}), &["c1"])?;
    place.net.add("c1")?;
    ensure!(place.pings_once("c1", "10.9.0.1"), "ADD returned before the attachment worked");
    Ok(())
}

#[test]
fn isolated_ports_reach_the_gateway_only() -> Result<()> {
    let place = Place::new(&json!({"isGateway": true, "portIsolation": true}), &["c1", "c2"])?;
    let addresses = place.net.add("c1")?.bare_addresses();
    place.net.add("c2")?;
    ensure!(place.pings("c2", "10.9.0.1"), "no gateway");
    ensure!(addresses.iter().all(|address| !place.pings_once("c2", address)), "isolated ports see each other");
    Ok(())
}

#[test]
fn containers_on_ptp_reach_host_and_each_other() -> Result<()> {
    let place = Place::new(&dual(json!({"type": "ptp"})), &["c1", "c2"])?;
    let addresses = place.net.add("c1")?.bare_addresses();
    place.net.add("c2")?;
    for address in addresses.iter().map(String::as_str).chain(["10.9.0.1", "fd00:9::1"]) {
        ensure!(place.pings("c2", address), "no answer from {address}");
    }
    Ok(())
}

#[test]
fn masquerade_reaches_the_outside() -> Result<()> {
    for plugin in ["bridge", "ptp"] {
        // Without masquerading the outside has no route back. With a route back, the test would prove nothing.
        let plain = Place::new(&dual(json!({"type": plugin, "isGateway": true})), &["c1"])?;
        let outside = plain.add_outside()?;
        plain.net.add("c1")?;
        ensure!(!plain.pings_once("c1", outside), "{plugin}: the outside answers without masquerade");
        for backend in ["nftables", "iptables"] {
            let place = Place::new(
                &dual(json!({"type": plugin, "isGateway": true, "ipMasq": true, "ipMasqBackend": backend})),
                &["c1"],
            )?;
            place.add_outside()?;
            place.net.add("c1")?;
            for address in [outside, "2001:db8::2"] {
                ensure!(place.pings("c1", address), "{plugin} {backend}: no answer from {address}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_spoof_guard_drops_other_hardware_addresses() -> Result<()> {
    for guarded in [false, true] {
        let place = Place::new(&json!({"isGateway": true, "macspoofchk": guarded}), &["c1"])?;
        let result = place.net.add("c1")?.result;
        let interfaces = result["interfaces"].as_array().map(Vec::as_slice).unwrap_or_default();
        let own = interfaces.iter().find(|link| link["name"] == "eth0").and_then(|link| link["mac"].as_str());
        ensure!(place.pings("c1", "10.9.0.1"), "guarded {guarded}: no gateway");
        place.change_address("c1", "02:00:00:00:00:99")?;
        if guarded {
            ensure!(!place.pings_once("c1", "10.9.0.1"), "a changed hardware address got an answer");
            place.change_address("c1", own.context("an address")?)?;
        }
        ensure!(place.pings("c1", "10.9.0.1"), "guarded {guarded}: no gateway after a change");
    }
    Ok(())
}

#[test]
fn del_leaves_nothing() -> Result<()> {
    let cases = [
        json!({"isDefaultGateway": true, "ipam": {"routes": null}}),
        json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true}),
        json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "iptables"}),
        json!({"type": "ptp", "ipMasq": true, "ipMasqBackend": "nftables"}),
    ];
    for patch in cases {
        let place = Place::new(&patch, &["c0", "c1", "c2"])?;
        // Node objects (bridge, forwarding, tables, directories) come with the first attachment and stay.
        place.net.add("c0")?.del()?;
        let mut names = Names::new("");
        let snapshot = |names: &mut Names| place.node.snapshot(&["c0", "c1", "c2"], names);
        let before = snapshot(&mut names)?;
        let attachments = [place.net.add("c1")?, place.net.add("c2")?];
        let between = snapshot(&mut names)?;
        ensure!(compare(&before, &between).len() > 10, "the snapshot doesn't show an attachment");
        attachments.iter().try_for_each(Attachment::del)?;
        let after = snapshot(&mut names)?;
        let left: Vec<_> = compare(&before, &after)
            .into_iter()
            .filter(|mismatch| !mismatch.path.contains("/last_reserved_ip."))
            .collect();
        if !left.is_empty() {
            bail!("{patch}: left behind:\n{}", left.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        }
    }
    Ok(())
}

/// Root in a container claims the gateway's IPv6 address, before or after the bridge gets it. The node does not use
/// duplicate address detection for the gateway. A gateway that was lost by such a claim is restored.
#[test]
fn a_gateway_is_not_asked_for() -> Result<()> {
    let node = Node::new()?;
    let network = |name: &str, plugin: &str, subnet: &str| {
        let ipam = json!({"type": "host-local", "ranges": [[{"subnet": subnet}]]});
        let config = json!({"name": name, "type": plugin, "bridge": "br9", "isGateway": true, "ipam": ipam});
        Network::new(&node, &config)
    };
    let add = |container: &str, network: &Network| {
        node.add_container(container)?;
        network.add(container)
    };
    let (v4, v6) = (network("four", "bridge", "10.9.0.0/24")?, network("six", "bridge", "fd00:9::/64")?);
    add("c1", &v4)?;
    ensure!(
        node.sh("cat /proc/sys/net/ipv6/conf/br9/accept_dad")?.trim() == "0",
        "the bridge uses duplicate address detection"
    );
    node.sh_in("c1", "ip -6 address add fd00:9::1/64 dev eth0 nodad")?;
    add("c2", &v6)?;
    let gateway = || node.sh("ip -6 -o address show dev br9 | grep -F fd00:9::1/64");
    ensure!(!gateway()?.contains("tentative") && !gateway()?.contains("dadfailed"), "{}", gateway()?);
    // The state that an earlier version left.
    node.sh("ip -6 address delete fd00:9::1/64 dev br9; echo 1 > /proc/sys/net/ipv6/conf/br9/accept_dad
        ip -6 address add fd00:9::1/64 dev br9
        for time in $(seq 50); do ip -6 -o address show dev br9 | grep -q dadfailed && break; sleep 0.1; done")?;
    ensure!(gateway()?.contains("dadfailed"), "the attack had no effect: {}", gateway()?);
    let doctor = || node.sh(&format!("{}/postern doctor --json || true", plugin_bin()?.display()));
    ensure!(doctor()?.contains("the gateway fd00:9::1/64 on br9 is not used"), "{}", doctor()?);
    add("c3", &v6)?;
    ensure!(!gateway()?.contains("dadfailed") && !doctor()?.contains("is not used"), "{}", gateway()?);
    // The same holds for a bridge that another program made, and that may already be up. With `accept_dad` 2, the
    // kernel would switch the bridge's IPv6 off for good.
    for (bridge, script) in [("br8", "true"), ("br7", "ip link set br7 up")] {
        node.sh(&format!(
            "ip link add {bridge} type bridge; echo 2 > /proc/sys/net/ipv6/conf/{bridge}/accept_dad; {script}"
        ))?;
        let subnet = if bridge == "br8" { "fd00:18::/64" } else { "fd00:17::/64" };
        let network = network(bridge, "bridge", subnet)?.with(&json!({"bridge": bridge}));
        add(&format!("{bridge}a"), &network)?;
        let dad = || node.sh(&format!("cat /proc/sys/net/ipv6/conf/{bridge}/accept_dad"));
        ensure!(dad()?.trim() == "0", "{bridge} uses duplicate address detection");
        // The bridge has the gateway already.
        node.sh(&format!("echo 2 > /proc/sys/net/ipv6/conf/{bridge}/accept_dad"))?;
        add(&format!("{bridge}b"), &network)?;
        ensure!(dad()?.trim() == "0", "{bridge} uses duplicate address detection, with a gateway");
    }
    // The kernel leaves an attacked bridge in this state.
    node.sh("echo 1 > /proc/sys/net/ipv6/conf/br8/disable_ipv6")?;
    let able = "sysctl -w net/ipv6/conf/br8/disable_ipv6=0 && ip address add fd00:18::1/64 dev br8";
    ensure!(doctor()?.contains(able), "{}", doctor()?);
    node.sh(&format!("{able} > /dev/null"))?;
    ensure!(!doctor()?.contains("does not have the gateway"), "{}", doctor()?);
    // The host end of a pair is at risk too, because the pair's other end is in the container.
    let pair = network("pair", "ptp", "fd00:8::/64")?;
    add("c4", &pair)?;
    let ends = node.sh("ip -6 -o address | grep -F fd00:8::1/")?;
    ensure!(!ends.contains("tentative"), "{ends}");
    Ok(())
}
