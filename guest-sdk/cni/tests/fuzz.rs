//! No input of a runtime, a file or another plugin makes the parsers panic. An accepted input has the same meaning
//! after it was printed.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test that calls them")]

use postern_cni::{
    Args, CniResult, Env, Error, Json, NetConf, NumericVersion, Verb, Version, VersionInfo, check_version,
    config_version, parse_cidr, parse_ip, print, validate_conf,
};
use proptest::prelude::*;

const SEEDS: &[&str] = &[
    include_str!("examples/1.0.0/config-check-bridge.json"),
    include_str!("examples/1.0.0/config-portmap.json"),
    include_str!("examples/1.0.0/result-tuning.json"),
    include_str!("examples/0.3.1/config-add-tuning.json"),
    include_str!("examples/0.3.1/result-grammar.json"),
    include_str!("examples/0.2.0/config-ovs.json"),
    include_str!("examples/0.2.0/result-grammar.json"),
    include_str!("examples/0.2.0/error-grammar.json"),
];

/// Gives the bytes to every function that reads bytes.
fn read(bytes: &[u8]) {
    let _ = CniResult::parse_output(bytes, 1 << 16, "1.0.0");
    if let Ok(json) = Json::parse(bytes, 1 << 16) {
        agree(&json);
    }
    if let Ok(json) = validate_conf(bytes, 1 << 16) {
        if let Ok(version) = config_version(&json) {
            for verb in [Verb::Add, Verb::Check, Verb::Gc] {
                let _ = check_version(verb, &version, &Version::ALL);
            }
        }
        if let Ok(conf) = NetConf::parse(json) {
            let _ = (conf.previous_result(), conf.runtime_config(), conf.args_cni(), conf.still_valid());
        }
    }
}

/// Checks properties that every document has.
fn agree(json: &Json) {
    let compact = Json::parse(print::compact(json).as_bytes(), usize::MAX).unwrap();
    let pretty = Json::parse(print::pretty(json).as_bytes(), usize::MAX).unwrap();
    assert_eq!(&compact, json);
    assert_eq!(&pretty, json);
    let sorted = json.clone().sorted();
    assert_eq!(sorted.clone().sorted(), sorted);
    assert_eq!(serde_json::to_value(sorted).unwrap(), serde_json::to_value(json).unwrap());
    let _ = (Error::parse(json), VersionInfo::parse(json));
    for version in Version::ALL {
        let previous = CniResult::parse_previous(json.clone(), version.as_str());
        for result in [CniResult::parse(json, version.as_str()), previous] {
            let Ok(result) = result else { continue };
            for target in Version::ALL {
                let Ok(tree) = result.to_tree(target) else {
                    assert!(result.ips.is_empty());
                    continue;
                };
                // The printed form of a route without destination can't be read.
                if result.routes.iter().all(|route| route.dst.is_some()) {
                    let again = CniResult::parse_previous(tree.clone(), target.as_str()).unwrap();
                    assert_eq!(again.to_tree(target).unwrap(), tree);
                }
            }
        }
    }
}

fn document() -> impl Strategy<Value = Json> {
    let key = prop_oneof![
        prop::sample::select(vec![
            "cniVersion",
            "CNIVersion",
            "name",
            "Name",
            "type",
            "ipam",
            "IPAM",
            "dns",
            "prevResult",
            "prevresult",
            "interfaces",
            "ips",
            "routes",
            "ip4",
            "ip6",
            "ip",
            "address",
            "gateway",
            "interface",
            "dst",
            "gw",
            "mtu",
            "table",
            "sandbox",
            "mac",
            "version",
            "nameservers",
            "domain",
            "search",
            "capabilities",
            "runtimeConfig",
            "args",
            "cni",
            "cni.dev/valid-attachments",
            "cni.dev/attachments",
            "containerID",
            "ifname",
            "code",
            "msg",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        any::<i64>().prop_map(Json::from),
        (0..4_i64).prop_map(Json::from),
        any::<String>().prop_map(Json::String),
        prop::sample::select(vec![
            "",
            "0.1.0",
            "0.2.0",
            "0.3.1",
            "0.4.0",
            "1.0.0",
            "1.1.0",
            "9.9.9",
            "10.1.0.5/16",
            "2001:db8::5/64",
            "::ffff:10.0.0.1/120",
            "10.1.0.1",
            "::1",
            "<nil>",
            "n",
            "bridge",
        ])
        .prop_map(Json::from),
    ];
    leaf.prop_recursive(6, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            prop::collection::vec((key.clone(), inner), 0..8).prop_map(Json::Object),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read(&bytes);
    }

    #[test]
    fn arbitrary_documents(json in document()) {
        agree(&json);
        read(print::compact(&json).as_bytes());
    }

    #[test]
    fn mutated_examples(
        seed in prop::sample::select(SEEDS.to_vec()),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..6),
    ) {
        let mut bytes = seed.as_bytes().to_vec();
        for (at, byte, kind) in edits {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes.truncate(at.max(1)),
            }
            if bytes.is_empty() {
                bytes.push(byte);
            }
        }
        read(&bytes);
    }

    #[test]
    fn mutated_trees(
        seed in prop::sample::select(SEEDS.to_vec()),
        at in any::<prop::sample::Index>(),
        graft in document(),
    ) {
        let mut json = Json::parse(seed.as_bytes(), 1 << 16).unwrap();
        let mut nodes = count(&json);
        nodes = at.index(nodes);
        replace(&mut json, &mut nodes, &graft);
        agree(&json);
        read(print::compact(&json).as_bytes());
    }

    #[test]
    fn texts(text in any::<String>()) {
        for result in [parse_cidr(&text).map(drop), parse_ip(&text).map(drop), NumericVersion::parse(&text).map(drop)] {
            if let Err(error) = result {
                prop_assert!(!error.msg.is_empty());
            }
        }
        let _ = Args::parse(&text, &["IP", "MAC"]);
        let command = text.clone();
        let _ = Env { command, container_id: text.clone(), ifname: text.clone(), ..Env::default() }.validate();
        if let Ok(version) = check_version(Verb::Add, &text, &Version::ALL) {
            prop_assert!(text.is_empty() || version.as_str() == text);
        }
    }

    #[test]
    fn cni_args(pairs in "([A-Z]{0,2}=?[a-z=]{0,2};?){0,4}(;?IgnoreUnknown=[01])?") {
        if let Ok(args) = Args::parse(&pairs, &["A"]) {
            prop_assert!(pairs.is_empty() || pairs.split(';').all(|pair| pair.matches('=').count() == 1));
            prop_assert_eq!(args.get("B"), None);
        }
    }
}

fn count(json: &Json) -> usize {
    1 + match json {
        Json::Array(items) => items.iter().map(count).sum(),
        Json::Object(members) => members.iter().map(|(_, value)| count(value)).sum(),
        _ => 0,
    }
}

/// Puts `graft` in place of the value with this number in the tree.
fn replace(json: &mut Json, number: &mut usize, graft: &Json) {
    if *number == 0 {
        *json = graft.clone();
        *number = usize::MAX;
        return;
    }
    *number -= 1;
    match json {
        Json::Array(items) => items.iter_mut().for_each(|item| replace(item, number, graft)),
        Json::Object(members) => members.iter_mut().for_each(|(_, value)| replace(value, number, graft)),
        _ => {}
    }
}
