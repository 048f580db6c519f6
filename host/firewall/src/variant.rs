//! The variant of the system's iptables: rules of nf_tables, or tables of legacy iptables.
//!
//! New rules are made in the variant of the node's programs. Earlier rules can be in the other variant: an
//! administrator may have switched or removed the programs meanwhile.

use std::cell::OnceCell;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use postern_types::IptablesVariant as Variant;

use crate::program;

/// The known place of earlier rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recorded {
    /// No record has the rules.
    #[default]
    No,
    /// A record has the rules, but not their place. Records of Postern 0.1 never have the place. Newer records lack it
    /// if the programs' variant was unknown.
    Somewhere,
    /// A record says that the rules are in this variant.
    In(Variant),
}

impl Recorded {
    /// Returns the place of rules whose record has this variant, or has `None`.
    #[must_use]
    pub fn of(variant: Option<Variant>) -> Self {
        variant.map_or(Self::Somewhere, Self::In)
    }
}

/// The program of each variant. All commands of a variant are links to its program.
static PROGRAMS: [(&str, Variant); 2] =
    [("xtables-nft-multi", Variant::Nft), ("xtables-legacy-multi", Variant::Legacy)];

thread_local! {
    /// The variants of the installed programs, for IPv4 and IPv6. They are found once per thread, because a thread can
    /// have its own mounts.
    static INSTALLED: [OnceCell<Option<Variant>>; 2] = const { [const { OnceCell::new() }; 2] };
}

/// Returns the variant of the system's programs of this family; `None` if they are not installed, or if their variant
/// is unknown. Scripts, copies, and programs with another name have an unknown variant.
pub(crate) fn installed(v6: bool) -> Option<Variant> {
    INSTALLED.with(|[of_v4, of_v6]| {
        let known = if v6 { of_v6 } else { of_v4 };
        if let Some(variant) = known.get() {
            return *variant;
        }
        let restore = program::locate(if v6 { "ip6tables-restore" } else { "iptables-restore" }).ok()?;
        *known.get_or_init(|| of_program(&restore, |name| program::locate(name).ok()))
    })
}

/// Returns the variant whose program this path leads to; `None` for any other program. `locate` finds a program.
fn of_program(path: &Path, locate: impl Fn(&str) -> Option<PathBuf>) -> Option<Variant> {
    // The files are compared first, because usually a program is in the directory of its commands. The real path costs
    // one or two system calls for each symbolic link.
    let file = file_of(path)?;
    let is_same = |name: &str| locate(name).is_some_and(|program| file_of(&program) == Some(file));
    let by_file = PROGRAMS.iter().find(|(name, _)| is_same(name));
    let by_path =
        || fs::canonicalize(path).ok().and_then(|real| PROGRAMS.iter().find(|(name, _)| real.ends_with(name)));
    by_file.or_else(by_path).map(|(_, variant)| *variant)
}

