//! sbr behind other plugins: which way answers take, what comes back, and what the plugins before make of it.

use anyhow::{Context, Result, ensure};
use postern_tests::{Answer, Call, Node, merge, native_bin, plugin_bin};
use serde_json::{Value, json};
use std::path::Path;

/// A node with two networks, each a bridge. The runtime is this test. `far` is a host behind the node, which drops packets
/// that come by the wrong bridge.
struct Place {
    node: Node,
}

const V4: [&str; 2] = ["10.31.0.2", "10.32.0.2"];
const V6: [&str; 2] = ["fd31::2", "fd32::2"];

/// The plugins of a network with its own bridge; `number` is 31 or 32.
fn network(number: u8, sbr: &Value) -> Vec<Value> {
    let mut last = json!({"type": "sbr"});
    merge(&mut last, sbr);
    let ranges = json!([[{"subnet": format!("10.{number}.0.0/24")}], [{"subnet": format!("fd{number}::/64")}]]);
    let ipam = json!({"type": "host-local", "ranges": ranges});
    vec![json!({"type": "bridge", "bridge": format!("routed{number}"), "isDefaultGateway": true, "ipam": ipam}), last]
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

    fn call(&self, bin: &Path, plugin: &Value, verb: &str, ifname: &str, previous: &Value) -> Result<Answer> {
        self.call_as(bin, plugin, verb, ifname, previous, &self.node.netns("c1"))
    }

    fn call_as(
        &self,
        bin: &Path,
        plugin: &Value,
        verb: &str,
        ifname: &str,
        previous: &Value,
        netns: &str,
    ) -> Result<Answer> {
        let mut config = plugin.clone();
        let name = config.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        merge(&mut config, &json!({"cniVersion": "1.1.0", "name": format!("net-{ifname}"), "prevResult": previous}));
        let call = Call::new(bin, &name, verb, config.to_string());
        self.node.call(&call.attachment("c1", netns, ifname))
    }

    /// ADD of a whole list by the plugins of this directory.
    fn add(&self, bin: &Path, plugins: &[Value], ifname: &str) -> Result<Value> {
        let mut result = Value::Null;
        for plugin in plugins {
            let answer = self.call(bin, plugin, "ADD", ifname, &result)?;
            result = answer.success().with_context(|| format!("ADD {plugin}"))?;
        }
        Ok(result)
    }

    fn check(&self, plugins: &[Value], ifname: &str, result: &Value) -> Result<()> {
        for plugin in plugins {
            self.call(&plugin_bin()?, plugin, "CHECK", ifname, result)?
                .success()
                .with_context(|| format!("CHECK {plugin}"))?;
        }
        Ok(())
    }

    fn del(&self, bin: &Path, plugins: &[Value], ifname: &str, result: &Value) -> Result<()> {
        for plugin in plugins.iter().rev() {
            self.call(bin, plugin, "DEL", ifname, result)?.success().with_context(|| format!("DEL {plugin}"))?;
        }
        Ok(())
    }

    /// Rules beside the kernel's own, and the routes of all tables but `local`. The kernel makes the link-local address, and its
    /// route, some time after the link is up.
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

    /// The addresses of the container whose answers come back to a host behind the node.
    fn answering(&self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        for address in V4.into_iter().chain(V6) {
            // The gateway's own IPv6 address is not usable at once.
            let tries = if address.contains(':') { "-c6 -i0.5" } else { "-c2 -i0.2" };
            let ping = format!("ping {tries} -W1 {address} > /dev/null 2>&1 && echo yes || echo no");
            if self.node.sh_in("far", &ping)?.trim() == "yes" {
                all.push(address.to_owned());
            }
        }
        Ok(all)
    }
}

