//! DEL, CHECK, STATUS, GC, and failures of each.

use super::*;

#[test]
fn del_tries_everything() {
    let keys = format!(r#"{IPAM},"ipMasq":true,"macspoofchk":true"#);
    ADDRESSED.add(&keys);
    fake::with(|kernel| kernel.ipam.del = Err(OpError::new(ErrorCode::TryAgain, "", "locked")));
    let error = PLUGIN.call("DEL", &keys).unwrap_err();
    assert_eq!((error.object().code, error.object().msg.as_str()), (11, "locked"));
    fake::with(|kernel| {
        assert!(kernel.own().is_none() && kernel.masquerade.is_empty() && kernel.mac_guard.is_none());
        assert!(kernel.find(Place::Host, "br0").is_some());
        kernel.ipam.del = Ok(());
    });
    assert_eq!(PLUGIN.call("DEL", &keys).unwrap(), "");
}

#[test]
fn del_works_without_a_namespace_and_with_a_bad_configuration() {
    let kernel = Kernel {
        masquerade: vec![Backend::Iptables],
        mac_guard: "02:00:00:00:00:01".parse().ok(),
        ..Kernel::default()
    };
    fake::install(Kernel { netns: false, ..kernel });
    PLUGIN.call("DEL", &format!(r#"{IPAM},"ipMasq":true,"macspoofchk":true"#)).unwrap();
    assert!(fake::with(|kernel| kernel.masquerade.is_empty() && kernel.mac_guard.is_none()));
    assert_eq!(fake::log(), ["mac-guard.remove", "masquerade.remove", "link.own", "ipam.del"]);

    PLUGIN.add("");
    PLUGIN.call_with_args("DEL", "IP=1", r#","vlan":5000,"isGateway":"x","ipMasq":7,"vlanTrunk":5"#).unwrap();
    assert!(fake::with(|kernel| kernel.own().is_none()));
}

#[test]
fn check_finds_what_add_made() {
    for keys in [
        String::new(),
        format!(r#"{IPAM},"isDefaultGateway":true,"ipMasq":true,"macspoofchk":true"#),
        r#","promiscMode":true,"vlan":5"#.to_owned(),
        format!(r#"{IPAM},"isGateway":true,"vlan":5"#),
    ] {
        let keys = ADDRESSED.attached(&keys);
        assert_eq!(PLUGIN.call("CHECK", &keys).unwrap(), "");
        fake::with(|kernel| kernel.log.clear());
        PLUGIN.call("CHECK", &keys).unwrap();
        let changing = |name: &&str| name.ends_with(".ensure") || name.ends_with(".add") || name.ends_with(".set");
        assert_eq!(fake::log().into_iter().find(changing), None);
    }
}

#[test]
fn check_finds_what_is_different() {
    let keys = format!(r#"{IPAM},"isDefaultGateway":true,"ipMasq":true,"macspoofchk":true"#);
    ADDRESSED.with_keys(&keys).check_finds(&[
        (|kernel| drop(kernel.links.remove(&1)), "Interface name br0 not found"),
        (
            |kernel| kernel.links.get_mut(&1).unwrap().info.kind = "dummy".to_owned(),
            "Interface br0 does not have link type of bridge",
        ),
        (
            |kernel| kernel.links.get_mut(&1).unwrap().info.mac = None,
            "Bridge interface br0 Mac doesn't match: 02:00:00:00:00:01",
        ),
        (
            |kernel| kernel.links.get_mut(&1).unwrap().promisc = true,
            "Bridge interface br0 configured Promisc Mode false doesn't match current state: true ",
        ),
        (|kernel| drop(kernel.links.remove(&2)), "Interface name eth0 not found"),
        (|kernel| drop(kernel.links.remove(&3)), "Error: Container interface eth0 not of type veth"),
        (
            |kernel| kernel.links.get_mut(&2).unwrap().info.mac = None,
            "Interface eth0 Mac 02:00:00:00:00:02 doesn't match container Mac: ",
        ),
        (|kernel| kernel.links.get_mut(&3).unwrap().master = None, "CNI veth created for bridge br0 was not found"),
        (
            |kernel| kernel.links.get_mut(&3).unwrap().info.mac = None,
            "Interface veth00000002 Mac doesn't match: 02:00:00:00:00:03 not found",
        ),
        (
            |kernel| kernel.links.get_mut(&2).unwrap().routes.retain(|route| route.gateway.is_none()),
            "Expected Route 0.0.0.0/0 via 10.1.2.1 not found in routing table",
        ),
        (|kernel| kernel.mac_guard = None, "the rules of the guard are missing"),
        (|kernel| kernel.masquerade.clear(), "the masquerade rules are missing"),
    ]);
}

#[test]
fn check_needs_a_matching_prev_result() {
    ADDRESSED.attached("");
    assert_eq!(PLUGIN.message("CHECK", ""), "Required prevResult missing");
    assert_eq!(PLUGIN.message("CHECK", r#","prevResult":{}"#), "Interface name missing ");
    assert_eq!(
        PLUGIN.message("CHECK", r#","prevResult":{"interfaces":[{"name":"br0"},{"name":"eth0","sandbox":"/other"}]}"#),
        "Sandbox in prevResult  doesn't match configured netns: /run/netns/c1"
    );
    assert_eq!(
        PLUGIN.message("CHECK", r#","prevResult":{"interfaces":[{"name":"br0","sandbox":"/other"}]}"#),
        "Interface br0 should not be in sandbox"
    );
    fake::with(|kernel| kernel.ipam.check = Err(OpError::new(ErrorCode::Kernel, "", "ipam says no")));
    assert_eq!(PLUGIN.message("CHECK", IPAM), "ipam says no");
}

#[test]
fn status_and_gc_are_forwarded() {
    PLUGIN.install();
    PLUGIN.call("STATUS", IPAM).unwrap();
    PLUGIN.call("GC", IPAM).unwrap();
    assert_eq!(fake::log(), ["ipam.status", "attachments.collect", "ipam.gc"]);
    PLUGIN.install();
    PLUGIN.call("STATUS", "").unwrap();
    PLUGIN.call("GC", "").unwrap();
    assert_eq!(fake::log(), ["attachments.collect"]);
    assert_eq!(PLUGIN.call_with_args("STATUS", "X=1", "").unwrap(), "");
    assert_eq!(PLUGIN.message("STATUS", r#","vlan":5000"#), "invalid VLAN ID 5000 (must be between 0 and 4094)");
}

#[test]
fn every_operation_may_fail() {
    let keys = format!(r#"{IPAM},"isDefaultGateway":true,"ipMasq":true,"macspoofchk":true,"enabledad":true"#);
    ADDRESSED.with_keys(&keys).every_operation_may_fail();
    PLUGIN.on(|| Kernel::with_ipam(DUAL)).with_keys(&keys).every_operation_may_fail();
}

#[test]
fn read_only_settings_are_no_failure() {
    ADDRESSED.install();
    fake::with(|kernel| kernel.fail_at(5, ErrorCode::Io));
    PLUGIN.call("ADD", IPAM).unwrap();
    assert_eq!(fake::log().get(5), Some(&"link-sysctl.set"));
    assert_eq!(fake::with(|kernel| kernel.own().unwrap().sysctls.len()), 1);
}

#[test]
fn what_the_host_denies_names_operation_and_way_out() {
    let mut kernel = Kernel::default();
    let error = OpError::new(ErrorCode::Denied, "br0", "policy does not grant it").hint("bridge = [\"br0\"]");
    kernel.fail = Some((0, error));
    fake::install(kernel);
    let error = PLUGIN.call("ADD", "").unwrap_err();
    assert_eq!(error.object().code, 110);
    assert_eq!(error.object().msg, "failed to create bridge \"br0\": policy does not grant it");
    assert_eq!(error.object().details, "bridge.ensure br0; bridge = [\"br0\"]");
}
