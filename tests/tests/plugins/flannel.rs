//! flannel: its delegation, the file that ADD writes for DEL and for a rollback, and traffic between two nodes. The
//! native flannel (up to CNI 0.4.0) is compared with ours. So are native delegates.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::PRIVATE_ETC;
use postern_tests::{Answer, Network, Node, merge, native_bin, plugin_bin, skip_part};
use serde_json::{Value, json};
use std::path::PathBuf;

const FILE: &str =
    "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n";

/// A node with a subnet file and one container. The test does the work of a runtime.
struct Place {
    node: Node,
}

impl Place {
    fn new(file: &str) -> Result<Self> {
        let node = Node::new()?;
        node.add_container("c1")?;
        node.sh(PRIVATE_ETC)?;
        let place = Self { node };
        place.subnet_file(file)?;
        Ok(place)
    }

    fn subnet_file(&self, content: &str) -> Result<()> {
        self.node.sh(&format!(
            "mkdir -p /run/flannel; printf '{}' > /run/flannel/subnet.env",
            content.replace('\n', "\\n")
        ))?;
        Ok(())
    }

    /// Returns a network of flannel, with the usual configuration changed by this patch.
    fn net(&self, patch: &Value) -> Result<Network> {
        Ok(Network::new(&self.node, &json!({"type": "flannel", "delegate": {"bridge": "br9"}}))?.with(patch))
    }

    fn state(&self) -> Result<String> {
        self.node.sh("cat /var/lib/cni/flannel/c1 2> /dev/null || true")
    }

    /// Fails if a record, a lease, a file, a link or a rule of an attachment is left.
    fn is_clean(&self) -> Result<()> {
        let left = self.node.sh(
            "find /var/lib/cni -type f -not -name '*lock' -not -name 'last_reserved*' 2> /dev/null || true; ls /run/postern/attachments 2> /dev/null || true
             ip -o link show type veth | grep -v wire || true; (nft list ruleset; iptables-save -t nat) 2> /dev/null | grep 10.244.1. || true",
        )?;
        ensure!(left.trim().is_empty(), "left: {left}");
        Ok(())
    }
}

/// Returns the directory of the native flannel 0.9 from Debian's bullseye. Prints a message and returns `None` if this
/// flannel is missing.
fn native() -> Result<Option<PathBuf>> {
    let bin = native_bin()?;
    if bin.join("flannel").exists() {
        return Ok(Some(bin));
    }
    skip_part("comparison with the native flannel", "there is no native flannel (tests/fetch-native)");
    Ok(None)
}

#[test]
fn every_version_and_every_verb() -> Result<()> {
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let place = Place::new(FILE)?;
        let net = place.net(&json!({"cniVersion": version}))?;
        let c1 = net.add("c1").context(version)?;
        let result = &c1.result;
        ensure!(result["cniVersion"] == version, "{result}");
        ensure!(result.to_string().contains("10.244.1.2/24"), "{result}");
        let link = place.node.sh_in("c1", "ip -o link show dev eth0; ip route")?;
        ensure!(link.contains("mtu 1450") && link.contains("10.244.0.0/16 via 10.244.1.1"), "{link}");
        if version >= "0.4.0" {
            let c1 = c1.check().context(version)?;
            place.node.sh_in("c1", "ip addr flush dev eth0")?;
            ensure!(c1.call_at(0, "CHECK")?.status == 1, "CHECK does not ask the delegate: {version}");
        }
        if version == "1.1.0" {
            net.call("STATUS", "")?.success()?;
            let collect =
                |valid: Value| net.call_at(0, "GC", "", &json!({"cni.dev/valid-attachments": valid}))?.success();
            collect(json!([{"containerID": "c1", "ifname": "eth0"}]))?;
            ensure!(!place.state()?.is_empty(), "GC removed a valid attachment");
            collect(json!([]))?;
            place.is_clean().context("after GC")?;
        }
        for _ in 0..2 {
            net.call("DEL", "c1")?.success().context(version)?;
        }
        place.is_clean().context(version)?;
    }
    Ok(())
}

