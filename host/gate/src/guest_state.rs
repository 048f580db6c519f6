//! The state of one guest: its handles, its budgets, the decisions on its operations, and its delegates. This module
//! changes nothing on the node. A run and its rehearsal (`postern plan`) share this code, so that the plan matches the
//! run.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

use crate::budget::{Budget, Common};
use crate::native;
use crate::request::Request;
use postern_policy::{Granted, Question, Rule};
use postern_types::{ErrorCode, Handle, HandleKind, Mac, OpError, Operation, PortSpec, Takes};

/// The object that a handle stands for. The kind of the object is the permission: each operation takes objects of one
/// kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// The attachment's link in the container's namespace: configure, delete.
    Own {
        /// The interface index in the container's namespace. The kernel seldom gives an index to a second link.
        index: u32,
        /// `CNI_IFNAME`.
        name: String,
    },
    /// The attachment's host end: read, attach, protect.
    HostEnd {
        /// Interface index.
        index: u32,
        /// The name that the host chose.
        name: String,
        /// True if this run made the host end, or if the record lists it. If false, the link only seems to be the host
        /// end, and can only be read.
        ours: bool,
    },
    /// A link of the host that an earlier plugin made, and that policy lets this plugin attach: read, attach, protect.
    Port {
        /// Interface index.
        index: u32,
        /// The link's name.
        name: String,
    },
    /// A bridge that policy grants: read, attach ports, put gateways on it.
    Bridge(BridgeLink),
    /// A link on which policy lets other links be stacked: read, and use as the parent of a new link.
    Parent(Parent),
}

/// A link that gets gateway addresses: a bridge, or the link `<bridge>.<vlan>` of a VLAN gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeLink {
    /// Interface index.
    pub index: u32,
    /// The link's name.
    pub name: String,
    /// The bridge's hardware address when the handle was given out, before a port could change it.
    pub mac: Option<Mac>,
    /// The link's MTU.
    pub mtu: u32,
    /// True if the kernel checks for duplicates of the link's IPv6 addresses (DAD). True also if IPv6 may come to the
    /// link later.
    pub asks: bool,
}

/// A link on which other links are stacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Interface index.
    pub index: u32,
    /// The link's name.
    pub name: String,
    /// True if the link is in the container's namespace; false for the host's namespace.
    pub in_container: bool,
    /// The link's MTU when it was looked up.
    pub mtu: u32,
}

// The objects of handles, as text.
const OF_HOST_END: &str = "for the attachment's host end";
const OF_PARENT: &str = "for a link to stack on";
const OF_BRIDGE: &str = "for a granted bridge";

impl Object {
    /// Returns the kind of the object, as operations ask for it.
    pub fn kind(&self) -> HandleKind {
        match self {
            Self::Own { .. } => HandleKind::Own,
            Self::HostEnd { .. } => HandleKind::HostEnd,
            Self::Port { .. } => HandleKind::Port,
            Self::Bridge(_) => HandleKind::Bridge,
            Self::Parent(_) => HandleKind::Parent,
        }
    }

    /// Returns the object's interface index, and its name, in the object's namespace.
    pub fn link(&self) -> (u32, &str) {
        match self {
            Self::Own { index, name }
            | Self::HostEnd { index, name, .. }
            | Self::Port { index, name }
            | Self::Bridge(BridgeLink { index, name, .. })
            | Self::Parent(Parent { index, name, .. }) => (*index, name),
        }
    }

    /// Returns the reason why an operation can't take the object; `None` if the operation can take it.
    fn lacks(&self, takes: Takes) -> Option<&'static str> {
        let (fits, wanted) = match takes {
            Takes::Any => return None,
            Takes::Own => (matches!(self, Self::Own { .. }), "for the attachment's own link"),
            Takes::HostEnd => (matches!(self, Self::HostEnd { ours: true, .. }), OF_HOST_END),
            Takes::Port => (matches!(self, Self::HostEnd { ours: true, .. } | Self::Port { .. }), OF_HOST_END),
            Takes::SeenEnd => (matches!(self, Self::HostEnd { .. } | Self::Port { .. }), OF_HOST_END),
            Takes::Bridge => (matches!(self, Self::Bridge(_)), OF_BRIDGE),
            Takes::Parent => (matches!(self, Self::Parent(_)), OF_PARENT),
        };
        (!fits).then_some(wanted)
    }

    fn is_not(&self, wanted: &str) -> OpError {
        let (_, name) = self.link();
        OpError::new(ErrorCode::InvalidHandle, name, format!("the handle of \"{name}\" is not {wanted}"))
    }
}

