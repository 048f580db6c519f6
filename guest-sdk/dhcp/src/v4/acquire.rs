//! The way to a lease: INIT-REBOOT, INIT, SELECTING, REQUESTING.

use super::lease;
use super::packet::{Kind, Packet};
use super::request::Request;
use super::state::{Held, Phase};
use super::step::ended;
use super::{is_usable, keep};
use crate::Outcome;
use crate::exchange::{Acquisition, Context, Exchange, Next, plain};
use crate::timing::{SHORTEST, wait};
use dhcproto::v4::{DhcpOption, MessageType, OptionCode};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// The number of requests in INIT-REBOOT. A server that doesn't know the lease stays silent (RFC 2131, 4.3.2).
const REBOOTS: u32 = 3;

/// The pause after DECLINE (RFC 2131, 3.1, 5).
const PAUSE_MS: u64 = 10_000;

/// Begins a search, with the address of an earlier lease if there is one.
pub fn start(context: &Context<'_>, previous: Option<Ipv4Addr>) -> Next<Phase> {
    let acquisition = Acquisition::new(context.now);
    match previous.filter(|address| is_usable(*address)) {
        None => discover(context, acquisition, None),
        Some(address) => ask(context, Phase::Rebooting { acquisition, exchange: context.exchange(1), address }),
    }
}

/// Looks for servers, with a new transaction.
pub fn discover(context: &Context<'_>, acquisition: Acquisition, hint: Option<Ipv4Addr>) -> Next<Phase> {
    let acquisition = acquisition.again();
    let exchange = context.exchange(acquisition.tries);
    send_discover(context, acquisition, exchange, hint)
}

fn send_discover(
    context: &Context<'_>,
    acquisition: Acquisition,
    exchange: Exchange,
    hint: Option<Ipv4Addr>,
) -> Next<Phase> {
    let seconds = context.seconds_since(acquisition.began);
    let request = Request { wanted: hint, xid: exchange.xid, seconds, ..Request::default() };
    let send = request.broadcast(MessageType::Discover, context.client, &context.options);
    Next::of(Phase::Selecting { acquisition, exchange, hint }).sending(send)
}

/// Requests the address of the phase: the earlier address, or the offered address.
fn ask(context: &Context<'_>, phase: Phase) -> Next<Phase> {
    let (acquisition, exchange, wanted, server) = match &phase {
        Phase::Rebooting { acquisition, exchange, address } => (acquisition, exchange, *address, None),
        Phase::Requesting { acquisition, exchange, address, server } => {
            (acquisition, exchange, *address, Some(*server))
        }
        _ => return Next::of(phase),
    };
    let seconds = context.seconds_since(acquisition.began);
    let request = Request { wanted: Some(wanted), server, xid: exchange.xid, seconds, own: None };
    let send = request.broadcast(MessageType::Request, context.client, &context.options);
    Next::of(phase).sending(send)
}

/// Sends the request again, begins a new search, or gives up, depending on the phase and the time.
pub fn timer(context: &Context<'_>, phase: Phase) -> Next<Phase> {
    let Some(acquisition) = acquisition(&phase) else { return Next::of(phase) };
    if context.now >= context.deadline(acquisition) {
        return keep::give_back(context, &phase, context.give_up(acquisition, "DHCP"));
    }
    match phase {
        Phase::Selecting { acquisition, exchange, hint } if context.now >= exchange.next => {
            let acquisition = acquisition.again();
            let exchange = context.again(exchange, acquisition.tries);
            send_discover(context, acquisition, exchange, hint)
        }
        Phase::Rebooting { acquisition, exchange, address } if context.now >= exchange.next => {
            if exchange.sent >= REBOOTS || context.is_overdue(exchange) {
                return discover(context, acquisition, Some(address));
            }
            let exchange = context.again(exchange, exchange.sent.saturating_add(1));
            ask(context, Phase::Rebooting { acquisition, exchange, address })
        }
        Phase::Requesting { acquisition, exchange, server, .. } if context.is_overdue(exchange) => {
            let trouble = format!("the server {server} did not answer a request for its own offer");
            discover(context, acquisition.in_trouble(trouble), None)
        }
        Phase::Requesting { acquisition, exchange, address, server } if context.now >= exchange.next => {
            let exchange = context.again(exchange, exchange.sent.saturating_add(1));
            ask(context, Phase::Requesting { acquisition, exchange, address, server })
        }
        Phase::Waiting { acquisition, until } if context.now >= until => discover(context, acquisition, None),
        phase => Next::of(phase),
    }
}

fn acquisition(phase: &Phase) -> Option<&Acquisition> {
    match phase {
        Phase::Rebooting { acquisition, .. }
        | Phase::Selecting { acquisition, .. }
        | Phase::Requesting { acquisition, .. }
        | Phase::Waiting { acquisition, .. } => Some(acquisition),
        Phase::Bound { .. } | Phase::Renewing { .. } | Phase::Rebinding { .. } | Phase::Ended => None,
    }
}

