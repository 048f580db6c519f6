//! Delegation: names that lead to other places, programs that policy does not grant, endless chains of plugins.

use crate::attack::attacked_node::AttackedNode;
use crate::attack::{honest, hostile, withstand};
use anyhow::{Result, ensure};
use postern_tests::proof::Refusal;

#[test]
fn names_that_lead_elsewhere() -> Result<()> {
    let delegate = |name, ipam: &str| {
        honest(name, "bridge", &format!(r#"{{"bridge": "hostile0", "ipam": {ipam}}}"#)).env("CNI_PATH", "/usr/bin:/bin")
    };
    withstand(&[
        delegate("a path upwards", r#"{"type": "../sh"}"#).ends(999, "invalid plugin name: ../sh"),
        delegate("an absolute path", r#"{"type": "/bin/sh"}"#).ends(999, "invalid plugin name: /bin/sh"),
        delegate("the directory itself", r#"{"type": "."}"#).ends(999, "invalid plugin name: ."),
        delegate("the directory above", r#"{"type": ".."}"#).ends(999, "invalid plugin name: .."),
        delegate("a name and a NUL", r#"{"type": "host-local\u0000sh"}"#).ends(999, "failed to find plugin"),
        delegate("a name and a newline", r#"{"type": "sh\n"}"#).ends(999, "failed to find plugin"),
        delegate("the catalog's own file", r#"{"type": "host-local.cwasm"}"#).ends(999, "failed to find plugin"),
        delegate("a hidden file", r#"{"type": ".profile"}"#).ends(999, "failed to find plugin"),
        delegate("a name of 100 KiB", &format!(r#"{{"type": "{}"}}"#, "x".repeat(100 << 10)))
            .ends(999, "failed to find plugin"),
        delegate("an object", r#"{"type": {}}"#).ends(999, "cannot unmarshal object…ipam.type of type string"),
        delegate("a list of names", r#"{"type": ["host-local"]}"#)
            .ends(999, "cannot unmarshal array…ipam.type of type string"),
        delegate("a list for an object", r#"[{"type": "host-local"}]"#).ends(999, "ipam"),
        delegate("a text for an object", r#""host-local""#).ends(999, "ipam"),
        delegate("two spellings", r#"{"Type": "sh"}"#).ends(7, "type"),
        delegate("the host itself", r#"{"type": "postern"}"#).ends(999, "failed to find plugin"),
        delegate("a program that nobody granted", r#"{"type": "sh"}"#)
            .ends(110, "policy does not allow \"bridge\" to run \"sh\" as a native program…native = [\"sh\"]"),
        delegate("a program, by a path of the runtime's upwards", r#"{"type": "sh"}"#)
            .env("CNI_PATH", "/usr/lib/../bin")
            .ends(110, "as a native program"),
    ])
}

#[test]
fn plugins_without_end() -> Result<()> {
    let ipam = |name, which: &str| hostile(name, "ipam").with(&format!(r#"{{"ipam": {{"type": "{which}"}}}}"#));
    withstand(&[
        ipam("an IPAM plugin that is not granted", "static")
            .ends(110, "policy does not allow plugin…ipam.add on \"static\"; …grant.ipam = { types = [\""),
        ipam("itself", "hostile").ends(999, "an IPAM plugin delegates to itself without end"),
        ipam("an empty name", "").ends(999, "no plugin name provided"),
        hostile("no IPAM plugin", "ipam").with(r#"{"ipam": null}"#).ends(999, "no plugin name provided"),
        honest("a main plugin for an IPAM plugin", "bridge", r#"{"bridge": "hostile0", "ipam": {"type": "ptp"}}"#)
            .ends(999, "an IPAM plugin delegates to itself without end; ipam.add ptp"),
        honest("the same plugin below itself", "ptp", r#"{"ipam": {"type": "bridge"}}"#)
            .ends(999, "an IPAM plugin delegates to itself without end; ipam.add bridge"),
        honest(
            "a failing IPAM plugin below an honest plugin",
            "bridge",
            r#"{"bridge": "hostile0", "hostile": "trap", "ipam": {"type": "hostile"}}"#,
        )
        .ends(999, "plugin \"hostile\" trapped"),
    ])
}

/// A program that would leave a trace if it ran, in directories that another user could write.
#[test]
fn programs_that_others_could_have_placed() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.prepare(
        "mkdir /run/cni /run/sticky; printf '#!/bin/sh\\ntouch /run/ran\\necho {}\\n' > /run/cni/evil
         chmod 755 /run/cni/evil; mkdir /run/cni/directory; mkfifo /run/cni/pipe; ln -s /run/cni/evil /run/cni/link",
    )?;
    let policy = "[grant.ipam]\ntypes = [\"${config.ipam.type}\"]\nnative = [\"${config.ipam.type}\"]";
    let cases = [
        (
            "a directory that others can write",
            "evil",
            "chmod 777 /run/cni",
            "chmod 755 /run/cni",
            "/run/cni can be written by others",
        ),
        (
            "a directory that a group can write",
            "evil",
            "chmod 775 /run/cni",
            "chmod 755 /run/cni",
            "/run/cni can be written by others",
        ),
        (
            "a directory above that others can write",
            "evil",
            "chmod 777 /run",
            "chmod 755 /run",
            "/run can be written by others",
        ),
        (
            "a program that others can write",
            "evil",
            "chmod 757 /run/cni/evil",
            "chmod 755 /run/cni/evil",
            "evil can be written by others",
        ),
        (
            "a link to a program that others can write",
            "link",
            "chmod 757 /run/cni/evil",
            "chmod 755 /run/cni/evil",
            "can be written by others",
        ),
        ("a directory for a program", "directory", "true", "true", "failed to find plugin \"directory\""),
        ("a pipe for a program", "pipe", "true", "true", "failed to find plugin \"pipe\""),
    ];
    crate::attack::each(
        cases,
        |case| case.0.to_owned(),
        |(name, plugin, prepare, repair, words)| {
            attacked.prepare(prepare)?;
            attacked.operator_policy("bridge", policy)?;
            attacked.look()?;
            let attack =
                honest(name, "bridge", &format!(r#"{{"bridge": "hostile0", "ipam": {{"type": "{plugin}"}}}}"#));
            let answer = attack.env("CNI_PATH", "/run/cni").call(&attacked)?;
            let unchanged = attacked.unchanged();
            attacked.operator_policy("bridge", "")?;
            attacked.prepare(repair)?;
            let refusal = Refusal::of(&answer)?;
            ensure!(refusal.text.contains(words), "not \"{words}\": {}", refusal.text);
            unchanged
        },
    )
}
