//! The base objects in nftables, which attachments share and do not remove.

use crate::nft::shared::SharedTable;
use crate::{FirewallError, Nft, macguard, masquerade};

/// A shared object that the plugins make and no attachment removes.
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

    fn shared(self) -> &'static SharedTable {
        match self {
            Self::MasqueradeTable => &masquerade::SHARED,
            Self::BridgeTable => &macguard::SHARED,
        }
    }
}

impl std::fmt::Display for BaseObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "table {}", self.shared().table)
    }
}

/// Returns the base objects that exist and are unused: they hold no attachment's rule and no foreign object.
///
/// # Errors
/// The kernel refuses to show them, or the deadline passes.
pub fn unused(nft: &mut Nft) -> Result<Vec<BaseObject>, FirewallError> {
    let mut unused = Vec::new();
    for object in BaseObject::ALL {
        if object.shared().is_unused(nft)? {
            unused.push(object);
        }
    }
    Ok(unused)
}

/// Deletes a base object if nothing uses it. Returns true if it deleted it.
///
/// # Errors
/// The kernel refuses, or the deadline passes.
pub fn remove_unused(nft: &mut Nft, object: BaseObject) -> Result<bool, FirewallError> {
    nft.change(|nft, batch| {
        let unused = object.shared().is_unused(nft)?;
        if unused {
            batch.delete_table(object.shared().table);
        }
        Ok(unused)
    })
}
