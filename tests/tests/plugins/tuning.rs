//! tuning behind other plugins: its changes, what DEL puts back, and how earlier plugins check the changed link.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::PRIVATE_ETC;
use postern_tests::{Network, Node, merge, native_bin, plugin_bin};
use serde_json::{Value, json};

const FILE: &str = "/run/cni/tuning/c1_eth0.json";

/// Cuts the record after tuning's effect, as if tuning's run was killed.
const CUT: &str = "record=$(ls /run/postern/attachments/*); grep -q '\"tuning\"' $record
    last=$(grep -n link-change $record | cut -d: -f1); head -n $last $record > /run/cut; cat /run/cut > $record";

/// A node with one network list. This test is the runtime.
struct Place {
    node: Node,
    net: Network,
}

/// The bridge of the specification's own example.
fn bridge() -> Value {
    json!({
        "type": "bridge", "bridge": "br9", "isGateway": true, "macspoofchk": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    })
}

impl Place {
    fn new(plugins: &[Value]) -> Result<Self> {
        let node = Node::new()?;
        node.add_container("c1")?;
        node.sh("ip link add wire1 address 02:00:00:00:ee:01 type veth peer name wire2
            ip link set wire1 up; ip link set wire2 up")?;
        node.sh(PRIVATE_ETC)?;
        let net = Network::new(&node, &json!(plugins))?;
        Ok(Self { node, net })
    }

    /// Fails if a file, a record, a lease or a rule is left.
    fn is_clean(&self) -> Result<()> {
        let left = self.node.sh(
            "find /run/cni /var/lib/cni/networks -name '*.json' -o -name '10.*' 2> /dev/null || true; ls /run/postern/attachments 2> /dev/null || true
             nft list table bridge nat 2> /dev/null | grep -e macspoofchk -e cni-br-iface || true",
        )?;
        ensure!(left.trim().is_empty(), "left: {left}");
        Ok(())
    }

    /// Returns the container's link: address, MTU, promiscuous mode, all multicast frames, queue length.
    fn link(&self) -> Result<(String, u64, bool, bool, u64)> {
        let text = self.node.sh_in("c1", "ip -d -j link show dev eth0")?;
        let links: Value = serde_json::from_str(&text)?;
        let link = links.get(0).context("a link")?;
        let has = |flag: &str| link["flags"].to_string().contains(&format!("\"{flag}\""));
        let number = |key: &str| link[key].as_u64().unwrap_or_default();
        let mac = link["address"].as_str().unwrap_or_default().to_owned();
        Ok((mac, number("mtu"), has("PROMISC"), has("ALLMULTI"), number("txqlen")))
    }

    /// Returns true if a packet of the container reaches the bridge's gateway.
    fn is_connected(&self) -> Result<bool> {
        let out = self
            .node
            .sh_in("c1", "ip neigh flush dev eth0; ping -c1 -W2 10.9.0.1 > /dev/null 2>&1 && echo yes || echo no")?;
        Ok(out.trim() == "yes")
    }
}

fn tuning(keys: &Value) -> Value {
    let mut config = json!({"type": "tuning"});
    merge(&mut config, keys);
    config
}

/// The list of CNI's specification: bridge, tuning with an address, portmap.
#[test]
fn spoofing_protection_follows_the_address_that_the_network_names() -> Result<()> {
    let ports = json!({"type": "portmap", "backend": "nftables", "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}});
    for patch in [
        json!({"mac": "02:00:00:00:00:AA"}),
        json!({"mac": "02:00:00:00:00:01", "runtimeConfig": {"mac": "02:00:00:00:00:aa"}}),
        json!({"runtimeConfig": {"mac": "02:00:00:00:00:01"}, "args": {"cni": {"mac": "02-00-00-00-00-AA"}}}),
    ] {
        let place = Place::new(&[bridge(), tuning(&patch), ports.clone()])?;
        let mut c1 = place.net.add_first(1, "c1")?;
        let made = place.link()?.0;
        ensure!(place.is_connected()?, "no connection with bridge alone");
        c1.add_at(1)?;
        ensure!(place.link()?.0 == "02:00:00:00:00:aa", "{patch}: {:?}", place.link()?);
        ensure!(place.is_connected()?, "{patch}: the new address does not pass");
        c1.add_at(2)?;
        let c1 = c1.check()?;
        // The old address does not pass, nor does a third address.
        for other in [made.as_str(), "02:00:00:00:00:bb"] {
            place.node.sh_in("c1", &format!("ip link set eth0 address {other}"))?;
            ensure!(!place.is_connected()?, "{patch}: {other} passes");
            ensure!(c1.call_at(0, "CHECK")?.status != 0, "{patch}: CHECK succeeds with {other}");
        }
        place.node.sh_in("c1", "ip link set eth0 address 02:00:00:00:00:aa")?;
        ensure!(place.is_connected()?, "{patch}");
        // DEL of tuning puts back the address and the protection that bridge made.
        c1.call_at(2, "DEL")?.success()?;
        c1.call_at(1, "DEL")?.success()?;
        ensure!(place.link()?.0 == made && place.is_connected()?, "{patch}: {:?}", place.link()?);
        place.node.sh_in("c1", "ip link set eth0 address 02:00:00:00:00:aa")?;
        ensure!(!place.is_connected()?, "{patch}: the address passes after DEL");
        c1.call_at(0, "DEL")?.success()?;
        place.is_clean()?;
    }
    Ok(())
}

/// CHECK of the plugins that make links accepts the changes of a later plugin.
#[test]
fn checks_of_every_plugin_before_pass() -> Result<()> {
    let ipam = || json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
    let keys = json!({"mac": "02:00:00:00:00:AA", "mtu": 1400, "promisc": true, "allmulti": true, "txQLen": 77, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}});
    for main in [
        bridge(),
        json!({"type": "bridge", "bridge": "br9"}),
        json!({"type": "ptp", "ipam": ipam()}),
        json!({"type": "macvlan", "master": "wire1", "ipam": ipam()}),
        json!({"type": "host-device", "device": "wire1", "ipam": ipam()}),
    ] {
        let place = Place::new(&[main.clone(), tuning(&keys)])?;
        let c1 = place.net.add("c1").with_context(|| main.to_string())?;
        ensure!(place.link()? == ("02:00:00:00:00:aa".to_owned(), 1400, true, true, 77), "{main}: {:?}", place.link()?);
        c1.check().and_then(|c1| c1.del()).with_context(|| main.to_string())?;
        place.is_clean().with_context(|| main.to_string())?;
        if main["type"] == "host-device" {
            let link = place.node.sh("ip -d link show dev wire1")?;
            ensure!(
                link.contains("02:00:00:00:ee:01")
                    && link.contains("mtu 1500")
                    && link.contains("qlen 1000")
                    && !link.contains("PROMISC")
                    && !link.contains("ALLMULTI"),
                "{link}"
            );
        }
    }
    let lo =
        Place::new(&[json!({"type": "loopback"}), tuning(&json!({"sysctl": {"net.ipv4.conf.lo.arp_ignore": "1"}}))])?;
    let c1 = lo.net.add("c1")?;
    ensure!(lo.node.sh_in("c1", "cat /proc/sys/net/ipv4/conf/lo/arp_ignore")?.trim() == "1", "{c1:?}");
    c1.call_at(0, "CHECK")?.success()?;
    c1.del()?;
    lo.is_clean()
}

/// Root in the container gives the old address to another link on the same wire. The kernel then refuses the old
/// address for `eth0`.
#[test]
fn nothing_that_the_container_makes_impossible_stops_a_del() -> Result<()> {
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
    let main = json!({"type": "macvlan", "master": "wire1", "ipam": ipam});
    let place = Place::new(&[main, tuning(&json!({"mac": "02:00:00:00:00:aa", "mtu": 1400}))])?;
    let mut c1 = place.net.add_first(1, "c1")?;
    let (before, ..) = place.link()?;
    c1.add_at(1)?;
    place.node.sh_in(
        "c1",
        &format!("ip link add twin link eth0 address {before} type macvlan mode bridge; ip link set twin up"),
    )?;
    let answer = c1.call_at(1, "DEL")?;
    ensure!(answer.status == 0 && answer.stderr.contains("impossible in the container, and skipped: "), "{answer:?}");
    // The MTU comes back.
    let (mac, mtu, ..) = place.link()?;
    ensure!((mac.as_str(), mtu) == ("02:00:00:00:00:aa", 1500), "{mac} {mtu}");
    c1.call_at(0, "DEL")?.success()?;
    ensure!(place.node.sh("ls /run/postern/attachments")?.is_empty(), "a record is left");
    Ok(())
}

/// If the kernel refuses a sysctl or an attribute, ADD undoes the earlier changes.
#[test]
fn a_failed_add_leaves_the_container_as_it_was() -> Result<()> {
    let sysctl = "/proc/sys/net/core/somaxconn";
    for (keys, words) in [
        (json!({"sysctl": {"net.core.somaxconn": "500", "net.ipv4.ip_forward": "x"}}), "invalid argument"),
        (
            json!({"sysctl": {"net.core.somaxconn": "500"}, "mtu": 1400, "txQLen": 77, "mac": "02:00:00:00:00:aa", "dataDir": "/var/lib"}),
            "directory of the system",
        ),
        (json!({"sysctl": {"net.core.somaxconn": "500"}, "mac": "01:00:00:00:00:aa"}), "is the address of a group"),
        (json!({"sysctl": {"net.core.somaxconn": "500", "net.netfilter.nf_conntrack_max": "5"}}), ""),
    ] {
        let place = Place::new(&[bridge(), tuning(&keys)])?;
        let c1 = place.net.add_first(1, "c1")?;
        let before = (place.link()?, place.node.sh_in("c1", &format!("cat {sysctl}"))?);
        let answer = c1.call_at(1, "ADD")?;
        ensure!(answer.status == 1 && answer.stdout.contains(words), "{keys}: {answer:?}");
        ensure!(before == (place.link()?, place.node.sh_in("c1", &format!("cat {sysctl}"))?), "{keys}");
        ensure!(place.is_connected()?, "{keys}");
        ensure!(place.node.sh(&format!("test ! -e {FILE} && echo gone"))?.trim() == "gone", "{keys}");
        c1.call_at(0, "DEL")?.success()?;
        place.is_clean()?;
    }
    Ok(())
}

/// With some settings the kernel changes other links too, and removes their addresses and routes. A failed ADD puts all
/// of them back, even those of another network's attachment.
#[test]
fn a_failed_add_puts_back_what_the_kernel_changed_beside() -> Result<()> {
    let look = "ip -o -6 address show scope global | sed 's/ valid_lft.*//; s/ nodad//' | sort
        ip -6 route show table all | grep -v -e ^multicast -e fe80 -e ^anycast -e '^local ::1' | sort
        cd /proc/sys/net; grep -s . ipv4/conf/*/forwarding ipv4/conf/all/accept_redirects
        grep -s . ipv6/conf/*/disable_ipv6 ipv6/conf/*/forwarding ipv6/conf/*/addr_gen_mode";
    let main = json!({"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]],
        "routes": [{"dst": "2001:db8::/32"}]}});
    for keys in [
        json!({"sysctl": {"net.ipv6.conf.all.disable_ipv6": "1"}, "txQLen": 77, "dataDir": "/var/lib"}),
        json!({"sysctl": {"net.ipv6.conf.eth0.disable_ipv6": "1"}, "mtu": 1400, "dataDir": "/var/lib"}),
        json!({"sysctl": {"net.ipv6.conf.all.disable_ipv6": "1", "net.ipv6.conf.lo.disable_ipv6": "x"}}),
        json!({"sysctl": {"net.ipv6.conf.IFNAME.disable_ipv6": "1", "net.ipv6.conf.lo.disable_ipv6": "x"}}),
        json!({"sysctl": {"net.ipv4.conf.all.forwarding": "1", "net.ipv4.ip_forward": "x"}}),
        json!({"sysctl": {"net.ipv4.ip_forward": "1", "net.ipv6.conf.lo.disable_ipv6": "x"}}),
        json!({"sysctl": {"net.ipv6.conf.all.forwarding": "1", "net.ipv6.conf.lo.disable_ipv6": "x"}}),
        json!({"sysctl": {"net.ipv6.conf.all.addr_gen_mode": "1", "net.ipv6.conf.lo.disable_ipv6": "x"}}),
        json!({"sysctl": {"net.ipv6.conf.lo.disable_ipv6": "x"}, "mtu": 1279}),
    ] {
        let place = Place::new(&[main.clone(), tuning(&keys)])?;
        let c1 = place.net.add_first(1, "c1")?;
        // Another attachment, and links with their own values.
        place.node.sh_in(
            "c1",
            "ip link add net1 type veth peer name far; ip link set far up; ip link set net1 up
             ip address add fd00:7::2/64 dev net1 nodad; ip -6 route add 2001:db8:7::/48 via fd00:7::1 dev net1
             ip link add net2 type veth peer name far2
             cd /proc/sys/net; echo 1 > ipv4/conf/net1/forwarding; echo 1 > ipv6/conf/net2/disable_ipv6
             echo 1 > ipv6/conf/net2/forwarding; echo 1 > ipv4/conf/all/accept_redirects",
        )?;
        let before = place.node.sh_in("c1", look)?;
        ensure!(before.contains("fd00:9::2/64") && before.contains("2001:db8:7::/48"), "{before}");
        let answer = c1.call_at(1, "ADD")?;
        ensure!(answer.status == 1, "{keys}: {answer:?}");
        // The kernel adds the route to an own address some time after the address.
        let settled = format!(
            "for i in $(seq 50); do [ \"$({look})\" = '{}' ] && break; sleep 0.1; done; {look}",
            before.trim_end()
        );
        let after = place.node.sh_in("c1", &settled)?;
        ensure!(before == after, "{keys}: {answer:?} before:\n{before}\nafter:\n{after}");
    }
    Ok(())
}

/// A link with a small MTU has no IPv6. Its IPv6 addresses and routes return with the MTU.
#[test]
fn ipv6_comes_back_with_the_mtu() -> Result<()> {
    let main = json!({"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "fd00:9::/64"}]],
        "routes": [{"dst": "2001:db8::/32"}]}});
    let place = Place::new(&[main, tuning(&json!({"mtu": 1279}))])?;
    let mut c1 = place.net.add_first(1, "c1")?;
    let look = || {
        place.node.sh_in(
            "c1",
            "ip -o -6 address show dev eth0 scope global | sed 's/ valid_lft.*//; s/ nodad//'; ip -6 route | grep -v fe80 | sort",
        )
    };
    let before = look()?;
    c1.add_at(1)?;
    ensure!(!look()?.contains("fd00:9::2"), "the small MTU removed no address: {}", look()?);
    c1.call_at(1, "DEL")?.success()?;
    ensure!(look()? == before, "before:\n{before}\nafter:\n{}", look()?);
    Ok(())
}

