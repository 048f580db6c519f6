//! The host uses these files only if no other user could have written them: compiled code, its manifest, and the
//! directories of state and log. A refused run has changed nothing.
//!
//! These tests do not cover a file that belongs to another user. A node that maps only one user can't have such a file.
//! `tests/runtimes/owner` tests this case as root.

use anyhow::{Result, ensure};
use postern_tests::proof::{Refusal, Watched, each};
use postern_tests::{Answer, Network, Node, copy_bin, flat, plugin_bin};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The copy of the installation under test, on the node.
const COPY: &str = "/mnt/bin";

/// Shell functions for changes to a manifest or a policy.
const TOOLS: &str = r#"
    sum() { sha256sum < "$1" | cut -d' ' -f1; }
    manifest() { sed -i "s/\"$2\": [^,]*/\"$2\": $3/" "$1.json"; }
    pin() { sed -i "1i digest = \"sha256:$1\"" ptp.toml; }
    digest() { sed -n 's/.*"digest": "\(.*\)".*/\1/p' "$1.json"; }
"#;

/// A node with a copy of the installation, and a network whose plugins come from this copy.
struct Installed {
    node: Node,
    watched: Watched,
    network: Network,
}

impl Installed {
    /// Makes the node, and runs this script in the catalog to change the installation.
    fn new(script: &str) -> Result<Self> {
        let watched = Watched::new(&["c1"])?;
        let node = watched.node.clone();
        node.sh(&format!("mount -t tmpfs -o mode=755 copy /mnt; {}", copy_bin(&plugin_bin()?, COPY)))?;
        // The network's plugin has many effects, and delegates to another plugin.
        let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
        let ptp =
            json!({"cniVersion": "1.0.0", "type": "ptp", "ipMasq": true, "ipMasqBackend": "nftables", "ipam": ipam});
        let network = Network::new(&node, &ptp)?.by(Path::new(COPY));
        let mut installed = Self { node, watched, network };
        installed.change(script)?;
        Ok(installed)
    }

    fn change(&mut self, script: &str) -> Result<()> {
        self.catalog(script)?;
        self.watched.look()
    }

    /// Runs a script in the catalog, with the shell functions.
    fn catalog(&self, script: &str) -> Result<String> {
        self.node.sh(&format!("cd {COPY}/postern.d; {TOOLS} {script}"))
    }

    fn call(&self, verb: &str) -> Result<Answer> {
        self.network.call(verb, "c1")
    }

    fn add_and_delete(&self) -> Result<()> {
        self.call("ADD")?.success()?;
        self.call("DEL")?.success().map(drop)
    }

    /// Makes a call, and fails if it changed anything.
    fn call_in_vain(&mut self, verb: &str) -> Result<Answer> {
        let answer = self.call(verb)?;
        self.watched.unchanged()?;
        Ok(answer)
    }

    fn refuses(&mut self, code: u64, text: &str) -> Result<()> {
        for verb in ["ADD", "CHECK"] {
            Refusal::of(&self.call_in_vain(verb)?)?.expect(code, text)?;
        }
        // The host runs none of this code for a DEL either. DEL of an attachment without objects still succeeds.
        let answer = self.call_in_vain("DEL")?;
        ensure!(answer.status == 0 && answer.stdout.is_empty(), "{answer:?}");
        for part in text.split('…') {
            ensure!(answer.stderr.contains(part), "not \"{part}\": {}", answer.stderr);
        }
        Ok(())
    }

    /// Checks that DEL is refused too. Otherwise the host would remove the objects that an attacker's records list.
    fn refuses_always(&mut self, text: &str) -> Result<()> {
        ["ADD", "CHECK", "DEL"].iter().try_for_each(|verb| Refusal::of(&self.call_in_vain(verb)?)?.expect(999, text))
    }

    fn log(&self) -> Result<String> {
        self.node.sh("cat /var/log/postern/audit.jsonl")
    }
}

