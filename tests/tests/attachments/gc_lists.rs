//! `postern gc` for attachments in the runtimes' cache: DEL of the whole list, our plugins and native ones, with the
//! runtime's arguments. If one DEL fails, the attachment keeps its addresses.

use anyhow::{Context, Result, ensure};
use postern_tests::{Names, Node, compare, flat, native_bin, plugin_bin};
use serde_json::{Value, json};

/// The directory of programs that a test makes itself.
const OWN: &str = "/run/programs";
/// A program that writes down its call, and returns `prevResult`.
const BEHIND: &str = r#"#!/bin/bash
input=$(cat)
echo "$CNI_COMMAND ${0##*/} $CNI_CONTAINERID $CNI_IFNAME $CNI_NETNS $CNI_ARGS $(jq -c '[.runtimeConfig, .prevResult.ips[0].address, .own]' <<< "$input")" >> /run/called
[ ! -e "/run/fails-${0##*/}" ] || { echo '{"cniVersion": "1.0.0", "code": 100, "msg": "it fails as asked"}'; exit 1; }
[ ! -e "/run/hangs-${CNI_NETNS##*/}" ] || { trap '' TERM; sleep 1000 & echo $! > /run/sleeper; wait; }
[ "$CNI_COMMAND" != ADD ] || jq .prevResult <<< "$input"
"#;

/// A node with a network, one living container, and one container that ended without DEL. `postern gc` searches the
/// namespaces of all tests, so `number` makes addresses unique.
struct Place {
    node: Node,
    before: Value,
}

impl Place {
    fn new(number: u8, plugins: &[Value]) -> Result<Self> {
        let node = Node::new()?;
        node.sh(&format!(
            "mkdir -p /run/net.d {OWN}; cp {0}/portmap {OWN}/native-portmap; cp {0}/firewall {OWN}/native-firewall",
            native_bin()?.display()
        ))?;
        for name in ["behind-a", "behind-b", "behind-flannel"] {
            std::fs::write(node.path(format!("{OWN}/{name}")), BEHIND)?;
        }
        node.sh(&format!("chmod 755 {OWN}/*"))?;
        let mut list = vec![
            json!({"type": "bridge", "bridge": "br9", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables",
            "ipam": {"type": "host-local", "ranges": [[{"subnet": format!("10.79.{number}.0/24")}]], "routes": [{"dst": "0.0.0.0/0"}]}}),
        ];
        list.extend(plugins.iter().cloned());
        let list = json!({"cniVersion": "1.0.0", "name": "listed", "plugins": list});
        std::fs::write(node.path("/run/net.d/10-listed.conflist"), list.to_string())?;
        let place = Self { node, before: Value::Null };
        place.add("alive", 8080)?;
        let before = place.picture()?;
        place.add("dead", 8081)?;
        Ok(Self { before, ..place })
    }

    fn environment() -> Result<String> {
        Ok(format!("NETCONFPATH=/run/net.d CNI_PATH={}:{OWN}:{}", plugin_bin()?.display(), native_bin()?.display()))
    }

