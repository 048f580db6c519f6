//! host-device: after any failure, the link is on the host under its own name, or a message says where it is.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::PRIVATE_ETC;
use postern_tests::{Network, Node, plugin_bin, skip, skip_part};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

/// A link of the node with its settings, and its peer, which stays on the node.
const DEVICES: &str = "ip link add dev1 address 02:00:00:00:ee:01 mtu 1400 type veth peer name wire1
    ip link property add dev dev1 altname spare1; ip link set dev1 alias rack-7; ip link set dev1 up; ip link set wire1 up";

struct Place {
    node: Node,
    net: Network,
}

impl Place {
    fn new(patch: &Value) -> Result<Self> {
        let node = Node::new()?;
        node.add_container("c1")?;
        node.add_container("c2")?;
        node.sh(DEVICES)?;
        // The node also has its own directory of operator's policies.
        node.sh(PRIVATE_ETC)?;
        let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
        let net = Network::new(&node, &json!({"type": "host-device", "device": "dev1", "ipam": ipam}))?.with(patch);
        Ok(Self { node, net })
    }

    fn policy(&self, text: &str) -> Result<()> {
        self.node.sh(&format!(
            "printf '%s' '{text}' > /etc/postern/policy/host-device.toml; chmod 644 /etc/postern/policy/host-device.toml"
        ))?;
        Ok(())
    }

    /// Fails unless the device is on the host as before, and no lease or record is left.
    fn is_as_it_was(&self) -> Result<()> {
        let text = self.node.sh("ip -d -j link show dev dev1")?;
        let links: Value = serde_json::from_str(&text)?;
        let link = links.get(0).context("a link")?;
        let flags = link["flags"].to_string();
        ensure!(link["mtu"] == 1400 && link["address"] == "02:00:00:00:ee:01" && link["ifalias"] == "rack-7", "{text}");
        ensure!(
            link["altnames"] == json!(["spare1"]) && flags.contains("\"UP\"") && !flags.contains("PROMISC"),
            "{text}"
        );
        let left = self.node.sh(
            "find /var/lib/cni/networks -name '10.*' 2> /dev/null || true; ls /run/postern/attachments 2> /dev/null || true",
        )?;
        ensure!(left.is_empty(), "left: {left}");
        Ok(())
    }
}

#[test]
fn it_comes_home_as_it_went() -> Result<()> {
    let place = Place::new(&json!({}))?;
    let c1 = place.net.add("c1")?;
    ensure!(c1.result["interfaces"][0]["mac"] == "02:00:00:00:ee:01", "{c1:?}");
    place.node.sh_in("c1", "ip -o -4 addr show dev eth0 | grep -q 10.9.0.2/24")?;
    place.node.sh("! ip link show dev dev1 2> /dev/null")?;
    c1.check()?;
    // Changes by root in the container stay in the container, and DEL reports them.
    place.node.sh_in(
        "c1",
        "ip link set eth0 down; ip link set eth0 address 02:00:00:00:ee:66 mtu 1300 promisc on alias /etc; \
         ip link property add dev eth0 altname wire1",
    )?;
    let answer = place.net.call("DEL", "c1")?;
    ensure!(answer.status == 0 && answer.stderr.contains("its MTU was 1300, and is 1400 again"), "{answer:?}");
    place.is_as_it_was()?;
    place.net.call("DEL", "c1")?.success()?;
    place.is_as_it_was()
}

/// The container's namespace can't be opened, but may be alive. DEL fails, and releases nothing.
#[test]
fn a_namespace_that_cannot_be_opened_is_not_taken_for_gone() -> Result<()> {
    let place = Place::new(&json!({}))?;
    place.net.add("c1")?;
    let hidden = place.net.request(0, "DEL", "c1", &json!({}))?.env("CNI_NETNS", "/proc/1/ns/net");
    let answer = place.node.call(&hidden)?;
    let error: Value = serde_json::from_str(&answer.stdout).with_context(|| format!("{answer:?}"))?;
    ensure!(error["code"] == 11 && answer.stdout.contains("namespace may still exist"), "{answer:?}");
    place.node.sh_in("c1", "ip -o -4 addr show dev eth0 | grep -q 10.9.0.2/24")?;
    place.node.sh("ls /var/lib/cni/networks/net/10.9.0.2")?;
    place.net.call("DEL", "c1")?.success()?;
    place.is_as_it_was()
}

