//! A runtime's directory of plugins is switched while containers run: from native plugins to ours, back, and again, or
//! in the opposite order. Nothing is lost or left. The installed side checks all attachments at each step.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{PRIVATE_ETC, each};
use postern_tests::{Call, Network, Node, merge, native_bin, plugin_bin, skip};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ours,
    Native,
}

use Side::{Native, Ours};

const FILTERS: [&str; 2] = ["nftables", "iptables"];
/// `out` is behind link `wire0`. The node forwards only packets that a rule of iptables accepts.
const WIRE: &str = "
    ip link add wire0 type veth peer name wire0 netns out; ip address add 192.0.2.1/24 dev wire0; ip link set wire0 up
    ip -n out address add 192.0.2.2/24 dev wire0; ip -n out link set wire0 up; ip -n out route add default via 192.0.2.1
    sysctl -qw net.ipv4.ip_forward=1; iptables -P FORWARD DROP; mkdir -p /run/net.d /run/flannel
    printf 'FLANNEL_NETWORK=10.5.0.0/16\\nFLANNEL_SUBNET=10.5.1.1/24\\nFLANNEL_MTU=1450\\nFLANNEL_IPMASQ=true\\n' > /run/flannel/subnet.env";

/// Returns the network with this list of plugins. `filter` is the packet filter of its rules.
fn list(name: &str, filter: &str) -> Value {
    let ipam = |subnets: Value| json!({"type": "host-local", "ranges": subnets, "routes": [{"dst": "0.0.0.0/0"}]});
    let four = json!([[{"subnet": "10.5.0.0/24"}]]);
    let portmap = json!({"type": "portmap", "backend": filter, "capabilities": {"portMappings": true}});
    let firewall = json!({"type": "firewall", "backend": "iptables"});
    let tuning = json!({"type": "tuning", "mtu": 1400, "sysctl": {"net.core.somaxconn": "500"}});
    let (version, plugins) = match name {
        "bridge" => (
            "1.1.0",
            json!([
                {"type": "bridge", "bridge": "mix0", "isGateway": true, "ipMasq": true, "ipMasqBackend": filter, "hairpinMode": true,
                    "macspoofchk": true, "ipam": ipam(json!([[{"subnet": "10.5.0.0/24"}], [{"subnet": "fd05::/64"}]]))},
                portmap, firewall, tuning,
                {"type": "bandwidth", "ingressRate": 80_000_000, "ingressBurst": 80_000_000, "egressRate": 80_000_000, "egressBurst": 80_000_000}
            ]),
        ),
        "ptp" => (
            "1.1.0",
            json!([{"type": "ptp", "ipMasq": true, "ipMasqBackend": filter, "ipam": ipam(four)}, portmap, firewall, tuning]),
        ),
        "macvlan" => {
            ("1.1.0", json!([{"type": "macvlan", "master": "wire0", "mode": "bridge", "ipam": ipam(four)}, tuning]))
        }
        "sbr" => (
            "1.1.0",
            json!([
                {"type": "bridge", "bridge": "mix0", "isGateway": true, "ipMasq": true, "ipMasqBackend": filter,
                    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.5.0.0/24"}], [{"subnet": "fd05::/64"}]]}},
                portmap, firewall, {"type": "sbr"}
            ]),
        ),
        "local" => {
            let mut own = ipam(four);
            merge(&mut own, &json!({"type": LOCAL}));
            ("1.0.0", json!([{"type": "bridge", "bridge": "mix0", "isGateway": true, "ipam": own}, portmap, firewall]))
        }
        _ => (
            "0.4.0",
            json!([{"type": "flannel", "delegate": {"bridge": "mix0", "hairpinMode": true, "isDefaultGateway": true}}, portmap, firewall]),
        ),
    };
    json!({"cniVersion": version, "name": "mixed", "plugins": plugins})
}

/// The native host-local under another name, so that it is not in our catalog.
const LOCAL: &str = "native-host-local";

struct Place {
    node: Node,
    list: &'static str,
    /// The directories of plugins.
    ours: String,
    native: String,
    /// The side whose plugins the runtime finds.
    side: Side,
    /// The side whose plugins attached each container.
    makers: RefCell<BTreeMap<String, Side>>,
}

impl Place {
    fn new(name: &'static str, filter: &'static str, side: Side) -> Result<Self> {
        let node = Node::new()?;
        ["out", "stays", "moves"].iter().try_for_each(|container| node.add_container(container))?;
        node.sh(PRIVATE_ETC)?;
        node.sh(WIRE)?;
        for container in ["stays", "moves"] {
            node.sh_in(container, "ip link set lo up")?;
        }
        std::fs::write(node.path("/run/net.d/mixed.conflist"), list(name, filter).to_string())?;
        let mut bins = [plugin_bin()?.display().to_string(), native_bin()?.display().to_string()];
        if name == "local" {
            directories(&node)?;
            bins = ["/run/ours".to_owned(), "/run/native".to_owned()];
        }
        let [ours, native] = bins;
        Ok(Self { node, list: name, ours, native, side, makers: RefCell::default() })
    }

    /// Runs the runtime, `postern net`, with the present side's plugins.
    fn runtime(&self, verb: &str, container: &str) -> Result<String> {
        let side = self.side;
        if verb == "add" {
            self.makers.borrow_mut().insert(container.to_owned(), side);
        }
        let bin = if side == Ours { &self.ours } else { &self.native };
        let port = if container == "stays" { 8080 } else { 8081 };
        let arguments = json!({"portMappings": [{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]});
        let call = format!(
            "env CNI_PATH={bin} NETCONFPATH=/run/net.d CAP_ARGS='{arguments}' {}/postern net {verb} mixed",
            self.ours
        );
        let call = match verb {
            "gc" => format!("{call} {container}"),
            _ => format!("{call} /run/netns/{container}"),
        };
        // The native DEL can fail once: `Node::delete` says why.
        let script = if verb == "del" && side == Native { format!("{call} || {call} || {call}") } else { call };
        self.node.sh(&script).with_context(|| format!("{verb} {container} by {side:?}"))
    }

    fn maker(&self, container: &str) -> Side {
        self.makers.borrow().get(container).copied().unwrap_or(self.side)
    }

    /// Returns doctor's findings, without the findings about features that this kernel lacks.
    fn findings(&self) -> Result<Vec<Value>> {
        let printed = self
            .node
            .sh(&format!("{bin}/postern doctor --json --conf-dir /run/net.d --bin {bin} || true", bin = self.ours))?;
        let report: Value = serde_json::from_str(&printed).context(printed)?;
        let findings = report.get("findings").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(findings.into_iter().filter(|finding| finding["area"] != "kernel").collect())
    }

    fn is_healthy(&self, containers: &[&str], step: &str) -> Result<()> {
        for container in containers {
            match self.runtime("check", container) {
                // The native bridge misses the route that sbr has moved to sbr's own table. Our bridge misses the route
                // too if no record lists it.
                Err(error) if self.list == "sbr" && [self.side, self.maker(container)].contains(&Native) => {
                    let words = format!("{error:#}");
                    ensure!(words.contains("Failed to find Gateway 10.5.0.1"), "{step}: {words}");
                }
                checked => drop(checked.with_context(|| step.to_owned())?),
            }
            if self.list != "macvlan" {
                // Behind sbr, only packets with the link's address as their source leave the container.
                let own = "$(ip -4 -o address show eth0 | sed 's/.* inet \\([0-9.]*\\).*/\\1/')";
                self.node
                    .sh_in(container, &format!("ping -c1 -W3 -I {own} 192.0.2.2 >/dev/null"))
                    .with_context(|| format!("{step}: no connection from {container} to 192.0.2.2"))?;
            }
        }
        let findings = self.findings()?;
        ensure!(findings.is_empty(), "{step}: doctor: {findings:#?}");
        Ok(())
    }

    fn id(container: &str) -> Result<String> {
        use sha2::{Digest, Sha512};
        let sum = Sha512::digest(format!("/run/netns/{container}"));
        Ok(format!("cnitool-{}", sum.iter().take(10).map(|byte| format!("{byte:02x}")).collect::<String>()))
    }

    /// Returns what is left of attachments: rules, links, leases, records and cached results.
    fn left(&self) -> Result<String> {
        self.node.sh(
            "nft -s list ruleset 2>/dev/null | grep -E '10\\.5\\.[0-9]+\\.([2-9]|[0-9]{2,})([^/0-9]|/32)|comment \"cnitool' || true
             for save in iptables-save ip6tables-save; do $save | grep -E '10\\.5\\.[0-9]+\\.([2-9]|[0-9]{2,})([^/0-9]|/32)|fd05::[^/]|CNI-DN-|CNI-[0-9a-f]{24}' || true; done
             ip -o link | grep -E 'veth[0-9a-f]{8}|bwp' || true; find /run/cni -name '*.json' 2>/dev/null || true
             for c in stays moves; do ip -o -n $c link show eth0 2>/dev/null || true; ip -n $c rule 2>/dev/null | grep -E 'from (10\\.5|fd05)' || true; done
             find /var/lib/cni/networks -name '10.*' -o -name 'fd*' 2>/dev/null || true; find /var/lib/cni/results /var/lib/cni/flannel -type f 2>/dev/null || true
             ls /run/postern/attachments 2>/dev/null || true",
        )
    }
}

fn switched(place: &mut Place, sides: [Side; 4]) -> Result<()> {
    place.side = sides[0];
    for container in ["stays", "moves"] {
        place.runtime("add", container)?;
    }
    place.is_healthy(&["stays", "moves"], "at first")?;
    let valid = format!("--valid {}/eth0 --valid {}/eth0", Place::id("stays")?, Place::id("moves")?);
    for (at, side) in sides.into_iter().enumerate().skip(1) {
        place.side = side;
        let step = format!("switch {at}, to {side:?}");
        place.is_healthy(&["stays", "moves"], &format!("{step}: just switched"))?;
        place.runtime("del", "moves")?;
        place.is_healthy(&["stays"], &format!("{step}: one detached"))?;
        place.runtime("add", "moves")?;
        place.is_healthy(&["stays", "moves"], &format!("{step}: and attached again"))?;
        if place.list != "flannel" {
            place.runtime("gc", &valid)?;
            place.is_healthy(&["stays", "moves"], &format!("{step}: collected"))?;
        }
    }
    for container in ["stays", "moves"] {
        place.runtime("del", container)?;
    }
    if place.side == Native {
        for container in ["stays", "moves"] {
            place.node.remove_container(container)?;
        }
        if place.list == "macvlan" {
            // Nothing on the host shows that the container is gone. So only DEL removes the record.
            place.side = Ours;
            ["stays", "moves"].iter().try_for_each(|container| place.runtime("del", container).map(drop))?;
        } else {
            // `postern gc` runs a native IPAM program only if the network's list names it.
            let Place { ours, native, .. } = &*place;
            place.node.sh(&format!("{ours}/postern gc --yes --conf-dir /run/net.d --cni-path {native}"))?;
        }
    }
    let left = place.left()?;
    ensure!(left.is_empty(), "left at the end:\n{left}");
    let findings = place.findings()?;
    ensure!(findings.is_empty(), "at the end: doctor: {findings:#?}");
    Ok(())
}

fn switches(name: &'static str, filters: &[&'static str]) -> Result<()> {
    let cases: Vec<_> = filters.iter().flat_map(|filter| [(*filter, Native), (*filter, Ours)]).collect();
    each(
        &cases,
        |case| format!("{name}: {case:?}"),
        |(filter, first)| {
            let other = if *first == Ours { Native } else { Ours };
            switched(&mut Place::new(name, filter, *first)?, [*first, other, *first, other])
        },
    )
}

#[test]
fn a_node_whose_plugins_are_switched_bridge() -> Result<()> {
    switches("bridge", &FILTERS)
}

#[test]
fn a_node_whose_plugins_are_switched_ptp() -> Result<()> {
    switches("ptp", &FILTERS)
}

#[test]
fn a_node_whose_plugins_are_switched_macvlan() -> Result<()> {
    switches("macvlan", &FILTERS[..1])
}

#[test]
fn a_node_whose_plugins_are_switched_sbr() -> Result<()> {
    switches("sbr", &FILTERS[1..])
}

/// The bridges of both sides run the native host-local.
#[test]
fn a_node_whose_plugins_are_switched_native_ipam() -> Result<()> {
    switches("local", &FILTERS[..1])
}

#[test]
fn a_node_whose_plugins_are_switched_flannel() -> Result<()> {
    if !native_bin()?.join("flannel").exists() {
        skip("there is no native flannel (tests/fetch-native)");
        return Ok(());
    }
    switches("flannel", &FILTERS)
}

/// A third party's IPAM program, as a cluster may have. It is slow, writes to stderr, keeps its own state, and returns
/// keys that no specification knows. It gives addresses from `.100`.
const THIRD: &str = r#"#!/bin/sh
state=/run/third; mkdir -p $state
echo "$CNI_COMMAND $CNI_CONTAINERID" >> $state/calls
[ "$CNI_COMMAND" = VERSION ] && { echo '{"cniVersion":"1.0.0","supportedVersions":["0.3.1","0.4.0","1.0.0"]}'; exit; }
echo "third: talking to its cluster" >&2
sleep 0.2
cat > $state/stdin
exec 9> $state/lock; flock 9
lease=$state/lease.$CNI_CONTAINERID.$CNI_IFNAME
case $CNI_COMMAND in
ADD)
  grep -q '"prevResult"' $state/stdin && { echo '{"code":7,"msg":"an IPAM program gets no prevResult"}'; exit 1; }
  next=$(cat $state/next 2>/dev/null || echo 100); echo $((next + 1)) > $state/next; echo $next > $lease
  echo "{\"cniVersion\":\"1.0.0\",\"kind\":\"third\",\"podRef\":\"default/web\",
    \"ips\":[{\"version\":\"4\",\"address\":\"10.5.0.$next/24\",\"gateway\":\"10.5.0.1\",\"vendor\":{\"pool\":\"a\"}}],
    \"routes\":[{\"dst\":\"0.0.0.0/0\"}],\"dns\":{}}" ;;
