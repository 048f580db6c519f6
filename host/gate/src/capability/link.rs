//! `link`: the attachment's own link.

pub(crate) use crate::capability::facts::ALWAYS as FACTS;
use crate::capability::inner::effect as inner_link;
use crate::capability::shared::link_state;
use crate::capability::veth;
use crate::cause::because;
use crate::context::{Context, View};
use crate::effect::{Effect, LinkState, Veth};
use crate::errors::{about, kernel_error, link_gone, native_error};
use crate::gate::Gate;
use crate::guest_state::{BridgeLink, Object, Parent};
use crate::{collect, others};
use nix::errno::Errno;
use postern_cni::Verb;
use postern_kernel::KernelError;
use postern_types::{Capability, ErrorCode, Handle, LinkInfo, OpError, host};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest time until the kernel has removed the links of an ended namespace.
const DEAD_WITHIN: Duration = Duration::from_secs(2);

impl host::Link for Gate<'_> {
    /// `link.attributes`, also for a host end or a bridge.
    fn attributes(&mut self, handle: Handle) -> Result<LinkInfo, OpError> {
        let (index, name, netlink) = match self.guest.object(handle)? {
            Object::Own { index, name } | Object::Parent(Parent { index, name, in_container: true, .. }) => {
                (*index, name, self.run.system.container_netlink()?)
            }
            Object::HostEnd { index, name, .. }
            | Object::Port { index, name }
            | Object::Bridge(BridgeLink { index, name, .. })
            | Object::Parent(Parent { index, name, in_container: false, .. }) => {
                (*index, name, self.run.system.host()?)
            }
        };
        match netlink.link_by_index(index).map_err(kernel_error)? {
            Some(link) if link.index == index => Ok(Gate::show(handle, link)),
            _ => Err(link_gone(name)),
        }
    }

    fn up(&mut self, handle: Handle) -> Result<(), OpError> {
        let (index, name) = self.guest.own(handle)?;
        if link_state::of_another(self.run, index)?.is_some_and(|link| !link.up) {
            self.run.journal.intend(self.run.view(), LinkState { index, up: true, ..LinkState::default() })?;
        }
        let netlink = self.run.system.container_netlink()?;
        let until = (Instant::now() + DEAD_WITHIN).min(self.run.fixed.deadline.at());
        let mut set_up = netlink.set_up(index);
        // The kernel removes the links of an ended namespace a little later. Until then, a macvlan with the same parent
        // and address may still be in use.
        let is_in_use =
            |set_up: &Result<(), KernelError>| set_up.as_ref().is_err_and(|error| error.is(Errno::EADDRINUSE));
        let waits = is_in_use(&set_up) && !is_address_of_host(self.run)?;
        while waits && is_in_use(&set_up) && Instant::now() < until {
            sleep(Duration::from_millis(20));
            set_up = netlink.set_up(index);
        }
        set_up.map_err(|error| {
            let is_taken = error.is(Errno::EADDRINUSE);
            let error = native_error(error, &name, format_args!("failed to set \"{name}\" UP"));
            match self.run.own.container_mac.filter(|_| is_taken) {
                Some(mac) => because(error, &format!("its master, or another link on this master, has {mac}"))
                    .hint("each link of a master needs a different address: leave `mac` out, or name another address"),
                None => error,
            }
        })?;
        self.run.own.path.up = true;
        Ok(())
    }

    fn delete(&mut self, handle: Handle) -> Result<(), OpError> {
        let (index, name) = self.guest.own(handle)?;
        // A device is not deleted: the node would lose a virtual device for ever.
        if self.guest.granted().knows(Capability::Device) {
            let message = format!("\"{name}\" is a device of the node: it is given back, and not deleted");
            return Err(OpError::new(ErrorCode::InvalidArgument, &name, message));
        }
        let is_add = self.run.request.verb == Verb::Add;
        if self.run.journal.has_joined() {
            let message = format!("\"{name}\" belongs to an earlier plugin, whose host end joined a bridge");
            let hint = "the plugin that made the link deletes the link on DEL";
            return Err(OpError::new(ErrorCode::Exists, name, message).hint(hint));
        }
        self.run.journal.only_of_this_run(self.run.request, Veth::is, "pair")?;
        self.run.journal.only_of_this_run(self.run.request, Effect::is_link, "link")?;
        // An ADD deletes only its own link: its undo could not restore another program's link.
        if is_add && !self.run.journal.has_made_link() {
            let message = format!("\"{name}\" is not a link that this ADD made");
            return Err(
                OpError::new(ErrorCode::Exists, name, message).hint("the plugin that made the link deletes the link")
            );
        }
        if self.run.request.verb == Verb::Del {
            if !others::knows_container(self.run.journal) {
                let container = self.run.system.container_netlink()?;
                let link = container.link_by_index(index).map_err(kernel_error)?;
                if link.map_or(Ok(false), |link| others::spares(self.run, &link))? {
                    return Ok(());
                }
            }
            collect::before_deletion(self.run)?;
        }
        self.run.system.container_netlink()?.delete_link(index).map_err(about(&name))?;
        self.run.own.deleted.push(index);
        // Only an ADD takes the pair off the record here. A DEL keeps the pair in the record until the host end is
        // gone: the container may have put another link in the pair's place. If the host end still exists after the
        // plugin has ended, DEL deletes this end by the record.
        if is_add {
            veth::retire(self.run)?;
            inner_link::retire(self.run)?;
        }
        Ok(())
    }

    fn own(&mut self) -> Result<Option<LinkInfo>, OpError> {
        // If an earlier plugin's link joined a bridge for this attachment, this plugin has no own link to remove.
        if self.run.request.verb == Verb::Del && self.run.journal.has_joined() {
            return Ok(None);
        }
        let name = self.run.request.ifname.clone();
        let Some(link) = self.run.system.link_inside(&name)? else { return Ok(None) };
        Ok(Some(Gate::show(self.grant(Object::Own { index: link.index, name })?, link)))
    }
}

/// True if a link of the host has the address of the attachment's link. Then waiting does not help.
fn is_address_of_host(run: &Context) -> Result<bool, OpError> {
    let own = run.own.container_mac.map(|mac| mac.0);
    Ok(run.system.host()?.links().map_err(kernel_error)?.iter().any(|link| link.mac == own))
}

/// Deletes the attachment's link in the container by its name, if it exists.
pub fn delete_own(view: View<'_>) -> Result<(), OpError> {
    let Some(netlink) = view.system.netlink_inside()? else { return Ok(()) };
    let name = &view.request.ifname;
    let Some(own) = netlink.link_by_name(name).map_err(kernel_error)? else { return Ok(()) };
    netlink.delete_link(own.index).map(drop).map_err(about(name))
}
