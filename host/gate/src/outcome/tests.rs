use super::*;
use crate::context::RunParts;
use crate::others;
use crate::own::OwnAddress;
use postern_cni::Version;
use postern_policy::Policy;

fn parts(conf: &str, verb: Verb) -> RunParts {
    RunParts::of_test(Request::of_test("", verb, conf), Path::new("/nonexistent"))
}

/// Returns the refusal of this result of `plugin`, in a network with addresses from `ipam`. The attachment has
/// 10.9.0.2/24 with the gateway 10.9.0.254, and 10.8.0.2/24 without a gateway.
fn message(plugin: &str, policy: &str, address: &str, gateway: &str) -> String {
    let mut parts = parts(r#"{"cniVersion":"1.0.0","name":"n","ipam":{"type":"ipam"}}"#, Verb::Add);
    let run = parts.context();
    let own = |net: &str, gateway: Option<&str>| OwnAddress {
        net: net.parse().unwrap(),
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
    };
    run.own.addresses = vec![own("10.9.0.2/24", Some("10.9.0.254")), own("10.8.0.2/24", None)];
    let granted = Policy::parse(policy, &format!("{plugin}.toml")).unwrap().resolve(&Json::Null, "").unwrap();
    let gateway = if gateway.is_empty() { String::new() } else { format!(r#","gateway":"{gateway}""#) };
    let stdout = format!(r#"{{"cniVersion":"1.0.0","ips":[{{"address":"{address}"{gateway}}}]}}"#);
    match read(&facts(&run, &Common::default()), &granted, plugin, Verb::Add, &stdout, 0, false) {
        Ok(_) => String::new(),
        Err(error) => {
            assert_eq!(error.code, 999);
            error.to_string()
        }
    }
}

/// Returns the facts of a run without links and without demands of policy.
fn facts<'a>(run: &'a Context<'_>, common: &'a Common) -> RunFacts<'a> {
    let (request, own) = (run.request, run.own.addresses.as_slice());
    RunFacts { request, own, common, seen: &|_| Ok(None), unmet_demand: &|_| Ok(None) }
}

#[test]
fn what_is_said_of_a_link_is_what_there_is() {
    let directory = std::env::temp_dir().join(format!("postern-sockets-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let socket = directory.join("vhost.sock");
    let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::os::unix::fs::symlink(&socket, directory.join("link.sock")).unwrap();
    let place = directory.to_str().unwrap();
    let message = |key: &str, seen: Option<LinkAttributes>, previous: &str| {
        let conf = format!(
            r#"{{"cniVersion":"1.1.0","name":"n","prevResult":{{"cniVersion":"1.1.0","interfaces":[{previous}]}}}}"#
        );
        let mut parts = parts(&conf, Verb::Add);
        let (run, common) = (parts.context(), Common::default());
        let facts = RunFacts { seen: &|_| Ok(seen.clone()), ..facts(&run, &common) };
        let policy = format!("[result]\nsockets = [\"{place}/*.sock\"]");
        let granted = Policy::parse(&policy, "x.toml").unwrap().resolve(&Json::Null, "").unwrap();
        let stdout =
            format!(r#"{{"cniVersion":"1.1.0","interfaces":[{{"name":"eth0","sandbox":"/run/netns/c",{key}}}]}}"#);
        let read = read(&facts, &granted, "x", Verb::Add, &stdout, 0, false);
        read.map_or_else(|error| error.to_string(), |_| String::new())
    };
    let device = "0000:3b:00.1";
    let seen = || Some(LinkAttributes { mtu: 9000, pci: Some(device.to_owned()) });
    let plain = || Some(LinkAttributes { mtu: 9000, pci: None });
    let pci = format!(r#""pciID":"{device}""#);
    let before = format!(r#"{{"name":"eth0","sandbox":"/run/netns/c",{pci},"mtu":1,"socketPath":"/run/x"}}"#);
    let at = |file: &str| format!(r#""socketPath":"{place}/{file}""#);
    for (key, seen, previous, expected) in [
        (r#""mtu":9000"#, seen(), "", ""),
        (pci.as_str(), seen(), "", ""),
        // The values of an earlier plugin count, because it had more information.
        (&pci, plain(), before.as_str(), ""),
        (r#""socketPath":"/run/x","mtu":1"#, None, &before, ""),
        (&at("vhost.sock"), None, "", ""),
        (r#""mtu":1500"#, seen(), "", r#"plugin "x" claims MTU 1500 for interface "eth0", which has 9000"#),
        (r#""mtu":-1"#, seen(), "", r#"plugin "x" claims MTU -1 for interface "eth0", which has 9000"#),
        (r#""mtu":1500"#, None, "", r#"plugin "x" claims interface "eth0", which does not exist"#),
        (&pci, plain(), "", r#"claims PCI device "0000:3b:00.1" for interface "eth0", which belongs to none"#),
        (r#""pciID":"0000:3b:00.2""#, seen(), &before, "which belongs to 0000:3b:00.1"),
        (r#""socketPath":"/run/y""#, seen(), &before, "sockets = [\""),
        (&at("missing.sock"), None, "", "No such file or directory"),
        (&at("link.sock"), None, "", "it is no socket"),
    ] {
        let message = message(key, seen, previous);
        assert!(message.contains(expected) && message.is_empty() == expected.is_empty(), "{key}: {message}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Code 110 belongs to the gate. A guest may use the code only for a refusal of this run. The details are then this
/// refusal's.
#[test]
fn a_refusal_is_the_gates() {
    let mut parts = parts(r#"{"cniVersion":"1.0.0","name":"n"}"#, Verb::Add);
    let (run, mut common) = (parts.context(), Common::default());
    let granted = Policy::parse("", "x.toml").unwrap().resolve(&Json::Null, "").unwrap();
    let says = |common: &Common, msg: &str| {
        let stdout =
            format!(r#"{{"cniVersion":"1.0.0","code":110,"msg":"{msg}","details":"[grant.bridge] names = *"}}"#);
        read(&facts(&run, common), &granted, "x", Verb::Add, &stdout, 1, false).unwrap_err()
    };
    let own = says(&common, "policy does not allow x to have bridge cni0");
    assert_eq!((own.code, own.details.as_str()), (999, ""));
    assert!(own.msg.starts_with("plugin \"x\" failed with code 110, which only the gate may use"), "{}", own.msg);
    for words in ["no", "other"] {
        common.note(&OpError::new(postern_types::ErrorCode::Denied, "br0", words).hint("the gate's"));
    }
    common.note(&OpError::new(postern_types::ErrorCode::Exists, "br0", "there already"));
    let refused = says(&common, "cmdAdd failed: other");
    assert_eq!((refused.code, refused.details.as_str()), (110, "br0; the gate's"));
    assert_eq!(says(&common, "there already").code, 999);
    assert_eq!(crate::errors::of_program(Error::new(110, "m")), Error::internal("m"));
    assert_eq!(crate::errors::of_program(Error::new(111, "m")), Error::new(111, "m"));
}

/// Data of an earlier plugin may be passed on, and the attachment's interface may get another address.
#[test]
fn what_only_passes_through_is_the_earlier_plugins() {
    let conf = r#"{"cniVersion":"1.0.0","name":"n","prevResult":{"cniVersion":"1.0.0","interfaces":[null,
        {"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"0af3"},{"name":"veth1","mac":"02:00:00:00:00:02"}],"ips":[
        {"address":"10.9.0.2/24","gateway":"fd00::1","interface":-1},{"address":"10.8.0.2/24","interface":9}]}}"#;
    let mut parts = parts(conf, Verb::Add);
    let run = parts.context();
    let granted = Policy::parse("", "x.toml").unwrap().resolve(&Json::Null, "").unwrap();
    let same = run.request.conf.previous_result().unwrap().unwrap();
    let passes = |change: &dyn Fn(&mut CniResult)| {
        let mut result = same.clone();
        change(&mut result);
        let stdout = result.to_json(Version::V1_0_0).unwrap();
        read(&facts(&run, &Common::default()), &granted, "x", Verb::Add, &stdout, 0, false).is_ok()
    };
    assert!(passes(&|_| {}));
    assert!(passes(&|result| "02:00:00:00:00:09".clone_into(&mut result.interfaces[1].mac)));
    assert!(passes(&|result| result.ips.truncate(1)));
    for refused in [
        &(|result: &mut CniResult| "02:00:00:00:00:09".clone_into(&mut result.interfaces[2].mac))
            as &dyn Fn(&mut CniResult),
        &|result| "/run/netns/d".clone_into(&mut result.interfaces[1].sandbox),
        &|result| result.ips[0].gateway = Some("fd00::2".parse().unwrap()),
        &|result| result.ips[1].interface = Some(8),
        &|result| result.ips[1].interface = Some(-1),
        &|result| result.ips[1].address = "10.8.0.3/24".parse().unwrap(),
    ] {
        assert!(!passes(refused));
    }
}

/// The table has the parts of this `prevResult` that count without a record.
#[test]
fn an_earlier_result_counts_by_record_or_policy() {
    let conf = r#"{"cniVersion":"1.0.0","name":"n","prevResult":{"cniVersion":"1.0.0","ips":[
        {"address":"10.9.0.2/24","gateway":"10.9.0.7"},{"address":"10.8.0.2/24"}]}}"#;
    for (verb, policy, expected) in [
        (Verb::Add, "", &[][..]),
        (Verb::Add, "[previous]\naddresses = [\"10.9.0.0/16\"]", &["10.9.0.2/24"]),
        (Verb::Add, "[previous]\naddresses = [\"${config.x | 10.8.0.2/24}\"]", &["10.8.0.2/24"]),
        (Verb::Check, "", &["10.9.0.2/24", "10.8.0.2/24"]),
    ] {
        let mut parts = parts(conf, verb);
        let mut run = parts.context();
        let previous = run.request.conf.previous_result().unwrap().unwrap();
        let granted = Policy::parse(policy, "x.toml").unwrap().resolve(&Json::Null, "").unwrap();
        others::take_over(&mut run, &previous, Some(&granted)).unwrap();
        let own: Vec<String> = run.own.addresses.iter().map(|own| own.net.to_string()).collect();
        assert_eq!(own, expected, "{policy}");
        // The result may be passed on unchanged, even if its parts do not count.
        let same = r#"{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.2/24","gateway":"10.9.0.7"}]}"#;
        assert!(read(&facts(&run, &Common::default()), &granted, "x", Verb::Add, same, 0, false).is_ok());
        let other = same.replace("10.9.0.7", "10.9.0.8");
        assert!(read(&facts(&run, &Common::default()), &granted, "x", Verb::Add, &other, 0, false).is_err());
    }
}

#[test]
fn an_interface_plugin_has_what_the_attachment_has() {
    for (address, gateway, expected) in [
        ("10.9.0.2/24", "10.9.0.254", ""),
        ("10.9.0.2/24", "", ""),
        // Without a gateway the first address of the network is used, and bridge prints it.
        ("10.8.0.2/24", "10.8.0.1", ""),
        ("10.9.0.2/24", "10.9.0.1", "plugin \"bridge\" claims gateway 10.9.0.1 for 10.9.0.2/24"),
        ("10.9.0.2/16", "", "plugin \"bridge\" claims address 10.9.0.2/16"),
        ("10.9.0.3/24", "", "plugin \"bridge\" claims address 10.9.0.3/24"),
    ] {
        // `[result]` has addresses and gateways for IPAM plugins only, so the policy changes nothing for bridge.
        for policy in ["", "[result]\naddresses = [\"0.0.0.0/0\"]\ngateways = [\"0.0.0.0/0\"]"] {
            let message = message("bridge", policy, address, gateway);
            assert!(message.starts_with(expected) && message.is_empty() == expected.is_empty(), "{address}: {message}");
        }
    }
}

#[test]
fn an_ipam_plugin_hands_out_what_it_leased_and_what_policy_names() {
    let result = "[result]\naddresses = [\"10.7.0.0/16\"]\ngateways = [\"10.7.0.1\"]";
    for (policy, address, gateway) in [
        ("", "10.9.0.2/24", "10.9.0.254"),
        ("", "10.9.0.2/24", ""),
        (result, "10.7.0.9/24", "10.7.0.1"),
        (result, "10.7.0.9/24", ""),
        // The gateway of an operator's entry may be outside of the network.
        ("[result]\ngateways = [\"10.9.0.2/24 via 10.7.0.1\"]", "10.9.0.2/24", "10.7.0.1"),
    ] {
        assert_eq!(message("ipam", policy, address, gateway), "", "{address} {gateway}");
    }
    for (policy, address, gateway, what, line) in [
        ("", "10.7.0.9/24", "", "address 10.7.0.9/24", "addresses = [\"10.7.0.0/24\"]"),
        (
            result,
            "10.6.0.9/24",
            "10.7.0.1",
            "address 10.6.0.9/24",
            "addresses = [\"10.7.0.0/16\", \"10.6.0.0/24\"], gateways = [\"10.7.0.1\"]",
        ),
        (
            result,
            "10.7.0.9/8",
            "",
            "address 10.7.0.9/8",
            "addresses = [\"10.7.0.0/16\", \"10.0.0.0/8\"], gateways = [\"10.7.0.1\"]",
        ),
        (
            result,
            "10.7.0.9/24",
            "10.7.0.2",
            "gateway 10.7.0.2 for 10.7.0.9/24",
            "addresses = [\"10.7.0.0/16\"], gateways = [\"10.7.0.1\", \"10.7.0.2\"]",
        ),
        ("", "10.9.0.2/24", "10.9.0.1", "gateway 10.9.0.1 for 10.9.0.2/24", "gateways = [\"10.9.0.1\"]"),
        // The gateway is outside of the network of its address.
        (
            result,
            "10.9.0.2/24",
            "10.7.0.1",
            "gateway 10.7.0.1 for 10.9.0.2/24",
            "addresses = [\"10.7.0.0/16\"], gateways = [\"10.7.0.1\", \"10.9.0.0/24 via 10.7.0.1\"]",
        ),
    ] {
        let expected = format!(
            "plugin \"ipam\" hands out {what}, which it neither leased nor may choose; an operator can allow it with \
             `result = {{ {line} }}` in /etc/postern/policy/ipam.toml, before its first table"
        );
        assert_eq!(message("ipam", policy, address, gateway), expected);
    }
}

#[test]
fn gateways_of_another_ip_version_are_nobodys() {
    let policy = "[result]\naddresses = [\"10.9.0.2/16\"]\ngateways = [\"10.9.0.2/16 via 2001:db8:1::1\"]";
    for plugin in ["bridge", "ipam"] {
        assert_eq!(
            message(plugin, policy, "10.9.0.2/16", "2001:db8:1::1"),
            format!(
                "plugin \"{plugin}\" says gateway 2001:db8:1::1 for 10.9.0.2/16: they are of different IP versions"
            )
        );
    }
}
