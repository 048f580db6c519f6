//! nftables rules: the parts that Postern's rules are built from and parsed into, and their comments.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_netfilter::nftables::{MetaKey, RuleAttribute, Verdict};
use postern_netlink::Attributes;

pub(crate) use super::expression::Expression;
use super::expression::{NFPROTO_IPV4, NFPROTO_IPV6};
use crate::octets;

/// `NFTNL_UDATA_RULE_COMMENT`, and the same number for tables and chains (libnftnl's udata.h).
const UDATA_COMMENT: u8 = 0;
/// `NFT_PAYLOAD_LL_HEADER`, `NFT_PAYLOAD_NETWORK_HEADER` and `NFT_PAYLOAD_TRANSPORT_HEADER`
/// (linux/netfilter/nf_tables.h).
const LINK_HEADER: u32 = 0;
pub(crate) const NETWORK_HEADER: u32 = 1;
pub(crate) const TRANSPORT_HEADER: u32 = 2;
/// Verdicts and policies (linux/netfilter.h).
pub(crate) const NF_DROP: u32 = 0;
pub(crate) const NF_ACCEPT: u32 = 1;
/// `RTN_LOCAL` (linux/rtnetlink.h).
const RTN_LOCAL: u32 = 2;
/// `IPS_DST_NAT` (linux/netfilter/nf_conntrack_common.h).
const IPS_DST_NAT: u32 = 1 << 5;

/// A rule as the kernel reported it.
#[derive(Clone, Debug)]
pub(crate) struct NftRule {
    pub(crate) handle: u64,
    pub(crate) comment: Option<Vec<u8>>,
    /// The expressions as netlink attributes. They are decoded only when needed, because most rules are of other
    /// owners.
    expressions: Vec<u8>,
}

/// The source or the destination address of a packet.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Source,
    Destination,
}

/// Returns expressions that compare an address with `network` for equality or inequality (`ip saddr`, `ip6 daddr`, …).
/// `nft` writes the same form in an `inet` table.
///
/// Prefixes that end at a byte are compared without a mask, as `nft` does.
pub(crate) fn address(side: Side, equal: bool, network: IpNet) -> Vec<Expression> {
    // Offsets in the IP headers: RFC 791 section 3.1, RFC 8200 section 3.
    let offset = match (network, side) {
        (IpNet::V4(_), Side::Source) => 12,
        (IpNet::V4(_), Side::Destination) => 16,
        (IpNet::V6(_), Side::Source) => 8,
        (IpNet::V6(_), Side::Destination) => 24,
    };
    let mut value = octets::of(network.network());
    let prefix = usize::from(network.prefix_len());
    let masked = prefix == 0 || !prefix.is_multiple_of(8);
    if !masked {
        value.truncate(prefix / 8);
    }
    let mut expressions = vec![Expression::Payload {
        base: NETWORK_HEADER,
        offset,
        length: u32::from(if masked { network.max_prefix_len() } else { network.prefix_len() }) / 8,
    }];
    if masked {
        expressions.push(Expression::Mask(octets::of(network.netmask())));
    }
    expressions.push(Expression::Compare { equal, value });
    expressions
}

/// Returns expressions for packets of `network`'s family. `nft` puts them before an address in an `inet` table.
pub(crate) fn family(network: IpNet) -> [Expression; 2] {
    let protocol = match network {
        IpNet::V4(_) => NFPROTO_IPV4,
        IpNet::V6(_) => NFPROTO_IPV6,
    };
    [Expression::Meta(MetaKey::Nfproto), Expression::Compare { equal: true, value: vec![protocol] }]
}

/// Reads a rule that begins with the expressions of [`family`] and [`address`] for a source. Returns that address and
/// the expressions after it.
pub(crate) fn source_of(expressions: &[Expression]) -> Option<(IpAddr, &[Expression])> {
    let [_, _, _, Expression::Compare { value, .. }, rest @ ..] = expressions else { return None };
    let source = octets::address(value)?;
    let mut wanted = family(source.into()).to_vec();
    wanted.extend(address(Side::Source, true, source.into()));
    expressions.starts_with(&wanted).then_some((source, rest))
}

/// Returns the destination address that a rule compares. The comparison may be at any place in the rule.
pub(crate) fn destination_of(expressions: &[Expression]) -> Option<IpAddr> {
    expressions.windows(2).find_map(|pair| {
        let [Expression::Payload { base: NETWORK_HEADER, offset, length }, Expression::Compare { equal: true, value }] =
            pair
        else {
            return None;
        };
        octets::address(value).filter(|_| matches!((offset, length, value.len()), (16, 4, 4) | (24, 16, 16)))
    })
}