/// Leaves out the values that each run chooses: link-layer addresses, names of pairs, and the path of the namespace.
fn plain(result: &Value) -> Value {
    let mut result = result.clone();
    for interface in result.get_mut("interfaces").and_then(Value::as_array_mut).into_iter().flatten() {
        for key in ["mac", "sandbox"] {
            if interface.get(key).is_some() {
                interface[key] = json!("");
            }
        }
        if interface["name"].as_str().is_some_and(|name| name.starts_with("veth")) {
            interface["name"] = json!("veth");
        }
    }
    result
}

/// Compares every version with native plugins, for three configurations of the delegate. The native flannel 0.9 knows
/// versions up to 0.4.0. In all versions, a native delegate gets the configuration that our flannel has written down.
#[test]
fn every_version_beside_the_native_plugins() -> Result<()> {
    const LOOK: &str = "ip -o -d link show dev eth0 | grep -o 'mtu [0-9]*'; ip -o addr show dev eth0 scope global | awk '{print $4}'; ip route";
    /// Faults in the container, for CHECK.
    const FAULTS: [&str; 3] = ["ip route del 10.244.0.0/16", "ip addr flush dev eth0", "ip link set eth0 name other"];
    let flannel = native()?;
    let mut compared = 0;
    for version in ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        for delegate in [
            json!({"delegate": {"hairpinMode": true}}),
            json!({"delegate": {"isDefaultGateway": true, "mtu": 1300, "ipMasq": false}}),
            json!({"delegate": {"type": "ptp", "bridge": null}}),
        ] {
            let step = format!("{version}, {delegate}");
            let mut patch = json!({"cniVersion": version});
            merge(&mut patch, &delegate);
            let ours = Place::new(FILE)?;
            let c1 = ours.net(&patch)?.add("c1").with_context(|| step.clone())?;
            let result = &c1.result;
            let looks = ours.node.sh_in("c1", LOOK)?;
            let written: Value = serde_json::from_str(&ours.state()?)?;

            // The native delegate alone, without flannel.
            let other = Place::new(FILE)?;
            let delegate = Network::new(&other.node, &written)?.by(&native_bin()?);
            let natively = delegate.add("c1").with_context(|| step.clone())?;
            ensure!(plain(result) == plain(&natively.result), "{step}: {result:#} {natively:?}");
            ensure!(looks == other.node.sh_in("c1", LOOK)?, "{step}: the container");
            compared += 1;
            if version >= "0.4.0" {
                for attachment in [&c1, &natively] {
                    attachment.call_at(0, "CHECK")?.success().with_context(|| step.clone())?;
                }
                // The faults come one after the other. CHECK finds each new fault before the older faults.
                for fault in FAULTS {
                    for node in [&ours.node, &other.node] {
                        node.sh_in("c1", fault)?;
                    }
                    let (mine, theirs) = (c1.call_at(0, "CHECK")?, natively.call_at(0, "CHECK")?);
                    // The native plugin prints a route as Go does. The first two words name the error.
                    let words = |answer: &Answer| {
                        let error: Value = serde_json::from_str(&answer.stdout).unwrap_or_default();
                        let first: Vec<String> =
                            error["msg"].as_str().unwrap_or_default().split(' ').take(2).map(str::to_owned).collect();
                        (error["code"].clone(), first)
                    };
                    ensure!(
                        (mine.status, words(&mine)) == (theirs.status, words(&theirs)),
                        "{step}: {fault}: {mine:?} {theirs:?}"
                    );
                    ensure!(mine.status == 1, "{step}: {fault}: {mine:?}");
                    compared += 1;
                }
                // DEL finds the link by this name.
                for node in [&ours.node, &other.node] {
                    node.sh_in("c1", "ip link set other name eth0")?;
                }
            }

            // The native flannel, if it knows the version.
            if let Some(bin) = flannel.as_ref().filter(|_| version <= "0.4.0") {
                let place = Place::new(FILE)?;
                let net = place.net(&patch)?.by(bin);
                let natively = net.add("c1").with_context(|| step.clone())?;
                ensure!(plain(result) == plain(&natively.result), "{step}: {result:#} {natively:?}");
                ensure!(looks == place.node.sh_in("c1", LOOK)?, "{step}: the container of native flannel");
                let mut theirs: Value = serde_json::from_str(&place.state()?)?;
                // The native flannel writes one range in an older notation.
                if let Some(subnet) = theirs["ipam"].as_object_mut().and_then(|ipam| ipam.remove("subnet")) {
                    theirs["ipam"]["ranges"] = json!([[{"subnet": subnet}]]);
                }
                ensure!(written == theirs, "{step}: {written:#} {theirs:#}");
                if version == "0.4.0" {
                    natively.check().with_context(|| step.clone())?;
                }
                for _ in 0..2 {
                    net.call("DEL", "c1")?.success().with_context(|| step.clone())?;
                }
                place.is_clean().with_context(|| step.clone())?;
                compared += 1;
            } else if let Some(bin) = &flannel {
                let answer = Place::new(FILE)?.net(&patch)?.by(bin).call("ADD", "c1")?;
                ensure!(
                    answer.status == 1 && answer.stdout.contains("incompatible CNI versions"),
                    "{step}: {answer:?}"
                );
            }
            for _ in 0..2 {
                for net in [&c1.network, &delegate] {
                    net.call("DEL", "c1")?.success().with_context(|| step.clone())?;
                }
            }
            ours.is_clean().with_context(|| step.clone())?;
            other.is_clean().with_context(|| format!("{step}: native"))?;
        }
    }
    println!("{compared} comparisons");
    Ok(())
}

