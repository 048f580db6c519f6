//! host-device holds a device that may not be clean after DEL. The device stays down, `ls` and `doctor` show it, and no
//! container gets it until a run finds it clean.

use anyhow::{Context, Result, ensure};
use postern_tests::kernel::{has_or_skips, has_or_skips_part};
use postern_tests::{Network, Node, flat, plugin_bin, skip};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

/// A node with a device, containers c1 and c2, and namespace `nested`, which c1's root made.
struct Place {
    node: Node,
    net: Network,
}

/// The reason to hold a device whose name another link has.
const TAKEN: &str = "too: give that link another name";

/// Returns the text at a JSON pointer, or the JSON of any other value.
fn text(value: &Value, pointer: &str) -> String {
    let found = value.pointer(pointer).unwrap_or(&Value::Null);
    found.as_str().map_or_else(|| found.to_string(), str::to_owned)
}

impl Place {
    fn new() -> Result<Self> {
        let node = Node::new()?;
        ["c1", "c2", "nested"].iter().try_for_each(|name| node.add_container(name))?;
        node.sh(
            "ip link add dev1 address 02:00:00:00:ee:01 type veth peer name wire1; ip link set dev1 up; ip link set wire1 up",
        )?;
        let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
        let net = Network::new(&node, &json!({"type": "host-device", "device": "dev1", "ipam": ipam}))?;
        Ok(Self { node, net })
    }

    /// Returns the same network, with another device.
    fn of(&self, device: &str) -> Network {
        self.net.clone().with(&json!({"device": device}))
    }

    /// DEL of c1 succeeds, frees its address, and says that the device is held for this reason.
    fn del_holds(&self, why: &str) -> Result<()> {
        let answer = self.net.call("DEL", "c1")?;
        ensure!(answer.status == 0, "{answer:?}");
        ensure!(answer.stderr.contains("is held: ") && answer.stderr.contains(why), "not \"{why}\": {answer:?}");
        let left = self.node.sh("find /var/lib/cni/networks -name '10.*'; ls /run/postern/attachments")?;
        ensure!(left.is_empty(), "left: {left}");
        let log = self.node.sh("grep held.hold /var/log/postern/audit.jsonl || true")?;
        let line: Value =
            serde_json::from_str(log.lines().last().context("no line of the log names the held device")?)?;
        ensure!(text(&line, "/result") == "ok" && text(&line, "/attachment") == "net/c1/eth0", "{log}");
        ensure!(text(&line, "/request/why").contains(why) && text(&line, "/verb") == "DEL", "{log}");
        // Some runtimes repeat DEL.
        self.net.call("DEL", "c1")?.success().map(drop)
    }

    /// The log says that the object gave up the name because of a note on the object.
    fn log_tells_rename(&self, object: &str, name: &str) -> Result<()> {
        let log = self.node.sh("grep held.rename /var/log/postern/audit.jsonl || true")?;
        let line: Value =
            serde_json::from_str(log.trim()).with_context(|| format!("not exactly one line of the log: {log}"))?;
        ensure!(text(&line, "/request/object") == object && text(&line, "/request/name") == name, "{log}");
        ensure!(
            text(&line, "/result") == "ok" && text(&line, "/rule") == "note" && text(&line, "/verb") == "DEL",
            "{log}"
        );
        Ok(())
    }

    fn postern(&self, arguments: &str) -> Result<String> {
        let postern = plugin_bin()?.join("postern");
        self.node.sh(&format!("{} {arguments} 2>&1 || true", postern.display()))
    }

    /// `ls` and `doctor` show the held device, and no container gets it.
    fn is_held(&self, device: &str, why: &str) -> Result<()> {
        let listed: Value = serde_json::from_str(&self.postern("ls --json")?)?;
        let found = listed.get(0).context("ls shows nothing")?;
        ensure!(text(found, "/state") == "held" && text(found, "/container") == "c1", "{listed}");
        ensure!(text(found, "/differences").contains(why), "{listed}");
        let table = self.postern("ls")?;
        ensure!(table.contains("held"), "{table}");
        let report: Value = serde_json::from_str(&self.postern("doctor --json")?)?;
        let findings = report.get("findings").and_then(Value::as_array).context("findings")?;
        let own = findings.iter().find(|finding| text(finding, "/place") == format!("device {device}"));
        ensure!(own.is_some_and(|own| text(own, "/what").contains(why)), "{report}");
        let answer = self.of(device).call("ADD", "c2")?;
        let error: Value = serde_json::from_str(&answer.stdout).with_context(|| format!("{answer:?}"))?;
        let words = format!("\"{device}\" is held since eth0 of container c1 had it");
        ensure!(
            error.get("code").is_some_and(|code| code == 11) && text(&error, "/msg").contains(&words),
            "{answer:?}"
        );
        Ok(())
    }