/// True if these are the expressions of [`address`] for a destination outside a network of `ip`'s family.
pub(crate) fn is_elsewhere(expressions: &[Expression], ip: IpAddr) -> bool {
    let whole = address(Side::Destination, false, ip.into());
    let (Some(Expression::Payload { offset: wanted, .. }), Some(Expression::Payload { base, offset, .. })) =
        (whole.first(), expressions.first())
    else {
        return false;
    };
    let compared = match expressions {
        [_, Expression::Compare { equal, .. }] | [_, Expression::Mask(_), Expression::Compare { equal, .. }] => !equal,
        _ => false,
    };
    *base == NETWORK_HEADER && offset == wanted && compared
}

/// Returns the expressions of `iifname <name>`.
pub(crate) fn input_interface(name: &str) -> [Expression; 2] {
    let mut value = name.as_bytes().to_vec();
    // The register holds IFNAMSIZ bytes.
    value.resize(16, 0);
    [Expression::Meta(MetaKey::Iifname), Expression::Compare { equal: true, value }]
}

/// Returns the interface name in a rule's first comparison, and the expressions after it.
pub(crate) fn input_interface_of(expressions: &[Expression]) -> Option<(String, &[Expression])> {
    let [_, Expression::Compare { value, .. }, rest @ ..] = expressions else { return None };
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    let name = String::from_utf8(value.get(..end)?.to_vec()).ok()?;
    expressions.starts_with(&input_interface(&name)).then_some((name, rest))
}

/// Returns the expressions of `ether saddr <mac>`.
pub(crate) fn source_mac(mac: [u8; 6]) -> [Expression; 2] {
    [
        Expression::Payload { base: LINK_HEADER, offset: 6, length: 6 },
        Expression::Compare { equal: true, value: mac.to_vec() },
    ]
}

/// Returns the expressions of `iifname <name>` or `iifname != <name>`. A name that ends with `*` stands for all names
/// with this beginning.
pub(crate) fn input_interface_like(equal: bool, name: &str) -> [Expression; 2] {
    let mut value = name.as_bytes().to_vec();
    match name.strip_suffix('*') {
        Some(beginning) => value.truncate(beginning.len()),
        None => value.resize(16, 0),
    }
    [Expression::Meta(MetaKey::Iifname), Expression::Compare { equal, value }]
}

/// Returns the expressions of `iifname != "lo" meta iifkind != "vrf"`: packets that came from a link.
pub(crate) fn from_a_link() -> [Expression; 4] {
    let mut vrf = b"vrf".to_vec();
    vrf.resize(16, 0);
    let [name, lo] = input_interface_like(false, "lo");
    [name, lo, Expression::Meta(MetaKey::Iifkind), Expression::Compare { equal: false, value: vrf }]
}

/// Returns the expressions of `<protocol> dport <port>`.
pub(crate) fn destination_port(protocol: u8, port: u16) -> [Expression; 4] {
    [
        Expression::Meta(MetaKey::L4Proto),
        Expression::Compare { equal: true, value: vec![protocol] },
        Expression::Payload { base: TRANSPORT_HEADER, offset: 2, length: 2 },
        Expression::Compare { equal: true, value: port.to_be_bytes().to_vec() },
    ]
}

/// Returns the expressions of `dnat to <address>:<port>`.
pub(crate) fn destination_nat(address: IpAddr, port: u16) -> [Expression; 3] {
    [
        Expression::Load { register: 1, value: octets::of(address) },
        Expression::Load { register: 2, value: port.to_be_bytes().to_vec() },
        Expression::DestinationNat { v6: address.is_ipv6() },
    ]
}

/// Reads a rule that ends with the expressions of [`destination_port`] and [`destination_nat`]: protocol, port, and the
/// new destination.
pub(crate) fn forward_of(expressions: &[Expression]) -> Option<(u8, u16, IpAddr, u16)> {
    let [
        ..,
        Expression::Compare { value: protocol, .. },
        Expression::Payload { .. },
        Expression::Compare { value: port, .. },
        Expression::Load { value: address, .. },
        Expression::Load { value: target, .. },
        Expression::DestinationNat { .. },
    ] = expressions
    else {
        return None;
    };
    let address = octets::address(address)?;
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u16::from_be_bytes);
    let [protocol] = protocol.as_slice() else { return None };
    let (port, target) = (number(port)?, number(target)?);
    let wanted: Vec<_> =
        destination_port(*protocol, port).into_iter().chain(destination_nat(address, target)).collect();
    expressions.ends_with(&wanted).then_some((*protocol, port, address, target))
}

