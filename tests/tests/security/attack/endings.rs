//! Ways to end a plugin. Each ending gives one well-formed error and leaves nothing.

use crate::attack::attacked_node::{AttackedNode, good};
use anyhow::{Result, ensure};
use postern_tests::merge;
use postern_tests::proof::{Refusal, each};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A behaviour that ends the plugin (`tests/guests/hostile/src/endings.rs`), and the resulting error.
const ENDINGS: [(&str, u64, &str); 26] = [
    ("trap", 999, "plugin \"hostile\" trapped: …unreachable"),
    ("panic", 999, "plugin \"hostile\" trapped: …unreachable"),
    ("silent", 999, "plugin \"hostile\" ended without printing a result"),
    ("silent-failure", 999, "plugin \"hostile\" failed with status 1 and printed no error"),
    ("status", 999, "plugin \"hostile\" failed with status 1 and printed no error"),
    ("nonsense", 999, "plugin \"hostile\" printed no CNI result: …everything is fine"),
    (
        "nonsense-failure",
        999,
        "plugin \"hostile\" failed with status 1 and printed no CNI error object: nothing is fine",
    ),
    ("two-objects", 999, "plugin \"hostile\" printed no CNI result: …trailing characters"),
    ("array", 999, "plugin \"hostile\" printed no CNI result: …cannot unmarshal array"),
    ("not-utf8", 999, "plugin \"hostile\" wrote bytes to standard output that are not UTF-8"),
    ("deep", 999, "plugin \"hostile\" printed no CNI result: …recursion limit"),
    ("flood-stdout", 999, "plugin \"hostile\" …wrote too much to standard output"),
    ("flood-stderr", 123, "flooded; as ordered"),
    ("error", 123, "on purpose; as ordered"),
    ("allocate", 999, "plugin \"hostile\" ran out of memory: the limit is 64 MiB"),
    ("recurse", 999, "plugin \"hostile\" trapped: "),
    ("hoard", 999, "plugin \"hostile\" trapped: resource table has no free keys"),
    ("claim-interface", 999, "plugin \"hostile\" claims interface \"eth9\", which it neither made nor was given"),
    ("claim-sandbox", 999, "plugin \"hostile\" claims interface \"eth0\", which it neither made nor was given"),
    ("claim-address", 999, "plugin \"hostile\" claims address 10.66.6.6/24, which neither IPAM nor prevResult gave"),
    ("claim-index", 999, "plugin \"hostile\" …127.0.0.1/8"),
    ("claim-version", 999, "plugin \"hostile\" printed no CNI result: …unsupported CNI result version \"9.9.9\""),
    // The plugin passes on these refusals.
    (
        "capability",
        110,
        "policy does not allow plugin…forwarding.enable; …`[grant.forwarding]` in /etc/postern/policy/hostile.toml",
    ),
    (
        "backend",
        110,
        "policy does not allow plugin…masquerade.ensure on \"iptables\"…backends = [\"nftables\", \"iptables\"] }` in /etc",
    ),
    (
        "operations",
        999,
        "plugin \"hostile\" asked for more than 50 operations and was stopped; `limits.operations = 100` in /etc/postern/policy/hostile.toml",
    ),
    ("unknown", 7, "the hostile plugin knows no \"unknown\""),
];

/// Returns the configuration for a behaviour.
pub fn orders(behaviour: &str, patch: Value) -> Value {
    let mut config = crate::attack::base();
    merge(&mut config, &json!({"hostile": behaviour}));
    merge(&mut config, &patch);
    config
}

/// Runs an ADD that must fail, and leave nothing.
fn refused(attacked: &mut AttackedNode, plugin: &str, config: &Value, code: u64, text: &str) -> Result<()> {
    let answer = attacked.plugin(plugin, "ADD", config)?;
    if let Err(changed) = attacked.unchanged() {
        // Prepares the next case.
        attacked.mend()?;
        return Err(changed);
    }
    Refusal::of(&answer)?.expect(code, text)
}