    /// Returns the name of the host's link with this address.
    fn name_of(&self, address: &str) -> Result<String> {
        let name =
            self.node.sh(&format!("ip -o link show | grep {address} | cut -d' ' -f2 | cut -d@ -f1 | tr -d :"))?;
        Ok(name.trim().to_owned())
    }

    fn flags(&self, device: &str) -> Result<String> {
        let links: Value = serde_json::from_str(&self.node.sh(&format!("ip -j link show dev {device}"))?)?;
        Ok(links.pointer("/0/flags").map(Value::to_string).unwrap_or_default())
    }

    fn is_up(&self, device: &str) -> Result<bool> {
        Ok(self.flags(device)?.contains("\"UP\""))
    }

    /// `postern gc` finds the device clean. The device is up again, and no longer held.
    fn gc_mends(&self, device: &str) -> Result<()> {
        let said = self.postern("gc")?;
        ensure!(
            said.contains("`postern gc --yes` looks at held objects again") && !said.contains("no garbage"),
            "{said}"
        );
        let said = self.postern("gc --yes")?;
        ensure!(self.is_up(device).with_context(|| said.clone())?, "{said}");
        ensure!(said.contains("1 of 1 held object is no longer held"), "{said}");
        ensure!(!said.contains("no garbage") && !said.contains("removed"), "{said}");
        ensure!(self.postern("ls --json")?.trim() == "[]", "{said}");
        ensure!(self.node.sh("ls /run/postern/node")?.is_empty(), "{said}");
        Ok(())
    }
}

/// Root in the container stacks a link on the device, and moves this link to namespace `nested`. The link could still
/// use the device's wire.
#[test]
fn a_link_in_a_nested_namespace_keeps_the_device_down() -> Result<()> {
    for mode in ["bridge", "passthru", "source"] {
        let place = Place::new()?;
        place.net.add("c1")?;
        place.node.sh_in("c1", &format!("ip link add up1 link eth0 type macvlan mode {mode}"))?;
        place.node.sh(&format!("nsenter --net={} ip link set up1 netns nested", place.node.netns("c1")))?;
        let why = "a macvlan is stacked on it";
        place.del_holds(why).context(mode)?;
        ensure!(!place.is_up("dev1")?, "{mode}: the device is up");
        place.is_held("dev1", why).context(mode)?;
        let said = place.postern("gc --yes")?;
        ensure!(said.contains("dev1 is still held: a macvlan is stacked on it") && !place.is_up("dev1")?, "{said}");
        if mode == "source" {
            // An operator uses the device anyway, and `postern gc` undoes none of the operator's changes.
            place.node.sh("ip link set dev1 mtu 1450 up")?;
            let said = place.postern("gc --yes")?;
            ensure!(said.contains("is still held") && place.is_up("dev1")?, "{said}");
        }
        place.node.sh_in("nested", "ip link del up1")?;
        match mode {
            "bridge" => place.gc_mends("dev1")?,
            "source" => {
                place.gc_mends("dev1")?;
                place.node.sh("ip -o link show dev dev1 | grep -q 'mtu 1450'")?;
            }
            // The next ADD checks the device too.
            _ => {
                place.net.add("c2").context(mode)?;
                ensure!(place.node.sh("ls /run/postern/node")?.is_empty(), "{mode}: a note is left");
                let log = place.node.sh("cat /var/log/postern/*")?;
                ensure!(log.contains("held.mend"), "{log}");
                place.net.call("DEL", "c2")?.success()?;
                ensure!(place.is_up("dev1")?, "{mode}");
            }
        }
    }
    Ok(())
}

/// An uninstallation keeps the note on a held device, and the next installation knows the note.
#[test]
fn notes_outlive_an_uninstallation() -> Result<()> {
    let place = Place::new()?;
    place.net.add("c1")?;
    place.node.sh_in("c1", "ip link add up1 link eth0 type macvlan mode bridge")?;
    place.node.sh(&format!("nsenter --net={} ip link set up1 netns nested", place.node.netns("c1")))?;
    let why = "a macvlan is stacked on it";
    place.del_holds(why)?;
    let bin = plugin_bin()?;
    let install = format!("{0}/postern-admin install --from {0} --bin-dir /run/bin --plugins ptp", bin.display());
    place.node.sh(&format!("mount -t tmpfs -o mode=755 local /usr/local; {install}"))?;
    let printed = place.node.sh(&format!("{}/postern-admin uninstall --yes 2>&1", bin.display()))?;
    ensure!(flat(&printed).contains("0 attachments and 1 device that may not be clean had records"), "{printed}");
    place.node.sh(&install)?;
    place.is_held("dev1", why)
}

