//! `dhcp`: the sockets of the services that may be asked, and the networks that leases may lie in.

use super::ipam_text;
use super::prelude::*;
use ipnet::IpNet;
use postern_cni::NetConf;

/// The keys of `[grant.dhcp]`.
pub const KEYS: &[Key] = &[
    required("sockets", ValueKind::File, "${config.ipam.daemonSocketPath | /run/cni/dhcp.sock}"),
    key("addresses", ValueKind::Address, Count::Some),
];

/// The socket of the native daemon, and of Postern's service, by default.
pub const DEFAULT_SOCKET: &str = "/run/cni/dhcp.sock";

/// The socket of the service that a network names: `ipam.daemonSocketPath`, or the default.
pub fn socket(conf: &NetConf) -> String {
    ipam_text(conf, "daemonSocketPath").unwrap_or_else(|| DEFAULT_SOCKET.to_owned())
}

impl Decide for ops::Dhcp {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Acquire | Self::Check | Self::Release | Self::Status => {
                input.one_of(grant, "dhcp.sockets", &socket(input.question.conf))
            }
        }
    }
}

impl Granted {
    /// True if policy lets a server give this address. Every address is allowed, unless `addresses` names networks.
    pub fn allows_dhcp_address(&self, address: &IpNet) -> bool {
        self.grant(Capability::Dhcp).is_some_and(|grant| !grant.sets("addresses") || grant.has_address(address))
    }
}
