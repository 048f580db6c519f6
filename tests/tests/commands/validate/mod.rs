//! `postern net validate` on a node: findings in files, and refusals by a policy or a policy change. Native plugins
//! refuse each file in which `validate` finds an error, and accept the same file without the error.
//! `differential/validated.rs` looks for false alarms in every differential case whose ADD succeeds.

#![allow(clippy::indexing_slicing, reason = "absent keys of a JSON object are null")]

mod attached;
mod refused;

use anyhow::{Context, Result, ensure};
use postern_tests::proof::PRIVATE_ETC;
use postern_tests::{Answer, Network, Node, plugin_bin};
use serde_json::{Value, json};
use std::process::Command;

struct Place {
    node: Node,
}

impl Place {
    /// A node with private directories for the operator's files and for networks.
    fn new() -> Result<Self> {
        let node = Node::new()?;
        node.sh(&format!("{PRIVATE_ETC} mkdir -p /etc/cni/net.d"))?;
        Ok(Self { node })
    }

    fn write(&self, path: &str, text: &str) -> Result<()> {
        Ok(std::fs::write(self.node.path(path), text)?)
    }

    fn validate(&self, arguments: &str) -> Result<Answer> {
        self.node.postern(&format!("net validate {arguments} --cni-path {}", plugin_bin()?.display()))
    }

    fn object(&self, arguments: &str) -> Result<(i32, Value)> {
        let answer = self.validate(&format!("{arguments} --json"))?;
        Ok((answer.status, answer.json()?))
    }

    /// Runs `postern net VERB` of this network for container c1, with this data for capabilities.
    fn net(&self, verb: &str, network: &str, capabilities: &str) -> Result<Answer> {
        let bin = plugin_bin()?;
        let mut command = Command::new(bin.join("postern"));
        command.args(["net", verb, network, &self.node.netns("c1")]);
        command.env("CNI_PATH", &bin).envs((!capabilities.is_empty()).then_some(("CAP_ARGS", capabilities)));
        self.node.answer(&mut command, None)
    }
}

/// A list of bridge `valbr`, as an operator writes it.
fn list(more: &str) -> String {
    format!(
        "{{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"valnet\",\n  \"plugins\": [\n    {{\n      \"type\": \"bridge\",\n      \"bridge\": \"valbr\",{more}\n      \"ipam\": {{\"type\": \"host-local\", \"ranges\": [[{{\"subnet\": \"10.61.0.0/24\"}}]]}}\n    }}\n  ]\n}}\n"
    )
}

fn codes(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().into_iter().flatten();
    findings
        .map(|one| {
            format!(
                "{}:{} {} {}",
                one["line"],
                one["column"],
                one["code"].as_str().unwrap_or(""),
                one["path"].as_str().unwrap_or("")
            )
        })
        .collect()
}

#[test]
fn findings_lead_to_the_file() -> Result<()> {
    let place = Place::new()?;
    place.write("/etc/cni/net.d/10-val.conflist", &list(""))?;
    let Answer { status, stdout, stderr } = place.validate("valnet")?;
    ensure!((status, stderr.as_str()) == (0, ""), "{stdout}{stderr}");
    ensure!(stdout.trim() == "/etc/cni/net.d/10-val.conflist: 0 errors, 0 warnings", "{stdout}");

    place.write("/etc/cni/net.d/10-val.conflist", &list("\n      \"isGatway\": true,\n      \"mtu\": \"1400\","))?;
    let Answer { status, stdout, .. } = place.validate("valnet")?;
    let expected = "/etc/cni/net.d/10-val.conflist:8:7: warning: plugins[0].isGatway: bridge has no
  key `isGatway`: the key is ignored [unknown-key]
  help: `isGateway` may be meant
/etc/cni/net.d/10-val.conflist:9:14: error: plugins[0].mtu: this is a text, and
  must be a whole number [wrong-type]
  help: write 1400 without quotes
note: policy was not asked, because of the errors
/etc/cni/net.d/10-val.conflist: 1 error, 1 warning
";
    ensure!((status, stdout.as_str()) == (1, expected), "{status}\n{stdout}");

    let (status, report) = place.object("/etc/cni/net.d/10-val.conflist")?;
    ensure!(status == 1 && report["valid"] == false && report["errors"] == 1 && report["warnings"] == 1, "{report}");
    ensure!(codes(&report) == ["8:7 unknown-key plugins[0].isGatway", "9:14 wrong-type plugins[0].mtu"], "{report}");

    let Answer { status, stderr, .. } = place.validate("valnot")?;
    ensure!(
        status == 1 && stderr.contains("no network \"valnot\"") && stderr.contains("\"valnet\" may be"),
        "{stderr}"
    );
    Ok(())
}

