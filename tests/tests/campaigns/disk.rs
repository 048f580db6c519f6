//! Disks are full or read-only, and records are damaged. A run either fails before it changes anything, with an error
//! that names the file, or succeeds with a message that names the file. DEL removes everything, with or without a
//! record.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::{Refusal, each, number, picture, same_picture};
use postern_tests::{Answer, Network, Node, Random, merge};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// The number of truncated records in `make test`, and of records with one changed byte. A campaign takes every byte of
/// a record.
const SAMPLE: u64 = 40;

/// A node with two containers and a network with every kind of effect.
struct Place {
    net: Network,
    /// The state without attachments.
    before: Value,
}

impl Place {
    fn new(prepare: &str) -> Result<Self> {
        let node = Node::new()?;
        ["c1", "c2"].iter().try_for_each(|container| node.add_container(container))?;
        node.sh(prepare)?;
        let config = json!({
            "type": "bridge", "bridge": "br9", "isGateway": true,
            "ipMasq": true, "ipMasqBackend": "nftables", "macspoofchk": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]]},
        });
        let mut place = Self { net: Network::new(&node, &config)?, before: Value::Null };
        for container in ["c1", "c2"] {
            place.net.add(container)?;
            place.net.attachment(container).del()?;
        }
        place.before = place.picture()?;
        Ok(place)
    }

    fn picture(&self) -> Result<Value> {
        picture(&self.net.node, &["c1", "c2"])
    }

    /// Runs any verb. GC gets an empty list of valid attachments.
    fn call(&self, verb: &str, container: &str, previous: &Value) -> Result<Answer> {
        let mut patch = json!({"prevResult": previous});
        if verb == "GC" {
            merge(&mut patch, &json!({"cni.dev/valid-attachments": []}));
        }
        self.net.call_at(0, verb, container, &patch)
    }

    /// Returns the path of the only attachment's record, as the test sees it.
    fn record(&self) -> Result<PathBuf> {
        let name = self.net.node.sh("ls /run/postern/attachments")?;
        ensure!(name.lines().count() == 1, "there must be one record: {name}");
        Ok(self.net.node.path(format!("/run/postern/attachments/{}", name.trim())))
    }
}

/// Returns true for success, false for one error object. The text is the printed text in both cases.
fn printed(answer: &Answer) -> Result<(bool, String)> {
    ensure!(!answer.stderr.contains("panicked") && !answer.stderr.contains("this is a bug"), "{answer:?}");
    match answer.status {
        0 => Ok((true, answer.stderr.clone())),
        _ => Ok((false, Refusal::of(answer)?.text)),
    }
}

/// A separate file system for a directory, and the script that makes the file system unusable.
struct Disk {
    name: &'static str,
    options: &'static str,
    /// The script, with the directory as `$1`.
    spoil: &'static str,
}

const DISKS: [Disk; 3] = [
    Disk { name: "full", options: "size=256k", spoil: "dd if=/dev/zero of=$1/fill bs=4k 2>/dev/null || true" },
    Disk {
        name: "out of inodes",
        options: "size=1m,nr_inodes=64",
        spoil: "number=0; while touch $1/fill$number 2>/dev/null; do number=$((number+1)); done",
    },
    Disk { name: "read-only", options: "size=256k", spoil: "mount --options-mode ignore -o remount,ro $1" },
];

/// Directories that runs write to, each with true if ADD fails when the directory's disk is unusable.
const DIRECTORIES: [(&str, bool); 4] =
    [("/run/postern", true), ("/var/lib/cni/networks", true), ("/var/lib/postern", false), ("/var/log/postern", false)];

