use super::*;
use postern_guest::fake::{self, Ipam, Kernel, Outcome, Subject};
use postern_guest::types::{ErrorCode, OpError, SubnetFile};

const RESULT: &str = r#"{"cniVersion":"1.1.0","ips":[{"address":"10.244.1.2/24","gateway":"10.244.1.1"}]}"#;

fn node() -> Kernel {
    let file = SubnetFile {
        networks: vec!["10.244.0.0/16".parse().unwrap()],
        subnets: vec!["10.244.1.0/24".parse().unwrap()],
        mtu: 1450,
        ip_masq: true,
    };
    let delegate = Ipam { result: Ok(RESULT.to_owned()), ..Ipam::default() };
    Kernel { subnet_file: Some(file), delegate, ..Kernel::default() }
}

fn run(verb: &str, keys: &str, kernel: Kernel) -> Outcome {
    fake::install(kernel);
    let conf = format!(r#"{{"cniVersion":"1.1.0","name":"n","type":"flannel"{keys}}}"#);
    fake::run(&Delegating, verb, &conf)
}

#[test]
fn add_delegates_with_the_subnet() {
    let outcome = run("ADD", r#","delegate":{"hairpinMode":true},"ipam":{"dataDir":"/d"}"#, node());
    assert!(outcome.status == 0 && outcome.stdout.contains("10.244.1.2/24"), "{outcome:?}");
    assert_eq!(fake::log(), ["delegate.subnet-file", "delegate.add"]);
    assert_eq!(
        fake::with(|kernel| kernel.delegated.clone()).unwrap(),
        r#"{"cniVersion":"1.1.0","hairpinMode":true,"ipMasq":false,"ipam":{"dataDir":"/d","ranges":[[{"subnet":"10.244.1.0/24"}]],"routes":[{"dst":"10.244.0.0/16"}],"type":"host-local"},"isGateway":true,"mtu":1450,"name":"n","type":"bridge"}"#
    );
}

#[test]
fn the_other_verbs_are_the_delegates() {
    for (verb, operations) in [
        ("DEL", &["delegate.del"][..]),
        ("CHECK", &["delegate.check"]),
        ("STATUS", &["delegate.subnet-file", "delegate.status"]),
        ("GC", &["delegate.gc"]),
    ] {
        let outcome = run(verb, "", node());
        assert_eq!((outcome.status, fake::log().as_slice()), (0, operations), "{verb} {outcome:?}");
    }
}

#[test]
fn del_needs_no_valid_configuration() {
    assert_eq!(run("DEL", r#","delegate":{"name":"x"}"#, node()).status, 0);
}

#[test]
fn what_goes_wrong_is_told() {
    let refused = || Err(OpError::new(ErrorCode::Delegate, "bridge", "no"));
    for (verb, keys, kernel, expected) in [
        ("ADD", r#","delegate":{"ipam":{}}"#, node(), "must not have 'ipam' field"),
        ("ADD", r#","ipam":[]"#, node(), "failed to load netconf: json: cannot unmarshal array"),
        ("ADD", "", Kernel { subnet_file: None, ..node() }, "no such file or directory"),
        (
            "ADD",
            "",
            Kernel { delegate: Ipam { result: Err(refused().unwrap_err()), ..Ipam::default() }, ..node() },
            "no",
        ),
        ("STATUS", "", Kernel { subnet_file: None, ..node() }, "\"code\": 50"),
        ("STATUS", "", Kernel { delegate: Ipam { status: refused(), ..Ipam::default() }, ..node() }, "no"),
        ("DEL", "", Kernel { delegate: Ipam { del: refused(), ..Ipam::default() }, ..node() }, "no"),
        ("CHECK", "", Kernel { delegate: Ipam { check: refused(), ..Ipam::default() }, ..node() }, "no"),
    ] {
        let outcome = run(verb, keys, kernel);
        assert!(outcome.status == 1 && outcome.stdout.contains(expected), "{verb} {keys}: {outcome:?}");
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    let plugin = Subject::new(Delegating, "", node);
    postern_keys::agreement::check("flannel", |verb, conf| plugin.call_anew(verb, conf));
}
