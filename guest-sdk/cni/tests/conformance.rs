//! Every example of the specifications is read, and every result is converted to every version and back.
//!
//! The examples are data of the specifications, each in one file under `examples/<specification>/<kind>-<what>.json`.
//! Every version has examples. If a specification has no example of a kind, the example is its grammar with values.
//! Comments, ellipses and a missing comma are corrected. The placeholders in the grammars of results and errors are
//! replaced by values. Repetitions are left out.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test that calls them")]

mod carried;

use carried::carried;
use postern_cni::{
    CniResult, Env, Error, Json, NetConf, Verb, Version, VersionInfo, check_version, config_version, validate_conf,
};
use std::path::Path;

const LIMIT: usize = 1 << 20;

struct Example {
    specification: Version,
    name: String,
    text: String,
}

impl Example {
    fn json(&self) -> Json {
        Json::parse(self.text.as_bytes(), LIMIT).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// Returns the examples of one kind. `count` is their number, so that no example gets lost.
fn examples(kind: &str, count: usize) -> Vec<Example> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples");
    let mut found = Vec::new();
    for directory in std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()) {
        let specification = Version::parse(directory.file_name().unwrap().to_str().unwrap()).unwrap();
        for path in std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()) {
            let file = path.file_name().unwrap().to_str().unwrap();
            if file.starts_with(&format!("{kind}-")) {
                let name = format!("{specification}/{file}");
                found.push(Example { specification, name, text: std::fs::read_to_string(&path).unwrap() });
            }
        }
    }
    assert_eq!(found.len(), count, "examples of kind {kind}");
    found
}

/// Does everything that a plugin does with a configuration before it acts.
fn accept(text: &str, verb: Verb) -> Result<(NetConf, Version, Option<CniResult>), Error> {
    let json = validate_conf(text.as_bytes(), LIMIT)?;
    let version = check_version(verb, &config_version(&json)?, &Version::ALL)?;
    let conf = NetConf::parse(json)?;
    let previous = conf.previous_result()?;
    Ok((conf, version, previous))
}

#[test]
fn configurations() {
    for example in examples("config", 22) {
        if example.name == "0.2.0/config-macvlan.json" {
            // Its version is "0.1", which no plugin accepts.
            let error = accept(&example.text, Verb::Add).unwrap_err();
            assert_eq!((error.code, error.msg.as_str()), (1, "incompatible CNI versions"));
            continue;
        }
        for verb in [Verb::Add, Verb::Del] {
            let (conf, version, previous) =
                accept(&example.text, verb).unwrap_or_else(|error| panic!("{}: {error}", example.name));
            assert!(["dbnet", "pci", "wan"].contains(&conf.name.as_str()));
            assert!(!conf.plugin_type.is_empty());
            assert_eq!(conf.version(), Some(version));
            assert_eq!(previous.is_some(), example.text.contains("prevResult"), "{}", example.name);
            assert_eq!(*conf.raw(), example.json());
            if let Some(previous) = previous {
                round_trips(&previous, &example.name);
            }
        }
        let check = accept(&example.text, Verb::Check);
        assert_eq!(check.is_ok(), example.specification >= Verb::Check.since(), "{}", example.name);
        for verb in [Verb::Gc, Verb::Status] {
            match accept(&example.text, verb) {
                Ok(_) => assert!(example.specification >= verb.since(), "{}", example.name),
                Err(error) => {
                    assert!(example.specification < verb.since(), "{}", example.name);
                    assert_eq!((error.code, error.msg), (1, format!("config version does not allow {verb}")));
                }
            }
        }
    }
}

