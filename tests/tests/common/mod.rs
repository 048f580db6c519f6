//! What the tests of bad input and bad plugins share: an error object taken apart, and proof that a node is unchanged.
#![allow(dead_code, reason = "each test program uses its own part")]

use anyhow::{Context, Result, bail, ensure};
use postern_tests::{Answer, Names, Node, compare, plugin_bin};
use serde_json::Value;
use std::path::PathBuf;

/// The CNI bin directory with the hostile plugin, beside the one under test.
pub fn test_bin() -> Result<PathBuf> {
    let path = plugin_bin()?.join("../test-bin");
    path.canonicalize().with_context(|| format!("no {}: `tests/setup test` makes it", path.display()))
}

/// The error object that a plugin must have answered with: status 1, exactly one object with nothing but its keys.
#[derive(Debug)]
pub struct Refusal {
    pub code: u64,
    /// `msg; details`
    pub text: String,
}

impl Refusal {
    pub fn of(answer: &Answer) -> Result<Self> {
        ensure!(answer.status == 1, "status {}: {answer:?}", answer.status);
        let objects: Vec<Value> = serde_json::Deserializer::from_str(&answer.stdout)
            .into_iter()
            .collect::<Result<_, _>>()
            .with_context(|| format!("stdout is no JSON: {answer:?}"))?;
        let [Value::Object(map)] = objects.as_slice() else { bail!("not exactly one object: {answer:?}") };
        ensure!(map.keys().all(|key| matches!(key.as_str(), "code" | "msg" | "details")), "foreign keys: {answer:?}");
        let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
        ensure!(!text("msg").is_empty(), "no message: {answer:?}");
        let code = map.get("code").and_then(Value::as_u64).unwrap_or_default();
        ensure!(code > 0, "no code: {answer:?}");
        Ok(Self { code, text: format!("{}; {}", text("msg"), text("details")) })
    }

    /// Fails unless this is the code, and all parts (separated by `…`) are in the text.
    pub fn expect(&self, code: u64, parts: &str) -> Result<()> {
        ensure!(self.code == code, "code {} instead of {code}: {}", self.code, self.text);
        for part in parts.split('…') {
            ensure!(self.text.contains(part), "not \"{part}\": {}", self.text);
        }
        Ok(())
    }
}

/// A node with containers, and what it looked like.
pub struct Watched {
    pub node: Node,
    containers: Vec<&'static str>,
    names: Names,
    before: Value,
}

