//! The translation between the simulation's links and the guest's handles. As in the gate, the front keeps the object
//! of each handle.

use postern_gate::rehearsal::{Common, Front, Object};
use postern_types::{
    BridgeInfo, Handle, IpvlanInfo, LinkInfo, MacvlanInfo, OpError, Operation, Reply, VethPair, VlanInfo, ops,
};

/// Returns the same operation on links of the simulation.
///
/// # Errors
/// [`postern_types::ErrorCode::InvalidHandle`].
pub fn resolve(front: &Front<'_>, operation: &Operation) -> Result<Operation, OpError> {
    let mut resolved = operation.clone();
    for (handle, takes) in resolved.handles() {
        (*handle, _) = front.take(*handle, takes)?.link();
    }
    Ok(resolved)
}

/// Returns the simulation's answer as the guest gets it, with handles for the links in it.
///
/// # Errors
/// [`postern_types::ErrorCode::Exhausted`].
pub fn show(front: &mut Front<'_>, common: &mut Common, operation: &Operation, reply: Reply) -> Result<Reply, OpError> {
    let mut show = Show { front, common };
    Ok(match reply {
        // A link that the guest holds: it used its handle in the request.
        Reply::Link(info) => {
            let handle = operation.clone().handles().first().map_or(Handle::MAX, |(handle, _)| **handle);
            Reply::Link(LinkInfo { handle, ..info })
        }
        Reply::MaybeLink(Some(info)) if *operation == Operation::Link(ops::Link::Own) => {
            Reply::MaybeLink(Some(show.own(info)?))
        }
        Reply::MaybeLink(Some(info)) if *operation == Operation::Bridge(ops::Bridge::PreviousLink) => {
            Reply::MaybeLink(Some(show.port(info)?))
        }
        // A VLAN gateway or an ifb: a guest can't act on it.
        Reply::MaybeLink(Some(info)) => {
            show.common.shown.insert(info.name.clone());
            Reply::MaybeLink(Some(LinkInfo { handle: Handle::MAX, ..info }))
        }
        Reply::Veth(pair) => Reply::Veth(show.pair(pair)?),
        Reply::MaybeVeth(Some(pair)) => Reply::MaybeVeth(Some(show.pair(pair)?)),
        Reply::Parent(info) => {
            let in_container = matches!(operation, Operation::Parent(ops::Parent::Find { in_container: true, .. }));
            Reply::Parent(show.parent(info, in_container)?)
        }
        Reply::Macvlan(made) => Reply::Macvlan(MacvlanInfo { link: show.own(made.link)?, ..made }),
        Reply::MaybeMacvlan(Some(found)) => {
            Reply::MaybeMacvlan(Some(MacvlanInfo { link: show.own(found.link)?, ..found }))
        }
        Reply::Made(info) => Reply::Made(show.own(info)?),
        Reply::MaybeVlan(Some(found)) => Reply::MaybeVlan(Some(VlanInfo { link: show.own(found.link)?, ..found })),
        Reply::MaybeIpvlan(Some(found)) => {
            Reply::MaybeIpvlan(Some(IpvlanInfo { link: show.own(found.link)?, ..found }))
        }
        Reply::Taken(info) => Reply::Taken(show.own(info)?),
        Reply::Bridge(bridge) => Reply::Bridge(show.bridge(bridge)?),
        Reply::MaybeBridge(Some(bridge)) => Reply::MaybeBridge(Some(show.bridge(bridge)?)),
        other @ (Reply::Done
        | Reply::MaybeLink(None)
        | Reply::MaybeVeth(None)
        | Reply::MaybeMacvlan(None)
        | Reply::MaybeVlan(None)
        | Reply::MaybeIpvlan(None)
        | Reply::Device(_)
        | Reply::MaybeBridge(None)
        | Reply::Addresses(_)
        | Reply::Loopback { .. }
        | Reply::Routes(_)
        | Reply::Present(_)
        | Reply::Result(_)
        | Reply::Leases(_)
        | Reply::Lease(_)
        | Reply::Available(_)
        | Reply::Dns(_)
        | Reply::Subnet(_)
        | Reply::Removed(_)) => other,
    })
}

