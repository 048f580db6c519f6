//! The variant of the system's iptables: rules of nf_tables, or tables of legacy iptables.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::program;

/// The program that all names of the nf_tables variant lead to.
const NFT_PROGRAM: &str = "xtables-nft-multi";

/// True if the system's programs of this family are installed, and are the nf_tables variant.
pub(super) fn is_nft(v6: bool) -> bool {
    let Ok(restore) = program::locate(if v6 { "ip6tables-restore" } else { "iptables-restore" }) else { return false };
    // Each link on the way costs a call or two. The program usually lies in the same directory as its names.
    let is_that_one = program::locate(NFT_PROGRAM).is_ok_and(|program| is_same(&restore, &program));
    is_that_one || fs::canonicalize(restore).is_ok_and(|path| path.ends_with(NFT_PROGRAM))
}

/// True if both paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    file(one).is_some_and(|one| Some(one) == file(other))
}

/// True if this family's rules are nf_tables' alone: the programs are that variant, and legacy iptables has no table. `None`
/// if the kernel does not tell its tables.
pub(crate) fn serves(v6: bool) -> Option<bool> {
    if is_nft(v6) { legacy_tables(v6).map(|tables| tables.is_empty()) } else { Some(false) }
}

/// True if the system's iptables is installed, and is not the nf_tables variant.
#[must_use]
pub fn is_legacy() -> bool {
    program::locate("iptables-restore").is_ok() && !is_nft(false)
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
