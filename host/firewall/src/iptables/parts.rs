//! The parts of an iptables rule: read from a line of `iptables-save`, and written as such a line.
//!
//! Only the parts that rules of the plugins have are here. A line with any other part is not understood, and a rule with
//! it can neither be written nor read without the program.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::saved::{quoted, words};

/// `IPPROTO_TCP`, `IPPROTO_UDP`, `IPPROTO_SCTP` (in.h), with the names that iptables prints.
pub(super) const PROTOCOLS: [(u8, &str); 3] = [(6, "tcp"), (17, "udp"), (132, "sctp")];

/// The connection states that can be matched, in the order in which iptables prints them, with their bits
/// (linux/netfilter/xt_conntrack.h).
const STATES: [(u16, &str); 4] = [(1, "INVALID"), (8, "NEW"), (4, "RELATED"), (2, "ESTABLISHED")];

/// A part that can be inverted: false for `!`.
pub(super) type Is<T> = (bool, T);

/// A rule of one chain.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Parts {
    pub(super) source: Option<Is<IpNet>>,
    pub(super) destination: Option<Is<IpNet>>,
    /// The name of the link, or its beginning and `+`.
    pub(super) input: Option<Is<String>>,
    pub(super) output: Option<Is<String>>,
    pub(super) protocol: Option<Is<u8>>,
    /// In their order.
    pub(super) matches: Vec<Match>,
    pub(super) target: Option<Target>,
}

/// `-m`, with the options of the match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Match {
    Comment(String),
    /// Ports of the rule's protocol.
    Ports {
        protocol: u8,
        source: Option<Is<u16>>,
        destination: Option<Is<u16>>,
    },
    /// `--dports`, at most 15.
    DestinationPorts(Is<Vec<u16>>),
    Mark(Is<(u32, u32)>),
    /// `--src-type LOCAL`, `--dst-type LOCAL`.
    LocalAddress {
        source: Option<bool>,
        destination: Option<bool>,
    },
    /// A mask of [`STATES`].
    State(Is<u16>),
}

/// `-j`, with the options of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Accept,
    Drop,
    Return,
    Jump(String),
    /// Value and mask.
    SetMark(u32, u32),
    /// To an address, and a port or the same one.
    Dnat(IpAddr, Option<u16>),
    Masquerade {
        random_fully: bool,
    },
}

impl Parts {
    /// Reads a line after `-A`: its chain and its parts. `None` if it has a part that is not understood.
    pub(super) fn parse(line: &str) -> Option<(String, Self)> {
        let mut all = words(line).into_iter();
        let chain = all.next()?;
        let mut parts = Self::default();
        let mut is = true;
        while let Some(word) = all.next() {
            if word == "!" && is {
                is = false;
                continue;
            }
            let is = std::mem::replace(&mut is, true);
            let mut next = || all.next();
            match word.as_str() {
                "-s" => once(&mut parts.source, (is, network(&next()?)?))?,
                "-d" => once(&mut parts.destination, (is, network(&next()?)?))?,
                "-i" => once(&mut parts.input, (is, link(next()?)?))?,
                "-o" => once(&mut parts.output, (is, link(next()?)?))?,
                "-p" => once(&mut parts.protocol, (is, protocol(&next()?)?))?,
                "-m" if is => match next()?.as_str() {
                    "comment" => {}
                    name => parts.matches.push(Match::begin(name)?),
                },
                "--comment" if is => parts.matches.push(Match::Comment(next()?)),
                "-j" if is => once(&mut parts.target, Target::begin(next()?))?,
                _ if parts.target.is_some() => parts.target.as_mut()?.option(&word, is, next)?,
                _ => parts.option(&word, is, &next()?)?,
            }
        }
        let is_whole = parts.matches.iter().all(Match::is_whole) && parts.target.as_ref().is_none_or(Target::is_whole);
        (is && is_whole).then_some((chain, parts))
    }

    /// Reads an option of a match, which may not have been named before.
    fn option(&mut self, word: &str, is: bool, value: &str) -> Option<()> {
        let ports = ["--sport", "--dport"].contains(&word);
        if ports && !self.matches.iter().any(|part| matches!(part, Match::Ports { .. })) {
            let (_, protocol) = self.protocol?;
            self.matches.push(Match::Ports { protocol, source: None, destination: None });
        }
        self.matches.iter_mut().rev().find_map(|part| part.option(word, is, value))
    }

    /// Returns the line after `-A` as `iptables-save` prints it.
    pub(super) fn line(&self, chain: &str) -> String {
        let mut line = chain.to_owned();
        let mut say = |is: bool, words: &str| {
            line.push_str(if is { " " } else { " ! " });
            line.push_str(words);
        };
        for (option, part) in [("-s", &self.source), ("-d", &self.destination)] {
            if let Some((is, network)) = part {
                say(*is, &format!("{option} {network}"));
            }
        }
        for (option, part) in [("-i", &self.input), ("-o", &self.output)] {
            if let Some((is, link)) = part {
                say(*is, &format!("{option} {link}"));
            }
        }
        if let Some((is, number)) = self.protocol {
            say(is, &format!("-p {}", protocol_name(number)));
        }
        for part in &self.matches {
            part.print(&mut say);
        }
        if let Some(target) = &self.target {
            say(true, &format!("-j {}", target.words()));
        }
        line
    }
}