/// Stacked VLANs and ipvlans hold the device too. Many kernels lack these kinds of links.
#[test]
fn vlans_and_ipvlans_in_a_nested_namespace_keep_the_device_down() -> Result<()> {
    for (kind, link, why) in [
        ("vlan", "type vlan id 7", "its VLAN 7 is in use"),
        ("vlan", "type vlan proto 802.1ad id 4094", "its VLAN 4094 (802.1ad) is in use"),
        // The node uses the same VLAN number too, with the other protocol.
        ("vlan", "type vlan proto 802.1ad id 9", "its VLAN 9 (802.1ad) is in use"),
        ("ipvlan", "type ipvlan mode l3", "an ipvlan or another link takes its frames"),
    ] {
        if !has_or_skips_part(kind)? {
            continue;
        }
        let place = Place::new()?;
        // The node's own VLAN is no reason to hold the device.
        if kind == "vlan" {
            place.node.sh("ip link add dev1.9 link dev1 type vlan id 9")?;
        }
        place.net.add("c1")?;
        place.node.sh_in("c1", &format!("ip link add up1 link eth0 {link}"))?;
        place.node.sh(&format!("nsenter --net={} ip link set up1 netns nested", place.node.netns("c1")))?;
        place.del_holds(why).context(link)?;
        ensure!(!place.is_up("dev1")?, "{link}: the device is up");
        place.is_held("dev1", why).context(link)?;
        place.node.sh_in("nested", "ip link del up1")?;
        place.gc_mends("dev1").context(link)?;
        place.net.add("c1")?;
        place.net.call("DEL", "c1")?.success()?;
        ensure!(place.is_up("dev1")?, "{link}: a clean device is down");
    }
    Ok(())
}

/// Root in another container chose names of links that came to the node with that container's device. Such names do not
/// prove that dev1 is in use.
#[test]
fn names_on_the_node_hold_no_device() -> Result<()> {
    let others = "seq 400 | sed 's/.*/link property add dev decoy altname probe&/' | ip -batch -";
    for (name, links) in [
        ("alternative names", "ip link property add dev decoy altname vlanprobe"),
        ("a name", "ip link add vlanprobe type veth peer name decoy2"),
    ] {
        let place = Place::new()?;
        place.net.add("c1")?;
        place.node.sh(&format!("ip link add decoy type veth peer name decoy1; {links}; {others}"))?;
        let answer = place.net.call("DEL", "c1")?;
        ensure!(answer.status == 0 && !answer.stderr.contains("held"), "{name}: {answer:?}");
        ensure!(place.is_up("dev1")?, "{name}: the device is down");
        let left = place.node.sh("ip -o link show type macvlan; ls /run/postern/node 2> /dev/null || true")?;
        ensure!(left.is_empty(), "{name}: left: {left}");
    }
    Ok(())
}

/// Another link of the node has the device's name or alternative name when the device returns. Root in another
/// container can have chosen that link's name. DEL succeeds, and the device is held until its name is free.
#[test]
fn a_name_that_is_taken_stops_no_del() -> Result<()> {
    for (take, why, free) in [
        ("ip link add dev1 type veth peer name far", TAKEN, "ip link del dev1"),
        (
            "ip link add far type veth peer name far1; ip link property add dev far altname dev1",
            TAKEN,
            "ip link del far",
        ),
        (
            "ip link add far type veth peer name far1; ip link property add dev far altname uplink",
            "failed: it has its other names again",
            "ip link del far",
        ),
    ] {
        let place = Place::new()?;
        place.node.sh("ip link property add dev dev1 altname uplink")?;
        place.net.add("c1")?;
        place.node.sh(take)?;
        place.del_holds(why).context(take)?;
        // The device has another name on the host. No container gets it by that name.
        let own = place.name_of("02:00:00:00:ee:01")?;
        ensure!(!place.is_up(&own)?, "{own} is up");
        let answer = place.of(&own).call("ADD", "c2")?;
        ensure!(answer.status != 0 && answer.stdout.contains("is held since eth0 of container c1"), "{answer:?}");
        let said = place.postern("gc --yes")?;
        let now = if why == TAKEN { format!(" (\"{own}\" now)") } else { String::new() };
        ensure!(said.contains(&format!("device dev1{now} is still held: ")) && said.contains(why), "{said}");
        // Notes of earlier versions may lack the device's present name.
        place.node.sh("sed -i 's/,\"name_now\":\"[^\"]*\"//' /run/postern/node/held-*")?;
        place.node.sh(free)?;
        place.gc_mends("dev1").context(take)?;
        place.node.sh("ip link show dev uplink | grep -q dev1").context(take)?;
    }
    Ok(())
}

