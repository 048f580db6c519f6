//! The text that `iptables-save` prints and `iptables-restore` reads.

use super::prelude::*;
use super::rule::STATES;
use postern_types::Transport;
use std::fmt;
use std::net::SocketAddr;

/// A rule of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedRule {
    pub(crate) rule: IptablesRule,
    /// The line that a program printed, without the leading `-A`: the most exact way to delete the rule. Empty if no
    /// program printed the rule.
    printed: String,
    /// The rule's handle in nf_tables; 0 if a program printed the rule.
    pub(crate) handle: u64,
}

/// The rules and chains of a table, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct SavedTable {
    pub(crate) chains: Vec<String>,
    pub(crate) rules: Vec<SavedRule>,
}

impl SavedRule {
    pub(super) fn of_kernel(rule: IptablesRule, handle: u64) -> Self {
        Self { rule, printed: String::new(), handle }
    }

    /// Returns the rule as `iptables-save` prints it, without the leading `-A`.
    pub(super) fn line(&self) -> String {
        if self.printed.is_empty() { self.rule.line() } else { self.printed.clone() }
    }
}

impl SavedTable {
    pub(crate) fn parse(text: &str) -> Self {
        let mut table = Self::default();
        for line in text.lines() {
            if let Some(chain) = line.strip_prefix(':') {
                table.chains.extend(chain.split_whitespace().next().map(str::to_owned));
            } else if let Some(line) = line.strip_prefix("-A ") {
                table.rules.push(SavedRule { rule: IptablesRule::parse(line), printed: line.to_owned(), handle: 0 });
            }
        }
        table
    }

    pub(super) fn has(&self, wanted: &IptablesRule) -> bool {
        self.rules.iter().any(|saved| saved.rule == *wanted)
    }
}

/// A line of input for `iptables-restore`.
impl fmt::Display for TableChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewChain(chain) => write!(f, "-N {chain}"),
            Self::Add { rule, first: true } => write!(f, "-I {}", rule.line()),
            Self::Add { rule, first: false } => write!(f, "-A {}", rule.line()),
            Self::Delete(saved) => write!(f, "-D {}", saved.line()),
            Self::Flush(chain) => write!(f, "-F {chain}"),
            Self::DeleteChain(chain) => write!(f, "-X {chain}"),
        }
    }
}

impl IptablesRule {
    /// Reads the line after `-A` that `iptables-save` has printed.
    pub(crate) fn parse(line: &str) -> Self {
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (chain, mut rest) = words.split_first().unwrap_or((&"", &[]));
        let mut rule = Self { chain: (*chain).to_owned(), ..Self::default() };
        while !rest.is_empty() {
            let (is, option) = if let ["!", option @ ..] = rest { (false, option) } else { (true, rest) };
            let (read, length) = match option {
                ["-s", value, ..] => (network(value).and_then(|of| once(&mut rule.source, (is, of))), 2),
                ["-d", value, ..] => (network(value).and_then(|of| once(&mut rule.destination, (is, of))), 2),
                ["-i", value, ..] => (once(&mut rule.input, (is, (*value).to_owned())), 2),
                ["-o", value, ..] => (once(&mut rule.output, (is, (*value).to_owned())), 2),
                ["-p", value, ..] => (Transport::parse(value).and_then(|of| once(&mut rule.protocol, (is, of))), 2),
                ["-m", "comment", "--comment", text, ..] if is => {
                    rule.matches.push(Match::Comment((*text).to_owned()));
                    (Some(()), 4)
                }
                ["-m", name, options @ ..] if is => {
                    // The options of the match end at the next match, or at the target.
                    let end = options.iter().position(|word| ["-m", "-j", "-g"].contains(word));
                    let options = options.get(..end.unwrap_or(options.len())).unwrap_or_default();
                    (Match::parse(name, options).map(|part| rule.matches.push(part)), 2 + options.len())
                }
                ["-j" | "-g", ..] if is => {
                    rule.target = Some(Target::parse(option));
                    (Some(()), option.len())
                }
                _ => (None, 1),
            };
            let (words, after) = rest.split_at_checked(length + usize::from(!is)).unwrap_or((rest, &[]));
            if read.is_none() {
                rule.matches.push(Match::Other(owned(words)));
            }
            rest = after;
        }
        rule
    }