/// A network of other vendors' programs and Postern's plugins. Validation reports no failure of a plugin behind a
/// native program, because the result of that program is unknown.
#[test]
fn no_add_is_said_to_fail_behind_a_native_program() -> Result<()> {
    let place = Place::new()?;
    place.node.sh("mkdir /run/native; echo > /run/native/calico; chmod 755 /run/native/calico")?;
    let list = r#"{"cniVersion": "0.3.1", "name": "pods", "plugins": [
        {"type": "calico"}, {"type": "tuning", "mtu": 1400}, {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;
    place.write("/etc/cni/net.d/10-pods.conflist", list)?;
    let path = format!("{}:/run/native", plugin_bin()?.display());
    let said = place.node.postern(&format!("net validate pods --cni-path {path}"))?;
    ensure!(said.printed()?.contains("0 errors, 0 warnings"), "{said:?}");
    ensure!(said.words().contains("calico is a native program, which plan does not run"), "{said:?}");
    Ok(())
}

#[test]
fn programs_and_further_files_of_a_network() -> Result<()> {
    let place = Place::new()?;
    let text = r#"{"cniVersion": "1.0.0", "name": "valfolder", "plugins": [{"type": "brigde"}, {"type": "loopback", "ipam": {"type": "x"}}]}"#;
    place.write("/etc/cni/net.d/20-val.conflist", text)?;
    place.node.sh(
        "mkdir /etc/cni/net.d/valfolder; echo '{\"type\": \"tuning\", \"mut\": 1}' > /etc/cni/net.d/valfolder/1.conf",
    )?;
    let (status, report) = place.object("valfolder")?;
    ensure!(status == 1, "{report}");
    let found = codes(&report);
    ensure!(found.contains(&"1:67 missing-plugin plugins[0].type".to_owned()), "{found:?}");
    ensure!(found.contains(&"1:20 unknown-key mut".to_owned()), "{found:?}");
    let help = |code: &str| {
        let findings = report["findings"].as_array().into_iter().flatten();
        findings
            .filter(|one| one["code"] == code)
            .map(|one| one["help"].as_str().unwrap_or("").to_owned())
            .collect::<Vec<_>>()
    };
    ensure!(help("missing-plugin").contains(&"`bridge` may be meant".to_owned()), "{report}");
    ensure!(help("unknown-key") == ["`mtu` may be meant"], "{report}");
    // With `--file-only`, as in CI, the node's programs do not count.
    let (_, report) = place.object("/etc/cni/net.d/20-val.conflist --file-only")?;
    ensure!(!codes(&report).iter().any(|one| one.contains("missing-plugin")), "{report}");
    Ok(())
}

/// Every ADD refuses each of these files because of its text alone. For each error, a similar file works.
#[test]
fn what_each_add_refuses_is_told() -> Result<()> {
    let place = Place::new()?;
    place.node.add_container("c1")?;
    place.node.sh("ip link add wire0 type veth peer name wire1; ip link set wire0 up")?;
    let ipam = |subnet: &str| json!({"type": "host-local", "subnet": subnet});
    let own = || ipam("10.62.0.0/24");
    let bridge = |name: &str| json!([{"type": "bridge", "bridge": name, "ipam": own()}]);
    let fixed = |address: &str| json!([{"type": "bridge", "bridge": "b1", "ipam": {"type": "static", "addresses": [{"address": address}]}}]);
    let behind =
        |kind: &str, key: &str, value: &str, next: Value| json!([{"type": kind, key: value, "ipam": own()}, next]);
    let on_bridge = |next: Value| behind("bridge", "bridge", "b1", next);
    let sysctl = |key: &str, value: &str| on_bridge(json!({"type": "tuning", "sysctl": {key: value}}));
    let small = |subnet: &str| json!([{"type": "ptp", "mtu": 1200, "ipam": ipam(subnet)}]);
    let isolated = json!({"type": "firewall", "ingressPolicy": "same-bridge"});
    let rates = json!({"type": "bandwidth", "ingressRate": 1_000_000, "ingressBurst": 1_000_000});
    // The finding or an empty text, and the plugins.
    let cases = [
        ("bad-value plugins[0].bridge", bridge("all")),
        ("bad-value plugins[0].bridge", bridge("default")),
        ("bad-value plugins[0].bridge", bridge("br%d")),
        ("bad-value plugins[0].bridge", bridge("")),
        ("", bridge("defaults")),
        ("bad-value plugins[0].master", json!([{"type": "macvlan", "master": "lo", "ipam": own()}])),
        ("", json!([{"type": "macvlan", "master": "wire0", "ipam": own()}])),
        ("bad-value plugins[0].device", json!([{"type": "host-device", "device": "lo"}])),
        ("add-fails plugins[0].ipam.addresses[0].address", fixed("224.0.0.1/24")),
        ("bad-value plugins[0].ipam.addresses[0].address", fixed("ff02::5/64")),
        ("bad-value plugins[0].ipam.addresses[0].address", fixed("::1/64")),
        ("", fixed("240.0.0.5/24")),
        ("add-fails plugins[0].ipam.subnet", json!([{"type": "bridge", "bridge": "b1", "ipam": ipam("224.1.0.0/24")}])),
        ("contradiction plugins[0].mtu", small("fd00:62::/64")),
        ("", small("10.62.0.0/24")),
        ("add-fails plugins[1].sysctl[\"net.core.rmem_max\"]", sysctl("net.core.rmem_max", "212992")),
        ("add-fails plugins[1].sysctl[\"net.core.netdev_max_backlog\"]", sysctl("net.core.netdev_max_backlog", "1000")),
        ("", sysctl("net.core.somaxconn", "400")),
        ("bad-value plugins[1].sysctl[\"net.ipv4.conf\"]", sysctl("net.ipv4.conf", "1")),
        ("bad-value plugins[1].sysctl[\"net.ipv4.conf.IFNAME\"]", sysctl("net.ipv4.conf.IFNAME", "1")),
        ("bad-value plugins[1].sysctl[\"net.core.so maxconn\"]", sysctl("net.core.so maxconn", "1")),
        ("bad-value plugins[1].sysctl[\"net.ipv4.conf.all.rp_filter\"]", sysctl("net.ipv4.conf.all.rp_filter", "1abc")),
        ("", sysctl("net.ipv4.conf.IFNAME.rp_filter", " 0x1")),
        ("add-fails plugins[1].ingressPolicy", json!([{"type": "ptp", "ipam": own()}, isolated])),
        ("", on_bridge(isolated)),
        ("chain plugins[1].ingressRate", behind("macvlan", "master", "wire0", rates.clone())),
        ("", on_bridge(rates)),
    ];
    for (finding, plugins) in cases {
        let list = json!({"cniVersion": "1.0.0", "name": "refused", "plugins": plugins});
        place.write("/etc/cni/net.d/10-refused.conflist", &list.to_string())?;
        // The file alone suffices for the finding.
        let (_, report) = place.object("refused --file-only")?;
        let found = codes(&report);
        match finding {
            "" => ensure!(found.is_empty(), "{list}: {report:#}"),
            finding => ensure!(found.iter().any(|one| one.ends_with(&format!(" {finding}"))), "{list}: {found:?}"),
        }
        let added = place.net("add", "refused", "")?;
        ensure!((added.status == 0) == finding.is_empty(), "{list}: {added:?}");
        let deleted = place.net("del", "refused", "")?;
        ensure!(deleted.status == 0, "{list}: {deleted:?}");
        place.node.sh("ip link del b1 2>/dev/null || true; ip link del defaults 2>/dev/null || true")?;
    }
    Ok(())
}

/// libcni writes whole numbers without fraction and exponent. A finding quotes the file's text.
#[test]
fn numbers_are_read_as_runtimes_hand_them_on() -> Result<()> {
    let place = Place::new()?;
    place.node.add_container("c1")?;
    let text = |mtu: &str, rate: &str| {
        format!(
            r#"{{"cniVersion": "1.0.0", "name": "refused", "plugins": [
{{"type": "bridge", "bridge": "b1", "mtu": {mtu}, "ipam": {{"type": "host-local", "subnet": "10.62.0.0/24"}}}},
{{"type": "bandwidth", "ingressRate": {rate}, "ingressBurst": {rate}}}]}}"#
        )
    };
    for (mtu, rate, is_good) in
        [("1400.0", "1e+06", true), ("1.4e3", "1000000.0", true), ("1400.5", "1E6", false), ("7e4", "1E6", false)]
    {
        place.write("/etc/cni/net.d/10-refused.conflist", &text(mtu, rate))?;
        let (status, report) = place.object("refused")?;
        ensure!((status == 0) == is_good, "{mtu}: {report:#}");
        let own = report["findings"].as_array().into_iter().flatten().find(|one| one["path"] == "plugins[0].mtu");
        let message = own.and_then(|own| own["message"].as_str()).unwrap_or_default();
        ensure!(message.contains(mtu), "{mtu}: {report:#}");
        let added = place.net("add", "refused", "")?;
        ensure!((added.status == 0) == is_good, "{mtu}: {added:?}");
        place.net("del", "refused", "")?;
    }
    Ok(())
}

