//! `postern net` is compared with cnitool: the same networks, arguments and variables, with plugins that write down
//! their calls. Calls, output, exit status and files of the cache must be equal. Further tests use our own plugins.
//! They kill `postern net`, or make one of its system calls fail, and check that DEL removes everything.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{number, picture, same_picture};
use postern_tests::{Node, Random, merge, plugin_bin, skip};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A plugin that writes down its name, variables and input. A file in `/run/answers` defines the plugin's answer.
const RECORDER: &str = r#"#!/bin/sh
name=${0##*/}
{ echo "$name $CNI_COMMAND id=$CNI_CONTAINERID ns=$CNI_NETNS args=$CNI_ARGS if=$CNI_IFNAME path=$CNI_PATH"; cat; echo; } >> /run/calls
if [ -e "/run/answers/$name.$CNI_COMMAND" ]; then . "/run/answers/$name.$CNI_COMMAND"; fi
"#;

/// A script that prints a plugin's result.
const RESULT: &str = r#"cat <<R
{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/run/netns/x"}],
 "ips":[{"address":"10.1.0.2/24","gateway":"10.1.0.1","interface":0}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{}}
R"#;

const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// The container ID that both tools use for `/run/netns/x`.
const ID: &str = "cnitool-55e2cecc95014b0f7fc4";

/// The calls of both tools, one line each: variables and arguments.
struct Case {
    name: &'static str,
    /// Files below `/run`.
    files: Vec<(&'static str, String)>,
    steps: Vec<&'static str>,
}

fn case(name: &'static str, files: &[(&'static str, Value)], steps: &[&'static str]) -> Case {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let files = files.iter().map(|(path, content)| (*path, text(content))).collect();
    Case { name, files, steps: steps.to_vec() }
}

/// The compared output and calls of one tool.
#[derive(Debug, PartialEq)]
struct Seen {
    steps: Vec<(Option<i32>, Value, String)>,
    calls: Vec<(String, Value)>,
    cache: BTreeMap<String, Value>,
}

fn cases() -> Vec<Case> {
    let list = |plugins: Value| json!({"cniVersion": "1.0.0", "name": "n", "plugins": plugins});
    let two = list(json!([{"type": "one", "mtu": 1400, "capabilities": {"mac": true, "ips": false}}, {"type": "two"}]));
    let newest = |more: Value| {
        let mut list = json!({"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "one"}, {"type": "two"}]});
        merge(&mut list, &more);
        list
    };
    let answers = || vec![("answers/one.ADD", json!(RESULT)), ("answers/two.ADD", json!(RESULT))];
    let with = |mut files: Vec<(&'static str, Value)>, more: &[(&'static str, Value)]| {
        files.extend(more.to_vec());
        files
    };
    let everything = &["add n /run/netns/x", "check n /run/netns/x", "del n /run/netns/x", "del n /run/netns/x"];
    vec![
        case("a list", &with(answers(), &[("net.d/a.conflist", two.clone())]), everything),
        case(
            "arguments",
            &with(answers(), &[("net.d/a.conflist", two.clone())]),
            &[
                r#"CAP_ARGS={"mac":"02:00:00:00:00:09","ips":["10.1.0.9/24"]} CNI_ARGS=A=1;B=2 CNI_IFNAME=net1 add n /run/../run/netns//x"#,
                r#"CAP_ARGS={"mac":"02:00:00:00:00:09"} CNI_IFNAME=net1 check n /run/netns/x"#,
                "CNI_IFNAME=net1 del n /run/netns/x",
            ],
        ),
        case(
            "numbers as templates write them",
            &with(
                answers(),
                &[(
                    "net.d/a.conflist",
                    json!(
                        r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"one","mtu":1400.0,"a":[1e+06,{"b":-7.0E0}],
                           "c":9007199254740993,"d":0.5,"e":9223372036854775807,"capabilities":{"bandwidth":true}},{"type":"two"}]}"#
                    ),
                )],
            ),
            &[
                r#"CAP_ARGS={"bandwidth":{"ingressRate":8e+06,"ingressBurst":1400.0}} add n /run/netns/x"#,
                r#"CAP_ARGS={"bandwidth":{"ingressRate":8e+06,"ingressBurst":1400.0}} check n /run/netns/x"#,
                "del n /run/netns/x",
            ],
        ),
        case(
            "invalid arguments",
            &with(answers(), &[("net.d/a.conflist", two.clone())]),
            &["CNI_ARGS=A add n /run/netns/x", "CNI_ARGS=A=1; add n /run/netns/x", "CNI_IFNAME= add n /run/netns/x"],
        ),
        case(
            "a single plugin",
            &with(
                answers(),
                &[
                    ("net.d/b.conf", json!({"cniVersion": "0.4.0", "name": "other", "type": "two"})),
                    ("net.d/c.json", json!({"cniVersion": "0.4.0", "name": "n", "type": "one", "capabilities": {}})),
                ],
            ),
            everything,
        ),
        case(
            "plugins of a directory",
            &with(
                answers(),
                &[
                    ("net.d/a.conflist", json!({"cniVersion": "1.0.0", "name": "n"})),
                    ("net.d/n/20.conf", json!({"type": "two", "b": 1})),
                    ("net.d/n/10.conf", json!({"type": "one", "name": "own"})),
                    ("net.d/n/30.json", json!({"type": "no"})),
                ],
            ),
            everything,
        ),
        case(
            "only plugins of the list",
            &with(
                answers(),
                &[
                    (
                        "net.d/a.conflist",
                        json!({"name": "n", "cniVersion": "0.3.1", "loadOnlyInlinedPlugins": "TRUE", "plugins": [{"type": "one"}]}),
                    ),
                    ("net.d/n/10.conf", json!({"type": "two"})),
                ],
            ),
            everything,
        ),
        case(
            "the highest version",
            &with(
                answers(),
                &[(
                    "net.d/a.conflist",
                    newest(json!({"cniVersion": "0.3.1", "cniVersions": ["0.4.0", "1.0.0", "9.9.9"]})),
                )],
            ),
            everything,
        ),
        case(
            "no version",
            &with(answers(), &[("net.d/a.conflist", json!({"name": "n", "plugins": [{"type": "one"}]}))]),
            everything,
        ),
        case(
            "switched off",
            &with(answers(), &[("net.d/a.conflist", newest(json!({"disableCheck": true, "disableGC": "true"})))]),
            &["add n /run/netns/x", "check n /run/netns/x", "gc n x", "del n /run/netns/x"],
        ),
        case(
            "collection and status",
            &with(answers(), &[("net.d/a.conflist", newest(json!({})))]),
            &["status n x", "add n /run/netns/x", "add n /run/netns/y", "gc n x", "status n x"],
        ),
        case(
            "errors of plugins",
            &with(
                answers(),
                &[
                    ("net.d/a.conflist", newest(json!({}))),
                    ("answers/two.STATUS", json!(r#"echo '{"code":50,"msg":"not ready","details":"later"}'; exit 1"#)),
                    ("answers/one.GC", json!("echo no >&2; exit 3")),
                    ("answers/two.GC", json!("exit 4")),
                    ("answers/two.CHECK", json!(r#"echo '{"code":999,"msg":"gone"}'; exit 1"#)),
                    ("answers/one.DEL", json!(r#"echo '{"code":11,"msg":"busy"}'; exit 1"#)),
                ],
            ),
            &["status n x", "add n /run/netns/x", "check n /run/netns/x", "del n /run/netns/x", "gc n x"],
        ),
        case(
            "no answer to ADD, and an answer in an older version",
            &[
                ("answers/one.ADD", json!(r#"echo '{"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.2/24"}}'"#)),
                ("answers/two.ADD", json!(r#"echo '{"ips":[{"address":"10.1.0.3/24"}]}'; echo said >&2"#)),
                ("net.d/a.conflist", newest(json!({}))),
            ],
            everything,
        ),
        case(
            "broken files of the cache",
            &with(
                answers(),
                &[
                    ("net.d/a.conflist", newest(json!({}))),
                    ("../var/lib/cni/results/broken", json!("{")),
                    ("../var/lib/cni/results/n-empty-eth0", json!("")),
                    (
                        "../var/lib/cni/results/other",
                        json!({"kind": "cniCacheV1", "containerId": "c", "ifName": "eth0", "networkName": "other"}),
                    ),
                    (
                        "../var/lib/cni/results/n-c-eth0",
                        json!({"kind": "cniCacheV1", "containerId": "c", "ifName": "eth0", "networkName": "n", "cniArgs": [["A", "1"]], "result": {"cniVersion": "1.0.0"}}),
                    ),
                ],
            ),
            &["gc n x"],
        ),
        case("no files", &[("net.d/readme.txt", json!("x"))], &["add n /run/netns/x"]),
        case("no such network", &[("net.d/a.conflist", two.clone())], &["add m /run/netns/x", "del m /run/netns/x"]),
        case("a list without plugins", &[("net.d/a.conflist", json!({"name": "n"}))], &["add n /run/netns/x"]),
        case(
            "a plugin without type",
            &[("net.d/a.conflist", list(json!([{"type": "one"}, {}])))],
            &["add n /run/netns/x"],
        ),
        case(
            "a broken list before",
            &[("net.d/a.conflist", json!({"name": 1})), ("net.d/b.conflist", two.clone())],
            &["status n x"],
        ),
        case(
            "a plugin without a program",
            &[("net.d/a.conflist", list(json!([{"type": "absent"}])))],
            &["check n /run/netns/x", "del n /run/netns/x"],
        ),
        case(
            "a type that is a path",
            &[("net.d/a.conflist", list(json!([{"type": "../bin/one"}])))],
            &["del n /run/netns/x"],
        ),
    ]
}

fn cnitool() -> PathBuf {
    let place = std::env::var_os("POSTERN_CNITOOL").map_or_else(|| PathBuf::from("../target/cnitool"), PathBuf::from);
    place.join("cnitool")
}

/// Makes a node with recording plugins and the files of a case.
fn node(case: &Case) -> Result<Node> {
    let node = Node::new()?;
    let place = |path: &str| -> Result<PathBuf> {
        let path = match path.strip_prefix("../") {
            Some(path) => node.path(Path::new("/").join(path)),
            None => node.path(Path::new("/run").join(path)),
        };
        fs::create_dir_all(path.parent().context("no parent")?)?;
        Ok(path)
    };
    for name in ["one", "two"] {
        fs::write(place(&format!("bin/{name}"))?, RECORDER)?;
    }
    for (path, content) in &case.files {
        fs::write(place(path)?, content)?;
    }
    node.sh("chmod 755 /run/bin/*")?;
    Ok(node)
}

/// Runs the calls of a case with one tool.
fn seen(case: &Case, tool: &[&str]) -> Result<Seen> {
    let node = node(case)?;
    let mut steps = Vec::new();
    for step in &case.steps {
        let (variables, arguments): (Vec<&str>, Vec<&str>) =
            step.split(' ').partition(|word| word.starts_with(|c: char| c.is_ascii_uppercase()));
        let mut command = node.command("env");
        command.args(["-i", "PATH=/usr/bin:/bin", "CNI_PATH=/run/bin", "NETCONFPATH=/run/net.d"]);
        let output = command.args(variables).args(tool).args(arguments).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let stdout = text(&output.stdout);
        ensure!(!stdout.ends_with('\n'), "{}: {step}: a newline at the end", case.name);
        let stdout = if stdout.is_empty() { Value::Null } else { serde_json::from_str(&stdout)? };
        steps.push((output.status.code(), stdout, text(&output.stderr)));
    }
    let calls = fs::read_to_string(node.path("/run/calls")).unwrap_or_default();
    let lines: Vec<&str> = calls.lines().collect();
    let (pairs, rest) = lines.as_chunks::<2>();
    ensure!(rest.is_empty(), "{}: half a call: {rest:?}", case.name);
    let calls = pairs.iter().map(|[call, input]| Ok(((*call).to_owned(), serde_json::from_str(input)?)));
    let calls = calls.collect::<Result<_>>()?;
    let mut cache = BTreeMap::new();
    for entry in fs::read_dir(node.path("/var/lib/cni/results")).into_iter().flatten() {
        let entry = entry?;
        let text = fs::read_to_string(entry.path())?;
        let mut value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        // The texts of a list differ only in blanks and the order of keys.
        if let Some(config) = value.get_mut("config") {
            let decoded = node.sh(&format!("echo {} | base64 -d", config.as_str().unwrap_or_default()))?;
            *config = serde_json::from_str(&decoded)?;
        }
        cache.insert(entry.file_name().to_string_lossy().into_owned(), value);
    }
    Ok(Seen { steps, calls, cache })
}

fn postern() -> Result<String> {
    Ok(plugin_bin()?.join("postern").to_string_lossy().into_owned())
}

#[test]
fn calls_and_answers_are_cnitools() -> Result<()> {
    let cnitool = cnitool();
    if !cnitool.is_file() {
        skip("there is no cnitool to compare with (tests/fetch-cnitool)");
        return Ok(());
    }
    let (cnitool, postern) = (cnitool.canonicalize()?.to_string_lossy().into_owned(), postern()?);
    for case in cases() {
        let theirs = seen(&case, &[&cnitool])?;
        let ours = seen(&case, &[&postern, "net"])?;
        ensure!(ours == theirs, "{}:\nours   {ours:#?}\ntheirs {theirs:#?}", case.name);
    }
    Ok(())
}

/// Lists of each version, with plugins that answer in each version with the specifications' own results. The next
/// plugin, the runtime and the cache get the same from `postern net` as from cnitool, which uses libcni's conversion.
#[test]
fn results_of_each_version_in_lists_of_each_version() -> Result<()> {
    let cnitool = cnitool();
    if !cnitool.is_file() {
        skip("there is no cnitool to compare with (tests/fetch-cnitool)");
        return Ok(());
    }
    let (cnitool, postern) = (cnitool.canonicalize()?.to_string_lossy().into_owned(), postern()?);
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-sdk/cni/tests/examples");
    let mut compared = 0;
    for version in VERSIONS {
        for path in fs::read_dir(examples.join(version))? {
            let path = path?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !name.starts_with("result-") {
                continue;
            }
            let mut result: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
            if result.get("cniVersion").is_none() {
                merge(&mut result, &json!({"cniVersion": version}));
            }
            let answer = json!(format!("cat <<'R'\n{result}\nR"));
            for of_list in VERSIONS {
                let list = json!({"cniVersion": of_list, "name": "n", "plugins": [{"type": "one"}, {"type": "two"}]});
                let files = [
                    ("net.d/a.conflist", list),
                    ("answers/one.ADD", answer.clone()),
                    ("answers/two.ADD", answer.clone()),
                ];
                let case =
                    case("versions", &files, &["add n /run/netns/x", "check n /run/netns/x", "del n /run/netns/x"]);
                let theirs = seen(&case, &[&cnitool])?;
                let ours = seen(&case, &[&postern, "net"])?;
                ensure!(ours == theirs, "{version}/{name} in {of_list}:\nours   {ours:#?}\ntheirs {theirs:#?}");
                compared += 1;
            }
        }
    }
    ensure!(compared > 100, "{compared} results in lists");
    println!("{compared} results in lists");
    Ok(())
}

#[test]
fn a_file_of_the_cache_is_one_attachments() -> Result<()> {
    // Network `n` with container `ID` and interface `x-eth0`, and container `ID-x` with interface `eth0`, have the same
    // file name.
    let list = json!({"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "one"}]});
    let entry = json!({"kind": "cniCacheV1", "containerId": format!("{ID}-x"), "ifName": "eth0", "networkName": "n", "result": {"cniVersion": "1.0.0", "dns": {"domain": "theirs"}}});
    let file = format!("../var/lib/cni/results/n-{ID}-x-eth0");
    let files = [("net.d/a.conflist", list), ("answers/one.ADD", json!(RESULT)), (file.leak() as &str, entry.clone())];
    let steps = [
        "CNI_IFNAME=x-eth0 check n /run/netns/x",
        "CNI_IFNAME=x-eth0 del n /run/netns/x",
        "CNI_IFNAME=x-eth0 add n /run/netns/x",
    ];
    let seen = seen(&case("one file", &files, &steps), &[&postern()?, "net"])?;
    // CHECK and DEL do not get the other attachment's result. The other attachment's file stays.
    let inputs: Vec<_> = seen.calls.iter().map(|(_, input)| input.get("prevResult")).collect();
    assert_eq!(inputs, [None; 4], "{:?}", seen.calls);
    let (status, _, error) = seen.steps.last().context("no step")?;
    assert!(*status == Some(1) && error.contains("has the result of network \"n\", container"), "{error}");
    assert_eq!(seen.cache.into_values().collect::<Vec<_>>(), [entry]);
    Ok(())
}

/// A cache file belongs to no attachment if its content lacks the names in the file name, or is an array of values. ADD
/// replaces such a file, and DEL removes it.
#[test]
fn a_file_of_the_cache_that_is_nobodys() -> Result<()> {
    let list = json!({"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "one"}]});
    let file = format!("../var/lib/cni/results/n-{ID}-eth0");
    for entry in [
        json!(["cniCacheV1", "other", "bridge"]),
        json!({"kind": "cniCacheV1", "containerId": "other"}),
        json!({"kind": "cniCacheV1", "containerId": "other", "ifName": "eth0", "networkName": "n", "result": {}}),
    ] {
        let files = [
            ("net.d/a.conflist", list.clone()),
            ("answers/one.ADD", json!(RESULT)),
            (file.clone().leak() as &str, entry),
        ];
        let added = seen(&case("nobody's", &files, &["add n /run/netns/x"]), &[&postern()?, "net"])?;
        let (status, _, error) = added.steps.last().context("no step")?;
        assert_eq!((*status, error.as_str()), (Some(0), ""));
        let ours: Vec<_> = added.cache.into_values().map(|entry| entry["containerId"].clone()).collect();
        assert_eq!(ours, [json!(ID)]);
        let removed = seen(&case("nobody's", &files, &["del n /run/netns/x"]), &[&postern()?, "net"])?;
        assert!(removed.cache.is_empty(), "{:?}", removed.cache);
    }
    Ok(())
}

#[test]
fn a_failed_add_is_removed() -> Result<()> {
    let list = json!({"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "one"}, {"type": "two"}]});
    let failing = |more: &[(&'static str, Value)], steps: &[&'static str]| {
        let mut files = vec![
            ("net.d/a.conflist", list.clone()),
            ("answers/one.ADD", json!(RESULT)),
            ("answers/two.ADD", json!(r#"echo '{"code":100,"msg":"no"}'; exit 1"#)),
        ];
        files.extend(more.to_vec());
        seen(&case("failing", &files, steps), &[&postern()?, "net"])
    };
    let verbs = |seen: &Seen| {
        let words = seen.calls.iter().map(|(call, _)| call.split(' ').take(2).collect::<Vec<_>>().join(" "));
        words.collect::<Vec<_>>()
    };
    let error = "plugin type=\"two\" failed (add): no\n";

    let removed = failing(&[], &["add n /run/netns/x"])?;
    assert_eq!(verbs(&removed), ["one ADD", "two ADD", "two DEL", "one DEL"]);
    assert_eq!(removed.steps, [(Some(1), Value::Null, format!("{error}DEL has removed the attachment's objects\n"))]);

    let stays = failing(&[("answers/one.DEL", json!("exit 1"))], &["add n /run/netns/x"])?;
    let after = "the DEL that followed has failed too: plugin type=\"one\" failed (delete): netplugin failed with no error message: exit status 1\n";
    assert_eq!(stays.steps, [(Some(1), Value::Null, format!("{error}{after}"))]);

    // Another network made this interface. A DEL would remove the other network's interface.
    let entry = json!({"kind": "cniCacheV1", "containerId": ID, "ifName": "eth0", "networkName": "m", "result": {}});
    let untouched = failing(&[("../var/lib/cni/results/m", entry)], &["add n /run/netns/x"])?;
    assert_eq!(verbs(&untouched), ["one ADD", "two ADD"]);
    assert_eq!(untouched.cache.len(), 1);
    Ok(())
}

#[test]
fn what_cnitool_lacks() -> Result<()> {
    let list = json!({"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "one"}]});
    let files = [("net.d/a.conflist", list), ("answers/one.ADD", json!(RESULT))];
    let gc = "gc n --valid cnitool-55e2cecc95014b0f7fc4/eth0";
    let case = case("options", &files, &["add -i eth0 n /run/netns/x", "add n /run/netns/y", "status n", gc]);
    let seen = seen(&case, &[&postern()?, "net"])?;
    assert!(seen.steps.iter().all(|(status, ..)| *status == Some(0)), "{:?}", seen.steps);
    // The attachment that `--valid` names stays. The plugin gets this attachment's name.
    assert_eq!(seen.cache.keys().collect::<Vec<_>>(), [&format!("n-{ID}-eth0")]);
    let (call, input) = seen.calls.last().context("no call")?;
    assert!(call.starts_with("one GC id= ns= "), "{call}");
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        assert_eq!(input[key], json!([{"containerID": ID, "ifname": "eth0"}]));
    }
    Ok(())
}

#[test]
fn names_that_leave_the_cache() -> Result<()> {
    // A network's name becomes part of a file's name.
    let list = json!({"cniVersion": "1.0.0", "name": "../../../../run/kept", "plugins": [{"type": "one"}]});
    let files = [("net.d/a.conflist", list), ("kept-x-eth0", json!("kept")), ("answers/one.ADD", json!(RESULT))];
    let steps = [
        "add ../../../../run/kept /run/netns/x",
        "del ../../../../run/kept /run/netns/x",
        "check ../../../../run/kept /run/netns/x",
    ];
    let seen = seen(&case("names", &files, &steps), &[&postern()?, "net"])?;
    assert!(seen.steps.iter().all(|(status, ..)| *status == Some(1)), "{:?}", seen.steps);
    assert!(seen.calls.is_empty() && seen.cache.is_empty(), "{seen:?}");
    Ok(())
}

#[test]
fn pipes_are_no_files() -> Result<()> {
    // Opening a pipe without a writer would wait forever.
    let list = json!({"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "one"}]});
    let case = case("pipes", &[("net.d/b.conflist", list), ("answers/one.ADD", json!(RESULT))], &[]);
    let node = node(&case)?;
    let net = format!("timeout 20 env CNI_PATH=/run/bin NETCONFPATH=/run/net.d {} net", postern()?);
    node.sh(&format!("mkdir -p /var/lib/cni/results; mkfifo /var/lib/cni/results/pipe /run/net.d/c.conflist; {net} add n /run/netns/x; {net} gc n"))?;
    let refused = node.sh(&format!("! {net} status other 2>&1"))?;
    assert_eq!(refused, "error reading /run/net.d/c.conflist: it is no regular file\n");
    Ok(())
}

/// A node with a list of our plugins, and the verbs of `postern net` for it.
struct OurList {
    node: Node,
    before: Value,
}

impl OurList {
    fn new() -> Result<Self> {
        let list = json!({"cniVersion": "1.1.0", "name": "n", "plugins": [
            {"type": "bridge", "bridge": "br9", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables",
                "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]}},
            {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}},
            {"type": "tuning", "mtu": 1400, "sysctl": {"net.core.somaxconn": "500"}},
        ]});
        let mut ours = Self { node: Node::new()?, before: Value::Null };
        ours.node.add_container("c1")?;
        fs::create_dir_all(ours.node.path("/run/net.d"))?;
        fs::write(ours.node.path("/run/net.d/n.conflist"), list.to_string())?;
        // The objects that attachments share exist from here on.
        for verb in ["add", "check", "status", "del"] {
            ours.succeeds(verb)?;
        }
        ours.before = picture(&ours.node, &["c1"])?;
        Ok(ours)
    }

    /// Returns the command of a verb, started by a wrapper.
    fn command(&self, wrapper: &[&str], verb: &str) -> Result<Command> {
        let mut command = self.node.command("env");
        let ports = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
        command.args(["-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "NETCONFPATH=/run/net.d"]);
        command.arg(format!("CNI_PATH={}", plugin_bin()?.display())).arg(format!("CAP_ARGS={ports}"));
        command.args(wrapper).arg(postern()?).args(["net", verb, "n", "/run/netns/c1"]);
        if verb == "gc" {
            command.args(["--valid", "other/eth0"]);
        }
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(command)
    }

    fn succeeds(&self, verb: &str) -> Result<Duration> {
        let began = Instant::now();
        let output = self.command(&[], verb)?.output()?;
        ensure!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(began.elapsed())
    }

    /// Waits for a disturbed verb, then runs DEL. Fails if the verb reported a bug, or if DEL leaves anything of the
    /// attachment. Returns true if the verb succeeded.
    fn leaves_nothing(&self, disturbed: Child) -> Result<bool> {
        let output = disturbed.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!said.contains("this is a bug"), "{said}");
        self.succeeds("del").with_context(|| said.to_string())?;
        same_picture(&self.before, &picture(&self.node, &["c1"])?).with_context(|| said.to_string())?;
        Ok(output.status.success())
    }
}

/// Returns all descendants of a process, without the process itself.
fn descendants(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let children: Vec<u32> =
        texts.flat_map(|text| text.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect();
    children.iter().flat_map(|child| std::iter::once(*child).chain(descendants(*child))).collect()
}

/// Returns true if a process has not ended. A zombie has ended.
fn works(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| !status.contains("State:\tZ"))
}

/// If `postern net` is killed at any moment of a verb, a plugin may still run. The next DEL removes everything.
#[test]
fn a_killed_postern_net_leaves_nothing() -> Result<()> {
    let ours = OurList::new()?;
    let seed = number("POSTERN_KILL_SEED").unwrap_or(7);
    let mut random = Random::new(seed);
    let mut at_work = 0;
    for round in 0..number("POSTERN_KILLS").unwrap_or(16) {
        let verb = random.one_of(&["add", "add", "del", "gc"]);
        let usual = ours.succeeds("add")?.as_micros();
        match verb {
            "add" => drop(ours.succeeds("del")?),
            // Without a cached result, GC calls no DEL and must remove the attachment itself.
            "gc" => drop(ours.node.sh("rm -f /var/lib/cni/results/*")?),
            _ => {}
        }
        let child = ours.command(&[], verb)?.spawn()?;
        std::thread::sleep(Duration::from_micros(random.below(u64::try_from(usual)?.max(1))));
        // timeout(1) is the parent of `postern net`.
        let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let Some(net) = descendants(child.id()).into_iter().find(|pid| name(pid) == "postern\n") else {
            ours.leaves_nothing(child)?;
            continue;
        };
        let signal =
            |signal: &str| Command::new("kill").args([signal, &net.to_string()]).stderr(Stdio::null()).status();
        // While `postern net` is stopped, it starts no other plugin.
        signal("-STOP")?;
        let plugins = descendants(net);
        signal("-KILL")?;
        at_work += usize::from(!plugins.is_empty());
        let deadline = Instant::now() + Duration::from_secs(20);
        while plugins.iter().any(|pid| works(*pid)) {
            ensure!(Instant::now() < deadline, "round {round}: processes are left: {plugins:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
        ours.leaves_nothing(child).with_context(|| format!("round {round}, seed {seed}: killed in {verb}"))?;
    }
    ensure!(at_work > 0, "no plugin was at work when `postern net` was killed");
    Ok(())
}

/// One system call of `postern net` fails: the n-th call with one of these names. DEL removes everything afterwards.
#[test]
fn a_failing_call_of_postern_net_leaves_nothing() -> Result<()> {
    const CALLS: [(&str, &str, &[u8]); 9] = [
        ("open,openat", "EMFILE", &[1, 3, 5]),
        ("read,recvfrom", "EIO", &[2, 5]),
        ("write", "ENOSPC", &[1, 2]),
        ("pipe2", "EMFILE", &[1, 2]),
        // These calls start the plugin, and the thread that writes to it.
        ("clone,clone3,fork,vfork", "EAGAIN", &[1, 2]),
        ("poll", "EINTR", &[1]),
        ("mkdir,mkdirat", "EACCES", &[1]),
        ("rename,renameat,linkat", "ENOSPC", &[1]),
        ("unlink,unlinkat", "EIO", &[1]),
    ];
    let ours = OurList::new()?;
    let mut ended = 0;
    for verb in ["add", "del"] {
        for (names, errno, when) in
            CALLS.iter().flat_map(|(names, errno, all)| all.iter().map(move |at| (names, errno, at)))
        {
            if verb == "del" {
                ours.succeeds("add")?;
            }
            let inject = format!("inject={names}:error={errno}:when={when}");
            let strace = ["strace", "-qq", "-o", "/dev/null", "-e", "signal=none", "-e", &inject];
            let child = ours.command(&strace, verb)?.spawn()?;
            ended += usize::from(!ours.leaves_nothing(child).with_context(|| format!("{verb}, {inject}"))?);
        }
    }
    ensure!(ended > 2, "only {ended} faults made a verb fail");
    Ok(())
}
