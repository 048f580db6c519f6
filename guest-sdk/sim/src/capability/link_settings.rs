//! `link-settings`, simulated.

use crate::kernel::{Kernel, Link};
use postern_types::{ErrorCode, Handle, LinkSettings, OpError, host};

impl host::LinkSettings for Kernel {
    fn change(&mut self, link: Handle, settings: &LinkSettings) -> Result<(), OpError> {
        let link = self.held_mut(link)?;
        if let Some(mac) = settings.mac.filter(|mac| mac.0[0] & 1 != 0 || mac.0 == [0; 6]) {
            let message = format!("{mac} is no address of a link");
            return Err(OpError::new(ErrorCode::InvalidArgument, mac.to_string(), message));
        }
        let before = of(link, settings);
        set(link, settings);
        self.changed.get_or_insert(before);
        // Spoofing protection follows the address that the network names.
        if let (Some(mac), true) = (settings.mac, self.mac_guard.is_some()) {
            self.mac_guard = Some(mac);
        }
        Ok(())
    }

    fn check(&mut self, link: Handle, settings: &LinkSettings) -> Result<(), OpError> {
        let link = self.held(link)?;
        match of(link, settings) == *settings {
            true => Ok(()),
            false => {
                let message = format!("{} does not have {settings}", link.info.name);
                Err(OpError::new(ErrorCode::Mismatch, &link.info.name, message))
            }
        }
    }

    fn restore(&mut self) -> Result<(), OpError> {
        let (Some(before), Some(handle)) = (self.changed.take(), self.own().map(|link| link.info.handle)) else {
            return Ok(());
        };
        set(self.held_mut(handle)?, &before);
        if let (Some(mac), true) = (before.mac, self.mac_guard.is_some()) {
            self.mac_guard = Some(mac);
        }
        Ok(())
    }
}

/// Returns the link's attributes that `settings` names.
fn of(link: &Link, settings: &LinkSettings) -> LinkSettings {
    LinkSettings {
        mac: settings.mac.and(link.info.mac),
        mtu: settings.mtu.map(|_| link.info.mtu),
        promisc: settings.promisc.map(|_| link.promisc),
        allmulti: settings.allmulti.map(|_| link.allmulti),
        tx_queue_length: settings.tx_queue_length.map(|_| link.tx_queue_length),
    }
}

fn set(link: &mut Link, settings: &LinkSettings) {
    link.info.mac = settings.mac.or(link.info.mac);
    link.info.mtu = settings.mtu.unwrap_or(link.info.mtu);
    link.promisc = settings.promisc.unwrap_or(link.promisc);
    link.allmulti = settings.allmulti.unwrap_or(link.allmulti);
    link.tx_queue_length = settings.tx_queue_length.unwrap_or(link.tx_queue_length);
}
