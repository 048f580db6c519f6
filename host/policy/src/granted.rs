//! A policy for one run, with its values from the operator's configuration.

use super::error::Ambiguous;
use super::file::{self, File};
use super::grammar::{TableName, ValueKind};
use super::limits::Limits;
use super::line::{self, Change};
use super::pattern::Pattern;
use super::template::{Sources, Value};
use super::view::{GrantView, Origin};
use super::{OPERATOR_DIRECTORY, ranges};
use crate::prelude::*;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::net::IpAddr;
use ipnet::IpNet;
use postern_cni::{parse_cidr, parse_ip};
use postern_types::Capability;

/// A policy for one run.
#[derive(Clone, Debug)]
pub struct Granted {
    pub(super) tables: BTreeMap<TableName, Grant>,
    pub(super) withdrawn: BTreeMap<TableName, Grant>,
    pub(super) file: Arc<File>,
    pub(super) path: String,
}

/// A granted capability, with its granted objects.
#[derive(Clone, Debug)]
pub struct Grant {
    pub(super) name: &'static str,
    pub(super) from: Origin,
    keys: Vec<(&'static str, Vec<Value>)>,
}

impl Grant {
    /// A table without keys.
    pub(super) const EMPTY: Self = Self { name: "", from: Origin::Host, keys: Vec::new() };

    /// Fills in the values from the configuration. Fails if the configuration makes a value ambiguous.
    pub(super) fn resolve(grant: &file::GrantTable, sources: Sources<'_>) -> Result<Self, Ambiguous> {
        let mut keys = Vec::new();
        for (key, templates) in &grant.keys {
            let mut values = Vec::new();
            for (number, template) in templates.iter().enumerate() {
                values.extend(template.resolve(sources, (key.kind == ValueKind::Range).then_some(number))?);
            }
            keys.push((key.name, values));
        }
        Ok(Self { name: grant.name, from: grant.from, keys })
    }

    /// Returns the values of a key.
    pub(super) fn values(&self, key: &str) -> impl Iterator<Item = &Value> {
        self.keys.iter().filter(move |(name, _)| *name == key).flat_map(|(_, values)| values)
    }

    pub(super) fn patterns(&self, key: &str) -> impl Iterator<Item = &Pattern> {
        self.values(key).filter_map(|value| match value {
            Value::Text(pattern) => Some(pattern),
            Value::Range(..) | Value::Pairs(_) | Value::EachWithEach(..) => None,
        })
    }

    /// Returns the values of a key as text, for numbers and flags.
    pub(super) fn texts(&self, key: &str) -> impl Iterator<Item = String> {
        self.patterns(key).map(Pattern::to_string)
    }

    /// True if a value of the key matches this object.
    pub(super) fn matches(&self, key: &str, object: &str) -> bool {
        self.patterns(key).any(|pattern| pattern.matches(object))
    }

    /// True if a value of `addresses` is this address, or a network of the policy file that contains it.
    pub(super) fn has_address(&self, address: &IpNet) -> bool {
        self.patterns("addresses").any(|pattern| is_address(pattern, address))
    }

    /// True if the grant applies to this run: `when` is absent or true.
    pub(super) fn holds(&self) -> bool {
        !self.sets("when") || self.on("when")
    }

    /// True if the table has the key, with any value.
    pub(super) fn sets(&self, key: &str) -> bool {
        self.keys.iter().any(|(name, _)| *name == key)
    }

    /// True if a flag is `true`.
    pub(super) fn on(&self, key: &str) -> bool {
        self.texts(key).any(|text| text == "true")
    }

    fn view(&self) -> GrantView {
        let list = |patterns: &[Pattern]| patterns.iter().map(Pattern::to_string).collect::<Vec<_>>().join(" or ");
        let texts = |value: &Value| match value {
            Value::Text(pattern) => vec![pattern.to_string()],
            Value::Range(range, _) => vec![ranges::show(range)],
            Value::Pairs(pairs) => pairs.iter().map(|(address, gateway)| format!("{address} via {gateway}")).collect(),
            Value::EachWithEach(addresses, gateways) if addresses.is_empty() || gateways.is_empty() => Vec::new(),
            Value::EachWithEach(addresses, gateways) => vec![format!("{} via {}", list(addresses), list(gateways))],
        };
        let objects = self.keys.iter().map(|(key, values)| (*key, values.iter().flat_map(texts).collect())).collect();
        GrantView { name: self.name, from: self.from, objects }
    }
}

impl Granted {
    /// Returns the limits of the run.
    pub fn limits(&self) -> &Limits {
        &self.file.limits
    }

