//! `link-sysctl`: known keys of the attachment's own link.

use crate::capability::facts::{Facts, Needed};
use crate::errors::kernel_error;
use crate::gate::Gate;
use postern_kernel::Sysctl;
use postern_types::{ErrorCode, Handle, LinkSysctl, OpError, Reply, ops};

/// The facts about it that the host needs beside its operations.
pub const FACTS: Facts = Facts { needed: Needed::Never, keeps: |_, _| None, unrecorded: None };

/// Carries out one operation that policy allows.
///
/// # Errors
/// The error that the guest gets.
pub fn execute(gate: &mut Gate<'_>, operation: &ops::LinkSysctl) -> Result<Reply, OpError> {
    match operation {
        ops::LinkSysctl::Set { link, key, value } => set(gate, *link, *key, *value),
    }
}

/// `link-sysctl.set-*`.
fn set(gate: &Gate<'_>, handle: Handle, key: LinkSysctl, value: bool) -> Result<Reply, OpError> {
    let (_, name) = gate.front.own(handle)?;
    let container = gate.session.container_required()?;
    let value = if value { "1" } else { "0" };
    let ipv6 = |link: &str, key| Sysctl::Ipv6Conf { link: link.to_owned(), key };
    let target = match key {
        LinkSysctl::AcceptDad => ipv6(&name, "accept_dad"),
        LinkSysctl::EnhancedDad => ipv6(&name, "enhanced_dad"),
        LinkSysctl::NdiscNotify => Sysctl::Ipv6Conf { link: name.clone(), key: "ndisc_notify" },
        LinkSysctl::ArpNotify => Sysctl::Ipv4Conf { link: name.clone(), key: "arp_notify" },
        LinkSysctl::KeepAddrOnDown => ipv6(&name, "keep_addr_on_down"),
        LinkSysctl::DisableIpv6 => {
            if value == "0" {
                write(container, &ipv6("lo", "disable_ipv6"), value)?;
            }
            ipv6(&name, "disable_ipv6")
        }
    };
    write(container, &target, value)
}

fn write(container: &postern_kernel::Worker, key: &Sysctl, value: &str) -> Result<Reply, OpError> {
    match container.sysctl_set(key, value) {
        Ok(_) => Ok(Reply::Done),
        Err(error) => {
            let mut converted = kernel_error(error);
            if converted.code != ErrorCode::NotFound {
                converted.code = ErrorCode::Io;
            }
            Err(converted)
        }
    }
}