#[test]
fn what_policy_refuses_is_told_at_the_key() -> Result<()> {
    let place = Place::new()?;
    place.write("/etc/cni/net.d/10-val.conflist", &list("\n      \"ipMasq\": true,"))?;
    place.write("/etc/postern/policy/bridge.toml", "[grant.bridge]\nnames = [\"other\"]\n")?;
    let before =
        place.node.sh("find /run/postern /var/lib/postern /var/lib/cni /var/log/postern 2>/dev/null | sort")?;
    let (status, report) = place.object("valnet")?;
    ensure!(status == 1, "{report}");
    let findings = report["findings"].as_array().context("findings")?;
    let policy: Vec<_> = findings.iter().filter(|one| one["code"] == "policy").collect();
    ensure!(policy.iter().any(|one| one["path"] == "plugins[0].bridge" && one["line"] == 7), "{report}");
    ensure!(policy.iter().all(|one| !one["help"].as_str().unwrap_or("").is_empty()), "{report}");
    let after = place.node.sh("find /run/postern /var/lib/postern /var/lib/cni /var/log/postern 2>/dev/null | sort")?;
    ensure!(before == after, "validate changed files: {before}\n{after}");
    let (status, report) = place.object("/etc/cni/net.d/10-val.conflist --file-only")?;
    ensure!(status == 0 && report["valid"] == true, "{report}");
    Ok(())
}

