//! The calls of Multus: as its thin plugin makes them, and as its daemon ("thick") makes them. The daemon starts plugins in
//! the root of the node by chroot(2), with a working directory outside of this root. The same calls of native plugins
//! are compared.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::PRIVATE_ETC;
use postern_tests::{Answer, Call, Node, merge, native_bin, plugin_bin};
use serde_json::{Value, json};
use std::path::PathBuf;

const POD: &str = "8f0c3e5b7d";
/// What containerd gives to Multus.
const RUNTIME: &str =
    "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_INFRA_CONTAINER_ID=8f0c3e5b7d;K8S_POD_UID=5b1";
/// What Multus puts before it.
const OWN: &str = "IgnoreUnknown=true;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_INFRA_CONTAINER_ID=8f0c3e5b7d;K8S_POD_UID=5b1";
const CHROOT: &str =
    "import os, sys; os.chdir('/run'); os.chroot('/run/hostroot'); os.execv(sys.argv[1], sys.argv[1:])";

/// One network of a pod. Multus calls it a delegate.
struct Network {
    interface: &'static str,
    /// What the annotation of the pod adds to `CNI_ARGS` of ADD.
    annotated: &'static str,
    list: Value,
}

struct Multus {
    node: Node,
    bin: PathBuf,
    thick: bool,
}

impl Multus {
    fn new(bin: PathBuf, thick: bool) -> Result<Self> {
        let node = Node::new()?;
        node.sh(PRIVATE_ETC)?;
        node.sh("mkdir -p /run/hostroot /var/lib/cni/multus; mount --rbind / /run/hostroot")?;
        node.add_container(POD)?;
        Ok(Self { node, bin, thick })
    }

    /// Calls one plugin of a list, as libcni does for Multus. `given` is a merge patch of the configuration.
    fn call(&self, network: &Network, at: usize, verb: &str, given: &Value) -> Result<Answer> {
        let mut config = network.list.pointer(&format!("/plugins/{at}")).context("no plugin")?.clone();
        merge(&mut config, &json!({"name": network.list.get("name"), "cniVersion": network.list.get("cniVersion")}));
        // The runtime's own port mappings come with each call; those of an annotation come with ADD alone.
        // What the annotation asks for comes twice: in `CNI_ARGS`, and to plugins with the capability.
        if config.pointer("/capabilities/mac") == Some(&json!(true)) {
            merge(&mut config, &json!({"runtimeConfig": {"mac": "02:00:00:00:00:09", "ips": ["10.92.0.9"]}}));
        }
        if config.pointer("/capabilities/portMappings") == Some(&json!(true)) {
            let mapping = json!({"hostPort": 8080, "containerPort": 80, "protocol": "tcp"});
            merge(&mut config, &json!({"runtimeConfig": {"portMappings": [mapping]}}));
        }
        merge(&mut config, given);
        let plugin = config.get("type").and_then(Value::as_str).context("type")?.to_owned();
        let annotated = if verb == "ADD" { network.annotated } else { "" };
        let (bin, netns) = (self.bin.to_string_lossy(), self.node.netns(POD));
        let call = Call::new(&self.bin, &plugin, verb, config.to_string()).attachment(POD, &netns, network.interface);
        if self.thick {
            let call = call.env("CNI_ARGS", &format!("{OWN}{annotated}")).env("KUBERNETES_SERVICE_HOST", "10.96.0.1");
            let call = call.env("HOSTNAME", "multus").env("HOME", "/root").env("PWD", "/");
            return self.node.call_under(&["python3", "-c", CHROOT].map(str::to_owned), &call);
        }
        let call = call.env("CNI_ARGS", &format!("{OWN};{RUNTIME}{annotated}"));
        self.node.call(&call.env("CNI_PATH", &format!("{bin}:{bin}")))
    }

    /// ADD of one network. Returns the result, or the answer of the plugin that failed.
    fn add_one(&self, network: &Network) -> Result<std::result::Result<Value, Answer>> {
        let mut result = Value::Null;
        for at in 0..plugins(network) {
            let given = if result.is_null() { json!({}) } else { json!({"prevResult": result}) };
            let answer = self.call(network, at, "ADD", &given)?;
            if answer.status != 0 {
                return Ok(Err(answer));
            }
            result = answer.success()?;
        }
        Ok(Ok(result))
    }

    /// ADD of all networks. After a failure, Multus calls DEL for this network, and for those before it.
    fn add(&self, networks: &[Network]) -> Result<std::result::Result<Vec<Value>, Answer>> {
        let mut results = Vec::new();
        for (at, network) in networks.iter().enumerate() {
            match self.add_one(network)? {
                Ok(result) => results.push(result),
                Err(answer) => {
                    self.del(networks.get(..=at).unwrap_or_default(), &[])?;
                    return Ok(Err(answer));
                }
            }
        }
        Ok(Ok(results))
    }

    /// DEL of all networks, the last first. Networks without a result get no prevResult.
    fn del(&self, networks: &[Network], results: &[Value]) -> Result<()> {
        for (at, network) in networks.iter().enumerate().rev() {
            let given = results.get(at).map_or_else(|| json!({}), |result| json!({"prevResult": result}));
            for plugin in (0..plugins(network)).rev() {
                // A native DEL that removes masquerading fails once here: `Node::delete` says why.
                let tries = if native_bin().is_ok_and(|native| native == self.bin) { 5 } else { 1 };
                let mut answer = self.call(network, plugin, "DEL", &given)?;
                for _ in 1..tries {
                    if answer.status != 0 {
                        answer = self.call(network, plugin, "DEL", &given)?;
                    }
                }
                answer.success().with_context(|| format!("DEL of {}, {given}", network.interface))?;
            }
        }
        Ok(())
    }