/// The operator's list of allowed sysctls belongs to root. A list that others could have written, or a list with a
/// mistake, allows nothing.
#[test]
fn a_list_that_others_could_write_allows_nothing() -> Result<()> {
    let list = "/etc/cni/tuning/allowlist.conf";
    let place = Place::new(&[tuning(&json!({"sysctl": {"net.core.somaxconn": "500"}}))])?;
    let mut c1 = place.net.attachment("c1");
    c1.result = json!({"cniVersion": "1.1.0"});
    for (script, code, words) in [
        ("true", 0, ""),
        ("chmod 666 LIST", 5, "can be written by others"),
        ("chmod 644 LIST; chmod 777 /etc/cni/tuning", 5, "can be written by others"),
        ("chmod 755 /etc/cni/tuning; mv LIST /etc/list; ln -s /etc/list LIST", 5, "symbolic link"),
        ("rm LIST; mkdir LIST", 5, "allowlist.conf"),
        ("rmdir LIST; printf 'zz\\n[\\n' > LIST", 110, "allowlist.conf, line 2"),
        ("head -c 70000 /dev/zero > LIST", 5, "longer than"),
        ("printf '\\377' > LIST", 5, ""),
        ("printf 'somax' > LIST", 0, ""),
        (": > LIST", 110, "Only the following sysctls are allowed: []"),
        ("rm LIST", 0, ""),
    ] {
        let script = script.replace("LIST", list);
        place.node.sh(&format!(
            "mkdir -p /etc/cni/tuning; [ -e {list} ] || printf 'core\\.somaxconn$\\n' > {list}; {script}"
        ))?;
        let answer = c1.call_at(0, "ADD")?;
        let error: Value = serde_json::from_str(&answer.stdout).unwrap_or_default();
        let told = if answer.status == 0 { 0 } else { error["code"].as_u64().unwrap_or(1) };
        ensure!(told == code && answer.stdout.contains(words), "{script}: {answer:?}");
        place.node.sh_in("c1", "sysctl -qw net.core.somaxconn=4096")?;
    }
    Ok(())
}

