//! `link-sysctl`, for people.

use super::{OperationTexts, Page};
use crate::plan::Names;
use crate::sentences::{group, say};
use postern_types::{LinkSysctl, OpError, Reply, ops};

/// The texts about this capability in commands for people.
pub const PAGE: Page = Page {
    cannot: "write sysctls",
    always: None,
    groups: &[
        group(&["set-accept-dad", "set-enhanced-dad"], |_| {
            say("switch duplicate address detection of its own link on or off (accept_dad, enhanced_dad)")
        }),
        group(&["set-ndisc-notify"], |_| {
            say("have its own link announce itself to IPv6 neighbours when it comes up (ndisc_notify)")
        }),
        group(&["set-arp-notify"], |_| say("have its own link announce itself when it comes up (arp_notify)")),
        group(&["set-keep-addr-on-down"], |_| {
            say("have its own link keep its addresses while it is down (keep_addr_on_down)")
        }),
        group(&["set-disable-ipv6"], |_| say("switch IPv6 of its own link on or off (disable_ipv6)")),
    ],
    keys: &[],
    objects: |_| Vec::new(),
};

impl OperationTexts for ops::LinkSysctl {
    fn words(&self, names: &Names<'_>, _: &Result<Reply, OpError>) -> String {
        match self {
            Self::Set { link, key, value } => {
                let (key, value) = (name(*key), if *value { "on" } else { "off" });
                format!("switch {key} of {} {value}, in the container", names.link(*link))
            }
        }
    }
}

fn name(key: LinkSysctl) -> &'static str {
    match key {
        LinkSysctl::AcceptDad => "accept_dad",
        LinkSysctl::EnhancedDad => "enhanced_dad",
        LinkSysctl::ArpNotify => "arp_notify",
        LinkSysctl::NdiscNotify => "ndisc_notify",
        LinkSysctl::KeepAddrOnDown => "keep_addr_on_down",
        LinkSysctl::DisableIpv6 => "disable_ipv6",
    }
}
