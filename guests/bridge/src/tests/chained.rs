//! Calls of bridge behind a plugin that made a link of the host.

use super::*;

const TAP: &str = r#","prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"tap0","mac":"02:00:00:00:00:01"}]}"#;
const BOTH: &str = r#","prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"tap0"},{"name":"eth0","mac":"02:00:00:00:00:07","sandbox":"/run/netns/c1"}],"ips":[{"address":"10.7.0.2/24","interface":1}],"routes":[{"dst":"10.6.0.0/16"}],"dns":{"domain":"before"}}"#;

/// Makes a host on which an earlier plugin made `tap0`. The host lets bridge attach `tap0`.
fn host(ipam: &str) {
    let mut kernel = Kernel::with_ipam(ipam);
    kernel.add_link(Place::Host, "tap0", "tun");
    fake::install(Kernel { previous_link: Some("tap0".to_owned()), ..kernel });
}

fn add(keys: &str) -> String {
    PLUGIN.call("ADD", keys).unwrap().replace([' ', '\n'], "")
}

fn tap() -> Option<PortSpec> {
    fake::with(|kernel| kernel.find(Place::Host, "tap0").unwrap().port.clone())
}

#[test]
fn the_link_joins_and_no_pair_is_made() {
    host(V4);
    let result = add(&format!(r#"{TAP},"hairpinMode":true,"portIsolation":true"#));
    assert_eq!(
        result,
        r#"{"cniVersion":"1.1.0","interfaces":[{"mac":"02:00:00:00:00:01","name":"tap0"},{"mac":"02:00:00:00:00:01","name":"br0"}]}"#
    );
    assert_eq!(fake::log(), ["bridge.ensure", "bridge.previous-link", "bridge.attach", "link.attributes"]);
    assert_eq!(tap(), Some(PortSpec { hairpin: true, isolated: true, ..PortSpec::default() }));
    let checked = format!(r#","hairpinMode":true,"prevResult":{result}"#);
    assert_eq!(PLUGIN.call("CHECK", &checked).unwrap(), "");
    let other = checked.replace("02:00:00:00:00:01\",\"name\":\"tap0", "02:00:00:00:00:09\",\"name\":\"tap0");
    assert_eq!(PLUGIN.message("CHECK", &other), "Interface tap0 Mac doesn't match: 02:00:00:00:00:09 not found");
}

#[test]
fn addresses_are_in_the_result_where_the_container_has_no_link() {
    host(V4);
    let result = add(&format!(r#"{IPAM}{TAP},"isDefaultGateway":true,"ipMasq":true"#));
    assert!(result.contains(r#""ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"}]"#), "{result}");
    assert!(result.contains(r#""routes":[{"dst":"0.0.0.0/0","gw":"10.1.2.1"}]"#), "{result}");
    assert_eq!(
        fake::log(),
        [
            "bridge.ensure",
            "bridge.previous-link",
            "bridge.attach",
            "ipam.add",
            "bridge.ensure-gateways",
            "forwarding.enable",
            "masquerade.ensure",
            "link.attributes"
        ]
    );
}

#[test]
fn the_containers_link_gets_the_addresses_and_what_was_before_stays() {
    host(V4);
    fake::with(|kernel| kernel.add_link(Place::Container, "eth0", "tun"));
    let result = add(&format!(r#"{IPAM}{BOTH}"#));
    assert!(
        result.contains(
            r#""ips":[{"address":"10.7.0.2/24","interface":1},{"address":"10.1.2.3/24","interface":1}],"routes":[{"dst":"10.6.0.0/16"}]"#
        ) && result.contains(r#""dns":{"domain":"ipam"}"#),
        "{result}"
    );
    let own =
        fake::with(|kernel| kernel.own().unwrap().addresses.iter().map(|own| own.net.to_string()).collect::<Vec<_>>());
    assert_eq!(own, ["10.1.2.3/24"]);
    // Without IPAM, the whole earlier result is passed on.
    host(V4);
    let result = add(BOTH);
    assert!(result.contains(r#""ips":[{"address":"10.7.0.2/24","interface":1}]"#), "{result}");
    assert!(result.contains(r#""dns":{"domain":"before"}"#), "{result}");
}

#[test]
fn the_guard_is_there_before_the_port_and_for_who_is_behind_it() {
    for (keys, expected) in [
        (BOTH.to_owned(), "02:00:00:00:00:07"),
        (format!(r#"{TAP},"args":{{"cni":{{"mac":"02:00:00:00:00:08"}}}}"#), "02:00:00:00:00:08"),
    ] {
        host(V4);
        add(&format!(r#"{keys},"macspoofchk":true"#));
        let log = ["bridge.ensure", "bridge.previous-link", "mac-guard.ensure", "bridge.attach", "link.attributes"];
        assert_eq!(fake::log(), log);
        assert_eq!(fake::with(|kernel| kernel.mac_guard.unwrap().to_string()), expected);
    }
    host(V4);
    let refused = PLUGIN.message("ADD", &format!(r#"{TAP},"macspoofchk":true"#));
    assert!(refused.starts_with("macspoofchk needs the address that may send"), "{refused}");
    assert_eq!(tap(), None);
}

#[test]
fn without_such_a_link_a_pair_is_made() {
    for keys in [
        "",
        r#","prevResult":{"interfaces":[{"name":"eth1","sandbox":"/run/netns/c1"}]}"#,
        r#","prevResult":{"cniVersion":"9.9.9"}"#,
    ] {
        PLUGIN.add(keys);
        assert!(!fake::log().contains(&"bridge.previous-link"), "{keys}");
    }
    // The policy does not let bridge attach an earlier plugin's link.
    PLUGIN.add(TAP);
    assert_eq!(fake::log()[..3], ["bridge.ensure", "bridge.previous-link", "veth.create"]);
}
