//! An iptables rule as expressions of nf_tables.
//!
//! Rules are written in the form of iptables 1.8.7, which every later version lists, finds and deletes. Rules are read
//! in the forms of 1.8.7, 1.8.9 and 1.8.11. These forms differ: the same part of a rule is an expression in one form,
//! and a match of iptables in another form.

use super::prelude::*;
use super::xt::Extension;
use crate::nft::rule::{Expression, NETWORK_HEADER, NF_ACCEPT, NF_DROP, Side, TRANSPORT_HEADER, address, target};
use crate::octets;
use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{Expressions, MetaKey, RuleAttribute, Verdict};
use postern_netlink::Attributes;
use postern_types::Transport;

/// `NFTA_RULE_COMPAT_PROTO`, `_FLAGS`, and `NFT_RULE_COMPAT_F_INV`.
const COMPAT_PROTOCOL: u16 = 1;
const COMPAT_FLAGS: u16 = 2;
const COMPAT_INVERTED: u32 = 2;

impl IptablesRule {
    /// Returns the attributes of the rule, without its table and chain. `None` if a part has no form in iptables 1.8.7.
    pub(super) fn write(&self, v6: bool) -> Option<Vec<RuleAttribute>> {
        let mut elements = Vec::new();
        let mut compare = |parts: &[Expression]| elements.extend(parts.iter().map(Expression::write));
        for (key, part) in [(MetaKey::Iifname, &self.input), (MetaKey::Oifname, &self.output)] {
            if let Some((equal, name)) = part {
                let value = match checked(name)?.strip_suffix('+') {
                    Some(beginning) => beginning.as_bytes().to_vec(),
                    None => [name.as_bytes(), &[0]].concat(),
                };
                compare(&[Expression::Meta(key), Expression::Compare { equal: *equal, value }]);
            }
        }
        if let Some((equal, protocol)) = self.protocol {
            let value = vec![protocol.number()];
            compare(&[Expression::Meta(MetaKey::L4Proto), Expression::Compare { equal, value }]);
        }
        for (side, part) in [(Side::Source, &self.source), (Side::Destination, &self.destination)] {
            if let Some((equal, network)) = part {
                compare(&address(side, *equal, Some(*network).filter(|network| network.addr().is_ipv6() == v6)?));
            }
        }
        for part in &self.matches {
            elements.push(part.write()?.element("match"));
        }
        elements.push(Expressions::Other { expression_type: "counter".to_owned(), attributes: Vec::new() }.into());
        let verdict = |verdict, chain: Option<&String>| Expression::Verdict { verdict, chain: chain.cloned() }.write();
        elements.extend(match &self.target {
            None => None,
            Some(Target::Accept) => Some(verdict(Verdict::Other(NF_ACCEPT), None)),
            Some(Target::Drop) => Some(verdict(Verdict::Other(NF_DROP), None)),
            Some(Target::Return) => Some(verdict(Verdict::Return, None)),
            Some(Target::Jump(chain)) => Some(verdict(Verdict::Jump, Some(chain))),
            Some(target) => Some(target.write(v6)?.element("target")),
        });
        let mut attributes = vec![RuleAttribute::Expressions(elements)];
        if let Some((is, protocol)) = self.protocol {
            let number = |kind, value: u32| DefaultNla::new(kind, value.to_be_bytes().to_vec());
            let flags = if is { 0 } else { COMPAT_INVERTED };
            attributes.push(RuleAttribute::Compat(vec![
                number(COMPAT_PROTOCOL, u32::from(protocol.number())),
                number(COMPAT_FLAGS, flags),
            ]));
        }
        Some(attributes)
    }

    /// Reads the expressions of a chain's rule (`NFTA_RULE_EXPRESSIONS`). For a foreign rule, only its target is read.
    pub(super) fn read(chain: &str, expressions: Attributes<'_>, v6: bool) -> Self {
        let rule = Self::understood(expressions, v6).unwrap_or_else(|| Self {
            matches: vec![Match::Other(vec!["?".to_owned()])],
            target: target(expressions).map(Target::Jump),
            ..Self::default()
        });
        Self { chain: chain.to_owned(), ..rule }
    }

