//! A second description of the data that each version can carry, independent of the code under test.

use postern_cni::{CniResult, CniRoute, Interface, IpConfig, Version};
use std::net::IpAddr;

/// Returns the part of a result that a version can carry; `None` if the version can't carry the result.
pub fn carried(result: &CniResult, version: Version) -> Option<CniResult> {
    match version {
        Version::V1_0_0 | Version::V1_1_0 => Some(result.clone()),
        Version::V0_3_0 | Version::V0_3_1 | Version::V0_4_0 => {
            let bare = |of: &Interface| Interface {
                name: of.name.clone(),
                mac: of.mac.clone(),
                sandbox: of.sandbox.clone(),
                ..Interface::default()
            };
            Some(CniResult { interfaces: result.interfaces.iter().map(bare).collect(), ..result.clone() })
        }
        Version::V0_1_0 | Version::V0_2_0 => {
            let mut kept = CniResult { dns: result.dns.clone(), ..CniResult::default() };
            for is_wanted in [IpAddr::is_ipv4 as fn(&IpAddr) -> bool, IpAddr::is_ipv6] {
                let Some(first) = result.ips.iter().find(|ip| is_wanted(&ip.address.addr())) else { continue };
                kept.ips.push(IpConfig { interface: None, ..first.clone() });
                let routes = result.routes.iter().filter(|route| route.dst.is_some_and(|dst| is_wanted(&dst.addr())));
                kept.routes.extend(routes.map(|route| CniRoute {
                    dst: route.dst,
                    gw: route.gw,
                    ..CniRoute::default()
                }));
            }
            (!kept.ips.is_empty()).then_some(kept)
        }
    }
}