/// Root in another container has moved its device to the node under dev1's name or alternative name. That attachment's
/// DEL finds its device by the index. A device can also have its own name as an alternative name.
#[test]
fn a_device_that_came_home_by_itself_keeps_no_name() -> Result<()> {
    for is_altname in [false, true] {
        let place = Place::new()?;
        place.node.sh("ip link add dev2 type veth peer name wire2; ip link set dev2 up; ip link set wire2 up")?;
        place.net.add("c1")?;
        let second = place.of("dev2");
        second.add("c2")?;
        let name = if is_altname { "cni7" } else { "dev1" };
        if is_altname {
            place.node.sh_in("c2", "ip link property add dev eth0 altname dev1")?;
        }
        place.node.sh(&format!("nsenter --net={} ip link set eth0 netns $$ name {name}", place.node.netns("c2")))?;
        let answer = second.call("DEL", "c2")?;
        ensure!(answer.status == 0 && place.is_up("dev2")?, "{answer:?}");
        let answer = place.net.call("DEL", "c1")?;
        ensure!(answer.status == 0 && !answer.stderr.contains("is held"), "{answer:?}");
        ensure!(place.is_up("dev1")? && place.is_up("dev2")?, "{answer:?}");
    }
    let place = Place::new()?;
    place.net.add("c1")?;
    place.node.sh_in("c1", "ip link property add dev eth0 altname dev1")?;
    let netns = place.node.netns("c1");
    place.node.sh(&format!("nsenter --net={netns} ip link set eth0 netns $$ name cni7"))?;
    let answer = place.net.call("DEL", "c1")?;
    ensure!(answer.status == 0 && place.is_up("dev1")?, "{answer:?}");
    Ok(())
}

/// The held device dev1 has dev2's name, as name or alternative name. Root in c1 had moved dev1 to namespace `nested`,
/// and root there moved it to the node. dev2, the owner of the name, gets the name. dev1 gets its own free name, and
/// stays held because a link is stacked on it.
#[test]
fn a_held_device_makes_way_for_the_owner_of_a_name() -> Result<()> {
    for is_altname in [false, true] {
        let place = Place::new()?;
        place.node.sh("ip link add dev2 address 02:00:00:00:ee:02 type veth peer name wire2; ip link set dev2 up; ip link set wire2 up")?;
        let second = place.of("dev2");
        place.net.add("c1")?;
        second.add("c2")?;
        let own = format!("nsenter --net={} ip", place.node.netns("c1"));
        place
            .node
            .sh(&format!("{own} link add up1 link eth0 type macvlan mode bridge; {own} link set up1 netns nested"))?;
        place.node.sh(&format!("{own} link set eth0 netns nested name cni0"))?;
        let answer = place.net.call("DEL", "c1")?;
        ensure!(
            answer.status == 0 && answer.stderr.contains("dev1 is held: it is in an unknown namespace"),
            "{answer:?}"
        );
        let name = if is_altname { "cni7" } else { "dev2" };
        if is_altname {
            place.node.sh_in("nested", "ip link property add dev cni0 altname dev2")?;
        }
        place
            .node
            .sh(&format!("nsenter --net={} ip link set cni0 netns $$ name {name}", place.node.netns("nested")))?;
        let answer = second.call("DEL", "c2")?;
        ensure!(answer.status == 0 && !answer.stderr.contains("dev2 is held"), "{answer:?}");
        ensure!(answer.stderr.contains("the held device dev1 loses the name \"dev2\""), "{answer:?}");
        ensure!(place.name_of("02:00:00:00:ee:02")? == "dev2" && place.is_up("dev2")?, "{answer:?}");
        ensure!(place.name_of("02:00:00:00:ee:01")? == "dev1" && !place.is_up("dev1")?, "{answer:?}");
        place.log_tells_rename("device dev1", "dev2")?;
        place.is_held("dev1", "a macvlan is stacked on it")?;
        place.node.sh_in("nested", "ip link del up1")?;
        place.gc_mends("dev1")?;
    }
    Ok(())
}

