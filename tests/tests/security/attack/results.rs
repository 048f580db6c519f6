//! Results with false claims, and changed results of other plugins.

use crate::attack::{honest, rogue, withstand};
use anyhow::Result;

#[test]
fn results_that_claim_what_is_not_so() -> Result<()> {
    let says = |name, result: &str| {
        let steps = serde_json::json!([{"call": {"op": "veth-create"}}, {"call": {"op": "leases-reserve", "sets": [[{"subnet": "10.9.0.0/24"}]], "requested": ["10.9.0.99"]}}, {"print": result}]);
        rogue(name, &steps.to_string())
    };
    let own = |key: &str| {
        format!(r#"{{"cniVersion": "1.1.0", "interfaces": [{{"name": "eth0", "sandbox": "/run/netns/c1", {key}}}]}}"#)
    };
    withstand(&[
        says("the bystander's bridge", r#"{"cniVersion": "1.0.0", "interfaces": [{"name": "cni0"}]}"#)
            .ends(999, "claims interface \"cni0\", which it neither made nor was given"),
        says("the operator's link", r#"{"cniVersion": "1.0.0", "interfaces": [{"name": "op0"}]}"#)
            .ends(999, "claims interface \"op0\""),
        says(
            "a granted bridge that the guest never asked for",
            r#"{"cniVersion": "1.0.0", "interfaces": [{"name": "hostile0"}]}"#,
        )
        .ends(999, "claims interface \"hostile0\""),
        says("the own name on the host", r#"{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}]}"#)
            .ends(999, "claims interface \"eth0\""),
        says(
            "the bystander's link",
            r#"{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/c2"}]}"#,
        )
        .ends(999, "claims interface \"eth0\""),
        says(
            "the own namespace, spelt otherwise",
            r#"{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/../netns/c1"}]}"#,
        )
        .ends(999, "claims interface \"eth0\""),
        says("the bystander's address", r#"{"cniVersion": "1.0.0", "ips": [{"address": "10.77.0.2/24"}]}"#)
            .ends(999, "claims address 10.77.0.2/24, which neither IPAM nor prevResult gave"),
        says("the neighbour's address", r#"{"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.2/24"}]}"#)
            .ends(999, "claims address 10.9.0.2/24"),
        says("the own address in a larger network", r#"{"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.99/8"}]}"#)
            .ends(999, "claims address 10.9.0.99/8"),
        says(
            "the own address, and another attachment's gateway",
            r#"{"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.99/24", "gateway": "192.0.2.254"}]}"#,
        )
        .ends(999, "gateway"),
        says(
            "an interface that is not listed",
            r#"{"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.99/24", "interface": 7}]}"#,
        )
        .ends(999, "gives 10.9.0.99/24 to an interface that its result does not have"),
        says(
            "a negative interface",
            r#"{"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.99/24", "interface": -1}]}"#,
        )
        .ends(999, "interface"),
        says("an MTU that the link does not have", &own(r#""mtu": 9000"#))
            .ends(999, "claims MTU 9000 for interface \"eth0\", which has 1500"),
        says("a device", &own(r#""pciID": "0000:00:03.0""#))
            .ends(999, "claims PCI device \"0000:00:03.0\" for interface \"eth0\", which belongs to none"),
        says("a socket", &own(r#""socketPath": "/run/container.sock""#))
            .ends(999, "claims socket \"/run/container.sock\"…result = { sockets = ["),
        says("a socket that policy names, and that is a file", &own(r#""socketPath": "/bin/sh""#))
            .policy("[result]\nsockets = [\"/bin/sh\"]")
            .ends(999, "it is no socket"),
        says(
            "an MTU that `lo` does not have",
            r#"{"cniVersion": "1.1.0", "interfaces": [{"name": "lo", "sandbox": "/run/netns/c1", "mtu": 65537}]}"#,
        )
        .ends(999, "claims MTU 65537 for interface \"lo\", which has 65536"),
        says("another version", r#"{"cniVersion": "9.9.9"}"#).ends(999, "unsupported CNI result version \"9.9.9\""),
        says(
            "an error as a success",
            r#"{"cniVersion": "1.0.0", "code": 7, "msg": "no", "ips": [{"address": "10.66.6.6/24"}]}"#,
        )
        .ends(999, "claims address 10.66.6.6/24"),
        says("two results", r#"{"cniVersion": "1.0.0"}{"cniVersion": "1.0.0"}"#).ends(999, "trailing characters"),
        says("two spellings", r#"{"cniVersion": "1.0.0", "ips": [], "IPs": [{"address": "10.66.6.6/24"}]}"#)
            .ends(999, "rogue"),
        says("a result in an old version's format", r#"{"cniVersion": "0.2.0", "ip4": {"ip": "10.66.6.6/24"}}"#)
            .ends(999, "claims address 10.66.6.6/24"),
    ])
}

/// `prevResult` comes from the runtime's cache, which other users may be able to change.
#[test]
fn earlier_results_that_were_tampered_with() -> Result<()> {
    let bystander = r#"{"cniVersion": "1.1.0", "interfaces": [{"name": "cni0"}, {"name": "op0"}, {"name": "eth0", "sandbox": "/run/netns/c2"}], "ips": [{"address": "10.77.0.2/24", "interface": 2}], "routes": [{"dst": "0.0.0.0/0"}]}"#;
    let previous = |name, plugin, verb, result: &str| {
        honest(name, plugin, r#"{"bridge": "cni0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true, "ipam": {"dataDir": "/var/lib/hostile"}}"#)
            .with(&format!(r#"{{"prevResult": {result}}}"#))
            .on(verb)
    };
    withstand(&[
        previous("remove the bystander", "bridge", "DEL", bystander).ends(0, ""),
        previous("remove the bystander from its own network", "bridge", "DEL", bystander)
            .with(r#"{"name": "bystander", "ipam": {"dataDir": "/var/lib/cni/networks"}}"#)
            .ends(0, ""),
        previous("remove the bystander's route", "ptp", "DEL", bystander).ends(0, ""),
        previous(
            "remove the neighbour's lease",
            "host-local",
            "DEL",
            r#"{"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.2/24"}]}"#,
        )
        .ends(0, ""),
        previous("check the bystander", "bridge", "CHECK", bystander).ends(999, "e"),
        previous("check the bystander's route", "ptp", "CHECK", bystander).ends(999, "e"),
        previous("a text", "bridge", "CHECK", r#""everything""#).ends(999, "prevResult"),
        previous("a text, to remove", "bridge", "DEL", r#""everything""#).ends(999, "prevResult"),
        previous(
            "invalid addresses",
            "bridge",
            "CHECK",
            r#"{"cniVersion": "1.1.0", "ips": [{"address": "everything"}]}"#,
        )
        .ends(999, "e"),
        previous("another version", "bridge", "CHECK", r#"{"cniVersion": "9.9.9"}"#).ends(999, "e"),
        previous(
            "200 KiB",
            "bridge",
            "CHECK",
            &format!(r#"{{"cniVersion": "1.1.0", "interfaces": [{{"name": "{}"}}]}}"#, "x".repeat(200 << 10)),
        )
        .ends(999, "e"),
        rogue(
            "an address of an earlier result that no plugin made",
            r#"["veth-create", {"op": "addresses-add", "link": 0, "addresses": ["10.77.0.2/24"]}]"#,
        )
        .with(&format!(r#"{{"prevResult": {bystander}}}"#))
        .ends(999, "10.77.0.2/24 is not an address of this attachment…previous = { addresses = ["),
        rogue(
            "an address of an earlier result, and policy names other addresses",
            r#"["veth-create", {"op": "addresses-add", "link": 0, "addresses": ["10.77.0.2/24"]}]"#,
        )
        .with(&format!(r#"{{"prevResult": {bystander}}}"#))
        .policy("[previous]\naddresses = [\"10.78.0.0/16\"]")
        .ends(999, "10.77.0.2/24 is not an address of this attachment"),
        rogue("masquerading of an earlier result's address", r#"["veth-create", "masquerade-ensure"]"#)
            .with(&format!(r#"{{"prevResult": {bystander}}}"#))
            .ends(0, ""),
        rogue(
            "an address of an earlier result, on CHECK",
            r#"["link-own", {"op": "addresses-add", "link": 0, "addresses": ["10.77.0.2/24"]}]"#,
        )
        .with(&format!(r#"{{"prevResult": {bystander}}}"#))
        .on("CHECK")
        .ends(110, "addresses.add is not for CHECK"),
        rogue("rules for an earlier result's address, on DEL", r#"["masquerade-ensure"]"#)
            .with(&format!(r#"{{"prevResult": {bystander}}}"#))
            .on("DEL")
            .ends(110, "masquerade.ensure is not for DEL"),
        rogue("remove rules by an earlier result", r#"["masquerade-remove", "mac-guard-remove", "leases-release"]"#)
            .with(&format!(r#"{{"prevResult": {bystander}}}"#))
            .on("DEL")
            .ends(0, ""),
    ])
}
