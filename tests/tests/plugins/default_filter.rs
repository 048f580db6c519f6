//! The packet filter of a network whose configuration names none: the native plugins' choice, or the operator's
//! setting.

use anyhow::{Result, ensure};
use postern_tests::proof::PRIVATE_ETC;
use postern_tests::{Attachment, Network, Node, plugin_bin};
use serde_json::{Value, json};

const NODE_FILE: &str = "/etc/postern/node.toml";
const POLICY: &str = "/etc/postern/policy/bridge.toml";

struct Place {
    node: Node,
    net: Network,
}

impl Place {
    fn new() -> Result<Self> {
        let node = Node::new()?;
        node.sh(PRIVATE_ETC)?;
        for container in ["c1", "c2"] {
            node.add_container(container)?;
        }
        let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
        let config = json!({"type": "bridge", "bridge": "br9", "isGateway": true, "ipMasq": true, "ipam": ipam});
        Ok(Self { net: Network::new(&node, &config)?, node })
    }

    /// Returns the packet filters that have rules of attachments.
    fn filters(&self) -> Result<Vec<&'static str>> {
        let rules = self.node.sh("nft list ruleset 2>/dev/null")?;
        let nftables = rules.contains("cni_plugins_masquerade") && rules.contains("net: net, if: eth0");
        let iptables = rules.contains("table ip nat") && rules.contains("jump CNI-");
        Ok([(nftables, "nftables"), (iptables, "iptables")]
            .into_iter()
            .filter(|(has, _)| *has)
            .map(|(_, n)| n)
            .collect())
    }

    /// Makes an attachment, and expects its rules in only one packet filter.
    fn expect(&self, before: &str, filter: &str) -> Result<()> {
        self.node.sh(before)?;
        self.net.add("c1")?;
        let found = self.filters()?;
        ensure!(found == [filter], "after `{before}`: {found:?} instead of {filter}");
        self.net.call("DEL", "c1")?.success()?;
        ensure!(self.filters()?.is_empty(), "left after `{before}`");
        Ok(())
    }
}

/// The operator's setting comes first, then the filters that policy allows, then the native plugins' choice.
#[test]
fn the_default_is_native_unless_an_operator_says_otherwise() -> Result<()> {
    let place = Place::new()?;
    place.expect(":", "iptables")?;
    place.expect(&format!("echo 'packet-filter = \"nftables\"' > {NODE_FILE}"), "nftables")?;
    place.expect(&format!("echo 'packet-filter = \"iptables\"' > {NODE_FILE}"), "iptables")?;
    place.expect(&format!("echo 'grant.masquerade = {{ backends = [\"nftables\"] }}' > {POLICY}"), "nftables")?;
    place.expect(&format!("rm {POLICY} {NODE_FILE}"), "iptables")?;
    // On this node only nftables can be used.
    let hide = "mkdir /run/real /run/sbin; mount --bind /usr/sbin /run/real
        for file in $(ls /run/real | grep -v tables); do ln -s /run/real/$file /run/sbin/$file; done
        mount --bind /run/sbin /usr/sbin";
    place.expect(hide, "nftables")
}

/// An attachment keeps the packet filter that its record lists, even if the default changes.
#[test]
fn a_changed_default_leaves_attachments_where_they_are() -> Result<()> {
    let place = Place::new()?;
    let line = format!("echo 'packet-filter = \"nftables\"' > {NODE_FILE}");
    place.node.sh(&line)?;
    let mut old = place.net.add("c1")?;
    place.node.sh(&format!("rm {NODE_FILE}"))?;
    let mut new = place.net.add("c2")?;
    ensure!(place.filters()? == ["nftables", "iptables"], "{:?}", place.filters()?);
    for default in [":", line.as_str()] {
        place.node.sh(default)?;
        (old, new) = (old.check()?, new.check()?);
    }
    place.node.sh("nft flush chain ip nat POSTROUTING")?;
    ensure!(new.call_at(0, "CHECK")?.status != 0, "CHECK overlooked the removed rules of c2");
    old = old.check()?;
    // Without a record, rules of either packet filter satisfy CHECK.
    place.node.sh("rm /run/postern/attachments/*")?;
    let old = old.check()?;
    ensure!(new.call_at(0, "CHECK")?.status != 0, "CHECK without a record overlooked the removed rules of c2");
    [old, new].iter().try_for_each(Attachment::del)?;
    ensure!(place.filters()?.is_empty(), "left: {:?}", place.filters()?);
    Ok(())
}