/// Returns the expressions of `fib daddr type local`.
pub(crate) fn to_this_node() -> [Expression; 2] {
    [Expression::DestinationType, Expression::Compare { equal: true, value: RTN_LOCAL.to_ne_bytes().to_vec() }]
}

/// Returns the expressions of `ct status dnat`.
pub(crate) fn destination_was_changed() -> [Expression; 3] {
    [
        Expression::ConnectionStatus,
        Expression::Mask(IPS_DST_NAT.to_ne_bytes().to_vec()),
        Expression::Compare { equal: false, value: vec![0; 4] },
    ]
}

/// Returns a verdict that ends the rule.
pub(crate) fn verdict(verdict: Verdict) -> Expression {
    Expression::Verdict { verdict, chain: None }
}

/// Returns the expression of `drop`.
pub(crate) fn drop_packet() -> Expression {
    verdict(Verdict::Other(NF_DROP))
}

/// Returns the expression that jumps or goes to a chain.
pub(crate) fn to_chain(verdict: Verdict, chain: &str) -> Expression {
    Expression::Verdict { verdict, chain: Some(chain.to_owned()) }
}

/// Returns the attributes of a rule, without its table and chain.
pub(crate) fn written(rule: &[Expression], comment: Option<&[u8]>) -> Vec<RuleAttribute> {
    let comment = comment.map(|text| RuleAttribute::UserData(comment_data(text)));
    [RuleAttribute::Expressions(rule.iter().map(Expression::write).collect())].into_iter().chain(comment).collect()
}

/// Returns a comment as the user data of a table, chain or rule: type, length, text with a final NUL.
///
/// Callers keep comments within 253 bytes: the kernel takes 256 bytes of user data (`NFT_USERDATA_MAXLEN`).
pub(crate) fn comment_data(comment: &[u8]) -> Vec<u8> {
    let length = u8::try_from(comment.len() + 1).unwrap_or(u8::MAX);
    let mut data = vec![UDATA_COMMENT, length];
    data.extend(comment.iter().take(usize::from(length) - 1));
    data.push(0);
    data
}

/// Returns the comment in user data, which may have other entries too.
fn comment_in(mut data: &[u8]) -> Option<Vec<u8>> {
    while let [kind, length, rest @ ..] = data {
        let (value, after) = rest.split_at_checked(usize::from(*length))?;
        if *kind == UDATA_COMMENT {
            return Some(value.strip_suffix(&[0]).unwrap_or(value).to_vec());
        }
        data = after;
    }
    None
}

/// Returns the expressions of a rule one by one: the first expression is enough to distinguish most rules.
fn parts(expressions: Attributes<'_>) -> impl Iterator<Item = Expression> {
    expressions.iter().map(|expression| Expression::read(&expression))
}

/// Returns the chain that these expressions of a rule lead to.
pub(crate) fn target(expressions: Attributes<'_>) -> Option<String> {
    parts(expressions).find_map(|part| if let Expression::Verdict { chain, .. } = part { chain } else { None })
}

impl NftRule {
    /// Reads the attributes of a rule (`NFTA_RULE_*`).
    pub(crate) fn read(attributes: Attributes<'_>) -> Self {
        let mut rule = Self { handle: 0, comment: None, expressions: Vec::new() };
        for attribute in attributes.iter() {
            match attribute.kind {
                3 => rule.handle = attribute.be64().unwrap_or_default(),
                4 => rule.expressions = attribute.value.to_vec(),
                7 => rule.comment = comment_in(attribute.value),
                _ => {}
            }
        }
        rule
    }

