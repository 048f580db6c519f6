//! The common part of DHCP and DHCPv6: the search for a lease, transactions, and the outcome of an event.

use crate::config::Options;
use crate::timing::{SHORTEST, wait};
use crate::{Client, INFINITE, Input, Outcome, Send};
use postern_cni::Error;
use serde::{Deserialize, Serialize};

/// The search for a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acquisition {
    /// The time when the search began.
    pub began: u64,
    /// The number of searches for servers.
    pub tries: u32,
    /// The last problem, as a text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl Acquisition {
    /// Begins a search.
    pub fn new(now: u64) -> Self {
        Self { began: now, tries: 0, trouble: None }
    }

    /// Counts another try.
    pub fn again(self) -> Self {
        Self { tries: self.tries.saturating_add(1), ..self }
    }

    /// Notes the last problem.
    pub fn in_trouble(self, trouble: String) -> Self {
        Self { trouble: Some(trouble), ..self }
    }
}

/// Packets of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// The transaction identifier.
    pub xid: u32,
    /// The time of the first packet. A lease counts from this time.
    pub first: u64,
    /// The time of the next packet.
    pub next: u64,
    /// The number of sent packets.
    pub sent: u32,
}

/// A lease: `N` is the address with its network, `S` identifies the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held<N, S> {
    /// The address on the link.
    pub address: N,
    /// The server that gave the lease.
    pub server: S,
    /// The time when the lease began.
    pub since: u64,
    /// The length, T1 and T2 of the lease, in seconds from `since`.
    pub seconds: u32,
    pub t1: u32,
    pub t2: u32,
}

impl<N, S> Held<N, S> {
    /// Returns the time `seconds` after the beginning of the lease. For an endless lease, this time never comes.
    pub fn at(&self, seconds: u32) -> u64 {
        if self.is_endless() {
            return u64::MAX;
        }
        self.since.saturating_add(u64::from(seconds) * 1000)
    }

    /// True if the lease is endless.
    pub fn is_endless(&self) -> bool {
        self.seconds == INFINITE
    }

    /// True if the times of the lease are in a valid order.
    pub fn is_ordered(&self) -> bool {
        self.t1 > 0 && self.t1 <= self.t2 && self.t2 <= self.seconds && self.seconds >= SHORTEST
    }
}

/// The data for a step.
pub struct Context<'a> {
    pub client: &'a Client,
    pub options: Options,
    pub now: u64,
    pub random: u64,
}

impl<'a> Context<'a> {
    /// Returns the data for a step, and an error if the configuration is invalid. The client keeps an existing lease
    /// even with this error.
    pub fn new(input: &'a Input) -> (Self, Option<Error>) {
        let client = &input.client;
        let (options, refusal) = match Options::read(&client.configuration, &client.args) {
            Ok(options) => (options, None),
            Err(error) => (Options::none(), Some(error)),
        };
        (Self { client, options, now: input.now_ms, random: input.random }, refusal)
    }
}

impl Context<'_> {
    /// Returns a new transaction identifier.
    pub fn xid(&self) -> u32 {
        let [a, b, c, d, ..] = self.random.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// Returns a new exchange whose first packet is sent now. `number` counts the packets of all exchanges of this
    /// kind, including this packet.
    pub fn exchange(&self, number: u32) -> Exchange {
        Exchange { xid: self.xid(), first: self.now, next: self.after(number), sent: 1 }
    }

    /// Returns the exchange after another packet.
    pub fn again(&self, exchange: Exchange, number: u32) -> Exchange {
        Exchange { next: self.after(number), sent: exchange.sent.saturating_add(1), ..exchange }
    }

    fn after(&self, number: u32) -> u64 {
        self.now.saturating_add(wait(number, &self.client.timeouts, self.random))
    }

    /// True if the time for an answer to a request has passed.
    pub fn is_overdue(&self, exchange: Exchange) -> bool {
        self.now >= self.answer_by(exchange)
    }

    /// Returns the time by which a request must have an answer.
    pub fn answer_by(&self, exchange: Exchange) -> u64 {
        exchange.first.saturating_add(self.client.timeouts.request_ms)
    }

    /// Returns the time by which there must be a lease.
    pub fn deadline(&self, acquisition: &Acquisition) -> u64 {
        acquisition.began.saturating_add(self.client.timeouts.resend_ms)
    }

    /// Returns the seconds since the time `then`.
    pub fn seconds_since(&self, then: u64) -> u64 {
        self.now.saturating_sub(then) / 1000
    }

    /// Gives up the search for a lease. `protocol` is the name for people.
    pub fn give_up(&self, acquisition: &Acquisition, protocol: &str) -> Outcome {
        let seconds = self.client.timeouts.resend_ms.div_ceil(1000);
        let tries = acquisition.tries;
        let reason = match &acquisition.trouble {
            None => format!(
                "no more tries: no {protocol} server answered within {seconds} s ({tries} times asked): check that a \
                 server serves the network of this link"
            ),
            Some(trouble) => format!("no more tries within {seconds} s ({tries} times asked): {trouble}"),
        };
        Outcome::Failed { reason }
    }
}

/// The outcome of an event. `P` is the client's next phase.
pub struct Next<P> {
    pub phase: P,
    pub send: Vec<Send>,
    pub outcome: Option<Outcome>,
}

impl<P> Next<P> {
    /// Goes to a phase, without packets and outcome.
    pub fn of(phase: P) -> Self {
        Self { phase, send: Vec::new(), outcome: None }
    }

    /// Adds a packet.
    pub fn sending(mut self, send: Send) -> Self {
        self.send.push(send);
        self
    }

    /// Adds the outcome of the lease.
    pub fn deciding(self, outcome: Outcome) -> Self {
        Self { outcome: Some(outcome), ..self }
    }
}

/// Returns a server's text, without characters that a terminal could obey.
pub fn plain(text: impl IntoIterator<Item = char>) -> Option<String> {
    let text: String = text.into_iter().filter(|c| c.is_ascii_graphic() || *c == ' ').take(80).collect();
    Some(text).filter(|text| !text.is_empty())
}

/// Returns a name that is safe in resolv.conf(5). Any other text of a server could be read as another line.
pub fn domain(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.len() <= 63 && label.bytes().all(plain)
    };
    (name.len() <= 253 && name.split('.').all(is_label)).then(|| name.to_owned())
}
