//! Cases of the firewall plugin with iptables. Instead of an earlier plugin in the list, the preparation makes a pair
//! on a bridge. The operator's policy allows the addresses of `prevResult`.

use postern_tests::{Case, merge};
use serde_json::{Value, json};

/// A script that makes a private `/etc` with the operator's policy, and bridge `br9` with the pair of `c1`.
const PREPARE: &str = "
    mount -t tmpfs -o mode=755 etc /mnt
    cp -a /etc/alternatives /etc/passwd /etc/group /etc/protocols /etc/services /etc/iproute2 /mnt 2>/dev/null || true
    mkdir -p /mnt/postern/policy
    printf '[previous]\\naddresses = [\"10.9.0.0/16\", \"fd00:9::/32\"]\\n' > /mnt/postern/policy/firewall.toml
    mount --move /mnt /etc
    ip link add br9 address 02:00:00:00:ee:01 type bridge; ip link set br9 up
    ip link add port9 address 02:00:00:00:ee:02 type veth peer name eth0 address 02:00:00:00:ee:03 netns c1
    ip link set port9 master br9 up";

fn base() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "net", "type": "firewall",
        "prevResult": {
            "cniVersion": "1.0.0", "dns": {"nameservers": ["10.0.0.1"]}, "routes": [{"dst": "0.0.0.0/0"}],
            "interfaces": [{"name": "br9", "mac": "02:00:00:00:ee:01"}, {"name": "port9"},
                           {"name": "eth0", "mac": "02:00:00:00:ee:03", "sandbox": "/run/netns/c1"}],
            "ips": [{"address": "10.9.0.2/24", "gateway": "10.9.0.1", "interface": 2}, {"address": "fd00:9::2/64", "interface": 2}],
        },
    })
}

fn firewall(name: &str, patch: &Value) -> Case {
    let mut config = base();
    merge(&mut config, patch);
    Case::new(&format!("firewall/{name}"), "firewall", &config).prepare(PREPARE).fast()
}

