//! Netlink attributes as they arrive.
//!
//! Replies are not decoded into netlink-packet-netfilter's types: that prepares an error text for each attribute
//! whether it is needed or not, some 60 µs per rule, and every ADD would pay it for all rules of the node.

/// The attributes in `bytes` as (type, value), up to the first malformed one. (netlink(7), NLA_ALIGN.)
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [length_low, length_high, kind_low, kind_high, ..] = bytes else { return None };
        let length = usize::from(u16::from_ne_bytes([*length_low, *length_high]));
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        // Without NLA_F_NESTED and NLA_F_NET_BYTEORDER.
        Some((u16::from_ne_bytes([*kind_low, *kind_high]) & 0x3fff, value))
    })
}

/// The value of the first attribute of this type.
pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(found, value)| (found == kind).then_some(value))
}

/// A number in network byte order.
pub(crate) fn be32(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

/// A text, without its final NUL. What is no UTF-8 is no name of ours.
pub(crate) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_and_aligns() {
        let bytes = b"\x07\x00\x01\x00ab\x00\xff\x08\x00\x02\x80\x00\x00\x00\x07\x04\x00\x03\x00";
        let found: Vec<_> = attributes(bytes).collect();
        assert_eq!(found, [(1, &b"ab\0"[..]), (2, b"\0\0\0\x07"), (3, b"")]);
        assert_eq!(find(bytes, 1).map(text).as_deref(), Some("ab"));
        assert_eq!(find(bytes, 2).and_then(be32), Some(7));
    }

    #[test]
    fn ends_at_malformed_ones() {
        for bytes in [&b""[..], b"\x04", b"\x03\x00\x01\x00", b"\x00\x00\x00\x00", b"\xff\xff\x01\x00ab"] {
            assert_eq!(attributes(bytes).count(), 0, "{bytes:?}");
        }
    }
}
