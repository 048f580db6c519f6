//! Effects as data: the record lists them, and undo and DEL remove them.
//!
//! An [`Effect`] is written to the attachment's record before the operation is carried out. So it can be removed
//! whatever happens afterwards, without the plugin, its policy, `prevResult` or the namespace. Its removal needs no
//! grant: a listed effect is the attachment's own.
//!
//! Node objects (bridge, forwarding, base tables) are not effects. They are shared, native plugins leave them too, and
//! `postern gc --node` removes them.
//!
//! Each effect has one file with its data and its answers to [`Leaves`]. Other code asks the effect instead of knowing
//! its kind.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

pub mod bandwidth;
pub(crate) mod delegated;
pub mod device;
pub mod dhcp;
mod firewall;
pub mod held;
pub(crate) mod in_container;
pub mod inner_link;
mod isolation;
pub(crate) mod lease;
pub mod link_change;
pub mod link_state;
pub(crate) mod loopback_up;
pub(crate) mod mac_guard;
mod macvlan;
mod masquerade;
pub(crate) mod multipath;
mod namespace_setting;
mod native;
mod numbers;
mod port;
pub mod port_mappings;
pub mod source_routes;
mod veth;
pub mod vrf;

pub use bandwidth::Bandwidth;
pub use delegated::Delegated;
pub use device::Device;
pub use dhcp::Dhcp;
pub use firewall::Firewall;
pub use inner_link::{InnerKind, InnerLink};
pub use isolation::Isolation;
pub use lease::Lease;
pub use link_change::LinkChange;
pub use link_state::LinkState;
pub use loopback_up::LoopbackUp;
pub use mac_guard::MacGuard;
pub use macvlan::Macvlan;
pub use masquerade::Masquerade;
pub use namespace_setting::NamespaceSetting;
pub use native::Native;
pub use port::Port;
pub use port_mappings::PortMappings;
pub use source_routes::SourceRoutes;
pub use veth::Veth;
pub use vrf::Vrf;

use crate::need::Need;
use crate::session::Session;
use postern_cni::CniResult;
use postern_kernel::Link;
use postern_types::OpError;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The questions that every effect answers.
trait Leaves {
    /// Removes the effect. It is success if nothing is there. `taken` is this run's part of it when a failed ADD is
    /// undone: an earlier run's part stays.
    fn remove(&self, session: &Session, taken: Option<&[IpAddr]>) -> Result<(), OpError>;

    /// Describes the effect for people.
    fn words(&self) -> String;

    /// Returns the attachment's own addresses that the effect names: each was checked as the attachment's before it was
    /// noted. What was read from the container's kernel is not among them, because root in there makes it. Nor are
    /// destinations and gateways.
    fn own_addresses(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    /// Returns the attachment's link, if the effect is that. The plugin that made it is the last of its chain that DEL
    /// calls, and nothing of the attachment outlives it.
    fn as_link(&self) -> Option<&dyn AttachmentLink> {
        None
    }

    /// Returns the rights that a confined gate needs to remove it.
    fn needs(&self) -> Need<'_>;
}

/// The further question to an effect with rules of a packet filter.
trait Reapply {
    /// Puts back the rules of the effect that another program wiped. It makes and changes no link.
    fn reapply(&self, session: &mut Session) -> Result<Reapplied, OpError>;
}

/// The further question to an effect whose contents tell how it is related to the attachment's addresses.
trait ByContents {
    /// Tells how the effect is related to the attachment's addresses.
    fn addresses(&self) -> Addresses<'_>;
}

/// The further questions to an effect that is the attachment's link.
trait AttachmentLink {
    /// True if the link is there, identified by the record's data.
    fn is_there(&self, session: &Session) -> Result<bool, OpError>;

    /// True if the runtime's result is about this link, as far as it can be told.
    fn is_named(&self, result: &CniResult) -> bool;

