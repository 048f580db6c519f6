//! sbr behind other plugins: the routes that answers take, the routes that DEL restores, and how earlier plugins check
//! the changed routes.

use anyhow::{Context, Result, ensure};
use postern_tests::{Answer, Attachment, Network, Node, merge, native_bin, plugin_bin};
use serde_json::{Value, json};

/// A node with two networks, each with a bridge. The test does the work of a runtime. `far` is a host behind the node.
/// The node drops packets that arrive from the wrong bridge.
struct Place {
    node: Node,
}

const V4: [&str; 2] = ["10.31.0.2", "10.32.0.2"];
const V6: [&str; 2] = ["fd31::2", "fd32::2"];

/// The configuration of sbr with these keys.
fn sbr(keys: &Value) -> Value {
    let mut sbr = json!({"type": "sbr"});
    merge(&mut sbr, keys);
    sbr
}

impl Place {
    fn new() -> Result<Self> {
        let node = Node::new()?;
        node.add_container("c1")?;
        node.add_container("far")?;
        node.sh(
            "ip link add wire31 address 02:00:00:00:ee:31 type veth peer name wire32; ip link set wire31 up; ip link set wire32 up
            ip link add far0 type veth peer name eth0 netns far
            ip address add 198.51.100.1/24 dev far0; ip address add 2001:db8:5::1/64 dev far0 nodad; ip link set far0 up
            ip -n far address add 198.51.100.2/24 dev eth0; ip -n far address add 2001:db8:5::2/64 dev eth0 nodad
            ip -n far link set eth0 up; ip -n far route add default via 198.51.100.1
            ip -n far -6 route add default via 2001:db8:5::1
            sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.default.rp_filter=1",
        )?;
        Ok(Self { node })
    }

    /// A network for one interface of c1, named after the interface.
    fn list(&self, ifname: &str, plugins: &[Value]) -> Result<Network> {
        let config = json!({"name": format!("net-{ifname}"), "plugins": plugins});
        Ok(Network::new(&self.node, &config)?.interface(ifname))
    }

    /// A network with its own bridge, and sbr with these keys. Number 31 is for eth0, and 32 for eth1.
    fn network(&self, number: u8, keys: &Value) -> Result<Network> {
        let ranges = json!([[{"subnet": format!("10.{number}.0.0/24")}], [{"subnet": format!("fd{number}::/64")}]]);
        let ipam = json!({"type": "host-local", "ranges": ranges});
        let bridge =
            json!({"type": "bridge", "bridge": format!("routed{number}"), "isDefaultGateway": true, "ipam": ipam});
        self.list(&format!("eth{}", number - 31), &[bridge, sbr(keys)])
    }

    /// Calls DEL of sbr with another path of the namespace.
    fn del_in(&self, attachment: &Attachment, netns: &str) -> Result<Answer> {
        self.node.call(&attachment.request(1, "DEL")?.env("CNI_NETNS", netns))
    }

