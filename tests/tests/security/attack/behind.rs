//! Attacks behind a native plugin, when policy lets the kernel confirm `prevResult`. The attacker chooses the earlier
//! result, and is root in its container. It gets no address of the node or of others, and no link of others.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::namespaces::impostor;
use crate::attack::{Attack, attack, each, rogue};
use anyhow::{Context, Result};
use postern_tests::proof::Refusal;
use serde_json::{Value, json};

/// The same conditions as in the shipped policies of portmap and firewall.
const POLICY: &str = "[previous]\nin-container = \"true\"\n[grant.port-mappings]\nports = [\"1024-65535\"]\nbackends = [\"nftables\"]\n[grant.attachments]";
const ISOLATING: &str = "[previous]\nin-container = \"true\"\n[grant.firewall]\nbackends = [\"iptables\"]\nadmin-chains = [\"CNI-ADMIN\"]\ningress = [\"${config.ingressPolicy | open}\"]";
const ATTACHING: &str = "[previous]\nin-container = \"true\"\n[grant.bridge]\nnames = [\"hostile0\"]\nattach = [\"*\"]";

/// The pair of a native plugin, and everything that root adds to the container. The node's VRF `blue` has its own
/// address.
const PAIR: &str = "
    ip link add port1 type veth peer name eth0 netns c1
    ip link set port1 up master hostile0; ip -n c1 link set eth0 up; ip -n c1 link set lo up
    ip link add blue type vrf table 77 2>/dev/null && ip link set blue up && ip link add blue0 type veth peer name blue1 &&
        ip link set blue0 master blue up && ip addr add 203.0.113.9/24 dev blue0 || true
    for address in 10.9.0.77/24 10.77.0.2/24 10.77.0.1/24 192.0.2.1/24 203.0.113.9/24 10.9.0.2/24 224.0.0.9/32 fd00:9::77/64; do
        ip -n c1 addr add $address dev eth0 nodad 2>/dev/null || ip -n c1 addr add $address dev eth0
    done
    ip -n c1 link add eth1 type veth peer name eth2; ip -n c1 link set eth1 up; ip -n c1 addr add 10.66.6.7/24 dev eth1
    ip -n c1 addr add 127.0.0.9/8 dev lo";

/// One forward to an address. `prevResult` has this address on the given interface of its list.
fn forward(name: &'static str, address: &str, interface: &Value) -> Attack {
    let bare = address.split('/').next().unwrap_or_default();
    let forward =
        json!({"op": "port-mappings-ensure", "addresses": [bare], "forwards": ["tcp:8080:80"], "masquerade": "own"});
    let steps = json!({"type": "chained", "rogue": [{"call": forward}], "backend": "nftables", "ipam": null,
        "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
        "prevResult": {"cniVersion": "1.1.0",
            "interfaces": [{"name": "hostile0"}, {"name": "port1"}, {"name": "eth0", "sandbox": "/run/netns/c1"},
                           {"name": "eth0", "sandbox": "/run/netns/c2"}, {"name": "eth1", "sandbox": "/run/netns/c1"},
                           {"name": "a name that no link can have", "sandbox": "/run/netns/c1"},
                           {"name": "eth0"}, {"name": "eth0", "sandbox": "0af3c17f6b0b5d1d"},
                           {"name": "eth0", "sandbox": "/host/run/netns/c1"}, {"name": "eth0", "sandbox": "/run/./netns/c1"},
                           {"name": "eth0", "sandbox": "/proc/self/ns/net"}],
            "ips": [{"address": address, "interface": interface}]},
    });
    attack(name, "chained", steps).policy(POLICY)
}

