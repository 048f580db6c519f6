//! Lists in which each plugin is ours or native: bridge, portmap and firewall in every mixture, with both packet
//! filters. Longer lists add bandwidth and tuning, in the orders that users write. Each side checks and removes the
//! objects of the other side, while the container runs.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{PRIVATE_ETC, Refusal, each};
use postern_tests::{Attachment, Network, Node, merge, native_bin, plugin_bin};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

const TALK: &str = env!("CARGO_BIN_EXE_postern-talk");
const SHORT: &[&str] = &["bridge", "portmap", "firewall"];
/// Long lists. A plugin may appear twice.
const LONG: [&[&str]; 4] = [
    &["bridge", "portmap", "bandwidth", "firewall", "tuning"],
    &["bridge", "tuning", "firewall", "bandwidth", "portmap"],
    &["bridge", "bandwidth", "tuning", "portmap", "firewall", "tuning"],
    &["bridge", "firewall", "portmap", "tuning", "bandwidth"],
];

/// Makes a node that forwards nothing by default. Namespace `out` is behind link `wan`.
const WIRE: &str = "
    ip link set lo up; sysctl -qw net.ipv4.ip_forward=1
    ip link add wan type veth peer name wan netns out; ip address add 192.0.2.1/24 dev wan; ip link set wan up
    ip -n out link set lo up; ip -n out address add 192.0.2.2/24 dev wan; ip -n out link set wan up
    ip -n out route add 10.4.0.0/24 via 192.0.2.1; iptables -P FORWARD DROP
    iptables -A FORWARD -i wan -d 10.4.0.0/24 -j ACCEPT";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ours,
    Native,
}

use Side::{Native, Ours};

impl Side {
    fn other(self) -> Self {
        if self == Ours { Native } else { Ours }
    }

    fn bin(self) -> Result<PathBuf> {
        if self == Ours { plugin_bin() } else { native_bin() }
    }
}

/// One side for each plugin of a list.
type Sides = Vec<Side>;

/// Returns the sides that a number's bits encode.
fn sides(bits: u32, plugins: &[&str]) -> Sides {
    plugins.iter().enumerate().map(|(at, _)| if bits & (1 << at) == 0 { Ours } else { Native }).collect()
}

struct Place {
    node: Node,
    backend: &'static str,
    plugins: &'static [&'static str],
}