    /// Reads expressions; `None` if an expression is not understood.
    fn understood(expressions: Attributes<'_>, v6: bool) -> Option<Self> {
        let mut reader = Reader { rule: Self::default(), v6 };
        let mut loaded: Option<(Expression, Option<Vec<u8>>)> = None;
        for element in expressions.iter() {
            let parts = element.nested();
            let extension = || Extension::read(parts.first(2)?.nested());
            match (parts.first(1)?.value, Expression::read(&element)) {
                (b"counter\0", _) => {}
                (b"match\0", _) => reader.rule.matches.push(Match::read(&extension()?)?),
                (b"target\0", _) => reader.target(Target::read(&extension()?, v6)?)?,
                (_, Expression::Mask(mask)) => match &mut loaded {
                    Some((_, masked @ None)) => *masked = Some(mask),
                    _ => return None,
                },
                (_, Expression::Compare { equal, value }) => {
                    let (from, mask) = loaded.take()?;
                    reader.compare(from, mask, (equal, value))?;
                }
                (_, load @ (Expression::Meta(_) | Expression::Payload { .. })) if loaded.is_none() => {
                    loaded = Some((load, None));
                }
                (_, Expression::Verdict { verdict, chain }) => reader.target(match (verdict, chain) {
                    (Verdict::Jump, Some(chain)) => Target::Jump(chain),
                    (Verdict::Return, None) => Target::Return,
                    (Verdict::Other(NF_ACCEPT), None) => Target::Accept,
                    (Verdict::Other(NF_DROP), None) => Target::Drop,
                    _ => return None,
                })?,
                _ => return None,
            }
        }
        loaded.is_none().then_some(reader.rule)
    }
}

/// The parts of a rule that have been read.
struct Reader {
    rule: IptablesRule,
    v6: bool,
}

impl Reader {
    fn target(&mut self, target: Target) -> Option<()> {
        self.rule.target.is_none().then(|| self.rule.target = Some(target))
    }

    /// Takes one comparison: the loaded part of the packet, its mask, and the value.
    fn compare(&mut self, from: Expression, mask: Option<Vec<u8>>, (is, value): Is<Vec<u8>>) -> Option<()> {
        let rule = &mut self.rule;
        match from {
            Expression::Meta(MetaKey::Iifname) if mask.is_none() => once(&mut rule.input, (is, link(&value)?)),
            Expression::Meta(MetaKey::Oifname) if mask.is_none() => once(&mut rule.output, (is, link(&value)?)),
            Expression::Meta(MetaKey::L4Proto) if mask.is_none() => once(&mut rule.protocol, (is, protocol(&value)?)),
            Expression::Meta(MetaKey::Mark) => {
                let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_ne_bytes);
                let mask = mask.map_or(Some(u32::MAX), |mask| number(&mask))?;
                rule.matches.push(Match::Mark((is, (number(&value)?, mask))));
                Some(())
            }
            Expression::Payload { base: NETWORK_HEADER, offset, length } => match (offset, length, self.v6) {
                (9, 1, false) | (6, 1, true) if mask.is_none() => once(&mut rule.protocol, (is, protocol(&value)?)),
                (12, _, false) | (8, _, true) => once(&mut rule.source, (is, network(length, mask, &value, self.v6)?)),
                (16, _, false) | (24, _, true) => {
                    once(&mut rule.destination, (is, network(length, mask, &value, self.v6)?))
                }
                _ => None,
            },
            Expression::Payload { base: TRANSPORT_HEADER, offset, length: 2 } if mask.is_none() => {
                let port = u16::from_be_bytes(value.as_slice().try_into().ok()?);
                self.port(offset, (is, port))
            }
            // A single comparison covers both ports.
            Expression::Payload { base: TRANSPORT_HEADER, offset: 0, length: 4 } if mask.is_none() && is => {
                let [source @ .., c, d] = <[u8; 4]>::try_from(value).ok()?;
                self.port(0, (true, u16::from_be_bytes(source)))?;
                self.port(2, (true, u16::from_be_bytes([c, d])))
            }
            _ => None,
        }
    }

    /// Takes a comparison of the port at this offset of the header. Both ports of a rule are one match.
    fn port(&mut self, offset: u32, port: Is<u16>) -> Option<()> {
        let (true, of) = self.rule.protocol? else { return None };
        if !matches!(self.rule.matches.last(), Some(Match::Ports { protocol, .. }) if *protocol == of) {
            self.rule.matches.push(Match::Ports { protocol: of, source: None, destination: None });
        }
        match (offset, self.rule.matches.last_mut()?) {
            (0, Match::Ports { source, .. }) => once(source, port),
            (2, Match::Ports { destination, .. }) => once(destination, port),
            _ => None,
        }
    }
}

