//! The output of `postern inspect`, for reviewers and their scripts.

use anyhow::{Context, Result, ensure};
use postern_tests::{flat, plugin_bin};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// Returns the exit status and standard output of `postern inspect`, or standard error if the output is empty.
fn inspect(arguments: &[&str]) -> Result<(i32, String)> {
    let output = Command::new(plugin_bin()?.join("postern")).arg("inspect").args(arguments).output()?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok((output.status.code().unwrap_or(-1), String::from_utf8(text)?))
}

fn source(path: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path).display().to_string()
}

fn hostile() -> Result<String> {
    let path = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| source("target"));
    let path = PathBuf::from(path).join("wasm32-wasip2/guest/postern-hostile.wasm");
    ensure!(path.is_file(), "no {}: `tests/setup test` makes it", path.display());
    Ok(path.display().to_string())
}

/// The required and the forbidden statements about each plugin.
const PLUGINS: [(&str, &[&str], &[&str]); 7] = [
    (
        "bridge",
        &[
            "create one veth pair at a time between this container and the host",
            "attach its own end of the pair, and no other link, to the bridge that the network's `bridge` names (else `cni0`)",
            "join that bridge in the VLAN that the network's `vlan` names only",
            "set that bridge promiscuous, where the network's `promiscMode` says so",
            "masquerade its own addresses, and no others",
            "have the node's IP forwarding switched on (never off)",
            "run the IPAM plugin that the network's `ipam.type` names, sandboxed under its own policy",
            "always: only for the attachment of its call",
            "it cannot: route addresses on the host; take leases; read a resolver file; touch lo",
            "policy and imports agree",
        ],
        &["WITH ALL OF THE HOST'S PRIVILEGES", "DISAGREE"],
    ),
    (
        "ptp",
        &["have the host route its own addresses, and no others", "it cannot: touch a bridge; filter frames"],
        &["DISAGREE"],
    ),
    (
        "macvlan",
        &[
            "look at the link that the network's `master` names (else the link of the default route), to stack its own link on",
            "make its own link as a macvlan on a link that it may stack on, in the mode that the network's `mode` names",
        ],
        &["DISAGREE", "veth pair"],
    ),
    (
        "host-device",
        &[
            "move the link that the network's `device` names",
            "from this node into the container, away from the node",
            "move its device back to this node, as it was before",
        ],
        &["DISAGREE", "even if", "veth pair"],
    ),
    (
        "host-local",
        &[
            "take leases of this network in the directory that the network's `ipam.dataDir` names (else `/var/lib/cni/networks`)",
            "for this attachment only, out of",
            "every range that the network's `ipam.ranges` names",
            "read the name servers (never the text) of the resolver file that the network's `ipam.resolvConf` names",
        ],
        &["DISAGREE", "veth pair"],
    ),
    ("loopback", &["set lo of the container up"], &["DISAGREE", "veth"]),
    ("static", &["no capability: it can only compute", "hand out without a lease"], &["DISAGREE"]),
];

#[test]
fn every_plugin_agrees_with_its_policy() -> Result<()> {
    for (plugin, told, untold) in PLUGINS {
        let (status, text) = inspect(&[plugin])?;
        ensure!(status == 0, "{plugin}: status {status}: {text}");
        for words in told {
            ensure!(flat(&text).contains(words), "{plugin}: not \"{words}\":\n{text}");
        }
        for words in untold {
            ensure!(!flat(&text).contains(words), "{plugin}: \"{words}\":\n{text}");
        }
    }
    Ok(())
}

#[test]
fn a_network_fills_the_values_in() -> Result<()> {
    let list = "/run/inspect.conflist";
    std::fs::write(
        list,
        r#"{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"portmap"},
            {"type":"bridge","bridge":"br7","vlan":12,"ipam":{"type":"host-local"}}]}"#,
    )?;
    let (status, text) = inspect(&["bridge", "--network", list])?;
    ensure!(status == 0, "{text}");
    for words in ["to bridge `br7`", "join that bridge in VLAN `12` only", "run IPAM plugin `host-local`"] {
        ensure!(flat(&text).contains(words), "not \"{words}\":\n{text}");
    }
    // The network does not switch on promiscuous mode.
    ensure!(!flat(&text).contains("set that bridge promiscuous"), "{text}");
    let (status, text) = inspect(&["loopback", "--network", list])?;
    ensure!(status == 1 && flat(&text).contains("only portmap, bridge"), "{text}");
    Ok(())
}

