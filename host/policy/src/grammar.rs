//! The grammar of policy files: the keys of each table, and the kinds of values.

use super::capability::firewall::{is_admin_chain, is_zone};
use super::capability::namespace_sysctl::is_key;
use super::error::ValueError;
use super::template::Template;
use super::{capability, port};
use crate::prelude::*;
use core::fmt::{self, Display, Formatter};
use postern_cni::{parse_cidr, parse_ip, validate_interface_name};
use postern_types::{Backend, Capability, FirewallBackend, IngressPolicy, IpvlanMode, Mac, MacvlanMode};

/// The kinds of values that a key can have. [`ValueKind::possible`] describes each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    Link,
    Plugin,
    /// The packet filter of masquerading and forwards.
    Backend,
    /// The mode of a macvlan.
    Mode,
    IpvlanMode,
    /// The packet filter that admits addresses.
    Filter,
    Zone,
    Chain,
    Ingress,
    LinkAddress,
    Device,
    Directory,
    File,
    Mtu,
    Vlan,
    Trunk,
    Ports,
    Flag,
    Range,
    Address,
    Gateway,
    Sysctl,
    Number,
    /// Only the node knows which contexts exist.
    SelinuxContext,
}

/// The number of values that a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// One text.
    One,
    /// A list.
    Some,
    /// A list that may be empty.
    Any,
}

/// A key of a table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key as it is written.
    pub name: &'static str,
    /// The kind of the key's values.
    pub kind: ValueKind,
    /// The number of the key's values.
    pub count: Count,
    /// The value of a required key if an operation names no object. `None` for a key that may be left out.
    pub placeholder: Option<&'static str>,
}

impl Key {
    /// True if the table must have the key.
    pub const fn is_required(&self) -> bool {
        self.placeholder.is_some()
    }
}

/// A key that may be left out.
pub const fn key(name: &'static str, kind: ValueKind, count: Count) -> Key {
    Key { name, kind, count, placeholder: None }
}

/// A list that the table must have.
pub const fn required(name: &'static str, kind: ValueKind, placeholder: &'static str) -> Key {
    Key { name, kind, count: Count::Some, placeholder: Some(placeholder) }
}

/// A key of every table with a grant: the grant applies only if one of the key's values is `true`.
pub const WHEN: Key = key("when", ValueKind::Flag, Count::Some);

/// A key of tables about links: the plugin may only look at links, and not make, change or delete them.
pub const LOOK_ONLY: Key = key("look-only", ValueKind::Flag, Count::One);

/// The text in a policy for the link of the default route. The gate finds the link's name.
pub const DEFAULT_LINK: &str = "node.default-link";

/// The text in a policy for every packet filter.
pub const ANY: &str = "any";

/// The keys of `[result]`.
const RESULT: &[Key] = &[
    key("addresses", ValueKind::Address, Count::Some),
    key("gateways", ValueKind::Gateway, Count::Some),
    key("sockets", ValueKind::File, Count::Some),
];

/// The keys of `[previous]`.
const PREVIOUS: &[Key] = &[
    key("addresses", ValueKind::Address, Count::Some),
    key("names", ValueKind::Link, Count::Some),
    key("in-container", ValueKind::Flag, Count::One),
];

/// The name of a table that grants something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableName {
    /// `[grant.…]`
    Grant(Capability),
    /// `[result]`: the parts of a result that the plugin has neither leased nor made.
    Result,
    /// `[previous]`: objects of an earlier native plugin that count as the attachment's own.
    Previous,
}

impl TableName {
    /// Returns the name behind `grant.`, or the whole name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grant(capability) => capability.name(),
            Self::Result => "result",
            Self::Previous => "previous",
        }
    }

    /// Returns the table and the key of a rule `NAME.KEY`, if there is such a table.
    pub fn of_rule(rule: &str) -> Option<(Self, &str)> {
        let (name, key) = rule.split_once('.')?;
        let grants = Capability::ALL.iter().copied().map(Self::Grant);
        Some((grants.chain([Self::Result, Self::Previous]).find(|table| table.name() == name)?, key))
    }

    /// Returns all keys of the table.
    pub fn keys(self) -> Vec<Key> {
        match self {
            Self::Grant(capability) => capability::keys(capability).iter().copied().chain([WHEN]).collect(),
            Self::Result => RESULT.to_vec(),
            Self::Previous => PREVIOUS.to_vec(),
        }
    }
}

