//! vrf behind other plugins: overlapping networks, routes that move into the VRF and back, and how earlier plugins
//! check the link. Many kernels lack VRFs, so `tests/vm/kernel` also runs this test in a virtual machine.

use anyhow::{Context, Result, ensure};
use postern_tests::kernel::{has, has_or_skips};
use postern_tests::{Attachment, Network, Node, merge, native_bin, plugin_bin};
use serde_json::{Value, json};
use std::path::Path;

/// A node with one container. The test does the work of a runtime.
struct Place {
    node: Node,
}

/// True if the kernel has VRFs.
fn is_here() -> Result<bool> {
    has_or_skips("vrf")
}

fn vrf(name: &str, keys: &Value) -> Value {
    let mut config = json!({"type": "vrf", "vrfname": name});
    merge(&mut config, keys);
    config
}

/// A network on a bridge of the node. All these networks have the same addresses.
fn bridge(name: &str) -> Value {
    let ranges = json!([[{"subnet": "10.33.0.0/24"}], [{"subnet": "fd33::/64"}]]);
    let ipam = json!({"type": "host-local", "ranges": ranges, "routes": [{"dst": "192.0.2.0/24", "gw": "10.33.0.7"}]});
    json!({"type": "bridge", "bridge": name, "isDefaultGateway": true, "ipam": ipam})
}

impl Place {
    fn new() -> Result<Self> {
        let node = Node::new()?;
        node.add_container("c1")?;
        node.sh("ip link add wire33 address 02:00:00:00:ee:33 type veth peer name wire34; ip link set wire33 up; ip link set wire34 up")?;
        Ok(Self { node })
    }

    /// A network for one interface of c1, named after the interface.
    fn list(&self, ifname: &str, plugins: &[Value]) -> Result<Network> {
        let config = json!({"name": format!("net-{ifname}"), "plugins": plugins});
        Ok(Network::new(&self.node, &config)?.interface(ifname))
    }

    /// A network on a bridge, followed by vrf.
    fn network(&self, ifname: &str, name: &str, vrf: Value) -> Result<Network> {
        self.list(ifname, &[bridge(name), vrf])
    }

    fn vrfs(&self) -> Result<Vec<String>> {
        let shown = self.node.sh_in("c1", "ip -o link show type vrf | sed 's/^[0-9]*: \\([^:@]*\\).*/\\1/' | sort")?;
        Ok(shown.lines().map(str::to_owned).collect())
    }

    /// Returns the container's unicast routes, without link-local routes.
    fn routes(&self) -> Result<String> {
        self.node.sh_in(
            "c1",
            "(ip route show table all; ip -6 route show table all) | grep -v -e ^local -e ^broadcast -e ^multicast -e ^fe80 -e ^ff00 -e ^anycast | sed 's/ pref medium//; s/ *$//' | sort -u",
        )
    }
}

