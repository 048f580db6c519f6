//! The variant of the system's iptables: rules of nf_tables, or tables of legacy iptables.
//!
//! New rules are made in the variant that the node's programs are. Rules that were made earlier can be in the other one: an
//! administrator may have switched the programs meanwhile, or removed them.

use std::cell::OnceCell;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ipnet::IpNet;
use postern_types::IptablesVariant as Variant;

use super::by_family;
use crate::program;

/// What is known of the place of rules that were made earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recorded {
    /// No record says that there are any.
    #[default]
    No,
    /// A record has them, and does not say where. Records of Postern 0.1 never say it.
    Somewhere,
    /// They are in this variant, by their record.
    In(Variant),
}

impl Recorded {
    /// By what a record's effect says.
    #[must_use]
    pub fn of(variant: Option<Variant>) -> Self {
        variant.map_or(Self::Somewhere, Self::In)
    }
}

/// The program that all names of the nf_tables variant lead to.
const NFT_PROGRAM: &str = "xtables-nft-multi";

thread_local! {
    /// The variants of the installed programs, for IPv4 and IPv6. They are found out once: threads can have mounts of their own.
    static INSTALLED: [OnceCell<Variant>; 2] = const { [const { OnceCell::new() }; 2] };
}

/// Returns the variant of the system's programs of this family; `None` if they are not installed.
pub(super) fn installed(v6: bool) -> Option<Variant> {
    INSTALLED.with(|[of_v4, of_v6]| {
        let known = if v6 { of_v6 } else { of_v4 };
        if let Some(variant) = known.get() {
            return Some(*variant);
        }
        let restore = program::locate(if v6 { "ip6tables-restore" } else { "iptables-restore" }).ok()?;
        // Each link on the way costs a call or two. The program usually lies in the same directory as its names.
        let is_nft = program::locate(NFT_PROGRAM).is_ok_and(|program| is_same(&restore, &program))
            || fs::canonicalize(restore).is_ok_and(|path| path.ends_with(NFT_PROGRAM));
        Some(*known.get_or_init(|| if is_nft { Variant::Nft } else { Variant::Legacy }))
    })
}

/// True if both paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    file(one).is_some_and(|one| Some(one) == file(other))
}

/// Returns the variant in which new rules of these addresses are made; `None` if the families' programs differ, or are
/// missing.
#[must_use]
pub fn of_new(addrs: &[IpNet]) -> Option<Variant> {
    let mut variants = by_family(addrs).map(|(v6, _)| installed(v6));
    let first = variants.next()?;
    first.filter(|_| variants.all(|other| other == first))
}

/// True if the system's programs of this family are installed, and are the nf_tables variant.
pub(super) fn is_nft(v6: bool) -> bool {
    installed(v6) == Some(Variant::Nft)
}

/// True if this family's rules are nf_tables' alone: the programs are that variant, and legacy iptables has no table. `None`
/// if the kernel does not tell its tables.
pub(crate) fn serves(v6: bool) -> Option<bool> {
    if is_nft(v6) { legacy_tables(v6).map(|tables| tables.is_empty()) } else { Some(false) }
}

/// True if the system's iptables is installed, and is not the nf_tables variant.
#[must_use]
pub fn is_legacy() -> bool {
    installed(false) == Some(Variant::Legacy)
}

/// Returns the tables of legacy iptables in this thread's namespace, by the kernel's list. `None` if it can't be read.
pub(super) fn legacy_tables(v6: bool) -> Option<Vec<String>> {
    let names = if v6 { "/proc/thread-self/net/ip6_tables_names" } else { "/proc/thread-self/net/ip_tables_names" };
    match fs::read_to_string(names) {
        Ok(tables) => Some(tables.lines().map(str::to_owned).collect()),
        // The kernel has no legacy iptables.
        Err(error) if error.kind() == ErrorKind::NotFound => Some(Vec::new()),
        Err(_) => None,
    }
}

/// True if the kernel has, or may have, this table of legacy iptables.
pub(super) fn has_legacy_table(v6: bool, table: &str) -> bool {
    legacy_tables(v6).is_none_or(|tables| tables.iter().any(|name| name == table))
}
