//! A list contains a plugin twice. Each of the plugin's calls has its own section of the record, and DEL ends the
//! section with the same configuration. The plugin `chained` is the test plugin `rogue` without a grant of links. It
//! masquerades, by nftables or by iptables.

use anyhow::{Result, ensure};
use postern_tests::proof::test_bin;
use postern_tests::{Answer, Attachment, Network, Node, copy_bin, merge};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const NFTABLES: &str = "nftables";
const IPTABLES: &str = "iptables";

/// A separate CNI bin directory of the node.
const BIN: &str = "/run/cni-bin";

struct Chain {
    node: Node,
    bin: PathBuf,
    /// The result of the plugin that made the link.
    previous: Value,
}

/// Returns the chained plugin's configuration. `runtimeConfig` and `args` come from the runtime, and change from call
/// to call.
fn chained(backend: &str, more: &Value) -> Value {
    let mut config = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "chained", "runtimeConfig": {"mac": "02:00:00:00:00:01"},
        "rogue": [{"call": {"op": "masquerade-ensure", "backend": backend}}],
    });
    merge(&mut config, more);
    config
}

fn bridge() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br9", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    })
}

impl Chain {
    fn new() -> Result<Self> {
        let node = Node::new()?;
        node.add_container("c1")?;
        let mut chain = Self { node, bin: test_bin()?, previous: Value::Null };
        chain.previous = chain.call("ADD", &bridge())?.success()?;
        Ok(chain)
    }

    /// Returns the attachment for a call of this plugin. All plugins except bridge get bridge's result.
    fn attachment(&self, config: &Value) -> Result<Attachment> {
        let mut attachment = Network::new(&self.node, config)?.by(&self.bin).attachment("c1");
        if config.get("type") != Some(&json!("bridge")) {
            attachment.result = self.previous.clone();
        }
        Ok(attachment)
    }

    fn call(&self, verb: &str, config: &Value) -> Result<Answer> {
        self.attachment(config)?.call_at(0, verb)
    }

    fn done(&self, verb: &str, config: &Value) -> Result<()> {
        let answer = self.call(verb, config)?;
        ensure!(answer.status == 0, "{verb} {config}: {answer:?}");
        Ok(())
    }

    /// Returns the sections of the record, each with its progress.
    fn sections(&self) -> Result<Vec<(String, String)>> {
        let mut sections: Vec<(String, String)> = Vec::new();
        for line in self.node.sh("cat /run/postern/attachments/* 2>/dev/null || true")?.lines() {
            let line: Value = serde_json::from_str(line)?;
            let Some(name) = line.get("plugin").and_then(Value::as_str) else { continue };
            for stage in ["begun", "made", "given", "ending", "ended"] {
                if line.get(stage).is_some() {
                    sections.retain(|(known, _)| known != name || stage != "ended");
                    match sections.iter_mut().find(|(known, _)| known == name) {
                        Some((_, known)) => stage.clone_into(known),
                        None if stage == "begun" => sections.push((name.to_owned(), stage.to_owned())),
                        None => {}
                    }
                }
            }
        }
        Ok(sections)
    }

    /// Fails unless the record has these complete sections, and the attachment has rules of these packet filters.
    fn has(&self, sections: &[&str], nftables: bool, iptables: bool) -> Result<()> {
        let given: Vec<(String, String)> =
            sections.iter().map(|name| ((*name).to_owned(), "given".to_owned())).collect();
        ensure!(self.sections()? == given, "{sections:?} expected: {:?}", self.sections()?);
        let rules = [
            ("nft list ruleset | grep -c 'net: net,' || true", nftables),
            ("iptables -t nat -S 2>/dev/null | grep -c 'name: \\\\\"net\\\\\"' || true", iptables),
        ];
        for (script, expected) in rules {
            let count = self.node.sh(script)?;
            ensure!((count.trim() != "0") == expected, "{script}: {count}");
        }
        Ok(())
    }
}

#[test]
fn each_configuration_has_its_section() -> Result<()> {
    let chain = Chain::new()?;
    let (nft, iptables) = (chained(NFTABLES, &json!({})), chained(IPTABLES, &json!({})));
    chain.has(&["bridge"], false, false)?;
    chain.done("ADD", &nft)?;
    chain.done("ADD", &iptables)?;
    chain.has(&["bridge", "chained", "chained#2"], true, true)?;
    // The runtime's data for each container does not distinguish configurations.
    chain.done("DEL", &chained(NFTABLES, &json!({"runtimeConfig": {"mac": "02:00:00:00:00:02"}, "args": {"a": 1}})))?;
    chain.has(&["bridge", "chained#2"], false, true)?;
    chain.done("ADD", &nft)?;
    chain.has(&["bridge", "chained#2", "chained#3"], true, true)?;
    // DELs in the runtime's order, and one more DEL. A DEL whose configuration fits no section ends the last section.
    for (config, sections, nftables, is_left) in [
        (&iptables, &["bridge", "chained#3"][..], true, false),
        (&iptables, &["bridge"][..], false, false),
        (&iptables, &["bridge"][..], false, false),
    ] {
        chain.done("DEL", config)?;
        chain.has(sections, nftables, is_left)?;
    }
    chain.done("DEL", &bridge())?;
    chain.done("DEL", &bridge())?;
    chain.has(&[], false, false)?;
    ensure!(chain.node.sh("ls /run/postern/attachments")?.is_empty(), "a record is left");
    Ok(())
}

