//! A node with objects that attackers must not change.
//!
//! | owner | objects |
//! |---|---|
//! | `c1` | the attacker's container |
//! | `c2` | attached to the network `bystander` on the bridge `cni0` by the real bridge plugin: lease, rules, record. nftables leads ports 9443 and 9053 to `c2`. Its bridge is isolated |
//! | `c3` | attached to the attacker's own network `net`: another container's lease, rules and record in the same places. iptables leads port 9444 to `c3` |
//! | the operator | a link `op0` with an address and a route, tables of nftables and iptables, an admin chain, files |
//! | kube-proxy | chains that mark and masquerade packets |
//!
//! `hostile0` is the only bridge that the attackers' policy grants, and `wire0` the only parent link.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{PRIVATE_ETC, Watched, test_bin};
use postern_tests::{Answer, Call, Network, Node, compare, merge};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// The directories that a snapshot lacks: Postern's own state, and the operator's files.
const OURS: [&str; 3] = ["/run/postern", "/etc/postern", "/etc/operator"];

/// The operator's objects on the node.
const PREPARE: &str = "
    mkdir /etc/operator
    echo secret > /etc/operator/shadow; chmod 600 /etc/operator/shadow
    ip link add hostile0 type bridge
    ip link add wire0 type veth peer name wire1; ip link set wire0 up; ip link set wire1 up
    ip link add op0 type veth peer name op1; ip link set op1 up; ip addr add 192.0.2.1/24 dev op0; ip link set op0 up
    ip route add 198.51.100.0/24 via 192.0.2.254
    nft add table inet operator
    nft add chain inet operator input '{ type filter hook input priority 5; }'
    nft add rule inet operator input ip saddr 203.0.113.0/24 drop comment '\"an operator'\\''s own\"'
    iptables -t nat -A POSTROUTING -s 203.0.113.0/24 -j MASQUERADE
    iptables -N SITE-RULES; iptables -A SITE-RULES -s 203.0.113.0/24 -j DROP
    iptables -t nat -N KUBE-MARK-MASQ; iptables -t nat -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
    iptables -t nat -N KUBE-POSTROUTING; iptables -t nat -A KUBE-POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE
    iptables -t nat -A POSTROUTING -j KUBE-POSTROUTING
";

/// The paths of files, each with mode, owner and content.
pub type Files = BTreeMap<String, String>;

/// A node with bystanders; see the module.
pub struct AttackedNode {
    watched: Watched,
    before: Files,
    /// Files of the index of leases from before the attacker's runs.
    indexes: Vec<String>,
}