#[test]
fn what_plugins_read_from_them() {
    let example = |name: &str| examples("config", 22).into_iter().find(|example| example.name == name).unwrap();
    let (conf, _, _) = accept(&example("1.0.0/config-check-bridge.json").text, Verb::Check).unwrap();
    assert_eq!(
        (conf.ipam_type.as_str(), conf.dns.nameservers.as_slice()),
        ("host-local", &["10.1.0.1".to_owned()][..])
    );
    assert_eq!(conf.fields().str("bridge").unwrap(), Some("cni0"));
    assert_eq!(conf.fields().strings("keyA").unwrap().unwrap().len(), 3);
    let previous = conf.previous_result().unwrap().unwrap();
    assert_eq!(previous.ips[0].interface, Some(2));
    assert_eq!(previous.interfaces[2].sandbox, "/var/run/netns/blue");

    let (conf, _, _) = accept(&example("1.0.0/config-add-tuning.json").text, Verb::Add).unwrap();
    assert_eq!(conf.runtime_config().unwrap().str("mac").unwrap(), Some("00:11:22:33:44:66"));
    let sysctl = conf.fields();
    assert_eq!(sysctl.map("sysctl").unwrap().unwrap()["net.core.somaxconn"], &Json::from("500"));

    let (conf, _, _) = accept(&example("0.3.1/config-ovs.json").text, Verb::Add).unwrap();
    assert_eq!(conf.fields().int("vxlanID").unwrap(), Some(42));
    let ipam = conf.fields().object("ipam").unwrap().unwrap();
    assert_eq!(ipam.objects("routes").unwrap().unwrap()[1].cidr("dst").unwrap(), Some("10.4.0.0/16".parse().unwrap()));
}

#[test]
fn fragments() {
    for example in examples("fragment", 2) {
        // These configurations have no name, so no plugin would get them in this form.
        assert_eq!(accept(&example.text, Verb::Add).unwrap_err(), Error::config("missing network name"));
        let conf = NetConf::parse(example.json()).unwrap();
        assert_eq!(conf.plugin_type, "myPlugin");
        let mappings = conf.runtime_config().unwrap().objects("portMappings").unwrap();
        assert_ne!(conf.capabilities.contains_key("portMappings"), mappings.is_some());
    }
}

#[test]
fn lists() {
    for example in examples("list", 3) {
        let json = example.json();
        let list = json.fields("NetConfList").unwrap();
        for plugin in list.list("plugins").unwrap().unwrap() {
            let Json::Object(mut members) = plugin.clone() else { panic!("{}: no object", example.name) };
            for key in ["cniVersion", "name"] {
                members.push((key.to_owned(), list.get(key).unwrap().clone()));
            }
            let text = serde_json::to_string(&Json::Object(members)).unwrap();
            let (conf, version, _) = accept(&text, Verb::Add).unwrap();
            assert_eq!((conf.name.as_str(), version), ("dbnet", example.specification));
        }
    }
}

#[test]
fn results() {
    for example in examples("result", 17) {
        let version = example.specification.as_str();
        let result = CniResult::parse_output(example.text.as_bytes(), LIMIT, version)
            .unwrap_or_else(|error| panic!("{}: {error}", example.name));
        assert_ne!(result, CniResult::default(), "{}", example.name);
        assert_eq!(CniResult::parse_previous(example.json(), version), Ok(result.clone()), "{}", example.name);
        round_trips(&result, &example.name);
    }
}

/// Prints a result in every version and reads it back. The read result must have exactly the data that the version can
/// carry.
fn round_trips(result: &CniResult, name: &str) {
    for version in Version::ALL {
        let Some(expected) = carried(result, version) else {
            let error = result.to_json(version).unwrap_err();
            assert_eq!((error.code, error.msg.as_str()), (999, "cannot convert: no valid IP addresses"));
            continue;
        };
        let printed = result.to_json(version).unwrap();
        for config_version in [version, Version::LATEST] {
            // The version that the result declares counts, not the configuration's.
            let read = CniResult::parse_output(printed.as_bytes(), LIMIT, config_version.as_str()).unwrap();
            assert_eq!(read, expected, "{name} in {version}");
        }
        assert_eq!(expected.to_json(version).unwrap(), printed, "{name} in {version}");
    }
}

#[test]
fn errors() {
    for example in examples("error", 5) {
        let error = Error::parse(&example.json()).unwrap();
        assert_eq!(error.code, if example.name.contains("status") { 50 } else { 7 });
        assert!(!error.msg.is_empty() && !error.details.is_empty());
        let printed = Json::parse(error.to_json().as_bytes(), LIMIT).unwrap();
        assert_eq!(Error::parse(&printed).unwrap(), error);
    }
}

#[test]
fn version_answers() {
    for example in examples("version", 7) {
        let info = VersionInfo::parse(&example.json()).unwrap();
        assert_eq!(info.cni_version, example.specification.as_str());
        let known: Vec<&str> = Version::ALL.iter().map(|version| version.as_str()).collect();
        assert_eq!(info.supported, known[..info.supported.len()]);
        assert_eq!(info.supported.last().unwrap(), example.specification.as_str());
    }
}

