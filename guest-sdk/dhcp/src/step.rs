//! The messages between the DHCP service and the client in the sandbox.
//!
//! The service keeps no state of the protocol. For each event it starts a sandbox process, gives it one [`Input`] as
//! JSON, and gets one [`Output`]. Then the service sends the packets, sets the timer, and keeps [`Output::state`] for
//! the next event.
//!
//! Times are milliseconds. [`Input::now_ms`] is a clock of this lease. The service ensures that this clock never goes
//! back, even after a reboot.

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::net::{IpAddr, Ipv4Addr};

/// One event for one lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The client that asks for a lease.
    pub client: Client,
    /// The state from the last step; `None` for a new lease.
    pub state: Option<State>,
    /// The event.
    pub event: Event,
    /// The time.
    pub now_ms: u64,
    /// A random number, different for each step.
    pub random: u64,
}

/// The client that asks for a lease. Every step of a lease gets an equal client, except for [`Client::mac`], the link's
/// present address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// 4 for DHCP, 6 for DHCPv6.
    pub family: u8,
    /// The value of option 61 with its type byte, see [`client_id`](crate::client_id). For DHCPv6 it is the DUID.
    pub id: Hex,
    /// The hardware address of the link.
    pub mac: [u8; 6],
    /// The configuration of the network, as the plugin got it.
    pub configuration: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// True if servers must broadcast their answers, because the link accepts only frames for addresses that it already
    /// has (ipvlan).
    #[serde(default)]
    pub broadcast: bool,
    /// The times to wait for answers.
    #[serde(default)]
    pub timeouts: Timeouts,
}

/// The times to wait for answers. The defaults are those of the native daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// The time to wait for the answer to a request, before the search begins again (`-timeout`).
    pub request_ms: u64,
    /// The longest wait between two packets of an exchange (`-resendmax`).
    pub resend_max_ms: u64,
    /// The time in which a lease must have been acquired (`-resendtimeout`).
    pub resend_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { request_ms: 10_000, resend_max_ms: 62_000, resend_ms: 208_000 }
    }
}

/// The state of a lease. Only the client reads it. The service stores it unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct State(pub serde_json::Value);

/// The event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A lease is wanted. The earlier state is forgotten.
    Start {
        /// The address of an earlier lease of this client. The client asks for this address first.
        previous: Option<Ipv4Addr>,
    },
    /// A packet for the client came over the link.
    Packet {
        /// The UDP payload, or for IPv6 also the ICMPv6 message of a router advertisement.
        payload: Payload,
        /// The address of the sender. It may be forged.
        from: IpAddr,
    },
    /// The time of [`Output::wake_ms`] has come.
    Timer,
    /// Another station uses the address of the lease.
    Conflict,
    /// The lease is given back.
    Release,
    /// The service was started again: timers are set anew.
    Resume,
}

/// The tasks for the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The state for the next step.
    pub state: State,
    /// The packets to send, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub send: Vec<Send>,
    /// The time until [`Event::Timer`], from now. It replaces the timer of the last step. `None` means no timer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_ms: Option<u64>,
    /// The outcome of the lease, if this step decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// A packet to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// The UDP payload.
    pub payload: Payload,
    /// The receiver.
    pub to: To,
}

/// The receiver of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum To {
    /// To all servers of the link. DHCPv6 uses its multicast address.
    Broadcast,
    /// To one server.
    Unicast(IpAddr),
}

/// The outcome of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A server has given the lease.
    Bound {
        /// The lease.
        lease: Lease,
        /// True if the service must first ask the link who has the address. [`Event::Conflict`] reports that another
        /// station has the address.
        probe: bool,
    },
    /// The lease was renewed. Its addresses are those of [`Outcome::Bound`].
    Kept {
        /// The present lease.
        lease: Lease,
    },
    /// The address must no longer be used. The service sets the link down. No timer follows.
    Lost {
        /// The reason: expired, taken back, another address.
        reason: String,
    },
    /// No lease could be acquired. No timer follows.
    Failed {
        /// The reason.
        reason: String,
    },
    /// The lease was given back.
    Ended,
}

/// A lease, in the terms of CNI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The addresses: one for each family.
    pub addresses: Vec<LeaseAddress>,
    /// The routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<LeaseRoute>,
    /// Name resolution, where the configuration requests it.
    #[serde(default, skip_serializing_if = "LeaseDns::is_empty")]
    pub dns: LeaseDns,
    /// The MTU of the link, where the configuration requests it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The server that gave the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<IpAddr>,
    /// The length of the lease, in seconds; [`INFINITE`] for an endless lease.
    pub seconds: u32,
    /// The time of the renewal, in seconds from the beginning of the lease.
    pub t1: u32,
    /// The time when the client asks every server for a renewal, in seconds from the beginning of the lease.
    pub t2: u32,
}

/// [`Lease::seconds`] of a lease that never ends.
pub const INFINITE: u32 = u32::MAX;

/// An address of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseAddress {
    /// The address with its prefix length.
    pub address: IpNet,
    /// The first router that the server names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// A route of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRoute {
    /// The destination, without host bits.
    pub dst: IpNet,
    /// The next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// The scope, in rtnetlink's numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
    /// `ipam.priority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
}

/// Name resolution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseDns {
    /// The addresses of name servers, by preference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<IpAddr>,
    /// The local domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The domains to search, by preference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
}

impl LeaseDns {
    /// True if nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The payload of a packet. JSON has it as base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload(pub Vec<u8>);

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use base64::Engine as _;
        serializer.serialize_str(&base64::engine::general_purpose::STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use base64::Engine as _;
        let text = String::deserialize(deserializer)?;
        base64::engine::general_purpose::STANDARD.decode(text).map(Self).map_err(de::Error::custom)
    }
}

/// Bytes that people read. JSON has them in hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hex(pub Vec<u8>);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&digits)
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || de::Error::custom("expected an even number of hexadecimal digits");
        let digits: Option<Vec<u8>> =
            text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
        let digits = digits.filter(|digits| digits.len() % 2 == 0).ok_or_else(wrong)?;
        let byte = |pair: &[u8]| pair.iter().fold(0, |byte, digit| byte << 4 | digit);
        Ok(Self(digits.chunks(2).map(byte).collect()))
    }
}