    /// True if the link is among those of the host or of the container, if these were seen; `None` if that does not
    /// tell.
    fn is_among(&self, host: &[Link], container: Option<&[Link]>) -> Option<bool>;
}

/// The outcome of [`Effect::reapply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reapplied {
    /// The effect has no rules.
    NoRules,
    /// All its rules are there.
    Complete,
    /// Some of its rules were missing, and are there again.
    Restored,
}

/// The relations of an effect to the attachment's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses<'a> {
    /// No relation.
    Unconcerned,
    /// The effect uses them: the pair has them, and rules serve them.
    Used,
    /// This directory of leases holds them. The removal gives them back, and another attachment may get them at once.
    HeldIn(&'a str),
    /// This native IPAM program gave them, and its DEL gives them back.
    GivenBy(&'a str),
    /// The DHCP service at this socket keeps the lease of them. The removal gives it back.
    LentBy(&'a str),
}

impl Addresses<'_> {
    /// True if the removal gives addresses back. It comes last, and only if nothing uses them any more.
    pub fn are_given_back(self) -> bool {
        match self {
            Self::HeldIn(_) | Self::GivenBy(_) | Self::LentBy(_) => true,
            Self::Unconcerned | Self::Used => false,
        }
    }
}

/// The times when an effect is written to the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordTiming {
    /// Once: an effect that an earlier run noted is not undone by this one.
    Once,
    /// Each time: this run knows its own part beside that of an earlier run.
    EachTime,
    /// Never: it ends with the container's namespace, and only a failed ADD undoes it.
    Never,
}

/// The place where an effect lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lives {
    /// In a kernel: it is gone after a reboot.
    InKernel,
    /// On a disk, or with another program.
    OnDisk,
}

/// What is the same for all effects of a kind.
struct Nature {
    record_timing: RecordTiming,
    lives: Lives,
}

/// How an effect is related to the attachment's addresses: not at all, it uses them, or its contents tell.
macro_rules! addresses {
    (Nothing, $effect:ident) => {{
        let _ = $effect;
        Addresses::Unconcerned
    }};
    (Uses, $effect:ident) => {{
        let _ = $effect;
        Addresses::Used
    }};
    (ByContents, $effect:ident) => {
        ByContents::addresses($effect)
    };
}

/// Puts back the rules of an effect, if it has some.
macro_rules! reapply {
    (NoRules, $effect:ident, $session:ident) => {{
        let _ = $effect;
        Ok(Reapplied::NoRules)
    }};
    (Rules, $effect:ident, $session:ident) => {
        Reapply::reapply($effect, $session)
    };
}

/// Makes [`Effect`] from one row for each: its type, its file, its [`Nature`], and the two answers above.
macro_rules! effects {
    ($($kind:ident: $file:ident, $timing:ident, $lives:ident, $concern:ident, $rules:ident;)+) => {
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

            const fn nature(&self) -> Nature {
                match self {
                    $(Self::$kind(_) => Nature {
                        record_timing: RecordTiming::$timing,
                        lives: Lives::$lives,
                    },)+
                }
            }

            /// Tells how the effect is related to the attachment's addresses.
            pub fn addresses(&self) -> Addresses<'_> {
                match self {
                    $(Self::$kind(effect) => addresses!($concern, effect),)+
                }
            }

            /// Puts back the rules of the effect that another program wiped. It makes and changes no link.
            ///
            /// # Errors
            /// The rules can't be looked at or made.
            pub(crate) fn reapply(&self, session: &mut Session) -> Result<Reapplied, OpError> {
                match self {
                    $(Self::$kind(effect) => reapply!($rules, effect, session),)+
                }
            }
        }

        $(impl From<$kind> for Effect {
            fn from(effect: $kind) -> Self {
                Self::$kind(effect)
            }
        }

        impl $kind {
            /// Returns the effect, if it is of this kind.
            pub fn of(effect: &Effect) -> Option<&Self> {
                if let Effect::$kind(effect) = effect { Some(effect) } else { None }
            }
        })+
    };
}

