//! Bad input for the real host executable. Each kind of input gets its own code and words, and changes nothing.

mod causes;
mod fuzz;
mod values;

use anyhow::{Context, Result, bail, ensure};
use postern_tests::proof::{Refusal, Watched, each, test_bin};
use postern_tests::{Answer, Call, merge};
use serde_json::{Value, json};

/// Returns a valid configuration of this plugin.
fn base(plugin: &str) -> Value {
    let ipam = match plugin {
        "static" => json!({"type": "static", "addresses": [{"address": "10.9.0.5/24"}]}),
        "loopback" => json!({}),
        _ => json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]}),
    };
    json!({"cniVersion": "1.0.0", "name": "net", "type": plugin, "bridge": "br9", "ipam": ipam})
}

fn with(plugin: &str, patch: &str) -> Result<String> {
    let mut config = base(plugin);
    merge(&mut config, &serde_json::from_str(patch)?);
    Ok(config.to_string())
}

/// Returns a call with this input, which may be invalid JSON.
fn request(watched: &Watched, plugin: &str, verb: &str, stdin: impl Into<Vec<u8>>) -> Result<Call> {
    Ok(Call::new(&test_bin()?, plugin, verb, stdin).attachment("c1", &watched.node.netns("c1"), "eth0"))
}

fn send(watched: &Watched, plugin: &str, verb: &str, stdin: impl Into<Vec<u8>>) -> Result<Answer> {
    watched.node.call(&request(watched, plugin, verb, stdin)?)
}

