//! Forwards of ports that belong to others or that policy does not grant, forwards to addresses of others, and forwards
//! in the operator's name. The attacker is a plugin behind other plugins in a list. Its policy is `PREVIOUS`, unless a
//! case sets another policy.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{Attack, attack, honest, withstand};
use anyhow::{Context, Result};
use serde_json::json;

const ANY: &str = "[grant.port-mappings]\nports = [\"1-65535\"]\nbackends = [\"nftables\", \"iptables\"]";
/// Addresses of the attacker's own network, as an operator's policy names them after a native plugin.
const PREVIOUS: &str = "[previous]\naddresses = [\"10.9.0.0/24\"]\n[grant.port-mappings]\nports = [\"1024-65535\"]\nbackends = [\"nftables\"]";

/// Makes an attack by a sandbox process with one operation: these addresses, forwards and senders.
fn forward(name: &'static str, addresses: &str, forwards: &str, masquerade: &str) -> Attack {
    let written = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let operation = json!({"op": "port-mappings-ensure", "addresses": written(addresses), "forwards": written(forwards), "masquerade": masquerade});
    let steps = json!({"type": "chained", "rogue": [{"call": operation}], "backend": "nftables",
        "runtimeConfig": {"portMappings": [
            {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 22, "containerPort": 22, "protocol": "tcp"},
            {"hostPort": 8090, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.1"},
        ]},
        "prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.77/24"}, {"address": "10.77.0.2/24"}, {"address": "192.0.2.1/24"}]},
    });
    attack(name, "chained", steps).policy(PREVIOUS)
}

#[test]
fn a_guest_forwards_only_what_the_runtime_asks_for_to_its_own_addresses() -> Result<()> {
    let foreign = "no record says that an earlier plugin gave this address";
    let unlisted = "runtimeConfig.portMappings of this call does not list";
    let own = "10.9.0.77";
    withstand(&[
        forward("an address of nobody", "10.66.6.6", "tcp:8080:80", "own")
            .ends(999, "10.66.6.6 is no address of this attachment"),
        forward("the bystander's address, by prevResult", "10.77.0.2", "tcp:8080:80", "own").ends(110, foreign),
        forward("the node's own address, by prevResult", "192.0.2.1", "tcp:8080:80", "own").ends(110, foreign),
        forward("the node's 127.0.0.1", "127.0.0.1", "tcp:8080:80", "own")
            .ends(999, "127.0.0.1 is no address of this attachment"),
        forward("its own address without a policy for it", own, "tcp:8080:80", "own").policy(ANY).ends(110, foreign),
        forward("its own address twice", "10.9.0.77 10.9.0.77", "tcp:8080:80", "own")
            .ends(999, "one address of each IP version"),
        forward("a port that is not listed", own, "tcp:8081:80", "own").ends(999, unlisted),
        forward("a range around a listed port", own, "tcp:8079-8081:79", "own").ends(999, unlisted),
        forward("another port of the container", own, "tcp:8080:22", "own").ends(999, unlisted),
        forward("another protocol", own, "udp:8080:80", "own").ends(999, unlisted),
        forward("all addresses where one is listed", own, "tcp:8090:80", "own").ends(999, unlisted),
        forward("another address of the node", own, "tcp:8090:80@10.77.0.1", "own").ends(999, unlisted),
        forward("one address where all are listed", own, "tcp:8080:80@192.0.2.1", "own").ends(999, unlisted),
        forward("more masquerading than the network has", own, "tcp:8080:80", "all")
            .ends(999, "ask for less masquerading"),
        forward("a port that policy keeps", own, "tcp:22:22", "own").ends(110, "on the node's port 22"),
        forward("a listed port, and a port that policy keeps", own, "tcp:8080:80 tcp:22:22", "own")
            .ends(110, "on the node's port 22"),
        forward("port 0", own, "tcp:0:80", "own").ends(999, ""),
        forward("a port that does not exist", own, "tcp:65535-65536:80", "own").ends(999, ""),
        forward("without the grant", own, "tcp:8080:80", "own")
            .policy("withdraw = []")
            .ends(110, "policy does not allow plugin \"chained\" port-mappings.ensure"),
        forward("another packet filter than policy has", own, "tcp:8080:80", "own")
            .with(r#"{"backend": "iptables"}"#)
            .ends(110, "policy does not allow forwards by iptables"),
        forward("outside of ADD", own, "tcp:8080:80", "own")
            .on("CHECK")
            .ends(110, "port-mappings.ensure is not for CHECK"),
    ])
}

/// Ports that lead to the bystanders, and that the runtime's call also lists. The cases use both packet filters, all
/// addresses or one, and a port alone or after a free port.
#[test]
fn a_neighbours_port_is_not_taken() -> Result<()> {
    let mappings = r#"{"runtimeConfig": {"portMappings": [
        {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
        {"hostPort": 9443, "containerPort": 443, "protocol": "tcp"},
        {"hostPort": 9443, "containerPort": 443, "protocol": "tcp", "hostIP": "192.0.2.1"},
        {"hostPort": 9053, "containerPort": 53, "protocol": "udp"},
        {"hostPort": 9444, "containerPort": 443, "protocol": "tcp"}
    ]}}"#;
    let taken =
        |name, forwards: &str, words| forward(name, "10.9.0.77", forwards, "own").with(mappings).ends(999, words);
    let of_c2 = "tcp port 9443 is taken: container c2 of network \"bystander\" has it";
    withstand(&[
        taken("a neighbour's port", "tcp:9443:443", of_c2),
        taken("at one address of the node", "tcp:9443:443@192.0.2.1", of_c2),
        taken("a neighbour's port after a free port", "tcp:8080:80 tcp:9443:443", of_c2),
        taken("by UDP", "udp:9053:53", "udp port 9053 is taken: container c2"),
        taken("a port that another packet filter forwards", "tcp:9444:443", "tcp port 9444 is taken: container c3"),
    ])
}

