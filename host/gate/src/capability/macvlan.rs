//! `macvlan`: the attachment's own link, stacked on a granted one.

use super::inner::{self, Parent, Wanted};
use crate::capability::facts::{Facts, Needed};
use crate::effect::InnerKind;
use crate::gate::Gate;
use postern_kernel::{InnerLinkKind, random_mac};
use postern_types::{Mac, MacvlanInfo, MacvlanMode, OpError, Reply, ops};

/// The facts about it that the host needs beside its operations.
pub const FACTS: Facts = Facts { needed: Needed::Always, keeps: |_, _| None, unrecorded: None };

/// Carries out one operation that policy allows.
///
/// # Errors
/// The error that the guest gets.
pub fn execute(gate: &mut Gate<'_>, operation: &ops::Macvlan) -> Result<Reply, OpError> {
    match operation {
        ops::Macvlan::Create { parent, mode, mtu, mac, queue } => {
            let parent = Parent::of(gate, *parent)?;
            parent.can_carry(*mtu)?;
            let wanted = Wanted {
                kind: InnerKind::Macvlan,
                spec: InnerLinkKind::Macvlan { parent: parent.index, mode: *mode, queue: *queue },
                mtu: *mtu,
                // In mode "passthru" it has its parent's.
                mac: (*mode != MacvlanMode::Passthru).then(|| mac.unwrap_or_else(|| Mac(random_mac()))),
                from_host: !parent.in_container,
                shares: None,
                vlan: None,
            };
            let link = inner::create(gate, &wanted, |_| Ok(()))?;
            Ok(Reply::Macvlan(MacvlanInfo { link, mode: Some(*mode) }))
        }
        ops::Macvlan::Find => {
            let Some(own) = inner::find(gate, InnerKind::Macvlan)? else { return Ok(Reply::MaybeMacvlan(None)) };
            let mode = own.macvlan_mode;
            Ok(Reply::MaybeMacvlan(Some(MacvlanInfo { link: inner::show(gate, own)?, mode })))
        }
    }
}
