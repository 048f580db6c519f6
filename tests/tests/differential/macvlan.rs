//! Cases of the macvlan plugin.

use postern_tests::{Case, merge};
use serde_json::{Value, json};

/// A script that makes the parent link on the node, with a default route through this link.
pub const MASTER: &str = "ip link add wire0 address 02:00:00:00:ee:01 type veth peer name wire1 address 02:00:00:00:ee:02; ip link set wire0 up; \
                      ip link set wire1 up; ip address add 10.9.0.254/24 dev wire0; ip route add default via 10.9.0.253";

/// Returns the base configuration of the cases.
pub fn base() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "net", "type": "macvlan", "master": "wire0", "mac": "02:00:00:00:aa:01",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    })
}

/// Returns a case `macvlan/NAME`: one IPv4 range on `wire0`, with a merge patch. Duplicate address detection is off.
fn macvlan(name: &str, patch: &Value) -> Case {
    let mut config = base();
    merge(&mut config, patch);
    Case::new(&format!("macvlan/{name}"), "macvlan", &config).prepare(MASTER).fast()
}

/// A script that makes a parent link in the container: `net1`, whose peer `net2` is in the container, too.
pub const INSIDE: &str = "nsenter --net=/run/netns/c1 sh -c 'ip link add net1 address 02:00:00:00:ee:03 type veth peer name net2 address 02:00:00:00:ee:04; \
                      ip link set net1 up; ip link set net2 up'";

