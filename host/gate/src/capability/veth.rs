//! `veth`: the pair between container and host. An attachment has one that lives, by the record and the kernel: the name of
//! the container's end tells nothing, as root in there can change it.

use crate::capability::facts::{Facts, Needed};
use crate::effect::{Effect, MacGuard, Veth};
use crate::errors::{about, kernel, link_gone, refused};
use crate::front::Object;
use crate::gate::Gate;
use crate::session::Session;
use postern_cni::Verb;
use postern_kernel::{Link, Sysctl, VethSpec, random_mac, random_veth_name, sysctl};
use postern_state::DataPath;
use postern_types::{ErrorCode, Handle, Mac, OpError, Reply, VethPair, ops};
use std::time::{Duration, Instant};

/// How long a host end may take to become operational; the native plugins give it 2.55 seconds.
const RUNNING_WITHIN: Duration = Duration::from_millis(2550);

/// What the host has to know of it beside its operations.
pub const FACTS: Facts = Facts { needed: Needed::Always, keeps: |_, _| None, unrecorded: None };

/// Carries out one operation that policy allows.
///
/// # Errors
/// What the guest gets to see.
pub fn execute(gate: &mut Gate<'_>, operation: &ops::Veth) -> Result<Reply, OpError> {
    match operation {
        ops::Veth::Create { mtu, mac } => create(gate, *mtu, *mac),
        ops::Veth::Find => find(gate),
        ops::Veth::WaitRunning { host } => wait_running(gate, *host),
    }
}

/// `veth.create`.
fn create(gate: &mut Gate<'_>, mtu: Option<u32>, mac: Option<Mac>) -> Result<Reply, OpError> {
    let name = gate.session.request.ifname.clone();
    let peer_name = random_veth_name();
    let peer_mac = random_mac();
    let exists = |peer: &str| {
        OpError::new(
            ErrorCode::Exists,
            &name,
            format!("container veth name (\"{name}\") peer provided (\"{peer}\") already exists"),
        )
        .hint("the attachment exists already: run DEL first")
    };
    let container = gate.session.container_required()?.netlink().map_err(kernel)?;
    // Looked at before it is recorded: undoing a failed ADD must not take away what an earlier one made.
    if container.link_by_name(&name).map_err(kernel)?.is_some() {
        return Err(exists(&peer_name));
    }
    if let Some(port) = gate.session.ports().first() {
        let message = format!("this attachment has joined \"{}\" with \"{}\" already", port.bridge, port.name);
        return Err(OpError::new(ErrorCode::Exists, &port.name, message).hint("run DEL first"));
    }
    if let Some(living) = retire(gate.session)? {
        let message = format!("this attachment has a pair already, whose host end is \"{living}\"");
        return Err(OpError::new(ErrorCode::Exists, living, message).hint("run DEL first"));
    }
    gate.front.room(2)?;
    // Chosen here: what the link is asked for later, root in the container may have changed by then.
    let mac = mac.unwrap_or_else(|| Mac(random_mac()));
    gate.session.intend(Veth { host: peer_name.clone(), mac: Mac(peer_mac) })?;
    let container = gate.session.container_required()?.netlink().map_err(kernel)?;
    let spec = VethSpec {
        name: &name,
        mtu,
        mac: Some(mac.0),
        peer_name: &peer_name,
        peer_mac,
        peer_ns: gate.session.home()?.fd(),
    };
    if let Err(error) = container.create_veth(&spec) {
        return Err(if error.is(nix::errno::Errno::EEXIST) {
            exists(&peer_name)
        } else {
            refused(error, &name, "failed to make veth pair")
        });
    }
    let own = container.link_by_name(&name).map_err(kernel)?.ok_or_else(|| link_gone(&name))?;
    gate.session.container_mac = Some(mac);
    // What an earlier pair of this run had went with it.
    gate.session.path = DataPath::default();
    let host = gate.session.host()?;
    let end = host.link_by_name(&peer_name).map_err(kernel)?.ok_or_else(|| link_gone(&peer_name))?;
    host.set_up(end.index).map_err(about(&peer_name))?;
    ignore_router_advertisements(&peer_name);
    pair(gate, own, Link { up: true, ..end }, true, None).map(Reply::Veth)
}

/// Whether a link that a handle stands for is the attachment's end on the host: that of its living pair, or what it joined with.
///
/// # Errors
/// [`ErrorCode::InvalidHandle`]: it is not.
pub fn must_live(session: &Session, index: u32, name: &str) -> Result<(), OpError> {
    match session.end()? {
        Some(link) if link.index == index && link.name == name => Ok(()),
        _ => Err(link_gone(name)),
    }
}

