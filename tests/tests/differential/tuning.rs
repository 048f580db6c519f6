//! Cases of the tuning plugin. Instead of an earlier plugin in the list, the preparation makes the pair.

use postern_tests::{Case, merge};
use serde_json::{Value, json};

/// A script that makes the pairs of `c1` and `c2`, as an earlier plugin would.
const PREPARE: &str = "for c in c1 c2; do [ -e /run/netns/$c ] || continue
        ip link add port$c address 02:00:00:00:ee:0${c#c} type veth peer name eth0 address 02:00:00:00:ee:1${c#c} netns $c
        ip link set port$c up; ip -n $c link set eth0 up
    done";

fn base() -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "net", "type": "tuning",
        "prevResult": {
            "cniVersion": "1.0.0", "dns": {"nameservers": ["10.0.0.1"]}, "routes": [{"dst": "0.0.0.0/0"}],
            "interfaces": [{"name": "portc1", "mac": "02:00:00:00:ee:01"},
                           {"name": "eth0", "mac": "02:00:00:00:ee:11", "sandbox": "/run/netns/c1"}],
            "ips": [{"address": "10.9.0.2/24", "gateway": "10.9.0.1", "interface": 1}],
        },
    })
}

fn tuning(name: &str, patch: &Value) -> Case {
    let mut config = base();
    merge(&mut config, patch);
    Case::new(&format!("tuning/{name}"), "tuning", &config).prepare(PREPARE).fast()
}

/// Like `tuning`, but the keys are text, because a JSON value can't have a key twice.
fn written(name: &str, keys: &str) -> Case {
    let base = base().to_string();
    let text = format!("{{{keys},{}", base.strip_prefix('{').unwrap_or_default());
    Case::raw(&format!("tuning/{name}"), "tuning", &text).prepare(PREPARE).fast()
}

/// Like `tuning`, on a node with a private `/etc` that has this allow-list.
fn listed(name: &str, list: &str, patch: &Value) -> Case {
    let etc = format!(
        "mount -t tmpfs -o mode=755 etc /mnt
        cp -a /etc/alternatives /etc/passwd /etc/group /etc/protocols /etc/services /etc/iproute2 /mnt 2>/dev/null || true
        mkdir -p /mnt/cni/tuning; printf '{list}' > /mnt/cni/tuning/allowlist.conf; chmod 644 /mnt/cni/tuning/allowlist.conf
        mount --move /mnt /etc\n{PREPARE}"
    );
    tuning(name, patch).prepare(&etc)
}