/// With two links the answer leaves by the one whose address was asked, as with the native plugins.
#[test]
fn answers_leave_by_the_link_whose_address_was_asked() -> Result<()> {
    for bin in [plugin_bin()?, native_bin()?] {
        let place = Place::new()?;
        let (first, second) = (network(31, &json!({})), network(32, &json!({})));
        let only_bridge = |plugins: &[Value]| plugins.iter().take(1).cloned().collect::<Vec<_>>();
        let zero = place.add(&bin, &only_bridge(&first), "eth0")?;
        let one = place.add(&bin, &only_bridge(&second), "eth1")?;
        // Both would leave by the same link. The node drops what comes by the wrong bridge.
        let way = |source: &str| {
            let get = format!("ip route get 198.51.100.2 from {source} | sed -n 's/.* dev \\([a-z0-9]*\\).*/\\1/p'");
            Ok::<_, anyhow::Error>(place.node.sh_in("c1", &get)?.trim().to_owned())
        };
        ensure!(way(V4[0])? == way(V4[1])?, "{} {}", way(V4[0])?, way(V4[1])?);
        let sbr = second.last().context("sbr")?;
        let result = place.call(&bin, sbr, "ADD", "eth1", &one)?.success()?;
        ensure!(way(V4[0])? == "eth0" && way(V4[1])? == "eth1", "{} {}", way(V4[0])?, way(V4[1])?);
        ensure!(result["ips"] == one["ips"] && result["routes"] == one["routes"], "{result}");
        let all: Vec<&str> = V4.into_iter().chain(V6).collect();
        ensure!(place.answering()? == all, "{}: {:?}\n{}", bin.display(), place.answering()?, place.routing()?);
        // Both by source.
        place.call(&bin, first.last().context("sbr")?, "ADD", "eth0", &zero)?.success()?;
        ensure!(place.answering()? == all, "{}: {:?}\n{}", bin.display(), place.answering()?, place.routing()?);
        if bin == plugin_bin()? {
            place.check(&second, "eth1", &one)?;
            place.check(&first, "eth0", &zero)?;
            place.del(&bin, &second, "eth1", &one)?;
            ensure!(place.rules()?.iter().all(|rule| !rule.contains("32")), "{:?}", place.rules()?);
            place.check(&first, "eth0", &zero)?;
            ensure!(place.answering()? == [V4[0], V6[0]], "{:?}", place.answering()?);
            place.del(&bin, &first, "eth0", &zero)?;
            ensure!(place.rules()?.is_empty(), "{:?}", place.rules()?);
        }
    }
    Ok(())
}

/// Of an IPv4 route with several next hops the own one goes, and the other link keeps its way. The kernel deletes a whole route
/// where its first next hop is named.
#[test]
fn a_route_with_several_next_hops_keeps_those_of_other_links() -> Result<()> {
    let place = Place::new()?;
    let plugins = network(31, &json!({}));
    let [bridge, sbr] = &plugins[..] else { anyhow::bail!("two plugins") };
    let first = place.call(&plugin_bin()?, bridge, "ADD", "eth0", &Value::Null)?.success()?;
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
        place.call(&plugin_bin()?, sbr, "ADD", "eth0", &first)?.success()?;
        ensure!(default()? == "default via 10.44.0.1 dev out0", "{hops}: {}", default()?);
        let own = place.node.sh_in("c1", "ip route show default table 100")?;
        ensure!(own.trim() == "default via 10.31.0.1 dev eth0", "{hops}: {own}");
        place.check(&plugins, "eth0", &first)?;
        place.call(&plugin_bin()?, sbr, "DEL", "eth0", &first)?.success()?;
        ensure!(default()? == before, "{hops}: {before} / {}", default()?);
    }
    // What somebody put in the place of what was left stays at DEL.
    place.call(&plugin_bin()?, sbr, "ADD", "eth0", &first)?.success()?;
    place.node.sh_in("c1", "ip route replace default via 10.44.0.8 dev out0")?;
    place.call(&plugin_bin()?, sbr, "DEL", "eth0", &first)?.success()?;
    let left = default()?;
    ensure!(left.contains("via 10.44.0.8 dev out0") && left.contains("via 10.31.0.1 dev eth0"), "{left}");
    // A request to replace the route would replace the other one, which is before it.
    place.node.sh_in(
        "c1",
        "while ip route del default 2> /dev/null; do :; done
         ip route add default nexthop via 10.31.0.1 dev eth0 nexthop via 10.44.0.1 dev out0
         ip route prepend default via 10.44.0.9 dev out0",
    )?;
    let before = default()?;
    place.call(&plugin_bin()?, sbr, "ADD", "eth0", &first)?.success()?;
    ensure!(default()? == before, "{before} / {}", default()?);
    place.call(&plugin_bin()?, sbr, "DEL", "eth0", &first)?.success()?;
    ensure!(default()? == before, "{before} / {}", default()?);
    Ok(())
}