#[test]
fn a_change_of_policy_is_held_against_networks_and_attachments() -> Result<()> {
    let place = Place::new()?;
    place.write("/etc/cni/net.d/10-val.conflist", &list(""))?;
    let other = list("").replace("valnet", "valelse").replace("valbr", "valelse0").replace("10.61.", "10.62.");
    place.write("/etc/cni/net.d/20-val.conflist", &other)?;
    place.node.add_container("c1")?;
    Network::new(&place.node, &serde_json::from_str(&list(""))?)?.add("c1")?;

    // A new policy that allows both bridges refuses nothing.
    place.write("/run/same.toml", "[grant.bridge]\nnames = [\"val*\"]\n")?;
    let (status, report) = place.object("--policy /run/same.toml --plugin bridge")?;
    ensure!(status == 0 && report["errors"] == 0, "{report}");
    ensure!(
        report["attachments"] == json!([{"network": "valnet", "container": "c1", "interface": "eth0", "refused": []}]),
        "{report}"
    );

    place.write("/run/bridge.toml", "[grant.bridge]\nnames = [\"valelse0\"]\n")?;
    let (status, report) = place.object("--policy /run/bridge.toml")?;
    ensure!(status == 1, "{report}");
    let found = report["findings"].as_array().context("findings")?;
    ensure!(
        found.iter().all(|one| one["code"] == "policy-change" && one["file"] == "/etc/cni/net.d/10-val.conflist"),
        "{report}"
    );
    ensure!(found.iter().any(|one| one["path"] == "plugins[0].bridge"), "{report}");
    let refused = report["attachments"][0]["refused"].as_array().context("refused")?;
    ensure!(refused.iter().any(|one| one["verb"] == "CHECK" && one["operation"] == "bridge.find"), "{report}");
    ensure!(!refused.iter().any(|one| one["verb"] == "DEL"), "policy refuses a DEL: {report}");
    // The text output has the same findings.
    let Answer { status, stdout, .. } = place.validate("--policy /run/bridge.toml")?;
    ensure!(status == 1 && stdout.contains("attachment c1 eth0 of network valnet: CHECK would be refused"), "{stdout}");
    ensure!(stdout.contains("1 of 1 attachment refused"), "{stdout}");

    let Answer { status, stderr, .. } = place.validate("--policy /run/bridge.toml --plugin nothing")?;
    ensure!(status == 1 && stderr.contains("no plugin \"nothing\""), "{stderr}");
    Ok(())
}