/// Our delegate makes the same objects as the native bridge with the expected configuration.
#[test]
fn the_delegate_is_what_the_subnet_file_says() -> Result<()> {
    let file = "FLANNEL_NETWORK=10.244.0.0/16,10.244.0.0/16,10.243.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_IPV6_NETWORK=fd00:10:244::/56\n\
                FLANNEL_IPV6_SUBNET=fd00:10:244:1::1/64\nFLANNEL_MTU=1400\nFLANNEL_IPMASQ=false\n";
    let place = Place::new(file)?;
    let patch = json!({"runtimeConfig": {"mac": "02:00:00:00:00:07"}, "delegate": {"hairpinMode": true}, "ipam": {"routes": [{"dst": "192.0.2.0/24"}]}});
    let net = place.net(&patch)?;
    let result = net.add("c1")?.result;
    let expected = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "br9", "hairpinMode": true, "ipMasq": true, "mtu": 1400,
        "isGateway": true, "runtimeConfig": {"mac": "02:00:00:00:00:07"},
        "ipam": {
            "type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd00:10:244:1::/64"}]],
            "routes": [{"dst": "192.0.2.0/24"}, {"dst": "10.244.0.0/16"}, {"dst": "10.243.0.0/16"}, {"dst": "fd00:10:244::/56"}],
        },
    });
    let written: Value = serde_json::from_str(&place.state()?)?;
    ensure!(written == expected, "{written:#}");
    let other = Place::new(file)?;
    let natively = Network::new(&other.node, &expected)?.by(&native_bin()?).add("c1")?.result;
    for key in ["ips", "routes", "dns"] {
        ensure!(result[key] == natively[key], "{key}: {result:#} {natively:#}");
    }
    let look = "ip -o -d link show dev eth0 | grep -o 'mtu [0-9]*'; ip -o addr show dev eth0 scope global | awk '{print $4}'; ip route; ip -6 route | grep -v fe80";
    ensure!(place.node.sh_in("c1", look)? == other.node.sh_in("c1", look)?, "the container");
    net.call("DEL", "c1")?.success()?;
    place.is_clean()
}

