use super::*;
use postern_keys::{ALL, sample};
use serde_json::json;
use std::net::Ipv4Addr;

/// Checks the text of a file, without the node.
fn check(text: &str) -> Vec<Finding> {
    let mut sheet = Sheet::new("f", text);
    match text::read(text) {
        Ok(node) => {
            if let Some(network) = network::check(&mut sheet, &node, true) {
                if network.is_list {
                    network::chain(&mut sheet, &network.entries);
                }
                as_runtimes_read(&mut sheet, &node, &network);
            }
        }
        Err(fault) => sheet.error("json", fault.at, "", fault.message, ""),
    }
    sheet.findings
}

fn words(findings: &[Finding]) -> Vec<String> {
    let severity = |one: &Finding| if one.severity == Severity::Error { "error" } else { "warning" };
    findings
        .iter()
        .map(|one| format!("{}:{} {} {} {}", one.line, one.column, severity(one), one.code, one.path))
        .collect()
}

fn errors(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().filter(|one| one.severity == Severity::Error).collect()
}

/// Makes a list of one plugin.
fn listed(config: &Value) -> Value {
    let mut entry = config.clone();
    entry.as_object_mut().unwrap().retain(|key, _| key != "name" && key != "cniVersion");
    json!({"cniVersion": "1.0.0", "name": "net", "plugins": [entry]})
}

