//! The state of a DHCPv6 lease between two steps. A damaged state, or a state of another version, is refused.

use super::is_usable;
use super::router::Link;
use crate::exchange::{Acquisition, Exchange};
use crate::{Hex, State};
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};
use std::net::Ipv6Addr;

/// The version of the format.
const VERSION: u32 = 1;

/// The phase of the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is", deny_unknown_fields)]
pub enum Phase {
    /// The client waits for a router, or for a pause to end.
    Waiting { acquisition: Acquisition, until: u64, hint: Option<Ipv6Addr> },
    /// The client looks for servers.
    Soliciting { acquisition: Acquisition, exchange: Exchange, hint: Option<Ipv6Addr> },
    /// The client has chosen an offer.
    Requesting { acquisition: Acquisition, exchange: Exchange, address: Ipv6Addr, server: Hex },
    /// The client has the lease. `acquisition` is present until the first renewal.
    Bound { held: Held, acquisition: Option<Acquisition> },
    /// The client asks the server that gave the lease. With `anew`, the server has forgotten the lease, and gets a
    /// request as for a new lease.
    Renewing { held: Held, exchange: Exchange, anew: bool },
    /// The client asks every server. With `anew`, the server that answered has forgotten the lease.
    Rebinding { held: Held, exchange: Exchange, anew: bool },
    /// There is no lease, and no further step.
    Ended,
}

/// A lease.
pub type Held = crate::exchange::Held<Ipv6Net, Hex>;

/// The whole state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    version: u32,
    /// The data from router advertisements.
    pub link: Link,
    #[serde(flatten)]
    pub phase: Phase,
}

impl Saved {
    pub fn new(link: Link, phase: Phase) -> Self {
        Self { version: VERSION, link, phase }
    }

    /// Reads a state.
    ///
    /// # Errors
    /// A text for people: the state is damaged, or another version of Postern has written it.
    pub fn read(state: Option<&State>) -> Result<Self, String> {
        let Some(State(json)) = state else { return Err("dhcp: there is no state of this lease".into()) };
        let version = json.get("version").and_then(serde_json::Value::as_u64);
        if version != Some(u64::from(VERSION)) {
            return Err(format!("dhcp: the state of this lease is damaged, or has another version: {version:?}"));
        }
        let damaged = |error| format!("dhcp: the state of this lease is damaged: {error}");
        let saved: Self = serde_json::from_value(json.clone()).map_err(damaged)?;
        let is_sound = |held: &Held| held.is_ordered() && is_usable(held.address.addr()) && !held.server.0.is_empty();
        if saved.phase.held().is_some_and(|held| !is_sound(held)) {
            return Err("dhcp: the state of this lease is damaged: its times or addresses are invalid".into());
        }
        Ok(saved)
    }

    /// Writes the state.
    pub fn write(self) -> State {
        // Writing a state can't fail; an empty state would be refused by the reader.
        State(serde_json::to_value(self).unwrap_or_default())
    }
}

impl Phase {
    /// Returns the lease, if there is one.
    pub fn held(&self) -> Option<&Held> {
        match self {
            Self::Bound { held, .. } | Self::Renewing { held, .. } | Self::Rebinding { held, .. } => Some(held),
            Self::Waiting { .. } | Self::Soliciting { .. } | Self::Requesting { .. } | Self::Ended => None,
        }
    }

    /// Returns the search for a lease, if there is one.
    pub fn acquisition(&self) -> Option<&Acquisition> {
        match self {
            Self::Waiting { acquisition, .. }
            | Self::Soliciting { acquisition, .. }
            | Self::Requesting { acquisition, .. } => Some(acquisition),
            Self::Bound { .. } | Self::Renewing { .. } | Self::Rebinding { .. } | Self::Ended => None,
        }
    }
}
