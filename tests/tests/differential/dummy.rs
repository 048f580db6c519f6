//! Cases of the dummy plugin. Many kernels have no such links: `tests/vm/kernel` runs these cases in a virtual machine.

use postern_tests::{Case, merge};
use serde_json::{Value, json};

fn base() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "net", "type": "dummy",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "10.7.0.0/16"}]},
    })
}

/// Returns a case `dummy/NAME`: one IPv4 range, with a merge patch. No duplicate address detection.
fn dummy(name: &str, patch: &Value) -> Case {
    let mut config = base();
    merge(&mut config, patch);
    Case::new(&format!("dummy/{name}"), "dummy", &config).fast()
}

/// All cases of dummy.
pub fn cases() -> Vec<Case> {
    let inside = |script: &str| format!("nsenter --net=/run/netns/c1 sh -c '{script}'");
    let dual = json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]]}});
    let of_static =
        |addresses: Value| json!({"ipam": {"type": "static", "ranges": null, "routes": null, "addresses": addresses}});
    let mut all = vec![
        dummy("plain", &json!({})),
        dummy("dual", &dual),
        dummy("static", &of_static(json!([{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}]))),
        dummy("static-host-prefix", &of_static(json!([{"address": "10.9.0.7/32"}]))).steps("ADD DEL"),
        dummy("static-no-address", &of_static(json!([]))).steps("ADD DEL"),
        dummy("no-ipam", &json!({"ipam": null})).steps("ADD CHECK DEL"),
        dummy("ipam-no-object", &json!({"ipam": 7})).steps("ADD DEL"),
        dummy("ipam-missing", &json!({"ipam": {"type": "nonexistent"}})).steps("ADD DEL"),
        dummy("dns", &json!({"dns": {"nameservers": ["10.0.0.1"]}})),
        dummy("dns-of-ipam", &json!({"dns": {"domain": "conf"}, "ipam": {"resolvConf": "/run/resolv.conf"}}))
            .prepare("echo nameserver 10.0.0.9 > /run/resolv.conf"),
        dummy("route-unreachable", &json!({"ipam": {"routes": [{"dst": "10.50.0.0/16", "gw": "10.77.0.1"}]}}))
            .steps("ADD DEL"),
        dummy("two-containers", &json!({})).steps("ADD:c1 ADD:c2 DEL:c1 DEL:c2"),
        dummy("two-interfaces", &json!({"ipam": {"routes": []}}))
            .steps("ADD:c1/eth0 ADD:c1/eth1 DEL:c1/eth1 DEL:c1/eth0"),
        dummy(
            "repeated-add",
            &json!({"ipam": {"type": "static", "ranges": null, "addresses": [{"address": "10.9.0.7/24"}]}}),
        )
        .steps("ADD ADD DEL"),
        dummy("interface-exists", &json!({})).prepare(&inside("ip link add name eth0 type veth")).steps("ADD DEL"),
        dummy("name-of-the-host", &json!({})).prepare("ip link add name eth0 type veth"),
        dummy("mac-in-args", &json!({})).args("IgnoreUnknown=1;MAC=02:00:00:00:aa:02"),
        dummy("check-down", &json!({})).broken(&inside("ip link set eth0 down")).steps("ADD CHECK BREAK CHECK DEL"),
        dummy("check-other-address", &json!({}))
            .broken(&inside("ip link set eth0 address 02:00:00:00:aa:09"))
            .steps("ADD BREAK CHECK DEL"),
        dummy("check-no-address", &json!({})).broken(&inside("ip address flush dev eth0")).steps("ADD BREAK CHECK DEL"),
        dummy("check-no-route", &json!({})).broken(&inside("ip route delete 10.7.0.0/16")).steps("ADD BREAK CHECK DEL"),
        dummy("check-link-gone", &json!({})).broken(&inside("ip link delete eth0")).steps("ADD BREAK CHECK DEL DEL"),
        dummy("check-other-kind", &json!({}))
            .broken(&inside("ip link delete eth0; ip link add eth0 type veth"))
            .steps("ADD BREAK CHECK DEL"),
        dummy("check-without-previous", &json!({})).steps("ADD CHECK@noprev DEL"),
        dummy("del-unknown", &json!({})).steps("DEL"),
        dummy("del-without-previous", &json!({})).steps("ADD DEL@noprev DEL@noprev"),
        dummy("del-no-namespace", &json!({})).steps("ADD KILL:c1 DEL DEL"),
        dummy("del-empty-namespace", &json!({})).steps("ADD DEL@emptyns DEL"),
        dummy("status", &json!({"cniVersion": "1.1.0"})).steps("STATUS ADD GC DEL"),
        dummy("status-ipam-missing", &json!({"cniVersion": "1.1.0", "ipam": {"type": "nonexistent"}})).steps("STATUS"),
        dummy("status-no-ipam", &json!({"cniVersion": "1.1.0", "ipam": null})).steps("STATUS"),
    ];
    for version in ["", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        all.push(
            dummy(&format!("version-{version}"), &json!({"cniVersion": version}))
                .steps("ADD CHECK DEL STATUS GC VERSION"),
        );
    }
    all
}