/// Makes a node whose node objects (bridge, directories) exist already.
fn used_node() -> Result<Watched> {
    let mut watched = Watched::new(&["c1"])?;
    for verb in ["ADD", "DEL"] {
        send(&watched, "bridge", verb, with("bridge", r#"{"ipMasq": true, "ipMasqBackend": "nftables"}"#)?)?
            .success()?;
    }
    watched.look()?;
    Ok(watched)
}

/// Runs an ADD that must be refused with these words and change nothing.
fn refused(
    watched: &mut Watched,
    plugin: &str,
    stdin: Vec<u8>,
    env: &[(&str, &str)],
    code: u64,
    text: &str,
) -> Result<()> {
    let by = |call: Call| env.iter().fold(call, |call, (key, value)| call.env(key, value));
    let answer = watched.node.call(&by(request(watched, plugin, "ADD", stdin)?))?;
    let changed = watched.unchanged();
    if changed.is_err() || answer.status == 0 {
        // Prepares the next case.
        watched.node.call(&by(request(watched, plugin, "DEL", base(plugin).to_string())?))?;
    }
    Refusal::of(&answer)?.expect(code, text)?;
    changed
}

#[test]
fn what_is_no_configuration() -> Result<()> {
    let good = base("bridge").to_string();
    let open = good.trim_end_matches('}').to_owned() + "}";
    let cases: Vec<(&str, Vec<u8>, u64, &str)> = vec![
        ("nothing", Vec::new(), 6, "unexpected end of JSON input"),
        ("blanks", b" \n".to_vec(), 6, "unexpected end of JSON input"),
        ("text", b"hello".to_vec(), 6, "error unmarshall network config: expected value"),
        ("null", b"null".to_vec(), 7, "missing network name"),
        ("a list", b"[]".to_vec(), 6, "cannot unmarshal array"),
        ("half of it", good.as_bytes()[..good.len() / 2].to_vec(), 6, "unexpected end of JSON input"),
        ("two", format!("{good}{good}").into_bytes(), 6, "trailing characters"),
        ("a zero byte behind", format!("{good}\0").into_bytes(), 6, "trailing characters"),
        ("no UTF-8", b"{\"name\": \"\xff\"}".to_vec(), 7, "invalid characters found in network name"),
        ("no UTF-8 between texts", b"{\"name\": \xff\"n\"}".to_vec(), 6, "error unmarshall network config"),
        (
            "a byte too long",
            format!("{good}{}", " ".repeat((4 << 20) + 1 - good.len())).into_bytes(),
            6,
            "4194305 bytes of JSON are more than the limit of 4194304",
        ),
        ("20 MiB", vec![b' '; 20 << 20], 6, "more than the limit of 4194304"),
        ("deep lists", "[".repeat(100_000).into_bytes(), 6, "recursion limit exceeded"),
        ("deep objects", "{\"a\":".repeat(40_000).into_bytes(), 6, "recursion limit exceeded"),
        (
            "deep in a key",
            open.replacen('{', &format!("{{\"x\":{}{},", "[".repeat(130), "]".repeat(130)), 1).into_bytes(),
            6,
            "recursion limit exceeded",
        ),
    ];
    let mut watched = used_node()?;
    each(
        cases,
        |case| case.0.to_owned(),
        |(_, stdin, code, text)| {
            for plugin in ["bridge", "host-local", "loopback"] {
                refused(&mut watched, plugin, stdin.clone(), &[], *code, text)?;
            }
            Ok(())
        },
    )
}

/// A byte that is not UTF-8 can make an ADD fail only if the ADD uses the value with this byte. DEL always succeeds.
#[test]
fn bytes_that_are_not_utf8() -> Result<()> {
    let mut watched = used_node()?;
    let bin = test_bin()?.join("bridge");
    let netns = watched.node.netns("c1");
    let (shown, run) = (netns.clone(), bin.display());
    let call = |verb: &str, config: &[u8], env: &str| -> Result<Answer> {
        std::fs::write(watched.node.path("/run/odd.json"), config)?;
        let script = format!(
            "CNI_COMMAND={verb} CNI_CONTAINERID=c1 CNI_NETNS={shown} CNI_IFNAME=eth0 CNI_PATH=/x {env} {run} < /run/odd.json \
             > /run/odd.out 2> /run/odd.err && status=0 || status=$?; echo $status > /run/odd.status"
        );
        watched.node.sh(&script)?;
        let text = |of: &str| -> Result<String> {
            let bytes = std::fs::read(watched.node.path(format!("/run/odd.{of}")))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok(Answer { status: text("status")?.trim().parse()?, stdout: text("out")?, stderr: text("err")? })
    };
    let odd = |key: &str| {
        with("bridge", &json!({key: "caf@"}).to_string()).map(|text| text.replace('@', "\u{1}").into_bytes())
    };
    let latin = |mut bytes: Vec<u8>| {
        bytes.iter_mut().filter(|byte| **byte == 1).for_each(|byte| *byte = 0xe9);
        bytes
    };
    std::fs::write(watched.node.path("/run/resolv"), b"# caf\xe9\nnameserver 10.9.0.1\nsearch caf\xe9.example\n")?;
    let plain = with("bridge", "{}")?.into_bytes();
    let resolver = with("bridge", r#"{"ipam": {"resolvConf": "/run/resolv"}}"#)?.into_bytes();
    for (what, config, env, words) in [
        ("a value that nothing uses", latin(odd("comment")?), "", ""),
        ("a lone surrogate", String::from_utf8(odd("comment")?)?.replace('\u{1}', "\\ud800").into_bytes(), "", ""),
        ("CNI_ARGS", plain.clone(), "CNI_ARGS=$(printf 'IgnoreUnknown=1;K8S_POD_NAME=caf\\351')", ""),
        ("a used value", plain.clone(), "CNI_ARGS=$(printf 'IP=10.9.0.\\351')", "10.9.0."),
        ("CNI_PATH", plain.clone(), "CNI_PATH=$(printf '/caf\\351')", ""),
        ("an interface's name", plain.clone(), "CNI_IFNAME=$(printf 'eth\\351')", "CNI_IFNAME is not valid UTF-8"),
        ("resolvConf", resolver, "", ""),
    ] {
        let added = call("ADD", &config, env)?;
        match words {
            "" => drop(added.success().with_context(|| what.to_owned())?),
            words => ensure!(added.status != 0 && added.stdout.contains(words), "{what}: {added:?}"),
        }
        ensure!(what != "resolvConf" || added.stdout.contains("caf\\ufffd.example"), "{added:?}");
        if what != "a used value" {
            call("DEL", &config, env)?.success().with_context(|| format!("DEL: {what}"))?;
        }
    }
    watched.node.sh("rm -f /run/odd.* /run/resolv")?;
    watched.unchanged()
}

/// A key that decides on a plugin's rights is refused if it appears twice, because no rule says which value counts.
const TWICE: [(&str, &str, &str); 8] = [
    ("bridge", r#""Bridge": "br8""#, "has both \"bridge\" and \"Bridge\""),
    ("bridge", r#""bridge": "br9""#, "has both \"bridge\" and \"bridge\""),
    ("bridge", r#""forceAddress": false, "FORCEADDRESS": true"#, "has both \"forceAddress\" and \"FORCEADDRESS\""),
    ("bridge", r#""IPAM": {"type": "static"}"#, "has both \"ipam\" and \"IPAM\""),
    ("bridge", r#""ipam": {"type": "static"}"#, "has both \"ipam\" and \"ipam\""),
    ("ptp", r#""Ipam": {}"#, "has both \"ipam\" and \"Ipam\""),
    ("host-local", r#""ipam": {"dataDir": "/var/lib/x"}"#, "has both \"ipam\" and \"ipam\""),
    ("bridge", r#""name": "net", "Name": "../x""#, "invalid characters found in network name; ../x"),
];

#[test]
fn keys_that_are_given_twice() -> Result<()> {
    let mut watched = used_node()?;
    each(
        TWICE,
        |case| case.1.to_owned(),
        |(plugin, more, text)| {
            let config = base(plugin).to_string();
            let config = format!("{}, {more}}}", config.strip_suffix('}').unwrap_or(&config));
            refused(&mut watched, plugin, config.into_bytes(), &[], 7, text)
        },
    )
}

/// The type that each key needs: `b`ool, `s`tring, `i`nteger, `l`ist, `o`bject.
const KEYS: [(&str, &str, &str); 4] = [
    (
        "bridge",
        "",
        "bridge:s isGateway:b isDefaultGateway:b forceAddress:b ipMasq:b ipMasqBackend:s mtu:i hairpinMode:b promiscMode:b \
         vlan:i vlanTrunk:l preserveDefaultVlan:b portIsolation:b macspoofchk:b enabledad:b disableContainerInterface:b \
         dns:o ipam:o capabilities:o runtimeConfig:o args:o prevResult:o cniVersion:s name:s type:s",
    ),
    ("ptp", "", "ipMasq:b ipMasqBackend:s mtu:i dns:o ipam:o prevResult:o"),
    (
        "host-local",
        "ipam",
        "ranges:l routes:l dataDir:s resolvConf:s subnet:s rangeStart:s rangeEnd:s gateway:s type:s",
    ),
    ("static", "ipam", "addresses:l routes:l dns:o type:s"),
];

#[test]
fn every_key_of_the_wrong_type() -> Result<()> {
    let values = |kind: &str| -> Vec<Value> {
        let all = [
            ("b", json!(true)),
            ("s", json!("x")),
            ("i", json!(1)),
            ("i", json!(-1)),
            ("l", json!([1])),
            ("o", json!({"x": 1})),
        ];
        let others = all.into_iter().filter(|(of, _)| *of != kind).map(|(_, value)| value);
        others.chain([json!(1.5), json!(1e30)]).collect()
    };
    let mut watched = used_node()?;
    let keys = KEYS.iter().flat_map(|(plugin, within, keys)| {
        keys.split_whitespace().filter_map(move |key| Some((plugin, within, key.split_once(':')?)))
    });
    each(
        keys,
        |(plugin, within, key)| format!("{plugin} {within} {key:?}"),
        |(plugin, within, (key, kind))| {
            for wrong in values(kind) {
                let patch = if within.is_empty() { json!({*key: wrong}) } else { json!({(**within): {*key: wrong}}) };
                let mut config = base(plugin);
                merge(&mut config, &patch);
                let answer = send(&watched, plugin, "ADD", config.to_string())?;
                if answer.status == 0 {
                    send(&watched, plugin, "DEL", base(plugin).to_string())?;
                    bail!("{wrong} is accepted");
                }
                let refusal = Refusal::of(&answer)?;
                // Code 6 is for keys that are read first, and 7 for keys that policy depends on. 999 is the plugin's
                // own error, with the native plugins' words.
                ensure!(matches!(refusal.code, 6 | 7 | 999), "{wrong}: {refusal:?}");
                ensure!(refusal.text.contains(*key), "{wrong}: does not name the key: {refusal:?}");
            }
            watched.unchanged()
        },
    )
}

/// Variables with separators, control characters and other bad characters.
const NAMES: [(&str, &str, u64, &str); 25] = [
    ("CNI_CONTAINERID", "../x", 4, "invalid characters in containerID; ../x"),
    ("CNI_CONTAINERID", "a/b", 4, "invalid characters in containerID"),
    ("CNI_CONTAINERID", "a b", 4, "invalid characters in containerID"),
    ("CNI_CONTAINERID", "a\n", 4, "invalid characters in containerID"),
    ("CNI_CONTAINERID", "a\u{1b}[2J", 4, "invalid characters in containerID"),
    ("CNI_CONTAINERID", "é", 4, "invalid characters in containerID"),
    ("CNI_CONTAINERID", "-rf", 4, "invalid characters in containerID"),
    ("CNI_CONTAINERID", "", 4, "required env variables [CNI_CONTAINERID] missing"),
    ("CNI_IFNAME", "a/b", 4, "interface name contains / or : or whitespace characters"),
    ("CNI_IFNAME", "a:b", 4, "interface name contains / or : or whitespace characters"),
    ("CNI_IFNAME", "a\tb", 4, "interface name contains / or : or whitespace characters"),
    ("CNI_IFNAME", "..", 4, "interface name is . or .."),
    ("CNI_IFNAME", "sixteen_bytes___", 4, "interface name is too long"),
    ("CNI_IFNAME", "", 4, "required env variables [CNI_IFNAME] missing"),
    // These errors are the kernel's: "all" is a directory of sysctls, "%d" a pattern.
    ("CNI_IFNAME", "all", 999, "failed to make veth pair…invalid argument"),
    ("CNI_IFNAME", "eth%d", 999, "failed to make veth pair…no link can have this name"),
    ("CNI_IFNAME", "lo", 999, "container veth name (\"lo\") peer provided…already exists"),
    ("CNI_PATH", "", 4, "required env variables [CNI_PATH] missing"),
    ("CNI_COMMAND", "add", 4, "unknown CNI_COMMAND: add"),
    ("CNI_COMMAND", "ADD\n", 4, "unknown CNI_COMMAND: ADD"),
    ("CNI_ARGS", "MAC", 999, "ARGS: invalid pair \"MAC\""),
    ("CNI_ARGS", "MAC=zz", 999, "invalid MAC address"),
    ("CNI_ARGS", "MAC=ff:ff:ff:ff:ff:ff", 999, "failed to make veth pair…cannot assign requested address"),
    ("CNI_ARGS", "NO=1", 999, "ARGS: unknown args [\"NO=1\"]"),
    ("CNI_ARGS", "IgnoreUnknown=maybe", 999, "ARGS: error parsing value of pair \"IgnoreUnknown=maybe\""),
];

/// Namespaces other than the container's.
const NAMESPACES: [(&str, u64, &str); 8] = [
    ("", 4, "required env variables [CNI_NETNS] missing"),
    ("/run/netns/none", 999, "failed to open netns \"/run/netns/none\"…no such file or directory"),
    ("/dev/null", 999, "failed to open netns \"/dev/null\": unknown FS magic on \"/dev/null\""),
    ("/run", 999, "failed to open netns \"/run\": unknown FS magic"),
    ("relative/path", 999, "failed to open netns \"relative/path\""),
    ("/proc/self/ns/net", 8, "plugin's netns and netns from CNI_NETNS should not be the same"),
    // A namespace that is not a network namespace.
    ("/proc/self/ns/mnt", 999, "/proc/self/ns/mnt"),
    ("/proc/self/ns/user", 999, "/proc/self/ns/user"),
];

#[test]
fn bad_variables() -> Result<()> {
    let mut watched = used_node()?;
    let namespaces = NAMESPACES.iter().map(|(path, code, text)| ("CNI_NETNS", *path, *code, *text));
    each(
        NAMES.into_iter().chain(namespaces),
        |case| format!("{}={:?}", case.0, case.1),
        |(key, value, code, text)| {
            refused(&mut watched, "bridge", base("bridge").to_string().into_bytes(), &[(key, value)], *code, text)
        },
    )
}

#[test]
fn a_wrong_namespace_changes_nothing_at_all() -> Result<()> {
    // The call does not even make a bridge.
    let mut watched = Watched::new(&["c1"])?;
    let namespaces = NAMESPACES.iter().map(|(path, code, text)| (*path, *code, *text));
    each(
        namespaces,
        |case| case.0.to_owned(),
        |(path, code, text)| {
            refused(
                &mut watched,
                "bridge",
                base("bridge").to_string().into_bytes(),
                &[("CNI_NETNS", path)],
                *code,
                text,
            )
        },
    )
}

#[test]
fn long_names_are_refused_or_kept_whole() -> Result<()> {
    let mut watched = used_node()?;
    for length in [255, 4000, 4096, 5000, 60_000] {
        let name = "x".repeat(length);
        let config = with("bridge", r#"{"ipMasq": true, "ipMasqBackend": "nftables"}"#)?;
        let call = request(&watched, "bridge", "ADD", config)?.env("CNI_CONTAINERID", &name);
        let add = watched.node.call(&call)?;
        if add.status != 0 {
            Refusal::of(&add)?;
        }
        watched.node.call(&call.env("CNI_COMMAND", "DEL"))?.success()?;
        watched.unchanged().map_err(|changed| changed.context(format!("a container ID of {length} bytes")))?;
    }
    let long = format!(r#"{{"name": "{}"}}"#, "x".repeat(300));
    refused(&mut watched, "bridge", with("bridge", &long)?.into_bytes(), &[], 5, "create directory …name too long")
}

#[test]
fn a_configuration_gone_bad_does_not_keep_an_attachment() -> Result<()> {
    let mut watched = used_node()?;
    let good = base("bridge").to_string();
    let cut = good.strip_suffix('}').unwrap_or(&good);
    let cases = [
        format!(r#"{cut}, "Bridge": "other"}}"#),
        with("bridge", r#"{"bridge": [1]}"#)?,
        with("bridge", r#"{"bridge": "other", "ipam": {"ranges": "x"}}"#)?,
        with("bridge", r#"{"ipam": "x"}"#)?,
        with("bridge", r#"{"ipam": null}"#)?,
        with("bridge", r#"{"ipam": {"type": "unlisted"}}"#)?,
        with("bridge", r#"{"ipam": {"type": "static"}}"#)?,
        with("bridge", r#"{"ipam": {"dataDir": 7}}"#)?,
        with("bridge", r#"{"ipMasq": "x", "mtu": "x"}"#)?,
        with("bridge", r#"{"prevResult": "x"}"#)?,
    ];
    each(cases, Clone::clone, |bad| {
        send(&watched, "bridge", "ADD", good.clone())?.success()?;
        let answer = send(&watched, "bridge", "DEL", bad.clone())?;
        let gone = watched.unchanged();
        send(&watched, "bridge", "DEL", good.clone())?.success()?;
        // DEL may report an error in the configuration.
        if answer.status != 0 {
            Refusal::of(&answer)?;
        }
        gone
    })
}
