//! What an operation leaves on the node, as data: the record holds it, undo and DEL remove it.
//!
//! An [`Effect`] is written to the attachment's record before the operation is carried out, so that it can be removed
//! whatever happens afterwards, without the plugin, its policy, `prevResult` or the namespace. Removing needs no grant:
//! what a record lists is its attachment's own. Node objects (bridge, forwarding, base tables) are no effects: they are
//! shared, native plugins leave them too, and `postern gc --node` looks after them.
//!
//! One file for each: its data, and what it says of itself by [`Leaves`]. Who has to know something of an effect asks it.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

pub mod device;
pub(crate) mod lease;
pub(crate) mod loopback_up;
pub(crate) mod mac_guard;
pub mod macvlan;
mod masquerade;
mod native;
mod port;
mod veth;

pub use device::Device;
pub use lease::Lease;
pub use loopback_up::LoopbackUp;
pub use mac_guard::MacGuard;
pub use macvlan::Macvlan;
pub use masquerade::Masquerade;
pub use native::Native;
pub use port::Port;
pub use veth::Veth;

use crate::need::Need;
use crate::session::Session;
use postern_cni::CniResult;
use postern_kernel::Link;
use postern_types::OpError;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What every effect says of itself.
trait Leaves {
    /// Removes it. Nothing to remove is success. `taken` is what this run took of it, where a failed ADD is undone: what an
    /// earlier run took stays.
    fn remove(&self, session: &Session, taken: Option<&[IpAddr]>) -> Result<(), OpError>;

    /// For people.
    fn words(&self) -> String;

    /// What it has to do with the attachment's addresses.
    fn addresses(&self) -> Addresses<'_>;

    /// How it gets into the record.
    fn noted(&self) -> Noted;

    /// The attachment's link, if it is that: the plugin that made it is the last one of its chain that DEL calls, and nothing of
    /// the attachment outlives it.
    fn as_link(&self) -> Option<&dyn AttachmentLink>;

    /// Whether it is on a disk, and not in a kernel.
    fn outlives_boot(&self) -> bool;

    /// What its removal takes of a gate that gives up all else.
    fn needs(&self) -> Need<'_>;
}

/// What an effect that is the attachment's link says beside.
trait AttachmentLink {
    /// Whether the link is there, by what the record knows it by.
    fn is_there(&self, session: &Session) -> Result<bool, OpError>;

    /// Whether the runtime's result is about this link, as far as that tells.
    fn is_named(&self, result: &CniResult) -> bool;

    /// Whether the link is among those of the host or of the container, where these were seen; `None` if that does not tell.
    fn is_among(&self, host: &[Link], container: Option<&[Link]>) -> Option<bool>;
}

/// What an effect has to do with the attachment's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses<'a> {
    /// Nothing.
    Unconcerned,
    /// It uses them: the pair has them, and rules serve them.
    Used,
    /// They are held in this directory of leases, and its removal gives them back: they are another's at once.
    HeldIn(&'a str),
    /// This native IPAM program gave them, and its DEL gives them back.
    GivenBy(&'a str),
}

impl Addresses<'_> {
    /// Whether removing the effect gives addresses back. That comes last, and only if nothing uses them any more.
    pub fn are_given_back(self) -> bool {
        match self {
            Self::HeldIn(_) | Self::GivenBy(_) => true,
            Self::Unconcerned | Self::Used => false,
        }
    }
}

/// How an effect gets into the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// Once: what an earlier run noted is not this one's to undo.
    Once,
    /// At every time: this run knows what it took of it beside what an earlier one did.
    EachTime,
    /// Never: it lives and dies with the container's namespace, and is only undone by a failed ADD.
    Never,
}

/// Makes [`Effect`] of one row for each: its type and its file.
macro_rules! effects {
    ($($kind:ident: $file:ident;)+) => {
        /// One thing on the node that belongs to one attachment.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "effect", rename_all = "kebab-case")]
        #[allow(missing_docs, reason = "the file of each effect describes it")]
        pub enum Effect {
            $($kind($kind),)+
        }

        impl Effect {
            fn leaves(&self) -> &dyn Leaves {
                match self {
                    $(Self::$kind(effect) => effect,)+
                }
            }
        }

        $(impl From<$kind> for Effect {
            fn from(effect: $kind) -> Self {
                Self::$kind(effect)
            }
        }

        impl $kind {
            /// The effect, if it is of this kind.
            pub fn of(effect: &Effect) -> Option<&Self> {
                if let Effect::$kind(effect) = effect { Some(effect) } else { None }
            }
        })+
    };
}

effects! {
    Veth: veth;
    Macvlan: macvlan;
    Device: device;
    Masquerade: masquerade;
    MacGuard: mac_guard;
    Lease: lease;
    Native: native;
    LoopbackUp: loopback_up;
    Port: port;
}

impl Effect {
    /// Removes it. Nothing to remove is success. `taken` is what this run took of it, where a failed ADD is undone.
    ///
    /// # Errors
    /// It is there still.
    pub(crate) fn remove(&self, session: &Session, taken: Option<&[IpAddr]>) -> Result<(), OpError> {
        self.leaves().remove(session, taken)
    }

    /// For people.
    pub fn words(&self) -> String {
        self.leaves().words()
    }

