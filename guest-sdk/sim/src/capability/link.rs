//! `link`, simulated.

use crate::kernel::Kernel;
use postern_types::{Handle, OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Link) -> Result<Reply, OpError> {
    match operation {
        ops::Link::Own => Ok(Reply::MaybeLink(kernel.own().map(|link| link.info.clone()))),
        ops::Link::Attributes { link } => Ok(Reply::Link(kernel.held(*link)?.info.clone())),
        ops::Link::Up { link } => kernel.link_up(*link),
        ops::Link::Delete { link } => kernel.link_delete(*link),
    }
}

impl Kernel {
    fn link_up(&mut self, handle: Handle) -> Result<Reply, OpError> {
        self.held_mut(handle)?.info.up = true;
        // A veth is operational as soon as both of its ends are up.
        if let Some(peer) = self.held(handle)?.peer {
            let both = self.held(peer)?.info.up;
            self.held_mut(peer)?.info.running = both;
            self.held_mut(handle)?.info.running = both;
        }
        Ok(Reply::Done)
    }

    fn link_delete(&mut self, handle: Handle) -> Result<Reply, OpError> {
        if let Some(peer) = self.links.remove(&handle).and_then(|link| link.peer) {
            self.links.remove(&peer);
        }
        Ok(Reply::Done)
    }
}
