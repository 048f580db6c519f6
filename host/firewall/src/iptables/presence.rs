//! A fast check whether an owner has rules. A request to the kernel costs less than programs that find no rules.

use super::hostport::SHARED;
use super::prelude::*;
use crate::variant::has_legacy_table;
use std::cell::OnceCell;

/// True if only the iptables programs can read the rules: `can_read` is false or fails for a family, or the kernel has
/// this table of legacy iptables. False if the iptables programs are not installed.
pub(super) fn only_programs(
    table: &'static str,
    runner: ProgramRunner<'_>,
    can_read: impl Fn(&mut Nft, bool) -> Result<bool, FirewallError>,
) -> bool {
    let needed = |place: Programs<'_>| place.without(|nft| can_read(nft, place.v6)) != Some(Ok(true));
    [false, true].into_iter().filter_map(|v6| Programs::locate(v6, runner).ok()).any(needed)
        || Programs::of_all(table, runner).iter().any(Programs::is_legacy)
}

/// True if there may be rules of any container and network.
///
/// # Errors
/// The kernel refuses to show its nftables, or the deadline passes.
pub fn any_may_exist(nft: &mut Nft) -> Result<bool, FirewallError> {
    others_may_exist(nft, "", &[])
}

/// True if there may be rules of containers of `network` that are not in `known`. `known` has pairs of container ID and
/// interface name. For containers outside of `known`, only the rules that lead to their chains are read. With an empty
/// `network`, chains of every network count.
///
/// # Errors
/// The kernel refuses to show its nftables, or the deadline passes.
pub fn others_may_exist(nft: &mut Nft, network: &str, known: &[(String, String)]) -> Result<bool, FirewallError> {
    let chains_of = |(container_id, _): &(String, String)| {
        let (network, container_id) = (network.to_owned(), container_id.clone());
        let key = AttachmentKey { network, container_id, ifname: String::new() };
        [ChainKind::Masquerading, ChainKind::Forwards].into_iter().flat_map(move |kind| key.iptables_chains(kind))
    };
    let own = OnceCell::new();
    let now = Some((network.to_owned(), nft.generation()?));
    // A run asks this question more than once.
    if nft.without_others == now {
        return Ok(has_legacy_nat());
    }
    for table in [false, true].map(|v6| table(v6, NAT)) {
        let mut chains = nft.chain_names(table)?;
        // Shared chains stay when the last container goes.
        chains.retain(|chain| chain.starts_with(ChainKind::Masquerading.prefix()) && !SHARED.contains(&chain.as_str()));
        let is_known = |chain: &String| {
            own.get_or_init(|| known.iter().flat_map(chains_of).collect::<HashSet<String>>()).contains(chain)
        };
        chains.retain(|chain| !is_known(chain));
        if !chains.is_empty() && (network.is_empty() || netlink::any_named(nft, table, chains, network)?) {
            return Ok(true);
        }
    }
    nft.without_others = now;
    Ok(has_legacy_nat())
}

/// True if the kernel has, or may have, a `nat` table of legacy iptables.
#[must_use]
pub fn has_legacy_nat() -> bool {
    has_legacy(NAT)
}

/// True if the kernel has, or may have, this table of legacy iptables.
pub(super) fn has_legacy(table: &str) -> bool {
    [false, true].into_iter().any(|v6| has_legacy_table(v6, table))
}
