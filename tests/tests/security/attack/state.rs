//! State directories, records and logs that another user could write, or has replaced.

use crate::attack::attacked_node::{AttackedNode, good};
use anyhow::{Result, ensure};
use postern_tests::proof::Refusal;

/// The change to the node, the script that repairs the node, and the words of the refusal.
const PLACES: [(&str, &str, &str); 8] = [
    ("chmod 777 /run/postern", "chmod 700 /run/postern", "/run/postern can be written by others"),
    ("chmod 770 /run/postern", "chmod 700 /run/postern", "/run/postern can be written by others"),
    ("chmod 777 /run", "chmod 755 /run", "/run can be written by others"),
    (
        "mkdir -m 777 /run/open; mv /run/postern /run/open/state; ln -s /run/open/state /run/postern",
        "rm /run/postern; mv /run/open/state /run/postern; rmdir /run/open",
        "/run/open can be written by others",
    ),
    ("chmod 777 /var/lib/postern", "chmod 700 /var/lib/postern", "/var/lib/postern can be written by others"),
    ("chmod 777 /var/log/postern", "chmod 700 /var/log/postern", "/var/log/postern can be written by others"),
    (
        "mv /var/log/postern /var/log/kept; ln -s /var/log/kept /var/log/postern",
        "rm /var/log/postern; mv /var/log/kept /var/log/postern",
        "/var/log/postern: ",
    ),
    ("chmod 777 /etc/postern/policy", "chmod 755 /etc/postern/policy", "/etc/postern/policy can be written by others"),
];

#[test]
fn places_that_others_could_write() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.operator_policy("hostile", "[limits]\nseconds = 10")?;
    crate::attack::each(
        PLACES,
        |case| case.0.to_owned(),
        |(prepare, mend, words)| {
            attacked.prepare(prepare)?;
            let answer = attacked.plugin("hostile", "ADD", &good())?;
            let unchanged = attacked.unchanged();
            attacked.node().sh(mend)?;
            attacked.plugin("hostile", "DEL", &good())?.success()?;
            attacked.look()?;
            Refusal::of(&answer)?.expect(999, words)?;
            unchanged
        },
    )
}

/// Another object has the name of the attachment's record.
#[test]
fn records_that_others_prepared() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    attacked.plugin("hostile", "ADD", &good())?.success()?;
    let path = attacked.node().sh("grep -l '\"container_id\":\"c1\"' /run/postern/attachments/*")?.trim().to_owned();
    attacked.plugin("hostile", "DEL", &good())?.success()?;
    attacked.unchanged()?;
    let prepared = [
        ("a link to a file", format!("ln -s /etc/operator/shadow {path}"), true),
        ("a link to nothing", format!("ln -s /etc/operator/new {path}"), true),
        ("a directory", format!("mkdir {path}"), true),
        ("a pipe", format!("mkfifo {path}"), true),
        ("garbage", format!("head -c 3000 /dev/urandom > {path}"), true),
        ("nothing", format!(": > {path}"), true),
        ("a megabyte of brackets", format!("head -c 1000000 /dev/zero | tr '\\0' '[' > {path}"), true),
        ("another version", format!("echo '{{\"version\": 99, \"writer\": \"postern 9\"}}' > {path}"), false),
        (
            "the bystander's record",
            format!("cp $(grep -l '\"container_id\":\"c2\"' /run/postern/attachments/*) {path}"),
            true,
        ),
    ];
    crate::attack::each(
        prepared,
        |case| case.0.to_owned(),
        |(name, prepare, usable)| {
            attacked.prepare(prepare)?;
            let answer = attacked.plugin("hostile", "ADD", &good())?;
            if *usable {
                // The host sets the object aside, and a message reports this.
                let deleted = attacked.plugin("hostile", "DEL", &good())?;
                attacked.node().sh(&format!("rm -rf {path}*"))?;
                answer.success()?;
                deleted.success()?;
                // The host neither follows a link nor writes through it.
                attacked.node().sh("[ \"$(cat /etc/operator/shadow)\" = secret ]; [ ! -e /etc/operator/new ]")?;
                // A run that was killed at once also leaves an empty record, so no message is needed.
                ensure!(
                    *name == "nothing" || answer.stderr.contains("postern: "),
                    "no message about the object: {answer:?}"
                );
            } else {
                let unchanged = attacked.unchanged();
                attacked.node().sh(&format!("rm -rf {path}*"))?;
                let refusal = Refusal::of(&answer)?;
                ensure!(refusal.text.contains(&path), "{refusal:?}");
                unchanged?;
            }
            attacked.same()?;
            attacked.look()
        },
    )
}

/// If another object has the log's name, the host does not write through it or wait for it.
#[test]
fn logs_that_others_prepared() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    let log = "/var/log/postern/audit.jsonl";
    let prepared = [
        ("a link to a file", format!("ln -s /etc/operator/shadow {log}")),
        ("a link to nothing", format!("ln -s /etc/operator/new {log}")),
        ("a hard link to a file", format!("ln /var/log/secret {log}")),
        ("a pipe", format!("mkfifo {log}")),
        ("a directory", format!("mkdir {log}")),
    ];
    attacked.prepare("echo secret > /var/log/secret; chmod 600 /var/log/secret")?;
    crate::attack::each(
        prepared,
        |case| case.0.to_owned(),
        |(name, prepare)| {
            attacked.prepare(&format!("rm -rf {log}; {prepare}"))?;
            let answer = attacked.plugin("hostile", "ADD", &good())?;
            let deleted = attacked.plugin("hostile", "DEL", &good())?;
            ensure!(answer.status != 124, "the run waited for the log until timeout(1) ended it");
            // A hard link in root's directory belongs to root. No other user can have made it.
            let unchanged = if *name == "a hard link to a file" { Ok(()) } else { attacked.unchanged() };
            attacked.prepare(&format!("rm -rf {log}"))?;
            deleted.success()?;
            unchanged
        },
    )
}

/// An attacker who controls a gate can write to records, which later runs use. The harm is limited.
#[test]
fn records_that_were_tampered_with() -> Result<()> {
    let mut attacked = AttackedNode::new()?;
    crate::attack::each(
        [
            // No plugin can have such a name, so DEL has no plugin to run again.
            ("a program by path", r#"{"effect":"native","plugin":"../../../../bin/sh"}"#, ""),
            ("an absolute program", r#"{"effect":"native","plugin":"/bin/sh"}"#, ""),
            ("a program that is nowhere", r#"{"effect":"native","plugin":"sh"}"#, "failed to find plugin \"sh\""),
            ("somebody else's link", r#"{"effect":"veth","host":"op0","mac":"02:00:00:00:00:01"}"#, ""),
        ],
        |case| case.0.to_owned(),
        |(_, effect, words)| {
            attacked.plugin("hostile", "ADD", &good())?.success()?;
            let own = "$(grep -l '\"container_id\":\"c1\"' /run/postern/attachments/*)";
            attacked
                .node()
                .sh(&format!("echo '{{\"seq\":99,\"plugin\":\"hostile\",\"effect\":{effect}}}' >> {own}"))?;
            let answer = attacked.plugin("hostile", "DEL", &good())?;
            if words.is_empty() {
                answer.success()?;
            } else {
                crate::attack::Refusal::of(&answer)?.expect(999, words)?;
                attacked.node().sh(&format!("sed -i /seq.:99/d {own}"))?;
                attacked.plugin("hostile", "DEL", &good())?.success()?;
            }
            attacked.unchanged()
        },
    )
}
