//! `bridge`: the names of bridges, their settings, and the settings of the attachment's port.

use super::prelude::*;
use crate::port;
use postern_types::PortSpec;

/// The keys of `[grant.bridge]`.
pub const KEYS: &[Key] = &[
    required("names", ValueKind::Link, "${config.bridge | cni0}"),
    key("mtu", ValueKind::Mtu, Count::One),
    key("vlan", ValueKind::Vlan, Count::One),
    key("trunk", ValueKind::Trunk, Count::Any),
    key("preserve-default-vlan", ValueKind::Flag, Count::One),
    key("promisc", ValueKind::Flag, Count::One),
    key("isolated", ValueKind::Flag, Count::One),
    key("gateways", ValueKind::Flag, Count::Some),
    key("force-address", ValueKind::Flag, Count::One),
    key("attach", ValueKind::Link, Count::Any),
];

impl Decide for ops::Bridge {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Ensure { name, mtu, vlan_filtering, promisc } => {
                let rule = named(input, grant, name)?;
                options(input, grant, name, *mtu, *vlan_filtering, *promisc)?;
                Ok(rule)
            }
            Self::Find { name } => named(input, grant, name),
            // The gate finds only links that `attach` names.
            Self::PreviousLink => Ok(if grant.texts("attach").next().is_some() { "bridge.attach" } else { grant.name }),
            Self::Attach { port, .. } => joins(input, grant, port),
            Self::EnsureGateways { port, force, .. } => {
                let rule = joins(input, grant, port)?;
                input.says(grant, "gateways", "true", "")?;
                if !force {
                    return Ok(rule);
                }
                input.says(grant, "force-address", "true", "with force")?;
                Ok("bridge.force-address")
            }
        }
    }
}

fn named(input: &RuleInput<'_>, grant: &Grant, name: &str) -> Result<&'static str, OpError> {
    // A link can't be named "": the operation itself refuses this name.
    if name.is_empty() { Ok("bridge.names") } else { input.one_of(grant, "bridge.names", name) }
}

/// VLAN filtering may always be switched on, because only a new bridge gets this setting. All ports of a new bridge are
/// in one VLAN until the network sets other VLANs. A network with VLANs needs filtering, because without filtering the
/// VLANs separate nothing.
fn options(
    input: &RuleInput<'_>,
    grant: &Grant,
    name: &str,
    mtu: Option<u32>,
    vlan_filtering: bool,
    promisc: bool,
) -> Result<(), OpError> {
    input.mtu(grant, mtu, &format!("on {name:?} "))?;
    if promisc {
        input.says(grant, "promisc", "true", &format!("on {name:?} in promiscuous mode"))?;
    }
    if !vlan_filtering && port::has_vlans(grant) {
        let what = format!("on {name:?} without VLAN filtering");
        return Err(input.key(&what, vec![line::text("vlan", "0"), Change::Without("trunk")]));
    }
    Ok(())
}

fn joins(input: &RuleInput<'_>, grant: &Grant, port: &PortSpec) -> Result<&'static str, OpError> {
    port::check(grant, port).map_err(|refused| input.key(&refused.what, vec![line::text(refused.key, refused.value)]))
}

impl Granted {
    /// Returns the grant of bridges, if it applies to this run.
    pub fn bridge(&self) -> Option<&Grant> {
        self.grant(Capability::Bridge)
    }

    /// True if the ports of this network are in VLANs.
    pub fn has_vlans(&self) -> bool {
        self.bridge().is_some_and(port::has_vlans)
    }
}