/// All cases of tuning.
pub fn cases() -> Vec<Case> {
    let mac = json!({"mac": "02:00:00:00:00:aa"});
    let all = json!({"mac": "02:00:00:00:00:aa", "mtu": 1400, "promisc": true, "allmulti": true, "txQLen": 77,
        "sysctl": {"net.core.somaxconn": "500", "net.ipv4.conf.IFNAME.arp_filter": "1"}});
    let set = |key: &str, value: &str| json!({"sysctl": {key: value}});
    let args = |keys: &Value| {
        let mut patch = json!({"mac": "02:00:00:00:00:01", "runtimeConfig": {"mac": "02:00:00:00:00:03"}});
        merge(&mut patch, &json!({"args": {"cni": keys}}));
        patch
    };
    let mut cases = vec![
        tuning("nothing", &json!({})),
        tuning("all", &all),
        tuning("mac", &mac),
        tuning("mac-of-a-group", &json!({"mac": "01:00:00:00:00:aa"})).steps("ADD DEL"),
        tuning("mac-zero", &json!({"mac": "00:00:00:00:00:00"})).steps("ADD DEL"),
        tuning("mac-malformed", &json!({"mac": "x"})).steps("ADD DEL"),
        tuning("mac-upper-case", &json!({"mac": "02:00:00:00:00:AA"})),
        tuning("mac-empty", &json!({"mac": ""})),
        tuning("mac-by-variable", &json!({"mac": "02:00:00:00:00:01"})).args("MAC=02:00:00:00:00:02"),
        tuning("mac-by-runtime", &args(&json!({}))).args("MAC=02:00:00:00:00:02"),
        tuning("mac-by-args", &args(&json!({"mac": "02:00:00:00:00:04"}))).args("MAC=02:00:00:00:00:02"),
        tuning("variable-unknown", &mac).args("IP=1").steps("ADD CHECK"),
        tuning("variable-ignored", &mac).args("IgnoreUnknown=1;IP=1"),
        tuning("mtu", &json!({"mtu": 1400})),
        tuning("mtu-zero", &json!({"mtu": 0})),
        tuning("mtu-too-small", &json!({"mtu": 5})).steps("ADD DEL"),
        tuning("mtu-too-large", &json!({"mtu": 70000})).steps("ADD DEL"),
        tuning("mtu-negative", &json!({"mtu": -5})).steps("ADD DEL"),
        tuning("promisc", &json!({"promisc": true})),
        tuning("promisc-false", &json!({"promisc": false})),
        tuning("promisc-false-check", &json!({"promisc": false})).broken("ip -n c1 link set eth0 promisc on").steps("ADD BREAK CHECK DEL"),
        tuning("allmulti", &json!({"allmulti": true})),
        tuning("allmulti-false", &json!({"allmulti": false})),
        tuning("allmulti-off", &json!({"allmulti": false})).prepare(&format!("{PREPARE}; ip -n c1 link set eth0 allmulticast on")),
        tuning("queue-length", &json!({"txQLen": 77})),
        tuning("queue-length-zero", &json!({"txQLen": 0})),
        tuning("args-each", &args(&json!({"mtu": 1300, "promisc": true, "allmulti": false, "txQLen": 9, "sysctl": {"net.core.somaxconn": "400"}})))
            .steps("ADD CHECK DEL"),
        tuning("args-sysctl-merged", &json!({"sysctl": {"net.core.somaxconn": "500", "net.ipv4.ip_forward": "1"},
            "args": {"cni": {"sysctl": {"net.core.somaxconn": "400"}}}})),
        tuning("args-sysctl-alone", &json!({"args": {"cni": {"sysctl": {"net.core.somaxconn": "400"}}}})),
        tuning("args-promisc-false", &json!({"promisc": true, "args": {"cni": {"promisc": false}}})),
        tuning("sysctl", &set("net.core.somaxconn", "500")),
        tuning("sysctl-slashes", &set("net/ipv4/ip_forward", "1")),
        tuning("sysctl-own-link", &set("net.ipv4.conf.eth0.arp_filter", "1")),
        tuning("sysctl-own-link-by-placeholder", &set("net.ipv4.conf.IFNAME.arp_filter", "1")),
        tuning("sysctl-all-links", &json!({"sysctl": {"net.ipv4.conf.all.arp_ignore": "1", "net.ipv4.conf.default.arp_ignore": "1", "net.ipv4.conf.lo.arp_ignore": "1"}})),
        tuning("sysctl-numbers", &set("net.ipv4.ip_local_port_range", "2000 3000")),
        tuning("sysctl-write-only", &set("net.ipv4.route.flush", "1")).steps("ADD DEL"),
        tuning("sysctl-placeholder-twice", &set("net.ipv4.conf.IFNAME.IFNAME", "1")).steps("ADD DEL"),
        tuning("sysctl-absent", &set("net.ipv4.no_such_key", "1")).steps("ADD CHECK"),
        tuning("sysctl-of-the-kernel", &set("kernel.hostname", "x")).steps("ADD"),
        tuning("sysctl-directory", &set("net.ipv4", "1")).steps("ADD"),
        tuning("sysctl-net", &set("net", "1")).steps("ADD"),
        tuning("sysctl-empty-key", &set("", "1")).steps("ADD"),
        tuning("sysctl-empty-parts", &set("net..ipv4.ip_forward", "1")).steps("ADD"),
        tuning("sysctl-elsewhere", &set("net/../kernel/hostname", "x")).steps("ADD"),
        tuning("sysctl-shared", &set("net.core.rmem_max", "1")).steps("ADD"),
        tuning("sysctl-other-link", &set("net.ipv4.conf.eth1.arp_filter", "1"))
            .prepare(&format!("{PREPARE}; ip -n c1 link add eth1 type veth peer name eth9"))
            .steps("ADD"),
        tuning("sysctl-bad-value", &json!({"sysctl": {"net.core.somaxconn": "500", "net.ipv4.ip_forward": "x"}, "mtu": 1400})).steps("ADD DEL"),
        tuning("sysctl-empty-value", &set("net.ipv4.ip_forward", "")).steps("ADD DEL"),
        tuning("sysctl-check", &set("net.core.somaxconn", "500")).broken("nsenter --net=/run/netns/c1 sysctl -qw net.core.somaxconn=1").steps("ADD BREAK CHECK DEL"),
        written("sysctl-twice", r#""sysctl":{"net.ipv4.ip_forward":"1","net.ipv4.ip_forward":"0"}"#).steps("ADD CHECK"),
        tuning("type-mtu", &json!({"mtu": "1"})).steps("ADD CHECK DEL"),
        tuning("type-promisc", &json!({"promisc": 1})).steps("ADD"),
        tuning("type-sysctl", &json!({"sysctl": 7})).steps("ADD"),
        tuning("type-sysctl-value", &json!({"sysctl": {"net.ipv4.ip_forward": 1}})).steps("ADD"),
        tuning("type-args-sysctl", &json!({"args": {"cni": {"sysctl": 7}}})).steps("ADD"),
        tuning("type-args-mtu", &json!({"args": {"cni": {"mtu": "x"}}})).steps("ADD"),
        tuning("spelling-of-keys", &json!({"MTU": 1400, "TXQLEN": 5, "AllMulti": true})),
        tuning("data-directory", &json!({"mtu": 1400, "dataDir": "/var/lib/tuned"})).steps("ADD CHECK DEL"),
        tuning("no-link", &json!({"mtu": 1400})).prepare("true").steps("ADD CHECK DEL"),
        tuning("no-link-sysctl", &set("net.core.somaxconn", "500")).prepare("true").steps("ADD DEL"),
        tuning("previous-missing", &json!({"mtu": 1400, "prevResult": null})).steps("ADD CHECK DEL"),
        tuning("del-without-previous", &all).steps("ADD DEL@noprev"),
        tuning("del-unknown", &all).steps("DEL"),
        tuning("namespace-gone", &all).broken("sleep 1").steps("ADD KILL:c1 BREAK DEL"),
        tuning("empty-namespace", &json!({"mtu": 1400})).steps("ADD DEL@emptyns DEL"),
        tuning("repeated-add", &json!({"mtu": 1400})).steps("ADD ADD CHECK DEL DEL"),
        tuning("twice-in-a-list", &json!({"mtu": 1400})).changed(json!({"mtu": 1300, "txQLen": 5})).steps("ADD ADD@changed CHECK@changed DEL@changed DEL"),
        tuning("two-containers", &json!({"mtu": 1400, "prevResult": {"interfaces": null, "ips": null}})).steps("ADD:c1 ADD:c2 DEL:c1 CHECK:c2 DEL:c2"),
        tuning("changed-meanwhile", &all).broken("ip -n c1 link set eth0 mtu 1200 promisc off address 02:00:00:00:00:77").steps("ADD BREAK CHECK DEL"),
        tuning("removed-by-native", &all).steps("ADD CHECK@native DEL@native"),
        tuning("made-by-native", &all).steps("ADD@native CHECK DEL"),
        tuning("made-by-native-removed-twice", &all).steps("ADD@native DEL DEL"),
        listed("list-allows", "^net\\\\.core\\\\.somaxconn$\\n", &set("net.core.somaxconn", "500")),
        listed("list-is-unanchored", "  somax  \\n\\n", &set("net.core.somaxconn", "500")),
        listed("list-refuses", "^net\\\\.ipv4\\\\.conf\\\\.IFNAME\\\\.[a-z_]*$\\nx{2,3}\\n", &set("net.core.somaxconn", "500")),
        listed("list-before-placeholder", "^net\\\\.ipv4\\\\.conf\\\\.IFNAME\\\\.[a-z_]*$\\n", &set("net.ipv4.conf.IFNAME.arp_filter", "1")),
        listed("list-after-placeholder", "conf\\\\.eth0\\\\.", &set("net.ipv4.conf.IFNAME.arp_filter", "1")).steps("ADD DEL"),
        listed("list-empty", "", &set("net.core.somaxconn", "500")).steps("ADD DEL"),
        listed("list-empty-no-sysctl", "", &json!({"mtu": 1400})),
        listed("list-malformed", "[\\n", &set("net.core.somaxconn", "500")).steps("ADD"),
        listed("list-malformed-later", "somax\\n[\\n", &set("net.core.somaxconn", "500")).steps("ADD DEL"),
        listed("list-not-for-check", "x\\n", &set("net.core.somaxconn", "4096")).steps("CHECK DEL"),
        tuning("status", &json!({"cniVersion": "1.1.0", "mtu": 1400, "prevResult": {"cniVersion": "1.1.0"}})).steps("STATUS ADD GC DEL"),
    ];
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let previous = match version {
            "0.1.0" | "0.2.0" => {
                json!({"cniVersion": version, "interfaces": null, "ips": null, "routes": null, "ip4": {"ip": "10.9.0.2/24"}})
            }
            "0.3.0" | "0.3.1" | "0.4.0" => {
                json!({"cniVersion": version, "ips": [{"version": "4", "address": "10.9.0.2/24", "interface": 1}]})
            }
            _ => json!({"cniVersion": version}),
        };
        let patch = json!({"cniVersion": version, "mac": "02:00:00:00:00:aa", "mtu": 1400, "prevResult": previous});
        cases.push(tuning(&format!("version-{version}"), &patch).steps("ADD CHECK DEL STATUS GC VERSION"));
    }
    cases
}
