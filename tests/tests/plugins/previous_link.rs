//! bridge after a plugin that made a link on the host. If the operator's policy allows this, the link joins the bridge
//! instead of a pair. In these tests `tap1`, an end of a veth pair, stands for the other plugin's tap.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{PRIVATE_ETC, Refusal};
use postern_tests::{Attachment, Network, Node, merge, plugin_bin};
use serde_json::{Value, json};

/// The operator's policy.
const POLICY: &str = r#"
[previous]
names = ["tap*"]

[grant.bridge]
names = ["br9"]
vlan = "${config.vlan | 0}"
isolated = "${config.portIsolation | false}"
gateways = ["${config.isGateway | false}"]
attach = ["tap*"]
"#;

struct Place {
    node: Node,
    net: Network,
}

impl Place {
    fn new(policy: &str) -> Result<Self> {
        let node = Node::new()?;
        ["c1", "c2"].iter().try_for_each(|container| node.add_container(container))?;
        node.sh(PRIVATE_ETC)?;
        // The other ends represent the programs behind the links.
        node.sh(
            "for n in 1 2; do ip link add tap$n address 02:00:00:00:00:0$n type veth peer name vm$n address 02:00:00:00:01:0$n; done
             ip link set vm1 up; ip link set vm2 up",
        )?;
        let previous = json!({"cniVersion": "1.1.0", "interfaces": [{"name": "tap1", "mac": "02:00:00:00:00:01"}]});
        let config = json!({"type": "bridge", "bridge": "br9", "prevResult": previous});
        let place = Self { net: Network::new(&node, &config)?, node };
        place.policy(policy)?;
        Ok(place)
    }

    fn policy(&self, text: &str) -> Result<()> {
        std::fs::write(self.node.path("/etc/postern/policy/bridge.toml"), text).context("policy")
    }

    fn net(&self, patch: &Value) -> Network {
        self.net.clone().with(patch)
    }

    fn add(&self, patch: &Value) -> Result<Attachment> {
        self.net(patch).add("c1")
    }

    /// Returns the kernel's data about a link.
    fn link(&self, name: &str) -> Result<Value> {
        let printed = self.node.sh(&format!("ip -d -j link show {name}"))?;
        let links: Vec<Value> = serde_json::from_str(&printed)?;
        links.into_iter().next().context("no link")
    }

    /// Fails if the link is a port or is up, or if a record or spoofing protection is left.
    fn is_free(&self, name: &str) -> Result<()> {
        let link = self.link(name)?;
        let up = link.pointer("/flags").and_then(Value::as_array).is_some_and(|flags| flags.contains(&json!("UP")));
        ensure!(link.get("master").is_none() && !up, "{link}");
        let records = self.node.sh("ls -A /run/postern/attachments 2>/dev/null || true")?;
        ensure!(records.is_empty(), "{records}");
        ensure!(self.node.sh("nft list ruleset")?.find("cni-br-iface").is_none(), "rules are left");
        Ok(())
    }
}

fn gateway() -> Value {
    json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]}})
}

#[test]
fn the_link_joins_and_is_let_go_of() -> Result<()> {
    let place = Place::new(POLICY)?;
    let isolated = json!({"portIsolation": true, "hairpinMode": true});
    let c1 = place.add(&isolated)?;
    let result = &c1.result;
    let names: Vec<&str> =
        result["interfaces"].as_array().into_iter().flatten().filter_map(|link| link["name"].as_str()).collect();
    ensure!(names == ["tap1", "br9"], "{result}");
    let tap = place.link("tap1")?;
    let port = &tap["linkinfo"]["info_slave_data"];
    ensure!(tap["master"] == "br9" && port["isolated"] == true && port["hairpin"] == true, "{tap}");
    ensure!(tap["flags"].as_array().is_some_and(|flags| flags.contains(&json!("UP"))), "{tap}");
    // ADD made no pair, and no link in the container.
    ensure!(place.node.sh("ip -o link | grep -c veth[0-9a-f] || true")?.trim() == "0", "ADD made a pair");
    ensure!(place.node.sh_in("c1", "ip -o link | wc -l")?.trim() == "1", "ADD made a link in the container");
    c1.call_at(0, "CHECK")?.success()?;
    let shown = place.node.sh(&format!("{}/postern show c1", plugin_bin()?.display()))?;
    ensure!(shown.contains("tap1") && shown.contains("port of br9"), "{shown}");
    let second = place.net(&isolated).call("ADD", "c1")?;
    Refusal::of(&second)?.expect(999, "an earlier ADD made the port of this attachment…run DEL first")?;
    ensure!(place.link("tap1")?["master"] == "br9", "a second ADD took the first attachment's port");
    // The bridge keeps the address that it took from its port.
    place.node.sh("ip link set br9 address 02:00:00:00:00:01")?;
    for script in ["ip link set tap1 nomaster", "ip link set tap1 master br9; ip link set tap1 down"] {
        place.node.sh(script)?;
        let refused = Refusal::of(&c1.call_at(0, "CHECK")?)?;
        ensure!(refused.text.contains("tap1"), "{refused:?}");
    }
    place.node.sh("ip link set tap1 up")?;
    for _ in 0..2 {
        c1.call_at(0, "DEL")?.success()?;
        place.is_free("tap1")?;
    }
    Ok(())
}

