//! The translation between the simulation's links and the guest's handles. As in the gate, the guest's state keeps the object
//! of each handle.

use postern_gate::rehearsal::{BridgeLink, Common, GuestState, Object, Parent};
use postern_types::{
    BridgeInfo, Handle, IpvlanInfo, LinkInfo, MacvlanInfo, OpError, Operation, Reply, VethPair, VlanInfo, ops,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Returns the same operation on links of the simulation.
///
/// # Errors
/// [`postern_types::ErrorCode::InvalidHandle`].
pub fn resolve(guest: &GuestState<'_>, operation: &Operation) -> Result<Operation, OpError> {
    let mut resolved = operation.clone();
    for (handle, takes) in resolved.handles() {
        (*handle, _) = guest.take(*handle, takes)?.link();
    }
    Ok(resolved)
}

/// Returns the simulation's answer, with the guest's handles in place of the simulation's links.
///
/// # Errors
/// [`postern_types::ErrorCode::Exhausted`].
pub fn show(
    guest: &mut GuestState<'_>,
    common: &mut Common,
    operation: &Operation,
    reply: Reply,
) -> Result<Reply, OpError> {
    let mut show = Show { guest, common };
    match operation {
        // The guest already has a handle of the link: the request contains this handle.
        Operation::Link(ops::Link::Attributes { link: handle })
        | Operation::Veth(ops::Veth::WaitRunning { host: handle }) => {
            with(&reply, |info| Ok(LinkInfo { handle: *handle, ..info }))
        }
        Operation::Link(ops::Link::Own) => with_found(&reply, |info| show.own(info)),
        Operation::Veth(ops::Veth::Create { .. }) => with(&reply, |pair| show.pair(pair)),
        Operation::Veth(ops::Veth::Find) => with_found(&reply, |pair| show.pair(pair)),
        Operation::Bridge(ops::Bridge::Ensure { .. }) => with(&reply, |bridge| show.bridge(bridge)),
        Operation::Bridge(ops::Bridge::Find { .. }) => with_found(&reply, |bridge| show.bridge(bridge)),
        Operation::Bridge(ops::Bridge::PreviousLink) => with_found(&reply, |info| show.port(info)),
        // A VLAN gateway or an ifb: a guest can't act on it.
        Operation::Bridge(ops::Bridge::EnsureGateways { .. }) | Operation::Bandwidth(ops::Bandwidth::Limit { .. }) => {
            with_found(&reply, |info: LinkInfo| {
                show.common.shown.insert(info.name.clone());
                Ok(LinkInfo { handle: Handle::MAX, ..info })
            })
        }
        Operation::Parent(ops::Parent::Find { in_container, .. }) => {
            with(&reply, |info| show.parent(info, *in_container))
        }
        Operation::Macvlan(ops::Macvlan::Create { .. }) => {
            with(&reply, |made: MacvlanInfo| Ok(MacvlanInfo { link: show.own(made.link)?, ..made }))
        }
        Operation::Macvlan(ops::Macvlan::Find) => {
            with_found(&reply, |found: MacvlanInfo| Ok(MacvlanInfo { link: show.own(found.link)?, ..found }))
        }
        Operation::Vlan(ops::Vlan::Create { .. })
        | Operation::Ipvlan(ops::Ipvlan::Create { .. })
        | Operation::Dummy(ops::Dummy::Create)
        | Operation::Tap(ops::Tap::Create { .. })
        | Operation::Device(ops::Device::Take { .. }) => with(&reply, |info| show.own(info)),
        Operation::Vlan(ops::Vlan::Find) => {
            with_found(&reply, |found: VlanInfo| Ok(VlanInfo { link: show.own(found.link)?, ..found }))
        }
        Operation::Ipvlan(ops::Ipvlan::Find) => {
            with_found(&reply, |found: IpvlanInfo| Ok(IpvlanInfo { link: show.own(found.link)?, ..found }))
        }
        // The answers to these operations name no link, or a link without a handle for the guest.
        Operation::Link(ops::Link::Up { .. } | ops::Link::Delete { .. })
        | Operation::Bridge(ops::Bridge::Attach { .. })
        | Operation::Tap(ops::Tap::Join { .. })
        | Operation::Device(ops::Device::Find { .. } | ops::Device::GiveBack)
        | Operation::Bandwidth(ops::Bandwidth::Check { .. } | ops::Bandwidth::Remove) => Ok(reply),
        // each capability without links: Operation::{Type}(_) => Ok(reply),
        Operation::Addresses(_) => Ok(reply),
        Operation::Routes(_) => Ok(reply),
        Operation::LinkSysctl(_) => Ok(reply),
        Operation::PointToPoint(_) => Ok(reply),
        Operation::Forwarding(_) => Ok(reply),
        Operation::Masquerade(_) => Ok(reply),
        Operation::MacGuard(_) => Ok(reply),
        Operation::Ipam(_) => Ok(reply),
        Operation::Leases(_) => Ok(reply),
        Operation::ResolvConf(_) => Ok(reply),
        Operation::Loopback(_) => Ok(reply),
        Operation::Attachments(_) => Ok(reply),
        Operation::PortMappings(_) => Ok(reply),
        Operation::Firewall(_) => Ok(reply),
        Operation::NamespaceSysctl(_) => Ok(reply),
        Operation::LinkSettings(_) => Ok(reply),
        Operation::Delegate(_) => Ok(reply),
        Operation::SourceRoutes(_) => Ok(reply),
        Operation::Vrf(_) => Ok(reply),
        Operation::Dhcp(_) => Ok(reply),
        Operation::Notes(_) => Ok(reply),
        // end of the list
    }
}

/// Returns the answer with a changed value.
fn with<T: DeserializeOwned + Serialize>(
    reply: &Reply,
    change: impl FnOnce(T) -> Result<T, OpError>,
) -> Result<Reply, OpError> {
    Reply::of(&change(reply.read()?)?)
}

/// Like [`with`], for a value that may be absent.
fn with_found<T: DeserializeOwned + Serialize>(
    reply: &Reply,
    change: impl FnOnce(T) -> Result<T, OpError>,
) -> Result<Reply, OpError> {
    with(reply, |found: Option<T>| found.map(change).transpose())
}

/// Gives the guest handles for links. The simulation numbers links as a kernel does: no number is used twice.
struct Show<'s, 'f> {
    guest: &'s mut GuestState<'f>,
    common: &'s mut Common,
}

impl Show<'_, '_> {
    fn own(&mut self, info: LinkInfo) -> Result<LinkInfo, OpError> {
        let object = Object::Own { index: info.handle, name: info.name.clone() };
        self.give(info, object)
    }

    fn parent(&mut self, info: LinkInfo, in_container: bool) -> Result<LinkInfo, OpError> {
        let LinkInfo { handle: index, name, mtu, .. } = info.clone();
        self.give(info, Object::Parent(Parent { index, name, in_container, mtu }))
    }

    fn port(&mut self, info: LinkInfo) -> Result<LinkInfo, OpError> {
        let object = Object::Port { index: info.handle, name: info.name.clone() };
        self.give(info, object)
    }

    fn pair(&mut self, pair: VethPair) -> Result<VethPair, OpError> {
        // Only the guest acts in a simulation, so the pair belongs to the guest's attachment.
        let end = Object::HostEnd { index: pair.host.handle, name: pair.host.name.clone(), ours: true };
        Ok(VethPair { container: self.own(pair.container)?, host: self.give(pair.host, end)?, bridge: pair.bridge })
    }

    fn bridge(&mut self, bridge: BridgeInfo) -> Result<BridgeInfo, OpError> {
        let LinkInfo { handle: index, name, mac, mtu, .. } = bridge.link.clone();
        let object = Object::Bridge(BridgeLink { index, name, mac, mtu, asks: false });
        Ok(BridgeInfo { link: self.give(bridge.link, object)?, ..bridge })
    }

    fn give(&mut self, info: LinkInfo, object: Object) -> Result<LinkInfo, OpError> {
        Ok(LinkInfo { handle: self.guest.grant(self.common, object)?, ..info })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_cni::Json;
    use postern_policy::{Granted, Policy};
    use postern_types::{ErrorCode, PortSpec};

    fn granted() -> Granted {
        Policy::parse("", "bridge.toml").unwrap().resolve(&Json::Null, "").unwrap()
    }

    fn info(handle: Handle) -> LinkInfo {
        let (name, kind) = (format!("link{handle}"), "veth".to_owned());
        LinkInfo { handle, name, mac: None, mtu: 1500, kind, up: false, running: false }
    }

    #[test]
    fn a_guest_sees_handles_and_the_simulation_links() {
        let mut common = Common::default();
        let granted = granted();
        let mut guest = GuestState::new("bridge", 0, &granted, &mut common);
        let pair = Reply::of(&VethPair { container: info(40), host: info(41), bridge: None }).unwrap();
        let create = ops::Veth::Create { mtu: None, mac: None }.into();
        let given: VethPair = show(&mut guest, &mut common, &create, pair).unwrap().read().unwrap();
        assert_eq!((given.container.handle, given.host.handle), (0, 1));
        assert_eq!(resolve(&guest, &ops::Link::Up { link: 0 }.into()), Ok(ops::Link::Up { link: 40 }.into()));
        let look = ops::Link::Attributes { link: 1 }.into();
        assert_eq!(resolve(&guest, &look), Ok(ops::Link::Attributes { link: 41 }.into()));
        let shown = show(&mut guest, &mut common, &look, Reply::of(&info(41)).unwrap()).unwrap();
        assert_eq!(shown.read::<LinkInfo>().unwrap().handle, 1);
        let bad = resolve(&guest, &ops::PointToPoint::Ensure { host: 0 }.into());
        assert_eq!(bad.unwrap_err().code, ErrorCode::InvalidHandle);
    }

    #[test]
    fn a_vlan_gateway_has_none() {
        let mut common = Common::default();
        let granted = granted();
        let mut guest = GuestState::new("bridge", 0, &granted, &mut common);
        let operation = ops::Bridge::EnsureGateways { bridge: 0, port: PortSpec::default(), force: false }.into();
        let shown = show(&mut guest, &mut common, &operation, Reply::of(&Some(info(7))).unwrap()).unwrap();
        assert_eq!(shown.read::<Option<LinkInfo>>().unwrap().unwrap().handle, Handle::MAX);
        assert!(guest.object(0).is_err() && common.shown.contains("link7"));
    }
}
