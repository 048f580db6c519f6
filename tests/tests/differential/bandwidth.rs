//! Cases of the bandwidth plugin. Instead of an earlier plugin in the list, the preparation makes a pair on a bridge.
//! The operator's policy allows the pair's host end.

use postern_tests::{Case, merge};
use serde_json::{Value, json};

/// A script that makes a private `/etc` with the operator's policy, and the pair of `c1`.
const PREPARE: &str = "
    mount -t tmpfs -o mode=755 etc /mnt
    cp -a /etc/alternatives /etc/passwd /etc/group /etc/protocols /etc/services /etc/iproute2 /mnt 2>/dev/null || true
    mkdir -p /mnt/postern/policy
    printf '[previous]\\nnames = [\"port9\"]\\n' > /mnt/postern/policy/bandwidth.toml
    mount --move /mnt /etc
    ip link add port9 address 02:00:00:00:ee:02 mtu 1400 numtxqueues 1 numrxqueues 1 type veth \
        peer name eth0 address 02:00:00:00:ee:03 numtxqueues 1 numrxqueues 1 netns c1
    ip link set port9 up; ip -n c1 link set eth0 up";

fn base() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "net", "type": "bandwidth",
        "ingressRate": 1_000_000, "ingressBurst": 100_000, "egressRate": 2_000_000, "egressBurst": 400_000,
        "prevResult": {
            "cniVersion": "1.0.0", "dns": {"nameservers": ["10.0.0.1"]}, "routes": [{"dst": "0.0.0.0/0"}],
            "interfaces": [{"name": "br9", "mac": "02:00:00:00:ee:01"}, {"name": "port9"},
                           {"name": "eth0", "mac": "02:00:00:00:ee:03", "sandbox": "/run/netns/c1"}],
            "ips": [{"address": "10.9.0.2/24", "gateway": "10.9.0.1", "interface": 2}],
        },
    })
}

fn bandwidth(name: &str, patch: &Value) -> Case {
    let mut config = base();
    merge(&mut config, patch);
    Case::new(&format!("bandwidth/{name}"), "bandwidth", &config).prepare(PREPARE).fast()
}

/// Returns `patch`, and removes the rates of the base configuration.
fn bare(patch: &Value) -> Value {
    let mut all = json!({"ingressRate": null, "ingressBurst": null, "egressRate": null, "egressBurst": null});
    merge(&mut all, patch);
    all
}

