//! Namespaces other than the container's, and containers that their root user has prepared.

use crate::attack::attacked_node::{AttackedNode, good};
use crate::attack::{honest, hostile, rogue, withstand};
use anyhow::{Result, ensure};
use postern_tests::proof::Refusal;
use serde_json::json;

const SAME: &str = "plugin's netns and netns from CNI_NETNS should not be the same";

#[test]
fn namespaces_that_are_not_the_containers() -> Result<()> {
    let at = |name, path| hostile(name, "good").with(r#"{"make": true}"#).env("CNI_NETNS", path);
    withstand(&[
        at("the host's own", "/proc/self/ns/net").ends(8, SAME),
        at("the host's own, by its thread", "/proc/thread-self/ns/net").ends(8, SAME),
        at("the host's own, the long way", "/run/netns/../../proc/self/ns/net").ends(8, SAME),
        at("the host's own, through a directory of links", "/proc/self/root/proc/self/ns/net").ends(8, SAME),
        at("the node's", "/proc/1/ns/net").ends(999, "failed to open netns \"/proc/1/ns/net\""),
        at("mounts", "/proc/self/ns/mnt").ends(999, "/proc/self/ns/mnt"),
        at("users", "/proc/self/ns/user").ends(999, "/proc/self/ns/user"),
        at("processes", "/proc/self/ns/pid").ends(999, "/proc/self/ns/pid"),
        at("host names", "/proc/self/ns/uts").ends(999, "/proc/self/ns/uts"),
        at("a secret", "/etc/operator/shadow").ends(999, "unknown FS magic on \"/etc/operator/shadow\""),
        at("a file of the kernel's", "/proc/self/status").ends(999, "/proc/self/status"),
        at("a file that acts when it is opened", "/proc/sys/net/ipv4/ip_forward").ends(999, "ip_forward"),
        at("a directory", "/run/netns").ends(999, "unknown FS magic on \"/run/netns\""),
        at("a path of nothing", "/run/netns/").ends(999, "unknown FS magic"),
        at("the bystander's, where eth0 is taken", "/run/netns/c2").ends(999, "already exists"),
        honest(
            "the bystander's, for the real plugin",
            "bridge",
            r#"{"bridge": "hostile0", "ipam": {"dataDir": "/var/lib/hostile"}}"#,
        )
        .env("CNI_NETNS", "/run/netns/c2")
        .ends(999, "already exists"),
        honest("the host's own, to remove", "bridge", r#"{"bridge": "cni0"}"#)
            .on("DEL")
            .env("CNI_NETNS", "/proc/self/ns/net")
            .ends(0, ""),
        honest(
            "the bystander's, to remove under another container's name",
            "bridge",
            r#"{"bridge": "cni0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables"}"#,
        )
        .on("DEL")
        .env("CNI_NETNS", "/run/netns/none")
        .ends(0, ""),
    ])
}

#[test]
fn namespaces_behind_other_paths() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare(
        "ln -s /proc/self/ns/net /run/link; ln -s /run/netns/../link /run/link2; touch /run/netns/mounted
         mount --bind /proc/self/ns/net /run/netns/mounted; ln -s loop /run/loop; mkfifo /run/pipe",
    )?;
    for (path, code, words) in [
        ("/run/link", 8, SAME),
        ("/run/link2", 8, SAME),
        ("/run/netns/mounted", 8, SAME),
        ("/run/loop", 999, "/run/loop"),
        ("/run/pipe", 999, "unknown FS magic"),
    ] {
        let attack = hostile("", "good").with(r#"{"make": true}"#).env("CNI_NETNS", path);
        Refusal::of(&attack.call(&attacked)?)?.expect(code, words)?;
        attacked.unchanged()?;
    }
    attacked.node().sh("umount --lazy /run/netns/mounted").map(drop)
}

/// Changes that root in the container makes to the attachment's link before DEL.
const REPLACED: [(&str, &str); 6] = [
    ("deleted", "ip link del eth0"),
    ("renamed", "ip link set eth0 down; ip link set eth0 name eth7"),
    ("another kind in its place", "ip link del eth0; ip link add eth0 type bridge"),
    (
        "renamed, and another link in its place",
        "ip link set eth0 down; ip link set eth0 name eth7; ip link add eth0 type bridge",
    ),
    ("another pair in its place", "ip link del eth0; ip link add eth0 type veth peer name eth1"),
    ("another address", "ip link set eth0 down; ip link set eth0 address 02:00:00:00:00:99; ip addr flush dev eth0"),
];

#[test]
fn links_replaced_before_check_and_del() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let mut bridge = crate::attack::base();
    postern_tests::merge(
        &mut bridge,
        &json!({"type": "bridge", "bridge": "hostile0", "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true}),
    );
    let cases = REPLACED.iter().flat_map(|case| [("hostile", good(), case), ("bridge", bridge.clone(), case)]);
    crate::attack::each(
        cases,
        |(plugin, _, case)| format!("{}, {plugin}", case.0),
        |(plugin, config, (_, script))| {
            let result = attacked.plugin(plugin, "ADD", config)?.success()?;
            attacked.node().sh_in("c1", script)?;
            let mut later = config.clone();
            postern_tests::merge(&mut later, &json!({"prevResult": result}));
            // CHECK may fail, but changes no object of others.
            attacked.plugin(plugin, "CHECK", &later)?;
            let deleted = attacked.plugin(plugin, "DEL", &later)?;
            // DEL may leave links that root has made in the container. The test removes these links.
            attacked
                .node()
                .sh_in("c1", "for link in eth0 eth1 eth7; do ip link del $link 2>/dev/null || true; done")?;
            deleted.success()?;
            attacked.unchanged()
        },
    )
}

/// Root in `c1` chooses the indices of its own pair. Its `eth0` then looks like the container's end of the bystander's
/// pair.
pub fn impostor(attacked: &mut AttackedNode) -> Result<String> {
    let end = attacked
        .node()
        .sh("ip -o link show master cni0 | sed 's/^\\([0-9]*\\): \\([^@]*\\)@if\\([0-9]*\\):.*/\\1 \\3 \\2/'")?;
    let mut words = end.split_whitespace();
    let [host, container, name] = [(); 3].map(|()| words.next().unwrap_or_default().to_owned());
    ensure!(!name.is_empty(), "the bystander has no port: {end}");
    // The container's end of the bystander's pair is the second link of its namespace. c1 has no second link yet, so
    // the index of that end is free in c1.
    attacked.prepare(&format!(
        "ip netns add nested; ip -n c1 link add eth0 index {container} type veth peer name x index {host} netns nested"
    ))?;
    Ok(name)
}

#[test]
fn a_pair_that_seems_to_be_the_bystanders() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let name = impostor(&mut attacked)?;
    let not_ours = "is not for the attachment's host end";
    for (last, words) in [
        (r#"{"op": "mac-guard-ensure", "host": 1, "mac": "02:00:00:00:00:01"}"#, not_ours),
        (r#"{"op": "link-delete", "link": 1}"#, "is not for the attachment's own link"),
        (r#"{"op": "link-up", "link": 1}"#, "is not for the attachment's own link"),
        (
            r#"{"op": "bridge-find", "name": "hostile0"}, {"op": "bridge-attach", "bridge": 2, "host": 1, "port": {"hairpin": false, "isolated": false, "trunk": [], "preserve_default_vlan": false}}"#,
            not_ours,
        ),
    ] {
        let answer = rogue("impostor", &format!(r#"["veth-find", {last}]"#)).call(&attacked)?;
        let refusal = Refusal::of(&answer)?;
        ensure!(
            refusal.text.contains(words) || refusal.text.contains("no such handle was given out"),
            "{last}: {refusal:?}"
        );
        attacked.unchanged()?;
    }
    // The real plugins remove the link in the container, but nothing of the bystander.
    for plugin in ["bridge", "ptp"] {
        honest("", plugin, r#"{"bridge": "cni0", "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true}"#)
            .on("CHECK")
            .call(&attacked)?;
        attacked.unchanged()?;
    }
    honest("", "bridge", r#"{"bridge": "cni0", "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true}"#)
        .on("DEL")
        .call(&attacked)?
        .success()?;
    let ends = attacked.node().sh(&format!("ip -o link show {name}; ip -n c2 -o link show eth0"))?;
    ensure!(ends.lines().count() == 2, "the bystander lost its link: {ends}");
    Ok(())
}

/// The attacker must not learn the name of the bystander's link.
#[test]
fn a_pair_that_seems_to_be_the_bystanders_tells_nothing() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let name = impostor(&mut attacked)?;
    let claim = json!({"cniVersion": "1.0.0", "interfaces": [{"name": name}]}).to_string();
    let steps = json!([{"call": {"op": "veth-find"}}, {"print": claim}]).to_string();
    let answer = rogue("impostor", &steps).call(&attacked)?;
    attacked.unchanged()?;
    let told = answer.status == 0;
    ensure!(!told, "the host takes the bystander's {name} for the attacker's: {answer:?}");
    Refusal::of(&answer)?.expect(999, "which it neither made nor was given")
}

/// The container already has a link named `CNI_IFNAME`.
#[test]
fn a_name_that_is_taken() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    for taken in ["type bridge", "type veth peer name eth1"] {
        attacked.node().sh_in("c1", &format!("ip link add eth0 {taken}"))?;
        attacked.look()?;
        for attack in [
            hostile("", "good").with(r#"{"make": true}"#),
            honest("", "bridge", r#"{"bridge": "hostile0", "ipam": {"dataDir": "/var/lib/hostile"}}"#),
            honest("", "ptp", r#"{"ipam": {"dataDir": "/var/lib/hostile"}}"#),
            rogue("", r#"["veth-create"]"#),
        ] {
            Refusal::of(&attack.call(&attacked)?)?.expect(999, "already exists")?;
            attacked.unchanged()?;
        }
        attacked.node().sh_in("c1", "ip link del eth0")?;
    }
    Ok(())
}
