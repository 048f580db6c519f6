//! One step of DHCPv6: from an event and a state to packets, a timer and the next state.

use super::packet::{Kind as Said, NO_BINDING, Packet, SUCCESS};
use super::request::{Kind, Request};
use super::router::{ADVERTISEMENT, Link};
use super::state::{Held, Phase, Saved};
use super::{is_usable, lease};
use crate::exchange::{Acquisition, Context, Exchange, Next, plain};
use crate::timing::{SHORTEST, Times, renewal_wait, wait};
use crate::{Event, Hex, Input, Outcome, Output, Send};
use std::net::Ipv6Addr;

/// The time to wait for a router. A router answers within half a second (RFC 4861, 6.2.6).
const ROUTER_MS: u64 = 1_500;

/// The pause after DECLINE.
const PAUSE_MS: u64 = 10_000;

/// Takes one step.
pub fn step(input: &Input) -> Output {
    let (context, refusal) = Context::new(input);
    let saved = Saved::read(input.state.as_ref());
    let (link, next) = match (&input.event, refusal, saved) {
        (Event::Start { .. }, Some(error), _) => (Link::default(), ended(Outcome::Failed { reason: error.msg })),
        (Event::Start { .. }, None, saved) => (Link::default(), start(&context, saved.ok())),
        (Event::Release, _, Err(_)) => (Link::default(), ended(Outcome::Ended)),
        (_, _, Err(reason)) => (Link::default(), ended(Outcome::Lost { reason })),
        (event, _, Ok(saved)) => on(&context, event, saved),
    };
    let wake_ms = due(&context, &next.phase).map(|due| due.saturating_sub(context.now));
    Output { state: Saved::new(link, next.phase).write(), send: next.send, wake_ms, outcome: next.outcome }
}

fn on(context: &Context<'_>, event: &Event, saved: Saved) -> (Link, Next<Phase>) {
    let Saved { mut link, phase, .. } = saved;
    let next = match event {
        Event::Packet { payload, from } if payload.0.first() == Some(&ADVERTISEMENT) => {
            link.note(&payload.0, *from);
            match phase {
                // The wait for a router is over; a pause after DECLINE continues.
                Phase::Waiting { acquisition, hint, .. } if link.router.is_some() && acquisition.tries == 0 => {
                    solicit(context, acquisition, hint)
                }
                phase => Next::of(phase),
            }
        }
        Event::Packet { payload, .. } => match Packet::read(&payload.0, &context.client.id.0) {
            None => Next::of(phase),
            Some(packet) if phase.held().is_some() => answer(context, phase, &packet, &link),
            Some(packet) => offer(context, phase, &packet, &link),
        },
        Event::Timer | Event::Resume if phase.held().is_some() => keep(context, phase),
        Event::Timer | Event::Resume => search(context, phase),
        Event::Conflict => conflict(context, phase),
        Event::Release => give_back(context, &phase, Outcome::Ended),
        Event::Start { .. } => Next::of(phase),
    };
    (link, next)
}

fn ended(outcome: Outcome) -> Next<Phase> {
    Next::of(Phase::Ended).deciding(outcome)
}

/// Begins a search, with the address of an earlier lease if there is one.
fn start(context: &Context<'_>, saved: Option<Saved>) -> Next<Phase> {
    let hint = saved.and_then(|saved| saved.phase.held().map(|held| held.address.addr()));
    let (acquisition, until) = (Acquisition::new(context.now), context.now.saturating_add(ROUTER_MS));
    Next::of(Phase::Waiting { acquisition, until, hint })
}

fn solicit(context: &Context<'_>, acquisition: Acquisition, hint: Option<Ipv6Addr>) -> Next<Phase> {
    let acquisition = acquisition.again();
    let exchange = context.exchange(acquisition.tries);
    ask_for_lease(context, Phase::Soliciting { acquisition, exchange, hint })
}

