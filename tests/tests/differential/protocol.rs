//! Cases of the CNI protocol: environment, JSON, versions, verbs, namespaces.

use crate::bridge;
use postern_tests::{Case, merge, native_bin, shipped};
use serde_json::{Value, json};

fn loopback(name: &str) -> Case {
    Case::new(
        &format!("protocol/{name}"),
        "loopback",
        &json!({"cniVersion": "1.0.0", "name": "net", "type": "loopback"}),
    )
}

fn with(name: &str, patch: &Value) -> Case {
    let mut config = json!({"cniVersion": "1.0.0", "name": "net", "type": "loopback"});
    merge(&mut config, patch);
    Case::new(&format!("protocol/{name}"), "loopback", &config).steps("ADD CHECK DEL STATUS GC VERSION")
}

/// Returns a case with two mistakes: a wrong configuration, and a missing namespace.
fn mistakes(plugin: &str, patch: &Value) -> Case {
    let mut config = json!({"cniVersion": "1.0.0", "name": "net", "type": plugin, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}});
    merge(&mut config, patch);
    let keys: Vec<&str> = patch.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    Case::new(&format!("protocol/mistakes-{plugin}-{}", keys.join("-")), plugin, &config)
        .env("CNI_NETNS", "/run/netns/none")
        .steps("ADD CHECK@noprev")
}

