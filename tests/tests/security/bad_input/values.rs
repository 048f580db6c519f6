//! Configurations that are well-formed but wrong.

use crate::bad_input::{base, refused, request, used_node, with};
use anyhow::Result;
use postern_tests::proof::each;

/// Configurations that can be read but make no sense.
const VALUES: [(&str, &str, u64, &str); 51] = [
    ("bridge", r#"{"name": "a/b"}"#, 7, "invalid characters found in network name; a/b"),
    ("bridge", r#"{"name": ".."}"#, 7, "invalid characters found in network name; .."),
    ("bridge", r#"{"name": "a\n"}"#, 7, "invalid characters found in network name"),
    ("bridge", r#"{"name": "a\u0000b"}"#, 7, "invalid characters found in network name"),
    ("bridge", r#"{"name": ""}"#, 7, "missing network name"),
    ("bridge", r#"{"cniVersion": "9.9.9"}"#, 1, "incompatible CNI versions; config is \"9.9.9\", plugin supports"),
    ("bridge", r#"{"cniVersion": "1.0"}"#, 1, "incompatible CNI versions"),
    ("bridge", r#"{"bridge": "a/b"}"#, 999, "failed to create bridge \"a/b\"…interface name contains /"),
    ("bridge", r#"{"bridge": "../br9"}"#, 999, "interface name contains /"),
    ("bridge", r#"{"bridge": ".."}"#, 999, "interface name is . or .."),
    ("bridge", r#"{"bridge": "a\nb"}"#, 999, "interface name contains / or : or whitespace"),
    ("bridge", r#"{"bridge": "b\u0000r"}"#, 999, "failed to create bridge"),
    ("bridge", r#"{"bridge": "sixteen_bytes___"}"#, 999, "interface name is too long"),
    ("bridge", r#"{"bridge": ""}"#, 999, "interface name is empty"),
    ("bridge", r#"{"bridge": "lo"}"#, 999, "\"lo\" already exists but is not a bridge"),
    ("bridge", r#"{"bridge": "br%d"}"#, 999, "no link can have this name"),
    ("bridge", r#"{"ipam": {"type": "../sh"}}"#, 999, "invalid plugin name: ../sh"),
    ("bridge", r#"{"ipam": {"type": "a/b"}}"#, 999, "invalid plugin name: a/b"),
    ("bridge", r#"{"ipam": {"type": "/bin/sh"}}"#, 999, "invalid plugin name: /bin/sh"),
    ("bridge", r#"{"ipam": {"type": ".."}}"#, 999, "invalid plugin name: .."),
    ("bridge", r#"{"ipam": {"type": "host-local\u0000"}}"#, 999, "failed to find plugin"),
    ("bridge", r#"{"ipam": {"type": "unlisted"}}"#, 999, "failed to find plugin \"unlisted\""),
    ("bridge", r#"{"ipam": {"type": "nopolicy"}}"#, 999, "plugin \"nopolicy\" has no policy at"),
    // A main plugin in the place of an IPAM plugin delegates to `ipam.type`, and so to itself.
    ("bridge", r#"{"ipam": {"type": "ptp"}}"#, 999, "an IPAM plugin delegates to itself without end"),
    ("bridge", r#"{"ipam": {"type": "bridge"}}"#, 999, "an IPAM plugin delegates to itself without end"),
    ("bridge", r#"{"vlan": 4095}"#, 999, "invalid VLAN ID 4095"),
    ("bridge", r#"{"vlanTrunk": [{"id": 5000}]}"#, 999, "incorrect trunk id parameter"),
    ("bridge", r#"{"vlanTrunk": [{"minID": 9, "maxID": 3}]}"#, 999, "minID is greater than maxID"),
    ("bridge", r#"{"mtu": 70000}"#, 999, "failed to make veth pair…invalid argument"),
    ("bridge", r#"{"hairpinMode": true, "promiscMode": true}"#, 999, "cannot set hairpin mode and promiscuous mode"),
    ("bridge", r#"{"ipMasq": true, "ipMasqBackend": "pf"}"#, 7, "unknown ipmasq backend \"pf\""),
    (
        "bridge",
        r#"{"ipam": {"routes": [{"dst": "10.0.0.0/8", "gw": "172.16.0.1"}]}}"#,
        999,
        "failed to add route '10.0.0.0/8 via 172.16.0.1 dev eth0'",
    ),
    (
        "bridge",
        r#"{"ipam": {"routes": [{"dst": "10.0.0.0/8", "gw": "fd00::1"}]}}"#,
        999,
        "failed to add route '10.0.0.0/8 via fd00::1 dev eth0'",
    ),
    ("bridge", r#"{"ipam": {"type": "static", "addresses": [{"address": "224.0.0.1/24"}]}}"#, 999, "224.0.0.1/24"),
    ("bridge", r#"{"runtimeConfig": {"mac": "zz"}}"#, 999, "invalid MAC address"),
    (
        "bridge",
        r#"{"cni.dev/valid-attachments": [{"containerID": 5}]}"#,
        999,
        "failed to load netconf: json: cannot unmarshal number",
    ),
    ("host-local", r#"{"cni.dev/attachments": {}}"#, 999, "failed to load netconf: json: cannot unmarshal object"),
    (
        "host-local",
        r#"{"ipam": {"ranges": [[{"subnet": "10.9.0.0/24", "rangeStart": "10.8.0.1"}]]}}"#,
        999,
        "invalid range set 0: RangeStart 10.8.0.1 not in network 10.9.0.0/24",
    ),
    (
        "host-local",
        r#"{"ipam": {"ranges": [[{"subnet": "10.9.0.0/24", "rangeEnd": "10.9.1.1"}]]}}"#,
        999,
        "invalid range set 0: RangeEnd 10.9.1.1 not in network",
    ),
    (
        "host-local",
        r#"{"ipam": {"ranges": [[{"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.9", "rangeEnd": "10.9.0.3"}]]}}"#,
        999,
        "invalid range set 0: RangeStart 10.9.0.9 not in network",
    ),
    (
        "host-local",
        r#"{"ipam": {"ranges": [[{"subnet": "10.9.0.1/24"}]]}}"#,
        999,
        "invalid range set 0: Network has host bits set",
    ),
    ("host-local", r#"{"ipam": {"ranges": [[{"subnet": "10.9.0.0/33"}]]}}"#, 999, "invalid CIDR address: 10.9.0.0/33"),
    (
        "host-local",
        r#"{"ipam": {"ranges": [[{"subnet": "10.9.0.0/31"}]]}}"#,
        999,
        "Network 10.9.0.0/31 too small to allocate from",
    ),
    (
        "host-local",
        r#"{"ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}, {"subnet": "fd00::/64"}]]}}"#,
        999,
        "mixed address families",
    ),
    (
        "host-local",
        r#"{"ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "10.9.0.0/25"}]]}}"#,
        999,
        "range set 0 overlaps with 1",
    ),
    ("host-local", r#"{"ipam": {"ranges": []}}"#, 999, "no IP ranges specified"),
    ("host-local", r#"{"ipam": {"ranges": [[]]}}"#, 999, "empty range set"),
    (
        "static",
        r#"{"ipam": {"addresses": [{"address": "10.9.0.5"}]}}"#,
        999,
        "the 'address' field is expected to be in CIDR notation, got: '10.9.0.5'",
    ),
    ("static", r#"{"ipam": {"addresses": [{"address": "10.9.0.5/33"}]}}"#, 999, "expected to be in CIDR notation"),
    ("static", r#"{"ipam": {"addresses": [null]}}"#, 999, "cannot unmarshal null"),
    ("ptp", r#"{"ipam": {"type": ""}}"#, 999, "no plugin name provided"),
];

#[test]
fn values_that_make_no_sense() -> Result<()> {
    let mut watched = used_node()?;
    each(
        VALUES,
        |case| format!("{} {}", case.0, case.1),
        |(plugin, patch, code, text)| {
            refused(&mut watched, plugin, with(plugin, patch)?.into_bytes(), &[], *code, text)
        },
    )
}

#[test]
fn addresses_that_are_not_to_be_had() -> Result<()> {
    let mut watched = used_node()?;
    let good = base("host-local").to_string();
    let outside = [
        ("IP=10.9.1.5", "failed to allocate all requested IPs: 10.9.1.5"),
        ("IP=10.9.0.0", "failed to allocate all requested IPs: 10.9.0.0"),
        ("IP=10.9.0.255", "failed to allocate all requested IPs: 10.9.0.255"),
        ("IP=fd00::1", "failed to allocate all requested IPs: fd00::1"),
        ("IP=10.9.0.1", "requested ip 10.9.0.1 is subnet's gateway"),
        ("IP=x", "ARGS: error parsing value of pair \"IP=x\": invalid IP address x"),
    ];
    each(
        outside,
        |case| case.0.to_owned(),
        |(args, text)| refused(&mut watched, "host-local", good.clone().into_bytes(), &[("CNI_ARGS", args)], 999, text),
    )?;

    let full = r#"{"name": "full", "ipam": {"ranges": [[{"subnet": "10.7.0.0/30"}]]}}"#;
    let other = request(&watched, "host-local", "ADD", with("host-local", full)?)?.env("CNI_CONTAINERID", "other");
    watched.node.call(&other)?.success()?;
    watched.node.sh("rm -rf /run/postern/attachments")?;
    watched.look()?;
    for plugin in ["host-local", "bridge", "ptp"] {
        let text = "failed to allocate for range 0: no IP addresses available in range set: 10.7.0.1-10.7.0.2";
        refused(&mut watched, plugin, with(plugin, full)?.into_bytes(), &[], 999, text)?;
    }
    Ok(())
}