/// Keys that the native plugin of this distribution lacks: held against the kernel's state alone.
#[test]
fn static_gateways_and_source_hints() -> Result<()> {
    let place = Place::new()?;
    let keys = json!({"gateways": ["10.31.0.9", "fd31::9"], "addSourceHints": true});
    let plugins = network(31, &keys);
    let result = place.add(&plugin_bin()?, &plugins, "eth0")?;
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
    place.check(&plugins, "eth0", &result)?;
    place.call(&plugin_bin()?, plugins.last().context("sbr")?, "DEL", "eth0", &result)?.success()?;
    place.check(&plugins, "eth0", &result)?;
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
        let mut sbr = json!({"type": "sbr"});
        merge(&mut sbr, &keys);
        let answer = place.call(&plugin_bin()?, &sbr, "ADD", "eth0", &result)?;
        ensure!(answer.status == 1 && answer.stdout.contains(words), "{keys}: {answer:?}");
        ensure!(place.routing()? == before, "{keys}");
    }
    Ok(())
}

/// The plugins that make links find nothing wrong with routes that are in another table by the record.
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
            let mut sbr = json!({"type": "sbr"});
            merge(&mut sbr, &keys);
            let plugins = [main.clone(), sbr.clone()];
            let result = place.add(&plugin_bin()?, &plugins, "eth0").with_context(|| format!("{main} {keys}"))?;
            place.check(&plugins, "eth0", &result).with_context(|| format!("{main} {keys}"))?;
            // What is missing in both places is missing.
            place.node.sh_in(
                "c1",
                "for table in main 100 101; do ip route flush table $table 192.0.2.0/24 2> /dev/null || true; done",
            )?;
            let answer = place.call(&plugin_bin()?, &main, "CHECK", "eth0", &result)?;
            ensure!(answer.status == 1 && answer.stdout.contains("192.0.2.0/24"), "{main} {keys}: {answer:?}");
            place.del(&plugin_bin()?, &plugins, "eth0", &result).with_context(|| format!("{main} {keys}"))?;
            ensure!(place.rules()?.is_empty(), "{main} {keys}: {:?}", place.rules()?);
            let left = place.node.sh("ls /run/postern/attachments 2> /dev/null || true")?;
            ensure!(left.trim().is_empty(), "{main} {keys}: {left}");
        }
    }
    Ok(())
}

/// A failed ADD, and a DEL of this plugin alone, leave routing as it was.
#[test]
fn what_was_changed_comes_back() -> Result<()> {
    let place = Place::new()?;
    let plugins = network(31, &json!({}));
    let (bridge, sbr) = (&plugins[0], &plugins[1]);
    let first = place.call(&plugin_bin()?, bridge, "ADD", "eth0", &Value::Null)?.success()?;
    let before = place.routing()?;
    place.call(&plugin_bin()?, sbr, "ADD", "eth0", &first)?.success()?;
    ensure!(place.rules()?.len() == 2, "{:?}", place.rules()?);
    place.call(&plugin_bin()?, sbr, "DEL", "eth0", &Value::Null)?.success()?;
    ensure!(place.routing()? == before, "{before}\n{}", place.routing()?);
    // The kernel has no routes for a link that is down: the rules were made by then.
    place.node.sh_in("c1", "ip link set eth0 down")?;
    let answer = place.call(&plugin_bin()?, sbr, "ADD", "eth0", &first)?;
    ensure!(answer.status == 1 && answer.stdout.contains("Failed to add default route to 10.31.0.1"), "{answer:?}");
    ensure!(place.rules()?.is_empty(), "{:?}", place.rules()?);
    Ok(())
}