/// When the last section of the plugin that made the link ends, all other sections end too.
#[test]
fn equal_configurations_have_sections_of_their_own() -> Result<()> {
    let chain = Chain::new()?;
    let config = chained(NFTABLES, &json!({}));
    chain.done("ADD", &config)?;
    chain.done("ADD", &config)?;
    chain.has(&["bridge", "chained", "chained#2"], true, false)?;
    chain.done("DEL", &config)?;
    // The remaining rules belong to the first section.
    chain.has(&["bridge", "chained"], true, false)?;
    chain.done("ADD", &config)?;
    chain.done("DEL", &bridge())?;
    chain.has(&[], false, false)
}

/// A second ADD of a chained plugin is killed. Neither this ADD nor its recovery removes anything of the first ADD.
#[test]
fn a_kill_in_between_ends_one_section() -> Result<()> {
    let chain = Chain::new()?;
    let (nft, iptables) = (chained(NFTABLES, &json!({})), chained(IPTABLES, &json!({})));
    chain.done("ADD", &nft)?;
    let mut hanging = iptables.clone();
    let steps = json!([{"call": {"op": "masquerade-ensure", "backend": IPTABLES}}, {"hang": true}]);
    merge(&mut hanging, &json!({"rogue": steps}));
    for again in ["ADD", "DEL"] {
        let mut child = chain.node.start(&chain.attachment(&hanging)?.request(0, "ADD")?)?;
        let start = Instant::now();
        while !chain.node.sh("iptables -t nat -S 2>/dev/null")?.contains("10.9.0.") {
            ensure!(start.elapsed() < Duration::from_secs(20), "ADD made no rules: {:?}", chain.sections()?);
            std::thread::sleep(Duration::from_millis(50));
        }
        child.kill()?;
        child.wait()?;
        chain.done(again, &iptables)?;
        match again {
            "ADD" => chain.has(&["bridge", "chained", "chained#2"], true, true)?,
            _ => chain.has(&["bridge", "chained"], true, false)?,
        }
        if again == "ADD" {
            chain.done("DEL", &iptables)?;
        }
    }
    chain.done("DEL", &bridge())?;
    chain.has(&[], false, false)
}

/// A chained plugin is no longer installed. DEL removes its effects by the record, and leaves the link to the plugin
/// that made it.
#[test]
fn a_chained_plugin_that_is_gone_takes_its_own_alone() -> Result<()> {
    let mut chain = Chain::new()?;
    chain.node.sh(&copy_bin(&test_bin()?, BIN))?;
    chain.bin = PathBuf::from(BIN);
    let config = chained(NFTABLES, &json!({}));
    chain.done("ADD", &config)?;
    chain.node.sh(&format!("rm {BIN}/postern.d/chained.*"))?;
    let answer = chain.call("DEL", &config)?;
    ensure!(answer.status == 0 && answer.stderr.contains("this plugin's work"), "{answer:?}");
    chain.has(&["bridge"], false, false)?;
    ensure!(chain.node.sh("ip -o link")?.contains("veth"), "the pair is gone");
    chain.done("DEL", &bridge())?;
    chain.has(&[], false, false)
}

/// Postern 0.1 noted no configurations, so DEL ends the plugin's last section.
#[test]
fn records_of_postern_0_1_are_ended() -> Result<()> {
    let chain = Chain::new()?;
    let config = chained(NFTABLES, &json!({}));
    chain.done("ADD", &config)?;
    chain.node.sh("sed -i 's/,\"config\":\"[^\"]*\"//; s/,\"link\":true//' /run/postern/attachments/*")?;
    ensure!(!chain.node.sh("cat /run/postern/attachments/*")?.contains("config\":"), "the record was not changed");
    chain.done("DEL", &config)?;
    chain.has(&["bridge"], false, false)?;
    chain.done("DEL", &bridge())?;
    chain.has(&[], false, false)
}

/// Returns the configuration of the example plugin that keeps a note: the labels of its container.
fn remember(tag: u32, labels: &Value) -> Value {
    json!({"cniVersion": "1.1.0", "name": "net", "type": "remember", "tag": tag, "args": {"cni": {"labels": labels}}})
}