/// This can happen without an attack. dev1 returned as dev70, because a link of the node has the name dev1. dev70 is
/// the name of another device that was in a container. The remedy does not name the other device.
#[test]
fn a_held_device_has_a_free_name_until_its_own_is_free() -> Result<()> {
    let place = Place::new()?;
    place.node.sh("ip link del dev1; ip link add dev1 index 70 address 02:00:00:00:ee:01 type veth peer name wire1
         ip link add dev70 address 02:00:00:00:ee:02 type veth peer name wire2
         for link in dev1 wire1 dev70 wire2; do ip link set $link up; done")?;
    let second = place.of("dev70");
    place.net.add("c1")?;
    second.add("c2")?;
    place.node.sh("ip link add dev1 type veth peer name far")?;
    let answer = place.net.call("DEL", "c1")?;
    ensure!(answer.status == 0 && answer.stderr.contains("device dev1 (\"dev70\" now) is held: "), "{answer:?}");
    ensure!(answer.stderr.contains(TAKEN) && place.name_of("02:00:00:00:ee:01")? == "dev70", "{answer:?}");
    let answer = second.call("DEL", "c2")?;
    ensure!(answer.status == 0 && !answer.stderr.contains("dev70 is held"), "{answer:?}");
    ensure!(place.name_of("02:00:00:00:ee:02")? == "dev70" && place.is_up("dev70")?, "{answer:?}");
    let own = place.name_of("02:00:00:00:ee:01")?;
    ensure!(own != "dev1" && !place.is_up(&own)?, "{own}: {answer:?}");
    place.log_tells_rename("device dev1", "dev70")?;
    for _ in 0..2 {
        for account in ["doctor --json", "ls --json"] {
            let report = place.postern(account)?;
            ensure!(report.contains(&format!("delete \\\"{own}\\\"")) && !report.contains("dev70"), "{report}");
        }
        let answer = place.of(&own).call("ADD", "c2")?;
        ensure!(answer.status != 0 && answer.stdout.contains("is held since eth0 of container c1"), "{answer:?}");
        let said = place.postern("gc --yes")?;
        ensure!(said.contains(&format!("device dev1 (\"{own}\" now) is still held: ")), "{said}");
        ensure!(said.contains(&format!("or delete \"{own}\"")) && place.name_of("02:00:00:00:ee:01")? == own, "{said}");
    }
    place.node.sh("ip link del dev1")?;
    place.gc_mends("dev1")?;
    ensure!(place.is_up("dev70")?, "the other device is down");
    place.node.sh("ip -o link show dev dev1 | grep -q 02:00:00:00:ee:01")?;
    Ok(())
}

/// When dev1 returns, the device dev2 of a living attachment has the name dev1. Root in that attachment's container
/// moved dev2 to the node under this name. The attachment's DEL finds dev2 under any name. If an operator has set dev2
/// up, dev2 keeps the name, and dev1 is held until the name is free.
#[test]
fn a_device_of_a_living_attachment_makes_way_too() -> Result<()> {
    for is_used in [false, true] {
        let place = Place::new()?;
        place.node.sh("ip link add dev2 type veth peer name wire2; ip link set dev2 up; ip link set wire2 up")?;
        place.net.add("c1")?;
        let second = place.of("dev2");
        second.add("c2")?;
        place.node.sh(&format!("nsenter --net={} ip link set eth0 netns $$ name dev1", place.node.netns("c2")))?;
        if is_used {
            place.node.sh("ip link set dev1 up")?;
        }
        let answer = place.net.call("DEL", "c1")?;
        ensure!(answer.status == 0, "{answer:?}");
        if is_used {
            ensure!(answer.stderr.contains(TAKEN) && place.is_up("dev1")?, "{answer:?}");
        } else {
            ensure!(answer.stderr.contains("the device dev2 loses the name \"dev1\""), "{answer:?}");
            let log = place.node.sh("grep held.rename /var/log/postern/audit.jsonl || true")?;
            ensure!(log.contains("device dev2") && log.contains("\"rule\":\"record\""), "{log}");
            place
                .node
                .sh("ip -o link show dev dev1 | grep -q 02:00:00:00:ee:01")
                .with_context(|| format!("{answer:?}"))?;
        }
        let answer = second.call("DEL", "c2")?;
        ensure!(answer.status == 0, "{answer:?}");
        ensure!(place.is_up("dev1")? && place.is_up("dev2")?, "{answer:?}");
        place.node.sh("ip -o link show dev dev1 | grep -q 02:00:00:00:ee:01").with_context(|| format!("{answer:?}"))?;
        ensure!(place.node.sh("ls /run/postern/node 2> /dev/null || true")?.is_empty(), "a note is left: {answer:?}");
    }
    Ok(())
}

/// A virtual device is on the node under another name. The run that moved it ended before it could hold the device. The
/// next DEL finds the device by its index, and does not change a link with the device's name.
#[test]
fn a_virtual_device_is_found_under_another_name() -> Result<()> {
    if !has_or_skips("dummy")? {
        return Ok(());
    }
    let place = Place::new()?;
    place.node.sh("ip link add dummy7 type dummy; ip link set dummy7 mtu 1400 up")?;
    let own = place.of("dummy7");
    own.add("c1")?;
    place.node.sh(&format!(
        "own=$(nsenter --net={netns} ip -o link show eth0 | cut -d: -f1)
         nsenter --net={netns} ip link set eth0 netns $$ name dev$own
         ip link add dummy7 type dummy; ip link set dummy7 mtu 1300 up",
        netns = place.node.netns("c1")
    ))?;
    let answer = own.call("DEL", "c1")?;
    let is_held = answer.stderr.contains("device dummy7 (\"dev") && answer.stderr.contains(" now) is held");
    ensure!(answer.status == 0 && is_held, "{answer:?}");
    place.node.sh("ip -o link show dev dummy7 | grep -q 'mtu 1300'").with_context(|| format!("{answer:?}"))?;
    ensure!(place.is_up("dummy7")?, "the node's link is down: {answer:?}");
    own.add("c2").context("DEL held the node's own link of the same name")?;
    let report = place.postern("doctor --json")?;
    ensure!(report.contains("device dummy7"), "{report}");
    Ok(())
}

/// The device returns before DEL, without the alias that marks it. A program on the node sets the device up before DEL.
#[test]
fn a_device_that_is_up_before_del_is_cleaned() -> Result<()> {
    for is_used in [false, true] {
        let place = Place::new()?;
        place.net.add("c1")?;
        let netns = place.node.netns("c1");
        if is_used {
            place.node.sh_in("c1", "ip link add up1 link eth0 type macvlan mode bridge")?;
            place.node.sh(&format!("nsenter --net={netns} ip link set up1 netns nested"))?;
        }
        place.node.sh(&format!(
            "own='nsenter --net={netns} ip link set dev eth0'; $own down; $own alias ''; $own mtu 1300
             $own netns $$ name dev1; ip link set dev1 up"
        ))?;
        if is_used {
            place.del_holds("a macvlan is stacked on it")?;
            ensure!(!place.is_up("dev1")?, "the device is up");
            place.node.sh_in("nested", "ip link del up1")?;
            place.gc_mends("dev1")?;
        } else {
            let answer = place.net.call("DEL", "c1")?;
            ensure!(answer.status == 0 && answer.stderr.contains("its MTU was 1300, and is 1500 again"), "{answer:?}");
            ensure!(place.is_up("dev1")?, "{answer:?}");
        }
        place.node.sh("ip -o link show dev dev1 | grep -q 'mtu 1500'")?;
    }
    Ok(())
}

/// Root in the container moves the device. The other end of its wire shows that the device exists.
#[test]
fn a_device_in_a_nested_namespace_is_not_forgotten() -> Result<()> {
    let place = Place::new()?;
    place.net.add("c1")?;
    place.node.sh(&format!("nsenter --net={} ip link set eth0 netns nested name cni0", place.node.netns("c1")))?;
    let why = "it is in an unknown namespace";
    place.del_holds(why)?;
    place.is_held("dev1", why)?;
    // The device ends with its namespace. The operator makes a new device of the same name.
    place.node.sh_in("nested", "ip link del cni0")?;
    place.node.sh("ip link add dev1 type veth peer name wire1; ip link set dev1 up; ip link set wire1 up")?;
    place.net.add("c2")?;
    ensure!(place.node.sh("ls /run/postern/node 2> /dev/null || true")?.is_empty(), "a note is left");
    Ok(())
}

/// Another link replaces the device, and the other end of this link is in the container.
#[test]
fn another_pair_in_its_place_is_held() -> Result<()> {
    let place = Place::new()?;
    place.net.add("c1")?;
    place.node.sh(&format!("nsenter --net={} ip link set eth0 netns nested", place.node.netns("c1")))?;
    let links: Value = serde_json::from_str(&place.node.sh("ip -j link show dev wire1")?)?;
    let end = links[0]["ifindex"].as_u64().context("an index")?;
    let own: Value = serde_json::from_str(&place.node.sh_in("nested", "ip -j link show dev eth0")?)?;
    let index = own[0]["ifindex"].as_u64().context("an index")?;
    place.node.sh_in("c1", &format!("ip link add eth0 index {index} type veth peer name twin index {end}"))?;
    place.del_holds("its other end is not where it was")?;
    ensure!(!place.is_up("dev1")?, "the device is up");
    place.is_held("dev1", "its other end is not where it was")
}

/// Opens the tap eth0, and holds the descriptor until standard input ends.
const HOLD: &str = r#"
import fcntl, os, struct, sys
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, 0x400454ca, struct.pack("16sH22x", b"eth0", 0x0002 | 0x1000))
print("ready", flush=True)
sys.stdin.read()
"#;