#[test]
fn hostile_standard_input() {
    let named = |rest: &str| format!(r#"{{"cniVersion":"1.1.0","name":"n","type":"t",{rest}}}"#);
    let cases: &[(Vec<u8>, u32)] = &[
        (b"".to_vec(), 6),
        (b"null".to_vec(), 7),
        (b"[]".to_vec(), 6),
        (b"\"n\"".to_vec(), 6),
        (b"1".to_vec(), 6),
        (b"true".to_vec(), 6),
        (b"{}".to_vec(), 7),
        (b"\0".to_vec(), 6),
        ("[".repeat(10_000).into_bytes(), 6),
        ("{\"a\":".repeat(10_000).into_bytes(), 6),
        (named(&format!(r#""x":{}{}"#, "[".repeat(10_000), "]".repeat(10_000))).into_bytes(), 6),
        (named(r#""x":1e999"#).into_bytes(), 6),
        (named("\"x\":\"\u{1}\"").into_bytes(), 6),
        (named("\"x\":\"\0\"").into_bytes(), 6),
        ([named(r#""x":1"#).as_bytes(), b"{}"].concat(), 6),
        ([named(r#""x":1"#).as_bytes(), b"\xff"].concat(), 6),
        (b"{\"name\":\"\xff\"}".to_vec(), 7),
        (named(r#""name":"a\u0000""#).into_bytes(), 7),
        (named(r#""NAME":"../etc""#).into_bytes(), 7),
        (named(r#""name":7"#).into_bytes(), 6),
        (named(r#""cniversion":7"#).into_bytes(), 6),
        (named(r#""cniversion":"1.1""#).into_bytes(), 1),
        (named(r#""type":7"#).into_bytes(), 999),
        (named(r#""prevResult":{"cniVersion":"0.4.0"}"#).into_bytes(), 999),
    ];
    for (bytes, code) in cases {
        let json = validate_conf(bytes, LIMIT);
        let outcome = json.and_then(|json| {
            check_version(Verb::Add, &config_version(&json)?, &Version::ALL)?;
            NetConf::parse(json)?.previous_result()
        });
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned();
        assert_eq!(outcome.map_err(|error| error.code), Err(*code), "{shown}");
    }
    // A legal but unusual configuration: equal keys (the last key counts), and a number that only a double can hold.
    let odd = named(&format!(r#""name":"last","x":{}"#, "9".repeat(300)));
    assert_eq!(accept(&odd, Verb::Add).unwrap().0.name, "last");
    // As in Go, invalid characters become U+FFFD.
    for no_character in [&b"\xff"[..], br"\ud800"] {
        let odd = [&b"{\"cniVersion\":\"1.1.0\",\"name\":\"n\",\"type\":\""[..], no_character, b"\"}"].concat();
        let json = validate_conf(&odd, LIMIT).unwrap();
        assert_eq!(NetConf::parse(json).unwrap().plugin_type, "\u{fffd}");
    }
}

#[test]
fn the_whole_way_of_a_request() {
    let step = |command: &str, stdin: &str| -> Result<(Verb, Option<Version>), Error> {
        let env = Env {
            command: command.into(),
            container_id: "c".into(),
            netns: "/proc/1/ns/net".into(),
            ifname: "eth0".into(),
            path: "/bin".into(),
            ..Env::default()
        };
        if env.validate()? == Some(Verb::Version) {
            return Ok((Verb::Version, None));
        }
        let json = validate_conf(stdin.as_bytes(), LIMIT)?;
        let verb = env.verb()?;
        Ok((verb, Some(check_version(verb, &config_version(&json)?, &Version::ALL)?)))
    };
    assert_eq!(step("VERSION", "not JSON"), Ok((Verb::Version, None)));
    assert_eq!(step("ADD", r#"{"name":"n"}"#), Ok((Verb::Add, Some(Version::V0_1_0))));
    // An unknown verb is refused after the configuration.
    assert_eq!(step("FOO", "").unwrap_err().code, 6);
    assert_eq!(step("FOO", "{}").unwrap_err().code, 7);
    assert_eq!(step("FOO", r#"{"name":"n"}"#).unwrap_err().msg, "unknown CNI_COMMAND: FOO");
    assert_eq!(step("CHECK", r#"{"name":"n"}"#).unwrap_err().msg, "config version does not allow CHECK");
}
