//! The decision: may this plugin carry out this operation on this object?
//!
//! Policy says which interfaces and which named objects. What holds for every plugin whatever its policy says (a handle
//! is one that this run was given, an address is the attachment's own) is checked where the operation is carried out,
//! in `capability/`.

use super::grammar::{self, Kind};
use super::granted::{Grant, Granted};
use super::view::Origin;
use super::{port, ranges};
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
            None => asked.deny("", "", &format!("[grant.{capability}]")),
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
                return Err(asked.key(grant, "", "gateways", "[\"true\"]"));
            }
            match force {
                true if grant.on("force-address") => "bridge.force-address",
                true => return Err(asked.key(grant, "with force", "force-address", "\"true\"")),
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
        Err(self.deny(object, &on(object), &format!("[grant.{}] {key} = [{object:?}]", grant.name)))
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
            return Err(self.key(grant, &format!("on {name:?} in promiscuous mode"), "promisc", "\"true\""));
        }
        if !vlan_filtering && port::has_vlans(grant) {
            let what = format!("on {name:?} without VLAN filtering");
            return Err(self.key(grant, &what, "vlan", "\"0\", without `trunk`"));
        }
        Ok(())
    }

    fn mtu(&self, grant: &Grant, mtu: Option<u32>, on: &str) -> Result<(), OpError> {
        match mtu {
            Some(mtu) if !grant.texts("mtu").any(|text| text == mtu.to_string()) => {
                Err(self.key(grant, &format!("{on}with MTU {mtu}"), "mtu", &format!("\"{mtu}\"")))
            }
            _ => Ok(()),
        }
    }

    fn port(&self, grant: &Grant, port: &PortSpec) -> Result<&'static str, OpError> {
        port::check(grant, port).map_err(|refused| self.key(grant, &refused.what, refused.key, &refused.value))
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
                Err(self.deny(&object, &on(&object), &format!("[grant.leases] ranges = [\"{subnet}\"]")))
            }
            Err(ranges::Refused::UsedUp(range)) => {
                let object = ranges::show(&range);
                let hint = format!(
                    "each entry of `[grant.leases] ranges` is good for one address of an attachment; an operator can add \
                     one in {}",
                    self.granted.operator_file()
                );
                Err(self.refuse(&object, &format!("{} for a second address", on(&object)), hint))
            }
        }
    }

    /// A refusal by a key that holds one value.
    fn key(&self, grant: &Grant, what: &str, key: &str, value: &str) -> OpError {
        let what = if what.is_empty() { String::new() } else { format!(" {what}") };
        self.deny("", &what, &format!("[grant.{}] {key} = {value}", grant.name))
    }

    fn deny(&self, object: &str, what: &str, line: &str) -> OpError {
        let mut hint = format!("an operator can allow it with `{line}` in {}", self.granted.operator_file());
        if self.granted.has(self.operation.capability()) {
            hint += " (a table there replaces the whole shipped one)";
        }
        self.refuse(object, what, hint)
    }

    fn withheld(&self, capability: &str) -> OpError {
        let hint = format!(
            "`when` of [grant.{capability}] grants it only where the network asks for it; an operator can change that in {}",
            self.granted.operator_file()
        );
        self.refuse("", " in this network", hint)
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
    use super::*;

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
        assert!(of("[grant.veth]", r#"{"mtu":68}"#, Some(68)).unwrap_err().contains("[grant.veth] mtu = \"68\""));
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
        assert!(by("[grant.link]", "bridge").unwrap_err().hint.contains("[grant.bridge]"));
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
             `[grant.bridge] names = [\"cni1\"]` in /etc/postern/policy/bridge.toml (a table there replaces the whole \
             shipped one)"
        );
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
        assert!(refusal.contains("names = [\"br0\"]"), "{refusal}");
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
                "bridge.ensure on \"b\" with MTU 1400; an operator can allow it with `[grant.bridge] mtu = \"1400\"`"
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
        assert!(refusal.contains("with force; ") && refusal.contains("[grant.bridge] force-address = \"true\""));
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
                    && refusal.contains("backends = [\"iptables\"]")
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
            (Operation::IpamAdd, "ipam.add on \"ptp\"; an operator can allow it with `[grant.ipam] types = [\"ptp\"]`"),
            (
                Operation::LeasesHeld,
                "leases.held on \"/srv\"; an operator can allow it with `[grant.leases] directories = [\"/srv\"]`",
            ),
            (
                Operation::ResolvConfRead,
                "resolv-conf.read on \"/etc/shadow\"; an operator can allow it with `[grant.resolv-conf] files = [\"/etc/shadow\"]`",
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
        let words = "leases.reserve on \"11.1.0.0/24\"; an operator can allow it with `[grant.leases] ranges = [\"11.1.0.0/24\"]`";
        assert!(refusal.contains(words), "{refusal}");
        assert!(decided(policy, "{}", &Operation::LeasesAvailable { sets: foreign }, objects).is_err());
        let two = vec![vec![range("10.1.0.0/24")], vec![range("10.2.0.0/24")]];
        let refusal = decided(policy, "{}", &reserve(two), objects).unwrap_err();
        assert!(refusal.contains("on \"10.2.0.0/24\" for a second address; each entry of"), "{refusal}");
    }
}