/// The changes to an installation, and the messages about them.
const CODE: [(&str, &str); 19] = [
    ("chmod 777 .", "/mnt/bin/postern.d can be written by others…`chmod go-w /mnt/bin/postern.d`"),
    ("chmod 1777 .", "/mnt/bin/postern.d can be written by others than its owner (mode 1777)…`chmod go-w"),
    ("chmod 775 ..", "/mnt/bin can be written by others…`chmod go-w /mnt/bin`"),
    ("chmod 666 ptp.cwasm", "ptp.cwasm can be written by others…`chmod go-w"),
    ("chmod 620 ptp.json", "ptp.json can be written by others…`chmod go-w"),
    (
        "truncate -s -1 ptp.cwasm",
        "the code of plugin \"ptp\" is not whole: /mnt/bin/postern.d/ptp.cwasm has …`postern add",
    ),
    ("echo >> ptp.cwasm", "the code of plugin \"ptp\" is not whole: …`postern add"),
    ("cp host-local.cwasm ptp.cwasm", "the code of plugin \"ptp\" is not whole: …`postern add"),
    (
        // Both files have the same length, so only their bytes differ.
        "cp host-local.cwasm ptp.cwasm; manifest ptp size $(stat -c %s ptp.cwasm)",
        "the code of plugin \"ptp\" was changed or swapped: …ptp.cwasm has sha256 …ptp.json says …`postern add",
    ),
    (
        "for end in cwasm json; do cp host-local.$end ptp.$end; done",
        "plugin \"ptp\" has a wrong name: …ptp.cwasm was installed as \"host-local\"…`postern add",
    ),
    (
        "printf X | dd of=ptp.cwasm bs=1 seek=100000 conv=notrunc 2>/dev/null",
        "the code of plugin \"ptp\" was changed or swapped: …`postern add",
    ),
    (
        "manifest ptp engine '\"wasmtime-1\"'",
        "the code of plugin \"ptp\" was compiled for another engine: …is for \"wasmtime-1\", and this host has \"wasmtime-…`postern add",
    ),
    (
        // The code is for another engine, and the manifest hides this. The engine itself detects it.
        "sed -i s/wasmtime-48/wasmtime-47/g ptp.cwasm; manifest ptp code \"\\\"$(sum ptp.cwasm)\\\"\"",
        "plugin \"ptp\" cannot load the compiled code: …`postern add",
    ),
    ("rm ptp.json", "no plugin \"ptp\" is installed: its manifest /mnt/bin/postern.d/ptp.json is missing…`postern add"),
    ("echo '{' > ptp.json", "/mnt/bin/postern.d/ptp.json is no valid manifest: …`postern add"),
    ("rm ptp.cwasm; mkfifo ptp.cwasm", "ptp.cwasm is no regular file; …install the plugin again"),
    (
        "mkdir -m 777 /mnt/open; mv ptp.cwasm /mnt/open; ln -s /mnt/open/ptp.cwasm .",
        "/mnt/bin/postern.d/ptp.cwasm is a symbolic link…`postern add",
    ),
    (
        "mkdir -m 777 /mnt/open; mv ptp.json /mnt/open; ln -s /mnt/open/ptp.json .",
        "/mnt/bin/postern.d/ptp.json is a symbolic link…`postern add",
    ),
    (
        "mkdir -m 777 /mnt/open; cp -a . /mnt/open/postern.d; rm -r ../postern.d; ln -s /mnt/open/postern.d ..",
        "/mnt/open can be written by others…`chmod go-w /mnt/open`",
    ),
];

#[test]
fn code_that_could_be_anybodys_is_not_run() -> Result<()> {
    each(CODE, |case| case.0.to_owned(), |(script, text)| Installed::new(script)?.refuses(999, text))
}

/// Moves ptp to the operator's catalog, beside the installation.
const MOVE: &str = "added=/var/lib/postern/postern.d; mkdir -p $added; mv ptp.* $added; cd $added";

