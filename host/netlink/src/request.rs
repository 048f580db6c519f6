//! Requests, before they are sent.

use crate::message::HEADER;
use netlink_packet_core::{Emitable, NLM_F_REQUEST, NetlinkHeader, NetlinkSerializable};

/// A message that is ready to be sent; only its sequence number is missing.
#[derive(Clone, Debug)]
pub struct NetlinkRequest {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) payload: Vec<u8>,
}

impl NetlinkRequest {
    /// Makes a request of a message from the netlink-packet crates. `NLM_F_REQUEST` is added to the flags.
    pub fn new(message: &impl NetlinkSerializable, flags: u16) -> Self {
        let mut payload = vec![0; message.buffer_len()];
        message.serialize(&mut payload);
        Self::raw(message.message_type(), flags, payload)
    }

    /// Makes a request of a message for which the netlink-packet crates have no type.
    #[must_use]
    pub fn raw(kind: u16, flags: u16, payload: Vec<u8>) -> Self {
        Self { kind, flags: flags | NLM_F_REQUEST, payload }
    }

    /// Returns type, flags and payload.
    #[must_use]
    pub fn parts(&self) -> (u16, u16, &[u8]) {
        (self.kind, self.flags, &self.payload)
    }

    /// Appends the message with this sequence number, padded to four bytes.
    pub(crate) fn append_to(&self, datagram: &mut Vec<u8>, sequence: u32) {
        let mut header = NetlinkHeader::default();
        header.length = u32::try_from(HEADER.saturating_add(self.payload.len())).unwrap_or(u32::MAX);
        header.message_type = self.kind;
        header.flags = self.flags;
        header.sequence_number = sequence;
        let mut bytes = [0; HEADER];
        header.emit(&mut bytes);
        datagram.extend(bytes);
        datagram.extend(&self.payload);
        datagram.resize(datagram.len().next_multiple_of(4), 0);
    }
}

/// A refusal of one of several requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    /// The index of the request.
    pub request: usize,
    /// errno(3).
    pub errno: i32,
}
