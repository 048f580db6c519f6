//! DEL succeeds after any change of policy, plugin, programs and kernel since the ADD. A runtime repeats DEL until it
//! succeeds.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{PRIVATE_ETC, each};
use postern_tests::{Attachment, Call, Network, Node, plugin_bin};
use serde_json::{Value, json};
use std::path::Path;

/// A separate CNI bin directory of the node: a copy, so that its catalog can be changed.
const BIN: &str = "/run/cni-bin";

/// Returns the attachments' own objects on the node.
fn left(node: &Node) -> Result<String> {
    node.sh("ip -o link | grep -o 'veth[0-9a-f]*' || true
         nft list ruleset | grep -E 'iifname|saddr' || true
         ls /run/postern/attachments 2>/dev/null || true
         find /var/lib/cni/networks -name '10.*' 2>/dev/null || true")
}

/// Makes a node with a container that is attached.
fn attached() -> Result<(Node, Network)> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh(&format!("{PRIVATE_ETC} cp -a {} {BIN}", plugin_bin()?.display()))?;
    let bridge = json!({
        "type": "bridge", "bridge": "br9", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables",
        "macspoofchk": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    });
    let net = Network::new(&node, &bridge)?.by(Path::new(BIN));
    net.add("c1")?;
    Ok((node, net))
}

