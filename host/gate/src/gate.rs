//! The gate: the one call through which a guest reaches the node.

use crate::audit::Entry;
use crate::budget::Budget;
use crate::capability;
use crate::effect::{Lasting, lasting};
use crate::launcher::Launcher;
use crate::session::{Request, Session, kernel};
use postern_cni::Verb;
use postern_kernel::Link;
use postern_policy::{Granted, Objects, Origin, Rule};
use postern_types::{ErrorCode, Handle, LinkInfo, Mac, OpError, Operation, PortSpec, Reply};
use std::time::Instant;

/// What a handle stands for. The kind is the authority: each operation takes one kind and no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// The attachment's link in the container's namespace: configure, delete.
    Own {
        /// Interface index there. The kernel never gives an index twice, so a link that went away stays away.
        index: u32,
        /// `CNI_IFNAME`.
        name: String,
    },
    /// The attachment's veth end in the host's namespace: read, attach, guard.
    HostEnd {
        /// Interface index.
        index: u32,
        /// The name that the host chose.
        name: String,
        /// This run or the record made it. One that only seems to belong to the container's link can be read.
        ours: bool,
    },
    /// A bridge that policy grants: read, attach to it, give it gateways.
    Bridge {
        /// Interface index.
        index: u32,
        /// Its name.
        name: String,
        /// Its address when the handle was given out, before a port could lend it another.
        mac: Option<Mac>,
        /// Its MTU.
        mtu: u32,
    },
}

/// One guest's way to the node, for one run.
pub struct Gate<'a> {
    /// The run.
    pub session: &'a mut Session,
    /// Where delegates are found.
    pub launcher: &'a mut Launcher,
    /// Who calls.
    pub plugin: &'a str,
    /// SHA-256 of its component.
    digest: &'a str,
    /// How deep in delegation, 0 for the plugin that the runtime called.
    pub depth: u32,
    granted: Granted,
    objects: Vec<Object>,
    operations: u32,
    spent: bool,
    /// How the attachment's port joined its bridge.
    pub joined: Option<PortSpec>,
}

impl<'a> Gate<'a> {
    /// A gate for one guest.
    pub fn new(
        session: &'a mut Session,
        launcher: &'a mut Launcher,
        plugin: &'a str,
        digest: &'a str,
        granted: Granted,
        depth: u32,
    ) -> Self {
        // Whoever delegates answers for what it sets off: the whole run has the budget of the plugin that the runtime
        // called, whatever its delegates may ask for at each of their starts.
        if depth == 0 {
            session.asked = Budget::new(usize::try_from(granted.limits().operations()).unwrap_or(usize::MAX));
        }
        Self {
            session,
            launcher,
            plugin,
            digest,
            depth,
            granted,
            objects: Vec::new(),
            operations: 0,
            spent: false,
            joined: None,
        }
    }

    /// The policy in force.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// The same, when the guest has ended.
    pub fn into_granted(self) -> Granted {
        self.granted
    }

    /// Decides on an operation, carries it out, and writes it down.
    ///
    /// # Errors
    /// What the guest gets to see, with the operation's name filled in.
    pub fn call(&mut self, operation: &Operation) -> Result<Reply, OpError> {
        let start = Instant::now();
        let (rule, outcome) = match self.admit(operation) {
            Ok(rule) => (Some(rule), self.execute(operation)),
            Err(refusal) => (None, Err(refusal)),
        };
        let outcome = outcome.map_err(|mut error| {
            if error.operation.is_empty() {
                operation.name().clone_into(&mut error.operation);
            }
            error
        });
        // Not the plugin's fault, and not the attachment's: a DEL goes on without it.
        let by_policy = |error: &OpError| match error.code {
            ErrorCode::Denied => lasting(operation).allows(self.session.request.verb),
            code => code == ErrorCode::Exhausted,
        };
        if outcome.as_ref().is_err_and(by_policy) {
            self.session.hindered = true;
        }
        self.session.audit.note(&Entry {
            verb: self.session.request.verb,
            plugin: self.plugin,
            digest: self.digest,
            operation,
            rule: rule.map(|rule| rule.name),
            from: rule.map(|rule| rule.from.name()),
            outcome: &outcome,
            took: start.elapsed(),
        });
        outcome
    }

