//! Cases of native plugins and Postern's plugins on one attachment: one side makes the attachment, and the other side
//! checks and deletes it.

use crate::{bridge, macvlan};
use postern_tests::{Case, merge};
use serde_json::{Value, json};

/// A script that makes an IPAM plugin which is not a component. Native plugins run it; Postern runs it only if policy
/// allows.
const SCRIPT_IPAM: &str = r#"mkdir -p /run/cni-bin
cat > /run/cni-bin/script-ipam <<'END'
#!/bin/sh
cat > /dev/null
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.9.0.42/24"}]}'
END
chmod +x /run/cni-bin/script-ipam"#;

/// All mixed cases.
pub fn cases() -> Vec<Case> {
    let networks: [(&str, &str, Value); 12] = [
        ("bridge", "bridge", json!({"isDefaultGateway": true})),
        ("bridge-l2", "bridge", json!({"ipam": null})),
        ("bridge-masq-nft", "bridge", json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables"})),
        ("bridge-masq-iptables", "bridge", json!({"isGateway": true, "ipMasq": true, "ipMasqBackend": "iptables"})),
        ("bridge-spoof", "bridge", json!({"isGateway": true, "macspoofchk": true})),
        (
            "bridge-dual",
            "bridge",
            json!({"isGateway": true, "ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]]}}),
        ),
        ("ptp", "ptp", json!({})),
        ("ptp-masq-nft", "ptp", json!({"ipMasq": true, "ipMasqBackend": "nftables"})),
        ("ptp-masq-iptables", "ptp", json!({"ipMasq": true, "ipMasqBackend": "iptables"})),
        ("macvlan", "macvlan", json!({"mac": null})),
        ("macvlan-l2", "macvlan", json!({"ipam": null, "mode": "private"})),
        ("host-local", "host-local", json!({})),
    ];
    let mut all = Vec::new();
    for (name, plugin, patch) in networks {
        let mut config = if plugin == "macvlan" { macvlan::base() } else { bridge::base() };
        merge(&mut config, &patch);
        let layer2 = name == "bridge-l2" || name == "macvlan-l2";
        let case = |what: &str, steps: &str| {
            // The native CHECK fails without IPAM.
            let steps = steps
                .split(' ')
                .filter(|step| !(name == "bridge-l2" && step.starts_with("CHECK")))
                .collect::<Vec<_>>()
                .join(" ");
            let case = Case::new(&format!("cross/{name}-{what}"), plugin, &config).steps(&steps);
            if plugin == "macvlan" { case.prepare(macvlan::MASTER) } else { case }
        };
        all.push(case("native-add", "ADD@native CHECK DEL DEL"));
        all.push(case("native-add-no-previous", "ADD@native DEL@noprev"));
        all.push(case("native-add-namespace-gone", "ADD@native KILL:c1 DEL"));
        all.push(case("native-del", "ADD CHECK@native DEL@native DEL@native"));
        if layer2 {
            // Without IPAM, the bridge's hardware address would be the lower of two random addresses.
            continue;
        }
        all.push(case("taking-turns", "ADD:c1@native ADD:c2 DEL:c1 ADD:c3@native DEL:c2@native DEL:c3"));
        if plugin != "host-local" {
            // A native main plugin calls our IPAM plugin, and our main plugin has only native plugins in `CNI_PATH`.
            all.push(case(
                "native-main-our-ipam",
                "ADD@native,other-ipam CHECK@native,other-ipam DEL@native,other-ipam",
            ));
            all.push(case("our-main-native-ipam", "ADD@other-ipam CHECK@other-ipam DEL@other-ipam"));
        }
    }
    let mut config = bridge::base();
    merge(&mut config, &json!({"ipam": {"type": "script-ipam"}}));
    all.push(
        Case::new("cross/foreign-native-ipam", "bridge", &config).prepare(SCRIPT_IPAM).env("CNI_PATH", "/run/cni-bin"),
    );
    all
}
