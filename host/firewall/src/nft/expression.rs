//! The few expressions of Postern's rules: how they are written and read as netlink attributes.

use std::hash::{Hash, Hasher};

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, ExpressionAttribute, Expressions, Immediate, ListAttribute, MetaKey, Operator,
    Register, Verdict, VerdictAttribute,
};
use postern_netlink::{Attribute, Attributes};

/// `NFPROTO_IPV4` and `NFPROTO_IPV6` (linux/netfilter.h).
pub(super) const NFPROTO_IPV4: u8 = 2;
pub(super) const NFPROTO_IPV6: u8 = 10;
/// `NFTA_DATA_VALUE` and `NFTA_DATA_VERDICT`.
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
/// `NFT_FIB_RESULT_ADDRTYPE` and `NFTA_FIB_F_DADDR`.
const FIB_TYPE: u32 = 3;
const FIB_DESTINATION: u32 = 2;
/// `NFT_CT_STATUS`.
const CT_STATUS: u32 = 2;
/// `NFT_NAT_DNAT`, and the flags that the kernel sets for an address and a port (`NF_NAT_RANGE_MAP_IPS`,
/// `NF_NAT_RANGE_PROTO_SPECIFIED`).
const NAT_DESTINATION: u32 = 1;
const NAT_FLAGS: u32 = 3;

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
    /// A constant in a register, 1 or 2.
    Load {
        register: u8,
        value: Vec<u8>,
    },
    /// Destination NAT to the address in register 1 and the port in register 2.
    DestinationNat {
        v6: bool,
    },
    /// The type of the packet's destination (`RTN_LOCAL`, …), by the routing tables.
    DestinationType,
    /// The status bits of the packet's connection (`IPS_DST_NAT`, …).
    ConnectionStatus,
    /// Any other expression. Postern's rules never have such an expression.
    Foreign,
}

/// Kinds that the netlink crate can't hash are hashed by their numbers.
impl Hash for Expression {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Self::Meta(key) => u32::from(*key).hash(state),
            Self::Payload { base, offset, length } => (base, offset, length).hash(state),
            Self::Mask(value) => value.hash(state),
            Self::Compare { equal, value } => (equal, value).hash(state),
            Self::Verdict { verdict, chain } => (u32::from(*verdict), chain).hash(state),
            Self::Load { register, value } => (register, value).hash(state),
            Self::DestinationNat { v6 } => v6.hash(state),
            Self::Masquerade | Self::DestinationType | Self::ConnectionStatus | Self::Foreign => {}
        }
    }
}

impl Expression {
    /// Returns netlink attributes in the order in which the kernel reports them.
    pub(crate) fn write(&self) -> ListAttribute<ExpressionAttribute> {
        match self {
            // NFTA_META_KEY, _DREG.
            Self::Meta(key) => named("meta", &[(2, (*key).into()), (1, 1)]),
            // NFTA_PAYLOAD_DREG, _BASE, _OFFSET, _LEN.
            Self::Payload { base, offset, length } => {
                named("payload", &[(1, 1), (2, *base), (3, *offset), (4, *length)])
            }
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
            Self::Masquerade => named("masq", &[]),
            Self::Load { register, value } => Expressions::Immediate(vec![
                Immediate::DestinationRegister(if *register == 2 { Register::Reg2 } else { Register::Reg1 }),
                Immediate::Data(DataAttribute::Value(value.clone())),
            ]),
            // NFTA_NAT_TYPE, _FAMILY, _REG_ADDR_MIN, _REG_ADDR_MAX, _REG_PROTO_MIN, _REG_PROTO_MAX, _FLAGS.
            Self::DestinationNat { v6 } => {
                let family = u32::from(if *v6 { NFPROTO_IPV6 } else { NFPROTO_IPV4 });
                let parts = [(1, NAT_DESTINATION), (2, family), (3, 1), (4, 1), (5, 2), (6, 2), (7, NAT_FLAGS)];
                named("nat", &parts)
            }
            // NFTA_FIB_DREG, _RESULT, _FLAGS.
            Self::DestinationType => named("fib", &[(1, 1), (2, FIB_TYPE), (3, FIB_DESTINATION)]),
            // NFTA_CT_DREG, _KEY.
            Self::ConnectionStatus => named("ct", &[(1, 1), (2, CT_STATUS)]),
            Self::Foreign => named("", &[]),
        }
        .into()
    }

