//! Root in the container controls what the kernel says about the container: names of any bytes, answers of any length,
//! objects in any number. DEL succeeds in all these cases. The device returns to the node, the lease is free, and the
//! earlier plugins are called. Other containers, `ls`, `gc` and `doctor` are not disturbed.

use anyhow::{Context, Result, ensure};
use postern_tests::tour::legs;
use postern_tests::{Answer, Call, Network, Node, plugin_bin, shipped};
use serde_json::json;

/// Links whose names are no text, and a link whose name looks like an escaped byte.
const STRANGE: &str = r#"ip link add "$(printf '\377')" type ifb
    ip link add "$(printf 'a\303b\033[2J')" type ifb; ip link add '\xff' type ifb
    ip link set "$(printf '\377')" alias "$(printf '\200 %%ff')""#;

/// Gives the attachment's link a name, an alias and an alternative name that are no text.
const RENAMED: &str = r#"ip link property add dev eth0 altname "$(printf 'b\377%%41')"
    ip link set dev eth0 down
    ip link set dev eth0 alias "$(printf '\377')"
    ip link set dev eth0 name "$(printf 'e\377')"
    ip link set dev "$(printf 'e\377')" up"#;

/// Makes the kernel's answer longer than 32 KiB.
const LONG: &str = "seq -f 'link property add dev eth0 altname %0127.0f' 250 > /run/long; ip -batch /run/long";

/// More links than any node has.
const MANY: &str =
    "seq -f 'link add many%.0f type ifb numtxqueues 1 numrxqueues 1' 17000 > /run/many; ip -batch /run/many";

/// More routes, rules, neighbours and addresses than any container has.
const MANY_ELSE: &str = r#"ip link set eth0 up
    seq 20000 | awk '{n = $1 % 256; m = int($1 / 256)
        print "route add 172.16." m "." n "/32 dev eth0"
        printf "route add 2001:db8::%x/128 dev eth0\n", $1
        print "neigh add 172.17." m "." n " lladdr 02:00:00:00:00:01 dev eth0 nud permanent"
        if ($1 > 1000) next
        print "rule add from 172.18." m "." n "/32 lookup 77 pref " 32000 - $1
        print "addr add 172.19." m "." n "/32 dev eth0"
    }' > /run/many; ip -force -batch /run/many > /run/said 2>&1 || true
    test "$(ip route | wc -l)" -ge 20000; test "$(ip rule | wc -l)" -ge 1000; test "$(ip -4 -o addr | wc -l)" -ge 1000"#;

/// Links appear without end. Each list of the container's links changes while DEL reads it. DEL has to read the list,
/// because a link is stacked on the attachment's link.
const CHANGING: &str = "ip link add link eth0 name upper0 type macvlan
    seq -f 'link add many%.0f type ifb numtxqueues 1 numrxqueues 1' 400 > /run/many; ip -batch /run/many
    for n in 1 2 3 4; do
        seq -f \"link add new$n-%.0f type ifb numtxqueues 1 numrxqueues 1\" 9000 > /run/new$n
        ip -batch /run/new$n > /dev/null 2>&1 &
    done
    for n in 1 2 3 4; do until ip link show new$n-1 > /dev/null 2>&1; do sleep .01; done; done";

/// For each network of these plugins, root in the container runs the script before DEL.
fn del_ends_well_after(script: &str, is_meant: impl Fn(&str) -> bool) -> Result<()> {
    let (bin, mut tried) = (plugin_bin()?, 0);
    for plugin in shipped()?.iter().filter(|plugin| is_meant(plugin)) {
        for leg in legs(plugin)? {
            let ends_well = |node: &Node, verb: &str, call: &Call| -> Result<Answer> {
                if verb != "DEL" {
                    let answer = node.call(call)?;
                    ensure!(answer.status == 0, "{verb}: {answer:?}");
                    return Ok(answer);
                }
                node.sh_in("c1", script)?;
                let answer = node.call(call)?;
                ensure!(answer.status == 0, "{answer:?}");
                let leases = "find /var/lib/cni/networks -name '10.*' 2> /dev/null || true";
                ensure!(leg.is_chained() || node.sh(leases)?.is_empty(), "a lease is left");
                node.sh("ip link show spare0 > /dev/null")?;
                ensure!(!answer.stderr.contains("is held"), "{answer:?}");
                Ok(answer)
            };
            leg.walk(&bin, |node, verb, call| ends_well(node, verb, call).with_context(|| leg.name.clone()))?;
            tried += 1;
        }
    }
    ensure!(tried > 0, "no network was tried");
    Ok(())
}