    /// Returns the routing rules besides the kernel's own, and the routes of all tables except `local`. The kernel
    /// makes the link-local address and its route some time after the link is up.
    fn routing(&self) -> Result<String> {
        self.node.sh_in(
            "c1",
            "for i in $(seq 50); do
                 [ -z \"$(ip -6 address show tentative)\" ] && { [ -z \"$(ip link show dev eth0 up 2>/dev/null)\" ] ||
                     [ -n \"$(ip -6 address show dev eth0 scope link)\" ]; } && break; sleep 0.1
             done
             (ip rule; ip -6 rule) | grep -v 'lookup \\(local\\|main\\|default\\) *$' || true
            (ip route show table all; ip -6 route show table all) | grep -v 'table local' | sort",
        )
    }

    fn rules(&self) -> Result<Vec<String>> {
        let shown =
            self.node.sh_in("c1", "(ip rule; ip -6 rule) | grep -v 'from all' | sed 's/^[0-9]*:\\s*//' | sort")?;
        Ok(shown.lines().map(|line| line.trim().to_owned()).collect())
    }

    /// Returns the container's addresses whose answers reach a host behind the node.
    fn answering(&self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        for address in V4.into_iter().chain(V6) {
            // The gateway's own IPv6 address needs some time to become usable.
            let tries = if address.contains(':') { "-c6 -i0.5" } else { "-c2 -i0.2" };
            let ping = format!("ping {tries} -W1 {address} > /dev/null 2>&1 && echo yes || echo no");
            if self.node.sh_in("far", &ping)?.trim() == "yes" {
                all.push(address.to_owned());
            }
        }
        Ok(all)
    }
}

/// With two links, an answer leaves through the link whose address was asked, as with the native plugins.
#[test]
fn answers_leave_by_the_link_whose_address_was_asked() -> Result<()> {
    for bin in [plugin_bin()?, native_bin()?] {
        let place = Place::new()?;
        let zero = place.network(31, &json!({}))?.by(&bin).add_first(1, "c1")?;
        let one = place.network(32, &json!({}))?.by(&bin).add_first(1, "c1")?;
        // Before sbr, both answers leave through the same link. The node drops packets that arrive from the wrong
        // bridge.
        let way = |source: &str| {
            let get = format!("ip route get 198.51.100.2 from {source} | sed -n 's/.* dev \\([a-z0-9]*\\).*/\\1/p'");
            Ok::<_, anyhow::Error>(place.node.sh_in("c1", &get)?.trim().to_owned())
        };
        ensure!(way(V4[0])? == way(V4[1])?, "{} {}", way(V4[0])?, way(V4[1])?);
        let result = one.call_at(1, "ADD")?.success()?;
        ensure!(way(V4[0])? == "eth0" && way(V4[1])? == "eth1", "{} {}", way(V4[0])?, way(V4[1])?);
        ensure!(result["ips"] == one.result["ips"] && result["routes"] == one.result["routes"], "{result}");
        let all: Vec<&str> = V4.into_iter().chain(V6).collect();
        ensure!(place.answering()? == all, "{}: {:?}\n{}", bin.display(), place.answering()?, place.routing()?);
        // Now both links have source routing.
        zero.call_at(1, "ADD")?.success()?;
        ensure!(place.answering()? == all, "{}: {:?}\n{}", bin.display(), place.answering()?, place.routing()?);
        if bin == plugin_bin()? {
            let (one, zero) = (one.check()?, zero.check()?);
            one.del()?;
            ensure!(place.rules()?.iter().all(|rule| !rule.contains("32")), "{:?}", place.rules()?);
            let zero = zero.check()?;
            ensure!(place.answering()? == [V4[0], V6[0]], "{:?}", place.answering()?);
            zero.del()?;
            ensure!(place.rules()?.is_empty(), "{:?}", place.rules()?);
        }
    }
    Ok(())
}

/// An IPv4 route has several next hops. sbr moves only its own link's next hop, and the other link keeps its next hop.
/// The kernel would delete the whole route if a request names the first next hop.
#[test]
fn a_route_with_several_next_hops_keeps_those_of_other_links() -> Result<()> {
    let place = Place::new()?;
    let mut c1 = place.network(31, &json!({}))?.add_first(1, "c1")?;
    place.node.sh_in(
        "c1",
        "ip link add out0 type veth peer name out1; ip link set out0 up; ip link set out1 up
         ip address add 10.44.0.2/24 dev out0",
    )?;
    let default =
        || place.node.sh_in("c1", "ip route show default | tr -d '\\n' | sed 's/  */ /g; s/weight 1//g; s/ *$//'");
    for hops in [
        "nexthop via 10.31.0.1 dev eth0 nexthop via 10.44.0.1 dev out0",
        "nexthop via 10.44.0.1 dev out0 nexthop via 10.31.0.1 dev eth0",
    ] {
        place.node.sh_in("c1", &format!("ip route del default; ip route add default {hops}"))?;
        let before = default()?;
        c1.call_at(1, "ADD")?.success()?;
        ensure!(default()? == "default via 10.44.0.1 dev out0", "{hops}: {}", default()?);
        let own = place.node.sh_in("c1", "ip route show default table 100")?;
        ensure!(own.trim() == "default via 10.31.0.1 dev eth0", "{hops}: {own}");
        c1 = c1.check()?;
        c1.call_at(1, "DEL")?.success()?;
        ensure!(default()? == before, "{hops}: {before} / {}", default()?);
    }
    // A route that replaced the remaining route stays at DEL.
    c1.call_at(1, "ADD")?.success()?;
    place.node.sh_in("c1", "ip route replace default via 10.44.0.8 dev out0")?;
    c1.call_at(1, "DEL")?.success()?;
    let left = default()?;
    ensure!(left.contains("via 10.44.0.8 dev out0") && left.contains("via 10.31.0.1 dev eth0"), "{left}");
    // Here a request to replace the shared default route would replace the prepended route. So sbr changes neither.
    place.node.sh_in(
        "c1",
        "while ip route del default 2> /dev/null; do :; done
         ip route add default nexthop via 10.31.0.1 dev eth0 nexthop via 10.44.0.1 dev out0
         ip route prepend default via 10.44.0.9 dev out0",
    )?;
    let before = default()?;
    c1.call_at(1, "ADD")?.success()?;
    ensure!(default()? == before, "{before} / {}", default()?);
    c1.call_at(1, "DEL")?.success()?;
    ensure!(default()? == before, "{before} / {}", default()?);
    Ok(())
}

/// The native plugin of this distribution lacks these keys, so the kernel's state alone is checked.
#[test]
fn static_gateways_and_source_hints() -> Result<()> {
    let place = Place::new()?;
    let keys = json!({"gateways": ["10.31.0.9", "fd31::9"], "addSourceHints": true});
    let c1 = place.network(31, &keys)?.add("c1")?;
    let routing = place.routing()?;
    for line in [
        "default via 10.31.0.9 dev eth0 table 100",
        "10.31.0.0/24 dev eth0 table 100 proto kernel scope link src 10.31.0.2",
        "10.31.0.0/24 dev eth0 scope link src 10.31.0.2",
        "default via fd31::9 dev eth0 table 101 metric 1024",
        "fd31::/64 dev eth0 table 101 proto kernel metric 256",
        "fd31::/64 dev eth0 src fd31::2 metric 1024",
    ] {
        ensure!(routing.lines().any(|have| have.trim_end().starts_with(line)), "{line} is not in\n{routing}");
    }
    ensure!(!routing.lines().any(|line| line.starts_with("default") && !line.contains("table")), "{routing}");
    let c1 = c1.check()?;
    c1.call_at(1, "DEL")?.success()?;
    let c1 = c1.check()?;
    ensure!(
        !place.routing()?.contains("table") && place.routing()?.contains("default via 10.31.0.1 dev eth0"),
        "{}",
        place.routing()?
    );
    for (keys, words) in [
        (json!({"gateways": ["10.99.0.1"]}), "gateway 10.99.0.1 does not lie in the network of 10.31.0.2/24"),
        (json!({"gateways": ["10.31.0.2"]}), "gateway 10.31.0.2 does not lie in"),
        (json!({"gateways": ["fd99::1"]}), "gateway fd99::1 does not lie in the network of fd31::2/64"),
        (json!({"gateways": ["10.31.0.1", "10.31.0.2"]}), "two addresses of one IP version"),
    ] {
        let before = place.routing()?;
        let answer = place.network(31, &keys)?.call_at(1, "ADD", "c1", &json!({"prevResult": c1.result}))?;
        ensure!(answer.status == 1 && answer.stdout.contains(words), "{keys}: {answer:?}");
        ensure!(place.routing()? == before, "{keys}");
    }
    Ok(())
}

/// CHECK of the plugins that make links accepts routes that sbr's record has in another table.
#[test]
fn checks_of_every_plugin_before_pass() -> Result<()> {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.31.0.0/24"}], [{"subnet": "fd31::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "192.0.2.0/24", "gw": "10.31.0.1"}, {"dst": "::/0"}]});
    for main in [
        json!({"type": "bridge", "bridge": "routed31", "isGateway": true, "ipam": ipam}),
        json!({"type": "ptp", "ipam": ipam}),
        json!({"type": "macvlan", "master": "wire31", "ipam": ipam}),
        json!({"type": "host-device", "device": "wire31", "ipam": ipam}),
    ] {
        for keys in [json!({}), json!({"addSourceHints": true}), json!({"table": 500})] {
            let place = Place::new()?;
            let network = place.list("eth0", &[main.clone(), sbr(&keys)])?;
            let c1 = network.add("c1").and_then(Attachment::check).with_context(|| format!("{main} {keys}"))?;
            // A route that is missing in both tables is an error.
            place.node.sh_in(
                "c1",
                "for table in main 100 101; do ip route flush table $table 192.0.2.0/24 2> /dev/null || true; done",
            )?;
            let answer = c1.call_at(0, "CHECK")?;
            ensure!(answer.status == 1 && answer.stdout.contains("192.0.2.0/24"), "{main} {keys}: {answer:?}");
            c1.del().with_context(|| format!("{main} {keys}"))?;
            ensure!(place.rules()?.is_empty(), "{main} {keys}: {:?}", place.rules()?);
            let left = place.node.sh("ls /run/postern/attachments 2> /dev/null || true")?;
            ensure!(left.trim().is_empty(), "{main} {keys}: {left}");
        }
    }
    Ok(())
}