/// Two networks with the same addresses are in two VRFs. The traffic of each network stays in its VRF.
#[test]
fn networks_that_overlap_are_apart() -> Result<()> {
    if !is_here()? {
        return Ok(());
    }
    let place = Place::new()?;
    place.node.add_container("north")?;
    place.node.add_container("south")?;
    let mut attachments = Vec::new();
    for (ifname, far, name) in [("eth0", "north", "blue"), ("eth1", "south", "red")] {
        place.node.sh(&format!(
            "ip link add far-{far} type bridge; ip link set far-{far} up
            ip link add p-{far} type veth peer name eth0 netns {far}; ip link set p-{far} master far-{far} up
            ip -n {far} address add 10.33.0.1/24 dev eth0; ip -n {far} address add fd33::1/64 dev eth0 nodad; ip -n {far} link set eth0 up
            ip -n {far} link set lo up; ip -n {far} address add 198.51.100.1/32 dev lo
            # The file names the namespace.
            nsenter --net=/run/netns/{far} sh -c 'echo {far} > /run/said-{far}'"
        ))?;
        let ipam = json!({"type": "static", "addresses": [{"address": "10.33.0.2/24", "gateway": "10.33.0.1"}, {"address": "fd33::2/64", "gateway": "fd33::1"}],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]});
        let bridge = json!({"type": "bridge", "bridge": format!("far-{far}"), "ipam": ipam});
        attachments.push((place.list(ifname, &[bridge, vrf(name, &json!({}))])?.add("c1")?, far, name));
    }
    ensure!(place.vrfs()? == ["blue", "red"], "{:?}", place.vrfs()?);
    for (attachment, far, name) in &attachments {
        attachment.clone().check()?;
        let counted = |far: &str| -> Result<u64> {
            let shown = place.node.sh(&format!("nsenter --net=/run/netns/{far} nstat -asz | awk '/IcmpInEchos|Icmp6InEchos/ {{ n += $2 }} END {{ print n + 0 }}'"))?;
            Ok(shown.trim().parse()?)
        };
        let before = (counted("north")?, counted("south")?);
        for address in ["10.33.0.1", "198.51.100.1", "fd33::1"] {
            place
                .node
                .sh_in("c1", &format!("ping -c1 -W3 -I {name} {address}"))
                .with_context(|| format!("{name} {address}"))?;
        }
        let after = (counted("north")?, counted("south")?);
        let expected = if *far == "north" { (before.0 + 3, before.1) } else { (before.0, before.1 + 3) };
        ensure!(after == expected, "{name}: {before:?} {after:?}");
    }
    attachments.iter().try_for_each(|(attachment, ..)| attachment.del())?;
    ensure!(place.vrfs()?.is_empty(), "{:?}", place.vrfs()?);
    Ok(())
}

/// Our plugin moves routes and addresses into the VRF like the native plugin. DEL moves the routes back.
#[test]
fn routes_and_addresses_go_along_and_come_back() -> Result<()> {
    if !is_here()? {
        return Ok(());
    }
    let mut seen = Vec::new();
    for bin in [plugin_bin()?, native_bin()?] {
        let place = Place::new()?;
        let network = place.network("eth0", "vrfd0", vrf("blue", &json!({"table": 50})))?.at_by(1, &bin);
        let first = network.add_first(1, "c1")?;
        let before = place.routes()?;
        let mut c1 = first.clone();
        c1.add_at(1)?;
        seen.push(place.routes()?);
        let addresses = place.node.sh_in("c1", "ip -o address show dev eth0")?;
        ensure!(addresses.contains("fd33::2/64") && addresses.contains("10.33.0.2/24"), "{addresses}");
        if bin == plugin_bin()? {
            c1.check()?;
            network.call_at(1, "DEL", "c1", &json!({}))?.success()?;
            ensure!(place.routes()? == before, "{before}\n{}", place.routes()?);
            ensure!(place.vrfs()?.is_empty(), "{:?}", place.vrfs()?);
            first.call_at(0, "CHECK")?.success()?;
            network.call_at(1, "DEL", "c1", &json!({}))?.success()?;
        }
    }
    let [ours, native] = &seen[..] else { anyhow::bail!("two") };
    ensure!(ours == native, "{ours}\n{native}");
    Ok(())
}

/// An IPv6 default route has several next hops. The next hop through the attachment's link moves into the VRF and back.
/// The kernel would keep it in the main table (plugins#1253, #866). The other link's next hop stays.
#[test]
fn a_next_hop_of_a_route_with_several_goes_along() -> Result<()> {
    if !is_here()? {
        return Ok(());
    }
    let place = Place::new()?;
    let c1 = place.network("eth0", "vrfd5", vrf("blue", &json!({"table": 50})))?.add_first(1, "c1")?;
    place.node.sh_in(
        "c1",
        "ip link add far0 type veth peer name far1; ip link set far0 up; ip link set far1 up
         ip -6 addr add fd44::2/64 dev far0 nodad
         ip -6 route replace default metric 1024 nexthop via fd33::1 dev eth0 nexthop via fd44::1 dev far0",
    )?;
    let hops = |table: &str| -> Result<(bool, bool)> {
        let shown = place
            .node
            .sh_in("c1", &format!("ip -6 route show table {table} 2> /dev/null | grep -e via -e default || true"))?;
        Ok((shown.contains("via fd33::1"), shown.contains("via fd44::1")))
    };
    ensure!(hops("main")? == (true, true), "{:?}", hops("main")?);
    c1.call_at(1, "ADD")?.success()?;
    ensure!((hops("main")?, hops("50")?) == ((false, true), (true, false)), "{}", place.routes()?);
    c1.network.call_at(1, "DEL", "c1", &json!({}))?.success()?;
    ensure!((hops("main")?, hops("50")?) == ((true, true), (false, false)), "{}", place.routes()?);
    Ok(())
}

