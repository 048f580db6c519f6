//! The conditions that a network sets for its port mappings (`conditionsV4`, `conditionsV6`).
//!
//! The native plugin puts the words of a condition into a rule of iptables or nft unchanged. Postern has a closed
//! grammar: source, destination and input link, each possibly negated. Other words are refused.

use crate::nft::rule::{self, Expression, Side};
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;

/// One condition on the packets to be forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketCondition {
    /// True for packets that match, false for packets that do not match.
    pub is: bool,
    /// The part of the packet that is compared.
    pub about: About,
}

/// The part of a packet that a condition compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// The source lies in this network.
    Source(IpNet),
    /// The destination lies in this network.
    Destination(IpNet),
    /// The input link has this name. A `*` at the end stands for any further characters.
    Input(String),
}

/// The languages in which conditions can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// `! -s 192.0.2.0/24 -i eth0`.
    Iptables,
    /// `ip saddr != 192.0.2.0/24 iifname "eth0"`.
    Nft,
}

/// Words that are no condition of the grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no condition: a condition can be {1}; NETWORK is an {2} network with a prefix length above 0")]
pub struct NotACondition(String, &'static str, &'static str);

const IPTABLES: &str = "`-s NETWORK`, `-d NETWORK` or `-i LINK`, with or without a `!` before it";
const NFT: &str =
    "`ip saddr NETWORK`, `ip daddr NETWORK` (or `ip6`) or `iifname LINK`, with or without a `!=` before the value";

impl Syntax {
    /// Returns the language of these words; `None` if there are no words. The first word decides, as in the native
    /// plugin.
    #[must_use]
    pub fn of(words: &[String]) -> Option<Self> {
        let first = words.first()?;
        Some(if first.starts_with('-') || first.starts_with('!') { Self::Iptables } else { Self::Nft })
    }

    /// Reads the conditions of one family.
    ///
    /// # Errors
    /// Some words are no condition. The error has the first such words, and the possible conditions.
    pub fn read(self, words: &[String], v6: bool) -> Result<Vec<PacketCondition>, NotACondition> {
        // nft joins its arguments, so one text of the configuration may hold several words.
        let mut words = words.iter().flat_map(|word| word.split_whitespace());
        let mut conditions = Vec::new();
        while let Some(first) = words.next() {
            let mut seen = vec![first];
            let read = match self {
                Self::Iptables => iptables(first, v6, || words.next().inspect(|word| seen.push(word))),
                Self::Nft => nft(first, v6, || words.next().inspect(|word| seen.push(word))),
            };
            let possible = if self == Self::Iptables { IPTABLES } else { NFT };
            conditions
                .push(read.ok_or_else(|| NotACondition(seen.join(" "), possible, if v6 { "IPv6" } else { "IPv4" }))?);
        }
        Ok(conditions)
    }
}

fn iptables<'a>(first: &'a str, v6: bool, mut next: impl FnMut() -> Option<&'a str>) -> Option<PacketCondition> {
    let is = first != "!";
    let option = if is { first } else { next()? };
    let value = next()?;
    let about = match option {
        "-s" | "--src" | "--source" => About::Source(network(value, v6)?),
        "-d" | "--dst" | "--destination" => About::Destination(network(value, v6)?),
        "-i" | "--in-interface" => About::Input(link(value, '+')?),
        _ => return None,
    };
    Some(PacketCondition { is, about })
}

fn nft<'a>(first: &'a str, v6: bool, mut next: impl FnMut() -> Option<&'a str>) -> Option<PacketCondition> {
    let part = match first {
        "ip" if !v6 => next()?,
        "ip6" if v6 => next()?,
        "meta" => Some(next()?).filter(|part| *part == "iifname")?,
        "iifname" => first,
        _ => return None,
    };
    let mut value = next()?;
    let is = value != "!=";
    if !is || value == "==" {
        value = next()?;
    }
    let about = match part {
        "saddr" => About::Source(network(value, v6)?),
        "daddr" => About::Destination(network(value, v6)?),
        "iifname" if matches!(first, "meta" | "iifname") => About::Input(link(value.trim_matches('"'), '*')?),
        _ => return None,
    };
    Some(PacketCondition { is, about })
}