/// A failed ADD, and a DEL of only sbr, leave routing as before.
#[test]
fn what_was_changed_comes_back() -> Result<()> {
    let place = Place::new()?;
    let c1 = place.network(31, &json!({}))?.add_first(1, "c1")?;
    let before = place.routing()?;
    c1.call_at(1, "ADD")?.success()?;
    ensure!(place.rules()?.len() == 2, "{:?}", place.rules()?);
    c1.network.call_at(1, "DEL", "c1", &json!({}))?.success()?;
    ensure!(place.routing()? == before, "{before}\n{}", place.routing()?);
    // The kernel accepts no routes for a link that is down. ADD fails after it made the rules.
    place.node.sh_in("c1", "ip link set eth0 down")?;
    let answer = c1.call_at(1, "ADD")?;
    ensure!(answer.status == 1 && answer.stdout.contains("Failed to add default route to 10.31.0.1"), "{answer:?}");
    ensure!(place.rules()?.is_empty(), "{:?}", place.rules()?);
    Ok(())
}

/// Root in the container changes rules, routes and links. DEL goes by the record, and leaves root's own rules.
#[test]
fn the_record_is_believed_and_not_the_container() -> Result<()> {
    for (script, checks) in [
        ("true", true),
        ("ip rule del from 10.31.0.2 lookup 100", false),
        ("ip route flush table 100", false),
        ("ip route del default table 100", false),
        ("ip rule add from 10.31.0.2 lookup 300; ip route add default dev eth0 table 300", true),
        ("ip -6 rule add from fd31::2 lookup 254; ip rule add from 10.31.0.2 lookup 255", true),
        ("ip link set eth0 down", false),
        ("ip link set eth0 down; ip link set eth0 name other; ip link set other up", false),
    ] {
        let place = Place::new()?;
        let c1 = place.network(31, &json!({}))?.add("c1")?;
        place.node.sh_in("c1", script)?;
        let roots: Vec<String> = place.rules()?.into_iter().filter(|rule| !rule.contains("lookup 10")).collect();
        let answer = c1.call_at(1, "CHECK")?;
        ensure!((answer.status == 0) == checks, "{script}: {answer:?}");
        c1.network.call_at(1, "DEL", "c1", &json!({}))?.success().context(script)?;
        ensure!(place.rules()? == roots, "{script}: {:?}", place.rules()?);
        c1.call_at(0, "DEL")?.success().context(script)?;
    }
    Ok(())
}