/// The mode of the native plugin's file, and DEL by the flannel that did not make the attachment.
#[test]
fn attachments_go_over_to_the_native_plugin_and_back() -> Result<()> {
    let place = Place::new(FILE)?;
    let ours = place.net(&json!({"cniVersion": "0.4.0"}))?;
    ours.add("c1")?;
    let modes = place.node.sh("stat -c '%a %u' /var/lib/cni/flannel /var/lib/cni/flannel/c1")?;
    ensure!(modes == "700 0\n600 0\n", "{modes}");
    let Some(bin) = native()? else { return Ok(()) };
    let native = ours.clone().by(&bin);
    // After a rollback, the native plugin finds the file of the attachment.
    native.call("DEL", "c1")?.success()?;
    ensure!(place.state()?.is_empty() && place.node.sh("ip -o link show type veth")?.is_empty(), "after native DEL");
    // Our record lists objects that are gone.
    ours.add("c1")?;
    ours.call("DEL", "c1")?.success()?;
    place.is_clean()?;
    // The native plugin made the attachment before ours was installed.
    for subnet_file in [true, false] {
        native.add("c1")?;
        if !subnet_file {
            place.node.sh("rm /run/flannel/subnet.env")?;
        }
        ours.call("DEL", "c1")?.success()?;
        place.is_clean().with_context(|| format!("made natively, subnet file {subnet_file}"))?;
    }
    Ok(())
}

/// DEL needs neither the subnet file nor the native plugin's file, and neither the grant nor the network's keys.
#[test]
fn del_uses_what_add_wrote_down() -> Result<()> {
    for what in [
        "rm /run/flannel/subnet.env",
        "echo FLANNEL_SUBNET=192.0.2.1/24 > /run/flannel/subnet.env",
        "rm -r /var/lib/cni/flannel",
        "echo '{\"name\":\"net\",\"type\":\"host-device\",\"device\":\"br9\"}' > /var/lib/cni/flannel/c1; rm /run/flannel/subnet.env",
        "printf 'withdraw = [\"delegate\"]' > /etc/postern/policy/flannel.toml",
        "ip -n c1 link delete eth0",
    ] {
        let place = Place::new(FILE)?;
        let net = place.net(&json!({}))?;
        net.add("c1")?;
        place.node.sh(what)?;
        for patch in [json!({"delegate": {"bridge": "other"}}), json!({"delegate": {"type": "nothing"}})] {
            net.call_at(0, "DEL", "c1", &patch)?.success().with_context(|| what.to_owned())?;
        }
        // DEL leaves a file that is not this attachment's.
        place.node.sh("rm -rf /var/lib/cni/flannel")?;
        place.is_clean().with_context(|| what.to_owned())?;
    }
    Ok(())
}

/// Other users can now write to a parent of the directory with the native plugin's files. A run that confines itself
/// cannot open the directory. ADD is refused with the reason. DEL leaves the file, says so, and removes everything
/// else.
#[test]
fn a_state_directory_that_others_could_redirect() -> Result<()> {
    let place = Place::new(FILE)?;
    let net = place.net(&json!({"dataDir": "/run/state/flannel"}))?;
    net.add("c1")?;
    place.node.sh("test -f /run/state/flannel/c1; chmod 777 /run/state")?;
    let answer = net.call("DEL", "c1")?;
    answer.success()?;
    ensure!(
        answer.stderr.contains("/run/state/flannel/c1 stays")
            && answer.stderr.contains("/run/state can be written by others"),
        "{answer:?}"
    );
    place.is_clean()?;
    let answer = net.call("ADD", "c1")?;
    ensure!(answer.status == 1 && answer.stdout.contains("/run/state can be written by others"), "{answer:?}");
    place.is_clean()?;
    // The next attachment replaces the file, and that attachment's DEL removes the file.
    place.node.sh("chmod 755 /run/state")?;
    net.add("c1")?;
    net.call("DEL", "c1")?.success()?;
    ensure!(place.node.sh("ls -A /run/state/flannel")?.is_empty(), "a file is left");
    place.is_clean()
}

