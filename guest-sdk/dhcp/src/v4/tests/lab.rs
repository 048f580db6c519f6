//! A client whose events, clock and random numbers a test gives.

use super::reply::{MAC, Reply};
use crate::{Client, Event, Hex, Input, Lease, Outcome, Output, Payload, State, Timeouts, To, client_id, step};
use dhcproto::v4::{DhcpOption, Message, MessageType, OptionCode};
use dhcproto::{Decodable as _, Decoder};
use std::net::Ipv4Addr;

/// The address that servers of these tests give.
pub const ADDRESS: &str = "10.5.0.50";

#[derive(Clone)]
pub struct Lab {
    pub client: Client,
    pub state: Option<State>,
    pub now_ms: u64,
    /// The transaction of the last packet that the client sent.
    pub xid: u32,
    random: u64,
}

/// A packet of the client, read by dhcproto.
pub struct Sent {
    pub kind: MessageType,
    pub to: To,
    pub message: Message,
    pub bytes: Vec<u8>,
}

impl Sent {
    pub fn wanted(&self) -> Option<Ipv4Addr> {
        match self.message.opts().get(OptionCode::RequestedIpAddress) {
            Some(DhcpOption::RequestedIpAddress(address)) => Some(*address),
            _ => None,
        }
    }

    pub fn server(&self) -> Option<Ipv4Addr> {
        match self.message.opts().get(OptionCode::ServerIdentifier) {
            Some(DhcpOption::ServerIdentifier(address)) => Some(*address),
            _ => None,
        }
    }
}

impl Lab {
    pub fn new() -> Self {
        Self::with(r#"{"type":"dhcp"}"#, "")
    }

    /// A client of a network with this `ipam`.
    pub fn with(ipam: &str, args: &str) -> Self {
        let client = Client {
            family: 4,
            id: Hex(client_id("abc", "net", "eth0")),
            mac: MAC,
            configuration: format!(r#"{{"cniVersion":"1.0.0","name":"net","type":"macvlan","ipam":{ipam}}}"#),
            args: args.to_owned(),
            broadcast: false,
            timeouts: Timeouts::default(),
        };
        Self { client, state: None, now_ms: 1_000_000, xid: 0, random: 0x0bad_cafe }
    }

    /// A client that has a lease of 120 s: T1 is 60 s, T2 102 s.
    pub fn bound() -> Self {
        let mut lab = Self::new();
        lab.bind();
        lab
    }

    /// A client whose lease was renewed once.
    pub fn kept() -> Self {
        let mut lab = Self::bound();
        lab.later(60_000, Event::Timer);
        let output = lab.reply(&Reply::ack(ADDRESS));
        assert!(matches!(output.outcome, Some(Outcome::Kept { .. })), "{output:?}");
        lab
    }

    pub fn bind(&mut self) -> Lease {
        self.on(Event::Start { previous: None });
        self.reply(&Reply::offer(ADDRESS));
        match self.reply(&Reply::ack(ADDRESS)).outcome {
            Some(Outcome::Bound { lease, .. }) => lease,
            other => panic!("{other:?}"),
        }
    }

    pub fn on(&mut self, event: Event) -> Output {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let state = self.state.take();
        let input = Input { client: self.client.clone(), state, event, now_ms: self.now_ms, random: self.random };
        let output = step(&input);
        self.state = Some(output.state.clone());
        if let Some(sent) = sent(&output).last() {
            self.xid = sent.message.xid();
        }
        output
    }

    pub fn later(&mut self, ms: u64, event: Event) -> Output {
        self.now_ms += ms;
        self.on(event)
    }

    /// Waits for the timer.
    pub fn sleep(&mut self, last: &Output) -> Output {
        self.later(last.wake_ms.unwrap(), Event::Timer)
    }

    /// Gives the client a packet, in the client's last transaction.
    pub fn reply(&mut self, reply: &Reply) -> Output {
        let reply = reply.clone().xid(self.xid);
        self.packet(reply.bytes())
    }

    pub fn packet(&mut self, payload: Vec<u8>) -> Output {
        self.on(Event::Packet { payload: Payload(payload), from: "10.5.0.1".parse().unwrap() })
    }

    /// Returns the client's phase, from the client's state.
    pub fn phase(&self) -> String {
        self.state.as_ref().unwrap().0.get("is").unwrap().as_str().unwrap().to_owned()
    }
}

/// Reads the packets of an output. The host's checks must accept each packet.
pub fn sent(output: &Output) -> Vec<Sent> {
    output.send.iter().map(|send| read(&send.payload.0, send.to)).collect()
}

/// Returns the one packet of an output.
pub fn one(output: &Output) -> Sent {
    let mut all = sent(output);
    assert_eq!(all.len(), 1, "{output:?}");
    all.remove(0)
}

fn read(bytes: &[u8], to: To) -> Sent {
    let message = Message::decode(&mut Decoder::new(bytes)).unwrap();
    assert!((300..=1400).contains(&bytes.len()), "{} bytes", bytes.len());
    assert_eq!(bytes[..4], [1, 1, 6, 0], "BOOTREQUEST, Ethernet");
    assert_eq!((message.chaddr(), &bytes[236..240]), (&MAC[..], &[99, 130, 83, 99][..]));
    assert_eq!((message.yiaddr(), message.giaddr()), (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED));
    Sent { kind: message.opts().msg_type().unwrap(), to, message, bytes: bytes.to_vec() }
}