    fn add(&self, container: &str, port: u16) -> Result<()> {
        self.node.add_container(container)?;
        let mappings = json!({"portMappings": [{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]});
        let postern = plugin_bin()?.join("postern");
        let script = format!(
            "{} CNI_ARGS='K=V;IgnoreUnknown=1' CAP_ARGS='{mappings}' {} net add listed /run/netns/{container}",
            Self::environment()?,
            postern.display()
        );
        self.node.sh(&script).map(drop).with_context(|| format!("add {container}"))
    }

    /// Returns the parts of the node that living attachments change.
    fn picture(&self) -> Result<Value> {
        let mut tree = self.node.snapshot(&["alive"], &mut Names::new(""))?;
        if let Some(files) = tree.get_mut("files").and_then(Value::as_object_mut) {
            let is_of_test = |path: &str| {
                ["last_reserved_ip", "/called", "/net.d", "/fails-", "/sleeper", "/open", OWN]
                    .iter()
                    .any(|part| path.contains(part))
            };
            files.retain(|path, _| !is_of_test(path));
        }
        Ok(tree)
    }

    /// Runs `postern gc`. Returns its outputs and its exit status.
    fn gc(&self, arguments: &str) -> Result<(String, i32)> {
        let postern = plugin_bin()?.join("postern");
        let script = format!(
            "rc=0; {} {} gc --conf-dir /run/net.d {arguments} 2>&1 || rc=$?; echo status $rc",
            Self::environment()?,
            postern.display()
        );
        let printed = self.node.sh(&script)?;
        let (printed, status) = printed.trim_end().rsplit_once("status ").context("no status")?;
        Ok((printed.to_owned(), status.parse()?))
    }

    /// Returns the differences from the node's state before the dead container's ADD.
    fn left(&self) -> Result<String> {
        let left = compare(&self.before, &self.picture()?);
        Ok(left.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    fn leases(&self) -> Result<usize> {
        Ok(self.node.sh("ls /var/lib/cni/networks/listed | grep -c '^10' || true")?.trim().parse()?)
    }

    fn cached(&self) -> Result<usize> {
        Ok(self.node.sh("ls /var/lib/cni/results | wc -l")?.trim().parse()?)
    }
}

fn portmap(plugin: &str) -> Value {
    json!({"type": plugin, "backend": "iptables", "capabilities": {"portMappings": true}})
}

/// After `postern gc`, the node looks as after the runtime's own DELs: without the dead container's objects, with the
/// living container's objects.
#[test]
fn whole_lists_of_ours_and_native_plugins() -> Result<()> {
    for (number, plugins) in [
        (1, vec![portmap("native-portmap")]),
        (2, vec![portmap("native-portmap"), json!({"type": "native-firewall", "backend": "iptables"})]),
        (
            3,
            vec![
                portmap("portmap"),
                json!({"type": "native-firewall", "backend": "iptables"}),
                json!({"type": "tuning"}),
            ],
        ),
        (4, vec![portmap("portmap"), json!({"type": "firewall", "backend": "iptables"})]),
    ] {
        let place = Place::new(number, &plugins)?;
        place.node.remove_container("dead")?;
        let names: Vec<&str> = plugins.iter().rev().filter_map(|plugin| plugin.get("type")?.as_str()).collect();
        // The output first shows the list, with the path of each program. Without `--yes`, nothing is executed.
        let (shown, status) = place.gc("")?;
        ensure!(status == 0 && shown.contains("executes these programs"), "{number}: {shown}");
        let at = |name: &str| shown.find(&format!("  {name}: /"));
        let places: Vec<Option<usize>> = names.iter().copied().chain(["bridge", "host-local"]).map(at).collect();
        ensure!(places.iter().all(Option::is_some) && places.is_sorted(), "{number}: {places:?}: {shown}");
        ensure!(place.leases()? == 2 && place.cached()? == 2, "{number}: gc removed something without `--yes`");
        // The list may be gone from the directory.
        if number % 2 == 0 {
            place.node.sh("rm /run/net.d/*")?;
        }
        let (done, status) = place.gc("--yes")?;
        ensure!(status == 0 && done.contains("removed 1 of 1"), "{number}: {done}");
        ensure!(place.left()?.is_empty(), "{number}: {}\n{done}", place.left()?);
        ensure!(place.cached()? == 1, "{number}: the cache still has the dead attachment");
        let log = place.node.sh("grep -c list.delete /var/log/postern/audit.jsonl")?;
        ensure!(log == "1\n", "{log}");
        let (again, status) = place.gc("--yes")?;
        ensure!(status == 0 && again.contains("no garbage"), "{number}: {again}");
    }
    Ok(())
}

/// Each plugin gets the arguments that the runtime would pass. The last plugin comes first.
#[test]
fn plugins_get_the_runtimes_arguments() -> Result<()> {
    let behind = |name: &str| json!({"type": name, "own": name, "capabilities": {"portMappings": true}});
    let place = Place::new(5, &[behind("behind-a"), behind("behind-b")])?;
    place.node.remove_container("dead")?;
    // Another list of the same name does not count.
    place.node.sh("sed -i 's/behind-b/behind-a/' /run/net.d/*; rm /run/called")?;
    let (done, status) = place.gc("--yes")?;
    ensure!(status == 0, "{done}");
    let id = place.node.sh("ls /run/netns >/dev/null; printf /run/netns/dead | sha512sum | cut -c1-20")?;
    let line = |name: &str| {
        format!(
            r#"DEL {name} cnitool-{} eth0 /run/netns/dead K=V;IgnoreUnknown=1 [{{"portMappings":[{{"containerPort":80,"hostPort":8081,"protocol":"tcp"}}]}},"10.79.5.3/24","{name}"]"#,
            id.trim()
        )
    };
    let called = place.node.sh("cat /run/called")?;
    ensure!(called == format!("{}\n{}\n", line("behind-b"), line("behind-a")), "{called}");
    ensure!(place.left()?.is_empty(), "{}", place.left()?);
    Ok(())
}

/// One DEL fails. The DELs of all later plugins of the list have run before. The lease, the record and the cache entry
/// stay. The next try continues.
#[test]
fn a_failing_plugin_keeps_lease_and_record() -> Result<()> {
    let place = Place::new(6, &[json!({"type": "behind-a"}), json!({"type": "behind-b"})])?;
    place.node.remove_container("dead")?;
    place.node.sh("rm /run/called; touch /run/fails-behind-a")?;
    for _ in 0..2 {
        let (done, status) = place.gc("--yes")?;
        let done = flat(&done);
        ensure!(status == 1 && done.contains("its record and addresses stay"), "{done}");
        ensure!(
            done.contains("it fails as asked") && done.contains("behind-a") && done.contains("removed 0 of 1"),
            "{done}"
        );
        ensure!(place.leases()? == 2 && place.cached()? == 2, "gc released the address or the cache entry");
        ensure!(place.node.sh("ls /run/postern/attachments | wc -l")? == "2\n", "the record is gone");
    }
    let called = place.node.sh("cut -d' ' -f1,2 /run/called")?;
    ensure!(called == "DEL behind-b\nDEL behind-a\n".repeat(2), "{called}");
    place.node.sh("rm /run/fails-behind-a")?;
    let (done, status) = place.gc("--yes")?;
    ensure!(status == 0 && place.left()?.is_empty(), "{done} {}", place.left()?);
    Ok(())
}

/// `postern gc` calls no plugin if a program is missing, or if other users could write to a program or the list.
/// Addresses stay, because rules of a program may remain.
#[test]
fn nothing_of_others_is_executed() -> Result<()> {
    let entry = "/var/lib/cni/results/listed-*";
    for (number, harm, mend, words) in [
        (7, format!("chmod o+w {OWN}/behind-a"), format!("chmod o-w {OWN}/behind-a"), "behind-a"),
        (8, format!("chmod o+w {OWN}"), format!("chmod o-w {OWN}"), OWN),
        (9, format!("mv {OWN}/behind-a /run/away"), format!("mv /run/away {OWN}/behind-a"), "failed to find plugin"),
        (10, format!("chmod o+w {entry}"), format!("chmod o-w {entry}"), "/var/lib/cni/results/listed-"),
    ] {
        let place = Place::new(number, &[json!({"type": "behind-a"})])?;
        place.node.remove_container("dead")?;
        place.node.sh(&format!("rm /run/called; {harm}"))?;
        let (done, _) = place.gc("--yes")?;
        ensure!(done.contains("can't be called here") && done.contains(words), "{harm}: {done}");
        ensure!(place.node.sh("cat /run/called 2>/dev/null || true")?.is_empty(), "{harm}: a program was executed");
        ensure!(place.leases()? == 2, "{harm}: gc released the address");
        place.node.sh(&mend)?;
    }
    Ok(())
}

/// Plugins look for other programs in each directory of `CNI_PATH` when they run, as flannel does for its delegate. If
/// another user could put a program into such a directory, nothing is executed.
#[test]
fn nothing_is_executed_beside_a_directory_of_others() -> Result<()> {
    let own = format!("{}:{OWN}:{}", plugin_bin()?.display(), native_bin()?.display());
    for (number, harm) in [(12, "/run/open"), (15, "/run/open/not-there"), (16, "/run/dangling")] {
        let place = Place::new(number, &[json!({"type": "behind-a"})])?;
        place.node.remove_container("dead")?;
        place.node.sh("rm /run/called; mkdir -m 777 /run/open; ln -s /run/open/gone /run/dangling")?;
        let (done, _) = place.gc(&format!("--yes --cni-path {own}:{harm}"))?;
        let done = flat(&done);
        ensure!(
            done.contains("can't be called here") && done.contains("another user could put a program there"),
            "{done}"
        );
        ensure!(done.contains(&format!("in {harm}, a directory of CNI_PATH")), "{done}");
        ensure!(place.node.sh("cat /run/called 2>/dev/null || true")?.is_empty(), "{harm}: a program was executed");
        ensure!(place.leases()? == 2 && place.cached()? == 2, "{harm}: gc released the address or the cache entry");
    }
    // A missing directory is no danger if only root could make it.
    let place = Place::new(17, &[json!({"type": "behind-a"})])?;
    place.node.remove_container("dead")?;
    let (done, status) = place.gc(&format!("--yes --cni-path {own}:/run/not-there"))?;
    ensure!(status == 0 && place.left()?.is_empty(), "{done} {}", place.left()?);
    Ok(())
}

/// The program that flannel will find is not known in advance. The output shows flannel's directories.
#[test]
fn where_flannel_looks_is_shown() -> Result<()> {
    let place = Place::new(13, &[json!({"type": "behind-flannel"})])?;
    place.node.remove_container("dead")?;
    let (shown, _) = place.gc("")?;
    let shown = flat(&shown);
    ensure!(shown.contains(&format!("flannel's delegate, in {}", plugin_bin()?.display())), "{shown}");
    ensure!(shown.contains(&format!("or {OWN} or")), "{shown}");
    // JSON output and the log have the same directories.
    let directories = json!([plugin_bin()?, OWN, native_bin()?]);
    let (printed, _) = place.gc("--json")?;
    let report: Value = serde_json::from_str(&printed)?;
    ensure!(report["garbage"][0]["delegates_in"] == directories, "{report}");
    place.gc("--yes")?;
    let line: Value = serde_json::from_str(&place.node.sh("grep list.delete /var/log/postern/audit.jsonl")?)?;
    ensure!(line.to_string().contains(&format!("\"delegates_in\":{directories}")), "{line}");
    Ok(())
}

/// A program that never ends is killed with the programs that it started. The other attachments are ended, and the next
/// try continues.
#[test]
fn a_program_that_hangs_is_killed() -> Result<()> {
    let place = Place::new(14, &[json!({"type": "behind-a"}), json!({"type": "behind-b"})])?;
    place.add("late", 8082)?;
    place.node.remove_container("dead")?;
    place.node.remove_container("late")?;
    place.node.sh("rm /run/called; touch /run/hangs-dead")?;
    let (done, status) = place.gc("--yes --timeout 2")?;
    let done = flat(&done);
    ensure!(status == 1 && done.contains("behind-b did not end within 2 s (--timeout), and was killed"), "{done}");
    ensure!(done.contains("its record and addresses stay") && done.contains("removed 1 of 2"), "{done}");
    ensure!(place.leases()? == 2 && place.cached()? == 2, "gc released the address or the cache entry");
    let called = place.node.sh("cut -d' ' -f1,2,5 /run/called | sort")?;
    let expected = "DEL behind-a /run/netns/late\nDEL behind-b /run/netns/dead\nDEL behind-b /run/netns/late\n";
    ensure!(called == expected, "{called}");
    // A killed process that no parent has waited for is a zombie.
    let sleeper =
        place.node.sh("grep '^State:' /proc/$(cat /run/sleeper)/status 2>/dev/null | grep -v 'Z (' || true")?;
    ensure!(sleeper.is_empty(), "{sleeper}");
    place.node.sh("rm /run/hangs-dead")?;
    let (done, status) = place.gc("--yes --timeout 60")?;
    ensure!(status == 0 && place.left()?.is_empty(), "{done} {}", place.left()?);
    Ok(())
}

/// A record may be wrong. If a living container has the address, no plugin is called.
#[test]
fn a_living_container_is_not_detached() -> Result<()> {
    let place = Place::new(11, &[json!({"type": "behind-a"})])?;
    place
        .node
        .sh("rm /run/called; sed -i 's/\"boot_id\":\"[^\"]*\"/\"boot_id\":\"other\"/' /run/postern/attachments/*")?;
    let (shown, _) = place.gc("")?;
    ensure!(!shown.contains("executes these programs"), "{shown}");
    ensure!(place.node.sh("cat /run/called 2>/dev/null || true")?.is_empty(), "a program was executed");
    Ok(())
}
