//! The parts of netlink's wire format that are needed to read answers (`linux/netlink.h`, RFC 3549): messages in a
//! datagram, attributes in a message. The code trusts no length, and never panics.

use crate::error::NetlinkError;
use netlink_packet_core::{NLM_F_ACK_TLVS, NLM_F_CAPPED, NLMSG_DONE, NetlinkBuffer, NlasIterator};
use std::borrow::Cow;
use std::net::IpAddr;

/// Length of `struct nlmsghdr`.
pub(crate) const HEADER: usize = 16;

/// `NLMSGERR_ATTR_MSG`: the explanation in an extended acknowledgement.
const EXPLANATION: u16 = 1;

/// Returns `N` bytes of a message, `None` if the message is too short.
fn bytes<const N: usize>(buffer: &[u8], offset: usize) -> Option<[u8; N]> {
    buffer.get(offset..)?.first_chunk().copied()
}

/// Returns the byte at `offset`.
#[must_use]
pub fn u8_at(buffer: &[u8], offset: usize) -> Option<u8> {
    buffer.get(offset).copied()
}

/// Returns two bytes at `offset` in the machine's byte order.
#[must_use]
pub fn u16_at(buffer: &[u8], offset: usize) -> Option<u16> {
    bytes(buffer, offset).map(u16::from_ne_bytes)
}

/// Returns four bytes at `offset` in the machine's byte order.
#[must_use]
pub fn u32_at(buffer: &[u8], offset: usize) -> Option<u32> {
    bytes(buffer, offset).map(u32::from_ne_bytes)
}

/// Reads an IP address in the form of packets and of the kernel. The length shows the family.
#[must_use]
pub fn ip(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

/// Returns an attribute in the kernel's form: its length, its type, its value, and zeroes up to a multiple of four
/// bytes.
#[must_use]
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// One message of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Returns the error number of `NLMSG_ERROR` and `NLMSG_DONE`, made positive. 0 means success. A missing number
    /// counts as 0.
    pub fn errno(&self) -> i32 {
        u32_at(self.payload, 0).map_or(0, |code| code.cast_signed().saturating_neg())
    }

    /// Returns the kernel's explanation of an error.
    pub fn explanation(&self) -> Option<&'a str> {
        if self.flags & NLM_F_ACK_TLVS == 0 {
            return None;
        }
        // After the error number, an acknowledgement repeats the request. A "capped" acknowledgement repeats only the
        // request's header.
        let request = match self.kind {
            NLMSG_DONE => 0,
            _ if self.flags & NLM_F_CAPPED != 0 => HEADER,
            _ => usize::try_from(u32_at(self.payload, 4)?).ok()?.checked_next_multiple_of(4)?,
        };
        Attributes(self.payload.get(request.checked_add(4)?..)?).first(EXPLANATION)?.text()
    }
}

/// The messages of a datagram. If the datagram does not consist of whole messages, the last item is an `Err`.
pub(crate) struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, NetlinkError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.0);
        if rest.is_empty() {
            return None;
        }
        let Ok(message) = NetlinkBuffer::new_checked(rest) else { return Some(Err(NetlinkError::Malformed)) };
        let length = usize::try_from(message.length()).ok().and_then(|length| length.checked_next_multiple_of(4));
        self.0 = length.and_then(|length| rest.get(length..)).unwrap_or_default();
        Some(Ok(Message {
            kind: message.message_type(),
            flags: message.flags(),
            sequence: message.sequence_number(),
            payload: message.payload(),
        }))
    }
}

/// One attribute (`struct nlattr`). Netfilter's numbers are big-endian (`be32`); numbers of other families have the
/// machine's byte order.
#[derive(Clone, Copy, Debug)]
pub struct Attribute<'a> {
    /// Its type, without the flags for nesting and byte order.
    pub kind: u16,
    /// Its content.
    pub value: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// Returns a number of one byte.
    #[must_use]
    pub fn u8(&self) -> Option<u8> {
        u8_at(self.value, 0)
    }

    /// Returns a number of two bytes in the machine's byte order.
    #[must_use]
    pub fn u16(&self) -> Option<u16> {
        u16_at(self.value, 0)
    }

    /// Returns a number of four bytes in the machine's byte order.
    #[must_use]
    pub fn u32(&self) -> Option<u32> {
        u32_at(self.value, 0)
    }

    /// Returns a number of four bytes in network byte order.
    #[must_use]
    pub fn be32(&self) -> Option<u32> {
        self.value.try_into().ok().map(u32::from_be_bytes)
    }

    /// Returns a number of eight bytes in network byte order.
    #[must_use]
    pub fn be64(&self) -> Option<u64> {
        self.value.try_into().ok().map(u64::from_be_bytes)
    }

    /// Returns a string up to its terminating zero byte; `None` if it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        std::str::from_utf8(self.string()).ok()
    }

    /// Returns the string for display: bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text_lossy(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.string())
    }

    /// Returns the bytes of a string, up to its terminating zero byte.
    #[must_use]
    pub fn string(&self) -> &'a [u8] {
        self.value.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Returns the attributes in the attribute's value.
    #[must_use]
    pub fn nested(&self) -> Attributes<'a> {
        Attributes(self.value)
    }
}

