//! The native plugins' words for these refusals mislead. Our refusals have the same code and words, and also name the
//! cause and a remedy.

#![allow(clippy::indexing_slicing, reason = "absent keys of a JSON object are null")]

use anyhow::{Result, ensure};
use postern_tests::kernel::{self, NO_TAPS};
use postern_tests::proof::{PRIVATE_ETC, Refusal, Watched, each, same_picture};
use postern_tests::{Answer, Call, Network, Node, native_bin, plugin_bin, skip, skip_part};
use serde_json::json;
use std::process::Command;

/// The node's links besides `lo`: a wire, a port of a bridge, a link with a macvlan in mode passthru, and a container's
/// link that another plugin made.
const NODE: &str = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
    ip link add p0 address 02:00:00:00:00:50 type veth peer name p1; ip link set p0 up; ip link set p1 up
    ip link add brx type bridge; ip link add q0 type veth peer name q1; ip link set q0 master brx up; ip link set q1 up
    ip link add pt0 link q1 type macvlan mode passthru
    ip link add mac0 link p1 type macvlan mode bridge
    for c in c1 c2; do ip link add to$c type veth peer name eth7 netns $c; ip link set to$c up
      ip -n $c link set eth7 up; ip -n $c addr add 10.9.7.9/24 dev eth7; done";

