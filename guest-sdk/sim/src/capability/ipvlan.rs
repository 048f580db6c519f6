//! `ipvlan`, simulated.

use crate::kernel::Kernel;
use crate::links::{EEXIST, refused};
use postern_types::{Handle, IpvlanInfo, IpvlanMode, OpError, Reply, ops};

/// Answers one operation.
///
/// # Errors
/// Those that the host has for it.
pub fn answer(kernel: &mut Kernel, operation: &ops::Ipvlan) -> Result<Reply, OpError> {
    match operation {
        ops::Ipvlan::Create { parent, mode, mtu } => kernel.ipvlan_create(*parent, *mode, *mtu),
        ops::Ipvlan::Find => {
            let own = kernel.own().filter(|own| own.info.kind == "ipvlan");
            let found = own.map(|own| IpvlanInfo { link: own.info.clone(), mode: own.ipvlan_mode });
            Ok(Reply::MaybeIpvlan(found))
        }
    }
}

impl Kernel {
    fn ipvlan_create(&mut self, parent: Handle, mode: IpvlanMode, mtu: Option<u32>) -> Result<Reply, OpError> {
        let lower = self.held(parent)?.info.clone();
        self.takes_links("ipvlan", parent)?;
        let sibling = |link: &&crate::kernel::Link| {
            link.stands_on == Some(parent) && link.ipvlan_mode.is_some_and(|other| other != mode)
        };
        if let Some(other) = self.links.values().find(sibling) {
            let (below, name) = (&lower.name, &other.info.name);
            let (mode, other) = (mode.name(), other.ipvlan_mode.map_or("", IpvlanMode::name));
            let text = format!(
                "failed to create ipvlan: \"{below}\" has links in mode {other}, and one in mode {mode} would change them: \
                 \"{name}\" has it"
            );
            return Err(refused(EEXIST, below, &text));
        }
        let made = self.add_inner("ipvlan")?;
        let link = self.held_mut(made)?;
        link.ipvlan_mode = Some(mode);
        link.stands_on = Some(parent);
        link.info.mtu = mtu.unwrap_or(lower.mtu);
        link.info.mac = lower.mac;
        Ok(Reply::Made(link.info.clone()))
    }
}
