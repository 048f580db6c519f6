//! Cases of flannel. The native side is Debian bullseye's flannel (0.9, CNI 0.1.0 to 0.4.0), which delegates to the
//! native bridge plugin. `tests/tests/plugins/flannel.rs` also tests flannel without a native flannel.

use postern_tests::{Case, merge, native_bin, skip_part};
use serde_json::{Value, json};

const PREPARE: &str = "
    mkdir -p /run/flannel /run/other
    printf 'FLANNEL_NETWORK=10.9.0.0/16\\nFLANNEL_SUBNET=10.9.1.1/24\\nFLANNEL_MTU=1450\\nFLANNEL_IPMASQ=true\\n' > /run/flannel/subnet.env
    sed -e s/true/false/ -e s/1450/1400/ /run/flannel/subnet.env > /run/other/subnet.env
    grep -v MTU /run/flannel/subnet.env > /run/other/no-mtu
    sed s,/24,, /run/flannel/subnet.env > /run/other/no-cidr
    sed s/1450/x/ /run/flannel/subnet.env > /run/other/no-number
    sed s/=true// /run/flannel/subnet.env > /run/other/no-value
    echo '# nothing' > /run/other/empty";

fn flannel(name: &str, patch: &Value) -> Case {
    let mut config = json!({"cniVersion": "0.4.0", "name": "net", "type": "flannel", "delegate": {"bridge": "br9"}});
    merge(&mut config, patch);
    Case::new(&format!("flannel/{name}"), "flannel", &config).prepare(PREPARE).fast()
}

/// All cases of flannel.
pub fn cases() -> Vec<Case> {
    if !native_bin().is_ok_and(|bin| bin.join("flannel").exists()) {
        skip_part("flannel/*", "there is no native flannel (tests/fetch-native)");
        return Vec::new();
    }
    let file = |name: &str, file: &str| flannel(name, &json!({"subnetFile": format!("/run/other/{file}")}));
    let version = |name: &str, version: &str| flannel(name, &json!({"cniVersion": version})).steps("ADD DEL DEL");
    vec![
        flannel("plain", &json!({})),
        version("0.1.0", "0.1.0"),
        version("0.2.0", "0.2.0"),
        version("0.3.1", "0.3.1"),
        flannel("masquerading", &json!({"subnetFile": "/run/other/subnet.env"})),
        flannel(
            "delegate-decides",
            &json!({"delegate": {"mtu": 1300, "ipMasq": false, "isGateway": false, "hairpinMode": true}}),
        ),
        flannel("default-gateway", &json!({"delegate": {"isDefaultGateway": true}})),
        flannel("ptp", &json!({"delegate": {"type": "ptp", "bridge": null}})),
        flannel(
            "routes",
            &json!({"ipam": {"routes": [{"dst": "192.0.2.0/24"}, {"dst": "198.51.100.0/24", "gw": "10.9.1.7"}]}}),
        ),
        flannel("lease-directory", &json!({"ipam": {"dataDir": "/run/leases"}})),
        flannel("data-directory", &json!({"dataDir": "/run/delegates"})),
        flannel("del-twice-natively", &json!({})).steps("ADD DEL@native DEL"),
        flannel("made-natively", &json!({})).steps("ADD@native DEL DEL"),
        flannel("no-cni-version", &json!({"cniVersion": null})).steps("ADD DEL"),
        flannel("delegate-name", &json!({"delegate": {"name": "x"}})).steps("ADD"),
        flannel("delegate-ipam", &json!({"delegate": {"ipam": {}}})).steps("ADD"),
        flannel("delegate-type-number", &json!({"delegate": {"type": 7}})).steps("ADD"),
        flannel("delegate-list", &json!({"delegate": []})).steps("ADD"),
        flannel("ipam-list", &json!({"ipam": []})).steps("ADD"),
        flannel("routes-object", &json!({"ipam": {"routes": {}}})).steps("ADD DEL"),
        file("no-file", "nothing").steps("ADD DEL"),
        file("empty-file", "empty").steps("ADD DEL"),
        file("no-mtu", "no-mtu").steps("ADD DEL"),
        file("no-network", "no-cidr").steps("ADD DEL"),
        file("no-number", "no-number").steps("ADD DEL"),
        file("no-value", "no-value").steps("ADD DEL"),
        flannel("no-such-delegate", &json!({"delegate": {"type": "nothing"}})).steps("ADD DEL"),
        flannel("never-added", &json!({})).steps("DEL"),
    ]
}
