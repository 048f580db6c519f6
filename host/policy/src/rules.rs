//! The decision: may this plugin carry out this operation on this object?
//!
//! Policy says which interfaces and which named objects. What holds for every plugin whatever its policy says (a handle
//! is one that this run was given, an address is the attachment's own) is checked where the operation is carried out,
//! in `capability/`.

use super::grammar::{self, Kind};
use super::granted::{Grant, Granted};
use super::line::{self, Change};
use super::view::Origin;
use super::{port, ranges};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use postern_types::{Backend, ErrorCode, LeaseRange, OpError, Operation, PortSpec};

/// The objects that an operation acts on though it does not name them: the gate takes them from the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Objects<'a> {
    /// `ipam.type`.
    pub ipam: &'a str,
    /// `ipam.dataDir`, or its default.
    pub lease_directory: &'a str,
    /// `ipam.resolvConf`.
    pub resolv_conf: &'a str,
    /// The capability that gave out the handle whose link `attributes` looks at; empty is `link`.
    pub giver: &'a str,
}

/// What allowed an operation, for the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The capability, and where an object was chosen the key: `bridge.names`.
    pub name: &'static str,
    /// Which file it stands in.
    pub from: Origin,
}

/// Decides. Returns the rule that allows.
///
/// # Errors
/// [`ErrorCode::Denied`], with the policy line that would allow the operation as hint.
pub fn decide(granted: &Granted, operation: &Operation, objects: Objects<'_>) -> Result<Rule, OpError> {
    let asked = Asked { granted, operation };
    let capability = match operation {
        Operation::LinkAttributes { .. } if !objects.giver.is_empty() => objects.giver,
        _ => operation.capability(),
    };
    let Some(grant) = granted.grant(capability) else {
        return Err(match granted.written(capability) {
            Some(_) => asked.withheld(capability),
            None if granted.is_withdrawn(capability) => asked.withdrawn(capability),
            None => asked.deny(capability, "", "", asked.objects(objects)),
        });
    };
    let name = match operation {
        Operation::VethCreate { mtu, .. } => {
            asked.mtu(grant, *mtu, "")?;
            grant.name
        }
        Operation::BridgeEnsure { name, mtu, vlan_filtering, promisc } => {
            let rule = asked.bridge(grant, name)?;
            asked.bridge_options(grant, name, *mtu, *vlan_filtering, *promisc)?;
            rule
        }
        Operation::BridgeFind { name } => asked.bridge(grant, name)?,
        Operation::BridgeAttach { port, .. } => asked.port(grant, port)?,
        Operation::BridgeEnsureGateways { port, force, .. } => {
            let rule = asked.port(grant, port)?;
            if !grant.on("gateways") {
                return Err(asked.key(grant, "", vec![line::text("gateways", "true")]));
            }
            match force {
                true if grant.on("force-address") => "bridge.force-address",
                true => return Err(asked.key(grant, "with force", vec![line::text("force-address", "true")])),
                false => rule,
            }
        }
        // Which backend matters where rules are made. To compare, and to remove, is free: a native plugin may have made
        // them with the other one, and they are the attachment's own either way.
        Operation::MasqueradeEnsure { backend } => {
            let backend = match backend.unwrap_or(Backend::Nftables) {
                Backend::Nftables => "nftables",
                Backend::Iptables => "iptables",
            };
            asked.one_of(grant, "backends", Kind::Backend, backend, "masquerade.backends")?
        }
        Operation::IpamAdd | Operation::IpamDel | Operation::IpamCheck | Operation::IpamStatus | Operation::IpamGc => {
            match objects.ipam {
                // Without a type there is nothing to decide on: the operation itself says what is missing.
                "" => "ipam",
                name => asked.plugin(grant, name)?,
            }
        }
        Operation::LeasesReserve { sets, .. } | Operation::LeasesAvailable { sets } => {
            asked.directory(grant, objects.lease_directory)?;
            asked.ranges(grant, sets)?
        }
        Operation::LeasesHeld | Operation::LeasesRelease | Operation::LeasesRetain => {
            asked.directory(grant, objects.lease_directory)?
        }
        Operation::ResolvConfRead => {
            asked.one_of(grant, "files", Kind::File, objects.resolv_conf, "resolv-conf.files")?
        }
        _ => grant.name,
    };
    Ok(Rule { name, from: grant.from })
}