/// A process of the container keeps the descriptor of a tap, and could read and send the node's frames.
#[test]
fn a_tap_that_a_process_keeps_is_held() -> Result<()> {
    let place = Place::new()?;
    place.node.sh("ip tuntap add dev tap7 mode tap; ip link set tap7 up")?;
    let of_tap = place.of("tap7");
    of_tap.add("c1")?;
    let mut command = place.node.command_in("c1", "python3");
    let mut holder = command.args(["-c", HOLD]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let mut said = BufReader::new(holder.stdout.take().context("stdout")?);
    said.read_line(&mut line)?;
    ensure!(line == "ready\n", "{line:?}");
    let answer = of_tap.call("DEL", "c1")?;
    let is_up = place.is_up("tap7")?;
    let held = place.is_held("tap7", "a program has the tap open");
    drop(holder.stdin.take());
    holder.wait()?;
    said.read_to_string(&mut line)?;
    ensure!(answer.status == 0 && answer.stderr.contains("a program has the tap open") && !is_up, "{answer:?}");
    held?;
    place.gc_mends("tap7")?;
    // A tap that no program has open returns unchanged.
    of_tap.add("c1")?;
    let answer = of_tap.call("DEL", "c1")?;
    ensure!(answer.status == 0 && place.is_up("tap7")?, "{answer:?}");
    Ok(())
}

/// Gives the tap eth0 an owner.
const OWN: &str = r#"
import fcntl, os, struct
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, 0x400454ca, struct.pack("16sH22x", b"eth0", 0x0002 | 0x1000))
fcntl.ioctl(tap, 0x400454cc, 0)
"#;

