//! Random operations on the files of the cache are compared with a model. The names include invalid names, and names
//! that give two attachments the same file. Other programs break files in between.

use crate::net_files::{WORDS, object, place, repeat};
use anyhow::{Context, Result, ensure};
use postern_cni::unicode;
use postern_net::{Attachment, Cache, List, Outcome};
use postern_tests::proof::number;
use postern_tests::{Random, damage};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The number of operations in one run.
const OPERATIONS: usize = 60;

// `a` + `b-c` and `a-b` + `c` give the same file name.
const NETWORKS: [&str; 5] = ["a", "a-b", "a-b-c", "n", "A"];
const CONTAINERS: [&str; 6] = ["c", "b-c", "b", "1", "c-x", "C"];
const INTERFACES: [&str; 4] = ["eth0", "c-eth0", "x-eth0", "x"];
const NO_NAMES: [&str; 10] = ["", "..", ".", "../x", "/x", "a/b", "a/../../../outside/kept", "a\0b", "a\nb", "-"];

/// Results of plugins, one of each shape.
const RESULTS: [&str; 6] = [
    r#"{"cniVersion":"0.1.0","ip4":{"ip":"10.1.0.2/24"}}"#,
    r#"{"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.2/24","routes":[{"dst":"0.0.0.0/0"}]},"ip6":{"ip":"fd00::2/64"}}"#,
    r#"{"cniVersion":"0.3.1","interfaces":[{"name":"e"}],"ips":[{"version":"4","address":"10.1.0.3/24","interface":0}]}"#,
    r#"{"cniVersion":"0.4.0","ips":[{"version":"6","address":"fd00::3/64"}],"dns":{"domain":"d"}}"#,
    r#"{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.4/24","gateway":"10.1.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]}"#,
    r#"{"cniVersion":"1.1.0","interfaces":[{"name":"e","mtu":1400}],"ips":[{"address":"10.1.0.5/24"}]}"#,
];

const VERSIONS: [&str; 8] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", ""];

const KEYS_OF_ENTRIES: [&str; 9] =
    ["kind", "containerId", "config", "ifName", "networkName", "netns", "cniArgs", "capabilityArgs", "result"];

/// The keys of an object. A key that appears twice in the text appears twice here.
struct Keys(Vec<String>);

impl<'de> serde::Deserialize<'de> for Keys {
    fn deserialize<D: serde::Deserializer<'de>>(object: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> serde::de::Visitor<'de> for Reader {
            type Value = Keys;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<M: serde::de::MapAccess<'de>>(self, mut map: M) -> Result<Keys, M::Error> {
                let mut keys = Vec::new();
                while let Some((key, _)) = map.next_entry::<String, Value>()? {
                    keys.push(key);
                }
                Ok(Keys(keys))
            }
        }
        object.deserialize_map(Reader)
    }
}

/// The model's knowledge about a file.
enum Slot {
    /// The file is unchanged since the cache wrote it.
    Own { network: String, attachment: Attachment, outcome: Box<Outcome> },
    /// The file was changed from outside. The names in its text decide to which attachment it belongs.
    Changed,
}

struct Model {
    root: PathBuf,
    cache: Cache,
    slots: BTreeMap<String, Slot>,
}

#[test]
fn what_was_written_is_read_and_nothing_else() -> Result<()> {
    let root = place("cache")?;
    let (mut taken, mut read) = (0, 0);
    repeat("histories of a cache", |random| {
        let mut model = Model::new(&root)?;
        for at in 1..=OPERATIONS {
            model.step(random, &mut taken, &mut read)?;
            model.look()?;
            if at % 30 == 0 {
                model.look_closely()?;
            }
        }
        Ok(())
    })?;
    println!("{read} results read, {taken} files belonged to another attachment");
    ensure!(
        taken > 0 && read > 0 || number("POSTERN_FUZZ_RUNS").is_some(),
        "no result was read, or no file was another attachment's"
    );
    Ok(())
}

fn file_name(network: &str, attachment: &Attachment) -> String {
    format!("{network}-{}-{}", attachment.container_id, attachment.ifname)
}

/// Returns a list with this name and version, and without plugins, because the cache ignores plugins.
fn list_of(network: &str, version: &str) -> List {
    List {
        name: network.to_owned(),
        version: version.to_owned(),
        disable_check: false,
        disable_gc: false,
        only_inlined: false,
        plugins: Vec::new(),
        text: b"{\"name\":\"\xff".to_vec(),
    }
}

