//! The names of objects in a plan. Also tests if an operation's object existed before the operation.

use super::node::HOST_END;
use crate::capability::{list, operation_texts};
use postern_gate::rehearsal::{GuestState, Object, OwnAddress, Request};
use postern_sim::{Kernel, Place};
use postern_types::{Handle, Operation};

/// The existence of an operation's object before the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectBefore {
    /// An object of the name that the operation uses exists.
    Other,
    /// The object doesn't exist, or its existence is unknown.
    Unknown,
}

/// Looks for the operation's object. `kernel` is the node before the operation.
pub fn object_before(kernel: &Kernel, operation: &Operation) -> ObjectBefore {
    let object_before = operation_texts(operation).makes().is_some_and(|name| kernel.find(Place::Host, name).is_some());
    if object_before { ObjectBefore::Other } else { ObjectBefore::Unknown }
}

/// The data for the names of objects.
pub struct Names<'a> {
    /// The node after the operation.
    pub kernel: &'a Kernel,
    /// The handles that the guest was given.
    pub guest: &'a GuestState<'a>,
    /// The run's request.
    pub request: &'a Request,
    /// The attachment's addresses.
    pub own: &'a [OwnAddress],
}

impl Names<'_> {
    /// Returns the name of a handle's object.
    pub fn link(&self, handle: Handle) -> String {
        match self.guest.object(handle) {
            Ok(Object::Own { .. }) => self.request.ifname.clone(),
            Ok(Object::HostEnd { .. }) => HOST_END.to_owned(),
            Ok(Object::Port { name, .. }) => name.clone(),
            Ok(Object::Bridge(bridge)) => {
                let bridge = self.kernel.links.get(&bridge.index).map_or("(gone)", |link| &link.info.name);
                format!("bridge {bridge}")
            }
            Ok(Object::Parent(parent)) => parent.name.clone(),
            Err(_) => format!("a link that the guest was not given (handle {handle})"),
        }
    }

    /// Returns the attachment's addresses.
    pub fn addresses(&self) -> String {
        list(self.own.iter().map(|own| own.net), "no address")
    }

    /// Returns the gateways of the attachment's addresses.
    pub fn gateways(&self, prefix: bool) -> String {
        let gateway = |own: &OwnAddress| {
            let gateway = own.gateway_or_first()?;
            Some(if prefix { format!("{gateway}/{}", own.net.prefix_len()) } else { gateway.to_string() })
        };
        let mut gateways: Vec<String> = self.own.iter().filter_map(gateway).collect();
        gateways.dedup();
        list(gateways, "no gateway")
    }

    /// Returns the IP versions of the addresses.
    pub fn families(&self) -> &'static str {
        let has = |v4| self.own.iter().any(|own| own.net.addr().is_ipv4() == v4);
        match (has(true), has(false)) {
            (true, true) => "IPv4 and IPv6",
            (false, true) => "IPv6",
            (true, false) => "IPv4",
            (false, false) => "no",
        }
    }
}
