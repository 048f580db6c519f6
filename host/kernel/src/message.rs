//! Netlink's wire format as far as answers need it (`linux/netlink.h`, RFC 3549): messages in a datagram, attributes
//! in a message. Nothing here trusts a length, and nothing panics.

use netlink_packet_core::{NLA_TYPE_MASK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLMSG_DONE};

/// Length of `struct nlmsghdr`.
pub(crate) const HEADER: usize = 16;

/// `NLMSGERR_ATTR_MSG`: the explanation in an extended acknowledgement.
const EXPLANATION: u16 = 1;

/// A little piece of a message, `None` if the message is too short for it.
fn bytes<const N: usize>(buffer: &[u8], offset: usize) -> Option<[u8; N]> {
    buffer.get(offset..)?.first_chunk().copied()
}

/// The byte at `offset`.
pub(crate) fn u8_at(buffer: &[u8], offset: usize) -> Option<u8> {
    buffer.get(offset).copied()
}

/// Two bytes at `offset` in the machine's byte order.
pub(crate) fn u16_at(buffer: &[u8], offset: usize) -> Option<u16> {
    bytes(buffer, offset).map(u16::from_ne_bytes)
}

/// Four bytes at `offset` in the machine's byte order.
pub(crate) fn u32_at(buffer: &[u8], offset: usize) -> Option<u32> {
    bytes(buffer, offset).map(u32::from_ne_bytes)
}

/// Splits off the first `length` bytes; the rest starts at the next multiple of four, or is empty.
fn split_aligned(buffer: &[u8], length: usize) -> Option<(&[u8], &[u8])> {
    let rest = buffer.get(length.checked_next_multiple_of(4)?..).unwrap_or_default();
    Some((buffer.get(..length)?, rest))
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
    /// The negative error number of `NLMSG_ERROR` and `NLMSG_DONE`, made positive; 0 is success, as is an absent one.
    pub fn errno(&self) -> i32 {
        u32_at(self.payload, 0).map_or(0, |code| code.cast_signed().saturating_neg())
    }

    /// The kernel's explanation of an error.
    pub fn explanation(&self) -> Option<&'a str> {
        if self.flags & NLM_F_ACK_TLVS == 0 {
            return None;
        }
        // After the error number an acknowledgement repeats the request: its header, and unless "capped" all of it.
        let request = match self.kind {
            NLMSG_DONE => 0,
            _ if self.flags & NLM_F_CAPPED != 0 => HEADER,
            _ => usize::try_from(u32_at(self.payload, 4)?).ok()?.checked_next_multiple_of(4)?,
        };
        let attributes = self.payload.get(request.checked_add(4)?..)?;
        Attributes(attributes).find(|attribute| attribute.kind == EXPLANATION)?.text()
    }
}

/// The messages of a datagram; an `Err` is the last item.
pub(crate) struct Messages<'a>(pub &'a [u8]);

/// The datagram does not consist of whole messages.
#[derive(Debug)]
pub(crate) struct Malformed;

impl<'a> Messages<'a> {
    fn split(&mut self) -> Option<Message<'a>> {
        let length = usize::try_from(u32_at(self.0, 0)?).ok()?;
        let (message, rest) = split_aligned(self.0, length)?;
        self.0 = rest;
        Some(Message {
            kind: u16_at(message, 4)?,
            flags: u16_at(message, 6)?,
            sequence: u32_at(message, 8)?,
            payload: message.get(HEADER..)?,
        })
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let message = self.split();
        if message.is_none() {
            self.0 = &[];
        }
        Some(message.ok_or(Malformed))
    }
}

/// One attribute (`struct nlattr`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute<'a> {
    pub kind: u16,
    pub value: &'a [u8],
}

impl<'a> Attribute<'a> {
    pub fn u8(&self) -> Option<u8> {
        u8_at(self.value, 0)
    }

    pub fn u16(&self) -> Option<u16> {
        u16_at(self.value, 0)
    }

    pub fn u32(&self) -> Option<u32> {
        u32_at(self.value, 0)
    }

    /// A string up to its terminating zero byte; `None` if it is not UTF-8.
    pub fn text(&self) -> Option<&'a str> {
        std::str::from_utf8(self.value.split(|byte| *byte == 0).next()?).ok()
    }

    pub fn nested(&self) -> Attributes<'a> {
        Attributes(self.value)
    }
}

/// A run of attributes; it ends where a length makes no sense.
pub(crate) struct Attributes<'a>(pub &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = u16_at(self.0, 0)?;
        let (attribute, rest) = split_aligned(self.0, usize::from(length))?;
        self.0 = rest;
        Some(Attribute { kind: u16_at(attribute, 2)? & NLA_TYPE_MASK, value: attribute.get(4..)? })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use netlink_packet_core::{NLA_F_NESTED, NLMSG_ERROR};

    pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

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
        let outer = Attributes(messages[0].payload).next().unwrap();
        assert_eq!(outer.kind, 18);
        let nested: Vec<_> = outer.nested().collect();
        assert_eq!(nested[0].text(), Some("veth"));
        assert_eq!(nested[1].u32(), Some(5));
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
                let _ = (item.errno(), item.explanation(), Attributes(item.payload).count());
            }
        }
        for end in 0..good.len() {
            assert!(Messages(&good[..end]).all(|message| message.is_err()), "cut at {end}");
        }
        for length in [0u16, 3, 5, u16::MAX] {
            let mut bytes = attribute(3, b"");
            bytes[..2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(Attributes(&bytes).count(), 0, "length {length}");
        }
    }
}
