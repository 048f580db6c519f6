//! `veth`: the pair between container and host.

use crate::capability::{about, refused};
use crate::effect::Effect;
use crate::gate::{Gate, Object, link_gone};
use crate::session::kernel;
use postern_kernel::{Link, Sysctl, VethSpec, random_mac, random_veth_name, sysctl};
use postern_types::{ErrorCode, Handle, Mac, OpError, Reply, VethPair};
use std::time::{Duration, Instant};

/// How long a host end may take to become operational; the native plugins give it 2.55 seconds.
const RUNNING_WITHIN: Duration = Duration::from_millis(2550);

/// `veth.create`.
pub fn create(gate: &mut Gate<'_>, mtu: Option<u32>, mac: Option<Mac>) -> Result<Reply, OpError> {
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
    gate.session.intend(gate.plugin, Effect::Veth { host: peer_name.clone(), mac: Mac(peer_mac) })?;
    let container = gate.session.container_required()?.netlink().map_err(kernel)?;
    let spec = VethSpec {
        name: &name,
        mtu,
        mac: mac.map(|mac| mac.0),
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
    let host = gate.session.host()?;
    let end = host.link_by_name(&peer_name).map_err(kernel)?.ok_or_else(|| link_gone(&peer_name))?;
    host.set_up(end.index).map_err(about(&peer_name))?;
    ignore_router_advertisements(&peer_name);
    pair(gate, own, Link { up: true, ..end }, None)
}

/// A host's link takes no part in IPv6 autoconfiguration. A kernel without IPv6 has nothing to turn off.
pub fn ignore_router_advertisements(link: &str) {
    let _ = sysctl::set(&Sysctl::Ipv6Conf { link: link.to_owned(), key: "accept_ra" }, "0");
}

/// `veth.find`.
pub fn find(gate: &mut Gate<'_>) -> Result<Reply, OpError> {
    let none = Ok(Reply::MaybeVeth(None));
    let Some(container) = gate.session.container() else { return none };
    let name = gate.session.request.ifname.clone();
    let Some(own) = container.netlink().map_err(kernel)?.link_by_name(&name).map_err(kernel)? else { return none };
    let host = gate.session.host()?;
    // The index of the other end is one of the namespace that the kernel says it is in; only this host's counts, and
    // the end found there has to point back.
    let (true, Some(peer)) = (own.kind == "veth", own.peer_index) else { return none };
    let Some(end) = host.link_by_index(peer).map_err(kernel)? else { return none };
    if end.kind != "veth" || end.peer_index != Some(own.index) {
        return none;
    }
    let bridge = match end.master {
        Some(master) => host.link_by_index(master).map_err(kernel)?.filter(|link| link.kind == "bridge"),
        None => None,
    };
    let Reply::Veth(pair) = pair(gate, own, end, bridge.map(|bridge| bridge.name))? else { return none };
    Ok(Reply::MaybeVeth(Some(pair)))
}

fn pair(gate: &mut Gate<'_>, own: Link, end: Link, bridge: Option<String>) -> Result<Reply, OpError> {
    let container = gate.grant(Object::Own { index: own.index, name: own.name.clone() })?;
    let host = gate.grant(Object::HostEnd { index: end.index, name: end.name.clone() })?;
    Ok(Reply::Veth(VethPair { container: Gate::show(container, own), host: Gate::show(host, end), bridge }))
}

/// `veth.wait-running`.
pub fn wait_running(gate: &Gate<'_>, handle: Handle) -> Result<Reply, OpError> {
    let (index, name) = gate.host_end(handle)?;
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