/// Returns true for a plugin whose attachment has a link `eth0`.
fn has_link(plugin: &str) -> bool {
    !matches!(plugin, "loopback" | "static" | "host-local" | "dhcp")
}

#[test]
fn names_of_any_bytes_are_no_way_to_stay() -> Result<()> {
    del_ends_well_after(STRANGE, has_link)
}

#[test]
fn the_own_link_may_have_any_name() -> Result<()> {
    del_ends_well_after(RENAMED, has_link)
}

#[test]
fn a_long_answer_is_no_way_to_stay() -> Result<()> {
    del_ends_well_after(LONG, has_link)
}

/// host-device and vrf list all links of the container.
#[test]
fn many_links_are_no_way_to_stay() -> Result<()> {
    del_ends_well_after(MANY, |plugin| matches!(plugin, "host-device" | "vrf"))
}

/// DEL lists none of these objects, or only objects of the attachment's link.
#[test]
fn many_routes_rules_and_addresses_are_no_way_to_stay() -> Result<()> {
    del_ends_well_after(MANY_ELSE, |plugin| matches!(plugin, "host-device" | "vrf" | "sbr" | "tuning"))
}

/// So many routes, addresses, rules, neighbours and links that no answer to a guest has room for all.
const MORE_THAN_AN_ANSWER: &str = r#"dev=$(ip -o link show eth0 > /dev/null 2>&1 && echo eth0 || echo lo)
    ip link set $dev up
    seq 20000 | awk -v dev=$dev '{n = $1 % 256; m = int($1 / 256)
        print "route add 172.16." m "." n "/32 dev " dev
        printf "route add 2001:db8::%x/128 dev %s\n", $1, dev
        print "neigh add 172.17." m "." n " lladdr 02:00:00:00:00:01 dev " dev " nud permanent"
        if ($1 > 2000) next
        print "rule add from 172.18." m "." n "/32 lookup 77 pref " 32000 - $1
        print "addr add 172.19." m "." n "/32 dev " dev
        print "link add many" $1 " type ifb numtxqueues 1 numrxqueues 1"
    }' > /run/many; ip -force -batch /run/many > /run/said 2>&1 || true
    test "$(ip route | wc -l)" -ge 20000; test "$(ip rule | wc -l)" -ge 2000; test "$(ip -o addr | wc -l)" -ge 2000"#;

