//! Cases of the vlan plugin. Many kernels have no VLANs: `tests/vm/kernel` runs these cases in a virtual machine.

use crate::macvlan::{INSIDE, MASTER};
use postern_tests::{Case, merge};
use serde_json::{Value, json};

fn base() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "net", "type": "vlan", "master": "wire0", "vlanId": 5,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    })
}

/// Returns a case `vlan/NAME`: one IPv4 range in VLAN 5 of `wire0`, with a merge patch.
fn vlan(name: &str, patch: &Value) -> Case {
    let mut config = base();
    merge(&mut config, patch);
    Case::new(&format!("vlan/{name}"), "vlan", &config).prepare(MASTER).fast()
}

/// All cases of vlan.
pub fn cases() -> Vec<Case> {
    let in_container = json!({"master": "net1", "linkInContainer": true});
    let prepared = |name: &str, patch: &Value, script: &str| vlan(name, patch).prepare(&format!("{MASTER}; {script}"));
    let inside = |name: &str, patch: &Value| prepared(name, patch, INSIDE);
    let within = |script: &str| format!("nsenter --net=/run/netns/c1 sh -c '{script}'");
    let of_static =
        |addresses: Value| json!({"ipam": {"type": "static", "ranges": null, "routes": null, "addresses": addresses}});
    let mut all = vec![
        vlan("plain", &json!({})),
        vlan(
            "dual",
            &json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}),
        ),
        vlan(
            "static",
            &of_static(json!([{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}, {"address": "fd00:9::7/64"}])),
        ),
        vlan("static-no-address", &of_static(json!([]))).steps("ADD DEL"),
        vlan("no-master", &json!({"master": null})).steps("ADD CHECK DEL"),
        vlan("no-such-master", &json!({"master": "wire9"})).steps("ADD DEL"),
        vlan("master-is-loopback", &json!({"master": "lo"})).steps("ADD DEL"),
        prepared("master-is-a-port", &json!({}), "ip link add br9 type bridge; ip link set wire0 master br9"),
        prepared("master-is-down", &json!({}), "ip link set wire0 down; ip link set wire1 down").steps("ADD DEL"),
        prepared(
            "master-is-a-vlan",
            &json!({"master": "wire0.7"}),
            "ip link add link wire0 name wire0.7 type vlan id 7; ip link set wire0.7 up",
        ),
        prepared(
            "master-by-another-name",
            &json!({"master": "uplink-of-the-node"}),
            "ip link property add dev wire0 altname uplink-of-the-node",
        ),
        vlan("mtu", &json!({"mtu": 1400})),
        vlan("mtu-of-master", &json!({"mtu": 1500})),
        vlan("mtu-too-large", &json!({"mtu": 1501})).steps("ADD DEL"),
        vlan("mtu-negative", &json!({"mtu": -1})).steps("ADD DEL"),
        vlan("mtu-text", &json!({"mtu": "x"})).steps("ADD DEL"),
        vlan("id-absent", &json!({"vlanId": null})),
        vlan("id-0", &json!({"vlanId": 0})),
        vlan("id-1", &json!({"vlanId": 1})),
        vlan("id-4094", &json!({"vlanId": 4094})),
        vlan("id-4095", &json!({"vlanId": 4095})).steps("ADD DEL"),
        vlan("id-negative", &json!({"vlanId": -1})).steps("ADD DEL"),
        vlan("id-text", &json!({"vlanId": "5"})).steps("ADD DEL"),
        prepared("id-of-the-node", &json!({}), "ip link add link wire0 name wire0.5 type vlan id 5").steps("ADD DEL"),
        vlan("id-of-another-container", &json!({"ipam": {"routes": []}})).steps("ADD:c1 ADD:c2 DEL:c2 DEL:c1"),
        prepared("id-on-another-master", &json!({}), "ip link add link wire1 name wire1.5 type vlan id 5"),
        vlan("layer2", &json!({"ipam": null})).steps("ADD DEL"),
        vlan("dns", &json!({"dns": {"nameservers": ["10.0.0.1"]}})),
        vlan("dns-of-ipam", &json!({"ipam": {"resolvConf": "/run/resolv.conf"}}))
            .prepare(&format!("{MASTER}; echo nameserver 10.0.0.9 > /run/resolv.conf")),
        vlan("route-unreachable", &json!({"ipam": {"routes": [{"dst": "10.50.0.0/16", "gw": "10.77.0.1"}]}}))
            .steps("ADD DEL"),
        vlan("ipam-missing", &json!({"ipam": {"type": "nonexistent"}})).steps("ADD DEL"),
        vlan("two-interfaces", &json!({"ipam": {"routes": []}}))
            .changed(json!({"vlanId": 6}))
            .steps("ADD:c1/eth0 ADD:c1/eth1@changed DEL:c1/eth1@changed DEL:c1/eth0"),
        vlan("repeated-add", &json!({})).steps("ADD ADD DEL"),
        prepared("interface-exists", &json!({}), &within("ip link add name eth0 type veth")).steps("ADD DEL"),
        prepared("name-of-the-host", &json!({}), "ip link add name eth0 type veth"),
        vlan("check-other-id", &json!({})).changed(json!({"vlanId": 6})).steps("ADD CHECK@changed DEL"),
        vlan("check-other-mtu", &json!({})).changed(json!({"mtu": 1400})).steps("ADD CHECK@changed DEL"),
        vlan("check-mtu-too-large", &json!({})).changed(json!({"mtu": 9000})).steps("ADD CHECK@changed DEL@changed"),
        vlan("check-no-master", &json!({})).changed(json!({"master": "wire9"})).steps("ADD CHECK@changed DEL@changed"),
        vlan("check-other-address", &json!({}))
            .broken(&within("ip link set eth0 address 02:00:00:00:aa:09"))
            .steps("ADD CHECK BREAK CHECK DEL"),
        vlan("check-down", &json!({"ipam": {"routes": []}}))
            .broken(&within("ip link set eth0 down"))
            .steps("ADD CHECK BREAK CHECK DEL"),
        vlan("check-no-address", &json!({})).broken(&within("ip address flush dev eth0")).steps("ADD BREAK CHECK DEL"),
        vlan("check-no-route", &json!({})).broken(&within("ip route delete default")).steps("ADD BREAK CHECK DEL"),
        vlan("check-link-gone", &json!({})).broken(&within("ip link delete eth0")).steps("ADD BREAK CHECK DEL"),
        vlan("check-other-kind", &json!({}))
            .broken(&within("ip link delete eth0; ip link add eth0 type veth"))
            .steps("ADD BREAK CHECK DEL"),
        vlan("check-without-previous", &json!({})).steps("ADD CHECK@noprev DEL"),
        vlan("del-unknown", &json!({})).steps("DEL"),
        vlan("del-without-previous", &json!({})).steps("ADD DEL@noprev DEL@noprev"),
        vlan("del-bad", &json!({})).changed(json!({"vlanId": 4095, "mtu": -5})).steps("ADD DEL@changed"),
        vlan("del-no-namespace", &json!({})).steps("ADD KILL:c1 DEL DEL"),
        vlan("del-master-gone", &json!({})).broken("ip link delete wire0").steps("ADD BREAK CHECK DEL DEL"),
        vlan("del-master-renamed", &json!({}))
            .broken("ip link set wire0 down; ip link set wire0 name wire7")
            .steps("ADD BREAK CHECK DEL DEL"),
        inside("in-container", &in_container),
        inside("in-container-name-of-the-host", &json!({"linkInContainer": true})).steps("ADD DEL"),
        inside("in-container-mtu", &json!({"master": "net1", "linkInContainer": true, "mtu": 1501})).steps("ADD DEL"),
        vlan(
            "previous-result",
            &json!({"prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth9", "sandbox": "/x"}],
            "ips": [{"address": "10.1.2.3/24", "interface": 0}], "routes": [{"dst": "10.3.0.0/16"}]}}),
        ),
        vlan("spelling-of-keys", &json!({"master": null, "Master": "wire1", "VLANID": 7, "vlanId": null, "Mtu": 1400})),
        vlan("status", &json!({"cniVersion": "1.1.0"})).steps("STATUS ADD GC DEL"),
        vlan("status-no-master", &json!({"cniVersion": "1.1.0", "master": "wire9"})).steps("STATUS"),
        vlan("status-ipam-missing", &json!({"cniVersion": "1.1.0", "ipam": {"type": "nonexistent"}})).steps("STATUS"),
        vlan("status-no-ipam", &json!({"cniVersion": "1.1.0", "ipam": null})).steps("STATUS"),
    ];
    for version in ["", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        all.push(
            vlan(&format!("version-{version}"), &json!({"cniVersion": version}))
                .steps("ADD CHECK DEL STATUS GC VERSION"),
        );
    }
    all
}
