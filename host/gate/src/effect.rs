//! What an operation leaves on the node, as data: the record holds it, undo and DEL remove it.
//!
//! An [`Effect`] is written to the attachment's record before the operation is carried out, so that it can be removed
//! whatever happens afterwards, without the plugin, its policy, `prevResult` or the namespace. Removing needs no grant:
//! what a record lists is its attachment's own. Node objects (bridge, forwarding, base tables) are no effects: they are
//! shared, native plugins leave them too, and `postern gc --node` looks after them.

use ipnet::IpNet;
use postern_types::{Backend, Mac};
use serde::{Deserialize, Serialize};

/// One thing on the node that belongs to one attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "kebab-case")]
pub enum Effect {
    /// A veth pair, known by the name and the address that the host chose for its own end.
    Veth {
        /// Host end's name.
        host: String,
        /// Host end's address: a link of the same name with another one is a stranger's.
        mac: Mac,
    },
    /// Masquerading rules, known by the attachment; in iptables by its addresses, as attachments of one container share
    /// a chain there.
    Masquerade {
        /// Which packet filter has them.
        backend: Backend,
        /// Whose traffic they masquerade.
        #[serde(default)]
        addresses: Vec<IpNet>,
    },
    /// Spoofing protection. One of an earlier version has no fields: it has the native name, for the record's pair.
    MacGuard {
        /// What its rules and chains are named after; `None` for the native plugins' name of the attachment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// The host end that it guards.
        #[serde(default, rename = "port", skip_serializing_if = "Option::is_none")]
        host: Option<String>,
        /// The one address that may send there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mac: Option<Mac>,
    },
    /// Leases in a data directory, known by their owner.
    Lease {
        /// host-local's `dataDir`.
        directory: String,
    },
    /// A native IPAM program was run; it has to be run again to remove what it did.
    Native {
        /// Its name in `CNI_PATH`.
        plugin: String,
    },
    /// `lo` was down before. Lives and dies with the namespace: never recorded, only undone by a failed ADD.
    LoopbackUp,
}

impl Effect {
    /// Whether it is on a disk, and not in a kernel.
    pub fn outlives_boot(&self) -> bool {
        match self {
            Self::Lease { .. } | Self::Native { .. } => true,
            Self::Veth { .. } | Self::Masquerade { .. } | Self::MacGuard { .. } | Self::LoopbackUp => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What records have of each effect, and of those that earlier versions wrote.
    #[test]
    fn records_keep_their_form() {
        let host = || "veth1a2b3c4d".to_owned();
        let mac: Mac = "02:00:00:00:00:01".parse().unwrap();
        let addresses = || vec!["10.1.0.2/24".parse().unwrap(), "fd00::2/64".parse().unwrap()];
        let guard = |id: &str| Effect::MacGuard { id: Some(id.to_owned()), host: Some(host()), mac: Some(mac) };
        for (effect, text) in [
            (
                Effect::Veth { host: host(), mac },
                r#"{"effect":"veth","host":"veth1a2b3c4d","mac":"02:00:00:00:00:01"}"#,
            ),
            (
                Effect::Masquerade { backend: Backend::Nftables, addresses: addresses() },
                r#"{"effect":"masquerade","backend":"nftables","addresses":["10.1.0.2/24","fd00::2/64"]}"#,
            ),
            (
                Effect::Masquerade { backend: Backend::Iptables, addresses: Vec::new() },
                r#"{"effect":"masquerade","backend":"iptables","addresses":[]}"#,
            ),
            (Effect::MacGuard { id: None, host: None, mac: None }, r#"{"effect":"mac-guard"}"#),
            (
                guard("postern/1"),
                r#"{"effect":"mac-guard","id":"postern/1","port":"veth1a2b3c4d","mac":"02:00:00:00:00:01"}"#,
            ),
            (Effect::Lease { directory: "/var/lib".to_owned() }, r#"{"effect":"lease","directory":"/var/lib"}"#),
            (Effect::Native { plugin: "dhcp".to_owned() }, r#"{"effect":"native","plugin":"dhcp"}"#),
            (Effect::LoopbackUp, r#"{"effect":"loopback-up"}"#),
        ] {
            assert_eq!(serde_json::to_string(&effect).unwrap(), text);
            assert_eq!(serde_json::from_str::<Effect>(text).unwrap(), effect);
        }
        let earlier = Effect::Masquerade { backend: Backend::Nftables, addresses: Vec::new() };
        let text = r#"{"effect":"masquerade","backend":"nftables"}"#;
        assert_eq!(serde_json::from_str::<Effect>(text).unwrap(), earlier);
    }

    #[test]
    fn guards_of_earlier_versions_are_read_and_theirs_are_readable() {
        let read = |text: &str| serde_json::from_str::<Effect>(text).unwrap();
        let before = Effect::MacGuard { id: None, host: None, mac: None };
        assert_eq!(read(r#"{"effect":"mac-guard"}"#), before);
        assert_eq!(serde_json::to_string(&before).unwrap(), r#"{"effect":"mac-guard"}"#);
        let mac = "02:00:00:00:00:01".parse().ok();
        let now = Effect::MacGuard { id: Some("postern/1".to_owned()), host: Some("veth1".to_owned()), mac };
        let text = serde_json::to_string(&now).unwrap();
        assert_eq!(read(&text), now);
        // `host` is the pair's in a record, which people and scripts look for.
        assert!(text.contains(r#""port":"veth1""#) && !text.contains("host"), "{text}");

        /// As earlier versions had it.
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(tag = "effect", rename_all = "kebab-case")]
        enum Earlier {
            MacGuard,
        }
        assert_eq!(serde_json::from_str::<Earlier>(&text).unwrap(), Earlier::MacGuard);
    }
}
