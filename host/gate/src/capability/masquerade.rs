//! `masquerade`: source NAT for the attachment's own addresses.

use crate::collect;
use crate::effect::{Effect, Masquerade};
use crate::gate::Gate;
use crate::session::{OwnAddress, Session, state};
use ipnet::IpNet;
use postern_cni::Verb;
use postern_firewall::iptables::Means;
use postern_firewall::{FirewallError, MasqueradeKey, Nft, iptables, masquerade};
use postern_state::Header;
use postern_types::{Backend, ErrorCode, OpError, Reply, ops};
use std::net::IpAddr;

fn key(session: &Session) -> MasqueradeKey {
    let request = &session.request;
    MasqueradeKey {
        network: request.conf.name.clone(),
        container_id: request.container_id.clone(),
        ifname: request.ifname.clone(),
    }
}

fn own(session: &Session) -> Vec<IpNet> {
    session.own.iter().map(|OwnAddress { net, .. }| *net).collect()
}

/// Who runs the programs of iptables, and until when.
pub fn means(session: &Session) -> Means<'_> {
    session.means()
}

pub use crate::errors::firewall;

/// What nftables are asked for a removal: in a kernel that has none there is nothing.
///
/// # Errors
/// The kernel refuses something else.
pub fn unless_absent<T: Default>(
    session: &Session,
    ask: impl FnOnce(&mut Nft) -> Result<T, FirewallError>,
) -> Result<T, OpError> {
    let mut nft = match session.nft() {
        Ok(nft) => nft,
        Err(error) if error.errno.is_some_and(postern_firewall::is_absence) => return Ok(T::default()),
        Err(error) => return Err(error),
    };
    match ask(&mut nft) {
        Err(_) if nft.is_absent() => Ok(T::default()),
        outcome => outcome.map_err(firewall),
    }
}

/// Carries out one operation that policy allows.
///
/// # Errors
/// What the guest gets to see.
pub fn execute(gate: &mut Gate<'_>, operation: &ops::Masquerade) -> Result<Reply, OpError> {
    match operation {
        ops::Masquerade::Ensure { backend } => ensure(gate, *backend),
        ops::Masquerade::Check { backend } => check(gate, *backend),
        ops::Masquerade::Remove => remove(gate),
    }
}

/// `masquerade.ensure`.
fn ensure(gate: &mut Gate<'_>, backend: Option<Backend>) -> Result<Reply, OpError> {
    let (key, own) = (key(gate.session), own(gate.session));
    let backend = backend.unwrap_or(Backend::Nftables);
    if own.is_empty() {
        return Ok(Reply::Done);
    }
    if backend == Backend::Iptables {
        // What can't be made must not be written down: nobody could remove it.
        iptables::validate(&key).map_err(firewall)?;
    }
    let effect = Effect::from(Masquerade { backend, addresses: own.clone() });
    // Asked before the intent is written: the same one twice has one line.
    let is_first = is_first(gate.session);
    gate.session.intend(effect.clone())?;
    match backend {
        Backend::Nftables if is_first => {
            let handles = masquerade::nft_add(&mut *gate.session.nft()?, &key, &own).map_err(firewall)?;
            gate.session.known_by(&effect, &handles);
            Ok(())
        }
        Backend::Nftables => masquerade::nft_ensure(&mut *gate.session.nft()?, &key, &own),
        Backend::Iptables => iptables::ensure(&key, &own, means(gate.session)),
    }
    .map_err(firewall)?;
    Ok(Reply::Done)
}

/// Whether the rules that this run is about to make are the attachment's first: its record is whole, and lists none. Nobody
/// has to look for earlier ones then, among those of all attachments.
fn is_first(session: &Session) -> bool {
    let Some(record) = session.record() else { return false };
    let is_masquerade = |effect: &Effect| Masquerade::of(effect).is_some();
    record.warnings().is_empty() && !record.effects(None).iter().any(|noted| is_masquerade(&noted.effect))
}

/// The handles of this attachment's rules, as far as its record tells them.
fn handles(session: &Session, addresses: &[IpNet]) -> Vec<u64> {
    let effects = session.record().map(|record| record.effects(None)).unwrap_or_default();
    let made = Masquerade { backend: Backend::Nftables, addresses: addresses.to_vec() }.into();
    effects.into_iter().filter(|noted| noted.effect == made).flat_map(|noted| noted.handles).collect()
}

/// `masquerade.check`.
fn check(gate: &Gate<'_>, backend: Option<Backend>) -> Result<Reply, OpError> {
    let (key, own) = (key(gate.session), own(gate.session));
    if own.is_empty() {
        return Ok(Reply::Done);
    }
    let whole = match backend.unwrap_or(Backend::Nftables) {
        Backend::Nftables => {
            let handles = handles(gate.session, &own);
            masquerade::nft_check_known(&mut *gate.session.nft()?, &key, &own, &handles)
        }
        Backend::Iptables => iptables::check(&key, &own, means(gate.session)),
    }
    .map_err(firewall)?;
    if whole {
        return Ok(Reply::Done);
    }
    Err(OpError::new(ErrorCode::Mismatch, key.network, "the masquerading rules of this attachment are not all there"))
}

