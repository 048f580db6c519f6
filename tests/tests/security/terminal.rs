//! The content of a file, a name or a record never controls the terminal of a person who runs `postern`.

use anyhow::{Result, ensure};
use postern_tests::{Node, plugin_bin};
use std::process::Command;

/// Characters that control terminals, turn or break a line, are invisible, or look like others. They are not escaped.
const HOSTILE: &str =
    "\u{1b}[2J\u{7}\u{9b}31m\u{61c}\u{200b}\u{200e}\u{2028}\u{2029}\u{202e}\u{2066}\u{feff}\u{e0041}\u{430}";

/// The same characters except U+E0041, escaped for JSON and TOML. The parser's message then contains the characters.
const ESCAPED: &str = r"\u001b[2J\u0007\u009b31m\u061c\u200b\u200e\u2028\u2029\u202e\u2066\ufeff\u0430";

/// Makes a node on which every text that others may have written is hostile.
fn node() -> Result<Node> {
    let node = Node::new()?;
    let write = |path: &str, bytes: &[u8]| -> Result<()> {
        let path = node.path(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        Ok(std::fs::write(path, bytes)?)
    };
    node.sh(
        "mount -t tmpfs -o mode=755 mnt /mnt; mount -t tmpfs -o mode=755 etc /etc; mkdir -p /etc/cni/net.d /mnt/bin",
    )?;
    // Components that import an interface with this name.
    for (file, name) in
        [("import", HOSTILE.to_owned()), ("url", format!("url=<{HOSTILE}>")), ("plain", "a:b/c".to_owned())]
    {
        write(&format!("/mnt/{file}.wasm"), &component(&name))?;
    }
    write(&format!("/mnt/{HOSTILE}.wasm"), &component("a:b/c"))?;
    write("/mnt/garbage.wasm", format!("\0asm\r\0\u{1}\0{HOSTILE}").as_bytes())?;
    write("/mnt/text.wasm", HOSTILE.as_bytes())?;
    write("/mnt/key.toml", format!("[grant.link]\n\"{ESCAPED}\" = [\"x\"]\n").as_bytes())?;
    write("/mnt/raw.toml", format!("[grant.link]\n# {HOSTILE}\n{HOSTILE} = 1\n").as_bytes())?;
    write("/mnt/value.toml", format!("[grant.bridge]\nnames = [\"{ESCAPED}\"]\n[grant.link]\n").as_bytes())?;
    for (at, text) in [
        format!(r#"{{"cniVersion": "1.0.0", "name": "{ESCAPED}", "type": "bridge"}}"#),
        format!(r#"{{"cniVersion": "1.0.0", "name": "net", "plugins": [{{"type": "{ESCAPED}"}}]}}"#),
        format!(
            r#"{{"cniVersion": "{ESCAPED}", "name": "n", "plugins": [{{"type": "bridge", "bridge": "{ESCAPED}"}}]}}"#
        ),
        format!(r#"{{"cniVersion": "1.0.0", "name": "n2", "type": "bridge", "ipam": {{"type": "{ESCAPED}"}}}}"#),
        format!(
            r#"{{"cniVersion": "1.0.0", "name": "n3", "type": "bridge", "bridge": "br{ESCAPED}",
                "ipam": {{"type": "host-local", "subnet": "{ESCAPED}", "dataDir": "/mnt/{ESCAPED}"}}}}"#
        ),
        HOSTILE.to_owned(),
    ]
    .iter()
    .enumerate()
    {
        write(&format!("/etc/cni/net.d/{at}{HOSTILE}.conflist"), text.as_bytes())?;
        write(&format!("/mnt/{at}.conf"), text.as_bytes())?;
    }
    write(&format!("/var/lib/cni/networks/{HOSTILE}/10.1.0.9"), format!("{HOSTILE}\r\n{HOSTILE}").as_bytes())?;
    write(&format!("/var/lib/cni/networks/net/{HOSTILE}"), HOSTILE.as_bytes())?;
    write("/var/lib/cni/networks/net/10.1.0.8", format!("{HOSTILE}\r\neth0").as_bytes())?;
    write(&format!("/mnt/bin/{HOSTILE}"), b"#!/bin/sh\n")?;
    write("/mnt/bin/bridge", HOSTILE.as_bytes())?;
    write(&format!("/etc/postern/policy/{HOSTILE}.toml"), HOSTILE.as_bytes())?;
    write("/etc/postern/policy/ptp.toml", format!("[grant.\"{ESCAPED}\"]").as_bytes())?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let record = format!(
        r#"{{"version":1,"writer":"{ESCAPED}","network":"{ESCAPED}","container_id":"c{ESCAPED}","ifname":"{ESCAPED}","boot_id":"{}","host_netns_cookie":1,"netns_cookie":9,"netns":"/run/netns/{ESCAPED}","time":1}}
{{"plugin":"{ESCAPED}","begun":{{"digest":"{ESCAPED}","time":1}}}}
{{"seq":1,"plugin":"{ESCAPED}","effect":{{"effect":"veth","host":"{ESCAPED}","mac":"02:00:00:00:00:01"}}}}
{HOSTILE}
"#,
        boot.trim()
    );
    write("/run/postern/attachments/0123456789abcdef0123456789abcdef", record.as_bytes())?;
    write("/run/postern/attachments/1123456789abcdef0123456789abcdef", HOSTILE.as_bytes())?;
    write(&format!("/run/postern/attachments/{HOSTILE}"), HOSTILE.as_bytes())?;
    write(&format!("/run/postern/node/{HOSTILE}"), HOSTILE.as_bytes())?;
    let line = format!(
        r#"{{"time":1,"attachment":"{ESCAPED}","verb":"{ESCAPED}","plugin":"{HOSTILE}","digest":"{ESCAPED}","operation":"{ESCAPED}","request":{{"{ESCAPED}":"{ESCAPED}"}},"decision":"deny","rule":"{ESCAPED}","result":"{ESCAPED}","micros":1}}"#
    );
    let line = line.replace(['\u{1b}', '\u{7}'], "");
    write("/var/log/postern/audit.jsonl", format!("{line}\n{{\"time\":1,\"note\":\"{ESCAPED}\"}}\n").as_bytes())?;
    node.sh("chmod -R go-w /run/postern /var/log/postern /etc/postern; chmod 700 /run/postern /var/log/postern")?;
    // The kernel accepts nearly every byte in a link's name.
    let link = "a\u{1b}[2J\u{202e}";
    node.sh(&format!(
        "ip link add '{link}' type bridge; ip link set '{link}' up; ip address add 10.1.0.1/24 dev '{link}'"
    ))?;
    Ok(node)
}

/// Makes a component that imports an interface with this name, byte by byte, because assemblers refuse such a name.
fn component(name: &str) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    // Type 0: a function without parameters and results.
    bytes.extend([7, 5, 1, 0x40, 0, 1, 0]);
    bytes.extend([10, length + 5, 1, 0, length]);
    bytes.extend(name.bytes());
    bytes.extend([1, 0]);
    bytes
}

/// Returns calls of every verb, with the hostile objects.
fn calls() -> Vec<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(|word| word.replace("HOSTILE", HOSTILE)).collect::<Vec<_>>();
    let mut calls: Vec<Vec<String>> = [
        "inspect bridge",
        "inspect --diff bridge ptp",
        "inspect HOSTILE",
        "inspect ptp",
        "inspect bridge --policy /mnt/value.toml",
        "inspect bridge --policy /mnt/value.toml --json",
        "add /mnt/plain.wasm --policy /mnt/HOSTILE.toml --name x",
        "add /mnt/plain.wasm --policy /mnt/value.toml --name HOSTILE",
        "add /mnt/HOSTILE.wasm --policy /mnt/value.toml",
        "learn HOSTILE --network /mnt/0.conf",
        "log",
        "log --json",
        "log --container HOSTILE",
        "log --denied",
        "ls",
        "ls --json",
        "show c",
        "show c --json",
        "show HOSTILE",
        "doctor --bin /mnt/bin",
        "doctor --bin /mnt/bin --json",
        "doctor --bin /mnt/HOSTILE --conf-dir /mnt/HOSTILE",
        "gc",
        "gc --json",
        "gc --native",
        "gc --native --json",
        "gc --native --data-dir /mnt/HOSTILE",
        "gc --node",
        "reapply --dry-run",
        "reapply --json",
        "reapply",
        "remove HOSTILE",
        "probe",
        "net validate HOSTILE",
        "net validate net",
        "net validate n3 --json",
        "net validate --policy /mnt/value.toml",
        "net validate --policy /mnt/value.toml --plugin HOSTILE",
        "net validate --policy /etc/postern/policy",
        "net validate /mnt/2.conf --policy /mnt/value.toml --plugin bridge",
        "net schema HOSTILE",
        "HOSTILE",
        "ls --HOSTILE",
        "gc --yes",
    ]
    .map(words)
    .to_vec();
    for file in ["import", "url", "plain", "HOSTILE", "garbage", "text", "none-HOSTILE"] {
        calls.push(words(&format!("inspect /mnt/{file}.wasm")));
        calls.push(words(&format!("inspect --diff bridge /mnt/{file}.wasm")));
        calls.push(words(&format!("learn /mnt/{file}.wasm --name x --network /mnt/1.conf")));
        calls.push(words(&format!("add /mnt/{file}.wasm --policy /mnt/value.toml --name x --catalog /mnt/HOSTILE")));
    }
    for policy in ["key", "raw", "value", "none-HOSTILE"] {
        calls.push(words(&format!("inspect bridge --policy /mnt/{policy}.toml")));
        calls.push(words(&format!("add /mnt/plain.wasm --name x --policy /mnt/{policy}.toml")));
    }
    for at in 0..6 {
        calls.push(words(&format!("plan /mnt/{at}.conf")));
        calls.push(words(&format!("plan /mnt/{at}.conf --json")));
        calls.push(words(&format!("plan /mnt/{at}.conf --plugin HOSTILE --container HOSTILE")));
        calls.push(words(&format!("net validate /mnt/{at}.conf")));
        calls.push(words(&format!("net validate /mnt/{at}.conf --json")));
        calls.push(words(&format!("net validate /mnt/{at}.conf --file-only --cni-path /mnt/HOSTILE")));
        calls.push(words(&format!("learn bridge --network /mnt/{at}.conf")));
        calls.push(words(&format!("inspect bridge --network /mnt/{at}.conf")));
    }
    calls
}

#[test]
fn no_verb_speaks_to_the_terminal() -> Result<()> {
    let node = node()?;
    let host = plugin_bin()?.join("postern");
    let mut spoken = Vec::new();
    let mut shown = 0;
    for call in calls() {
        let answer = node.answer(Command::new(&host).args(&call), None)?;
        for (stream, text) in [("stdout", answer.stdout), ("stderr", answer.stderr)] {
            shown += usize::from(text.contains("202e"));
            if let Some(c) = text.chars().find(|c| !matches!(c, '\n' | ' '..='~' | '…')) {
                let around: String =
                    text.lines().find(|line| line.contains(c)).unwrap_or_default().chars().take(200).collect();
                spoken.push(format!("{stream} of {call:?}: {c:?} in {around:?}"));
            }
        }
    }
    ensure!(spoken.is_empty(), "{} outputs control the terminal:\n{}", spoken.len(), spoken.join("\n"));
    // People do see the texts, quoted.
    ensure!(shown > 40, "only {shown} outputs contain the hostile text");
    Ok(())
}
