//! `addresses`: the addresses on the attachment's own link.

pub(crate) use crate::capability::facts::WITH_ADDRESSES as FACTS;
use crate::capability::shared::link_state;
use crate::effect::LinkState;
use crate::errors::{kernel_error, native_error};
use crate::gate::Gate;
use crate::{cause, others};
use ipnet::IpNet;
use postern_types::{Address, ErrorCode, Handle, OpError, host};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// The longest time for duplicate address detection: the native plugins' limit.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// The most addresses or routes in one list. With this limit the list fits into one message.
const MOST_LISTED: usize = 4096;

/// The most addresses or routes about which one call may ask.
const MOST_ASKED: usize = 1024;

impl host::Addresses for Gate<'_> {
    fn add(&mut self, handle: Handle, addresses: &[IpNet]) -> Result<(), OpError> {
        let (index, name) = self.guest.own(handle)?;
        self.common.add_addresses(&name, addresses.len())?;
        if let Some(foreign) = addresses.iter().find(|address| !self.run.own.owns(address)) {
            return Err(foreign_error(self, foreign));
        }
        if let Some(link) = link_state::of_another(self.run, index)? {
            let there = self.run.system.container_netlink()?.addresses(link.index).map_err(kernel_error)?;
            let is_new = |address: &IpNet| !there.iter().any(|have| have.net == *address);
            let addresses: Vec<IpNet> = addresses.iter().copied().filter(is_new).collect();
            if !addresses.is_empty() {
                self.run.journal.intend(self.run.view(), LinkState { index, addresses, ..LinkState::default() })?;
            }
        }
        let container = self.run.system.container_netlink()?;
        for address in addresses {
            self.run.fixed.deadline.in_time()?;
            container.add_address(index, *address).map_err(|error| {
                let error = native_error(error, &name, format_args!("failed to add IP addr {address} to \"{name}\""));
                // The link is read only after an error, because the message names the MTU.
                let mtu = container.link_by_index(index).ok().flatten().map(|link| link.mtu);
                cause::of_ip(error, address.addr(), &name, mtu)
            })?;
        }
        Ok(())
    }

    fn list(&mut self, handle: Handle) -> Result<Vec<Address>, OpError> {
        let (index, name) = self.guest.own(handle)?;
        let container = self.run.system.container_netlink()?;
        let addresses = container.addresses(index).map_err(kernel_error)?;
        is_listable(&name, addresses.len(), "addresses")?;
        Ok(addresses.into_iter().map(show).collect())
    }

    fn has(&mut self, handle: Handle, wanted: &[IpNet]) -> Result<Vec<bool>, OpError> {
        let (index, name) = self.guest.own(handle)?;
        is_askable(&name, wanted.len(), "addresses")?;
        let container = self.run.system.container_netlink()?;
        let there: HashSet<IpNet> =
            container.addresses(index).map_err(kernel_error)?.into_iter().map(|have| have.net).collect();
        Ok(wanted.iter().map(|address| there.contains(address)).collect())
    }

    fn settle(&mut self, handle: Handle) -> Result<(), OpError> {
        let (index, name) = self.guest.own(handle)?;
        let container = self.run.system.container_netlink()?;
        let until = (Instant::now() + SETTLED_WITHIN).min(self.run.fixed.deadline.at());
        let mut pause = Duration::from_millis(1);
        loop {
            let addresses = container.addresses(index).map_err(kernel_error)?;
            if let Some(duplicate) = addresses.iter().find(|address| address.dad_failed) {
                let address = duplicate.net.to_string();
                let message = format!("another node has {address} already (duplicate address detection failed)");
                return Err(OpError::new(ErrorCode::Exists, address, message));
            }
            let Some(tentative) = addresses.iter().find(|address| address.tentative) else { return Ok(()) };
            if Instant::now() >= until {
                // On a link without carrier the detection never ends. The gate accepts this state, like the native
                // plugins.
                let link = container.link_by_index(index).map_err(kernel_error)?;
                if link.is_none_or(|link| !link.running) {
                    return Ok(());
                }
                let message = format!("{} on \"{name}\" is still tentative", tentative.net);
                return Err(OpError::new(ErrorCode::Deadline, &name, message));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

/// The error for an address that does not belong to this attachment: neither IPAM nor an accepted part of `prevResult`
/// gave it.
pub fn not_own(address: &str) -> OpError {
    let message = format!("{address} is not an address of this attachment: neither IPAM nor prevResult gave it");
    OpError::new(ErrorCode::InvalidArgument, address, message)
}

/// Returns the error of [`not_own`]. For an address of `prevResult`, the error also says why `prevResult` is not
/// enough.
pub fn foreign_error(gate: &Gate<'_>, address: &IpNet) -> OpError {
    let previous = gate.run.request.previous();
    if !previous.ips.iter().any(|ip| ip.address == *address) {
        return not_own(&address.to_string());
    }
    let (why, hint) = others::not_counting(gate.run.view(), address, gate.guest.granted());
    let message = format!(
        "{address} is not an address of this attachment: prevResult names it, and no record says that an earlier plugin \
         gave it{why}"
    );
    OpError::new(ErrorCode::InvalidArgument, address.to_string(), message).hint(hint)
}

/// Fails if a list is too long for the sandbox.
pub(crate) fn is_listable(link: &str, number: usize, kind: &str) -> Result<(), OpError> {
    if number <= MOST_LISTED {
        return Ok(());
    }
    let message = format!("\"{link}\" has {number} {kind} in the container: a list has room for {MOST_LISTED}");
    Err(OpError::new(ErrorCode::Exhausted, link, message)
        .hint(format!("remove {kind} of the link in the container, or use a plugin that asks with {kind}.has")))
}

/// Fails if a guest asks about too many objects.
pub(crate) fn is_askable(link: &str, number: usize, kind: &str) -> Result<(), OpError> {
    if number <= MOST_ASKED {
        return Ok(());
    }
    let message = format!("{number} {kind} are too many: one call asks about {MOST_ASKED}");
    Err(OpError::new(ErrorCode::Exhausted, link, message).hint("ask in several calls"))
}

/// Converts an address to the form that the guest sees.
pub fn show(address: postern_kernel::LinkAddress) -> Address {
    Address { net: address.net, scope: address.scope, tentative: address.tentative }
}
