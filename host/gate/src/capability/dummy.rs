//! `dummy`: the attachment's own link, which leads nowhere.

use super::inner::{self, Wanted};
use crate::capability::facts::{Facts, Needed};
use crate::effect::InnerKind;
use crate::gate::Gate;
use postern_kernel::{InnerLinkKind, random_mac};
use postern_types::{Mac, OpError, Reply, ops};

/// The facts about it that the host needs beside its operations.
pub const FACTS: Facts = Facts { needed: Needed::Always, keeps: |_, _| None, unrecorded: None };

/// Carries out one operation that policy allows.
///
/// # Errors
/// The error that the guest gets.
pub fn execute(gate: &mut Gate<'_>, operation: &ops::Dummy) -> Result<Reply, OpError> {
    match operation {
        ops::Dummy::Create => {
            let wanted = Wanted {
                kind: InnerKind::Dummy,
                spec: InnerLinkKind::Dummy,
                mtu: None,
                mac: Some(Mac(random_mac())),
                from_host: false,
                shares: None,
                vlan: None,
            };
            inner::create(gate, &wanted, |_| Ok(())).map(Reply::Made)
        }
    }
}