/// A plugin that looks at the container asks only for objects that it needs, and reads no list of root's objects.
#[test]
fn checks_and_chained_plugins_bear_any_number_of_objects() -> Result<()> {
    let (bin, mut failed) = (plugin_bin()?, Vec::new());
    for leg in shipped()?.iter().map(|plugin| legs(plugin)).collect::<Result<Vec<_>>>()?.concat() {
        let before = if leg.is_chained() { "VERSION" } else { "CHECK" };
        leg.walk(&bin, |node, verb, call| {
            if verb == before {
                node.sh_in("c1", MORE_THAN_AN_ANSWER)?;
            }
            let answer = node.call(call)?;
            // sbr moves each route, and DEL restores it. sbr's record has room for a limited number of routes.
            let is_too_much = leg.plugin == "sbr" && verb == "ADD";
            let words = ["routes are too many: a run may add 1024", "or name a `table`"];
            let is_plain = words.iter().all(|words| answer.stdout.contains(words));
            if (answer.status == 0) == is_too_much || is_too_much && !is_plain {
                failed.push(format!("{} {verb}: {} {}", leg.name, answer.stdout, answer.stderr));
            }
            Ok(answer)
        })?;
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// A change of the link-layer address keeps the link's routes, and a link without IPv6 has no IPv6 routes. No number of
/// routes stops tuning.
#[test]
fn tuning_changes_a_link_with_any_number_of_routes() -> Result<()> {
    let without_ipv6 = json!({"sysctl": {"net.ipv6.conf.eth0.disable_ipv6": "1"}});
    for (change, stay) in [(json!({"mac": "02:00:00:00:00:07"}), true), (without_ipv6, false)] {
        let node = Node::new()?;
        node.add_container("c1")?;
        let result = bridge(&node)?.add("c1")?.result;
        node.sh_in("c1", MORE_THAN_AN_ANSWER)?;
        let tuning = Network::new(&node, &json!({"type": "tuning", "prevResult": result}))?.with(&change);
        for verb in ["ADD", "CHECK", "DEL"] {
            let answer = tuning.call(verb, "c1")?;
            ensure!(answer.status == 0, "{change}: {verb}: {answer:?}");
            let left: usize = node.sh_in("c1", "ip -6 route | wc -l")?.trim().parse()?;
            ensure!((left >= 20_000) == stay, "{change}: {verb}: {left} routes are left");
        }
    }
    Ok(())
}

#[test]
fn changes_without_end_are_no_way_to_stay() -> Result<()> {
    del_ends_well_after(CHANGING, |plugin| matches!(plugin, "host-device" | "vrf"))
}

fn bridge(node: &Node) -> Result<Network> {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
    Network::new(node, &json!({"type": "bridge", "bridge": "br9", "isGateway": true, "ipam": ipam}))
}

/// A network of the device with this name, or with this address if `key` is `hwaddr`.
fn device(node: &Node, key: &str, value: &str) -> Result<Network> {
    Network::new(node, &json!({"name": value.replace(':', "-"), "type": "host-device", key: value}))
}

/// A link of the node whose name is no text: root in a container or root of the node chose the name.
#[test]
fn a_name_of_any_bytes_on_the_node_stops_nobody() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.add_container("c2")?;
    node.sh(STRANGE)?;
    node.sh("ip link add dev1 type veth peer name wire1; ip link add dev2 address 02:00:00:00:00:99 type veth peer name wire2")?;
    let (by_name, by_address) = (device(&node, "device", "dev1")?, device(&node, "hwaddr", "02:00:00:00:00:99")?);
    for (network, container) in [(by_name, "c1"), (by_address, "c2"), (bridge(&node)?, "c1")] {
        network.add(container)?;
        ensure!(node.postern("ls")?.printed()?.contains(container));
        for arguments in ["gc", "gc --native", "doctor"] {
            node.postern(arguments)?.printed().context(arguments)?;
        }
        network.call("DEL", container)?.success()?;
    }
    Ok(())
}

/// When its namespace ends, a card returns to the node with the name, alias and alternative names that root in the
/// container gave it. In this test root moves the device. Other containers are not disturbed, and DEL succeeds.
#[test]
fn a_device_that_comes_home_under_any_name_stops_nobody() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.add_container("c2")?;
    node.sh("ip link add dev1 type veth peer name wire1; ip link add dev2 type veth peer name wire2")?;
    let (first, second) = (device(&node, "device", "dev1")?, device(&node, "device", "dev2")?);
    first.add("c1")?;
    node.sh_in("c1", RENAMED)?;
    node.sh(&format!("nsenter --net={} ip link set \"$(printf 'e\\377')\" netns $$", node.netns("c1")))?;
    for round in ["away", "after DEL"] {
        second.add("c2").context(round)?;
        for arguments in ["ls", "gc", "gc --native"] {
            node.postern(arguments)?.printed().context(round)?;
        }
        second.call("DEL", "c2")?.success().context(round)?;
        let answer = first.call("DEL", "c1")?;
        ensure!(answer.status == 0, "{round}: {answer:?}");
    }
    node.sh("ip link show dev2 > /dev/null; ip -o link show wire1 | grep -q wire1@")?;
    Ok(())
}

/// The printed form of a name that is no text does not name another link. A name in the kernel may contain a backslash.
#[test]
fn what_is_shown_for_one_link_is_no_name_of_another() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh(
        r#"ip link add "$(printf '\377')" type veth peer name wire1; ip link add '\xff' type veth peer name wire2"#,
    )?;
    for (name, status) in [("%ff", 1), ("\\xff", 0), ("\u{fffd}", 1)] {
        let network = device(&node, "device", name)?.with(&json!({"name": "net"}));
        let answer = network.call("ADD", "c1")?;
        ensure!((answer.status == 0) == (status == 0), "{name}: {answer:?}");
        if status == 0 {
            network.call("DEL", "c1")?.success()?;
        }
    }
    Ok(())
}