/// A next hop of an IPv4 default route moves into the VRF and back, although the kernel keeps a route with several next
/// hops as one object. If another route replaced the remaining route, DEL keeps the other route.
#[test]
fn a_next_hop_of_an_ipv4_route_with_several_goes_along() -> Result<()> {
    if !is_here()? {
        return Ok(());
    }
    let place = Place::new()?;
    let c1 = place.network("eth0", "vrfd6", vrf("blue", &json!({"table": 50})))?.add_first(1, "c1")?;
    place.node.sh_in(
        "c1",
        "ip link add far0 type veth peer name far1; ip link set far0 up; ip link set far1 up
         ip addr add 10.44.0.2/24 dev far0",
    )?;
    let own = "via 10.33.0.1 dev eth0";
    for (hops, alone, left, moved) in [
        (
            "nexthop via 10.33.0.1 dev eth0 weight 3 nexthop via 10.44.0.1 dev far0 weight 2",
            "via 10.33.0.1 dev eth0",
            "via 10.44.0.1 dev far0",
            1,
        ),
        (
            "nexthop via 10.44.0.1 dev far0 nexthop via 10.33.0.1 dev eth0 nexthop via 10.44.0.7 dev far0",
            "via 10.33.0.1 dev eth0",
            "nexthop via 10.44.0.7 dev far0",
            1,
        ),
        ("nexthop via 10.33.0.1 dev eth0 nexthop via 10.33.0.9 dev eth0", "nexthop via 10.33.0.9 dev eth0", "", 2),
    ] {
        place.node.sh_in("c1", "ip route del default")?;
        place.node.sh_in("c1", &format!("ip route add default metric 5 {hops}"))?;
        let default = |table: &str| {
            place.node.sh_in("c1", &format!("ip route show default table {table} 2> /dev/null | tr -d '\\n' || true"))
        };
        let before = (place.routes()?, default("main")?);
        for settled in [true, false] {
            c1.call_at(1, "ADD")?.success()?;
            let (main, blue) = (default("main")?, default("50")?);
            ensure!(!main.contains("eth0") && main.contains(left) && !blue.contains("far0"), "{hops}: {main} / {blue}");
            ensure!(blue.contains(alone) && blue.matches("via").count() == moved, "{hops}: {blue}");
            if settled || left.is_empty() {
                c1.network.call_at(1, "DEL", "c1", &json!({}))?.success()?;
                ensure!((place.routes()?, default("main")?) == before, "{hops}: {before:?}\n{}", place.routes()?);
                continue;
            }
            place.node.sh_in("c1", "ip route replace default metric 5 via 10.44.0.8 dev far0")?;
            c1.network.call_at(1, "DEL", "c1", &json!({}))?.success()?;
            let main = default("main")?;
            ensure!(main.contains("via 10.44.0.8 dev far0") && main.contains(own), "{hops}: {main}");
            place.node.sh_in("c1", "ip route del default via 10.44.0.8")?;
        }
    }
    Ok(())
}