    fn admit(&mut self, operation: &Operation) -> Result<Rule, OpError> {
        self.session.in_time()?;
        let budget = self.granted.limits().operations();
        self.operations += 1;
        if self.operations > budget {
            self.spent = true;
            return Err(OpError::new(ErrorCode::Exhausted, "", format!("a run may ask for {budget} operations"))
                .hint(self.granted.limit_hint("operations", budget)));
        }
        self.session.asked.spend(1).map_err(|most| {
            // A delegate is refused, and goes on until its own budget is spent: its caller is the one to stop.
            self.spent = self.depth == 0;
            let caller = &self.session.request.plugin;
            OpError::new(
                ErrorCode::Exhausted,
                caller,
                format!("\"{caller}\" and its delegates may ask for {most} operations"),
            )
            .hint(postern_policy::limit_hint(
                caller,
                "operations",
                u32::try_from(most).unwrap_or(u32::MAX),
            ))
        })?;
        // A path can lead to a namespace of another kind, which shows when it is entered: before anything is done.
        if self.operations == 1
            && let Some(container) = self.session.container()
        {
            container.netlink().map_err(kernel)?;
        }
        decide(&self.session.request, &self.granted, operation, self.giver(operation))
    }

    /// Carries out what was admitted, once it is written down that this plugin changes things.
    fn execute(&mut self, operation: &Operation) -> Result<Reply, OpError> {
        if lasting(operation).is_recorded() {
            self.session.begin()?;
        }
        capability::execute(self, operation)
    }

    /// Links of every kind can be looked at: by whom they were given to.
    fn giver(&self, operation: &Operation) -> &'static str {
        let Operation::LinkAttributes { link } = operation else { return "" };
        match self.object(*link) {
            Ok(Object::HostEnd { .. }) => "veth",
            Ok(Object::Bridge { .. }) => "bridge",
            Ok(Object::Own { .. }) | Err(_) => "link",
        }
    }

    /// Whether the guest has gone on asking after its budget was spent: it is stopped then, or its questions would
    /// wash everything else out of the log.
    pub fn is_spent(&self) -> bool {
        self.spent
    }

    /// Gives out a handle.
    ///
    /// # Errors
    /// [`ErrorCode::Exhausted`].
    pub fn grant(&mut self, object: Object) -> Result<Handle, OpError> {
        if let Some(at) = self.objects.iter().position(|have| *have == object) {
            return Ok(u32::try_from(at).unwrap_or(u32::MAX));
        }
        self.room(1)?;
        if let Object::HostEnd { name, ours: true, .. } | Object::Bridge { name, .. } = &object {
            self.session.shown.insert(name.clone());
        }
        self.objects.push(object);
        Ok(u32::try_from(self.objects.len() - 1).unwrap_or(u32::MAX))
    }

    /// Whether another handle can be given out: asked before something is made that would need one.
    ///
    /// # Errors
    /// [`ErrorCode::Exhausted`].
    pub fn room(&self, wanted: usize) -> Result<(), OpError> {
        let limit = self.granted.limits().handles();
        if u32::try_from(self.objects.len() + wanted).is_ok_and(|have| have <= limit) {
            return Ok(());
        }
        Err(OpError::new(ErrorCode::Exhausted, "handles", format!("a run may hold {limit} handles"))
            .hint(self.granted.limit_hint("handles", limit)))
    }

    /// What a handle stands for.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidHandle`].
    pub fn object(&self, handle: Handle) -> Result<&Object, OpError> {
        usize::try_from(handle)
            .ok()
            .and_then(|at| self.objects.get(at))
            .ok_or_else(|| OpError::new(ErrorCode::InvalidHandle, handle.to_string(), "no such handle was given out"))
    }

    /// The attachment's own link, by handle.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidHandle`]: it stands for something else.
    pub fn own(&self, handle: Handle) -> Result<(u32, String), OpError> {
        match self.object(handle)? {
            Object::Own { index, name } => Ok((*index, name.clone())),
            other => Err(wrong_kind(other, "the attachment's own link")),
        }
    }

    /// The attachment's host end, by handle.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidHandle`]: it stands for something else.
    pub fn host_end(&self, handle: Handle) -> Result<(u32, String), OpError> {
        match self.object(handle)? {
            Object::HostEnd { index, name, ours: true } => Ok((*index, name.clone())),
            other => Err(wrong_kind(other, "the attachment's host end")),
        }
    }

    /// The same, to look at only.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidHandle`]: it stands for something else.
    pub fn seen_end(&self, handle: Handle) -> Result<(u32, String), OpError> {
        match self.object(handle)? {
            Object::HostEnd { index, name, .. } => Ok((*index, name.clone())),
            other => Err(wrong_kind(other, "the attachment's host end")),
        }
    }

    /// The answer that shows a link.
    pub fn show(handle: Handle, link: Link) -> LinkInfo {
        LinkInfo {
            handle,
            name: link.name,
            mac: link.mac.map(Mac),
            mtu: link.mtu,
            kind: link.kind,
            up: link.up,
            running: link.running,
        }
    }
}

