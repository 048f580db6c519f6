//! Connections through lists of bridge, portmap and firewall: from all places, TCP and UDP, IPv4 and IPv6, with both
//! packet filters and each policy for bridges. The native plugins make the same connections on another node.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::PRIVATE_ETC;
use postern_tests::{Attachment, Network, Node, native_bin, plugin_bin};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

const TALK: &str = env!("CARGO_BIN_EXE_postern-talk");
const POLICIES: [&str; 3] = ["open", "same-bridge", "isolated"];

/// A node with two bridges: `c1` and `c2` on `br1`, `c3` on `br2`, and `out` behind link `wan`. Port 8080 leads to
/// `c1`.
struct Place {
    node: Node,
    bin: PathBuf,
    backend: &'static str,
    attachments: Vec<Attachment>,
    servers: Vec<Child>,
}

impl Drop for Place {
    fn drop(&mut self) {
        for server in &mut self.servers {
            drop(server.stdin.take());
            let _ = server.wait();
        }
    }
}

impl Place {
    fn new(bin: PathBuf, backend: &'static str) -> Result<Self> {
        let node = Node::new()?;
        ["c1", "c2", "c3", "out"].iter().try_for_each(|container| node.add_container(container))?;
        node.sh(PRIVATE_ETC)?;
        node.sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0
             ip link add wan type veth peer name wan netns out; ip addr add 192.0.2.1/24 dev wan
             ip addr add 2001:db8::1/64 dev wan nodad; ip link set wan up; ip link set lo up")?;
        node.sh_in(
            "out",
            "ip link set lo up; ip addr add 192.0.2.2/24 dev wan; ip addr add 2001:db8::2/64 dev wan nodad
             ip link set wan up; ip route add 10.0.0.0/8 via 192.0.2.1; ip route add fd00::/16 via 2001:db8::1",
        )?;
        for container in ["c1", "c2", "c3"] {
            node.sh_in(container, "ip link set lo up; echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad")?;
        }
        Ok(Self { node, bin, backend, attachments: Vec::new(), servers: Vec::new() })
    }