    /// True if a capability is granted at all.
    pub fn has(&self, capability: Capability) -> bool {
        self.grant(capability).is_some()
    }

    /// Returns a grant of the file, even if it does not apply to this run.
    pub(super) fn written(&self, capability: Capability) -> Option<&Grant> {
        self.tables.get(&TableName::Grant(capability))
    }

    /// True if the plugin is made for a capability: a file grants the capability for some network, or withdraws the
    /// capability.
    pub fn knows(&self, capability: Capability) -> bool {
        self.written(capability).is_some() || self.withdrawn.contains_key(&TableName::Grant(capability))
    }

    pub(super) fn grant(&self, capability: Capability) -> Option<&Grant> {
        self.table(TableName::Grant(capability))
    }

    fn table(&self, table: TableName) -> Option<&Grant> {
        self.tables.get(&table).filter(|grant| grant.holds())
    }

    /// True if a table has this object. `rule` is `TABLE.KEY`: the table is a capability, `result` or `previous`. Flags
    /// need another test: a flag is on only if its text is exactly `true`.
    pub fn has_object(&self, rule: &str, object: &str) -> bool {
        let table = TableName::of_rule(rule).and_then(|(table, key)| Some((self.table(table)?, key)));
        table.is_some_and(|(grant, key)| grant.matches(key, object))
    }

    /// True if `[result]` has this address. A network of the policy file contains all its addresses. An address of the
    /// configuration must be equal, and have the same prefix length.
    pub fn may_hand_out(&self, address: &IpNet) -> bool {
        self.table(TableName::Result).is_some_and(|result| result.has_address(address))
    }

    /// True if `[previous]` has this address: an address of `prevResult` that no record lists, from a native plugin.
    pub fn may_take_over(&self, address: &IpNet) -> bool {
        self.table(TableName::Previous).is_some_and(|table| table.has_address(address))
    }

    /// True if `[previous]` lets the kernel confirm parts of `prevResult`: an address that the container has, and the
    /// other end of its link.
    pub fn may_take_over_in_container(&self) -> bool {
        self.table(TableName::Previous).is_some_and(|table| table.on("in-container"))
    }

    /// True if `namespace-sysctl` may change settings of links of earlier plugins.
    pub fn may_set_other_links(&self) -> bool {
        self.grant(Capability::NamespaceSysctl).is_some_and(|grant| grant.on("other-links"))
    }

    /// True if `[result]` has this gateway for this address. A gateway that is named for the address may lie anywhere,
    /// as with the native plugins. Any other gateway must lie in the address's network.
    pub fn may_name_gateway(&self, address: &IpNet, gateway: &IpAddr) -> bool {
        let in_network = address.contains(gateway);
        self.table(TableName::Result).into_iter().flat_map(|result| result.values("gateways")).any(
            |value| match value {
                Value::Text(pattern) => in_network && is_gateway(pattern, gateway),
                Value::Pairs(pairs) => {
                    pairs.iter().any(|(of, named)| is_address(of, address) && is_gateway(named, gateway))
                }
                Value::EachWithEach(addresses, gateways) => {
                    in_network
                        && addresses.iter().any(|of| is_address(of, address))
                        && gateways.iter().any(|named| is_gateway(named, gateway))
                }
                Value::Range(..) => false,
            },
        )
    }

    /// Returns the plugin of this policy.
    pub fn plugin(&self) -> String {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
    }

    /// Returns the file where an operator would extend the policy.
    pub fn operator_file(&self) -> String {
        format!("{}/{}.toml", OPERATOR_DIRECTORY, self.plugin())
    }

    /// Returns the withdrawn capabilities that this network needs. Each such capability makes an ADD fail.
    pub fn missed(&self) -> impl Iterator<Item = Capability> {
        let asks = |of: &Capability| self.withdrawn.get(&TableName::Grant(*of)).is_some_and(Grant::holds);
        Capability::ALL.iter().copied().filter(asks)
    }

    /// Returns the hint for a refusal that these changes of a table would lift. The hint has the policy line, its file,
    /// and a note if the line replaces a shipped table.
    fn way_out(&self, table: TableName, changes: Vec<Change>) -> String {
        let file = self.operator_file();
        let Some(line) = line::table(&self.file, table, changes) else {
            return format!(
                "no line of a policy file can name this object; only a placeholder in {file} can name it (see the \
                 shipped policy)"
            );
        };
        let mut hint = format!("an operator can allow it with `{line}` in {file}");
        if !line.starts_with('[') {
            hint += ", before its first table";
        }
        if matches!(table, TableName::Grant(_)) && self.tables.contains_key(&table) {
            hint += " (the line has all that is granted now, because it replaces the whole shipped table)";
        }
        hint
    }

