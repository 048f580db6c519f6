//! `link`, simulated.

use crate::kernel::Kernel;
use postern_types::{Handle, LinkInfo, OpError, host};

impl host::Link for Kernel {
    fn attributes(&mut self, link: Handle) -> Result<LinkInfo, OpError> {
        Ok(self.held(link)?.info.clone())
    }

    fn up(&mut self, link: Handle) -> Result<(), OpError> {
        self.held_mut(link)?.info.up = true;
        // A veth is operational as soon as both of its ends are up.
        if let Some(peer) = self.held(link)?.peer {
            let both = self.held(peer)?.info.up;
            self.held_mut(peer)?.info.running = both;
            self.held_mut(link)?.info.running = both;
        }
        Ok(())
    }

    fn delete(&mut self, link: Handle) -> Result<(), OpError> {
        if let Some(peer) = self.links.remove(&link).and_then(|link| link.peer) {
            self.links.remove(&peer);
        }
        Ok(())
    }

    fn own(&mut self) -> Result<Option<LinkInfo>, OpError> {
        Ok(Kernel::own(self).map(|link| link.info.clone()))
    }
}
