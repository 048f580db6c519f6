//! The context of one guest's operations: the run, and the objects that the guest was given.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

use crate::budget::Common;
use crate::context::Context;
use crate::delegation::Delegation;
use crate::guest_state::{GuestState, Object};
use crate::launcher::Launcher;
use crate::request::Request;
use postern_cni::{CniResult, Error};
use postern_kernel::Link;
use postern_types::{Handle, LinkInfo, Mac, OpError};

/// A delegate's run, which an operation of the calling plugin needs.
pub struct DelegateRun {
    pub plugin: String,
    /// The delegate's own request.
    pub request: Request,
}

/// The outcome of one plugin's run.
pub struct Ran {
    /// The plugin's result, or its error.
    pub outcome: Result<Option<CniResult>, Error>,
    /// True if this plugin could not be run or was stopped, or if policy or a limit refused one of its operations. Then
    /// the host must complete the plugin's DEL.
    pub hindered: bool,
}

impl Ran {
    /// Returns the outcome of a plugin that could not be run.
    pub fn hindered(error: Error) -> Self {
        Self { outcome: Err(error), hindered: true }
    }
}

/// The delegates that the guests of a run may use.
#[derive(Clone, Copy)]
pub struct Delegates<'a> {
    pub launcher: &'a Launcher,
    /// The delegation of a flannel network, or the reason why it can't be made. `Ok(None)` if no delegation is known.
    pub delegation: &'a Result<Option<Delegation>, OpError>,
}

/// One guest's access to the node, for one run.
pub struct Gate<'a> {
    /// The plugin's part of the run.
    pub run: &'a mut Context<'a>,
    /// The state that the guests of the run share.
    pub common: &'a mut Common,
    /// See [`Ran::hindered`].
    pub hindered: bool,
    pub delegates: Delegates<'a>,
    /// The outcome of the delegate that has run for the current operation.
    pub ran: Option<Ran>,
    /// SHA-256 of the calling plugin's component.
    pub digest: &'a str,
    /// The guest's handles and budgets.
    pub guest: GuestState<'a>,
}

impl Gate<'_> {
    /// Gives out a handle.
    pub fn grant(&mut self, object: Object) -> Result<Handle, OpError> {
        self.guest.grant(self.common, object)
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
