//! Packets of the client.

use crate::config::Options;
use crate::{Client, Payload, Send, To};
use dhcproto::v4::{DhcpOption, DhcpOptions, MAGIC, MessageType, OptionCode, UnknownOption};
use dhcproto::{Encodable as _, Encoder};
use std::net::Ipv4Addr;

/// The content of a packet. The fields follow table 5 of RFC 2131.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// `ciaddr`: the client's own address, at which it can be reached.
    pub own: Option<Ipv4Addr>,
    /// Option 50: the address that the client wants.
    pub wanted: Option<Ipv4Addr>,
    /// Option 54: the server that the packet is for.
    pub server: Option<Ipv4Addr>,
    pub xid: u32,
    /// Seconds since the client began.
    pub seconds: u64,
}

/// The shortest message of BOOTP. Some servers and relays drop shorter messages.
const SHORTEST: usize = 300;

/// The largest message that the client takes, by option 57.
const LARGEST: u16 = 1500;

impl Request {
    /// Makes a packet for all servers of the link.
    pub fn broadcast(self, kind: MessageType, client: &Client, options: &Options) -> Send {
        Send { payload: self.payload(kind, client, options), to: To::Broadcast }
    }

    /// Makes a packet for one server.
    pub fn unicast(self, kind: MessageType, client: &Client, options: &Options, server: Ipv4Addr) -> Send {
        Send { payload: self.payload(kind, client, options), to: To::Unicast(server.into()) }
    }

    fn payload(self, kind: MessageType, client: &Client, options: &Options) -> Payload {
        // dhcproto's type for a whole message draws a random number, and this client has no randomness.
        let (request, ethernet, hardware_length, hops) = (1, 1, 6, 0);
        let mut bytes = vec![request, ethernet, hardware_length, hops];
        bytes.extend(self.xid.to_be_bytes());
        bytes.extend(u16::try_from(self.seconds).unwrap_or(u16::MAX).to_be_bytes());
        // A client that already has an address can be reached at that address.
        let wants_broadcast = client.broadcast && self.own.is_none();
        bytes.extend(if wants_broadcast { [0x80, 0] } else { [0, 0] });
        bytes.extend(self.own.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
        // `yiaddr`, `siaddr`, `giaddr`, the hardware address with its padding, `sname` and `file`.
        bytes.extend([0; 12]);
        bytes.extend(client.mac);
        bytes.extend([0; 10 + 64 + 128]);
        bytes.extend(MAGIC);
        bytes.extend(self.options(kind, client, options));
        bytes.resize(bytes.len().max(SHORTEST), 0);
        Payload(bytes)
    }

    fn options(self, kind: MessageType, client: &Client, options: &Options) -> Vec<u8> {
        let mut all = DhcpOptions::new();
        // DECLINE and RELEASE have no parameters (RFC 2131, table 5).
        if matches!(kind, MessageType::Discover | MessageType::Request) {
            for (code, data) in &options.provide {
                all.insert(unknown(*code, data));
            }
            if !options.request.is_empty() {
                all.insert(DhcpOption::ParameterRequestList(
                    options.request.iter().copied().map(OptionCode::from).collect(),
                ));
            }
            all.insert(DhcpOption::MaxMessageSize(LARGEST));
        }
        all.insert(DhcpOption::MessageType(kind));
        all.insert(DhcpOption::ClientIdentifier(client.id.0.clone()));
        if let Some(wanted) = self.wanted {
            all.insert(DhcpOption::RequestedIpAddress(wanted));
        }
        if let Some(server) = self.server {
            all.insert(DhcpOption::ServerIdentifier(server));
        }
        let mut bytes = Vec::new();
        // Writing these options can't fail: all lengths were checked when the configuration was read.
        let _ = all.encode(&mut Encoder::new(&mut bytes));
        bytes
    }
}

/// An option from the operator, with its text unchanged.
fn unknown(code: u8, data: &[u8]) -> DhcpOption {
    DhcpOption::Unknown(UnknownOption::new(OptionCode::from(code), data.to_vec()))
}