/// Root in the container stacks a link on the device. Through this link, the container could still use the device's
/// wire after DEL.
#[test]
fn a_link_of_the_containers_choice_does_not_keep_its_wire() -> Result<()> {
    let place = Place::new(&json!({}))?;
    place.net.add("c1")?;
    place.node.sh_in("c1", "ip link add up1 link eth0 type macvlan mode bridge; ip link set up1 up")?;
    let answer = place.net.call("DEL", "c1")?;
    ensure!(
        answer.status == 0 && answer.stderr.contains("the link \"up1\", which the container stacked on it"),
        "{answer:?}"
    );
    place.node.sh_in("c1", "! ip link show dev up1 2> /dev/null")?;
    place.is_as_it_was()
}

/// Each netlink request and answer of a DEL fails once, one after the other. DEL is also killed at each request. A
/// temporary failure (ENOBUFS) keeps neither the device down nor a link that the container stacked on it. If a DEL
/// fails, the next DEL does everything.
#[test]
fn one_failed_request_of_a_del_keeps_nothing_down() -> Result<()> {
    let (mut tried, mut failures) = (0, Vec::new());
    for (call, fault) in [("sendto", "error=ENOBUFS"), ("recvfrom", "error=ENOBUFS"), ("sendto", "signal=KILL")] {
        let mut place = Place::new(&json!({}))?;
        for at in 1.. {
            place.net.add("c1")?;
            place.node.sh_in("c1", "ip link add up1 link eth0 type macvlan mode bridge; ip link set up1 up")?;
            let inject = format!("inject={call}:{fault}:when={at}");
            let words = ["strace", "-qq", "-o", "/run/trace", "-e", "signal=none", "-e"].into_iter();
            let wrapper: Vec<String> =
                words.chain([format!("trace={call}").as_str(), "-e", &inject]).map(str::to_owned).collect();
            let answer = place.node.call_under(&wrapper, &place.net.request(0, "DEL", "c1", &json!({}))?)?;
            if answer.status != 0 {
                place.net.call("DEL", "c1")?.success()?;
            }
            let calls = std::fs::read_to_string(place.node.path("/run/trace"))?.matches(&format!("{call}(")).count();
            let is_gone = || place.node.sh_in("c1", "! ip link show dev up1 2> /dev/null").map(drop);
            if let Err(error) = place.is_as_it_was().and_then(|()| is_gone()) {
                failures.push(format!("{inject}: {answer:?}: {error:#}"));
                place = Place::new(&json!({}))?;
            } else if calls < at {
                break;
            }
            tried += 1;
        }
    }
    ensure!(failures.is_empty(), "{} of {tried} faults did harm:\n{}", failures.len(), failures.join("\n\n"));
    ensure!(tried > 30, "only {tried} faults were tried");
    Ok(())
}

/// Puts an XDP program that passes all packets on eth0. In mode "held" a process holds the program, and netlink can't
/// remove it. In mode "tcx" netlink does not even show the program. Prints "ready". Prints "not known" if the kernel
/// lacks the mode, and "not permitted" if the user may not load programs. Ends when standard input ends.
const XDP: &str = r#"
import ctypes, os, platform, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 321, "aarch64": 280}[platform.machine()]
def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, 128)
    result = libc.syscall(number, command, buffer, 128)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
code = ctypes.create_string_buffer(struct.pack("<BBhiBBhi", 0xb7, 0, 0, 2, 0x95, 0, 0, 0))
license = ctypes.create_string_buffer(b"GPL")
try:
    program = bpf(5, struct.pack("<IIQQ", 6, 2, ctypes.addressof(code), ctypes.addressof(license)))
except PermissionError:
    print("not permitted")
    sys.exit()
