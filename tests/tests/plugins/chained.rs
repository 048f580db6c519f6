//! A plugin behind another plugin changes the other plugin's link in the container. The chained plugin is the rogue:
//! its configuration lists the operations that it asks for. A failed ADD, the next ADD after a kill, and DEL undo the
//! chained plugin's changes, whichever plugin made the link.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{PRIVATE_ETC, Refusal, test_bin};
use postern_tests::{Attachment, Network, Node, merge, native_bin};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The chained plugin's policy.
const POLICY: &str = "[grant.link]\n[grant.addresses]\n[grant.routes]\n[grant.link-sysctl]\n[grant.leases]\n\
    directories = [\"/run/chained\"]\nranges = [\"10.8.0.0/24\"]\n[previous]\nin-container = \"true\"";

/// Shows all changes of the link. The kernel adds link-local addresses at any time, so they are left out.
const LOOK: &str = "ip -o address show dev eth0 | grep -v 'scope link' | sed 's/ valid_lft.*//; s/ tentative//; s/ nodad//' | sort
    ip -o link show dev eth0 | sed 's/.*<//; s/ qdisc [a-z_]*//; s/ qlen.*//; s/[, ]*[A-Z_]*LOWER_UP//'
    (ip route show table all; ip -6 route show table all) | grep 'dev eth0' | grep -v -e fe80 -e ff00 -e '^local' -e '^broadcast' | sort
    cd /proc/sys/net/ipv6/conf/eth0; head accept_dad enhanced_dad ndisc_notify keep_addr_on_down disable_ipv6
    head ../lo/disable_ipv6 /proc/sys/net/ipv4/conf/eth0/arp_notify";

/// The maker of the link. A native plugin leaves no record.
#[derive(Clone, Copy, Debug)]
enum Maker {
    Ours,
    Native,
    /// Root made the link by hand, and the link is down.
    Hand,
}

struct Place {
    node: Node,
    maker: Maker,
    /// The maker's attachment.
    made: Attachment,
    before: String,
}

fn maker() -> Value {
    json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": "br9", "ipam": {"type": "host-local", "dataDir": "/run/made",
        "ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]], "routes": [{"dst": "0.0.0.0/0"}]}})
}

impl Place {
    fn new(maker: Maker) -> Result<Self> {
        let node = Node::new()?;
        node.add_container("c1")?;
        node.sh(PRIVATE_ETC)?;
        node.sh(&format!("mkdir -p /etc/postern/policy; printf '{POLICY}' > /etc/postern/policy/chained.toml"))?;
        let bin = if matches!(maker, Maker::Native) { native_bin()? } else { test_bin()? };
        let mut made = Network::new(&node, &self::maker())?.by(&bin).attachment("c1");
        if matches!(maker, Maker::Hand) {
            node.sh_in("c1", "ip link add eth0 type veth peer name far; ip address add fd00:9::2/64 dev eth0 nodad")?;
            made.result = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": node.netns("c1")}],
                "ips": [{"address": "fd00:9::2/64", "interface": 0}]});
        } else {
            made.add_at(0)?;
        }
        let before = node.sh_in("c1", LOOK)?;
        Ok(Self { node, maker, made, before })
    }

    fn look(&self) -> Result<String> {
        self.node.sh_in("c1", LOOK)
    }

    fn is_as_before(&self, when: &str) -> Result<()> {
        let now = self.look()?;
        ensure!(now == self.before, "{:?}, {when}: before:\n{}\nnow:\n{now}", self.maker, self.before);
        Ok(())
    }

    /// Returns the attachment with the plugin `chained` behind the maker. The plugin does `operations`, then `last`.
    fn chained(&self, operations: &[Value], last: &Value) -> Result<Attachment> {
        let mut steps = vec![json!({"call": {"op": "link-own"}})];
        steps.extend(operations.iter().map(|operation| json!({"call": operation})));
        steps.push(last.clone());
        let ipam = json!({"type": "host-local", "dataDir": "/run/chained", "ranges": [[{"subnet": "10.8.0.0/24"}]]});
        let config = json!({"cniVersion": "1.0.0", "type": "chained", "rogue": steps, "ipam": ipam});
        Ok(Attachment { network: Network::new(&self.node, &config)?.by(&test_bin()?), ..self.made.clone() })
    }
}

