use super::*;
use postern_guest::fake::{self, ONE_ADDRESS as V4, Subject, two_links as node};
use proptest::prelude::*;

const PLUGIN: Subject<Dummy> = Subject::new(Dummy, r#","type":"dummy","ipam":{"type":"host-local"}"#, || node(V4));

#[test]
fn add_keeps_the_dns_of_ipam() {
    let result = PLUGIN.add(r#","dns":{"domain":"conf"}"#);
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
    for verb in ["ADD", "CHECK"] {
        let error = PLUGIN.call_anew(verb, r#"{"cniVersion":"1.1.0","name":"n","type":"dummy"}"#).unwrap_err();
        assert_eq!(error.object().msg, "dummy interface requires an IPAM configuration");
        fake::with(|kernel| assert!(kernel.own().is_none()));
    }
    fake::install(node("{}"));
    assert_eq!(PLUGIN.message("ADD", ""), "IPAM plugin returned missing IP config");
    PLUGIN.install();
    let message = PLUGIN.message("ADD", r#","ipam":7"#);
    assert!(message.starts_with("failed to parse network config: json: cannot unmarshal number"), "{message}");
}

#[test]
fn routes_are_not_compared() {
    let keys = PLUGIN.attached("");
    fake::with(|kernel| kernel.own_mut().unwrap().routes.retain(|route| route.dst.prefix_len() != 0));
    assert_eq!(PLUGIN.call("CHECK", &keys).unwrap(), "");
}

#[test]
fn del_tries_everything() {
    fake::del_tries_everything(|verb, keys| PLUGIN.call(verb, keys));
}

#[test]
fn check_finds_what_is_different() {
    PLUGIN.check_compares_link([
        "Container Interface name in prevResult: eth0 not found",
        "Error: Container interface eth0 not of type dummy",
        "Interface eth0 Mac 02:00:00:00:00:03 doesn't match container Mac: 02:00:00:00:00:99",
        "Interface eth0 is down",
        "Failed to match addr 10.1.2.3/24 on interface eth0",
    ]);
    assert_eq!(PLUGIN.message("CHECK", ""), "dummy: Required prevResult missing");
}

#[test]
fn every_operation_may_fail() {
    PLUGIN.every_operation_may_fail();
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        value in "[ -~]{0,30}",
        key in prop::sample::select(vec!["master", "mode", "mtu", "vlanId", "linkInContainer", "dns", "ipam", "prevResult"]),
    ) {
        PLUGIN.survives(&format!(r#","{key}":{value}"#));
    }
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("dummy", |verb, conf| PLUGIN.call_anew(verb, conf));
}
