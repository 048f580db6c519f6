//! The handles of one guest: as at the gate, each stands for one object that the guest was given, and every operation
//! takes one kind only.

use postern_types::{BridgeInfo, ErrorCode, Handle, LinkInfo, OpError, Operation, Reply, VethPair};

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The attachment's link in the container.
    Own,
    /// Its other end on the host.
    HostEnd,
    /// A bridge.
    Bridge,
}

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

    /// The capability that a handle was given by.
    pub fn giver(&self, operation: &Operation) -> &'static str {
        let Operation::LinkAttributes { link } = operation else { return "" };
        match self.link(*link) {
            Some((_, Kind::HostEnd)) => "veth",
            Some((_, Kind::Bridge)) => "bridge",
            Some((_, Kind::Own)) | None => "link",
        }
    }

    /// The same operation on links of the simulation.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidHandle`].
    pub fn resolve(&self, operation: &Operation) -> Result<Operation, OpError> {
        let mut resolved = operation.clone();
        match &mut resolved {
            Operation::LinkAttributes { link } => *link = self.any(*link)?.0,
            Operation::LinkUp { link }
            | Operation::LinkDelete { link }
            | Operation::AddressesAdd { link, .. }
            | Operation::AddressesList { link }
            | Operation::AddressesSettle { link }
            | Operation::RoutesAdd { link, .. }
            | Operation::RoutesRemoveConnected { link, .. }
            | Operation::RoutesList { link }
            | Operation::SysctlSet { link, .. } => *link = self.one(*link, Kind::Own)?,
            Operation::VethWaitRunning { host }
            | Operation::PointToPointEnsure { host }
            | Operation::MacGuardEnsure { host, .. }
            | Operation::MacGuardCheck { host, .. } => *host = self.one(*host, Kind::HostEnd)?,
            Operation::BridgeAttach { bridge, host, .. } => {
                *bridge = self.one(*bridge, Kind::Bridge)?;
                *host = self.one(*host, Kind::HostEnd)?;
            }
            Operation::BridgeEnsureGateways { bridge, .. } => *bridge = self.one(*bridge, Kind::Bridge)?,
            _ => {}
        }
        Ok(resolved)
    }

    fn any(&self, handle: Handle) -> Result<(Handle, Kind), OpError> {
        self.link(handle)
            .ok_or_else(|| OpError::new(ErrorCode::InvalidHandle, handle.to_string(), "no such handle was given out"))
    }

    fn one(&self, handle: Handle, kind: Kind) -> Result<Handle, OpError> {
        let (link, found) = self.any(handle)?;
        if found == kind {
            return Ok(link);
        }
        let wanted = match kind {
            Kind::Own => "the attachment's own link",
            Kind::HostEnd => "the attachment's host end",
            Kind::Bridge => "that of a granted bridge",
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
            Reply::MaybeLink(Some(info)) if *operation == Operation::LinkOwn => {
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
        let create = Operation::VethCreate { mtu: None, mac: None };
        let Reply::Veth(given) = handles.show(&create, pair(40, 41)).unwrap() else { panic!("no pair") };
        assert_eq!((given.container.handle, given.host.handle), (0, 1));
        assert_eq!(handles.resolve(&Operation::LinkUp { link: 0 }).unwrap(), Operation::LinkUp { link: 40 });
        let look = Operation::LinkAttributes { link: 1 };
        assert_eq!(handles.resolve(&look).unwrap(), Operation::LinkAttributes { link: 41 });
        assert_eq!(handles.giver(&look), "veth");
        for bad in
            [Operation::LinkUp { link: 1 }, Operation::LinkUp { link: 40 }, Operation::PointToPointEnsure { host: 0 }]
        {
            assert_eq!(handles.resolve(&bad).unwrap_err().code, ErrorCode::InvalidHandle, "{bad:?}");
        }
        // The same objects have the same handles.
        let Reply::MaybeVeth(Some(again)) = handles
            .show(
                &Operation::VethFind,
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
        let error = Handles::new(1).show(&Operation::VethCreate { mtu: None, mac: None }, pair(1, 2)).unwrap_err();
        assert_eq!(error.code, ErrorCode::Exhausted);
    }

    #[test]
    fn a_vlan_gateway_has_none() {
        let mut handles = Handles::new(8);
        let port = postern_types::PortSpec::default();
        let operation = Operation::BridgeEnsureGateways { bridge: 0, port, force: false };
        let shown = handles.show(&operation, Reply::MaybeLink(Some(info(7)))).unwrap();
        assert!(matches!(shown, Reply::MaybeLink(Some(link)) if link.handle == Handle::MAX));
        assert_eq!(handles.link(0), None);
    }
}
