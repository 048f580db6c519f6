//! VERSION tells the versions that a component supports. The host asks a component once, when it is added. Policy can
//! narrow the versions. The host refuses a run in any other version.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{PRIVATE_ETC, Refusal, Watched, each, test_bin};
use postern_tests::{Answer, Call, Network, Node, copy_bin, flat};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const COPY: &str = "/run/copy";

const ALL: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// The placeholder in the component `claims`, which tests overwrite.
const PLACEHOLDER: &str = "print what this plugin claims";

/// The length of the placeholder.
const LENGTH: usize = 300;

/// Returns a component of the tests.
fn component(name: &str) -> Result<Vec<u8>> {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(own, PathBuf::from);
    let path = target.join(format!("wasm32-wasip2/guest/{name}.wasm"));
    std::fs::read(&path).with_context(|| format!("no {}: `tests/setup test` makes it", path.display()))
}

/// Returns a component that answers VERSION with this claim: see `tests/guests/hostile/src/bin/claims.rs`.
fn claiming(claim: &str) -> Result<Vec<u8>> {
    let mut wasm = component("claims")?;
    let at =
        wasm.windows(PLACEHOLDER.len()).position(|part| part == PLACEHOLDER.as_bytes()).context("no placeholder")?;
    ensure!(claim.len() <= LENGTH, "a long claim");
    let text = format!("{claim:LENGTH$}");
    wasm.splice(at..at + LENGTH, text.into_bytes());
    Ok(wasm)
}

fn versions(supported: &[&str]) -> String {
    format!("print {}", json!({"cniVersion": "1.1.0", "supportedVersions": supported}))
}

/// A node with a copy of the tests' CNI bin directory, and its own `/etc`.
fn place() -> Result<Watched> {
    let watched = Watched::new(&["c1"])?;
    watched.node.sh(PRIVATE_ETC)?;
    watched.node.sh(&copy_bin(&test_bin()?, COPY))?;
    Ok(watched)
}

/// Adds a component.
fn add(node: &Node, name: &str, wasm: &[u8], policy: &str) -> Result<Answer> {
    std::fs::write(node.path("/run/file.wasm"), wasm)?;
    std::fs::write(node.path("/run/policy.toml"), policy)?;
    let files = "/run/file.wasm --policy /run/policy.toml";
    node.postern_of(COPY, &format!("add {files} --json --name {name} --catalog {COPY}/postern.d --bin {COPY}"))
}

fn added(node: &Node, name: &str, wasm: &[u8], policy: &str) -> Result<Value> {
    add(node, name, wasm, policy)?.success()
}

fn call(watched: &Watched, plugin: &str, verb: &str, version: Option<&str>) -> Result<Answer> {
    let mut config = json!({"name": "net", "type": plugin});
    if let (Some(version), Some(config)) = (version, config.as_object_mut()) {
        config.insert("cniVersion".to_owned(), json!(version));
    }
    let call = Call::new(Path::new(COPY), plugin, verb, config.to_string());
    watched.node.call(&match verb {
        "VERSION" | "GC" | "STATUS" => call,
        _ => call.attachment("c1", &watched.node.netns("c1"), "eth0"),
    })
}

/// Returns the answer to VERSION.
fn supported(watched: &Watched, plugin: &str) -> Result<Value> {
    let answer: Value = call(watched, plugin, "VERSION", None)?.success()?;
    ensure!(answer.get("cniVersion") == Some(&json!("1.1.0")), "{answer}");
    Ok(answer.get("supportedVersions").cloned().unwrap_or_default())
}