index = socket.if_nametoindex("eth0")
if sys.argv[1] == "held":
    bpf(28, struct.pack("<IIII", program, index, 37, 2))
elif sys.argv[1] == "tcx":
    classifier = bpf(5, struct.pack("<IIQQ", 3, 2, ctypes.addressof(code), ctypes.addressof(license)))
    try:
        bpf(8, struct.pack("<IIII", index, classifier, 46, 0))
    except OSError:
        print("not known")
        sys.exit()
else:
    xdp = struct.pack("<HHiHHI", 8, 1, program, 8, 3, 2)
    body = struct.pack("<BBHiII", 0, 0, 0, index, 0, 0) + struct.pack("<HH", 4 + len(xdp), 0x8000 | 43) + xdp
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    netlink.send(struct.pack("<IHHII", 16 + len(body), 19, 5, 1, 0) + body)
    error, = struct.unpack("<i", netlink.recv(4096)[16:20])
    if error:
        raise OSError(-error, os.strerror(-error))
print("ready", flush=True)
sys.stdin.read()
"#;

/// A program that reads the device's packets does not return to the node with the device. If the program can't be
/// removed, the device stays down.
#[test]
fn no_program_of_the_container_reads_the_nodes_packets() -> Result<()> {
    for mode in ["plain", "held", "tcx"] {
        let place = Place::new(&json!({}))?;
        place.net.add("c1")?;
        let mut command = place.node.command_in("c1", "python3");
        let mut holder = command.args(["-c", XDP, mode]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take().context("stdout")?).read_line(&mut line)?;
        if line == "not permitted\n" {
            skip("only root of the node may load BPF programs");
            return Ok(());
        }
        if line == "not known\n" {
            skip_part(mode, "this kernel has no BPF programs of this mode");
            continue;
        }
        ensure!(line == "ready\n", "{mode}: the program can't be put on the device: {line:?}");
        if mode != "tcx" {
            place.node.sh_in("c1", "ip -j -d link show dev eth0 | grep -q '\"xdp\"'")?;
        }
        let answer = place.net.call("DEL", "c1")?;
        let text = place.node.sh("ip -j -d link show dev dev1")?;
        let links: Value = serde_json::from_str(&text)?;
        let (up, has_program) = (links[0]["flags"].to_string().contains("\"UP\""), links[0]["xdp"].is_object());
        drop(holder.stdin.take());
        holder.wait()?;
        ensure!(answer.status == 0, "{mode}: {answer:?}");
        match mode {
            "plain" => ensure!(up && !has_program && answer.stderr.contains("is taken off"), "{text}{answer:?}"),
            _ => ensure!(
                !up && (has_program || mode == "tcx") && answer.stderr.contains("the device stays down"),
                "{text}{answer:?}"
            ),
        }
    }
    Ok(())
}

/// Runs a program with bpf(2) refused: `python3 -c … ERRNO PROGRAM`.
const WITHOUT_BPF: &str = r#"
import ctypes, os, platform, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 321, "aarch64": 280}[platform.machine()]
step = lambda code, jump, otherwise, value: struct.pack("<HBBI", code, jump, otherwise, value)
program = step(0x20, 0, 0, 0) + step(0x15, 0, 1, number) + step(6, 0, 0, 0x50000 | int(sys.argv[1])) + step(6, 0, 0, 0x7fff0000)
code = ctypes.create_string_buffer(program)
filter = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(filter), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[2], sys.argv[2:])
"#;