/// The file for a native plugin has the values before the first change. If another program changes the file, the record
/// decides.
#[test]
fn the_record_is_believed_and_not_the_file() -> Result<()> {
    let keys = json!({"mac": "02:00:00:00:00:aa", "mtu": 1400, "txQLen": 77});
    for forged in [
        r#"printf '{"mac":"02:00:00:00:00:66","mtu":1300,"txQLen":5,"promisc":true}' > FILE"#,
        "rm FILE",
        "rm FILE; ln -s /etc/passwd FILE",
        "rm FILE; mkdir FILE",
        "chmod 666 FILE",
        "rm -r /run/cni",
        "chmod 777 /run/cni/tuning",
    ] {
        let place = Place::new(&[bridge(), tuning(&keys)])?;
        let mut c1 = place.net.add_first(1, "c1")?;
        let before = place.link()?;
        c1.add_at(1)?;
        let file: Value = serde_json::from_str(&place.node.sh(&format!("cat {FILE}"))?)?;
        ensure!(file == json!({"mac": before.0, "mtu": 1500, "txQLen": before.4}), "{file}");
        place.node.sh(&forged.replace("FILE", FILE))?;
        c1.call_at(1, "DEL")?.success().with_context(|| forged.to_owned())?;
        ensure!(place.link()? == before, "{forged}: {:?}", place.link()?);
        ensure!(place.node.sh("test -s /etc/passwd && echo there")?.trim() == "there", "{forged}");
        c1.call_at(0, "DEL")?.success()?;
    }
    Ok(())
}

