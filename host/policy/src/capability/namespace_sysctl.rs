//! `namespace-sysctl`: the keys that a plugin may set in the container's network namespace.

use super::prelude::*;

/// The keys of `[grant.namespace-sysctl]`. `other-links` allows settings of links that other plugins made.
pub const KEYS: &[Key] =
    &[required("keys", ValueKind::Sysctl, "net.*"), key("other-links", ValueKind::Flag, Count::One)];

/// Returns a key of a configuration as policies write it, with dots between its parts.
pub fn dotted(key: &str) -> String {
    key.replace('/', ".")
}

/// True if a network namespace can have this key: the key begins with `net`, and has no empty part.
pub fn is_key(key: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part.chars().all(|c| !c.is_whitespace() && !c.is_control());
    let key = dotted(key);
    key.len() <= 200 && key.starts_with("net.") && key.split('.').all(is_part)
}

impl Decide for ops::NamespaceSysctl {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Set { key, .. } | Self::Check { key, .. } => {
                input.one_of(grant, "namespace-sysctl.keys", &dotted(key))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_parts_below_net() {
        for key in ["net.core.somaxconn", "net/ipv4/ip_forward", "net.ipv4.conf.IFNAME.arp_filter", "net.ipv4"] {
            assert!(is_key(key), "{key}");
        }
        let long = ["net.", &"a".repeat(200)].concat();
        for key in [
            "",
            "net",
            "net.",
            "kernel.hostname",
            "/net/ipv4/ip_forward",
            "net..core",
            "net.ipv4.",
            "net/../kernel",
            "net.../kernel",
            "net.core.a b",
            "net.core.a\n",
            "net.core.\0",
            "NET.core.x",
            &long,
        ] {
            assert!(!is_key(key), "{key}");
        }
    }
}