    /// What it has to do with the attachment's addresses.
    pub fn addresses(&self) -> Addresses<'_> {
        self.leaves().addresses()
    }

    /// How it gets into the record.
    pub(crate) fn noted(&self) -> Noted {
        self.leaves().noted()
    }

    /// Whether it is the attachment's link.
    pub(crate) fn is_link(&self) -> bool {
        self.leaves().as_link().is_some()
    }

    /// Whether it is the attachment's link and there.
    ///
    /// # Errors
    /// The kernel refuses to show it.
    pub(crate) fn is_living_link(&self, session: &Session) -> Result<bool, OpError> {
        self.leaves().as_link().map_or(Ok(false), |link| link.is_there(session))
    }

    /// Whether it is the attachment's link and gone for certain, as far as the links of the host and of the container tell.
    pub fn is_lost_link(&self, host: &[Link], container: Option<&[Link]>) -> bool {
        self.leaves().as_link().and_then(|link| link.is_among(host, container)) == Some(false)
    }

    /// Whether it is the attachment's link, and the runtime's result is about it.
    pub(crate) fn is_link_of(&self, result: &CniResult) -> bool {
        self.leaves().as_link().is_some_and(|link| link.is_named(result))
    }

    /// Whether it is on a disk, and not in a kernel.
    pub fn outlives_boot(&self) -> bool {
        self.leaves().outlives_boot()
    }

    /// What its removal takes of a gate that gives up all else.
    pub(crate) fn needs(&self) -> Need<'_> {
        self.leaves().needs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_types::{Backend, Mac};

    /// What records have of each effect, and of those that earlier versions wrote.
    #[test]
    fn records_keep_their_form() {
        let host = || "veth1a2b3c4d".to_owned();
        let mac: Mac = "02:00:00:00:00:01".parse().unwrap();
        let addresses = || vec!["10.1.0.2/24".parse().unwrap(), "fd00::2/64".parse().unwrap()];
        let guard = |id: &str| MacGuard { id: Some(id.to_owned()), host: Some(host()), mac: Some(mac) };
        for (effect, text) in [
            (
                Effect::Veth(Veth { host: host(), mac }),
                r#"{"effect":"veth","host":"veth1a2b3c4d","mac":"02:00:00:00:00:01"}"#,
            ),
            (
                Effect::Macvlan(Macvlan { mac: Some(mac), born: None }),
                r#"{"effect":"macvlan","mac":"02:00:00:00:00:01"}"#,
            ),
            (
                Effect::Macvlan(Macvlan { mac: None, born: Some(host()) }),
                r#"{"effect":"macvlan","born":"veth1a2b3c4d"}"#,
            ),
            (
                Effect::Device(Device {
                    device: Some(("pci".to_owned(), "0000:3b:00.1".to_owned())),
                    permanent: Some(mac),
                    up: true,
                    ..Device::of_link(&device::tests::plain())
                }),
                r#"{"effect":"device","name":"eth1","index":3,"device":["pci","0000:3b:00.1"],"permanent":"02:00:00:00:00:01","mac":"02:00:00:00:00:01","mtu":1500,"up":true}"#,
            ),
            (
                Effect::Masquerade(Masquerade { backend: Backend::Nftables, addresses: addresses() }),
                r#"{"effect":"masquerade","backend":"nftables","addresses":["10.1.0.2/24","fd00::2/64"]}"#,
            ),
            (
                Effect::Masquerade(Masquerade { backend: Backend::Iptables, addresses: Vec::new() }),
                r#"{"effect":"masquerade","backend":"iptables","addresses":[]}"#,
            ),
            (Effect::MacGuard(MacGuard { id: None, host: None, mac: None }), r#"{"effect":"mac-guard"}"#),
            (
                Effect::MacGuard(guard("postern/1")),
                r#"{"effect":"mac-guard","id":"postern/1","port":"veth1a2b3c4d","mac":"02:00:00:00:00:01"}"#,
            ),
            (Effect::Lease(Lease { directory: "/var/lib".to_owned() }), r#"{"effect":"lease","directory":"/var/lib"}"#),
            (Effect::Native(Native { plugin: "dhcp".to_owned() }), r#"{"effect":"native","plugin":"dhcp"}"#),
            (Effect::LoopbackUp(LoopbackUp {}), r#"{"effect":"loopback-up"}"#),
            (
                Effect::Port(Port {
                    name: "tap0".to_owned(),
                    index: 7,
                    bridge: "br9".to_owned(),
                    master: 5,
                    up: false,
                }),
                r#"{"effect":"port","port":"tap0","index":7,"bridge":"br9","master":5,"up":false}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&effect).unwrap(), text);
            assert_eq!(serde_json::from_str::<Effect>(text).unwrap(), effect);
        }
        let earlier = Effect::Masquerade(Masquerade { backend: Backend::Nftables, addresses: Vec::new() });
        let text = r#"{"effect":"masquerade","backend":"nftables"}"#;
        assert_eq!(serde_json::from_str::<Effect>(text).unwrap(), earlier);
    }

    #[test]
    fn guards_of_earlier_versions_are_read_and_theirs_are_readable() {
        let read = |text: &str| serde_json::from_str::<Effect>(text).unwrap();
        let before = Effect::MacGuard(MacGuard { id: None, host: None, mac: None });
        assert_eq!(read(r#"{"effect":"mac-guard"}"#), before);
        assert_eq!(serde_json::to_string(&before).unwrap(), r#"{"effect":"mac-guard"}"#);
        let mac = "02:00:00:00:00:01".parse().ok();
        let now = Effect::MacGuard(MacGuard { id: Some("postern/1".to_owned()), host: Some("veth1".to_owned()), mac });
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