/// DEL without the namespace succeeds, and makes no file at the namespace's path. The native plugin fails, or makes the
/// file.
#[test]
fn a_namespace_that_is_gone_leaves_nothing() -> Result<()> {
    let place = Place::new()?;
    let c1 = place.network(31, &json!({}))?.add("c1")?;
    place.node.sh("mkdir /run/paths")?;
    for netns in ["", "/run/paths/gone"] {
        place.del_in(&c1, netns)?.success().context("DEL")?;
        ensure!(place.node.sh("ls /run/paths")?.is_empty(), "a file was made");
    }
    let native = place.del_in(&c1.by(&native_bin()?), "/run/paths/gone")?;
    ensure!(native.status == 1 && !place.node.sh("ls /run/paths")?.is_empty(), "{native:?}");
    Ok(())
}

/// If DEL can't enter the namespace, it keeps sbr's section of the record. The next DEL removes the rules.
#[test]
fn a_namespace_that_cannot_be_entered_keeps_its_section() -> Result<()> {
    let place = Place::new()?;
    let c1 = place.network(31, &json!({}))?.add("c1")?;
    // This path leads to a process outside of the user namespace.
    let answer = place.del_in(&c1, "/proc/1/ns/net")?;
    ensure!(answer.status == 1 && answer.stdout.contains("may still exist, with its source routing"), "{answer:?}");
    ensure!(place.rules()?.len() == 2, "{:?}", place.rules()?);
    c1.del()?;
    ensure!(place.rules()?.is_empty(), "{:?}", place.rules()?);
    Ok(())
}

