//! `loopback`: `lo` of the container's namespace.

pub mod effect;

use crate::capability::addresses::show;
pub(crate) use crate::capability::facts::ALWAYS as FACTS;
use crate::capability::leaves::EffectKind;
use crate::capability::loopback::effect::lo;
use crate::effect::LoopbackUp;
use crate::errors::kernel_error;
use crate::gate::Gate;
use postern_kernel::LinkAddress;
use postern_types::{LoopbackState, OpError, host};

/// The most addresses of one family that a guest sees.
const MOST_OF_FAMILY: usize = 128;

impl host::Loopback for Gate<'_> {
    fn up(&mut self) -> Result<(), OpError> {
        let netlink = self.run.system.container_netlink()?;
        let lo = lo(netlink)?;
        if !lo.up {
            self.run.journal.intend(self.run.view(), LoopbackUp {})?;
            self.run.system.container_netlink()?.set_up(lo.index).map_err(kernel_error)?;
        }
        Ok(())
    }

    /// No record names the owner of `lo`, and a path can lead to another container later, because process IDs are
    /// reused. So `lo` stays up if the path belongs to a process, or if another link is up. `lo` ends with its
    /// namespace.
    fn down(&mut self) -> Result<(), OpError> {
        let Some(netlink) = self.run.system.netlink_inside()? else { return Ok(()) };
        // If two attempts can't list the links, `lo` counts as used.
        let links = || netlink.links().or_else(|_| netlink.links());
        let is_used = || links().map_or(true, |links| links.iter().any(|link| link.up && link.name != "lo"));
        if is_of_process(&self.run.request.netns) || is_used() {
            return Ok(());
        }
        LoopbackUp {}.remove(self.run)
    }

    fn addresses(&mut self) -> Result<LoopbackState, OpError> {
        let netlink = self.run.system.container_netlink()?;
        let lo = lo(netlink)?;
        let addresses = netlink.addresses(lo.index).map_err(kernel_error)?;
        Ok(LoopbackState { up: lo.up, addresses: of_interest(addresses).into_iter().map(show).collect() })
    }
}

/// True if a path to a namespace belongs to a process or thread. No mount pins this kind of path.
fn is_of_process(path: &str) -> bool {
    let mut parts = path.rsplit('/').skip(1);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.next() == Some("ns") && parts.next().is_some_and(|of| is_number(of) || ["self", "thread-self"].contains(&of))
}

/// Keeps the first addresses of each family, because root in the container can give `lo` any number of addresses.
/// Addresses that are no loopback addresses come first: one such address is a reason to refuse `lo`.
fn of_interest(mut addresses: Vec<LinkAddress>) -> Vec<LinkAddress> {
    addresses.sort_by_key(|address| address.net.addr().is_loopback());
    let mut room = [MOST_OF_FAMILY; 2];
    addresses.retain(|address| {
        let [v4, v6] = &mut room;
        let left = if address.net.addr().is_ipv4() { v4 } else { v6 };
        let has_room = *left > 0;
        *left = left.saturating_sub(1);
        has_room
    });
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_loopback_address_is_seen_among_any_number() {
        let address = |net: String| LinkAddress {
            net: net.parse().unwrap(),
            scope: 254,
            tentative: false,
            permanent: true,
            dad_failed: false,
        };
        let mut many: Vec<LinkAddress> =
            (0..9000).map(|n| address(format!("127.1.{}.{}/32", n / 250, n % 250))).collect();
        many.extend([address("10.0.0.1/8".to_owned()), address("::1/128".to_owned())]);
        let seen: Vec<String> = of_interest(many).iter().map(|address| address.net.to_string()).collect();
        assert_eq!((seen.len(), &*seen[0], &*seen[1], &*seen[128]), (129, "10.0.0.1/8", "127.1.0.0/32", "::1/128"));
    }

    #[test]
    fn a_path_of_a_process_is_known() {
        for path in ["/proc/7/ns/net", "/host/proc/7/ns/net", "/proc/7/task/9/ns/net", "/proc/self/ns/net"] {
            assert!(is_of_process(path), "{path}");
        }
        for path in ["/run/netns/7", "/run/ns/net", "/var/run/netns/cni-7", "/run/docker/netns/7", "", "ns/net"] {
            assert!(!is_of_process(path), "{path}");
        }
    }
}