impl AttackedNode {
    /// Makes the node with its bystanders, and with the node objects of one attachment of the attacker (directories,
    /// base tables).
    pub fn new() -> Result<Self> {
        let watched = Watched::new(&["c1", "c2", "c3"])?;
        watched.node.sh(PRIVATE_ETC)?;
        watched.node.sh(PREPARE)?;
        let mut attacked = Self { watched, before: BTreeMap::new(), indexes: Vec::new() };
        attacked.bystander(
            "c2",
            &json!({
                "cniVersion": "1.1.0", "name": "bystander", "type": "bridge", "bridge": "cni0", "isGateway": true,
                "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24"}]]},
            }),
        )?;
        attacked.chained(
            "c2",
            &json!({"name": "bystander", "type": "portmap", "backend": "nftables", "runtimeConfig": {"portMappings": [
                {"hostPort": 9443, "containerPort": 443, "protocol": "tcp"},
                {"hostPort": 9053, "containerPort": 53, "protocol": "udp"},
            ]}}),
            "10.77.0.2/24",
        )?;
        let firewall =
            json!({"name": "bystander", "type": "firewall", "backend": "iptables", "ingressPolicy": "same-bridge"});
        attacked.chained("c2", &firewall, "10.77.0.2/24")?;
        attacked.indexes = files(&attacked.node().path("/var/lib/postern"), "/var/lib/postern")?.into_keys().collect();
        attacked.bystander("c3", &good())?;
        attacked.chained(
            "c3",
            &json!({"name": "net", "type": "portmap", "backend": "iptables", "runtimeConfig": {"portMappings": [
                {"hostPort": 9444, "containerPort": 443, "protocol": "tcp"},
            ]}}),
            "10.9.0.2/24",
        )?;
        let mut bridge = crate::attack::base();
        merge(
            &mut bridge,
            &json!({"type": "bridge", "bridge": "hostile0", "ipMasq": true, "ipMasqBackend": "nftables"}),
        );
        for (plugin, config) in [("hostile", good()), ("bridge", bridge)] {
            for verb in ["ADD", "DEL"] {
                attacked.plugin(plugin, verb, &config)?.success()?;
            }
        }
        attacked.share()?;
        // The kernel remembers the offloads that a bridge's ports ever had.
        let port = crate::attack::rogue(
            "a port that comes and goes",
            r#"["veth-create", {"op": "bridge-find", "name": "hostile0"}, {"op": "bridge-attach", "bridge": 2, "host": 1, "port": {"hairpin": false, "isolated": false, "trunk": [], "preserve_default_vlan": false}}, "link-up"]"#,
        );
        port.call(&attacked)?;
        attacked.look()?;
        attacked.unchanged().context("the node still changes without an attack")?;
        Ok(attacked)
    }

    /// Makes all chains and tables that attachments share, in both IP versions: an attachment with all effects is added
    /// and removed.
    fn share(&self) -> Result<()> {
        let ranges = [[json!({"subnet": "10.76.0.0/24"})], [json!({"subnet": "fd00:76::/64"})]];
        let common = json!({"cniVersion": "1.1.0", "name": "shared"});
        let mut bridge = json!({"type": "bridge", "bridge": "shared0", "isGateway": true, "ipam": {"type": "host-local", "ranges": ranges}});
        merge(&mut bridge, &common);
        let result = self.plugin("bridge", "ADD", &bridge)?.success()?;
        let mappings = json!([{"hostPort": 7070, "containerPort": 80, "protocol": "tcp"}]);
        for mut config in [
            json!({"type": "portmap", "backend": "nftables", "runtimeConfig": {"portMappings": mappings}}),
            json!({"type": "portmap", "backend": "iptables", "runtimeConfig": {"portMappings": mappings}}),
            json!({"type": "firewall", "backend": "iptables", "ingressPolicy": "isolated"}),
        ] {
            merge(&mut config, &common);
            merge(&mut config, &json!({"prevResult": result}));
            let plugin = config.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
            for verb in ["ADD", "DEL"] {
                self.plugin(&plugin, verb, &config)?.success()?;
            }
        }
        self.plugin("bridge", "DEL", &bridge)?.success()?;
        self.node().sh("ip link delete shared0").map(drop)
    }

    fn bystander(&self, container: &str, config: &Value) -> Result<()> {
        Network::new(self.node(), config)?.by(&test_bin()?).add(container).map(drop)
    }

    /// Attaches a bystander like [`AttackedNode::bystander`], with a plugin that is chained behind the first plugin and
    /// uses the first plugin's address.
    fn chained(&self, container: &str, config: &Value, address: &str) -> Result<()> {
        let mut config = config.clone();
        let previous = json!({"cniVersion": "1.1.0", "ips": [{"address": address}], "interfaces": [{"name": "cni0"}]});
        merge(&mut config, &json!({"prevResult": previous}));
        self.bystander(container, &config)
    }

    /// Returns the node itself.
    pub fn node(&self) -> &Node {
        &self.watched.node
    }

    /// Calls a plugin's verb for the attacker's container.
    pub fn plugin(&self, plugin: &str, verb: &str, config: &Value) -> Result<Answer> {
        self.node().call(&self.request(plugin, verb, config.to_string())?)
    }

    /// Returns a call of a plugin's verb for the attacker's container, with any input.
    pub fn request(&self, plugin: &str, verb: &str, input: impl Into<Vec<u8>>) -> Result<Call> {
        Ok(Call::new(&test_bin()?, plugin, verb, input).attachment("c1", &self.node().netns("c1"), "eth0"))
    }

    /// Returns the audit log.
    pub fn audit(&self) -> Result<String> {
        self.node().sh("cat /var/log/postern/audit.jsonl")
    }

    /// Runs a script on the node. Its effects count as part of the node from now on.
    pub fn prepare(&mut self, script: &str) -> Result<()> {
        self.node().sh(script)?;
        self.look()
    }

    /// Sets the operator's policy for a plugin. An empty text removes the policy.
    pub fn operator_policy(&self, plugin: &str, toml: &str) -> Result<()> {
        let path = self.node().path(format!("/etc/postern/policy/{plugin}.toml"));
        match toml {
            "" if path.exists() => fs::remove_file(path)?,
            "" => {}
            text => {
                fs::write(&path, text)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
            }
        }
        Ok(())
    }

    /// Takes the present state of the node as the expected state.
    pub fn look(&mut self) -> Result<()> {
        self.watched.look()?;
        self.before = self.ours()?;
        Ok(())
    }

    /// Fails if anything changed.
    pub fn unchanged(&mut self) -> Result<()> {
        self.watched.same()?;
        let after = self.ours()?;
        let changed: Vec<String> =
            compare(&json!(self.before), &json!(after)).iter().map(ToString::to_string).collect();
        ensure!(changed.is_empty(), "{} files of Postern's changed:\n{}", changed.len(), changed.join("\n"));
        Ok(())
    }

    /// Fails if anything changed except Postern's own records. Records keep effects that could not be undone, for DEL.
    pub fn same(&mut self) -> Result<()> {
        self.watched.same()
    }

    /// Returns the earlier and the present state of the node: a snapshot, and Postern's own files.
    pub fn trees(&mut self) -> Result<((Value, Files), (Value, Files))> {
        let (before, after) = self.watched.trees()?;
        Ok(((before, self.before.clone()), (after, self.ours()?)))
    }

    /// Removes the effects of an attack that succeeded, as far as DEL can. Accepts the other effects as part of the
    /// node, so that the next attack is judged separately.
    pub fn mend(&mut self) -> Result<()> {
        self.plugin("hostile", "DEL", &good())?;
        self.look()
    }

    /// Returns records, notes and policies, and the index without the attacker's part. Notes on verified code don't
    /// count.
    fn ours(&self) -> Result<Files> {
        let mut found = BTreeMap::new();
        for root in OURS {
            found.extend(files(&self.node().path(root), root)?);
        }
        let is_index = |path: &str| [PORTS, CLAIMS].iter().any(|index| path.starts_with(index));
        found.retain(|path, _| !is_index(path));
        found.insert(CLAIMS.to_owned(), format!("lost entries: {:?}", self.not_indexed()?));
        let index = files(&self.node().path("/var/lib/postern"), "/var/lib/postern")?;
        found.extend(index.into_iter().filter(|(path, _)| self.indexes.contains(path)));
        for (path, content) in files(&self.node().path(PORTS), PORTS)? {
            if Path::new(&path) != Path::new(PORTS) {
                let bytes = fs::read(self.node().path(&path))?;
                found.insert(path, format!("{} {:?}", &content[..6], NEIGHBOURS.map(|port| slot(&bytes, port))));
            }
        }
        // The attacks' own policies are no part of the node.
        found.retain(|path, _| {
            !path.starts_with("/run/postern/verified")
                && !path.starts_with(LOCKS)
                && !path.starts_with(DOUBTS)
                && !["hostile", "rogue", "chained", "behind", "portmap"]
                    .iter()
                    .any(|plugin| *path == format!("/etc/postern/policy/{plugin}.toml"))
        });
        Ok(found)
    }

    /// Returns the records whose claims are missing in the index of claims. Without an index, no claim counts as
    /// missing. Entries of removed records don't count.
    fn not_indexed(&self) -> Result<Vec<String>> {
        const BLOCK: usize = 24 * 256;
        const EMPTY: [u8; BLOCK] = [0; BLOCK];
        let mut entries: Option<HashSet<String>> = None;
        for path in files(&self.node().path(CLAIMS), CLAIMS)?.keys().filter(|path| *path != CLAIMS) {
            let bytes = fs::read(self.node().path(path))?;
            ensure!(bytes.first() == Some(&2), "{path} is not complete");
            // Nearly all of the 65,536 entries are empty.
            let blocks = bytes.get(4096..).unwrap_or_default().chunks(BLOCK).filter(|block| !EMPTY.starts_with(block));
            let behind = blocks.flat_map(|block| block.chunks_exact(24)).filter(|entry| **entry != [0; 24]);
            let hex = |entry: &[u8]| entry.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            entries.get_or_insert_default().extend(behind.map(hex));
        }
        let Some(entries) = entries else { return Ok(Vec::new()) };
        let records = files(&self.node().path(RECORDS), RECORDS)?;
        let claims = ["\"addresses\":[\"", "\"effect\":\"device\"", "\"effect\":\"port\"", "\"effect\":\"veth\""];
        let has_claims = records.iter().filter(|(_, content)| claims.iter().any(|claim| content.contains(claim)));
        let names = has_claims.filter_map(|(path, _)| path.rsplit('/').next()).map(str::to_owned);
        Ok(names.filter(|name| !entries.contains(name)).collect())
    }
}