/// Changes in the operator's catalog, and the messages about them.
const ADDED: [(&str, &str); 7] = [
    ("chmod 775 .", "/var/lib/postern/postern.d can be written by others…`chmod go-w /var/lib/postern/postern.d`"),
    ("chmod 1777 .", "/var/lib/postern/postern.d can be written by others than its owner (mode 1777)"),
    ("chmod 666 ptp.cwasm", "/var/lib/postern/postern.d/ptp.cwasm can be written by others…`chmod go-w"),
    ("mv ptp.json other.json; ln -s other.json ptp.json", "/var/lib/postern/postern.d/ptp.json is a symbolic link"),
    ("echo >> ptp.cwasm", "the code of plugin \"ptp\" is not whole: /var/lib/postern/postern.d/ptp.cwasm has"),
    (
        "cp -a . /mnt/moved; cd ..; rm -r postern.d; ln -s /mnt/moved postern.d",
        "/var/lib/postern/postern.d: …it has to be a directory, and no symbolic link",
    ),
    (
        "cp -a . /mnt/moved; cd /; mount -t tmpfs -o mode=755,noexec noexec /var/lib/postern; cp -a /mnt/moved /var/lib/postern/postern.d",
        "/var/lib/postern/postern.d is on a file system that is mounted noexec…findmnt --target",
    ),
];

#[test]
fn the_operators_catalog_is_judged_like_the_first() -> Result<()> {
    let installed = Installed::new(MOVE)?;
    installed.add_and_delete()?;
    let log = installed.log()?;
    let digest = installed.node.sh("jq -r .digest /var/lib/postern/postern.d/ptp.json")?;
    ensure!(digest.len() == 65 && log.contains(digest.trim()), "the log lacks the component {digest}: {log}");
    each(
        ADDED,
        |case| case.0.to_owned(),
        |(script, text)| Installed::new(&format!("{MOVE}; {script}"))?.refuses(999, text),
    )
}

/// A plugin in the operator's catalog replaces no plugin of the installation, whatever is wrong with the installation's.
#[test]
fn the_operators_catalog_replaces_no_plugin() -> Result<()> {
    let copy = "added=/var/lib/postern/postern.d; mkdir -p $added; cp ptp.* $added; echo '[grant.nonsense]' >> $added/ptp.toml";
    let mut installed = Installed::new(copy)?;
    installed.add_and_delete()?;
    // Nor does a catalog that is refused: no run of the installation's plugins looks at it.
    installed.change("chmod 777 /var/lib/postern/postern.d")?;
    installed.add_and_delete()?;
    installed.change("chmod 755 /var/lib/postern/postern.d; rm ptp.cwasm")?;
    installed.refuses(999, "there is no plugin \"ptp\" in /mnt/bin/postern.d")
}

#[test]
fn a_delegates_code_is_held_to_the_same() -> Result<()> {
    let swap = "cp ptp.cwasm host-local.cwasm; manifest host-local size $(stat -c %s ptp.cwasm)";
    let answer = Installed::new(swap)?.call_in_vain("ADD")?;
    Refusal::of(&answer)?.expect(999, "the code of plugin \"host-local\" was changed or swapped…`postern add")
}

#[test]
fn a_change_after_verification_shows() -> Result<()> {
    let mut installed = Installed::new("")?;
    installed.node.sh("sleep 2.1")?;
    installed.add_and_delete()?;
    let notes = || installed.node.sh("ls /run/postern/verified; stat -c %a /run/postern/verified/*");
    let noted = notes()?;
    ensure!(noted.matches(".json\n").count() == 2 && noted.ends_with("600\n600\n"), "{noted}");
    installed.add_and_delete()?;
    ensure!(notes()? == noted);
    // One byte differs, but size and modification time are the same.
    installed.change(
        "cp -a ptp.cwasm /mnt/before; printf X | dd of=ptp.cwasm bs=1 seek=100000 conv=notrunc 2>/dev/null
         touch -r /mnt/before ptp.cwasm; test $(stat -c %s%Y ptp.cwasm) = $(stat -c %s%Y /mnt/before)",
    )?;
    installed.refuses(999, "the code of plugin \"ptp\" was changed or swapped")?;
    // The earlier content is accepted again.
    installed.change("cp -a /mnt/before ptp.cwasm")?;
    installed.add_and_delete()
}