fn runs_with_bad_disk(disk: &Disk, directory: &str, needed: bool) -> Result<()> {
    let mode = if directory.contains("cni") { "755" } else { "700" };
    let place =
        Place::new(&format!("mkdir -p {directory}; mount -t tmpfs -o mode={mode},{} disk {directory}", disk.options))?;
    let script = |what: &str| place.net.node.sh(&format!("set -- {directory}; {what}"));
    let usable = || script("mount --options-mode ignore -o remount,rw $1; rm -f $1/fill*");
    for verb in ["ADD", "CHECK", "DEL", "GC"] {
        let named = || format!("{directory} is {}, {verb}", disk.name);
        let attached = verb != "ADD";
        let previous = if attached { place.net.add("c1")?.result } else { Value::Null };
        let before = place.picture()?;
        script(disk.spoil)?;
        let answer = place.call(verb, "c1", &previous)?;
        let after = place.picture()?;
        usable()?;
        let (succeeded, text) = printed(&answer).with_context(named)?;
        println!("{}: {}: {}", named(), if succeeded { "succeeded" } else { "failed" }, text.trim());
        if succeeded {
            ensure!(verb != "ADD" || !needed, "{}: ADD succeeded", named());
        } else {
            ensure!(text.contains(directory), "{}: does not name the directory: {text}", named());
        }
        if !succeeded && verb != "DEL" && verb != "GC" {
            let left = without_fill(&before, directory);
            same_picture(&left, &without_fill(&after, directory))
                .with_context(|| format!("{}: the run failed ({text}), and changed something", named()))?;
        }
        place.call("DEL", "c1", &previous)?.success().with_context(|| format!("{}, then DEL", named()))?;
        let rest = place.picture()?;
        same_picture(&without_fill(&place.before, directory), &without_fill(&rest, directory))
            .with_context(|| format!("{}, then DEL", named()))?;
    }
    Ok(())
}

/// Returns the picture without the file that fills the disk.
fn without_fill(picture: &Value, directory: &str) -> Value {
    let mut picture = picture.clone();
    if let Some(files) = picture.get_mut("files").and_then(Value::as_object_mut) {
        files.retain(|path, _| !path.starts_with(&format!("{directory}/fill")));
    }
    picture
}

#[test]
fn a_disk_that_takes_nothing_more_is_told_before_anything_is_changed() -> Result<()> {
    each(
        DISKS.iter().flat_map(|disk| DIRECTORIES.map(|(directory, needed)| (disk, directory, needed))),
        |(disk, directory, _)| format!("{directory} {}", disk.name),
        |(disk, directory, needed)| runs_with_bad_disk(disk, directory, *needed),
    )
}

/// Scripts that damage a record, with the record's path as `$1`.
const DAMAGES: [(&str, &str); 10] = [
    ("a directory", "rm $1; mkdir $1"),
    ("a directory with something in it", "rm $1; mkdir $1; : > $1/file"),
    ("a link to nowhere", "rm $1; ln -s /nowhere $1"),
    ("a link to a file", "rm $1; cp /etc/passwd /run/victim; ln -s /run/victim $1"),
    ("a pipe", "rm $1; mkfifo $1"),
    ("mode 000", "chmod 000 $1"),
    (
        "2 MiB of repeated lines",
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do cat $1 $1 > /run/twice; cat /run/twice > $1; done; rm /run/twice",
    ),
    ("2 MiB of zeros", "head -c 2097152 /dev/zero > $1"),
    ("lines of something else", "printf 'a\\nb\\n' > $1"),
    ("a line in the middle that is none", "sed -i '2s/.*/{\"seq\"/' $1"),
];

/// Runs every verb for an attachment with a damaged record, and DEL at the end. Returns true if no record had to be
/// removed by hand.
fn damaged(place: &Place, name: &str, damage: &str, verbs: &[&str], must_say: bool) -> Result<bool> {
    let mut all = true;
    for verb in verbs {
        let named = || format!("{name}, {verb}");
        let result = place.net.add("c1")?.result;
        let record = place.record()?;
        let key = record.file_name().unwrap_or_default().to_string_lossy().into_owned();
        place.net.node.sh(&format!("set -- /run/postern/attachments/{key}; {damage}"))?;
        let before = place.picture()?;
        let container = if *verb == "ADD c2" { "c2" } else { "c1" };
        let previous = if *verb == "ADD c2" { &Value::Null } else { &result };
        let answer = place.call(verb.split(' ').next().unwrap_or_default(), container, previous)?;
        let (succeeded, text) = printed(&answer).with_context(named)?;
        if *verb == "ADD c2" {
            ensure!(succeeded, "{}: another attachment's ADD: {text}", named());
            place.net.attachment("c2").del().with_context(named)?;
        } else if succeeded && *verb == "ADD" {
            anyhow::bail!("{}: ADD made an attachment that already exists", named());
        } else if *verb != "ADD" {
            ensure!(!must_say || text.contains(&key), "{}: {succeeded}, and does not name {key}: {text}", named());
        }
        if *verb == "DEL" && !succeeded {
            // An unreadable record may have a later version's format. DEL leaves the record, and names it.
            ensure!(text.contains(&key), "{}: does not name {key}: {text}", named());
            same_links(&before, &place.picture()?).with_context(|| format!("{}: {text}", named()))?;
            place.net.node.sh(&format!("rm -rf /run/postern/attachments/{key}"))?;
            all = false;
        }
        if *verb != "DEL" || !succeeded {
            let mut answer = place.call("DEL", "c1", &result)?;
            let (succeeded, why) = printed(&answer).with_context(named)?;
            if !succeeded && why.contains(&key) && why.contains("use the version that wrote it") {
                place.net.node.sh(&format!("rm -rf /run/postern/attachments/{key}"))?;
                all = false;
                answer = place.call("DEL", "c1", &result)?;
            }
            answer.success().with_context(|| format!("{} ({text}), then DEL", named()))?;
        }
        // DEL sets a damaged record aside for operators.
        place.net.node.sh("rm -rf /run/postern/attachments/*.* /run/victim")?;
        same_picture(&place.before, &place.picture()?).with_context(|| format!("{} ({text}), then DEL", named()))?;
    }
    Ok(all)
}

