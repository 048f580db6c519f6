//! Cases of the host-device plugin. The devices are the ends of a pair, because a kernel may lack other kinds of links.

use postern_tests::{Case, merge};
use serde_json::{Value, json};

/// A script that makes two links of the node, one up and one down, and mounts the `/sys` of the node's namespace.
const DEVICES: &str = "ip link add dev1 address 02:00:00:00:ee:01 type veth peer name dev2 address 02:00:00:00:ee:02; \
                       ip link set dev1 up; umount -l /sys 2> /dev/null || true; mount -t sysfs sysfs /sys";

/// Returns the case `host-device/NAME`: one IPv4 range on `dev1`, changed by a merge patch.
fn host_device(name: &str, patch: &Value) -> Case {
    let mut config = json!({
        "cniVersion": "1.0.0", "name": "net", "type": "host-device", "device": "dev1",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    });
    merge(&mut config, patch);
    Case::new(&format!("host-device/{name}"), "host-device", &config).prepare(DEVICES)
}

/// Returns all cases of host-device.
pub fn cases() -> Vec<Case> {
    let mut all = vec![
        host_device("plain", &json!({})),
        host_device("down", &json!({"device": "dev2"})),
        host_device("layer2", &json!({"ipam": null})),
        host_device("v6", &json!({"ipam": {"ranges": [[{"subnet": "fd00:9::/64"}]], "routes": [{"dst": "::/0"}]}})),
        host_device("dns", &json!({"dns": {"nameservers": ["10.0.0.1"]}})),
        host_device("by-address", &json!({"device": null, "hwaddr": "02:00:00:00:ee:02"})),
        host_device("by-address-otherwise", &json!({"device": null, "hwaddr": "02-00-00-00-EE-02"})).steps("ADD DEL"),
        host_device("no-such-address", &json!({"device": null, "hwaddr": "02:00:00:00:ee:99"})).steps("ADD DEL@emptyns"),
        host_device("bad-address", &json!({"device": null, "hwaddr": "x"})).steps("ADD"),
        host_device("path-elsewhere", &json!({"device": null, "kernelpath": "/sys/class/net"})).steps("ADD"),
        host_device("path-relative", &json!({"device": null, "kernelpath": "sys/devices/x"})).steps("ADD"),
        host_device("no-such-path", &json!({"device": null, "kernelpath": "/sys/devices/x"})).steps("ADD"),
        host_device("no-such-pci", &json!({"device": null, "pciBusID": "ffff:ff:1f.7"})).steps("ADD"),
        host_device("no-such-id", &json!({"device": null, "runtimeConfig": {"deviceID": "ffff:ff:1f.7"}})).steps("ADD"),
        host_device("device-and-no-such-pci", &json!({"pciBusID": "ffff:ff:1f.7"})).steps("ADD"),
        host_device("no-such-device", &json!({"device": "dev9"})).steps("ADD DEL@emptyns"),
        host_device("nothing-named", &json!({"device": null})).steps("ADD CHECK@noprev"),
        host_device("first-of-two", &json!({"hwaddr": "02:00:00:00:ee:02"})).steps("ADD DEL"),
        host_device("alternative-name", &json!({"device": "other1"}))
            .prepare(&format!("{DEVICES}; ip link property add dev dev1 altname other1")),
        host_device("name-taken-inside", &json!({}))
            .prepare(&format!("{DEVICES}; ip -n c1 link add eth0 type veth peer name eth9"))
            .steps("ADD"),
        host_device("repeated-add", &json!({})).steps("ADD ADD DEL"),
        host_device("two-containers", &json!({})).steps("ADD:c1 DEL:c1 ADD:c2 CHECK:c2 DEL:c2"),
        host_device("two-interfaces", &json!({"ipam": null})).steps("ADD:c1 DEL:c1/net1 DEL:c1"),
        host_device("no-address", &json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/30", "rangeStart": "10.9.0.2", "rangeEnd": "10.9.0.2"}]]}}))
            .steps("ADD:c1 DEL:c1"),
        host_device("empty-namespace", &json!({})).steps("ADD DEL@emptyns DEL"),
        host_device("namespace-gone", &json!({})).broken("sleep 1").steps("ADD KILL:c1 BREAK DEL"),
        host_device("check-address", &json!({}))
            .broken("ip -n c1 link set eth0 address 02:00:00:00:ee:77")
            .steps("ADD BREAK CHECK"),
        host_device("check-without-previous", &json!({})).steps("ADD CHECK@noprev DEL"),
        host_device("removed-by-native", &json!({})).steps("ADD CHECK@native DEL@native"),
        host_device("made-by-native", &json!({})).steps("ADD@native CHECK DEL"),
        host_device("args-unknown", &json!({})).args("NAME=1").steps("ADD"),
        host_device("status", &json!({"cniVersion": "1.1.0"})).steps("STATUS ADD GC DEL"),
        host_device("mode-by-key", &json!({"DPDKMode": true})).steps("ADD DEL"),
    ];
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        all.push(
            host_device(&format!("version-{version}"), &json!({"cniVersion": version}))
                .steps("ADD CHECK DEL STATUS GC VERSION"),
        );
    }
    all
}
