//! nftables rules: the few expressions of our rules, written and read, and comments.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, ExpressionAttribute, Expressions, Immediate, ListAttribute, Meta, MetaKey, Operator,
    Payload, Register, Verdict, VerdictAttribute,
};

use postern_netlink::{Attribute, Attributes};

/// `NFTNL_UDATA_RULE_COMMENT`, and the same number for tables and chains (libnftnl's udata.h).
const UDATA_COMMENT: u8 = 0;
/// `NFT_PAYLOAD_LL_HEADER` and `NFT_PAYLOAD_NETWORK_HEADER` (linux/netfilter/nf_tables.h).
const LINK_HEADER: u32 = 0;
const NETWORK_HEADER: u32 = 1;
/// `NFPROTO_IPV4` and `NFPROTO_IPV6` (linux/netfilter.h).
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
/// `NFTA_DATA_VALUE` and `NFTA_DATA_VERDICT`.
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
/// `NF_DROP` (linux/netfilter.h).
const NF_DROP: u32 = 0;

/// One expression. Values pass through register 1, as in the rules that `nft` generates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    Meta(MetaKey),
    Payload {
        base: u32,
        offset: u32,
        length: u32,
    },
    Mask(Vec<u8>),
    Compare {
        equal: bool,
        value: Vec<u8>,
    },
    Verdict {
        verdict: Verdict,
        chain: Option<String>,
    },
    Masquerade,
    /// Any other expression; our rules never have one.
    Foreign,
}

/// A rule as the kernel reported it.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) handle: u64,
    pub(crate) comment: Option<Vec<u8>>,
    /// The expressions as netlink attributes. They are decoded only when needed: most rules that we read are not ours.
    expressions: Vec<u8>,
}

/// The source or the destination address of a packet.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Source,
    Destination,
}

/// Returns expressions that compare an address with `network` for equality or inequality (`ip saddr`, `ip6 daddr`, …).
/// The form is the one that `nft` uses in an `inet` table.
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
    let octets = |address| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut value = octets(network.network());
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
        expressions.push(Expression::Mask(octets(network.netmask())));
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
    let octets = value.as_slice();
    let source = match (<[u8; 4]>::try_from(octets), <[u8; 16]>::try_from(octets)) {
        (Ok(octets), _) => IpAddr::from(octets),
        (_, Ok(octets)) => IpAddr::from(octets),
        _ => return None,
    };
    let mut wanted = family(source.into()).to_vec();
    wanted.extend(address(Side::Source, true, source.into()));
    expressions.starts_with(&wanted).then_some((source, rest))
}