/// Concurrent attachments of one container each get their own tables.
#[test]
fn parallel_attachments_share_no_table() -> Result<()> {
    let place = Place::new()?;
    let mut all = Vec::new();
    for number in 31..37 {
        all.push(place.network(number, &json!({}))?.add_first(1, "c1")?);
    }
    std::thread::scope(|scope| {
        let calls: Vec<_> = all.iter().map(|one| scope.spawn(move || one.call_at(1, "ADD")?.success())).collect();
        calls.into_iter().try_for_each(|call| call.join().map_err(|_| anyhow::anyhow!("a thread failed"))?.map(drop))
    })?;
    let mut tables: Vec<String> =
        place.rules()?.iter().filter_map(|rule| rule.split_whitespace().last().map(str::to_owned)).collect();
    ensure!(tables.len() == 12, "{tables:?}");
    tables.sort();
    tables.dedup();
    ensure!(tables.len() == 12, "{:?}", place.rules()?);
    for one in all {
        one.check()?.del()?;
    }
    ensure!(place.rules()?.is_empty(), "{:?}", place.rules()?);
    Ok(())
}

/// The table that a network names must belong neither to the kernel nor to another attachment.
#[test]
fn a_named_table_is_nobody_elses() -> Result<()> {
    let place = Place::new()?;
    let zero = place.network(31, &json!({"table": 500}))?.add("c1")?;
    let one = place.network(32, &json!({}))?.add("c1")?;
    ensure!(
        place.rules()?
            == [
                "from 10.31.0.2 lookup 500",
                "from 10.32.0.2 lookup 100",
                "from fd31::2 lookup 500",
                "from fd32::2 lookup 101"
            ],
        "{:?}",
        place.rules()?
    );
    let before = place.routing()?;
    let add_with = |table: i32| one.network.call_at(1, "ADD", "c1", &json!({"table": table, "prevResult": one.result}));
    for (table, words) in [
        (0, "table 0 is the kernel's own"),
        (253, "table 253 is the kernel's own"),
        (254, "table 254 is the kernel's own"),
        (255, "table 255 is the kernel's own"),
        (500, "table 500 is in use in this container: it serves senders in 10.31.0.2/32"),
        (-1, "out of range"),
    ] {
        let answer = add_with(table)?;
        ensure!(answer.status == 1 && answer.stdout.contains(words), "{table}: {answer:?}");
        ensure!(place.routing()? == before, "{table}: {}", place.routing()?);
    }
    // A table with routes of another link, and no rule.
    place.node.sh_in("c1", "ip route add 192.0.2.0/24 via 10.31.0.1 table 600")?;
    let answer = add_with(600)?;
    ensure!(answer.status == 1 && answer.stdout.contains("through another link"), "{answer:?}");
    one.del()?;
    zero.del()?;
    ensure!(place.rules()?.is_empty(), "{:?}", place.rules()?);
    Ok(())
}

/// The native plugin fails in its second call, because the gateway can no longer be reached.
#[test]
fn twice_in_one_list() -> Result<()> {
    let place = Place::new()?;
    let bridge = place.network(31, &json!({}))?.config(0, &json!({}))?;
    let keys = [json!({}), json!({"addSourceHints": true}), json!({"table": 700})];
    let plugins: Vec<Value> = std::iter::once(bridge).chain(keys.iter().map(sbr)).collect();
    let c1 = place.list("eth0", &plugins)?.add("c1")?;
    ensure!(place.rules()?.len() == 6, "{:?}", place.rules()?);
    ensure!(place.answering()? == [V4[0], V6[0]], "{:?}\n{}", place.answering()?, place.routing()?);
    let c1 = c1.check()?;
    for at in (1..4).rev() {
        c1.call_at(at, "DEL")?.success()?;
        ensure!(place.rules()?.len() == (at - 1) * 2, "{at}: {:?}", place.rules()?);
        for left in 0..at {
            c1.call_at(left, "CHECK")?.success().with_context(|| format!("CHECK of {left} after DEL of {at}"))?;
        }
        ensure!(place.answering()? == [V4[0], V6[0]], "{at}: {}", place.routing()?);
    }
    Ok(())
}