/// All cases of firewall.
pub fn cases() -> Vec<Case> {
    let v4 = json!({"prevResult": {"ips": [{"address": "10.9.0.2/24", "interface": 2}]}});
    let v6 = json!({"prevResult": {"ips": [{"address": "fd00:9::2/64", "interface": 2}]}});
    let prepared =
        |name: &str, patch: &Value, script: &str| firewall(name, patch).prepare(&format!("{PREPARE}\n{script}"));
    let many: Vec<Value> = (2..40).map(|host| json!({"address": format!("10.9.0.{host}/24")})).collect();
    let mut all = vec![
        firewall("plain", &json!({})),
        firewall("v4", &v4),
        firewall("v6", &v6),
        firewall("no-address", &json!({"prevResult": {"ips": null}})),
        firewall("no-address-isolated", &json!({"ingressPolicy": "isolated", "prevResult": {"ips": null}})),
        firewall("many-addresses", &json!({"prevResult": {"ips": many}})),
        firewall("an-address-twice", &json!({"prevResult": {"ips": [{"address": "10.9.0.2/24"}, {"address": "10.9.0.2/24"}]}})),
        firewall("repeated-add", &json!({"ingressPolicy": "isolated"})).steps("ADD ADD CHECK DEL"),
        firewall("backend-iptables", &json!({"backend": "iptables"})),
        firewall("backend-unknown", &json!({"backend": "nftables"})),
        firewall("backend-empty", &json!({"backend": ""})),
        firewall("backend-firewalld-absent", &json!({"backend": "firewalld"})).steps("ADD CHECK DEL"),
        firewall("admin-chain", &json!({"iptablesAdminChainName": "SITE-RULES"})),
        firewall("admin-chain-empty", &json!({"iptablesAdminChainName": ""})),
        firewall("admin-chain-changed", &json!({})).changed(json!({"iptablesAdminChainName": "SITE-RULES"})).steps("ADD CHECK@changed ADD@changed CHECK@changed DEL"),
        firewall("admin-chain-of-the-kernel", &json!({"iptablesAdminChainName": "INPUT"})).steps("ADD DEL"),
        prepared("admin-chain-of-another", &json!({"iptablesAdminChainName": "KUBE-FORWARD"}), "iptables -N KUBE-FORWARD; ip6tables -N KUBE-FORWARD").steps("ADD DEL"),
        firewall("zone-without-firewalld", &json!({"firewalldZone": "internal"})),
        firewall("previous-missing", &json!({"prevResult": null})).steps("ADD CHECK DEL"),
        firewall("check-without-previous", &json!({})).steps("ADD CHECK@noprev DEL"),
        firewall("del-without-previous", &json!({})).steps("ADD DEL@noprev DEL@noprev"),
        firewall("del-unknown", &json!({})).steps("DEL"),
        firewall("namespace-gone", &json!({})).steps("ADD KILL:c1 DEL"),
        firewall("empty-namespace", &json!({})).steps("ADD DEL@emptyns DEL"),
        firewall("check-rule-gone", &v4).broken("iptables -D CNI-FORWARD -s 10.9.0.2 -j ACCEPT").steps("ADD BREAK CHECK DEL"),
        firewall("check-answers-gone", &v4).broken("iptables -D CNI-FORWARD 2").steps("ADD BREAK CHECK DEL"),
        firewall("check-jump-gone", &v4).broken("iptables -F FORWARD").steps("ADD BREAK CHECK DEL"),
        firewall("check-admin-jump-gone", &v4).broken("iptables -D CNI-FORWARD 1").steps("ADD BREAK CHECK DEL"),
        firewall("check-all-gone", &json!({})).broken("nft flush ruleset").steps("ADD BREAK CHECK DEL ADD CHECK DEL"),
        firewall("ingress-unknown", &json!({"ingressPolicy": "closed"})).steps("ADD DEL"),
        firewall("ingress-unknown-del", &json!({})).changed(json!({"ingressPolicy": "closed"})).steps("ADD CHECK@changed DEL@changed"),
        firewall("ingress-no-interface", &json!({"ingressPolicy": "isolated", "prevResult": {"interfaces": null, "ips": [{"address": "10.9.0.2/24", "interface": null}]}})).steps("ADD DEL"),
        firewall("ingress-no-name", &json!({"ingressPolicy": "isolated", "prevResult": {"interfaces": [{"name": ""}], "ips": [{"address": "10.9.0.2/24", "interface": null}]}})).steps("ADD DEL"),
        firewall("ingress-no-bridge", &json!({"ingressPolicy": "isolated", "prevResult": {"interfaces": [{"name": "port9"}]}})).steps("ADD DEL"),
        firewall("ingress-tightened", &json!({"ingressPolicy": "same-bridge"})).changed(json!({"ingressPolicy": "isolated"})).steps("ADD CHECK DEL ADD@changed CHECK@changed DEL@changed"),
        firewall("ingress-loosened", &json!({"ingressPolicy": "isolated"})).changed(json!({"ingressPolicy": "same-bridge"})).steps("ADD DEL ADD@changed DEL@changed"),
        prepared("rules-of-others", &json!({"ingressPolicy": "isolated"}), "iptables -A FORWARD -s 10.9.0.2 -j ACCEPT; iptables -N CNI-FORWARD; iptables -A CNI-FORWARD -s 10.9.0.9 -j ACCEPT"),
        firewall("config-type", &json!({"backend": 7})).steps("ADD CHECK"),
        firewall("config-type-ingress", &json!({"ingressPolicy": true})).steps("ADD CHECK"),
        firewall("spelling-of-keys", &json!({"Backend": "iptables", "INGRESSPOLICY": "same-bridge", "iptablesadminchainname": "SITE"})),
        firewall("status", &json!({"cniVersion": "1.1.0", "prevResult": {"cniVersion": "1.1.0"}})).steps("STATUS ADD GC DEL"),
        firewall("native-add-ours-del", &json!({"ingressPolicy": "isolated"})).steps("ADD@native CHECK DEL"),
        firewall("ours-add-native-del", &json!({"ingressPolicy": "same-bridge"})).steps("ADD CHECK@native DEL@native"),
        firewall("native-and-ours", &json!({"ingressPolicy": "isolated"})).steps("ADD@native ADD CHECK DEL"),
    ];
    for policy in ["", "open", "same-bridge", "isolated"] {
        all.push(firewall(&format!("ingress-{policy}"), &json!({"ingressPolicy": policy})));
    }
    for version in ["", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let patch = json!({"cniVersion": version, "prevResult": {"cniVersion": version}});
        all.push(firewall(&format!("version-{version}"), &patch).steps("ADD CHECK DEL STATUS GC VERSION"));
    }
    all
}
