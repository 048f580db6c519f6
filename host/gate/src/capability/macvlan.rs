//! `macvlan`: the attachment's own link, stacked on a granted parent.

use super::inner::{self, NewLink};
pub(crate) use crate::capability::facts::ALWAYS as FACTS;
use crate::effect::InnerKind;
use crate::gate::Gate;
use postern_kernel::{InnerLinkKind, random_mac};
use postern_types::{Handle, Mac, MacvlanInfo, MacvlanMode, OpError, host};

impl host::Macvlan for Gate<'_> {
    fn create(
        &mut self,
        parent: Handle,
        mode: MacvlanMode,
        mtu: Option<u32>,
        mac: Option<Mac>,
        queue: Option<u32>,
    ) -> Result<MacvlanInfo, OpError> {
        let parent = self.guest.parent(parent)?;
        parent.can_carry(mtu)?;
        // In mode "passthru" a macvlan has its parent's address.
        let mac = (mode != MacvlanMode::Passthru).then(|| mac.unwrap_or_else(|| Mac(random_mac())));
        let spec = InnerLinkKind::Macvlan { parent: parent.index, mode, queue };
        let wanted = NewLink { mac, ..NewLink::on(&parent, spec, mtu) };
        let link = inner::create(self, &wanted, |_| Ok(()))?;
        Ok(MacvlanInfo { link, mode: Some(mode) })
    }

    fn find(&mut self) -> Result<Option<MacvlanInfo>, OpError> {
        let Some(own) = inner::find(self, InnerKind::Macvlan)? else { return Ok(None) };
        let mode = own.macvlan_mode;
        Ok(Some(MacvlanInfo { link: inner::show(self, own)?, mode }))
    }
}