/// A server in the container, until it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Place {
    fn new(backend: &'static str, plugins: &'static [&'static str]) -> Result<Self> {
        let node = Node::new()?;
        ["c1", "out"].iter().try_for_each(|container| node.add_container(container))?;
        node.sh(PRIVATE_ETC)?;
        node.sh(WIRE)?;
        node.sh_in("c1", "ip link set lo up")?;
        Ok(Self { node, backend, plugins })
    }

    /// Returns the configuration of one plugin. bridge masquerades only by iptables, because the native DEL fails after
    /// masquerading by nftables.
    fn config(&self, plugin: &str) -> Value {
        let mut config = json!({"type": plugin});
        merge(
            &mut config,
            &match plugin {
                "bridge" => {
                    json!({"bridge": "br4", "isGateway": true, "ipMasq": self.backend == "iptables", "ipMasqBackend": "iptables", "hairpinMode": true, "macspoofchk": true,
                    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.4.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}})
                }
                "portmap" => json!({"backend": self.backend,
                    "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}}),
                "bandwidth" => json!({"ingressRate": 80_000_000, "ingressBurst": 80_000_000, "egressRate": 80_000_000,
                    "egressBurst": 80_000_000}),
                "tuning" => {
                    json!({"mtu": 1400, "txQLen": 77, "allmulti": true, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}})
                }
                _ => json!({"backend": "iptables", "ingressPolicy": "same-bridge"}),
            },
        );
        config
    }

    /// A list of these plugins, all ours.
    fn list(&self, plugins: &[&str]) -> Result<Network> {
        let configs: Vec<Value> = plugins.iter().map(|plugin| self.config(plugin)).collect();
        Network::new(&self.node, &json!({"cniVersion": "1.0.0", "plugins": configs}))
    }

    /// Returns the place's list, in which each plugin is of the given side.
    fn net(&self, sides: &[Side]) -> Result<Network> {
        let list = self.list(self.plugins)?;
        sides.iter().enumerate().try_fold(list, |list, (at, side)| Ok(list.at_by(at, &side.bin()?)))
    }

    fn add(&self, sides: &[Side]) -> Result<Attachment> {
        let mut c1 = self.net(sides)?.attachment("c1");
        for (at, plugin) in self.plugins.iter().enumerate() {
            let before = c1.result.clone();
            c1.add_at(at).with_context(|| format!("{sides:?}"))?;
            // bandwidth adds its link to the result.
            let is_same = before.is_null() || before == c1.result || *plugin == "bandwidth";
            ensure!(is_same, "{plugin} changed the result: {}", c1.result);
        }
        Ok(c1)
    }

    /// Returns the attachment with the plugins of these sides.
    fn of(&self, c1: &Attachment, sides: &[Side]) -> Result<Attachment> {
        Ok(Attachment { network: self.net(sides)?, ..c1.clone() })
    }

    /// Calls each plugin's DEL once, by these sides.
    fn del(&self, c1: &Attachment, sides: &[Side]) -> Result<()> {
        let c1 = self.of(c1, sides)?;
        (0..self.plugins.len()).rev().try_for_each(|at| {
            c1.call_at(at, "DEL")?.success().map(drop).with_context(|| format!("DEL by {sides:?}, at {at}"))
        })
    }

    fn serve(&self) -> Result<Server> {
        let mut command = self.node.command_in("c1", TALK);
        command.args(["serve", "tcp", "0.0.0.0:80"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout")?).read_line(&mut line)?;
        ensure!(line.trim() == "ready", "the server is not ready");
        Ok(Server(child))
    }

    /// Returns the sender that the container's server sees for a connection from outside through the node's port.
    fn seen(&self) -> Result<String> {
        Ok(self.node.sh_in("out", &format!("{TALK} ask tcp 192.0.2.1:8080"))?.trim().to_owned())
    }

    /// Returns true if the server answers through the node's port. On a busy machine the first tries may fail.
    fn forwards(&self) -> Result<bool> {
        Ok(self.seen()? == "192.0.2.2" || self.seen()? == "192.0.2.2")
    }

    /// Returns the rules, links, files and leases that are left of an attachment.
    fn left(&self) -> Result<String> {
        self.node.sh(
            "nft -s list ruleset 2>/dev/null | grep -E '10\\.4\\.0\\.[0-9]+[^/0-9]|comment \"c1' || true
             for save in iptables-save ip6tables-save; do $save | grep -E '10\\.4\\.0\\.([2-9]|[1-9][0-9]+)|CNI-DN-|CNI-[0-9a-f]{24}' || true; done
             ip -o link | grep -E 'veth[0-9a-f]{8}|bwp' || true; find /run/cni -name '*.json' 2>/dev/null || true; ip -o -n c1 link show eth0 2>/dev/null || true
             ls /var/lib/cni/networks/net | grep '^10' || true",
        )
    }
}

/// Attaches a container by the sides `made`, sends traffic, calls CHECK by both sides, and DEL by the sides `removed`.
fn lives(place: &Place, made: &[Side], removed: &[Side]) -> Result<()> {
    let c1 = place.add(made)?;
    let _server = place.serve()?;
    ensure!(place.forwards()?, "no forward: {}", place.seen()?);
    place.node.sh_in("c1", "ping -c1 -W3 192.0.2.2 >/dev/null").context("no connection to 192.0.2.2")?;
    for sides in [made, removed] {
        place.of(&c1, sides)?.check().with_context(|| format!("CHECK by {sides:?}"))?;
    }
    ensure!(place.forwards()?, "the forward does not work after CHECK");
    for time in ["first", "repeated"] {
        place.del(&c1, removed).with_context(|| format!("{time} DEL"))?;
        ensure!(place.left()?.is_empty(), "left by the {time} DEL:\n{}", place.left()?);
    }
    // Native plugins do not know records. DEL of our plugins removes the records, as the next ADD would.
    place.del(&c1, &vec![Ours; place.plugins.len()])?;
    let records = place.node.sh("ls -A /run/postern/attachments 2>/dev/null || true")?;
    ensure!(records.is_empty(), "records are left: {records}");
    Ok(())
}

fn every_mixture(backend: &'static str) -> Result<()> {
    let mixtures: Vec<(u32, bool)> = (0..8).flat_map(|bits| [(bits, false), (bits, true)]).collect();
    each(
        &mixtures,
        |mixture| format!("{backend}: {mixture:?}"),
        |(bits, by_others)| mixture(backend, SHORT, *bits, *by_others),
    )
}

/// One mixture, removed by the sides that made it, or by the opposite sides.
fn mixture(backend: &'static str, plugins: &'static [&'static str], bits: u32, by_others: bool) -> Result<()> {
    let made = sides(bits, plugins);
    let removed = if by_others { made.iter().map(|side| side.other()).collect() } else { made.clone() };
    let place = Place::new(backend, plugins)?;
    lives(&place, &made, &removed).with_context(|| format!("{plugins:?}: made by {made:?}, removed by {removed:?}"))
}

/// Long lists: all ours, all native, and mixtures in which every two plugins have all combinations of sides.
#[test]
fn long_lists_in_the_orders_that_users_write() -> Result<()> {
    let bits = [0b00_0000, 0b11_1111, 0b00_1110, 0b01_0101, 0b10_0011, 0b11_1000];
    let mixtures: Vec<(usize, u32, bool)> = (0..LONG.len())
        .flat_map(|list| bits.into_iter().map(move |bits| (list, bits)))
        .enumerate()
        .map(|(at, (list, bits))| (list, bits, at % 2 == 1))
        .collect();
    each(
        &mixtures,
        |mixture| format!("{mixture:?}"),
        |(list, bits, by_others)| {
            let backend = if bits.count_ones() % 2 == 0 { "nftables" } else { "iptables" };
            mixture(backend, LONG.get(*list).context("a list")?, *bits, *by_others)
        },
    )
}

#[test]
fn every_mixture_by_nftables() -> Result<()> {
    every_mixture("nftables")
}

#[test]
fn every_mixture_by_iptables() -> Result<()> {
    every_mixture("iptables")
}

/// Postern is rolled back while a container runs, and then installed again. Rules and forwards work, and each side can
/// continue.
#[test]
fn a_rollback_and_a_return_with_the_container_running() -> Result<()> {
    for backend in ["nftables", "iptables"] {
        let place = Place::new(backend, SHORT)?;
        let c1 = place.add(&[Ours; 3])?;
        let _server = place.serve()?;
        // Native plugins replace portmap and firewall, and ours replace them again. The container's link stays.
        for side in [Native, Ours, Native] {
            let taken = place.of(&c1, &[Ours, side, side])?;
            for at in [2, 1] {
                taken.call_at(at, "DEL")?.success()?;
            }
            ensure!(place.seen()? == "nobody", "{backend}: {side:?} left the forward");
            for at in [1, 2] {
                taken.call_at(at, "ADD")?.success().with_context(|| format!("{side:?}, at {at}"))?;
            }
            ensure!(place.forwards()?, "{backend}: no forward of {side:?}");
            for checking in [Native, Ours] {
                let checked = place.of(&c1, &[Ours, checking, checking])?.check();
                checked.with_context(|| format!("{backend}: made by {side:?}, checked by {checking:?}"))?;
            }
        }
        place.del(&c1, &vec![Ours; place.plugins.len()])?;
        ensure!(place.left()?.is_empty(), "{backend}: {}", place.left()?);
    }
    Ok(())
}

/// Like the native plugin, firewall refuses CNI versions below 0.4.0. DEL fails with this error too, but removes the
/// effects that the record lists.
#[test]
fn firewall_without_an_earlier_result() -> Result<()> {
    let place = Place::new("iptables", SHORT)?;
    for (made, is_removed) in [(Ours, true), (Native, false)] {
        let c1 = place.add(&[Native, Native, made])?;
        for verb in ["ADD", "DEL"] {
            let answer = place.net(&[Ours; 3])?.call_at(2, verb, "c1", &json!({"cniVersion": "0.3.1"}))?;
            Refusal::of(&answer)?.expect(1, "incompatible CNI versions")?;
        }
        let rules = place.node.sh("iptables-save -t filter | grep -cE '10\\.4\\.0\\.[0-9]+/32' || true")?;
        // The rules name only addresses. Without record and result, no plugin knows the owner of the rules.
        ensure!((rules.trim() == "0") == is_removed, "{made:?}: {rules}");
        place.del(&c1, &[Native, Native, Ours])?;
        ensure!(place.left()?.is_empty(), "{made:?}: {}", place.left()?);
    }
    Ok(())
}

/// Results of other vendors' interface plugins, with their own texts of `sandbox` (Antrea, hostnic-cni, terway#358),
/// indices, gateways and empty entries (cni#1191). Each later plugin works, and passes on the unchanged
/// parts.
#[test]
fn results_of_third_parties() -> Result<()> {
    const BEHIND: &[&str] = &["tuning", "portmap", "firewall", "bandwidth", "sbr"];
    let place = Place::new("nftables", SHORT)?;
    let (bridge, behind) = (place.list(&["bridge"])?.by(&native_bin()?), place.list(BEHIND)?);
    let netns = place.node.netns("c1");
    let own = |sandbox: Value| json!([{"name": "br4"}, null, {"name": "eth0", "sandbox": sandbox}]);
    let numbers = [json!(2), Value::Null, json!(-1), json!(9)];
    let spellings = [
        json!(netns),
        json!(format!("/host{netns}")),
        json!("0af3c17f6b0b5d1d8f3f8c5f2f7e6a5d"),
        json!(netns.replace("/netns/", "/./netns/")),
        json!("/proc/4194305/ns/net"),
        json!(""),
        Value::Null,
    ];
    let cases = spellings.into_iter().map(|sandbox| (own(sandbox), json!(2)));
    let cases = cases.chain(numbers.into_iter().map(|number| (own(json!(netns)), number)));
    each(
        cases.collect::<Vec<_>>(),
        |case| format!("{} {}", case.0, case.1),
        |(interfaces, number)| {
            let made = bridge.add("c1")?;
            let mut previous = made.result.clone();
            let end = made.result.pointer("/interfaces/1").context("no host end")?;
            previous["interfaces"] = interfaces.clone();
            previous["interfaces"][1] = end.clone();
            if let Some(all) = previous["interfaces"].as_array_mut() {
                all.push(Value::Null);
            }
            merge(&mut previous["ips"][0], &json!({"interface": null}));
            merge(&mut previous["ips"][0], &json!({"interface": number}));
            let foreign = json!({"address": "10.4.9.9/24", "gateway": "fd00::1", "interface": -1});
            previous["routes"] = json!([null, {"dst": "0.0.0.0/0"}]);
            for (at, plugin) in BEHIND.iter().enumerate() {
                let mut patch = json!({"prevResult": previous});
                match *plugin {
                    "tuning" => patch["mac"] = json!("02:00:00:00:00:77"),
                    "firewall" => patch["ingressPolicy"] = json!("open"),
                    "sbr" => patch = json!({"prevResult": previous, "backend": null, "ingressPolicy": null}),
                    // bandwidth does not use addresses, so wrong addresses do not concern it.
                    "bandwidth" => patch["prevResult"]["ips"] = json!([previous["ips"][0], foreign, null]),
                    _ => {}
                }
                let call = |verb: &str| behind.call_at(at, verb, "c1", &patch);
                let answer = call("ADD")?.success().with_context(|| (*plugin).to_owned())?;
                ensure!(answer["ips"][0] == previous["ips"][0], "{plugin}: {answer}");
                let mac = answer.pointer("/interfaces/2/mac").cloned();
                match *plugin {
                    "tuning" => ensure!(mac == Some(json!("02:00:00:00:00:77")), "the old address: {answer}"),
                    "bandwidth" => ensure!(answer["ips"][1] == foreign, "{answer}"),
                    _ => {}
                }
                if *plugin != "sbr" {
                    call("CHECK")?.success().with_context(|| format!("CHECK of {plugin}"))?;
                }
            }
            let rules = place.node.sh("nft list table ip cni_hostport; iptables -S CNI-FORWARD")?;
            ensure!(rules.contains("dnat to 10.4.0.") && rules.contains("-s 10.4.0."), "{rules}");
            for at in (0..BEHIND.len()).rev() {
                behind.call_at(at, "DEL", "c1", &json!({"prevResult": previous}))?.success()?;
            }
            made.call_at(0, "DEL")?;
            let rules = place.node.sh("nft list table ip cni_hostport; iptables -S CNI-FORWARD")?;
            ensure!(!rules.contains("10.4.0."), "{rules}");
            place.node.sh("rm -f /var/lib/cni/networks/net/last_reserved_ip.0")?;
            Ok(())
        },
    )
}

/// Addresses in the results of third parties, in other forms than our plugins use. Terway gives the link a single
/// address (/32), and the result has the network's prefix length. In the second case, a plugin between ours adds an
/// address. Plugins of both sides work with these addresses.
#[test]
fn addresses_of_third_parties() -> Result<()> {
    let place = Place::new("nftables", SHORT)?;
    let net = place.list(&["portmap", "firewall"])?.with(&json!({"ingressPolicy": "open"}));
    let call = |side: Side, at: usize, verb: &str, previous: &Value| -> Result<Value> {
        let patch = json!({"cniVersion": previous["cniVersion"], "prevResult": previous});
        let answer = net.clone().by(&side.bin()?).call_at(at, verb, "c1", &patch)?;
        answer.success().with_context(|| format!("{verb} by {side:?}, at {at}"))
    };
    let rules = || place.node.sh("nft list ruleset; iptables -S; ip6tables -S");
    let behind = |previous: &Value, address: &str| -> Result<()> {
        for side in [Native, Ours] {
            for verb in ["ADD", "CHECK"] {
                for at in [0, 1] {
                    call(side, at, verb, previous)?;
                }
            }
            ensure!(rules()?.contains(&format!("-s {address} -j ACCEPT")), "{side:?}: {}", rules()?);
            for at in [1, 0] {
                call(side, at, "DEL", previous)?;
            }
            ensure!(!rules()?.contains(address.split('/').next().unwrap_or_default()), "{side:?}: {}", rules()?);
        }
        Ok(())
    };
    place.node.sh("ip link add host0 type veth peer name eth0 netns c1; ip link set host0 up")?;
    place.node.sh_in("c1", "ip address add 10.7.0.9/32 dev eth0; ip link set eth0 up")?;
    let routed =
        json!({"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.7.0.9/24", "gateway": "10.7.0.253"}]});
    behind(&routed, "10.7.0.9/32")?;
    place.node.sh("ip link delete host0")?;

    let mut c1 = place.list(&["bridge"])?.add("c1")?;
    let both = &mut c1.result;
    place.node.sh_in("c1", "ip address add fd00:4::5/64 dev eth0 nodad")?;
    if let Some(ips) = both["ips"].as_array_mut() {
        ips.push(json!({"address": "fd00:4::5/64", "gateway": "fd00:4::1", "interface": 2}));
    }
    behind(both, "fd00:4::5/128")?;
    c1.call_at(0, "DEL")?.success()?;
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    Ok(())
}