    /// Returns the line after `-A` as `iptables-save` prints it.
    pub(crate) fn line(&self) -> String {
        let mut line = self.chain.clone();
        let mut say = |is: bool, words: &str| {
            line.push_str(if is { " " } else { " ! " });
            line.push_str(words);
        };
        for (option, part) in [("-s", &self.source), ("-d", &self.destination)] {
            part.iter().for_each(|(is, network)| say(*is, &format!("{option} {network}")));
        }
        for (option, part) in [("-i", &self.input), ("-o", &self.output)] {
            part.iter().for_each(|(is, link)| say(*is, &format!("{option} {link}")));
        }
        self.protocol.iter().for_each(|(is, protocol)| say(*is, &format!("-p {}", protocol.name())));
        self.matches.iter().for_each(|part| part.print(&mut say));
        self.target.iter().for_each(|target| say(true, &target.words()));
        line
    }
}

impl Match {
    /// Reads a match. `None` if the match has an option that is not understood.
    fn parse(name: &str, words: &[&str]) -> Option<Self> {
        let options = options(words)?;
        Some(match (name, options.as_slice()) {
            ("multiport", [("--dports", (is, ports))]) => {
                let ports = ports.split(',').map(|port| port.parse().ok()).collect::<Option<Vec<u16>>>()?;
                Self::DestinationPorts((*is, ports))
            }
            ("mark", [("--mark", (is, value))]) => Self::Mark((*is, mask(value)?)),
            ("conntrack", [("--ctstate", (is, names))]) => {
                let bit = |name| STATES.iter().find(|(_, state)| *state == name).map(|(bit, _)| *bit);
                Self::State((*is, names.split(',').try_fold(0, |mask, name| Some(mask | bit(name)?))?))
            }
            ("addrtype", options @ [_, ..]) => {
                let is_local = |(is, kind): Is<&str>| (kind == "LOCAL").then_some(is);
                let [source, destination] = two(options, ["--src-type", "--dst-type"], is_local)?;
                Self::LocalAddress { source, destination }
            }
            (name, options) => {
                let port = |(is, port): Is<&str>| Some((is, port.parse().ok()?));
                let [source, destination] = two(options, ["--sport", "--dport"], port)?;
                Self::Ports { protocol: Transport::parse(name)?, source, destination }
            }
        })
    }

    fn print(&self, say: &mut impl FnMut(bool, &str)) {
        match self {
            Self::Comment(comment) => say(true, &format!("-m comment --comment {}", shown(comment))),
            Self::Ports { protocol, source, destination } => {
                say(true, &format!("-m {}", protocol.name()));
                for (option, part) in [("--sport", source), ("--dport", destination)] {
                    part.iter().for_each(|(is, port)| say(*is, &format!("{option} {port}")));
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
                    part.iter().for_each(|is| say(*is, &format!("{option} LOCAL")));
                }
            }
            Self::State((is, mask)) => {
                say(true, "-m conntrack");
                let states = STATES.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, name)| *name);
                say(*is, &format!("--ctstate {}", states.collect::<Vec<_>>().join(",")));
            }
            Self::Other(words) => say(true, &joined(words)),
        }
    }
}

impl Target {
    /// Reads the words from `-j` or `-g` to the line's end.
    fn parse(words: &[&str]) -> Self {
        let read = match words {
            ["-j", "ACCEPT"] => Some(Self::Accept),
            ["-j", "DROP"] => Some(Self::Drop),
            ["-j", "RETURN"] => Some(Self::Return),
            ["-j", "MASQUERADE"] => Some(Self::Masquerade { random_fully: false }),
            ["-j", "MASQUERADE", "--random-fully"] => Some(Self::Masquerade { random_fully: true }),
            ["-j", "MARK", "--set-xmark", value] => mask(value).map(|(mark, mask)| Self::SetMark(mark, mask)),
            ["-j", "DNAT", "--to-destination", to] => {
                let with_port = |to: SocketAddr| Self::Dnat(to.ip(), Some(to.port()));
                to.parse().map(|to| Self::Dnat(to, None)).or_else(|_| to.parse().map(with_port)).ok()
            }
            ["-j", chain] => Some(Self::jump(chain)),
            _ => None,
        };
        read.unwrap_or_else(|| Self::Other(owned(words)))
    }