/// Netlink can't put back some settings of the link's kind, such as the owner of a tap, who may open the tap.
#[test]
fn a_setting_of_its_kind_is_held() -> Result<()> {
    let place = Place::new()?;
    place.node.sh("ip tuntap add dev tap7 mode tap; ip link set tap7 up")?;
    let of_tap = place.of("tap7");
    of_tap.add("c1")?;
    place.node.sh_in("c1", &format!("python3 -c '{OWN}'"))?;
    let answer = of_tap.call("DEL", "c1")?;
    let why = "the settings of its kind: changed, and can't be set back";
    ensure!(answer.status == 0 && answer.stderr.contains(why) && !place.is_up("tap7")?, "{answer:?}");
    place.is_held("tap7", why)
}

/// Counts the broadcast frames that a socket bound to eth0 gets, until standard input ends.
const LISTEN: &str = r#"
import select, socket, sys
own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b5))
own.bind(("eth0", 0x88b5))
print("ready", flush=True)
count = 0
while True:
    ready, _, _ = select.select([own, sys.stdin], [], [])
    if sys.stdin in ready:
        break
    try:
        own.recv(2000)
        count += 1
    except OSError:
        pass
print(count, flush=True)
"#;

/// Sends twenty broadcast frames through the device's wire. Prints the number of frames that a socket of the node gets
/// from the device.
const SEND: &str = r#"
import socket
own = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b5))
own.bind(("dev1", 0x88b5))
own.settimeout(1)
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(("wire1", 0))
count = 0
for _ in range(20):
    wire.send(b"\xff" * 6 + bytes(6) + b"\x88\xb5" + bytes(50))
    try:
        own.recv(2000)
        count += 1
    except TimeoutError:
        break
print(count)
"#;