/// With the shipped policy an earlier plugin has no influence: like the native bridge, ours makes a pair and leaves the
/// link alone.
#[test]
fn without_a_grant_it_is_as_native() -> Result<()> {
    let place = Place::new("")?;
    let c1 = place.add(&json!({}))?;
    let result = &c1.result;
    ensure!(result["interfaces"].as_array().is_some_and(|links| links.len() == 3), "{result}");
    ensure!(place.link("tap1")?.get("master").is_none(), "tap1 is a port");
    c1.call_at(0, "DEL")?.success()?;
    place.is_free("tap1")
}

#[test]
fn who_is_behind_it_reaches_the_gateway() -> Result<()> {
    let place = Place::new(POLICY)?;
    let c1 = place.add(&gateway())?;
    let result = &c1.result;
    ensure!(result["ips"][0]["address"] == "10.9.0.2/24" && result["ips"][0].get("interface").is_none(), "{result}");
    place.node.sh("ip link set vm1 netns c1 2>/dev/null || ip link set vm1 netns $(readlink -f /run/netns/c1)")?;
    place.node.sh_in("c1", "ip addr add 10.9.0.2/24 dev vm1; ip link set vm1 up; ping -c1 -W2 10.9.0.1 >/dev/null")?;
    c1.call_at(0, "CHECK")?.success()?;
    // DEL deletes no link in the container.
    c1.call_at(0, "DEL")?.success()?;
    place.node.sh_in("c1", "ip link show vm1")?;
    place.is_free("tap1")?;
    ensure!(place.node.sh("ls /var/lib/cni/networks/net | grep -c 10.9.0.2 || true")?.trim() == "0", "a lease is left");
    Ok(())
}

/// The earlier plugin made a whole pair. The pair's end in the container gets the addresses, and only the earlier
/// plugin deletes the pair.
#[test]
fn the_containers_link_is_the_other_plugins() -> Result<()> {
    let place = Place::new(POLICY)?;
    place.node.sh("ip link set vm1 name eth0 netns c1 2>/dev/null || ip link set vm1 netns c1 name eth0")?;
    let own = json!({"name": "eth0", "mac": "02:00:00:00:01:01", "sandbox": place.node.netns("c1")});
    let previous = json!({"prevResult": {"interfaces": [{"name": "tap1"}, own]}, "macspoofchk": true});
    let mut patch = gateway();
    merge(&mut patch, &previous);
    let c1 = place.add(&patch)?;
    let result = &c1.result;
    ensure!(result["ips"][0]["interface"] == 1, "{result}");
    place.node.sh_in("c1", "ip -o addr show dev eth0 | grep -q 10.9.0.2/24; ping -c1 -W2 10.9.0.1 >/dev/null")?;
    c1.call_at(0, "CHECK")?.success()?;
    ensure!(place.node.sh("nft list ruleset")?.contains("tap1"), "no spoofing protection");
    // DEL fails while the disk with the leases is missing. The next DEL still deletes nothing of the other plugin.
    place.node.sh("mv /var/lib/cni/networks /var/lib/cni/away; ln -s /run/no-disk/networks /var/lib/cni/networks")?;
    ensure!(c1.call_at(0, "DEL")?.status != 0, "DEL succeeds without a directory of leases");
    ensure!(place.link("tap1")?.get("master").is_none(), "the link is still a port, so its address is in use");
    place.node.sh("rm /var/lib/cni/networks; mv /var/lib/cni/away /var/lib/cni/networks")?;
    c1.call_at(0, "DEL")?.success()?;
    place.node.sh_in("c1", "ip link show eth0")?;
    place.is_free("tap1")
}

