//! A packet of a DHCPv6 server. An invalid packet is always ignored.

use super::{IAID, is_usable};
use dhcproto::v6::{DhcpOption, OptionCode};
use dhcproto::{Decodable as _, Decoder};
use std::net::Ipv6Addr;

/// The type of a server's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Advertise,
    Reply,
}

/// Status codes (RFC 8415, 21.13).
pub const SUCCESS: u16 = 0;
pub const NO_BINDING: u16 = 3;

/// The longest identifier of a server (RFC 8415, 11.1), with its type.
const LONGEST_DUID: usize = 130;

/// The most options that are read at one level. A message of 4 KiB could have a thousand options.
const MOST_OPTIONS: usize = 128;

/// A packet of a server, to this client.
#[derive(Debug)]
pub struct Packet<'a> {
    pub kind: Kind,
    /// The transaction: 24 bits.
    pub xid: u32,
    /// The identifier of the server.
    pub server: &'a [u8],
    /// The first status that is not success: of the message, of the association, or of an address.
    pub status: u16,
    /// The text of `status`.
    pub words: &'a [u8],
    /// The address of the association.
    pub address: Option<Address>,
    options: Vec<(u16, &'a [u8])>,
}

/// An address with its lifetimes, and the server's times T1 and T2 for renewals, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub address: Ipv6Addr,
    pub preferred: u32,
    pub valid: u32,
    pub t1: u32,
    pub t2: u32,
}

impl<'a> Packet<'a> {
    /// Reads a UDP payload. `client` is the identifier of this client. `None` if the packet is for another client, or
    /// if it isn't a valid message of a server.
    pub fn read(payload: &'a [u8], client: &[u8]) -> Option<Self> {
        let (header, rest) = payload.split_first_chunk::<4>()?;
        let [kind, x, y, z] = *header;
        let kind = match kind {
            2 => Kind::Advertise,
            7 => Kind::Reply,
            _ => return None,
        };
        let options = split(rest)?;
        if only(&options, 1)? != client {
            return None;
        }
        let server = only(&options, 2).filter(|server| (1..=LONGEST_DUID).contains(&server.len()))?;
        let mut status = Status::default();
        status.note(&options);
        let address = association(&options, &mut status);
        let xid = u32::from_be_bytes([0, x, y, z]);
        Some(Self { kind, xid, server, status: status.code, words: status.words, address, options })
    }

    /// Returns the domains to search, read by `dhcproto`.
    pub fn domains(&self) -> Vec<String> {
        let code = u16::from(OptionCode::DomainSearchList);
        let Some(data) = only(&self.options, code) else { return Vec::new() };
        let Ok(length) = u16::try_from(data.len()) else { return Vec::new() };
        let bytes: Vec<u8> =
            [code.to_be_bytes(), length.to_be_bytes()].concat().into_iter().chain(data.to_vec()).collect();
        match DhcpOption::decode(&mut Decoder::new(&bytes)) {
            Ok(DhcpOption::DomainSearchList(names)) => names.iter().map(|name| name.to_ascii()).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the name servers.
    pub fn name_servers(&self) -> Vec<Ipv6Addr> {
        let data = only(&self.options, OptionCode::DomainNameServers.into()).unwrap_or_default();
        data.as_chunks::<16>().0.iter().map(|bytes| Ipv6Addr::from(*bytes)).collect()
    }
}

/// The first status that is not success.
#[derive(Default)]
struct Status<'a> {
    code: u16,
    words: &'a [u8],
}

impl<'a> Status<'a> {
    fn note(&mut self, options: &[(u16, &'a [u8])]) {
        let found = only(options, 13).and_then(|data| data.split_first_chunk::<2>());
        if let Some((code, words)) = found.filter(|_| self.code == SUCCESS) {
            (self.code, self.words) = (u16::from_be_bytes(*code), words);
        }
    }
}

/// Returns the first valid address of this client's association.
fn association<'a>(options: &[(u16, &'a [u8])], status: &mut Status<'a>) -> Option<Address> {
    let mut found = None;
    for (_, data) in options.iter().filter(|(code, _)| *code == 3) {
        let Some((header, rest)) = data.split_first_chunk::<12>() else { continue };
        let [id, t1, t2] = [0, 1, 2].map(|word| number(header, word));
        let Some(inner) = split(rest).filter(|_| id == IAID) else { continue };
        status.note(&inner);
        for (_, data) in inner.iter().filter(|(code, _)| *code == 5) {
            let Some((header, rest)) = data.split_first_chunk::<24>() else { continue };
            let Some(options) = split(rest) else { continue };
            status.note(&options);
            let (address, times) = header.split_first_chunk::<16>().unwrap_or((&[0; 16], &[]));
            let (preferred, valid) = (number(times, 0), number(times, 1));
            let address = Address { address: Ipv6Addr::from(*address), preferred, valid, t1, t2 };
            // A preferred lifetime above the valid lifetime makes the option invalid (RFC 8415, 21.6).
            if preferred <= valid && is_usable(address.address) && found.is_none() {
                found = Some(address);
            }
        }
    }
    found
}

fn number(bytes: &[u8], word: usize) -> u32 {
    bytes.as_chunks::<4>().0.get(word).map(|bytes| u32::from_be_bytes(*bytes)).unwrap_or_default()
}

/// Splits options. `None` if an option is cut off, or if there are too many.
fn split(mut rest: &[u8]) -> Option<Vec<(u16, &[u8])>> {
    let mut options = Vec::new();
    while !rest.is_empty() {
        let (header, after) = rest.split_first_chunk::<4>()?;
        let [a, b, c, d] = *header;
        let (data, after) = after.split_at_checked(usize::from(u16::from_be_bytes([c, d])))?;
        options.push((u16::from_be_bytes([a, b]), data));
        rest = after;
        if options.len() > MOST_OPTIONS {
            return None;
        }
    }
    Some(options)
}

/// Returns the data of an option that may occur only once.
fn only<'a>(options: &[(u16, &'a [u8])], code: u16) -> Option<&'a [u8]> {
    let mut found = options.iter().filter(|(number, _)| *number == code);
    found.next().filter(|_| found.next().is_none()).map(|(_, data)| *data)
}
