//! Bridges that policy does not grant, and ports with settings that policy forbids.

use crate::attack::{hostile, rogue, withstand};
use anyhow::Result;

/// Makes a pair, finds the granted bridge (handle 2), and then runs `last`.
fn port(name: &'static str, last: &str) -> crate::attack::Attack {
    rogue(name, &format!(r#"["veth-create", {{"op": "bridge-find", "name": "hostile0"}}, {last}]"#))
}

/// Returns `bridge.attach` with the port's settings.
fn joins(name: &'static str, settings: &str) -> crate::attack::Attack {
    port(name, &attach(settings))
}

fn attach(settings: &str) -> String {
    format!(r#"{{"op": "bridge-attach", "bridge": 2, "host": 1, "port": {}}}"#, spec(settings))
}

/// Returns default settings, changed by `settings`.
fn spec(settings: &str) -> String {
    let mut spec = serde_json::json!({"hairpin": false, "isolated": false, "vlan": null, "trunk": [], "preserve_default_vlan": false});
    postern_tests::merge(&mut spec, &serde_json::from_str(settings).unwrap_or_default());
    spec.to_string()
}

#[test]
fn bridges_that_are_not_granted() -> Result<()> {
    let denied = "policy does not allow plugin…bridge.find";
    withstand(&[
        hostile("the bystander's bridge", "bridge")
            .ends(110, "policy does not allow plugin…bridge.ensure on \"cni0\"; …grant.bridge = { names = […\"cni0\"]"),
        hostile("the bystander's bridge, which the configuration names", "bridge")
            .with(r#"{"bridge": "cni0"}"#)
            .ends(110, "policy does not allow plugin…bridge.ensure on \"cni0\""),
        hostile("a bridge by path", "bridge-path").ends(110, "policy does not allow plugin…bridge.find on \"../hostile0\""),
        hostile("a name of 8 MiB", "bridge-megabytes").ends(999, "plugin \"hostile\" trapped: too much data"),
        hostile("replace an operator's address", "force")
            .ends(110, "policy does not allow plugin…bridge.ensure-gateways…force-address = \"true\""),
        rogue("an empty name", r#"[{"op": "bridge-find", "name": ""}]"#).ends(999, "interface name is empty"),
        rogue("a pattern for a name", r#"[{"op": "bridge-find", "name": "hostile*"}]"#).ends(110, denied),
        rogue("a placeholder for a name", r#"[{"op": "bridge-find", "name": "${config.name}"}]"#).ends(110, denied),
        rogue("a granted name and a NUL", r#"[{"op": "bridge-find", "name": "hostile0\u0000cni0"}]"#).ends(110, denied),
        rogue("a granted name in capitals", r#"[{"op": "bridge-find", "name": "HOSTILE0"}]"#).ends(110, denied),
        rogue("a granted name and a blank", r#"[{"op": "bridge-find", "name": "hostile0 "}]"#).ends(110, denied),
        rogue("an operator's link", r#"[{"op": "bridge-ensure", "name": "op0", "mtu": null, "vlan_filtering": false, "promisc": false}]"#)
            .ends(110, "policy does not allow plugin…bridge.ensure on \"op0\""),
        rogue("a granted name that is no bridge", r#"[{"op": "bridge-find", "name": "op0"}]"#)
            .policy("[grant.bridge]\nnames = [\"op0\"]")
            .ends(999, "\"op0\" already exists but is not a bridge"),
        rogue("make a bridge of a granted name that is no bridge", r#"[{"op": "bridge-ensure", "name": "op0", "mtu": null, "vlan_filtering": false, "promisc": false}]"#)
            .policy("[grant.bridge]\nnames = [\"op0\"]")
            .ends(999, "\"op0\" already exists but is not a bridge"),
        rogue("the loopback link for a bridge", r#"[{"op": "bridge-find", "name": "lo"}]"#)
            .policy("[grant.bridge]\nnames = [\"lo\"]")
            .ends(999, "\"lo\" already exists but is not a bridge"),
        rogue("a granted path", r#"[{"op": "bridge-ensure", "name": "../x", "mtu": null, "vlan_filtering": false, "promisc": false}]"#)
            .policy("[grant.bridge]\nnames = [\"../x\"]")
            .ends(999, "\"../x\" is no name of a link"),
        rogue("a granted name with a pattern of the kernel's", r#"[{"op": "bridge-ensure", "name": "br%d", "mtu": null, "vlan_filtering": false, "promisc": false}]"#)
            .policy("[grant.bridge]\nnames = [\"br%d\"]")
            .ends(999, "no link can have this name"),
        rogue("make a bridge on DEL", r#"[{"op": "bridge-ensure", "name": "hostile0", "mtu": null, "vlan_filtering": false, "promisc": true}]"#)
            .on("DEL")
            .ends(110, "bridge.ensure is not for DEL"),
        rogue("attach on CHECK", &format!(r#"[{{"op": "bridge-find", "name": "hostile0"}}, {{"op": "bridge-attach", "bridge": 0, "host": 0, "port": {}}}]"#, spec("{}")))
            .on("CHECK")
            .ends(110, "bridge.attach is not for CHECK"),
    ])
}

#[test]
fn ports_as_policy_does_not_want_them() -> Result<()> {
    let denied = "policy does not allow plugin…bridge.attach";
    let vlans = "[grant.bridge]\nnames = [\"hostile0\"]\nvlan = \"${config.vlan | 0}\"\n\
                 trunk = [\"${config.vlanTrunk.*.id}\", \"${config.vlanTrunk.*.minID}-${config.vlanTrunk.*.maxID}\"]";
    withstand(&[
        joins("a VLAN where none is granted", r#"{"vlan": 100}"#).ends(110, denied),
        joins("no VLAN where one is granted", "{}").policy(vlans).with(r#"{"vlan": 100}"#).ends(110, denied),
        joins("another VLAN than is granted", r#"{"vlan": 101}"#).policy(vlans).with(r#"{"vlan": 100}"#).ends(110, denied),
        joins("a VLAN that does not exist", r#"{"vlan": 4095}"#)
            .policy("[grant.bridge]\nnames = [\"hostile0\"]\nvlan = \"4095\"")
            .ends(999, "\"4095\" is no VLAN"),
        joins("a trunk where none is granted", r#"{"trunk": [7]}"#).ends(110, denied),
        joins("a trunk with one VLAN too many", r#"{"trunk": [7, 20, 21, 22, 23]}"#)
            .policy(vlans)
            .with(r#"{"vlanTrunk": [{"id": 7}, {"minID": 20, "maxID": 22}]}"#)
            .ends(110, denied),
        joins("a trunk of all VLANs", r#"{"trunk": [1, 4094]}"#)
            .policy(vlans)
            .with(r#"{"vlanTrunk": [{"minID": 1}, {"maxID": 4094}]}"#)
            .ends(110, denied),
        joins("the default VLAN kept beside a granted one", r#"{"vlan": 100, "preserve_default_vlan": true}"#)
            .policy(vlans)
            .with(r#"{"vlan": 100}"#)
            .ends(110, denied),
        joins("not isolated where isolation is demanded", "{}")
            .policy("[grant.bridge]\nnames = [\"hostile0\"]\nisolated = \"${config.portIsolation | false}\"")
            .with(r#"{"portIsolation": true}"#)
            .ends(110, denied),
        rogue("promiscuous where it is not granted", r#"[{"op": "bridge-ensure", "name": "hostile0", "mtu": null, "vlan_filtering": false, "promisc": true}]"#)
            .ends(110, "policy does not allow plugin…bridge.ensure"),
        rogue("an MTU where none is granted", r#"[{"op": "bridge-ensure", "name": "new0", "mtu": 68, "vlan_filtering": false, "promisc": false}]"#)
            .policy("[grant.bridge]\nnames = [\"new0\"]\nmtu = \"0\"")
            .ends(110, "policy does not allow plugin…bridge.ensure"),
        port("gateways before the port has joined", &format!(r#"{{"op": "bridge-ensure-gateways", "bridge": 2, "port": {}, "force": false}}"#, spec("{}")))
            .ends(999, "gateways are only for the port with which this attachment joined the bridge"),
        port("a gateway in another VLAN than the port's", &format!(r#"{}, {{"op": "bridge-ensure-gateways", "bridge": 2, "port": {}, "force": false}}"#, attach("{}"), spec(r#"{"vlan": 100}"#)))
            .ends(110, "with access VLAN 100"),
        port("replace an address that is in the way", &format!(r#"{}, {{"op": "bridge-ensure-gateways", "bridge": 2, "port": {}, "force": true}}"#, attach("{}"), spec("{}")))
            .ends(110, "policy does not allow plugin…bridge.ensure-gateways"),
        rogue("a bridge without any pair", &format!(r#"[{{"op": "bridge-find", "name": "hostile0"}}, {{"op": "bridge-attach", "bridge": 0, "host": 0, "port": {}}}]"#, spec("{}")))
            .ends(999, "is not for the attachment's host end"),
        rogue("gateways outside of ADD", &format!(r#"[{{"op": "bridge-find", "name": "hostile0"}}, {{"op": "bridge-ensure-gateways", "bridge": 0, "port": {}, "force": false}}]"#, spec("{}")))
            .on("DEL")
            .ends(110, "bridge.ensure-gateways is not for DEL"),
    ])
}

/// hostile0 filters no VLANs, so VLAN numbers would have no meaning.
#[test]
fn vlans_on_a_bridge_without_filtering() -> Result<()> {
    let vlans =
        "[grant.bridge]\nnames = [\"hostile0\"]\nvlan = \"${config.vlan | 0}\"\ntrunk = [\"${config.vlanTrunk.*.id}\"]";
    let words = "bridge \"hostile0\" does not filter VLANs…`ip link set hostile0 type bridge vlan_filtering 1`";
    withstand(&[
        joins("an access VLAN", r#"{"vlan": 100}"#).policy(vlans).with(r#"{"vlan": 100}"#).ends(999, words),
        joins("a trunk", r#"{"trunk": [7]}"#).policy(vlans).with(r#"{"vlanTrunk": [{"id": 7}]}"#).ends(999, words),
        crate::attack::honest("by the real plugin", "bridge", r#"{"bridge": "hostile0", "vlan": 100}"#)
            .ends(999, words),
        crate::attack::honest(
            "a trunk by the real plugin",
            "bridge",
            r#"{"bridge": "hostile0", "vlanTrunk": [{"minID": 5, "maxID": 7}]}"#,
        )
        .ends(999, words),
    ])
}