/// A native plugin's attachment has no record, only the native plugin's file. A file that others could have written is
/// not used, and DEL does not wait for it.
#[test]
fn a_native_plugins_file_is_used_where_nobody_else_could_write_it() -> Result<()> {
    let keys = json!({"mac": "02:00:00:00:00:aa", "mtu": 1400, "promisc": true});
    for (forged, is_used) in [
        ("true", true),
        ("chmod 666 FILE", false),
        ("chmod 777 /run/cni/tuning", false),
        ("chmod 777 /run/cni", false),
        ("cp FILE /etc/file; rm FILE; ln -s /etc/file FILE", false),
        ("rm FILE; mkfifo FILE", false),
        ("printf x > FILE", false),
        ("head -c 5000 /dev/zero | tr '\\0' ' ' >> FILE", false),
    ] {
        let place = Place::new(&[bridge(), tuning(&keys)])?;
        place.node.sh("ip link add far0 type veth peer name eth0 netns c1; ip -n c1 link set eth0 up")?;
        let before = place.link()?;
        let mut c1 = place.net.attachment("c1");
        c1.result = json!({"cniVersion": "1.1.0"});
        c1.by(&native_bin()?).call_at(1, "ADD")?.success()?;
        place.node.sh(&forged.replace("FILE", FILE))?;
        let answer = c1.call_at(1, "DEL")?;
        ensure!(answer.status == 0, "{forged}: {answer:?}");
        ensure!((place.link()? == before) == is_used, "{forged}: {:?} {answer:?}", place.link()?);
    }
    Ok(())
}