#[test]
fn what_plugins_accept_has_no_error() {
    for plugin in ALL {
        let mut good = vec![sample::example(plugin)];
        good.extend(sample::keys(plugin).map(|(place, key)| sample::with_key(plugin, place, key)));
        for config in good {
            for config in [listed(&config), config] {
                let found = check(&config.to_string());
                assert!(errors(&found).is_empty(), "{config}: {:?}", errors(&found));
                assert!(
                    !found.iter().any(|one| ["unknown-key", "spelling"].contains(&one.code)),
                    "{config}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn what_plugins_refuse_is_an_error_at_its_place() {
    for plugin in ALL {
        for broken in sample::broken(plugin) {
            let mut path = String::new();
            for step in &broken.path {
                path = match step {
                    Value::String(key) => finding::below(&path, key),
                    step => finding::item(&path, usize::try_from(step.as_u64().unwrap()).unwrap()),
                };
            }
            let found = check(&broken.config.to_string());
            let is_told = errors(&found).iter().any(|one| one.path == path);
            assert!(is_told, "{path} in {}: {:?}", broken.config, words(&found));
            let in_list = check(&listed(&broken.config).to_string());
            assert!(!errors(&in_list).is_empty(), "in a list: {}", broken.config);
        }
    }
}

#[test]
fn findings_lead_to_the_place() {
    let text = r#"{
  "cniVersion": "1.0.0",
  "name": "net",
  "disablecheck": true,
  "plugins": [
    {
      "type": "bridge",
      "isGatway": true,
      "ISGATEWAY": true,
      "mtu": "1400",
      "capabilities": {"portMapping": true, "mac": 1, "bandwidth": true},
      "ipam": {
        "type": "host-local",
        "ranges": [
          [{"subnet": "10.1.0.0/16", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.5"}],
          [{"subnet": "10.2.0.0/16", "gateway": "10.3.0.1"}, {"subnet": "10.2.3.0/24"}]
        ],
        "route": []
      }
    },
    {"type": "portmap", "snat": true, "snat": false}
  ]
}"#;
    let mut found = check(text);
    found.sort_by_key(|one| (one.line, one.column));
    assert_eq!(
        words(&found),
        [
            "4:3 warning unknown-key disablecheck",
            "8:7 warning unknown-key plugins[0].isGatway",
            "9:7 warning spelling plugins[0].ISGATEWAY",
            "10:14 error wrong-type plugins[0].mtu",
            "11:24 warning unknown-capability plugins[0].capabilities.portMapping",
            "11:52 error wrong-type plugins[0].capabilities.mac",
            "11:55 warning unused-capability plugins[0].capabilities.bandwidth",
            "15:52 error range plugins[0].ipam.ranges[0][0].rangeStart",
            "16:49 warning range plugins[0].ipam.ranges[1][0].gateway",
            "16:62 error range plugins[0].ipam.ranges[1][1]",
            "18:9 warning unknown-key plugins[0].ipam.route",
            "21:5 warning chain plugins[1]",
            "21:25 warning duplicate-key plugins[1].snat",
        ]
    );
    let help = |path: &str| found.iter().find(|one| one.path == path).unwrap().help.as_str();
    assert_eq!(help("disablecheck"), "write `disableCheck`: the case matters here");
    assert_eq!(help("plugins[0].isGatway"), "`isGateway` may be meant");
    assert_eq!(help("plugins[0].capabilities.portMapping"), "`portMappings` may be meant");
    assert_eq!(help("plugins[0].mtu"), "write 1400 without quotes");
    assert_eq!(help("plugins[0].ipam.route"), "`routes` may be meant");
}

#[test]
fn networks_that_make_no_sense() {
    let mut wrong = Vec::new();
    for (config, expected) in [
        (json!([]), "1:1 error wrong-type "),
        (json!({"cniVersion": "1.0.0", "plugins": [{"type": "loopback"}]}), "1:1 error missing-key "),
        (json!({"cniVersion": "1.0.0", "name": "n", "plugins": []}), "1:44 error missing-key plugins"),
        (json!({"cniVersion": "1.0.0", "name": "n", "plugins": {}}), "1:44 error wrong-type plugins"),
        (json!({"cniVersion": "1.0.0", "name": "a/b", "plugins": [{"type": "loopback"}]}), "1:30 error bad-value name"),
        (json!({"cniVersion": "7.0.0", "name": "n", "type": "loopback"}), "1:15 error version cniVersion"),
        (json!({"cniVersion": "0.3.1", "name": "n", "type": "firewall"}), "1:41 error version type"),
        (json!({"cniVersion": "0.2.0", "name": "n", "type": "bridge"}), "1:1 error version "),
        (
            json!({"cniVersions": ["0.3.1", "x"], "name": "n", "plugins": [{"type": "loopback"}]}),
            "1:25 error version cniVersions[1]",
        ),
        (json!({"cniVersion": "1.0.0", "name": "n", "plugins": [7]}), "1:45 error wrong-type plugins[0]"),
        (json!({"cniVersion": "1.0.0", "name": "n", "plugins": [{}]}), "1:45 error missing-key plugins[0]"),
        (json!({"cniVersion": "1.0.0", "name": "n", "type": "firewall"}), "1:41 warning chain type"),
        (json!({"cniVersion": "1.0.0", "name": "n", "type": "static"}), "1:41 warning chain type"),
        (json!({"cniVersion": "1.0.0", "name": "n", "type": "host-device"}), "1:1 error missing-key "),
        (json!({"cniVersion": "1.0.0", "name": "n", "type": "ipvlan"}), "1:1 error missing-key "),
        (
            json!({"cniVersion": "1.0.0", "hairpinMode": true, "name": "n", "promiscMode": true, "type": "bridge"}),
            "1:53 error contradiction promiscMode",
        ),
        (
            json!({"cniVersion": "1.0.0", "name": "n", "type": "bridge", "vlanTrunk": [{"minID": 3}]}),
            "1:63 error missing-key vlanTrunk[0]",
        ),
        (
            json!({"cniVersion": "1.0.0", "name": "n", "type": "bandwidth", "egressRate": 8000}),
            "1:44 error contradiction ",
        ),
        (
            json!({"bridge": "a-name-of-16-byt", "cniVersion": "1.0.0", "name": "n", "type": "bridge"}),
            "1:11 error bad-value bridge",
        ),
        (
            json!({"bridge": "br/0", "cniVersion": "1.0.0", "name": "n", "type": "bridge"}),
            "1:11 error bad-value bridge",
        ),
        (json!({"cniVersion": "1.0.0", "mtu": 65536, "name": "n", "type": "bridge"}), "1:29 error bad-value mtu"),
        (json!({"cniVersion": "1.0.0", "mtu": 67, "name": "n", "type": "bridge"}), "1:29 error bad-value mtu"),
        (
            json!({"cniVersion": "1.0.0", "mac": "03:00:5e:10:00:01", "name": "n", "type": "macvlan"}),
            "1:29 error bad-value mac",
        ),
        (
            json!({"cniVersion": "1.0.0", "mac": "0000.0000.0000", "name": "n", "type": "tap"}),
            "1:29 error bad-value mac",
        ),
        (
            json!({"args": {"cni": {"mac": "ff-ff-ff-ff-ff-ff"}}, "cniVersion": "1.0.0", "name": "n", "type": "bridge"}),
            "1:23 error bad-value args.cni.mac",
        ),
        (
            json!({"capabilities": {"portMappings": true}, "cniVersion": "1.0.0", "conditionsV4": ["-p", "tcp"], "name": "n", "type": "portmap"}),
            "1:60 error bad-value conditionsV4",
        ),
        (
            json!({"capabilities": {"portMappings": true}, "cniVersion": "1.0.0", "conditionsV6": ["ip", "saddr", "10.0.0.0/8"], "name": "n", "type": "portmap"}),
            "1:60 warning bad-value conditionsV6",
        ),
        (
            json!({"cniVersion": "1.0.0", "ipam": {"dataDir": "x", "subnet": "10.1.0.0/24", "type": "host-local"}, "name": "n", "type": "bridge"}),
            "1:41 error bad-value ipam.dataDir",
        ),
    ] {
        let found = check(&config.to_string());
        let told = words(&found);
        let has = told
            .iter()
            .any(|one| one == expected || expected.ends_with("contradiction ") && one.contains("contradiction"));
        if !has {
            wrong.push(format!("{config}: {told:?} lacks {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Faults for which each ADD with `ipam.type: dhcp` would be refused.
#[test]
fn networks_with_dhcp_that_no_container_joins() {
    let long = "x".repeat(256);
    let some = "y".repeat(200);
    let socket = format!("/run/{}", "s".repeat(103));
    let many: Vec<Value> = (100..104).map(|code| json!({"option": code.to_string(), "value": some})).collect();
    let mut wrong = Vec::new();
    for (plugin, ipam, expected) in [
        (json!({"type": "ptp"}), json!({}), "error chain ipam.type: no DHCP server…makes its link after"),
        (json!({"type": "dummy"}), json!({}), "error chain ipam.type: …leads nowhere"),
        (json!({"type": "tap"}), json!({}), "error chain ipam.type: …opened the tap"),
        (json!({"type": "ipvlan", "mode": "l3s"}), json!({}), "error chain ipam.type: …takes no broadcasts"),
        (json!({"type": "ipvlan", "mode": "l2"}), json!({}), ""),
        (json!({"type": "bridge"}), json!({"families": ["ipv6"]}), ""),
        (
            json!({"type": "bridge", "isGateway": true}),
            json!({"families": ["ipv4", "ipv6"]}),
            "error contradiction isGateway: …link-local address",
        ),
        (
            json!({"type": "bridge", "isDefaultGateway": true}),
            json!({"families": ["ipv6"]}),
            "error contradiction isDefaultGateway: …link-local address",
        ),
        (
            json!({"type": "bridge", "isGateway": true}),
            json!({}),
            "warning contradiction isGateway: …a DHCP server chose",
        ),
        (json!({"type": "bridge", "isGateway": false}), json!({}), ""),
        (
            json!({"type": "macvlan"}),
            json!({"daemonSocketPath": socket}),
            "error bad-value ipam.daemonSocketPath: …the path has 108 bytes: a socket's path has at most 107",
        ),
        (json!({"type": "macvlan"}), json!({"daemonSocketPath": &socket[..107]}), ""),
        (
            json!({"type": "macvlan"}),
            json!({"request": [{"option": "6"}, {"option": "dns"}]}),
            "error bad-value ipam.request[1].option: Can not parse option \"dns\"",
        ),
        (
            json!({"type": "macvlan"}),
            json!({"provide": [{"value": "c1"}]}),
            "error missing-key ipam.provide[0]: …is missing",
        ),
        (
            json!({"type": "macvlan"}),
            json!({"provide": [{"option": "53", "value": "1"}]}),
            "error bad-value ipam.provide[0].option: …the message type, which the client sets itself",
        ),
        (
            json!({"type": "macvlan"}),
            json!({"provide": [{"option": "12", "value": long}]}),
            "error bad-value ipam.provide[0].value: value too long",
        ),
        (json!({"type": "macvlan"}), json!({"provide": many}), "error bad-value ipam.provide: …take 808 bytes"),
        (json!({"type": "macvlan"}), json!({"provide": many[..2]}), ""),
    ] {
        let mut config = json!({"cniVersion": "1.0.0", "name": "n", "ipam": {"type": "dhcp"}});
        for (at, more) in [("", plugin), ("/ipam", ipam)] {
            let at = config.pointer_mut(at).and_then(Value::as_object_mut).unwrap();
            at.extend(more.as_object().unwrap().clone());
        }
        let found = check(&config.to_string());
        let told: Vec<String> =
            words(&found).iter().zip(&found).map(|(words, one)| format!("{words}: {}", one.message)).collect();
        let is_as_expected = match expected {
            "" => told.is_empty(),
            _ => told.iter().any(|one| expected.split('…').all(|part| one.contains(part))),
        };
        if !is_as_expected || found.iter().any(|one| one.help.is_empty()) {
            wrong.push(format!("{config}: {told:?} lacks {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn cases_that_only_look_odd() {
    for config in [
        json!({"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "other", "isGatway": 1, "ipam": {"type": "more", "x": 1}}]}),
        // Plugins of other vendors complete these keys, or don't run the program that `ipam.type` names.
        json!({"cniVersion": "0.3.0", "name": "n", "plugins": [{"type": "antrea", "ipam": {"type": "host-local"}}]}),
        json!({"cniVersion": "0.3.1", "name": "n", "plugins": [{"type": "calico", "ipam": {"type": "host-local", "subnet": "usePodCidr"}}]}),
        json!({"cniVersion": "0.3.1", "name": "n", "type": "calico", "ipam": {"type": "loopback"}}),
        // These keys are for people and editors.
        json!({"$schema": "x", "Documentation": "x", "_comment": [], "//": 1, "cniVersion": "1.0.0", "name": "n", "plugins": [
            {"type": "loopback", "description": "x", "_x": 1}]}),
        json!({"cniVersion": "1.0.0", "name": "n", "type": "bridge", "bridge": "fifteen-letters", "mtu": 65535}),
        json!({"cniVersion": "1.0.0", "name": "n", "type": "ptp", "mtu": 0, "ipam": {"type": "static", "addresses": [{"address": "10.1.0.2/24"}]}}),
        json!({"name": "n", "plugins": [{"type": "loopback"}]}),
        json!({"cniVersions": ["0.4.0", "9.0.0"], "name": "n", "plugins": [{"type": "loopback"}]}),
        json!({"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "tap"}, {"type": "bridge", "bridge": "br0"}]}),
        json!({"cniVersion": "1.0.0", "name": "n", "disableCheck": "TRUE", "plugins": [{"type": "loopback"}]}),
    ] {
        let found = check(&config.to_string());
        assert!(found.is_empty(), "{config}: {found:?}");
    }
}

/// A NetworkAttachmentDefinition has its name outside of the configuration.
#[test]
fn a_network_without_a_name_is_one_for_multus() {
    for text in [r#"{"cniVersion": "0.3.1", "type": "loopback"}"#, r#"{"plugins": [{"type": "loopback"}]}"#] {
        for (is_installed, expected) in [(true, "1:1 error missing-key "), (false, "1:1 warning missing-key ")] {
            let (node, mut sheet) = (text::read(text).unwrap(), Sheet::new("f", text));
            network::check(&mut sheet, &node, is_installed).unwrap();
            assert_eq!(words(&sheet.findings), [expected], "{text}");
        }
    }
}

#[test]
fn a_link_to_one_of_our_plugins_has_its_table() {
    let text = r#"{"cniVersion": "0.3.1", "name": "n", "plugins": [{"type": "cnv-bridge", "isGatway": true}, {"type": "bridge"}]}"#;
    let found = |link: bool| {
        let (node, mut sheet) = (text::read(text).unwrap(), Sheet::new("f", text));
        if link {
            sheet.other_name("cnv-bridge", "bridge".to_owned());
        }
        let network = network::check(&mut sheet, &node, true).unwrap();
        network::chain(&mut sheet, &network.entries);
        words(&sheet.findings)
    };
    assert!(found(false).is_empty(), "{:?}", found(false));
    assert_eq!(found(true), ["1:73 warning unknown-key plugins[0].isGatway", "1:101 warning chain plugins[1].type"]);
}

/// Two spellings of a key give one finding, and so does an access VLAN in the trunk.
#[test]
fn what_contradicts_itself_is_told_once() {
    let found = check(
        r#"{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "mtu": 1400, "MTU": 1300, "vlan": 5, "vlanTrunk": [{"id": 7}, {"minID": 4, "maxID": 8}]}"#,
    );
    assert_eq!(words(&found), ["1:56 warning duplicate-key mtu", "1:118 warning contradiction vlanTrunk[1]"]);
    assert!(found[0].message.contains("`mtu` is given again, as `MTU`"), "{}", found[0].message);
}

/// Returns subnets that don't overlap, each formatted by a function, joined by commas.
fn subnets(count: u32, form: impl Fn(&str) -> String) -> String {
    let subnets =
        (0..count).map(|number| Ipv4Addr::from_bits((10 << 24) + (number << 8) % (1 << 24) + (number >> 16 << 4)));
    subnets.map(|subnet| form(&format!("{subnet}/28"))).collect::<Vec<_>>().join(",")
}

/// Checks files with many keys, plugins and subnets.
fn check_files_with_many_of(count: u32) {
    let count_of_keys = usize::try_from(count).unwrap();
    let keys: String = (0..count).map(|number| format!("\"key{number}\":1,")).collect();
    let same = "\"mtu\":1,".repeat(count_of_keys);
    for text in [
        format!("{{{keys}\"cniVersion\":\"1.0.0\",\"name\":\"n\",\"type\":\"bridge\"}}"),
        format!("{{{same}\"cniVersion\":\"1.0.0\",\"name\":\"n\",\"type\":\"bridge\",\"isGateway\":7}}"),
        format!(
            "{{\"cniVersion\":\"1.0.0\",\"name\":\"n\",\"type\":\"tuning\",\"sysctl\":{{{}\"x\":\"\"}}}}",
            keys.replace(":1", ":\"\"")
        ),
        format!(
            "{{\"cniVersion\":\"1.0.0\",\"name\":\"n\",\"plugins\":[{}{{\"type\":7}}]}}",
            "{\"type\":\"x\"},".repeat(count_of_keys)
        ),
    ] {
        let found = check(&text);
        assert!(found.len() > 1 || text.contains("plugins"), "{}", found.len());
    }
    let of_one_set = subnets(count, |subnet| format!("{{\"subnet\":\"{subnet}\"}}"));
    let of_many_sets = subnets(count, |subnet| format!("[{{\"subnet\":\"{subnet}\"}}]"));
    let first = "{\"subnet\":\"10.0.0.0/28\"}";
    let overlap = format!("range set 1 overlaps with {}", count + 1);
    for (ranges, words) in [
        (format!("[{of_one_set}]"), None),
        (of_many_sets.clone(), None),
        (format!("[{of_one_set},{first}]"), Some("invalid range set 0: subnets 10.0.0.")),
        // The set without a range counts too.
        (format!("[],{of_many_sets},[{first}]"), Some(overlap.as_str())),
    ] {
        let ipam = format!("{{\"type\":\"host-local\",\"ranges\":[{ranges}]}}");
        let found = check(&format!("{{\"cniVersion\":\"1.0.0\",\"name\":\"n\",\"type\":\"bridge\",\"ipam\":{ipam}}}"));
        let told: Vec<&str> =
            found.iter().map(|one| one.message.as_str()).filter(|message| message.contains("overlap")).collect();
        assert_eq!(told.len(), usize::from(words.is_some()), "{told:?}");
        assert!(told.iter().zip(words).all(|(told, words)| told.contains(words)), "{told:?}");
    }
}

/// The time for a file grows only linearly with its size.
///
/// A bound in seconds fails on a busy node. So the test counts this thread's processor time, and compares two sizes.
#[test]
fn the_time_for_a_file_grows_with_its_size() {
    let processor_time = |count| {
        let before = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        check_files_with_many_of(count);
        let after = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        std::time::Duration::try_from(after).unwrap() - std::time::Duration::try_from(before).unwrap()
    };
    let (few, many) = (processor_time(2_500), processor_time(20_000));
    // A file of 8 times the size would take 64 times the time if each key were compared with each other key.
    assert!(many < 24 * few, "{few:?} for 2,500 of each, {many:?} for 20,000");
}

#[test]
fn text_fits_a_terminal() {
    let found =
        check(&json!({"cniVersion": "1.0.0", "name": "n\u{1b}[2J", "type": "bridge", "\u{202e}x": 1}).to_string());
    let text = finding::text(&found);
    assert!(text.is_ascii() && !text.contains('\u{1b}'), "{text}");
}

/// Returns numbers that look random, and are the same in each run.
fn numbers(mut state: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        usize::try_from(state >> 33).unwrap() % below.max(1)
    }
}

#[test]
fn nothing_makes_it_panic() {
    const PARTS: [&str; 16] =
        ["{", "}", "[", "]", ",", ":", "\"", "\\", "null", "-1", "1e400", "\u{fc}", "\n", "\"type\":7", "{}", "[[]]"];
    let mut number = numbers(7);
    for round in 0..4000 {
        let plugin = ALL[number(ALL.len())];
        let mut text = sample::with_all(plugin).to_string();
        for _ in 0..=number(3) {
            let at = number(text.len());
            let end = (at + number(6)).min(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(end) {
                text.replace_range(at..end, PARTS[number(PARTS.len())]);
            }
        }
        check(&text);
        let soup: String = (0..number(12)).map(|_| PARTS[number(PARTS.len())]).collect();
        let is_json = serde_json::from_str::<postern_cni::Json>(&soup).is_ok();
        assert_eq!(text::read(&soup).is_ok(), is_json, "{round}: {soup}");
        let _ = text::Positions::new(&soup).of(number(40));
    }
}

#[test]
fn it_reads_what_serde_reads() {
    for plugin in ALL {
        let config = sample::with_all(plugin);
        for text in [config.to_string(), serde_json::to_string_pretty(&config).unwrap()] {
            assert_eq!(text::read(&text).unwrap().to_value(), config, "{text}");
        }
    }
}