#[test]
fn only_the_address_behind_it_passes_the_guard() -> Result<()> {
    let place = Place::new(POLICY)?;
    let mut patch = gateway();
    merge(&mut patch, &json!({"macspoofchk": true, "args": {"cni": {"mac": "02:00:00:00:01:01"}}}));
    let c1 = place.add(&patch)?;
    let rules = place.node.sh("nft list ruleset")?;
    ensure!(rules.contains("iifname \"tap1\"") && rules.contains("02:00:00:00:01:01"), "{rules}");
    place.node.sh("ip link set vm1 netns c1")?;
    place.node.sh_in("c1", "ip addr add 10.9.0.2/24 dev vm1; ip link set vm1 up; ping -c1 -W2 10.9.0.1 >/dev/null")?;
    place.node.sh_in(
        "c1",
        "ip link set vm1 address 02:00:00:00:01:99; ip neigh flush dev vm1; ! ping -c1 -W1 10.9.0.1 >/dev/null",
    )?;
    place.node.sh("nft flush ruleset")?;
    Refusal::of(&c1.call_at(0, "CHECK")?)?.expect(999, "spoofing protection")?;
    c1.call_at(0, "DEL")?.success()?;
    place.is_free("tap1")
}

/// A collection releases the link of an attachment that is gone: the container's namespace ended, or the runtime's list
/// lacks the attachment.
#[test]
fn collections_let_go_of_it() -> Result<()> {
    let place = Place::new(POLICY)?;
    place.add(&gateway())?;
    place.node.remove_container("c1")?;
    place.node.sh(&format!("{}/postern gc --yes || true", plugin_bin()?.display()))?;
    place.net(&gateway()).call_at(0, "GC", "", &json!({"cni.dev/valid-attachments": []}))?.success()?;
    place.is_free("tap1")?;
    // A deleted link needs no release. Another link with its name has another owner.
    place.node.add_container("c1")?;
    let c1 = place.add(&json!({}))?;
    place.node.sh("ip link del tap1; ip link add tap1 type veth peer name vm1; ip link set tap1 master br9")?;
    c1.call_at(0, "DEL")?.success()?;
    ensure!(place.link("tap1")?["master"] == "br9", "DEL released another link");
    Ok(())
}

/// DEL works without the plugin, and with its grants withdrawn: the record suffices. The container's link still belongs
/// to the other plugin.
#[test]
fn a_del_needs_no_grant() -> Result<()> {
    for policy in [
        "withdraw = [\"bridge\", \"link\", \"veth\"]",
        "digest = \"sha256:0000000000000000000000000000000000000000000000000000000000000000\"",
    ] {
        let place = Place::new(POLICY)?;
        place.node.sh("ip link set vm1 netns c1 name eth0")?;
        let c1 = place.add(&gateway())?;
        place.policy(policy)?;
        c1.call_at(0, "DEL")?.success().with_context(|| policy.to_owned())?;
        place.node.sh_in("c1", "ip link show eth0").with_context(|| policy.to_owned())?;
        place.is_free("tap1")?;
    }
    Ok(())
}

/// A failed ADD leaves the link unchanged. If the link was up, it stays up.
#[test]
fn a_failed_add_lets_go_of_it() -> Result<()> {
    let place = Place::new(POLICY)?;
    let broken = json!({"ipam": {"type": "absent-ipam"}});
    for up in [false, true] {
        place.node.sh(&format!("ip link set tap1 {}", if up { "up" } else { "down" }))?;
        Refusal::of(&place.net(&broken).call("ADD", "c1")?)?;
        let flags = place.link("tap1")?["flags"].clone();
        ensure!(place.link("tap1")?.get("master").is_none(), "tap1 is a port");
        ensure!(flags.as_array().is_some_and(|flags| flags.contains(&json!("UP"))) == up, "{flags}");
    }
    place.node.sh("ip link set tap1 down")?;
    place.is_free("tap1")
}

