//! Rules with the system's iptables.
//!
//! Each call costs one `iptables-save` per family and, if there is something to change, one `iptables-restore`, which
//! makes all changes at once.
//!
//! | module | |
//! |---|---|
//! | `programs` | which programs are run, and with what |
//! | `saved` | what they print and read |
//! | `set` | a set of rules with an owner, in any table and chains |
//! | `masquerade` | the rules of `ipMasq` |
//! | `presence` | whether there can be any: asked of the kernel |

mod masquerade;
mod presence;
mod programs;
pub(crate) mod saved;
mod set;

pub use masquerade::{Seen, check, ensure, list, remove, remove_all, remove_seen, retain, validate};
pub use presence::{any_may_exist, chains, has_legacy_nat, may_exist, others_may_exist};
pub use programs::{Means, installed, missing, programs, usable};

use crate::FirewallError;
use programs::families;
use saved::SavedTable;

/// The table in which addresses are translated.
const NAT: &str = "nat";

/// A table of both families at one moment; a family without programs has none.
pub(crate) struct Tables(Vec<(bool, SavedTable)>);

impl Tables {
    pub(crate) fn look(table: &str, means: Means<'_>) -> Result<Self, FirewallError> {
        let tables = families(means)?.into_iter().map(|programs| Ok((programs.v6, programs.look(table)?)));
        tables.collect::<Result<_, _>>().map(Self)
    }

    /// The `nat` tables.
    pub(crate) fn nat(means: Means<'_>) -> Result<Self, FirewallError> {
        Self::look(NAT, means)
    }

    /// Of each family whose programs are installed, by the name that nftables give it.
    pub(crate) fn by_family(&self) -> impl Iterator<Item = (&'static str, &SavedTable)> {
        self.0.iter().map(|(v6, table)| (if *v6 { "ip6" } else { "ip" }, table))
    }

    /// Of one family.
    fn of(&self, v6: bool) -> Option<&SavedTable> {
        self.0.iter().find(|(family, _)| *family == v6).map(|(_, table)| table)
    }
}