/// All cases of the protocol.
pub fn cases() -> Vec<Case> {
    let verbs = "ADD CHECK DEL STATUS GC VERSION FOO";
    let mut all = vec![
        loopback("no-command").unset("CNI_COMMAND").steps("ADD"),
        loopback("empty-command").env("CNI_COMMAND", "").steps("ADD"),
        loopback("lower-case-verb").steps("add"),
        loopback("unknown-verb-needs-nothing")
            .unset("CNI_CONTAINERID")
            .unset("CNI_NETNS")
            .unset("CNI_IFNAME")
            .unset("CNI_PATH")
            .steps("FOO"),
        loopback("no-container").unset("CNI_CONTAINERID").steps(verbs),
        loopback("no-netns").unset("CNI_NETNS").steps(verbs),
        loopback("no-interface").unset("CNI_IFNAME").steps(verbs),
        loopback("no-path").unset("CNI_PATH").steps(verbs),
        loopback("nothing")
            .unset("CNI_CONTAINERID")
            .unset("CNI_NETNS")
            .unset("CNI_IFNAME")
            .unset("CNI_PATH")
            .steps(verbs),
        loopback("bad-container-and-no-interface")
            .env("CNI_CONTAINERID", "a b")
            .unset("CNI_IFNAME")
            .steps("ADD CHECK DEL"),
        loopback("bad-interface-and-no-container").env("CNI_IFNAME", "a/b").unset("CNI_CONTAINERID").steps("ADD"),
        loopback("override").env("CNI_NETNS_OVERRIDE", "TRUE").steps("ADD@ownns DEL@ownns"),
        loopback("override-other").env("CNI_NETNS_OVERRIDE", "yes").steps("ADD@ownns DEL@ownns"),
        loopback("own-namespace").steps("CHECK@ownns,noprev ADD@ownns DEL@ownns"),
        Case::new("protocol/own-namespace-bridge", "bridge", &bridge::base()).steps("ADD@ownns"),
        Case::new(
            "protocol/own-namespace-bad-version",
            "bridge",
            &json!({"cniVersion": "9.9.9", "name": "net", "type": "bridge"}),
        )
        .steps("ADD@ownns"),
        loopback("netns-missing").env("CNI_NETNS", "/run/netns/none").steps("ADD CHECK@noprev DEL"),
        loopback("netns-is-file")
            .env("CNI_NETNS", "/run/file")
            .prepare("echo > /run/file")
            .steps("ADD CHECK@noprev DEL"),
        Case::new("protocol/netns-missing-bridge", "bridge", &bridge::base())
            .env("CNI_NETNS", "/run/netns/none")
            .steps("ADD CHECK@noprev DEL"),
        Case::new("protocol/netns-is-file-bridge", "bridge", &bridge::base())
            .env("CNI_NETNS", "/run/file")
            .prepare("echo > /run/file")
            .steps("ADD DEL"),
        Case::new("protocol/netns-is-directory-bridge", "bridge", &bridge::base())
            .env("CNI_NETNS", "/run")
            .steps("ADD DEL"),
        Case::new("protocol/netns-missing-ptp", "ptp", &bridge::base())
            .env("CNI_NETNS", "/run/netns/none")
            .steps("ADD CHECK@noprev DEL"),
        Case::new("protocol/netns-other-namespace", "bridge", &bridge::base())
            .env("CNI_NETNS", "/proc/self/ns/mnt")
            .steps("ADD DEL"),
        // Of two mistakes, the plugin reports the mistake in the configuration.
        mistakes("bridge", &json!({"mtu": "x"})),
        mistakes("bridge", &json!({"vlan": 5000})),
        mistakes("bridge", &json!({"hairpinMode": true, "promiscMode": true})),
        mistakes("ptp", &json!({"mtu": "x"})),
        mistakes("host-device", &json!({"device": ""})),
        mistakes("dummy", &json!({"ipam": null})),
        mistakes("tap", &json!({"mtu": "x"})),
        mistakes("tuning", &json!({"prevResult": null})),
        mistakes("vrf", &json!({"vrfname": ""})),
        with("bad-version", &json!({"cniVersion": "9.9.9"})),
        with("short-version", &json!({"cniVersion": "1.0"})),
        with("v-version", &json!({"cniVersion": "v1.0.0"})),
        with("nonsense-version", &json!({"cniVersion": "abc"})),
        with("long-version", &json!({"cniVersion": "1.0.0.0"})),
        with("number-version", &json!({"cniVersion": 1})),
        with("null-version", &json!({"cniVersion": null})),
        with("no-name", &json!({"name": null})),
        with("name-number", &json!({"name": 5})),
        with("name-slash", &json!({"name": "a/b"})),
        with("name-dash-first", &json!({"name": "-a"})),
        with("name-dots", &json!({"name": "a..b_c-d"})),
        with("unknown-keys", &json!({"x": {"y": [1]}, "type": "other"})),
        with("previous-empty-version", &json!({"prevResult": {"cniVersion": ""}})).steps("ADD"),
        with("previous-no-object", &json!({"prevResult": [1]})).steps("ADD"),
        with("previous-bad-address", &json!({"prevResult": {"ips": [{"address": "10.0.0.1"}]}})).steps("ADD"),
        with(
            "valid-attachments",
            &json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]}),
        )
        .steps("GC"),
    ];
    for (name, id) in [
        ("empty", ""),
        ("slash", "a/b"),
        ("blank", " a"),
        ("newline", "a\n"),
        ("dot-first", ".a"),
        ("one", "a"),
        ("unicode", "\u{e9}"),
        ("plain", "A.b_c-9"),
    ] {
        all.push(loopback(&format!("container-{name}")).env("CNI_CONTAINERID", id).steps("ADD DEL"));
    }
    for (name, interface) in [
        ("empty", ""),
        ("sixteen", "abcdefghijklmnop"),
        ("fifteen", "abcdefghijklmno"),
        ("dot", "."),
        ("dots", ".."),
        ("slash", "a/b"),
        ("colon", "a:b"),
        ("blank", "a b"),
        ("nbsp", "a\u{a0}b"),
        ("wide-blank", "a\u{3000}b"),
        ("tab", "a\tb"),
        ("bytes", "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}"),
        ("unicode", "\u{e9}th0"),
    ] {
        all.push(loopback(&format!("interface-{name}")).env("CNI_IFNAME", interface).steps("ADD DEL"));
    }
    for (name, text) in [
        ("empty", ""),
        ("null", "null"),
        ("array", "[]"),
        ("string", "\"x\""),
        ("number", "1"),
        ("cut", r#"{"name": "net", "#),
        ("trailing", r#"{"cniVersion": "1.0.0", "name": "net", "type": "loopback"} x"#),
        ("two", r#"{"cniVersion": "1.0.0", "name": "net", "type": "loopback"}{}"#),
        ("blanks", "  {\"cniVersion\": \"1.0.0\", \"name\": \"net\", \"type\": \"loopback\"}\n\n"),
        ("comment", r#"{"name": "net" /* x */}"#),
        ("no-utf8", "{\"name\": \"n\\ud800\", \"cniVersion\": \"1.0.0\"}"),
        ("escapes", r#"{"cniVersion": "1.0.0", "name": "net", "type": "loop\u0062ack"}"#),
        ("duplicate-keys", r#"{"cniVersion": "1.0.0", "name": "net", "type": "loopback", "cniVersion": "0.4.0"}"#),
        ("other-spelling-wins", r#"{"cniVersion": "1.0.0", "name": "net", "CNIVERSION": "0.4.0", "type": "loopback"}"#),
        ("name-spelling", r#"{"cniVersion": "1.0.0", "NAME": "net", "type": "loopback"}"#),
        ("duplicate-name", r#"{"cniVersion": "1.0.0", "name": "net", "name": "a b", "type": "loopback"}"#),
        ("empty-object", "{}"),
    ] {
        all.push(
            Case::raw(&format!("protocol/json-{name}"), "loopback", text)
                .steps("ADD DEL CHECK@noprev STATUS GC VERSION FOO"),
        );
    }
    for plugin in &shipped().unwrap_or_default() {
        // Some mirrors have no native flannel (tests/fetch-native).
        if plugin == "flannel" && !native_bin().is_ok_and(|bin| bin.join("flannel").exists()) {
            continue;
        }
        all.push(Case::raw(&format!("protocol/version-of-{plugin}"), plugin, "").steps("VERSION"));
        all.push(Case::raw(&format!("protocol/null-{plugin}"), plugin, "null").steps("ADD"));
        // The native flannel uses an earlier library, whose messages for these cases differ.
        if plugin != "flannel" {
            all.extend(versions(plugin));
        }
        all.push(Case::raw(&format!("protocol/about-{plugin}"), plugin, "").unset("CNI_COMMAND").steps("ADD"));
        let text = r#"{"cniVersion": "1.0.0", "name": "net", "ipam": {"type": 5}, "mtu": {}, "prevResult": 5}"#;
        all.push(Case::raw(&format!("protocol/wrong-types-{plugin}"), plugin, text).steps("ADD CHECK@noprev DEL"));
    }
    all
}

/// Returns cases of wrong versions: unknown versions, versions without the verb, and results in another version's form.
fn versions(plugin: &str) -> Vec<Case> {
    let mut all = Vec::new();
    // Each verb refuses an unknown version before anything else.
    for version in ["9.9.9", "1.0", "v1.0.0", "x"] {
        let text = json!({"cniVersion": version, "name": "net", "type": plugin}).to_string();
        let case = Case::raw(&format!("protocol/unknown-version-{version}-{plugin}"), plugin, &text);
        all.push(case.steps("ADD CHECK@noprev DEL STATUS GC"));
    }
    // Verbs that an older version lacks.
    for version in ["", "0.2.0", "0.3.1", "1.0.0"] {
        let text = json!({"cniVersion": version, "name": "net", "type": plugin}).to_string();
        let verbs = if version == "1.0.0" { "STATUS GC" } else { "CHECK@noprev STATUS GC" };
        all.push(Case::raw(&format!("protocol/verbs-before-{version}-{plugin}"), plugin, &text).steps(verbs));
    }
    // The previous result has the form of another version.
    for (version, previous) in [("1.0.0", "0.4.0"), ("1.1.0", "0.2.0"), ("0.4.0", "1.0.0"), ("0.4.0", "0.1.0")] {
        let text =
            json!({"cniVersion": version, "name": "net", "type": plugin, "prevResult": {"cniVersion": previous}});
        let case = Case::raw(&format!("protocol/result-{previous}-in-{version}-{plugin}"), plugin, &text.to_string());
        all.push(case.steps("ADD CHECK@noprev"));
    }
    all
}
