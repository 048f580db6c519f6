//! A link of the host that another plugin made, as a port of a bridge. It is let go of, and never deleted.

use crate::capability::leaves::EffectKind;
use crate::context::Context;
use crate::errors::{about, kernel_error};
use crate::others;
use crate::right::Right;
use nix::errno::Errno;
use postern_kernel::{KernelError, Link, Netlink};
use postern_types::OpError;
use serde::{Deserialize, Serialize};

/// A link that a plugin before made, joined to a bridge. It was no port of anything before, or it would not have been taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its name when it joined.
    #[serde(rename = "port")]
    pub name: String,
    /// Its interface index, by which it is known: the kernel seldom gives one twice, and a record is about one boot.
    pub index: u32,
    /// The bridge's name.
    pub bridge: String,
    /// The bridge's interface index.
    pub master: u32,
    /// It was up before.
    pub up: bool,
}

impl Port {
    pub(crate) fn link(&self, host: &Netlink) -> Result<Option<Link>, OpError> {
        host.link_by_index(self.index).map_err(kernel_error)
    }

    /// Lets go of the link, as it was found. Where it is no port of that bridge any more, somebody else has seen to it.
    pub(crate) fn leave(&self, host: &Netlink) -> Result<(), OpError> {
        let Some(link) = self.link(host)?.filter(|link| link.master == Some(self.master)) else { return Ok(()) };
        let unless_gone = |done: Result<(), KernelError>| match done {
            Err(error) if error.is(Errno::ENODEV) => Ok(()),
            done => done.map_err(about(&link.name)),
        };
        // In this order: what is killed in between is a port still, and let go of again.
        if link.up && !self.up {
            unless_gone(host.set_down(link.index))?;
        }
        unless_gone(host.set_master(link.index, None))
    }
}

impl EffectKind for Port {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        // Of two ADDs for one link at once, neither takes it away from the other.
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