    /// Returns the rule's expressions as netlink attributes.
    pub(crate) fn attributes(&self) -> Attributes<'_> {
        Attributes(&self.expressions)
    }

    /// True if the rule consists of these expressions.
    pub(crate) fn is(&self, expressions: &[Expression]) -> bool {
        parts(self.attributes()).eq(expressions.iter().cloned())
    }

    /// Returns the rule's expressions.
    pub(crate) fn expressions(&self) -> Vec<Expression> {
        parts(self.attributes()).collect()
    }

    /// Returns the chain that the rule leads to.
    pub(crate) fn target(&self) -> Option<String> {
        target(self.attributes())
    }

    /// True if the comment begins with `prefix`.
    pub(crate) fn commented(&self, prefix: &[u8]) -> bool {
        self.comment.as_deref().is_some_and(|comment| comment.starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Nla as _;
    use postern_netlink::Attribute;

    use super::*;

    #[test]
    fn comments_survive_their_encoding() {
        assert_eq!(comment_data(b"hello"), b"\x00\x06hello\x00");
        for length in [0, 1, 128, 253] {
            let comment = vec![b'x'; length];
            assert_eq!(comment_in(&comment_data(&comment)), Some(comment));
        }
        // Newer nft releases write another entry first.
        assert_eq!(comment_in(b"\x01\x04\x00\x00\x00\x01\x00\x03ab\x00"), Some(b"ab".to_vec()));
        for broken in [&b""[..], b"\x00", b"\x00\x09ab", b"\x01\x00"] {
            assert_eq!(comment_in(broken), None);
        }
    }

    fn reread(expression: &Expression) -> Expression {
        let element = expression.write();
        let mut bytes = vec![0; element.value_len()];
        element.emit_value(&mut bytes);
        Expression::read(&Attribute { kind: 1, value: &bytes })
    }

    #[test]
    fn expressions_survive_their_encoding() {
        let networks = ["10.1.0.2/32", "10.0.0.0/9", "0.0.0.0/0", "fd00::/64", "ff00::/8", "fd00::/65"];
        for network in networks {
            let network: IpNet = network.parse().unwrap();
            for expression in address(Side::Source, false, network) {
                assert_eq!(reread(&expression), expression, "{network}");
            }
        }
        for expression in
            [to_chain(Verdict::Goto, "masq_checks"), verdict(Verdict::Return), drop_packet(), Expression::Masquerade]
        {
            assert_eq!(reread(&expression), expression);
        }
        let (v4, v6): (IpAddr, IpAddr) = ("10.1.0.2".parse().unwrap(), "fd00::2".parse().unwrap());
        let parts = destination_port(6, 80).into_iter().chain(destination_nat(v4, 81)).chain(destination_nat(v6, 82));
        for expression in parts.chain(to_this_node()).chain(destination_was_changed()).chain(from_a_link()) {
            assert_eq!(reread(&expression), expression);
        }
    }

    #[test]
    fn what_was_put_together_is_taken_apart() {
        for (source, network) in [("10.1.0.2", "10.1.0.0/16"), ("10.1.0.2", "10.0.0.0/9"), ("fd00::2", "fd00::/64")] {
            let (source, network): (IpAddr, IpNet) = (source.parse().unwrap(), network.parse().unwrap());
            let mut rule = family(network).to_vec();
            rule.extend(address(Side::Source, true, source.into()));
            rule.extend(address(Side::Destination, false, network));
            let (found, rest) = source_of(&rule).unwrap();
            assert_eq!(found, source);
            assert!(is_elsewhere(rest, source));
            assert!(!is_elsewhere(&address(Side::Destination, true, network), source), "equal");
            assert!(!is_elsewhere(&address(Side::Source, false, network), source), "another address");
            assert!(source_of(&rule[1..]).is_none());
            let negated: Vec<_> = [family(network).to_vec(), address(Side::Source, false, source.into())].concat();
            assert!(source_of(&negated).is_none());
        }
        let target: IpAddr = "fd00::2".parse().unwrap();
        let mut forward = address(Side::Destination, true, "fd00::9/128".parse().unwrap());
        forward.extend(destination_port(17, 53));
        assert_eq!(forward_of(&forward), None);
        forward.extend(destination_nat(target, 5353));
        assert_eq!(forward_of(&forward), Some((17, 53, target, 5353)));
        let mut entry = input_interface("veth0").to_vec();
        entry.push(drop_packet());
        assert_eq!(input_interface_of(&entry), Some(("veth0".to_owned(), &[drop_packet()][..])));
        assert!(input_interface_of(&entry[1..]).is_none());
    }

    #[test]
    fn byte_prefixes_need_no_mask() {
        assert_eq!(address(Side::Destination, false, "10.1.0.0/16".parse().unwrap()).len(), 2);
        assert_eq!(address(Side::Destination, false, "224.0.0.0/4".parse().unwrap()).len(), 3);
        assert_eq!(address(Side::Destination, false, "0.0.0.0/0".parse().unwrap()).len(), 3);
    }
}