/// Sends a SOLICIT or a REQUEST, depending on the phase.
fn ask_for_lease(context: &Context<'_>, phase: Phase) -> Next<Phase> {
    let send = match &phase {
        Phase::Soliciting { exchange, hint, .. } => packet(context, Kind::Solicit, *exchange, None, *hint),
        Phase::Requesting { exchange, address, server, .. } => {
            packet(context, Kind::Request, *exchange, Some(server), Some(*address))
        }
        _ => return Next::of(phase),
    };
    Next::of(phase).sending(send)
}

fn packet(
    context: &Context<'_>,
    kind: Kind,
    exchange: Exchange,
    server: Option<&Hex>,
    address: Option<Ipv6Addr>,
) -> Send {
    let wanted = match kind {
        Kind::Release | Kind::Decline => Vec::new(),
        Kind::Solicit | Kind::Request | Kind::Renew | Kind::Rebind => lease::wanted(&context.options),
    };
    Request {
        kind,
        xid: exchange.xid,
        client: &context.client.id.0,
        server: server.map(|server| server.0.as_slice()),
        address,
        wanted: &wanted,
        elapsed_ms: context.now.saturating_sub(exchange.first),
    }
    .send()
}

/// Sends again, begins again, or gives up.
fn search(context: &Context<'_>, phase: Phase) -> Next<Phase> {
    let Some(acquisition) = phase.acquisition() else { return Next::of(phase) };
    if context.now >= context.deadline(acquisition) {
        return give_back(context, &phase, context.give_up(acquisition, "DHCPv6"));
    }
    match phase {
        Phase::Waiting { acquisition, until, hint } if context.now >= until => solicit(context, acquisition, hint),
        Phase::Soliciting { acquisition, exchange, hint } if context.now >= exchange.next => {
            let acquisition = acquisition.again();
            let exchange = context.again(exchange, acquisition.tries);
            ask_for_lease(context, Phase::Soliciting { acquisition, exchange, hint })
        }
        Phase::Requesting { acquisition, exchange, .. } if context.is_overdue(exchange) => {
            let trouble = "a server did not answer a request for its own offer".to_owned();
            solicit(context, acquisition.in_trouble(trouble), None)
        }
        Phase::Requesting { acquisition, exchange, address, server } if context.now >= exchange.next => {
            let exchange = context.again(exchange, exchange.sent.saturating_add(1));
            ask_for_lease(context, Phase::Requesting { acquisition, exchange, address, server })
        }
        phase => Next::of(phase),
    }
}

/// Returns the fault of an advertisement or a reply to this client, if there is one.
fn objection(packet: &Packet<'_>) -> Option<String> {
    let words =
        plain(String::from_utf8_lossy(packet.words).chars()).map(|text| format!(": \"{text}\"")).unwrap_or_default();
    match packet.address {
        _ if packet.status != SUCCESS => Some(format!("a server refused, with status {}{words}", packet.status)),
        None => Some("a server offers no address that a container can have".to_owned()),
        Some(address) if address.valid < SHORTEST => {
            let seconds = address.valid;
            Some(format!("a server offers a lease of {seconds} s, and at least {SHORTEST} s are needed"))
        }
        Some(_) => None,
    }
}

/// Handles a server's packet while the client has no lease.
fn offer(context: &Context<'_>, phase: Phase, packet: &Packet<'_>, link: &Link) -> Next<Phase> {
    match phase {
        Phase::Soliciting { acquisition, exchange, hint }
            if packet.kind == Said::Advertise && packet.xid == exchange.xid & 0x00ff_ffff =>
        {
            match (objection(packet), packet.address) {
                (None, Some(address)) => {
                    let (exchange, server) = (context.exchange(1), Hex(packet.server.to_vec()));
                    ask_for_lease(
                        context,
                        Phase::Requesting { acquisition, exchange, address: address.address, server },
                    )
                }
                (trouble, _) => {
                    let acquisition = trouble.into_iter().fold(acquisition, Acquisition::in_trouble);
                    Next::of(Phase::Soliciting { acquisition, exchange, hint })
                }
            }
        }
        Phase::Requesting { acquisition, exchange, server, .. }
            if packet.kind == Said::Reply && packet.xid == exchange.xid & 0x00ff_ffff && packet.server == server.0 =>
        {
            match (objection(packet), held(packet, exchange, link)) {
                (None, Some(held)) => {
                    let lease = lease::lease(packet, &held, link, &context.options);
                    let phase = Phase::Bound { held, acquisition: Some(acquisition) };
                    Next::of(phase).deciding(Outcome::Bound { lease, probe: true })
                }
                // The server has taken its offer back. A pause follows, so that client and server don't repeat this
                // exchange at full speed.
                (trouble, _) => {
                    let pause = wait(acquisition.tries, &context.client.timeouts, context.random);
                    let acquisition = trouble.into_iter().fold(acquisition, Acquisition::in_trouble);
                    Next::of(Phase::Waiting { acquisition, until: context.now.saturating_add(pause), hint: None })
                }
            }
        }
        phase => Next::of(phase),
    }
}