/// Sets of operations, and what each set changes. Addresses and routes need a link that is up.
fn changes() -> Vec<(&'static str, Vec<Value>)> {
    let set = |key: &str, value: bool| json!({"op": "sysctl-set", "link": 0, "key": key, "value": value});
    let route = |route: Value| json!({"op": "routes-add", "link": 0, "routes": [route]});
    let (up, lease) = (
        json!({"op": "link-up", "link": 0}),
        json!({"op": "leases-reserve", "sets": [[{"subnet": "10.8.0.0/24"}]], "requested": ["10.8.0.2"]}),
    );
    let address = json!({"op": "addresses-add", "link": 0, "addresses": ["10.8.0.2/24"]});
    vec![
        ("set it up", vec![up.clone()]),
        ("an address", vec![up.clone(), lease.clone(), address.clone()]),
        (
            "routes",
            vec![
                up.clone(),
                lease,
                address,
                route(json!({"dst": "192.0.2.0/24", "gateway": "10.8.0.1", "mtu": 1400})),
                route(json!({"dst": "198.51.100.0/24", "scope": 253, "table": 77, "source": "10.8.0.2"})),
                route(json!({"dst": "2001:db8::/32"})),
            ],
        ),
        (
            "settings",
            vec![
                set("arp_notify", true),
                set("ndisc_notify", true),
                set("keep_addr_on_down", true),
                set("accept_dad", false),
                set("enhanced_dad", false),
            ],
        ),
        ("IPv6 off", vec![up.clone(), route(json!({"dst": "2001:db8::/32"})), set("disable_ipv6", true)]),
        (
            "IPv6 off and on",
            vec![up.clone(), set("disable_ipv6", true), set("disable_ipv6", false), set("keep_addr_on_down", true)],
        ),
        (
            "no connected route",
            vec![up, json!({"op": "routes-remove-connected", "link": 0, "networks": ["fd00:9::/64"]})],
        ),
    ]
}

/// A step that policy refuses.
fn denied() -> Value {
    json!({"call": {"op": "forwarding-enable"}})
}

/// The last step of a plugin that succeeds.
fn passes(place: &Place) -> Value {
    json!({"print": place.made.result.to_string()})
}

#[test]
fn a_failed_add_leaves_the_link_as_it_was() -> Result<()> {
    for maker in [Maker::Ours, Maker::Native, Maker::Hand] {
        let place = Place::new(maker)?;
        for (name, operations) in changes() {
            for time in ["first", "second"] {
                let answer = place.chained(&operations, &denied())?.call_at(0, "ADD")?;
                Refusal::of(&answer)?.expect(110, "forwarding.enable").with_context(|| format!("{time} {name}"))?;
                place.is_as_before(&format!("{name}, after the {time} failed ADD"))?;
            }
        }
    }
    Ok(())
}

#[test]
fn del_takes_back_what_the_plugin_changed() -> Result<()> {
    for maker in [Maker::Ours, Maker::Native, Maker::Hand] {
        let place = Place::new(maker)?;
        for (name, operations) in changes() {
            let config = place.chained(&operations, &passes(&place))?;
            config.call_at(0, "ADD")?.success().with_context(|| name.to_owned())?;
            config.call_at(0, "DEL")?.success().with_context(|| name.to_owned())?;
            place.is_as_before(&format!("{name}, after DEL"))?;
        }
    }
    Ok(())
}

