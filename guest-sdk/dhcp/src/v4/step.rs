//! One step: from an event and a state to packets, a timer and the next state.

use super::packet::Packet;
use super::state::{Acquisition, Exchange, Phase};
use super::timing::wait;
use super::{acquire, keep};
use crate::config::Options;
use crate::{Client, Event, Input, Outcome, Output, Send};

/// Takes one step.
pub fn step(input: &Input) -> Output {
    let client = &input.client;
    let (options, refusal) = match Options::read(&client.configuration, &client.args) {
        Ok(options) => (options, None),
        Err(error) => (Options::none(), Some(error)),
    };
    let context = Context { client, options, now: input.now_ms, random: input.random };
    let next = match (&input.event, refusal) {
        // A lease that is held is kept, whatever has become of its configuration.
        (Event::Start { .. }, Some(error)) => Next::ended(Outcome::Failed { reason: error.msg }),
        (Event::Start { previous }, None) => acquire::start(&context, *previous),
        (event, _) => match Phase::read(input.state.as_ref()) {
            Ok(phase) => context.on(event, phase),
            Err(_) if *event == Event::Release => Next::ended(Outcome::Ended),
            Err(reason) => Next::ended(Outcome::Lost { reason }),
        },
    };
    next.output(&context)
}

/// What a step needs to know.
pub struct Context<'a> {
    pub client: &'a Client,
    pub options: Options,
    pub now: u64,
    pub random: u64,
}

impl Context<'_> {
    fn on(&self, event: &Event, phase: Phase) -> Next {
        match event {
            Event::Start { .. } => Next::of(phase),
            Event::Packet { payload, .. } => match Packet::read(&payload.0, self.client.mac) {
                None => Next::of(phase),
                Some(packet) if phase.held().is_some() => keep::packet(self, phase, &packet),
                Some(packet) => acquire::packet(self, phase, &packet),
            },
            Event::Timer | Event::Resume if phase.held().is_some() => keep::timer(self, phase),
            Event::Timer | Event::Resume => acquire::timer(self, phase),
            Event::Conflict => keep::conflict(self, phase),
            Event::Release => keep::release(self, &phase),
        }
    }

    /// Returns a new transaction identifier.
    pub fn xid(&self) -> u32 {
        let [a, b, c, d, ..] = self.random.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// Returns a new exchange, whose first packet is sent now. `number` says how many were sent with it, in all
    /// exchanges of its kind.
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

    fn answer_by(&self, exchange: Exchange) -> u64 {
        exchange.first.saturating_add(self.client.timeouts.request_ms)
    }

    /// Returns the time by which there must be a lease.
    pub fn deadline(&self, acquisition: &Acquisition) -> u64 {
        acquisition.began.saturating_add(self.client.timeouts.resend_ms)
    }

    /// Returns the seconds since then.
    pub fn seconds_since(&self, then: u64) -> u64 {
        self.now.saturating_sub(then) / 1000
    }

    /// Returns the time of the next timer.
    fn due(&self, phase: &Phase) -> Option<u64> {
        match phase {
            Phase::Selecting { acquisition, exchange, .. } | Phase::Rebooting { acquisition, exchange, .. } => {
                Some(exchange.next.min(self.deadline(acquisition)))
            }
            Phase::Requesting { acquisition, exchange, .. } => {
                Some(exchange.next.min(self.answer_by(*exchange)).min(self.deadline(acquisition)))
            }
            Phase::Waiting { acquisition, until } => Some((*until).min(self.deadline(acquisition))),
            Phase::Bound { held, .. } if held.is_endless() => None,
            // A clock that went back must not make the lease longer.
            Phase::Bound { held, .. } => Some(held.at(held.t1).min(self.now.saturating_add(u64::from(held.t1) * 1000))),
            Phase::Renewing { held, exchange } => Some(exchange.next.min(held.at(held.t2))),
            Phase::Rebinding { held, exchange } => Some(exchange.next.min(held.at(held.seconds))),
            Phase::Ended => None,
        }
    }
}

/// What follows of an event.
pub struct Next {
    phase: Phase,
    send: Vec<Send>,
    outcome: Option<Outcome>,
}

impl Next {
    /// Goes to a phase, and nothing else.
    pub fn of(phase: Phase) -> Self {
        Self { phase, send: Vec::new(), outcome: None }
    }

    /// Ends.
    pub fn ended(outcome: Outcome) -> Self {
        Self::of(Phase::Ended).deciding(outcome)
    }

    /// Adds a packet.
    pub fn sending(mut self, send: Send) -> Self {
        self.send.push(send);
        self
    }

    /// Adds what has become of the lease.
    pub fn deciding(self, outcome: Outcome) -> Self {
        Self { outcome: Some(outcome), ..self }
    }

    fn output(self, context: &Context<'_>) -> Output {
        let wake_ms = context.due(&self.phase).map(|due| due.saturating_sub(context.now));
        Output { state: self.phase.write(), send: self.send, wake_ms, outcome: self.outcome }
    }
}