CHECK) [ -e $lease ] || { echo '{"code":11,"msg":"no such lease"}'; exit 1; } ;;
DEL) rm -f $lease ;;
esac
"#;

/// Makes the node's directories `ours` and `native`, with the program `third` in each. `native` has our host-local, and
/// the native bridge runs it.
fn directories(node: &Node) -> Result<()> {
    let native = native_bin()?;
    node.sh(&format!(
        "umask 022; {}; mkdir -p /run/native; ln -s {native}/bridge {native}/firewall {native}/portmap /run/native/
         ln -s /run/ours/host-local /run/native/host-local; cp {native}/host-local /run/native/{LOCAL}; cp {native}/host-local /run/ours/{LOCAL}
         cat > /run/ours/third <<'END'\n{THIRD}\nEND\nchmod 755 /run/ours/third; cp /run/ours/third /run/native/third
         sed -i 's/^native = \\[\\]/native = [\"third\", \"{LOCAL}\"]/' /run/ours/postern.d/bridge.toml",
        postern_tests::copy_bin(&plugin_bin()?, "/run/ours"),
        native = native.display(),
    ))
    .map(drop)
}

/// A bridge of either side uses our host-local or a third party's program. Each side checks and removes what the other
/// side made. One store has all addresses.
#[test]
fn an_ipam_program_serves_bridges_of_both_sides() -> Result<()> {
    for ipam in ["host-local", "third"] {
        let node = Node::new()?;
        let containers = ["out", "c1", "c2", "c3", "c4"];
        containers.iter().try_for_each(|container| node.add_container(container))?;
        node.sh(PRIVATE_ETC)?;
        node.sh(WIRE)?;
        directories(&node)?;
        let mut list = list("bridge", "iptables");
        let own = if ipam == "third" {
            json!({"type": "third", "cluster": {"of": ["keys", "unknown", "to", "us"]}})
        } else {
            json!({"type": "host-local", "ranges": [[{"subnet": "10.5.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]})
        };
        // The third party's program knows no later version.
        list["cniVersion"] = json!("1.0.0");
        let plugins = list["plugins"].as_array_mut().context("plugins")?;
        plugins.truncate(3);
        merge(&mut plugins[0], &json!({"ipam": null}));
        merge(&mut plugins[0], &json!({"ipam": own}));
        std::fs::write(node.path("/run/net.d/mixed.conflist"), list.to_string())?;
        let runtime = |side: &str, verb: &str, container: &str| -> Result<Value> {
            let call = format!(
                "CNI_PATH=/run/{side} NETCONFPATH=/run/net.d {}/postern net {verb} mixed /run/netns/{container}",
                plugin_bin()?.display()
            );
            // The native DEL can fail once: `Node::delete` says why.
            let call = if verb == "del" && side == "native" { format!("{call} || {call}") } else { call };
            let printed = node.sh(&call).with_context(|| format!("{ipam}: {verb} {container} by {side}"))?;
            Ok(serde_json::from_str(&printed).unwrap_or_default())
        };
        let mut addresses = std::collections::BTreeSet::new();
        for (at, container) in containers.iter().skip(1).enumerate() {
            let result = runtime(if at % 2 == 0 { "ours" } else { "native" }, "add", container)?;
            let address = result.pointer("/ips/0/address").and_then(Value::as_str).context("no address")?.to_owned();
            ensure!(addresses.insert(address.clone()), "{ipam}: {address} was given twice");
            node.sh_in(container, "ping -c1 -W3 192.0.2.2 >/dev/null")
                .with_context(|| format!("{ipam}: {container}"))?;
        }
        for container in containers.iter().skip(1) {
            for side in ["ours", "native"] {
                runtime(side, "check", container)?;
            }
        }
        let doctor = "/run/ours/postern doctor --json --conf-dir /run/net.d --bin /run/ours || true";
        let report: Value = serde_json::from_str(&node.sh(doctor)?)?;
        let findings: Vec<&Value> =
            report["findings"].as_array().context("findings")?.iter().filter(|one| one["area"] != "kernel").collect();
        ensure!(findings.is_empty(), "{ipam}: doctor: {findings:#?}");
        // Two attachments are removed by the side that made them, and two by the opposite side.
        for (side, container) in [("ours", "c1"), ("native", "c2"), ("native", "c3"), ("ours", "c4")] {
            for _ in 0..2 {
                runtime(side, "del", container)?;
            }
            node.sh(&format!("! ip -n {container} link show eth0 2>/dev/null"))?;
        }
        let left = node.sh(
            "ls /run/third/lease.* 2>/dev/null || true; find /var/lib/cni/networks -name '10.*' 2>/dev/null || true; ip -o link | grep veth || true
             ls /var/lib/cni/results 2>/dev/null || true; iptables-save | grep -E '10\\.5\\.0\\.([2-9]|1[0-9]+)|CNI-[0-9a-f]{24}' || true",
        )?;
        ensure!(left.is_empty(), "{ipam}: left:\n{left}");
        if ipam == "third" {
            let calls = node.sh("sort /run/third/calls | uniq -c | awk '{print $2}' | sort | uniq -c | xargs")?;
            ensure!(calls.contains("ADD") && calls.contains("CHECK") && calls.contains("DEL"), "{calls}");
        }
    }
    Ok(())
}

/// One plugin of ours between native plugins has a record without addresses. Then all plugins are ours. They remove
/// what the native plugins made, including rules for addresses that only `prevResult` names.
#[test]
fn a_record_between_native_plugins_has_no_addresses() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    let plugins = json!([
        {"type": "bridge", "bridge": "mix0", "isGateway": true, "ipMasq": true, "macspoofchk": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.5.0.0/24"}]]}},
        {"type": "portmap", "backend": "iptables", "snat": false,
            "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}},
        {"type": "tuning", "mac": "02:00:00:00:05:01"},
        {"type": "sbr"},
        {"type": "firewall", "backend": "iptables"},
        {"type": "bandwidth", "ingressRate": 8_000_000, "ingressBurst": 8_000_000, "egressRate": 8_000_000, "egressBurst": 8_000_000},
    ]);
    let list = json!({"cniVersion": "1.0.0", "name": "mix", "plugins": plugins});
    let net = Network::new(&node, &list)?.by(&native_bin()?).at_by(2, &plugin_bin()?);
    let rules = || {
        node.sh("nft list ruleset | grep -F 10.5.0. || true; nft list ruleset | grep -F veth || true
        ip -o link | grep -oE '(bwp|ifb|veth)[0-9a-f]*' || true; find /var/lib/cni/networks -name '10.*'
        ls /run/postern/attachments")
    };
    let mut attachment = net.add("c1")?;
    ensure!(rules()?.lines().count() > 8, "too few rules: {}", rules()?);
    attachment.network = net.by(&plugin_bin()?);
    attachment.del()?;
    ensure!(rules()?.is_empty(), "left: {}", rules()?);
    Ok(())
}

/// Below a native bridge, our host-local's record identifies the container by its namespace. A new container with the
/// same names gets an address, and the old container's address is free again.
#[test]
fn a_container_comes_again_below_a_native_bridge() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    directories(&node)?;
    let config = json!({"cniVersion": "1.0.0", "name": "again", "type": "bridge", "bridge": "again0", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.5.0.0/30"}]]}});
    let net = Network::new(&node, &config)?.by(Path::new("/run/native"));
    let leases = || node.sh("ls /var/lib/cni/networks/again | grep -F 10.5. || true");
    net.add("c1")?;
    let header = node.sh("head -n 1 /run/postern/attachments/*")?;
    ensure!(header.contains("\"netns_cookie\":") && !header.contains("\"netns_cookie\":null"), "{header}");
    ensure!(leases()? == "10.5.0.2\n", "{}", leases()?);

    // The same container asks again. The native host-local also refuses this request.
    let ipam = Call::new(Path::new("/run/native"), "host-local", "ADD", config.to_string());
    let refusal = node.call(&ipam.attachment("c1", &node.netns("c1"), "eth0"))?;
    ensure!(refusal.status == 1 && refusal.stdout.contains("duplicate"), "{refusal:?}");
    // The network has one address.
    node.sh("ip netns del c1; ip netns add c1")?;
    net.add("c1")?.check()?;
    ensure!(leases()? == "10.5.0.2\n", "{}", leases()?);
    net.attachment("c1").del()?;
    ensure!(leases()?.is_empty(), "{}", leases()?);
    ensure!(node.sh("ls /run/postern/attachments")?.is_empty(), "a record is left");
    Ok(())
}