/// Root in the container changes what it likes: DEL finds by the record, and leaves what root made.
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
        let plugins = network(31, &json!({}));
        let result = place.add(&plugin_bin()?, &plugins, "eth0")?;
        place.node.sh_in("c1", script)?;
        let roots: Vec<String> = place.rules()?.into_iter().filter(|rule| !rule.contains("lookup 10")).collect();
        let answer = place.call(&plugin_bin()?, &plugins[1], "CHECK", "eth0", &result)?;
        ensure!((answer.status == 0) == checks, "{script}: {answer:?}");
        place.call(&plugin_bin()?, &plugins[1], "DEL", "eth0", &Value::Null)?.success().context(script)?;
        ensure!(place.rules()? == roots, "{script}: {:?}", place.rules()?);
        place.call(&plugin_bin()?, &plugins[0], "DEL", "eth0", &result)?.success().context(script)?;
    }
    Ok(())
}

/// DEL without the namespace succeeds, and makes no file where its path was. The native plugin does both otherwise.
#[test]
fn a_namespace_that_is_gone_leaves_nothing() -> Result<()> {
    let place = Place::new()?;
    let plugins = network(31, &json!({}));
    let result = place.add(&plugin_bin()?, &plugins, "eth0")?;
    place.node.sh("mkdir /run/paths")?;
    for netns in ["", "/run/paths/gone"] {
        place.call_as(&plugin_bin()?, &plugins[1], "DEL", "eth0", &result, netns)?.success().context("DEL")?;
        ensure!(place.node.sh("ls /run/paths")?.is_empty(), "a file was made");
    }
    let native = place.call_as(&native_bin()?, &plugins[1], "DEL", "eth0", &result, "/run/paths/gone")?;
    ensure!(native.status == 1 && !place.node.sh("ls /run/paths")?.is_empty(), "{native:?}");
    Ok(())
}

/// A DEL that can't look at the namespace gives nothing up: the next one removes the rules.
#[test]
fn a_namespace_that_cannot_be_entered_keeps_its_section() -> Result<()> {
    let place = Place::new()?;
    let plugins = network(31, &json!({}));
    let result = place.add(&plugin_bin()?, &plugins, "eth0")?;
    // A process outside of this user namespace.
    let answer = place.call_as(&plugin_bin()?, &plugins[1], "DEL", "eth0", &result, "/proc/1/ns/net")?;
    ensure!(answer.status == 1 && answer.stdout.contains("may be alive, and with it its source routing"), "{answer:?}");
    ensure!(place.rules()?.len() == 2, "{:?}", place.rules()?);
    place.del(&plugin_bin()?, &plugins, "eth0", &result)?;
    ensure!(place.rules()?.is_empty(), "{:?}", place.rules()?);
    Ok(())
}

/// Attachments of one container at once: each gets tables of its own.
#[test]
fn parallel_attachments_share_no_table() -> Result<()> {
    let place = Place::new()?;
    let names: Vec<String> = (0..6).map(|number| format!("eth{number}")).collect();
    let lists: Vec<Vec<Value>> = (31..37).map(|number| network(number, &json!({}))).collect();
    let mut results = Vec::new();
    for (name, plugins) in names.iter().zip(&lists) {
        results.push(place.call(&plugin_bin()?, &plugins[0], "ADD", name, &Value::Null)?.success()?);
    }
    std::thread::scope(|scope| {
        let calls: Vec<_> = names
            .iter()
            .zip(&lists)
            .zip(&results)
            .map(|((name, plugins), result)| {
                let place = &place;
                scope.spawn(move || place.call(&plugin_bin()?, &plugins[1], "ADD", name, result)?.success())
            })
            .collect();
        calls.into_iter().try_for_each(|call| call.join().map_err(|_| anyhow::anyhow!("a thread failed"))?.map(drop))
    })?;
    let mut tables: Vec<String> =
        place.rules()?.iter().filter_map(|rule| rule.split_whitespace().last().map(str::to_owned)).collect();
    ensure!(tables.len() == 12, "{tables:?}");
    tables.sort();
    tables.dedup();
    ensure!(tables.len() == 12, "{:?}", place.rules()?);
    for ((name, plugins), result) in names.iter().zip(&lists).zip(&results) {
        place.check(plugins, name, result)?;
        place.del(&plugin_bin()?, plugins, name, result)?;
    }
    ensure!(place.rules()?.is_empty(), "{:?}", place.rules()?);
    Ok(())
}

