//! Components are examined before they are compiled, and compiled by a process with limits of time and memory.

use anyhow::{Result, ensure};
use postern_tests::{Node, plugin_bin};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time limit to examine any component. A compilation takes several times as long.
const SOON: Duration = Duration::from_secs(8);

/// Returns the component of a plugin that is built with this host.
fn plugin(name: &str) -> Result<Vec<u8>> {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(own, PathBuf::from);
    Ok(std::fs::read(target.join(format!("wasm32-wasip2/guest/postern-{name}.wasm")))?)
}

fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).unwrap_or_default();
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn section(id: u8, contents: &[u8]) -> Vec<u8> {
    [&[id][..], &leb(contents.len()), contents].concat()
}

/// Returns a core module of this many functions, each slow to compile.
fn slow_module(functions: usize) -> Vec<u8> {
    // Each function adds its parameter to itself: the compiler has to allocate registers for each addition.
    let mut body = vec![0, 0x20, 0];
    for _ in 0..2000 {
        body.extend([0x22, 0, 0x20, 0, 0x6a]);
    }
    body.push(0x0b);
    let body = [leb(body.len()), body].concat();
    let code = [leb(functions), body.repeat(functions)].concat();
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    module.extend(section(1, &[1, 0x60, 1, 0x7f, 1, 0x7f]));
    module.extend(section(3, &[leb(functions), vec![0; functions]].concat()));
    module.extend(section(10, &code));
    module
}

/// Returns a component of 4 MB whose code is slow to compile, with the given import.
fn slow(import: Option<&str>) -> Vec<u8> {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    if let Some(name) = import {
        bytes.extend(section(7, &[1, 0x40, 0, 1, 0]));
        bytes.extend(section(10, &[&[1, 0][..], &leb(name.len()), name.as_bytes(), &[1, 0]].concat()));
    }
    bytes.extend(section(1, &slow_module(400)));
    bytes
}

fn node() -> Result<Node> {
    let node = Node::new()?;
    node.sh("mount -t tmpfs -o mode=755 mnt /mnt")?;
    std::fs::write(node.path("/mnt/refused.wasm"), slow(Some("evil:host/files")))?;
    std::fs::write(node.path("/mnt/library.wasm"), slow(None))?;
    // A plugin with four megabytes of code that it never runs.
    let large = [plugin("bridge")?, section(1, &slow_module(400))].concat();
    std::fs::write(node.path("/mnt/large.wasm"), large)?;
    node.sh("printf '[grant.loopback]\\n' > /mnt/other.toml; printf 'digest = \"sha256:%064d\"\\n' 0 > /mnt/pin.toml")?;
    std::fs::write(node.path("/mnt/net.conf"), r#"{"cniVersion": "1.0.0", "name": "n", "type": "large"}"#)?;
    Ok(node)
}

#[test]
fn what_is_refused_is_refused_before_it_is_compiled() -> Result<()> {
    let node = node()?;
    let refused = "the component imports interfaces that a plugin cannot have: evil:host/files";
    for (arguments, status, words) in [
        ("inspect /mnt/refused.wasm", 1, refused),
        ("inspect --diff bridge /mnt/refused.wasm", 1, refused),
        ("learn /mnt/refused.wasm --name large --network /mnt/net.conf", 1, refused),
        ("add /mnt/refused.wasm --policy /mnt/other.toml --catalog /mnt/x", 1, refused),
        ("inspect /mnt/library.wasm", 1, "does not export wasi:cli/run"),
        // This component would run. `inspect` shows its abilities without compiling the component.
        ("inspect /mnt/large.wasm", 3, "veth: new options, host-end.attributes"),
        ("add /mnt/large.wasm --policy /mnt/other.toml --catalog /mnt/x", 1, "grants \"loopback\""),
        ("add /mnt/large.wasm --policy /mnt/pin.toml --catalog /mnt/x", 1, "is not the component of its policy"),
    ] {
        let start = Instant::now();
        let answer = node.postern(arguments)?;
        let took = start.elapsed();
        ensure!(answer.status == status && answer.words().contains(words), "{arguments}: {answer:?}");
        ensure!(took < SOON, "{arguments}: {took:?}");
    }
    ensure!(node.sh("ls -A /mnt")?.lines().all(|name| name != "x"), "a component was installed");
    Ok(())
}

#[test]
fn the_compiler_has_no_privileges() -> Result<()> {
    let node = node()?;
    std::fs::write(node.path("/mnt/bridge.toml"), std::fs::read(plugin_bin()?.join("postern.d/bridge.toml"))?)?;
    let host = plugin_bin()?.join("postern");
    let script = format!(
        "{} add /mnt/large.wasm --policy /mnt/bridge.toml --catalog /mnt/x > /mnt/out 2>&1 & own=$!
         for try in $(seq 200); do
             child=$(cat /proc/$own/task/$own/children 2>/dev/null | cut -d' ' -f1)
             if [ -n \"$child\" ] && grep -q '^Seccomp:.2' /proc/$child/status; then
                 cat /proc/$child/status /proc/$child/limits; ls /proc/$child/fd | wc -l; kill $own; exit 0
             fi
             sleep .02
         done; cat /mnt/out; exit 1",
        host.display()
    );
    let seen = node.sh(&script)?;
    for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        ensure!(seen.contains(line), "no {line}: {seen}");
    }
    for limit in ["Max open files", "Max processes", "Max file size"] {
        let value = seen.lines().find_map(|line| line.strip_prefix(limit)?.split_whitespace().next());
        ensure!(value == Some("0"), "{limit}: {seen}");
    }
    for limit in ["Max cpu time", "Max address space", "Max data size"] {
        let value = seen.lines().find_map(|line| line.strip_prefix(limit)?.split_whitespace().next());
        ensure!(value.is_some_and(|value| value.parse::<u64>().is_ok()), "{limit}: {seen}");
    }
    ensure!(seen.lines().last() == Some("1"), "the compiler has more than one open file: {seen}");
    Ok(())
}