#[test]
fn behind_a_native_plugin_no_address_of_others_counts() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare(PAIR)?;
    // The shared chains of an allowed run stay, as with the native plugin.
    for own in [forward("IPv4", "10.9.0.77/24", &json!(2)), forward("IPv6", "fd00:9::77/64", &json!(2))] {
        attacked.operator_policy(own.plugin, POLICY)?;
        own.call(&attacked)?.success()?;
        Attack { verb: "DEL", ..own }.call(&attacked)?.success()?;
    }
    attacked.look()?;
    let at = |name, address, interface: u8, words| forward(name, address, &json!(interface)).ends(110, words);
    let attacks = [
        at("the bystander's, by its record", "10.77.0.2/24", 2, "attachment bystander/c2/eth0 has this address, by its record"),
        at("its neighbour's on the same bridge", "10.9.0.2/24", 2, "attachment net/c3/eth0 has this address, by its record"),
        at("the node's", "192.0.2.1/24", 2, "it is the node's own"),
        at("the gateway's", "10.77.0.1/24", 2, "it is the node's own"),
        at("one that is only claimed", "10.66.6.6/24", 2, "\"eth0\" of the container does not have it"),
        at("on another link of the container", "10.66.6.7/24", 2, "\"eth0\" of the container does not have it"),
        at("a multicast address", "224.0.0.9/32", 2, "no container can have it"),
        at("a loopback address", "127.0.0.9/8", 2, "no container can have it"),
        at("no address", "0.0.0.0/0", 2, "no container can have it"),
        at("link-local", "fe80::1/64", 2, "no container can have it"),
        forward("an IPv4 address in another form", "::ffff:192.0.2.1/128", &json!(2))
            .ends(999, "is no address of this attachment"),
        at("on the node's link", "10.9.0.77/24", 1, "prevResult has it on \"port1\" of the node"),
        at("in another container", "10.77.0.2/24", 3, "prevResult has it in another namespace, \"/run/netns/c2\""),
        at("on a link that can't be", "10.9.0.77/24", 5, "no link can have that name"),
        at("in the node's namespace", "10.9.0.77/24", 10, "prevResult has it in another namespace, \"/proc/self/ns/net\""),
        forward("of a VRF of the node", "203.0.113.9/24", &json!(2)).ends(110, "it is the node's own"),
        at("without the key", "10.9.0.77/24", 2, "previous = { in-container = \"true\" }")
            .policy("[grant.port-mappings]\nports = [\"1024-65535\"]\nbackends = [\"nftables\"]"),
        at("with the key switched off", "10.9.0.77/24", 2, "previous = { in-container = \"true\" }")
            .policy("[previous]\nin-container = \"false\"\n[grant.port-mappings]\nports = [\"1024-65535\"]\nbackends = [\"nftables\"]"),
        // The remaining addresses belong only to this container.
        forward("its own", "10.9.0.77/24", &json!(2)).ends(0, ""),
        forward("its own, with another prefix length", "10.9.0.77/16", &json!(2)).ends(0, ""),
        forward("its own, on the attachment's link", "10.9.0.77/24", &Value::Null).ends(0, ""),
        forward("its own, on another link of the container", "10.66.6.7/24", &json!(4)).ends(0, ""),
        forward("its own of IPv6", "fd00:9::77/64", &json!(2)).ends(0, ""),
    ];
    let has_vrf = attacked.node().sh("ip link show blue0 >/dev/null 2>&1 && echo yes || true")?.trim() == "yes";
    let possible = attacks.iter().filter(|attack| has_vrf || attack.name != "of a VRF of the node");
    each(possible, |attack| attack.name.to_owned(), |attack| attack.withstood_by(&mut attacked))
}

