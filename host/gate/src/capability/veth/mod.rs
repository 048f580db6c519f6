//! `veth`: the pair between container and host. An attachment has one living pair. The record and the kernel identify
//! the pair. The name of the container's end proves nothing, because root in the container can change it.

pub mod effect;

pub(crate) use crate::capability::facts::ALWAYS as FACTS;
use crate::capability::leaves::EffectKind;
use crate::context::{Context, System};
use crate::effect::{MacGuard, Veth};
use crate::errors::{about, kernel_error, link_gone, native_error};
use crate::gate::Gate;
use crate::guest_state::Object;
use crate::{cause, others};
use nix::errno::Errno;
use postern_cni::Verb;
use postern_kernel::{Link, Sysctl, VethSpec, random_mac, random_veth_name, sysctl};
use postern_state::DataPath;
use postern_types::{ErrorCode, Handle, LinkInfo, Mac, OpError, VethPair, host};
use std::time::{Duration, Instant};

/// The longest wait until a host end is operational. The native plugins allow 2.55 seconds.
const RUNNING_WITHIN: Duration = Duration::from_millis(2550);

impl host::Veth for Gate<'_> {
    fn wait_running(&mut self, handle: Handle) -> Result<LinkInfo, OpError> {
        let (index, name) = self.guest.port(handle)?;
        let host = self.run.system.host()?;
        let until = (Instant::now() + RUNNING_WITHIN).min(self.run.fixed.deadline.at());
        let mut pause = Duration::from_micros(100);
        loop {
            let link = host.link_by_index(index).map_err(kernel_error)?.ok_or_else(|| link_gone(&name))?;
            if link.running {
                return Ok(Gate::show(handle, link));
            }
            if Instant::now() >= until {
                let state = link.operstate;
                let message = format!("bridge port \"{name}\" did not become operational: its state is \"{state}\"");
                return Err(OpError::new(ErrorCode::Kernel, &name, message));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    fn create(&mut self, mtu: Option<u32>, mac: Option<Mac>) -> Result<VethPair, OpError> {
        let name = self.run.request.ifname.clone();
        let peer_name = random_veth_name();
        let peer_mac = random_mac();
        let exists = |peer: &str| {
            let message = format!("container veth name (\"{name}\") peer provided (\"{peer}\") already exists");
            OpError::new(ErrorCode::Exists, &name, message).hint("the attachment exists already: run DEL first")
        };
        let container = self.run.system.container_netlink()?;
        // The name is checked before the record is written. Otherwise the undo of a failed ADD could remove an earlier
        // run's link.
        if container.link_by_name(&name).map_err(kernel_error)?.is_some() {
            return Err(exists(&peer_name));
        }
        if let Some(port) = self.run.journal.ports().first() {
            let message = format!("this attachment has joined \"{}\" with \"{}\" already", port.bridge, port.name);
            return Err(OpError::new(ErrorCode::Exists, &port.name, message).hint("run DEL first"));
        }
        if let Some(living) = retire(self.run)? {
            let message = format!("this attachment has a pair already, whose host end is \"{living}\"");
            return Err(OpError::new(ErrorCode::Exists, living, message).hint("run DEL first"));
        }
        self.guest.room(2)?;
        // The host chooses the address here, because root in the container may change it before the link is read.
        let mac = mac.unwrap_or_else(|| Mac(random_mac()));
        self.run.journal.intend(self.run.view(), Veth { host: peer_name.clone(), mac: Mac(peer_mac) })?;
        let spec = VethSpec {
            name: &name,
            mtu,
            mac: Some(mac.0),
            peer_name: &peer_name,
            peer_mac,
            peer_ns: self.run.system.home()?.fd(),
        };
        container.create_veth(&spec).map_err(|error| {
            if error.is(Errno::EEXIST) {
                return exists(&peer_name);
            }
            let asked = cause::Asked { mac: Some(mac), mtu, largest: cause::LARGEST_MTU };
            asked.explain(native_error(error, &name, "failed to make veth pair"))
        })?;
        let own = container.link_by_name(&name).map_err(kernel_error)?.ok_or_else(|| link_gone(&name))?;
        self.run.own.container_mac = Some(mac);
        // The settings of this run's earlier pair are gone with that pair.
        self.run.own.path = DataPath::default();
        let host = self.run.system.host()?;
        let end = host.link_by_name(&peer_name).map_err(kernel_error)?.ok_or_else(|| link_gone(&peer_name))?;
        ignore_router_advertisements(self.run.system, &peer_name)?;
        host.set_up(end.index).map_err(about(&peer_name))?;
        pair(self, own, Link { up: true, ..end }, true, None)
    }

    fn find(&mut self) -> Result<Option<VethPair>, OpError> {
        let found = self.run.system.link_inside(&self.run.request.ifname)?;
        let Some(own) = found.filter(|own| own.kind == "veth") else { return Ok(None) };
        let host = self.run.system.host()?;
        // The record identifies the host end. Root in the container can choose interface indices, so that a link seems
        // to belong to another container's pair.
        let mut end = None;
        for pair in self.run.journal.pairs() {
            end = pair.end(host)?.filter(|link| link.peer_index == Some(own.index)).or(end);
        }
        // A pair of an earlier ADD is only shown, and not changed.
        let journal = &*self.run.journal;
        let is_this_runs =
            |end: &Link| journal.has_made(|undo| Veth::of(&undo.effect).is_some_and(|pair| pair.host == end.name));
        let ours = end.as_ref().is_some_and(|end| self.run.request.verb != Verb::Add || is_this_runs(end));
        if end.is_none() {
            // A native plugin's pair can only be read.
            end = others::mutual_end_of(self.run.system, &own)?;
        }
        let Some(end) = end else { return Ok(None) };
        let master = end.master.map(|master| host.link_by_index(master).map_err(kernel_error)).transpose()?.flatten();
        let bridge = master.filter(|link| link.kind == "bridge").map(|bridge| bridge.name.to_string());
        pair(self, own, end, ours, bridge).map(Some)
    }
}

/// Checks that a handle's link is the attachment's end on the host. This end is the host end of the living pair, or
/// an earlier plugin's link that joined a bridge.
pub(crate) fn must_live(run: &Context, index: u32, name: &str) -> Result<(), OpError> {
    match others::end(run)? {
        Some(link) if link.index == index && link.name == name => Ok(()),
        _ => Err(link_gone(name)),
    }
}

/// Deletes from the record the pairs that no longer exist. Their spoofing protection is removed from node and record,
/// because the protection must not count for the next pair. Returns the host end of a living pair.
pub fn retire(run: &mut Context) -> Result<Option<String>, OpError> {
    let living = others::living_pair(run)?.map(|link| link.name.to_string());
    let is_gone = |host: &String| living.as_ref() != Some(host);
    for guard in run.journal.recorded::<MacGuard>() {
        if guard.host.as_ref().map_or(living.is_none(), is_gone) {
            guard.remove(run)?;
            run.journal.gone(|effect| MacGuard::of(effect) == Some(&guard));
        }
    }
    run.journal.gone(|effect| Veth::of(effect).is_some_and(|pair| is_gone(&pair.host)));
    Ok(living)
}

/// Turns off IPv6 autoconfiguration for a link of the host. A kernel without IPv6 has no such setting. If `/proc/sys`
/// is read-only, autoconfiguration stays on, as with the native plugins, and a message says so. Any other refusal is an
/// error, because a container could give the node addresses and routes.
pub(crate) fn ignore_router_advertisements(system: &System, link: &str) -> Result<(), OpError> {
    switch_off(system, link, "accept_ra", "takes router advertisements of its container")
}

/// Switches duplicate address detection (DAD) off for a link of the node. Root in a container behind the link could
/// claim any address, also the link-local address. Then the node could no longer find the containers' hardware
/// addresses. Without IPv6 nothing changes.
pub(crate) fn ask_for_no_address(system: &System, link: &str) -> Result<(), OpError> {
    switch_off(system, link, "accept_dad", "loses addresses that a container claims")
}

/// Switches off a setting of a link of the node. If the node's settings are read-only, a message names the consequence.
fn switch_off(system: &System, link: &str, key: &'static str, otherwise: &str) -> Result<(), OpError> {
    let key = Sysctl::Ipv6Conf(link.to_owned(), key);
    let set = match system.container() {
        Some(container) => container.sysctl_set_at_home(&key, "0"),
        None => sysctl::set(&key, "0"),
    };
    match set {
        Err(error) if error.is(Errno::ENOENT) => Ok(()),
        Err(error) if [Errno::EROFS, Errno::EACCES, Errno::EPERM].iter().any(|errno| error.is(*errno)) => {
            crate::say!("postern: {link} {otherwise}: {error}");
            Ok(())
        }
        set => set.map(drop).map_err(about(link)),
    }
}

fn pair(gate: &mut Gate<'_>, own: Link, end: Link, ours: bool, bridge: Option<String>) -> Result<VethPair, OpError> {
    let container = gate.grant(Object::Own { index: own.index, name: own.name.to_string() })?;
    let host = gate.grant(Object::HostEnd { index: end.index, name: end.name.to_string(), ours })?;
    Ok(VethPair { container: Gate::show(container, own), host: Gate::show(host, end), bridge })
}
