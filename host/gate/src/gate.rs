//! The context of one guest's operations: the run, and the objects that the guest was given.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

use crate::front::{Front, Object};
use crate::launcher::Launcher;
use crate::session::Session;
use postern_cni::{CniResult, Error, Verb};
use postern_kernel::Link;
use postern_types::{Handle, LinkInfo, Mac, OpError};

/// The function that runs a guest: plugin, verb, and depth of delegation.
pub type Run = fn(&mut Session, &mut Launcher, &str, Verb, u32) -> Result<Option<CniResult>, Error>;

/// One guest's access to the node, for one run.
pub struct Gate<'a> {
    /// The run.
    pub session: &'a mut Session,
    /// The source of delegates.
    pub launcher: &'a mut Launcher,
    /// Runs a delegate.
    run: Run,
    /// SHA-256 of the calling plugin's component.
    pub digest: &'a str,
    /// The guest's handles and budgets.
    pub front: Front<'a>,
}

impl<'a> Gate<'a> {
    /// Makes a gate for one guest.
    pub fn new(
        session: &'a mut Session,
        launcher: &'a mut Launcher,
        run: Run,
        digest: &'a str,
        front: Front<'a>,
    ) -> Self {
        Self { session, launcher, run, digest, front }
    }

    /// Runs a delegate of this guest.
    ///
    /// # Errors
    /// The delegate's own error, or the reason why it ended without one.
    pub fn delegate(&mut self, plugin: &str, verb: Verb) -> Result<Option<CniResult>, Error> {
        (self.run)(self.session, self.launcher, plugin, verb, self.front.depth + 1)
    }

    /// Gives out a handle.
    ///
    /// # Errors
    /// [`ErrorCode::Exhausted`].
    pub fn grant(&mut self, object: Object) -> Result<Handle, OpError> {
        self.front.grant(&mut self.session.common, object)
    }

    /// Makes the answer that shows a link.
    pub fn show(handle: Handle, link: Link) -> LinkInfo {
        LinkInfo {
            handle,
            name: link.name.to_string(),
            mac: link.mac.map(Mac),
            mtu: link.mtu,
            kind: link.kind,
            up: link.up,
            running: link.running,
        }
    }
}
