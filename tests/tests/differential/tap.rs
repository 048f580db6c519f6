//! Cases of the tap plugin. For kernels without taps, `tests/vm/kernel` runs these cases in a virtual machine.

use postern_tests::{Case, merge};
use serde_json::{Value, json};

fn base() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "net", "type": "tap",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    })
}

/// Returns a case `tap/NAME`: one IPv4 range, with a merge patch. Duplicate address detection is off.
fn tap(name: &str, patch: &Value) -> Case {
    let mut config = base();
    merge(&mut config, patch);
    Case::new(&format!("tap/{name}"), "tap", &config).fast()
}

/// All cases of tap.
pub fn cases() -> Vec<Case> {
    let inside = |script: &str| format!("nsenter --net=/run/netns/c1 sh -c '{script}'");
    let dual = json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]]}});
    let of_static =
        |addresses: Value| json!({"ipam": {"type": "static", "ranges": null, "routes": null, "addresses": addresses}});
    let bridged = |name: &str, patch: &Value| {
        let mut keys = json!({"bridge": "br0"});
        merge(&mut keys, patch);
        tap(name, &keys).prepare(&inside("ip link add br0 address 02:00:00:00:bb:01 type bridge; ip link set br0 up"))
    };
    let mut all = vec![
        tap("plain", &json!({})),
        tap("layer2", &json!({"ipam": null})),
        tap("layer2-0.2.0", &json!({"cniVersion": "0.2.0", "ipam": null})).steps("ADD DEL"),
        tap("dual", &dual),
        tap("static", &of_static(json!([{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}]))),
        tap("static-host-prefix", &of_static(json!([{"address": "10.9.0.7/32"}]))).steps("ADD DEL"),
        tap("static-no-address", &of_static(json!([]))).steps("ADD DEL"),
        tap("multi-queue", &json!({"multiQueue": true})),
        tap("multi-queue-false", &json!({"multiQueue": false})),
        tap("multi-queue-text", &json!({"multiQueue": "true"})).steps("ADD DEL"),
        tap("owner", &json!({"owner": 0})),
        tap("group", &json!({"group": 0})),
        tap("owner-and-group", &json!({"owner": 0, "group": 0})),
        tap("owner-and-group-multi-queue", &json!({"owner": 0, "group": 0, "multiQueue": true})),
        tap("owner-and-group-mtu", &json!({"owner": 0, "group": 0, "mtu": 1400})),
        tap("owner-and-group-mac", &json!({"owner": 0, "group": 0, "mac": "02:00:00:00:aa:01"})),
        tap("owner-null", &json!({"owner": null, "group": null})),
        tap("owner-not-mapped", &json!({"owner": 1000})).steps("ADD DEL"),
        tap("group-not-mapped", &json!({"group": 1000})).steps("ADD DEL"),
        tap("owner-and-group-not-mapped", &json!({"owner": 1000, "group": 1000})).steps("ADD DEL"),
        tap("owner-nobody", &json!({"owner": 4_294_967_295_u32})).steps("ADD DEL"),
        tap("owner-negative", &json!({"owner": -1})).steps("ADD DEL"),
        tap("owner-too-large", &json!({"owner": 4_294_967_296_u64})).steps("ADD DEL"),
        tap("group-text", &json!({"group": "root"})).steps("ADD DEL"),
        tap("mtu", &json!({"mtu": 1400})),
        tap("mtu-large", &json!({"mtu": 9000})),
        tap("mtu-too-large", &json!({"mtu": 65530})).steps("ADD DEL"),
        tap("mtu-beyond-16-bits", &json!({"mtu": 70_000})).steps("ADD DEL"),
        tap("mtu-too-small", &json!({"mtu": 60})).steps("ADD DEL"),
        tap("mtu-negative", &json!({"mtu": -1})).steps("ADD DEL"),
        tap("mtu-text", &json!({"mtu": "x"})).steps("ADD DEL"),
        tap("mac", &json!({"mac": "02:00:00:00:aa:01"})),
        tap("mac-empty", &json!({"mac": ""})),
        tap("mac-capitals", &json!({"mac": "02:00:00:00:AA:0B"})),
        tap("mac-malformed", &json!({"mac": "x"})).steps("ADD DEL"),
        tap("mac-eight-bytes", &json!({"mac": "02:00:00:00:aa:01:02:03"})).steps("ADD DEL"),
        tap("mac-multicast", &json!({"mac": "01:00:5e:00:00:01"})).steps("ADD DEL"),
        tap("mac-of-args", &json!({"mac": "02:00:00:00:aa:01"})).args("IgnoreUnknown=1;MAC=02:00:00:00:aa:02"),
        tap("mac-of-args-empty", &json!({"mac": "02:00:00:00:aa:01"})).args("IgnoreUnknown=1;MAC="),
        tap("mac-of-args-breaks-ipam", &json!({})).args("MAC=02:00:00:00:aa:02").steps("ADD DEL"),
        tap("mac-of-args-layer2", &json!({"ipam": null})).args("MAC=02:00:00:00:aa:02"),
        tap("mac-of-runtime", &json!({"runtimeConfig": {"mac": "02:00:00:00:aa:03"}}))
            .args("IgnoreUnknown=1;MAC=02:00:00:00:aa:02"),
        tap("args-unknown", &json!({})).args("IP=10.9.0.9").steps("ADD DEL"),
        bridged("bridge", &json!({})),
        bridged("bridge-layer2", &json!({"ipam": null, "owner": 0, "group": 0})),
        tap("bridge-empty", &json!({"bridge": ""})),
        tap("bridge-missing", &json!({"bridge": "br0"})).steps("ADD DEL"),
        tap("bridge-missing-of-user", &json!({"bridge": "br0", "owner": 0, "group": 0})).steps("ADD DEL"),
        tap("bridge-of-the-host", &json!({"bridge": "br0"})).prepare("ip link add br0 type bridge").steps("ADD DEL"),
        tap("bridge-is-none", &json!({"bridge": "br0"}))
            .prepare(&inside(
                "ip link add br0 address 02:00:00:00:bb:01 type veth peer name br1 address 02:00:00:00:bb:02",
            ))
            .steps("ADD DEL"),
        bridged("bridge-gone", &json!({})).broken(&inside("ip link delete br0")).steps("ADD BREAK CHECK DEL"),
        tap("selinux", &json!({"selinuxContext": "system_u:object_r:container_t:s0"})).steps("ADD DEL"),
        tap("selinux-small-letters", &json!({"selinuxcontext": "x"})).steps("ADD DEL"),
        tap("selinux-of-user", &json!({"selinuxContext": "x", "owner": 0, "group": 0})).steps("ADD DEL"),
        tap("selinux-empty", &json!({"selinuxContext": ""})),
        tap("ipam-missing", &json!({"ipam": {"type": "nonexistent"}})).steps("ADD DEL"),
        tap("ipam-no-object", &json!({"ipam": 7})).steps("ADD DEL"),
        tap("dns", &json!({"dns": {"nameservers": ["10.0.0.1"]}})),
        tap("dns-of-ipam", &json!({"dns": {"domain": "conf"}, "ipam": {"resolvConf": "/run/resolv.conf"}}))
            .prepare("echo nameserver 10.0.0.9 > /run/resolv.conf"),
        tap(
            "routes",
            &json!({"ipam": {"routes": [{"dst": "10.50.0.0/16", "gw": "10.9.0.9"}, {"dst": "10.51.0.0/16"}]}}),
        ),
        tap("route-unreachable", &json!({"ipam": {"routes": [{"dst": "10.50.0.0/16", "gw": "10.77.0.1"}]}}))
            .steps("ADD DEL"),
        tap("two-containers", &json!({})).steps("ADD:c1 ADD:c2 DEL:c1 DEL:c2"),
        tap("two-interfaces", &json!({"ipam": {"routes": []}}))
            .steps("ADD:c1/eth0 ADD:c1/eth1 DEL:c1/eth1 DEL:c1/eth0"),
        tap("repeated-add", &json!({"ipam": null})).steps("ADD ADD DEL"),
        tap("interface-exists", &json!({}))
            .prepare(&inside("ip link add name eth0 address 02:00:00:00:bb:01 type ifb"))
            .steps("ADD DEL"),
        tap("tap-exists", &json!({}))
            .prepare(&inside("ip tuntap add dev eth0 mode tap user 0; ip link set eth0 address 02:00:00:00:bb:01"))
            .steps("ADD DEL"),
        tap("name-of-the-host", &json!({})).prepare("ip link add name eth0 type veth"),
        tap("namespace-missing", &json!({})).steps("KILL:c1 ADD DEL"),
        tap("check-down", &json!({"ipam": {"routes": []}}))
            .broken(&inside("ip link set eth0 down"))
            .steps("ADD CHECK BREAK CHECK DEL"),
        tap("check-other-address", &json!({}))
            .broken(&inside("ip link set eth0 address 02:00:00:00:aa:09"))
            .steps("ADD BREAK CHECK DEL"),
        tap("check-no-address", &json!({})).broken(&inside("ip address flush dev eth0")).steps("ADD BREAK CHECK DEL"),
        tap("check-no-route", &json!({})).broken(&inside("ip route delete default")).steps("ADD BREAK CHECK DEL"),
        tap("check-link-gone", &json!({})).broken(&inside("ip link delete eth0")).steps("ADD BREAK CHECK DEL DEL"),
        tap("check-link-gone-layer2", &json!({"ipam": null}))
            .broken(&inside("ip link delete eth0"))
            .steps("ADD BREAK CHECK DEL"),
        tap("check-other-kind", &json!({"ipam": null}))
            .broken(&inside("ip link delete eth0; ip link add eth0 address 02:00:00:00:aa:09 type ifb"))
            .steps("ADD BREAK CHECK DEL"),
        tap("check-without-previous", &json!({})).steps("ADD CHECK@noprev DEL"),
        tap("del-unknown", &json!({})).steps("DEL"),
        tap("del-bad", &json!({}))
            .changed(json!({"mtu": -5, "mac": "x", "selinuxContext": "x"}))
            .steps("ADD DEL@changed"),
        tap("del-unreadable", &json!({})).changed(json!({"mtu": "x"})).steps("ADD DEL@changed"),
        tap("del-other-kind", &json!({"ipam": null}))
            .prepare(&inside("ip link add eth0 address 02:00:00:00:aa:09 type ifb"))
            .steps("DEL"),
        tap("del-without-previous", &json!({})).steps("ADD DEL@noprev DEL@noprev"),
        tap("del-no-namespace", &json!({})).steps("ADD KILL:c1 DEL DEL"),
        tap("del-empty-namespace", &json!({})).steps("ADD DEL@emptyns DEL"),
        tap(
            "previous-result",
            &json!({"prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth9", "sandbox": "/x"}],
            "ips": [{"address": "10.1.2.3/24", "interface": 0}]}}),
        ),
        tap(
            "conventional-keys",
            &json!({"args": {"cni": {"mac": "02:00:00:00:aa:05"}}, "runtimeConfig": {"dns": {"servers": ["1.1.1.1"]}}}),
        ),
        tap("args-text", &json!({"args": "x"})),
        tap("spelling-of-keys", &json!({"MULTIQUEUE": true, "Mtu": 1400, "OWNER": 0})),
        tap("status", &json!({"cniVersion": "1.1.0"})).steps("STATUS ADD GC DEL"),
        tap("status-ipam-missing", &json!({"cniVersion": "1.1.0", "ipam": {"type": "nonexistent"}})).steps("STATUS"),
        tap("status-layer2", &json!({"cniVersion": "1.1.0", "ipam": null})).steps("STATUS"),
    ];
    for version in ["", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        all.push(
            tap(&format!("version-{version}"), &json!({"cniVersion": version}))
                .steps("ADD CHECK DEL STATUS GC VERSION"),
        );
    }
    all
}