/// Working configurations are no error: names that lead to our plugins, native IPAM programs that policy allows, and
/// masters that other programs make.
#[test]
fn what_this_node_makes_of_a_network() -> Result<()> {
    let place = Place::new()?;
    let bin = plugin_bin()?;
    let bin = bin.display();
    place.node.sh(&format!(
        "mkdir /run/bin; ln -s {bin}/bridge /run/bin/cnv-bridge; cp {bin}/* /run/bin 2>/dev/null || true; printf '#!/bin/sh\\n' > /run/bin/whereabouts
         printf '#!/bin/sh\\n' > /run/bin/calico; chmod +x /run/bin/whereabouts /run/bin/calico
         ip link add valbr type bridge; ip link add valport type veth peer name valpeer; ip link set valport master valbr up"
    ))?;
    let check = |text: &str| -> Result<(Vec<String>, Value)> {
        place.write("/run/10-val.conflist", text)?;
        let report = place.node.postern("net validate /run/10-val.conflist --json --cni-path /run/bin")?.json()?;
        Ok((codes(&report), report))
    };
    let (found, report) = check(&list("").replace("\"bridge\",\n", "\"cnv-bridge\", \"isGatway\": true,\n"))?;
    ensure!(found == ["6:29 unknown-key plugins[0].isGatway"], "{report:#}");
    ensure!(!report.to_string().contains("native program"), "{report:#}");
    let foreign = list("").replace("\"bridge\",\n", "\"whereabouts\",\n");
    let native = list("").replace(
        "\"type\": \"host-local\", \"ranges\": [[{\"subnet\": \"10.61.0.0/24\"}]]",
        "\"type\": \"whereabouts\"",
    );
    ensure!(foreign != list("") && native != list(""));
    place.write(
        "/etc/postern/policy/bridge.toml",
        "[grant.ipam]\ntypes = [\"whereabouts\"]\nnative = [\"whereabouts\"]\n",
    )?;
    let (found, report) = check(&native)?;
    ensure!(found.is_empty() && report["notes"].to_string().contains("which plan does not run"), "{report:#}");
    // A native plugin need not run a program of the name in `ipam.type`, so no program is missing.
    let (found, report) = check(&foreign.replace("host-local", "calico-ipam").replace("whereabouts", "calico"))?;
    ensure!(found.is_empty(), "{report:#}");
    // Multus gives the network its name.
    let text = r#"{"cniVersion": "1.0.0", "type": "macvlan", "master": "valpeer"}"#;
    let (found, report) = check(text)?;
    ensure!(report["errors"] == 0 && found == ["1:1 missing-key "], "{report:#}");
    // The kernel passes a port's frames to the port's bridge.
    let (found, report) = check(&text.replace("\"type\"", "\"name\": \"n\", \"type\"").replace("valpeer", "valport"))?;
    ensure!(found == ["1:46 add-fails type"] && report.to_string().contains("is a port of"), "{report:#}");
    Ok(())
}