/// The decision on one operation of a request's verb: what the verb is for, and policy on the objects that the
/// configuration names. `giver` is the capability that gave out the handle whose link is looked at.
///
/// # Errors
/// [`ErrorCode::Denied`].
pub fn decide(
    request: &Request,
    granted: &Granted,
    operation: &Operation,
    giver: &'static str,
) -> Result<Rule, OpError> {
    let verb = request.verb;
    if !lasting(operation).allows(verb) {
        let message = format!("{} is not for {}", operation.name(), verb.as_str());
        return Err(OpError::new(ErrorCode::Denied, verb.as_str(), message)
            .hint("a plugin makes things on ADD, removes its own on ADD and DEL, gives addresses back on DEL, and collects on GC; a \
                   failed ADD is undone by the host"));
    }
    let directory = capability::leases::directory(request);
    let resolv_conf = capability::resolv_conf::file(request);
    let objects =
        Objects { ipam: &request.conf.ipam_type, lease_directory: &directory, resolv_conf: &resolv_conf, giver };
    postern_policy::decide(granted, operation, objects).or_else(|refusal| match is_own(request, granted, operation) {
        true => Ok(Rule { name: "own", from: Origin::Host }),
        false => Err(refusal),
    })
}

/// Whether an operation is part of giving up what is the attachment's own, on its DEL. That needs no grant: a policy that
/// has changed since the ADD would leave it where it is, and the runtime would try for ever. It widens nothing, as none of
/// these operations names an object: each acts on the one attachment that the runtime wants gone. Addresses are given back
/// by whom the network names for them, and by nobody else; and `lo`, which all attachments of the container have in common, is
/// set down by a plugin that is made for it, and by no other.
fn is_own(request: &Request, granted: &Granted, operation: &Operation) -> bool {
    let is_removal = match lasting(operation) {
        Lasting::Removal => *operation != Operation::LoopbackDown || granted.knows("loopback"),
        Lasting::Release => *operation == Operation::IpamDel || request.conf.ipam_type == granted.plugin(),
        // It is looked at to be deleted.
        _ => *operation == Operation::LinkOwn,
    };
    request.verb == Verb::Del && is_removal
}

/// A link that went away between two operations.
pub fn link_gone(name: &str) -> OpError {
    OpError::new(ErrorCode::InvalidHandle, name, format!("link \"{name}\" is gone"))
}

fn wrong_kind(object: &Object, wanted: &str) -> OpError {
    let name = match object {
        Object::Own { name, .. } | Object::HostEnd { name, .. } | Object::Bridge { name, .. } => name,
    };
    OpError::new(ErrorCode::InvalidHandle, name, format!("the handle of \"{name}\" is not {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_cni::{Json, NetConf, Version};
    use postern_policy::Policy;

    #[test]
    fn a_del_takes_what_is_the_attachments_and_not_what_is_the_containers() {
        let conf = Json::parse(br#"{"cniVersion":"1.0.0","name":"n","ipam":{"type":"host-local"}}"#, 4096).unwrap();
        let mut request = Request {
            plugin: String::new(),
            verb: Verb::Del,
            container_id: "c".to_owned(),
            netns: "/run/netns/c".to_owned(),
            ifname: "eth0".to_owned(),
            path: String::new(),
            env: Vec::new(),
            stdin: String::new(),
            conf: NetConf::parse(conf).unwrap(),
            version: Version::LATEST,
        };
        let rule = |request: &Request, plugin: &str, policy: &str, operation: &Operation| {
            let policy = Policy::parse(policy, &format!("{plugin}.toml")).unwrap();
            let granted = policy.resolve(&Json::Null, "").unwrap();
            decide(request, &granted, operation, "").map(|rule| rule.name).ok()
        };
        let removal = Operation::LinkDelete { link: 0 };
        for (plugin, policy, operation, expected) in [
            ("bridge", "[grant.veth]", &Operation::LoopbackDown, None),
            ("host-local", "", &Operation::LoopbackDown, None),
            ("loopback", "[grant.loopback]", &Operation::LoopbackDown, Some("loopback")),
            ("bridge", "[grant.veth]", &removal, Some("own")),
            ("bridge", "[grant.veth]", &Operation::MasqueradeRemove, Some("own")),
            ("bridge", "[grant.veth]", &Operation::LeasesRelease, None),
            ("host-local", "", &Operation::LeasesRelease, Some("own")),
        ] {
            assert_eq!(rule(&request, plugin, policy, operation), expected, "{plugin} {operation:?}");
        }
        request.verb = Verb::Add;
        assert_eq!(rule(&request, "bridge", "[grant.veth]", &removal), None);
    }
}
