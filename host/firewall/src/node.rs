//! What attachments share and leave behind: the base objects in nftables.

use crate::nft::ground::Ground;
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

    fn ground(self) -> &'static Ground {
        match self {
            Self::MasqueradeTable => &masquerade::GROUND,
            Self::BridgeTable => &macguard::GROUND,
        }
    }
}

impl std::fmt::Display for BaseObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "table {}", self.ground().table)
    }
}

/// The base objects that exist and that nothing uses: no attachment's rule is in them, and nobody else's object.
///
/// # Errors
/// The kernel refuses to show them, or the deadline passes.
pub fn unused(nft: &mut Nft) -> Result<Vec<BaseObject>, FirewallError> {
    let mut unused = Vec::new();
    for object in BaseObject::ALL {
        if object.ground().is_unused(nft)? {
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
        let unused = object.ground().is_unused(nft)?;
        if unused {
            batch.delete_table(object.ground().table);
        }
        Ok(unused)
    })
}