impl Watched {
    pub fn new(containers: &[&'static str]) -> Result<Self> {
        let node = Node::new()?;
        containers.iter().try_for_each(|container| node.add_container(container))?;
        let mut watched = Self { node, containers: containers.to_vec(), names: Names::new(""), before: Value::Null };
        watched.look()?;
        Ok(watched)
    }

    /// From now on, this is how the node should look.
    pub fn look(&mut self) -> Result<()> {
        self.before = self.node.snapshot(&self.containers, &mut self.names)?;
        Ok(())
    }

    /// Fails if anything changed, and if a record is left.
    pub fn unchanged(&mut self) -> Result<()> {
        self.same()?;
        let records = self.node.sh("if [ -d /run/postern/attachments ]; then ls -A /run/postern/attachments; fi")?;
        ensure!(records.is_empty(), "records are left: {records}");
        Ok(())
    }

    /// How the node looked, and how it looks now.
    pub fn trees(&mut self) -> Result<(Value, Value)> {
        let after = self.node.snapshot(&self.containers, &mut self.names)?;
        Ok((self.before.clone(), after))
    }

    /// Fails if anything changed but records. Which address comes next is no change.
    pub fn same(&mut self) -> Result<()> {
        let after = self.node.snapshot(&self.containers, &mut self.names)?;
        let left: Vec<_> = compare(&self.before, &after)
            .into_iter()
            .filter(|mismatch| !mismatch.path.contains("/last_reserved_ip."))
            .map(|mismatch| mismatch.to_string().chars().take(300).collect::<String>())
            .collect();
        let some: Vec<_> = left.iter().take(6).map(String::as_str).collect();
        ensure!(left.is_empty(), "{} changes (native: before, ours: after):\n{}", left.len(), some.join("\n"));
        Ok(())
    }
}

/// A node's own `/etc`, in which iptables still finds what it needs: for operators' policies.
pub const PRIVATE_ETC: &str = "
    mount -t tmpfs -o mode=755 etc /mnt
    cp -a /etc/alternatives /etc/passwd /etc/group /etc/protocols /etc/services /etc/iproute2 /mnt 2>/dev/null || true
    mkdir -p /mnt/postern/policy
    mount --move /mnt /etc
";

/// How a node looks, records included, with names for what is random in it that hold for this picture alone: two pictures
/// of the same state are equal, whichever names the links had. Which address comes next is no part of it.
///
/// # Errors
/// As [`Node::snapshot`].
pub fn picture(node: &Node, containers: &[&str]) -> Result<Value> {
    let mut tree = node.snapshot(containers, &mut Names::new(""))?;
    let records = node.sh("if [ -d /run/postern/attachments ]; then ls -A /run/postern/attachments; fi")?;
    if let Some(map) = tree.as_object_mut() {
        map.insert("records".to_owned(), records.lines().map(str::to_owned).collect());
    }
    if let Some(files) = tree.get_mut("files").and_then(Value::as_object_mut) {
        files.retain(|path, _| !path.contains("/last_reserved_ip."));
    }
    Ok(tree)
}

/// Fails with the first differences if the two pictures are not the same.
///
/// # Errors
/// They are not.
pub fn same_picture(before: &Value, after: &Value) -> Result<()> {
    let left: Vec<_> = compare(before, after)
        .iter()
        .map(|mismatch| {
            let text = mismatch.to_string().replace("native: ", "before: ").replace("ours:   ", "after:  ");
            text.chars().take(300).collect::<String>()
        })
        .collect();
    let some: Vec<_> = left.iter().take(6).map(String::as_str).collect();
    ensure!(left.is_empty(), "{} changes:\n{}", left.len(), some.join("\n"));
    Ok(())
}

/// `postern gc --yes`. Which attachments it kept because it can't be told whether their namespaces are gone: without
/// privileges over all processes of the machine, which tests don't have, that shows only by their links.
///
/// # Errors
/// It fails, or keeps something for another reason.
pub fn collect_garbage(node: &Node) -> Result<Vec<String>> {
    let said = node.sh(&format!("{}/postern gc --yes --json --cni-path /run/native", plugin_bin()?.display()))?;
    let report: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
    let kept = report.pointer("/kept").and_then(Value::as_array).cloned().unwrap_or_default();
    kept.iter()
        .map(|kept| {
            let text = |key: &str| kept.get(key).and_then(Value::as_str).unwrap_or_default();
            ensure!(text("reason").contains("can't be told"), "`postern gc` keeps {kept}");
            Ok(text("container").to_owned())
        })
        .collect()
}

/// Whether an attachment's record says that the runtime has its result and that no DEL has begun: it is whole then, and what
/// stands in the way of another ADD is right to do so.
///
/// # Errors
/// The records can't be read.
pub fn is_whole(node: &Node, container: &str) -> Result<bool> {
    let own = format!("\"container_id\":\"{container}\"");
    let record = node.sh(&format!("grep -ls '{own}' /run/postern/attachments/* | xargs -r cat"))?;
    let last = |stage: &str| record.rfind(&format!("\"{stage}\":"));
    Ok(last("given") > last("begun").max(last("ending")))
}

/// Runs every case and reports all failures at once.
pub fn each<T>(
    cases: impl IntoIterator<Item = T>,
    name: impl Fn(&T) -> String,
    mut run: impl FnMut(&T) -> Result<()>,
) -> Result<()> {
    let mut failures = Vec::new();
    for case in cases {
        if let Err(error) = run(&case) {
            failures.push(format!("{}: {error:#}", name(&case)));
        }
    }
    ensure!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    Ok(())
}

/// A number from the environment.
pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
