//! What else was in the chain that an attachment was made by: plugins that Postern can't undo may have left rules for its
//! addresses. The runtimes' cache has the very list of plugins; without an entry there, the operator's list of that name tells.

use crate::doctor::installed;
use crate::lists::{self, List};
use postern_gate::Header;
use postern_gate::places;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Where libcni keeps its results.
const RESULTS: &str = "/var/lib/cni/results";
/// Bytes of an entry that are read.
const LIMIT: u64 = 4 << 20;
/// Native plugins that leave nothing on the host that leads to a container's address: what they change is the container's
/// own link or namespace, or goes with the host's end of the pair.
const HARMLESS: [&str; 5] = ["tuning", "sbr", "vrf", "bandwidth", "loopback"];

/// The plugins of each network, and those that Postern has.
pub struct Chains {
    lists: HashMap<String, Vec<String>>,
    ours: Vec<String>,
}

impl Chains {
    /// Reads the operator's lists.
    pub fn new(directory: &Path) -> Self {
        let lists = lists::of_directory(directory).into_iter().filter_map(|(_, list)| list.ok());
        Self {
            lists: lists.map(|list| (list.name().to_owned(), plugins(&list))).collect(),
            ours: places::catalog().as_deref().map(installed).unwrap_or_default(),
        }
    }

    /// Why the chain of an attachment may have left rules for its addresses. `None` if all of its plugins are Postern's or
    /// leave none, or if nothing tells what they are.
    pub fn leaves_rules(&self, header: &Header) -> Option<String> {
        let cached = cached(header);
        let plugins = cached.as_ref().or_else(|| self.lists.get(&header.network))?;
        let foreign: Vec<&str> = plugins
            .iter()
            .map(String::as_str)
            .filter(|plugin| !HARMLESS.contains(plugin) && !self.ours.iter().any(|ours| ours == plugin))
            .collect();
        if foreign.is_empty() {
            return None;
        }
        Some(format!(
            "only its own DEL undoes what native {} did for them: let the runtime remove the container, or call DEL of the \
             chain, for instance with cnitool",
            foreign.join(", ")
        ))
    }
}

fn plugins(list: &List) -> Vec<String> {
    list.plugins().map(str::to_owned).collect()
}

/// The plugins of the list that the runtime called for an attachment, by its cache. An entry that others could have written,
/// or that can't be understood, tells nothing.
fn cached(header: &Header) -> Option<Vec<String>> {
    let Header { network, container_id, ifname, .. } = header;
    // A record's names lead to one entry, and nowhere else.
    let name = format!("{network}-{container_id}-{ifname}");
    if name.contains('/') {
        return None;
    }
    let mut text = String::new();
    let file: File = places::open_trusted(&Path::new(RESULTS).join(name)).ok()??;
    file.take(LIMIT).read_to_string(&mut text).ok()?;
    let entry: serde_json::Value = serde_json::from_str(&text).ok()?;
    let config = unbase64(entry.get("config")?.as_str()?)?;
    let list: serde_json::Value = serde_json::from_slice(&config).ok()?;
    let of = |plugin: &serde_json::Value| plugin.get("type").and_then(serde_json::Value::as_str).map(str::to_owned);
    match list.get("plugins") {
        Some(plugins) => plugins.as_array()?.iter().map(of).collect(),
        None => Some(vec![of(&list)?]),
    }
}

/// Base64 of RFC 4648 section 4, as Go writes bytes into JSON.
fn unbase64(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => Some(u32::from(c - b'A')),
        b'a'..=b'z' => Some(u32::from(c - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(c - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::new();
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let mut bits = 0;
        for c in group {
            bits = bits << 6 | digit(*c)?;
        }
        bits <<= 6 * (4 - group.len());
        let [_, whole @ ..] = bits.to_be_bytes();
        bytes.extend(whole.iter().take(group.len() * 3 / 4));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_rfc_4648() {
        for (text, bytes) in
            [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob"), ("Zm9vYmFy", "foobar")]
        {
            assert_eq!(unbase64(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(unbase64("Zm9-"), None);
    }
}
