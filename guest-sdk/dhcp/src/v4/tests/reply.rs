//! Packets of servers, for tests.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The hardware address of the client.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x50];

/// A packet of a server, written byte by byte, so that the tests don't repeat mistakes of the library under test.
#[derive(Clone, Debug)]
pub struct Reply {
    pub xid: u32,
    address: Ipv4Addr,
    options: BTreeMap<u8, Vec<u8>>,
}

impl Reply {
    fn new(kind: u8, address: &str) -> Self {
        Self { xid: 7, address: address.parse().unwrap(), options: BTreeMap::new() }
            .raw(53, &[kind])
            .raw(54, &[10, 5, 0, 1])
    }

    /// Returns an ACK of the server 10.5.0.1: `address` for 120 s, in a network of 24 bits.
    pub fn ack(address: &str) -> Self {
        Self::new(5, address).raw(51, &120_u32.to_be_bytes()).raw(1, &[255, 255, 255, 0])
    }

    /// Returns an offer with the same data as [`Reply::ack`].
    pub fn offer(address: &str) -> Self {
        Self::ack(address).raw(53, &[2])
    }

    /// Returns a refusal.
    pub fn nak() -> Self {
        Self::new(6, "0.0.0.0")
    }

    pub fn xid(self, xid: u32) -> Self {
        Self { xid, ..self }
    }

    /// Sets an option to these bytes.
    pub fn raw(mut self, code: u8, data: &[u8]) -> Self {
        self.options.insert(code, data.to_vec());
        self
    }

    pub fn number(self, code: u8, number: u32) -> Self {
        self.raw(code, &number.to_be_bytes())
    }

    pub fn without(mut self, code: u8) -> Self {
        self.options.remove(&code);
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.with_fields(&[], &[])
    }

    /// Returns the packet with bytes in `sname` and `file`.
    pub fn with_fields(&self, sname: &[u8], file: &[u8]) -> Vec<u8> {
        let mut bytes = vec![2, 1, 6, 0];
        bytes.extend(self.xid.to_be_bytes());
        bytes.extend([0; 8]);
        bytes.extend(self.address.octets());
        bytes.extend([0; 8]);
        bytes.extend(MAC);
        bytes.extend([0; 10]);
        bytes.extend(sname.iter().copied().chain(std::iter::repeat(0)).take(64));
        bytes.extend(file.iter().copied().chain(std::iter::repeat(0)).take(128));
        bytes.extend([99, 130, 83, 99]);
        for (code, data) in &self.options {
            // An option without data has one empty part.
            let parts: Vec<&[u8]> = if data.is_empty() { vec![&[]] } else { data.chunks(255).collect() };
            for part in parts {
                bytes.extend([*code, u8::try_from(part.len()).unwrap()]);
                bytes.extend(part);
            }
        }
        bytes.push(255);
        bytes
    }
}