/// Takes the pairs that are gone off the record, and their spoofing protection off the node and the record: it guards
/// nothing any more, and must not be taken for that of the next pair. Returns the host end of a pair that lives.
///
/// # Errors
/// The kernel refuses.
pub fn retire(session: &mut Session) -> Result<Option<String>, OpError> {
    let living = session.living_pair()?.map(|link| link.name);
    let is_gone = |host: &String| living.as_ref() != Some(host);
    let effects = session.record().map(|record| record.effects(None)).unwrap_or_default();
    for noted in effects {
        if let Some(guard) = MacGuard::of(&noted.effect)
            && guard.host.as_ref().map_or(living.is_none(), is_gone)
        {
            guard.revert(session)?;
            session.gone(|effect| *effect == noted.effect);
        }
    }
    session.gone(|effect| Veth::of(effect).is_some_and(|pair| is_gone(&pair.host)));
    Ok(living)
}

/// A host's link takes no part in IPv6 autoconfiguration. A kernel without IPv6 has nothing to turn off.
pub fn ignore_router_advertisements(link: &str) {
    let _ = sysctl::set(&Sysctl::Ipv6Conf { link: link.to_owned(), key: "accept_ra" }, "0");
}

/// `veth.find`.
fn find(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    let none = Ok(Reply::MaybeVeth(None));
    let Some(container) = gate.session.container() else { return none };
    let name = gate.session.request.ifname.clone();
    let Some(own) = container.netlink().map_err(kernel)?.link_by_name(&name).map_err(kernel)? else { return none };
    if own.kind != "veth" {
        return none;
    }
    let host = gate.session.host()?;
    // Whose the host end is, the record says: indices can be chosen by whoever is root in the container, so that its
    // link seems to belong to somebody else's.
    let mut end = None;
    for pair in gate.session.pairs() {
        end = pair.end(host)?.filter(|link| link.peer_index == Some(own.index)).or(end);
    }
    // What an earlier ADD made this one leaves alone: it can be looked at.
    let is_this_runs = |end: &Link| {
        let of_end = |effect: &Effect| Veth::of(effect).is_some_and(|pair| pair.host == end.name);
        gate.session.undo.iter().any(|undo| of_end(&undo.effect))
    };
    let ours = end.as_ref().is_some_and(|end| gate.session.request.verb != Verb::Add || is_this_runs(end));
    if end.is_none()
        && let Some(peer) = own.peer_index
    {
        // A native plugin's pair: it can be looked at, and nothing else. Both ends have to name each other, and the host's
        // the container's namespace too: an index is unique in one namespace only, and root in there can choose it.
        let number = host.namespace_number(gate.session.namespace()?.fd()).map_err(kernel)?;
        let found = host.link_by_index(peer).map_err(kernel)?;
        let mutual = |link: &Link| link.peer_index == Some(own.index) && link.peer_netnsid == number;
        end = found.filter(|link| link.kind == "veth" && number.is_some() && mutual(link));
    }
    let Some(end) = end else { return none };
    let bridge = match end.master {
        Some(master) => host.link_by_index(master).map_err(kernel)?.filter(|link| link.kind == "bridge"),
        None => None,
    };
    pair(gate, own, end, ours, bridge.map(|bridge| bridge.name)).map(|pair| Reply::MaybeVeth(Some(pair)))
}

fn pair(gate: &mut Gate<'_>, own: Link, end: Link, ours: bool, bridge: Option<String>) -> Result<VethPair, OpError> {
    let container = gate.grant(Object::Own { index: own.index, name: own.name.clone() })?;
    let host = gate.grant(Object::HostEnd { index: end.index, name: end.name.clone(), ours })?;
    Ok(VethPair { container: Gate::show(container, own), host: Gate::show(host, end), bridge })
}

/// `veth.wait-running`.
fn wait_running(gate: &Gate<'_>, handle: Handle) -> Result<Reply, OpError> {
    let (index, name) = gate.front.port(handle)?;
    let host = gate.session.host()?;
    let until = (Instant::now() + RUNNING_WITHIN).min(gate.session.deadline);
    let mut pause = Duration::from_micros(100);
    loop {
        let link = host.link_by_index(index).map_err(kernel)?.ok_or_else(|| link_gone(&name))?;
        if link.running {
            return Ok(Reply::Link(Gate::show(handle, link)));
        }
        if Instant::now() >= until {
            return Err(OpError::new(
                ErrorCode::Kernel,
                &name,
                format!("bridge port \"{name}\" did not become operational: its state is \"{}\"", link.operstate),
            ));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
