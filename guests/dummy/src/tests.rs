use super::*;
use postern_guest::fake::{self, Kernel, ONE_ADDRESS as V4, Place, two_links as node};
use proptest::prelude::*;

fn call(verb: &str, keys: &str) -> Result<String, Error> {
    let conf = format!(r#"{{"cniVersion":"1.1.0","name":"n","type":"dummy","ipam":{{"type":"host-local"}}{keys}}}"#);
    fake::call_verb(&Dummy, fake::env(verb), &conf)
}

fn message(verb: &str, keys: &str) -> String {
    call(verb, keys).unwrap_err().object().msg.clone()
}

fn attached(keys: &str) -> String {
    fake::install(node(V4));
    let result = call("ADD", keys).unwrap();
    format!(r#"{keys},"prevResult":{result}"#)
}

#[test]
fn add_keeps_the_dns_of_ipam() {
    fake::install(node(V4));
    let result = call("ADD", r#","dns":{"domain":"conf"}"#).unwrap().replace([' ', '\n'], "");
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","dns":{"domain":"ipam"},"interfaces":[{"mac":"02:00:00:00:00:03","name":"eth0","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":0}],"routes":[{"dst":"0.0.0.0/0"}]}"#
    );
    fake::with(|kernel| {
        let own = kernel.own().unwrap();
        assert_eq!((own.info.kind.as_str(), own.info.up), ("dummy", true));
        assert!(own.sysctls.is_empty());
    });
}

#[test]
fn it_needs_ipam() {
    for (verb, expected) in [
        ("ADD", "dummy interface requires an IPAM configuration"),
        ("CHECK", "dummy interface requires an IPAM configuration"),
    ] {
        fake::install(node(V4));
        let error = fake::call_verb(&Dummy, fake::env(verb), r#"{"cniVersion":"1.1.0","name":"n","type":"dummy"}"#);
        assert_eq!(error.unwrap_err().object().msg, expected);
        fake::with(|kernel| assert!(kernel.own().is_none()));
    }
    fake::install(node("{}"));
    assert_eq!(message("ADD", ""), "IPAM plugin returned missing IP config");
    fake::install(node(V4));
    assert!(
        message("ADD", r#","ipam":7"#).starts_with("failed to parse network config: json: cannot unmarshal number")
    );
}

#[test]
fn routes_are_not_compared() {
    let keys = attached("");
    fake::with(|kernel| kernel.links.get_mut(&3).unwrap().routes.retain(|route| route.dst.prefix_len() != 0));
    assert_eq!(call("CHECK", &keys).unwrap(), "");
}

#[test]
fn del_tries_everything() {
    fake::del_tries_everything(call);
}

#[test]
fn check_finds_what_is_different() {
    let keys = attached("");
    assert_eq!(call("CHECK", &keys).unwrap(), "");
    type Change = fn(&mut Kernel);
    let changes: &[(Change, &str)] = &[
        (
            |kernel| kernel.links.retain(|_, link| link.place == Place::Host),
            "Container Interface name in prevResult: eth0 not found",
        ),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().info.kind = "veth".to_owned(),
            "Error: Container interface eth0 not of type dummy",
        ),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().info.mac = "02:00:00:00:00:99".parse().ok(),
            "Interface eth0 Mac 02:00:00:00:00:03 doesn't match container Mac: 02:00:00:00:00:99",
        ),
        (|kernel| kernel.links.get_mut(&3).unwrap().info.up = false, "Interface eth0 is down"),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().addresses.clear(),
            "Failed to match addr 10.1.2.3/24 on interface eth0",
        ),
    ];
    for (change, expected) in changes {
        let keys = attached("");
        fake::with(change);
        assert_eq!(message("CHECK", &keys), *expected);
    }
    assert_eq!(message("CHECK", ""), "dummy: Required prevResult missing");
}

#[test]
fn every_operation_may_fail() {
    let prepare = |verb: &str| match verb {
        "ADD" => {
            fake::install(node(V4));
            String::new()
        }
        _ => attached(""),
    };
    fake::each_operation_fails(prepare, call);
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["master", "mode", "mtu", "vlanId", "linkInContainer", "dns", "ipam", "prevResult"]),
    ) {
        for verb in ["ADD", "CHECK", "DEL", "STATUS", "GC"] {
            fake::install(node(V4));
            let _ = call(verb, &format!(r#","{key}":{value}"#));
        }
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("dummy", |verb, conf| {
        fake::install(node(V4));
        fake::call_verb(&Dummy, fake::env(verb), conf).map_err(|error| error.to_string())
    });
}