fn network(text: &str, v6: bool) -> Option<IpNet> {
    let network = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))?.trunc();
    // Every packet matches a prefix of length 0. iptables doesn't show such a condition, so CHECK would report it as
    // missing.
    (matches!(network, IpNet::V6(_)) == v6 && network.prefix_len() > 0).then_some(network)
}

fn link(text: &str, any: char) -> Option<String> {
    let (name, end) = text.strip_suffix(any).map_or((text, ""), |name| (name, "*"));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = (1..=15).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with('-');
    fits.then(|| format!("{name}{end}"))
}

impl PacketCondition {
    /// Returns the condition for nftables.
    pub(crate) fn expressions(&self) -> Vec<Expression> {
        match &self.about {
            About::Source(network) => rule::address(Side::Source, self.is, *network),
            About::Destination(network) => rule::address(Side::Destination, self.is, *network),
            About::Input(name) => rule::input_interface_like(self.is, name).to_vec(),
        }
    }
}

impl fmt::Display for PacketCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = if self.is { "" } else { "! " };
        match &self.about {
            About::Source(network) => write!(f, "{not}-s {network}"),
            About::Destination(network) => write!(f, "{not}-d {network}"),
            About::Input(name) => write!(f, "{not}-i {}", name.replace('*', "+")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str], v6: bool) -> Result<String, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let syntax = Syntax::of(&words).unwrap();
        let conditions = syntax.read(&words, v6).map_err(|error| error.to_string())?;
        Ok(conditions.iter().map(PacketCondition::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn both_languages_have_one_meaning() {
        for (iptables, nft, v6, meaning) in [
            (&["!", "-d", "192.0.2.7/24"][..], &["ip", "daddr", "!=", "192.0.2.0/24"][..], false, "! -d 192.0.2.0/24"),
            (&["-s", "10.0.0.1"], &["ip saddr 10.0.0.1"], false, "-s 10.0.0.1/32"),
            (&["--source", "fd00::/8"], &["ip6", "saddr", "==", "fd00::/8"], true, "-s fd00::/8"),
            (
                &["!", "-i", "eth+", "-s", "10.0.0.0/8"],
                &["iifname != \"eth*\" ip saddr 10.0.0.0/8"],
                false,
                "! -i eth+ -s 10.0.0.0/8",
            ),
        ] {
            assert_eq!(read(iptables, v6).as_deref(), Ok(meaning));
            assert_eq!(read(nft, v6).as_deref(), Ok(meaning));
        }
    }

    #[test]
    fn nothing_else_is_a_condition() {
        for (words, v6) in [
            (&["-j", "ACCEPT"][..], false),
            (&["-s"], false),
            (&["!"], false),
            (&["-s", "10.0.0.0/8", "-j", "DNAT"], false),
            (&["-s", "fd00::/8"], false),
            (&["-s", "10.0.0.0/8"], true),
            (&["-s", "0.0.0.0/0"], false),
            (&["-i", "-x"], false),
            (&["-i", "a/b"], false),
            (&["-i", "sixteen-letters-"], false),
            (&["-m", "mark", "--mark", "1"], false),
            (&["-M", "/tmp/x"], false),
            (&["accept"], false),
            (&["ip", "saddr", "10.0.0.1", "accept"], false),
            (&["ip", "saddr", "@set"], false),
            (&["ip", "saddr", "10.0.0.1;", "flush", "ruleset"], false),
            (&["ip6", "saddr", "fd00::1"], false),
            (&["meta", "mark", "1"], false),
            (&["ip", "iifname", "lo"], false),
        ] {
            assert!(read(words, v6).unwrap_err().contains("is no condition"), "{words:?}");
        }
    }
}
