//! The owners of rules, and the names that the native plugins derive from them.

use sha2::{Digest as _, Sha512};

use crate::FirewallError;

/// The kinds of iptables rules for which a container has one chain in each network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainKind {
    /// The rules of `ipMasq`.
    Masquerading,
    /// The rules of `portMappings`.
    Forwards,
}

impl ChainKind {
    /// Returns the beginning of the chains' names.
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            Self::Masquerading => "CNI-",
            Self::Forwards => "CNI-DN-",
        }
    }

    /// Returns the beginning of the comment of rules that lead to the chain.
    fn comment(self) -> &'static str {
        match self {
            Self::Masquerading => "",
            Self::Forwards => "dnat ",
        }
    }
}

/// nft's limit for a rule comment (`NFTNL_UDATA_COMMENT_MAXLEN`). The native plugins cut longer comments.
pub(crate) const COMMENT_MAX: usize = 128;
/// The beginning of the names of links that limit a container's sent traffic.
const IFB_PREFIX: &str = "bwp";
/// The length of [`AttachmentKey::instance`] in bytes: two hashes, and a hyphen.
pub(crate) const INSTANCE: usize = 33;

/// An attachment, which owns rules. The native plugins' names decide how much of the key a rule shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttachmentKey {
    /// The network's name in its configuration.
    pub network: String,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_IFNAME`. The iptables names don't contain the interface: attachments of one container to one network share
    /// a chain.
    pub ifname: String,
}

impl AttachmentKey {
    /// Returns the part of the nft comment that identifies the attachment.
    pub(crate) fn instance(&self) -> String {
        format!("{}-{}", network_hash(&self.network), instance_hash(&self.ifname, &self.container_id))
    }

    /// Returns the nft rule comment, in bytes, because the cut at [`COMMENT_MAX`] may fall inside a character.
    pub(crate) fn nft_comment(&self) -> Vec<u8> {
        let Self { network, container_id, ifname } = self;
        let mut comment = format!("{}, net: {network}, if: {ifname}, id: {container_id}", self.instance())
            .replace('"', "")
            .into_bytes();
        comment.truncate(COMMENT_MAX);
        comment
    }

    /// Reads the owner from an nft comment. The flag is true if the container ID is complete, and false if the comment
    /// was cut. `None` if the hashes don't match the names.
    pub(crate) fn of_nft_comment(comment: &[u8]) -> Option<(Self, bool)> {
        let text = String::from_utf8_lossy(comment);
        let (instance, rest) = text.split_once(", net: ")?;
        let (network, rest) = rest.split_once(", if: ")?;
        let (ifname, container_id) = rest.split_once(", id: ")?;
        let key = Self { network: network.into(), container_id: container_id.into(), ifname: ifname.into() };
        let whole = key.instance() == instance;
        let cut = comment.len() == COMMENT_MAX && instance.starts_with(&format!("{}-", network_hash(network)));
        (whole || cut).then_some((key, whole))
    }

    /// Reads the container's key, without an interface, from an iptables chain and the comment of a rule that jumps to
    /// the chain. The chain's name is a hash of network and container. This hash proves that the comment names the real
    /// owner.
    pub(crate) fn of_iptables(kind: ChainKind, chain: &str, comment: &str) -> Option<Self> {
        let names = comment.strip_prefix(kind.comment())?.strip_prefix("name: \"")?;
        let (network, rest) = names.split_once("\" id: \"")?;
        let container_id = rest.strip_suffix('"')?.to_owned();
        let key = Self { network: network.to_owned(), container_id, ifname: String::new() };
        key.iptables_chains(kind).iter().any(|own| own == chain).then_some(key)
    }

    /// Returns the two possible iptables chains of the container in the network. The first name is the native plugins'.
    /// The second name is hashed with separators, and is used if the first name is taken.
    pub(crate) fn iptables_chains(&self, kind: ChainKind) -> [String; 2] {
        self.names(28, kind.prefix(), &[&self.network, &self.container_id])
    }

    /// Returns the two possible names of the link that limits the container's sent traffic. The first name is the
    /// native plugin's: all attachments of the container to the network share it. The second name is only for this
    /// attachment.
    pub fn ifb_names(&self) -> [String; 2] {
        self.names(15, IFB_PREFIX, &[&self.network, &self.container_id, &self.ifname])
    }

    /// Returns the native plugins' name, and the name that is hashed from these parts.
    fn names(&self, length: usize, prefix: &str, parts: &[&str]) -> [String; 2] {
        [format!("{}{}", self.network, self.container_id), joined(parts)].map(|text| hashed(length, prefix, &text))
    }

    /// True if a link with this name can be one of [`Self::ifb_names`].
    pub fn is_ifb_name(name: &str) -> bool {
        let hash = name.strip_prefix(IFB_PREFIX).unwrap_or_default();
        hash.len() == 15 - IFB_PREFIX.len() && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// Returns the comment of iptables rules. Fails if the names are too long, or if iptables' text format can't carry
    /// them unchanged. Valid CNI names can always be carried.
    pub(crate) fn iptables_comment(&self, kind: ChainKind) -> Result<String, FirewallError> {
        // The key of the configuration that chooses nftables instead.
        let backend = if kind == ChainKind::Forwards { "backend" } else { "ipMasqBackend" };
        let Self { network, container_id, .. } = self;
        let refused = |why: &str| {
            let names = format!("network {network:?}, container {container_id:?}");
            Err(FirewallError::new("name rules after", names, why))
        };
        if [network, container_id].iter().any(|text| text.contains(|c: char| c.is_control() || c == '"' || c == '\\')) {
            return refused("quotes, backslashes and control characters are not allowed in these names");
        }
        let comment = format!("{}name: \"{network}\" id: \"{container_id}\"", kind.comment());
        // XT_MAX_COMMENT_LEN, with its final NUL.
        if comment.len() > 255 {
            return refused(&format!(
                "together these names exceed an iptables comment (255 bytes): set \"{backend}\" to \"nftables\", or give the container \
                 a shorter ID"
            ));
        }
        Ok(comment)
    }
}

/// True if a container's masquerading chain in iptables can have this name: `CNI-`, and 24 hexadecimal digits.
pub(crate) fn is_masquerading(chain: &str) -> bool {
    let digits = chain.strip_prefix(ChainKind::Masquerading.prefix()).unwrap_or_default();
    digits.len() == 24 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Returns the text that begins the nft comments of a network's attachments.
pub(crate) fn network_hash(network: &str) -> String {
    hashed(16, "", network)
}

/// Returns 32 hexadecimal digits of a hash of these parts. Each part's length comes before it, so different parts give
/// different hashes.
pub(crate) fn hashed_parts(parts: &[&str]) -> String {
    hashed(32, "", &joined(parts))
}

fn joined(parts: &[&str]) -> String {
    parts.iter().map(|part| format!("{}:{part}", part.len())).collect()
}

/// Returns the second hash of [`AttachmentKey::instance`].
pub(crate) fn instance_hash(ifname: &str, container_id: &str) -> String {
    hashed(16, "", &format!("{ifname}:{container_id}"))
}

/// Reads container ID and interface from an nft comment. The container ID may be cut.
pub(crate) fn named_by(comment: &[u8]) -> Option<(&str, &str)> {
    let (_, rest) = std::str::from_utf8(comment).ok()?.split_once(", if: ")?;
    let (ifname, container_id) = rest.split_once(", id: ")?;
    Some((container_id, ifname))
}

/// Returns `prefix` followed by the hexadecimal SHA-512 of `text`, cut to `length` characters.
fn hashed(length: usize, prefix: &str, text: &str) -> String {
    // Only the needed digits are made, without a formatter: one garbage collection makes a thousand names.
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    let digest = Sha512::digest(text.as_bytes());
    let digits = digest.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    prefix.chars().chain(digits).take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(container_id: &str) -> AttachmentKey {
        AttachmentKey { network: "mynet".into(), container_id: container_id.into(), ifname: "eth0".into() }
    }

    #[test]
    fn derives_the_native_names() {
        assert_eq!(key("cid1").iptables_chains(ChainKind::Masquerading)[0], "CNI-a631aa8e1549a3b129110fd2");
        assert_eq!(key("cid1").instance(), "d23676b4f2d9fe04-0b65a318f52e521b");
        assert_eq!(hashed(28, "CNI-DN-", "mynetcid1"), "CNI-DN-a631aa8e1549a3b129110");
        assert_eq!(hashed(15, "bwp", "mynetcid1"), "bwpa631aa8e1549");
    }

    #[test]
    fn parts_do_not_run_together() {
        let mut seen = std::collections::HashSet::new();
        for parts in [["a-b", "c", "d"], ["a", "b-c", "d"], ["ab", "c", "d"], ["a", "bc", "d"], ["1:a", "", "bcd"]] {
            assert!(seen.insert(hashed_parts(&parts)), "{parts:?}");
        }
    }

    #[test]
    fn names_are_read_back_where_the_hashes_agree() {
        let read = |key: &AttachmentKey| AttachmentKey::of_nft_comment(&key.nft_comment());
        assert_eq!(read(&key("cid1")), Some((key("cid1"), true)));
        let long = key(&"x".repeat(300));
        let (cut, whole) = read(&long).unwrap();
        assert!(!whole && long.container_id.starts_with(&cut.container_id) && cut.container_id.len() > 60);
        for comment in ["d23676b4f2d9fe04-0b65a318f52e521b, net: mynet, if: eth0, id: cid2", "net: mynet", ""] {
            assert_eq!(AttachmentKey::of_nft_comment(comment.as_bytes()), None, "{comment}");
        }
        let chain = "CNI-a631aa8e1549a3b129110fd2";
        let ours = AttachmentKey { ifname: String::new(), ..key("cid1") };
        let read = |chain, comment| AttachmentKey::of_iptables(ChainKind::Masquerading, chain, comment);
        assert_eq!(read(chain, r#"name: "mynet" id: "cid1""#), Some(ours));
        assert_eq!(read(chain, r#"name: "mynet" id: "cid2""#), None);
        assert_eq!(read("CNI-DN-a631aa8e1549a3b129110", r#"name: "mynet" id: "cid1""#), None);
    }

    #[test]
    fn comments_are_stripped_and_cut_as_native() {
        assert_eq!(
            key("c\"id\"1").nft_comment(),
            format!("{}, net: mynet, if: eth0, id: cid1", key("c\"id\"1").instance()).into_bytes()
        );
        assert_eq!(key(&"x".repeat(300)).nft_comment().len(), 128);
        let iptables = |key: AttachmentKey| key.iptables_comment(ChainKind::Masquerading);
        assert_eq!(iptables(key("cid1")).unwrap(), r#"name: "mynet" id: "cid1""#);
        assert!(iptables(key("a\nCOMMIT")).is_err());
        assert!(iptables(key(&"x".repeat(300))).is_err());
    }
}
