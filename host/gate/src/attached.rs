//! The actual state of the attachment's port, read from the kernel before a result is accepted. This state is compared
//! with the demands of policy.
//!
//! A record only lists the objects that were made. An object may be gone, or may not belong to the port that carries
//! the traffic.

use crate::capability::firewall;
use crate::capability::link_settings::effect::guarded as guarded_address;
use crate::capability::mac_guard::effect::is_whole;
use crate::context::Context;
use crate::effect::MacGuard;
use crate::errors::kernel_error;
use crate::others;
use postern_policy::{Granted, port};
use postern_types::{OpError, VlanId};

/// The host end of the attachment's pair, or another plugin's link that joined a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachedPort {
    pub name: String,
    /// True if the link is a port of the bridge to which it was added.
    pub is_joined: bool,
    /// True if the port exchanges no frames with other isolated ports.
    pub isolated: bool,
    /// The port's VLANs. The flag is true if untagged frames are in the VLAN.
    pub vlans: Vec<(VlanId, bool)>,
    /// True if all rules of the spoofing protection are there: only the container's own address can send.
    pub guarded: bool,
}

/// A demand of policy that the node does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmetDemand {
    /// The rest of a sentence that begins with the plugin's name.
    pub what: String,
    /// The policy line with the demand.
    pub line: String,
}

impl UnmetDemand {
    /// Returns the demand for spoofing protection.
    pub fn of_guard() -> Self {
        let what = "left out the spoofing protection that this network asks for".to_owned();
        Self { what, line: "[grant.mac-guard] required".to_owned() }
    }

    /// Returns the demand for isolation of the bridge.
    pub fn of_isolation() -> Self {
        let what = "left out the isolation of the bridge that this network asks for".to_owned();
        Self { what, line: "[grant.firewall] required".to_owned() }
    }
}

/// Reads the port and compares it with policy. Without a demand of policy, the port is not read.
pub fn unmet_demand(run: &Context, granted: &Granted) -> Result<Option<UnmetDemand>, OpError> {
    if let Some(ingress) = granted.required_ingress()
        && !firewall::is_isolated(run, ingress)?
    {
        return Ok(Some(UnmetDemand::of_isolation()));
    }
    if !granted.requires_mac_guard() && !granted.bridge().is_some_and(port::demands) {
        return Ok(None);
    }
    Ok(compare(granted, look(run, granted)?.as_ref()))
}

fn look(run: &Context, granted: &Granted) -> Result<Option<AttachedPort>, OpError> {
    let Some(link) = others::end(run)? else { return Ok(None) };
    // VLANs are read only if policy names VLANs: a kernel without VLANs can't list them.
    let in_vlans = link.master.is_some() && granted.bridge().is_some_and(port::has_vlans);
    let vlans = match in_vlans {
        true => run.system.host()?.port_vlans(link.index).map_err(kernel_error)?,
        false => Vec::new(),
    };
    let recorded = run.journal.effects();
    let guards = recorded.iter().filter_map(|noted| MacGuard::of(&noted.effect));
    let guard = guards
        .filter(|guard| guard.host.as_deref().is_some_and(|host| link.name == host))
        .find_map(|guard| guarded_address(run.journal, guard));
    let guarded = match guard.filter(|_| granted.requires_mac_guard()) {
        Some(mac) => is_whole(run, &link.name.to_string(), mac)?,
        None => false,
    };
    // If this run joined no bridge, another plugin's port counts as joined.
    let is_joined = link.master.is_some() && run.own.joined.is_none_or(|bridge| link.master == Some(bridge));
    Ok(Some(AttachedPort { name: link.name.to_string(), is_joined, isolated: link.isolated, vlans, guarded }))
}

/// Returns the demand of policy that this port does not meet.
fn compare(granted: &Granted, port: Option<&AttachedPort>) -> Option<UnmetDemand> {
    let required = granted.requires_mac_guard();
    let Some(port) = port else { return required.then(UnmetDemand::of_guard) };
    if required && !port.guarded {
        return Some(UnmetDemand::of_guard());
    }
    let grant = granted.bridge()?;
    // The demands hold for a port of the bridge. An nftables rule protects one port, and VLANs and isolation are
    // attributes of a port.
    if !port.is_joined {
        let what = format!("left \"{}\" outside of a bridge, where the spoofing protection has no effect", port.name);
        return required.then(|| UnmetDemand { what, ..UnmetDemand::of_guard() });
    }
    let (what, key) = port::verify(grant, port.isolated, &port.vlans).err()?;
    let what = format!("left port \"{}\" {what}, where the network demands otherwise", port.name);
    Some(UnmetDemand { what, line: format!("[grant.bridge] {key}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_cni::Json;
    use postern_policy::Policy;

    #[test]
    fn what_policy_demands_is_of_the_port_that_is_there() {
        let message = |policy: &str, port: Option<&AttachedPort>| {
            let policy = Policy::parse(policy, "bridge.toml").unwrap();
            let granted = policy.resolve(&Json::Null, "").unwrap();
            compare(&granted, port)
                .map_or_else(String::new, |unmet_demand| format!("{}; {}", unmet_demand.what, unmet_demand.line))
        };
        let plain = AttachedPort {
            name: "veth1".to_owned(),
            is_joined: true,
            vlans: vec![(1, true)],
            ..AttachedPort::default()
        };
        let guarded = AttachedPort { guarded: true, ..plain.clone() };
        let loose = AttachedPort { is_joined: false, ..guarded.clone() };
        let isolated = AttachedPort { isolated: true, ..plain.clone() };
        let tagged = AttachedPort { vlans: vec![(5, true)], ..plain.clone() };
        let bridge = "[grant.bridge]\nnames = [\"b\"]\n";
        let guard = format!("{bridge}[grant.mac-guard]\nrequired = \"true\"");
        let out = "left out the spoofing protection that this network asks for; [grant.mac-guard] required";
        for (policy, port, expected) in [
            (bridge, None, ""),
            (bridge, Some(&plain), ""),
            (&guard, None, out),
            (&guard, Some(&plain), out),
            (&guard, Some(&guarded), ""),
            (
                &guard,
                Some(&loose),
                "left \"veth1\" outside of a bridge, where the spoofing protection has no effect; \
                 [grant.mac-guard] required",
            ),
            ("[grant.mac-guard]\nrequired = \"true\"", Some(&loose), ""),
        ] {
            assert_eq!(message(policy, port), expected, "{policy} {port:?}");
        }
        let key = |key: &str| format!("{bridge}{key}");
        for (policy, good, bad, words) in [
            (key("isolated = \"true\""), &isolated, &plain, "without isolation"),
            (key("vlan = \"5\""), &tagged, &plain, "in access VLAN 1"),
        ] {
            assert_eq!((message(&policy, Some(good)), message(&policy, None)), (String::new(), String::new()));
            let message = message(&policy, Some(bad));
            assert!(
                message.starts_with(&format!("left port \"veth1\" {words}, where the network demands")),
                "{message}"
            );
        }
    }
}