impl Display for TableName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if matches!(self, Self::Grant(_)) { "grant." } else { "" }, self.name())
    }
}

/// Returns the names of all capabilities.
pub fn names() -> Vec<&'static str> {
    Capability::ALL.iter().map(|capability| capability.name()).collect()
}

impl ValueKind {
    /// Checks the parts of a value that depend on no configuration. The error has the possible values.
    pub fn check(self, template: &Template) -> Result<(), ValueError> {
        if let Some((address, gateway)) = template.pair() {
            return Self::Address.check(address).and_then(|()| self.check(gateway));
        }
        if template.has_default_link() {
            // The placeholder must be alone: text around it would be read as a part of a link's name.
            let alone = self == Self::Link && template.is_single();
            return if alone { Ok(()) } else { Err(self.is_not(template.text())) };
        }
        if let Some(text) = template.by_default() {
            return self.check_text(&text);
        }
        for (first, literal) in template.literals() {
            let impossible = match self {
                Self::Link => literal.contains('/') || literal.replace('*', "").len() > 15,
                Self::Plugin | Self::Device => literal.contains('/') || first && literal.starts_with('.'),
                Self::Directory | Self::File => first && !literal.starts_with('/'),
                Self::Sysctl => first && !literal.starts_with("net."),
                _ => literal.contains('*'),
            };
            if impossible {
                return Err(self.is_not(template.text()));
            }
        }
        Ok(())
    }

