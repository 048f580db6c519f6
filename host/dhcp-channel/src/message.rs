//! The messages of `CONNECT /postern/1`.

use postern_dhcp::{Family, Lease};
use serde::{Deserialize, Serialize};

/// What the gate, or a command of people, asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Get a lease for an attachment, and keep it alive. An attachment that has one keeps it.
    Acquire(Attachment),
    /// The lease as it is now.
    Check(Attachment),
    /// Give the lease back. It need not be there, and of the attachment only the three names count.
    Release(Attachment),
    /// All leases.
    Leases,
    /// Whether the service answers.
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
    /// The families of addresses; none counts as IPv4 alone.
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

/// What the service answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The lease.
    Lease(Lease),
    /// It is done, or the service is there.
    Done,
    /// All leases.
    Leases(Vec<HeldLease>),
    /// It is not done.
    Refused {
        /// The CNI error code.
        code: u32,
        /// What is wrong.
        words: String,
        /// The way out; may be empty.
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
    /// The family of its address. An attachment with two families has two leases.
    #[serde(default)]
    pub family: Family,
    /// How it stands.
    pub standing: Standing,
    /// The lease; none while it is being acquired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// The seconds until it expires; none for a lease without end, and for one that is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
}

/// How a lease stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// No server has given it yet.
    Acquiring,
    /// It is valid.
    Bound,
    /// It is lost, and the link was set down; the reason.
    Lost(String),
    /// It is of a boot before this one. The container has not come back yet.
    Remembered,
}