/// If the host may not look for programs, a device stays down, and the message names the remedy. A kernel without
/// bpf(2) gives the same answer as a seccomp filter, but has no programs.
#[test]
fn a_refused_look_for_programs_keeps_it_down() -> Result<()> {
    let is_there = |path: &str| Path::new(path).exists();
    let has_bpf = is_there("/proc/sys/kernel/unprivileged_bpf_disabled");
    // In a separate user namespace no user may attach a program, and the kernel itself refuses the look.
    let is_nested = std::fs::read_link("/proc/self/ns/user")? != Path::new("user:[4026531837]");
    for (errno, stays_down) in [("38", has_bpf), ("1", !is_nested), ("13", true)] {
        let place = Place::new(&json!({}))?;
        place.net.add("c1")?;
        let wrapper = ["python3", "-c", WITHOUT_BPF, errno].map(str::to_owned);
        let answer = place.node.call_under(&wrapper, &place.net.request(0, "DEL", "c1", &json!({}))?)?;
        ensure!(answer.status == 0, "{errno}: {answer:?}");
        let is_up = place.node.sh("ip link show dev dev1")?.contains(",UP");
        ensure!(is_up != stays_down, "{errno}: {answer:?}");
        let told = "a program of the container may read the device's packets: see `bpftool net show dev dev1`";
        ensure!(answer.stderr.contains(told) == stays_down, "{errno}: {answer:?}");
        place.node.sh("ip link set dev1 up")?;
        place.is_as_it_was()?;
    }
    Ok(())
}

/// The device returns to the node, whatever name it got in the container.
#[test]
fn a_name_of_the_containers_choice_is_no_way_to_keep_it() -> Result<()> {
    let place = Place::new(&json!({}))?;
    place.net.add("c1")?;
    place.node.sh_in(
        "c1",
        "ip link set eth0 down name hidden0; ip link add eth0 type veth peer name other0; ip link set eth0 alias dev1",
    )?;
    place.net.call("DEL", "c1")?.success()?;
    place.is_as_it_was()?;
    // The container made the other link, which stays.
    place.node.sh_in("c1", "ip link show dev eth0")?;
    Ok(())
}

#[test]
fn a_failed_add_leaves_it_on_the_host() -> Result<()> {
    for patch in [
        json!({"ipam": {"type": "no-such-plugin"}}),
        json!({"ipam": {"ranges": [[{"subnet": "10.9.0.0/24", "rangeStart": "10.8.0.1"}]]}}),
        json!({"ipam": {"routes": [{"dst": "10.20.0.0/24", "gw": "192.0.2.1"}]}}),
    ] {
        let place = Place::new(&patch)?;
        let answer = place.net.call("ADD", "c1")?;
        ensure!(answer.status == 1, "{patch}: {answer:?}");
        place.is_as_it_was()?;
    }
    Ok(())
}

/// The run is killed at random instants. DEL, the next ADD or `postern gc` moves the device back to the node.
#[test]
fn a_run_that_was_killed_loses_nothing() -> Result<()> {
    let place = Place::new(&json!({}))?;
    for (number, micros) in (0..40).map(|number| (number, 2000 + number * 250)) {
        let wrapper = ["timeout", "-s", "KILL", &format!("{}", f64::from(micros) / 1e6)].map(str::to_owned);
        place.node.call_under(&wrapper, &place.net.request(0, "ADD", "c1", &json!({}))?)?;
        match number % 3 {
            0 => {}
            1 => {
                let again = place.net.call("ADD", "c1")?;
                ensure!(again.status == 0 || again.stdout.contains("already"), "{again:?}");
            }
            _ => drop(place.node.sh(&format!("{}/postern gc --yes || true", plugin_bin()?.display()))?),
        }
        place.net.call("DEL", "c1")?.success()?;
        place.is_as_it_was().with_context(|| format!("killed after {micros} µs"))?;
    }
    Ok(())
}