    /// What the pod sees, without link-layer addresses that plugins choose.
    fn pod(&self) -> Result<String> {
        self.node.sh_in(
            POD,
            "ip -o addr show scope global | awk '{print $2, $4}' | sort; ip route | sort; ip -6 route show default; ip -o link show net1 | grep -o '02:00:00:00:00:09'",
        )
    }

    fn is_clean(&self) -> Result<()> {
        let left = self.node.sh(&format!(
            "find /var/lib/cni -type f -path '*10.*' -not -name 'last_reserved*'; ls /run/postern/attachments 2> /dev/null || true
             ip -o link show type veth; (nft list ruleset; iptables-save -t nat) 2> /dev/null | grep '10\\.9[123]\\.0\\.[2-9]' || true
             nsenter --net={} ip -o link show type veth",
            self.node.netns(POD)
        ))?;
        ensure!(left.trim().is_empty(), "left: {left}");
        Ok(())
    }
}

fn plugins(network: &Network) -> usize {
    network.list.get("plugins").and_then(Value::as_array).map_or(0, Vec::len)
}

/// The cluster's network, and two networks of the annotation. The second had no `name`: Multus gives it the name of the
/// NetworkAttachmentDefinition. The third is a configuration without a list.
fn networks() -> [Network; 3] {
    let ipam =
        |range: &str| json!({"type": "host-local", "ranges": [[{"subnet": range}]], "routes": [{"dst": "0.0.0.0/0"}]});
    let without_default = |range: &str| json!({"type": "host-local", "ranges": [[{"subnet": range}]]});
    [
        Network {
            interface: "eth0",
            annotated: "",
            list: json!({"name": "cluster", "cniVersion": "0.3.1", "plugins": [
                {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "ipam": ipam("10.91.0.0/24")},
                {"type": "portmap", "capabilities": {"portMappings": true}}]}),
        },
        Network {
            interface: "net1",
            annotated: ";MAC=02:00:00:00:00:09;IP=10.92.0.9",
            list: json!({"name": "storage-net", "cniVersion": "1.0.0", "plugins": [
                {"type": "bridge", "bridge": "storage0", "capabilities": {"mac": true, "ips": true}, "ipam": without_default("10.92.0.0/24")},
                {"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}]}),
        },
        Network {
            interface: "net2",
            annotated: "",
            list: json!({"name": "lab", "cniVersion": "0.4.0", "plugins": [{"type": "ptp", "ipam": without_default("10.93.0.0/24")}]}),
        },
    ]
}

/// All three networks, in both modes, with native plugins and with ours. Between ADD and DEL, Multus moves the default
/// route to net1, and changes libcni's cache.
#[test]
fn three_networks_of_a_pod() -> Result<()> {
    for thick in [false, true] {
        let mut seen = Vec::new();
        for bin in [native_bin()?, plugin_bin()?] {
            let step = format!("{}, thick: {thick}", bin.display());
            let multus = Multus::new(bin, thick)?;
            let networks = networks();
            let mut results =
                multus.add(&networks)?.map_err(|answer| anyhow::anyhow!("{answer:?}")).with_context(|| step.clone())?;
            multus.node.sh_in(POD, "ip route del default dev eth0; ip route add default via 10.92.0.1 dev net1")?;
            if let Some(routes) = results.get_mut(0) {
                routes["routes"] = json!([]);
            }
            seen.push(multus.pod().with_context(|| step.clone())?);
            multus.del(&networks, &results).with_context(|| step.clone())?;
            multus.is_clean().with_context(|| step.clone())?;
            // The runtime repeats DEL, after the namespace and the cache are gone.
            multus.node.remove_container(POD)?;
            multus.del(&networks, &[]).with_context(|| step.clone())?;
        }
        ensure!(seen.first() == seen.get(1), "the pod differs: {seen:#?}");
        ensure!(seen.iter().all(|pod| pod.contains("net1 10.92.0.9/24")), "the address was not asked for: {seen:#?}");
    }
    Ok(())
}

/// The third network fails: its interface exists. Multus then calls DEL for all three, also for the third. Later the
/// runtime calls DEL for all again. One configuration then has only a part of its keys, as some releases (4.x) give it.
#[test]
fn a_network_that_fails() -> Result<()> {
    for thick in [false, true] {
        let multus = Multus::new(plugin_bin()?, thick)?;
        let mut networks = networks();
        multus.node.sh_in(POD, "ip link add net2 type bridge")?;
        let Err(answer) = multus.add(&networks)? else { anyhow::bail!("ADD of a taken interface succeeded") };
        ensure!(answer.stdout.contains("net2"), "{answer:?}");
        multus.is_clean()?;
        if let Some(first) = networks.first_mut() {
            first.list = json!({"name": "cluster", "cniVersion": "0.3.1", "plugins": [
                {"type": "bridge", "ipam": {"type": "host-local"}}, {"type": "portmap", "capabilities": {"portMappings": true}}]});
        }
        multus.del(&networks, &[])?;
        multus.is_clean()?;

        // The same after a successful ADD.
        let whole = self::networks();
        let results = multus.add(&whole)?.map_err(|answer| anyhow::anyhow!("{answer:?}"))?;
        multus.del(&networks, &results)?;
        multus.is_clean()?;
    }
    Ok(())
}