/// With the native plugin, the second attachment's file replaces the first attachment's file.
#[test]
fn two_attachments_of_one_container_have_their_own_state() -> Result<()> {
    let place = Place::new(FILE)?;
    place.node.sh("sed s/10.244/10.245/ /run/flannel/subnet.env > /run/other.env")?;
    let net = place.net(&json!({}))?;
    let of_other = json!({"name": "net2", "delegate": {"bridge": "br8"}, "subnetFile": "/run/other.env"});
    let (second, again) = (place.net(&of_other)?.interface("eth1"), net.clone().interface("eth2"));
    net.add("c1")?;
    let first = place.state()?;
    second.add("c1")?;
    // The container joins the same network again.
    again.add("c1")?;
    ensure!(place.state()? == first, "the first attachment's file changed: {}", place.state()?);
    for (interface, net) in [("eth2", again), ("eth1", second)] {
        net.call("DEL", "c1")?.success()?;
        ensure!(place.state()? == first, "{interface} changed the first attachment's file");
    }
    let links = place.node.sh_in("c1", "ip -o link show type veth")?;
    ensure!(links.contains("eth0") && !links.contains("eth1") && !links.contains("eth2"), "{links}");
    net.call("DEL", "c1")?.success()?;
    place.is_clean()
}

/// Other programs write comments into the subnet file, in any encoding. The native plugin's file about a container may
/// have such bytes too. Neither file stops a DEL.
#[test]
fn files_with_bytes_that_are_not_utf8() -> Result<()> {
    let place = Place::new(&format!("# caf\\351\n{FILE}"))?;
    let net = place.net(&json!({}))?;
    net.add("c1")?;
    net.call("DEL", "c1")?.success()?;
    place.is_clean()?;
    // The file and the lease are as a native flannel and its delegate leave them.
    let delegate = r#"{"cniVersion":"1.1.0","name":"net","type":"bridge","bridge":"br9","isDefaultGateway":true,"comment":"caf\351",
        "ipam":{"type":"host-local","ranges":[[{"subnet":"10.244.1.0/24"}]]}}"#;
    place.node.sh(&format!(
        "mkdir -p /var/lib/cni/flannel; printf '{}' > /var/lib/cni/flannel/c1",
        delegate.replace('\n', " ")
    ))?;
    place
        .node
        .sh("mkdir -p /var/lib/cni/networks/net; printf 'c1\\r\\neth0' > /var/lib/cni/networks/net/10.244.1.7")?;
    let answer = net.call("DEL", "c1")?;
    let left = place.node.sh("ls /var/lib/cni/networks/net | grep '^10' || true")?;
    ensure!(answer.status == 0 && left.is_empty(), "{answer:?}: {left}");
    Ok(())
}

/// A failed ADD leaves nothing, wherever it fails.
#[test]
fn a_failed_add_leaves_nothing() -> Result<()> {
    for (file, patch, words) in [
        (FILE, json!({"delegate": {"type": "ptp", "mtu": "x", "bridge": null}}), "mtu"),
        (FILE, json!({"ipam": {"type": "static"}}), ""),
        (FILE, json!({"delegate": {"vlan": 5000}}), "VLAN"),
        ("FLANNEL_MTU\n", json!({}), "FLANNEL_MTU without a value"),
        ("", json!({}), "missing FLANNEL_NETWORK, FLANNEL_SUBNET, FLANNEL_MTU, FLANNEL_IPMASQ"),
        (FILE, json!({"subnetFile": "/run/none"}), "open /run/none: no such file or directory"),
    ] {
        let place = Place::new(file)?;
        let net = place.net(&patch)?;
        let answer = net.call("ADD", "c1")?;
        ensure!(answer.status == 1 && answer.stdout.contains(words), "{patch}: {answer:?}");
        // A missing subnet file is a fault of the node. By default STATUS reports no error.
        let status = net.call("STATUS", "")?;
        let is_said = status.stderr.contains("would fail: open /run/none: no such file or directory");
        match patch["subnetFile"].is_string() {
            true => ensure!(status.status == 0 && is_said, "{patch}: {status:?}"),
            false => ensure!(
                status.status == 1 || patch["ipam"].is_object() || patch["delegate"].is_object(),
                "{patch}: STATUS"
            ),
        }
        place.is_clean().with_context(|| patch.to_string())?;
        ensure!(place.node.sh("ls -d /var/lib/cni/flannel 2> /dev/null || true")?.is_empty(), "{patch}: a directory");
    }
    Ok(())
}