/// A runtime switches to the native plugins while containers run, and back to ours.
#[test]
fn native_plugins_take_over_and_give_back() -> Result<()> {
    let keys = json!({"mtu": 1400, "txQLen": 77, "allmulti": true});
    let mut main = bridge();
    merge(&mut main, &json!({"macspoofchk": false}));
    let place = Place::new(&[main, tuning(&keys), tuning(&json!({"mtu": 1300}))])?;
    let c1 = place.net.add("c1")?;
    // The native DEL of the second entry puts back everything, because the file has the values from before the first
    // entry.
    for at in [2, 1] {
        c1.by(&native_bin()?).call_at(at, "DEL")?.success()?;
    }
    let (_, mtu, _, allmulti, length) = place.link()?;
    ensure!((mtu, allmulti, length) == (1500, false, 1000), "{:?}", place.link()?);
    c1.del()?;
    place.is_clean()?;
    // Now the native plugin makes the change, and our plugin removes it.
    let mut c1 = place.net.add_first(1, "c1")?;
    c1.result = c1.by(&native_bin()?).call_at(1, "ADD")?.success()?;
    ensure!(place.link()?.1 == 1400, "{:?}", place.link()?);
    c1.call_at(1, "CHECK")?.success()?;
    c1.call_at(1, "DEL")?.success()?;
    ensure!(place.link()?.1 == 1500, "{:?}", place.link()?);
    c1.call_at(0, "DEL")?.success()?;
    place.is_clean()
}