#[test]
fn what_the_node_or_another_uses_stays() -> Result<()> {
    for (prepare, words, policy) in [
        ("ip addr add 192.0.2.1/24 dev dev1; ip route add default via 192.0.2.254", "default route", "default-link"),
        ("ip link add br7 type bridge; ip link set dev1 master br7", "which is a port", "ports"),
        // A link that the node stacked on the device, or on such a link, has the same effect.
        (
            "ip link add up1 link dev1 type macvlan mode bridge; ip addr add 192.0.2.1/24 dev up1; ip link set up1 up
             ip route add default via 192.0.2.254",
            "default route",
            "default-link",
        ),
        (
            "ip link add up1 link dev1 type macvlan mode bridge; ip link add up2 link up1 type macvlan mode bridge
             ip link add br8 type bridge; ip link set up2 master br8",
            "which is a port",
            "ports",
        ),
    ] {
        let place = Place::new(&json!({}))?;
        place.node.sh(prepare)?;
        let answer = place.net.call("ADD", "c1")?;
        ensure!(answer.status == 1 && answer.stdout.contains(words), "{answer:?}");
        ensure!(answer.stdout.contains(&format!("{policy} = \\\"true\\\"")), "{answer:?}");
        place.node.sh("ip link show dev dev1 up")?;
        place.policy(&format!("[grant.device]\nnames = [\"${{config.device}}\"]\n{policy} = \"true\"\n"))?;
        place.net.add("c1")?;
        let answer = place.net.call("DEL", "c1")?;
        ensure!(answer.status == 0, "{answer:?}");
        // The node's own macvlan hides macvlans of other namespaces.
        if prepare.contains("up1") {
            ensure!(
                answer.stderr.contains("the node has \"up1\" on it, which hides links of other namespaces"),
                "{answer:?}"
            );
            place.node.sh(&format!(
                "ip link del up1; ip link del up2 2> /dev/null || true; {}/postern gc --yes",
                plugin_bin()?.display()
            ))?;
        }
        place.is_as_it_was()?;
        if prepare.contains("br7") {
            place.node.sh("ip -o link show dev dev1 | grep -q 'master br7'")?;
        }
    }
    Ok(())
}

#[test]
fn devices_of_others_stay_where_they_are() -> Result<()> {
    let place = Place::new(&json!({}))?;
    // A bridge port of another attachment, requested by its name.
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.8.0.0/24"}]]});
    let bridge = json!({"name": "other", "type": "bridge", "bridge": "br9", "isGateway": true, "ipam": ipam});
    let c2 = Network::new(&place.node, &bridge)?.add("c2")?;
    let port = c2.result["interfaces"][1]["name"].as_str().context("a port")?.to_owned();
    place.policy("[grant.device]\nnames = [\"*\"]\nports = \"true\"\n")?;
    for (device, words) in [
        (port.as_str(), "belongs to another attachment"),
        ("br9", "belongs to other networks"),
        ("lo", "failed to move link"),
    ] {
        let answer = place.net.call_at(0, "ADD", "c1", &json!({"device": device}))?;
        ensure!(answer.status == 1 && answer.stdout.contains(words), "{device}: {answer:?}");
    }
    // A device that the policy does not allow.
    place.policy("[grant.device]\nnames = [\"eno*\"]\n")?;
    let answer = place.net.call("ADD", "c1")?;
    ensure!(answer.status == 1 && answer.stdout.contains("policy does not allow plugin"), "{answer:?}");
    place.node.sh(&format!("ip link show dev {port} up; ip link show dev dev1 up"))?;
    Ok(())
}

/// An address that several links have identifies no link.
#[test]
fn an_address_that_several_links_have_is_refused() -> Result<()> {
    let place = Place::new(&json!({"device": null, "hwaddr": "02:00:00:00:ee:01"}))?;
    place.node.sh("ip link add twin1 address 02:00:00:00:ee:01 type veth peer name twin2")?;
    let answer = place.net.call("ADD", "c1")?;
    ensure!(answer.status == 1 && answer.stdout.contains("several links have the address"), "{answer:?}");
    place.node.sh("ip link del twin1")?;
    place.net.add("c1")?;
    place.net.call("DEL", "c1")?.success()?;
    place.is_as_it_was()
}

/// The plugin's code is missing, and the record suffices.
#[test]
fn it_comes_home_without_its_plugin() -> Result<()> {
    let place = Place::new(&json!({}))?;
    let bin = "/run/cni-bin";
    place.node.sh(&postern_tests::copy_bin(&plugin_bin()?, bin))?;
    place.net.add("c1")?;
    place.node.sh(&format!("rm {bin}/postern.d/host-device.cwasm"))?;
    let answer = place.net.clone().by(Path::new(bin)).call("DEL", "c1")?;
    ensure!(answer.status == 0, "{answer:?}");
    place.is_as_it_was()
}