#[test]
fn a_policy_can_pin_the_component() -> Result<()> {
    let mut installed = Installed::new("pin $(digest ptp)")?;
    installed.add_and_delete()?;
    // Code and manifest fit each other, but belong to another plugin.
    let swap = "for end in cwasm json; do cp host-local.$end ptp.$end; done; manifest ptp plugin '\"ptp\"'";
    installed.change(swap)?;
    let digest = installed.catalog("digest ptp; sed -n 's/.*sha256:\\(.*\\)\"/\\1/p' ptp.toml")?;
    let (given, pinned) = digest.trim().split_once('\n').unwrap_or_default();
    let text = format!(
        "plugin \"ptp\" is not the component of its policy: the policy pins sha256:{pinned}, and the plugin has \
         sha256:{given}…`postern inspect --diff OLD NEW`…postern.d/ptp.toml"
    );
    installed.refuses(999, &text)
}

/// The manifest contains the policy as `postern add` read it. A run uses this copy only if the policy's text is
/// unchanged.
#[test]
fn a_policy_that_was_changed_after_installation_is_followed() -> Result<()> {
    let mut installed = Installed::new("sed -i '1i versions = [\"0.4.0\"]' ptp.toml")?;
    Refusal::of(&installed.call("ADD")?)?.expect(1, "incompatible CNI versions")?;
    installed.change("sed -i 1d ptp.toml")?;
    installed.add_and_delete()
}

#[test]
fn a_manifest_with_a_policy_of_its_own_is_found() -> Result<()> {
    let installed =
        Installed::new("jq '.policy.tables.versions = [\"0.4.0\"]' ptp.json > /mnt/new; cat /mnt/new > ptp.json")?;
    let doctor = installed.node.postern_of(COPY, "doctor")?;
    let text = "the manifest's tables differ from the policy's tables";
    ensure!(flat(&doctor.stdout).contains(text) && doctor.status != 0, "{doctor:?}");
    Ok(())
}

/// Directories that another user has prepared before the first run of the host executable.
const PREPARED: [(&str, &str); 10] = [
    ("mkdir -m 777 /run/postern", "/run/postern can be written by others…(mode 777)…`chmod go-w /run/postern`"),
    ("mkdir -m 770 /run/postern", "/run/postern can be written by others…(mode 770)…`chmod go-w /run/postern`"),
    ("mkdir -m 1777 /run/postern", "/run/postern can be written by others…(mode 1777)…`chmod go-w /run/postern`"),
    (
        "mkdir -m 777 /mnt/open; mkdir /mnt/open/state; ln -s /mnt/open/state /run/postern",
        "/mnt/open can be written by others…`chmod go-w /mnt/open`",
    ),
    (
        "mount --options-mode ignore -o remount,ro /run",
        "may not write to /run/postern, where records are kept…set XDG_RUNTIME_DIR",
    ),
    ("chmod 777 /run", "/run can be written by others…`chmod go-w /run`"),
    ("mkdir -m 777 /var/lib/postern", "/var/lib/postern can be written by others…`chmod go-w /var/lib/postern`"),
    ("mkdir -m 757 /var/log/postern", "/var/log/postern can be written by others…`chmod go-w /var/log/postern`"),
    ("mkdir -m 1777 /var/log/postern", "/var/log/postern can be written by others…`chmod go-w /var/log/postern`"),
    (
        "mkdir /mnt/log; ln -s /mnt/log /var/log/postern",
        "/var/log/postern: …it has to be a directory, and no symbolic link",
    ),
];

#[test]
fn prepared_directories_are_not_used() -> Result<()> {
    each(PREPARED, |case| case.0.to_owned(), |(script, text)| Installed::new(script)?.refuses_always(text))
}

