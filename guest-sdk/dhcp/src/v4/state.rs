//! The state of a lease between two steps.
//!
//! The state is small, 200 to 300 bytes of JSON, because a node keeps one state per lease. It has a version. A state
//! that can't be read, or that contradicts itself, is refused: an unknown lease must not look valid.

use super::is_usable;
use crate::State;
use crate::exchange::{Acquisition, Exchange};
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// The version of the format. A state with another number is refused.
const VERSION: u32 = 1;

/// The phase of the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is", deny_unknown_fields)]
pub enum Phase {
    /// INIT-REBOOT: the client asks for the address of an earlier lease.
    Rebooting { acquisition: Acquisition, exchange: Exchange, address: Ipv4Addr },
    /// SELECTING: the client looks for servers.
    Selecting { acquisition: Acquisition, exchange: Exchange, hint: Option<Ipv4Addr> },
    /// REQUESTING: the client has chosen an offer.
    Requesting { acquisition: Acquisition, exchange: Exchange, address: Ipv4Addr, server: Ipv4Addr },
    /// The client waits before it begins again.
    Waiting { acquisition: Acquisition, until: u64 },
    /// BOUND. `acquisition` is present until the first renewal, for a new search if another station has the address.
    Bound { held: Held, acquisition: Option<Acquisition> },
    /// RENEWING: the client asks the server that gave the lease.
    Renewing { held: Held, exchange: Exchange },
    /// REBINDING: the client asks every server.
    Rebinding { held: Held, exchange: Exchange },
    /// There is no lease, and no further step.
    Ended,
}

/// A lease.
pub type Held = crate::exchange::Held<Ipv4Net, Ipv4Addr>;

#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    #[serde(flatten)]
    phase: Phase,
}

impl Phase {
    /// Reads a state.
    ///
    /// # Errors
    /// A text for people: the state is damaged, or another version of Postern has written it.
    pub fn read(state: Option<&State>) -> Result<Self, String> {
        let Some(State(json)) = state else { return Err("dhcp: there is no state of this lease".into()) };
        match json.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => {
                return Err(format!(
                    "dhcp: the state of this lease has version {version}, and this Postern reads version {VERSION}"
                ));
            }
            None => return Err("dhcp: the state of this lease is damaged: it has no version".into()),
        }
        let saved: Saved = serde_json::from_value(json.clone())
            .map_err(|error| format!("dhcp: the state of this lease is damaged: {error}"))?;
        if !saved.phase.is_sound() {
            return Err("dhcp: the state of this lease is damaged: its times or addresses are invalid".into());
        }
        Ok(saved.phase)
    }

    /// Writes a state.
    pub fn write(self) -> State {
        // Writing a state can't fail; [`Phase::read`] would refuse an empty state.
        State(serde_json::to_value(Saved { version: VERSION, phase: self }).unwrap_or_default())
    }

    fn is_sound(&self) -> bool {
        match self {
            Self::Bound { held, .. } | Self::Renewing { held, .. } | Self::Rebinding { held, .. } => {
                held.is_ordered() && is_usable(held.address.addr()) && is_usable(held.server)
            }
            Self::Rebooting { address, .. } => is_usable(*address),
            Self::Requesting { address, server, .. } => is_usable(*address) && is_usable(*server),
            Self::Selecting { .. } | Self::Waiting { .. } | Self::Ended => true,
        }
    }

    /// Returns the lease, if there is one.
    pub fn held(&self) -> Option<&Held> {
        match self {
            Self::Bound { held, .. } | Self::Renewing { held, .. } | Self::Rebinding { held, .. } => Some(held),
            Self::Rebooting { .. }
            | Self::Selecting { .. }
            | Self::Requesting { .. }
            | Self::Waiting { .. }
            | Self::Ended => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bound() -> Phase {
        let held = Held {
            address: "10.5.0.50/24".parse().unwrap(),
            server: "10.5.0.1".parse().unwrap(),
            since: 1_000_000,
            seconds: 3600,
            t1: 1800,
            t2: 3060,
        };
        Phase::Bound { held, acquisition: None }
    }

    #[test]
    fn a_state_is_small_and_comes_back() {
        let trouble = Some("x".repeat(120));
        let acquisition = Acquisition { began: u64::MAX / 2, tries: 9, trouble };
        let exchange = Exchange { xid: u32::MAX, first: u64::MAX / 2, next: u64::MAX / 2, sent: 9 };
        let (address, server) = ("10.255.255.250".parse().unwrap(), "10.255.255.251".parse().unwrap());
        for phase in [
            bound(),
            Phase::Requesting { acquisition: acquisition.clone(), exchange, address, server },
            Phase::Waiting { acquisition, until: 7 },
            Phase::Ended,
        ] {
            let state = phase.clone().write();
            let text = serde_json::to_string(&state).unwrap();
            assert!(text.len() < 450, "{} bytes: {text}", text.len());
            assert_eq!(Phase::read(Some(&serde_json::from_str(&text).unwrap())), Ok(phase));
        }
    }

    #[test]
    fn a_damaged_state_is_refused() {
        let good = bound().write().0;
        let changed = |pointer: &str, value: serde_json::Value| {
            let mut json = good.clone();
            *json.pointer_mut(pointer).unwrap() = value;
            json
        };
        for (state, words) in [
            (json!(null), "has no version"),
            (json!({}), "has no version"),
            (json!([1]), "has no version"),
            (changed("/version", json!(2)), "has version 2, and this Postern reads version 1"),
            (changed("/version", json!("1")), "has no version"),
            (changed("/is", json!("asleep")), "is damaged"),
            (changed("/is", json!("renewing")), "is damaged"),
            (changed("/held/address", json!("10.5.0.50")), "is damaged"),
            (changed("/held/address", json!("127.0.0.1/8")), "are invalid"),
            (changed("/held/server", json!("255.255.255.255")), "are invalid"),
            (changed("/held/t1", json!(4000)), "are invalid"),
            (changed("/held/t1", json!(0)), "are invalid"),
            (changed("/held/seconds", json!(-1)), "is damaged"),
            (changed("/held", json!({"address": "10.5.0.50/24"})), "is damaged"),
        ] {
            let error = Phase::read(Some(&State(state.clone()))).unwrap_err();
            assert!(error.starts_with("dhcp: the state of this lease ") && error.contains(words), "{state}: {error}");
        }
        assert!(Phase::read(None).unwrap_err().contains("no state"));
    }
}