/// tuning was killed while it changed the address: before it changed the link, between link and protection, or after
/// both. Afterwards DEL or `postern gc` removes its part. Then link and protection have the same address, and the
/// native file is gone.
#[test]
fn a_kill_at_any_step_leaves_one_address() -> Result<()> {
    // Only the address is changed, so nothing else leads `postern gc` into the container.
    let place = Place::new(&[bridge(), tuning(&json!({"mac": "02:00:00:00:00:aa"}))])?;
    let admin = plugin_bin()?.join("postern");
    for (moved, followed) in [(false, false), (true, false), (true, true)] {
        for way in ["gc --yes", "DEL"] {
            let named = || format!("link moved: {moved}, protection followed: {followed}, then {way}");
            let c1 = place.net.add_first(1, "c1")?;
            let made = place.link()?.0;
            place.node.sh("nft list table bridge nat > /run/before.nft")?;
            c1.call_at(1, "ADD")?.success()?;
            place.node.sh(CUT)?;
            if !moved {
                place.node.sh_in("c1", &format!("ip link set eth0 address {made}"))?;
            }
            if !followed {
                place.node.sh("nft delete table bridge nat; nft -f /run/before.nft")?;
            }
            match way {
                "DEL" => drop(c1.call_at(1, "DEL")?.success()?),
                _ => drop(place.node.sh(&format!("{} {way}", admin.display()))?),
            }
            ensure!(place.link()?.0 == made, "{}: the link has {} instead of {made}", named(), place.link()?.0);
            ensure!(place.is_connected()?, "{}: protection does not let the link send", named());
            place.node.sh_in("c1", "ip link set eth0 address 02:00:00:00:00:aa")?;
            ensure!(!place.is_connected()?, "{}: the address of the killed run passes", named());
            place.node.sh_in("c1", &format!("ip link set eth0 address {made}"))?;
            c1.call_at(0, "CHECK")?.success().with_context(named)?;
            c1.call_at(0, "DEL")?.success().with_context(named)?;
            place.is_clean().with_context(named)?;
        }
    }
    Ok(())
}