    fn words(&self) -> String {
        match self {
            Self::Accept => "-j ACCEPT".to_owned(),
            Self::Drop => "-j DROP".to_owned(),
            Self::Return => "-j RETURN".to_owned(),
            Self::Jump(chain) => format!("-j {chain}"),
            Self::SetMark(mark, mask) => format!("-j MARK --set-xmark {mark:#x}/{mask:#x}"),
            Self::Dnat(address, None) => format!("-j DNAT --to-destination {address}"),
            Self::Dnat(address, Some(port)) => format!("-j DNAT --to-destination {}", SocketAddr::new(*address, *port)),
            Self::Masquerade { random_fully: false } => "-j MASQUERADE".to_owned(),
            Self::Masquerade { random_fully: true } => "-j MASQUERADE --random-fully".to_owned(),
            Self::Other(words) => joined(words),
        }
    }
}

/// An option of a match: its name and its value.
type MatchOption<'a> = (&'a str, Is<&'a str>);

/// Splits the words of a match into its options. `None` if an option does not have exactly one value.
fn options<'a>(mut words: &[&'a str]) -> Option<Vec<MatchOption<'a>>> {
    let mut options = Vec::new();
    while !words.is_empty() {
        let (option, rest) = match words {
            ["!", name, value, rest @ ..] => ((*name, (false, *value)), rest),
            [name, value, rest @ ..] => ((*name, (true, *value)), rest),
            _ => return None,
        };
        options.push(option);
        words = rest;
    }
    Some(options)
}

/// Reads the values of two options. `None` if a value can't be read, or if there is another option.
fn two<T>(
    options: &[MatchOption<'_>],
    names: [&str; 2],
    read: impl Fn(Is<&str>) -> Option<T>,
) -> Option<[Option<T>; 2]> {
    let read = names.map(|name| options.iter().find(|(option, _)| *option == name).and_then(|(_, value)| read(*value)));
    (read.iter().flatten().count() == options.len()).then_some(read)
}

/// Sets a part that a rule can have once.
pub(super) fn once<T>(part: &mut Option<T>, value: T) -> Option<()> {
    part.is_none().then(|| *part = Some(value))
}

fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Reads `VALUE/MASK`, or a value with all bits.
fn mask(text: &str) -> Option<(u32, u32)> {
    let number = |text: &str| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
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
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\'', "\\'"))
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns words as one text, from which `iptables-restore` reads the same words.
fn joined(words: &[String]) -> String {
    let is_plain = |word: &str| !word.is_empty() && !word.contains([' ', '\t', '"', '\\']);
    let words = words.iter().map(|word| if is_plain(word) { word.clone() } else { shown(word) });
    words.collect::<Vec<_>>().join(" ")
}

