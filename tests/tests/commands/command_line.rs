//! The command line for people: its width, its words and its exit statuses. No command removes anything without a
//! question.

use anyhow::{Context, Result, ensure};
use postern_tests::{Answer, Network, Node, copy_bin, flat, plugin_bin};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Two containers whose IDs first differ at the seventeenth digit.
const CONTAINERS: [&str; 2] = ["2f5a0e7bb1c94d0aaaaa", "2f5a0e7bb1c94d0abbbb"];

const NETWORK: &str = "a-network-with-a-long-name";

/// Runs postern as if on a terminal with colours, and with backtraces on.
fn postern(node: &Node, arguments: &[&str]) -> Result<Answer> {
    let mut command = Command::new(plugin_bin()?.join("postern"));
    command.args(arguments).envs([
        ("RUST_BACKTRACE", "1"),
        ("CLICOLOR_FORCE", "1"),
        ("FORCE_COLOR", "1"),
        ("TERM", "xterm"),
    ]);
    node.answer(&mut command, None)
}

fn bridge() -> Value {
    let ranges = json!([[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:1234:5678:9abc::/64"}]]);
    json!({
        "cniVersion": "1.0.0", "name": NETWORK, "type": "bridge", "bridge": "br9", "isGateway": true, "ipMasq": true,
        "ipMasqBackend": "nftables", "macspoofchk": true, "ipam": {"type": "host-local", "ranges": ranges},
    })
}

/// A network whose configuration is also in a file. Both containers are attached.
fn attached() -> Result<Network> {
    let network = Network::new(&Node::new()?, &bridge())?;
    for container in CONTAINERS {
        network.node.add_container(container)?;
        network.add(container)?;
    }
    network.node.sh(&format!("mkdir -p /run/net.d; echo '{}' > /run/net.d/10-net.conf", bridge()))?;
    Ok(network)
}

fn node() -> Result<Node> {
    Ok(attached()?.node)
}

const VERBS: [&str; 18] = [
    "add",
    "remove",
    "compile",
    "net",
    "dhcp",
    "install",
    "upgrade",
    "rollback",
    "uninstall",
    "inspect",
    "learn",
    "plan",
    "log",
    "ls",
    "show",
    "doctor",
    "gc",
    "reapply",
];

/// Returns the verbs that a help lists.
pub fn verbs(help: &str) -> Vec<String> {
    let (_, list) = help.split_once("\nCommands:\n").unwrap_or_default();
    let lines = list.lines().take_while(|line| line.starts_with(' '));
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

#[test]
fn help_and_usage_fit_a_terminal_and_say_postern() -> Result<()> {
    let node = Node::new()?;
    let mut calls: Vec<(Vec<&str>, i32)> =
        vec![(vec!["--help"], 0), (vec!["--version"], 0), (vec!["nothing"], 2), (vec![], 2)];
    for verb in VERBS {
        calls.push((vec![verb, "--help"], 0));
        calls.push((vec![verb, "-h"], 0));
        calls.push((vec![verb, "--nothing"], 2));
    }
    for verb in ["add", "check", "del", "gc", "status", "validate", "schema"] {
        calls.push((vec!["net", verb, "--help"], 0));
        calls.push((vec!["net", verb, "--nothing"], 2));
    }
    calls.push((vec!["net", "validate"], 2));
    for (arguments, status) in calls {
        let printed = postern(&node, &arguments)?;
        ensure!(printed.status == status, "{arguments:?}: {} {}", printed.status, printed.stderr);
        for line in printed.stdout.lines().chain(printed.stderr.lines()) {
            ensure!(line.chars().count() <= 80, "{arguments:?}: {line}");
            ensure!(!line.contains("postern-admin") && !line.contains('\u{1b}'), "{arguments:?}: {line}");
        }
    }
    let help = postern(&node, &["--help"])?.stdout;
    ensure!(help.contains("Usage: postern <COMMAND>\n       postern --version [--json]"), "{help}");
    let listed: BTreeSet<String> = verbs(&help).into_iter().collect();
    let expected: BTreeSet<String> = VERBS.into_iter().map(str::to_owned).collect();
    ensure!(listed == expected, "{listed:?}: {help}");
    for status in 0..=3 {
        ensure!(help.contains(&format!("\n  {status}  ")), "no exit status {status}: {help}");
    }
    Ok(())
}

#[test]
fn the_version_names_the_build() -> Result<()> {
    let node = Node::new()?;
    let text = postern(&node, &["--version"])?.stdout;
    ensure!(text.starts_with(&format!("postern {}\n", env!("CARGO_PKG_VERSION"))), "{text}");
    let object = postern(&node, &["--version", "--json"])?.json()?;
    for key in ["version", "commit", "architecture", "engine", "wit"] {
        let value = object[key].as_str().with_context(|| format!("no {key}: {object}"))?;
        ensure!(text.contains(value), "{key} is not in {text}");
    }
    let commit = object["commit"].as_str().unwrap_or_default();
    let is_commit = commit.len() == 40 && commit.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_unknown = commit == "unknown" && !Path::new(env!("CARGO_MANIFEST_DIR")).join("../.git").exists();
    ensure!(is_commit || is_unknown || std::env::var("POSTERN_COMMIT").as_deref() == Ok(commit), "{commit}");
    ensure!(object["architecture"] == std::env::consts::ARCH, "{object}");
    // The plugins under test are compiled for this engine.
    ensure!(object["engine"] == postern(&node, &["inspect", "static", "--json"])?.json()?["engine"], "{object}");
    ensure!(object["wit"].as_str().is_some_and(|wit| wit.starts_with("postern:cni@0.")), "{object}");
    // Only --version has this --json.
    for arguments in [&["--json"][..], &["--json", "ls"], &["--version", "ls"]] {
        let printed = postern(&node, arguments)?;
        ensure!(printed.status == 2 && printed.stdout.is_empty(), "{arguments:?}: {}", printed.stdout);
    }
    Ok(())
}

/// Runs a command on a terminal of its own, and returns all that the terminal got.
fn on_terminal(node: &Node, environment: &str, command: &str) -> Result<String> {
    node.sh(&format!("TERM=xterm {environment} script --quiet --return --command '{command}' /dev/null < /dev/null"))
}

#[test]
fn colours_are_for_terminals_whose_users_want_them() -> Result<()> {
    let node = node()?;
    let postern = plugin_bin()?.join("postern").display().to_string();
    let ls = format!("{postern} ls");
    ensure!(on_terminal(&node, "", &ls)?.contains("  \u{1b}[32mok\u{1b}[0m\r\n"));
    for environment in ["NO_COLOR=1", "TERM=dumb"] {
        let shown = on_terminal(&node, environment, &ls)?;
        ensure!(shown.contains("  ok\r\n") && !shown.contains('\u{1b}'), "{environment}: {shown}");
    }
    ensure!(on_terminal(&node, "NO_COLOR=", &ls)?.contains('\u{1b}'), "an empty NO_COLOR counts as unset");
    node.sh("ip link delete $(ip -o link | sed -n 's/.*: \\(veth[0-9a-f]*\\)@.*/\\1/p' | head -1)")?;
    ensure!(on_terminal(&node, "", &ls)?.contains("\u{1b}[31mdrift\u{1b}[0m"));
    let doctor = on_terminal(&node, "", &format!("{postern} doctor --conf-dir /run/net.d || true"))?;
    ensure!(doctor.contains("\u{1b}[31mERROR\u{1b}[0m") || doctor.contains("\u{1b}[33mWARNING\u{1b}[0m"), "{doctor}");
    Ok(())
}

#[test]
fn a_line_on_a_terminal_says_what_takes_long() -> Result<()> {
    let node = Node::new()?;
    let wasm = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/wasm32-wasip2/guest/postern-ptp.wasm");
    // A compiler that waits.
    node.sh(&format!(
        "{}; cd /run/build; mv postern-compiler slow; printf '#!/bin/sh\nsleep 3; exec /run/build/slow \"$@\"\n' > postern-compiler
         chmod 755 postern-compiler; cp {} /run/theirs.wasm",
        copy_bin(&plugin_bin()?, "/run/build"),
        wasm.display()
    ))?;
    let compile =
        "/run/build/postern compile /run/theirs.wasm --policy /run/build/postern.d/ptp.toml --output /run/out";
    let shown = on_terminal(&node, "", compile)?;
    let line = "\rpostern: compiling theirs.wasm: 2 s";
    ensure!(shown.contains(line), "{shown:?}");
    let (_, after) = shown.rsplit_once("postern: compiling").context("no line")?;
    let erased = after.split_once('\r').is_some_and(|(_, rest)| rest.trim_start_matches(' ').starts_with('\r'));
    ensure!(erased && after.contains("theirs: compiled for"), "the line stays: {shown:?}");
    let piped = node.sh(&format!("{compile} 2>&1"))?;
    ensure!(piped.starts_with("theirs: compiled for"), "{piped:?}");
    Ok(())
}

#[test]
fn help_says_all_that_a_verb_prints_or_restores() -> Result<()> {
    let node = Node::new()?;
    let states =
        ["ok", "stuck", "incomplete", "replaced", "container gone", "previous boot", "drift", "damaged", "held"];
    let rules = [
        "masquerading",
        "spoofing protection",
        "forwards of ports",
        "127.0.0.0/8",
        "firewalld",
        "isolation of bridges",
        "limits of rates",
    ];
    let garbage =
        ["DEL of the whole list", "port mappings", "`ifb` links", "held", "route_localnet", "delegates_in", "notes"];
    let dhcp = ["serve", "DHCP"];
    let found = [("ls", &states[..]), ("reapply", &rules[..]), ("gc", &garbage[..]), ("dhcp", &dhcp[..])];
    for (verb, words) in found {
        let help = flat(&postern(&node, &[verb, "--help"])?.stdout);
        for word in words {
            ensure!(help.contains(word), "{verb} --help lacks \"{word}\": {help}");
        }
    }
    Ok(())
}

#[test]
fn whatever_is_printed_fits_a_terminal() -> Result<()> {
    let node = node()?;
    // Deletes a host end, so that doctor and show have a finding.
    node.sh("ip link delete $(ip -o link | sed -n 's/.*: \\(veth[0-9a-f]*\\)@.*/\\1/p' | head -1)")?;
    let wasm = format!("{}/postern.d/none.wasm", plugin_bin()?.display());
    for arguments in [
        &["ls"][..],
        &["show", CONTAINERS[0]],
        &["show", CONTAINERS[1]],
        &["show", "2f5a"],
        &["show", "nobody"],
        &["doctor", "--conf-dir", "/run/net.d"],
        &["log"],
        &["log", "--container", "nobody"],
        &["plan", "/run/net.d/10-net.conf"],
        &["net", "validate", "/run/net.d/10-net.conf"],
        &["net", "validate", "nothing"],
        &["net", "schema", "nothing"],
        &["inspect", "bridge"],
        &["inspect", "bridge", "--network", "/run/net.d/10-net.conf"],
        &["inspect", "nothing"],
        &["inspect", &wasm],
        &["gc"],
        &["gc", "--native"],
        &["gc", "--node"],
        &["reapply", "--dry-run"],
        &["reapply"],
    ] {
        let printed = postern(&node, arguments)?;
        let mut command = false;
        for line in printed.stdout.lines().chain(printed.stderr.lines()) {
            ensure!(!line.contains('\u{1b}') && !line.contains("backtrace"), "{arguments:?}: {line}");
            // Three texts can't be broken: a single word, a line of JSON, and a command for copying.
            let unbreakable = line.trim().split(' ').count() == 1 || line.trim_start().starts_with('"') || command;
            ensure!(line.chars().count() <= 80 || unbreakable, "{arguments:?}: {line}");
            command = line.contains("remedy");
        }
    }
    Ok(())
}

#[test]
fn no_two_containers_look_the_same() -> Result<()> {
    let node = node()?;
    let table = postern(&node, &["ls"])?.stdout;
    for container in CONTAINERS {
        let shown = container.get(..17).context("a short ID")?;
        ensure!(table.contains(&format!("{shown} ")) && !table.contains(container), "{table}");
    }
    let whole = postern(&node, &["ls", "--no-trunc"])?.stdout;
    for part in [CONTAINERS[0], CONTAINERS[1], NETWORK, "fd00:1234:5678:9abc::2/64", "bridge@", " UTC)"] {
        ensure!(whole.contains(part), "not {part}: {whole}");
    }
    ensure!(!whole.contains('…'), "{whole}");
    Ok(())
}

#[test]
fn everything_has_a_form_for_scripts() -> Result<()> {
    let node = node()?;
    for arguments in [
        &["ls", "--json"][..],
        &["show", CONTAINERS[0], "--json"],
        &["doctor", "--json", "--conf-dir", "/run/net.d"],
        &["plan", "/run/net.d/10-net.conf", "--json"],
        &["net", "validate", "/run/net.d/10-net.conf", "--file-only", "--json"],
        &["net", "schema", "bridge"],
        &["inspect", "bridge", "--json"],
        &["inspect", "--diff", "bridge", "bridge", "--json"],
        &["learn", "static", "--network", "/run/static.conf", "--json"],
        &["gc", "--json"],
        &["gc", "--native", "--json"],
        &["gc", "--node", "--json"],
        &["reapply", "--json"],
    ] {
        let ipam = json!({"type": "static", "addresses": [{"address": "10.7.0.2/24"}]});
        let network = json!({"cniVersion": "1.0.0", "name": "s", "type": "static", "ipam": ipam});
        node.sh(&format!("echo '{network}' > /run/static.conf"))?;
        let printed = postern(&node, arguments)?;
        printed.json().with_context(|| format!("{arguments:?}"))?;
    }
    let log = postern(&node, &["log", "--json"])?.stdout;
    ensure!(log.lines().count() > 10 && log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{log}");
    Ok(())
}

#[test]
fn who_is_not_there_is_an_error() -> Result<()> {
    let node = node()?;
    for (arguments, status, words) in [
        (&["show", "nobody"][..], 1, "no container \"nobody\""),
        (&["show", "2f5a"], 1, "is the beginning of 2 containers"),
        (&["log", "--container", "nobody"], 1, "no line of container \"nobody\""),
        (&["log", "--container", "2f5a"], 1, "is the beginning of 2 containers"),
        (&["log", "--since", "yesterday"], 2, "an age (10m"),
        (&["inspect", "nothing"], 1, "nothing"),
        (&["learn", "nothing", "--network", "/run/net.d/10-net.conf"], 1, "nothing"),
        (&["plan", "/run/net.d/10-net.conf", "--plugin", "nothing"], 1, "no plugin \"nothing\""),
        (&["plan", "/run/net.d/none.conf"], 1, "none.conf"),
        (&["net", "validate", "/run/net.d/none.conf"], 1, "none.conf"),
        (&["net", "validate", "none", "--conf-dir", "/run/net.d"], 1, "no network \"none\""),
        (&["net", "schema", "brige"], 1, "\"bridge\" may be meant"),
        (&["net", "add", "none", "/run/netns/none", "--separate"], 2, "each plugin has a process of its own"),
    ] {
        let printed = postern(&node, arguments)?;
        let err = flat(&printed.stderr);
        ensure!(printed.status == status && err.contains(words), "{arguments:?}: {} {err}", printed.status);
    }
    let own = postern(&node, &["log", "--container", CONTAINERS[0]])?;
    ensure!(own.status == 0 && !own.stdout.contains(CONTAINERS[1]), "{}", own.stdout);
    Ok(())
}

#[test]
fn the_log_by_time_and_number_and_as_it_grows() -> Result<()> {
    let network = attached()?;
    let node = &network.node;
    let lines = |arguments: &[&str]| -> Result<Vec<String>> {
        let printed = postern(node, &[&["log", "--json"], arguments].concat())?;
        ensure!(printed.status == 0, "{arguments:?}: {}", printed.stderr);
        Ok(printed.stdout.lines().map(str::to_owned).collect())
    };
    let all = lines(&[])?;
    ensure!(lines(&["-n", "3"])? == all.get(all.len() - 3..).unwrap_or_default());
    ensure!(lines(&["--since", "1h"])? == all && lines(&["--since", "2020-01-01 00:00:00"])? == all);
    ensure!(lines(&["--since", "2999-01-01 00:00:00"])?.is_empty());

    let mut follow = node.command(plugin_bin()?.join("postern"));
    follow.args(["log", "--json", "-n", "1", "--follow"]).stdout(Stdio::piped());
    let mut follower = follow.spawn()?;
    let mut followed = BufReader::new(follower.stdout.take().context("stdout")?).lines();
    ensure!(followed.next().transpose()?.as_ref() == all.last());
    network.call("DEL", CONTAINERS[0])?.success()?;
    let next = followed.next().transpose()?.context("the follower printed no further line")?;
    // `timeout` started the follower and passes SIGTERM on. It could not pass SIGKILL on.
    ensure!(Command::new("kill").arg(follower.id().to_string()).status()?.success(), "the follower had already ended");
    follower.wait()?;
    ensure!(next.contains("\"verb\":\"DEL\"") && next.contains(CONTAINERS[0]), "{next}");
    Ok(())
}

#[test]
fn node_objects_are_shown_first() -> Result<()> {
    let network = attached()?;
    for container in CONTAINERS {
        network.call("DEL", container)?.success()?;
    }
    let node = &network.node;
    let bridge = || node.sh("ip -o link show type bridge | wc -l");
    let shown = postern(node, &["gc", "--node"])?;
    ensure!(shown.status == 0 && shown.stdout.contains("unused: bridge br9"), "{}", shown.stdout);
    ensure!(shown.stdout.contains("postern gc --node --yes") && bridge()?.trim() == "1", "{}", shown.stdout);
    let object = postern(node, &["gc", "--node", "--json"])?.json()?;
    ensure!(object["done"] == false && object["unused"][0]["name"] == "br9" && bridge()?.trim() == "1", "{object:#}");
    let removed = postern(node, &["gc", "--node", "--yes"])?;
    ensure!(removed.status == 0 && bridge()?.trim() == "0", "{}", removed.stdout);
    ensure!(removed.stdout.contains("removed bridge br9"), "{}", removed.stdout);
    ensure!(node.sh("sysctl -n net.ipv4.ip_forward")?.trim() == "1");
    postern(node, &["gc", "--node", "--forwarding", "--yes"])?;
    ensure!(node.sh("sysctl -n net.ipv4.ip_forward")?.trim() == "0");
    Ok(())
}

#[test]
fn a_list_with_a_plugin_that_is_nowhere_is_a_failed_plan() -> Result<()> {
    let node = Node::new()?;
    let mut list = json!({"cniVersion": "1.0.0", "name": NETWORK, "plugins": [bridge(), {"type": "nowhere"}]});
    let plan = |list: &Value| {
        node.sh(&format!("echo '{list}' > /run/plan.conflist"))?;
        postern(&node, &["plan", "/run/plan.conflist", "--json", "--cni-path", "/run/native:/run/none"])
    };
    let printed = plan(&list)?;
    let object = printed.json()?;
    let message = object["plugins"][1]["error"]["msg"].as_str().unwrap_or_default();
    ensure!(printed.status == 1 && message.contains("there is no plugin \"nowhere\""), "{object:#}");
    ensure!(message.contains("/run/native:/run/none"), "{message}");
    node.sh("mkdir /run/native; cp /bin/true /run/native/nowhere")?;
    ensure!(plan(&list)?.status == 0);
    list["plugins"][0]["ipam"] = json!({"type": "elsewhere"});
    let object = plan(&list)?.json()?;
    let message = object["plugins"][0]["error"]["msg"].as_str().unwrap_or_default();
    ensure!(message.contains("there is no plugin \"elsewhere\""), "{object:#}");
    Ok(())
}
