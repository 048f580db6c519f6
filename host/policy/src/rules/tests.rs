//! Tests of the decision: the grant that counts, and the lines that a refusal offers.

mod links;
mod node;

use super::*;
use crate::granted::tests::granted;
use crate::{File, Policy, PolicyError, Text};
use postern_cni::{Json, Lists};
use postern_types::{Backend, LeaseRange, PortSpec, ops};

/// Asks policy about an operation of an ADD. All handles stand for objects of `kind`.
fn asked(granted: &Granted, config: &str, operation: &Operation, kind: Option<ObjectKind>) -> Result<Rule, OpError> {
    let conf = NetConf::parse_or_unread(Json::parse(config.as_bytes(), 4096).unwrap(), Lists::default());
    rule(granted, Question { operation, verb: Verb::Add, conf: &conf, owns_link: true, kind: &|_| kind })
}

/// Returns the rule, or the text of the refusal.
fn decided(policy: &str, config: &str, operation: &Operation) -> Result<&'static str, String> {
    match asked(&granted(policy, config), config, operation, None) {
        Ok(rule) => Ok(rule.name),
        Err(error) => {
            assert_eq!(error.code, ErrorCode::Denied);
            Err(format!("{}; {}", error.message, error.hint))
        }
    }
}

fn bridge(keys: &str, config: &str, operation: &Operation) -> Result<&'static str, String> {
    decided(&format!("[grant.bridge]\nnames = [\"b\"]\n{keys}"), config, operation)
}

fn ensure(name: &str) -> Operation {
    ops::Bridge::Ensure { name: name.to_owned(), mtu: None, vlan_filtering: false, promisc: false }.into()
}