/// Claims, the policy, and the words of the refusal.
const REFUSED: [(&str, &str, &str); 14] = [
    (
        r#"print {"cniVersion":"1.1.0","supportedVersions":["99.0.0"]}"#,
        "",
        "names no version that this host knows, but 99.0.0",
    ),
    ("many 10000 99.0.0", "", "bytes of JSON are more than the limit of 65536"),
    ("many 1000 1.0.0", "", "it names 1000 versions, and 64 are the most"),
    (r#"print {"cniVersion":"1.1.0","supportedVersions":["1.0.0","\u001b[2J"]}"#, "", "\\u{1b}[2J\" is no version"),
    (r#"print {"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.0.0/../../x"]}"#, "", "is no version"),
    (r#"print {"cniVersion":"1.1.0","supportedVersions":["1.0"]}"#, "", "\"1.0\" is no version"),
    (r#"print {"cniVersion":"1.1.0","supportedVersions":[1]}"#, "", "cannot unmarshal number"),
    (r#"print {"cniVersion":"1.1.0"}"#, "", "missing field supportedVersions"),
    // A nonsensical answer is refused, whatever policy says.
    ("print hello", "versions = [\"1.0.0\"]", "answer to VERSION: expected value"),
    ("print", "", "does not tell its CNI versions (VERSION): it printed nothing"),
    (r#"fail {"code":4,"msg":"unknown CNI_COMMAND: VERSION"}"#, "", "it failed: unknown CNI_COMMAND: VERSION"),
    ("spin", "[limits]\nseconds = 2", "ran past its deadline and was stopped"),
    ("call", "", "asked for link.own instead of naming its versions"),
    (
        r#"print {"cniVersion":"1.1.0","supportedVersions":["0.3.1"]}"#,
        "versions = [\"1.0.0\"]",
        "supports CNI 0.3.1, and its policy allows none of them",
    ),
];

#[test]
fn odd_claims_are_refused_and_nothing_is_placed() -> Result<()> {
    let watched = place()?;
    let node = &watched.node;
    let listing = || node.sh(&format!("find {COPY} -printf '%p %s %m %T@\\n'"));
    let before = listing()?;
    each(
        REFUSED,
        |case| case.0.to_owned(),
        |(claim, policy, words)| {
            let Answer { status, stdout, stderr } = add(node, "claims", &claiming(claim)?, policy)?;
            ensure!(status != 0 && stdout.is_empty(), "the component was added: {stdout}");
            ensure!(flat(&stderr).contains(words), "not \"{words}\": {stderr}");
            ensure!(!stderr.contains('\u{1b}') && stderr.len() < 2000, "{stderr:?}");
            let after = listing()?;
            ensure!(before == after, "a refused component left a file:\n{before}{after}");
            Ok(())
        },
    )
}

#[test]
fn a_version_that_a_component_lacks_is_refused_before_it_runs() -> Result<()> {
    let mut watched = place()?;
    // The newest version in the claim is for future hosts.
    let claim = versions(&["99.0.0", "0.4.0", "0.3.1", "0.4.0"]);
    let report = added(&watched.node, "claims", &claiming(&claim)?, "")?;
    ensure!(report.get("versions") == Some(&json!(["0.3.1", "0.4.0"])), "{report}");
    ensure!(report.get("unknown_versions") == Some(&json!(["99.0.0"])), "{report}");
    added(&watched.node, "narrow", &component("narrow")?, "")?;
    watched.look()?;
    for (plugin, ran) in [("claims", 100), ("narrow", 999)] {
        ensure!(supported(&watched, plugin)? == json!(["0.3.1", "0.4.0"]), "{plugin}");
        for version in ALL.into_iter().map(Some).chain([None, Some(""), Some("99.0.0"), Some("1.0"), Some("v0.4.0")]) {
            let has = matches!(version, Some("0.3.1" | "0.4.0"));
            for verb in ["ADD", "DEL"] {
                let refusal = Refusal::of(&call(&watched, plugin, verb, version)?)?;
                let words = if has {
                    "it ran"
                } else {
                    "incompatible CNI versions; config is…plugin supports [\"0.3.1\" \"0.4.0\"]"
                };
                refusal
                    .expect(if has { ran } else { 1 }, words)
                    .with_context(|| format!("{plugin} {verb} {version:?}"))?;
            }
        }
        let refused = |verb: &str, version: &str, words: &str| {
            Refusal::of(&call(&watched, plugin, verb, Some(version))?)?.expect(1, words)
        };
        refused("CHECK", "0.3.1", "config version does not allow CHECK")?;
        refused("CHECK", "1.0.0", "plugin version does not allow CHECK")?;
        refused("GC", "0.4.0", "config version does not allow GC")?;
        refused("GC", "1.1.0", "plugin version does not allow GC")?;
        refused("STATUS", "1.1.0", "plugin version does not allow STATUS")?;
        Refusal::of(&call(&watched, plugin, "CHECK", Some("0.4.0"))?)?.expect(ran, "it ran")?;
    }
    watched.unchanged()
}

#[test]
fn policy_narrows_what_a_component_supports() -> Result<()> {
    let watched = place()?;
    let node = &watched.node;
    added(
        node,
        "claims",
        &claiming(&versions(&["0.3.1", "0.4.0", "1.0.0"]))?,
        "versions = [\"0.4.0\", \"1.0.0\", \"1.1.0\"]",
    )?;
    ensure!(supported(&watched, "claims")? == json!(["0.4.0", "1.0.0"]), "the shipped policy");
    // The operator's list replaces the shipped list. It can't allow a version that the component lacks.
    node.sh("printf 'versions = [\"0.3.1\", \"1.1.0\"]' > /etc/postern/policy/claims.toml")?;
    ensure!(supported(&watched, "claims")? == json!(["0.3.1"]), "the operator's policy");
    for (version, code) in [("0.3.1", 100), ("0.4.0", 1), ("1.0.0", 1), ("1.1.0", 1)] {
        Refusal::of(&call(&watched, "claims", "ADD", Some(version))?)?.expect(code, "")?;
    }
    // DEL uses the version that made the attachment, but never a version that the component lacks.
    Refusal::of(&call(&watched, "claims", "DEL", Some("1.0.0"))?)?.expect(100, "it ran")?;
    Refusal::of(&call(&watched, "claims", "DEL", Some("1.1.0"))?)?.expect(1, "incompatible CNI versions")?;
    // The log has the refusal by policy.
    let log = node.postern_of(COPY, "log --container c1 --json")?;
    let log = log.printed()?;
    ensure!(log.contains("plugin.start") && log.contains("incompatible CNI versions"), "{log}");

    // The status is 3 if policy and imports disagree.
    let inspected = node.postern_of(COPY, "inspect claims --json")?;
    let report = inspected.json()?;
    ensure!(matches!(inspected.status, 0 | 3), "{inspected:?}");
    ensure!(report.get("component_versions") == Some(&json!(["0.3.1", "0.4.0", "1.0.0"])), "{report}");
    ensure!(report.get("versions") == Some(&json!(["0.3.1", "1.1.0"])), "{report}");

    let list = |version: &str, plugin: &str| {
        let list = json!({"cniVersion": version, "name": "net", "plugins": [{"type": plugin}]});
        node.sh(&format!("mkdir -p /etc/cni/net.d; echo '{list}' > /etc/cni/net.d/net.conflist"))?;
        Ok::<_, anyhow::Error>(flat(&node.postern_of(COPY, &format!("doctor --bin {COPY}"))?.stdout))
    };
    let found = list("1.0.0", "claims")?;
    ensure!(found.contains("the policy of \"claims\" does not allow CNI version 1.0.0 of this network"), "{found}");
    let found = list("1.1.0", "claims")?;
    ensure!(found.contains("\"claims\" does not support CNI version 1.1.0 of this network"), "{found}");
    ensure!(found.contains("a `cniVersion` that the plugin supports (0.3.1)"), "{found}");
    let found = list("0.3.1", "claims")?;
    ensure!(!found.contains("of this network"), "{found}");
    Ok(())
}

/// Returns a shipped plugin's component, as if built against another patch version of `postern:cni`. Nothing else
/// differs.
fn of_patch(plugin: &str, patch: u8) -> Result<Vec<u8>> {
    let mut wasm = component(&format!("postern-{plugin}"))?;
    let (package, version) = (b"postern:cni/", b"@0.1.");
    let mut at = 0;
    while let Some(found) = wasm.iter().skip(at).position(|byte| *byte == b'p').map(|next| at + next) {
        at = found + 1;
        let rest = wasm.get(found..).unwrap_or_default();
        if !rest.starts_with(package) {
            continue;
        }
        // The interface's name has letters and hyphens.
        let name =
            rest.iter().skip(package.len()).take_while(|byte| byte.is_ascii_lowercase() || **byte == b'-').count();
        let end = found + package.len() + name;
        if wasm.get(end..).is_some_and(|rest| rest.starts_with(version)) {
            *wasm.get_mut(end + version.len()).context("a version ends")? = b'0' + patch;
        }
    }
    Ok(wasm)
}

/// A network of ptp with a fixed address.
fn routed(watched: &Watched, version: &str) -> Result<Network> {
    let ipam = json!({"type": "static", "addresses": [{"address": "10.9.0.5/24", "gateway": "10.9.0.1"}]});
    Ok(Network::new(&watched.node, &json!({"cniVersion": version, "type": "ptp", "ipam": ipam}))?.by(Path::new(COPY)))
}

/// A plugin that was built before the newest functions existed runs unchanged, with its old policy.
#[test]
fn a_component_of_an_older_patch_version_runs_unchanged() -> Result<()> {
    let mut watched = place()?;
    let policy = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../guests/ptp/policy.toml"))?;
    let network = routed(&watched, "1.0.0")?;
    // The first attachment of a node turns forwarding on, before the comparison begins.
    network.add("c1")?.del()?;

    added(&watched.node, "ptp", &of_patch("ptp", 0)?, &policy)?;
    watched.look()?;
    let node = &watched.node;
    let manifest = node.sh(&format!("cat {COPY}/postern.d/ptp.json"))?;
    ensure!(manifest.contains("postern:cni/veth@0.1.0#create") && !manifest.contains("@0.1.1"), "{manifest}");
    let attachment = network.add("c1")?;
    ensure!(attachment.addresses() == ["10.9.0.5/24"], "{}", attachment.result);
    for verb in ["CHECK", "DEL"] {
        let answer = network.call_at(0, verb, "c1", &json!({"prevResult": attachment.result}))?;
        ensure!(answer.status == 0 && answer.stdout.is_empty(), "{verb}: {answer:?}");
    }
    watched.unchanged()?;

    // A rebuilt component can do nothing more: `inspect` compares functions without their versions.
    let node = &watched.node;
    std::fs::write(node.path("/run/file.wasm"), component("postern-ptp")?)?;
    let difference = node.postern_of(COPY, "inspect --diff ptp /run/file.wasm --json")?.success()?;
    ensure!(difference.get("no_more") == Some(&json!(true)), "{difference}");
    for functions in ["added", "removed"] {
        ensure!(difference.get(functions) == Some(&json!({})), "{functions}: {difference}");
    }

    // A newer component may need functions that this host lacks.
    let Answer { status, stderr, .. } = add(node, "newer", &of_patch("ptp", 9)?, &policy)?;
    ensure!(status != 0, "the component was added");
    let words = flat(&stderr);
    ensure!(words.contains("@0.1.9, but this host has postern:cni@0.1."), "{stderr}");
    ensure!(words.contains(": update Postern, or build the plugin for 0.1."), "{stderr}");
    Ok(())
}

#[test]
fn a_delegate_is_held_to_its_versions() -> Result<()> {
    let mut watched = place()?;
    let (older, newer) = (routed(&watched, "1.0.0")?, routed(&watched, "1.1.0")?);
    // The first attachment of a node turns forwarding on, before the comparison begins.
    older.add("c1")?;
    older.call("DEL", "c1")?.success()?;
    watched.node.sh("printf 'versions = [\"1.1.0\"]' > /etc/postern/policy/static.toml")?;
    watched.look()?;
    Refusal::of(&older.call("ADD", "c1")?)?
        .expect(1, "incompatible CNI versions; config is \"1.0.0\", plugin supports [\"1.1.0\"]")?;
    newer.add("c1")?;
    older.call("DEL", "c1")?.success()?;
    watched.unchanged()
}

#[test]
fn installations_of_before_are_as_before() -> Result<()> {
    let watched = place()?;
    let node = &watched.node;
    added(node, "claims", &claiming(&versions(&["0.4.0"]))?, "versions = [\"0.4.0\", \"1.0.0\"]")?;
    ensure!(supported(&watched, "claims")? == json!(["0.4.0"]), "now");
    // A manifest without versions: only policy tells the versions.
    let manifest = node.path(Path::new(COPY).join("postern.d/claims.json"));
    let mut old: Value = serde_json::from_str(&std::fs::read_to_string(&manifest)?)?;
    ensure!(old.as_object_mut().and_then(|keys| keys.remove("versions")) == Some(json!(["0.4.0"])), "{old}");
    std::fs::write(&manifest, old.to_string())?;
    ensure!(supported(&watched, "claims")? == json!(["0.4.0", "1.0.0"]), "before");
    Refusal::of(&call(&watched, "claims", "ADD", Some("1.0.0"))?)?.expect(100, "it ran")?;
    std::fs::write(node.path(Path::new(COPY).join("postern.d/claims.toml")), "")?;
    ensure!(
        supported(&watched, "claims")? == json!(ALL),
        "before versions were recorded, without a list in the policy"
    );
    // If a component names no versions, its policy must name them.
    let report = added(node, "claims", &claiming("print")?, "versions = [\"1.0.0\"]")?;
    ensure!(report.get("versions") == Some(&json!(["1.0.0"])), "{report}");
    ensure!(supported(&watched, "claims")? == json!(["1.0.0"]), "by policy");
    Ok(())
}

#[test]
fn version_runs_no_guest() -> Result<()> {
    let watched = place()?;
    added(&watched.node, "claims", &claiming(&versions(&["0.4.0"]))?, "")?;
    // VERSION still works although the plugin's code can't be run any more.
    watched.node.sh(&format!("echo > {COPY}/postern.d/claims.cwasm"))?;
    ensure!(supported(&watched, "claims")? == json!(["0.4.0"]), "VERSION");
    Refusal::of(&call(&watched, "claims", "ADD", Some("0.4.0"))?)?
        .expect(999, "the code of plugin \"claims\" is not whole")?;
    let about = Call::new(Path::new(COPY), "claims", "ADD", "").without("CNI_COMMAND");
    let about = watched.node.call(&about)?;
    ensure!(about.stderr.contains("CNI protocol versions supported: 0.4.0\n"), "{about:?}");
    // Without the manifest, the host does not know the supported versions.
    watched.node.sh(&format!("rm {COPY}/postern.d/claims.json"))?;
    Refusal::of(&call(&watched, "claims", "VERSION", None)?)?.expect(999, "claims.json is missing")
}

/// Returns the first line that a plugin prints without CNI_COMMAND.
fn about(watched: &Watched, plugin: &str) -> Result<String> {
    let answer = watched.node.call(&Call::new(Path::new(COPY), plugin, "ADD", "").without("CNI_COMMAND"))?;
    ensure!(answer.status == 0 && answer.stdout.is_empty(), "{answer:?}");
    Ok(answer.stderr.lines().next().unwrap_or_default().to_owned())
}

/// Returns a component with an additional custom section, in the form that `wasm-tools metadata add --version` writes.
fn with_version(mut wasm: Vec<u8>, version: &str) -> Result<Vec<u8>> {
    let name = "version";
    let length = u8::try_from(1 + name.len() + version.len()).ok().filter(|length| *length < 128);
    wasm.extend([0, length.context("a long section")?, u8::try_from(name.len())?]);
    wasm.extend(name.bytes().chain(version.bytes()));
    Ok(wasm)
}

#[test]
fn a_plugin_of_another_vendor_says_its_own_version() -> Result<()> {
    let watched = place()?;
    let node = &watched.node;
    let wasm = claiming(&versions(&["1.0.0"]))?;
    // A foreign plugin reports its own version, even under the name of a plugin of Postern. The SDK has put the version
    // into the program.
    ensure!(about(&watched, "bridge")?.starts_with("CNI bridge plugin v1.9.1+postern."), "before");
    let report = added(node, "bridge", &wasm, "")?;
    ensure!(report.get("version") == Some(&json!("0.3.7-claims")), "{report}");
    ensure!(about(&watched, "bridge")? == "CNI bridge plugin v0.3.7-claims");
    for (arguments, line) in
        [("inspect bridge --json", r#""version": "0.3.7-claims""#), ("inspect bridge", "  version 0.3.7-claims\n")]
    {
        let inspected = node.postern_of(COPY, arguments)?.stdout;
        ensure!(inspected.contains(line), "{inspected}");
    }
    // A version section that a tool adds to the whole component has priority.
    for (said, printed) in [("2.0.1", "v2.0.1"), ("v2.0.2+linux.7", "v2.0.2+linux.7")] {
        added(node, "bridge", &with_version(wasm.clone(), said)?, "")?;
        ensure!(about(&watched, "bridge")? == format!("CNI bridge plugin {printed}"), "{said}");
    }
    // Versions that no program understands, and versions that only Postern's plugins may have, are left out. `postern
    // add` says so.
    for said in
        ["1.9.1+postern.0.1.0", "v1.9.1+postern", "2.0", "latest", "2.0.1\u{1b}[2J", "2.0.1 or later", "\n2.0.1"]
    {
        let Answer { status, stderr, .. } = add(node, "bridge", &with_version(wasm.clone(), said)?, "")?;
        ensure!(status == 0 && !stderr.contains('\u{1b}'), "{said:?}: {stderr}");
        let is_empty = said.starts_with('\n');
        ensure!(
            is_empty || flat(&stderr).contains("programs that ask for a version read \"version unknown\""),
            "{stderr}"
        );
        ensure!(about(&watched, "bridge")? == "CNI bridge plugin version unknown", "{said:?}");
    }
    Ok(())
}

#[test]
fn a_plugin_that_came_with_postern_is_no_other_when_it_is_added_again() -> Result<()> {
    let watched = place()?;
    let own = component("postern-static")?;
    let (before, policy) = (about(&watched, "static")?, watched.node.sh(&format!("cat {COPY}/postern.d/static.toml"))?);
    ensure!(before.starts_with("CNI static plugin v1.9.1+postern."), "{before}");
    added(&watched.node, "static", &own, &policy)?;
    ensure!(about(&watched, "static")? == before, "{}", about(&watched, "static")?);
    // A component with one more byte is a different component.
    added(&watched.node, "static", &[own.as_slice(), b"\0\x03\x01xy"].concat(), &policy)?;
    ensure!(about(&watched, "static")? == "CNI static plugin version unknown");
    // An earlier Postern's manifest has no version.
    let manifest = watched.node.path(Path::new(COPY).join("postern.d/ptp.json"));
    let mut old: Value = serde_json::from_str(&std::fs::read_to_string(&manifest)?)?;
    ensure!(old.as_object_mut().and_then(|keys| keys.remove("version")).is_some(), "{old}");
    std::fs::write(&manifest, old.to_string())?;
    ensure!(about(&watched, "ptp")? == "CNI ptp plugin version unknown");
    Ok(())
}
