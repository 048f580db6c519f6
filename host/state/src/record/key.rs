//! The identity of a record, and the name of its file.

use crate::files::digest;
use crate::slots::SLOT;
use base16ct::lower::decode;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::{Hash, Hasher};

/// The identity of an attachment, by hashes. The file name of the attachment's record has the hash of the network (16
/// hexadecimal digits), then the hash of the attachment (32 digits). So a search for the records of one network opens
/// no record of another network.
///
/// Postern 0.1 used only the hash of the attachment. A key of such a file identifies the same attachment.
#[derive(Clone, Copy, Debug)]
pub struct RecordKey {
    /// `None` in the key of a file that Postern 0.1 made.
    network: Option<NetworkKey>,
    attachment: u128,
}

/// A network on one host: the beginning of its records' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkKey(u64);

impl NetworkKey {
    /// Returns the key of (host's namespace, network).
    #[must_use]
    pub fn new(host_netns_cookie: u64, network: &str) -> Self {
        Self(u64::from_be_bytes(digest(&[&host_netns_cookie.to_le_bytes(), network.as_bytes()])))
    }
}

impl fmt::Display for NetworkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl RecordKey {
    /// Returns the key of (host's namespace, network, container, interface). Each part is hashed with its length, so
    /// that the parts can't run together. The namespace is a part because two hosts may share a file system, but share
    /// no attachment.
    #[must_use]
    pub fn new(host_netns_cookie: u64, network: &str, container_id: &str, ifname: &str) -> Self {
        Self::in_network(NetworkKey::new(host_netns_cookie, network), host_netns_cookie, network, container_id, ifname)
    }

    /// As [`RecordKey::new`], for callers with many attachments of one network.
    #[must_use]
    pub fn in_network(
        key: NetworkKey,
        host_netns_cookie: u64,
        network: &str,
        container_id: &str,
        ifname: &str,
    ) -> Self {
        let cookie = host_netns_cookie.to_le_bytes();
        let parts = [&cookie, network.as_bytes(), container_id.as_bytes(), ifname.as_bytes()];
        Self { network: Some(key), attachment: u128::from_be_bytes(digest(&parts)) }
    }

    /// Returns the key of a file with this name, which Postern 0.1 may have made.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut bytes = [0; SLOT];
        let (network, attachment) = decode(name, &mut bytes).ok()?.split_last_chunk()?;
        let network = match network {
            [] => None,
            network => Some(NetworkKey(u64::from_be_bytes(network.try_into().ok()?))),
        };
        Some(Self { network, attachment: u128::from_be_bytes(*attachment) })
    }

    /// Returns the name of the file.
    #[must_use]
    pub fn file_name(&self) -> String {
        let network = self.network.map(|network| network.to_string()).unwrap_or_default();
        format!("{network}{:032x}", self.attachment)
    }

    /// Returns the key of the file that Postern 0.1 would have made; `None` if this key is already of that form.
    pub(super) fn earlier(&self) -> Option<Self> {
        self.network.map(|_| Self { network: None, ..*self })
    }

    /// True if `name` is the name of this record's file, or of this record after it was set aside.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        name.split('.').next().and_then(Self::parse).as_ref() == Some(self)
    }

    /// True if the file's name alone shows that the record belongs to another network.
    #[must_use]
    pub fn is_of_other(&self, network: NetworkKey) -> bool {
        self.network.is_some_and(|own| own != network)
    }
}

impl PartialEq for RecordKey {
    fn eq(&self, other: &Self) -> bool {
        self.attachment == other.attachment
    }
}

impl Eq for RecordKey {}

impl Hash for RecordKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(self.attachment);
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file_name())
    }
}

/// The attachment of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The network's name.
    pub network: String,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// The boot in which the attachment was made ([`crate::boot_id`]).
    pub boot_id: String,
    /// Cookie of the host's network namespace (`SO_NETNS_COOKIE`, socket(7)).
    pub host_netns_cookie: u64,
    /// Cookie of the container's network namespace, if it could be read.
    pub netns_cookie: Option<u64>,
    /// `CNI_NETNS` as given. The path may lead to another namespace now: only the cookie identifies the namespace.
    pub netns_path: String,
    /// The time when the attachment was made, milliseconds since 1970.
    pub created: u64,
}

impl Header {
    /// Returns the key of this attachment.
    #[must_use]
    pub fn key(&self) -> RecordKey {
        RecordKey::new(self.host_netns_cookie, &self.network, &self.container_id, &self.ifname)
    }
}