    /// Checks a text that is or could be in a policy file.
    pub fn check_text(self, text: &str) -> Result<(), ValueError> {
        let open = text.contains('*');
        let good = match self {
            // A star may match the empty text.
            Self::Link if open => {
                let rest = text.replace('*', "");
                rest.len() <= 15 && !rest.contains(|c: char| matches!(c, '/' | ':') || c.is_whitespace())
            }
            Self::Link => validate_interface_name(text).is_ok(),
            Self::Plugin => !text.is_empty() && !text.contains('/') && !text.starts_with('.'),
            Self::Backend => text == ANY || Backend::parse(text).is_some(),
            Self::Mode => MacvlanMode::parse(text).is_some(),
            Self::IpvlanMode => IpvlanMode::parse(text).is_some(),
            Self::Filter => FirewallBackend::parse(text).is_some(),
            Self::Zone => is_zone(text),
            Self::Chain => is_admin_chain(text),
            Self::Ingress => text == "open" || IngressPolicy::parse(text).is_some(),
            Self::LinkAddress => text.parse::<Mac>().is_ok(),
            Self::Device => {
                let is_own = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'.' | b'_' | b'-');
                !text.is_empty() && text.bytes().all(|byte| is_own(byte) || byte == b'*') && !text.starts_with('.')
            }
            Self::Directory => text.starts_with('/'),
            Self::File => text.starts_with('/') && !text.ends_with('/'),
            Self::Mtu => text.parse().is_ok_and(|mtu: u32| mtu == 0 || (68..=65535).contains(&mtu)),
            Self::Vlan => text == "0" || text.parse().is_ok_and(port::is_vlan),
            Self::Trunk => port::vlans(text).is_some(),
            Self::Ports => port::ports(text).is_some(),
            Self::Flag => matches!(text, "true" | "false"),
            Self::Range => parse_cidr(text).is_ok_and(|net| net.trunc() == net),
            Self::Address => parse_cidr(text).is_ok(),
            Self::Gateway => parse_ip(text).is_ok() || parse_cidr(text).is_ok(),
            Self::Sysctl => !text.contains('/') && is_key(text),
            Self::Number => text.parse::<u32>().is_ok(),
            Self::SelinuxContext => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) && !open,
        };
        if good { Ok(()) } else { Err(self.is_not(text)) }
    }

    fn is_not(self, text: &str) -> ValueError {
        ValueError::Kind { text: text.to_owned(), possible: self.possible() }
    }

    /// Returns the possible values, as text that follows "is no".
    fn possible(self) -> &'static str {
        match self {
            Self::Link => {
                "name of a link: a name has 1 to 15 bytes, without `/`, `:` and blanks; `*` stands for any characters"
            }
            Self::Plugin => "type of a plugin: it can't have a `/` or begin with a `.`; `*` stands for any characters",
            Self::LinkAddress => "link-layer address, such as \"02:00:5e:10:00:01\"",
            Self::Device => "device, such as \"0000:3b:00.1\" or \"mlx5_core.sf.4\"; `*` stands for any characters",
            Self::Filter => "packet filter: use \"iptables\" or \"firewalld\"",
            Self::Zone => "zone: a zone has letters, digits, `_` and `-`",
            Self::Chain => {
                "chain for an administrator's rules: use \"CNI-ADMIN\" or a name of up to 28 letters, digits, `_`, `-` \
                 and `.`, which neither iptables nor another program uses"
            }
            Self::Ingress => "ingress policy: use \"open\", \"same-bridge\" or \"isolated\"",
            Self::IpvlanMode => "mode: use \"l2\", \"l3\" or \"l3s\"",
            Self::Mode => "mode: use \"bridge\", \"private\", \"vepa\" or \"passthru\"",
            Self::Backend => "backend: use \"nftables\", \"iptables\" or \"any\"",
            Self::Directory => "absolute directory, such as \"/PATH\"; `*` stands for any part of a name",
            Self::File => "absolute path of a file, such as \"/PATH/FILE\"; `*` stands for any part of a name",
            Self::Mtu => "MTU: use \"0\" (the kernel's default) or \"68\" to \"65535\"",
            Self::Vlan => "VLAN: use \"0\" (none) or \"1\" to \"4094\"",
            Self::Trunk => "VLAN: use \"1\" to \"4094\" or a range like \"10-20\"",
            Self::Ports => "port: use \"1\" to \"65535\" or a range like \"1024-65535\"",
            Self::Flag => "flag: use \"true\" or \"false\"",
            Self::Range => {
                "network to lease from: use a CIDR without host bits like \"10.0.0.0/8\", or a placeholder for an \
                 object with `subnet`"
            }
            Self::Sysctl => "kernel setting, such as \"net.core.somaxconn\"; `*` stands for any characters",
            Self::SelinuxContext => "SELinux context, such as \"system_u:object_r:container_t:s0\"",
            Self::Number => "number: use \"0\" to \"4294967295\"",
            Self::Address => "address: use a CIDR, \"10.1.2.3/24\", or a whole network, \"10.1.0.0/16\"",
            Self::Gateway => {
                "gateway: use an address, \"10.1.2.1\", a whole network, \"10.1.0.0/16\", or a gateway of one \
                 address, \"10.1.2.3/24 via 10.1.2.1\""
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_says_what_is_possible() {
        let cases: [(ValueKind, &[&str], &[&str], &str); 23] = [
            (
                ValueKind::IpvlanMode,
                &["l2", "l3s", "${config.mode | l2}"],
                &["", "L2", "l4", "*", "bridge"],
                "\"l2\", \"l3\" or \"l3s\"",
            ),
            (
                ValueKind::Sysctl,
                &[
                    "net.*",
                    "net.ipv4.conf.IFNAME.*",
                    "net.core.somaxconn",
                    "net.${config.x}",
                    "${config.x | net.core.x}",
                ],
                &["", "*", "net", "kernel.*", "net/core/x", "net..x", "kernel.${config.x}", "${config.x | vm.x}"],
                "\"net.core.somaxconn\"",
            ),
            (
                ValueKind::SelinuxContext,
                &["system_u:object_r:container_t:s0:c1,c2", "${config.selinuxContext}"],
                &["", "a b", "a:b:*", "a\nb"],
                "system_u:object_r",
            ),
            (ValueKind::Number, &["0", "4294967295"], &["", "-1", "4294967296", "*", "x"], "\"0\" to"),
            (
                ValueKind::Filter,
                &["iptables", "firewalld", "${config.backend | iptables}"],
                &["nftables", "", "*", "${config.x | pf}"],
                "\"iptables\" or \"firewalld\"",
            ),
            (
                ValueKind::Zone,
                &["trusted", "${config.firewalldZone | trusted}"],
                &["", "*", "a b", "a/b"],
                "letters, digits",
            ),
            (
                ValueKind::Chain,
                &["CNI-ADMIN", "MY_RULES", "${config.iptablesAdminChainName | CNI-ADMIN}"],
                &["", "*", "FORWARD", "KUBE-FORWARD", "CNI-FORWARD", "${config.x | DOCKER}"],
                "CNI-ADMIN",
            ),
            (
                ValueKind::Ingress,
                &["open", "same-bridge", "isolated", "${config.ingressPolicy | open}"],
                &["", "*", "closed"],
                "\"same-bridge\" or \"isolated\"",
            ),
            (
                ValueKind::Ports,
                &["1", "22-22", "1024-65535"],
                &["", "0", "65536", "9-8", "0-5", "http", "1-2-3", "*"],
                "\"1\" to \"65535\"",
            ),
            (
                ValueKind::LinkAddress,
                &["02:00:5e:10:00:01", "02-00-5E-10-00-01", "${config.hwaddr}"],
                &["", "02:00", "*", "02:00:5e:10:00:*", "${config.hwaddr}*"],
                "02:00:5e:10:00:01",
            ),
            (
                ValueKind::Device,
                &["0000:3b:00.1", "0000:3b:*", "mlx5_core.sf.4", "${config.pciBusID}"],
                &["", "../0000:3b:00.1", "a/b", ".", "/sys/${config.x}", "a b"],
                "such as \"0000:3b:00.1\"",
            ),
            (
                ValueKind::Link,
                &["br0", "br*", "*", "fifteen_bytes__", "${config.x | cni0}", "br-${config.x}"],
                &[
                    "",
                    "sixteen_bytes___",
                    "sixteen_bytes*___",
                    "a/b",
                    "a b",
                    "..",
                    "${config.x | a/b}",
                    "a/${config.x}",
                ],
                "1 to 15 bytes",
            ),
            (
                ValueKind::Plugin,
                &["host-local", "*", "${config.ipam.type}", "my-*"],
                &["", "../sh", "a/b", ".hidden", "./${config.x}"],
                "can't have a `/` or begin with a `.`",
            ),
            (
                ValueKind::Backend,
                &["nftables", "iptables", "any"],
                &["pf", "", "*", "${config.x | pf}"],
                "\"nftables\", \"iptables\" or \"any\"",
            ),
            (
                ValueKind::Directory,
                &["/", "/var/lib/*", "${config.x}", "/x/${config.x}", "${config.x | /var}"],
                &["", "var", "./x", "x/${config.x}", "${config.x | var}"],
                "such as \"/PATH\"",
            ),
            (ValueKind::File, &["/etc/resolv.conf", "/run/*.conf"], &["resolv.conf", "/etc/", ""], "\"/PATH/FILE\""),
            (ValueKind::Mtu, &["0", "1500", "65535"], &["67", "65536", "", "x", "*", "-1"], "\"68\" to \"65535\""),
            (
                ValueKind::Vlan,
                &["0", "1", "4094", "${config.vlan | 0}"],
                &["4095", "-1", "", "1-2", "*"],
                "\"1\" to \"4094\"",
            ),
            (
                ValueKind::Trunk,
                &["1", "1-4094", "${config.a.*.x}-${config.a.*.y}"],
                &["0", "4095", "5-3", "1-4095", "", "*", "${config.x}*"],
                "a range like \"10-20\"",
            ),
            (ValueKind::Flag, &["true", "false"], &["yes", "", "True", "1"], "\"true\" or \"false\""),
            (
                ValueKind::Range,
                &["10.0.0.0/8", "fd00::/64", "${config.ipam}"],
                &["10.0.0.0", "10.0.0.1/8", "x", "", "10.*.0.0/16", "10.0.0.0/33"],
                "a CIDR without host bits",
            ),
            (ValueKind::Address, &["10.1.2.3/24", "fd00::/64"], &["10.1.2.3", "", "10.1.2.3/33"], "use a CIDR"),
            (
                ValueKind::Gateway,
                &["10.1.2.1", "10.1.0.0/16", "10.1.2.3/24 via 10.1.2.1", "${args.IP.*} via ${args.GATEWAY.*}"],
                &["x", "", "10.1.2.1/33", "10.1.2.3/24 via x", "10.1.2.3/24 via 10.1.2.1 via 10.1.2.2", "via"],
                "use an address",
            ),
        ];
        for (kind, good, bad, possible) in cases {
            for text in good {
                assert_eq!(kind.check(&Template::parse_gateway(text).unwrap()), Ok(()), "{kind:?} {text}");
            }
            for text in bad {
                let error = kind.check(&Template::parse_gateway(text).unwrap()).unwrap_err();
                assert!(error.to_string().contains(possible), "{kind:?} {text}: {error}");
            }
        }
    }
}