/// A killed run does not undo its ADD. The next ADD, DEL or `postern gc` undoes the killed ADD.
#[test]
fn after_a_kill_the_next_run_takes_it_back() -> Result<()> {
    for maker in [Maker::Ours, Maker::Native] {
        let place = Place::new(maker)?;
        // The last change of each set, in the form that LOOK shows.
        for (name, last) in [
            ("routes", "2001:db8::/32"),
            ("settings", "==> enhanced_dad <==\n0"),
            ("IPv6 off", "==> disable_ipv6 <==\n1"),
        ] {
            let (_, operations) = changes().into_iter().find(|(known, _)| *known == name).context("no such set")?;
            ensure!(!place.before.contains(last), "{name}: the change exists before ADD: {}", place.before);
            for next in ["ADD", "DEL", "gc"] {
                let hangs = place.chained(&operations, &json!({"hang": true}))?;
                let mut run = place.node.start(&hangs.request(0, "ADD")?)?;
                let until = Instant::now() + Duration::from_secs(20);
                while !place.look()?.contains(last) {
                    ensure!(Instant::now() < until, "{name}: ADD changes nothing: {}", place.look()?);
                    std::thread::sleep(Duration::from_millis(20));
                }
                run.kill()?;
                run.wait()?;
                let config = place.chained(&operations, &denied())?;
                match next {
                    "ADD" => Refusal::of(&config.call_at(0, "ADD")?)?.expect(110, "forwarding.enable")?,
                    "DEL" => drop(config.call_at(0, "DEL")?.success()?),
                    _ => drop(place.node.sh(&format!("{}/postern gc --yes", test_bin()?.display()))?),
                }
                place.is_as_before(&format!("{name}, after a kill and {next}"))?;
            }
        }
    }
    Ok(())
}

/// Objects from before ADD are not the plugin's, so a failed ADD does not remove them.
#[test]
fn what_was_there_stays() -> Result<()> {
    let mut place = Place::new(Maker::Ours)?;
    let (node, route) = (&place.node, |words: &str| format!("ip route add 192.0.2.0/24 via 10.9.0.1 dev eth0 {words}"));
    node.sh_in("c1", "ip -6 route add 2001:db8::/32 dev eth0 proto boot; ip address add 10.8.0.2/24 dev eth0")?;
    node.sh_in("c1", &format!("{}; {}", route("proto boot"), route("metric 7 mtu 1300 proto static")))?;
    place.before = place.look()?;
    let via = json!({"dst": "192.0.2.0/24", "gateway": "10.9.0.1"});
    let mut other = via.clone();
    merge(&mut other, &json!({"priority": 7}));
    let add = |route: &Value| json!({"op": "routes-add", "link": 0, "routes": [route]});
    let address = json!({"op": "addresses-add", "link": 0, "addresses": ["10.8.0.2/24"]});
    for (operations, words) in [
        (vec![add(&via)], "file exists"),
        (vec![add(&json!({"dst": "2001:db8::/32"}))], "file exists"),
        (
            vec![
                json!({"op": "leases-reserve", "sets": [[{"subnet": "10.8.0.0/24"}]], "requested": ["10.8.0.2"]}),
                address,
            ],
            "file exists",
        ),
        // For the kernel this is another route beside the existing route.
        (vec![add(&other)], "forwarding.enable"),
    ] {
        let answer = place.chained(&operations, &denied())?.call_at(0, "ADD")?;
        let refusal = Refusal::of(&answer)?;
        ensure!(refusal.text.contains(words), "{operations:?}: {}", refusal.text);
        place.is_as_before(&format!("{operations:?}"))?;
    }
    Ok(())
}

/// `routes-remove-connected` removes only a route that the kernel made.
#[test]
fn connected_routes_are_the_kernels_own() -> Result<()> {
    let mut place = Place::new(Maker::Ours)?;
    place.node.sh_in(
        "c1",
        "ip route add 192.0.2.0/24 dev eth0; ip -6 route add default via fd00:9::1 dev eth0
        ip -6 route add 2001:db8::/32 dev eth0 proto static",
    )?;
    place.before = place.look()?;
    for network in ["0.0.0.0/0", "::/0", "192.0.2.0/24", "2001:db8::/32", "10.7.0.0/24"] {
        let remove = json!({"op": "routes-remove-connected", "link": 0, "networks": [network]});
        let answer = place.chained(&[remove], &passes(&place))?.call_at(0, "ADD")?;
        Refusal::of(&answer)?.expect(999, "failed to delete route…no such process").with_context(|| network)?;
        place.is_as_before(network)?;
    }
    Ok(())
}

