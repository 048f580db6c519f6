//! Helpers for tests with bad input and bad plugins: they read error objects, and prove that a node is unchanged.
use crate::{Answer, Names, Node, compare, plugin_bin};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::PathBuf;

/// Returns the CNI bin directory with the hostile plugin: `test-bin` beside the directory under test.
pub fn test_bin() -> Result<PathBuf> {
    let path = plugin_bin()?.join("../test-bin");
    path.canonicalize().with_context(|| format!("no {}: `tests/setup test` makes it", path.display()))
}

/// The error object of a plugin: exit status 1, and one JSON object with only the keys `code`, `msg` and `details`.
#[derive(Debug)]
pub struct Refusal {
    /// The error code of the specification, or of Postern.
    pub code: u64,
    /// `msg; details`
    pub text: String,
}

impl Refusal {
    /// Reads the error object of an answer.
    ///
    /// # Errors
    /// The answer has another form.
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

    /// Fails if the code differs, or if the text lacks one of the parts. `…` separates the parts.
    pub fn expect(&self, code: u64, parts: &str) -> Result<()> {
        ensure!(self.code == code, "code {} instead of {code}: {}", self.code, self.text);
        for part in parts.split('…') {
            ensure!(self.text.contains(part), "the text lacks \"{part}\": {}", self.text);
        }
        Ok(())
    }
}

/// A node with containers, and its expected state.
pub struct Watched {
    /// The node.
    pub node: Node,
    containers: Vec<&'static str>,
    names: Names,
    before: Value,
}

impl Watched {
    /// Makes a node with these containers, and takes its state.
    ///
    /// # Errors
    /// As [`Node::new`] and [`Node::snapshot`].
    pub fn new(containers: &[&'static str]) -> Result<Self> {
        let node = Node::new()?;
        containers.iter().try_for_each(|container| node.add_container(container))?;
        let mut watched = Self { node, containers: containers.to_vec(), names: Names::new(""), before: Value::Null };
        watched.look()?;
        Ok(watched)
    }

    /// Takes the present state of the node as the expected state.
    pub fn look(&mut self) -> Result<()> {
        self.before = self.node.snapshot(&self.containers, &mut self.names)?;
        Ok(())
    }

    /// Fails if anything changed or a record is left.
    pub fn unchanged(&mut self) -> Result<()> {
        self.same()?;
        let records = self.node.sh("if [ -d /run/postern/attachments ]; then ls -A /run/postern/attachments; fi")?;
        ensure!(records.is_empty(), "records are left: {records}");
        Ok(())
    }

    /// Returns the expected and the present state of the node.
    pub fn trees(&mut self) -> Result<(Value, Value)> {
        let after = self.node.snapshot(&self.containers, &mut self.names)?;
        Ok((self.before.clone(), after))
    }

    /// Fails if anything changed except records and host-local's last reserved address.
    pub fn same(&mut self) -> Result<()> {
        let after = self.node.snapshot(&self.containers, &mut self.names)?;
        let left: Vec<_> = compare(&self.before, &after)
            .into_iter()
            .filter(|mismatch| !mismatch.path.contains("/last_reserved_ip."))
            .map(|mismatch| mismatch.to_string().chars().take(300).collect::<String>())
            .collect();
        let some: Vec<_> = left.iter().take(6).map(String::as_str).collect();
        ensure!(left.is_empty(), "{} changes (`native` is before, `ours` is after):\n{}", left.len(), some.join("\n"));
        Ok(())
    }
}

/// A script that gives a node its own `/etc`, for operators' policies. iptables still finds its files in this `/etc`.
pub const PRIVATE_ETC: &str = "
    mount -t tmpfs -o mode=755 etc /mnt
    cp -a /etc/alternatives /etc/passwd /etc/group /etc/protocols /etc/services /etc/iproute2 /mnt 2>/dev/null || true
    mkdir -p /mnt/postern/policy
    mount --move /mnt /etc
";

/// Makes STATUS strict on a node: STATUS fails for each problem that an ADD would have. The node gets its own `/etc`.
///
/// # Errors
/// As [`Node::sh`].
pub fn strict_status(node: &Node) -> Result<()> {
    node.sh(&format!("{PRIVATE_ETC} echo 'status = \"strict\"' > /etc/postern/node.toml")).map(drop)
}

/// Returns the state of a node with its records. Symbols replace random parts such as link names, so two pictures of
/// the same state are equal. host-local's last reserved address is left out.
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
/// The pictures differ.
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

/// Runs `postern gc --yes`. Returns the attachments that it kept because the end of their namespaces is unknown.
/// Tests can't look into all processes of the machine, so only links can show that a namespace has ended.
///
/// # Errors
/// `postern gc` fails, or keeps something for another reason.
pub fn collect_garbage(node: &Node) -> Result<Vec<String>> {
    let report = node.postern("gc --yes --json --cni-path /run/native")?.success()?;
    let kept = report.pointer("/kept").and_then(Value::as_array).cloned().unwrap_or_default();
    kept.iter()
        .map(|kept| {
            let text = |key: &str| kept.get(key).and_then(Value::as_str).unwrap_or_default();
            ensure!(text("reason").contains("it is unknown whether"), "`postern gc` keeps {kept}");
            Ok(text("container").to_owned())
        })
        .collect()
}

/// True if an attachment's record says that the runtime has the attachment's result and that no DEL has begun. A second
/// ADD of this complete attachment fails correctly.
///
/// # Errors
/// The records can't be read.
pub fn is_whole(node: &Node, container: &str) -> Result<bool> {
    Ok(says_whole(&record(node, container)?))
}

/// True if a container has a record.
///
/// # Errors
/// The records can't be read.
pub fn is_recorded(node: &Node, container: &str) -> Result<bool> {
    Ok(!record(node, container)?.is_empty())
}

/// True if a plugin of the attachment's list has completed an ADD. After a killed ADD of a later plugin, `postern gc`
/// keeps the completed plugin's part, and the runtime's DEL removes the part.
///
/// # Errors
/// The records can't be read.
pub fn has_complete_plugin(node: &Node, container: &str) -> Result<bool> {
    Ok(record(node, container)?.contains("\"given\":"))
}

/// True if an attachment's record says that its ADD or its DEL was killed. `postern gc` removes such an attachment.
///
/// # Errors
/// The records can't be read.
pub fn looks_killed(node: &Node, container: &str) -> Result<bool> {
    let record = record(node, container)?;
    Ok(!record.is_empty() && !says_whole(&record))
}

/// Returns the lines of a container's records.
fn record(node: &Node, container: &str) -> Result<String> {
    let own = format!("\"container_id\":\"{container}\"");
    node.sh(&format!("grep -ls '{own}' /run/postern/attachments/* | xargs -r cat"))
}

fn says_whole(record: &str) -> bool {
    let last = |stage: &str| record.rfind(&format!("\"{stage}\":"));
    last("given") > last("begun").max(last("ending"))
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

/// Returns the number in a variable of the environment.
pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