/// CHECK of the plugins that make links accepts routes that vrf's record has in the VRF's table.
#[test]
fn checks_of_every_plugin_before_pass() -> Result<()> {
    if !is_here()? {
        return Ok(());
    }
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.33.0.0/24"}], [{"subnet": "fd33::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "192.0.2.0/24", "gw": "10.33.0.7"}, {"dst": "::/0"}]});
    for main in [
        json!({"type": "bridge", "bridge": "vrfd1", "isGateway": true, "ipam": ipam}),
        json!({"type": "ptp", "ipam": ipam}),
        json!({"type": "macvlan", "master": "wire33", "ipam": ipam}),
        json!({"type": "host-device", "device": "wire33", "ipam": ipam}),
    ] {
        let place = Place::new()?;
        let c1 = match place.list("eth0", &[main.clone(), vrf("blue", &json!({}))])?.add("c1") {
            // This kernel has no macvlan.
            Err(error) if format!("{error:#}").contains("not supported") && main["type"] == "macvlan" => continue,
            result => result.with_context(|| main.to_string())?,
        };
        let c1 = c1.check().with_context(|| main.to_string())?;
        place.node.sh_in("c1", "ip route del 192.0.2.0/24 table 1")?;
        let answer = c1.call_at(0, "CHECK")?;
        ensure!(answer.status == 1 && answer.stdout.contains("192.0.2.0/24"), "{main}: {answer:?}");
        c1.del().with_context(|| main.to_string())?;
        ensure!(place.vrfs()?.is_empty(), "{main}: {:?}", place.vrfs()?);
        // With sbr before or after vrf, CHECK of all three plugins passes. CHECK also sees that a rule is missing.
        let (routing, mut main) = (json!({"type": "sbr"}), main.clone());
        // sbr can't copy ptp's routes, whose gateway is reached by another route.
        merge(&mut main, &json!({"ipam": {"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}));
        for list in [
            [main.clone(), routing.clone(), vrf("blue", &json!({}))],
            [main.clone(), vrf("blue", &json!({})), routing.clone()],
        ] {
            let place = Place::new()?;
            let named = || list.iter().map(|plugin| plugin["type"].to_string()).collect::<Vec<_>>().join(" ");
            let c1 = place.list("eth0", &list)?.add("c1").and_then(Attachment::check).with_context(named)?;
            place.node.sh_in("c1", "ip rule del from 10.33.0.2")?;
            let at = list.iter().position(|plugin| *plugin == routing).context("sbr")?;
            let answer = c1.call_at(at, "CHECK")?;
            ensure!(answer.status == 1 && answer.stdout.contains("the rule is gone"), "{}: {answer:?}", named());
            c1.del().with_context(named)?;
            ensure!(place.vrfs()?.is_empty(), "{}: {:?}", named(), place.vrfs()?);
            let left = place.node.sh_in("c1", "ip rule; ip -6 rule")?;
            ensure!(!left.contains("from 10.33") && !left.contains("from fd33"), "{}: {left}", named());
            let left = place.node.sh("ls /run/postern/attachments 2> /dev/null || true")?;
            ensure!(left.trim().is_empty(), "{}: {left}", named());
        }
        let left = place.node.sh("ls /run/postern/attachments 2> /dev/null || true")?;
        ensure!(left.trim().is_empty(), "{main}: {left}");
    }
    Ok(())
}

/// Attachments of the container share a VRF, and the last DEL removes it.
#[test]
fn the_last_link_takes_the_vrf_along() -> Result<()> {
    if !is_here()? {
        return Ok(());
    }
    let place = Place::new()?;
    let zero = place.network("eth0", "vrfd2", vrf("blue", &json!({})))?.add("c1")?;
    let one = place.network("eth1", "vrfd3", vrf("blue", &json!({"table": 1})))?.add("c1")?;
    let (zero, one) = (zero.check()?, one.check()?);
    let add_behind = |ifname: &str, attachment: &Attachment, vrf: Value| {
        let network = place.network(ifname, "unused", vrf)?;
        network.call_at(1, "ADD", "c1", &json!({"prevResult": attachment.result}))
    };
    for (plugin, words) in [
        (vrf("blue", &json!({})), "interface eth1 has already a master set: blue"),
        (vrf("red", &json!({})), "interface eth1 has already a master set: blue"),
    ] {
        let answer = add_behind("eth1", &one, plugin)?;
        ensure!(answer.status == 1 && answer.stdout.contains(words), "{answer:?}");
        ensure!(place.vrfs()? == ["blue"], "{:?}", place.vrfs()?);
    }
    zero.del()?;
    ensure!(place.vrfs()? == ["blue"], "{:?}", place.vrfs()?);
    let one = one.check()?;
    let two = place.list("eth2", &[bridge("vrfd2")])?.add("c1")?;
    for (plugin, words) in [
        (vrf("blue", &json!({"table": 77})), "VRF blue already exist with different routing table 1"),
        (vrf("eth1", &json!({})), "Netlink eth1 is not a VRF"),
        (vrf("lo", &json!({})), "Netlink lo is not a VRF"),
        (vrf("red", &json!({"table": 1})), "table 1 is in use"),
    ] {
        let answer = add_behind("eth2", &two, plugin)?;
        ensure!(answer.status == 1 && answer.stdout.contains(words), "{answer:?}");
        ensure!(place.vrfs()? == ["blue"], "{:?}", place.vrfs()?);
    }
    // Root in the container has removed the link. DEL succeeds and removes the VRF.
    place.node.sh_in("c1", "ip link delete eth1")?;
    one.del()?;
    ensure!(place.vrfs()?.is_empty(), "{:?}", place.vrfs()?);
    Ok(())
}

/// Attachments come and go at the same time. No VRF is removed while another attachment joins it.
#[test]
fn a_vrf_is_not_removed_while_another_joins() -> Result<()> {
    if !is_here()? {
        return Ok(());
    }
    let place = Place::new()?;
    let mut all = Vec::new();
    for name in ["eth0", "eth1", "eth2", "eth3"] {
        all.push(place.network(name, &format!("vrfd{name}"), vrf("blue", &json!({})))?.add_first(1, "c1")?);
    }
    let lives = |first: &Attachment| {
        let mut one = first.clone();
        one.add_at(1)?;
        one.call_at(1, "CHECK")?.success()?;
        one.call_at(1, "DEL")?.success()
    };
    let live = |first: &Attachment| {
        (0..4).try_for_each(|round| lives(first).map(drop).with_context(|| format!("{:?} {round}", first.network)))
    };
    std::thread::scope(|scope| {
        let calls: Vec<_> = all.iter().map(|first| scope.spawn(|| live(first))).collect();
        calls.into_iter().try_for_each(|call| call.join().map_err(|_| anyhow::anyhow!("a thread failed"))?)
    })?;
    ensure!(place.vrfs()?.is_empty(), "{:?}", place.vrfs()?);
    Ok(())
}

/// Native plugins can replace ours, and ours can replace native plugins. DEL keeps a VRF that the container itself
/// made.
#[test]
fn undo_and_native_plugins() -> Result<()> {
    if !is_here()? {
        return Ok(());
    }
    let place = Place::new()?;
    let first = place.network("eth0", "vrfd4", vrf("blue", &json!({})))?.add_first(1, "c1")?;
    // Each side checks and removes the VRF that the other side made.
    for (makes, removes) in [(plugin_bin()?, native_bin()?), (native_bin()?, plugin_bin()?)] {
        let mut c1 = first.by(&makes);
        c1.add_at(1)?;
        for verb in ["CHECK", "DEL"] {
            c1.by(&removes).call_at(1, verb)?.success()?;
        }
        ensure!(place.vrfs()?.is_empty(), "{:?}", place.vrfs()?);
        // The native DEL, and our DEL without a record, lose routes. bridge makes them again.
        first.call_at(0, "DEL")?.success()?;
        first.network.add_first(1, "c1")?;
        // The kernel makes the link-local address and its route some time after the link is up.
        place.node.sh_in(
            "c1",
            "for n in $(seq 50); do
                 [ -n \"$(ip -6 address show dev eth0 scope link -tentative)\" ] && exit; sleep .02
             done; exit 1",
        )?;
    }
    // The container's own VRF, with its own link.
    place.node.sh_in("c1", "ip link add own type vrf table 70; ip link set own up; ip link add in0 type veth peer name in1; ip link set in0 master own")?;
    let mut own = Attachment { network: place.list("eth0", &[vrf("own", &json!({}))])?, ..first };
    own.add_at(0)?;
    own.del()?;
    ensure!(place.vrfs()? == ["own"], "{:?}", place.vrfs()?);
    Ok(())
}

/// A runtime's directory of plugins is switched while the container runs. The installed plugins find both VRFs, and
/// each link reaches its gateway.
#[test]
fn a_node_whose_plugins_are_switched() -> Result<()> {
    if !is_here()? {
        return Ok(());
    }
    let (ours, native) = (plugin_bin()?, native_bin()?);
    for sides in [[&native, &ours, &native, &ours], [&ours, &native, &ours, &native]] {
        let place = Place::new()?;
        let network = |name: &str, subnet: &str| {
            let ipam = json!({"type": "host-local", "ranges": [[{"subnet": subnet}]]});
            json!({"type": "bridge", "bridge": name, "isGateway": true, "ipam": ipam})
        };
        let stays = place.list("eth0", &[network("vrfd5", "10.35.0.0/24"), vrf("blue", &json!({}))])?;
        let moves = place.list("eth1", &[network("vrfd6", "10.36.0.0/24"), vrf("red", &json!({}))])?;
        let first = stays.by(sides[0]).add("c1")?;
        let mut second = moves.clone().by(sides[0]).add("c1")?;
        let is_healthy = |side: &Path, made: &Path, attachment: &Attachment, step: &str| -> Result<()> {
            let is_first = attachment.result == first.result;
            let (name, gateway) = if is_first { ("blue", "10.35.0.1") } else { ("red", "10.36.0.1") };
            let attachment = attachment.by(side);
            attachment.call_at(1, "CHECK")?.success().with_context(|| step.to_owned())?;
            // The native bridge misses the route that vrf has moved to the VRF's table. Our bridge misses the route too
            // if no record lists it.
            let checked = attachment.call_at(0, "CHECK")?;
            if side == ours && made == ours {
                checked.success().with_context(|| format!("{step}: bridge"))?;
            } else {
                let words = format!("Failed to find Gateway {gateway}");
                ensure!(checked.status == 1 && checked.stdout.contains(&words), "{step}: {checked:?}");
            }
            place.node.sh_in("c1", &format!("ping -c1 -W3 -I {name} {gateway}")).context(step.to_owned()).map(drop)
        };
        let del = |side: &Path, attachment: &Attachment| -> Result<()> {
            let attachment = attachment.by(side);
            [1, 0].into_iter().try_for_each(|at| attachment.call_at(at, "DEL")?.success().map(drop))
        };
        let mut made = sides[0];
        for (at, side) in sides.into_iter().enumerate() {
            let step = format!("switch {at} to {}", side.display());
            is_healthy(side, sides[0], &first, &step)?;
            is_healthy(side, made, &second, &step)?;
            del(side, &second)?;
            ensure!(place.vrfs()? == ["blue"], "{step}: {:?}", place.vrfs()?);
            is_healthy(side, sides[0], &first, &format!("{step}: one detached"))?;
            second = moves.clone().by(side).add("c1")?;
            made = side;
            is_healthy(side, made, &second, &format!("{step}: attached again"))?;
            is_healthy(side, sides[0], &first, &format!("{step}: attached again"))?;
        }
        // DEL of our plugins removes the records, which native plugins do not know.
        for side in [sides[3], &ours] {
            del(side, &second)?;
            del(side, &first)?;
        }
        ensure!(place.vrfs()?.is_empty(), "{:?}", place.vrfs()?);
        let left = place.node.sh("ls /run/postern/attachments 2> /dev/null || true")?;
        ensure!(left.trim().is_empty(), "{left}");
    }
    Ok(())
}

/// `postern doctor` tries to make a VRF, and names the missing feature of the kernel.
#[test]
fn doctor_tries_a_vrf() -> Result<()> {
    let place = Place::new()?;
    let doctor = place.node.sh(&format!("{} doctor 2>&1 || true", plugin_bin()?.join("postern").display()))?;
    let lacks = doctor.contains("VRFs") && doctor.contains("CONFIG_NET_VRF");
    ensure!(lacks != has("vrf")?, "{doctor}");
    Ok(())
}