/// A runtime switches to the native plugins while containers run, and back to ours.
#[test]
fn native_plugins_take_over_and_give_back() -> Result<()> {
    for (makes, removes) in [(plugin_bin()?, native_bin()?), (native_bin()?, plugin_bin()?)] {
        for keys in [json!({}), json!({"table": 500})] {
            let place = Place::new()?;
            let c1 = place.network(31, &keys)?.by(&makes).add("c1")?.by(&removes);
            ensure!(place.rules()?.len() == 2, "{:?}", place.rules()?);
            place.node.sh_in("c1", "ip rule add from 10.31.0.2 lookup 501")?;
            c1.call_at(1, "DEL")?.success()?;
            // Without a record, both plugins remove rules by the address and by the network's table.
            let left = if keys["table"].is_null() { 0 } else { 1 };
            ensure!(place.rules()?.len() == left, "{keys}: {:?}", place.rules()?);
            c1.call_at(0, "DEL")?.success()?;
        }
    }
    Ok(())
}

/// Root in a container makes routes to addresses, and puts addresses on its link. The records of sbr and vrf list these
/// addresses in order to restore them. This does not reserve the addresses: other containers get them, with ports and
/// forwarding.
#[test]
fn what_root_in_a_container_names_is_nobodys_address() -> Result<()> {
    let place = Place::new()?;
    let bridge = place.network(31, &json!({}))?.config(0, &json!({}))?;
    let mut plugins = vec![bridge, json!({"type": "sbr"})];
    if postern_tests::kernel::has_or_skips_part("vrf")? {
        plugins.push(json!({"type": "vrf", "vrfname": "blue"}));
    }
    let mut c1 = place.list("eth0", &plugins)?.add_first(1, "c1")?;
    place.node.sh_in(
        "c1",
        "for last in 2 3 4 5; do ip route add 10.60.0.$last/32 dev eth0; done
        ip route add 10.61.0.0/24 via 10.31.0.1; ip route add 10.62.0.9 dev eth0 src 10.31.0.2
        ip address add fd60::2/64 dev eth0 nodad; ip -6 route add fd60::3/128 dev eth0",
    )?;
    (1..plugins.len()).try_for_each(|at| c1.add_at(at))?;
    let records = place.node.sh("cat /run/postern/attachments/*")?;
    ensure!(records.contains("10.60.0.2/32"), "the record of sbr lacks the routes: {records}");
    place.node.add_container("c2")?;
    let ranges = json!([[{"subnet": "10.60.0.0/24"}], [{"subnet": "fd60::/64"}]]);
    let ipam = json!({"type": "host-local", "ranges": ranges});
    let bridge = json!({"type": "bridge", "bridge": "native0", "isGateway": true, "ipam": ipam});
    let mappings = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    let portmap = json!({"type": "portmap", "backend": "nftables", "runtimeConfig": {"portMappings": mappings}});
    let firewall = json!({"type": "firewall", "backend": "iptables"});
    let behind = json!({"name": "behind", "plugins": [bridge, portmap, firewall]});
    let c2 = Network::new(&place.node, &behind)?.at_by(0, &native_bin()?).add_first(1, "c2")?;
    for at in [1, 2] {
        // The addresses of a living attachment are refused: its lease, and an address that its rules use.
        let mut stolen = c2.clone();
        merge(&mut stolen.result, &json!({"ips": [{"address": "10.31.0.2/24", "interface": 2}]}));
        place.node.sh_in("c2", "ip address replace 10.31.0.2/24 dev eth0")?;
        let refused = stolen.call_at(at, "ADD")?;
        ensure!(refused.stdout.contains("attachment net-eth0/c1/eth0 has this address"), "{}", refused.stdout);
        c2.call_at(at, "ADD")?.success().with_context(|| format!("plugin {at}"))?;
        c2.call_at(at, "DEL")?.success()?;
    }
    Ok(())
}
