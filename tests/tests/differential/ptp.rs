//! Cases of the ptp and loopback plugins.

use postern_tests::{Case, merge};
use serde_json::{Value, json};

/// Returns a case `ptp/NAME`: one IPv4 range, changed by a merge patch, without duplicate address detection.
fn ptp(name: &str, patch: &Value) -> Case {
    let mut config = json!({
        "cniVersion": "1.0.0", "name": "net", "type": "ptp",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    });
    merge(&mut config, patch);
    Case::new(&format!("ptp/{name}"), "ptp", &config).fast()
}

fn loopback(name: &str, patch: &Value) -> Case {
    let mut config = json!({"cniVersion": "1.0.0", "name": "lo", "type": "loopback"});
    merge(&mut config, patch);
    Case::new(&format!("loopback/{name}"), "loopback", &config)
}

/// All cases of ptp and loopback.
pub fn cases() -> Vec<Case> {
    let v6 = json!({"ipam": {"ranges": [[{"subnet": "fd00:9::/64"}]], "routes": [{"dst": "::/0"}]}});
    let dual = json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}});
    let with = |base: &Value, patch: Value| {
        let mut config = base.clone();
        merge(&mut config, &patch);
        config
    };
    let mut all = vec![
        ptp("plain", &json!({})),
        ptp("v6", &v6),
        ptp("dual", &dual),
        {
            let mut config = json!({"cniVersion": "1.0.0", "name": "net", "type": "ptp"});
            merge(&mut config, &with(&dual, json!({"ipam": {"type": "host-local"}})));
            Case::new("ptp/dual-with-dad", "ptp", &config)
        },
        ptp("check-no-host-route", &json!({})).broken("ip route delete 10.9.0.2").steps("ADD CHECK BREAK CHECK DEL"),
        ptp("check-no-gateway", &json!({})).broken("for link in $(ip -o link show type veth | sed 's/^[0-9]*: \\([^@]*\\)@.*/\\1/'); do ip address delete 10.9.0.1/32 dev $link; done").steps("ADD CHECK BREAK CHECK DEL"),
        ptp("two-containers", &json!({})).steps("ADD:c1 ADD:c2 CHECK:c1 DEL:c1 CHECK:c2 DEL:c2"),
        ptp("two-interfaces", &json!({"ipam": {"routes": []}})).steps("ADD:c1/eth0 ADD:c1/eth1 DEL:c1/eth1 DEL:c1/eth0"),
        ptp("repeated-add", &json!({})).steps("ADD ADD CHECK DEL"),
        ptp("no-routes", &json!({"ipam": {"routes": null}})),
        ptp("mtu", &json!({"mtu": 1400})),
        ptp("mtu-text", &json!({"mtu": "1400"})).steps("ADD DEL"),
        ptp("dns", &json!({"dns": {"nameservers": ["10.0.0.1"], "search": ["x"]}})),
        ptp("masq-nft", &json!({"ipMasq": true, "ipMasqBackend": "nftables"})),
        ptp("masq-nft-dual", &with(&dual, json!({"ipMasq": true, "ipMasqBackend": "nftables"}))),
        ptp("masq-iptables", &json!({"ipMasq": true, "ipMasqBackend": "iptables"})),
        ptp("masq-iptables-dual", &with(&dual, json!({"ipMasq": true, "ipMasqBackend": "iptables"}))),
        ptp("masq-unknown", &json!({"ipMasq": true, "ipMasqBackend": "pf"})).steps("ADD DEL"),
        ptp("masq-namespace-gone", &json!({"ipMasq": true, "ipMasqBackend": "nftables"})).steps("ADD KILL:c1 DEL"),
        ptp("no-ipam", &json!({"ipam": null})).steps("ADD CHECK DEL"),
        ptp("no-ipam-status", &json!({"cniVersion": "1.1.0", "ipam": null})).steps("STATUS"),
        ptp("status", &json!({"cniVersion": "1.1.0"})).steps("STATUS ADD GC DEL"),
        ptp("ipam-missing", &json!({"ipam": {"type": "nonexistent"}})).steps("ADD DEL"),
        ptp("one-gateway-twice", &json!({"ipam": {"type": "static", "ranges": null, "addresses": [
            {"address": "10.9.0.7/24", "gateway": "10.9.0.1"}, {"address": "10.9.0.8/24", "gateway": "10.9.0.1"}]}}))
        .steps("ADD DEL"),
        ptp("no-gateway", &json!({"ipam": {"type": "static", "ranges": null, "routes": [], "addresses": [{"address": "10.9.0.7/24"}]}})).steps("ADD DEL"),
        ptp("host-prefix", &json!({"ipam": {"type": "static", "ranges": null, "routes": [], "addresses": [{"address": "10.9.0.7/32", "gateway": "10.9.0.1"}]}})).steps("ADD DEL"),
        ptp("no-address", &json!({"ipam": {"type": "static", "ranges": null}})).steps("ADD DEL"),
        ptp("conventional-keys", &json!({"args": {"cni": {"labels": [{"key": "app", "value": "a"}]}}, "runtimeConfig": {"dns": {"servers": ["1.1.1.1"], "searches": ["a.b"]}}})),
        ptp("args-are-ignored", &json!({})).args("IgnoreUnknown=1;FOO=bar;MAC=zz"),
        ptp("namespace-gone", &json!({})).steps("ADD KILL:c1 DEL DEL@emptyns"),
        ptp("del-empty-netns", &json!({})).steps("ADD DEL@emptyns DEL"),
        ptp("del-without-previous", &json!({})).steps("ADD DEL@noprev DEL@noprev"),
        ptp("del-unknown", &json!({})).steps("DEL"),
        ptp("check-without-previous", &json!({})).steps("ADD CHECK@noprev DEL"),
        ptp("interface-exists", &json!({})).prepare("nsenter --net=/run/netns/c1 ip link add name eth0 type ifb").steps("ADD DEL"),
        loopback("addresses-changed", &json!({})).prepare("nsenter --net=/run/netns/c1 ip addr add 127.0.0.5/8 dev lo"),
        loopback("already-up", &json!({})).prepare("nsenter --net=/run/netns/c1 ip link set lo up"),
        loopback("any-interface-name", &json!({})).steps("ADD:c1/lo CHECK:c1/lo DEL:c1/lo"),
        loopback("check-down", &json!({})).steps("CHECK@noprev"),
        loopback("namespace-gone", &json!({})).steps("ADD KILL:c1 DEL DEL@emptyns"),
        loopback("previous-result", &json!({"prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/x", "mtu": 5}],
            "ips": [{"address": "10.1.2.3/24", "interface": 0, "gateway": "10.1.2.1"}], "routes": [{"dst": "0.0.0.0/0"}], "dns": {"nameservers": ["1.2.3.4"]}, "other": 1}})),
        loopback("previous-result-0.4.0", &json!({"cniVersion": "0.4.0", "prevResult": {"cniVersion": "0.4.0", "interfaces": [{"name": "eth0"}],
            "ips": [{"version": "4", "address": "10.1.2.3/24", "interface": 0}], "routes": []}})).steps("ADD DEL"),
        loopback("previous-result-other-family", &json!({"prevResult": {"cniVersion": "0.4.0"}})).steps("ADD DEL"),
        loopback("previous-result-no-version", &json!({"prevResult": {"ips": [{"address": "10.1.2.3/24"}]}})).steps("ADD DEL"),
        loopback("previous-result-null", &json!({})).steps("ADD DEL"),
        loopback("status-gc", &json!({"cniVersion": "1.1.0"})).steps("STATUS GC ADD STATUS DEL"),
    ];
    for version in ["", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        all.push(
            loopback(&format!("version-{version}"), &json!({"cniVersion": version}))
                .steps("ADD CHECK DEL STATUS GC VERSION"),
        );
        all.push(
            ptp(&format!("version-{version}"), &with(&dual, json!({"cniVersion": version})))
                .steps("ADD CHECK DEL STATUS GC VERSION"),
        );
    }
    all
}