    /// Works as [`Granted::object_hint`], for an address. The policy line names the address's network, because a line for each
    /// address of a pool would be useless.
    pub fn addresses_hint(&self, rule: &'static str, address: &IpNet) -> String {
        // A prefix of a single address or of all addresses is shown as an address, not as a network.
        if (1..address.max_prefix_len()).contains(&address.prefix_len()) {
            return self.object_hint(rule, &address.trunc().to_string());
        }
        let (table, key) = rule.split_once('.').unwrap_or_default();
        let file = self.operator_file();
        format!("an operator can name the network of such addresses as `{key}` of [{table}] in {file}")
    }

    /// Returns the hint if a limit was reached.
    pub fn limit_hint(&self, key: &str, now: u32) -> String {
        limit_hint(&self.plugin(), key, now)
    }

    /// Returns the hint for a refusal that these changes of a capability's table would lift.
    pub(super) fn hint(&self, capability: Capability, changes: Vec<Change>) -> String {
        self.way_out(TableName::Grant(capability), changes)
    }

    /// Returns the hint for a refused object, by the rule that would allow the object (see [`Granted::has_object`]).
    pub fn object_hint(&self, rule: &'static str, object: &str) -> String {
        let table = TableName::of_rule(rule);
        table.map(|(table, key)| self.way_out(table, vec![line::text(key, object)])).unwrap_or_default()
    }

    /// Returns the hint if a capability is withdrawn.
    pub fn withdrawn_hint(&self, capability: Capability) -> String {
        match line::withdraw(&self.file, capability) {
            Some(line) => format!(
                "[grant.{capability}] is withdrawn; an operator can allow it with `{line}` in {}, instead of the \
                 present `withdraw`",
                self.operator_file()
            ),
            None => format!("the plugin's shipped policy withdraws [grant.{capability}]; no policy can allow it"),
        }
    }

    /// True if a file takes this capability away.
    pub(super) fn is_withdrawn(&self, capability: Capability) -> bool {
        self.file.withdraw.contains(&capability)
    }

