//! Packets of the DHCPv6 client.

use super::IAID;
use crate::{Payload, Send, To};
use std::net::Ipv6Addr;

/// The kinds of messages (RFC 8415, 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Solicit = 1,
    Request = 3,
    Renew = 5,
    Rebind = 6,
    Release = 8,
    Decline = 9,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub kind: Kind,
    /// The transaction: 24 bits.
    pub xid: u32,
    /// The identifier of the client.
    pub client: &'a [u8],
    /// The server that the packet is for.
    pub server: Option<&'a [u8]>,
    /// The address of the association.
    pub address: Option<Ipv6Addr>,
    /// The options to ask for.
    pub wanted: &'a [u16],
    /// Time since the exchange began.
    pub elapsed_ms: u64,
}

impl Request<'_> {
    /// Makes the packet.
    pub fn send(self) -> Send {
        let [_, x, y, z] = self.xid.to_be_bytes();
        let mut bytes = vec![self.kind as u8, x, y, z];
        option(&mut bytes, 1, self.client);
        if let Some(server) = self.server {
            option(&mut bytes, 2, server);
        }
        option(&mut bytes, 3, &self.association());
        if !self.wanted.is_empty() {
            let codes: Vec<u8> = self.wanted.iter().flat_map(|code| code.to_be_bytes()).collect();
            option(&mut bytes, 6, &codes);
        }
        let hundredths = u16::try_from(self.elapsed_ms / 10).unwrap_or(u16::MAX);
        option(&mut bytes, 8, &hundredths.to_be_bytes());
        Send { payload: Payload(bytes), to: To::Broadcast }
    }

    /// Returns the identity association. The server decides T1, T2 and lifetimes.
    fn association(&self) -> Vec<u8> {
        let mut bytes = IAID.to_be_bytes().to_vec();
        bytes.extend([0; 8]);
        if let Some(address) = self.address {
            let mut inner = address.octets().to_vec();
            inner.extend([0; 8]);
            option(&mut bytes, 5, &inner);
        }
        bytes
    }
}

/// Adds an option. All of the client's options are shorter than 64 KiB; a longer option is left out.
fn option(bytes: &mut Vec<u8>, code: u16, data: &[u8]) {
    let Ok(length) = u16::try_from(data.len()) else { return };
    bytes.extend(code.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend(data);
}
