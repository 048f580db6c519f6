//! Addresses of other attachments: put on a link, routed, masqueraded, claimed by an IPAM plugin, or used as a gateway.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{Attack, honest, hostile, rogue, withstand};
use anyhow::Result;

#[test]
fn addresses_that_nobody_gave() -> Result<()> {
    let foreign = "is not an address of this attachment: neither IPAM nor prevResult gave it";
    let own = r#"{"op": "leases-reserve", "sets": [[{"subnet": "10.9.0.0/24"}]], "requested": ["10.9.0.99"]}"#;
    let with =
        |name, last: &str| rogue(name, &format!(r#"["veth-create", {own}, {{"op": "link-up", "link": 0}}, {last}]"#));
    withstand(&[
        hostile("an address without a lease", "address").ends(999, "10.66.6.6/32 is not an address of this attachment"),
        hostile("a source address without a lease", "source")
            .ends(999, "10.66.6.6 is not an address of this attachment"),
        with("the bystander's address", r#"{"op": "addresses-add", "link": 0, "addresses": ["10.77.0.2/24"]}"#)
            .ends(999, foreign),
        with("the host's address", r#"{"op": "addresses-add", "link": 0, "addresses": ["192.0.2.1/24"]}"#)
            .ends(999, foreign),
        with("the neighbour's lease", r#"{"op": "addresses-add", "link": 0, "addresses": ["10.9.0.2/24"]}"#)
            .ends(999, foreign),
        with(
            "the own address and another address",
            r#"{"op": "addresses-add", "link": 0, "addresses": ["10.9.0.99/24", "10.77.0.2/24"]}"#,
        )
        .ends(999, foreign),
        with(
            "the own address in a larger network",
            r#"{"op": "addresses-add", "link": 0, "addresses": ["10.9.0.99/8"]}"#,
        )
        .ends(999, foreign),
        with(
            "the own address without its network",
            r#"{"op": "addresses-add", "link": 0, "addresses": ["10.9.0.99/32"]}"#,
        )
        .ends(999, foreign),
        with(
            "a route from the bystander's address",
            r#"{"op": "routes-add", "link": 0, "routes": [{"dst": "0.0.0.0/0", "source": "10.77.0.2"}]}"#,
        )
        .ends(999, foreign),
        with(
            "a route from the host's address",
            r#"{"op": "routes-add", "link": 0, "routes": [{"dst": "0.0.0.0/0", "source": "192.0.2.1"}]}"#,
        )
        .ends(999, foreign),
        with("routes to the host itself", r#"{"op": "point-to-point-ensure", "host": 1}"#)
            .ends(110, "policy does not allow plugin…point-to-point.ensure"),
        with("the other packet filter", r#"{"op": "masquerade-ensure", "backend": "iptables"}"#)
            .ends(110, "policy does not allow plugin…masquerade.ensure on \"iptables\""),
        with("masquerading outside of ADD", r#""forwarding-enable""#)
            .ends(110, "policy does not allow plugin…forwarding.enable"),
    ])
}

/// An IPAM plugin (the hostile component) that answers the plugin `plugin` with `result`.
fn claims(name: &'static str, plugin: &'static str, result: &str) -> Attack {
    honest(name, plugin, r#"{"bridge": "hostile0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", "ipam": {"type": "hostile"}}"#)
        .with(&serde_json::json!({"hostile": "says", "says": result}).to_string())
}

#[test]
fn addresses_that_an_ipam_plugin_claims() -> Result<()> {
    let unheard = "hands out …which it neither leased nor may choose";
    let result = |ips: &str| format!(r#"{{"cniVersion": "1.0.0", "ips": [{ips}]}}"#);
    withstand(&[
        claims("an address out of nothing", "bridge", &result(r#"{"address": "10.66.6.6/24"}"#)).ends(999, unheard),
        claims("the bystander's address", "bridge", &result(r#"{"address": "10.77.0.2/24"}"#)).ends(999, unheard),
        claims("the neighbour's lease", "bridge", &result(r#"{"address": "10.9.0.2/24"}"#)).ends(999, unheard),
        claims("the host's address", "bridge", &result(r#"{"address": "192.0.2.1/24"}"#)).ends(999, unheard),
        claims("everything", "bridge", &result(r#"{"address": "0.0.0.0/0"}"#)).ends(999, unheard),
        claims(
            "the bystander's gateway for a gateway",
            "bridge",
            &result(r#"{"address": "10.77.0.9/24", "gateway": "10.77.0.1"}"#),
        )
        .ends(999, unheard),
        claims(
            "the operator's address for a gateway",
            "bridge",
            &result(r#"{"address": "192.0.2.9/24", "gateway": "192.0.2.254"}"#),
        )
        .ends(999, unheard),
        claims(
            "a route on the host to the bystander",
            "ptp",
            &result(r#"{"address": "10.77.0.2/32", "gateway": "10.66.6.1"}"#),
        )
        .ends(999, unheard),
        claims(
            "a route on the host to the host itself",
            "ptp",
            &result(r#"{"address": "192.0.2.1/32", "gateway": "10.66.6.1"}"#),
        )
        .ends(999, unheard),
        claims(
            "a route on the host to what the operator routes",
            "ptp",
            &result(r#"{"address": "198.51.100.9/32", "gateway": "10.66.6.1"}"#),
        )
        .ends(999, unheard),
        claims("an IPv6 address out of nothing", "ptp", &result(r#"{"address": "fd00::6/64", "gateway": "fd00::1"}"#))
            .ends(999, unheard),
        claims("the loopback address", "bridge", &result(r#"{"address": "127.0.0.1/8"}"#)).ends(999, unheard),
    ])
}

/// An IPAM plugin gives an address with a gateway that does not belong to the address. The plugin is the hostile
/// component, with static's policy.
#[test]
fn gateways_that_belong_to_other_addresses() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    // static's policy lets the hostile component choose addresses without a lease.
    let policy =
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests/static/policy.toml"))?;
    let policy: &'static str = Box::leak(policy.into_boxed_str());
    attacked.operator_policy("hostile", policy)?;
    let addresses = r#"[{"address": "10.9.0.77/16", "gateway": "10.9.0.1"}, {"address": "2001:db8:1::2/64", "gateway": "2001:db8:1::1"},
        {"address": "10.8.0.2/24", "gateway": "10.8.0.254"}, {"address": "10.7.0.2/24"}, {"address": "10.6.0.2/32"},
        {"address": "10.5.0.2/24", "gateway": "192.0.2.77"}, {"address": "10.4.0.2/24", "gateway": "2001:db8:4::1"}]"#;
    let says = |name, plugin: &'static str, ips: &str, args: &'static str, code, words| {
        let keys = r#"{"bridge": "hostile0", "isGateway": true, "ipam": {"type": "hostile", "ranges": null, "dataDir": null}}"#;
        let result = format!(r#"{{"cniVersion": "1.0.0", "ips": [{ips}]}}"#);
        honest(name, plugin, keys)
            .with(&format!(r#"{{"ipam": {{"addresses": {addresses}}}}}"#))
            .with(&serde_json::json!({"hostile": "says", "says": result}).to_string())
            .env("CNI_ARGS", args)
            .ends(code, words)
    };
    let unheard = "which it neither leased nor may choose";
    let versions = "they are of different IP versions";
    let outside = "which does not lie in its network";
    let attacks = [
        says(
            "2001::/16 for the bridge",
            "bridge",
            r#"{"address": "10.9.0.77/16", "gateway": "2001:db8:1::1"}"#,
            "",
            999,
            versions,
        ),
        says(
            "an IPv4 gateway for an IPv6 address",
            "bridge",
            r#"{"address": "2001:db8:1::2/64", "gateway": "10.9.0.1"}"#,
            "",
            999,
            versions,
        ),
        says(
            "another entry's gateway",
            "bridge",
            r#"{"address": "10.8.0.2/24", "gateway": "10.9.0.1"}"#,
            "",
            999,
            unheard,
        ),
        says(
            "another entry's gateway, in the network",
            "bridge",
            r#"{"address": "10.9.0.77/16", "gateway": "10.9.0.254"}"#,
            "",
            999,
            unheard,
        ),
        says(
            "a gateway for an address without gateway",
            "bridge",
            r#"{"address": "10.7.0.2/24", "gateway": "10.8.0.254"}"#,
            "",
            999,
            unheard,
        ),
        says(
            "the same address with another prefix length",
            "bridge",
            r#"{"address": "10.9.0.2/8", "gateway": "10.9.0.1"}"#,
            "",
            999,
            unheard,
        ),
        says(
            "an operator's entry with a gateway of the other IP version",
            "ptp",
            r#"{"address": "10.4.0.2/24", "gateway": "2001:db8:4::1"}"#,
            "",
            999,
            versions,
        ),
        says(
            "an operator's entry with a gateway outside the network, for a bridge",
            "bridge",
            r#"{"address": "10.5.0.2/24", "gateway": "192.0.2.77"}"#,
            "",
            999,
            outside,
        ),
        // By default the gateway would be the next address, which may belong to a neighbour.
        says("no gateway for a /32 address", "bridge", r#"{"address": "10.6.0.2/32"}"#, "", 999, outside),
        says(
            "a valid entry before an invalid one",
            "bridge",
            r#"{"address": "10.9.0.77/16", "gateway": "10.9.0.1"}, {"address": "10.6.0.2/32"}"#,
            "",
            999,
            outside,
        ),
        says(
            "CNI_ARGS' gateway for an address of the list",
            "ptp",
            r#"{"address": "10.7.0.2/24", "gateway": "10.7.0.9"}"#,
            "IP=10.3.0.2/24;GATEWAY=10.7.0.9",
            999,
            unheard,
        ),
        says(
            "CNI_ARGS' gateway outside the network",
            "ptp",
            r#"{"address": "10.3.0.2/24", "gateway": "10.7.0.9"}"#,
            "IP=10.3.0.2/24;GATEWAY=10.7.0.9",
            999,
            unheard,
        ),
        says(
            "the list's gateway for an address of CNI_ARGS",
            "ptp",
            r#"{"address": "10.3.0.2/24", "gateway": "10.9.0.1"}"#,
            "IP=10.3.0.2/24;GATEWAY=10.3.0.1",
            999,
            unheard,
        ),
        // These results must work, as with the native plugin.
        says(
            "an operator's entry with a gateway outside the network, for a pair",
            "ptp",
            r#"{"address": "10.5.0.2/24", "gateway": "192.0.2.77"}"#,
            "",
            0,
            "",
        ),
        says(
            "CNI_ARGS' gateway",
            "ptp",
            r#"{"address": "10.3.0.2/24", "gateway": "10.3.0.1"}"#,
            "IP=10.3.0.2/24;GATEWAY=10.3.0.1",
            0,
            "",
        ),
    ];
    // Forwarding is switched on first, because a bridge with a gateway switches it on, and no undo switches it off.
    attacked.prepare("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")?;
    crate::attack::each(
        &attacks,
        |attack| attack.name.to_owned(),
        |attack| {
            attack.withstood_by(&mut attacked)?;
            attacked.operator_policy("hostile", policy)
        },
    )
}

/// The rules for gateways hold for a native IPAM program and for an earlier result too.
#[test]
fn gateways_that_native_programs_and_earlier_results_say() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare("mkdir /run/cni; sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")?;
    let policy = "[grant.ipam]\ntypes = [\"${config.ipam.type}\"]\nnative = [\"${config.ipam.type}\"]";
    let cases = [
        ("bridge", "10.9.0.2/16", "2001:db8:1::1", "they are of different IP versions"),
        ("ptp", "10.9.0.2/16", "2001:db8:1::1", "they are of different IP versions"),
        ("bridge", "10.9.0.77/24", "10.8.0.1", "which does not lie in its network"),
    ];
    crate::attack::each(
        cases,
        |case| format!("{case:?}"),
        |(plugin, address, gateway, words)| {
            let result =
                format!(r#"{{"cniVersion": "1.0.0", "ips": [{{"address": "{address}", "gateway": "{gateway}"}}]}}"#);
            let program = format!("#!/bin/sh\ncat >/dev/null\n[ $CNI_COMMAND = ADD ] && echo '{result}'\nexit 0\n");
            std::fs::write(attacked.node().path("/run/cni/native-ipam"), program)?;
            attacked.prepare("chmod 755 /run/cni/native-ipam")?;
            attacked.operator_policy(plugin, policy)?;
            attacked.look()?;
            honest("native", plugin, r#"{"bridge": "hostile0", "isGateway": true, "ipam": {"type": "native-ipam"}}"#)
                .policy(policy)
                .env("CNI_PATH", "/run/cni")
                .ends(999, words)
                .call(&attacked)
                .and_then(|answer| crate::attack::Refusal::of(&answer)?.expect(999, words))?;
            attacked.unchanged()
        },
    )?;
    // In this case, an earlier result gives the gateway, to a plugin in the middle of a list.
    let previous =
        r#"{"prevResult": {"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.2/16", "gateway": "2001:db8:1::1"}]}}"#;
    let spec = r#"{"hairpin": false, "isolated": false, "trunk": [], "preserve_default_vlan": false}"#;
    rogue(
        "an earlier result's gateway for the bridge",
        &format!(
            r#"["veth-create", {{"op": "bridge-find", "name": "hostile0"}}, {{"op": "bridge-attach", "bridge": 2, "host": 1, "port": {spec}}}, {{"op": "bridge-ensure-gateways", "bridge": 2, "port": {spec}, "force": false}}]"#
        ),
    )
    .with(previous)
    .policy("[previous]\naddresses = [\"10.9.0.0/16\"]")
    .ends(999, "which does not lie in its network")
    .withstood_by(&mut attacked)
}

/// The attacker controls the requested range, and so the gateway that the host derives from a lease.
#[test]
fn gateways_that_are_somebody_elses() -> Result<()> {
    let range = |name, range: &str| {
        rogue(
            name,
            &format!(
                r#"["veth-create", {{"op": "leases-reserve", "sets": [[{range}]], "requested": []}}, {{"op": "bridge-find", "name": "hostile0"}}, {{"op": "bridge-attach", "bridge": 2, "host": 1, "port": {{"hairpin": false, "isolated": false, "trunk": [], "preserve_default_vlan": false}}}}, {{"op": "bridge-ensure-gateways", "bridge": 2, "port": {{"hairpin": false, "isolated": false, "trunk": [], "preserve_default_vlan": false}}, "force": false}}]"#
            ),
        )
    };
    let denied = "policy does not allow plugin…leases.reserve";
    withstand(&[
        range("the bystander's network", r#"{"subnet": "10.77.0.0/24"}"#).ends(110, denied),
        range("the bystander's gateway", r#"{"subnet": "10.9.0.0/24", "gateway": "10.77.0.1"}"#).ends(110, denied),
        range("the operator's address", r#"{"subnet": "10.9.0.0/24", "gateway": "192.0.2.1"}"#).ends(110, denied),
        range("the operator's next hop", r#"{"subnet": "10.9.0.0/24", "gateway": "192.0.2.254"}"#).ends(110, denied),
        range("a gateway of the whole Internet", r#"{"subnet": "0.0.0.0/0"}"#).ends(110, denied),
    ])
}

/// Attempts to use a grant for more than the network needs.
#[test]
fn more_than_the_network_asks_for() -> Result<()> {
    withstand(&[
        rogue("shrink a bridge by the MTU of its port", r#"[{"op": "veth-create", "mtu": 68, "mac": null}]"#)
            .ends(110, "veth.create with MTU 68; …grant.veth = { mtu = \"68\" }"),
        rogue("give an address back and keep it", r#"["ipam-del"]"#).ends(110, "ipam.del is not for ADD"),
        rogue(
            "give a lease back and take the next",
            r#"[{"op": "leases-reserve", "sets": [[{"subnet": "10.9.0.0/24"}]], "requested": []}, "leases-release"]"#,
        )
        .ends(110, "leases.release is not for ADD"),
        hostile("leave out the spoofing protection that the network asks for", "good")
            .with(r#"{"macspoofchk": true}"#)
            .policy("[grant.mac-guard]\nrequired = \"${config.macspoofchk | false}\"")
            .ends(999, "left out the spoofing protection that this network asks for; …grant.mac-guard = { required = \"false\""),
        rogue(
            "spoofing protection that lets another address pass",
            r#"["veth-create", {"op": "mac-guard-ensure", "host": 1, "mac": "02:00:00:00:00:99"}]"#,
        )
        .ends(999, "02:00:00:00:00:99 is not the address of the container's end"),
        rogue("forwarding for a network without a gateway", r#"["forwarding-enable"]"#)
            .policy("[grant.forwarding]\nwhen = [\"${config.isGateway | false}\"]")
            .ends(110, "forwarding.enable in this network; …`when` of [grant.forwarding]"),
        rogue("masquerading for a network without it", r#"[{"op": "masquerade-ensure", "backend": "nftables"}]"#)
            .policy("[grant.masquerade]\nwhen = [\"${config.ipMasq | false}\"]\nbackends = [\"nftables\"]")
            .ends(110, "masquerade.ensure in this network; …`when` of [grant.masquerade]"),
    ])
}

/// The kernel would put a second route to the same address before the first route.
#[test]
fn a_host_route_is_never_put_in_front_of_another() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare("ip route add 203.0.113.7 dev cni0")?;
    honest(
        "another owner's address, by host route",
        "ptp",
        r#"{"ipam": {"type": "static", "ranges": null, "dataDir": null,
        "addresses": [{"address": "203.0.113.7/24", "gateway": "203.0.113.1"}]}}"#,
    )
    .ends(999, "failed to add route on host '203.0.113.7/32 dev veth…file exists")
    .withstood_by(&mut attacked)
}

/// On a second ADD the pair already exists and belongs to the first ADD. The second ADD gets no handle to the pair.
#[test]
fn protection_of_an_earlier_pair_for_another_address() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let good = crate::attack::attacked_node::good();
    attacked.plugin("hostile", "ADD", &good)?.success()?;
    let again = rogue(
        "protect another address",
        r#"[{"op": "masquerade-ensure", "backend": "nftables"}, "veth-find", {"op": "mac-guard-ensure", "host": 1, "mac": "02:00:00:00:00:99"}]"#,
    );
    let answer = again.call(&attacked)?;
    attacked.plugin("hostile", "DEL", &good)?.success()?;
    crate::attack::Refusal::of(&answer)?.expect(999, "is not for the attachment's host end")?;
    attacked.unchanged()
}