/// Links of the simulation are numbered as those of a kernel are: a number is never used twice.
struct Show<'s, 'f> {
    front: &'s mut Front<'f>,
    common: &'s mut Common,
}

impl Show<'_, '_> {
    fn own(&mut self, info: LinkInfo) -> Result<LinkInfo, OpError> {
        let object = Object::Own { index: info.handle, name: info.name.clone() };
        self.give(info, object)
    }

    fn parent(&mut self, info: LinkInfo, in_container: bool) -> Result<LinkInfo, OpError> {
        let LinkInfo { handle: index, name, mtu, .. } = info.clone();
        self.give(info, Object::Parent { index, name, in_container, mtu })
    }

    fn port(&mut self, info: LinkInfo) -> Result<LinkInfo, OpError> {
        let object = Object::Port { index: info.handle, name: info.name.clone() };
        self.give(info, object)
    }

    fn pair(&mut self, pair: VethPair) -> Result<VethPair, OpError> {
        // Only the guest acts in a simulation: the pair is its own.
        let end = Object::HostEnd { index: pair.host.handle, name: pair.host.name.clone(), ours: true };
        Ok(VethPair { container: self.own(pair.container)?, host: self.give(pair.host, end)?, bridge: pair.bridge })
    }

    fn bridge(&mut self, bridge: BridgeInfo) -> Result<BridgeInfo, OpError> {
        let LinkInfo { handle: index, name, mac, mtu, .. } = bridge.link.clone();
        let object = Object::Bridge { index, name, mac, mtu, asks: false };
        Ok(BridgeInfo { link: self.give(bridge.link, object)?, ..bridge })
    }

    fn give(&mut self, info: LinkInfo, object: Object) -> Result<LinkInfo, OpError> {
        Ok(LinkInfo { handle: self.front.grant(self.common, object)?, ..info })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_cni::Json;
    use postern_policy::Policy;
    use postern_types::{ErrorCode, PortSpec};

    fn front(common: &mut Common) -> Front<'static> {
        let granted = Policy::parse("", "bridge.toml").unwrap().resolve(&Json::Null, "").unwrap();
        Front::new("bridge", 0, granted, common)
    }

    fn info(handle: Handle) -> LinkInfo {
        let (name, kind) = (format!("link{handle}"), "veth".to_owned());
        LinkInfo { handle, name, mac: None, mtu: 1500, kind, up: false, running: false }
    }

    #[test]
    fn a_guest_sees_handles_and_the_simulation_links() {
        let mut common = Common::default();
        let mut front = front(&mut common);
        let pair = Reply::Veth(VethPair { container: info(40), host: info(41), bridge: None });
        let create = ops::Veth::Create { mtu: None, mac: None }.into();
        let Ok(Reply::Veth(given)) = show(&mut front, &mut common, &create, pair) else { panic!("no pair") };
        assert_eq!((given.container.handle, given.host.handle), (0, 1));
        assert_eq!(resolve(&front, &ops::Link::Up { link: 0 }.into()), Ok(ops::Link::Up { link: 40 }.into()));
        let look = ops::Link::Attributes { link: 1 }.into();
        assert_eq!(resolve(&front, &look), Ok(ops::Link::Attributes { link: 41 }.into()));
        let shown = show(&mut front, &mut common, &look, Reply::Link(info(41))).unwrap();
        assert!(matches!(shown, Reply::Link(link) if link.handle == 1));
        let bad = resolve(&front, &ops::PointToPoint::Ensure { host: 0 }.into());
        assert_eq!(bad.unwrap_err().code, ErrorCode::InvalidHandle);
    }

    #[test]
    fn a_vlan_gateway_has_none() {
        let mut common = Common::default();
        let mut front = front(&mut common);
        let operation = ops::Bridge::EnsureGateways { bridge: 0, port: PortSpec::default(), force: false }.into();
        let shown = show(&mut front, &mut common, &operation, Reply::MaybeLink(Some(info(7)))).unwrap();
        assert!(matches!(shown, Reply::MaybeLink(Some(link)) if link.handle == Handle::MAX));
        assert!(front.object(0).is_err() && common.shown.contains("link7"));
    }
}