/// What is to be decided on.
struct Asked<'a> {
    granted: &'a Granted,
    operation: &'a Operation,
}

impl Asked<'_> {
    fn one_of(
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
        Err(self.deny(grant.name, object, &on(object), vec![line::text(key, object)]))
    }

    fn bridge(&self, grant: &Grant, name: &str) -> Result<&'static str, OpError> {
        // No link can be called "", and the operation says so.
        if name.is_empty() { Ok("bridge.names") } else { self.one_of(grant, "names", Kind::Link, name, "bridge.names") }
    }

    /// Filtering may always be switched on: it is done to a bridge that is made just now, on which all ports are in one
    /// VLAN until somebody says otherwise. It may not be left out where the network has VLANs: they would separate
    /// nothing.
    fn bridge_options(
        &self,
        grant: &Grant,
        name: &str,
        mtu: Option<u32>,
        vlan_filtering: bool,
        promisc: bool,
    ) -> Result<(), OpError> {
        self.mtu(grant, mtu, &format!("on {name:?} "))?;
        if promisc && !grant.on("promisc") {
            let what = format!("on {name:?} in promiscuous mode");
            return Err(self.key(grant, &what, vec![line::text("promisc", "true")]));
        }
        if !vlan_filtering && port::has_vlans(grant) {
            let what = format!("on {name:?} without VLAN filtering");
            return Err(self.key(grant, &what, vec![line::text("vlan", "0"), Change::Without("trunk")]));
        }
        Ok(())
    }

    fn mtu(&self, grant: &Grant, mtu: Option<u32>, on: &str) -> Result<(), OpError> {
        match mtu {
            Some(mtu) if !grant.texts("mtu").any(|text| text == mtu.to_string()) => {
                Err(self.key(grant, &format!("{on}with MTU {mtu}"), vec![line::text("mtu", mtu.to_string())]))
            }
            _ => Ok(()),
        }
    }

    fn port(&self, grant: &Grant, port: &PortSpec) -> Result<&'static str, OpError> {
        port::check(grant, port)
            .map_err(|refused| self.key(grant, &refused.what, vec![line::text(refused.key, refused.value)]))
    }

    fn plugin(&self, grant: &Grant, name: &str) -> Result<&'static str, OpError> {
        self.one_of(grant, "types", Kind::Plugin, name, "ipam.types")
    }

    fn directory(&self, grant: &Grant, directory: &str) -> Result<&'static str, OpError> {
        self.one_of(grant, "directories", Kind::Directory, directory, "leases.directories")
    }

    fn ranges(&self, grant: &Grant, sets: &[Vec<LeaseRange>]) -> Result<&'static str, OpError> {
        match ranges::check(grant, sets) {
            Ok(()) => Ok("leases.ranges"),
            Err(ranges::Refused::NotGranted(range)) => {
                let object = ranges::show(&range);
                let subnet = range.subnet.trunc().to_string();
                Err(self.deny("leases", &object, &on(&object), vec![line::text("ranges", subnet)]))
            }
            Err(ranges::Refused::UsedUp(range)) => {
                let object = ranges::show(&range);
                let another = vec![line::text("ranges", range.subnet.trunc().to_string())];
                let hint = format!(
                    "each entry of [grant.leases] ranges is good for one address of an attachment; {}",
                    self.granted.way_out("leases", self.granted.grant_line("leases", another))
                );
                Err(self.refuse(&object, &format!("{} for a second address", on(&object)), hint))
            }
        }
    }

    /// The objects that the operation names, or the configuration for it: what a table that is not there yet must have.
    fn objects(&self, objects: Objects<'_>) -> Vec<Change> {
        let some = |key: &'static str, object: &str| match object {
            "" => Vec::new(),
            object => vec![line::text(key, object)],
        };
        match self.operation {
            Operation::BridgeEnsure { name, .. } | Operation::BridgeFind { name } => some("names", name),
            Operation::MasqueradeEnsure { backend: Some(Backend::Iptables) } => some("backends", "iptables"),
            Operation::IpamAdd
            | Operation::IpamDel
            | Operation::IpamCheck
            | Operation::IpamStatus
            | Operation::IpamGc => some("types", objects.ipam),
            Operation::LeasesReserve { .. }
            | Operation::LeasesAvailable { .. }
            | Operation::LeasesHeld
            | Operation::LeasesRelease
            | Operation::LeasesRetain => some("directories", objects.lease_directory),
            Operation::ResolvConfRead => some("files", objects.resolv_conf),
            _ => Vec::new(),
        }
    }

    /// A refusal by a key.
    fn key(&self, grant: &Grant, what: &str, changes: Vec<Change>) -> OpError {
        let what = if what.is_empty() { String::new() } else { format!(" {what}") };
        self.deny(grant.name, "", &what, changes)
    }

    fn deny(&self, capability: &str, object: &str, what: &str, changes: Vec<Change>) -> OpError {
        let hint = self.granted.way_out(capability, self.granted.grant_line(capability, changes));
        self.refuse(object, what, hint)
    }

    fn withheld(&self, capability: &str) -> OpError {
        let hint = format!(
            "`when` of [grant.{capability}] grants it only where the network asks for it; {} for all networks",
            self.granted.way_out(capability, self.granted.grant_line(capability, vec![Change::Without("when")]))
        );
        self.refuse("", " in this network", hint)
    }

    fn withdrawn(&self, capability: &str) -> OpError {
        let hint = self.granted.withdrawn_hint(capability);
        self.refuse("", "", hint)
    }

    fn refuse(&self, object: &str, what: &str, hint: String) -> OpError {
        let (plugin, operation) = (self.granted.plugin(), self.operation.name());
        OpError::new(ErrorCode::Denied, object, format!("policy does not allow plugin \"{plugin}\" {operation}{what}"))
            .hint(hint)
    }
}

