//! The messages between the DHCP service and the client in the sandbox.
//!
//! The service keeps no state of the protocol. For each event it starts a sandbox process, gives it one [`Input`] as
//! JSON, and gets one [`Output`]. The service then sends the packets, sets the timer, and keeps [`Output::state`] for
//! the next event.
//!
//! Times are milliseconds. [`Input::now_ms`] is a clock of this lease that never goes back, not even over a reboot: the
//! service sees to that.

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::net::{IpAddr, Ipv4Addr};

/// One event for one lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Who asks for a lease, and how.
    pub client: Client,
    /// What the last step returned; none for a lease that begins.
    pub state: Option<State>,
    /// What has happened.
    pub event: Event,
    /// The time.
    pub now_ms: u64,
    /// A random number, another one for each step.
    pub random: u64,
}

/// Who asks for a lease, and how. The same for all steps of a lease, except that [`Client::mac`] follows the link.
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
    /// Whether servers must broadcast their answers, because the link takes no frame for an address that it does not
    /// have yet (ipvlan).
    #[serde(default)]
    pub broadcast: bool,
    /// How long an answer is waited for.
    #[serde(default)]
    pub timeouts: Timeouts,
}

/// How long an answer is waited for. The defaults are those of the native daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// The wait for the answer to a request, before all begins again (`-timeout`).
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

/// The state of a lease. Only the client reads it. The service keeps it as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct State(pub serde_json::Value);

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A lease is wanted. What was before is forgotten.
    Start {
        /// The address of an earlier lease of the same client: it is asked for first.
        previous: Option<Ipv4Addr>,
    },
    /// A packet came to the client's port of the link.
    Packet {
        /// The UDP payload.
        payload: Payload,
        /// The address of the sender. Nothing proves it.
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

/// What the service has to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The state for the next step.
    pub state: State,
    /// The packets to send, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub send: Vec<Send>,
    /// The time until [`Event::Timer`], from now. It replaces the time of the last step; none: no timer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_ms: Option<u64>,
    /// What has become of the lease, where this step decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// A packet to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// The UDP payload.
    pub payload: Payload,
    /// To whom.
    pub to: To,
}

/// To whom a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum To {
    /// To all servers of the link; by DHCPv6's multicast address for family 6.
    Broadcast,
    /// To one server.
    Unicast(IpAddr),
}

/// What has become of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A server has given the lease.
    Bound {
        /// The lease.
        lease: Lease,
        /// Whether to ask the link first who has the address. [`Event::Conflict`] says that somebody has it.
        probe: bool,
    },
    /// The lease was renewed. Its addresses are those of [`Outcome::Bound`].
    Kept {
        /// The lease as it is now.
        lease: Lease,
    },
    /// The address may not be used any longer. The service sets the link down. No timer follows.
    Lost {
        /// Why: expired, taken back, another address.
        reason: String,
    },
    /// There is no lease to be had. No timer follows.
    Failed {
        /// Why.
        reason: String,
    },
    /// The lease was given back.
    Ended,
}

/// A lease, in words of CNI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The addresses; one.
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
    /// How long the lease lasts, in seconds; [`INFINITE`] for ever.
    pub seconds: u32,
    /// When it is renewed, in seconds from its beginning.
    pub t1: u32,
    /// When any server is asked to renew it, in seconds from its beginning.
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
