//! The handles of one guest: as at the gate, each stands for one object that the guest was given, and every operation
//! takes one kind only.

use postern_types::{BridgeInfo, ErrorCode, Handle, Kind, LinkInfo, OpError, Operation, Reply, Takes, VethPair, ops};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Handles {
    /// Links of the simulation, in the order in which they were given out.
    given: Vec<(Handle, Kind)>,
    /// How many there may be.
    most: usize,
}

impl Handles {
    /// Room for so many handles.
    pub fn new(most: u32) -> Self {
        Self { given: Vec::new(), most: usize::try_from(most).unwrap_or(usize::MAX) }
    }

    /// The link of the simulation that a handle stands for.
    pub fn link(&self, handle: Handle) -> Option<(Handle, Kind)> {
        self.given.get(usize::try_from(handle).ok()?).copied()
    }

    /// What a handle stands for.
    pub fn kind(&self, handle: Handle) -> Option<Kind> {
        self.link(handle).map(|(_, kind)| kind)
    }

    /// The same operation on links of the simulation.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidHandle`].
    pub fn resolve(&self, operation: &Operation) -> Result<Operation, OpError> {
        let mut resolved = operation.clone();
        for (handle, takes) in resolved.handles() {
            *handle = self.one(*handle, takes)?;
        }
        Ok(resolved)
    }

    fn one(&self, handle: Handle, takes: Takes) -> Result<Handle, OpError> {
        let none = || OpError::new(ErrorCode::InvalidHandle, handle.to_string(), "no such handle was given out");
        let (link, kind) = self.link(handle).ok_or_else(none)?;
        let wanted = match (takes, kind) {
            (Takes::Any, _)
            | (Takes::Own, Kind::Own)
            | (Takes::HostEnd | Takes::SeenEnd, Kind::HostEnd)
            | (Takes::Bridge, Kind::Bridge) => return Ok(link),
            (Takes::Own, Kind::HostEnd | Kind::Bridge) => "the attachment's own link",
            (Takes::HostEnd | Takes::SeenEnd, Kind::Own | Kind::Bridge) => "the attachment's host end",
            (Takes::Bridge, Kind::Own | Kind::HostEnd) => "that of a granted bridge",
        };
        Err(OpError::new(ErrorCode::InvalidHandle, handle.to_string(), format!("handle {handle} is not {wanted}")))
    }

    /// The simulation's answer as the guest gets it, with handles for the links in it.
    ///
    /// # Errors
    /// [`ErrorCode::Exhausted`].
    pub fn show(&mut self, operation: &Operation, reply: Reply) -> Result<Reply, OpError> {
        Ok(match reply {
            Reply::Link(info) => {
                // One that the guest has: it asked by its handle.
                let known = self.given.iter().position(|(link, _)| *link == info.handle);
                let handle = known.and_then(|at| u32::try_from(at).ok()).unwrap_or(Handle::MAX);
                Reply::Link(LinkInfo { handle, ..info })
            }
            Reply::MaybeLink(Some(info)) if *operation == Operation::Link(ops::Link::Own) => {
                Reply::MaybeLink(Some(self.give(info, Kind::Own)?))
            }
            // A VLAN gateway: nothing can be done to it from outside.
            Reply::MaybeLink(Some(info)) => Reply::MaybeLink(Some(LinkInfo { handle: Handle::MAX, ..info })),
            Reply::Veth(pair) => Reply::Veth(self.pair(pair)?),
            Reply::MaybeVeth(Some(pair)) => Reply::MaybeVeth(Some(self.pair(pair)?)),
            Reply::Bridge(bridge) => Reply::Bridge(self.bridge(bridge)?),
            Reply::MaybeBridge(Some(bridge)) => Reply::MaybeBridge(Some(self.bridge(bridge)?)),
            other => other,
        })
    }

    fn pair(&mut self, pair: VethPair) -> Result<VethPair, OpError> {
        let container = self.give(pair.container, Kind::Own)?;
        let host = self.give(pair.host, Kind::HostEnd)?;
        Ok(VethPair { container, host, bridge: pair.bridge })
    }

    fn bridge(&mut self, bridge: BridgeInfo) -> Result<BridgeInfo, OpError> {
        Ok(BridgeInfo { link: self.give(bridge.link, Kind::Bridge)?, ..bridge })
    }

    fn give(&mut self, info: LinkInfo, kind: Kind) -> Result<LinkInfo, OpError> {
        let at = self.given.iter().position(|have| *have == (info.handle, kind)).unwrap_or(self.given.len());
        if at >= self.most {
            return Err(OpError::new(ErrorCode::Exhausted, "handles", format!("a run may hold {} handles", self.most)));
        }
        if at == self.given.len() {
            self.given.push((info.handle, kind));
        }
        Ok(LinkInfo { handle: u32::try_from(at).unwrap_or(Handle::MAX), ..info })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(handle: Handle) -> LinkInfo {
        LinkInfo {
            handle,
            name: "x".to_owned(),
            mac: None,
            mtu: 1500,
            kind: "veth".to_owned(),
            up: false,
            running: false,
        }
    }

    fn pair(container: Handle, host: Handle) -> Reply {
        Reply::Veth(VethPair { container: info(container), host: info(host), bridge: None })
    }

    #[test]
    fn handles_count_from_zero_and_are_of_one_kind() {
        let mut handles = Handles::new(8);
        let create = ops::Veth::Create { mtu: None, mac: None }.into();
        let Reply::Veth(given) = handles.show(&create, pair(40, 41)).unwrap() else { panic!("no pair") };
        assert_eq!((given.container.handle, given.host.handle), (0, 1));
        assert_eq!(handles.resolve(&ops::Link::Up { link: 0 }.into()).unwrap(), ops::Link::Up { link: 40 }.into());
        let look = ops::Link::Attributes { link: 1 }.into();
        assert_eq!(handles.resolve(&look).unwrap(), ops::Link::Attributes { link: 41 }.into());
        assert_eq!(handles.kind(1), Some(Kind::HostEnd));
        for bad in [
            ops::Link::Up { link: 1 }.into(),
            ops::Link::Up { link: 40 }.into(),
            ops::PointToPoint::Ensure { host: 0 }.into(),
        ] {
            assert_eq!(handles.resolve(&bad).unwrap_err().code, ErrorCode::InvalidHandle, "{bad:?}");
        }
        // The same objects have the same handles.
        let Reply::MaybeVeth(Some(again)) = handles
            .show(
                &ops::Veth::Find.into(),
                Reply::MaybeVeth(Some(VethPair { container: info(40), host: info(41), bridge: None })),
            )
            .unwrap()
        else {
            panic!("no pair")
        };
        assert_eq!((again.container.handle, again.host.handle), (0, 1));
    }

    #[test]
    fn there_are_no_more_than_policy_lets() {
        let error = Handles::new(1).show(&ops::Veth::Create { mtu: None, mac: None }.into(), pair(1, 2)).unwrap_err();
        assert_eq!(error.code, ErrorCode::Exhausted);
    }

    #[test]
    fn a_vlan_gateway_has_none() {
        let mut handles = Handles::new(8);
        let port = postern_types::PortSpec::default();
        let operation = ops::Bridge::EnsureGateways { bridge: 0, port, force: false }.into();
        let shown = handles.show(&operation, Reply::MaybeLink(Some(info(7)))).unwrap();
        assert!(matches!(shown, Reply::MaybeLink(Some(link)) if link.handle == Handle::MAX));
        assert_eq!(handles.link(0), None);
    }
}