/// All cases of bandwidth.
pub fn cases() -> Vec<Case> {
    let ingress = bare(&json!({"ingressRate": 8_000_000, "ingressBurst": 80_000}));
    let egress = bare(&json!({"egressRate": 8_000_000, "egressBurst": 80_000}));
    let runtime = |limits: Value| bare(&json!({"runtimeConfig": {"bandwidth": limits}}));
    let prepared =
        |name: &str, patch: &Value, script: &str| bandwidth(name, patch).prepare(&format!("{PREPARE}\n{script}"));
    let mut all = vec![
        bandwidth("both", &json!({})),
        bandwidth("ingress", &ingress),
        bandwidth("egress", &egress),
        bandwidth(
            "runtime",
            &runtime(json!({"ingressRate": 8000, "ingressBurst": 16000, "egressRate": 80_000, "egressBurst": 160_000})),
        ),
        bandwidth("runtime-one-direction", &runtime(json!({"egressRate": 80_000, "egressBurst": 160_000}))),
        bandwidth(
            "runtime-and-configuration",
            &json!({"runtimeConfig": {"bandwidth": {"ingressRate": 8, "ingressBurst": 8}}}),
        ),
        bandwidth("runtime-empty", &runtime(json!({}))),
        bandwidth("no-limits", &bare(&json!({}))),
        bandwidth("no-limits-no-result", &bare(&json!({"prevResult": null}))).steps("ADD DEL"),
        bandwidth("zero", &json!({"ingressRate": 0, "ingressBurst": 0, "egressRate": 0, "egressBurst": 0})),
        bandwidth("one-zero", &json!({"ingressRate": 0, "ingressBurst": 0})),
        bandwidth("rate-alone", &bare(&json!({"ingressRate": 8000}))).steps("ADD CHECK DEL"),
        bandwidth("burst-alone", &bare(&json!({"egressBurst": 8000}))).steps("ADD CHECK DEL"),
        bandwidth("burst-above-the-bound", &json!({"ingressBurst": 34_359_738_360_u64})).steps("ADD CHECK DEL"),
        bandwidth(
            "burst-at-the-bound",
            &json!({"ingressBurst": 34_359_738_352_u64, "ingressRate": 1_000_000_000_000_u64}),
        ),
        bandwidth("rate-of-64-bits", &json!({"ingressRate": 80_000_000_000_u64, "ingressBurst": 8_000_000})),
        bandwidth("spelling-of-keys", &bare(&json!({"IngressRate": 8000, "INGRESSBURST": 16_000}))),
        bandwidth("config-type", &json!({"ingressRate": "8000"})).steps("ADD CHECK DEL"),
        bandwidth("config-negative", &json!({"ingressRate": -8})).steps("ADD CHECK DEL"),
        bandwidth("config-fraction", &json!({"egressBurst": 8.5})).steps("ADD CHECK DEL"),
        bandwidth("previous-missing", &json!({"prevResult": null})).steps("ADD CHECK DEL"),
        bandwidth("previous-without-interfaces", &json!({"prevResult": {"interfaces": null, "ips": null}}))
            .steps("ADD CHECK DEL"),
        bandwidth(
            "previous-without-host-end",
            &json!({"prevResult": {"interfaces": [{"name": "eth0", "sandbox": "/run/netns/c1"}], "ips": null}}),
        )
        .steps("ADD CHECK DEL"),
        bandwidth(
            "host-end-in-a-sandbox",
            &json!({"prevResult": {"interfaces": [{"name": "port9", "sandbox": "/run/netns/c2"}], "ips": null}}),
        )
        .steps("ADD CHECK DEL"),
        bandwidth("check-without-previous", &json!({})).steps("ADD CHECK@noprev DEL"),
        bandwidth("del-without-previous", &json!({})).steps("ADD DEL@noprev DEL@noprev"),
        bandwidth("del-unknown", &json!({})).steps("DEL"),
        bandwidth("del-of-an-impossible-configuration", &json!({}))
            .changed(json!({"ingressBurst": 0}))
            .steps("ADD DEL@changed"),
        bandwidth("repeated-add", &json!({})).steps("ADD ADD CHECK DEL DEL"),
        bandwidth("other-rates", &json!({})).changed(json!({"ingressRate": 3_000_000})).steps("ADD CHECK@changed DEL"),
        bandwidth("namespace-gone", &json!({})).steps("ADD KILL:c1 DEL"),
        bandwidth("empty-namespace", &json!({})).steps("ADD DEL@emptyns DEL"),
        bandwidth("check-root-gone", &ingress).broken("tc qdisc del dev port9 root").steps("ADD BREAK CHECK DEL"),
        bandwidth("check-ifb-gone", &egress)
            .broken("ip link del $(ip -br link show type ifb | grep -o 'bwp[0-9a-f]*')")
            .steps("ADD BREAK CHECK DEL"),
        bandwidth("check-rate-changed", &ingress)
            .broken("tc qdisc replace dev port9 root handle 1: tbf rate 5mbit burst 10000 latency 25ms")
            .steps("ADD BREAK CHECK DEL"),
        prepared("root-of-another", &json!({}), "tc qdisc add dev port9 root handle 5: htb").steps("ADD DEL"),
        prepared("ingress-of-another", &json!({}), "tc qdisc add dev port9 ingress").steps("ADD DEL"),
        prepared("clsact-of-another", &json!({}), "tc qdisc add dev port9 clsact").steps("ADD DEL"),
        prepared("no-veth", &json!({}), "ip -n c1 link del eth0; ip -n c1 link add eth0 type ifb")
            .steps("ADD CHECK DEL"),
        prepared("no-link", &json!({}), "ip -n c1 link del eth0").steps("ADD CHECK DEL"),
        prepared(
            "peer-in-the-container",
            &json!({}),
            "ip -n c1 link del eth0; ip -n c1 link add eth0 type veth peer name eth1",
        )
        .steps("ADD DEL"),
        bandwidth("status", &json!({"cniVersion": "1.1.0", "prevResult": {"cniVersion": "1.1.0"}}))
            .steps("STATUS ADD GC DEL"),
        bandwidth("native-add-ours-del", &json!({})).steps("ADD@native CHECK DEL"),
        bandwidth("ours-add-native-del", &json!({})).steps("ADD CHECK@native DEL@native"),
        bandwidth("ours-add-native-check-ours-del", &json!({})).steps("ADD CHECK@native DEL"),
    ];
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let patch = json!({"cniVersion": version, "prevResult": {"cniVersion": version}});
        all.push(bandwidth(&format!("version-{version}"), &patch).steps("ADD CHECK DEL STATUS GC VERSION"));
    }
    all
}