    /// Returns the grants, `[result]` and `[previous]` with the values of this run.
    pub fn view(&self) -> Vec<GrantView> {
        self.tables.values().map(Grant::view).collect()
    }
}

/// True if a value is this address with its prefix length or, in a policy file, a network that contains it.
fn is_address(pattern: &Pattern, address: &IpNet) -> bool {
    parse_cidr(&pattern.to_string()).is_ok_and(|granted| {
        let network = pattern.is_written() && granted.trunc() == granted;
        granted == *address || network && granted.contains(address)
    })
}

/// True if a value is this gateway or, in a policy file, a network that contains it.
fn is_gateway(pattern: &Pattern, gateway: &IpAddr) -> bool {
    let text = pattern.to_string();
    parse_ip(&text).is_ok_and(|granted| granted == *gateway)
        || pattern.is_written() && parse_cidr(&text).is_ok_and(|network| network.contains(gateway))
}

/// Returns the hint if a limit of a plugin was reached.
pub fn limit_hint(plugin: &str, key: &str, now: u32) -> String {
    match line::limit(key, now) {
        Some(line) => format!("`{line}` in {}/{plugin}.toml, before its first table", OPERATOR_DIRECTORY),
        None => format!("no policy can raise limits.{key} any further"),
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::Policy;
    use super::*;
    use postern_cni::Json;

    pub fn granted(policy: &str, config: &str) -> Granted {
        granted_with(policy, config, "")
    }

    fn granted_with(policy: &str, config: &str, args: &str) -> Granted {
        let config = Json::parse(config.as_bytes(), 4096).unwrap();
        Policy::parse(policy, "bridge.toml").unwrap().resolve(&config, args).unwrap()
    }

    #[test]
    fn a_result_has_addresses_of_the_configuration_exactly() {
        let policy = r#"[result]
            addresses = ["${config.ipam.addresses.*.address}", "${args.IP.*}"]
            gateways = [
                "${config.ipam.addresses.*.address} via ${config.ipam.addresses.*.gateway}",
                "${args.IP.*} via ${args.GATEWAY.*}",
            ]"#;
        let config = r#"{"ipam":{"addresses":[{"address":"10.9.0.0/24","gateway":"10.9.0.1"},{"address":"FD00::7/64"},
            {"address":"10.7.0.2/16","gateway":"192.0.2.1"},{"address":"10.7.0.3/16","gateway":"fd00::1"}]}}"#;
        let granted = granted_with(policy, config, "IP=10.8.0.3/16, fd00::8/64;GATEWAY=10.8.0.1,fd00::2");
        for (address, expected) in [
            ("10.9.0.0/24", true),
            ("10.9.0.7/24", false),
            ("10.9.0.0/16", false),
            ("fd00::7/64", true),
            ("10.8.0.3/16", true),
            ("fd00::8/64", true),
            ("10.8.0.3/8", false),
        ] {
            assert_eq!(granted.may_hand_out(&address.parse().unwrap()), expected, "{address}");
        }
        for (address, gateway, expected) in [
            ("10.9.0.0/24", "10.9.0.1", true),
            ("10.9.0.0/24", "10.9.0.2", false),
            // The gateway belongs to another entry, another address, or another prefix length.
            ("10.9.0.0/24", "10.8.0.1", false),
            ("10.9.0.0/24", "192.0.2.1", false),
            ("10.9.0.7/24", "10.9.0.1", false),
            ("10.9.0.0/16", "10.9.0.1", false),
            ("fd00::7/64", "fd00::1", false),
            ("10.7.0.2/16", "192.0.2.1", true),
            ("10.7.0.3/16", "192.0.2.1", false),
            // CNI_ARGS: each address with each gateway that lies in its network.
            ("10.8.0.3/16", "10.8.0.1", true),
            ("10.8.0.3/16", "fd00::2", false),
            ("fd00::8/64", "fd00::2", true),
            ("fd00::8/64", "10.8.0.1", false),
        ] {
            let message = granted.may_name_gateway(&address.parse().unwrap(), &gateway.parse().unwrap());
            assert_eq!(message, expected, "{address} via {gateway}");
        }
        let result = granted.view().into_iter().find(|table| table.name == "result").unwrap();
        let shown = result.objects.into_iter().find(|(key, _)| *key == "gateways").unwrap().1;
        assert_eq!(
            shown,
            [
                "10.9.0.0/24 via 10.9.0.1",
                "10.7.0.2/16 via 192.0.2.1",
                "10.7.0.3/16 via fd00::1",
                "10.8.0.3/16 or fd00::8/64 via 10.8.0.1 or fd00::2"
            ]
        );
    }

    #[test]
    fn a_result_has_all_of_a_network_that_the_policy_names() {
        let policy = r#"[result]
            addresses = ["10.0.0.0/8", "192.0.2.7/24"]
            gateways = ["10.0.0.0/8", "fd00::1", "192.0.2.7/24 via 203.0.113.1", "198.51.100.0/24 via 203.0.113.0/24"]"#;
        let granted = granted(policy, "{}");
        for (address, expected) in [
            ("10.1.2.3/24", true),
            ("10.1.2.3/8", true),
            ("10.1.2.3/7", false),
            ("11.1.2.3/24", false),
            ("192.0.2.7/24", true),
            ("192.0.2.8/24", false),
            ("0.0.0.0/0", false),
        ] {
            assert_eq!(granted.may_hand_out(&address.parse().unwrap()), expected, "{address}");
        }
        for (address, gateway, expected) in [
            ("10.255.0.7/16", "10.255.0.1", true),
            ("10.9.0.7/16", "10.255.0.1", false),
            ("10.9.0.7/16", "fd00::1", false),
            ("fd00::7/64", "fd00::1", true),
            ("fd00::7/64", "fd00::2", false),
            ("192.0.2.7/24", "203.0.113.1", true),
            ("192.0.2.8/24", "203.0.113.1", false),
            ("198.51.100.7/24", "203.0.113.9", true),
            ("198.51.100.7/24", "203.0.114.9", false),
        ] {
            let message = granted.may_name_gateway(&address.parse().unwrap(), &gateway.parse().unwrap());
            assert_eq!(message, expected, "{address} via {gateway}");
        }
    }

    #[test]
    fn without_result_nothing_can_be_handed_out() {
        let granted = granted("", "{}");
        assert!(
            !granted.may_hand_out(&"10.0.0.1/8".parse().unwrap())
                && !granted.may_name_gateway(&"10.0.0.1/8".parse().unwrap(), &[10, 0, 0, 1].into())
        );
    }
}
