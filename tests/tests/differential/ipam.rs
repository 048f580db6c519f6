//! Cases of the IPAM plugins, called directly.

use postern_tests::{Case, merge};
use serde_json::{Value, json};

/// Returns a case `host-local/NAME`. The patch changes the key `ipam`.
fn host_local(name: &str, ipam: &Value) -> Case {
    host_local_with(name, &json!({"ipam": ipam}))
}

/// Returns a case `host-local/NAME`. The patch changes the whole configuration.
fn host_local_with(name: &str, patch: &Value) -> Case {
    let mut config = json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge", "ipam": {"type": "host-local"}});
    merge(&mut config, patch);
    Case::new(&format!("host-local/{name}"), "host-local", &config)
}

fn fixed(name: &str, patch: &Value) -> Case {
    let mut config = json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge", "ipam": {"type": "static"}});
    merge(&mut config, patch);
    Case::new(&format!("static/{name}"), "static", &config)
}

/// All cases of host-local and static.
pub fn cases() -> Vec<Case> {
    let subnet = json!({"ranges": [[{"subnet": "10.9.0.0/24"}]]});
    let small = json!({"ranges": [[{"subnet": "10.9.0.0/29"}]]});
    let with = |base: &Value, patch: Value| {
        let mut config = base.clone();
        merge(&mut config, &patch);
        config
    };
    let many = "ADD:c1 ADD:c2 ADD:c3 DEL:c2 ADD:c4 CHECK:c1 DEL:c1 DEL:c3 DEL:c4 ADD:c1 DEL:c1";
    let mut all = vec![
        host_local("plain", &subnet),
        host_local("round-robin", &subnet).steps(many),
        host_local("exhausted", &small).steps("ADD:c1 ADD:c2 ADD:c3 ADD:c4 ADD:c5 ADD:c6 ADD:c7 DEL:c3 ADD:c7 DEL:c1 DEL:c2 DEL:c7"),
        host_local("smallest", &json!({"ranges": [[{"subnet": "10.9.0.0/30"}]]})).steps("ADD:c1 ADD:c2 DEL:c1 ADD:c2 DEL:c2"),
        host_local("duplicate", &subnet).steps("ADD ADD CHECK DEL"),
        host_local("interfaces", &subnet).steps("ADD:c1/eth0 ADD:c1/eth1 CHECK:c1/eth1 DEL:c1/eth0 CHECK:c1/eth1 CHECK:c1/eth0@noprev DEL:c1/eth1"),
        host_local("legacy-keys", &json!({"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.20", "rangeEnd": "10.9.0.22", "gateway": "10.9.0.254"})).steps(many),
        host_local("legacy-and-ranges", &json!({"subnet": "10.9.0.0/24", "ranges": [[{"subnet": "fd00:9::/64"}]]})),
        host_local("legacy-without-subnet", &json!({"rangeStart": "10.9.0.20", "ranges": [[{"subnet": "10.9.0.0/24"}]]})),
        host_local("start-end", &json!({"ranges": [[{"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.10", "rangeEnd": "10.9.0.12"}]]})).steps("ADD:c1 ADD:c2 ADD:c3 ADD:c4 DEL:c2 ADD:c4 DEL:c1 DEL:c3 DEL:c4"),
        host_local("network-and-broadcast", &json!({"ranges": [[{"subnet": "10.9.0.0/29", "rangeStart": "10.9.0.0", "rangeEnd": "10.9.0.7"}]]})).steps("ADD:c1 ADD:c2 ADD:c3 ADD:c4 ADD:c5 ADD:c6 ADD:c7 ADD:c8"),
        host_local("gateway-in-range", &json!({"ranges": [[{"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.10", "rangeEnd": "10.9.0.12", "gateway": "10.9.0.11"}]]})).steps("ADD:c1 ADD:c2 ADD:c3"),
        host_local("two-ranges-in-set", &json!({"ranges": [[{"subnet": "10.9.0.0/30"}, {"subnet": "10.9.1.0/30"}]]})).steps("ADD:c1 ADD:c2 ADD:c3 DEL:c1 ADD:c3"),
        host_local("dual", &json!({"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0", "gw": "fd00:9::7"}]})).steps(many),
        host_local("v6", &json!({"ranges": [[{"subnet": "FD00:9:0::/64", "rangeStart": "fd00:9::a0", "gateway": "fd00:9::ff"}]]})).steps(many),
        host_local("three-sets", &json!({"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "10.10.0.0/24"}], [{"subnet": "fd00:9::/64"}]]})).steps(many),
        host_local("second-set-full", &json!({"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "10.10.0.0/30"}]]})).steps("ADD:c1 ADD:c2 ADD:c3 DEL:c1 ADD:c2"),
        host_local_with("three-sets-old-version", &json!({"cniVersion": "0.2.0", "ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "10.10.0.0/24"}]]}})).steps("ADD DEL"),
        host_local("routes", &with(&subnet, json!({"routes": [{"dst": "10.1.2.3/8"}, {"dst": "0.0.0.0/0", "gw": "10.9.0.7"}, {"dst": "::/0"}]}))),
        host_local("route-without-dst", &with(&subnet, json!({"routes": [{}]}))),
        host_local_with("route-attributes", &json!({"cniVersion": "1.1.0", "ipam": with(&subnet, json!({"routes": [
            {"dst": "10.1.0.0/16", "mtu": 0, "advmss": 0, "priority": 0, "table": 0, "scope": 0}, {"dst": "10.2.0.0/16", "mtu": 1, "advmss": 2, "priority": 3, "table": 4, "scope": 5}]}))})),
        host_local_with("route-attributes-old", &json!({"cniVersion": "0.4.0", "ipam": with(&subnet, json!({"routes": [{"dst": "10.2.0.0/16", "mtu": 1, "table": 4}]}))})),
        host_local("data-dir", &with(&subnet, json!({"dataDir": "/var/lib/cni/other/place"}))),
        host_local("data-dir-twice", &with(&subnet, json!({"dataDir": "/run/data"}))).steps(many),
        host_local("resolv-conf", &with(&subnet, json!({"resolvConf": "/run/resolv.conf"})))
            .prepare("printf '# c\\n; d\\nnameserver 1.1.1.1 x\\nnameserver 2.2.2.2\\ndomain a.b\\nsearch x y\\nsearch z\\noptions ndots:5 t\\nother\\n' > /run/resolv.conf"),
        host_local("resolv-conf-empty", &with(&subnet, json!({"resolvConf": "/run/resolv.conf"}))).prepare(": > /run/resolv.conf"),
        host_local("resolv-conf-null", &with(&subnet, json!({"resolvConf": "/dev/null"}))),
        host_local("resolv-conf-link-to-null", &with(&subnet, json!({"resolvConf": "/run/resolv.conf"})))
            .prepare("ln -s /dev/null /run/resolv.conf"),
        host_local("resolv-conf-missing", &with(&subnet, json!({"resolvConf": "/run/none"}))),
        host_local("request-args", &subnet).args("IP=10.9.0.77"),
        host_local("request-args-prefix", &subnet).args("IP=10.9.0.77/16"),
        host_local("request-args-empty", &subnet).args("IP="),
        host_local("request-args-bad", &subnet).args("IP=foo").steps("ADD DEL"),
        host_local("request-args-two", &subnet).args("IP=10.9.0.7,10.9.0.8").steps("ADD DEL"),
        host_local("request-args-unknown", &subnet).args("FOO=bar").steps("ADD CHECK DEL"),
        host_local("request-args-ignored", &subnet).args("FOO=bar;IgnoreUnknown=TRUE;IP=10.9.0.9"),
        host_local("request-args-ignore-bad", &subnet).args("IgnoreUnknown=maybe"),
        host_local("request-args-pairs", &subnet).args("IP=10.9.0.9;").steps("ADD DEL"),
        host_local("request-args-no-value", &subnet).args("IgnoreUnknown=1;x").steps("ADD DEL"),
        host_local("request-args-case", &subnet).args("ip=10.9.0.9").steps("ADD DEL"),
        host_local_with("request-cni-args", &json!({"ipam": subnet, "args": {"cni": {"ips": ["10.9.0.88"]}}})),
        host_local_with("request-cni-args-prefix", &json!({"ipam": subnet, "args": {"cni": {"ips": ["10.9.0.88/24"]}}})),
        host_local_with("request-cni-args-bad", &json!({"ipam": subnet, "args": {"cni": {"ips": ["foo"]}}})),
        // Both requests count. No set gets two requests: the native plugin would refuse a random request of the two.
        host_local_with("request-args-and-cni-args-bad", &json!({"ipam": subnet, "args": {"cni": {"ips": ["10.9.0.88"]}}})).args("IP=foo").steps("ADD DEL"),
        host_local_with("request-args-and-cni-args-dual", &json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]]}, "args": {"cni": {"ips": ["fd00:9::99"]}}})).args("IP=10.9.0.77"),
        host_local_with("request-runtime", &json!({"ipam": subnet, "runtimeConfig": {"ips": ["10.9.0.99/24"]}})),
        host_local_with("request-runtime-dual", &json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]]}, "runtimeConfig": {"ips": ["fd00:9::99", "10.9.0.99"]}})),
        host_local_with("request-runtime-outside", &json!({"ipam": subnet, "runtimeConfig": {"ips": ["10.8.0.99"]}})).steps("ADD DEL"),
        host_local_with("request-runtime-gateway", &json!({"ipam": subnet, "runtimeConfig": {"ips": ["10.9.0.1"]}})).steps("ADD DEL"),
        host_local_with("request-runtime-same-twice", &json!({"ipam": subnet, "runtimeConfig": {"ips": ["10.9.0.5", "10.9.0.5"]}})),
        host_local_with("request-runtime-taken", &json!({"ipam": subnet, "runtimeConfig": {"ips": ["10.9.0.5"]}})).steps("ADD:c1 ADD:c2 ADD:c1 DEL:c2 DEL:c1"),
        host_local_with("request-fails-in-second-set", &json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]]}}))
            .changed(json!({"runtimeConfig": {"ips": ["10.9.0.5", "fd00:8::1"]}})).steps("ADD ADD@changed CHECK DEL"),
        host_local_with("capability-ranges", &json!({"ipam": subnet, "runtimeConfig": {"ipRanges": [[{"subnet": "10.20.0.0/24"}]]}})),
        host_local_with("capability-ranges-only", &json!({"runtimeConfig": {"ipRanges": [[{"subnet": "10.20.0.0/24", "rangeStart": "10.20.0.9"}], [{"subnet": "fd00:20::/64"}]]}})),
        host_local("missing-ranges", &json!({})).steps("ADD CHECK DEL"),
        host_local("empty-set", &json!({"ranges": [[]]})).steps("ADD CHECK DEL"),
        host_local("mixed-set", &json!({"ranges": [[{"subnet": "10.9.0.0/24"}, {"subnet": "fd00:9::/64"}]]})).steps("ADD DEL"),
        host_local("overlap-in-set", &json!({"ranges": [[{"subnet": "10.9.0.0/24"}, {"subnet": "10.9.0.0/16"}]]})).steps("ADD DEL"),
        host_local("overlap-of-sets", &json!({"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "10.9.0.0/16"}]]})).steps("ADD DEL"),
        host_local("no-overlap-of-parts", &json!({"ranges": [[{"subnet": "10.9.0.0/24", "rangeEnd": "10.9.0.10"}, {"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.20"}]]})).steps(many),
        host_local("host-bits", &json!({"ranges": [[{"subnet": "10.9.0.7/24"}]]})).steps("ADD DEL"),
        host_local("too-small", &json!({"ranges": [[{"subnet": "10.9.0.0/31"}]]})).steps("ADD"),
        host_local("too-small-v6", &json!({"ranges": [[{"subnet": "fd00:9::/127"}]]})).steps("ADD"),
        host_local("no-subnet", &json!({"ranges": [[{}]]})).steps("ADD"),
        host_local("subnet-no-prefix", &json!({"ranges": [[{"subnet": "10.9.0.0"}]]})).steps("ADD"),
        host_local("subnet-mapped", &json!({"ranges": [[{"subnet": "::ffff:10.9.0.0/120"}]]})).steps("ADD"),
        host_local("start-outside", &json!({"ranges": [[{"subnet": "10.9.0.0/24", "rangeStart": "10.8.0.1"}]]})).steps("ADD"),
        host_local("end-outside", &json!({"ranges": [[{"subnet": "10.9.0.0/24", "rangeEnd": "10.10.0.1"}]]})).steps("ADD"),
        host_local("start-after-end", &json!({"ranges": [[{"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.20", "rangeEnd": "10.9.0.10"}]]})).steps("ADD"),
        host_local("start-bad", &json!({"ranges": [[{"subnet": "10.9.0.0/24", "rangeStart": "x"}]]})).steps("ADD"),
        host_local("gateway-outside", &json!({"ranges": [[{"subnet": "10.9.0.0/24", "gateway": "10.8.0.1"}]]})),
        host_local("gateway-bad", &json!({"ranges": [[{"subnet": "10.9.0.0/24", "gateway": ""}]]})),
        host_local("ranges-wrong-type", &json!({"ranges": [{"subnet": "10.9.0.0/24"}]})).steps("ADD"),
        host_local("huge", &json!({"ranges": [[{"subnet": "10.0.0.0/8", "rangeStart": "10.255.255.250"}]]})).steps("ADD:c1 ADD:c2 ADD:c3 ADD:c4 ADD:c5 ADD:c6"),
        host_local("check-nothing", &subnet).steps("CHECK@noprev"),
        host_local("check-nothing-in-directory", &subnet).steps("ADD:c2 CHECK:c1@noprev"),
        host_local("del-nothing", &subnet).steps("DEL DEL@emptyns"),
        host_local("namespace-is-nothing-to-it", &subnet).steps("KILL:c1 ADD CHECK DEL"),
        host_local("legacy-file", &subnet).prepare("mkdir -p /var/lib/cni/networks/net; printf c1 > /var/lib/cni/networks/net/10.9.0.9").steps("CHECK@noprev ADD:c1 ADD:c2 DEL:c1 DEL:c2"),
        host_local("legacy-file-and-interface", &subnet).prepare("mkdir -p /var/lib/cni/networks/net; printf 'c1' > /var/lib/cni/networks/net/10.9.0.9; printf 'c1\\r\\neth0' > /var/lib/cni/networks/net/10.9.0.10").steps("DEL:c1 DEL:c1"),
        host_local("foreign-newline", &subnet).prepare("mkdir -p /var/lib/cni/networks/net; printf 'c1\\neth0' > /var/lib/cni/networks/net/10.9.0.9; printf ' c2\\r\\neth0\\n' > /var/lib/cni/networks/net/10.9.0.10").steps("DEL:c1 DEL:c2"),
        host_local("last-reserved", &subnet).prepare("mkdir -p /var/lib/cni/networks/net; printf 10.9.0.100 > /var/lib/cni/networks/net/last_reserved_ip.0").steps("ADD:c1 ADD:c2"),
        host_local("last-reserved-newline", &subnet).prepare("mkdir -p /var/lib/cni/networks/net; echo 10.9.0.100 > /var/lib/cni/networks/net/last_reserved_ip.0").steps("ADD:c1 ADD:c2"),
        host_local("last-reserved-outside", &subnet).prepare("mkdir -p /var/lib/cni/networks/net; printf 10.8.0.100 > /var/lib/cni/networks/net/last_reserved_ip.0").steps("ADD:c1 ADD:c2"),
        host_local("last-reserved-end", &subnet).prepare("mkdir -p /var/lib/cni/networks/net; printf 10.9.0.254 > /var/lib/cni/networks/net/last_reserved_ip.0").steps("ADD:c1 ADD:c2"),
        host_local("empty-file", &subnet).prepare("mkdir -p /var/lib/cni/networks/net; : > /var/lib/cni/networks/net/10.9.0.2").steps("ADD:c1 DEL:c1"),
        host_local_with("no-ipam", &json!({"ipam": null})).steps("ADD CHECK DEL"),
        host_local_with("status", &json!({"cniVersion": "1.1.0", "ipam": subnet})).steps("STATUS ADD GC CHECK DEL"),
        fixed("plain", &json!({"ipam": {"addresses": [{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}]}})),
        fixed("dual", &json!({"ipam": {"addresses": [{"address": "10.9.0.7/24"}, {"address": "FD00:9::7/64", "gateway": "fd00:9::1"}], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0", "gw": "fd00:9::2"}]}})),
        fixed("dns", &json!({"ipam": {"addresses": [{"address": "10.9.0.7/24"}], "dns": {"nameservers": ["1.1.1.1"], "domain": "a", "search": ["b"], "options": ["c"]}}})),
        fixed("dns-outside-ipam", &json!({"dns": {"nameservers": ["1.1.1.1"]}, "ipam": {"addresses": [{"address": "10.9.0.7/24"}]}})),
        fixed("none", &json!({})).steps("ADD CHECK DEL"),
        fixed("no-ipam", &json!({"ipam": null})).steps("ADD CHECK DEL"),
        fixed("no-prefix", &json!({"ipam": {"addresses": [{"address": "10.9.0.7"}]}})).steps("ADD DEL"),
        fixed("bad", &json!({"ipam": {"addresses": [{"address": "x"}]}})).steps("ADD DEL"),
        fixed("bad-gateway", &json!({"ipam": {"addresses": [{"address": "10.9.0.7/24", "gateway": "x"}]}})).steps("ADD DEL"),
        fixed("wrong-type", &json!({"ipam": {"addresses": ["10.9.0.7/24"]}})).steps("ADD DEL"),
        fixed("args", &json!({"ipam": {"addresses": [{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}]}})).args("IP=10.9.0.8/24,fd00::8/64;GATEWAY=10.9.0.2,fd00::2"),
        fixed("args-only", &json!({})).args("IP=10.9.0.8/24;GATEWAY= 10.9.0.2"),
        fixed("args-no-prefix", &json!({})).args("IP=10.9.0.8").steps("ADD"),
        fixed("args-bad-gateway", &json!({})).args("IP=10.9.0.8/24;GATEWAY=x").steps("ADD"),
        fixed("args-unknown", &json!({})).args("MAC=1").steps("ADD DEL"),
        fixed("args-empty", &json!({})).args("IP=").steps("ADD"),
        fixed("cni-args", &json!({"ipam": {"addresses": [{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}]}, "args": {"cni": {"ips": ["10.9.0.9/24"]}}})),
        fixed("cni-args-silence", &json!({"args": {"cni": {"ips": ["10.9.0.9/24"]}}})).args("IP=10.9.0.8/24;GATEWAY=10.9.0.1"),
        fixed("cni-args-silence-bad", &json!({"args": {"cni": {"ips": ["10.9.0.9/24"]}}})).args("IP=10.9.0.8;GATEWAY=x"),
        fixed("conventional-keys", &json!({"ipam": {"addresses": [{"address": "10.9.0.7/24"}]}, "args": {"cni": {"labels": [{"key": "app", "value": "a"}]}}, "runtimeConfig": {"dns": {"servers": ["1.1.1.1"], "searches": ["a.b"]}}})),
        fixed("runtime", &json!({"ipam": {"addresses": [{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}]}, "args": {"cni": {"ips": ["10.9.0.9/24"]}}, "runtimeConfig": {"ips": ["10.9.0.10/24", "fd00::1/64"]}})),
        fixed("runtime-bad", &json!({"runtimeConfig": {"ips": ["10.9.0.10"]}})).steps("ADD DEL"),
        fixed("check-gateway", &json!({"ipam": {"addresses": [{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}]}})).changed(json!({"ipam": {"addresses": [{"address": "10.9.0.7/24", "gateway": "10.9.0.2"}]}})).steps("ADD CHECK@changed CHECK@noprev DEL"),
        fixed("check-absent", &json!({"ipam": {"addresses": [{"address": "10.9.0.7/24"}]}})).changed(json!({"ipam": {"addresses": [{"address": "10.9.0.8/24"}]}})).steps("ADD CHECK@changed"),
        fixed("two-of-a-family-old", &json!({"cniVersion": "0.2.0", "ipam": {"addresses": [{"address": "10.9.0.7/24"}, {"address": "10.9.0.8/24"}]}})).steps("ADD"),
        fixed("route-attributes", &json!({"cniVersion": "1.1.0", "ipam": {"addresses": [{"address": "10.9.0.7/24"}], "routes": [{"dst": "10.2.0.0/16", "mtu": 1, "advmss": 2, "priority": 3, "table": 4, "scope": 5}]}})),
        fixed("status", &json!({"cniVersion": "1.1.0"})).steps("STATUS GC"),
    ];
    for version in ["", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let ranges = json!({"ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]], "routes": [{"dst": "0.0.0.0/0"}]});
        all.push(
            host_local_with(&format!("version-{version}"), &json!({"cniVersion": version, "ipam": ranges}))
                .steps("ADD CHECK DEL STATUS GC VERSION"),
        );
        let addresses = json!({"addresses": [{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}, {"address": "fd00::7/64"}], "routes": [{"dst": "::/0"}]});
        all.push(
            fixed(&format!("version-{version}"), &json!({"cniVersion": version, "ipam": addresses}))
                .steps("ADD CHECK DEL STATUS GC VERSION"),
        );
    }
    all
}