impl Match {
    /// Begins a match by its name. Its options follow. A comment begins with its option.
    fn begin(name: &str) -> Option<Self> {
        Some(match name {
            "multiport" => Self::DestinationPorts((true, Vec::new())),
            "mark" => Self::Mark((true, (0, 0))),
            "addrtype" => Self::LocalAddress { source: None, destination: None },
            "conntrack" => Self::State((true, 0)),
            name => Self::Ports { protocol: protocol(name)?, source: None, destination: None },
        })
    }

    /// Takes an option of this match; `None` if it is another's, or not understood.
    fn option(&mut self, word: &str, is: bool, value: &str) -> Option<()> {
        match (word, self) {
            ("--sport", Self::Ports { source, .. }) => once(source, (is, value.parse().ok()?)),
            ("--dport", Self::Ports { destination, .. }) => once(destination, (is, value.parse().ok()?)),
            ("--dports" | "--destination-ports", Self::DestinationPorts(ports)) if ports.1.is_empty() => {
                *ports = (is, value.split(',').map(|port| port.parse().ok()).collect::<Option<Vec<u16>>>()?);
                (ports.1.len() <= 15).then_some(())
            }
            ("--mark", Self::Mark(mark)) => {
                *mark = (is, mask(value)?);
                Some(())
            }
            ("--src-type", Self::LocalAddress { source, .. }) if value == "LOCAL" => once(source, is),
            ("--dst-type", Self::LocalAddress { destination, .. }) if value == "LOCAL" => once(destination, is),
            ("--ctstate", Self::State(state)) if state.1 == 0 => {
                let bit = |name: &str| STATES.iter().find(|(_, state)| *state == name).map(|(bit, _)| *bit);
                let bits = value.split(',').map(bit).collect::<Option<Vec<u16>>>()?;
                *state = (is, bits.into_iter().fold(0, |all, bit| all | bit));
                Some(())
            }
            _ => None,
        }
    }

    /// True if it has the option that it needs.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::DestinationPorts((_, ports)) => !ports.is_empty(),
            Self::State((_, mask)) => *mask != 0,
            Self::LocalAddress { source, destination } => source.is_some() || destination.is_some(),
            Self::Mark((_, mark)) => *mark != (0, 0),
            Self::Comment(_) | Self::Ports { .. } => true,
        }
    }

    fn print(&self, say: &mut impl FnMut(bool, &str)) {
        match self {
            Self::Comment(comment) => say(true, &format!("-m comment --comment {}", shown(comment))),
            Self::Ports { protocol, source, destination } => {
                say(true, &format!("-m {}", protocol_name(*protocol)));
                for (option, part) in [("--sport", source), ("--dport", destination)] {
                    if let Some((is, port)) = part {
                        say(*is, &format!("{option} {port}"));
                    }
                }
            }
            Self::DestinationPorts((is, ports)) => {
                say(true, "-m multiport");
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                say(*is, &format!("--dports {}", ports.join(",")));
            }
            Self::Mark((is, (mark, mask))) => {
                say(true, "-m mark");
                let mask = if *mask == u32::MAX { String::new() } else { format!("/{mask:#x}") };
                say(*is, &format!("--mark {mark:#x}{mask}"));
            }
            Self::LocalAddress { source, destination } => {
                say(true, "-m addrtype");
                for (option, part) in [("--src-type", source), ("--dst-type", destination)] {
                    if let Some(is) = part {
                        say(*is, &format!("{option} LOCAL"));
                    }
                }
            }
            Self::State((is, mask)) => {
                say(true, "-m conntrack");
                let states = STATES.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, name)| *name);
                say(*is, &format!("--ctstate {}", states.collect::<Vec<_>>().join(",")));
            }
        }
    }

    /// True if all its bits are those of a known state.
    pub(super) fn is_known_state(mask: u16) -> bool {
        mask != 0 && STATES.iter().fold(mask, |rest, (bit, _)| rest & !bit) == 0
    }
}

impl Target {
    fn begin(name: String) -> Self {
        match name.as_str() {
            "ACCEPT" => Self::Accept,
            "DROP" => Self::Drop,
            "RETURN" => Self::Return,
            "MASQUERADE" => Self::Masquerade { random_fully: false },
            "MARK" => Self::SetMark(0, 0),
            "DNAT" => Self::Dnat(IpAddr::from([0; 4]), None),
            _ => Self::Jump(name),
        }
    }