/// A plugin may make each route with a separate operation, and write one setting many times.
#[test]
fn many_single_changes_are_made_and_undone() -> Result<()> {
    let place = Place::new(Maker::Ours)?;
    let route = |n: u32| json!({"dst": format!("198.18.{}.{}/32", n / 200, n % 200)});
    let mut operations = vec![json!({"op": "link-up", "link": 0})];
    operations.extend((0..300).map(|n| json!({"op": "routes-add", "link": 0, "routes": [route(n)]})));
    operations
        .extend((0..300).map(|n| json!({"op": "sysctl-set", "link": 0, "key": "arp_notify", "value": n % 2 == 0})));
    let config = place.chained(&operations, &passes(&place))?;
    config.call_at(0, "ADD")?.success()?;
    let count = place.node.sh("cat /run/postern/attachments/* | grep -o '\"setting\":' | wc -l")?;
    ensure!(count.trim() == "1", "the record has {count} notes on one setting");
    config.call_at(0, "DEL")?.success()?;
    place.is_as_before("after DEL")?;
    let answer = place.chained(&operations, &denied())?.call_at(0, "ADD")?;
    Refusal::of(&answer)?.expect(110, "forwarding.enable")?;
    place.is_as_before("after a failed ADD")
}

/// All attachments of a container share `lo`. The DEL of the last attachment that needs a setting puts the setting
/// back.
#[test]
fn a_setting_that_two_attachments_need_is_put_back_by_the_last() -> Result<()> {
    let place = Place::new(Maker::Native)?;
    let made = [place.made.clone(), place.made.network.clone().interface("eth1").add("c1")?];
    let lo = || place.node.sh_in("c1", "cat /proc/sys/net/ipv6/conf/lo/disable_ipv6");
    let set = json!({"op": "sysctl-set", "link": 0, "key": "disable_ipv6", "value": false});
    for order in [["eth0", "eth1"], ["eth1", "eth0"]] {
        place.node.sh_in("c1", "echo 1 > /proc/sys/net/ipv6/conf/lo/disable_ipv6")?;
        let mut chained = Vec::new();
        for (ifname, made) in ["eth0", "eth1"].into_iter().zip(&made) {
            let print = json!({"print": made.result.to_string()});
            let network = place.chained(std::slice::from_ref(&set), &print)?.network.interface(ifname);
            chained.push((ifname, Attachment { network, ..made.clone() }));
        }
        for (ifname, attachment) in &chained {
            attachment.call_at(0, "ADD")?.success()?;
            ensure!(lo()?.trim() == "0", "{ifname}: {}", lo()?);
        }
        for (ifname, expected) in order.into_iter().zip(["0", "1"]) {
            let (_, attachment) = chained.iter().find(|(of, _)| *of == ifname).context("an attachment")?;
            attachment.call_at(0, "DEL")?.success()?;
            ensure!(lo()?.trim() == expected, "{order:?}: after DEL of {ifname}: {}", lo()?);
        }
    }
    Ok(())
}

/// The index of claims tells which attachment changed a setting earlier. Once the index is filled, no run opens other
/// attachments' records for this.
#[test]
fn the_owner_of_a_setting_is_found_without_the_records_of_others() -> Result<()> {
    let place = Place::new(Maker::Native)?;
    let trace = "/var/log/trace";
    let strace = ["strace", "-f", "-qq", "-o", trace, "-e", "trace=openat,openat2", "-e", "signal=none"];
    let set = |key: &str, value: bool| json!({"op": "sysctl-set", "link": 0, "key": key, "value": value});
    let config = place.chained(&[set("disable_ipv6", false), set("accept_dad", false)], &passes(&place))?;
    let off = || place.node.sh_in("c1", "echo 1 > /proc/sys/net/ipv6/conf/lo/disable_ipv6");
    // The first run reads all records, and fills the index.
    off()?;
    config.call_at(0, "ADD")?.success()?;
    place.node.sh(
        "cd /run/postern/attachments; record=$(ls); for number in $(seq 30); do cp $record $(printf '%048x' $number); done",
    )?;
    for verb in ["DEL", "ADD"] {
        place.node.call_under(&strace.map(str::to_owned), &config.request(0, verb)?)?.success()?;
        let text = std::fs::read_to_string(place.node.path(trace))?;
        ensure!(text.contains("disable_ipv6"), "{verb}: the trace lacks the setting: {text}");
        let copies = text.lines().filter(|line| line.contains(&"0".repeat(40))).count();
        ensure!(copies == 0, "{verb} opens other attachments' records {copies} times");
        off()?;
    }
    Ok(())
}