/// Fails if links, rules, routes or leases changed.
fn same_links(before: &Value, after: &Value) -> Result<()> {
    let without = |picture: &Value| {
        let mut picture = picture.clone();
        picture.as_object_mut().map(|map| map.remove("records"));
        picture
    };
    same_picture(&without(before), &without(after))
}

#[test]
fn something_else_in_the_place_of_a_record() -> Result<()> {
    let mut place = Place::new("")?;
    each(
        DAMAGES,
        |case| case.0.to_owned(),
        |(name, damage)| {
            // Root can read a file without any permission bits: no damage.
            let must_say = *name != "mode 000";
            let outcome = damaged(&place, name, damage, &["DEL", "CHECK", "GC", "ADD", "ADD c2"], must_say);
            if outcome.is_err() {
                place = Place::new("")?;
            }
            ensure!(outcome?, "{name}: DEL did not remove the damaged record");
            Ok(())
        },
    )
}

#[test]
fn records_cut_off_at_every_byte_and_with_another_byte_anywhere() -> Result<()> {
    let all = std::env::var("POSTERN_FAULTS").is_ok_and(|text| text == "all");
    let seed = number("POSTERN_FUZZ_SEED").unwrap_or(1);
    let mut random = Random::new(seed);
    let mut place = Place::new("")?;
    place.net.add("c1")?;
    let content = fs::read(place.record()?)?;
    place.net.attachment("c1").del()?;
    let length = content.len() as u64;
    // A record with a changed boot ID counts as an earlier boot's. No DEL looks for its objects.
    let text = String::from_utf8_lossy(&content);
    let boot = text.find("\"boot_id\":\"").map_or(0..0, |at| at as u64 + 11..at as u64 + 47);
    let stride = if all { 1 } else { length.div_ceil(SAMPLE) };
    let mut cases: Vec<(String, String)> = (0..length)
        .filter(|at| at % stride == 0 || content.get(usize::try_from(*at).unwrap_or_default()) == Some(&b'\n'))
        .map(|at| (format!("cut off at byte {at}"), format!("truncate -s {at} $1")))
        .collect();
    let cut = cases.len();
    for _ in 0..if all { length } else { SAMPLE } {
        let (at, byte) = (random.below(length), random.below(256));
        if boot.contains(&at) {
            continue;
        }
        cases.push((
            format!("byte {at} is {byte:#04x}"),
            format!("printf '\\{byte:03o}' | dd of=$1 bs=1 seek={at} conv=notrunc 2>/dev/null"),
        ));
    }
    let (mut tried, mut refused) = (0, 0);
    let outcome = each(
        &cases,
        |case| case.0.clone(),
        |(name, damage)| {
            tried += 1;
            // Only DEL must work without the record. Every eighth case also runs CHECK and GC.
            let verbs: &[&str] = if tried % 8 == 0 { &["DEL", "CHECK", "GC"] } else { &["DEL"] };
            let outcome = damaged(&place, name, damage, verbs, false);
            if outcome.is_err() {
                place = Place::new("")?;
            }
            refused += u64::from(!outcome?);
            Ok(())
        },
    );
    println!(
        "seed {seed}: a record of {length} bytes, cut off at {cut} of them, {} with another byte: {refused} records had to be removed by hand",
        cases.len() - cut
    );
    outcome
}