/// Returns the lease that a reply gives.
fn held(packet: &Packet<'_>, exchange: Exchange, link: &Link) -> Option<Held> {
    let address = packet.address.filter(|address| is_usable(address.address))?;
    let times = Times::of_v6(address.valid, address.preferred, address.t1, address.t2);
    let server = Hex(packet.server.to_vec());
    let (seconds, t1, t2) = (times.seconds, times.t1, times.t2);
    Some(Held { address: link.place(address.address), server, since: exchange.first, seconds, t1, t2 })
}

/// Renews the lease, asks all servers, or loses the lease, depending on the time.
fn keep(context: &Context<'_>, phase: Phase) -> Next<Phase> {
    let (held, next) = match &phase {
        Phase::Bound { held, .. } if context.now >= held.at(held.t1) => (held.clone(), None),
        Phase::Renewing { held, exchange, .. } | Phase::Rebinding { held, exchange, .. } => {
            (held.clone(), Some(exchange.next))
        }
        _ => return Next::of(phase),
    };
    if context.now >= held.at(held.seconds) {
        let reason = format!("the lease of {} expired: no server renewed it", held.address);
        return ended(Outcome::Lost { reason });
    }
    let asks_all = context.now >= held.at(held.t2);
    match phase {
        Phase::Renewing { .. } if asks_all => renew(context, held, asks_all, false),
        Phase::Renewing { .. } | Phase::Rebinding { .. } if next.is_some_and(|next| context.now < next) => {
            Next::of(phase)
        }
        Phase::Renewing { anew, .. } => renew(context, held, asks_all, anew),
        _ => renew(context, held, asks_all, false),
    }
}

/// Asks for a longer lease, with a new transaction each time. `anew` means that the server has forgotten the lease.
fn renew(context: &Context<'_>, held: Held, asks_all: bool, anew: bool) -> Next<Phase> {
    let (from, to) = if asks_all { (held.t2, held.seconds) } else { (held.t1, held.t2) };
    let (from, to) = (held.at(from), held.at(to));
    let wait = renewal_wait(to.saturating_sub(context.now), to.saturating_sub(from), context.random);
    let exchange = Exchange { next: context.now.saturating_add(wait), ..context.exchange(1) };
    let (kind, server) = match (anew, asks_all) {
        (true, _) => (Kind::Request, Some(&held.server)),
        (false, false) => (Kind::Renew, Some(&held.server)),
        (false, true) => (Kind::Rebind, None),
    };
    let send = packet(context, kind, exchange, server, Some(held.address.addr()));
    let phase =
        if asks_all { Phase::Rebinding { held, exchange, anew } } else { Phase::Renewing { held, exchange, anew } };
    Next::of(phase).sending(send)
}

