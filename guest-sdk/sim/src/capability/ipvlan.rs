//! `ipvlan`, simulated.

use crate::kernel::Kernel;
use crate::links::{EEXIST, refused};
use postern_types::{Handle, IpvlanInfo, IpvlanMode, LinkInfo, OpError, host};

impl host::Ipvlan for Kernel {
    fn create(&mut self, parent: Handle, mode: IpvlanMode, mtu: Option<u32>) -> Result<LinkInfo, OpError> {
        let lower = self.held(parent)?.info.clone();
        self.takes_links("ipvlan", parent)?;
        let sibling = |link: &&crate::kernel::Link| {
            link.stands_on == Some(parent) && link.ipvlan_mode.is_some_and(|other| other != mode)
        };
        if let Some(other) = self.links.values().find(sibling) {
            let (below, name) = (&lower.name, &other.info.name);
            let (mode, other) = (mode.name(), other.ipvlan_mode.map_or("", IpvlanMode::name));
            let text = format!(
                "failed to create ipvlan: \"{below}\" has a link in mode {other}, and a link in mode {mode} would change \
                 the mode of \"{name}\""
            );
            return Err(refused(EEXIST, below, &text));
        }
        let made = self.add_inner("ipvlan")?;
        let link = self.held_mut(made)?;
        link.ipvlan_mode = Some(mode);
        link.stands_on = Some(parent);
        link.info.mtu = mtu.unwrap_or(lower.mtu);
        link.info.mac = lower.mac;
        Ok(link.info.clone())
    }

    fn find(&mut self) -> Result<Option<IpvlanInfo>, OpError> {
        let own = self.own().filter(|own| own.info.kind == "ipvlan");
        Ok(own.map(|own| IpvlanInfo { link: own.info.clone(), mode: own.ipvlan_mode }))
    }
}