/// Returns the name of a link, or the beginning of names and `+`; `None` if no link can have this name (`IFNAMSIZ`).
fn checked(name: &str) -> Option<&str> {
    ((1..16).contains(&name.len()) && name != "+").then_some(name)
}

/// Reads the name of a link. Without a zero at its end the value is a prefix of the name.
fn link(value: &[u8]) -> Option<String> {
    let end = value.iter().position(|byte| *byte == 0);
    let name = std::str::from_utf8(value.get(..end.unwrap_or(value.len()))?).ok()?;
    let is_rest_empty = end.is_none_or(|end| value.iter().skip(end).all(|byte| *byte == 0));
    let name = if end.is_none() { format!("{name}+") } else { name.to_owned() };
    (is_rest_empty && checked(&name).is_some()).then_some(name)
}

fn protocol(value: &[u8]) -> Option<Transport> {
    Transport::ALL.into_iter().find(|protocol| [protocol.number()] == value)
}

/// Reads a network: the first bytes of its address, or the whole address with a mask.
fn network(length: u32, mask: Option<Vec<u8>>, value: &[u8], v6: bool) -> Option<IpNet> {
    let size = if v6 { 16 } else { 4 };
    let length = usize::try_from(length).ok().filter(|length| *length == value.len() && *length <= size)?;
    let address = |bytes: &[u8]| octets::address(&[bytes, &vec![0; size - length]].concat());
    let network = match mask {
        None => IpNet::new(address(value)?, u8::try_from(length * 8).ok()?).ok()?,
        Some(mask) if mask.len() == size && length == size => {
            IpNet::with_netmask(address(value)?, address(&mask)?).ok()?
        }
        Some(_) => return None,
    };
    (network.trunc() == network && network.prefix_len() > 0).then_some(network)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Nla as _;

    use super::*;

    /// Returns the expressions of a rule as the kernel would report them.
    fn written(line: &str, v6: bool) -> Option<Vec<u8>> {
        let attributes = IptablesRule::parse(line).write(v6)?;
        let expressions = attributes.first().unwrap();
        let mut bytes = vec![0; expressions.value_len()];
        expressions.emit_value(&mut bytes);
        Some(bytes)
    }

    const LINES: [&str; 4] = [
        "C -s 10.1.0.2/32 -d 10.1.0.0/20 -i cni0 ! -o br+ -p tcp -m comment --comment \"a b\" -m tcp --dport 80 -j D",
        "C -m mark --mark 0x2000/0x2000 -m addrtype --dst-type LOCAL -j MASQUERADE --random-fully",
        "C -p sctp -m sctp ! --sport 1 --dport 2 -m conntrack --ctstate RELATED,ESTABLISHED -j DNAT --to-destination 10.1.0.2:1",
        "C -p udp -m multiport --dports 1,2 -j MARK --set-xmark 0x1/0x1",
    ];

    #[test]
    fn what_is_written_is_read() {
        for line in LINES {
            let bytes = written(line, false).unwrap();
            assert_eq!(IptablesRule::read("C", Attributes(&bytes), false).line(), line);
        }
        assert_eq!(written("C -s 10.1.0.2/32 -j D", true), None, "an address of the other family");
        assert_eq!(written("C -j DNAT --to-destination 10.1.0.2", true), None);
        let long = format!("C -m comment --comment {} -j D", "x".repeat(256));
        assert_eq!(written(&long, false), None, "the kernel has no room for the comment");
    }

    /// A rule with a changed byte is read as exactly the changed rule, or is refused. Nothing panics.
    #[test]
    fn no_byte_is_overlooked() {
        for line in LINES {
            let bytes = written(line, false).unwrap();
            for at in 0..bytes.len() {
                for bit in [1, 0x80] {
                    let mut changed = bytes.clone();
                    changed[at] ^= bit;
                    let rule = IptablesRule::read("C", Attributes(&changed), false);
                    if rule.is_foreign() {
                        continue;
                    }
                    let again = written(&rule.line(), false);
                    let same = again.is_some_and(|again| IptablesRule::read("C", Attributes(&again), false) == rule);
                    assert!(same, "byte {at} of {line}: {rule:?}");
                }
            }
            for length in 0..bytes.len() {
                let _ = IptablesRule::read("C", Attributes(&bytes[..length]), false);
            }
        }
    }
}
