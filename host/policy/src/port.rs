//! Rules for the ports of a bridge: VLANs and isolation.

use super::granted::Grant;
use crate::prelude::*;
use core::ops::RangeInclusive;
use postern_types::{PortSpec, VlanId};

/// The reason of a refusal, with the key and value that would allow the request.
#[derive(Debug, PartialEq, Eq)]
pub struct PortRefusal {
    /// The rest of a sentence that begins with the operation.
    pub what: String,
    /// The key of `[grant.bridge]`.
    pub key: &'static str,
    /// The value; for a list, the missing element.
    pub value: String,
}

/// True if a VLAN can have this number.
pub fn is_vlan(id: VlanId) -> bool {
    (1..=4094).contains(&id)
}

/// Reads `ID` or `FROM-TO`.
pub fn vlans(text: &str) -> Option<RangeInclusive<VlanId>> {
    let id = |text: &str| text.parse().ok().filter(|id| is_vlan(*id));
    match text.split_once('-') {
        Some((from, to)) => Some(id(from)?..=id(to)?).filter(|range| !range.is_empty()),
        None => id(text).map(|id| id..=id),
    }
}

/// Reads a port of the node, `PORT` or `FIRST-LAST`.
pub fn ports(text: &str) -> Option<(u16, u16)> {
    let port = |text: &str| text.parse().ok().filter(|port: &u16| *port > 0);
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (port(first)?, port(last)?),
        None => port(text).map(|port| (port, port))?,
    };
    (first <= last).then_some((first, last))
}

/// True if these ranges together have all ports from `first` to `last`.
pub fn covers(ranges: &[(u16, u16)], first: u16, last: u16) -> bool {
    let mut next = u32::from(first);
    while next <= u32::from(last) {
        let around = ranges.iter().filter(|(from, to)| u32::from(*from) <= next && next <= u32::from(*to));
        match around.map(|(_, to)| *to).max() {
            Some(to) => next = u32::from(to) + 1,
            None => return false,
        }
    }
    true
}

/// True if the ports of this grant are in VLANs. Then the bridge must filter VLANs. Without this filter, the VLANs
/// separate nothing.
pub fn has_vlans(grant: &Grant) -> bool {
    grant.texts("vlan").any(|text| vlans(&text).is_some()) || grant.texts("trunk").any(|text| vlans(&text).is_some())
}

/// Compares a port with the grant. Returns the key that decided. Hairpin mode is always allowed: it concerns only the
/// attachment's own frames.
///
/// # Errors
/// The first setting that is not granted.
pub fn check(grant: &Grant, port: &PortSpec) -> Result<&'static str, PortRefusal> {
    let refused = |what: String, key, value: String| Err(PortRefusal { what, key, value });
    // The access VLAN belongs to the network. A port in another VLAN, or in no VLAN, is in another network.
    let vlan = port.vlan.unwrap_or(0).to_string();
    let none_said = grant.texts("vlan").next().is_none();
    if !(grant.texts("vlan").any(|text| text == vlan) || none_said && port.vlan.is_none()) {
        let what = match port.vlan {
            Some(id) => format!("with access VLAN {id}"),
            None => "without an access VLAN".to_owned(),
        };
        return refused(what, "vlan", vlan);
    }
    let trunk: Vec<_> = grant.texts("trunk").filter_map(|text| vlans(&text)).collect();
    if let Some(id) = port.trunk.iter().find(|id| !trunk.iter().any(|granted| granted.contains(id))) {
        return refused(format!("with VLAN {id} on the trunk"), "trunk", id.to_string());
    }
    let tagged = port.vlan.is_some() || !port.trunk.is_empty();
    if tagged && port.preserve_default_vlan && !grant.on("preserve-default-vlan") {
        return refused("that keeps the default VLAN".to_owned(), "preserve-default-vlan", "true".to_owned());
    }
    if !port.isolated && must_isolate(grant) {
        return refused("without isolation of the port".to_owned(), "isolated", "false".to_owned());
    }
    Ok(match (port.vlan, port.trunk.as_slice()) {
        (Some(_), _) => "bridge.vlan",
        (None, [_, ..]) => "bridge.trunk",
        (None, []) => "bridge",
    })
}

/// True if the grant demands a setting that a default port does not have.
pub fn demands(grant: &Grant) -> bool {
    has_vlans(grant) || must_isolate(grant)
}

fn must_isolate(grant: &Grant) -> bool {
    grant.sets("isolated") && !grant.texts("isolated").any(|text| text == "false")
}

