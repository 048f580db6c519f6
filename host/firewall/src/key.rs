//! Whose masquerading it is, and the names that the native plugins derive from that.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha512};

use crate::FirewallError;

/// nft's limit for a rule comment, which the native plugins cut theirs to (`NFTNL_UDATA_COMMENT_MAXLEN`).
const COMMENT_MAX: usize = 128;

/// An attachment, as the masquerading rules name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MasqueradeKey {
    /// The network's name in its configuration.
    pub network: String,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_IFNAME`. No part of the iptables names: there, attachments of one container to one network share a chain.
    pub ifname: String,
}

impl MasqueradeKey {
    /// The part of the nft comment that identifies the attachment.
    pub(crate) fn instance(&self) -> String {
        format!("{}-{}", network_hash(&self.network), hashed(16, "", &format!("{}:{}", self.ifname, self.container_id)))
    }

    /// The nft rule comment. Bytes, because the cut at [`COMMENT_MAX`] may fall into a character.
    pub(crate) fn nft_comment(&self) -> Vec<u8> {
        let Self { network, container_id, ifname } = self;
        let mut comment = format!("{}, net: {network}, if: {ifname}, id: {container_id}", self.instance())
            .replace('"', "")
            .into_bytes();
        comment.truncate(COMMENT_MAX);
        comment
    }

    /// The iptables chain of the container in the network.
    pub(crate) fn iptables_chain(&self) -> String {
        hashed(28, "CNI-", &format!("{}{}", self.network, self.container_id))
    }

    /// The iptables rule comment.
    ///
    /// # Errors
    /// A name that the iptables text formats can't carry unchanged, which no valid CNI name is.
    pub(crate) fn iptables_comment(&self) -> Result<String, FirewallError> {
        let unsafe_text = |text: &str| text.contains(|c: char| c.is_control() || c == '"' || c == '\\');
        if unsafe_text(&self.network) || unsafe_text(&self.container_id) {
            return Err(FirewallError::new(
                "name rules after",
                format!("network {:?}, container {:?}", self.network, self.container_id),
                "quotes, backslashes and control characters are not allowed in these names",
            ));
        }
        let comment = format!("name: \"{}\" id: \"{}\"", self.network, self.container_id);
        // XT_MAX_COMMENT_LEN, with its final NUL.
        if comment.len() > 255 {
            return Err(FirewallError::new(
                "name rules after",
                format!("network {:?}, container {:?}", self.network, self.container_id),
                "together they exceed an iptables comment (255 bytes): use the nftables backend",
            ));
        }
        Ok(comment)
    }
}

/// What the nft comments of a network's attachments begin with.
pub(crate) fn network_hash(network: &str) -> String {
    hashed(16, "", network)
}

/// The first `length` characters of `prefix` and the hexadecimal SHA-512 of `text`.
fn hashed(length: usize, prefix: &str, text: &str) -> String {
    let mut name = prefix.to_owned();
    for byte in Sha512::digest(text.as_bytes()) {
        // Writing to a String can't fail.
        let _ = write!(name, "{byte:02x}");
    }
    name.truncate(length);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(container_id: &str) -> MasqueradeKey {
        MasqueradeKey { network: "mynet".into(), container_id: container_id.into(), ifname: "eth0".into() }
    }

    #[test]
    fn derives_the_native_names() {
        assert_eq!(key("cid1").iptables_chain(), "CNI-a631aa8e1549a3b129110fd2");
        assert_eq!(key("cid1").instance(), "d23676b4f2d9fe04-0b65a318f52e521b");
        assert_eq!(hashed(28, "CNI-DN-", "mynetcid1"), "CNI-DN-a631aa8e1549a3b129110");
        assert_eq!(hashed(15, "bwp", "mynetcid1"), "bwpa631aa8e1549");
    }

    #[test]
    fn comments_are_stripped_and_cut_as_native() {
        assert_eq!(
            key("c\"id\"1").nft_comment(),
            format!("{}, net: mynet, if: eth0, id: cid1", key("c\"id\"1").instance()).into_bytes()
        );
        assert_eq!(key(&"x".repeat(300)).nft_comment().len(), 128);
        assert_eq!(key("cid1").iptables_comment().unwrap(), r#"name: "mynet" id: "cid1""#);
        assert!(key("a\nCOMMIT").iptables_comment().is_err());
        assert!(key(&"x".repeat(300)).iptables_comment().is_err());
    }
}