/// Returns the one destination that a rule compares, anywhere in the rule.
pub(crate) fn destination_of(expressions: &[Expression]) -> Option<IpAddr> {
    expressions.windows(2).find_map(|pair| {
        let [Expression::Payload { base: NETWORK_HEADER, offset, length }, Expression::Compare { equal: true, value }] =
            pair
        else {
            return None;
        };
        match ((offset, length), value.as_slice()) {
            ((16, 4), [a, b, c, d]) => Some(IpAddr::from([*a, *b, *c, *d])),
            ((24, 16), octets) => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
            _ => None,
        }
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

impl Rule {
    /// Reads the attributes of a rule (`NFTA_RULE_*`).
    pub(crate) fn read(attributes: Attributes<'_>) -> Self {
        let mut rule = Self { handle: 0, comment: None, expressions: Vec::new() };
        for attribute in attributes {
            match attribute.kind {
                3 => rule.handle = attribute.be64().unwrap_or_default(),
                4 => rule.expressions = attribute.value.to_vec(),
                7 => rule.comment = comment_in(attribute.value),
                _ => {}
            }
        }
        rule
    }

    /// Returns a rule of these expressions, in netlink attributes.
    pub(crate) fn of_expressions(expressions: Vec<u8>) -> Self {
        Self { handle: 0, comment: None, expressions }
    }

    /// Returns the rule's expressions in netlink attributes.
    pub(crate) fn into_expressions(self) -> Vec<u8> {
        self.expressions
    }

    /// True if the rule consists of these expressions.
    pub(crate) fn is(&self, expressions: &[Expression]) -> bool {
        self.parts().eq(expressions.iter().cloned())
    }

    /// Returns the rule's expressions.
    pub(crate) fn expressions(&self) -> Vec<Expression> {
        self.parts().collect()
    }

    /// Returns the rule's expressions one by one: the first one is enough to tell most rules apart.
    fn parts(&self) -> impl Iterator<Item = Expression> {
        Attributes(&self.expressions).into_iter().map(|expression| Expression::read(&expression))
    }

    /// Returns the chain that the rule leads to.
    pub(crate) fn target(&self) -> Option<String> {
        self.parts().find_map(|part| match part {
            Expression::Verdict { chain, .. } => chain,
            _ => None,
        })
    }

    /// True if the comment begins with `prefix`.
    pub(crate) fn commented(&self, prefix: &[u8]) -> bool {
        self.comment.as_deref().is_some_and(|comment| comment.starts_with(prefix))
    }
}

impl Expression {
    /// Returns netlink attributes in the order in which the kernel reports them.
    pub(crate) fn write(&self) -> ListAttribute<ExpressionAttribute> {
        match self {
            Self::Meta(key) => Expressions::Meta(vec![Meta::Key(*key), Meta::DestinationRegister(Register::Reg1)]),
            Self::Payload { base, offset, length } => Expressions::Payload(vec![
                Payload::DestinationRegister(Register::Reg1),
                Payload::Base(*base),
                Payload::Offset(*offset),
                Payload::Len(*length),
            ]),
            Self::Mask(mask) => Expressions::Bitwise(vec![
                Bitwise::SourceRegister(Register::Reg1),
                Bitwise::DestinationRegister(Register::Reg1),
                Bitwise::Length(u32::try_from(mask.len()).unwrap_or(u32::MAX)),
                Bitwise::Mask(DataAttribute::Value(mask.clone())),
                Bitwise::Xor(DataAttribute::Value(vec![0; mask.len()])),
            ]),
            Self::Compare { equal, value } => Expressions::Cmp(vec![
                Cmp::SourceRegister(Register::Reg1),
                Cmp::Op(if *equal { Operator::Equal } else { Operator::NotEqual }),
                Cmp::Data(DataAttribute::Value(value.clone())),
            ]),
            Self::Verdict { verdict, chain } => {
                let mut data = vec![VerdictAttribute::Code(*verdict)];
                data.extend(chain.clone().map(VerdictAttribute::Chain));
                Expressions::Immediate(vec![
                    Immediate::DestinationRegister(Register::Verdict),
                    Immediate::Data(DataAttribute::Verdict(data)),
                ])
            }
            Self::Masquerade => named("masq"),
            Self::Foreign => named(""),
        }
        .into()
    }

    /// Reads the attributes of one expression (`NFTA_EXPR_NAME`, `NFTA_EXPR_DATA`).
    pub(crate) fn read(expression: &Attribute<'_>) -> Self {
        let parts = expression.nested();
        let data = parts.first(2).map_or(Attributes(&[]), |data| data.nested());
        let read = match parts.first(1).map(|name| name.value) {
            Some(b"meta\0") => read_meta(data),
            Some(b"payload\0") => read_payload(data),
            Some(b"bitwise\0") => read_mask(data),
            Some(b"cmp\0") => read_compare(data),
            Some(b"immediate\0") => read_verdict(data),
            // Port ranges and flags would be attributes: our expression has none.
            Some(b"masq\0") if data.0.is_empty() => Some(Self::Masquerade),
            _ => None,
        };
        read.unwrap_or(Self::Foreign)
    }
}

fn named(expression_type: &str) -> Expressions {
    Expressions::Other { expression_type: expression_type.to_owned(), attributes: Vec::new() }
}

/// True if this is the register for all values: `NFT_REG_1`, and never its other name `NFT_REG32_00`.
fn is_register_1(part: &Attribute<'_>) -> bool {
    part.be32() == Some(1)
}

/// Returns the value in a data attribute.
fn value_in<'a>(part: &Attribute<'a>) -> Option<&'a [u8]> {
    part.nested().first(DATA_VALUE).map(|data| data.value)
}

/// Reads `NFTA_META_DREG` and `NFTA_META_KEY`.
fn read_meta(data: Attributes<'_>) -> Option<Expression> {
    let mut key = None;
    for part in data {
        match part.kind {
            1 if is_register_1(&part) => {}
            2 => key = part.be32(),
            _ => return None,
        }
    }
    key.map(|key| Expression::Meta(key.into()))
}

/// Reads `NFTA_PAYLOAD_DREG`, `_BASE`, `_OFFSET` and `_LEN`.
fn read_payload(data: Attributes<'_>) -> Option<Expression> {
    let (mut base, mut offset, mut length) = (None, None, None);
    for part in data {
        match part.kind {
            1 if is_register_1(&part) => {}
            2 => base = part.be32(),
            3 => offset = part.be32(),
            4 => length = part.be32(),
            _ => return None,
        }
    }
    Some(Expression::Payload { base: base?, offset: offset?, length: length? })
}

/// Reads `NFTA_BITWISE_SREG`, `_DREG`, `_LEN`, `_MASK`, `_XOR` and `_OP`.
fn read_mask(data: Attributes<'_>) -> Option<Expression> {
    let mut mask = None;
    for part in data {
        match part.kind {
            1 | 2 if is_register_1(&part) => {}
            3 => {}
            4 => mask = value_in(&part),
            5 if value_in(&part)?.iter().all(|byte| *byte == 0) => {}
            // NFT_BITWISE_MASK_XOR: the only operation of older kernels, which don't report it.
            6 if part.be32() == Some(0) => {}
            _ => return None,
        }
    }
    mask.map(|mask| Expression::Mask(mask.to_vec()))
}

/// Reads `NFTA_CMP_SREG`, `_OP` and `_DATA`.
fn read_compare(data: Attributes<'_>) -> Option<Expression> {
    let (mut equal, mut compared) = (None, None);
    for part in data {
        match part.kind {
            1 if is_register_1(&part) => {}
            // NFT_CMP_EQ, NFT_CMP_NEQ.
            2 => equal = part.be32().filter(|operator| *operator < 2).map(|operator| operator == 0),
            3 => compared = value_in(&part),
            _ => return None,
        }
    }
    Some(Expression::Compare { equal: equal?, value: compared?.to_vec() })
}

/// Reads `NFTA_IMMEDIATE_DREG` and `_DATA` with `NFTA_VERDICT_CODE` and `_CHAIN` in it.
fn read_verdict(data: Attributes<'_>) -> Option<Expression> {
    let verdict = data.first(2)?.nested().first(DATA_VERDICT)?.nested();
    let code = verdict.first(1).and_then(|code| code.be32())?;
    Some(Expression::Verdict {
        verdict: code.into(),
        chain: verdict.first(2).map(|chain| chain.text_lossy().into_owned()),
    })
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Nla as _;

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