/// The network's own table is that one; neither the kernel's nor another attachment's.
#[test]
fn a_named_table_is_nobody_elses() -> Result<()> {
    let place = Place::new()?;
    let (first, second) = (network(31, &json!({"table": 500})), network(32, &json!({})));
    let zero = place.add(&plugin_bin()?, &first, "eth0")?;
    let one = place.add(&plugin_bin()?, &second, "eth1")?;
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
    for (table, words) in [
        (0, "table 0 is the kernel's own"),
        (253, "table 253 is the kernel's own"),
        (254, "table 254 is the kernel's own"),
        (255, "table 255 is the kernel's own"),
        (500, "table 500 is in use in this container: it serves senders in 10.31.0.2/32"),
        (-1, "out of range"),
    ] {
        let sbr = json!({"type": "sbr", "table": table});
        let answer = place.call(&plugin_bin()?, &sbr, "ADD", "eth1", &one)?;
        ensure!(answer.status == 1 && answer.stdout.contains(words), "{table}: {answer:?}");
        ensure!(place.routing()? == before, "{table}: {}", place.routing()?);
    }
    // A table with routes of another link, and no rule.
    place.node.sh_in("c1", "ip route add 192.0.2.0/24 via 10.31.0.1 table 600")?;
    let answer = place.call(&plugin_bin()?, &json!({"type": "sbr", "table": 600}), "ADD", "eth1", &one)?;
    ensure!(answer.status == 1 && answer.stdout.contains("through another link"), "{answer:?}");
    place.del(&plugin_bin()?, &second, "eth1", &one)?;
    place.del(&plugin_bin()?, &first, "eth0", &zero)?;
    ensure!(place.rules()?.is_empty(), "{:?}", place.rules()?);
    Ok(())
}

/// Natively the second call fails: its gateway can no longer be reached.
#[test]
fn twice_in_one_list() -> Result<()> {
    let place = Place::new()?;
    let mut plugins = network(31, &json!({}));
    plugins.push(json!({"type": "sbr", "addSourceHints": true}));
    plugins.push(json!({"type": "sbr", "table": 700}));
    let result = place.add(&plugin_bin()?, &plugins, "eth0")?;
    ensure!(place.rules()?.len() == 6, "{:?}", place.rules()?);
    ensure!(place.answering()? == [V4[0], V6[0]], "{:?}\n{}", place.answering()?, place.routing()?);
    place.check(&plugins, "eth0", &result)?;
    for at in (1..4).rev() {
        place.call(&plugin_bin()?, &plugins[at], "DEL", "eth0", &result)?.success()?;
        ensure!(place.rules()?.len() == (at - 1) * 2, "{at}: {:?}", place.rules()?);
        place.check(&plugins[..at], "eth0", &result).with_context(|| format!("after DEL of {at}"))?;
        ensure!(place.answering()? == [V4[0], V6[0]], "{at}: {}", place.routing()?);
    }
    Ok(())
}