/// Splits a line as iptables-restore does: blanks separate, double quotes join, a backslash in quotes escapes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut in_quotes = false;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                in_quotes = !in_quotes;
                word.get_or_insert_default();
            }
            '\\' if in_quotes => word.get_or_insert_default().extend(characters.next()),
            ' ' | '\t' if !in_quotes => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = r#"# Generated by iptables-save v1.8.9 (nf_tables)
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:CNI-a631aa8e1549a3b129110fd2 - [0:0]
-A POSTROUTING -s 10.1.0.3/32 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j CNI-a631aa8e1549a3b129110fd2
-A POSTROUTING -s 10.1.0.3/32 -p icmp -m icmp --icmp-type 8 -m comment --comment -j -j CNI-a631aa8e1549a3b129110fd2
-A CNI-a631aa8e1549a3b129110fd2 ! -d 224.0.0.0/4 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j MASQUERADE
COMMIT
"#;

    #[test]
    fn reads_what_iptables_prints() {
        let table = SavedTable::parse(SAVED);
        let chain = "CNI-a631aa8e1549a3b129110fd2";
        assert_eq!(table.chains, ["PREROUTING", "POSTROUTING", chain]);
        let comment = r#"name: "mynet" id: "cid1""#;
        let source = Some((true, "10.1.0.3/32".parse().unwrap()));
        let destination = Some((false, "224.0.0.0/4".parse().unwrap()));
        let jump = IptablesRule { source, ..IptablesRule::new("POSTROUTING", Target::jump(chain)) };
        let masquerade =
            IptablesRule { destination, ..IptablesRule::new(chain, Target::Masquerade { random_fully: false }) };
        let [first, foreign, last] = table.rules.as_slice() else { panic!("{table:?}") };
        assert_eq!((&first.rule, &last.rule), (&jump.commented(comment), &masquerade.commented(comment)));
        // A foreign rule of another form still shows that it refers to the chain.
        assert_eq!((foreign.rule.target_chain(), foreign.rule.comment()), (Some(chain), Some("-j")));
        let parts = ["-p icmp", "-m icmp --icmp-type 8"]
            .map(|words| Match::Other(words.split(' ').map(str::to_owned).collect()));
        assert!(foreign.rule.matches.starts_with(&parts), "{foreign:?}");
        let lines: Vec<String> = table.rules.iter().map(|saved| format!("-A {}", saved.rule.line())).collect();
        assert_eq!(lines, SAVED.lines().filter(|line| line.starts_with("-A")).collect::<Vec<_>>());
    }

    #[test]
    fn lines_are_read_and_printed() {
        for (line, printed) in [
            ("C -s 10.1.0.2 -j D", "C -s 10.1.0.2/32 -j D"),
            ("C ! -s 10.1.0.0/16 -j ACCEPT", "C ! -s 10.1.0.0/16 -j ACCEPT"),
            ("C -m comment --comment x ! -i br+ -j DROP", "C ! -i br+ -m comment --comment x -j DROP"),
            ("C -m mark ! --mark 0x2000/0x2000", "C -m mark ! --mark 0x2000/0x2000"),
            ("C -m comment --comment \"it's \\\"a\\\\\"", "C -m comment --comment \"it\\'s \\\"a\\\\\""),
            ("C -j DNAT --to-destination [fd00::2]:80", "C -j DNAT --to-destination [fd00::2]:80"),
            ("C -m string --string \"a b\" -g D", "C -m string --string \"a b\" -g D"),
        ] {
            let rule = IptablesRule::parse(line);
            assert_eq!(rule.line(), printed);
            assert_eq!(IptablesRule::parse(printed), rule, "{printed}");
        }
    }

    #[test]
    fn a_comment_counts_wherever_it_stands() {
        let [one, other] =
            ["C -m comment --comment x -m mark --mark 0x1", "C -m mark --mark 0x1 -m comment --comment x"];
        assert_eq!(IptablesRule::parse(one), IptablesRule::parse(other));
        assert_ne!(IptablesRule::parse(one), IptablesRule::parse("C -m mark --mark 0x1"));
    }

    /// A part that is not understood is never equal to another part, and is never written over netlink.
    #[test]
    fn what_is_not_understood_is_left_to_the_program() {
        for line in [
            "C -m limit --limit 1/sec -j ACCEPT",
            "C -p icmp -j ACCEPT",
            "C --dport 80",
            "C -m multiport -j D",
            "C -p tcp -m multiport --dports 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16 -j D",
            "C -m multiport --dports 1:2 -j D",
            "C -m conntrack --ctstate NEW,DNAT -j ACCEPT",
            "C -m addrtype -j D",
            "C -m addrtype --dst-type BROADCAST -j D",
            "C -m addrtype --dst-type LOCAL --dst-type LOCAL -j D",
            "C -j MASQUERADE --to-ports 1-2",
            "C -j MARK --set-mark 1",
            "C -j DNAT --to-destination 10.1.0.2-10.1.0.3",
            "C -g D",
            "C -s 10.1.0.2/32 -s 10.1.0.3/32",
            "C -s 10.1.0.2/255.0.255.0",
            "C -i a-name-of-too-many-bytes -j D",
            "C !",
            "C -j D --x",
        ] {
            assert_eq!(IptablesRule::parse(line).write(false), None, "{line}");
            assert_eq!(IptablesRule::parse(line).line(), line);
        }
    }

    #[test]
    fn dnat_addresses() {
        for (to, address) in [
            ("10.1.0.2", "10.1.0.2"),
            ("10.1.0.2:80", "10.1.0.2"),
            ("10.1.0.2:80-90 --random", "10.1.0.2"),
            ("fd00::2", "fd00::2"),
            ("[fd00::2]:80", "fd00::2"),
            ("[fd00::2]:80-90", "fd00::2"),
        ] {
            let rule = IptablesRule::parse(&format!("C -p tcp -j DNAT --to-destination {to}"));
            assert_eq!(rule.dnat_address(), Some(address.parse().unwrap()), "{to}");
        }
        assert_eq!(IptablesRule::parse("C -j D").dnat_address(), None);
    }
}