effects! {
    // Its file, when it is noted, where it lives, what it has to do with the attachment's addresses, and if it has rules.
    Veth: veth, Once, InKernel, Uses, NoRules;
    Macvlan: macvlan, Once, InKernel, Uses, NoRules;
    InnerLink: inner_link, Once, InKernel, Uses, NoRules;
    Device: device, Once, InKernel, Uses, NoRules;
    Masquerade: masquerade, Once, InKernel, Uses, Rules;
    MacGuard: mac_guard, Once, InKernel, Uses, Rules;
    Firewall: firewall, Once, InKernel, Uses, Rules;
    Isolation: isolation, Once, InKernel, Nothing, Rules;
    Bandwidth: bandwidth, Once, InKernel, Nothing, Rules;
    Lease: lease, EachTime, OnDisk, ByContents, NoRules;
    Native: native, Once, OnDisk, ByContents, NoRules;
    LoopbackUp: loopback_up, Never, InKernel, Nothing, NoRules;
    Port: port, Once, InKernel, Uses, NoRules;
    PortMappings: port_mappings, Once, InKernel, Uses, Rules;
    LinkChange: link_change, EachTime, InKernel, ByContents, NoRules;
    LinkState: link_state, EachTime, InKernel, ByContents, NoRules;
    NamespaceSetting: namespace_setting, Never, InKernel, Nothing, NoRules;
    Delegated: delegated, Once, OnDisk, ByContents, NoRules;
    SourceRoutes: source_routes, EachTime, InKernel, Uses, NoRules;
    Vrf: vrf, EachTime, InKernel, Nothing, NoRules;
    Dhcp: dhcp, Once, OnDisk, ByContents, NoRules;
}

impl Effect {
    /// Removes the effect. It is success if nothing is there. `taken` is this run's part of it when a failed ADD is
    /// undone.
    ///
    /// # Errors
    /// The effect is still there.
    pub(crate) fn remove(&self, session: &Session, taken: Option<&[IpAddr]>) -> Result<(), OpError> {
        self.leaves().remove(session, taken)
    }

    /// Describes the effect for people.
    pub fn words(&self) -> String {
        self.leaves().words()
    }

    /// Returns the attachment's own addresses that the effect names.
    pub(crate) fn own_addresses(&self) -> Vec<IpAddr> {
        self.leaves().own_addresses()
    }

    /// Tells how often the effect is written to the record.
    pub(crate) fn record_timing(&self) -> RecordTiming {
        self.nature().record_timing
    }

    /// True if it is the attachment's link.
    pub(crate) fn is_link(&self) -> bool {
        self.leaves().as_link().is_some()
    }

    /// True if it is the attachment's link, and the link is there.
    ///
    /// # Errors
    /// The kernel refuses to show it.
    pub(crate) fn is_living_link(&self, session: &Session) -> Result<bool, OpError> {
        self.leaves().as_link().map_or(Ok(false), |link| link.is_there(session))
    }

    /// True if it is the attachment's link and certainly gone, as far as the links of the host and of the container
    /// tell.
    pub fn is_lost_link(&self, host: &[Link], container: Option<&[Link]>) -> bool {
        self.leaves().as_link().and_then(|link| link.is_among(host, container)) == Some(false)
    }

    /// True if it is the attachment's link, and the runtime's result is about it.
    pub(crate) fn is_link_of(&self, result: &CniResult) -> bool {
        self.leaves().as_link().is_some_and(|link| link.is_named(result))
    }

    /// True if it is on a disk, and not in a kernel.
    pub fn outlives_boot(&self) -> bool {
        self.nature().lives == Lives::OnDisk
    }

    /// Returns the rights that a confined gate needs to remove it.
    pub(crate) fn needs(&self) -> Need<'_> {
        self.leaves().needs()
    }
}

#[cfg(test)]
mod tests {
    use super::link_state::SettingBefore;
    use super::source_routes::SourceRule;
    use super::*;
    use postern_types::{
        Backend, FirewallBackend, IngressPolicy, IpvlanMode, KeptRoute, LinkSettings, Mac, NextHop, RateLimit, Route,
        WholeRoute,
    };

