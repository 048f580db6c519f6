//! The runtimes' data on attachments. libcni's cache has a file for each attachment between its ADD and its DEL. The file
//! has the list of plugins and the result. An entry that another user could have written is not used.

use postern_gate::places;
use postern_state::Header;
use postern_types::Mac;
use serde_json::Value;
use std::io::Read;
use std::path::Path;

/// libcni's default directory for these files.
pub(crate) const DIRECTORY: &str = "/var/lib/cni/results";

/// The largest number of bytes that are read from an entry.
const LIMIT: u64 = 4 << 20;

/// Returns the text of an entry; `None` if there is none.
///
/// # Errors
/// A text for people: the entry can't be read, or another user could have written it.
pub(crate) fn read(path: &Path) -> Result<Option<String>, String> {
    let Some(file) = places::open_trusted(path).map_err(|e| e.to_string())? else { return Ok(None) };
    let mut text = String::new();
    file.take(LIMIT).read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(Some(text))
}

/// Returns the entry of an attachment.
fn entry(header: &Header) -> Option<Value> {
    let Header { network, container_id, ifname, .. } = header;
    // The names of a record must lead to one entry, and not out of the directory.
    let name = format!("{network}-{container_id}-{ifname}");
    if name.contains('/') {
        return None;
    }
    serde_json::from_str(&read(&Path::new(DIRECTORY).join(name)).ok()??).ok()
}

/// True if the runtime's result of an attachment has this address for the container's end. Then the attachment is in
/// order: a later plugin (tuning) has changed the address.
pub(crate) fn was_told(header: &Header, mac: Mac) -> bool {
    let entry = entry(header).unwrap_or_default();
    let links = entry.pointer("/result/interfaces").and_then(Value::as_array);
    links.into_iter().flatten().any(|link| {
        let text = |key: &str| link.get(key).and_then(Value::as_str).unwrap_or_default();
        text("name") == header.ifname && !text("sandbox").is_empty() && text("mac").parse() == Ok(mac)
    })
}

/// Returns the plugins of the list that the runtime called for an attachment; `None` if they are unknown.
pub fn chain(header: &Header) -> Option<Vec<String>> {
    let config = unbase64(entry(header)?.get("config")?.as_str()?)?;
    let list: Value = serde_json::from_slice(&config).ok()?;
    let of = |plugin: &Value| plugin.get("type").and_then(Value::as_str).map(str::to_owned);
    match list.get("plugins") {
        Some(plugins) => plugins.as_array()?.iter().map(of).collect(),
        None => Some(vec![of(&list)?]),
    }
}

/// Decodes Base64 of RFC 4648 section 4, as Go writes bytes into JSON.
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
