//! The decision: may this plugin carry out this operation on this object?
//!
//! Policy names the allowed interfaces and objects; its rule for each operation is in [`capability`]. Other rules hold
//! for every plugin under any policy: a handle was given to this run, an address is the attachment's own. The gate
//! checks those where it carries out the operation.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

use super::capability;
use super::grammar::{Kind, LOOK_ONLY};
use super::granted::{Grant, Granted};
use super::line::{self, Change};
use super::view::Origin;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use postern_cni::{NetConf, Verb};
use postern_types::{Capability, ErrorCode, Handle, Kind as ObjectKind, Lasting, OpError, Operation};

/// An operation to decide on, with the facts that a rule may need. No fact is looked up before a rule asks for it.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The operation.
    pub operation: &'a Operation,
    /// The verb that the guest runs for.
    pub verb: Verb,
    /// The operator's configuration. It supplies the objects that an operation does not name.
    pub conf: &'a NetConf,
    /// True if the plugin that the runtime called made the attachment's link, by the record. It may not remove a link
    /// that another plugin made.
    pub owns_link: bool,
    /// Returns the kind of object that a handle of this run stands for.
    pub kind: &'a dyn Fn(Handle) -> Option<ObjectKind>,
}

/// The rule that allowed an operation, for the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The capability, and the key if an object was chosen: `bridge.names`.
    pub name: &'static str,
    /// The file with the rule.
    pub from: Origin,
}

/// True if a plugin may do such a thing on this verb. Outside of ADD nothing is made, because no one would undo it.
pub fn allows(lasting: Lasting, verb: Verb) -> bool {
    match lasting {
        Lasting::Nothing => true,
        Lasting::Attachment | Lasting::Link | Lasting::Namespace | Lasting::Part | Lasting::Node => verb == Verb::Add,
        Lasting::Removal => match verb {
            Verb::Add | Verb::Del => true,
            Verb::Check | Verb::Gc | Verb::Status | Verb::Version => false,
        },
        Lasting::Release => verb == Verb::Del,
        Lasting::Collection => verb == Verb::Gc,
    }
}

/// Decides by the purpose of the verb, by policy, and by the rights that every attachment has on its DEL.
///
/// # Errors
/// [`ErrorCode::Denied`], with the way out as hint.
pub fn decide(granted: &Granted, question: Question<'_>) -> Result<Rule, OpError> {
    let (operation, verb) = (question.operation, question.verb);
    if !allows(operation.lasting(), verb) {
        let message = format!("{} is not for {}", operation.name(), verb.as_str());
        return Err(OpError::new(ErrorCode::Denied, verb.as_str(), message).hint(
            "a plugin makes objects on ADD, removes them on ADD and DEL, gives addresses back on DEL, and collects on \
                   GC; the host undoes a failed ADD",
        ));
    }
    rule(granted, question).or_else(|refusal| {
        let gives_up = || capability::of(operation).gives_up(&RuleInput { granted, question });
        if verb == Verb::Del && gives_up() { Ok(Rule { name: "own", from: Origin::Host }) } else { Err(refusal) }
    })
}

/// Returns the rule of the policy that allows an operation, on any verb.
///
/// # Errors
/// [`ErrorCode::Denied`], with the policy line that would allow the operation as hint.
pub fn rule(granted: &Granted, question: Question<'_>) -> Result<Rule, OpError> {
    let input = RuleInput { granted, question };
    let decide = capability::of(question.operation);
    let capability = decide.granted_by(&input);
    let Some(grant) = granted.grant(capability) else {
        return Err(match granted.written(capability) {
            Some(_) => input.withheld(capability),
            None if granted.is_withdrawn(capability) => input.refuse("", "", granted.withdrawn_hint(capability)),
            None => input.deny(capability, "", "", decide.objects(&input)),
        });
    };
    Ok(Rule { name: decide.rule(&input, grant)?, from: grant.from })
}

/// A question to a policy: the input of each rule.
pub struct RuleInput<'a> {
    /// The policy.
    pub granted: &'a Granted,
    /// The question.
    pub question: Question<'a>,
}