const RECORDS: &str = "/run/postern/attachments";
/// The index of claims: addresses, links and shared settings. The first question about a claim makes and fills the
/// index.
const CLAIMS: &str = "/run/postern/addresses";

/// The index of the node's ports. Only the bystanders' entries matter, because other entries name records that are
/// gone. A pair of numbers is the protocol and the port.
const PORTS: &str = "/run/postern/ports";
const NEIGHBOURS: [(usize, usize); 3] = [(0, 9443), (1, 9053), (0, 9444)];

/// Empty files. Each file asks the next ADD to check whether an attachment is alive.
const DOUBTS: &str = "/run/postern/doubts";

/// Empty files that serve as locks of routing tables.
const LOCKS: &str = "/run/postern/routing";

/// Returns the entry of a port in the index.
fn slot(index: &[u8], (protocol, port): (usize, usize)) -> Vec<u8> {
    index.iter().skip((protocol * 65_536 + port) * 24).take(24).copied().collect()
}

/// Returns the configuration of a complete attachment by the hostile plugin. The plugin then ends without an error.
pub fn good() -> Value {
    let mut config = crate::attack::base();
    merge(&mut config, &json!({"hostile": "good", "make": true}));
    config
}

/// Returns mode, owner and content of everything below `real`, which the node has at `shown`. Indexes have some
/// megabytes, so they are returned without content.
fn files(real: &Path, shown: &str) -> Result<Files> {
    let mut found = BTreeMap::new();
    let Ok(metadata) = real.symlink_metadata() else { return Ok(found) };
    let content = if metadata.is_symlink() {
        format!("-> {}", fs::read_link(real)?.display())
    } else if metadata.is_file() && ![PORTS, CLAIMS].iter().any(|index| shown.starts_with(index)) {
        String::from_utf8_lossy(&fs::read(real)?).into_owned()
    } else {
        String::new()
    };
    found.insert(shown.to_owned(), format!("{:o} {} {content}", metadata.mode(), metadata.uid()));
    if metadata.is_dir() {
        for entry in fs::read_dir(real)? {
            let entry = entry?;
            found.extend(files(&entry.path(), &format!("{shown}/{}", entry.file_name().to_string_lossy()))?);
        }
    }
    Ok(found)
}
