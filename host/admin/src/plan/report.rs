//! The parts of a plan, for scripts.

use super::names::ObjectBefore;
use postern_policy::Origin;
use postern_types::{OpError, Operation, Reply};
use serde::Serialize;
use serde_json::Value;

/// The object that `--json` prints. Keys are only ever added.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The network's name.
    pub network: String,
    /// The CNI version that a runtime would choose; empty if the file has none.
    pub version: String,
    /// `CNI_CONTAINERID`.
    pub container: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// The plugins in the order of a runtime's calls.
    pub plugins: Vec<PluginReport>,
    /// The result for the runtime; `null` if a plugin failed, or if the result is unknown (a note has the reason).
    pub result: Value,
    /// The data that are unknown, and the plan's assumption about each.
    pub notes: Vec<String>,
    /// True if policy allows every operation.
    pub allowed: bool,
    /// True if the plan ended because this user can't look into the container.
    #[serde(skip)]
    pub is_blind: bool,
    /// True if the plan ended because the next operations are unknown. A real ADD may succeed.
    #[serde(skip)]
    pub is_cut: bool,
}

/// A plugin that the runtime would call.
#[derive(Clone, Debug, Serialize)]
pub struct PluginReport {
    /// The plugin's `type`.
    pub plugin: String,
    /// True if the plugin is not in the catalog. Then the plan did not run the plugin.
    pub native: bool,
    /// SHA-256 of the plugin's component, hexadecimal.
    pub digest: Option<String>,
    /// The files of the plugin's policy: the shipped file, and the operator's file if it exists.
    pub policy: Vec<String>,
    /// The plugin's delegates, and their delegates.
    pub delegates: Vec<Delegate>,
    /// The operations of the plugin and of its delegates. A delegate's operations follow the operation that calls the
    /// delegate.
    pub operations: Vec<OperationReport>,
    /// The plugin's CNI error.
    pub error: Option<Value>,
}

/// A plugin that another plugin runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delegate {
    /// The delegate's name.
    pub plugin: String,
    /// SHA-256 of the delegate's component, hexadecimal.
    pub digest: String,
    /// The files of the delegate's policy.
    pub policy: Vec<String>,
}

/// One operation.
#[derive(Clone, Debug, Serialize)]
pub struct OperationReport {
    /// WIT interface and function.
    pub operation: &'static str,
    /// The request with its objects, as in the audit log; `null` if the request is too long.
    pub request: Value,
    /// The operation in words, for people.
    pub words: String,
    /// The lifetime of the effect: `nothing`, `attachment` (DEL removes it), `part` (removed with another effect),
    /// `namespace` (ends with the container's namespace), `node` (shared, stays), `removal`, `release`, `collection`.
    pub lasting: &'static str,
    /// `allow` or `deny`.
    pub verdict: &'static str,
    /// The rule that allows the operation.
    pub rule: Option<&'static str>,
    /// The origin of the rule's policy file: `shipped` or `operator`.
    pub from: Option<&'static str>,
    /// The policy line that would allow the operation.
    pub missing: Option<String>,
    /// `ok`, or the error for the guest. A denied operation is shown as if it were allowed.
    pub outcome: String,
    /// True if the operation would change the node.
    pub changes: bool,
    /// The plugin that asked for the operation.
    pub plugin: String,
    /// The depth of delegation, 0 for the plugin that the runtime calls.
    pub depth: u32,
    #[serde(skip)]
    there: ObjectBefore,
}

/// The decision of policy.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// A rule allows the operation.
    Allowed {
        /// The rule.
        rule: &'static str,
        /// The origin of the rule's policy file.
        from: Origin,
    },
    /// No rule allows the operation.
    Denied {
        /// The policy line that would allow the operation.
        missing: String,
    },
}

/// The longest request, in bytes. The words and the outcome of an operation are cut to `LONGEST / 4` characters. Only a
/// guest that floods the report sends more.
const LONGEST: usize = 4096;

fn request(operation: &Operation) -> Value {
    let value = serde_json::to_value(operation.logged()).unwrap_or_default();
    if value.to_string().len() > LONGEST { Value::Null } else { value }
}

fn shorten(text: String) -> String {
    match text.char_indices().nth(LONGEST / 4) {
        None => text,
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
    }
}

impl OperationReport {
    /// Makes the report of an operation that was just requested.
    pub fn new(plugin: &str, depth: u32, operation: &Operation) -> Self {
        Self {
            operation: operation.name(),
            request: request(operation),
            words: String::new(),
            lasting: operation.lasting().name(),
            verdict: "deny",
            rule: None,
            from: None,
            missing: None,
            outcome: String::new(),
            changes: false,
            plugin: plugin.to_owned(),
            depth,
            there: ObjectBefore::Unknown,
        }
    }

    /// Notes the operation's outcome. `changed` is true if the simulated node has changed.
    pub fn finish(
        &mut self,
        words: String,
        verdict: &Verdict,
        outcome: &Result<Reply, OpError>,
        changed: bool,
        there: ObjectBefore,
    ) {
        self.words = shorten(words);
        self.changes = changed && outcome.is_ok() && self.lasting != "nothing";
        self.there = there;
        self.outcome = outcome.as_ref().map_or_else(|error| shorten(error.to_string()), |_| "ok".to_owned());
        match verdict {
            Verdict::Allowed { rule, from } => {
                (self.verdict, self.rule, self.from) = ("allow", Some(*rule), Some(from.name()));
            }
            Verdict::Denied { missing } => self.missing = Some(missing.clone()),
        }
    }

    /// True if policy allows the operation.
    pub fn is_allowed(&self) -> bool {
        self.verdict == "allow"
    }

    /// Returns the operation's effect in words for people, and says if the effect existed already.
    pub fn leaves(&self) -> String {
        let (kind, made, kept) = match self.lasting {
            "node" => ("node object", "would be made", "exists already"),
            "attachment" => ("attachment", "would be made", "exists already"),
            "part" => ("part of the attachment", "", "needs no change"),
            "namespace" => ("namespace", "would be changed", "needs no change"),
            "nothing" => return "reads".to_owned(),
            other => (other, "", "nothing to do"),
        };
        let state = match (self.outcome == "ok", self.changes, self.there) {
            (false, ..) => "would fail",
            (true, true, ObjectBefore::Other) => "exists, would be changed",
            (true, true, _) => made,
            (true, false, _) => kept,
        };
        if state.is_empty() { kind.to_owned() } else { format!("{kind}, {state}") }
    }
}