fn on(object: &str) -> String {
    format!(" on \"{object}\"")
}

/// The capabilities that can be granted.
pub fn capability_names() -> &'static [&'static str] {
    grammar::NAMES
}

#[cfg(test)]
mod tests {
    use super::super::granted::tests::granted;
    use super::super::{File, Policy};
    use super::*;
    use postern_cni::Json;
    use postern_types::LeaseRange;

    fn ensure(name: &str) -> Operation {
        Operation::BridgeEnsure { name: name.to_owned(), mtu: None, vlan_filtering: false, promisc: false }
    }

    fn options(mtu: Option<u32>, vlan_filtering: bool, promisc: bool) -> Operation {
        Operation::BridgeEnsure { name: "b".to_owned(), mtu, vlan_filtering, promisc }
    }

    #[test]
    fn a_pair_has_the_networks_mtu() {
        let create = |mtu| Operation::VethCreate { mtu, mac: None };
        let of = |policy, config, mtu| decided(policy, config, &create(mtu), Objects::default());
        let policy = "[grant.veth]\nmtu = \"${config.mtu | 0}\"";
        assert_eq!(of(policy, "{}", None), Ok("veth"));
        assert_eq!(of(policy, r#"{"mtu":1400}"#, Some(1400)), Ok("veth"));
        // A bridge would take it over from its port.
        assert!(of(policy, "{}", Some(68)).unwrap_err().contains("veth.create with MTU 68; "));
        let refusal = of("[grant.veth]", r#"{"mtu":68}"#, Some(68)).unwrap_err();
        assert!(refusal.contains("with `grant.veth = { mtu = \"68\" }` in"), "{refusal}");
    }

    #[test]
    fn a_grant_can_be_for_some_networks() {
        let policy = "[grant.forwarding]\nwhen = [\"${config.isGateway | false}\", \"${config.ipMasq | false}\"]";
        let enable = |config| decided(policy, config, &Operation::ForwardingEnable, Objects::default());
        assert_eq!(enable(r#"{"isGateway":true}"#), Ok("forwarding"));
        assert_eq!(enable(r#"{"isGateway":false,"ipmasq":true}"#), Ok("forwarding"));
        let refusal = enable("{}").unwrap_err();
        assert!(refusal.contains("forwarding.enable in this network; `when` of [grant.forwarding]"), "{refusal}");
    }

    #[test]
    fn attributes_are_for_whom_the_link_was_given_to() {
        let look = Operation::LinkAttributes { link: 0 };
        let by = |policy: &str, giver| decide(&granted(policy, "{}"), &look, Objects { giver, ..Objects::default() });
        assert_eq!(by("[grant.veth]", "veth").unwrap().name, "veth");
        assert!(by("[grant.veth]", "").unwrap_err().hint.contains("[grant.link]"));
        assert!(by("[grant.link]", "bridge").unwrap_err().hint.contains("grant.bridge = "));
    }

    /// The rule, or the refusal in words.
    fn decided(
        policy: &str,
        config: &str,
        operation: &Operation,
        objects: Objects<'_>,
    ) -> Result<&'static str, String> {
        match decide(&granted(policy, config), operation, objects) {
            Ok(rule) => Ok(rule.name),
            Err(error) => {
                assert_eq!(error.code, ErrorCode::Denied);
                Err(format!("{}; {}", error.message, error.hint))
            }
        }
    }

    fn bridge(keys: &str, config: &str, operation: &Operation) -> Result<&'static str, String> {
        decided(&format!("[grant.bridge]\nnames = [\"b\"]\n{keys}"), config, operation, Objects::default())
    }

    #[test]
    fn names_plugin_operation_and_the_grant_that_is_missing() {
        assert_eq!(
            decided("", "{}", &Operation::VethFind, Objects::default()).unwrap_err(),
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

    /// Every refusal that policy can lift offers a line; an operator's file of that line alone is read, and lifts it.
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
            Operation::LinkOwn,
            Operation::LinkAttributes { link: 0 },
            Operation::VethCreate { mtu: Some(68), mac: None },
            Operation::AddressesList { link: 0 },
            Operation::RoutesList { link: 0 },
            Operation::BridgeEnsure { name: "it\"is".to_owned(), mtu: Some(900), vlan_filtering: false, promisc: true },
            Operation::BridgeFind { name: "cni1".to_owned() },
            Operation::BridgeAttach { bridge: 0, host: 1, port: port.clone() },
            Operation::BridgeEnsureGateways { bridge: 0, port, force: true },
            Operation::PointToPointEnsure { host: 0 },
            Operation::ForwardingEnable,
            Operation::MasqueradeEnsure { backend: None },
            Operation::MasqueradeEnsure { backend: Some(Backend::Iptables) },
            Operation::MasqueradeRemove,
            Operation::MacGuardRemove,
            Operation::IpamAdd,
            Operation::LeasesReserve { sets, requested: Vec::new() },
            Operation::LeasesRelease,
            Operation::ResolvConfRead,
            Operation::LoopbackUp,
            Operation::AttachmentsCollect,
        ];
        let shipped = crate::tests::shipped();
        let narrow = "[grant.veth]\nwhen = [\"false\"]\n[grant.bridge]\nnames = [\"b\"]\nvlan = \"9\"\ntrunk = [\"9\"]\nisolated = \"true\"\n\
                      [grant.masquerade]\nbackends = [\"${config.x}\"]\nwhen = [\"false\"]\n[grant.ipam]\ntypes = [\"x\"]\n\
                      [grant.leases]\ndirectories = [\"/x\"]\nranges = [\"10.0.0.0/30\"]\n[grant.forwarding]\nwhen = [\"false\"]";
        let all = capability_names().iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let withdrawn = format!("withdraw = [{all}]");
        let objects = Objects { ipam: "dhcp", lease_directory: "/l\\é", resolv_conf: "/etc/r.conf", giver: "" };
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
                    let config = Json::parse(br#"{"ipam":{"type":"dhcp"}}"#, 4096).unwrap();
                    let granted = policy.without_withdrawn().resolve(&config, "").unwrap();
                    let Err(refusal) = decide(&granted, operation, objects) else { break };
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
            granted.limit_hint("operations", 4096),
            granted.limit_hint("handles", 0),
            granted.limit_hint("depth", 7),
        ];
        for hint in hints {
            let line = hint.split('`').nth(1).unwrap_or_else(|| panic!("{hint}"));
            File::parse(line, Origin::Operator).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        assert!(granted.limit_hint("depth", 8).contains("no policy can raise"));
        // What can't be written down as itself is not offered.
        let star = decide(&granted, &Operation::IpamAdd, Objects { ipam: "a*", ..Objects::default() }).unwrap_err();
        assert!(star.hint.contains("no line of a policy file can name it"), "{}", star.hint);
    }

    #[test]
    fn says_what_no_policy_can_allow() {
        let refusal = bridge("", "{}", &ensure("../b")).unwrap_err();
        assert!(refusal.contains("on \"../b\"; no policy can allow it: \"../b\" is no name of a link"), "{refusal}");
    }

    #[test]
    fn says_which_file_allows() {
        let rule = decide(&granted("[grant.veth]", "{}"), &Operation::VethFind, Objects::default()).unwrap();
        assert_eq!(rule, Rule { name: "veth", from: Origin::Shipped });
    }

    #[test]
    fn stars_are_for_policy_files_only() {
        let open = "[grant.bridge]\nnames = [\"br*\"]";
        for name in ["br0", "br", "br*"] {
            assert_eq!(decided(open, "{}", &ensure(name), Objects::default()), Ok("bridge.names"), "{name}");
        }
        assert!(decided(open, "{}", &ensure("cni0"), Objects::default()).is_err());
        let taken = "[grant.bridge]\nnames = [\"${config.bridge}\"]";
        let config = r#"{"bridge":"br*"}"#;
        assert_eq!(decided(taken, config, &ensure("br*"), Objects::default()), Ok("bridge.names"));
        let refusal = decided(taken, config, &ensure("br0"), Objects::default()).unwrap_err();
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
        // A key that stands there and has no value allows none.
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
        let attach = |vlan| Operation::BridgeAttach { bridge: 0, host: 1, port: port(vlan) };
        let gateways = |vlan| Operation::BridgeEnsureGateways { bridge: 0, port: port(vlan), force: false };
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
        let gateways = |force| Operation::BridgeEnsureGateways { bridge: 0, port: PortSpec::default(), force };
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
        let asked = |backend| Operation::MasqueradeEnsure { backend };
        let rule = Ok("masquerade.backends");
        for config in ["{}", r#"{"ipMasqBackend":""}"#, r#"{"ipMasqBackend":"nftables"}"#] {
            assert_eq!(decided(policy, config, &asked(None), Objects::default()), rule);
            let refusal = decided(policy, config, &asked(Some(Backend::Iptables)), Objects::default()).unwrap_err();
            assert!(
                refusal.contains("masquerade.ensure on \"iptables\"; ")
                    && refusal.contains("backends = [\"${config.ipMasqBackend | nftables}\", \"iptables\"] }`")
            );
        }
        let iptables = r#"{"ipMasqBackend":"iptables"}"#;
        assert_eq!(decided(policy, iptables, &asked(Some(Backend::Iptables)), Objects::default()), rule);
        assert!(decided(policy, iptables, &asked(None), Objects::default()).is_err());
        let check = Operation::MasqueradeCheck { backend: Some(Backend::Iptables) };
        assert_eq!(decided(policy, "{}", &check, Objects::default()), Ok("masquerade"));
    }

    #[test]
    fn delegates_directories_and_files_are_those_named() {
        let policy = "[grant.ipam]\ntypes = [\"${config.ipam.type}\"]\n[grant.resolv-conf]\nfiles = [\"/etc/*.conf\"]\n\
                      [grant.leases]\ndirectories = [\"${config.ipam.dataDir | /var/lib/cni/networks}\"]\nranges = [\"10.0.0.0/8\"]";
        let config = r#"{"ipam":{"type":"static","dataDir":""}}"#;
        let objects = Objects {
            ipam: "static",
            lease_directory: "/var/lib/cni/networks",
            resolv_conf: "/etc/resolv.conf",
            giver: "",
        };
        assert_eq!(decided(policy, config, &Operation::IpamAdd, objects), Ok("ipam.types"));
        assert_eq!(decided(policy, config, &Operation::IpamAdd, Objects::default()), Ok("ipam"));
        assert_eq!(decided(policy, config, &Operation::LeasesRelease, objects), Ok("leases.directories"));
        assert_eq!(decided(policy, config, &Operation::ResolvConfRead, objects), Ok("resolv-conf.files"));
        let others = Objects { ipam: "ptp", lease_directory: "/srv", resolv_conf: "/etc/shadow", giver: "" };
        for (operation, words) in [
            (
                Operation::IpamAdd,
                "ipam.add on \"ptp\"; an operator can allow it with `grant.ipam = { types = [\"${config.ipam.type}\", \"ptp\"] }`",
            ),
            (
                Operation::LeasesHeld,
                "leases.held on \"/srv\"; an operator can allow it with `grant.leases = { directories = [\"${config.ipam.dataDir | /var/lib/cni/networks}\", \"/srv\"], ",
            ),
            (
                Operation::ResolvConfRead,
                "resolv-conf.read on \"/etc/shadow\"; an operator can allow it with `grant.resolv-conf = { files = [\"/etc/*.conf\", \"/etc/shadow\"] }`",
            ),
        ] {
            let refusal = decided(policy, config, &operation, others).unwrap_err();
            assert!(refusal.contains(words), "{refusal}");
        }
    }

    #[test]
    fn addresses_come_from_granted_ranges() {
        let policy = "[grant.leases]\ndirectories = [\"/x\"]\nranges = [\"10.0.0.0/8\"]";
        let objects = Objects { lease_directory: "/x", ..Objects::default() };
        let range =
            |subnet: &str| LeaseRange { subnet: subnet.parse().unwrap(), start: None, end: None, gateway: None };
        let reserve = |sets| Operation::LeasesReserve { sets, requested: Vec::new() };
        assert_eq!(decided(policy, "{}", &reserve(vec![vec![range("10.1.0.0/24")]]), objects), Ok("leases.ranges"));
        let foreign = vec![vec![range("11.1.0.0/24")]];
        let refusal = decided(policy, "{}", &reserve(foreign.clone()), objects).unwrap_err();
        let words = "leases.reserve on \"11.1.0.0/24\"; an operator can allow it with `grant.leases = { directories = [\"/x\"], ranges = [\"10.0.0.0/8\", \"11.1.0.0/24\"] }`";
        assert!(refusal.contains(words), "{refusal}");
        assert!(decided(policy, "{}", &Operation::LeasesAvailable { sets: foreign }, objects).is_err());
        let two = vec![vec![range("10.1.0.0/24")], vec![range("10.2.0.0/24")]];
        let refusal = decided(policy, "{}", &reserve(two), objects).unwrap_err();
        assert!(refusal.contains("on \"10.2.0.0/24\" for a second address; each entry of"), "{refusal}");
    }
}
