//! What the operations of one guest act on: the run, and what the guest was given in it.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

use crate::front::{Front, Object};
use crate::launcher::Launcher;
use crate::session::Session;
use postern_cni::{CniResult, Error, Verb};
use postern_kernel::Link;
use postern_types::{Handle, LinkInfo, Mac, OpError};

/// How a guest is run: plugin, verb, and how deep in delegation.
pub type Run = fn(&mut Session, &mut Launcher, &str, Verb, u32) -> Result<Option<CniResult>, Error>;

/// One guest's way to the node, for one run.
pub struct Gate<'a> {
    /// The run.
    pub session: &'a mut Session,
    /// Where delegates are found.
    pub launcher: &'a mut Launcher,
    /// Runs a delegate.
    run: Run,
    /// SHA-256 of the component of who calls.
    pub digest: &'a str,
    /// What it was given, and may use up.
    pub front: Front<'a>,
}

impl<'a> Gate<'a> {
    /// A gate for one guest.
    pub fn new(
        session: &'a mut Session,
        launcher: &'a mut Launcher,
        run: Run,
        digest: &'a str,
        front: Front<'a>,
    ) -> Self {
        Self { session, launcher, run, digest, front }
    }

    /// Runs a guest that this one delegates to.
    ///
    /// # Errors
    /// The guest's own, or what became of it.
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