/// A runtime goes back to the native plugins while containers run, and comes again.
#[test]
fn native_plugins_take_over_and_give_back() -> Result<()> {
    for (makes, removes) in [(plugin_bin()?, native_bin()?), (native_bin()?, plugin_bin()?)] {
        for keys in [json!({}), json!({"table": 500})] {
            let place = Place::new()?;
            let plugins = network(31, &keys);
            let result = place.add(&makes, &plugins, "eth0")?;
            ensure!(place.rules()?.len() == 2, "{:?}", place.rules()?);
            place.node.sh_in("c1", "ip rule add from 10.31.0.2 lookup 501")?;
            place.call(&removes, &plugins[1], "DEL", "eth0", &result)?.success()?;
            // Without a record both remove by address, and by the network's table.
            let left = if keys["table"].is_null() { 0 } else { 1 };
            ensure!(place.rules()?.len() == left, "{keys}: {:?}", place.rules()?);
            place.call(&removes, &plugins[0], "DEL", "eth0", &result)?.success()?;
        }
    }
    Ok(())
}

/// Root in a container makes routes to addresses, and puts addresses on its link. The records of sbr and vrf list them,
/// so that they come back, but the container has none of them. Others get these addresses, with ports and forwarding.
#[test]
fn what_root_in_a_container_names_is_nobodys_address() -> Result<()> {
    let place = Place::new()?;
    let ours = plugin_bin()?;
    let plugins = network(31, &json!({}));
    let (first, rest) = plugins.split_first().context("a bridge")?;
    let result = place.add(&ours, std::slice::from_ref(first), "eth0")?;
    place.node.sh_in(
        "c1",
        "for last in 2 3 4 5; do ip route add 10.60.0.$last/32 dev eth0; done
        ip route add 10.61.0.0/24 via 10.31.0.1; ip route add 10.62.0.9 dev eth0 src 10.31.0.2
        ip address add fd60::2/64 dev eth0 nodad; ip -6 route add fd60::3/128 dev eth0",
    )?;
    let mut previous = result;
    let vrf = json!({"type": "vrf", "vrfname": "blue"});
    let has_vrf = postern_tests::kernel::has_or_skips_part("vrf")?;
    for chained in rest.iter().chain(has_vrf.then_some(&vrf)) {
        previous = place.call(&ours, chained, "ADD", "eth0", &previous)?.success()?;
    }
    let records = place.node.sh("cat /run/postern/attachments/*")?;
    ensure!(records.contains("10.60.0.2/32"), "the record of sbr lists the routes: {records}");
    place.node.add_container("c2")?;
    let ranges = json!([[{"subnet": "10.60.0.0/24"}], [{"subnet": "fd60::/64"}]]);
    let bridge = json!({"cniVersion": "1.1.0", "name": "behind", "type": "bridge", "bridge": "native0", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": ranges}});
    let call = |bin: &Path, verb: &str, config: &Value| -> Result<Value> {
        let name = config["type"].as_str().unwrap_or_default();
        let call = Call::new(bin, name, verb, config.to_string());
        place.node.call(&call.attachment("c2", &place.node.netns("c2"), "eth0"))?.success()
    };
    let given = call(&native_bin()?, "ADD", &bridge)?;
    let mappings = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
    for chained in [
        json!({"type": "portmap", "backend": "nftables", "runtimeConfig": {"portMappings": mappings}}),
        json!({"type": "firewall", "backend": "iptables"}),
    ] {
        let mut config = json!({"cniVersion": "1.1.0", "name": "behind", "prevResult": given});
        merge(&mut config, &chained);
        // What a living attachment has is refused: its lease, and the address that its rules serve.
        let mut stolen = config.clone();
        merge(&mut stolen, &json!({"prevResult": {"ips": [{"address": "10.31.0.2/24", "interface": 2}]}}));
        place.node.sh_in("c2", "ip address replace 10.31.0.2/24 dev eth0")?;
        let name = chained["type"].as_str().unwrap_or_default();
        let thief = Call::new(&ours, name, "ADD", stolen.to_string()).attachment("c2", &place.node.netns("c2"), "eth0");
        let refused = place.node.call(&thief)?;
        ensure!(refused.stdout.contains("attachment net-eth0/c1/eth0 has it"), "{}", refused.stdout);
        call(&ours, "ADD", &config).with_context(|| chained.to_string())?;
        call(&ours, "DEL", &config)?;
    }
    Ok(())
}
