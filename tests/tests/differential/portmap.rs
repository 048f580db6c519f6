//! Cases of the portmap plugin. The `prevResult` of a case replaces an earlier plugin. An operator's policy allows the
//! addresses of `prevResult`, because no record has them.

use postern_tests::{Case, merge};
use serde_json::{Value, json};

/// A script that makes the link towards the container, and the policy for addresses without a record.
const PREPARE: &str = "ip link set lo up; ip link add br9 type bridge; ip addr add 10.9.0.1/24 dev br9; ip addr add fd00:9::1/64 dev br9 nodad; \
    ip link set br9 up; mount -t tmpfs -o mode=755 etc /mnt; cp -a /etc/alternatives /etc/passwd /etc/group /etc/protocols /etc/services /etc/iproute2 /mnt 2>/dev/null || true; \
    mkdir -p /mnt/postern/policy; mount --move /mnt /etc; \
    printf '[previous]\\naddresses = [\"10.9.0.0/24\", \"fd00:9::/64\"]\\n' > /etc/postern/policy/portmap.toml";

fn base(backend: &str) -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "net", "type": "portmap", "backend": backend,
        "runtimeConfig": {"portMappings": [
            {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 8081, "containerPort": 81, "protocol": "udp"},
        ]},
        "prevResult": {
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "br9"}, {"name": "eth0", "sandbox": "/run/netns/c1"}],
            "ips": [{"address": "10.9.0.2/24", "interface": 1}, {"address": "fd00:9::2/64", "interface": 1}],
        },
    })
}

