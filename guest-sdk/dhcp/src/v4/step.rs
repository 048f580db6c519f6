//! One step: from an event and a state to packets, a timer and the next state.

use super::packet::Packet;
use super::state::Phase;
use super::{acquire, keep};
use crate::exchange::{Context, Next};
use crate::{Event, Input, Outcome, Output};

/// Takes one step.
pub fn step(input: &Input) -> Output {
    let (context, refusal) = Context::new(input);
    let next = match (&input.event, refusal) {
        // Only the start fails with an invalid configuration. An existing lease is kept.
        (Event::Start { .. }, Some(error)) => ended(Outcome::Failed { reason: error.msg }),
        (Event::Start { previous }, None) => acquire::start(&context, *previous),
        (event, _) => match Phase::read(input.state.as_ref()) {
            Ok(phase) => on(&context, event, phase),
            Err(_) if *event == Event::Release => ended(Outcome::Ended),
            Err(reason) => ended(Outcome::Lost { reason }),
        },
    };
    let wake_ms = due(&context, &next.phase).map(|due| due.saturating_sub(context.now));
    Output { state: next.phase.write(), send: next.send, wake_ms, outcome: next.outcome }
}

fn on(context: &Context<'_>, event: &Event, phase: Phase) -> Next<Phase> {
    match event {
        Event::Start { .. } => Next::of(phase),
        Event::Packet { payload, .. } => match Packet::read(&payload.0, context.client.mac) {
            None => Next::of(phase),
            Some(packet) if phase.held().is_some() => keep::packet(context, phase, &packet),
            Some(packet) => acquire::packet(context, phase, &packet),
        },
        Event::Timer | Event::Resume if phase.held().is_some() => keep::timer(context, phase),
        Event::Timer | Event::Resume => acquire::timer(context, phase),
        Event::Conflict => keep::conflict(context, phase),
        Event::Release => keep::give_back(context, &phase, Outcome::Ended),
    }
}

/// Ends the lease, or the search for it.
pub fn ended(outcome: Outcome) -> Next<Phase> {
    Next::of(Phase::Ended).deciding(outcome)
}

/// Returns the time of the next timer.
fn due(context: &Context<'_>, phase: &Phase) -> Option<u64> {
    match phase {
        Phase::Selecting { acquisition, exchange, .. } | Phase::Rebooting { acquisition, exchange, .. } => {
            Some(exchange.next.min(context.deadline(acquisition)))
        }
        Phase::Requesting { acquisition, exchange, .. } => {
            Some(exchange.next.min(context.answer_by(*exchange)).min(context.deadline(acquisition)))
        }
        Phase::Waiting { acquisition, until } => Some((*until).min(context.deadline(acquisition))),
        Phase::Bound { held, .. } if held.is_endless() => None,
        // A clock that went back must not make the lease longer.
        Phase::Bound { held, .. } => Some(held.at(held.t1).min(context.now.saturating_add(u64::from(held.t1) * 1000))),
        Phase::Renewing { held, exchange } => Some(exchange.next.min(held.at(held.t2))),
        Phase::Rebinding { held, exchange } => Some(exchange.next.min(held.at(held.seconds))),
        Phase::Ended => None,
    }
}
