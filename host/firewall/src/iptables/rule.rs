//! A rule of iptables as data. Code that makes rules uses this form. `text` and `forms` have the two written forms.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use ipnet::IpNet;

use postern_types::Transport;

/// The connection states that can be matched, in the order in which iptables prints them, with their bits
/// (linux/netfilter/xt_conntrack.h).
pub(super) const STATES: [(u16, &str); 4] = [(1, "INVALID"), (8, "NEW"), (4, "RELATED"), (2, "ESTABLISHED")];

/// `RELATED,ESTABLISHED`.
pub(super) const ANSWERS: u16 = 4 | 2;

/// A part that can be inverted: false for `!`.
pub(crate) type Is<T> = (bool, T);

/// A rule of one chain. The position of comments does not matter when rules are compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct IptablesRule {
    pub(crate) chain: String,
    pub(crate) source: Option<Is<IpNet>>,
    pub(crate) destination: Option<Is<IpNet>>,
    /// The name of the link, or its beginning and `+`.
    pub(crate) input: Option<Is<String>>,
    pub(crate) output: Option<Is<String>>,
    pub(crate) protocol: Option<Is<Transport>>,
    /// The matches, in their order.
    pub(crate) matches: Vec<Match>,
    pub(crate) target: Option<Target>,
}

/// `-m`, with the options of the match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Match {
    Comment(String),
    /// Ports of the rule's protocol.
    Ports {
        protocol: Transport,
        source: Option<Is<u16>>,
        destination: Option<Is<u16>>,
    },
    /// `--dports`, at most 15.
    DestinationPorts(Is<Vec<u16>>),
    /// Value and mask.
    Mark(Is<(u32, u32)>),
    /// `--src-type LOCAL`, `--dst-type LOCAL`.
    LocalAddress {
        source: Option<bool>,
        destination: Option<bool>,
    },
    /// A mask of [`STATES`].
    State(Is<u16>),
    /// Words of any other part. Only programs of iptables can read and write this part.
    Other(Vec<String>),
}

/// `-j`, with the options of the target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    Accept,
    Drop,
    Return,
    Jump(String),
    /// Value and mask.
    SetMark(u32, u32),
    /// To an address and a port; without a port, the packet's port stays.
    Dnat(IpAddr, Option<u16>),
    Masquerade {
        random_fully: bool,
    },
    /// Words of any other target: `-j` or `-g`, its name, its options.
    Other(Vec<String>),
}

impl IptablesRule {
    pub(crate) fn new(chain: &str, target: Target) -> Self {
        Self { chain: chain.to_owned(), target: Some(target), ..Self::default() }
    }

    /// Returns this rule with a comment. The comment is the first match, as in the native plugins' rules.
    pub(crate) fn commented(mut self, comment: &str) -> Self {
        self.matches.insert(0, Match::Comment(comment.to_owned()));
        self
    }

    pub(crate) fn comment(&self) -> Option<&str> {
        self.matches.iter().find_map(|part| if let Match::Comment(text) = part { Some(text.as_str()) } else { None })
    }

    /// True if the rule has a match that is not understood.
    pub(super) fn is_foreign(&self) -> bool {
        self.matches.iter().any(|part| matches!(part, Match::Other(_)))
    }

    /// Returns the network that the source must be in.
    pub(crate) fn source_network(&self) -> Option<IpNet> {
        self.source.filter(|(is, _)| *is).map(|(_, network)| network)
    }

    /// Returns the name of the chain that the rule leads to.
    pub(crate) fn target_chain(&self) -> Option<&str> {
        match self.target.as_ref()? {
            Target::Jump(chain) => Some(chain),
            Target::Other(words) => words.get(1).map(String::as_str),
            _ => None,
        }
    }

    /// Returns the address that the rule sends packets to.
    pub(crate) fn dnat_address(&self) -> Option<IpAddr> {
        match self.target.as_ref()? {
            Target::Dnat(address, _) => Some(*address),
            // The address can have a range of ports: `10.1.0.2:80-90`, `[fd00::2]:80-90`.
            Target::Other(words) => {
                let to = words.iter().skip_while(|word| *word != "--to-destination").nth(1)?;
                let address = to.rsplit_once(':').map_or(to.as_str(), |(address, _)| address);
                to.parse().or_else(|_| address.trim_matches(['[', ']']).parse()).ok()
            }
            _ => None,
        }
    }

    /// Returns the parts that count when rules are compared.
    fn content(&self) -> impl PartialEq + Hash {
        let Self { chain, source, destination, input, output, protocol, matches, target } = self;
        let matches: Vec<&Match> = matches.iter().filter(|part| !matches!(part, Match::Comment(_))).collect();
        ((chain, self.comment(), source, destination), (input, output, protocol), matches, target)
    }
}

impl PartialEq for IptablesRule {
    fn eq(&self, other: &Self) -> bool {
        self.content() == other.content()
    }
}

impl Eq for IptablesRule {}

impl Hash for IptablesRule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.content().hash(state);
    }
}

impl Target {
    pub(crate) fn jump(chain: &str) -> Self {
        Self::Jump(chain.to_owned())
    }
}