    /// The form of each effect in records, and the forms that earlier versions wrote.
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
                Effect::InnerLink(InnerLink {
                    kind: InnerKind::Dummy,
                    mac: Some(mac),
                    born: None,
                    shares: None,
                    vlan: None,
                }),
                r#"{"effect":"inner-link","kind":"dummy","mac":"02:00:00:00:00:01"}"#,
            ),
            (
                Effect::InnerLink(InnerLink {
                    kind: InnerKind::Tap,
                    mac: Some(mac),
                    born: None,
                    shares: None,
                    vlan: None,
                }),
                r#"{"effect":"inner-link","kind":"tap","mac":"02:00:00:00:00:01"}"#,
            ),
            (
                Effect::InnerLink(InnerLink {
                    kind: InnerKind::Vlan,
                    mac: None,
                    born: Some(host()),
                    shares: None,
                    vlan: Some((3, 5)),
                }),
                r#"{"effect":"inner-link","kind":"vlan","born":"veth1a2b3c4d","vlan":[3,5]}"#,
            ),
            (
                Effect::InnerLink(InnerLink {
                    kind: InnerKind::Ipvlan,
                    mac: None,
                    born: Some(host()),
                    shares: Some((3, IpvlanMode::L3s)),
                    vlan: None,
                }),
                r#"{"effect":"inner-link","kind":"ipvlan","born":"veth1a2b3c4d","shares":[3,"l3s"]}"#,
            ),
            (
                Effect::Device(Device {
                    device: Some(("pci".to_owned(), "0000:3b:00.1".to_owned())),
                    permanent: Some(mac),
                    up: true,
                    ..Device::of_link(&device::tests::plain())
                }),
                r#"{"effect":"device","name":"eth1","index":3,"device":["pci","0000:3b:00.1"],"permanent":"02:00:00:00:00:01","mac":"02:00:00:00:00:01","mtu":1500,"up":true,"tx_queue_length":1000}"#,
            ),
            (
                Effect::Masquerade(Masquerade { backend: Backend::Nftables, variant: None, addresses: addresses() }),
                r#"{"effect":"masquerade","backend":"nftables","addresses":["10.1.0.2/24","fd00::2/64"]}"#,
            ),
            (
                Effect::Masquerade(Masquerade { backend: Backend::Iptables, variant: None, addresses: Vec::new() }),
                r#"{"effect":"masquerade","backend":"iptables","addresses":[]}"#,
            ),
            (
                Effect::Firewall(Firewall {
                    backend: FirewallBackend::Iptables,
                    variant: None,
                    admin_chain: Some("CNI-ADMIN".to_owned()),
                    zone: None,
                    addresses: addresses(),
                }),
                r#"{"effect":"firewall","backend":"iptables","admin_chain":"CNI-ADMIN","addresses":["10.1.0.2/24","fd00::2/64"]}"#,
            ),
            (
                Effect::Firewall(Firewall {
                    backend: FirewallBackend::Firewalld,
                    variant: None,
                    admin_chain: None,
                    zone: Some("trusted".to_owned()),
                    addresses: addresses(),
                }),
                r#"{"effect":"firewall","backend":"firewalld","zone":"trusted","addresses":["10.1.0.2/24","fd00::2/64"]}"#,
            ),
            (
                Effect::Isolation(Isolation {
                    bridge: "cni0".to_owned(),
                    ingress: IngressPolicy::SameBridge,
                    v4: true,
                    v6: false,
                }),
                r#"{"effect":"isolation","bridge":"cni0","ingress":"same-bridge","v4":true,"v6":false}"#,
            ),
            (
                Effect::Bandwidth(Bandwidth {
                    host: host(),
                    index: 7,
                    ingress: Some(RateLimit { rate: 8, burst: 16 }),
                    egress: None,
                }),
                r#"{"effect":"bandwidth","port":"veth1a2b3c4d","index":7,"ingress":{"rate":8,"burst":16}}"#,
            ),
            (
                Effect::Bandwidth(Bandwidth {
                    host: host(),
                    index: 7,
                    ingress: None,
                    egress: Some((RateLimit { rate: 8, burst: 16 }, "bwp0123456789ab".to_owned())),
                }),
                r#"{"effect":"bandwidth","port":"veth1a2b3c4d","index":7,"egress":[{"rate":8,"burst":16},"bwp0123456789ab"]}"#,
            ),
            (Effect::MacGuard(MacGuard { id: None, host: None, mac: None }), r#"{"effect":"mac-guard"}"#),
            (
                Effect::MacGuard(guard("postern/1")),
                r#"{"effect":"mac-guard","id":"postern/1","port":"veth1a2b3c4d","mac":"02:00:00:00:00:01"}"#,
            ),
            (Effect::Lease(Lease { directory: "/var/lib".to_owned() }), r#"{"effect":"lease","directory":"/var/lib"}"#),
            (
                Effect::Native(Native { plugin: "dhcp".to_owned(), config: None }),
                r#"{"effect":"native","plugin":"dhcp"}"#,
            ),
            (
                Effect::Native(Native { plugin: "dhcp".to_owned(), config: Some("{}".to_owned()) }),
                r#"{"effect":"native","plugin":"dhcp","config":"{}"}"#,
            ),
            (
                Effect::Delegated(Delegated {
                    plugin: "bridge".to_owned(),
                    native: false,
                    config: "{}".to_owned(),
                    directory: Some("/var/lib/cni/flannel".to_owned()),
                }),
                r#"{"effect":"delegated","plugin":"bridge","config":"{}","directory":"/var/lib/cni/flannel"}"#,
            ),
            (
                Effect::Delegated(Delegated {
                    plugin: "ovs".to_owned(),
                    native: true,
                    config: "{}".to_owned(),
                    directory: None,
                }),
                r#"{"effect":"delegated","plugin":"ovs","native":true,"config":"{}"}"#,
            ),
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
            (
                Effect::LinkChange(LinkChange {
                    index: 2,
                    before: LinkSettings { mac: Some(mac), mtu: Some(1500), ..LinkSettings::default() },
                    after: LinkSettings { mac: Some(mac), mtu: Some(1400), ..LinkSettings::default() },
                    directory: "/run/cni/tuning".to_owned(),
                    port: Some(host()),
                    lost_addresses: Vec::new(),
                    lost_routes: Vec::new(),
                }),
                r#"{"effect":"link-change","index":2,"before":{"mac":"02:00:00:00:00:01","mtu":1500},"after":{"mac":"02:00:00:00:00:01","mtu":1400},"directory":"/run/cni/tuning","port":"veth1a2b3c4d"}"#,
            ),
            (
                Effect::LinkState(LinkState { index: 2, up: true, ..LinkState::default() }),
                r#"{"effect":"link-state","index":2,"up":true}"#,
            ),
            (
                Effect::LinkState(LinkState { index: 2, addresses: addresses(), ..LinkState::default() }),
                r#"{"effect":"link-state","index":2,"addresses":["10.1.0.2/24","fd00::2/64"]}"#,
            ),
            (
                Effect::LinkState(LinkState {
                    index: 2,
                    setting: Some(SettingBefore {
                        key: "ipv6/disable_ipv6".to_owned(),
                        value: "0".to_owned(),
                        of_lo: false,
                    }),
                    lost_addresses: vec!["fd00::2/64".parse().unwrap()],
                    ..LinkState::default()
                }),
                r#"{"effect":"link-state","index":2,"setting":{"key":"ipv6/disable_ipv6","value":"0"},"lost_addresses":["fd00::2/64"]}"#,
            ),
            (
                Effect::NamespaceSetting(NamespaceSetting {
                    key: "core/somaxconn".to_owned(),
                    before: "128".to_owned(),
                    beside: Vec::new(),
                    links: Vec::new(),
                }),
                r#"{"effect":"namespace-setting","key":"core/somaxconn","before":"128"}"#,
            ),
            (
                Effect::SourceRoutes(SourceRoutes {
                    index: 2,
                    rules: vec![SourceRule { source: "10.1.0.2".parse().unwrap(), table: 100 }],
                    ..SourceRoutes::default()
                }),
                r#"{"effect":"source-routes","index":2,"rules":[{"source":"10.1.0.2","table":100}]}"#,
            ),
            (
                Effect::SourceRoutes(SourceRoutes {
                    index: 2,
                    rules: Vec::new(),
                    routes: Vec::new(),
                    moved: vec![KeptRoute {
                        route: Route {
                            dst: "10.1.0.0/24".parse().unwrap(),
                            gateway: None,
                            source: "10.1.0.2".parse().ok(),
                            mtu: None,
                            advmss: None,
                            priority: None,
                            table: Some(254),
                            scope: Some(253),
                        },
                        protocol: 2,
                    }],
                    multipath: Vec::new(),
                    hints: Vec::new(),
                }),
                r#"{"effect":"source-routes","index":2,"rules":[],"moved":[{"dst":"10.1.0.0/24","source":"10.1.0.2","table":254,"scope":253,"protocol":2}]}"#,
            ),
            (
                Effect::Vrf(Vrf {
                    index: 2,
                    name: "blue".to_owned(),
                    table: 10,
                    made: true,
                    addresses: vec!["fd00::2/64".parse().unwrap()],
                    moved: Vec::new(),
                    multipath: Vec::new(),
                }),
                r#"{"effect":"vrf","index":2,"name":"blue","table":10,"made":true,"addresses":["fd00::2/64"]}"#,
            ),
            (
                Effect::Vrf(Vrf {
                    index: 2,
                    name: "blue".to_owned(),
                    table: 10,
                    made: false,
                    addresses: Vec::new(),
                    moved: Vec::new(),
                    multipath: vec![WholeRoute {
                        kept: KeptRoute {
                            route: Route {
                                dst: "0.0.0.0/0".parse().unwrap(),
                                gateway: None,
                                source: None,
                                mtu: None,
                                advmss: None,
                                priority: None,
                                table: Some(254),
                                scope: Some(0),
                            },
                            protocol: 3,
                        },
                        hops: vec![NextHop { link: 2, gateway: "10.1.0.1".parse().ok(), weight: 1, on_link: true }],
                    }],
                }),
                r#"{"effect":"vrf","index":2,"name":"blue","table":10,"made":false,"multipath":[{"dst":"0.0.0.0/0","table":254,"scope":0,"protocol":3,"hops":[{"link":2,"gateway":"10.1.0.1","weight":1,"on_link":true}]}]}"#,
            ),
            (
                Effect::Dhcp(Dhcp { socket: "/run/cni/dhcp.sock".to_owned(), addresses: Vec::new() }),
                r#"{"effect":"dhcp","socket":"/run/cni/dhcp.sock"}"#,
            ),
            (
                Effect::Dhcp(Dhcp {
                    socket: "/run/cni/dhcp.sock".to_owned(),
                    addresses: vec!["10.1.0.2/24".parse().unwrap()],
                }),
                r#"{"effect":"dhcp","socket":"/run/cni/dhcp.sock","addresses":["10.1.0.2/24"]}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&effect).unwrap(), text);
            assert_eq!(serde_json::from_str::<Effect>(text).unwrap(), effect);
        }
        let earlier =
            Effect::Masquerade(Masquerade { backend: Backend::Nftables, variant: None, addresses: Vec::new() });
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
        // `host` belongs to the pair in a record: people and scripts search for it.
        assert!(text.contains(r#""port":"veth1""#) && !text.contains("host"), "{text}");

        /// The forms of earlier versions.
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(tag = "effect", rename_all = "kebab-case")]
        enum Earlier {
            MacGuard,
        }
        assert_eq!(serde_json::from_str::<Earlier>(&text).unwrap(), Earlier::MacGuard);
    }
}
