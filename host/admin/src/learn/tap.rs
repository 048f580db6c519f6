//! The needs of a tap, in a place with one user and an empty container.

use super::place::NETNS;
use crate::lists::Network;
use anyhow::{Context, Result};
use postern_kernel::{Namespace, Worker};
use serde_json::Value;

/// Returns the network with the one user and the one group that this place has. The policy has placeholders for user
/// and group, so it is the same for every ID.
pub fn with_own_ids(network: &Network) -> Network {
    let mut network = network.clone();
    for key in ["owner", "group"] {
        if let Some(id) = network.config.get_mut(key).filter(|id| id.is_u64()) {
            *id = Value::from(0);
        }
    }
    network
}

/// Makes the bridge that the network names in the container, if it names one.
///
/// # Errors
/// The kernel refuses.
pub fn make(network: &Network) -> Result<()> {
    let Some(bridge) = network.named("/bridge") else { return Ok(()) };
    let container = Namespace::open(NETNS).context(NETNS)?;
    let worker = Worker::start(&container, || Ok(()))?;
    worker.netlink()?.create_bridge(&bridge, None, false).with_context(|| format!("bridge {bridge}"))?;
    Ok(())
}
