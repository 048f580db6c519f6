//! The gate: the one call through which a guest reaches the node.

use crate::audit::Entry;
use crate::budget::Budget;
use crate::capability;
use crate::launcher::Launcher;
use crate::session::{Request, Session, kernel};
use postern_kernel::Link;
use postern_policy::{Granted, Question, Rule, allows};
use postern_types::{ErrorCode, Handle, Kind, LinkInfo, Mac, OpError, Operation, PortSpec, Reply};
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

impl Object {
    /// What operations take it for.
    fn kind(&self) -> Kind {
        match self {
            Self::Own { .. } => Kind::Own,
            Self::HostEnd { .. } => Kind::HostEnd,
            Self::Bridge { .. } => Kind::Bridge,
        }
    }
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
            ErrorCode::Denied => allows(operation.lasting(), self.session.request.verb),
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
        let Request { verb, conf, .. } = &self.session.request;
        let question = Question { operation, verb: *verb, conf, kind: &|handle| self.kind(handle) };
        postern_policy::decide(&self.granted, question)
    }

    /// Carries out what was admitted, once it is written down that this plugin changes things.
    fn execute(&mut self, operation: &Operation) -> Result<Reply, OpError> {
        if operation.lasting().is_recorded() {
            self.session.begin()?;
        }
        capability::execute(self, operation)
    }

    /// What a handle stands for, if it was given out.
    fn kind(&self, handle: Handle) -> Option<Kind> {
        self.object(handle).ok().map(Object::kind)
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