/// All cases of macvlan.
pub fn cases() -> Vec<Case> {
    let in_container = json!({"master": "net1", "linkInContainer": true});
    let dual = json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}});
    let of_static =
        |addresses: Value| json!({"ipam": {"type": "static", "ranges": null, "routes": null, "addresses": addresses}});
    let inside = |name: &str, patch: &Value, script: &str| {
        macvlan(name, patch).prepare(&format!("{MASTER}; {INSIDE}; {script}"))
    };
    let mut all = vec![
        macvlan("plain", &json!({})),
        macvlan("dual", &dual),
        macvlan("default-master", &json!({"master": null})),
        macvlan("default-master-empty", &json!({"master": ""})),
        macvlan("default-master-v6", &json!({"master": null})).prepare(&format!("{MASTER}; ip route delete default; ip address add fd00:8::1/64 dev wire1 nodad; ip route add default via fd00:8::2")),
        macvlan("default-master-both", &json!({"master": null})).prepare(&format!("{MASTER}; ip address add fd00:8::1/64 dev wire1 nodad; ip route add default via fd00:8::2")),
        macvlan("default-master-metric", &json!({"master": null})).prepare(&format!("{MASTER}; ip address add 10.8.0.1/24 dev wire1; ip route add default via 10.8.0.2 metric 50; ip route add default via 10.8.0.2 table 7")),
        macvlan("no-default-route", &json!({"master": null})).prepare(&format!("{MASTER}; ip route delete default")).steps("ADD STATUS DEL"),
        macvlan("no-such-master", &json!({"master": "wire9"})).steps("ADD DEL"),
        macvlan("master-is-loopback", &json!({"master": "lo"})).steps("ADD DEL"),
        macvlan("master-is-a-port", &json!({})).prepare(&format!("{MASTER}; ip link add br9 type bridge; ip link set wire0 master br9")).steps("ADD DEL"),
        macvlan("master-is-down", &json!({})).prepare(&format!("{MASTER}; ip link set wire0 down; ip link set wire1 down")).steps("ADD DEL"),
        macvlan("master-by-another-name", &json!({"master": "uplink-of-the-node"})).prepare(&format!("{MASTER}; ip link property add dev wire0 altname uplink-of-the-node")),
        macvlan("mtu", &json!({"mtu": 1400})),
        macvlan("mtu-of-master", &json!({"mtu": 1500})),
        macvlan("mtu-too-large", &json!({"mtu": 1501})).steps("ADD DEL"),
        macvlan("mtu-negative", &json!({"mtu": -1})).steps("ADD DEL"),
        macvlan("mtu-too-small", &json!({"mtu": 60})).steps("ADD DEL"),
        macvlan("mode-unknown", &json!({"mode": "open"})).steps("ADD DEL"),
        macvlan("mode-empty", &json!({"mode": ""})),
        macvlan("queue", &json!({"bcqueuelen": 2000})),
        macvlan("queue-negative", &json!({"bcqueuelen": -1})).steps("ADD DEL"),
        macvlan("layer2", &json!({"ipam": null})),
        macvlan("layer2-0.2.0", &json!({"cniVersion": "0.2.0", "ipam": null})).steps("ADD DEL"),
        macvlan("v6", &json!({"ipam": {"ranges": [[{"subnet": "fd00:9::/64"}]], "routes": [{"dst": "::/0"}]}})),
        macvlan("dns", &json!({"dns": {"nameservers": ["10.0.0.1"]}})),
        macvlan("dns-of-ipam", &json!({"ipam": {"resolvConf": "/run/resolv.conf"}})).prepare(&format!("{MASTER}; echo nameserver 10.0.0.9 > /run/resolv.conf")),
        macvlan("static", &of_static(json!([{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}, {"address": "fd00:9::7/64"}]))),
        macvlan("static-host-prefix", &of_static(json!([{"address": "10.9.0.7/32"}]))).steps("ADD DEL"),
        macvlan("static-no-address", &of_static(json!([]))).steps("ADD DEL"),
        macvlan("routes", &json!({"ipam": {"routes": [{"dst": "10.50.0.0/16", "gw": "10.9.0.9"}, {"dst": "10.51.0.0/16"}]}})),
        macvlan("route-unreachable", &json!({"ipam": {"routes": [{"dst": "10.50.0.0/16", "gw": "10.77.0.1"}]}})).steps("ADD DEL"),
        macvlan("ipam-missing", &json!({"ipam": {"type": "nonexistent"}})).steps("ADD DEL"),
        macvlan("two-containers", &json!({"mac": null})).steps("ADD:c1 DEL:c1 ADD:c2 DEL:c2"),
        macvlan("two-at-once", &json!({"mac": null, "ipam": null, "mode": "private"})).steps("ADD:c1 ADD:c2 DEL:c1 DEL:c2"),
        macvlan("two-interfaces", &json!({"mac": null, "ipam": {"routes": []}})).steps("ADD:c1/eth0 ADD:c1/eth1 DEL:c1/eth1 DEL:c1/eth0"),
        macvlan("repeated-add", &json!({})).steps("ADD ADD DEL"),
        macvlan("interface-exists", &json!({})).prepare(&format!("{MASTER}; nsenter --net=/run/netns/c1 ip link add name eth0 type ifb")).steps("ADD DEL"),
        macvlan("name-of-the-master", &json!({})).steps("ADD:c1/wire0 CHECK:c1/wire0 DEL:c1/wire0"),
        macvlan("namespace-gone", &json!({})).steps("ADD KILL:c1 DEL"),
        macvlan("empty-namespace", &json!({})).steps("ADD DEL@emptyns DEL"),
        macvlan("mac-of-args", &json!({})).args("IgnoreUnknown=1;MAC=02:00:00:00:aa:02"),
        macvlan("mac-of-args-empty", &json!({})).args("IgnoreUnknown=1;MAC="),
        macvlan("mac-of-args-breaks-ipam", &json!({})).args("MAC=02:00:00:00:aa:02").steps("ADD DEL"),
        macvlan("mac-of-runtime", &json!({"runtimeConfig": {"mac": "02:00:00:00:aa:03"}}))
            .args("IgnoreUnknown=1;MAC=02:00:00:00:aa:02"),
        macvlan("mac-malformed", &json!({"mac": "x"})).steps("ADD DEL"),
        macvlan("mac-capitals", &json!({"mac": "02-00-00-00-AA-0B"})),
        macvlan("mac-eight-bytes", &json!({"mac": "02:00:00:00:aa:01:02:03"})).steps("ADD DEL"),
        macvlan("mac-multicast", &json!({"mac": "01:00:5e:00:00:01"})).steps("ADD DEL"),
        macvlan("mac-of-master", &json!({"mac": "02:00:00:00:ee:01"})).steps("ADD DEL"),
        macvlan("mac-twice", &json!({"ipam": {"routes": []}})).steps("ADD:c1 ADD:c2 DEL:c2 DEL:c1"),
        macvlan("args-unknown", &json!({})).args("IP=10.9.0.9").steps("ADD DEL"),
        macvlan("passthru", &json!({"mode": "passthru", "mac": null, "master": "wire1"})).steps("ADD CHECK DEL"),
        macvlan("passthru-mac", &json!({"mode": "passthru", "master": "wire1"})).steps("ADD CHECK DEL"),
        macvlan("passthru-twice", &json!({"mode": "passthru", "mac": null, "master": "wire1", "ipam": {"routes": []}})).steps("ADD:c1 ADD:c2 DEL:c2 DEL:c1"),
        macvlan("passthru-second", &json!({"mode": "passthru", "mac": null, "master": "wire1", "ipam": {"routes": []}}))
            .changed(json!({"mode": "bridge"})).steps("ADD:c1@changed ADD:c2 DEL:c2 DEL:c1@changed"),
        macvlan("check-other-mode", &json!({})).changed(json!({"mode": "vepa"})).steps("ADD CHECK@changed DEL"),
        macvlan("check-other-address", &json!({})).broken("nsenter --net=/run/netns/c1 ip link set eth0 address 02:00:00:00:aa:09").steps("ADD CHECK BREAK CHECK DEL"),
        macvlan("check-down", &json!({"ipam": {"routes": []}})).broken("nsenter --net=/run/netns/c1 ip link set eth0 down").steps("ADD CHECK BREAK CHECK DEL"),
        macvlan("check-no-address", &json!({})).broken("nsenter --net=/run/netns/c1 ip address flush dev eth0").steps("ADD BREAK CHECK DEL"),
        macvlan("check-no-route", &json!({})).broken("nsenter --net=/run/netns/c1 ip route delete default").steps("ADD BREAK CHECK DEL"),
        macvlan("check-link-gone", &json!({})).broken("nsenter --net=/run/netns/c1 ip link delete eth0").steps("ADD BREAK CHECK DEL"),
        macvlan("check-other-kind", &json!({})).broken("nsenter --net=/run/netns/c1 sh -c 'ip link delete eth0; ip link add eth0 type veth'").steps("ADD BREAK CHECK DEL"),
        macvlan("check-no-master", &json!({})).changed(json!({"master": "wire9"})).steps("ADD CHECK@changed DEL@changed"),
        macvlan("check-mtu-too-large", &json!({})).changed(json!({"mtu": 9000})).steps("ADD CHECK@changed DEL@changed"),
        macvlan("check-without-previous", &json!({})).steps("ADD CHECK@noprev DEL"),
        macvlan("check-layer2", &json!({"ipam": null})).broken("nsenter --net=/run/netns/c1 ip link set eth0 down").steps("ADD CHECK BREAK CHECK DEL"),
        macvlan("del-unknown", &json!({})).steps("DEL"),
        macvlan("del-without-previous", &json!({})).steps("ADD DEL@noprev DEL@noprev"),
        macvlan("del-bad", &json!({})).changed(json!({"mode": "open", "mtu": -5, "mac": "x", "bcqueuelen": 1})).steps("ADD DEL@changed"),
        macvlan("del-master-gone", &json!({})).broken("ip link delete wire0").steps("ADD BREAK CHECK DEL DEL"),
        macvlan("del-master-renamed", &json!({})).broken("ip link set wire0 down; ip link set wire0 name wire7").steps("ADD BREAK CHECK DEL DEL"),
        macvlan("del-master-down", &json!({})).broken("ip link set wire0 down; ip link set wire1 down").steps("ADD BREAK DEL DEL"),
        macvlan("del-default-route-gone", &json!({"master": null})).broken("ip route delete default").steps("ADD BREAK CHECK DEL DEL"),
        macvlan("del-namespace-and-master-gone", &json!({})).broken("ip link delete wire0").steps("ADD KILL:c1 BREAK DEL DEL"),
        macvlan("add-again", &json!({})).steps("ADD DEL ADD CHECK DEL DEL"),
        macvlan("name-taken-twice", &json!({"ipam": null})).steps("ADD:c1/net7 ADD:c1/net7 DEL:c1/net7"),
        macvlan("name-of-a-link-of-the-host", &json!({})).steps("ADD:c1/wire1 CHECK:c1/wire1 DEL:c1/wire1 DEL:c1/wire1"),
        macvlan("master-is-a-macvlan", &json!({"master": "up0"})).prepare(&format!("{MASTER}; ip link add up0 link wire0 type macvlan mode vepa; ip link set up0 up")),
        macvlan("master-is-a-bridge", &json!({"master": "br9"})).prepare(&format!("{MASTER}; ip link add br9 type bridge; ip link set br9 up")),
        macvlan("mtu-zero", &json!({"mtu": 0})),
        macvlan("mtu-text", &json!({"mtu": "1400"})).steps("ADD CHECK DEL"),
        macvlan("mtu-below-v6", &json!({"mtu": 1000})),
        macvlan("mtu-of-master-shrinks", &json!({"mtu": 1500})).broken("ip link set wire0 mtu 1400").steps("ADD BREAK CHECK DEL"),
        macvlan("mode-number", &json!({"mode": 4})).steps("ADD DEL"),
        macvlan("mode-in-capitals", &json!({"mode": "Bridge"})).steps("ADD DEL"),
        macvlan("mode-of-the-kernel", &json!({"mode": "source"})).steps("ADD DEL"),
        macvlan("queue-zero", &json!({"bcqueuelen": 0})),
        macvlan("queue-large", &json!({"bcqueuelen": 4_294_967_295_u32})),
        macvlan("queue-too-large", &json!({"bcqueuelen": 4_294_967_296_u64})).steps("ADD DEL"),
        macvlan("queue-text", &json!({"bcqueuelen": "x"})).steps("ADD DEL"),
        macvlan("mac-null", &json!({"mac": ""})),
        macvlan("mac-of-a-sibling", &json!({"ipam": {"routes": []}})).steps("ADD:c1 ADD:c1/eth1 DEL:c1/eth1 DEL:c1"),
        macvlan("mac-of-runtime-malformed", &json!({"runtimeConfig": {"mac": "x"}})).steps("ADD DEL"),
        macvlan("mac-of-runtime-empty", &json!({"runtimeConfig": {"mac": ""}})).args("IgnoreUnknown=1;MAC=02:00:00:00:aa:02"),
        macvlan("link-in-container-text", &json!({"linkInContainer": "true"})).steps("ADD DEL"),
        macvlan("passthru-addresses-v6", &json!({"mode": "passthru", "mac": null, "master": "wire1", "ipam": {"ranges": [[{"subnet": "fd00:9::/64"}]], "routes": []}})).steps("ADD CHECK DEL"),
        macvlan("passthru-layer2", &json!({"mode": "passthru", "mac": null, "master": "wire1", "ipam": null})).steps("ADD CHECK DEL"),
        macvlan("passthru-mac-of-args", &json!({"mode": "passthru", "mac": null, "master": "wire1"})).args("IgnoreUnknown=1;MAC=02:00:00:00:aa:02").steps("ADD CHECK DEL"),
        macvlan("passthru-namespace-gone", &json!({"mode": "passthru", "mac": null, "master": "wire1"})).steps("ADD KILL:c1 DEL"),
        inside("in-container-master-gone", &in_container, "true").broken("nsenter --net=/run/netns/c1 ip link delete net1").steps("ADD BREAK CHECK DEL DEL"),
        inside("in-container-namespace-gone", &in_container, "true").steps("ADD KILL:c1 DEL DEL"),
        inside("in-container-passthru", &json!({"master": "net1", "linkInContainer": true, "mode": "passthru", "mac": null}), "true").steps("ADD CHECK DEL"),
        inside("in-container-name-of-its-master", &in_container, "true").steps("ADD:c1/net1 DEL:c1/net1"),
        inside("in-container", &in_container, "true"),
        inside("in-container-default-route", &json!({"master": null, "linkInContainer": true, "ipam": {"routes": []}}), "nsenter --net=/run/netns/c1 sh -c 'ip address add 10.7.0.1/24 dev net2; ip route add default via 10.7.0.2'"),
        inside("in-container-no-default-route", &json!({"master": null, "linkInContainer": true}), "true").steps("ADD DEL"),
        inside("in-container-name-of-the-host", &json!({"linkInContainer": true}), "true").steps("ADD DEL"),
        inside("in-container-exists", &in_container, "nsenter --net=/run/netns/c1 ip link add name eth0 type ifb").steps("ADD DEL"),
        inside("in-container-mtu", &json!({"master": "net1", "linkInContainer": true, "mtu": 1501}), "true").steps("ADD DEL"),
        inside("in-container-layer2-vepa", &json!({"master": "net1", "linkInContainer": true, "mode": "vepa", "ipam": null, "bcqueuelen": 500}), "true"),
        macvlan("previous-result", &json!({"prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth9", "sandbox": "/x"}],
            "ips": [{"address": "10.1.2.3/24", "interface": 0, "gateway": "10.1.2.1"}], "routes": [{"dst": "10.3.0.0/16"}], "dns": {"nameservers": ["1.2.3.4"]}}})),
        macvlan("conventional-keys", &json!({"args": {"cni": {"labels": [{"key": "app", "value": "a"}], "mac": "02:00:00:00:aa:05"}}, "runtimeConfig": {"dns": {"servers": ["1.1.1.1"]}}})),
        macvlan("spelling-of-keys", &json!({"master": null, "Master": "wire1", "MODE": "vepa", "Mtu": 1400})),
        macvlan("status", &json!({"cniVersion": "1.1.0"})).steps("STATUS ADD GC DEL"),
        macvlan("status-no-master", &json!({"cniVersion": "1.1.0", "master": "wire9"})).steps("STATUS"),
        macvlan("status-ipam-missing", &json!({"cniVersion": "1.1.0", "ipam": {"type": "nonexistent"}})).steps("STATUS"),
        macvlan("status-layer2", &json!({"cniVersion": "1.1.0", "ipam": null})).steps("STATUS"),
    ];
    for mode in ["bridge", "private", "vepa"] {
        all.push(macvlan(&format!("mode-{mode}"), &json!({"mode": mode})));
        all.push(
            macvlan(&format!("mode-{mode}-two"), &json!({"mode": mode, "mac": null, "ipam": {"routes": []}}))
                .steps("ADD:c1 ADD:c2 CHECK:c1 CHECK:c2 DEL:c1 DEL:c2"),
        );
        all.push(inside(
            &format!("in-container-{mode}"),
            &json!({"mode": mode, "master": "net1", "linkInContainer": true, "ipam": {"routes": []}}),
            "true",
        ));
    }
    for version in ["", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        all.push(
            macvlan(&format!("version-{version}"), &json!({"cniVersion": version}))
                .steps("ADD CHECK DEL STATUS GC VERSION"),
        );
    }
    all
}
