//! Routes with all their next hops.

use crate::KeptRoute;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::ops::Not;

/// A next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextHop {
    /// The outgoing link's index.
    pub link: u32,
    /// The router that packets are sent to; `None` if the receiver is on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The next hop's share of the packets, minus one (`rtnh_hops`).
    #[serde(default)]
    pub weight: u8,
    /// True if the gateway is on the link, whatever addresses the link has (`RTNH_F_ONLINK`).
    #[serde(default, skip_serializing_if = "Not::not")]
    pub on_link: bool,
}

/// A route from the kernel, with one next hop or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeRoute {
    /// The common part of all next hops: the route without a gateway.
    #[serde(flatten)]
    pub kept: KeptRoute,
    /// The next hops, in the kernel's order.
    pub hops: Vec<NextHop>,
}

impl WholeRoute {
    /// Splits the route into routes with one next hop each. Each route comes with the index of its outgoing link.
    pub fn each(&self) -> impl Iterator<Item = (u32, KeptRoute)> {
        self.hops.iter().map(|hop| {
            let mut kept = self.kept.clone();
            kept.route.gateway = hop.gateway;
            (hop.link, kept)
        })
    }

    /// Returns the route with only the next hops that `wanted` accepts. `None` if no next hop is left.
    #[must_use]
    pub fn with(&self, wanted: impl Fn(&NextHop) -> bool) -> Option<Self> {
        let mut hops: Vec<NextHop> = self.hops.iter().filter(|hop| wanted(hop)).cloned().collect();
        // A single next hop gets all packets, and the kernel keeps no weight for it.
        if let [only] = &mut hops[..] {
            only.weight = 0;
        }
        let kept = self.kept.clone();
        hops.is_empty().not().then_some(Self { kept, hops })
    }

    /// True if both routes have the same destination, metric and table.
    #[must_use]
    pub fn is_of(&self, other: &KeptRoute) -> bool {
        let (own, other) = (&self.kept.route, &other.route);
        own.dst == other.dst && own.priority == other.priority && own.table == other.table
    }
}