    /// True if it has the option that it needs.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::SetMark(mark, mask) => (*mark, *mask) != (0, 0),
            Self::Dnat(address, _) => !address.is_unspecified(),
            Self::Accept | Self::Drop | Self::Return | Self::Jump(_) | Self::Masquerade { .. } => true,
        }
    }

    /// Takes an option of the target.
    fn option(&mut self, word: &str, is: bool, mut next: impl FnMut() -> Option<String>) -> Option<()> {
        *self = match (word, &*self) {
            ("--random-fully", Self::Masquerade { .. }) => Self::Masquerade { random_fully: true },
            ("--set-xmark", Self::SetMark(..)) => {
                let (mark, mask) = mask(&next()?)?;
                Self::SetMark(mark, mask)
            }
            ("--to-destination", Self::Dnat(..)) => {
                let text = next()?;
                let bare = text.parse().ok().map(|address| Self::Dnat(address, None));
                let with_port = |to: SocketAddr| Self::Dnat(to.ip(), Some(to.port()));
                bare.or_else(|| text.parse().ok().map(with_port))?
            }
            _ => return None,
        };
        is.then_some(())
    }

    fn words(&self) -> String {
        match self {
            Self::Accept => "ACCEPT".to_owned(),
            Self::Drop => "DROP".to_owned(),
            Self::Return => "RETURN".to_owned(),
            Self::Jump(chain) => chain.clone(),
            Self::SetMark(mark, mask) => format!("MARK --set-xmark {mark:#x}/{mask:#x}"),
            Self::Dnat(address, None) => format!("DNAT --to-destination {address}"),
            Self::Dnat(address, Some(port)) => format!("DNAT --to-destination {}", SocketAddr::new(*address, *port)),
            Self::Masquerade { random_fully: false } => "MASQUERADE".to_owned(),
            Self::Masquerade { random_fully: true } => "MASQUERADE --random-fully".to_owned(),
        }
    }
}

/// Sets a part that a rule can have once.
fn once<T>(part: &mut Option<T>, value: T) -> Option<()> {
    part.is_none().then(|| *part = Some(value))
}

/// Reads a network as iptables does: host bits are dropped.
fn network(text: &str) -> Option<IpNet> {
    let network: IpNet = text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))?;
    Some(network.trunc())
}

/// Checks the name of a link (`IFNAMSIZ`).
fn link(name: String) -> Option<String> {
    ((1..16).contains(&name.len()) && name != "+").then_some(name)
}

fn protocol(text: &str) -> Option<u8> {
    PROTOCOLS.iter().find(|(number, name)| *name == text || number.to_string() == text).map(|(number, _)| *number)
}

fn protocol_name(number: u8) -> &'static str {
    PROTOCOLS.iter().find(|(known, _)| *known == number).map_or("", |(_, name)| name)
}

/// Reads `VALUE/MASK`, or a value with all bits.
fn mask(text: &str) -> Option<(u32, u32)> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, u32::MAX)),
    }
}

/// Returns a text as `iptables-save` prints it: bare if it has only letters, digits, `_` and `-`.
fn shown(text: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !text.is_empty() && text.bytes().all(is_bare) {
        return text.to_owned();
    }
    quoted(text).replace('\'', "\\'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_printed() {
        for (line, printed) in [
            ("C -s 10.1.0.2 -j D", "C -s 10.1.0.2/32 -j D"),
            ("C -d 10.1.2.3/16 -j ACCEPT", "C -d 10.1.0.0/16 -j ACCEPT"),
            ("C -p tcp --dport 80", "C -p tcp -m tcp --dport 80"),
            ("C -p 17 -m multiport --destination-ports 1,2", "C -p udp -m multiport --dports 1,2"),
            ("C -m comment --comment x ! -i br+ -j DROP", "C ! -i br+ -m comment --comment x -j DROP"),
            ("C -m mark --mark 8192/0x2000", "C -m mark --mark 0x2000/0x2000"),
            ("C -m comment --comment \"it's \\\"a\\\\\"", "C -m comment --comment \"it\\'s \\\"a\\\\\""),
            ("C -j DNAT --to-destination [fd00::2]:80", "C -j DNAT --to-destination [fd00::2]:80"),
        ] {
            let (chain, parts) = Parts::parse(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(parts.line(&chain), printed);
            assert_eq!(Parts::parse(printed), Some((chain, parts)), "{printed}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in [
            "",
            "C -m limit --limit 1/sec -j ACCEPT",
            "C -p icmp -j ACCEPT",
            "C --dport 80",
            "C -m multiport -j D",
            "C -p tcp -m multiport --dports 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16 -j D",
            "C -m multiport --dports 1:2 -j D",
            "C -m conntrack --ctstate NEW,DNAT -j ACCEPT",
            "C -m addrtype --dst-type BROADCAST -j D",
            "C -j MASQUERADE --to-ports 1-2",
            "C -j MARK --set-mark 1",
            "C -j DNAT --to-destination 10.1.0.2-10.1.0.3",
            "C -j DNAT",
            "C -g D",
            "C -s 10.1.0.2 -s 10.1.0.3",
            "C -i a-name-of-too-many-bytes -j D",
            "C !",
            "C -j D --x",
        ] {
            assert_eq!(Parts::parse(line), None, "{line}");
        }
    }
}