/// All cases of portmap.
pub fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for backend in ["nftables", "iptables"] {
        let case = |name: &str, patch: &Value| {
            let mut config = base(backend);
            merge(&mut config, patch);
            Case::new(&format!("portmap/{backend}-{name}"), "portmap", &config).prepare(PREPARE)
        };
        let break_forwards = match backend {
            "nftables" => "nft flush chain ip cni_hostport hostports",
            _ => "iptables -t nat -F CNI-HOSTPORT-DNAT",
        };
        let mappings = |mappings: Value| json!({"runtimeConfig": {"portMappings": mappings}});
        let one = |patch: Value| {
            let mut port = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"});
            merge(&mut port, &patch);
            mappings(json!([port]))
        };
        let ips = |ips: Value| json!({"prevResult": {"ips": ips}});
        all.extend([
            case("plain", &json!({})),
            case("no-mappings", &mappings(json!([]))),
            case("no-runtime", &json!({"runtimeConfig": null})),
            case("v4-only", &ips(json!([{"address": "10.9.0.2/24", "interface": 1}]))),
            case("v6-only", &ips(json!([{"address": "fd00:9::2/64", "interface": 1}]))),
            case("no-addresses", &ips(json!([]))),
            case("foreign-interface", &ips(json!([{"address": "10.9.0.9/24", "interface": 0}, {"address": "10.9.0.2/24", "interface": 1}]))),
            case("interface-unknown", &ips(json!([{"address": "10.9.0.2/24"}, {"address": "10.9.0.3/24"}]))),
            case("host-ip", &one(json!({"hostIP": "10.9.0.1"}))),
            case("host-ip-v6", &one(json!({"hostIP": "fd00:9::1"}))),
            case("host-ip-any", &one(json!({"hostIP": "0.0.0.0"}))),
            case("host-ip-any-v6", &one(json!({"hostIP": "::"}))),
            case("host-ip-empty", &one(json!({"hostIP": ""}))),
            case("sctp", &one(json!({"protocol": "sctp"}))),
            case("capitals", &mappings(json!([{"HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": "10.9.0.1"}]))),
            case("no-snat", &json!({"snat": false})),
            case("masq-all", &json!({"masqAll": true})),
            case("mark-bit", &json!({"markMasqBit": 5})),
            case("many", &mappings((0..20).map(|step| json!({"hostPort": 9000 + step, "containerPort": 90, "protocol": "tcp"})).collect())),
            case("repeated-mapping", &mappings(json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 8080, "containerPort": 81, "protocol": "tcp"}]))).steps("ADD DEL"),
            case("no-previous-result", &json!({"prevResult": null})).steps("ADD CHECK DEL"),
            case("del-without-previous", &json!({})).steps("ADD DEL@noprev DEL@noprev"),
            case("namespace-gone", &json!({})).steps("ADD KILL:c1 DEL"),
            case("backend-unknown", &json!({"backend": "pf"})).steps("ADD"),
            case("backend-empty", &json!({"backend": ""})).steps("ADD"),
            case("backend-number", &json!({"backend": 5})).steps("ADD"),
            case("mark-bit-32", &json!({"markMasqBit": 32})).steps("ADD"),
            case("mark-bit-and-chain", &json!({"markMasqBit": 3, "externalSetMarkChain": "X"})).steps("ADD"),
            case("host-port-0", &one(json!({"hostPort": 0}))).steps("ADD"),
            case("host-port-negative", &one(json!({"hostPort": -1}))).steps("ADD"),
            case("container-port-0", &one(json!({"containerPort": 0}))).steps("ADD"),
            case("container-port-missing", &one(json!({"containerPort": null}))).steps("ADD"),
            case("mapping-null", &mappings(json!([null]))).steps("ADD"),
            case("mappings-number", &mappings(json!(5))).steps("ADD"),
            case("host-port-text", &one(json!({"hostPort": "80"}))).steps("ADD"),
            case("previous-of-another-version", &json!({"prevResult": {"cniVersion": "0.2.0"}})).steps("ADD"),
            case("status", &json!({"cniVersion": "1.1.0", "prevResult": null})).steps("STATUS GC VERSION"),
            case("native-add", &json!({})).steps("ADD@native CHECK DEL DEL"),
            case("native-add-host-ip", &one(json!({"hostIP": "10.9.0.1"}))).steps("ADD@native CHECK DEL"),
            case("native-add-masq-all", &json!({"masqAll": true})).steps("ADD@native CHECK DEL"),
            case("native-add-no-snat", &json!({"snat": false})).steps("ADD@native CHECK DEL"),
            case("native-add-broken", &json!({})).broken(break_forwards).steps("ADD@native BREAK CHECK DEL"),
            case("native-add-namespace-gone", &json!({})).steps("ADD@native KILL:c1 DEL"),
            case("native-del", &json!({})).steps("ADD CHECK@native DEL@native DEL@native"),
        ]);
        let conditions = if backend == "nftables" {
            json!({"conditionsV4": ["ip", "saddr", "!=", "192.0.2.0/24"]})
        } else {
            json!({"conditionsV4": ["!", "-s", "192.0.2.0/24", "-i", "br9"], "conditionsV6": ["-d", "fd00:9::/64"]})
        };
        all.push(case("conditions", &conditions));
        all.push(case("native-add-conditions", &conditions).steps("ADD@native CHECK DEL"));
        let foreign = if backend == "nftables" {
            json!({"conditionsV4": ["-d", "10.0.0.0/8"]})
        } else {
            json!({"conditionsV6": ["ip6", "daddr", "::1"]})
        };
        all.push(case("conditions-of-the-other", &foreign).steps("ADD"));
        for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
            let previous = match version {
                "0.1.0" | "0.2.0" => {
                    json!({"cniVersion": version, "ip4": {"ip": "10.9.0.2/24"}, "interfaces": null, "ips": null})
                }
                "0.3.0" | "0.3.1" | "0.4.0" => {
                    json!({"cniVersion": version, "ips": [{"version": "4", "address": "10.9.0.2/24", "interface": 1}]})
                }
                _ => json!({"cniVersion": version}),
            };
            all.push(
                case(&format!("version-{version}"), &json!({"cniVersion": version, "prevResult": previous}))
                    .steps("ADD CHECK DEL STATUS GC VERSION"),
            );
        }
    }
    let external = json!({"externalSetMarkChain": "KUBE-MARK-MASQ"});
    let mut config = base("iptables");
    merge(&mut config, &external);
    let chain = format!("{PREPARE}; iptables -t nat -N KUBE-MARK-MASQ; ip6tables -t nat -N KUBE-MARK-MASQ");
    all.push(Case::new("portmap/external-chain", "portmap", &config).prepare(&chain));
    let mut config = base("iptables");
    merge(&mut config, &json!({"backend": null}));
    all.push(Case::new("portmap/default-backend", "portmap", &config).prepare(PREPARE));
    all
}
