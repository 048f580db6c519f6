//! The messages of `CONNECT /postern/1`.

use postern_dhcp::{Family, Lease};
use serde::{Deserialize, Serialize};

/// A request of the gate, or of a command for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Get a lease for an attachment, and renew it. An attachment with a lease keeps its lease.
    Acquire(Attachment),
    /// Read the present lease.
    Check(Attachment),
    /// Give the lease back. A missing lease is no error. The service compares only container ID, network and interface.
    Release(Attachment),
    /// Read all leases.
    Leases,
    /// Test whether the service answers.
    Alive,
}

/// An attachment of a container to a network, as the runtime describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attachment {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// The network's name.
    pub network: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_NETNS`.
    pub netns: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// The configuration that the plugin got on standard input.
    pub configuration: String,
    /// The families of addresses; an empty list means IPv4 alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<Family>,
}

impl Attachment {
    /// Returns the families of addresses that are wanted, each once.
    pub fn wanted(&self) -> Vec<Family> {
        let is_wanted =
            |family: &Family| self.families.contains(family) || self.families.is_empty() && *family == Family::Ipv4;
        Family::ALL.into_iter().filter(is_wanted).collect()
    }
}

/// An answer of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The lease.
    Lease(Lease),
    /// The lease is given back, or the service is alive.
    Done,
    /// All leases.
    Leases(Vec<HeldLease>),
    /// The request failed.
    Refused {
        /// The CNI error code.
        code: u32,
        /// The reason.
        words: String,
        /// The remedy; may be empty.
        details: String,
    },
}

/// A lease that the service holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLease {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// The network's name.
    pub network: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// The path of the network namespace.
    pub netns: String,
    /// The family of the lease's address. An attachment with two families has two leases.
    #[serde(default)]
    pub family: Family,
    /// The state of the lease.
    pub standing: Standing,
    /// The lease; `None` while it is being acquired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// The seconds until the lease expires; `None` for an endless lease, and for a lost lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
}

/// The state of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// No server has given the lease yet.
    Acquiring,
    /// The lease is valid.
    Bound,
    /// The lease is lost, and the link was set down. The text is the reason.
    Lost(String),
    /// The lease is from an earlier boot. The container has not come back yet.
    Remembered,
}