/// Marks and chains of kube-proxy: our rules lead to kube-proxy's chain, and this chain does not change.
#[test]
fn marks_and_chains_of_kube_proxy_stay() -> Result<()> {
    let with = |name, patch: &str| {
        honest(
            name,
            "portmap",
            r#"{"backend": "iptables", "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
            "prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.77/24"}]}}"#,
        )
        .with(patch)
        .policy("[previous]\naddresses = [\"10.9.0.0/24\"]")
    };
    let no_chain = "is no chain of another program that marks packets";
    withstand(&[
        with("its chain", r#"{"externalSetMarkChain": "KUBE-MARK-MASQ"}"#).ends(0, ""),
        with("its chain and a bit", r#"{"externalSetMarkChain": "KUBE-MARK-MASQ", "markMasqBit": 14}"#)
            .ends(999, "Cannot specify externalSetMarkChain and markMasqBit"),
        with("a bit that does not exist", r#"{"markMasqBit": 32}"#).ends(999, ""),
        with("a bit below all", r#"{"markMasqBit": -1}"#).ends(999, ""),
        with("a chain that is not there", r#"{"externalSetMarkChain": "KUBE-MARK-NONE"}"#).ends(999, ""),
        with("a verdict", r#"{"externalSetMarkChain": "ACCEPT"}"#).ends(999, no_chain),
        with("a target", r#"{"externalSetMarkChain": "REDIRECT"}"#).ends(999, no_chain),
        with("a chain of the kernel", r#"{"externalSetMarkChain": "POSTROUTING"}"#).ends(999, no_chain),
    ])?;
    // A network may name kube-proxy's own bit. The rules of this bit are shared, and stay.
    let attacked = AttackedNode::new()?;
    let of_kube = || attacked.node().sh("iptables-save -t nat | grep -E '^(-A|:)[^-]*KUBE-|-A KUBE-'");
    let before = of_kube()?;
    let bit = with("its bit", r#"{"markMasqBit": 14}"#);
    attacked.operator_policy("portmap", bit.policy)?;
    bit.call(&attacked)?.success()?;
    anyhow::ensure!(of_kube()? == before && before.contains("KUBE-MARK-MASQ"), "{}\n---\n{before}", of_kube()?);
    Attack { verb: "DEL", ..bit }.call(&attacked)?.success()?;
    anyhow::ensure!(of_kube()? == before, "{}\n---\n{before}", of_kube()?);
    Ok(())
}

#[test]
fn the_configurations_words_are_no_rules() -> Result<()> {
    let config = |name, patch: &str| {
        honest(
            name,
            "portmap",
            r#"{"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
            "prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.77/24"}]}}"#,
        )
        .with(patch)
        .policy("[previous]\naddresses = [\"10.9.0.0/24\"]")
    };
    withstand(&[
        config("a target among the conditions", r#"{"conditionsV4": ["-s", "10.0.0.0/8", "-j", "ACCEPT"]}"#)
            .ends(999, "conditionsV4: \"-j ACCEPT\" is no condition"),
        config("another program", r#"{"conditionsV4": ["-M", "/tmp/x"]}"#).ends(999, "is no condition"),
        config("another line", "{\"conditionsV4\": [\"-s\", \"10.0.0.0/8\\n-F\"]}").ends(999, "is no condition"),
        config("statements of nft", r#"{"conditionsV4": ["ip", "saddr", "10.0.0.1", "accept;", "flush", "ruleset"]}"#)
            .ends(999, "is no condition"),
        config("a mark", r#"{"conditionsV4": ["-m", "mark", "--mark", "0x4000"]}"#).ends(999, "is no condition"),
        config("a chain that is two words", r#"{"externalSetMarkChain": "KUBE-MARK-MASQ -j DROP"}"#)
            .ends(999, "a chain's name has 1 to 28"),
        config("a chain that is an option", r#"{"externalSetMarkChain": "-F"}"#)
            .ends(999, "a chain's name has 1 to 28"),
    ])
}

/// Rules of another container and of an operator, with names that this attachment's rules have.
#[test]
fn del_takes_the_own_rules_only() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare(
        "nft add rule ip cni_hostport hostports tcp dport 8443 dnat to 10.77.0.2:443 comment '\"c2\"'
         nft add rule ip cni_hostport hostports tcp dport 9443 dnat to 10.77.0.2:443
         iptables -t nat -N CNI-DN-0123456789abcdef01234
         iptables -t nat -A CNI-HOSTPORT-DNAT -p tcp -m comment --comment 'dnat name: \"net\" id: \"c3\"' -m multiport --dports 8443 -j CNI-DN-0123456789abcdef01234",
    )?;
    for attack in [
        honest(
            "without an address",
            "portmap",
            r#"{"runtimeConfig": {"portMappings": [{"hostPort": 8443, "containerPort": 443, "protocol": "tcp"}]}}"#,
        ),
        honest(
            "with a foreign address",
            "portmap",
            r#"{"runtimeConfig": {"portMappings": [{"hostPort": 8443, "containerPort": 443, "protocol": "tcp"}]},
            "prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.77.0.2/24"}]}}"#,
        ),
    ] {
        let attack = attack.on("DEL").ends(0, "");
        attack.withstood_by(&mut attacked).with_context(|| attack.name)?;
    }
    Ok(())
}