/// The change to the node, `ipam.dataDir`, the network's name, and the error of ADD. Code 0 means that ADD succeeds.
const LEASES: [(&str, &str, &str, u64, &str); 16] = [
    ("", "/var/lib/cni/networks", "net", 0, ""),
    ("mkdir -m 1777 /mnt/tmp", "/mnt/tmp/leases", "net", 0, ""),
    (
        "mkdir -m 777 /mnt/open; mkdir -p /mnt/open/leases/net",
        "/mnt/open/leases",
        "net",
        5,
        "/mnt/open can be written by",
    ),
    (
        "mkdir -m 777 /mnt/open",
        "/mnt/open/new/leases",
        "net",
        5,
        "/mnt/open can be written by others…chmod go-w /mnt/open",
    ),
    ("mkdir -m 770 /mnt/open", "/mnt/open/new/leases", "net", 5, "/mnt/open can be written by others"),
    (
        "mkdir -m 777 /mnt/open; mkdir -p /var/lib/cni/networks; ln -s /var/lib/cni /mnt/open/cni",
        "/mnt/open/cni/networks",
        "net",
        5,
        "/mnt/open can be written by others",
    ),
    // A tmpfs has this mode by default.
    ("mkdir -m 1777 /mnt/tmp", "/mnt/tmp", "net", 0, ""),
    ("mkdir -m 777 /mnt/tmp", "/mnt/tmp", "net", 5, "everybody may write to it (mode 777)…chmod o-w"),
    (
        "mkdir -m 1777 /mnt/tmp; mkdir -m 777 /mnt/tmp/net",
        "/mnt/tmp",
        "net",
        5,
        "/mnt/tmp/net can be written by others than its owner (mode 777)",
    ),
    ("mkdir -m 1777 /mnt/tmp; ln -s /var/lib /mnt/tmp/net", "/mnt/tmp", "net", 5, "/mnt/tmp/net"),
    (
        "mkdir -m 1777 /mnt/tmp; touch /mnt/tmp/leases",
        "/mnt/tmp/leases",
        "net",
        5,
        "/mnt/tmp/leases: it is no directory",
    ),
    (
        "mkdir -m 1777 /mnt/tmp; ln -s leases /mnt/tmp/leases",
        "/mnt/tmp/leases",
        "net",
        5,
        "/mnt/tmp/leases: it is no directory",
    ),
    ("", "/var", "lib", 5, "/var/lib: it is a directory of the system…name another ipam.dataDir"),
    ("ln -s /usr /mnt/usr", "/mnt/usr", "local", 5, "/usr/local: it is a directory of the system"),
    ("", "leases", "net", 999, "ipam.dataDir leases is relative…give an absolute path"),
    ("", "../leases", "net", 999, "ipam.dataDir ../leases is relative"),
];

#[test]
fn leases_on_a_way_that_others_could_change_are_refused() -> Result<()> {
    each(
        LEASES,
        |case| format!("{} {}/{}", case.0, case.1, case.2),
        |(script, directory, network, code, words)| {
            let mut installed = Installed::new(script)?;
            let patch = json!({"name": network, "ipMasq": null, "ipMasqBackend": null, "ipam": {"dataDir": directory}});
            installed.network = installed.network.with(&patch);
            let added = installed.call("ADD")?;
            let deleted = installed.call("DEL")?;
            if *code == 0 {
                added.success()?;
                let left = installed.node.sh(&format!("ls {directory}/{network}"))?;
                ensure!(!left.contains("10.9"), "{left}");
                return deleted.success().map(drop);
            }
            Refusal::of(&added)?.expect(*code, words)?;
            if *code == 999 {
                // This host can't have made an object in a relative directory, so DEL must not fail forever.
                deleted.success()?;
                ensure!(deleted.stderr.contains("which is relative"), "{deleted:?}");
            } else {
                // DEL changes nothing in the directory, and the container can end.
                deleted.success()?;
                for word in words.split('…') {
                    ensure!(flat(&deleted.stderr).contains(word), "{deleted:?}");
                }
            }
            installed.watched.unchanged()
        },
    )
}