/// The state of one guest. Errors have [`ErrorCode::Denied`] for a decision of policy, [`ErrorCode::Exhausted`] beyond
/// a limit, and [`ErrorCode::InvalidHandle`] for a handle of another kind or of no object.
pub struct GuestState<'a> {
    /// The calling plugin.
    pub plugin: &'a str,
    /// The depth of delegation; 0 for the plugin that the runtime called.
    pub depth: u32,
    granted: &'a Granted,
    objects: Vec<Object>,
    operations: u32,
    spent: bool,
    /// The settings with which the attachment's port joined its bridge.
    joined: Option<PortSpec>,
}

impl<'a> GuestState<'a> {
    /// Makes the state of a guest that begins.
    pub fn new(plugin: &'a str, depth: u32, granted: &'a Granted, common: &mut Common) -> Self {
        // The budget of the plugin that the runtime called holds for the whole run, with all delegates. A delegate's
        // own limit holds at each of its starts.
        if depth == 0 {
            common.asked = Budget::new(usize::try_from(granted.limits().operations()).unwrap_or(usize::MAX));
        }
        Self { plugin, depth, granted, objects: Vec::new(), operations: 0, spent: false, joined: None }
    }

    /// Returns the policy in force.
    pub fn granted(&self) -> &'a Granted {
        self.granted
    }

    /// Counts an operation. `caller` is the plugin that the runtime called.
    pub fn count(&mut self, common: &mut Common, caller: &str) -> Result<(), OpError> {
        let budget = self.granted.limits().operations();
        self.operations += 1;
        if self.operations > budget {
            self.spent = true;
            return Err(OpError::new(ErrorCode::Exhausted, "", format!("a run may ask for {budget} operations"))
                .hint(self.granted.limit_hint("operations", budget)));
        }
        common.asked.spend(1).map_err(|most| {
            // Only the caller is stopped. A delegate is refused, and continues until its own budget is spent.
            self.spent = self.depth == 0;
            let message = format!("\"{caller}\" and its delegates may ask for {most} operations");
            let most = u32::try_from(most).unwrap_or(u32::MAX);
            OpError::new(ErrorCode::Exhausted, caller, message).hint(postern_policy::limit_hint(
                caller,
                "operations",
                most,
            ))
        })
    }

    /// True if the guest has made exactly one request.
    pub fn is_first(&self) -> bool {
        self.operations == 1
    }

    /// Returns the reason to stop a guest that continues to ask after its budget is spent. More requests would fill the
    /// log.
    pub fn spent(&self) -> Option<String> {
        let most = self.granted.limits().operations();
        let hint = || self.granted.limit_hint("operations", most);
        self.spent.then(|| format!("asked for more than {most} operations and was stopped; {}", hint()))
    }

    /// Decides on an operation. `owns_link` is true if the called plugin made the attachment's link.
    pub fn decide(&self, request: &Request, owns_link: bool, operation: &Operation) -> Result<Rule, OpError> {
        let kind = |handle| self.object(handle).ok().map(Object::kind);
        let question = Question { operation, verb: request.verb, conf: &request.conf, owns_link, kind: &kind };
        postern_policy::decide(self.granted, question)
    }

    /// Gives out a handle.
    pub fn grant(&mut self, common: &mut Common, object: Object) -> Result<Handle, OpError> {
        if let Some(at) = self.objects.iter().position(|have| *have == object) {
            return Ok(u32::try_from(at).unwrap_or(u32::MAX));
        }
        self.room(1)?;
        if let Object::HostEnd { name, ours: true, .. }
        | Object::Port { name, .. }
        | Object::Bridge(BridgeLink { name, .. }) = &object
        {
            common.shown.insert(name.clone());
        }
        self.objects.push(object);
        Ok(u32::try_from(self.objects.len() - 1).unwrap_or(u32::MAX))
    }

    /// Checks that there is room for `wanted` more handles. This check comes before an object with a handle is made.
    pub(crate) fn room(&self, wanted: usize) -> Result<(), OpError> {
        let limit = self.granted.limits().handles();
        if self.objects.len() + wanted <= limit as usize {
            return Ok(());
        }
        Err(OpError::new(ErrorCode::Exhausted, "handles", format!("a run may hold {limit} handles"))
            .hint(self.granted.limit_hint("handles", limit)))
    }

    /// Returns the object of a handle.
    pub fn object(&self, handle: Handle) -> Result<&Object, OpError> {
        usize::try_from(handle)
            .ok()
            .and_then(|at| self.objects.get(at))
            .ok_or_else(|| OpError::new(ErrorCode::InvalidHandle, handle.to_string(), "no such handle was given out"))
    }

    /// Returns the object of a handle, if it is of the kind that the operation takes.
    pub fn take(&self, handle: Handle, takes: Takes) -> Result<&Object, OpError> {
        let object = self.object(handle)?;
        object.lacks(takes).map_or(Ok(object), |wanted| Err(object.is_not(wanted)))
    }

    /// Returns index and name of the attachment's own link, by handle.
    pub(crate) fn own(&self, handle: Handle) -> Result<(u32, String), OpError> {
        self.link(handle, Takes::Own)
    }

    /// Returns index and name of the attachment's host end, by handle.
    pub(crate) fn host_end(&self, handle: Handle) -> Result<(u32, String), OpError> {
        self.link(handle, Takes::HostEnd)
    }

    /// Like `host_end`, but also accepts a link of the host that an earlier plugin made.
    pub(crate) fn port(&self, handle: Handle) -> Result<(u32, String), OpError> {
        self.link(handle, Takes::Port)
    }

    /// Like `port`, but also accepts a link that only seems to be the host end. The link can only be read.
    pub(crate) fn seen_end(&self, handle: Handle) -> Result<(u32, String), OpError> {
        self.link(handle, Takes::SeenEnd)
    }

    /// Returns a bridge that policy grants, by handle.
    pub(crate) fn bridge(&self, handle: Handle) -> Result<BridgeLink, OpError> {
        let object = self.take(handle, Takes::Bridge)?;
        if let Object::Bridge(bridge) = object { Ok(bridge.clone()) } else { Err(object.is_not(OF_BRIDGE)) }
    }

    /// Returns a link on which policy lets other links be stacked, by handle.
    pub(crate) fn parent(&self, handle: Handle) -> Result<Parent, OpError> {
        let object = self.take(handle, Takes::Parent)?;
        if let Object::Parent(parent) = object { Ok(parent.clone()) } else { Err(object.is_not(OF_PARENT)) }
    }

    fn link(&self, handle: Handle, takes: Takes) -> Result<(u32, String), OpError> {
        self.take(handle, takes).map(Object::link).map(|(index, name)| (index, name.to_owned()))
    }

    /// Notes the settings with which the attachment's port joined its bridge.
    pub fn join(&mut self, port: &PortSpec) {
        self.joined = Some(port.clone());
    }

    /// Checks that the port joined with these settings. A VLAN gateway outlives the attachment, so it is made only for
    /// the VLAN of the attachment's own port.
    pub fn has_joined(&self, port: &PortSpec) -> Result<(), OpError> {
        if self.joined.as_ref() == Some(port) {
            return Ok(());
        }
        let message = "gateways are only for the port with which this attachment joined the bridge";
        Err(OpError::new(ErrorCode::InvalidArgument, "port", message))
    }

    /// Returns the IPAM plugin that the guest may start, unless the delegation would never end.
    pub fn delegate(&self, request: &Request) -> Result<String, OpError> {
        let name = &request.conf.ipam_type;
        native::check_name(name)?;
        if name == self.plugin {
            // The delegate would get the same configuration, and would delegate to itself again.
            return Err(OpError::new(ErrorCode::Exhausted, name, "an IPAM plugin delegates to itself without end"));
        }
        self.in_depth(name)?;
        Ok(name.clone())
    }

    /// Checks that the guest may delegate to this main plugin. Only the plugin that the runtime called may delegate:
    /// the delegate's configuration is made from that plugin's configuration. A delegate that could delegate too would
    /// delegate without end.
    pub fn delegate_main(&self, name: &str) -> Result<(), OpError> {
        native::check_name(name)?;
        if name == self.plugin || self.depth > 0 {
            let message = format!("\"{}\" delegates to \"{name}\" without end", self.plugin);
            return Err(OpError::new(ErrorCode::Exhausted, name, message)
                .hint("`delegate.type` and `ipam.type` name a plugin that does not delegate"));
        }
        self.in_depth(name)
    }

    fn in_depth(&self, name: &str) -> Result<(), OpError> {
        let most = self.granted.limits().depth();
        if self.depth < most {
            return Ok(());
        }
        Err(OpError::new(ErrorCode::Exhausted, name, format!("plugins delegate more than {most} deep"))
            .hint(self.granted.limit_hint("depth", most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_cni::Json;
    use postern_policy::Policy;

    fn granted(policy: &str) -> Granted {
        Policy::parse(policy, "bridge.toml").unwrap().resolve(&Json::Null, "").unwrap()
    }

    fn own(index: u32) -> Object {
        Object::Own { index, name: "eth0".to_owned() }
    }

    fn end(index: u32, ours: bool) -> Object {
        Object::HostEnd { index, name: format!("veth{index}"), ours }
    }

    #[test]
    fn handles_count_from_zero_and_are_of_one_kind() {
        let mut common = Common::default();
        let granted = granted("");
        let mut guest = GuestState::new("bridge", 0, &granted, &mut common);
        let bridge = BridgeLink { index: 43, name: "br".to_owned(), mac: None, mtu: 1500, asks: false };
        let port = Object::Port { index: 44, name: "tap0".to_owned() };
        for (object, handle) in [
            (own(40), 0),
            (end(41, true), 1),
            (end(42, false), 2),
            (Object::Bridge(bridge), 3),
            (port, 4),
            (own(40), 0),
        ] {
            assert_eq!(guest.grant(&mut common, object).unwrap(), handle);
        }
        for (handle, taken) in [
            (0, [true, false, false, false, false, true]),
            (1, [false, true, true, true, false, true]),
            (2, [false, false, false, true, false, true]),
            (3, [false, false, false, false, true, true]),
            (4, [false, false, true, true, false, true]),
            (5, [false; 6]),
            (40, [false; 6]),
        ] {
            let all = [Takes::Own, Takes::HostEnd, Takes::Port, Takes::SeenEnd, Takes::Bridge, Takes::Any];
            let found = all.map(|takes| guest.take(handle, takes).map_err(|error| error.code));
            assert_eq!(found.map(|found| found.is_ok()), taken, "{handle}");
            assert!(found.iter().flat_map(|found| found.as_ref().err()).all(|e| *e == ErrorCode::InvalidHandle));
        }
        // A link that only seems to be the attachment's host end is not shown.
        assert_eq!(common.shown.iter().collect::<Vec<_>>(), ["br", "tap0", "veth41"]);
    }

    #[test]
    fn there_are_no_more_handles_than_policy_lets() {
        let mut common = Common::default();
        let granted = granted("[limits]\nhandles = 1");
        let mut guest = GuestState::new("bridge", 0, &granted, &mut common);
        assert_eq!(guest.room(2).unwrap_err().code, ErrorCode::Exhausted);
        assert_eq!(guest.grant(&mut common, own(1)), Ok(0));
        assert_eq!(guest.grant(&mut common, end(2, true)).unwrap_err().code, ErrorCode::Exhausted);
        assert_eq!(guest.grant(&mut common, own(1)), Ok(0));
    }

    #[test]
    fn a_delegate_spends_what_its_caller_may() {
        let mut common = Common::default();
        let [two, three] = [2, 3].map(|most| granted(&format!("[limits]\noperations = {most}")));
        let mut caller = GuestState::new("bridge", 0, &two, &mut common);
        let mut delegate = GuestState::new("bridge", 1, &three, &mut common);
        assert_eq!(caller.count(&mut common, "bridge"), Ok(()));
        assert_eq!(delegate.count(&mut common, "bridge"), Ok(()));
        // The delegate is only refused. Its caller is stopped.
        assert_eq!(delegate.count(&mut common, "bridge").unwrap_err().code, ErrorCode::Exhausted);
        assert_eq!(delegate.spent(), None);
        assert_eq!(caller.count(&mut common, "bridge").unwrap_err().code, ErrorCode::Exhausted);
        assert!(caller.spent().unwrap().contains("more than 2 operations"));
        assert!(delegate.count(&mut common, "bridge").is_err() && delegate.spent().is_none());
        assert!(delegate.count(&mut common, "bridge").is_err() && delegate.spent().is_some());
    }

    #[test]
    fn gateways_are_for_the_port_that_joined() {
        let granted = granted("");
        let mut guest = GuestState::new("bridge", 0, &granted, &mut Common::default());
        let port = PortSpec { vlan: Some(7), ..PortSpec::default() };
        assert!(guest.has_joined(&port).is_err());
        guest.join(&port);
        assert_eq!(guest.has_joined(&port), Ok(()));
        assert!(guest.has_joined(&PortSpec::default()).is_err());
    }
}