#[test]
fn the_fortress_notices_an_attachment_and_its_end() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.plugin("hostile", "ADD", &good())?.success()?;
    ensure!(attacked.unchanged().is_err(), "the plugin makes nothing, so these tests would prove nothing");
    // The plugin does nothing on this DEL. The host removes everything by the record.
    attacked.plugin("hostile", "DEL", &good())?.success()?;
    attacked.unchanged()
}

#[test]
fn every_ending_is_one_error_and_leaves_nothing() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let cases = ENDINGS.iter().flat_map(|case| [(case, false), (case, true)]);
    each(
        cases,
        |((name, ..), make)| format!("{name}, make {make}"),
        |((name, code, text), make)| {
            refused(&mut attacked, "hostile", &orders(name, json!({"make": make})), *code, text)
        },
    )
}

#[test]
fn endless_ones_are_stopped_and_undone() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    // The deadline stops a plugin that only computes. The number of operations stops a plugin that calls.
    let endings = [
        ("loop", "plugin \"hostile\" ran past its deadline and was stopped"),
        ("call-loop", "plugin \"hostile\" asked for more than 50 operations and was stopped"),
    ];
    let cases = endings.into_iter().flat_map(|(name, text)| [(name, text, false), (name, text, true)]);
    each(
        cases,
        |case| format!("{case:?}"),
        |(name, text, make)| {
            let start = Instant::now();
            refused(&mut attacked, "hostile", &orders(name, json!({"make": make})), 999, text)?;
            let took = start.elapsed();
            // A quarter of the three seconds is reserved for undoing.
            let least = if *name == "loop" { Duration::from_millis(2200) } else { Duration::ZERO };
            ensure!(took > least && took < Duration::from_secs(10), "took {took:?}");
            Ok(())
        },
    )
}

/// The run first removes the effects of an earlier ADD. This does not use the time that is reserved to undo the new
/// ADD.
#[test]
fn endless_ones_are_undone_after_a_recovery_too() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.plugin("hostile", "ADD", &good())?.success()?;
    attacked.node().sh("sed -i '/\"given\"/d' $(grep -l '\"container_id\":\"c1\"' /run/postern/attachments/*)")?;
    let text = "plugin \"hostile\" ran past its deadline and was stopped";
    refused(&mut attacked, "hostile", &orders("loop", json!({"make": true})), 999, text)
}

#[test]
fn a_del_that_fails_still_removes_everything() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let add = good();
    let failing = ENDINGS.iter().filter(|(name, ..)| {
        matches!(
            *name,
            "trap" | "silent-failure" | "nonsense-failure" | "not-utf8" | "flood-stdout" | "error" | "allocate"
        )
    });
    let endless = ("loop", 999, "plugin \"hostile\" ran past its deadline");
    each(
        failing.chain([&endless]),
        |case| case.0.to_owned(),
        |(name, code, text)| {
            attacked.plugin("hostile", "ADD", &add)?.success()?;
            let answer = attacked.plugin("hostile", "DEL", &orders(name, json!({"on": "DEL"})));
            let clean = attacked.unchanged();
            // The next case needs a clean node, whatever the outcome of this case.
            attacked.plugin("hostile", "DEL", &add)?.success()?;
            // Only the record counts, and it is empty afterwards. The runtime gets success, and people get the reason.
            let answer = answer?;
            ensure!(answer.status == 0 && answer.stdout.is_empty(), "{answer:?}");
            let known = text.split('…').next().unwrap_or_default();
            ensure!(*code != 999 || answer.stderr.contains(known), "not \"{known}\" in {}", answer.stderr);
            ensure!(!answer.stderr.contains('\u{1b}'), "an escape code in {:?}", answer.stderr);
            clean
        },
    )
}

