//! What attachments share and leave behind: the base objects in nftables.

use crate::batch::Table;
use crate::masquerade::{CHECKS, POSTROUTING, postrouting_rules};
use crate::{FirewallError, Nft, macguard, masquerade};

/// A shared object that the plugins make and that no attachment removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BaseObject {
    /// Table `inet cni_plugins_masquerade`, with its two chains.
    MasqueradeTable,
    /// Table `bridge nat`, with its chain `PREROUTING`.
    BridgeTable,
}

impl BaseObject {
    const ALL: [Self; 2] = [Self::MasqueradeTable, Self::BridgeTable];

    fn table(self) -> Table {
        match self {
            Self::MasqueradeTable => masquerade::TABLE,
            Self::BridgeTable => macguard::TABLE,
        }
    }
}

impl std::fmt::Display for BaseObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "table {}", self.table())
    }
}

/// The base objects that exist and that nothing uses: no attachment's rule is in them, and nobody else's object.
///
/// # Errors
/// The kernel refuses to show them, or the deadline passes.
pub fn unused(nft: &mut Nft) -> Result<Vec<BaseObject>, FirewallError> {
    let mut unused = Vec::new();
    for object in BaseObject::ALL {
        if is_unused(nft, object)? {
            unused.push(object);
        }
    }
    Ok(unused)
}

/// Deletes a base object if nothing uses it, and returns whether it did.
///
/// # Errors
/// The kernel refuses, or the deadline passes.
pub fn remove_unused(nft: &mut Nft, object: BaseObject) -> Result<bool, FirewallError> {
    nft.change(|nft, batch| {
        let unused = is_unused(nft, object)?;
        if unused {
            batch.delete_table(object.table());
        }
        Ok(unused)
    })
}

fn is_unused(nft: &mut Nft, object: BaseObject) -> Result<bool, FirewallError> {
    let table = object.table();
    let Some(state) = nft.table(table)? else {
        return Ok(false);
    };
    // A table counts all that is in it, sets and maps included: more than our chains is somebody else's.
    match object {
        BaseObject::MasqueradeTable => {
            let mut chains = 0;
            for chain in [CHECKS, POSTROUTING] {
                chains += u32::from(nft.chain(table, chain)?.is_some());
            }
            let ours = postrouting_rules();
            Ok(state.uses == chains
                && nft.rules(table, CHECKS)?.is_empty()
                && nft.rules(table, POSTROUTING)?.iter().all(|rule| ours.iter().any(|ours| rule.is(ours))))
        }
        BaseObject::BridgeTable => Ok(state.uses == 1
            && nft.chain(table, macguard::PREROUTING)?.is_some()
            && nft.rules(table, macguard::PREROUTING)?.is_empty()),
    }
}