/// Takes a packet of a server on the way to a lease.
pub fn packet(context: &Context<'_>, phase: Phase, packet: &Packet) -> Next<Phase> {
    match phase {
        Phase::Selecting { acquisition, exchange, hint } => {
            let found = (packet.kind == Kind::Offer && packet.xid == exchange.xid).then(|| objection(packet));
            match found {
                None => Next::of(Phase::Selecting { acquisition, exchange, hint }),
                Some(Some(trouble)) => {
                    Next::of(Phase::Selecting { acquisition: acquisition.in_trouble(trouble), exchange, hint })
                }
                Some(None) => {
                    // The request belongs to the transaction of the offer.
                    let exchange = Exchange { xid: exchange.xid, ..context.exchange(1) };
                    let (address, server) = (packet.address, packet.server);
                    ask(context, Phase::Requesting { acquisition, exchange, address, server })
                }
            }
        }
        Phase::Requesting { acquisition, exchange, address, server } => {
            let concerns = packet.xid == exchange.xid && packet.server == server;
            match packet.kind {
                Kind::Ack if concerns && packet.address == address => {
                    bind(context, packet, exchange, acquisition, |acquisition| Phase::Requesting {
                        acquisition,
                        exchange,
                        address,
                        server,
                    })
                }
                Kind::Nak if concerns => refused(context, acquisition, packet),
                Kind::Ack | Kind::Nak | Kind::Offer => {
                    Next::of(Phase::Requesting { acquisition, exchange, address, server })
                }
            }
        }
        Phase::Rebooting { acquisition, exchange, address } => {
            let concerns = packet.xid == exchange.xid;
            match packet.kind {
                Kind::Ack if concerns && packet.address == address => {
                    bind(context, packet, exchange, acquisition, |acquisition| Phase::Rebooting {
                        acquisition,
                        exchange,
                        address,
                    })
                }
                // The earlier address is no longer free. This is no error: the server may have other addresses.
                Kind::Nak if concerns => discover(context, acquisition, None),
                Kind::Ack | Kind::Nak | Kind::Offer => Next::of(Phase::Rebooting { acquisition, exchange, address }),
            }
        }
        phase => Next::of(phase),
    }
}

/// Returns the fault that makes an offer or an acknowledgement unusable, if there is one.
fn objection(packet: &Packet) -> Option<String> {
    let (server, address, seconds) = (packet.server, packet.address, lease::seconds(packet));
    if !is_usable(address) || address == server {
        return Some(format!("the server {server} offers {address}, which no container can have"));
    }
    if seconds < SHORTEST {
        return Some(format!(
            "the server {server} offers a lease of {seconds} s, and at least {SHORTEST} s are needed"
        ));
    }
    match lease::prefix(packet).and_then(|prefix| Ipv4Net::new(address, prefix).ok()) {
        Some(address) if !lease::is_of_a_host(address) => {
            Some(format!("the server {server} offers {address}, which is no host's address in its network"))
        }
        _ => None,
    }
}

/// Handles a server that has taken its offer back. The client begins again after a pause, so that client and server
/// don't repeat offer and refusal at full speed.
fn refused(context: &Context<'_>, acquisition: Acquisition, packet: &Packet) -> Next<Phase> {
    let words = message(packet).map(|text| format!(": \"{text}\"")).unwrap_or_default();
    let trouble = format!("the server {} refused its own offer (DHCPNAK){words}", packet.server);
    let until = context.now.saturating_add(wait(acquisition.tries, &context.client.timeouts, context.random));
    Next::of(Phase::Waiting { acquisition: acquisition.in_trouble(trouble), until })
}

/// Returns the text of the packet's option Message.
pub fn message(packet: &Packet) -> Option<String> {
    let Some(DhcpOption::Message(text)) = packet.option(OptionCode::Message) else { return None };
    plain(text.chars())
}

/// Takes the lease. If there is an [`objection`] to the packet, `stay` returns the earlier phase. Without a valid subnet
/// mask the client fails, and gives the lease back.
fn bind(
    context: &Context<'_>,
    packet: &Packet,
    exchange: Exchange,
    acquisition: Acquisition,
    stay: impl FnOnce(Acquisition) -> Phase,
) -> Next<Phase> {
    if let Some(trouble) = objection(packet) {
        return Next::of(stay(acquisition.in_trouble(trouble)));
    }
    let (address, server) = (packet.address, packet.server);
    let Some(address) = lease::prefix(packet).and_then(|prefix| Ipv4Net::new(address, prefix).ok()) else {
        let reason = format!("DHCP option Subnet Mask not found in DHCPACK of {server}, or not valid");
        return ended(Outcome::Failed { reason }).sending(keep::release_packet(context, address, server));
    };
    let times = lease::times(packet);
    let held = Held { address, server, since: exchange.first, seconds: times.seconds, t1: times.t1, t2: times.t2 };
    let lease = lease::lease(packet, &held, &context.options);
    Next::of(Phase::Bound { held, acquisition: Some(acquisition) }).deciding(Outcome::Bound { lease, probe: true })
}

/// Handles a station that has the address of a new lease: tells the server, and begins again.
pub fn decline(context: &Context<'_>, held: &Held, acquisition: Acquisition) -> Next<Phase> {
    let address = held.address.addr();
    let trouble = format!("another station uses {address}, which the server {} gave", held.server);
    let pause = PAUSE_MS.min(context.client.timeouts.request_ms);
    let (acquisition, until) = (acquisition.in_trouble(trouble), context.now.saturating_add(pause));
    Next::of(Phase::Waiting { acquisition, until }).sending(keep::decline_packet(context, held))
}