impl RuleInput<'_> {
    /// Returns `rule` if a key has this object.
    pub fn one_of(
        &self,
        grant: &Grant,
        key: &'static str,
        kind: Kind,
        object: &str,
        rule: &'static str,
    ) -> Result<&'static str, OpError> {
        if grant.matches(key, object) {
            return Ok(rule);
        }
        if let Err(impossible) = kind.check_text(object) {
            return Err(self.refuse(object, &on(object), format!("no policy can allow it: {impossible}")));
        }
        Err(self.deny(self.question.operation.capability(), object, &on(object), vec![line::text(key, object)]))
    }

    /// Checks that a link may be made with this MTU. `on` names the link.
    pub fn mtu(&self, grant: &Grant, mtu: Option<u32>, on: &str) -> Result<(), OpError> {
        match mtu {
            Some(mtu) if !grant.texts("mtu").any(|text| text == mtu.to_string()) => {
                Err(self.key(&format!("{on}with MTU {mtu}"), vec![line::text("mtu", mtu.to_string())]))
            }
            _ => Ok(()),
        }
    }

    /// Checks that more than looking is granted.
    pub fn changes(&self, grant: &Grant) -> Result<&'static str, OpError> {
        if grant.on(LOOK_ONLY.name) {
            return Err(self.key("", vec![Change::Without(LOOK_ONLY.name)]));
        }
        Ok(grant.name)
    }

    /// Returns a refusal by a key of the operation's own table.
    pub fn key(&self, what: &str, changes: Vec<Change>) -> OpError {
        let what = if what.is_empty() { String::new() } else { format!(" {what}") };
        self.deny(self.question.operation.capability(), "", &what, changes)
    }

    /// Returns a refusal that these changes of a capability's table would lift.
    pub fn deny(&self, capability: Capability, object: &str, what: &str, changes: Vec<Change>) -> OpError {
        self.refuse(object, what, self.granted.hint(capability, changes))
    }

    fn withheld(&self, capability: Capability) -> OpError {
        let hint = format!(
            "`when` of [grant.{capability}] grants it only where the network asks for it; {} for all networks",
            self.granted.hint(capability, vec![Change::Without("when")])
        );
        self.refuse("", " in this network", hint)
    }

    /// Returns a refusal.
    pub fn refuse(&self, object: &str, what: &str, hint: String) -> OpError {
        let (plugin, operation) = (self.granted.plugin(), self.question.operation.name());
        OpError::new(ErrorCode::Denied, object, format!("policy does not allow plugin \"{plugin}\" {operation}{what}"))
            .hint(hint)
    }
}

/// Returns the object as text for a refusal.
pub fn on(object: &str) -> String {
    format!(" on \"{object}\"")
}

#[cfg(test)]
mod tests {
    use super::super::granted::tests::granted;
    use super::super::{File, Policy};
    use super::*;
    use postern_cni::{Json, Lists};
    use postern_types::{Backend, LeaseRange, PortSpec, ops};

    fn ensure(name: &str) -> Operation {
        ops::Bridge::Ensure { name: name.to_owned(), mtu: None, vlan_filtering: false, promisc: false }.into()
    }

    fn options(mtu: Option<u32>, vlan_filtering: bool, promisc: bool) -> Operation {
        ops::Bridge::Ensure { name: "b".to_owned(), mtu, vlan_filtering, promisc }.into()
    }