/// Compares the kernel's port with the demands of the grant: isolation and VLANs. The flag beside each VLAN is true if
/// untagged frames are in this VLAN.
///
/// # Errors
/// The port's state, as the rest of a sentence, and the key that demands another state.
pub fn verify(grant: &Grant, isolated: bool, member: &[(VlanId, bool)]) -> Result<(), (String, &'static str)> {
    if must_isolate(grant) && !isolated {
        return Err(("without isolation".to_owned(), "isolated"));
    }
    if !has_vlans(grant) {
        return Ok(());
    }
    let access: Vec<_> = grant.texts("vlan").filter_map(|text| vlans(&text)).collect();
    let untagged = grant.texts("vlan").next().is_none() || grant.texts("vlan").any(|text| text == "0");
    let pvid = member.iter().find(|(_, is_pvid)| *is_pvid).map(|(id, _)| *id);
    let in_access = pvid.is_some_and(|id| access.iter().any(|granted| granted.contains(&id)));
    if !in_access && !untagged {
        return Err((pvid.map_or_else(|| "in no access VLAN".to_owned(), |id| format!("in access VLAN {id}")), "vlan"));
    }
    if grant.on("preserve-default-vlan") {
        return Ok(());
    }
    let trunk: Vec<_> = grant.texts("trunk").filter_map(|text| vlans(&text)).collect();
    let is_granted = |id: VlanId| {
        let listed = access.iter().chain(&trunk).any(|granted| granted.contains(&id));
        // Without an access VLAN, untagged frames are in the bridge's default VLAN.
        listed || untagged && (id == 1 || pvid == Some(id))
    };
    match member.iter().find(|(id, _)| !is_granted(*id)) {
        Some((id, _)) => Err((format!("in VLAN {id} too"), "trunk")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::granted::tests::granted;
    use super::*;

    /// Returns the objection to a port under these keys; empty if there is none.
    fn message(keys: &str, config: &str, port: &PortSpec) -> String {
        let granted = granted(&format!("[grant.bridge]\nnames = [\"b\"]\n{keys}"), config);
        match check(granted.bridge().unwrap(), port) {
            Ok(_) => String::new(),
            Err(refused) => format!("{}; {} = {}", refused.what, refused.key, refused.value),
        }
    }

    fn port(vlan: VlanId, trunk: &[VlanId]) -> PortSpec {
        PortSpec { vlan: (vlan > 0).then_some(vlan), trunk: trunk.to_vec(), ..PortSpec::default() }
    }

    #[test]
    fn the_access_vlan_is_exact() {
        for (keys, config, id, expected) in [
            ("", "{}", 0, ""),
            ("", "{}", 5, "with access VLAN 5; vlan = 5"),
            ("vlan = \"0\"", "{}", 0, ""),
            ("vlan = \"0\"", "{}", 1, "with access VLAN 1; vlan = 1"),
            ("vlan = \"5\"", "{}", 5, ""),
            ("vlan = \"5\"", "{}", 6, "with access VLAN 6; vlan = 6"),
            ("vlan = \"5\"", "{}", 0, "without an access VLAN; vlan = 0"),
            ("vlan = \"${config.vlan | 0}\"", r#"{"vlan":7}"#, 7, ""),
            ("vlan = \"${config.vlan | 0}\"", r#"{"vlan":7}"#, 0, "without an access VLAN; vlan = 0"),
            ("vlan = \"${config.vlan | 0}\"", r#"{"vlan":0}"#, 0, ""),
            ("vlan = \"${config.vlan | 0}\"", "{}", 0, ""),
        ] {
            assert_eq!(message(keys, config, &port(id, &[])), expected, "{keys} {config} {id}");
        }
    }

    #[test]
    fn the_trunk_is_at_most() {
        let shipped =
            r#"trunk = ["${config.vlanTrunk.*.id}", "${config.vlanTrunk.*.minID}-${config.vlanTrunk.*.maxID}"]"#;
        let config = r#"{"vlanTrunk":[{"minID":10,"maxID":12,"id":3},{"id":20},{"minID":30},{"id":9999}]}"#;
        assert_eq!(message(shipped, config, &port(0, &[3, 10, 12, 20])), "");
        assert_eq!(message(shipped, config, &port(0, &[])), "");
        for outside in [2, 9, 13, 30] {
            let expected = format!("with VLAN {outside} on the trunk; trunk = {outside}");
            assert_eq!(message(shipped, config, &port(0, &[3, outside])), expected);
        }
        assert_eq!(message("", config, &port(0, &[3])), "with VLAN 3 on the trunk; trunk = 3");
    }

    #[test]
    fn the_default_vlan_counts_where_there_are_others() {
        let keep = |port| PortSpec { preserve_default_vlan: true, ..port };
        let vlan = "vlan = \"5\"\n";
        let refusal = "that keeps the default VLAN; preserve-default-vlan = true";
        assert_eq!(message(vlan, "{}", &keep(port(5, &[]))), refusal);
        assert_eq!(message("trunk = [\"5\"]\npreserve-default-vlan = \"false\"", "{}", &keep(port(0, &[5]))), refusal);
        assert_eq!(message("", "{}", &keep(port(0, &[]))), "");
        assert_eq!(message(&format!("{vlan}preserve-default-vlan = \"true\""), "{}", &keep(port(5, &[]))), "");
        assert_eq!(message(&format!("{vlan}preserve-default-vlan = \"true\""), "{}", &port(5, &[])), "");
    }

    #[test]
    fn isolation_is_at_least() {
        let isolated = PortSpec { isolated: true, ..PortSpec::default() };
        let open = PortSpec::default();
        for keys in ["", "isolated = \"false\"", "isolated = \"${config.portIsolation | false}\""] {
            assert_eq!((message(keys, "{}", &isolated), message(keys, "{}", &open)), (String::new(), String::new()));
        }
        let refusal = "without isolation of the port; isolated = false";
        let keys = "isolated = \"${config.portIsolation | false}\"";
        assert_eq!(message(keys, r#"{"portIsolation":true}"#, &open), refusal);
        assert_eq!(message(keys, r#"{"portIsolation":true}"#, &isolated), "");
        assert_eq!(message("isolated = \"true\"", "{}", &open), refusal);
        // A value that is no flag does not forbid isolation.
        assert_eq!(message(keys, r#"{"portIsolation":{}}"#, &open), refusal);
        assert_eq!(message("isolated = \"${config.portIsolation}\"", "{}", &open), refusal);
    }

    #[test]
    fn a_port_is_held_against_what_is_demanded() {
        let message = |keys: &str, isolated: bool, vlans: &[(VlanId, bool)]| {
            let granted = granted(&format!("[grant.bridge]\nnames = [\"b\"]\n{keys}"), "{}");
            let grant = granted.bridge().unwrap();
            assert_eq!(demands(grant), keys.contains("\"true\"") || keys.contains('5'), "{keys}");
            verify(grant, isolated, vlans).map_or_else(|(what, key)| format!("{what}; {key}"), |()| String::new())
        };
        let default = [(1, true)];
        for (keys, isolated, vlans, expected) in [
            ("", false, &default[..], ""),
            ("vlan = \"0\"\nisolated = \"false\"", false, &default, ""),
            ("isolated = \"true\"", true, &default, ""),
            ("isolated = \"true\"", false, &default, "without isolation; isolated"),
            ("vlan = \"5\"", false, &[(5, true)], ""),
            ("vlan = \"5\"", false, &default, "in access VLAN 1; vlan"),
            ("vlan = \"5\"", false, &[(5, false), (6, true)], "in access VLAN 6; vlan"),
            ("vlan = \"5\"", false, &[(5, false)], "in no access VLAN; vlan"),
            ("vlan = \"5\"", false, &[], "in no access VLAN; vlan"),
            ("vlan = \"5\"", false, &[(1, false), (5, true)], "in VLAN 1 too; trunk"),
            ("vlan = \"5\"\npreserve-default-vlan = \"true\"", false, &[(1, false), (5, true)], ""),
            ("vlan = \"5\"\ntrunk = [\"10-12\"]", false, &[(5, true), (10, false), (12, false)], ""),
            ("vlan = \"5\"\ntrunk = [\"10-12\"]", false, &[(5, true), (13, false)], "in VLAN 13 too; trunk"),
            ("vlan = \"0\"\ntrunk = [\"50\"]", false, &[(1, true), (50, false)], ""),
            ("trunk = [\"50\"]", false, &[(99, true)], ""),
            ("trunk = [\"50\"]", false, &[(1, true), (51, false)], "in VLAN 51 too; trunk"),
        ] {
            assert_eq!(message(keys, isolated, vlans), expected, "{keys} {vlans:?}");
        }
    }

    #[test]
    fn ranges_of_vlans() {
        assert_eq!(vlans("10-20"), Some(10..=20));
        assert_eq!(vlans("7"), Some(7..=7));
        for bad in ["", "0", "4095", "20-10", "1-", "-1", "1-2-3", "x", "65536"] {
            assert_eq!(vlans(bad), None, "{bad}");
        }
    }
}