/// Returns the identity of a file: its device and its inode number.
fn file_of(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Returns the variant in which new rules of these addresses are made. `None` if the families' programs differ, are
/// missing, or have an unknown variant.
#[must_use]
pub fn of_new(addrs: &[IpNet]) -> Option<Variant> {
    let mut variants = by_family(addrs).map(|(v6, _)| installed(v6));
    let first = variants.next()?;
    first.filter(|_| variants.all(|other| other == first))
}

/// True if the system's programs of this family are installed, and are the nf_tables variant.
pub(crate) fn is_nft(v6: bool) -> bool {
    installed(v6) == Some(Variant::Nft)
}

/// True if all rules of this family are in nf_tables: the programs are the nf_tables variant, and legacy iptables has
/// no table. `None` if the kernel does not show the tables of legacy iptables.
pub(crate) fn serves(v6: bool) -> Option<bool> {
    if is_nft(v6) { legacy_tables(v6).map(|tables| tables.is_empty()) } else { Some(false) }
}

/// True if the system's iptables is installed, and is legacy iptables.
#[must_use]
pub fn is_legacy() -> bool {
    installed(false) == Some(Variant::Legacy)
}

/// Returns the tables of legacy iptables in this thread's namespace, by the kernel's list. `None` if the list can't be
/// read.
pub(crate) fn legacy_tables(v6: bool) -> Option<Vec<String>> {
    let names = if v6 { "/proc/thread-self/net/ip6_tables_names" } else { "/proc/thread-self/net/ip_tables_names" };
    match fs::read_to_string(names) {
        Ok(tables) => Some(tables.lines().map(str::to_owned).collect()),
        // The kernel has no legacy iptables.
        Err(error) if error.kind() == ErrorKind::NotFound => Some(Vec::new()),
        Err(_) => None,
    }
}

/// True if the kernel has, or may have, this table of legacy iptables.
pub(crate) fn has_legacy_table(v6: bool, table: &str) -> bool {
    legacy_tables(v6).is_none_or(|tables| tables.iter().any(|name| name == table))
}

/// Splits the addresses into IPv4 and IPv6; an empty family is left out.
pub(crate) fn by_family(addrs: &[IpNet]) -> impl Iterator<Item = (bool, Vec<IpNet>)> {
    [false, true].into_iter().filter_map(|v6| {
        let of_family = |address: &IpNet| matches!(address, IpNet::V6(_)) == v6;
        let addrs: Vec<IpNet> = addrs.iter().copied().filter(of_family).collect();
        (!addrs.is_empty()).then_some((v6, addrs))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// The program at the end of all links decides the variant. A copy or a script has no known variant.
    #[test]
    fn only_the_program_itself_tells_its_variant() {
        let at = std::env::temp_dir().join(format!("postern-variant-{}", std::process::id()));
        let other = at.join("elsewhere");
        fs::create_dir_all(&other).unwrap();
        let file = |path: &Path, text: &str| fs::write(path, text).unwrap();
        file(&at.join("xtables-nft-multi"), "nft");
        file(&at.join("xtables-legacy-multi"), "legacy");
        file(&other.join("xtables-legacy-multi"), "another legacy");
        file(&other.join("xtables-nft-multi"), "another nft");
        let link = |name: &str, to: &Path| symlink(to, at.join(name)).unwrap();
        link("nft", Path::new("xtables-nft-multi"));
        link("legacy", Path::new("xtables-legacy-multi"));
        link("nft-by-two", Path::new("nft"));
        link("legacy-by-two", Path::new("legacy"));
        link("nft-elsewhere", &other.join("xtables-nft-multi"));
        link("legacy-elsewhere", &other.join("xtables-legacy-multi"));
        fs::hard_link(at.join("xtables-nft-multi"), at.join("nft-by-number")).unwrap();
        fs::hard_link(at.join("xtables-legacy-multi"), at.join("legacy-by-number")).unwrap();
        file(&at.join("script"), "#!/bin/sh\nexec xtables-nft-multi iptables-restore \"$@\"\n");
        fs::copy(at.join("xtables-nft-multi"), at.join("copy")).unwrap();
        fs::copy(at.join("xtables-legacy-multi"), at.join("copy-of-legacy")).unwrap();
        file(&at.join("not-xtables-nft-multi"), "another name");
        link("to-script", Path::new("script"));
        link("nowhere", Path::new("gone"));
        let here = |name: &str| Some(at.join(name)).filter(|path| path.is_file());
        for (name, variant) in [
            ("nft", Some(Variant::Nft)),
            ("nft-by-two", Some(Variant::Nft)),
            ("nft-by-number", Some(Variant::Nft)),
            ("nft-elsewhere", Some(Variant::Nft)),
            ("legacy", Some(Variant::Legacy)),
            ("legacy-by-two", Some(Variant::Legacy)),
            ("legacy-by-number", Some(Variant::Legacy)),
            ("legacy-elsewhere", Some(Variant::Legacy)),
            ("script", None),
            ("to-script", None),
            ("copy", None),
            ("copy-of-legacy", None),
            ("not-xtables-nft-multi", None),
            ("nowhere", None),
        ] {
            assert_eq!(of_program(&at.join(name), here), variant, "{name}");
        }
        // If no program is at its usual place, the real path decides.
        assert_eq!(of_program(&at.join("nft-by-two"), |_| None), Some(Variant::Nft));
        assert_eq!(of_program(&at.join("legacy-by-two"), |_| None), Some(Variant::Legacy));
        assert_eq!(of_program(&at.join("script"), |_| None), None);
        fs::remove_dir_all(&at).unwrap();
    }
}