/// Takes the answer to a renewal.
fn answer(context: &Context<'_>, phase: Phase, packet: &Packet<'_>, link: &Link) -> Next<Phase> {
    let (old, exchange, anew) = match &phase {
        Phase::Renewing { held, exchange, anew } if packet.server == held.server.0 => (held, *exchange, *anew),
        Phase::Rebinding { held, exchange, anew } => (held, *exchange, *anew),
        _ => return Next::of(phase),
    };
    let asks_all = matches!(phase, Phase::Rebinding { .. });
    if packet.kind != Said::Reply || packet.xid != exchange.xid & 0x00ff_ffff {
        return Next::of(phase);
    }
    if packet.status == NO_BINDING && !anew {
        // The server has forgotten its leases. The server gets a request for the address, as for a new lease (RFC 8415,
        // 18.2.10.1).
        let held = Held { server: Hex(packet.server.to_vec()), ..old.clone() };
        return renew(context, held, asks_all, true);
    }
    match packet.address {
        Some(found) if packet.status == SUCCESS && found.address != old.address.addr() => {
            let (other, address) = (found.address, old.address.addr());
            let reason = format!("a server gave {other} instead of {address} when the lease was renewed");
            ended(Outcome::Lost { reason })
        }
        Some(found) if packet.status == SUCCESS && found.valid == 0 => {
            ended(Outcome::Lost { reason: format!("a server took {} back", old.address) })
        }
        Some(found) if packet.status == SUCCESS && found.valid >= SHORTEST => {
            let Some(held) = held(packet, exchange, link) else { return Next::of(phase) };
            // The prefix length on the link does not change.
            let held = Held { address: old.address, ..held };
            let lease = lease::lease(packet, &held, link, &context.options);
            Next::of(Phase::Bound { held, acquisition: None }).deciding(Outcome::Kept { lease })
        }
        // After another refusal, or an answer without the address, the lease continues, and the server is asked again.
        _ => Next::of(phase),
    }
}

/// Handles the report that another station has the address.
fn conflict(context: &Context<'_>, phase: Phase) -> Next<Phase> {
    let Some(held) = phase.held() else { return Next::of(phase) };
    let address = held.address.addr();
    let send = packet(context, Kind::Decline, context.exchange(1), Some(&held.server), Some(address));
    match phase {
        Phase::Bound { acquisition: Some(acquisition), .. } => {
            let acquisition = acquisition.in_trouble(format!("another station uses {address}, which a server gave"));
            let until = context.now.saturating_add(PAUSE_MS.min(context.client.timeouts.request_ms));
            Next::of(Phase::Waiting { acquisition, until, hint: None }).sending(send)
        }
        _ => ended(Outcome::Lost { reason: format!("another station uses {address}") }).sending(send),
    }
}

/// Ends the lease, and gives back the address that a server has given. A requested address counts too: the answer may
/// be on its way.
fn give_back(context: &Context<'_>, phase: &Phase, outcome: Outcome) -> Next<Phase> {
    let given = match phase {
        Phase::Requesting { address, server, .. } => Some((*address, server)),
        phase => phase.held().map(|held| (held.address.addr(), &held.server)),
    };
    let next = ended(outcome);
    let Some((address, server)) = given else { return next };
    next.sending(packet(context, Kind::Release, context.exchange(1), Some(server), Some(address)))
}

/// Returns the time of the next timer.
fn due(context: &Context<'_>, phase: &Phase) -> Option<u64> {
    match phase {
        Phase::Waiting { acquisition, until, .. } => Some((*until).min(context.deadline(acquisition))),
        Phase::Soliciting { acquisition, exchange, .. } => Some(exchange.next.min(context.deadline(acquisition))),
        Phase::Requesting { acquisition, exchange, .. } => {
            Some(exchange.next.min(context.answer_by(*exchange)).min(context.deadline(acquisition)))
        }
        Phase::Bound { held, .. } if held.is_endless() => None,
        // A clock that went back must not make the lease longer.
        Phase::Bound { held, .. } => Some(held.at(held.t1).min(context.now.saturating_add(u64::from(held.t1) * 1000))),
        Phase::Renewing { held, exchange, .. } => Some(exchange.next.min(held.at(held.t2))),
        Phase::Rebinding { held, exchange, .. } => Some(exchange.next.min(held.at(held.seconds))),
        Phase::Ended => None,
    }
}
