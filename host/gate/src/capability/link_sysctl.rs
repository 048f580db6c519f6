//! `link-sysctl`: known keys of the attachment's own link.

pub(crate) use crate::capability::facts::NEVER as FACTS;
use crate::capability::shared::link_state::{LinkKey, write_setting};
use crate::gate::Gate;
use postern_types::{Handle, LinkSysctl, OpError, host};

impl host::LinkSysctl for Gate<'_> {
    fn set(&mut self, handle: Handle, key: LinkSysctl, on: bool) -> Result<(), OpError> {
        let (index, name) = self.guest.own(handle)?;
        let value = if on { "1" } else { "0" };
        let target = match key {
            LinkSysctl::AcceptDad => LinkKey::V6("accept_dad"),
            LinkSysctl::EnhancedDad => LinkKey::V6("enhanced_dad"),
            LinkSysctl::NdiscNotify => LinkKey::V6("ndisc_notify"),
            LinkSysctl::ArpNotify => LinkKey::V4("arp_notify"),
            LinkSysctl::KeepAddrOnDown => LinkKey::V6("keep_addr_on_down"),
            LinkSysctl::DisableIpv6 => LinkKey::V6("disable_ipv6"),
        };
        if key == LinkSysctl::DisableIpv6 && !on {
            write_setting(self.run, index, "lo", target, value)?;
        }
        write_setting(self.run, index, &name, target, value)
    }
}