    /// Returns the network of a container.
    fn net(&self, container: &str, ingress: &str) -> Result<Network> {
        let number = if container == "c3" { 2 } else { 1 };
        let mapping = |protocol| json!({"hostPort": 8080, "containerPort": 80, "protocol": protocol});
        let mappings = if container == "c1" { json!([mapping("tcp"), mapping("udp")]) } else { json!([]) };
        let ranges = json!([[{"subnet": format!("10.{number}.0.0/24")}], [{"subnet": format!("fd00:{number}::/64")}]]);
        let ipam = json!({"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}], "ranges": ranges});
        let list = json!({"cniVersion": "1.0.0", "name": format!("net{number}"), "plugins": [
            {"type": "bridge", "bridge": format!("br{number}"), "isGateway": true, "hairpinMode": true, "ipam": ipam},
            {"type": "portmap", "backend": self.backend, "runtimeConfig": {"portMappings": mappings}},
            {"type": "firewall", "backend": "iptables", "ingressPolicy": ingress},
        ]});
        Ok(Network::new(&self.node, &list)?.by(&self.bin))
    }

    /// Attaches all containers under a policy, and starts the servers.
    fn attach(&mut self, ingress: &str) -> Result<()> {
        for container in ["c1", "c2", "c3"] {
            self.attachments.push(self.net(container, ingress)?.add(container)?);
        }
        let (v4, v6) = (self.address("c1", 0)?, self.address("c1", 1)?);
        for (at, port) in [("c1", 80), ("out", 80)] {
            let own = if at == "c1" { [v4.clone(), v6.clone()] } else { ["192.0.2.2".into(), "[2001:db8::2]".into()] };
            for address in own {
                for protocol in ["tcp", "udp"] {
                    self.serve(at, protocol, &format!("{address}:{port}"))?;
                }
            }
        }
        Ok(())
    }

    fn detach(&mut self) -> Result<()> {
        for server in &mut self.servers {
            drop(server.stdin.take());
            server.wait()?;
        }
        self.servers.clear();
        std::mem::take(&mut self.attachments).iter().try_for_each(Attachment::del)
    }

    /// Returns an address of a container in the form of a socket's address: IPv4 (0) or IPv6 (1).
    fn address(&self, container: &str, family: usize) -> Result<String> {
        let attachment = self.attachments.iter().find(|one| one.container == container).context("not attached")?;
        let address = attachment.bare_addresses().get(family).cloned().context("no address")?;
        Ok(if family == 1 { format!("[{address}]") } else { address })
    }

    fn serve(&mut self, container: &str, protocol: &str, address: &str) -> Result<()> {
        let mut command = self.node.command_in(container, TALK);
        command.args(["serve", protocol, address]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout")?).read_line(&mut line)?;
        self.servers.push(child);
        ensure!(line.trim() == "ready", "{protocol} {address} is not served");
        Ok(())
    }

    /// Tries all connections, and the connections from one place at once. Returns the senders that the servers saw. A
    /// failed try takes a second.
    fn ask(&self) -> Result<BTreeMap<String, String>> {
        let (c1, c1_v6) = (self.address("c1", 0)?, self.address("c1", 1)?);
        let mut answers = BTreeMap::new();
        for from in ["out", "node", "c1", "c2", "c3"] {
            let mut questions = Vec::new();
            for (what, v4, v6, port) in [
                ("the port", "192.0.2.1", "[2001:db8::1]", 8080),
                ("c1", &*c1, &*c1_v6, 80),
                ("out", "192.0.2.2", "[2001:db8::2]", 80),
            ] {
                if what == from || (from == "out" || from == "c1") && what == "c1" {
                    continue;
                }
                for (family, address) in [("IPv4", v4), ("IPv6", v6)] {
                    for protocol in ["tcp", "udp"] {
                        let ask = format!("{TALK} ask {protocol} {address}:{port}");
                        questions.push((format!("{from} to {what}, {protocol}, {family}"), ask));
                    }
                }
            }
            if from == "node" {
                let ask = |protocol: &str| format!("{TALK} ask {protocol} 127.0.0.1:8080");
                questions.extend(
                    ["tcp", "udp"].map(|protocol| (format!("node to its 127.0.0.1, {protocol}"), ask(protocol))),
                );
            }
            let asked = |(number, (_, ask)): (usize, &(String, String))| format!("{ask} > /run/answer-{number} &");
            let mut script: Vec<String> = questions.iter().enumerate().map(asked).collect();
            script.push("wait".to_owned());
            script.extend((0..questions.len()).map(|number| format!("cat /run/answer-{number}")));
            let script = script.join("\n");
            let said = if from == "node" { self.node.sh(&script)? } else { self.node.sh_in(from, &script)? };
            let said: Vec<&str> = said.lines().collect();
            ensure!(said.len() == questions.len(), "{said:?}");
            answers
                .extend(questions.into_iter().zip(said).map(|((question, _), answer)| (question, answer.to_owned())));
        }
        Ok(answers)
    }
}

/// Returns true if the policy allows the connection. Without br_netfilter, the packet filter does not see frames
/// between ports of a bridge.
fn is_reached(ingress: &str, question: &str, filters_frames: bool) -> bool {
    let near = question.starts_with("c2 to c1")
        || question.starts_with("c2 to the port")
        || question.starts_with("c1 to the port");
    let far = question.starts_with("c3 to c1") || question.starts_with("c3 to the port");
    let routed = question.contains("the port");
    match ingress {
        "open" => true,
        "same-bridge" => !far,
        _ => !far && (!near || !routed && !filters_frames),
    }
}

fn whole_lists(backend: &'static str) -> Result<()> {
    let (mut ours, mut native) = (Place::new(plugin_bin()?, backend)?, Place::new(native_bin()?, backend)?);
    let filters_frames =
        ours.node.sh("cat /proc/sys/net/bridge/bridge-nf-call-iptables 2>/dev/null || echo 0")?.trim() == "1";
    for ingress in POLICIES {
        for place in [&mut ours, &mut native] {
            place.attach(ingress).with_context(|| ingress.to_owned())?;
        }
        let (answers, of_native) = std::thread::scope(|scope| {
            let other = scope.spawn(|| native.ask());
            Ok::<_, anyhow::Error>((ours.ask()?, other.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??))
        })?;
        let mut wrong = Vec::new();
        for (question, answer) in &answers {
            if (answer != "nobody") != is_reached(ingress, question, filters_frames) {
                wrong.push(format!("{question}: {answer}"));
            }
            // Our plugins reach more than the native plugins only where the native plugins lose a neighbour's answers.
            let native = of_native.get(question).map(String::as_str).unwrap_or_default();
            let is_mended = backend == "nftables" && native == "nobody" && question.contains("to the port");
            if (native == "nobody") != (answer == "nobody") && !is_mended {
                wrong.push(format!("{question}: {answer}, and with native plugins {native}"));
            }
        }
        ensure!(wrong.is_empty(), "{backend}, {ingress}:\n{}", wrong.join("\n"));
        // From outside, the container sees the real sender. From the node's 127.0.0.1, it sees the bridge's address.
        for (question, seen) in [
            ("out to the port, tcp, IPv4", "192.0.2.2"),
            ("out to the port, udp, IPv6", "2001:db8::2"),
            ("node to its 127.0.0.1, tcp", "10.1.0.1"),
        ] {
            let answer = answers.get(question).map(String::as_str).unwrap_or_default();
            ensure!(answer == seen, "{backend}, {ingress}: {question}: {answer}");
        }
        println!(
            "{backend}, {ingress}: {} connections, {} answered",
            answers.len(),
            answers.values().filter(|answer| *answer != "nobody").count()
        );
        // An operator's rule blocks a flow, in both IP versions, and through the forwarded port too.
        if ingress == "open" {
            for program in ["iptables", "ip6tables"] {
                ours.node.sh(&format!("{program} -I CNI-ADMIN -p tcp --dport 80 -j DROP"))?;
            }
            let answers = ours.ask()?;
            let blocked = |question: &str| {
                let is_bridged = question.starts_with("c2 to c1") && !filters_frames;
                question.contains("tcp") && !question.starts_with("node") && !is_bridged
            };
            let wrong: Vec<_> =
                answers.iter().filter(|(question, answer)| (*answer == "nobody") != blocked(question)).collect();
            ensure!(wrong.is_empty(), "{backend}, blocked by the operator: {wrong:#?}");
            for program in ["iptables", "ip6tables"] {
                ours.node.sh(&format!("{program} -F CNI-ADMIN"))?;
            }
        }
        for place in [&mut ours, &mut native] {
            place.detach().with_context(|| ingress.to_owned())?;
        }
        let rules = ours.node.sh("nft list ruleset")?;
        ensure!(!rules.contains("10.1.0.") && !rules.contains("fd00:1::"), "{backend}, {ingress}: {rules}");
    }
    Ok(())
}

#[test]
fn through_whole_lists_by_nftables() -> Result<()> {
    whole_lists("nftables")
}

#[test]
fn through_whole_lists_by_iptables() -> Result<()> {
    whole_lists("iptables")
}