    #[test]
    fn a_pair_has_the_networks_mtu() {
        let create = |mtu| ops::Veth::Create { mtu, mac: None }.into();
        let of = |policy, config, mtu| decided(policy, config, &create(mtu));
        let policy = "[grant.veth]\nmtu = \"${config.mtu | 0}\"";
        assert_eq!(of(policy, "{}", None), Ok("veth"));
        assert_eq!(of(policy, r#"{"mtu":1400}"#, Some(1400)), Ok("veth"));
        // A bridge would take the MTU over from its port.
        assert!(of(policy, "{}", Some(68)).unwrap_err().contains("veth.create with MTU 68; "));
        let refusal = of("[grant.veth]", r#"{"mtu":68}"#, Some(68)).unwrap_err();
        assert!(refusal.contains("with `grant.veth = { mtu = \"68\" }` in"), "{refusal}");
    }

    #[test]
    fn a_parent_is_the_one_that_the_network_names() {
        let policy = "[grant.parent]\nnames = [\"${config.master | node.default-link}\"]\nin-container = \"${config.linkInContainer | false}\"";
        let find = |config, name: &str, in_container| {
            decided(policy, config, &ops::Parent::Find { name: name.to_owned(), in_container }.into())
        };
        assert_eq!(find(r#"{"master":"eth1"}"#, "eth1", false), Ok("parent.names"));
        assert_eq!(find("{}", "", false), Ok("parent.names"));
        assert_eq!(find(r#"{"linkInContainer":true}"#, "", true), Ok("parent.names"));
        // Another one, the default link where one is named, and one that is named where the default is meant.
        for (config, name, in_container) in [
            (r#"{"master":"eth1"}"#, "eth2", false),
            (r#"{"master":"eth1"}"#, "", false),
            ("{}", "node.default-link", false),
            ("{}", "eth1", false),
            (r#"{"master":"eth1"}"#, "eth1", true),
            (r#"{"master":"eth1","linkInContainer":true}"#, "eth1", false),
        ] {
            find(config, name, in_container).unwrap_err();
        }
        let hint = find(r#"{"master":"eth1"}"#, "", false).unwrap_err();
        assert!(hint.contains("\"${node.default-link}\"]"), "{hint}");
        assert_eq!(
            decided(
                "[grant.parent]\nnames = [\"${node.default-link}\"]",
                "{}",
                &ops::Parent::Find { name: String::new(), in_container: false }.into()
            ),
            Ok("parent.names")
        );
        for bad in [
            "a${node.default-link}",
            "${node.default-link}*",
            "x-${config.master | node.default-link}",
            "${node.other}",
        ] {
            Policy::parse(&format!("[grant.parent]\nnames = [\"{bad}\"]"), "x.toml").unwrap_err();
        }
        Policy::parse("[grant.ipam]\ntypes = [\"${node.default-link}\"]", "x.toml").unwrap_err();
    }

    /// The bridge of a tap and a VRF are links of the container, by the network's names for them.
    #[test]
    fn a_link_in_the_container_has_a_name_too() {
        for (key, config) in [("bridge", r#"{"bridge":"br0"}"#), ("vrfname", r#"{"vrfname":"br0"}"#)] {
            let policy = format!("[grant.parent]\nnames = [\"${{config.{key}}}\"]\nin-container = \"true\"");
            let find = |config, in_container| {
                decided(&policy, config, &ops::Parent::Find { name: "br0".to_owned(), in_container }.into())
            };
            assert_eq!(find(config, true), Ok("parent.names"));
            find(config, false).unwrap_err();
            find("{}", true).unwrap_err();
        }
    }

    #[test]
    fn a_device_is_the_one_that_the_network_names() {
        use postern_types::DeviceKey::{Address, Id, Name, Path, Pci};
        let policy = "[grant.device]\nnames = [\"${config.device}\"]\naddresses = [\"${config.hwaddr}\"]\n\
                      paths = [\"${config.kernelpath}\"]\nids = [\"${config.pciBusID}\", \"${config.runtimeConfig.deviceID}\"]";
        let take = |config, by, value: &str| {
            decided(policy, config, &ops::Device::Take { by, value: value.to_owned() }.into())
        };
        assert_eq!(take(r#"{"device":"eth1"}"#, Name, "eth1"), Ok("device.names"));
        assert_eq!(take(r#"{"hwaddr":"02:00:00:00:00:0A"}"#, Address, "02:00:00:00:00:0A"), Ok("device.addresses"));
        assert_eq!(take(r#"{"kernelpath":"/sys/devices/x"}"#, Path, "/sys/devices/x"), Ok("device.paths"));
        assert_eq!(take(r#"{"pciBusID":"0000:3b:00.1"}"#, Pci, "0000:3b:00.1"), Ok("device.ids"));
        assert_eq!(take(r#"{"runtimeConfig":{"deviceID":"mlx5_core.sf.4"}}"#, Id, "mlx5_core.sf.4"), Ok("device.ids"));
        for (config, by, value) in [
            ("{}", Name, "eth1"),
            (r#"{"device":"eth1"}"#, Name, "eth0"),
            (r#"{"device":"eth*"}"#, Name, "eth0"),
            (r#"{"device":"eth1"}"#, Id, "eth1"),
            (r#"{"hwaddr":"02:00:00:00:00:0a"}"#, Address, "02:00:00:00:00:0b"),
            (r#"{"kernelpath":"/sys/devices/x"}"#, Path, "/sys/devices/x/../y"),
            (r#"{"pciBusID":"0000:3b:00.1"}"#, Pci, "../../../class/net/eth0"),
        ] {
            take(config, by, value).unwrap_err();
        }
        assert!(take("{}", Name, "eth1").unwrap_err().contains("names = [\"${config.device}\", \"eth1\"]"));
    }

    #[test]
    fn passthru_is_for_networks_that_name_it() {
        use postern_types::MacvlanMode;
        let policy = "[grant.macvlan]\nmodes = [\"${config.mode | bridge}\"]\nmtu = \"${config.mtu | 0}\"";
        let create = |config, mode, mtu| {
            decided(policy, config, &ops::Macvlan::Create { parent: 0, mode, mtu, mac: None, queue: None }.into())
        };
        assert_eq!(create("{}", MacvlanMode::Bridge, None), Ok("macvlan.modes"));
        assert_eq!(create(r#"{"mode":"passthru","mtu":900}"#, MacvlanMode::Passthru, Some(900)), Ok("macvlan.modes"));
        assert!(create("{}", MacvlanMode::Passthru, None).unwrap_err().contains("macvlan.create on \"passthru\""));
        assert!(create("{}", MacvlanMode::Bridge, Some(900)).unwrap_err().contains("with MTU 900"));
    }

    #[test]
    fn a_vlan_and_a_mode_are_those_of_the_network() {
        use postern_types::IpvlanMode;
        let policy = "[grant.vlan]\nids = [\"${config.vlanId | 0}\"]\nmtu = \"${config.mtu | 0}\"\n\
                      [grant.ipvlan]\nmodes = [\"${config.mode | l2}\"]\n[grant.dummy]\nlook-only = \"${config.x | false}\"";
        let vlan = |config, id, mtu| decided(policy, config, &ops::Vlan::Create { parent: 0, id, mtu }.into());
        assert_eq!(vlan(r#"{"vlanId":5,"mtu":900}"#, 5, Some(900)), Ok("vlan.ids"));
        assert_eq!(vlan("{}", 0, None), Ok("vlan.ids"));
        assert!(vlan(r#"{"vlanId":5}"#, 6, None).unwrap_err().contains("vlan.create on \"6\""));
        // The gate refuses what can be no VLAN, as natively.
        assert_eq!(vlan(r#"{"vlanId":4095}"#, 4095, None), Ok("vlan.ids"));
        assert!(vlan(r#"{"vlanId":5}"#, 5, Some(900)).unwrap_err().contains("with MTU 900"));
        let ipvlan = |config, mode| decided(policy, config, &ops::Ipvlan::Create { parent: 0, mode, mtu: None }.into());
        assert_eq!(ipvlan("{}", IpvlanMode::L2), Ok("ipvlan.modes"));
        assert!(ipvlan(r#"{"mode":"l3"}"#, IpvlanMode::L3s).unwrap_err().contains("ipvlan.create on \"l3s\""));
        assert_eq!(decided(policy, "{}", &ops::Dummy::Create.into()), Ok("dummy"));
        assert!(decided(policy, r#"{"x":true}"#, &ops::Dummy::Create.into()).is_err());
    }

    #[test]
    fn a_tap_belongs_to_whom_the_network_names() {
        use postern_types::TapSettings;
        let policy = "[grant.tap]\nmtu = \"${config.mtu | 0}\"\nowners = [\"${config.owner}\"]\ngroups = [\"${config.group}\"]\n\
                      multi-queue = \"${config.multiQueue | false}\"\nbridges = [\"${config.bridge}\"]";
        let create = |config, settings: TapSettings| decided(policy, config, &ops::Tap::Create { settings }.into());
        let of = |owner, group| TapSettings { owner, group, ..TapSettings::default() };
        assert_eq!(create("{}", of(None, None)), Ok("tap"));
        assert_eq!(create(r#"{"owner":0}"#, of(Some(0), None)), Ok("tap"));
        assert_eq!(create(r#"{"owner":1000,"group":4294967295}"#, of(Some(1000), Some(u32::MAX))), Ok("tap"));
        for (config, owner, group, expected) in [
            // Without an owner it would be everybody's.
            (r#"{"owner":1000}"#, None, None, "tap.create without owner"),
            (r#"{"owner":1000,"group":7}"#, Some(1000), None, "tap.create without group"),
            (r#"{"owner":1000}"#, Some(0), None, "with owner 0"),
            (r#"{"owner":1000}"#, Some(1000), Some(1000), "with group 1000"),
            ("{}", Some(0), None, "with owner 0"),
        ] {
            let refusal = create(config, of(owner, group)).unwrap_err();
            assert!(refusal.contains(expected), "{refusal}");
        }
        let queues = TapSettings { multi_queue: true, ..TapSettings::default() };
        assert!(create("{}", queues.clone()).unwrap_err().contains("with several queues"));
        assert_eq!(create(r#"{"multiQueue":true}"#, queues), Ok("tap"));
        let mtu = TapSettings { mtu: Some(1400), ..TapSettings::default() };
        assert!(create("{}", mtu.clone()).unwrap_err().contains("with MTU 1400"));
        assert_eq!(create(r#"{"mtu":1400}"#, mtu), Ok("tap"));
        let labelled = |config, context: Option<&str>| {
            let policy = "[grant.tap]\nselinux-context = \"${config.selinuxContext}\"";
            let settings = TapSettings { selinux_context: context.map(str::to_owned), ..TapSettings::default() };
            decided(policy, config, &ops::Tap::Create { settings }.into())
        };
        let config = r#"{"selinuxContext":"u:r:a_t:s0"}"#;
        assert_eq!(labelled(config, Some("u:r:a_t:s0")), Ok("tap"));
        assert_eq!(labelled("{}", None), Ok("tap"));
        assert!(labelled(config, None).unwrap_err().contains("tap.create without SELinux context"));
        assert!(labelled(config, Some("u:r:b_t:s0")).unwrap_err().contains("with SELinux context u:r:b_t:s0"));
        assert!(labelled("{}", Some("u:r:a_t:s0")).is_err());
        let join = |config, bridge: &str| {
            decided(policy, config, &ops::Tap::Join { link: 0, bridge: bridge.to_owned() }.into())
        };
        assert_eq!(join(r#"{"bridge":"br0"}"#, "br0"), Ok("tap.bridges"));
        assert!(join(r#"{"bridge":"br0"}"#, "br1").unwrap_err().contains("tap.join on \"br1\""));
        assert!(join("{}", "br0").is_err() && join("{}", "").is_err());
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

    /// Only the plugin that made the link deletes it without a grant. If no record tells, only a plugin that may make
    /// links counts as the maker.
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

    /// Makes a question of an ADD whose handles all stand for `kind`.
    fn asked(
        granted: &Granted,
        config: &str,
        operation: &Operation,
        kind: Option<ObjectKind>,
    ) -> Result<Rule, OpError> {
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
             `grant.bridge = { names = [\"b\", \"cni1\"] }` in /etc/postern/policy/bridge.toml, before its first table (it has \
             all that is granted now: a table there replaces the whole shipped one)"
        );
    }

    /// Every refusal that policy can lift offers a line. An operator's file with that line alone is read, and lifts the
    /// refusal.
    #[test]
    fn lines_that_are_offered_are_read_and_allow() {
        let range =
            |subnet: &str| LeaseRange { subnet: subnet.parse().unwrap(), start: None, end: None, gateway: None };
        let sets = vec![vec![range("10.3.0.0/24")], vec![range("10.3.0.0/24")]];
        let port = PortSpec {
            vlan: Some(5),
            trunk: vec![7],
            preserve_default_vlan: true,
            isolated: false,
            ..PortSpec::default()
        };
        let operations = [
            ops::Link::Own.into(),
            ops::Link::Attributes { link: 0 }.into(),
            ops::Veth::Create { mtu: Some(68), mac: None }.into(),
            ops::Addresses::List { link: 0 }.into(),
            ops::Routes::List { link: 0 }.into(),
            ops::Bridge::Ensure { name: "it\"is".to_owned(), mtu: Some(900), vlan_filtering: false, promisc: true }
                .into(),
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
            for (operation, operator) in
                operations.iter().flat_map(|operation| [(operation, ""), (operation, &*withdrawn)])
            {
                let mut operator = operator.to_owned();
                for round in 0.. {
                    let path = "/x/bridge.toml";
                    let mut policy = Policy::of(File::parse(shipped, Origin::Shipped).unwrap(), path.to_owned());
                    let file = File::parse(&operator, Origin::Operator).unwrap_or_else(|e| panic!("{operator}: {e}"));
                    policy.replace_with(file, path.to_owned());
                    let config = Json::parse(config.as_bytes(), 4096).unwrap();
                    let granted = policy.without_withdrawn().resolve(&config, "").unwrap();
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

    #[test]
    fn other_lines_are_read_as_well() {
        let granted = granted("[grant.mac-guard]\nrequired = \"true\"\n[grant.ipam]\ntypes = [\"x\"]", "{}");
        let hints = [
            granted.native_hint("whereabouts"),
            granted.unguarded_hint(),
            granted.result_hint("addresses", "10.0.0.9/24"),
            granted.result_hint("gateways", "10.0.0.1"),
            granted.previous_hint("addresses", "10.0.0.9/24"),
            granted.previous_hint("names", "tap0"),
            granted.previous_hint("in-container", "true"),
            granted.limit_hint("operations", 4096),
            granted.limit_hint("handles", 0),
            granted.limit_hint("depth", 7),
        ];
        for hint in hints {
            let line = hint.split('`').nth(1).unwrap_or_else(|| panic!("{hint}"));
            File::parse(line, Origin::Operator).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        assert!(granted.limit_hint("depth", 8).contains("no policy can raise"));
        // A text that would mean something else in a file is not offered.
        let star = asked(&granted, r#"{"ipam":{"type":"a*"}}"#, &ops::Ipam::Add.into(), None).unwrap_err();
        assert!(star.hint.contains("no line of a policy file can name it"), "{}", star.hint);
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
    fn stars_are_for_policy_files_only() {
        let open = "[grant.bridge]\nnames = [\"br*\"]";
        for name in ["br0", "br", "br*"] {
            assert_eq!(decided(open, "{}", &ensure(name)), Ok("bridge.names"), "{name}");
        }
        assert!(decided(open, "{}", &ensure("cni0")).is_err());
        let taken = "[grant.bridge]\nnames = [\"${config.bridge}\"]";
        let config = r#"{"bridge":"br*"}"#;
        assert_eq!(decided(taken, config, &ensure("br*")), Ok("bridge.names"));
        let refusal = decided(taken, config, &ensure("br0")).unwrap_err();
        assert!(refusal.contains("names = [\"${config.bridge}\", \"br0\"]"), "{refusal}");
    }

    #[test]
    fn a_bridge_is_made_as_its_keys_say() {
        let mtu = "mtu = \"${config.mtu | 0}\"";
        assert_eq!(bridge(mtu, r#"{"mtu":1400}"#, &options(Some(1400), false, false)), Ok("bridge.names"));
        assert_eq!(bridge(mtu, r#"{"mtu":1400}"#, &options(None, false, false)), Ok("bridge.names"));
        assert!(bridge("", "{}", &options(Some(1400), false, false)).is_err());
        let refusal = bridge(mtu, "{}", &options(Some(1400), false, false)).unwrap_err();
        assert!(
            refusal.contains(
                "bridge.ensure on \"b\" with MTU 1400; an operator can allow it with \
                 `grant.bridge = { names = [\"b\"], mtu = \"1400\" }`"
            ),
            "{refusal}"
        );
        // A key without a value allows none.
        assert!(bridge("mtu = \"${config.mtu}\"", "{}", &options(Some(1400), false, false)).is_err());

        let promisc = "promisc = \"${config.promiscMode | false}\"";
        assert_eq!(bridge(promisc, r#"{"promiscMode":true}"#, &options(None, false, true)), Ok("bridge.names"));
        assert_eq!(bridge(promisc, r#"{"promiscMode":true}"#, &options(None, false, false)), Ok("bridge.names"));
        for keys in ["", promisc] {
            let refusal = bridge(keys, "{}", &options(None, false, true)).unwrap_err();
            assert!(refusal.contains("in promiscuous mode; ") && refusal.contains("promisc = \"true\""), "{refusal}");
        }

        let vlans = "vlan = \"${config.vlan | 0}\"\ntrunk = [\"${config.vlanTrunk.*.id}\"]";
        assert_eq!(bridge(vlans, "{}", &options(None, true, false)), Ok("bridge.names"));
        assert_eq!(bridge(vlans, "{}", &options(None, false, false)), Ok("bridge.names"));
        assert_eq!(bridge(vlans, r#"{"vlan":5}"#, &options(None, true, false)), Ok("bridge.names"));
        for config in [r#"{"vlan":5}"#, r#"{"vlanTrunk":[{"id":3}]}"#] {
            let refusal = bridge(vlans, config, &options(None, false, false)).unwrap_err();
            assert!(refusal.contains("without VLAN filtering; "), "{refusal}");
        }
    }

    #[test]
    fn ports_and_gateways_are_those_of_the_network() {
        let port = |vlan| PortSpec { vlan, ..PortSpec::default() };
        let attach = |vlan| ops::Bridge::Attach { bridge: 0, host: 1, port: port(vlan) }.into();
        let gateways = |vlan| ops::Bridge::EnsureGateways { bridge: 0, port: port(vlan), force: false }.into();
        assert_eq!(bridge("vlan = \"5\"", "{}", &attach(Some(5))), Ok("bridge.vlan"));
        assert!(bridge("vlan = \"5\"", "{}", &gateways(Some(5))).unwrap_err().contains("gateways = [\"true\"]"));
        let both = "vlan = \"5\"\ngateways = [\"${config.isGateway | false}\", \"${config.isDefaultGateway | false}\"]";
        assert!(bridge(both, "{}", &gateways(Some(5))).is_err());
        assert_eq!(bridge(both, r#"{"isDefaultGateway":true}"#, &gateways(Some(5))), Ok("bridge.vlan"));
        assert_eq!(bridge("", "{}", &attach(None)), Ok("bridge"));
        let refusal = bridge("vlan = \"5\"", "{}", &gateways(Some(6))).unwrap_err();
        assert!(refusal.contains("bridge.ensure-gateways with access VLAN 6; ") && refusal.contains("vlan = \"6\""));
        assert!(
            bridge("vlan = \"5\"", "{}", &attach(None)).unwrap_err().contains("bridge.attach without an access VLAN")
        );
    }

    #[test]
    fn force_is_a_grant_of_its_own() {
        let gateways = |force| ops::Bridge::EnsureGateways { bridge: 0, port: PortSpec::default(), force }.into();
        let plain = "gateways = [\"true\"]";
        assert_eq!(bridge(plain, "{}", &gateways(false)), Ok("bridge"));
        let refusal = bridge(plain, "{}", &gateways(true)).unwrap_err();
        assert!(refusal.contains("with force; ") && refusal.contains("force-address = \"true\" }`"));
        let key = "gateways = [\"true\"]\nforce-address = \"${config.forceAddress | false}\"";
        assert_eq!(bridge(key, r#"{"forceaddress":true}"#, &gateways(true)), Ok("bridge.force-address"));
        assert!(bridge(key, "{}", &gateways(true)).is_err());
    }

    #[test]
    fn rules_are_made_with_a_granted_backend() {
        let policy = "[grant.masquerade]\nbackends = [\"${config.ipMasqBackend | nftables}\"]";
        let asked = |backend| ops::Masquerade::Ensure { backend }.into();
        let rule = Ok("masquerade.backends");
        for config in ["{}", r#"{"ipMasqBackend":""}"#, r#"{"ipMasqBackend":"nftables"}"#] {
            assert_eq!(decided(policy, config, &asked(None)), rule);
            let refusal = decided(policy, config, &asked(Some(Backend::Iptables))).unwrap_err();
            assert!(
                refusal.contains("masquerade.ensure on \"iptables\"; ")
                    && refusal.contains("backends = [\"${config.ipMasqBackend | nftables}\", \"iptables\"] }`")
            );
        }
        let iptables = r#"{"ipMasqBackend":"iptables"}"#;
        assert_eq!(decided(policy, iptables, &asked(Some(Backend::Iptables))), rule);
        // A guest that names none gets one that is granted.
        assert_eq!(decided(policy, iptables, &asked(None)), rule);
        let any = "[grant.masquerade]\nbackends = [\"${config.ipMasqBackend | any}\"]";
        for backend in [None, Some(Backend::Nftables), Some(Backend::Iptables)] {
            assert_eq!(decided(any, "{}", &asked(backend)), rule);
            assert_eq!(decided(any, iptables, &asked(backend)).is_ok(), backend != Some(Backend::Nftables));
        }
        let none = decided("[grant.masquerade]\nbackends = [\"${config.x}\"]", "{}", &asked(None)).unwrap_err();
        assert!(none.contains("backends = [\"${config.x}\", \"any\"] }`"), "{none}");
        let check = ops::Masquerade::Check { backend: Some(Backend::Iptables) }.into();
        assert_eq!(decided(policy, "{}", &check), Ok("masquerade"));
    }

    #[test]
    fn delegates_directories_and_files_are_those_named() {
        let policy = "[grant.ipam]\ntypes = [\"${config.ipam.type}\"]\n[grant.resolv-conf]\nfiles = [\"/etc/*.conf\"]\n\
                      [grant.leases]\ndirectories = [\"${config.ipam.dataDir | /var/lib/cni/networks}\"]\nranges = [\"10.0.0.0/8\"]";
        let config = r#"{"ipam":{"type":"static","dataDir":"","resolvConf":"/etc/resolv.conf"}}"#;
        assert_eq!(decided(policy, config, &ops::Ipam::Add.into()), Ok("ipam.types"));
        assert_eq!(decided(policy, "{}", &ops::Ipam::Add.into()), Ok("ipam"));
        assert_eq!(decided(policy, config, &ops::Leases::Release.into()), Ok("leases.directories"));
        assert_eq!(decided(policy, config, &ops::ResolvConf::Read.into()), Ok("resolv-conf.files"));
        let others = r#"{"ipam":{"type":"ptp","dataDir":"/srv","resolvConf":"/etc/shadow"}}"#;
        for (operation, words) in [
            (
                ops::Ipam::Add.into(),
                "ipam.add on \"ptp\"; an operator can allow it with `grant.ipam = { types = [\"${config.ipam.type}\", \"ptp\"] }`",
            ),
            (
                ops::Leases::Held.into(),
                "leases.held on \"/srv\"; an operator can allow it with `grant.leases = { directories = [\"${config.ipam.dataDir | /var/lib/cni/networks}\", \"/srv\"], ",
            ),
            (
                ops::ResolvConf::Read.into(),
                "resolv-conf.read on \"/etc/shadow\"; an operator can allow it with `grant.resolv-conf = { files = [\"/etc/*.conf\", \"/etc/shadow\"] }`",
            ),
        ] {
            let refusal = asked(&granted(policy, config), others, &operation, None).unwrap_err();
            let refusal = format!("{}; {}", refusal.message, refusal.hint);
            assert!(refusal.contains(words), "{refusal}");
        }
    }

    #[test]
    fn addresses_come_from_granted_ranges() {
        let policy = "[grant.leases]\ndirectories = [\"/x\"]\nranges = [\"10.0.0.0/8\"]";
        let config = r#"{"ipam":{"dataDir":"/x"}}"#;
        let range =
            |subnet: &str| LeaseRange { subnet: subnet.parse().unwrap(), start: None, end: None, gateway: None };
        let reserve = |sets| ops::Leases::Reserve { sets, requested: Vec::new() }.into();
        assert_eq!(decided(policy, config, &reserve(vec![vec![range("10.1.0.0/24")]])), Ok("leases.ranges"));
        let foreign = vec![vec![range("11.1.0.0/24")]];
        let refusal = decided(policy, config, &reserve(foreign.clone())).unwrap_err();
        let words = "leases.reserve on \"11.1.0.0/24\"; an operator can allow it with `grant.leases = { directories = [\"/x\"], ranges = [\"10.0.0.0/8\", \"11.1.0.0/24\"] }`";
        assert!(refusal.contains(words), "{refusal}");
        assert!(decided(policy, config, &ops::Leases::Available { sets: foreign }.into()).is_err());
        let two = vec![vec![range("10.1.0.0/24")], vec![range("10.2.0.0/24")]];
        let refusal = decided(policy, config, &reserve(two)).unwrap_err();
        assert!(refusal.contains("on \"10.2.0.0/24\" for a second address; each entry of"), "{refusal}");
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
}
