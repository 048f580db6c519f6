//! The guard of the node's 127.0.0.0/8.
//!
//! A link with the sysctl `route_localnet` delivers packets to and from 127.0.0.0/8. Connections from the node's
//! 127.0.0.1 to a forwarded port need this sysctl on the link towards the container. Without a guard, every container
//! behind this link would reach the services that listen on the node's 127.0.0.1. A container could also send to any
//! service of the node with the source 127.0.0.1, which many programs trust. The native plugin has no guard.
//!
//! ```text
//! table ip postern_localnet
//!     chain prerouting    iifname != "lo" meta iifkind != "vrf" ip daddr 127.0.0.0/8 drop
//!                         iifname != "lo" meta iifkind != "vrf" ip saddr 127.0.0.0/8 drop
//! ```
//!
//! On links without `route_localnet`, the rules change nothing, because the kernel itself drops these packets. The
//! rules come before address translation. At that point, answers to connections from 127.0.0.1 do not have 127.0.0.1 as
//! source or destination yet.

use crate::nft::prelude::*;
use std::net::Ipv4Addr;

const TABLE: Table = Table { family: NetfilterProtoFamily::IPv4, name: "postern_localnet" };
const COMMENT: &str = "Postern: links with route_localnet deliver nothing to 127.0.0.0/8, and nothing from there";
const LOOPBACK: IpNet = IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8);

/// The guard's table. It stays when the last attachment goes.
pub static SHARED: LazyLock<SharedTable> = LazyLock::new(|| {
    let guard = |side| {
        let mut guard = rule::from_a_link().to_vec();
        guard.extend(rule::address(side, true, LOOPBACK));
        guard.push(rule::drop_packet());
        (NftPlace::First, guard)
    };
    let prerouting = SharedChain {
        name: "prerouting",
        base: Some(BaseChain { kind: "filter", hook: InetHookNumber::PreRouting, priority: -300 }),
        wrong_kind: Some(
            "it is no filter chain, so 127.0.0.0/8 would be open: delete the table; the next ADD makes the table again",
        ),
        rules: vec![guard(Side::Destination), guard(Side::Source)],
        ..SharedChain::default()
    };
    SharedTable { table: TABLE, comment: Some(COMMENT), chains: vec![prerouting], kind: "", is_named_for_plugins: true }
});

/// Makes sure that the guard is there. An existing guard is not changed.
///
/// # Errors
/// The kernel refuses, or the deadline passes.
pub fn ensure(nft: &mut Nft) -> Result<(), FirewallError> {
    nft.change(|nft, batch| {
        let exists = nft.table(TABLE)?.is_some();
        SHARED.ensure(nft, batch, exists)
    })
}

/// True if the guard is there.
///
/// # Errors
/// The kernel refuses to show the guard, or the deadline passes.
pub fn check(nft: &mut Nft) -> Result<bool, FirewallError> {
    SHARED.is_complete(&mut |chain: &str| nft.rules(TABLE, chain))
}