/// After DEL, a packet socket of the container and its nftables chain at the device's hook get none of the node's
/// frames.
#[test]
fn what_the_container_bound_to_the_device_goes_with_the_move() -> Result<()> {
    let place = Place::new()?;
    place.net.add("c1")?;
    let hook = "nft add table netdev t; nft add chain netdev t c '{ type filter hook ingress device eth0 priority 0; policy drop; }'";
    let known = place.node.sh_in("c1", &format!("{{ {hook}; }} 2> /dev/null && echo yes || echo no"))?;
    let mut command = place.node.command_in("c1", "python3");
    let mut listener = command.args(["-c", LISTEN]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let mut said = BufReader::new(listener.stdout.take().context("stdout")?);
    said.read_line(&mut line)?;
    let answer = place.net.call("DEL", "c1")?;
    let is_up = place.is_up("dev1")?;
    let came = place.node.sh(&format!("python3 -c '{SEND}'"))?;
    drop(listener.stdin.take());
    listener.wait()?;
    said.read_to_string(&mut line)?;
    ensure!(answer.status == 0 && is_up, "{answer:?}");
    ensure!(place.node.sh("ls /run/postern/node 2> /dev/null || true")?.is_empty(), "held: {answer:?}");
    ensure!(came.trim() == "20", "the node got {came} frames");
    ensure!(line == "ready\n0\n", "the container's socket: {line:?}");
    if known.trim() != "yes" {
        println!("no nftables chain at a device here");
    }
    Ok(())
}

/// The settings that a namespace can give a link by netlink. After DEL they are as before, whatever the container has
/// set.
#[test]
fn each_setting_is_put_back() -> Result<()> {
    for set in [
        "ip link set eth0 arp off",
        "ip link set eth0 multicast off",
        "ip link set eth0 dynamic on",
        "ip link set eth0 mode dormant",
        "ip link set eth0 group 7",
        "ip link set eth0 gso_max_size 4000",
        "ip link set eth0 gso_max_segs 9",
        "ip link set eth0 gro_max_size 4000",
        "ip link set eth0 gso_ipv4_max_size 4000",
        "ip link set eth0 gro_ipv4_max_size 4000",
        "ip link set eth0 addrgenmode none",
        "ip link set eth0 broadcast ff:ff:ff:ff:ff:fe",
        "ip link set eth0 txqueuelen 7",
        "ip link set eth0 protodown on",
        "ip link set eth0 mtu 1300",
        "ip link set eth0 promisc on",
        "ip link set eth0 allmulticast on",
        "ip link set eth0 down; ip link set eth0 address 02:00:00:00:ee:77",
        "ip link set eth0 alias other",
        "ip link property add dev eth0 altname other",
        "tc qdisc add dev eth0 root tbf rate 1mbit burst 4k latency 10ms; tc qdisc add dev eth0 ingress",
        "ip neigh add 10.9.0.77 lladdr 02:00:00:00:00:77 dev eth0 nud permanent",
        "ip addr add 10.9.9.9/24 dev eth0; ip route add 10.8.0.0/24 dev eth0; ip -6 addr add fd99::1/64 dev eth0 nodad",
        "echo 1 > /proc/sys/net/ipv4/conf/eth0/proxy_arp; echo 1 > /proc/sys/net/ipv6/conf/eth0/forwarding",
        "ip link add br0 type bridge; ip link set eth0 master br0",
    ] {
        let place = Place::new()?;
        // DEL puts back the node's own settings, not the kernel's defaults.
        place.node.sh("ip link set dev1 group 3; ip link set dev1 addrgenmode random")?;
        let look = || -> Result<String> {
            let mut links: Value = serde_json::from_str(&place.node.sh("ip -d -j link show dev dev1")?)?;
            links[0]["ifindex"] = Value::Null;
            let rest = place.node.sh(
                "tc qdisc show dev dev1; ip neigh show dev dev1 nud permanent; ip -4 -o addr show dev dev1
                 ip route show dev dev1; ip -6 route show dev dev1 | grep fd99 || true
                 cat /proc/sys/net/ipv4/conf/dev1/proxy_arp /proc/sys/net/ipv6/conf/dev1/forwarding",
            )?;
            Ok(format!("{links}\n{rest}"))
        };
        let before = look()?;
        place.net.add("c1")?;
        // An old iproute2 or kernel may not know a setting.
        let known = place.node.sh_in("c1", &format!("{{ {set}; }} 2> /dev/null && echo yes || echo no"))?;
        let answer = place.net.call("DEL", "c1")?;
        let after = look()?;
        ensure!(answer.status == 0 && before == after, "{set} ({known}): {answer:?}\n{before}\n{after}");
        ensure!(place.node.sh("ls /run/postern/node 2> /dev/null || true")?.is_empty(), "{set}: held: {answer:?}");
        if known.trim() != "yes" {
            println!("not set here: {set}");
        }
    }
    Ok(())
}

/// Some settings exist only as files below `/sys`. Root of the node in a container can write them through the
/// container's sysfs.
#[test]
fn settings_below_sys_are_put_back() -> Result<()> {
    let place = Place::new()?;
    place
        .node
        .sh("ip link del dev1; ip link add dev1 address 02:00:00:00:ee:01 numtxqueues 2 numrxqueues 2 type veth \
        peer name wire1 numtxqueues 2 numrxqueues 2; ip link set dev1 up; ip link set wire1 up")?;
    let own = "mkdir -p /run/sys; mount -t sysfs sys /run/sys 2> /dev/null || { echo none; exit 0; }";
    let names = "gro_flush_timeout napi_defer_hard_irqs threaded queues/rx-1/rps_cpus queues/rx-1/rps_flow_cnt \
        queues/tx-1/xps_cpus queues/tx-1/tx_maxrate queues/tx-1/byte_queue_limits/limit_min";
    let look = format!(
        "{own}; for name in {names}; do echo \"$name $(cat /run/sys/class/net/dev1/$name 2> /dev/null)\"; done; umount /run/sys"
    );
    let before = place.node.sh(&look)?;
    if before.starts_with("none") {
        skip("no sysfs can be mounted here");
        return Ok(());
    }
    place.net.add("c1")?;
    let written = place.node.sh_in(
        "c1",
        &format!("{own}; for name in {names}; do (echo 1 > /run/sys/class/net/eth0/$name) 2> /dev/null && echo $name; done; umount /run/sys"),
    )?;
    let answer = place.net.call("DEL", "c1")?;
    let after = place.node.sh(&look)?;
    ensure!(answer.status == 0 && before == after, "{written}{answer:?}\n{before}\n{after}");
    ensure!(place.is_up("dev1")?, "{answer:?}");
    if written.trim().is_empty() {
        skip("only root of the node may write these settings");
    }
    for name in written.split_whitespace().filter(|name| name.starts_with("gro")) {
        ensure!(answer.stderr.contains(&format!("{name} below /sys: as before")), "{answer:?}");
    }
    Ok(())
}
