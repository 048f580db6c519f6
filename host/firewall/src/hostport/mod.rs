//! Forwards from ports of the node to an attachment's own address (`portMappings`), in the native plugin's forms.
//!
//! | module | content |
//! |---|---|
//! | [`nft`] | table `cni_hostport` |
//! | `native` | comparison of forwards that a native plugin made in table `cni_hostport` |
//! | [`crate::iptables::hostport`] | chains `CNI-HOSTPORT-…` and `CNI-DN-…` |
//! | [`localnet`] | the guard of 127.0.0.0/8 on links with `route_localnet` |
//! | `condition` | the network's conditions, in a closed grammar |

mod condition;
pub mod localnet;
mod native;
pub mod nft;

pub use condition::{About, NotACondition, PacketCondition, Syntax};

use crate::key::ChainKind;
use crate::{AttachmentKey, FirewallError, masquerade};
use ipnet::IpNet;
use postern_types::{NatSources, Transport};
use std::net::IpAddr;

/// The beginning of the names of iptables chains that have one attachment's forwards.
pub(crate) const CHAIN_PREFIX: &str = ChainKind::Forwards.prefix();
/// The beginning of the names of iptables chains that all attachments share.
const SHARED_PREFIX: &str = "CNI-HOSTPORT-";

/// True if a chain, or a table of nftables, has forwards or masquerading rules of plugins.
pub(crate) fn is_of_plugin(table: &str, chain: &str) -> bool {
    [nft::NAME, masquerade::TABLE.name].contains(&table)
        || [CHAIN_PREFIX, SHARED_PREFIX].iter().any(|beginning| chain.starts_with(beginning))
}

/// Returns the names that an attachment's forwards have: the comment in nftables, and both chains of iptables.
pub(crate) fn owner_names(key: &AttachmentKey) -> Vec<Vec<u8>> {
    let chains = key.iptables_chains(ChainKind::Forwards).map(String::into_bytes);
    [nft::comment(&key.container_id)].into_iter().chain(chains).collect()
}

/// One port of the node that leads to one port of the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortForward {
    /// The protocol.
    pub protocol: Transport,
    /// The node's address; `None` for all addresses of the node.
    pub host_ip: Option<IpAddr>,
    /// The node's port, 1 to 65535.
    pub host_port: u16,
    /// The container's port, 1 to 65535.
    pub container_port: u16,
}

/// The way in which iptables marks packets to be masqueraded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkBy {
    /// With this bit of the mark, 0 to 31.
    Bit(u8),
    /// By a chain of another program (`externalSetMarkChain`).
    Chain(String),
}

/// All forwards to one address of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPorts {
    /// The owner.
    pub key: AttachmentKey,
    /// The container's address with its network's prefix length.
    pub address: IpNet,
    /// The forwards. A forward for a node's address of the other family has no effect here.
    pub forwards: Vec<PortForward>,
    /// The masqueraded senders.
    pub sources: NatSources,
    /// For iptables: the mark of packets to be masqueraded.
    pub mark: MarkBy,
    /// The network's conditions for this family.
    pub conditions: Vec<PacketCondition>,
}

impl HostPorts {
    /// Returns the forwards of the address's family, each once, in their order.
    pub(crate) fn own_forwards(&self) -> Vec<PortForward> {
        let mut seen = std::collections::HashSet::new();
        let is_own =
            |forward: &&PortForward| forward.host_ip.is_none_or(|host| host.is_ipv4() == self.address.addr().is_ipv4());
        self.forwards.iter().filter(is_own).filter(|forward| seen.insert(**forward)).copied().collect()
    }
}

/// Checks that a chain can have this name and be the target of a rule.
///
/// # Errors
/// The name is not allowed. The error has the name, and the allowed form.
pub fn validate_chain(name: &str) -> Result<(), FirewallError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    // XT_EXTENSION_MAXNAMELEN, with its final NUL.
    if (1..=28).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with('-') {
        return Ok(());
    }
    Err(FirewallError::new("use chain", name, "a chain's name has 1 to 28 letters, digits, `-`, `_`, `.` and `:`"))
}