/// portmap needs a chain for its marks that another program makes. firewall makes the operator's chain itself.
#[test]
fn a_chain_that_is_not_on_the_node_is_told() -> Result<()> {
    let place = Place::new()?;
    let check = |more: &str| -> Result<(Vec<String>, Value)> {
        let capabilities = r#""capabilities": {"portMappings": true}"#;
        let portmap =
            format!(r#"{{"type": "portmap", {capabilities}, "externalSetMarkChain": "KUBE-MARK-MASQ"{more}}}"#);
        let firewall = r#"{"type": "firewall", "backend": "iptables", "iptablesAdminChainName": "OPERATORS"}"#;
        let text = list("").replace("    }\n  ]", &format!("    }},\n{portmap},\n{firewall}\n  ]"));
        place.write("/etc/cni/net.d/10-val.conflist", &text)?;
        let (_, report) = place.object("valnet")?;
        Ok((codes(&report), report))
    };
    let absent = ["10:61 add-fails plugins[1].externalSetMarkChain"];
    let (found, report) = check("")?;
    ensure!(found == absent && report["errors"] == 0, "{report:#}");
    ensure!(report["findings"][0]["message"].to_string().contains("no chain \\\"KUBE-MARK-MASQ\\\""), "{report:#}");
    // ADD of portmap reports the same error. ADD of firewall succeeds.
    place.node.add_container("c1")?;
    for (more, is_refused) in [("", true), (", \"snat\": false", false)] {
        let (found, report) = check(more)?;
        ensure!(found.is_empty() != is_refused, "{report:#}");
        let ports = r#"{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}"#;
        let added = place.net("add", "valnet", ports)?;
        ensure!((added.status == 0) != is_refused, "{more}: {added:?}");
    }
    for family in ["iptables", "ip6tables"] {
        place.node.sh(&format!("{family} -t nat -N KUBE-MARK-MASQ"))?;
        let (found, report) = check("")?;
        ensure!(found.is_empty() && report["notes"] == json!([]), "{family}: {report:#}");
        place.node.sh(&format!("{family} -t nat -X KUBE-MARK-MASQ"))?;
    }
    // A user who may not read the rules gets a note instead of a finding.
    let (found, report) = check("")?;
    ensure!(found == absent, "{report:#}");
    let bin = plugin_bin()?;
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"]).arg(bin.join("postern"));
    command.args(["net", "validate", "valnet", "--json", "--cni-path"]).arg(&bin);
    let report = place.node.answer(&mut command, None)?.json()?;
    ensure!(codes(&report).is_empty() && report["notes"].to_string().contains("was not looked for"), "{report:#}");
    Ok(())
}