#[test]
fn to_look_is_less_than_to_make() {
    let policy = "[grant.veth]\nmtu = \"${config.mtu | 0}\"\nlook-only = \"true\"\n[grant.link]\nlook-only = \"${config.x | true}\"";
    let of = |operation: Operation| decided(policy, "{}", &operation);
    assert_eq!(of(ops::Veth::Find.into()), Ok("veth"));
    assert_eq!(of(ops::Link::Own.into()), Ok("link"));
    let refusal = of(ops::Veth::Create { mtu: None, mac: None }.into()).unwrap_err();
    assert!(refusal.contains("with `grant.veth = { mtu = \"${config.mtu | 0}\" }` in"), "{refusal}");
    for change in [ops::Link::Up { link: 0 }, ops::Link::Delete { link: 0 }] {
        assert!(of(change.into()).unwrap_err().contains("with `[grant.link]` in"));
    }
    assert_eq!(decided(policy, r#"{"x":false}"#, &ops::Link::Up { link: 0 }.into()), Ok("link"));
}

/// Only the plugin that made the link deletes it without a grant. Without a record, only a plugin that may make links
/// counts as the maker.
#[test]
fn a_link_is_given_up_by_who_made_it() {
    let conf = NetConf::unread(Json::Null);
    let operation = ops::Link::Delete { link: 0 }.into();
    let decided = |owns_link| {
        let question = Question { operation: &operation, verb: Verb::Del, conf: &conf, owns_link, kind: &|_| None };
        decide(&granted("[grant.veth]", "{}"), question).map(|rule| rule.name).map_err(|error| error.code)
    };
    assert_eq!((decided(true), decided(false)), (Ok("own"), Err(ErrorCode::Denied)));
    for (policy, makes) in [
        ("[grant.veth]", true),
        ("[grant.veth]\nwhen = [\"false\"]", true),
        ("withdraw = [\"veth\"]\n[grant.veth]", true),
        ("[grant.veth]\nlook-only = \"${config.x | true}\"", true),
        ("[grant.veth]\nlook-only = \"true\"", false),
        ("[grant.link]", false),
        ("", false),
    ] {
        assert_eq!(Policy::parse(policy, "bridge.toml").unwrap().makes_links(), makes, "{policy}");
    }
}

#[test]
fn a_grant_can_be_for_some_networks() {
    let policy = "[grant.forwarding]\nwhen = [\"${config.isGateway | false}\", \"${config.ipMasq | false}\"]";
    let enable = |config| decided(policy, config, &ops::Forwarding::Enable.into());
    assert_eq!(enable(r#"{"isGateway":true}"#), Ok("forwarding"));
    assert_eq!(enable(r#"{"isGateway":false,"ipmasq":true}"#), Ok("forwarding"));
    let refusal = enable("{}").unwrap_err();
    assert!(refusal.contains("forwarding.enable in this network; `when` of [grant.forwarding]"), "{refusal}");
}

#[test]
fn attributes_are_for_whom_the_link_was_given_to() {
    let look = ops::Link::Attributes { link: 0 }.into();
    let by = |policy: &str, kind| asked(&granted(policy, "{}"), "{}", &look, kind);
    assert_eq!(by("[grant.veth]", Some(ObjectKind::HostEnd)).unwrap().name, "veth");
    assert_eq!(by("[grant.link]", Some(ObjectKind::Own)).unwrap().name, "link");
    assert!(by("[grant.veth]", None).unwrap_err().hint.contains("[grant.link]"));
    assert!(by("[grant.link]", Some(ObjectKind::Bridge)).unwrap_err().hint.contains("grant.bridge = "));
}

#[test]
fn names_plugin_operation_and_the_grant_that_is_missing() {
    assert_eq!(
        decided("", "{}", &ops::Veth::Find.into()).unwrap_err(),
        "policy does not allow plugin \"bridge\" veth.find; an operator can allow it with `[grant.veth]` in \
         /etc/postern/policy/bridge.toml"
    );
    assert_eq!(
        bridge("", "{}", &ensure("cni1")).unwrap_err(),
        "policy does not allow plugin \"bridge\" bridge.ensure on \"cni1\"; an operator can allow it with \
         `grant.bridge = { names = [\"b\", \"cni1\"] }` in /etc/postern/policy/bridge.toml, before its first table (the \
         line has all that is granted now, because it replaces the whole shipped table)"
    );
}

/// Every refusal that policy can lift offers a line. An operator's file with only this line is valid, and lifts the
/// refusal.
#[test]
fn lines_that_are_offered_are_read_and_allow() {
    let range = |subnet: &str| LeaseRange { subnet: subnet.parse().unwrap(), start: None, end: None, gateway: None };
    let sets = vec![vec![range("10.3.0.0/24")], vec![range("10.3.0.0/24")]];
    let port =
        PortSpec { vlan: Some(5), trunk: vec![7], preserve_default_vlan: true, isolated: false, ..PortSpec::default() };
    let operations = [
        ops::Link::Own.into(),
        ops::Link::Attributes { link: 0 }.into(),
        ops::Veth::Create { mtu: Some(68), mac: None }.into(),
        ops::Addresses::List { link: 0 }.into(),
        ops::Addresses::Has { link: 0, addresses: Vec::new() }.into(),
        ops::Routes::List { link: 0 }.into(),
        ops::Routes::Has { link: 0, routes: Vec::new() }.into(),
        ops::Bridge::Ensure { name: "it\"is".to_owned(), mtu: Some(900), vlan_filtering: false, promisc: true }.into(),
        ops::Bridge::Find { name: "cni1".to_owned() }.into(),
        ops::Bridge::Attach { bridge: 0, host: 1, port: port.clone() }.into(),
        ops::Bridge::EnsureGateways { bridge: 0, port, force: true }.into(),
        ops::Parent::Find { name: String::new(), in_container: true }.into(),
        ops::Parent::Find { name: "eth1".to_owned(), in_container: false }.into(),
        ops::Macvlan::Create {
            parent: 0,
            mode: postern_types::MacvlanMode::Passthru,
            mtu: Some(900),
            mac: None,
            queue: None,
        }
        .into(),
        ops::Vlan::Create { parent: 0, id: 4094, mtu: Some(900) }.into(),
        ops::Ipvlan::Create { parent: 0, mode: postern_types::IpvlanMode::L3, mtu: Some(900) }.into(),
        ops::Dummy::Create.into(),
        ops::Tap::Create { settings: postern_types::TapSettings { owner: Some(0), ..Default::default() } }.into(),
        ops::Tap::Join { link: 0, bridge: "br0".to_owned() }.into(),
        ops::Device::Find { by: postern_types::DeviceKey::Id, value: "0000:3b:00.1".to_owned() }.into(),
        ops::Device::Take { by: postern_types::DeviceKey::Name, value: "eth1".to_owned() }.into(),
        ops::Device::GiveBack.into(),
        ops::PointToPoint::Ensure { host: 0 }.into(),
        ops::Forwarding::Enable.into(),
        ops::Masquerade::Ensure { backend: None }.into(),
        ops::Masquerade::Ensure { backend: Some(Backend::Iptables) }.into(),
        ops::Masquerade::Remove.into(),
        ops::MacGuard::Remove.into(),
        ops::Ipam::Add.into(),
        ops::Leases::Reserve { sets, requested: Vec::new() }.into(),
        ops::Leases::Release.into(),
        ops::ResolvConf::Read.into(),
        ops::Loopback::Up.into(),
        ops::Attachments::Collect.into(),
    ];
    let shipped = crate::tests::shipped();
    let narrow = "[grant.veth]\nwhen = [\"false\"]\n[grant.bridge]\nnames = [\"b\"]\nvlan = \"9\"\ntrunk = [\"9\"]\nisolated = \"true\"\n\
                  [grant.masquerade]\nbackends = [\"${config.x}\"]\nwhen = [\"false\"]\n[grant.ipam]\ntypes = [\"x\"]\n\
                  [grant.leases]\ndirectories = [\"/x\"]\nranges = [\"10.0.0.0/30\"]\n[grant.forwarding]\nwhen = [\"false\"]";
    let all = Capability::ALL.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let withdrawn = format!("withdraw = [{all}]");
    let config = r#"{"ipam":{"type":"dhcp"}}"#;
    let objects = r#"{"ipam":{"type":"dhcp","dataDir":"/l\\é","resolvConf":"/etc/r.conf"}}"#;
    let mut lines = 0;
    for shipped in shipped.iter().map(String::as_str).chain(["", narrow]) {
        for (operation, operator) in operations.iter().flat_map(|operation| [(operation, ""), (operation, &*withdrawn)])
        {
            let mut operator = operator.to_owned();
            for round in 0.. {
                let text = |text: &str| Text { path: "/x/bridge.toml".to_owned(), text: text.to_owned() };
                let policy = Policy::of_both(text(shipped), None, || Ok::<_, PolicyError>(Some(text(&operator))));
                let policy = policy.unwrap_or_else(|e| panic!("{operator}: {e}"));
                let config = Json::parse(config.as_bytes(), 4096).unwrap();
                let granted = policy.resolve(&config, "").unwrap();
                let Err(refusal) = asked(&granted, objects, operation, None) else { break };
                let line = refusal.hint.split("allow it with `").nth(1).and_then(|rest| rest.split("` in ").next());
                let line = line.unwrap_or_else(|| panic!("{operation:?} under {operator}: {}", refusal.hint));
                assert!(round < 12 && *line != operator, "{operation:?}: {line} allows nothing");
                operator = line.to_owned();
                lines += 1;
            }
        }
    }
    assert!(lines > 200, "{lines}");
}

/// In a flag, a star from a default of the policy matches only itself.
#[test]
fn a_flag_is_on_by_its_exact_text() {
    let flags = |value: &str| {
        let policy = format!(
            "[grant.namespace-sysctl]\nkeys = [\"net.*\"]\nother-links = \"{value}\"\n[previous]\nin-container = \"{value}\"\n"
        );
        let granted = granted(&policy, r#"{"a":"t"}"#);
        [granted.may_set_other_links(), granted.may_take_over_in_container()]
    };
    assert_eq!(flags("true"), [true; 2]);
    assert_eq!(flags("${config.a}${config.b | *}"), [false; 2]);
    assert_eq!(flags("${config.a}${config.b | rue}"), [true; 2]);
}

#[test]
fn other_lines_are_read_as_well() {
    let granted = granted("[grant.mac-guard]\nrequired = \"true\"\n[grant.ipam]\ntypes = [\"x\"]", "{}");
    let hints = [
        granted.native_hint("whereabouts"),
        granted.object_hint("mac-guard.required", "false"),
        granted.object_hint("result.addresses", "10.0.0.9/24"),
        granted.object_hint("result.gateways", "10.0.0.1"),
        granted.addresses_hint("previous.addresses", &"10.0.0.9/24".parse().unwrap()),
        granted.addresses_hint("result.addresses", &"10.0.0.9/24".parse().unwrap()),
        granted.object_hint("previous.names", "tap0"),
        granted.object_hint("previous.in-container", "true"),
        granted.limit_hint("operations", 4096),
        granted.limit_hint("handles", 0),
        granted.limit_hint("depth", 7),
    ];
    for hint in hints {
        let line = hint.split('`').nth(1).unwrap_or_else(|| panic!("{hint}"));
        File::parse(line, Origin::Operator).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    // A line for each address of a pool would not help.
    assert!(
        granted.addresses_hint("previous.addresses", &"10.0.0.9/24".parse().unwrap()).contains("[\"10.0.0.0/24\"]")
    );
    assert!(
        granted
            .addresses_hint("result.addresses", &"fd00::9/128".parse().unwrap())
            .starts_with("an operator can name the network")
    );
    assert!(granted.limit_hint("depth", 8).contains("no policy can raise"));
    // A text that would have another meaning in a policy file is not offered.
    let star = asked(&granted, r#"{"ipam":{"type":"a*"}}"#, &ops::Ipam::Add.into(), None).unwrap_err();
    assert!(star.hint.contains("no line of a policy file can name this object"), "{}", star.hint);
}

#[test]
fn says_what_no_policy_can_allow() {
    let refusal = bridge("", "{}", &ensure("../b")).unwrap_err();
    assert!(refusal.contains("on \"../b\"; no policy can allow it: \"../b\" is no name of a link"), "{refusal}");
}

#[test]
fn says_which_file_allows() {
    let rule = asked(&granted("[grant.veth]", "{}"), "{}", &ops::Veth::Find.into(), None).unwrap();
    assert_eq!(rule, Rule { name: "veth", from: Origin::Shipped });
}

#[test]
fn a_del_takes_what_is_the_attachments_and_not_what_is_the_containers() {
    let conf = Json::parse(br#"{"ipam":{"type":"host-local"}}"#, 4096).unwrap();
    let conf = NetConf::parse_or_unread(conf, Lists::default());
    let rule = |verb, plugin: &str, policy: &str, operation: &Operation| {
        let policy = Policy::parse(policy, &format!("{plugin}.toml")).unwrap();
        let granted = policy.resolve(&Json::Null, "").unwrap();
        let question = Question { operation, verb, conf: &conf, owns_link: true, kind: &|_| None };
        decide(&granted, question).map(|rule| rule.name).ok()
    };
    let removal = ops::Link::Delete { link: 0 }.into();
    for (plugin, policy, operation, expected) in [
        ("bridge", "[grant.veth]", &ops::Loopback::Down.into(), None),
        ("host-local", "", &ops::Loopback::Down.into(), None),
        ("loopback", "[grant.loopback]", &ops::Loopback::Down.into(), Some("loopback")),
        ("bridge", "[grant.veth]", &removal, Some("own")),
        ("bridge", "[grant.veth]", &ops::Link::Own.into(), Some("own")),
        ("bridge", "[grant.veth]", &ops::Masquerade::Remove.into(), Some("own")),
        ("bridge", "[grant.veth]", &ops::MacGuard::Remove.into(), Some("own")),
        ("bridge", "[grant.veth]", &ops::Ipam::Del.into(), Some("own")),
        ("bridge", "[grant.veth]", &ops::Leases::Release.into(), None),
        ("host-local", "", &ops::Leases::Release.into(), Some("own")),
        ("host-local", "", &ops::Leases::Held.into(), None),
    ] {
        assert_eq!(rule(Verb::Del, plugin, policy, operation), expected, "{plugin} {operation:?}");
    }
    assert_eq!(rule(Verb::Add, "bridge", "[grant.veth]", &removal), None);
    assert_eq!(rule(Verb::Check, "bridge", "[grant.link]", &removal), None);
    assert_eq!(rule(Verb::Add, "bridge", "[grant.link]", &removal), Some("link"));
}