/// The plugin, a patch of its configuration, and the parts of the answer with code 999.
const CASES: &[(&str, &str, &str)] = &[
    (
        "bridge",
        r#"{"runtimeConfig": {"mac": "01:00:5e:00:00:01"}}"#,
        "failed to make veth pair: cannot assign requested address: 01:00:5e:00:00:01 is the address of a group…`mac`",
    ),
    (
        "bridge",
        r#"{"runtimeConfig": {"mac": "00:00:00:00:00:00"}}"#,
        "00:00:00:00:00:00 is all zeros…first byte is even",
    ),
    (
        "macvlan",
        r#"{"runtimeConfig": {"mac": "ff:ff:ff:ff:ff:ff"}}"#,
        "failed to create macvlan: cannot assign requested address: ff:ff:ff:ff:ff:ff is the broadcast address…`mac`",
    ),
    (
        "tap",
        r#"{"runtimeConfig": {"mac": "01:00:5e:00:00:01"}}"#,
        "cannot assign requested address…the address of a group…`mac`",
    ),
    (
        "tuning",
        r#"{"mac": "01:00:5e:00:00:01"}"#,
        "cannot assign requested address: 01:00:5e:00:00:01 is the address of a group…`mac`",
    ),
    (
        "macvlan",
        r#"{"runtimeConfig": {"mac": "02:00:00:00:00:50"}, "master": "p0"}"#,
        "failed to set \"eth0\" UP: address already in use: its master, or another link on this master, has 02:00:00:00:00:50…leave `mac` out",
    ),
    ("bridge", r#"{"bridge": "br8", "mtu": 67}"#, "invalid argument…MTU 67 is out of range…from 68 to 65535"),
    (
        "bridge",
        r#"{"bridge": "br8", "mtu": 100000}"#,
        "could not add \"br8\"…MTU 100000 is out of range…from 68 to 65535",
    ),
    ("ptp", r#"{"mtu": 67}"#, "failed to make veth pair: invalid argument: MTU 67 is out of range…from 68 to 65535"),
    ("ptp", r#"{"mtu": 100000}"#, "failed to make veth pair: invalid argument: MTU 100000 is out of range"),
    ("macvlan", r#"{"mtu": 67}"#, "failed to create macvlan: invalid argument…MTU 67 is out of range"),
    ("macvlan", r#"{"mtu": 100000}"#, "invalid MTU 100000, must be [0, master MTU(1500)]"),
    ("tap", r#"{"mtu": 67}"#, "invalid argument…MTU 67 is out of range…from 68 to 65521"),
    ("tap", r#"{"mtu": 65522}"#, "invalid argument…MTU 65522 is out of range…from 68 to 65521"),
    ("tuning", r#"{"mtu": 100000}"#, "invalid argument: MTU 100000 is out of range…from 68 to 65535"),
    (
        "bridge",
        r#"{"mtu": 1279, "bridge": "br8", "isGateway": true, "ipam": {"ranges": [[{"subnet": "fd00::/64"}]]}}"#,
        "\"eth0\" has MTU 1279, and IPv6 needs 1280…`mtu` of at least 1280",
    ),
    (
        "macvlan",
        r#"{"master": "q0"}"#,
        "failed to create macvlan: device or resource busy: \"q0\" is a port of bridge \"brx\"…name \"brx\" as `master`",
    ),
    (
        "macvlan",
        r#"{"master": "q1"}"#,
        "failed to create macvlan: invalid argument: \"pt0\" has \"q1\" for itself, in mode passthru…another `master`",
    ),
    (
        "macvlan",
        r#"{"master": "p1", "mode": "passthru"}"#,
        "invalid argument: mode passthru needs \"p1\" for itself, but \"p1\" has the macvlan \"mac0\"…another `mode` or `master`",
    ),
    (
        "macvlan",
        r#"{"master": "lo", "mtu": 0}"#,
        "failed to create macvlan: invalid argument: \"lo\" is no Ethernet link",
    ),
    (
        "portmap",
        r#"{"snat": true, "externalSetMarkChain": "KUBE-MARK-MASQ"}"#,
        "find chain KUBE-MARK-MASQ (externalSetMarkChain): table nat of iptables has no such chain…kube-proxy in mode \
         nftables…without `externalSetMarkChain`",
    ),
    (
        "portmap",
        r#"{"conditionsV4": ["-d", "10.0.0.0/8", "-m", "set", "--match-set", "x", "dst"]}"#,
        "conditionsV4: \"-m set\" is no condition: a condition can be `-s NETWORK`, `-d NETWORK` or `-i LINK`…IPv4",
    ),
    (
        "portmap",
        r#"{"conditionsV4": ["-d", "2001:db8::/32"]}"#,
        "\"-d 2001:db8::/32\" is no condition…NETWORK is an IPv4 network",
    ),
    ("portmap", r#"{"conditionsV4": ["-d"]}"#, "\"-d\" is no condition…`-d NETWORK`"),
    (
        "portmap",
        r#"{"backend": "nftables", "conditionsV4": ["ip", "dport", "80"]}"#,
        "\"ip dport 80\" is no condition…`ip saddr NETWORK`",
    ),
    (
        "host-local",
        r#"{"ipam": {"ranges": [[{"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.20", "rangeEnd": "10.9.0.10"}]]}}"#,
        "invalid range set 0: RangeStart 10.9.0.20 not in network 10.9.0.0/24: it is behind RangeEnd 10.9.0.10",
    ),
    (
        "tuning",
        r#"{"sysctl": {"net.ipv4.conf.eth7.100.arp_filter": "1"}}"#,
        "open /proc/sys/net/ipv4/conf/eth7/100/arp_filter: no such file or directory…net.ipv4.conf.IFNAME.arp_filter",
    ),
    (
        "tuning",
        r#"{"sysctl": {"net.ipv4.conf.eth7.arp_fliter": "1"}}"#,
        "open /proc/sys/net/ipv4/conf/eth7/arp_fliter: no such file or directory",
    ),
];

/// Makes a network of a plugin with this patch. A chained plugin comes after the plugin that made `eth7` in
/// `container`.
fn network(node: &Node, plugin: &str, patch: &str, container: &str) -> Result<Network> {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
    let (own, interface) = match plugin {
        "bridge" => (json!({"bridge": "br9", "ipam": ipam}), "eth0"),
        "macvlan" => (json!({"master": "p1", "ipam": ipam}), "eth0"),
        "tap" => (json!({"ipam": {}}), "eth0"),
        "tuning" | "portmap" => {
            let previous = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth7", "sandbox": node.netns(container)}],
                "ips": [{"address": "10.9.7.9/24", "interface": 0}]});
            let mappings = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
            (json!({"prevResult": previous, "runtimeConfig": {"portMappings": mappings}}), "eth7")
        }
        _ => (json!({"ipam": ipam}), "eth0"),
    };
    let network = Network::new(node, &json!({"cniVersion": "1.0.0", "type": plugin}))?.interface(interface);
    Ok(network.with(&own).with(&serde_json::from_str(patch)?))
}

#[test]
fn a_refusal_names_the_cause_and_the_way_out() -> Result<()> {
    let watched = Watched::new(&["c1", "c2"])?;
    watched.node.sh(NODE)?;
    let native = native_bin();
    // These calls make the shared chains and the lease directory, which stay.
    for plugin in ["portmap", "host-local", "bridge"] {
        let network = network(&watched.node, plugin, "{}", "c1")?;
        for verb in ["ADD", "DEL"] {
            network.call(verb, "c1")?.success()?;
        }
    }
    let before = postern_tests::proof::picture(&watched.node, &["c1"])?;
    let has_taps = kernel::has("tap")?;
    if !has_taps {
        skip_part("tap", NO_TAPS);
    }
    each(
        CASES.iter().filter(|case| has_taps || case.0 != "tap"),
        |case| format!("{} {}", case.0, case.1),
        |(plugin, patch, words)| {
            let ours = network(&watched.node, plugin, patch, "c1")?;
            let answer = ours.call("ADD", "c1")?;
            if answer.status == 0 || native.is_err() {
                ours.call("DEL", "c1")?;
            }
            Refusal::of(&answer)?.expect(999, words)?;
            // A refusal leaves nothing. No message claims that the container moved a link that never existed.
            ensure!(answer.stderr.is_empty(), "{answer:?}");
            watched.node.sh("ip link del br8 2>/dev/null || true")?;
            same_picture(&before, &postern_tests::proof::picture(&watched.node, &["c1"])?)?;
            if let Ok(native) = &native {
                let theirs = network(&watched.node, plugin, patch, "c2")?.by(native);
                let refused = theirs.call("ADD", "c2")?;
                ensure!(Refusal::of(&refused)?.code == 999, "native: {refused:?}");
                theirs.call("DEL", "c2")?;
                watched.node.sh(
                    "ip link del br8 2>/dev/null || true; ip -n c2 link del eth0 2>/dev/null || true
                     iptables -w -t nat -S | sed -n 's/^-A \\(CNI-HOSTPORT-DNAT .*CNI-DN.*\\)/-D \\1/p' | xargs -r -L1 iptables -w -t nat
                     for c in $(iptables -w -t nat -S | sed -n 's/^-N \\(CNI-DN-.*\\)/\\1/p'); do iptables -w -t nat -F $c; iptables -w -t nat -X $c; done
                     rm -rf /run/cni; rm -f /var/lib/cni/networks/net/1* /var/lib/cni/networks/net/f*",
                )?;
            }
            Ok(())
        },
    )
}

/// Errors for keys that only native plugins accept.
#[test]
fn keys_that_only_native_plugins_take() -> Result<()> {
    let watched = Watched::new(&["c1"])?;
    watched.node.sh(NODE.replace("for c in c1 c2", "for c in c1").as_str())?;
    let mut null = network(&watched.node, "tuning", "{}", "c1")?.config(0, &json!({}))?;
    null["sysctl"] = json!({"net.ipv4.conf.eth7.arp_filter": null});
    let call = Call::new(&plugin_bin()?, "tuning", "ADD", null.to_string());
    let answer = watched.node.call(&call.attachment("c1", &watched.node.netns("c1"), "eth7"))?;
    Refusal::of(&answer)?.expect(999, "the value for net.ipv4.conf.eth7.arp_filter is null…leave the key out")?;
    let untyped = json!({"cniVersion": "1.0.0", "type": "static", "ipam": {"addresses": [{"address": "10.9.0.5/24"}]}});
    Refusal::of(&Network::new(&watched.node, &untyped)?.call("ADD", "c1")?)?
        .expect(999, "claims address 10.9.0.5/24…`ipam` has no `type`: \"type\": \"static\" lets the plugin")?;
    Ok(())
}

/// A range that begins at the broadcast address begins after the last usable address. The native plugin gives out the
/// broadcast address.
#[test]
fn a_range_that_begins_at_the_broadcast_address() -> Result<()> {
    let watched = Watched::new(&["c1"])?;
    let patch = r#"{"ipam": {"ranges": [[{"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.255"}]]}}"#;
    Refusal::of(&network(&watched.node, "host-local", patch, "c1")?.call("ADD", "c1")?)?
        .expect(999, "RangeStart 10.9.0.255 not in network 10.9.0.0/24: it is behind RangeEnd 10.9.0.254, the last one before the broadcast address")
}

/// The link's name may contain a dot. No key can contain such a name, so `IFNAME` stands for the name.
#[test]
fn a_link_with_a_dot_in_its_name() -> Result<()> {
    let watched = Watched::new(&["c1"])?;
    watched.node.sh(
        "ip link add to1 type veth peer name eth0.100 netns c1; ip link set to1 up; ip -n c1 link set eth0.100 up",
    )?;
    let attempt = |key: &str| -> Result<Answer> {
        let previous = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0.100", "sandbox": "/run/netns/c1"}]});
        let tuning = json!({"cniVersion": "1.0.0", "type": "tuning", "sysctl": {key: "1"}, "prevResult": previous});
        Network::new(&watched.node, &tuning)?.interface("eth0.100").call("ADD", "c1")
    };
    for key in
        ["net.ipv4.conf.eth0.100.arp_filter", "net/ipv4/conf/eth0.100/arp_filter", "net.ipv4.conf.eth0/100.arp_filter"]
    {
        Refusal::of(&attempt(key)?)?.expect(110, "a setting of \"eth0\"…net.ipv4.conf.IFNAME.arp_filter")?;
    }
    attempt("net.ipv4.conf.IFNAME.arp_filter")?.success()?;
    ensure!(watched.node.sh_in("c1", "cat /proc/sys/net/ipv4/conf/eth0.100/arp_filter")?.trim() == "1");
    Ok(())
}

/// IPv6 is switched off on the node. ADD fails for addresses of the bridge or the host end. The plugin switches IPv6 on
/// only in the container.
#[test]
fn ipv6_that_is_switched_off() -> Result<()> {
    let watched = Watched::new(&["c1"])?;
    watched.node.sh(
        "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6",
    )?;
    for (plugin, patch) in [("bridge", r#"{"isGateway": true}"#), ("ptp", "{}")] {
        let ranges = json!({"ipam": {"ranges": [[{"subnet": "fd00::/64"}]]}});
        let network = network(&watched.node, plugin, patch, "c1")?.with(&ranges);
        Refusal::of(&network.call("ADD", "c1")?)?.expect(
            999,
            "permission denied…IPv6 is switched off for …disable_ipv6 = 0…leave the IPv6 ranges and routes out",
        )?;
    }
    Ok(())
}

/// A systemd unit may forbid its processes to make code executable. A new installation would not help.
#[test]
fn a_runtime_that_may_make_no_code() -> Result<()> {
    // systemd sets PR_SET_MDWE, in addition to a seccomp filter.
    const SCRIPT: &str = "import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) != 0: sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])";
    let watched = Watched::new(&["c1"])?;
    let plugin = network(&watched.node, "host-local", "{}", "c1")?.request(0, "ADD", "c1", &json!({}))?;
    let wrapper: Vec<String> = ["python3", "-c", SCRIPT].map(str::to_owned).to_vec();
    if !Command::new("python3").args(["-c", "pass"]).status().is_ok_and(|status| status.success()) {
        skip("python3 is not installed");
        return Ok(());
    }
    let answer = watched.node.call_under(&wrapper, &plugin)?;
    if answer.status == 77 {
        skip("this kernel has no PR_SET_MDWE");
        return Ok(());
    }
    let refusal = Refusal::of(&answer)?;
    refusal.expect(999, "cannot make the code executable…noexec…MemoryDenyWriteExecute=yes…set it to no")?;
    ensure!(!refusal.text.contains("install Postern again"), "{refusal:?}");
    Ok(())
}

/// Another process holds the lock of a store. The guest gets the error, with the file's name, before the run's
/// deadline.
#[test]
fn a_store_whose_lock_is_held() -> Result<()> {
    let watched = Watched::new(&["c1"])?;
    watched.node.sh(&format!("{PRIVATE_ETC} printf '[limits]\\nseconds = 2\\n' > /etc/postern/policy/bridge.toml"))?;
    let network = network(&watched.node, "bridge", "{}", "c1")?;
    for verb in ["ADD", "DEL"] {
        network.call(verb, "c1")?.success()?;
    }
    let mut holder = watched.node.command("flock");
    let mut holder = holder.args(["-x", "/var/lib/cni/networks/net/lock", "sleep", "20"]).spawn()?;
    watched.node.sh("tries=0; while flock -n /var/lib/cni/networks/net/lock true; do sleep .02; tries=$((tries+1)); [ $tries -lt 200 ]; done")?;
    let answer = network.call("ADD", "c1");
    let _ = holder.kill();
    let _ = holder.wait();
    Refusal::of(&answer?)?
        .expect(11, "lock /var/lib/cni/networks/net/lock: not free before the deadline…holds the lock…try again")
}