#[test]
fn what_a_del_prints_is_nobodys_business() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    each(
        ["silent", "nonsense", "two-objects", "array", "claim-address"],
        |name| (*name).to_owned(),
        |name| {
            attacked.plugin("hostile", "ADD", &good())?.success()?;
            let answer = attacked.plugin("hostile", "DEL", &orders(name, json!({"on": "DEL"})))?;
            ensure!(answer.status == 0 && answer.stdout.is_empty(), "{answer:?}");
            attacked.unchanged()
        },
    )
}

#[test]
fn other_verbs_fail_as_well_formed() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let previous = json!({"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.2/24"}]});
    each(
        ["CHECK", "STATUS", "GC"],
        |verb| (*verb).to_owned(),
        |verb| {
            for (behaviour, text) in [("trap", "trapped"), ("nonsense-failure", "no CNI error object")] {
                let config =
                    orders(behaviour, json!({"on": verb, "prevResult": previous, "cni.dev/valid-attachments": []}));
                let answer = attacked.plugin("hostile", verb, &config)?;
                Refusal::of(&answer)?.expect(999, &format!("plugin \"hostile\"…{text}"))?;
                attacked.unchanged()?;
            }
            Ok(())
        },
    )
}

#[test]
fn an_ipam_delegate_is_no_better_trusted() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let config = |behaviour| orders(behaviour, json!({"type": "bridge", "bridge": "br9", "ipam": {"type": "hostile"}}));
    // The bridge is a node object and stays.
    attacked.plugin("bridge", "ADD", &config("error"))?;
    attacked.look()?;
    let named = |name: &str| !matches!(name, "flood-stderr" | "error" | "claim-address" | "unknown");
    each(
        ENDINGS.iter().filter(|(name, code, _)| named(name) && *code == 999),
        |case| case.0.to_owned(),
        |(name, code, text)| refused(&mut attacked, "bridge", &config(name), *code, text),
    )
}

#[test]
fn an_operator_can_withdraw_a_grant() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.operator_policy("hostile", "withdraw = [\"masquerade\"]")?;
    let good = good();
    refused(&mut attacked, "hostile", &good, 110, "policy does not allow plugin…masquerade.ensure…[grant.masquerade]")?;
    attacked.node().sh("chmod 666 /etc/postern/policy/hostile.toml")?;
    refused(&mut attacked, "hostile", &good, 999, "hostile.toml can be written by others…chmod go-w")
}

#[test]
fn plugins_that_are_half_there_are_not_run() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let cases = [
        ("nopolicy", "plugin \"nopolicy\" has no policy at …nopolicy.toml…`postern add FILE.wasm --policy FILE`"),
        ("nocode", "there is no plugin \"nocode\" in …`postern add FILE.wasm --policy FILE`"),
        ("unlisted", "there is no plugin \"unlisted\" in …`postern add FILE.wasm --policy FILE`"),
    ];
    each(
        cases,
        |case| case.0.to_owned(),
        |(plugin, text)| {
            for verb in ["ADD", "CHECK"] {
                let answer = attacked.plugin(plugin, verb, &orders("good", json!({"type": plugin, "make": true})))?;
                attacked.unchanged()?;
                Refusal::of(&answer)?.expect(999, text)?;
            }
            // DEL of an attachment that was never made succeeds.
            let answer = attacked.plugin(plugin, "DEL", &orders("good", json!({"type": plugin, "make": true})))?;
            attacked.unchanged()?;
            ensure!(answer.status == 0 && answer.stderr.contains("can't be run"), "{answer:?}");
            // Another plugin's link stays for that plugin's own DEL.
            attacked.plugin("hostile", "ADD", &good())?.success()?;
            attacked.plugin(plugin, "DEL", &orders("good", json!({"type": plugin})))?.success()?;
            attacked.plugin("hostile", "CHECK", &good())?.success()?;
            attacked.plugin("hostile", "DEL", &good())?.success()?;
            attacked.unchanged()
        },
    )
}
