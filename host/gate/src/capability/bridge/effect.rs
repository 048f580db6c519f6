//! The effect of a port: a link that an earlier plugin made on the host joined a bridge. The removal takes the link out
//! of the bridge, and never deletes the link.

use crate::capability::leaves::EffectKind;
use crate::context::Context;
use crate::errors::{about, kernel_error};
use crate::others;
use crate::right::Right;
use nix::errno::Errno;
use postern_kernel::{KernelError, Link, Netlink};
use postern_types::OpError;
use serde::{Deserialize, Serialize};

/// A link of an earlier plugin that joined a bridge. The link was no port before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The link's name when it joined the bridge.
    #[serde(rename = "port")]
    pub name: String,
    /// The link's interface index, which identifies the link: the kernel seldom gives an index twice, and a record is
    /// about one boot.
    pub index: u32,
    /// The bridge's name.
    pub bridge: String,
    /// The bridge's interface index.
    pub master: u32,
    /// True if the link was up before.
    pub up: bool,
}

impl Port {
    pub(crate) fn link(&self, host: &Netlink) -> Result<Option<Link>, OpError> {
        host.link_by_index(self.index).map_err(kernel_error)
    }

    /// Takes the link out of the bridge, and sets the link down if the link was down before. A link that is no longer a
    /// port of this bridge is not changed.
    pub(crate) fn leave(&self, host: &Netlink) -> Result<(), OpError> {
        let Some(link) = self.link(host)?.filter(|link| link.master == Some(self.master)) else { return Ok(()) };
        let unless_gone = |done: Result<(), KernelError>| match done {
            Err(error) if error.is(Errno::ENODEV) => Ok(()),
            done => done.map_err(about(&link.name)),
        };
        // The link is set down first. A run that is killed before the next step leaves a port, and the next removal
        // finds it.
        if link.up && !self.up {
            unless_gone(host.set_down(link.index))?;
        }
        unless_gone(host.set_master(link.index, None))
    }
}

impl EffectKind for Port {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        // Two ADDs for one link at once must not take the link away from each other.
        match self.link(run.system.host()?)? {
            Some(_) if !run.journal.ports().contains(self) => Ok(()),
            Some(link) if !others::is_link_of_others(run.view(), &link)? => self.leave(run.system.host()?),
            _ => Ok(()),
        }
    }

    fn words(&self) -> String {
        format!("port {} of bridge {}", self.name, self.bridge)
    }

    fn right(&self) -> Right<'_> {
        Right::Network
    }
}
