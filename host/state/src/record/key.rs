//! Whose record it is, and what its file is called.

use crate::files::{digest, short_hex};
use serde::{Deserialize, Serialize};
use std::fmt;

/// File name of an attachment's record: 32 hexadecimal digits of a hash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey(String);

impl RecordKey {
    /// The key of (host's namespace, network, container, interface). Each part is hashed with its length, so that parts
    /// can't run together. The namespace belongs to it: two hosts that share a file system share no attachment.
    #[must_use]
    pub fn new(host_netns_cookie: u64, network: &str, container_id: &str, ifname: &str) -> Self {
        let cookie = host_netns_cookie.to_le_bytes();
        Self(short_hex(&digest(&[&cookie, network.as_bytes(), container_id.as_bytes(), ifname.as_bytes()])))
    }

    /// The key that is this text, as [`RecordKey::as_str`] gave it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == 32 && text.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// The file's name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whose record it is.
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
    /// Cookie of the container's network namespace, where it could be asked for.
    pub netns_cookie: Option<u64>,
    /// `CNI_NETNS` as given: for people, not to find the namespace by.
    pub netns_path: String,
    /// When the attachment was made, milliseconds since 1970.
    pub created: u64,
}

impl Header {
    /// The key of this attachment.
    #[must_use]
    pub fn key(&self) -> RecordKey {
        RecordKey::new(self.host_netns_cookie, &self.network, &self.container_id, &self.ifname)
    }
}
