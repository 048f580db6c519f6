//! Input that policy and plugin could read in different ways, and names that lead to other objects.

use crate::attack::{honest, rogue, withstand};
use anyhow::Result;

#[test]
fn one_thing_for_policy_and_another_for_the_plugin() -> Result<()> {
    withstand(&[
        honest("two spellings of the bridge", "bridge", r#"{"bridge": "hostile0", "Bridge": "cni0"}"#).ends(7, "bridge"),
        honest("three spellings of the bridge", "bridge", r#"{"bridge": "hostile0", "BRIDGE": "hostile0", "bRidge": "hostile0"}"#).ends(7, "bRidge"),
        honest("two spellings of a parent", "bridge", r#"{"bridge": "hostile0", "IPAM": {"type": "static"}}"#).ends(7, "ipam"),
        honest("two spellings of the type", "bridge", r#"{"bridge": "hostile0", "ipam": {"Type": "static"}}"#).ends(7, "type"),
        honest("two spellings of the directory", "host-local", r#"{"ipam": {"DataDir": "/var/lib/other"}}"#).ends(7, "dataDir"),
        honest("two spellings of what replaces an address", "bridge", r#"{"bridge": "hostile0", "forceAddress": false, "ForceAddress": true}"#)
            .ends(7, "forceAddress"),
        honest("a letter that only some take for another", "host-local", "{\"ipam\": {\"dataD\u{131}r\": \"/var/lib/other\"}}").ends(0, ""),
        honest("a placeholder for a bridge", "bridge", r#"{"bridge": "${config.name}/"}"#).ends(999, "could not add"),
        honest("a bridge above", "bridge", r#"{"bridge": "../cni0"}"#).ends(999, "interface name contains /"),
        honest("a huge number", "bridge", r#"{"bridge": "hostile0", "mtu": 99999999999999999999}"#).ends(999, "mtu"),
        honest("a number with a fraction or exponent", "bridge", r#"{"bridge": "hostile0", "vlan": 1e30}"#).ends(999, "vlan"),
        honest("a negative VLAN", "bridge", r#"{"bridge": "hostile0", "vlan": -1}"#).ends(999, "VLAN"),
        honest("a text for a number", "bridge", r#"{"bridge": "hostile0", "vlan": "100"}"#).ends(999, "vlan"),
        honest("a list for the bridge", "bridge", r#"{"bridge": ["cni0"]}"#).ends(999, "cannot unmarshal array…bridge of type string"),
        honest("the same key twice", "bridge", "{}").raw(r#"{"cniVersion": "1.0.0", "name": "net", "name": "bystander", "type": "bridge", "bridge": "hostile0", "bridge": "cni0", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24"}]]}}"#)
            .ends(7, "the configuration has both \"bridge\" and \"bridge\""),
        honest("a configuration and another", "bridge", "{}").raw(r#"{"cniVersion": "1.0.0", "name": "net", "type": "bridge"} {"name": "bystander"}"#)
            .ends(6, "trailing"),
        honest("more than four mebibytes", "bridge", "{}").raw(format!(r#"{{"cniVersion": "1.0.0", "name": "{}", "type": "bridge"}}"#, "x".repeat(4 << 20)))
            .ends(6, "bytes of JSON are more than the limit"),
        honest("a bomb of brackets", "bridge", "{}").raw("[".repeat(200_000)).ends(6, "recursion"),
        honest("an address that the arguments ask for", "host-local", r#"{"ipam": {"dataDir": "/var/lib/hostile"}}"#)
            .env("CNI_ARGS", "IP=10.77.0.2")
            .ends(999, "failed to allocate all requested IPs: 10.77.0.2"),
        honest("the neighbour's address, by the arguments", "bridge", r#"{"bridge": "hostile0", "ipam": {"dataDir": "/var/lib/hostile"}}"#)
            .env("CNI_ARGS", "IP=10.9.0.2")
            .ends(999, "10.9.0.2"),
        honest("the neighbour's address, by the runtime's wish", "bridge", r#"{"bridge": "hostile0", "runtimeConfig": {"ips": ["10.9.0.2"]}, "ipam": {"dataDir": "/var/lib/hostile"}}"#)
            .ends(999, "10.9.0.2"),
    ])
}

#[test]
fn names_of_links_that_lead_to_other_sysctls() -> Result<()> {
    let sysctl = |name| {
        rogue(name, r#"["veth-create", {"op": "sysctl-set", "link": 0, "key": "disable_ipv6", "value": true}]"#)
            .policy("[grant.link-sysctl]")
    };
    withstand(&[
        sysctl("upwards").env("CNI_IFNAME", "../../all").ends(4, "interface name contains /"),
        sysctl("the directory above").env("CNI_IFNAME", "..").ends(4, "interface name is . or .."),
        sysctl("all links").env("CNI_IFNAME", "all").ends(999, "invalid argument"),
        sysctl("links to come").env("CNI_IFNAME", "default").ends(999, "invalid argument"),
        sysctl("the loopback link").env("CNI_IFNAME", "lo").ends(999, "already exists"),
        sysctl("a pattern of the kernel's").env("CNI_IFNAME", "eth%d").ends(999, "no link can have this name"),
        sysctl("a dot for a separator").env("CNI_IFNAME", "a.b").ends(0, ""),
        rogue("another key", r#"["veth-create", {"op": "sysctl-set", "link": 0, "key": "forwarding", "value": true}]"#)
            .policy("[grant.link-sysctl]")
            .ends(999, "malformed message"),
        rogue(
            "a key by path",
            r#"["veth-create", {"op": "sysctl-set", "link": 0, "key": "../../ip_forward", "value": true}]"#,
        )
        .policy("[grant.link-sysctl]")
        .ends(999, "malformed message"),
        rogue(
            "a sysctl without its grant",
            r#"["veth-create", {"op": "sysctl-set", "link": 0, "key": "arp_notify", "value": true}]"#,
        )
        .ends(110, "policy does not allow plugin…link-sysctl.set"),
        rogue("forwarding of the node", r#"["forwarding-enable"]"#)
            .ends(110, "policy does not allow plugin…forwarding.enable"),
    ])
}