/// `masquerade.remove`.
fn remove(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    if gate.session.request.verb == Verb::Add {
        gate.session.only_of_this_run(|effect| Masquerade::of(effect).is_some(), "masquerading")?;
    }
    remove_own(gate.session)?;
    Ok(Reply::Done)
}

/// Removes the attachment's rules: those that its record lists, or, where that may not be all, of either backend.
///
/// # Errors
/// What could not be removed.
pub fn remove_own(session: &mut Session) -> Result<(), OpError> {
    let is_add = session.request.verb == Verb::Add;
    let recorded = session.record().map(|record| record.effects(None)).unwrap_or_default();
    let made: Vec<Masquerade> = recorded.iter().filter_map(|noted| Masquerade::of(&noted.effect)).cloned().collect();
    for Masquerade { backend, addresses } in &made {
        revert(session, *backend, addresses)?;
    }
    if session.is_replaced() || made.is_empty() && !is_add && !session.record_is_whole() {
        // A native plugin's attachment, or one whose record is lost: the configuration may have changed since, so both.
        let previous = session.request.conf.previous_result().ok().flatten().unwrap_or_default();
        let addresses: Vec<IpNet> = previous.ips.iter().map(|ip| ip.address).collect();
        revert(session, Backend::Nftables, &addresses)?;
        revert_unrecorded_iptables(session, &addresses)?;
    }
    session.gone(|effect| Masquerade::of(effect).is_some());
    Ok(())
}

/// Removes the rules of attachments of this network that are not valid, whichever backend has them: each carries the network
/// in its comment. Who is being attached is spared.
///
/// # Errors
/// What could not be removed.
pub fn collect(session: &Session, valid: &[(String, String)]) -> Result<usize, OpError> {
    let network = &session.request.conf.name;
    let busy = || collect::busy(session).map_err(|error| FirewallError::new("look at", "records", error.to_string()));
    let mut removed = unless_absent(session, |nft| masquerade::nft_retain(nft, network, valid, busy))?.len();
    // A program is started only if there is something of others than the valid ones.
    let in_nftables = unless_absent(session, |nft| iptables::others_may_exist(nft, network, valid))?;
    if in_nftables || iptables::has_legacy_nat() {
        removed += iptables::retain(network, valid, busy, means(session)).map_err(firewall)?.len();
    }
    Ok(removed)
}

/// As [`revert`], where nothing says that there ever were such rules: what can't be there, for want of its program or of the
/// kernel's part, is not.
fn revert_unrecorded_iptables(session: &Session, addresses: &[IpNet]) -> Result<(), OpError> {
    let key = key(session);
    let seen = unless_absent(session, |nft| iptables::chains(nft, &key))?;
    if !seen.contains(&true) && !iptables::installed().contains(&true) {
        // Tables of legacy iptables, whose rules only its programs show; whoever made some here had those programs.
        return Ok(());
    }
    revert(session, Backend::Iptables, addresses)
}

/// Removes the rules of one backend. Where no addresses are known, iptables rules of all attachments of the container to
/// the network go, but for those that another's record claims: rather a native one that loses its masquerading too than
/// rules that stay for good.
pub fn revert(session: &Session, backend: Backend, addresses: &[IpNet]) -> Result<(), OpError> {
    let key = key(session);
    match backend {
        Backend::Nftables => {
            let handles = handles(session, addresses);
            unless_absent(session, |nft| masquerade::nft_remove_known(nft, &key, &handles))?;
        }
        Backend::Iptables => {
            // Asking the kernel is cheaper than starting programs that find nothing.
            if iptables::has_legacy_nat() || unless_absent(session, |nft| iptables::may_exist(nft, &key))? {
                match addresses {
                    [] => iptables::remove_all(&key, &addresses_of_others(session)?, means(session)),
                    some => iptables::remove(&key, some, means(session)),
                }
                .map_err(firewall)?;
                // Where only one family's programs are installed, the other's rules are passed over: they must not be there.
                if let Some(v6) = iptables::installed().iter().position(|installed| !installed)
                    && unless_absent(session, |nft| iptables::chains(nft, &key))?.get(v6) == Some(&true)
                {
                    return Err(firewall(iptables::missing(v6 == 1)));
                }
            }
        }
    }
    Ok(())
}

/// The addresses that iptables masquerades for the container's other attachments to the network, by their records.
fn addresses_of_others(session: &Session) -> Result<Vec<IpAddr>, OpError> {
    let (own, request) = (session.key()?, &session.request);
    let mut addresses = Vec::new();
    for summary in postern_state::list(&session.state).map_err(state)? {
        let is_of_container = |header: &Header| {
            header.network == request.conf.name && header.container_id == request.container_id && header.key() != own
        };
        if summary.header.as_ref().is_some_and(is_of_container) {
            for noted in summary.effects {
                let effect = serde_json::from_value::<Effect>(noted.effect).ok();
                if let Some(Masquerade { backend: Backend::Iptables, addresses: claimed }) =
                    effect.as_ref().and_then(Masquerade::of)
                {
                    addresses.extend(claimed.iter().map(IpNet::addr));
                }
            }
        }
    }
    Ok(addresses)
}