/// Whatever an earlier result says about the interface, the kernel and the records decide. The earlier plugin is
/// native, or a compromised sandboxed plugin that made the link and gave no address.
#[test]
fn no_spelling_of_an_interface_gives_addresses_of_others() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let spellings = [
        ("no index", Value::Null),
        ("a negative index", json!(-1)),
        ("an index beyond the list", json!(99)),
        ("no sandbox", json!(6)),
        ("a container ID", json!(7)),
        ("a path that leads nowhere", json!(8)),
        ("another path of the namespace", json!(9)),
    ];
    let addresses = [
        ("10.77.0.2/24", "attachment bystander/c2/eth0 has this address, by its record"),
        ("192.0.2.1/24", "it is the node's own"),
        ("10.77.0.1/24", "it is the node's own"),
        ("10.66.6.6/24", "\"eth0\" of the container does not have it"),
        ("224.0.0.9/32", "no container can have it"),
        ("127.0.0.9/8", "no container can have it"),
    ];
    for is_taken_over in [false, true] {
        match is_taken_over {
            false => attacked.prepare(PAIR)?,
            true => {
                attacked.prepare("ip link delete port1; ip -n c1 link delete eth1")?;
                attacked.operator_policy("rogue", "[grant.veth]\n[grant.link]")?;
                let made = rogue("a pair without addresses", r#"["veth-create"]"#).with(r#"{"ipam": null}"#);
                made.call(&attacked)?.success()?;
                attacked.operator_policy("rogue", "")?;
                attacked.prepare(
                    "ip -n c1 link set eth0 up
                     for address in 10.9.0.77/24 10.77.0.2/24 10.77.0.1/24 192.0.2.1/24 224.0.0.9/32 fd00:9::77/64; do
                         ip -n c1 addr add $address dev eth0 nodad 2>/dev/null || ip -n c1 addr add $address dev eth0
                     done",
                )?;
            }
        }
        // The attachment's record gets new lines. So the comparison leaves records out.
        let judge = |attacked: &mut AttackedNode, attack: &Attack| -> Result<()> {
            if !is_taken_over {
                return attack.withstood_by(attacked);
            }
            attacked.operator_policy(attack.plugin, attack.policy)?;
            let answer = attack.call(attacked)?;
            match attack.code {
                0 => {
                    answer.success()?;
                    Attack { verb: "DEL", ..attack.clone() }.call(attacked)?.success()?;
                }
                code => Refusal::of(&answer)?.expect(code, attack.words)?,
            }
            attacked.same()
        };
        for (at, (name, index)) in spellings.iter().enumerate() {
            let own = forward(name, "10.9.0.77/24", index);
            judge(&mut attacked, &own).with_context(|| format!("{name}: the attachment's own address"))?;
            // Each spelling is tried with two of the addresses.
            for (address, words) in addresses.iter().cycle().skip(at).take(2) {
                let attack = forward(name, address, index).ends(110, words);
                judge(&mut attacked, &attack).with_context(|| format!("{name}: {address}"))?;
            }
        }
        // The container has this address, but no earlier result names it.
        let unnamed = forward("unnamed", "fd00:9::77/64", &Value::Null)
            .with(r#"{"prevResult": {"ips": [{"address": "10.9.0.77/24"}]}}"#)
            .ends(999, "fd00:9::77 is no address of this attachment");
        judge(&mut attacked, &unnamed)?;
    }
    Ok(())
}

/// A compromised interface plugin prints its own result. The result can't contain another spelling of an entry. It
/// can't contain an index, gateway or address that only an earlier plugin could have written.
#[test]
fn a_taken_over_interface_plugin_writes_nothing_of_others() -> Result<()> {
    let print = |name, result: Value| {
        let print = json!([{"print": result.to_string()}]).to_string();
        rogue(name, &print)
    };
    let eth0 = |sandbox: &str| json!({"name": "eth0", "sandbox": sandbox});
    let result = |interfaces: Value, ips: Value| json!({"cniVersion": "1.1.0", "interfaces": interfaces, "ips": ips});
    let claims = "claims interface \"eth0\", which it neither made nor was given";
    crate::attack::withstand(&[
        print("a container ID", result(json!([eth0("0af3c17f")]), json!([]))).ends(999, claims),
        print("another path", result(json!([eth0("/run/./netns/c1")]), json!([]))).ends(999, claims),
        print("another container", result(json!([eth0("/run/netns/c2")]), json!([]))).ends(999, claims),
        print("no sandbox", result(json!([{"name": "eth0"}]), json!([]))).ends(999, claims),
        print(
            "another attachment's address, with an index beyond the list",
            result(json!([eth0("/run/netns/c1")]), json!([{"address": "10.77.0.2/24", "interface": 9}])),
        )
        .ends(999, "claims address 10.77.0.2/24"),
        print(
            "a gateway of the other IP version",
            result(json!([]), json!([{"address": "10.77.0.2/24", "gateway": "fd00::1"}])),
        )
        .ends(999, "they are of different IP versions"),
        // An index that copies the earlier result's entry is allowed, and an invented index is not.
        print("an index of its own", result(json!([]), json!([{"address": "10.9.0.77/24", "interface": -2}])))
            .with(r#"{"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.77/24", "interface": -1}]}}"#)
            .ends(999, "to an interface that its result does not have"),
        print("an earlier plugin's index", result(json!([]), json!([{"address": "10.9.0.77/24", "interface": -1}])))
            .with(r#"{"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.77/24", "interface": -1}]}}"#)
            .ends(0, ""),
    ])
}

/// The attachment itself has a record. For an address that the record lacks, the kernel is asked. An address of others
/// does not count, nor does an address that `prevResult` does not name.
#[test]
fn beside_a_recorded_address_no_address_of_others_counts() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.plugin("hostile", "ADD", &crate::attack::attacked_node::good())?.success()?;
    attacked.prepare(
        "for address in 10.9.0.77/24 10.77.0.2/24 192.0.2.1/24 fd00:9::77/64; do
             ip -n c1 addr add $address dev eth0 nodad 2>/dev/null || ip -n c1 addr add $address dev eth0
         done",
    )?;
    attacked.operator_policy("chained", POLICY)?;
    for (address, words) in [
        ("10.77.0.2/24", "attachment bystander/c2/eth0 has this address, by its record"),
        ("192.0.2.1/24", "it is the node's own"),
        ("10.66.6.6/24", "\"eth0\" of the container does not have it"),
    ] {
        let claimed = forward("of others", address, &json!(2));
        Refusal::of(&claimed.call(&attacked)?)?.expect(110, words)?;
        attacked.same()?;
    }
    let unnamed = forward("unnamed", "fd00:9::77/64", &Value::Null)
        .with(r#"{"prevResult": {"ips": [{"address": "10.9.0.77/24"}]}}"#);
    Refusal::of(&unnamed.call(&attacked)?)?.expect(999, "fd00:9::77 is no address of this attachment")?;
    attacked.same()?;
    // The remaining address belongs only to this container.
    let own = forward("beside a recorded address", "10.9.0.77/24", &json!(2));
    own.call(&attacked)?.success()?;
    Attack { verb: "DEL", ..own }.call(&attacked)?.success()?;
    Ok(())
}

/// Isolation and joining act on the host end. The kernel and `prevResult` must both show the host end as the other end
/// of the container's link.
#[test]
fn behind_a_native_plugin_no_link_of_others_counts() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let end = attacked.node().sh("ip -o link show master cni0 | grep -o 'veth[0-9a-f]*' | head -1")?.trim().to_owned();
    attacked.prepare(PAIR)?;
    let before = |attack: Attack, links: Value| {
        attack.with(&json!({"prevResult": {"cniVersion": "1.1.0", "interfaces": links}}).to_string())
    };
    let isolate = |name, links: Value| {
        let steps = r#"[{"op": "firewall-isolate", "ingress": "isolated"}]"#;
        let attack = rogue(name, steps).with(r#"{"ingressPolicy": "isolated", "ipam": null}"#).policy(ISOLATING);
        before(attack, links)
    };
    let join = |name, links: Value| {
        before(rogue(name, r#"["bridge-previous-link", {"op": "bridge-find", "name": "hostile0"}, {"op": "bridge-attach", "bridge": 1, "host": 0, "port": {"hairpin": false, "isolated": false, "trunk": [], "preserve_default_vlan": false}}]"#), links).with(r#"{"ipam": null}"#).policy(ATTACHING)
    };
    let eth0 = json!({"name": "eth0", "sandbox": "/run/netns/c1"});
    let no_port = "this attachment's host end is no port of a bridge";
    let not_this = "this attachment's host end is a port of \"hostile0\"";
    let unknown = "no record says that an earlier plugin made this link";
    let attacks = [
        isolate("a bridge of others", json!([{"name": "cni0"}, {"name": "port1"}, eth0])).ends(999, not_this),
        isolate("the operator's link", json!([{"name": "op0"}, {"name": "port1"}, eth0])).ends(999, not_this),
        isolate("by another's host end", json!([{"name": "cni0"}, {"name": end}, eth0])).ends(999, no_port),
        isolate("without naming the host end", json!([{"name": "hostile0"}, eth0])).ends(999, no_port),
        isolate(
            "a host end in the container",
            json!([{"name": "hostile0"}, {"name": "port1", "sandbox": "/run/netns/c1"}]),
        )
        .ends(999, no_port),
        join("the node's link", json!([{"name": "op0"}, eth0])).ends(110, unknown),
        join("another's host end", json!([{"name": end}, eth0])).ends(110, unknown),
        join("a bridge", json!([{"name": "cni0"}, eth0])).ends(110, unknown),
        join("the own host end, a port already", json!([{"name": "port1"}, eth0]))
            .ends(999, "is a port of \"hostile0\""),
    ];
    each(&attacks, |attack| attack.name.to_owned(), |attack| attack.withstood_by(&mut attacked))?;
    // Root in the container chooses the indices of its own pair.
    let mut attacked = AttackedNode::new()?;
    let end = impostor(&mut attacked)?;
    let links = json!([{"name": "cni0"}, {"name": end.clone()}, {"name": "eth0", "sandbox": "/run/netns/c1"}]);
    let attacks = [
        isolate("by chosen indices", links).ends(999, no_port),
        join("by chosen indices", json!([{"name": end}])).ends(110, unknown),
    ];
    each(&attacks, |attack| attack.name.to_owned(), |attack| attack.withstood_by(&mut attacked)).context("impostor")
}

/// The gate checks that the bridge of the actual port has the isolation that policy requires.
#[test]
fn isolation_that_is_left_out() -> Result<()> {
    const REQUIRED: &str = "[previous]\nin-container = \"true\"\n[grant.firewall]\nbackends = [\"iptables\"]\nadmin-chains = [\"CNI-ADMIN\"]\ningress = [\"${config.ingressPolicy | open}\"]\nrequired = \"${config.ingressPolicy | open}\"";
    let mut attacked = AttackedNode::new()?;
    attacked.prepare(PAIR)?;
    let previous = json!({"cniVersion": "1.1.0",
        "interfaces": [{"name": "hostile0"}, {"name": "port1"}, {"name": "eth0", "sandbox": "/run/netns/c1"}],
        "ips": [{"address": "10.9.0.77/24", "interface": 2}]});
    let pass = |name, ingress: &str, links: &Value| {
        let mut previous = previous.clone();
        postern_tests::merge(&mut previous, &json!({"interfaces": links}));
        let print = json!([{"print": previous.to_string()}]).to_string();
        let patch = json!({"ingressPolicy": ingress, "ipam": null, "prevResult": previous});
        rogue(name, &print).with(&patch.to_string()).policy(REQUIRED)
    };
    let left_out =
        "left out the isolation of the bridge that this network asks for…[grant.firewall] required demands it";
    let all = previous["interfaces"].clone();
    let eth0 = json!({"name": "eth0", "sandbox": "/run/netns/c1"});
    let attacks = [
        pass("nothing isolated", "isolated", &all).ends(999, left_out),
        pass("nothing isolated within the bridge", "same-bridge", &all).ends(999, left_out),
        pass("a host end that nobody names", "isolated", &json!([{"name": "hostile0"}, {"name": "x"}, eth0]))
            .ends(999, left_out),
        // The same attack succeeds if the network or the policy demands no isolation.
        pass("where the network is open", "open", &all).ends(0, ""),
        pass("without the demand", "isolated", &all).policy(ISOLATING).ends(0, ""),
    ];
    each(&attacks, |attack| attack.name.to_owned(), |attack| attack.withstood_by(&mut attacked))?;
    // Isolation of another bridge does not count for this bridge. These are native rules for the bystander's bridge.
    attacked.prepare(
        "for stage in 1 2; do iptables -N CNI-ISOLATION-STAGE-$stage 2>/dev/null || true; done; iptables -I FORWARD -j CNI-ISOLATION-STAGE-1
         iptables -A CNI-ISOLATION-STAGE-1 -i cni0 ! -o cni0 -j CNI-ISOLATION-STAGE-2; iptables -A CNI-ISOLATION-STAGE-2 -o cni0 -j DROP",
    )?;
    pass("another bridge isolated", "isolated", &all).ends(999, left_out).withstood_by(&mut attacked)
}
