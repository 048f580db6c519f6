//! A packet of a server.
//!
//! An invalid packet is always ignored: no unreadable packet can end a lease.

use dhcproto::v4::borrowed::{DhcpOptionIterator, Message};
use dhcproto::v4::{DhcpOption, MAGIC, Opcode, OptionCode, encode_long_opt_bytes};
use dhcproto::{Decodable as _, Decoder, Encoder};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The type of a server's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Offer,
    Ack,
    Nak,
}

/// A packet of a server, to this client.
#[derive(Debug)]
pub struct Packet {
    pub kind: Kind,
    /// The transaction.
    pub xid: u32,
    /// `yiaddr`: the address for the client.
    pub address: Ipv4Addr,
    /// The identifier of the server, which is also its address. A packet without this identifier is ignored.
    pub server: Ipv4Addr,
    options: Options,
}

impl Packet {
    /// Reads a UDP payload. `None` if the packet isn't for this client, or if a server must not send such a packet.
    pub fn read(payload: &[u8], mac: [u8; 6]) -> Option<Self> {
        let message = Message::new(payload).ok()?;
        let is_ours = message.opcode() == Opcode::BootReply
            // `chaddr` slices by this length, so the length is checked first.
            && usize::from(message.hlen()) == mac.len()
            && message.chaddr() == mac.as_slice()
            && payload.get(MAGIC_AT..OPTIONS_AT)? == MAGIC.as_slice();
        if !is_ours {
            return None;
        }
        let options = Options::read(payload);
        let kind = match options.get(53)? {
            [2] => Kind::Offer,
            [5] => Kind::Ack,
            [6] => Kind::Nak,
            _ => return None,
        };
        let server = options.address(54).filter(|server| super::is_usable(*server))?;
        Some(Self { kind, xid: message.xid(), address: message.yiaddr(), server, options })
    }

    /// Returns an option, read by `dhcproto`. `None` if it is absent, or has no valid value.
    pub fn option(&self, code: OptionCode) -> Option<DhcpOption> {
        let data = self.options.get(code.into())?;
        let mut bytes = Vec::with_capacity(data.len() + 2);
        encode_long_opt_bytes(code, data, &mut Encoder::new(&mut bytes)).ok()?;
        DhcpOption::decode(&mut Decoder::new(&bytes)).ok()
    }

    /// Returns the bytes of an option.
    pub fn bytes(&self, code: OptionCode) -> Option<&[u8]> {
        self.options.get(code.into())
    }

    /// Returns an option that is a number of 32 bits. `None` also if its length is wrong.
    pub fn number(&self, code: OptionCode) -> Option<u32> {
        self.options.get(code.into())?.try_into().ok().map(u32::from_be_bytes)
    }
}

/// The byte positions of the fields in a message.
const SNAME: std::ops::Range<usize> = 44..108;
const FILE: std::ops::Range<usize> = 108..236;
const MAGIC_AT: usize = 236;
const OPTIONS_AT: usize = 240;

/// The options of a message, each with all of its bytes.
#[derive(Debug, Default)]
struct Options(BTreeMap<u8, Vec<u8>>);

impl Options {
    /// Collects the options. The parts of one option are joined (RFC 3396): first the parts in the options field, then
    /// the parts in `file` and `sname`. These two fields have options only if option 52 says so.
    fn read(payload: &[u8]) -> Self {
        let mut options = Self::default();
        options.add(payload.get(OPTIONS_AT..).unwrap_or_default());
        let (file, sname) = match options.get(52) {
            Some([1]) => (true, false),
            Some([2]) => (false, true),
            Some([3]) => (true, true),
            _ => (false, false),
        };
        for (_, field) in [(file, FILE), (sname, SNAME)].into_iter().filter(|(has_options, _)| *has_options) {
            options.add(payload.get(field).unwrap_or_default());
        }
        options
    }

    /// Adds the options of one field. Reading stops at the end mark, or at an option that the field cuts off.
    fn add(&mut self, field: &[u8]) {
        for option in DhcpOptionIterator::new(field) {
            self.0.entry(option.code().into()).or_default().extend_from_slice(option.data());
        }
    }

    fn get(&self, code: u8) -> Option<&[u8]> {
        self.0.get(&code).map(Vec::as_slice)
    }