fn attachment(random: &mut Random) -> Attachment {
    let mut attachment =
        Attachment::new(random.one_of(&CONTAINERS), random.one_of(&["", "/run/netns/x"]), random.one_of(&INTERFACES));
    if random.chance(1) {
        attachment.args = vec![("K".to_owned(), random.one_of(&["", "v", "a=b;c", "é\0"]).to_owned())];
    }
    if random.chance(1) {
        attachment.capability_args = object(json!({"mac": WORDS.value(random, 2)}));
    }
    attachment
}

impl Model {
    fn new(root: &Path) -> Result<Self> {
        if root.exists() {
            fs::remove_dir_all(root)?;
        }
        fs::create_dir_all(root.join("outside"))?;
        // Files outside of the cache's directory that an invalid name would reach.
        fs::write(root.join("outside/kept-c-eth0"), "kept")?;
        fs::write(root.join("kept-c-eth0"), "kept")?;
        let cache = Cache::of(&root.join("cni"));
        fs::create_dir_all(root.join("cni/results"))?;
        Ok(Self { root: root.to_owned(), cache, slots: BTreeMap::new() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join("cni/results").join(name)
    }

    fn is_free_for(&self, network: &str, attachment: &Attachment) -> bool {
        match self.slots.get(&file_name(network, attachment)) {
            None => true,
            Some(Slot::Own { network: other, attachment: of, .. }) => is_same(other, of, network, attachment),
            Some(Slot::Changed) => self.claim(&file_name(network, attachment)).is_none_or(|claim| {
                // A claim counts only if its names lead to this file.
                let [of, container, ifname] = &claim;
                let leads_here =
                    file_name(of, &Attachment::new(container, "", ifname)) == file_name(network, attachment);
                let is_name = claim.iter().all(|name| !name.is_empty()) && ifname.len() <= 15;
                claim == [network, &attachment.container_id, &attachment.ifname].map(str::to_owned)
                    || !(leads_here && is_name)
            }),
        }
    }

    /// Returns the names in a file that has all parts of the format, or `None` for other files.
    fn claim(&self, name: &str) -> Option<[String; 3]> {
        let content = fs::read(self.path(name)).ok()?;
        // Invalid Unicode is replaced, as in Go's decoder.
        let content = unicode::json(&content);
        let file: Value = serde_json::from_str(&content).ok()?;
        let Keys(keys) = serde_json::from_str(&content).ok()?;
        // No rule says which of two equal keys counts.
        if KEYS_OF_ENTRIES.iter().any(|key| keys.iter().filter(|other| other == key).count() > 1) {
            return None;
        }
        let text = |key: &str| file.get(key).map_or(Some(String::new()), |value| value.as_str().map(str::to_owned));
        let is_object = |key: &str| file.get(key).is_none_or(|value| value.is_object() || value.is_null());
        let pairs = file.get("cniArgs").is_none_or(|value| {
            let is_pair =
                |pair: &Value| pair.as_array().is_some_and(|pair| pair.len() == 2 && pair.iter().all(Value::is_string));
            value.is_null() || value.as_array().is_some_and(|pairs| pairs.iter().all(is_pair))
        });
        let whole = file.get("kind")? == "cniCacheV1" && is_object("capabilityArgs") && is_object("result") && pairs;
        (whole && text("netns").is_some() && text("config").is_some()).then_some(())?;
        Some([text("networkName")?, text("containerId")?, text("ifName")?])
    }

    /// Returns a random attachment. Half of the time, the attachment has been written before.
    fn any(&self, random: &mut Random) -> (String, Attachment) {
        let own = self.slots.values().filter_map(|slot| match slot {
            Slot::Own { network, attachment, .. } => Some((network.clone(), attachment.clone())),
            Slot::Changed => None,
        });
        let own: Vec<_> = own.collect();
        match own.get(random.index(own.len() * 2)) {
            Some(one) => one.clone(),
            None => (random.one_of(&NETWORKS).to_owned(), attachment(random)),
        }
    }

    fn step(&mut self, random: &mut Random, taken: &mut u64, read: &mut u64) -> Result<()> {
        let (network, attachment) = self.any(random);
        let network = network.as_str();
        match random.index(8) {
            0..=2 => self.write(random, network, &attachment, taken),
            3 => {
                let goes = self.is_free_for(network, &attachment);
                self.cache.remove(network, &attachment);
                if goes {
                    self.slots.remove(&file_name(network, &attachment));
                }
                Ok(())
            }
            4 | 5 => self.read(random, network, &attachment, read),
            6 => self.damage(random),
            _ => self.no_names(random, network, &attachment),
        }
    }

    fn write(&mut self, random: &mut Random, network: &str, attachment: &Attachment, taken: &mut u64) -> Result<()> {
        let outcome = Outcome::parse(random.one_of(&RESULTS).as_bytes(), "")?;
        let wrote = self.cache.write(&list_of(network, "1.0.0"), attachment, &outcome);
        if !self.is_free_for(network, attachment) {
            *taken += 1;
            let error = wrote.err().context("another attachment's result was replaced")?;
            ensure!(error.code == 5 && error.msg.contains("detach that attachment first"), "{error:?}");
            return Ok(());
        }
        let path = self.path(&file_name(network, attachment));
        wrote.with_context(|| format!("{:?}", String::from_utf8_lossy(&fs::read(path).unwrap_or_default())))?;
        let mode = fs::metadata(self.path(&file_name(network, attachment)))?.permissions().mode() & 0o777;
        ensure!(mode == 0o600, "mode {mode:o}");
        let own = Slot::Own { network: network.to_owned(), attachment: attachment.clone(), outcome: Box::new(outcome) };
        self.slots.insert(file_name(network, attachment), own);
        Ok(())
    }

    fn read(&self, random: &mut Random, network: &str, attachment: &Attachment, read: &mut u64) -> Result<()> {
        let version = random.one_of(&VERSIONS);
        let found = self.cache.result(&list_of(network, version), attachment);
        match self.slots.get(&file_name(network, attachment)) {
            None => ensure!(found?.is_none(), "a result without a file"),
            Some(Slot::Own { network: other, attachment: of, outcome }) => {
                if is_same(other, of, network, attachment) {
                    *read += 1;
                    let found = found?.context("the result is lost")?;
                    ensure!(found.result == outcome.result, "{found:?} instead of {outcome:?}");
                    let version = if version.is_empty() { "0.1.0" } else { version };
                    ensure!(found.version.as_str() == version, "the result's version is {}", found.version);
                } else {
                    ensure!(found?.is_none(), "the result of {other} {of:?} was returned");
                }
            }
            Some(Slot::Changed) => {
                let claim = self.claim(&file_name(network, attachment));
                let foreign = claim.is_some_and(|claim| {
                    claim != [network, &attachment.container_id, &attachment.ifname].map(str::to_owned)
                });
                match found {
                    Ok(found) => ensure!(!foreign || found.is_none(), "another attachment's result was returned"),
                    Err(error) => ensure!(error.code == 999 && !foreign, "{error:?}"),
                }
            }
        }
        Ok(())
    }

    /// Breaks or replaces a file, or adds one, as another program might.
    fn damage(&mut self, random: &mut Random) -> Result<()> {
        let names: Vec<String> = self.slots.keys().cloned().collect();
        let name = match names.is_empty() || random.index(3) == 0 {
            true => file_name(random.one_of(&NETWORKS), &attachment(random)),
            false => names.get(random.index(names.len())).cloned().unwrap_or_default(),
        };
        let before = fs::read(self.path(&name)).unwrap_or_default();
        let mut text = match random.index(5) {
            0 => Vec::new(),
            1 => random.one_of(&["{", "null", "[]", "{}", "{\"kind\":\"cniCacheV1\"}", "\0"]).into(),
            2 => random.one_of(&RESULTS).into(),
            3 => match serde_json::from_slice::<Value>(&before) {
                Ok(mut value) => {
                    WORDS.change(random, &mut value);
                    value.to_string().into_bytes()
                }
                Err(_) => WORDS.value(random, 3).to_string().into_bytes(),
            },
            // Writes the entry of another network under this name.
            _ => json!({
                "kind": "cniCacheV1", "networkName": random.one_of(&NETWORKS), "containerId": random.one_of(&CONTAINERS),
                "ifName": random.one_of(&INTERFACES), "result": {"cniVersion": "1.0.0"},
            })
            .to_string()
            .into_bytes(),
        };
        if random.index(4) == 0 {
            damage(random, &mut text);
        }
        fs::write(self.path(&name), &text)?;
        self.slots.insert(name, Slot::Changed);
        Ok(())
    }

    /// All operations refuse invalid names.
    fn no_names(&self, random: &mut Random, network: &str, attachment: &Attachment) -> Result<()> {
        let (mut network, mut attachment) = (network.to_owned(), attachment.clone());
        let wrong = random.one_of(&NO_NAMES).to_owned();
        let place = match random.index(3) {
            0 => &mut network,
            1 => &mut attachment.container_id,
            _ => &mut attachment.ifname,
        };
        *place = wrong.clone();
        // `-` is the only one of these names that a link may have.
        if attachment.ifname == "-" {
            return Ok(());
        }
        let list = list_of(&network, "1.0.0");
        let refused = |error: Option<postern_net::Error>| match error {
            Some(error) if matches!(error.code, 4 | 7 | 999) => Ok(()),
            other => Err(anyhow::anyhow!("{wrong:?}: {other:?}")),
        };
        refused(self.cache.result(&list, &attachment).err())?;
        refused(self.cache.write(&list, &attachment, &Outcome::parse(RESULTS[4].as_bytes(), "")?).err())?;
        self.cache.remove(&network, &attachment);
        ensure!(!NO_NAMES.contains(&network.as_str()) || self.cache.of_network(&network).is_empty(), "{network:?}");
        Ok(())
    }

    /// Compares the names of the files in the cache and outside with the model.
    fn look(&self) -> Result<()> {
        let mut there: Vec<String> = Vec::new();
        for entry in fs::read_dir(self.root.join("cni/results"))? {
            there.push(entry?.file_name().to_string_lossy().into_owned());
        }
        there.sort();
        ensure!(there.iter().eq(self.slots.keys()), "{there:?} instead of {:?}", self.slots.keys());
        let outside: Vec<_> = fs::read_dir(&self.root)?.chain(fs::read_dir(self.root.join("cni"))?).collect();
        ensure!(outside.len() == 4, "a file was written outside of the cache: {outside:?}");
        for kept in ["kept-c-eth0", "outside/kept-c-eth0"] {
            ensure!(fs::read(self.root.join(kept))? == b"kept", "{kept} was changed");
        }
        Ok(())
    }

    /// Compares the attachments of all networks with the model.
    fn look_closely(&self) -> Result<()> {
        let mut all: Vec<[String; 3]> = Vec::new();
        for network in NETWORKS {
            let mut expected = Vec::new();
            for (name, slot) in &self.slots {
                match slot {
                    Slot::Own { network: own, attachment, .. } if own == network => {
                        expected.push(Attachment::clone(attachment))
                    }
                    Slot::Own { .. } => {}
                    Slot::Changed => {
                        let is_own = |[of, container, ifname]: &[String; 3]| {
                            of == network && is_name(container) && is_interface(ifname)
                        };
                        let claim = self.claim(name).filter(is_own);
                        if let Some([_, container, ifname]) = claim {
                            let file: Value = serde_json::from_slice(&fs::read(self.path(name))?)?;
                            let netns = file.get("netns").and_then(Value::as_str).unwrap_or_default();
                            let mut claimed = Attachment::new(&container, netns, &ifname);
                            claimed.capability_args = object(file.get("capabilityArgs").cloned().unwrap_or_default());
                            claimed.args = serde_json::from_value(file.get("cniArgs").cloned().unwrap_or(json!([])))
                                .unwrap_or_default();
                            expected.push(claimed);
                        }
                    }
                }
            }
            let found = self.cache.of_network(network);
            ensure!(found == expected, "network {network}: {found:?} instead of {expected:?}");
            all.extend(found.into_iter().map(|one| [network.to_owned(), one.container_id, one.ifname]));
        }
        for container in CONTAINERS {
            for ifname in INTERFACES {
                let has = self.cache.has_interface(&Attachment::new(container, "", ifname));
                let known = all.iter().any(|[_, of, name]| of == container && name == ifname);
                // A changed file can name a network that is not in `NETWORKS`.
                let elsewhere =
                    || self.slots.keys().filter_map(|name| self.claim(name)).any(|claim| claim[1] == container);
                ensure!(has == known || has && elsewhere(), "{container} {ifname}: {has}");
            }
        }
        Ok(())
    }
}

/// Returns true if the text can be the name of a network or a container.
fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(is_plain) && text.chars().all(|c| is_plain(c) || "_.-".contains(c))
}

fn is_interface(text: &str) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '/' && c != ':';
    (1..16).contains(&text.len()) && text != "." && text != ".." && text.chars().all(is_plain)
}

fn is_same(network: &str, attachment: &Attachment, other: &str, of: &Attachment) -> bool {
    network == other && attachment.container_id == of.container_id && attachment.ifname == of.ifname
}