/// Unreadable settings stop only the runs that depend on them.
#[test]
fn wrong_settings_refuse_only_what_depends_on_them() -> Result<()> {
    let place = Place::new()?;
    place.node.sh(&format!("echo 'packet-filter = \"pf\"' > {NODE_FILE}"))?;
    let refused = place.net.call("ADD", "c1")?;
    ensure!(refused.status != 0 && refused.stdout.contains("node.toml: packet-filter: \\\"pf\\\""), "{refused:?}");
    place.net.clone().with(&json!({"ipMasqBackend": "nftables"})).add("c1")?;
    place.net.call("DEL", "c1")?.success()?;
    place.node.sh(&format!("echo 'packet-filter = \"nftables\"' > {NODE_FILE}; chmod 666 {NODE_FILE}"))?;
    let refused = place.net.call("ADD", "c1")?;
    ensure!(refused.status != 0 && refused.stdout.contains("can be written by others"), "{refused:?}");
    let doctor = place.node.sh(&format!("{} doctor --json || true", plugin_bin()?.join("postern").display()))?;
    ensure!(doctor.contains("node.toml"), "doctor does not name node.toml: {doctor}");
    Ok(())
}

/// If iptables is the nf_tables variant, no iptables program runs, and no helper is started.
#[test]
fn iptables_needs_no_program_and_no_helper() -> Result<()> {
    const TRACE: &str = "/var/log/trace";
    let place = Place::new()?;
    let traced = |verb: &str, keys: &Value| -> Result<(Value, usize, usize)> {
        let forks = "trace=execve,fork,vfork,clone,clone3";
        let wrapper = ["strace", "-f", "-qq", "-o", TRACE, "-e", forks, "-e", "signal=none"].map(str::to_owned);
        let result = place.node.call_under(&wrapper, &place.net.request(0, verb, "c1", keys)?)?.success()?;
        let trace = std::fs::read_to_string(place.node.path(TRACE))?;
        let count = |is: &dyn Fn(&str) -> bool| trace.lines().filter(|line| is(line)).count();
        let programs = count(&|line| line.contains("execve(") && line.contains("tables"));
        Ok((result, programs, count(&|line| line.contains("fork(") || line.contains("clone"))))
    };
    let life = |backend: &str| -> Result<Vec<(usize, usize)>> {
        let mut keys = json!({"ipMasqBackend": backend});
        let mut counts = Vec::new();
        for verb in ["ADD", "CHECK", "DEL"] {
            let (result, programs, processes) = traced(verb, &keys)?;
            counts.push((programs, processes));
            if verb == "ADD" {
                ensure!(place.filters()? == [backend], "{backend}: {:?}", place.filters()?);
                keys = json!({"ipMasqBackend": backend, "prevResult": result});
            }
        }
        ensure!(place.filters()?.is_empty(), "left by {backend}");
        Ok(counts)
    };
    // The first ADD makes directories, and forks a process that removes them if ADD fails.
    life("nftables")?;
    let (nftables, iptables) = (life("nftables")?, life("iptables")?);
    ensure!(iptables == nftables && iptables.iter().all(|(programs, _)| *programs == 0), "{nftables:?}, {iptables:?}");
    // No plugin writes rules of this form. DEL may need iptables' program to read the rule.
    let (result, ..) = traced("ADD", &json!({}))?;
    let odd = "iptables -t nat -A $(nft list chains | grep -o 'CNI-[0-9a-f]*') -m limit --limit 1/s -j RETURN";
    place.node.sh(odd)?;
    let (_, _, processes) = traced("DEL", &json!({"prevResult": result}))?;
    ensure!(nftables.last().is_some_and(|(_, without)| processes > *without), "DEL started no helper");
    ensure!(place.filters()?.is_empty(), "left: {:?}", place.filters()?);
    Ok(())
}

/// Postern changes legacy tables by the iptables programs, as the native plugins do. `doctor` suggests a better
/// setting.
#[test]
fn legacy_iptables_is_used_by_its_programs() -> Result<()> {
    let place = Place::new()?;
    place.node.sh("for family in iptables ip6tables; do for tool in '' -save -restore; do
            ln -sf /usr/sbin/$family-legacy$tool /etc/alternatives/$family$tool; done; done")?;
    let rules = || place.node.sh("iptables-legacy-save -t nat | grep CNI- || true");
    let c1 = place.net.add("c1")?;
    ensure!(rules()?.lines().count() == 4 && place.filters()?.is_empty(), "{}", rules()?);
    let c1 = c1.check()?;
    let doctor = place.node.sh(&format!("{} doctor --json || true", plugin_bin()?.join("postern").display()))?;
    ensure!(doctor.contains("use legacy iptables") && doctor.contains("packet-filter"), "doctor: {doctor}");
    c1.del()?;
    ensure!(rules()?.is_empty(), "left: {}", rules()?);
    Ok(())
}