/// A sequence of attributes. It ends at an invalid length.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// Returns the attributes one by one.
    pub fn iter(self) -> impl Iterator<Item = Attribute<'a>> {
        NlasIterator::new(self.0).map_while(|attribute| {
            let attribute = attribute.ok()?;
            let (kind, length) = (attribute.kind(), usize::from(attribute.length()));
            // `value()` is not used, because its result lives only as long as the iterator's item.
            Some(Attribute { kind, value: attribute.into_inner().get(4..length)? })
        })
    }

    /// Returns the first attribute of this type.
    #[must_use]
    pub fn first(self, kind: u16) -> Option<Attribute<'a>> {
        self.iter().find(|attribute| attribute.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::{NLA_F_NESTED, NLMSG_ERROR};

    fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER + payload.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn reads_messages_and_attributes() {
        let inner = [attribute(1, b"veth\0"), attribute(2, &5u32.to_ne_bytes())].concat();
        let datagram = [message(16, 2, &attribute(18 | NLA_F_NESTED, &inner)), message(3, 0, &[])].concat();
        let messages: Vec<_> = Messages(&datagram).map(Result::unwrap).collect();
        assert_eq!(messages.len(), 2);
        assert_eq!((messages[0].kind, messages[0].flags, messages[0].sequence), (16, 2, 7));
        let outer = Attributes(messages[0].payload).iter().next().unwrap();
        assert_eq!(outer.kind, 18);
        let nested: Vec<_> = outer.nested().iter().collect();
        assert_eq!(nested[0].text(), Some("veth"));
        assert_eq!(nested[1].u32(), Some(5));
    }

    #[test]
    fn reads_netfilters_numbers_and_names() {
        let bytes = b"\x07\x00\x01\x00ab\x00\xff\x08\x00\x02\x80\x00\x00\x00\x07\x04\x00\x03\x00\x0c\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x09";
        let all = Attributes(bytes);
        let kinds: Vec<_> = all.iter().map(|attribute| attribute.kind).collect();
        assert_eq!(kinds, [1, 2, 3, 4]);
        assert_eq!(all.first(1).unwrap().text(), Some("ab"));
        assert_eq!(all.first(2).unwrap().be32(), Some(7));
        assert_eq!(all.first(3).unwrap().be32(), None);
        assert_eq!(all.first(4).unwrap().be64(), Some(9));
        let strange = Attribute { kind: 1, value: b"a\xff\0" };
        assert_eq!((strange.text(), &*strange.text_lossy()), (None, "a\u{fffd}"));
    }

    #[test]
    fn finds_the_explanation_after_a_whole_and_after_a_capped_request() {
        let refused = (-22i32).to_ne_bytes();
        let explanation = attribute(EXPLANATION, b"no such thing\0");
        let request = message(16, 1, b"abcde");
        for (flags, repeated) in [(0, request.as_slice()), (NLM_F_CAPPED, &request[..HEADER])] {
            let payload = [refused.as_slice(), repeated, &explanation].concat();
            let bytes = message(NLMSG_ERROR, flags | NLM_F_ACK_TLVS, &payload);
            let message = Messages(&bytes).next().unwrap().unwrap();
            assert_eq!((message.errno(), message.explanation()), (22, Some("no such thing")));
        }
    }

    #[test]
    fn malformed_input_ends_the_iteration() {
        let good = message(16, 0, &attribute(3, b"eth0\0"));
        for length in [0u32, 3, 15, 16, 17, 64, u32::MAX] {
            let mut bytes = good.clone();
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert!(Messages(&bytes).count() <= 2, "length {length}");
            for item in Messages(&bytes).flatten() {
                let _ = (item.errno(), item.explanation(), Attributes(item.payload).iter().count());
            }
        }
        for end in 0..good.len() {
            assert!(Messages(&good[..end]).all(|message| message.is_err()), "cut at {end}");
        }
        for length in [0u16, 3, 5, u16::MAX] {
            let mut bytes = attribute(3, b"");
            bytes[..2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(Attributes(&bytes).iter().count(), 0, "length {length}");
        }
        for bytes in [&b""[..], b"\x04", b"\x03\x00\x01\x00", b"\x00\x00\x00\x00", b"\xff\xff\x01\x00ab"] {
            assert_eq!(Attributes(bytes).iter().count(), 0, "{bytes:?}");
        }
    }
}