/// The directory of leases is a symbolic link to a disk that is not mounted. The leases still exist, and a later DEL
/// releases them.
#[test]
fn leases_that_are_out_of_sight_are_not_given_up() -> Result<()> {
    let installed =
        Installed::new("mkdir -p /mnt/disk/networks /var/lib/cni; ln -s /mnt/disk/networks /var/lib/cni/networks")?;
    installed.call("ADD")?.success()?;
    installed.node.sh("mv /mnt/disk /mnt/away")?;
    Refusal::of(&installed.call("DEL")?)?.expect(5, "/var/lib/cni/networks")?;
    installed.node.sh("mv /mnt/away /mnt/disk")?;
    installed.call("DEL")?.success()?;
    let left = installed.node.sh("ls /mnt/disk/networks/net")?;
    ensure!(!left.contains("10.9"), "{left}");
    Ok(())
}

#[test]
fn a_log_directory_of_a_group_will_do() -> Result<()> {
    // On some systems the loggers' group may write to /var/log.
    Installed::new("chmod 775 /var/log")?.add_and_delete()
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing_and_is_said() -> Result<()> {
    let installed = Installed::new(
        "mkdir -m 700 /var/log/postern; mount -t tmpfs -o mode=700,size=8k log /var/log/postern
         head -c 4000 /dev/zero | tr '\\0' '\\n' > /var/log/postern/audit.jsonl
         chmod 600 /var/log/postern/audit.jsonl; head -c 4096 /dev/zero > /var/log/postern/other",
    )?;
    let answer = installed.call("ADD")?;
    answer.success()?;
    let printed: Vec<&str> = answer.stderr.lines().filter(|line| line.contains("audit log")).collect();
    let words =
        "lines of the audit log /var/log/postern/audit.jsonl are lost, because they cannot be written: No space left";
    ensure!(printed.len() == 1 && printed.iter().all(|line| line.contains(words)), "{:?}", answer.stderr);
    let size = installed.node.sh("stat -c %s /var/log/postern/audit.jsonl; rm /var/log/postern/other")?;
    ensure!(size == "4000\n", "a piece of a line was left: {size}");
    let answer = installed.call("DEL")?;
    ensure!(answer.success().is_ok() && answer.stderr.is_empty(), "{answer:?}");
    Ok(())
}

#[test]
fn each_line_names_the_component() -> Result<()> {
    let installed = Installed::new("")?;
    installed.call("ADD")?.success()?;
    for plugin in ["ptp", "host-local"] {
        let digest = installed.catalog(&format!("digest {plugin}"))?;
        let count =
            format!("grep '\"plugin\":\"{plugin}\"' /var/log/postern/audit.jsonl | grep -vc {} || true", digest.trim());
        ensure!(installed.node.sh(&count)? == "0\n", "lines of {plugin} without {digest}");
    }
    let modes = installed.node.sh("stat -c %a /var/log/postern /var/log/postern/audit.jsonl")?;
    ensure!(modes == "700\n600\n", "{modes}");
    Ok(())
}

/// The change to an installation or a node, and a part of the reason in the log.
const REFUSED: [(&str, &str); 9] = [
    ("echo >> ptp.cwasm", "is not whole"),
    ("chmod 666 ptp.cwasm", "can be written by others"),
    ("rm ptp.cwasm", "ptp"),
    ("pin $(printf %064d 0)", "is not the component of its policy"),
    ("echo nonsense >> ptp.toml", "ptp.toml"),
    ("rm ptp.toml", "ptp.toml"),
    ("mkdir -m 777 /run/postern", "/run/postern can be written by others"),
    ("mkdir -m 777 /var/lib/postern", "/var/lib/postern can be written by others"),
    ("chmod 777 ..", "/mnt/bin can be written by others"),
];

#[test]
fn a_refusal_before_any_guest_is_in_the_log() -> Result<()> {
    each(
        REFUSED,
        |case| case.0.to_owned(),
        |(script, reason)| {
            let installed = Installed::new(script)?;
            // A runtime repeats the ADD, each time for another container.
            for container in ["c1", "c2", "c3", "c4"] {
                let add = installed.network.request(0, "ADD", "c1", &json!({}))?.env("CNI_CONTAINERID", container);
                let answer = installed.node.call(&add)?;
                Refusal::of(&answer)?;
                ensure!(!answer.stderr.contains("audit log"), "{answer:?}");
            }
            let log = installed.log()?;
            let lines: Vec<serde_json::Value> = log.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
            let [line] = lines.as_slice() else { anyhow::bail!("{} lines: {log}", lines.len()) };
            for (key, expected) in [
                ("attachment", "net/c1/eth0"),
                ("verb", "ADD"),
                ("plugin", "ptp"),
                ("operation", "plugin.start"),
                ("decision", "deny"),
            ] {
                ensure!(line.get(key).and_then(|value| value.as_str()) == Some(expected), "{key}: {log}");
            }
            ensure!(line.pointer("/request/user").is_some_and(|user| user == 0), "{log}");
            ensure!(
                line.get("result").and_then(|value| value.as_str()).is_some_and(|why| why.contains(reason)),
                "{log}"
            );
            Ok(())
        },
    )
}

#[test]
fn a_namespace_that_is_the_hosts_is_refused_in_the_log() -> Result<()> {
    let installed = Installed::new("")?;
    let own = installed.network.request(0, "ADD", "c1", &json!({}))?.env("CNI_NETNS", "/proc/self/ns/net");
    Refusal::of(&installed.node.call(&own)?)?;
    let log = installed.log()?;
    ensure!(log.contains("\"operation\":\"plugin.start\""), "{log}");
    // The guest may first ask something and be refused. Each refusal in the log has the wrong namespace as its reason.
    ensure!(log.lines().all(|line| line.contains("plugin's netns and netns from CNI_NETNS should not be")), "{log}");
    Ok(())
}

/// Runtimes repeat STATUS often. The answer that a version has no STATUS refuses nothing.
#[test]
fn that_a_version_has_no_status_is_no_refusal() -> Result<()> {
    let installed = Installed::new("")?;
    Refusal::of(&installed.call("STATUS")?)?.expect(1, "config version does not allow STATUS")?;
    let log = installed.node.sh("cat /var/log/postern/audit.jsonl 2>/dev/null || true")?;
    ensure!(!log.contains("plugin.start"), "{log}");
    Ok(())
}

/// Policy's limit on versions is a refusal, even for a verb that some versions lack.
#[test]
fn a_version_that_policy_leaves_out_is_a_refusal() -> Result<()> {
    let installed = Installed::new("")?;
    let policy = "mkdir -p /etc/postern/policy; echo 'versions = [\"0.4.0\"]' > /etc/postern/policy/ptp.toml";
    installed.node.sh(&format!("mount -t tmpfs -o mode=755 etc /etc; {policy}"))?;
    ensure!(installed.call("CHECK")?.status == 1);
    let log = installed.log()?;
    ensure!(log.contains("plugin.start"), "{log}");
    Ok(())
}

#[test]
fn a_del_by_the_record_says_why_the_plugin_was_not_run() -> Result<()> {
    let mut installed = Installed::new("")?;
    installed.call("ADD")?.success()?;
    installed.change("echo >> ptp.cwasm; : > /var/log/postern/audit.jsonl")?;
    installed.call("DEL")?.success()?;
    let log = installed.log()?;
    ensure!(log.contains("record.remove") && log.contains("is not whole"), "{log}");
    Ok(())
}

#[test]
fn a_log_that_nobody_can_trust_is_said_to_lack_the_refusal() -> Result<()> {
    let installed = Installed::new("mkdir -m 777 /var/log/postern")?;
    let answer = installed.call("ADD")?;
    Refusal::of(&answer)?.expect(999, "/var/log/postern can be written by others")?;
    ensure!(answer.stderr.contains("the audit log has no line of this refusal: /var/log/postern"), "{answer:?}");
    ensure!(installed.node.sh("ls -A /var/log/postern")?.is_empty(), "the run wrote into the untrusted directory");
    Ok(())
}

#[test]
fn a_log_that_had_to_move_says_so() -> Result<()> {
    let installed = Installed::new("mount -t tmpfs -o ro log /var/log")?;
    let words = "the audit log is in /run/postern and not in /var/log/postern, which user 0 can't write to";
    let answer = installed.call("ADD")?;
    answer.success()?;
    ensure!(answer.stderr.matches(words).count() == 1, "{answer:?}");
    // The message appears once, because runtimes log the messages of every run.
    let answer = installed.call("DEL")?;
    ensure!(answer.success().is_ok() && answer.stderr.is_empty(), "{answer:?}");
    for verb in ["log", "doctor"] {
        let printed = installed.node.postern(verb)?.words();
        ensure!(printed.contains(words), "{verb}: {printed}");
    }
    Ok(())
}

/// Lines of a log, and their text form on 80 columns.
const LINES: &str = r#"{"time":0,"note":"rotated","dropped_bytes":4711}
{"time":951782399007,"attachment":"net/c1/eth0","verb":"ADD","plugin":"bridge","digest":"0123456789abcdef","operation":"bridge.attach","request":{"op":"bridge.attach","bridge":0,"port":{"vlan":7,"hairpin":false,"trunk":[]},"mtu":null},"decision":"allow","rule":"bridge.names","from":"operator","result":"ok","micros":12}
half a line, of a time when the disk was full
{"time":951782400007,"attachment":"net/c1/eth0","verb":"ADD","plugin":"bridge","digest":"0123456789abcdef","operation":"routes.remove-connected","request":{"op":"routes.remove-connected","link":1},"decision":"deny","result":"policy does not allow routes.remove-connected for \u001b[2J and much more that is said here","micros":3}
{"time":4107542400999,"attachment":"net/c2/eth0","verb":"DEL","plugin":"postern","operation":"record.remove","request":{"effect":"veth","host":"veth1"},"decision":"allow","rule":"record","result":"ok","micros":1234567}
"#;
const SHOWN: &str = r#"1970-01-01 UTC
  00:00:00.000  a new log begins; 4711 bytes of older lines are gone
2000-02-28 UTC  ADD net/c1/eth0  bridge (sha256 0123456789ab)
  23:59:59.007  allowed bridge.attach               12 us  bridge=0
                port={"vlan":7} [bridge.names, operator]
2000-02-29 UTC  ADD net/c1/eth0  bridge (sha256 0123456789ab)
  00:00:00.007  DENIED  routes.remove-connected      3 us  link=1 -> policy does
                not allow routes.remove-connected for \u{1b}[2J and much more
                that is said here
2100-03-01 UTC  DEL net/c2/eth0  postern
  00:00:00.999  allowed record.remove           1234567 us  effect="veth"
                host="veth1" [record]
"#;

#[test]
fn the_log_is_for_people_to_read() -> Result<()> {
    let node = Node::new()?;
    node.sh("mkdir -m 700 /var/log/postern")?;
    let path = node.path("/var/log/postern/audit.jsonl");
    std::fs::write(&path, LINES)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let log =
        |arguments: &str| Ok::<_, anyhow::Error>(node.postern(&format!("log {arguments}"))?.printed()?.to_owned());
    let shown = log("")?;
    ensure!(shown == SHOWN, "{shown}");
    let lines: Vec<&str> = LINES.lines().collect();
    ensure!(log("--denied --json")?.lines().collect::<Vec<_>>() == lines.get(3..4).unwrap_or_default());
    ensure!(log("--container c2 --json")?.lines().collect::<Vec<_>>() == lines.get(4..).unwrap_or_default());
    ensure!(log("--container c1")?.lines().count() == 7);
    // The rotated file comes first.
    node.sh("cd /var/log/postern; mv audit.jsonl audit.jsonl.1")?;
    ensure!(log("")? == SHOWN);
    Ok(())
}
