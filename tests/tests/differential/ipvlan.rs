//! Cases of the ipvlan plugin. Many kernels lack ipvlan, so `tests/vm/kernel` runs these cases in a virtual machine.

use crate::macvlan::{INSIDE, MASTER};
use postern_tests::{Case, merge};
use serde_json::{Value, json};

fn base() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "net", "type": "ipvlan", "master": "wire0",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    })
}

/// Returns a case `ipvlan/NAME`: one IPv4 range on `wire0`, with a merge patch.
fn ipvlan(name: &str, patch: &Value) -> Case {
    let mut config = base();
    merge(&mut config, patch);
    Case::new(&format!("ipvlan/{name}"), "ipvlan", &config).prepare(MASTER).fast()
}

/// All cases of ipvlan.
pub fn cases() -> Vec<Case> {
    let in_container = json!({"master": "net1", "linkInContainer": true});
    let prepared =
        |name: &str, patch: &Value, script: &str| ipvlan(name, patch).prepare(&format!("{MASTER}; {script}"));
    let inside = |name: &str, patch: &Value| prepared(name, patch, INSIDE);
    let within = |script: &str| format!("nsenter --net=/run/netns/c1 sh -c '{script}'");
    let of_static =
        |addresses: Value| json!({"ipam": {"type": "static", "ranges": null, "routes": null, "addresses": addresses}});
    let previous = |interfaces: Value, ips: Value| json!({"master": null, "ipam": null, "prevResult": {"cniVersion": "1.0.0", "interfaces": interfaces, "ips": ips}});
    let mut all = vec![
        ipvlan("plain", &json!({})),
        ipvlan(
            "dual",
            &json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}),
        ),
        ipvlan(
            "static",
            &of_static(json!([{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}, {"address": "fd00:9::7/64"}])),
        ),
        ipvlan("static-no-address", &of_static(json!([]))).steps("ADD DEL"),
        ipvlan("default-master", &json!({"master": null})).steps("ADD DEL DEL"),
        ipvlan("default-master-check", &json!({"master": null})).steps("ADD CHECK DEL"),
        prepared("no-default-route", &json!({"master": null}), "ip route delete default").steps("ADD STATUS DEL"),
        ipvlan("default-route-gone", &json!({"master": null})).broken("ip route delete default").steps("ADD BREAK DEL"),
        ipvlan("no-such-master", &json!({"master": "wire9"})).steps("ADD DEL"),
        ipvlan("master-is-loopback", &json!({"master": "lo"})).steps("ADD DEL"),
        prepared("master-is-a-port", &json!({}), "ip link add br9 type bridge; ip link set wire0 master br9")
            .steps("ADD DEL"),
        prepared("master-is-down", &json!({}), "ip link set wire0 down; ip link set wire1 down").steps("ADD DEL"),
        prepared(
            "master-by-another-name",
            &json!({"master": "uplink-of-the-node"}),
            "ip link property add dev wire0 altname uplink-of-the-node",
        ),
        prepared(
            "master-is-an-ipvlan",
            &json!({"master": "ipvl0"}),
            "ip link add link wire0 name ipvl0 type ipvlan mode l2; ip link set ipvl0 up",
        ),
        ipvlan("mtu", &json!({"mtu": 1400})),
        ipvlan("mtu-beyond-master", &json!({"mtu": 9000})).steps("ADD DEL"),
        ipvlan("mtu-negative", &json!({"mtu": -1})),
        ipvlan("mtu-text", &json!({"mtu": "x"})).steps("ADD DEL"),
        ipvlan("mode-unknown", &json!({"mode": "open"})).steps("ADD DEL"),
        ipvlan("mode-empty", &json!({"mode": ""})),
        prepared("mode-of-the-node", &json!({}), "ip link add link wire0 name ipvl0 type ipvlan mode l3")
            .steps("ADD DEL"),
        ipvlan("mode-of-another-container", &json!({"ipam": {"routes": []}}))
            .changed(json!({"mode": "l3"}))
            .steps("ADD:c1 ADD:c2@changed DEL:c2@changed DEL:c1"),
        ipvlan("layer2", &json!({"ipam": null})).steps("ADD DEL"),
        ipvlan("dns", &json!({"dns": {"nameservers": ["10.0.0.1"]}})),
        ipvlan("route-unreachable", &json!({"ipam": {"routes": [{"dst": "10.50.0.0/16", "gw": "10.77.0.1"}]}}))
            .steps("ADD DEL"),
        ipvlan("ipam-missing", &json!({"ipam": {"type": "nonexistent"}})).steps("ADD DEL"),
        ipvlan("two-containers", &json!({"ipam": {"routes": []}}))
            .steps("ADD:c1 ADD:c2 CHECK:c1 CHECK:c2 DEL:c1 DEL:c2"),
        ipvlan("two-interfaces", &json!({"ipam": {"routes": []}}))
            .steps("ADD:c1/eth0 ADD:c1/eth1 DEL:c1/eth1 DEL:c1/eth0"),
        ipvlan("repeated-add", &json!({})).steps("ADD ADD DEL"),
        prepared("interface-exists", &json!({}), &within("ip link add name eth0 type veth")).steps("ADD DEL"),
        prepared("name-of-the-host", &json!({}), "ip link add name eth0 type veth"),
        ipvlan("mac-in-args", &json!({"ipam": {"routes": []}})).args("IgnoreUnknown=1;MAC=02:00:00:00:aa:02"),
        ipvlan("check-other-mode", &json!({})).changed(json!({"mode": "l3"})).steps("ADD CHECK@changed DEL"),
        ipvlan("check-no-master", &json!({}))
            .changed(json!({"master": "wire9"}))
            .steps("ADD CHECK@changed DEL@changed"),
        ipvlan("check-down", &json!({"ipam": {"routes": []}}))
            .broken(&within("ip link set eth0 down"))
            .steps("ADD CHECK BREAK CHECK DEL"),
        ipvlan("check-no-address", &json!({}))
            .broken(&within("ip address flush dev eth0"))
            .steps("ADD BREAK CHECK DEL"),
        ipvlan("check-no-route", &json!({})).broken(&within("ip route delete default")).steps("ADD BREAK CHECK DEL"),
        ipvlan("check-link-gone", &json!({})).broken(&within("ip link delete eth0")).steps("ADD BREAK CHECK DEL"),
        ipvlan("check-other-kind", &json!({}))
            .broken(&within("ip link delete eth0; ip link add eth0 type veth"))
            .steps("ADD BREAK CHECK DEL"),
        ipvlan("check-without-previous", &json!({})).steps("ADD CHECK@noprev DEL"),
        ipvlan("del-unknown", &json!({})).steps("DEL"),
        ipvlan("del-without-previous", &json!({})).steps("ADD DEL@noprev DEL@noprev"),
        ipvlan("del-bad", &json!({})).changed(json!({"mode": "open", "mtu": -5})).steps("ADD DEL@changed"),
        ipvlan("del-no-namespace", &json!({})).steps("ADD KILL:c1 DEL DEL"),
        ipvlan("del-master-gone", &json!({})).broken("ip link delete wire0").steps("ADD BREAK CHECK DEL DEL"),
        ipvlan("del-master-renamed", &json!({}))
            .broken("ip link set wire0 down; ip link set wire0 name wire7")
            .steps("ADD BREAK CHECK DEL DEL"),
        inside("in-container", &in_container),
        inside("in-container-name-of-the-host", &json!({"linkInContainer": true})).steps("ADD DEL"),
        ipvlan(
            "chained-two-links",
            &previous(
                json!([{"name": "wire0"}, {"name": "wire1"}]),
                json!([{"address": "10.1.2.3/24", "interface": 0}]),
            ),
        )
        .steps("ADD"),
        ipvlan("chained-no-link", &previous(json!([]), json!([{"address": "10.1.2.3/24"}]))).steps("ADD"),
        ipvlan("spelling-of-keys", &json!({"master": null, "Master": "wire1", "MODE": "l3", "Mtu": 1400})),
        ipvlan("status", &json!({"cniVersion": "1.1.0"})).steps("STATUS ADD GC DEL"),
        ipvlan("status-no-master", &json!({"cniVersion": "1.1.0", "master": "wire9"})).steps("STATUS"),
        ipvlan("status-ipam-missing", &json!({"cniVersion": "1.1.0", "ipam": {"type": "nonexistent"}})).steps("STATUS"),
    ];
    for mode in ["l2", "l3", "l3s"] {
        let patch = json!({"mode": mode, "ipam": {"routes": [{"dst": "10.7.0.0/16"}]}});
        all.push(ipvlan(&format!("mode-{mode}"), &patch));
        let patch = json!({"mode": mode, "master": "net1", "linkInContainer": true, "ipam": {"routes": []}});
        all.push(inside(&format!("in-container-{mode}"), &patch));
    }
    for version in ["", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        all.push(
            ipvlan(&format!("version-{version}"), &json!({"cniVersion": version}))
                .steps("ADD CHECK DEL STATUS GC VERSION"),
        );
    }
    all
}