    /// Reads the attributes of one expression (`NFTA_EXPR_NAME`, `NFTA_EXPR_DATA`).
    pub(crate) fn read(expression: &Attribute<'_>) -> Self {
        let parts = expression.nested();
        let data = parts.first(2).map_or(Attributes(&[]), |data| data.nested());
        let read = match parts.first(1).map(|name| name.value) {
            Some(b"meta\0") => numbers(data, [2]).map(|[key]| Self::Meta(key.into())),
            Some(b"payload\0") => {
                numbers(data, [2, 3, 4]).map(|[base, offset, length]| Self::Payload { base, offset, length })
            }
            Some(b"bitwise\0") => read_mask(data),
            Some(b"cmp\0") => read_compare(data),
            Some(b"immediate\0") => read_verdict(data).or_else(|| read_load(data)),
            Some(b"nat\0") => read_nat(data),
            Some(b"fib\0") if reads(data, &[(1, 1), (2, FIB_TYPE), (3, FIB_DESTINATION)]) => {
                Some(Self::DestinationType)
            }
            // For this key the kernel shows no direction.
            Some(b"ct\0") if reads(data, &[(1, 1), (2, CT_STATUS)]) => Some(Self::ConnectionStatus),
            // Port ranges and flags would be attributes. Postern's expression has no attributes.
            Some(b"masq\0") if data.0.is_empty() => Some(Self::Masquerade),
            _ => None,
        };
        read.unwrap_or(Self::Foreign)
    }
}

fn named(expression_type: &str, parts: &[(u16, u32)]) -> Expressions {
    let attributes = parts.iter().map(|(kind, value)| DefaultNla::new(*kind, value.to_be_bytes().to_vec())).collect();
    Expressions::Other { expression_type: expression_type.to_owned(), attributes }
}

/// True if an expression has exactly these numbers.
fn reads(data: Attributes<'_>, parts: &[(u16, u32)]) -> bool {
    data.iter().map(|part| (part.kind, part.be32())).eq(parts.iter().map(|(kind, value)| (*kind, Some(*value))))
}

/// Reads `NFTA_IMMEDIATE_DREG` and `_DATA` with a value in it.
fn read_load(data: Attributes<'_>) -> Option<Expression> {
    let register = data.first(1)?.be32().and_then(|register| u8::try_from(register).ok())?;
    let value = value_in(&data.first(2)?)?.to_vec();
    matches!(register, 1 | 2).then_some(Expression::Load { register, value })
}

/// Reads `NFTA_NAT_*`: address and port in registers 1 and 2, without flags for random ports.
fn read_nat(data: Attributes<'_>) -> Option<Expression> {
    let mut v6 = None;
    for part in data.iter() {
        let value = part.be32()?;
        match (part.kind, value) {
            (2, family) => v6 = Some(family == u32::from(NFPROTO_IPV6)),
            (1, NAT_DESTINATION) | (3 | 4, 1) | (5 | 6, 2) | (7, NAT_FLAGS) => {}
            _ => return None,
        }
    }
    Some(Expression::DestinationNat { v6: v6? })
}

/// True if the part names the register for all values as `NFT_REG_1`, and not as `NFT_REG32_00`.
fn is_register_1(part: &Attribute<'_>) -> bool {
    part.be32() == Some(1)
}

/// Returns the value in a data attribute.
fn value_in<'a>(part: &Attribute<'a>) -> Option<&'a [u8]> {
    part.nested().first(DATA_VALUE).map(|data| data.value)
}

/// Returns the numbers of these kinds. `None` if a number is missing, or if there are further parts besides register 1.
fn numbers<const N: usize>(data: Attributes<'_>, kinds: [u16; N]) -> Option<[u32; N]> {
    let is_known = |part: Attribute<'_>| part.kind == 1 && is_register_1(&part) || kinds.contains(&part.kind);
    let numbers = kinds.map(|kind| data.first(kind).and_then(|part| part.be32()));
    let is_whole = data.iter().all(is_known) && numbers.iter().all(Option::is_some);
    is_whole.then(|| numbers.map(Option::unwrap_or_default))
}

/// Reads `NFTA_BITWISE_SREG`, `_DREG`, `_LEN`, `_MASK`, `_XOR` and `_OP`.
fn read_mask(data: Attributes<'_>) -> Option<Expression> {
    let mut mask = None;
    for part in data.iter() {
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
    for part in data.iter() {
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