/// A native delegate runs only if policy names it. The delegate gets the configuration that the host has made. The
/// delegate's own DEL undoes its effects.
#[test]
fn a_native_delegate_runs_where_policy_says_so() -> Result<()> {
    let program = r#"#!/bin/sh
        cat > /run/got.$CNI_COMMAND; echo "$CNI_COMMAND" >> /run/calls
        [ "$CNI_COMMAND" != DEL ] || [ ! -e /run/refuse ] || { echo '{"code":77,"msg":"not now"}'; exit 1; }
        if [ "$CNI_COMMAND" = ADD ]; then
            echo '{"cniVersion":"1.1.0","interfaces":[{"name":"tap9"},{"name":"eth0","sandbox":"'$CNI_NETNS'"}],"ips":[{"address":"10.244.1.9/24","interface":1}]}'
        fi"#;
    let place = Place::new(FILE)?;
    place.node.sh(&format!(
        "mkdir /run/programs; cat > /run/programs/ours-not <<'END'\n{program}\nEND\nchmod 755 /run/programs/ours-not"
    ))?;
    let patch = json!({"delegate": {"type": "ours-not", "bridge": null, "key": 1}});
    let net = place.net(&patch)?;
    let path = format!("{}:/run/programs", plugin_bin()?.display());
    let call_with_path = |verb: &str, previous: &Value| {
        let call = net.request(0, verb, "c1", &json!({"prevResult": previous}))?;
        place.node.call(&call.env("CNI_PATH", &path))
    };
    let refused = call_with_path("ADD", &Value::Null)?;
    ensure!(
        refused.status == 1
            && refused.stdout.contains("\"code\": 110")
            && refused.stdout.contains("native = [\\\"ours-not\\\"]"),
        "{refused:?}"
    );
    ensure!(place.node.sh("cat /run/calls 2> /dev/null || true")?.is_empty(), "the program ran");
    place.is_clean()?;
    place.node.sh(
        "printf '[grant.delegate]\\ntypes = [\"${config.delegate.type}\"]\\nnative = [\"ours-not\"]\\nfiles = [\"/run/flannel/subnet.env\"]\\ndirectories = [\"/var/lib/cni/flannel\"]\\n' \
             > /etc/postern/policy/flannel.toml",
    )?;
    let result = call_with_path("ADD", &Value::Null)?.success()?;
    ensure!(result["interfaces"][0]["name"] == "tap9", "{result}");
    let got: Value = serde_json::from_str(&place.node.sh("cat /run/got.ADD")?)?;
    ensure!(
        got["key"] == 1 && got["ipam"]["ranges"][0][0]["subnet"] == "10.244.1.0/24" && got["name"] == "net",
        "{got}"
    );
    call_with_path("CHECK", &result)?.success()?;
    // The delegate's DEL fails. flannel's file stays, and the next DEL uses it.
    place.node.sh("touch /run/refuse")?;
    ensure!(call_with_path("DEL", &Value::Null)?.status == 1, "DEL succeeded though the delegate failed");
    ensure!(!place.state()?.is_empty(), "the file is gone though DEL failed");
    place.node.sh("rm /run/refuse /run/flannel/subnet.env")?;
    call_with_path("DEL", &Value::Null)?.success()?;
    let got: Value = serde_json::from_str(&place.node.sh("cat /run/got.DEL")?)?;
    ensure!(got["ipam"]["ranges"][0][0]["subnet"] == "10.244.1.0/24", "{got}");
    place.is_clean()
}

