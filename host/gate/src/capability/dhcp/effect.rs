//! A lease that the node's DHCP service keeps.

use crate::capability::leaves::{ByContents, EffectKind};
use crate::context::Context;
use crate::effect::Addresses;
use crate::right::Right;
use ipnet::IpNet;
use postern_types::OpError;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::IpAddr;

/// A lease that the service at a socket keeps for this attachment. The service identifies the lease by container,
/// network and interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dhcp {
    /// The socket of the service.
    pub socket: String,
    /// The addresses of the lease. The list is empty before the service was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpNet>,
}

impl EffectKind for Dhcp {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        run.system.dhcp.release(run.request, &run.fixed.deadline, &self.socket)
    }

    fn words(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(IpNet::to_string).collect();
        match addresses.as_slice() {
            [] => "DHCP lease".to_owned(),
            some => format!("DHCP lease of {}", some.join(" and ")),
        }
    }

    fn own_addresses(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(IpNet::addr).collect()
    }

    fn right(&self) -> Right<'_> {
        Right::Dhcp(Cow::from(&self.socket))
    }
}

impl ByContents for Dhcp {
    fn addresses(&self) -> Addresses<'_> {
        Addresses::LentBy(&self.socket)
    }
}
