//! A lease that is held: BOUND, RENEWING, REBINDING, and its end.

use super::packet::{Kind, Packet};
use super::request::Request;
use super::state::{Held, Phase};
use super::step::ended;
use super::{acquire, lease};
use crate::exchange::{Context, Exchange, Next};
use crate::timing::{SHORTEST, renewal_wait};
use crate::{Outcome, Send};
use dhcproto::v4::MessageType;
use std::net::Ipv4Addr;

/// Renews the lease, asks all servers, or loses the lease, depending on the time.
pub fn timer(context: &Context<'_>, phase: Phase) -> Next<Phase> {
    let (held, exchange) = match phase {
        Phase::Bound { held, .. } if context.now >= held.at(held.t1) => (held, None),
        Phase::Renewing { held, exchange } | Phase::Rebinding { held, exchange } => (held, Some(exchange)),
        phase => return Next::of(phase),
    };
    if context.now >= held.at(held.seconds) {
        let (address, server) = (held.address, held.server);
        return ended(Outcome::Lost {
            reason: format!(
                "the lease of {address} expired: neither the server {server} nor another server renewed it"
            ),
        });
    }
    let asks_all = context.now >= held.at(held.t2);
    match phase {
        Phase::Renewing { .. } if asks_all => ask(context, held, asks_all),
        Phase::Renewing { .. } | Phase::Rebinding { .. } if exchange.is_some_and(|it| context.now < it.next) => {
            Next::of(phase)
        }
        _ => ask(context, held, asks_all),
    }
}

/// Asks for a longer lease, with a new transaction each time. So the time of the lease always counts from the request
/// that the answer belongs to.
fn ask(context: &Context<'_>, held: Held, asks_all: bool) -> Next<Phase> {
    let (from, to) = if asks_all { (held.t2, held.seconds) } else { (held.t1, held.t2) };
    let (from, to) = (held.at(from), held.at(to));
    let wait = renewal_wait(to.saturating_sub(context.now), to.saturating_sub(from), context.random);
    let exchange = Exchange { next: context.now.saturating_add(wait), ..context.exchange(1) };
    let seconds = context.seconds_since(held.at(held.t1));
    let request = Request { own: Some(held.address.addr()), xid: exchange.xid, seconds, ..Request::default() };
    let (client, options) = (context.client, &context.options);
    if asks_all {
        let send = request.broadcast(MessageType::Request, client, options);
        Next::of(Phase::Rebinding { held, exchange }).sending(send)
    } else {
        let send = request.unicast(MessageType::Request, client, options, held.server);
        Next::of(Phase::Renewing { held, exchange }).sending(send)
    }
}

/// Takes the answer of a server.
pub fn packet(context: &Context<'_>, phase: Phase, packet: &Packet) -> Next<Phase> {
    let (held, exchange) = match &phase {
        // A renewal goes to one server, and only this server may answer. Each server may answer a broadcast.
        Phase::Renewing { held, exchange } if packet.server == held.server => (*held, *exchange),
        Phase::Rebinding { held, exchange } => (*held, *exchange),
        _ => return Next::of(phase),
    };
    if packet.xid != exchange.xid {
        return Next::of(phase);
    }
    match packet.kind {
        Kind::Offer => Next::of(phase),
        Kind::Nak => {
            let words = acquire::message(packet).map(|text| format!(": \"{text}\"")).unwrap_or_default();
            let (address, server) = (held.address, packet.server);
            ended(Outcome::Lost { reason: format!("the server {server} took {address} back (DHCPNAK){words}") })
        }
        // An acknowledgement with an unusable address or a very short lease is ignored. The client asks again later.
        Kind::Ack if !super::is_usable(packet.address) || lease::seconds(packet) < SHORTEST => Next::of(phase),
        Kind::Ack if packet.address != held.address.addr() => {
            let (address, server, other) = (held.address.addr(), packet.server, packet.address);
            let reason = format!("the server {server} gave {other} instead of {address} when the lease was renewed");
            ended(Outcome::Lost { reason })
        }
        Kind::Ack => {
            let times = lease::times(packet);
            // The prefix length on the link does not change.
            let held = Held {
                address: held.address,
                server: packet.server,
                since: exchange.first,
                seconds: times.seconds,
                t1: times.t1,
                t2: times.t2,
            };
            let lease = lease::lease(packet, &held, &context.options);
            Next::of(Phase::Bound { held, acquisition: None }).deciding(Outcome::Kept { lease })
        }
    }
}

/// Handles a conflict: another station uses the address.
pub fn conflict(context: &Context<'_>, phase: Phase) -> Next<Phase> {
    match phase {
        Phase::Bound { held, acquisition: Some(acquisition) } => acquire::decline(context, &held, acquisition),
        phase => match phase.held() {
            None => Next::of(phase),
            Some(held) => {
                let reason = format!("another station uses {}", held.address.addr());
                ended(Outcome::Lost { reason }).sending(decline_packet(context, held))
            }
        },
    }
}

/// Ends the lease, and gives back the address that a server has given. A requested address counts too: the answer may
/// be on its way.
pub fn give_back(context: &Context<'_>, phase: &Phase, outcome: Outcome) -> Next<Phase> {
    let given = match phase {
        Phase::Requesting { address, server, .. } => Some((*address, *server)),
        phase => phase.held().map(|held| (held.address.addr(), held.server)),
    };
    let next = ended(outcome);
    match given {
        None => next,
        Some((address, server)) => next.sending(release_packet(context, address, server)),
    }
}

/// Makes DHCPRELEASE.
pub fn release_packet(context: &Context<'_>, own: Ipv4Addr, server: Ipv4Addr) -> Send {
    let request = Request { own: Some(own), server: Some(server), xid: context.xid(), ..Request::default() };
    request.unicast(MessageType::Release, context.client, &context.options, server)
}

/// Makes DHCPDECLINE.
pub fn decline_packet(context: &Context<'_>, held: &Held) -> Send {
    let (wanted, server) = (Some(held.address.addr()), Some(held.server));
    let request = Request { wanted, server, xid: context.xid(), ..Request::default() };
    request.broadcast(MessageType::Decline, context.client, &context.options)
}