/// Each section has its own note, from ADD to DEL.
#[test]
fn a_note_lives_as_long_as_its_section() -> Result<()> {
    let chain = Chain::new()?;
    chain.node.sh(postern_tests::proof::PRIVATE_ETC)?;
    let labels = |value: &str| json!([{"key": "app", "value": value}]);
    let notes = || chain.node.sh("grep -ho '\"note\":.*' /run/postern/attachments/* || true");
    let (web, other) = (remember(1, &labels("web")), remember(2, &labels("db")));
    let result = chain.call("ADD", &web)?.success()?;
    ensure!(result.pointer("/ips") == chain.previous.pointer("/ips"), "{result}");
    chain.done("CHECK", &web)?;
    // Before its own ADD, the plugin's second entry has no note.
    chain.done("ADD", &other)?;
    ensure!(notes()? == "\"note\":\"app=web\"}\n\"note\":\"app=db\"}\n", "{}", notes()?);
    chain.done("CHECK", &web)?;
    chain.done("CHECK", &other)?;
    let answer = chain.call("CHECK", &remember(1, &labels("db")))?;
    postern_tests::proof::Refusal::of(&answer)?.expect(999, "the labels were\napp=web\nand are\napp=db")?;

    // DEL prints the note of its own section.
    let answer = chain.call("DEL", &web)?;
    ensure!(
        answer.status == 0 && answer.stderr.contains("remember: container c1 had\nremember: app=web\n"),
        "{answer:?}"
    );
    chain.done("CHECK", &other)?;
    // Reading the note on DEL needs no grant, because a policy may have changed since ADD.
    chain.node.sh("echo 'withdraw = [\"notes\"]' > /etc/postern/policy/remember.toml")?;
    postern_tests::proof::Refusal::of(&chain.call("CHECK", &other)?)?.expect(110, "notes.get")?;
    let answer = chain.call("DEL", &other)?;
    ensure!(
        answer.status == 0 && answer.stderr.contains("remember: container c1 had\nremember: app=db\n"),
        "{answer:?}"
    );
    chain.node.sh("rm /etc/postern/policy/remember.toml")?;
    ensure!(chain.sections()?.len() == 1, "{:?}", chain.sections()?);

    // One ADD fails after it wrote its note. Another ADD's note is refused.
    let long = labels(&"x".repeat(4093));
    for (change, code, words) in [
        (json!({"prevResult": null}), 999, "must be called behind another plugin"),
        (
            json!({"prevResult": chain.previous, "args": {"cni": {"labels": long}}}),
            110,
            "a note of 4097 bytes is too long",
        ),
    ] {
        let network = Network::new(&chain.node, &web)?.by(&chain.bin);
        let answer = network.call_at(0, "ADD", "c1", &change)?;
        postern_tests::proof::Refusal::of(&answer)?.expect(code, words)?;
        ensure!(chain.sections()?.len() == 1, "{words}: {:?}", chain.sections()?);
        chain.done("CHECK", &remember(1, &json!([])))?;
    }
    // DEL of the plugin that made the link also ends sections with notes.
    chain.done("ADD", &web)?;
    chain.done("DEL", &bridge())?;
    ensure!(chain.node.sh("ls /run/postern/attachments")?.is_empty(), "a record is left");
    Ok(())
}

/// A note belongs to the container of its ADD. A new container with the same names has no note.
#[test]
fn a_note_is_of_one_container() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    // No other plugin of ours has begun a record.
    let chain = Chain { node, bin: test_bin()?, previous: json!({"cniVersion": "1.1.0"}) };
    let with = |value: &str| remember(1, &json!([{"key": "app", "value": value}]));
    let (old, new) = (with("old"), with("new"));
    chain.done("ADD", &old)?;
    let header = chain.node.sh("head -n 1 /run/postern/attachments/*")?;
    ensure!(header.contains("\"netns_cookie\":") && !header.contains("\"netns_cookie\":null"), "{header}");
    chain.done("CHECK", &old)?;

    chain.node.sh("ip netns del c1; ip netns add c1")?;
    postern_tests::proof::Refusal::of(&chain.call("CHECK", &old)?)?
        .expect(999, "the labels were\n\nand are\napp=old")?;
    chain.done("ADD", &new)?;
    chain.done("CHECK", &new)?;
    ensure!(chain.sections()?.len() == 1, "{:?}", chain.sections()?);
    chain.done("DEL", &new)?;

    let call = chain.attachment(&new)?.request(0, "ADD")?.attachment("c1", "/run/netns/none", "eth0");
    postern_tests::proof::Refusal::of(&chain.node.call(&call)?)?
        .expect(999, "failed to open netns \"/run/netns/none\"")?;
    ensure!(chain.node.sh("ls /run/postern/attachments")?.is_empty(), "a record is left");
    Ok(())
}