#[test]
fn disagreement_has_a_status_of_its_own() -> Result<()> {
    let hostile = hostile()?;
    let (status, text) = inspect(&[&hostile])?;
    ensure!(status == 3, "without a policy: status {status}: {text}");
    ensure!(
        flat(&text).contains("policy: none") && flat(&text).contains("DISAGREE: imported, but granted by nothing: "),
        "{text}"
    );

    let policy = source("tests/guests/hostile/policy.toml");
    let (status, text) = inspect(&[&hostile, "--policy", &policy])?;
    ensure!(status == 3, "with its policy: status {status}: {text}");
    ensure!(
        flat(&text).contains("granted by nothing: attachments, bandwidth, delegate, device, ")
            && flat(&text).contains("create bridge `hostile0`"),
        "{text}"
    );

    let wide = "/run/wide.toml";
    std::fs::write(wide, "[grant.veth]\n[grant.ipam]\ntypes = [\"*\"]\nnative = [\"dhcp\"]\n")?;
    let (status, text) = inspect(&["bridge", "--policy", wide])?;
    ensure!(status == 3, "{text}");
    ensure!(flat(&text).contains("!! ipam: CAN RUN native program `dhcp` WITH ALL OF THE HOST'S PRIVILEGES"), "{text}");
    let (status, text) = inspect(&["loopback", "--policy", wide])?;
    ensure!(status == 3 && flat(&text).contains("granted, but no import uses it: veth, ipam"), "{text}");
    Ok(())
}

#[test]
fn a_pin_to_another_component_shows() -> Result<()> {
    let digest = |text: &str| text.split("sha256:").nth(1).and_then(|rest| rest.get(..64)).map(str::to_owned);
    let (_, text) = inspect(&["loopback"])?;
    let own = digest(&text).context("no digest")?;
    let pinned = "/run/pinned.toml";
    for (pin, status, words) in
        [(own.clone(), 0, "pinned: /run/pinned.toml"), ("0".repeat(64), 3, "PINNED TO ANOTHER COMPONENT")]
    {
        std::fs::write(pinned, format!("digest = \"sha256:{pin}\"\n[grant.loopback]\n"))?;
        let (found, text) = inspect(&["loopback", "--policy", pinned])?;
        ensure!(found == status && flat(&text).contains(words), "status {found}: {text}");
    }
    Ok(())
}

#[test]
fn errors_are_neither() -> Result<()> {
    let (status, text) = inspect(&["absent"])?;
    ensure!(status == 1 && flat(&text).contains("no plugin \"absent\" is installed"), "status {status}: {text}");
    let (status, text) = inspect(&["/run/absent.wasm"])?;
    ensure!(status == 1 && flat(&text).contains("component /run/absent.wasm"), "status {status}: {text}");
    Ok(())
}

#[test]
fn what_a_terminal_would_obey_is_escaped() -> Result<()> {
    std::fs::write("/run/odd.toml", "[grant.loopback]\n[grant.ipam]\ntypes = [\"a\\u001b[2J\\u202eb\"]\n")?;
    let (status, text) = inspect(&["loopback", "--policy", "/run/odd.toml"])?;
    ensure!(status == 3 || status == 1, "{text}");
    ensure!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{text:?}");
    Ok(())
}

#[test]
fn the_difference_of_two_components() -> Result<()> {
    let (status, text) = inspect(&["--diff", "bridge", "bridge"])?;
    ensure!(status == 0 && flat(&text).contains("can do nothing more than the old component"), "{text}");

    let (status, text) = inspect(&["--diff", "bridge", "ptp"])?;
    ensure!(status == 3, "{text}");
    for words in [
        "- imports bridge: ",
        "+ imports point-to-point: ensure",
        "have the host route its own addresses, and no others, to its own end of the pair",
    ] {
        ensure!(flat(&text).contains(words), "not \"{words}\":\n{text}");
    }
    ensure!(!flat(&text).contains("+ imports bridge"), "{text}");

    // The new component is a file, and the policy of the installed plugin `static` is applied to it.
    let (status, text) = inspect(&["--diff", "static", &hostile()?, "--json"])?;
    let report: Value = serde_json::from_str(&text)?;
    ensure!(status == 3 && report["no_more"] == false, "{text}");
    ensure!(report["gained"].as_array().is_some_and(Vec::is_empty), "static's policy grants nothing: {text}");
    ensure!(report["gained_ceiling"].as_array().is_some_and(|gained| gained.len() > 10), "{text}");
    Ok(())
}

#[test]
fn scripts_get_an_object() -> Result<()> {
    let (status, text) = inspect(&["bridge", "--json"])?;
    let report: Value = serde_json::from_str(&text)?;
    ensure!(status == 0 && report["agree"] == true, "{text}");
    ensure!(report["digest"].as_str().is_some_and(|digest| digest.len() == 64), "{text}");
    let bridge = report["policy"].as_array().and_then(|all| all.iter().find(|grant| grant["capability"] == "bridge"));
    let names = bridge.map(|grant| grant["objects"]["names"][0].clone()).context("bridge")?;
    ensure!(names == "${config.bridge | cni0}" && bridge.is_some_and(|grant| grant["from"] == "shipped"), "{text}");
    ensure!(report["imports"]["authority"]["forwarding"][0] == "enable", "{text}");
    let native = report["can"].as_array().context("can")?.iter().filter(|can| can["host_privileges"] == true).count();
    ensure!(native == 0, "{text}");
    let limits = report["limits"].as_array().context("limits")?;
    ensure!(limits.iter().any(|limit| limit["name"] == "seconds" && limit["value"] == 90), "{text}");
    Ok(())
}