/// ADD can't restore a link that another program made, so it does not delete the link.
#[test]
fn an_add_deletes_no_link_of_another() -> Result<()> {
    for maker in [Maker::Ours, Maker::Native, Maker::Hand] {
        let place = Place::new(maker)?;
        let answer = place.chained(&[json!({"op": "link-delete", "link": 0})], &denied())?.call_at(0, "ADD")?;
        Refusal::of(&answer)?.expect(999, "link.delete")?;
        place.is_as_before("delete")?;
    }
    Ok(())
}

/// A third party's plugin has its own keys. Values that the grant takes from these keys count as named by the operator.
#[test]
fn the_grant_decides_whatever_the_keys_are_called() -> Result<()> {
    let mut place = Place::new(Maker::Ours)?;
    let policy = r#"[grant.link]\nlook-only = "true"\n[grant.link-settings]\nmacs = ["${config.own.address}", "02:00:00:00:00:78"]
        mtu = ["${config.size}"]\npromisc = ["true"]\ndirectories = ["/run/third"]\n[grant.namespace-sysctl]\nkeys = ["net.core.*"]"#;
    place.node.sh(&format!("printf '{policy}' > /etc/postern/policy/chained.toml"))?;
    // The attachment has spoofing protection.
    place.made.del()?;
    place.made = place.made.network.with(&json!({"macspoofchk": true})).add("c1")?;
    place.before = place.look()?;
    let change = |settings: Value| json!({"op": "link-settings-change", "link": 0, "settings": settings});
    let set = |value: &str| json!({"op": "namespace-sysctl-set", "key": "net.core.somaxconn", "value": value});
    let own = json!({"dataDir": "/run/third", "size": 1400, "own": {"address": "02:00:00:00:00:77"},
        "kernel": [{"net.core.somaxconn": "99"}], "runtimeConfig": {"io": {"net.core.somaxconn": "98"}}});
    let call = |verb: &str, operations: &[Value]| {
        let mut chained = place.chained(operations, &passes(&place))?;
        chained.network = chained.network.with(&own);
        chained.call_at(0, verb)
    };
    let all = change(json!({"mac": "02:00:00:00:00:77", "mtu": 1400, "promisc": true}));
    let done = [all, change(json!({"promisc": false})), set("99")];
    call("ADD", &done)?.success()?;
    let look = "ip -o link show dev eth0; cat /proc/sys/net/core/somaxconn";
    let now = place.node.sh_in("c1", look)?;
    ensure!(["02:00:00:00:00:77", "mtu 1400", "\n99"].iter().all(|part| now.contains(part)), "{now}");
    ensure!(
        place.node.sh("nft list ruleset")?.contains("02:00:00:00:00:77"),
        "the spoofing protection lacks the new address"
    );
    call("DEL", &done)?.success()?;
    place.is_as_before("DEL")?;
    for (operation, code, words) in [
        // Only the policy names this address.
        (
            change(json!({"mac": "02:00:00:00:00:78"})),
            999,
            "neither configuration nor CNI_ARGS names 02:00:00:00:00:78",
        ),
        (change(json!({"mac": "02:00:00:00:00:79"})), 110, "with address 02:00:00:00:00:79"),
        (change(json!({"allmulti": false})), 110, "without all multicast frames"),
        // A pod may have written this value.
        (set("98"), 999, "does not list"),
    ] {
        Refusal::of(&call("ADD", std::slice::from_ref(&operation))?)?
            .expect(code, words)
            .with_context(|| operation.to_string())?;
        place.is_as_before(words)?;
    }
    Ok(())
}