/// Two ADDs use one link at the same time. Only one ADD gets the link.
#[test]
fn of_two_attachments_one_has_the_link() -> Result<()> {
    let place = Place::new(POLICY)?;
    for round in 0..8 {
        let answers = std::thread::scope(|scope| {
            let one = scope.spawn(|| place.net.call("ADD", "c1"));
            let other = scope.spawn(|| place.net.call("ADD", "c2"));
            [one, other].map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
        });
        let mut had = 0;
        for (answer, container) in answers.into_iter().zip(["c1", "c2"]) {
            let answer = answer?;
            if answer.status == 0 {
                had += 1;
                ensure!(place.link("tap1")?["master"] == "br9", "round {round}: {container} has no port");
            } else {
                Refusal::of(&answer)?;
            }
        }
        ensure!(had <= 1, "round {round}: both attachments have the link");
        for container in ["c1", "c2"] {
            place.net.call("DEL", container)?.success()?;
        }
        place.is_free("tap1")?;
    }
    Ok(())
}

/// The commands for people: a plan, the policy for such a network, and the abilities under a policy.
#[test]
fn it_is_planned_learned_and_told() -> Result<()> {
    let place = Place::new(POLICY)?;
    let postern = format!("{}/postern", plugin_bin()?.display());
    std::fs::write(place.node.path("/run/net.conf"), place.net.config(0, &gateway())?.to_string())?;
    let plan = place.node.sh(&format!("{postern} plan /run/net.conf"))?.replace('\n', " ");
    for words in ["look for a link that an earlier plugin made", "attach tap1 to bridge br9"] {
        ensure!(plan.contains(words), "not \"{words}\": {plan}");
    }
    ensure!(!plan.contains("veth pair"), "{plan}");
    let told = place.node.sh(&format!("{postern} inspect bridge || true"))?;
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "attach any link like `tap*`, if an earlier plugin made the link and the node does not use it",
        "take for the attachment's own on the host, from an earlier native plugin: any link like `tap*`",
    ] {
        ensure!(told.contains(words), "not \"{words}\": {told}");
    }
    let learned = place.node.sh(&format!("{postern} learn bridge --network /run/net.conf"))?;
    for line in ["attach = [\"tap1\"]", "[previous]\nnames = [\"tap1\"]", "# verified"] {
        ensure!(learned.contains(line), "not `{line}`: {learned}");
    }
    ensure!(!learned.contains("[grant.veth]\n"), "{learned}");
    // Without the grant, the plan makes a pair. With only a half of the grant, the plan names the missing half.
    place.policy("")?;
    ensure!(place.node.sh(&format!("{postern} plan /run/net.conf"))?.contains("veth pair"), "no pair");
    place.policy("[grant.bridge]\nnames = [\"br9\"]\nattach = [\"tap*\"]\n")?;
    let plan = place.node.sh(&format!("{postern} plan /run/net.conf || true"))?;
    ensure!(plan.contains("previous = { names = [\"tap1\"] }"), "{plan}");
    place.is_free("tap1")
}

/// Policy's conditions for a port are checked on a link of any kind.
#[test]
fn a_link_of_another_kind_is_held_against_policy() -> Result<()> {
    let place = Place::new(POLICY)?;
    place.node.sh("ip link add tap3 type ifb")?;
    let patch = json!({"portIsolation": true, "prevResult": {"interfaces": [{"name": "tap3"}]}});
    let c1 = place.add(&patch)?;
    let tap = place.link("tap3")?;
    ensure!(tap["master"] == "br9" && tap["linkinfo"]["info_slave_data"]["isolated"] == true, "{tap}");
    c1.call_at(0, "DEL")?.success()?;
    place.is_free("tap3")
}

/// A record is from an earlier boot. The present link with the recorded index belongs to another owner, and stays
/// unchanged.
#[test]
fn after_another_boot_no_number_counts() -> Result<()> {
    let place = Place::new(POLICY)?;
    let c1 = place.add(&json!({"macspoofchk": true, "args": {"cni": {"mac": "02:00:00:00:01:01"}}}))?;
    place.node.sh("sed -i '1s/\"boot_id\":\"[^\"]*\"/\"boot_id\":\"00000000-0000-0000-0000-000000000000\"/' /run/postern/attachments/*")?;
    c1.call_at(0, "DEL")?.success()?;
    ensure!(place.link("tap1")?["master"] == "br9", "DEL released a link by an earlier boot's index");
    ensure!(place.node.sh("ls -A /run/postern/attachments")?.is_empty(), "a record is left");
    Ok(())
}
