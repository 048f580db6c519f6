//! Effects as data: the record lists them, and undo and DEL remove them.
//!
//! An [`Effect`] is written to the attachment's record before the operation is carried out. So the effect can be
//! removed later without the plugin, its policy, `prevResult` or the namespace. The removal needs no grant, because a
//! listed effect belongs to the attachment.
//!
//! Node objects (bridge, forwarding, base tables) are not effects. Attachments share them, native plugins leave them
//! too, and `postern gc --node` removes them.
//!
//! Each effect has one file in the folder of its capability, with its data and its implementation of [`EffectKind`].
//! Other code calls the functions of this trait, and does not depend on the kind of effect.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

pub use crate::capability::inner::effect::InnerKind;
use crate::capability::leaves::{ByContents, EffectKind};
use postern_state::Summary;
use serde::{Deserialize, Serialize};

/// The relations of an effect to the attachment's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses<'a> {
    /// No relation.
    Unconcerned,
    /// The effect uses addresses: a pair has them, and rules lead to them.
    Used,
    /// This directory of leases holds the addresses. The removal gives them back, and another attachment may get them
    /// at once.
    HeldIn(&'a str),
    /// This native IPAM program gave the addresses, and its DEL gives them back.
    GivenBy(&'a str),
    /// The DHCP service at this socket keeps the lease of the addresses. The removal gives the lease back.
    LentBy(&'a str),
}

impl Addresses<'_> {
    /// True if the removal gives addresses back. This kind of removal comes last, and only if no effect uses the
    /// addresses.
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
    /// Once: this run does not undo an effect that an earlier run recorded.
    Once,
    /// Each time: this run's part is recorded beside the part of an earlier run.
    EachTime,
    /// Never: the effect ends with the container's namespace, and only a failed ADD undoes it.
    Never,
}

/// The place where an effect lives.
enum Lives {
    /// In the kernel: the effect is gone after a reboot.
    InKernel,
    /// On a disk, or in another program.
    OnDisk,
}

/// Makes [`Addresses`] of an effect: the effect has no relation to addresses, uses addresses, or its own data decide.
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

/// Makes [`Effect`] from one row for each kind: its type, its file, [`RecordTiming`], where it lives, and its relation
/// to addresses.
macro_rules! effects {
    ($($kind:ident: $($file:ident)::+, $timing:ident, $lives:ident, $concern:ident;)+) => {
        $(pub use crate::capability::$($file)::+::$kind;)+

        /// One object on the node that belongs to one attachment.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "effect", rename_all = "kebab-case")]
        #[allow(missing_docs, reason = "the file of each effect describes it")]
        pub enum Effect {
            $($kind($kind),)+
        }

        impl Effect {
            /// Returns the effect as a trait object.
            pub(crate) fn kind(&self) -> &dyn EffectKind {
                match self {
                    $(Self::$kind(effect) => effect,)+
                }
            }

            /// Returns how often the effect is written to the record.
            pub(crate) const fn record_timing(&self) -> RecordTiming {
                match self {
                    $(Self::$kind(_) => RecordTiming::$timing,)+
                }
            }

            /// True if the effect is on a disk, and not in the kernel.
            pub fn outlives_boot(&self) -> bool {
                match self {
                    $(Self::$kind(_) => matches!(Lives::$lives, Lives::OnDisk),)+
                }
            }

            /// Returns the effect's relation to the attachment's addresses.
            pub fn addresses(&self) -> Addresses<'_> {
                match self {
                    $(Self::$kind(effect) => addresses!($concern, effect),)+
                }
            }
        }

        $(impl From<$kind> for Effect {
            fn from(effect: $kind) -> Self {
                Self::$kind(effect)
            }
        }

        impl $kind {
            /// True if an effect is of this kind.
            pub fn is(effect: &Effect) -> bool {
                Self::of(effect).is_some()
            }

            /// Returns the effect, if it is of this kind.
            pub fn of(effect: &Effect) -> Option<&Self> {
                if let Effect::$kind(effect) = effect { Some(effect) } else { None }
            }
        }

        impl TryFrom<Effect> for $kind {
            type Error = Effect;

            fn try_from(effect: Effect) -> Result<Self, Effect> {
                if let Effect::$kind(effect) = effect { Ok(effect) } else { Err(effect) }
            }
        })+
    };
}

effects! {
    // Columns: the file, [`RecordTiming`], where the effect lives, and its relation to the attachment's addresses.
    Veth: veth::effect, Once, InKernel, Uses;
    Macvlan: inner::effect, Once, InKernel, Uses;
    InnerLink: inner::effect, Once, InKernel, Uses;
    Device: device::effect, Once, InKernel, Uses;
    Masquerade: masquerade::effect, Once, InKernel, Uses;
    MacGuard: mac_guard::effect, Once, InKernel, Uses;
    Firewall: firewall::effect, Once, InKernel, Uses;
    Isolation: firewall::isolation, Once, InKernel, Nothing;
    Bandwidth: bandwidth::effect, Once, InKernel, Nothing;
    Lease: leases::effect, EachTime, OnDisk, ByContents;
    Native: ipam::effect, Once, OnDisk, ByContents;
    LoopbackUp: loopback::effect, Never, InKernel, Nothing;
    Port: bridge::effect, Once, InKernel, Uses;
    PortMappings: port_mappings::effect, Once, InKernel, Uses;
    LinkChange: link_settings::effect, EachTime, InKernel, ByContents;
    LinkState: shared::link_state, EachTime, InKernel, ByContents;
    NamespaceSetting: namespace_sysctl::effect, Never, InKernel, Nothing;
    Delegated: delegate::effect, Once, OnDisk, ByContents;
    SourceRoutes: source_routes::effect, EachTime, InKernel, Uses;
    Vrf: vrf::effect, EachTime, InKernel, Nothing;
    Dhcp: dhcp::effect, Once, OnDisk, ByContents;
}

impl Effect {
    /// Describes the effect for people.
    pub fn words(&self) -> String {
        self.kind().words()
    }

    /// True if the effect is the attachment's link.
    pub(crate) fn is_link(&self) -> bool {
        self.kind().as_link().is_some()
    }
}

/// Returns the effects of a kind, or all effects, of an attachment's record. Effects of a later version are skipped.
pub fn in_record<T: TryFrom<Effect>>(summary: &Summary) -> impl Iterator<Item = T> {
    let effects = summary.effects.iter().filter_map(|noted| Effect::deserialize(&noted.effect).ok());
    effects.filter_map(|effect| effect.try_into().ok())
}

#[cfg(test)]
mod tests;