/// Root in the container gives the link another address before tuning runs. When tuning's part is removed, spoofing
/// protection never allows root's address.
#[test]
fn protection_goes_back_to_its_own_address_and_to_no_other() -> Result<()> {
    const FOREIGN: &str = "02:00:00:00:00:bb";
    let admin = plugin_bin()?.join("postern");
    for way in ["DEL", "gc --yes"] {
        let place = Place::new(&[bridge(), tuning(&json!({"mac": "02:00:00:00:00:aa"}))])?;
        let c1 = place.net.add_first(1, "c1")?;
        let made = place.link()?.0;
        place.node.sh_in("c1", &format!("ip link set eth0 address {FOREIGN}"))?;
        let mut tuned = c1.clone();
        tuned.add_at(1)?;
        if way == "DEL" {
            tuned.call_at(1, "DEL")?.success()?;
        } else {
            place.node.sh(CUT)?;
            place.node.sh(&format!("{} {way}", admin.display()))?;
        }
        ensure!(place.link()?.0 == FOREIGN, "{way}: root's address was changed: {:?}", place.link()?);
        ensure!(!place.is_connected()?, "{way}: {FOREIGN} passes");
        place.node.sh_in("c1", &format!("ip link set eth0 address {made}"))?;
        ensure!(place.is_connected()?, "{way}: the own address does not pass");
        c1.call_at(0, "CHECK")?.success().context(way)?;
        c1.call_at(0, "DEL")?.success()?;
        place.is_clean()?;
    }
    Ok(())
}

/// Only host-device's DEL runs. By the attachment's record, this DEL also undoes tuning's changes.
#[test]
fn a_device_of_the_node_comes_home_as_it_went() -> Result<()> {
    let keys = json!({"mac": "02:00:00:00:00:aa", "mtu": 1400, "promisc": true, "allmulti": true, "txQLen": 77});
    let place = Place::new(&[json!({"type": "host-device", "device": "wire1"}), tuning(&keys)])?;
    place.net.add("c1")?.call_at(0, "DEL")?.success()?;
    let link = place.node.sh("ip -d link show dev wire1")?;
    ensure!(
        link.contains("02:00:00:00:ee:01")
            && link.contains("mtu 1500")
            && link.contains("qlen 1000")
            && !link.contains("PROMISC")
            && !link.contains("ALLMULTI"),
        "{link}"
    );
    place.is_clean()
}

/// `show` reports no drift for a plugin's changes, but reports drift for a container's changes.
#[test]
fn people_are_told() -> Result<()> {
    let keys = json!({"mac": "02:00:00:00:00:aa", "mtu": 1400, "txQLen": 77});
    let place = Place::new(&[bridge(), tuning(&keys)])?;
    place.net.add("c1")?;
    let admin = plugin_bin()?.join("postern");
    let show = |what: &str| place.node.sh(&format!("{} {what} 2>&1 || true", admin.display()));
    let seen = show("show c1")?;
    ensure!(seen.contains(": ok") && seen.contains("MTU 1400"), "{seen}");
    place.node.sh("nft flush chain bridge nat PREROUTING")?;
    ensure!(show("show c1")?.contains("spoofing protection"), "{}", show("show c1")?);
    show("reapply")?;
    ensure!(place.is_connected()?, "{}", show("show c1")?);
    ensure!(show("show c1")?.contains(": ok"), "{}", show("show c1")?);
    place.node.sh_in("c1", "ip link set eth0 mtu 1200")?;
    ensure!(show("show c1")?.contains("has MTU 1200"), "{}", show("show c1")?);
    Ok(())
}