/// Calls loopback for a container with any path as its netns.
fn loopback(node: &Node, verb: &str, container: &str, path: &str) -> Result<()> {
    let config = json!({"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}).to_string();
    let call = Call::new(Path::new(BIN), "loopback", verb, config).attachment(container, path, "lo");
    node.call(&call)?.success().map(drop).with_context(|| format!("{verb} of loopback at {path}"))
}

/// Runs two DELs with the attachment's record, and two DELs without the record.
fn del_succeeds_after(change: &str) -> Result<()> {
    for lose in [":", "rm /run/postern/attachments/*"] {
        let (node, net) = attached()?;
        node.sh(lose)?;
        node.sh(&format!("cd {BIN}/postern.d; {change}"))?;
        for time in ["first", "second"] {
            let answer = net.call("DEL", "c1")?;
            ensure!(answer.status == 0 && answer.stdout.is_empty(), "{time} DEL after `{lose}`: {answer:?}");
            ensure!(left(&node)?.is_empty(), "left by the {time} DEL after `{lose}`: {}", left(&node)?);
        }
        let nobodys = format!("{BIN}/postern doctor --json || true");
        ensure!(!node.sh(&nobodys)?.contains("without a record"), "{}", node.sh(&nobodys)?);
    }
    Ok(())
}

const OPERATOR: &str = "/etc/postern/policy";

#[test]
fn a_policy_change_never_wedges_a_del() -> Result<()> {
    let bridge = |toml: &str| format!("echo '{toml}' > {OPERATOR}/bridge.toml");
    let changes = [
        bridge(r#"withdraw = ["masquerade"]"#),
        bridge(
            r#"withdraw = ["link", "veth", "addresses", "routes", "bridge", "masquerade", "mac-guard", "ipam", "attachments"]"#,
        ),
        bridge("grants = 1"),
        bridge("[grant.masquerade"),
        bridge(&format!("digest = \"sha256:{}\"", "0".repeat(64))),
        bridge(r#"versions = ["0.3.1"]"#),
        bridge("[limits]\noperations = 0"),
        bridge("[limits]\nhandles = 0\ndepth = 0"),
        bridge("[grant.ipam]\ntypes = [\"static\"]"),
        format!("echo 'withdraw = [\"leases\"]' > {OPERATOR}/host-local.toml"),
        format!("echo 'withdraw = [' > {OPERATOR}/host-local.toml"),
        format!(
            "printf '[grant.leases]\\ndirectories = [\"/x\"]\\nranges = [\"10.0.0.0/8\"]\\n' > {OPERATOR}/host-local.toml"
        ),
        format!("chmod 666 {OPERATOR}; touch {OPERATOR}/bridge.toml; chmod 666 {OPERATOR}/bridge.toml"),
    ];
    each(changes, String::clone, |change| del_succeeds_after(change))
}

#[test]
fn code_that_is_gone_or_spoilt_never_wedges_a_del() -> Result<()> {
    let changes = [
        "rm bridge.cwasm",
        "rm bridge.*",
        "rm host-local.cwasm",
        "rm host-local.*",
        "echo >> bridge.cwasm",
        "echo >> host-local.cwasm",
        "rm bridge.toml",
        "echo '{' > bridge.json",
        "chmod 777 .",
        // The engine detects this change.
        "sed -i s/wasmtime-48/wasmtime-47/g bridge.cwasm
         sed -i \"s/\\\"code\\\": [^,]*/\\\"code\\\": \\\"$(sha256sum < bridge.cwasm | cut -d' ' -f1)\\\"/\" bridge.json",
    ];
    each(changes, |change| (*change).to_owned(), |change| del_succeeds_after(change))
}

/// Without a plugin, DEL removes only the attachment's own objects.
#[test]
fn what_is_anothers_stays() -> Result<()> {
    let (node, net) = attached()?;
    let other = net.clone().with(&json!({"name": "other", "bridge": "br8"})).interface("eth1");
    node.add_container("c2")?;
    net.add("c2")?;
    other.add("c1")?;
    let count = left(&node)?.lines().count();
    node.sh("rm $(grep -l '\"container_id\":\"c1\",\"ifname\":\"eth0\"' /run/postern/attachments/*)")?;
    node.sh(&format!("echo 'x = 1' > {OPERATOR}/bridge.toml"))?;
    // The path now leads to another container's namespace, as with reused process IDs.
    let strange = net.request(0, "DEL", "c9", &json!({}))?.attachment("c9", &node.netns("c2"), "eth0");
    node.call(&strange)?.success()?;
    net.attachment("c1").del()?;
    node.sh(&format!("rm {OPERATOR}/bridge.toml"))?;
    ensure!(left(&node)?.lines().count() < count, "{}", left(&node)?);
    for (net, container, ifname) in [(&net, "c2", "eth0"), (&other, "c1", "eth1")] {
        node.sh_in(container, &format!("ip -o link show {ifname}"))?;
        net.attachment(container).del()?;
    }
    ensure!(left(&node)?.is_empty(), "{}", left(&node)?);
    Ok(())
}

/// ADD is refused as long as the operator's policy lacks a grant. The message of each refusal has a policy line that an
/// operator can copy. With these lines, ADD succeeds.
#[test]
fn hints_of_a_running_host_can_be_copied() -> Result<()> {
    let (node, net) = attached()?;
    net.attachment("c1").del()?;
    let policy = format!("{OPERATOR}/bridge.toml");
    for toml in [
        r#"withdraw = ["masquerade"]"#,
        "[grant.masquerade]\nbackends = [\"iptables\"]",
        "[grant.bridge]\nnames = [\"other\"]\ngateways = [\"true\"]",
        "[grant.ipam]\ntypes = [\"static\"]",
        "[limits]\noperations = 9",
        "[limits]\nhandles = 1",
    ] {
        node.sh(&format!("cat > {policy} <<'E'\n{toml}\nE"))?;
        let mut answer = net.call("ADD", "c1")?;
        // Each policy line may lead to the next refusal.
        for _ in 0..12 {
            if answer.status == 0 {
                break;
            }
            let printed: Value = serde_json::from_str(&answer.stdout)?;
            let text = format!("{} {}", printed["msg"], printed["details"]).replace("\\\"", "\"");
            let line = text.split('`').nth(1).with_context(|| text.clone())?;
            node.sh(&format!("cat > {policy} <<'E'\n{line}\nE"))?;
            answer = net.call("ADD", "c1")?;
        }
        answer.success().with_context(|| toml.to_owned())?;
        net.attachment("c1").del()?;
        ensure!(left(&node)?.is_empty(), "{}", left(&node)?);
    }
    Ok(())
}

/// Hides programs of iptables from a node.
const HIDE: &str = "mkdir /run/sbin; cp -r --preserve=mode,links /usr/sbin/. /run/sbin; for at in /usr/sbin /sbin; do
    [ -L $at ] || mount --bind /run/sbin $at; done; cd /run/sbin; rm -f";

#[test]
fn nothing_to_remove_is_success_on_any_node() -> Result<()> {
    for hidden in ["iptables-* ip6tables-*", "ip6tables-*", "iptables-*"] {
        let (node, net) = attached()?;
        node.sh(&format!("{HIDE} {hidden}"))?;
        for _ in 0..2 {
            net.attachment("c1").del().with_context(|| hidden.to_owned())?;
            ensure!(left(&node)?.is_empty(), "{hidden}: {}", left(&node)?);
        }
        // DEL without a record, with a result of both IP versions, and then GC: nothing is left to remove.
        let ips = json!([{"address": "10.9.0.2/24"}, {"address": "fd00::2/64"}]);
        let patch = json!({"prevResult": {"cniVersion": "1.1.0", "ips": ips}, "cni.dev/valid-attachments": []});
        for verb in ["DEL", "GC"] {
            let answer = net.call_at(0, verb, "c1", &patch)?;
            answer.success().with_context(|| format!("{verb} without {hidden}"))?;
        }
    }
    Ok(())
}

/// Runs a program, and refuses socket(2) for nfnetlink only: `python3 -c … PROGRAM`. Refusing the n-th socket would not
/// work: musl repeats the call without a flag, and sockets for links come between.
const WITHOUT_NFNETLINK: &str = r#"
import ctypes, os, platform, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 41, "aarch64": 198}[platform.machine()]
step = lambda code, jump, otherwise, value: struct.pack("<HBBI", code, jump, otherwise, value)
load = lambda offset: step(0x20, 0, 0, offset)
netlink, netfilter, refused = 16, 12, 0x50000 | 93
program = load(0) + step(0x15, 0, 5, number) + load(16) + step(0x15, 0, 3, netlink) + load(32) + step(0x15, 0, 1, netfilter)
program += step(6, 0, 0, refused) + step(6, 0, 0, 0x7fff0000)
code = ctypes.create_string_buffer(program)
filter = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(filter), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// A seccomp filter simulates a kernel without nfnetlink.
#[test]
fn a_kernel_without_nftables_has_nothing_to_remove() -> Result<()> {
    let (node, net) = attached()?;
    net.attachment("c1").del()?;
    let trace = "/var/log/trace";
    let wrapper = ["strace", "-qq", "-o", trace, "-e", "trace=socket", "python3", "-c", WITHOUT_NFNETLINK];
    node.call_under(&wrapper.map(str::to_owned), &net.request(0, "DEL", "c1", &json!({}))?)?.success()?;
    let asked = node.sh(&format!("grep NETLINK_NETFILTER {trace}"))?;
    ensure!(asked.lines().all(|line| line.contains("EPROTONOSUPPORT")), "DEL got a socket for nftables: {asked}");
    Ok(())
}

/// A network with rules of iptables of every kind: by bridge, portmap and firewall.
struct Filtered(Network);

impl Filtered {
    fn new() -> Result<Self> {
        let node = Node::new()?;
        node.sh(PRIVATE_ETC)?;
        node.sh(KEEP_LEGACY)?;
        ["c1", "c2"].iter().try_for_each(|container| node.add_container(container))?;
        let port = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"});
        let list = json!([
            {"type": "bridge", "bridge": "br9", "isGateway": true, "ipMasq": true, "ipMasqBackend": "iptables",
                "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]}},
            {"type": "portmap", "backend": "iptables", "runtimeConfig": {"portMappings": [port]}},
            {"type": "firewall", "backend": "iptables"},
        ]);
        Ok(Self(Network::new(&node, &list)?))
    }

    /// Attaches `c1` by the whole list.
    fn add(&self) -> Result<Attachment> {
        let attachment = self.0.add("c1")?;
        ensure!(self.rules()?.lines().count() >= 5, "too few rules: {}", self.rules()?);
        Ok(attachment)
    }

    /// Returns the attachments' own rules in both variants.
    fn rules(&self) -> Result<String> {
        self.0.node.sh("nft list ruleset 2>/dev/null | grep -F 10.9.0. || true
            for table in $(cat /proc/net/ip_tables_names 2>/dev/null); do
                /run/legacy/iptables-legacy-save -t $table; done | grep -F 10.9.0. || true")
    }

    /// Makes a variant of iptables the node's default.
    fn switch(&self, variant: &str) -> Result<()> {
        let switch = "for family in iptables ip6tables; do for tool in '' -save -restore; do
            ln -sf /usr/sbin/$family-VARIANT$tool /etc/alternatives/$family$tool; done; done";
        self.0.node.sh(&switch.replace("VARIANT", variant)).map(drop)
    }

    /// Replaces the node's program names, which are links to a variant's programs, by other files.
    fn replace(&self, make: &str, variant: &str) -> Result<()> {
        // Each program name is a link. A write to the link would change the program itself.
        let replace = "for family in iptables ip6tables; do for tool in '' -save -restore; do
            at=/etc/alternatives/$family$tool; of=/usr/sbin/$family-VARIANT$tool
            MAKE; mv -f $at.new $at; done; done";
        self.0.node.sh(&replace.replace("VARIANT", variant).replace("MAKE", make)).map(drop)
    }

    /// Removes programs. A copy of `iptables-legacy-save` stays for [`Filtered::rules`], in a directory where no plugin
    /// looks.
    fn hide(&self, programs: &str) -> Result<()> {
        self.0.node.sh(&format!("{HIDE} {programs}")).map(drop)
    }

    fn postern(&self, arguments: &str) -> Result<String> {
        self.0.node.sh(&format!("{}/postern {arguments} 2>&1 || true", plugin_bin()?.display()))
    }

    /// After the change, two DELs or `postern gc` remove all that the list made.
    fn goes_after(&self, change: &str, attachment: &Attachment) -> Result<()> {
        if change == "gc" {
            self.0.node.remove_container("c1")?;
            let printed = self.postern("gc --yes --conf-dir /run/none")?;
            ensure!(printed.contains("removed 1 of 1"), "{printed}");
        } else {
            self.0.node.sh(change)?;
            // Without a record, this test does not examine doctor's findings.
            if !change.starts_with("rm ") {
                attachment.clone().check()?;
                let doctor = self.postern("doctor --json")?;
                ensure!(!doctor.contains("are gone") && !doctor.contains("can't be looked at"), "{doctor}");
            }
            attachment.del()?;
            attachment.del()?;
        }
        ensure!(self.rules()?.is_empty() && self.leases()?.is_empty(), "left: {}", self.rules()?);
        Ok(())
    }

    fn leases(&self) -> Result<String> {
        self.0.node.sh("find /var/lib/cni/networks -name '10.*' -printf '%f ' 2>/dev/null || true")
    }
}

/// Keeps a copy of `iptables-legacy-save` where only the test finds it.
const KEEP_LEGACY: &str = "mkdir -p /run/legacy; cp -L /usr/sbin/iptables-legacy-save /run/legacy";

/// Changes records to an earlier version's form, which does not name the variant of iptables.
const EARLIER: &str = "sed -i 's/\"variant\":\"[a-z]*\",//' /run/postern/attachments/*";

/// Changes records to an earlier build's form, which took a script of iptables for legacy iptables.
const MISTAKEN: &str = "sed -i 's/\"backend\":\"iptables\",/&\"variant\":\"legacy\",/g' /run/postern/attachments/*";

/// Scripts that start a program by its name, like the scripts in Kubernetes' images.
const SCRIPTS: &str = r#"printf '#!/bin/sh\nexec %s "$@"\n' $of > $at.new; chmod 755 $at.new"#;

const COPIES: &str = "cp -L $of $at.new";

/// The kernel keeps the rules of iptables' nf_tables variant. DEL removes them even without iptables' programs.
#[test]
fn rules_of_nf_tables_go_without_programs() -> Result<()> {
    for hidden in ["*iptables* ip6tables* xtables*", "ip6tables* iptables-restore", "xtables-nft-multi"] {
        for change in [":", EARLIER, "rm /run/postern/attachments/*", "gc"] {
            let place = Filtered::new()?;
            let attachment = place.add()?;
            place.hide(hidden)?;
            place.goes_after(change, &attachment).with_context(|| format!("without {hidden}, after {change}"))?;
        }
    }
    Ok(())
}

/// The record names a rule's variant of iptables. An operator may have switched the programs since.
#[test]
fn rules_go_from_the_variant_that_they_were_made_in() -> Result<()> {
    for (from, to) in [("nft", "legacy"), ("legacy", "nft")] {
        for change in [":", EARLIER, "rm /run/postern/attachments/*", "gc", "collection"] {
            let place = Filtered::new()?;
            place.switch(from)?;
            let attachment = place.add()?;
            place.switch(to)?;
            let context = || format!("from {from} to {to}, after {change}");
            match change {
                "gc" | "collection" => {
                    place.0.node.remove_container("c1")?;
                    let empty = json!({"cni.dev/valid-attachments": []});
                    if change == "gc" {
                        place.postern("gc --yes --conf-dir /run/none")?;
                    } else {
                        for at in 0..place.0.len() {
                            place.0.call_at(at, "GC", "", &empty)?.success().with_context(context)?;
                        }
                    }
                }
                _ => {
                    place.0.node.sh(change)?;
                    if !change.starts_with("rm ") {
                        attachment.clone().check().with_context(context)?;
                    }
                    attachment.del().with_context(context)?;
                }
            }
            ensure!(place.rules()?.is_empty() && place.leases()?.is_empty(), "{}: {}", context(), place.rules()?);
            // In some cases the container was removed before.
            place.0.node.remove_container("c1").or_else(|_| Ok::<(), anyhow::Error>(()))?;
        }
    }
    Ok(())
}

/// The variant of a script or a copy is unknown, so the record does not name the variant of a rule.
#[test]
fn rules_of_programs_of_an_unknown_variant_go() -> Result<()> {
    for (make, variant) in [(SCRIPTS, "nft"), (SCRIPTS, "legacy"), (COPIES, "nft"), (COPIES, "legacy")] {
        for change in [":", MISTAKEN, "rm /run/postern/attachments/*", "gc"] {
            let place = Filtered::new()?;
            place.replace(make, variant)?;
            let context = || format!("{make} for {variant}, after {change}");
            let attachment = place.add().with_context(context)?;
            let tables = place.0.node.sh("cat /proc/net/ip_tables_names 2>/dev/null || true")?;
            ensure!(tables.is_empty() == (variant == "nft"), "{}: tables of legacy iptables: {tables}", context());
            let noted = place.0.node.sh("cat /run/postern/attachments/*")?;
            ensure!(!noted.contains("\"variant\""), "{}: {noted}", context());
            place.goes_after(change, &attachment).with_context(context)?;
        }
    }
    Ok(())
}

/// Rules of legacy iptables need the programs of legacy iptables. Without these programs, DEL says so, and the address
/// stays taken.
#[test]
fn a_rule_out_of_reach_keeps_its_address() -> Result<()> {
    for change in [":", EARLIER] {
        let place = Filtered::new()?;
        place.switch("legacy")?;
        let attachment = place.add()?;
        place.0.node.sh(change)?;
        place.hide("*iptables* ip6tables* xtables-legacy-multi")?;
        let missing = "iptables-legacy";
        for at in (0..place.0.len()).rev() {
            let answer = place.0.call_at(at, "DEL", "c1", &json!({"prevResult": attachment.result}))?;
            let text = answer.stdout.clone();
            ensure!(
                answer.status == 1 && text.contains(missing) && text.contains("install these programs"),
                "{answer:?}"
            );
        }
        ensure!(place.leases()? == "10.9.0.2 ", "{}", place.leases()?);
        let doctor = place.postern("doctor --json")?;
        ensure!(doctor.contains("that no program of this node can remove") && doctor.contains(missing), "{doctor}");
        ensure!(!doctor.contains("the rules in iptables are gone"), "a wrong cause: {doctor}");
        place.0.node.remove_container("c1")?;
        let printed = place.postern("gc --yes --conf-dir /run/none")?;
        ensure!(printed.contains(missing) && place.leases()? == "10.9.0.2 ", "{printed}");
        // The package is installed again, and the node's default is the other variant.
        place.0.node.sh("umount /usr/sbin; umount /sbin 2>/dev/null || true")?;
        place.switch("nft")?;
        attachment.del()?;
        ensure!(place.rules()?.is_empty() && place.leases()?.is_empty(), "{change}: {}", place.rules()?);
    }
    Ok(())
}

/// After a reboot a pinned namespace is a plain file, and the process ID in a path may now be the runtime's. The record
/// is lost too. DEL still removes the attachment's objects on the node, including the lease.
#[test]
fn a_path_that_leads_to_no_container_any_more() -> Result<()> {
    for path in ["/run/netns/c1", "/run", "/proc/self/ns/net", "/run/netns/c1/ns"] {
        let (node, net) = attached()?;
        node.sh("rm /run/postern/attachments/*; umount --lazy /run/netns/c1")?;
        let call = net.request(0, "DEL", "c1", &json!({}))?.attachment("c1", path, "eth0");
        for time in ["first", "second"] {
            let answer = node.call(&call)?;
            ensure!(answer.status == 0 && answer.stdout.is_empty(), "{time} DEL at {path}: {answer:?}");
            let leases = node.sh("find /var/lib/cni/networks -name '10.*'")?;
            ensure!(leases.is_empty(), "{time} DEL at {path} leaves {leases}");
        }
        loopback(&node, "DEL", "c1", path)?;
        ensure!(node.sh("ip link show lo")?.contains("LOOPBACK,UP"), "the node's lo is down after {path}");
    }
    Ok(())
}

/// DEL of loopback, with a path that now leads to another container.
#[test]
fn loopback_leaves_the_lo_of_others_up() -> Result<()> {
    let (node, _) = attached()?;
    node.add_container("c2")?;
    let is_up =
        |container: &str| Ok::<_, anyhow::Error>(node.sh_in(container, "ip link show lo")?.contains("LOOPBACK,UP"));
    let loopback = |verb: &str, path: &str| loopback(&node, verb, "c3", path);
    // A container with a network, found by the name of its mount. Then a container without a network, found by the
    // number of a process.
    loopback("ADD", &node.netns("c1"))?;
    loopback("DEL", &node.netns("c1"))?;
    ensure!(is_up("c1")?, "the lo of a container with a network");
    loopback("ADD", &node.netns("c2"))?;
    let pid = node.sh("nsenter --net=/run/netns/c2 sleep 99 > /dev/null 2>&1 & echo $!
        for try in $(seq 1000); do [ /proc/$!/ns/net -ef /run/netns/c2 ] && exit; sleep .01; done; exit 1")?;
    loopback("DEL", &format!("/proc/{}/ns/net", pid.trim()))?;
    ensure!(is_up("c2")?, "the lo of a container without a network");
    node.sh(&format!("kill {}", pid.trim()))?;
    loopback("DEL", &node.netns("c2"))?;
    ensure!(!is_up("c2")?, "the container's own lo is up");
    Ok(())
}