/// A pod network over two nodes, as flanneld makes it. `flannel.1` has the subnet's first address. Routes to the other
/// node's subnet lead through `flannel.1`.
#[test]
fn containers_of_two_nodes_reach_each_other() -> Result<()> {
    let nodes = [Place::new(FILE)?, Place::new(&FILE.replace("10.244.1", "10.244.2"))?];
    let gateway = json!({"delegate": {"isDefaultGateway": true}});
    // The wire between the nodes. The second node later gets an address outside of the pod network.
    let [one, two] = &nodes;
    let pid = |place: &Place| -> Result<String> {
        let path = place.node.path("/");
        let pid = path.iter().nth(2).context("a process")?.to_string_lossy().into_owned();
        Ok(pid)
    };
    one.node.sh(&format!("ip link add wire type veth peer name wire netns /proc/{}/ns/net", pid(two)?))?;
    for (number, place) in (1..).zip(&nodes) {
        let other = 3 - number;
        place.node.sh(&format!(
            "ip addr add 192.0.2.{number}/24 dev wire; ip link set wire up; ip route add default via 192.0.2.{other}
             ip link add flannel.1 address 02:00:00:00:01:0{number} type vxlan id 1 local 192.0.2.{number} dev wire dstport 8472 nolearning
             ip addr add 10.244.{number}.0/32 dev flannel.1; ip link set flannel.1 mtu 1450 up
             ip route add 10.244.{other}.0/24 via 10.244.{other}.0 dev flannel.1 onlink
             ip neigh add 10.244.{other}.0 lladdr 02:00:00:00:01:0{other} dev flannel.1 nud permanent
             bridge fdb add 02:00:00:00:01:0{other} dev flannel.1 dst 192.0.2.{other}"
        ))?;
        // `FLANNEL_IPMASQ=true` says that flanneld masquerades, so the delegate does not.
        place.net(&gateway)?.add("c1")?;
    }
    for (number, place) in (1..).zip(&nodes) {
        let other: i32 = 3 - number;
        let ping = place.node.sh_in("c1", &format!("ping -c2 -i0.2 -W5 10.244.{other}.2"))?;
        ensure!(ping.contains(" 0% packet loss"), "{ping}");
        let size = place.node.sh_in("c1", &format!("ping -c1 -W5 -M do -s 1422 10.244.{other}.2"))?;
        ensure!(size.contains(" 0% packet loss"), "a packet of 1450 bytes is lost: {size}");
    }
    for place in &nodes {
        place.net(&gateway)?.call("DEL", "c1")?.success()?;
        place.is_clean()?;
    }
    // Now the delegate masquerades packets that leave the node's subnet, but not packets within it.
    let masked = FILE.replace("=true", "=false");
    one.subnet_file(&masked)?;
    let net = one.net(&gateway)?;
    let address = |container: &str| -> Result<String> { Ok(net.add(container)?.bare_addresses().concat()) };
    let first = address("c1")?;
    two.node.sh("ip addr add 203.0.113.9/32 dev lo; ip route del 10.244.1.0/24 || true")?;
    let ping = one.node.sh_in("c1", "ping -c2 -i0.2 -W5 203.0.113.9")?;
    // The other node has no route back to the container, so it can answer only a masqueraded packet.
    ensure!(ping.contains(" 0% packet loss"), "no answer from outside: {ping}");
    one.node.add_container("c2")?;
    let second = address("c2")?;
    one.node.sh_in("c1", &format!("nft add table ip seen; nft add chain ip seen in '{{ type filter hook input priority 0; }}'; nft add rule ip seen in ip saddr {second} counter"))?;
    one.node.sh_in("c2", &format!("ping -c3 -i0.2 -W5 {first}"))?;
    let seen = one.node.sh_in("c1", "nft list table ip seen")?;
    ensure!(seen.contains("packets 3"), "packets within the subnet are masqueraded: {seen}");
    Ok(())
}
