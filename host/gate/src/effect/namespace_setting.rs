//! The effect of a kernel setting of the container's namespace that was changed.

use super::{Addresses, AttachmentLink, Leaves, Reapplied, RecordTiming};
use crate::errors::kernel_error;
use crate::need::Need;
use crate::session::Session;
use postern_kernel::sysctl::Setting;
use postern_types::{ErrorCode, OpError};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A setting, and its value before. It ends with the namespace: no record lists it, and DEL leaves it as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceSetting {
    /// The parts of its name below `net`, with slashes between them.
    pub key: String,
    /// Its value before.
    pub before: String,
}

impl NamespaceSetting {
    /// Returns the setting.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidArgument`]: no setting can have this name.
    pub fn setting(key: &str) -> Result<Setting, OpError> {
        Setting::new(key.split('/'))
            .ok_or_else(|| OpError::new(ErrorCode::InvalidArgument, key, format!("invalid net sysctl key: {key:?}")))
    }
}

impl Leaves for NamespaceSetting {
    fn remove(&self, session: &Session, _: Option<&[IpAddr]>) -> Result<(), OpError> {
        let Some(container) = session.container() else { return Ok(()) };
        container.setting_write(&Self::setting(&self.key)?, &self.before).map_err(kernel_error)
    }

    fn reapply(&self, _: &mut Session) -> Result<Reapplied, OpError> {
        Ok(Reapplied::NoRules)
    }

    fn words(&self) -> String {
        format!("setting net/{} of the container", self.key)
    }

    fn addresses(&self) -> Addresses<'_> {
        Addresses::Unconcerned
    }

    fn own_addresses(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    fn record_timing(&self) -> RecordTiming {
        RecordTiming::Never
    }

    fn as_link(&self) -> Option<&dyn AttachmentLink> {
        None
    }

    fn outlives_boot(&self) -> bool {
        false
    }

    fn needs(&self) -> Need<'_> {
        Need::Network
    }
}