    fn address(&self, code: u8) -> Option<Ipv4Addr> {
        <[u8; 4]>::try_from(self.get(code)?).ok().map(Ipv4Addr::from)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MAC, Reply};
    use super::*;

    #[test]
    fn a_reply_to_this_client_is_read() {
        let packet = Packet::read(&Reply::ack("10.5.0.50").bytes(), MAC).unwrap();
        assert_eq!((packet.kind, packet.address.to_string().as_str()), (Kind::Ack, "10.5.0.50"));
        assert_eq!(packet.server.to_string(), "10.5.0.1");
        assert_eq!(packet.number(OptionCode::AddressLeaseTime), Some(120));
    }

    #[test]
    fn packets_for_others_and_nonsense_are_not() {
        let good = Reply::ack("10.5.0.50").bytes();
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            bytes
        };
        for (what, bytes) in [
            ("a request", changed(0, 1)),
            ("another station", changed(33, 0xff)),
            // dhcproto's own reader panics at a hardware address that is longer than the field `chaddr`.
            ("a long hardware address", changed(2, 255)),
            ("a short hardware address", changed(2, 5)),
            ("no magic cookie", changed(236, 0)),
            ("no options", good[..240].to_vec()),
            ("a cut header", good[..239].to_vec()),
            ("nothing", Vec::new()),
        ] {
            assert!(Packet::read(&bytes, MAC).is_none(), "{what}");
        }
        for kind in [1, 3, 4, 7, 8, 0, 255] {
            assert!(Packet::read(&Reply::ack("10.5.0.50").raw(53, &[kind]).bytes(), MAC).is_none(), "type {kind}");
        }
        assert!(Packet::read(&Reply::ack("10.5.0.50").raw(53, &[5, 5]).bytes(), MAC).is_none());
    }

    #[test]
    fn a_server_must_say_who_it_is() {
        for server in [&[][..], &[10, 5, 0], &[10, 5, 0, 1, 9], &[0, 0, 0, 0], &[255, 255, 255, 255], &[127, 0, 0, 1]] {
            assert!(Packet::read(&Reply::ack("10.5.0.50").raw(54, server).bytes(), MAC).is_none(), "{server:?}");
        }
        assert!(Packet::read(&Reply::ack("10.5.0.50").without(54).bytes(), MAC).is_none());
    }

    #[test]
    fn options_are_found_in_all_three_fields() {
        // The parts of option 6 are in the options, in `file` and in `sname`, in this order.
        let reply = Reply::ack("10.5.0.50").raw(6, &[10, 0, 0, 1]).raw(52, &[3]);
        let bytes = reply.with_fields(&[6, 4, 10, 0, 0, 3, 255], &[0, 6, 4, 10, 0, 0, 2, 255]);
        let packet = Packet::read(&bytes, MAC).unwrap();
        assert_eq!(packet.bytes(OptionCode::DomainNameServer).unwrap(), [10, 0, 0, 1, 10, 0, 0, 2, 10, 0, 0, 3]);
        // Without option 52, `file` and `sname` have the meaning that BOOTP gives them.
        let bytes = Reply::ack("10.5.0.50").with_fields(&[6, 4, 10, 0, 0, 3, 255], &[6, 4, 10, 0, 0, 2, 255]);
        assert!(Packet::read(&bytes, MAC).unwrap().bytes(OptionCode::DomainNameServer).is_none());
    }

    #[test]
    fn long_options_are_joined() {
        let servers = [10, 0, 0, 1].repeat(100);
        let packet = Packet::read(&Reply::ack("10.5.0.50").raw(6, &servers).bytes(), MAC).unwrap();
        let Some(DhcpOption::DomainNameServer(read)) = packet.option(OptionCode::DomainNameServer) else { panic!() };
        assert_eq!(read.len(), 100);
    }

    #[test]
    fn an_option_that_is_cut_off_ends_the_list() {
        let mut bytes = Reply::ack("10.5.0.50").bytes();
        let end = bytes.iter().rposition(|byte| *byte == 255).unwrap();
        bytes.truncate(end);
        bytes.extend([6, 200, 10, 0, 0, 1]);
        let packet = Packet::read(&bytes, MAC).unwrap();
        assert!(packet.bytes(OptionCode::DomainNameServer).is_none());
        assert_eq!(packet.number(OptionCode::AddressLeaseTime), Some(120));
    }
}