/// The container is gone, and its virtual link too. The link's address is free.
#[test]
fn a_virtual_one_ends_with_its_namespace() -> Result<()> {
    let place = Place::new(&json!({}))?;
    place.net.add("c1")?;
    let shown = place.node.sh(&format!("{}/postern show c1", plugin_bin()?.display()))?;
    ensure!(
        shown.contains("device") && shown.contains("dev1 of this node, is eth0") && !shown.contains("DIFFERS"),
        "{shown}"
    );
    place.node.remove_container("c1")?;
    place.net.call("DEL", "c1")?.success()?;
    let left = place.node.sh("find /var/lib/cni/networks -name '10.*'; ls /run/postern/attachments")?;
    ensure!(left.is_empty(), "{left}");
    Ok(())
}

/// After a reboot the device is where its driver put it, with the new boot's settings. A record of the earlier boot
/// neither moves nor changes the device, and does not block the next ADD.
#[test]
fn after_a_reboot_the_device_is_the_nodes() -> Result<()> {
    for next in ["DEL", "gc", "ADD"] {
        let place = Place::new(&json!({}))?;
        place.net.add("c1")?;
        place.node.remove_container("c1")?;
        // The kernel ends a namespace some time later, and the wire's other end with it.
        place
            .node
            .sh("for n in $(seq 100); do ip link show dev wire1 > /dev/null 2>&1 || exit 0; sleep .05; done; exit 1")?;
        place.node.sh("sed -i 's/\"boot_id\":\"[^\"]*\"/\"boot_id\":\"another\"/' /run/postern/attachments/*
             ip link add dev1 address 02:00:00:00:ee:01 mtu 1300 txqlen 77 type veth peer name wire1")?;
        let look = || place.node.sh("ip -d -j link show dev dev1");
        let before = look()?;
        place.node.add_container("c1")?;
        match next {
            "DEL" => drop(place.net.call("DEL", "c1")?.success()?),
            "gc" => drop(place.node.sh(&format!("{}/postern gc --yes", plugin_bin()?.display()))?),
            _ => {
                place.net.add("c1").context("the next ADD")?;
                place.node.sh_in("c1", "ip -o link show dev eth0 | grep -q 'mtu 1300'")?;
                place.net.call("DEL", "c1")?.success()?;
            }
        }
        let kept = |text: &str| -> Result<Value> {
            let mut links: Value = serde_json::from_str(text)?;
            // A device that was away has a new index, and its peer shows another index.
            for key in ["ifindex", "link_index", "link"] {
                links[0][key] = Value::Null;
            }
            Ok(links)
        };
        let after = look()?;
        ensure!(kept(&before)? == kept(&after)?, "{next}: {before}\n{after}");
        let left = place.node.sh("find /var/lib/cni/networks -name '10.*'; ls /run/postern/attachments")?;
        ensure!(left.is_empty(), "{next}: {left}");
    }
    Ok(())
}

/// A device on the node that a record lists belongs to the record's attachment. The index of claims may contain the device, be
/// absent, or come from an earlier version.
#[test]
fn a_claimed_device_is_found_with_and_without_the_index() -> Result<()> {
    let index = "cd /run/postern/addresses";
    let earlier = format!("{index}; for file in *; do printf '\\1' > $file; done");
    let empty = format!("{index}; truncate -s 4096 *");
    for change in ["true", "rm -r /run/postern/addresses", &earlier, &empty] {
        let place = Place::new(&json!({}))?;
        place.net.add("c1")?;
        // An operator moves the device back to the node by hand.
        place.node.sh(&format!("ip -n c1 link set eth0 netns $$ name dev1; {change}"))?;
        let lost = change == empty;
        let refused = place.net.call("ADD", "c2")?;
        let words = "\\\"dev1\\\" belongs to another attachment";
        // An empty index hides the claim. This case proves that the test can fail.
        ensure!(refused.stdout.contains(words) != lost, "{change}: {refused:?}");
    }
    Ok(())
}
