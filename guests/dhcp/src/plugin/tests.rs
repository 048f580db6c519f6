use super::*;
use postern_guest::fake::{self, Kernel, Subject};
use postern_guest::types::{Dns, LeaseGrant, OpError};
use proptest::prelude::*;

/// A subject without `ipam`. Each test adds its own `ipam`, because two objects of one key would be merged.
const PLUGIN: Subject<Dhcp> =
    Subject::new(Dhcp, r#","type":"bridge""#, || Kernel { dhcp: Some(lease()), ..Kernel::default() });
const PLAIN: &str = r#","ipam":{"type":"dhcp"}"#;

/// The key `ipam` with this value.
fn ipam(value: &str) -> String {
    format!(r#","ipam":{value}"#)
}

/// Returns the result on one line, without its version.
fn add() -> String {
    let result = PLUGIN.call("ADD", PLAIN).unwrap();
    result.replace([' ', '\n'], "").replace(r#""cniVersion":"1.1.0""#, "")
}

fn lease() -> DhcpLease {
    let to = |dst: &str, gateway: Option<&str>, scope| LeasedRoute {
        dst: dst.parse().unwrap(),
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
        source: None,
        mtu: None,
        advmss: None,
        priority: Some(7),
        table: None,
        scope,
    };
    let gateway = "10.1.2.1".parse().ok();
    DhcpLease {
        addresses: vec![LeaseGrant { address: "10.1.2.3/24".parse().unwrap(), gateway }],
        routes: vec![to("0.0.0.0/0", Some("10.1.2.1"), None), to("10.9.0.0/16", None, Some(253))],
        ..DhcpLease::default()
    }
}

fn offer(lease: DhcpLease) {
    fake::install(Kernel { dhcp: Some(lease), ..Kernel::default() });
}

#[test]
fn a_lease_becomes_a_result() {
    PLUGIN.install();
    assert_eq!(
        add(),
        r#"{,"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.2.1","priority":7},{"dst":"10.9.0.0/16","priority":7,"scope":253}]}"#
    );
    assert_eq!(fake::log(), ["dhcp.acquire"]);
    let dns = Dns { nameservers: vec!["10.1.2.53".to_owned()], domain: "example.net".to_owned(), ..Dns::default() };
    offer(DhcpLease { dns, mtu: Some(1400), routes: lease().routes.into_iter().take(1).collect(), ..lease() });
    assert_eq!(
        add(),
        r#"{,"dns":{"domain":"example.net","nameservers":["10.1.2.53"]},"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.2.1","mtu":1400,"priority":7}]}"#
    );
}

/// Both families of one lease: an address, a gateway and a default route for each.
#[test]
fn a_lease_of_both_families_becomes_one_result() {
    let mut both = DhcpLease { routes: lease().routes.into_iter().take(1).collect(), ..lease() };
    let gateway = "fe80::1".parse().ok();
    both.addresses.push(LeaseGrant { address: "2001:db8::7/64".parse().unwrap(), gateway });
    let by_default = both.routes[0].clone();
    both.routes.push(LeasedRoute { dst: "::/0".parse().unwrap(), gateway, ..by_default });
    offer(both);
    assert_eq!(
        add(),
        r#"{,"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"},{"address":"2001:db8::7/64","gateway":"fe80::1"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.2.1","priority":7},{"dst":"::/0","gw":"fe80::1","priority":7}]}"#
    );
}

#[test]
fn del_reads_nothing_and_needs_no_service() {
    PLUGIN.add(PLAIN);
    fake::with(|kernel| kernel.dhcp = None);
    assert_eq!(PLUGIN.call("DEL", &ipam("7")).unwrap(), "");
    assert!(fake::with(|kernel| !kernel.leased));
    assert_eq!(PLUGIN.call("DEL", PLAIN).unwrap(), "");
}

#[test]
fn check_compares_the_lease_with_the_result() {
    PLUGIN.install();
    let previous =
        |address: &str| format!(r#"{PLAIN},"prevResult":{{"cniVersion":"1.1.0","ips":[{{"address":"{address}"}}]}}"#);
    let check = |address: &str| PLUGIN.call("CHECK", &previous(address));
    assert!(check("10.1.2.3/24").unwrap_err().object().msg.contains("no lease for this attachment"));
    PLUGIN.call("ADD", PLAIN).unwrap();
    assert_eq!(check("10.1.2.3/24").unwrap(), "");
    let other = check("10.1.2.4/24").unwrap_err();
    assert!(other.object().msg.contains("the lease now has 10.1.2.3/24"), "{other}");
    assert_eq!(PLUGIN.call("CHECK", PLAIN).unwrap(), "");
}

#[test]
fn status_says_whether_the_service_is_there() {
    PLUGIN.install();
    assert_eq!(PLUGIN.call("STATUS", PLAIN).unwrap(), "");
    fake::with(|kernel| kernel.dhcp = None);
    let error = PLUGIN.call("STATUS", PLAIN).unwrap_err();
    assert_eq!((error.object().code, error.object().details.as_str()), (50, "dhcp.status /run/cni/dhcp.sock"));
    let error = PLUGIN.call("STATUS", &ipam(r#"{"type":"dhcp","request":[{"option":"x"}]}"#)).unwrap_err();
    assert_eq!(error.object().code, 50);
}

#[test]
fn wrong_keys_are_refused_before_anything_is_asked() {
    for (keys, code, message) in [
        (
            r#"{"type":"dhcp","daemonSocketPath":"run/x"}"#,
            7,
            r#"dhcp: ipam.daemonSocketPath "run/x" does not begin with `/`: give an absolute path"#,
        ),
        (
            r#"{"type":"dhcp","daemonSocketPath":7}"#,
            999,
            "json: cannot unmarshal number into Go struct field NetConf.ipam.daemonSocketPath of type string",
        ),
        (
            r#"{"type":"dhcp","request":[{"option":"dns"}]}"#,
            999,
            r#"Can not parse option "dns": Can not parse option: strconv.ParseUint: parsing "dns": invalid syntax"#,
        ),
        (
            r#"{"type":"dhcp","families":["ipv6","ip"]}"#,
            7,
            r#"dhcp: ipam.families has "ip": a family is "ipv4" or "ipv6""#,
        ),
        (r#"{"type":"dhcp","priority":-1}"#, 7, "dhcp: ipam.priority is -1: a metric is 0 to 4294967295"),
    ] {
        PLUGIN.install();
        let keys = ipam(keys);
        for verb in ["ADD", "CHECK"] {
            let error = PLUGIN.call(verb, &keys).unwrap_err();
            assert_eq!((error.object().code, error.object().msg.as_str()), (code, message), "{verb}");
        }
        assert!(fake::log().is_empty());
        assert_eq!(PLUGIN.call("DEL", &keys).unwrap(), "");
    }
    let keys = ipam(r#"{"type":"dhcp","provide":[{"option":"12","fromArg":"A"}]}"#);
    let error = PLUGIN.call_with_args("ADD", &format!("A={}", "x".repeat(256)), &keys);
    assert!(error.unwrap_err().object().msg.contains("from CNI_ARGS"));
}

#[test]
fn a_services_own_error_is_handed_on() {
    PLUGIN.install();
    fake::with(|kernel| {
        let delegate = postern_guest::cni::Error::new(999, "no more tries").with_details("eth0");
        let error = OpError::new(ErrorCode::Delegate, "/run/cni/dhcp.sock", "no more tries");
        kernel.fail = Some((0, OpError { delegate: Some(delegate), ..error }));
    });
    let error = PLUGIN.call("ADD", PLAIN).unwrap_err();
    assert_eq!((error.object().msg.as_str(), error.object().details.as_str()), ("no more tries", "eth0"));
}

#[test]
fn a_failure_of_each_operation_is_reported() {
    PLUGIN.with_keys(PLAIN).every_operation_may_fail();
}

#[test]
fn its_keys_are_those_of_the_table() {
    postern_keys::agreement::check("dhcp", |verb, conf| PLUGIN.call_anew(verb, conf));
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(args in "[A-Z0-9=;,./]{0,30}", value in "[ -~]{0,40}", option in "[ -~]{0,10}") {
        for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
            let _ = PLUGIN.call_with_args(verb, &args, &ipam(&value));
            let one = format!(r#"{{"request":[{{"option":{option:?}}}],"provide":[{{"option":{option:?},"fromArg":"A"}}]}}"#);
            let _ = PLUGIN.call_with_args(verb, &args, &ipam(&one));
        }
    }
}
