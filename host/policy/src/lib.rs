//! The permissions of a plugin: one small TOML file per plugin, deny by default.
//!
//! ```toml
//! digest = "sha256:…"               # this file is only for the component with this digest
//! versions = ["1.0.0", "1.1.0"]     # CNI versions; default: all
//! gc = "host"                       # the host does the work of GC, and starts no guest; default: "guest"
//! withdraw = ["masquerade"]         # capabilities that are taken away again; for operator files
//!
//! [limits]
//! seconds = 90                      # from start to end, including waits and cleaning up
//!
//! [grant.bridge]                    # one table per WIT interface
//! names = ["${config.bridge | cni0}"]
//!
//! [grant.veth]
//! look-only = "true"                # for tables about links: no link is made, changed or deleted
//!
//! [result]                          # parts of a result that are neither leased nor made
//! addresses = ["${config.ipam.addresses.*.address}"]
//!
//! [previous]                        # objects of an earlier native plugin that count as the attachment's own
//! addresses = ["10.0.0.0/8"]
//! names = ["tap*"]                  # links of the host
//! ```
//!
//! A grant whose capability has no object to choose is an empty table (`[grant.veth]`). Unknown keys are errors. Values
//! that can never match are errors too. A table in the operator's file replaces the whole table of the shipped file.
//!
//! The path from file to decision: [`file`] reads the TOML by the keys in each file of [`capability`]; [`grammar`] has
//! the kinds of the keys' values. [`template`] fills in the configuration of one run; [`granted`] is the result.
//! [`rules`] decides by this result, and by the rule of each operation in [`capability`]. [`port`] decides on VLANs,
//! and [`ranges`] on leases. [`node`] has the operator's settings for the whole node. [`line`] makes the policy line
//! that a refusal offers.
//!
//! This crate only decides. Its input is text. It has no standard library. So it can't reach a file, the environment, a
//! clock, a socket or a process. `postern_gate::policies` reads the files.

#![cfg_attr(not(test), no_std)]

#[macro_use]
extern crate alloc;

pub mod capability;
mod error;
mod file;
mod form;
mod grammar;
mod granted;
mod limits;
mod line;
mod node;
mod pattern;
pub mod port;
mod prelude;
mod ranges;
mod rules;
mod template;
mod view;

pub use error::Ambiguous;
use error::FileError;
pub use form::Form;
pub use granted::{Granted, limit_hint};
pub use limits::Limits;
pub use node::{NODE_FILE, NodeSettings};
pub use rules::{Question, Rule, allows, decide, rule};
pub use view::{GrantView, Origin};

use crate::prelude::*;
use alloc::sync::Arc;
use file::File;
use grammar::TableName;
use postern_cni::Json;
use postern_types::Capability;
use template::Sources;
use view::Collector;

/// The directory of the operator's policy files. The tables of these files replace the tables of the shipped file with
/// the same name.
pub const OPERATOR_DIRECTORY: &str = "/etc/postern/policy";

/// The text of a policy file, and its path for messages.
#[derive(Clone, Debug)]
pub struct Text {
    /// The path of the file. The file is not opened.
    pub path: String,
    /// The content of the file.
    pub text: String,
}

/// The reason why there is no policy for a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A file can't be understood.
    #[error("policy {path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// The key, its fault, and the possible values.
        reason: FileError,
    },
    /// The configuration makes a value of the policy ambiguous. The text names the key and its place.
    #[error(transparent)]
    Ambiguous(#[from] Ambiguous),
}

/// A plugin's policy: the shipped and the operator's file combined.
#[derive(Clone, Debug)]
pub struct Policy {
    file: Arc<File>,
    /// The shipped file, for messages.
    path: String,
    /// The file with the component's digest.
    pin: Option<String>,
}

impl Policy {
    /// Combines the shipped file and the operator's file. The operator's file is read only after the shipped file is
    /// understood. If `form` is the form of the shipped text, the text is not parsed again.
    ///
    /// # Errors
    /// A file can't be read or understood.
    pub fn of_both<E: From<PolicyError>>(
        shipped: Text,
        form: Option<Form>,
        operator: impl FnOnce() -> Result<Option<Text>, E>,
    ) -> Result<Self, E> {
        let file = match form.and_then(|form| form.tables_of(&shipped.text)) {
            Some(tables) => File::of(tables, Origin::Shipped)
                .map_err(|reason| PolicyError::File { path: shipped.path.clone(), reason })?,
            None => parse(&shipped.path, &shipped.text, Origin::Shipped)?,
        };
        let mut policy = Self::of(file, shipped.path);
        if let Some(own) = operator()? {
            let file = parse(&own.path, &own.text, Origin::Operator)?;
            policy.pin = file.digest.is_some().then_some(own.path).or(policy.pin);
            Arc::make_mut(&mut policy.file).replace_with(file);
        }
        Ok(policy.without_withdrawn())
    }

    /// Returns the CNI versions of both files, as [`Policy::versions`] of the combined policy. VERSION needs only the
    /// versions. So without an operator's file, and with the form of the shipped text, nothing else is parsed.
    ///
    /// # Errors
    /// As [`Policy::of_both`].
    pub fn versions_of_both<E: From<PolicyError>>(
        shipped: Text,
        form: Option<Form>,
        operator: impl FnOnce() -> Result<Option<Text>, E>,
    ) -> Result<Option<Vec<String>>, E> {
        let whole = match form.filter(|form| form.is_of(&shipped.text)) {
            None => Self::of_both(shipped, None, operator)?,
            Some(form) => match operator()? {
                None => {
                    let named = form.value("versions").map(file::versions).transpose();
                    return Ok(named.map_err(|reason| PolicyError::File { path: shipped.path, reason })?);
                }
                own => Self::of_both(shipped, Some(form), || Ok::<_, E>(own))?,
            },
        };
        Ok(whole.versions().map(<[_]>::to_vec))
    }

    /// Reads one policy text without an operator's file. The plugin's name is taken from the file's name.
    ///
    /// # Errors
    /// [`PolicyError::File`].
    pub fn parse(text: &str, path: &str) -> Result<Self, PolicyError> {
        Ok(Self::of(parse(path, text, Origin::Shipped)?, path.to_owned()).without_withdrawn())
    }

    fn of(file: File, path: String) -> Self {
        Self { pin: file.digest.is_some().then(|| path.clone()), file: Arc::new(file), path }
    }

    fn without_withdrawn(mut self) -> Self {
        Arc::make_mut(&mut self.file).withhold();
        self
    }

    /// The digest that the plugin's component must have: SHA-256 in 64 lower-case hexadecimal digits. If both files
    /// have a digest, the operator's digest counts.
    pub fn digest(&self) -> Option<&str> {
        self.file.digest.as_deref()
    }

    /// The file with the digest.
    pub fn pin_file(&self) -> Option<&str> {
        self.pin.as_deref()
    }

    /// The CNI versions that the plugin supports; `None` means all.
    pub fn versions(&self) -> Option<&[String]> {
        self.file.versions.as_deref()
    }

    /// True if the host does the work of the verb GC, and starts no guest for it.
    pub fn collects_by_host(&self) -> bool {
        self.file.gc == Some(Collector::Host)
    }

    /// Returns the limits of a run.
    pub fn limits(&self) -> &Limits {
        &self.file.limits
    }

    /// True if a capability is granted at all.
    pub fn grants(&self, capability: Capability) -> bool {
        self.file.tables.contains_key(&TableName::Grant(capability))
    }

    /// True if a file grants or withdraws a capability. Then the plugin may have made effects of this capability.
    pub fn knows(&self, capability: Capability) -> bool {
        self.file.table(TableName::Grant(capability)).is_some()
    }

    /// True if the plugin is made to create the attachment's own link, of any kind. Then a file grants a capability
    /// that makes links, without `look-only`, or withdraws such a capability.
    pub fn makes_links(&self) -> bool {
        let makes = |grant: &file::GrantTable| !grant.says(grammar::LOOK_ONLY.name, "true");
        let mut makers = Capability::ALL.iter().copied().filter(|capability| capability.makes_links());
        makers.any(|capability| self.file.table(TableName::Grant(capability)).is_some_and(makes))
    }

    /// Returns all granted capabilities.
    pub fn capabilities(&self) -> Vec<Capability> {
        Capability::ALL.iter().copied().filter(|capability| self.grants(*capability)).collect()
    }

    /// Returns the capabilities that a file takes away.
    pub fn withdrawn(&self) -> &[Capability] {
        &self.file.withdraw
    }

    /// Returns the grants, `[result]` and `[previous]` as the files have them.
    pub fn view(&self) -> Vec<GrantView> {
        self.file.tables.values().map(file::GrantTable::view).collect()
    }

    /// Returns the policy for one configuration and its `CNI_ARGS`.
    ///
    /// # Errors
    /// [`PolicyError::Ambiguous`].
    pub fn resolve(&self, config: &Json, args: &str) -> Result<Granted, PolicyError> {
        let sources = Sources { config, args };
        let resolve = |(table, grant): (&TableName, &file::GrantTable)| {
            Ok::<_, Ambiguous>((*table, granted::Grant::resolve(grant, sources)?))
        };
        Ok(Granted {
            tables: self.file.tables.iter().map(resolve).collect::<Result<_, _>>()?,
            // An ambiguous value in a withdrawn table is ignored.
            withdrawn: self.file.withdrawn.iter().map(resolve).filter_map(Result::ok).collect(),
            file: Arc::clone(&self.file),
            path: self.path.clone(),
        })
    }
}

fn parse(path: &str, text: &str, from: Origin) -> Result<File, PolicyError> {
    File::parse(text, from).map_err(|reason| PolicyError::File { path: path.to_owned(), reason })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The policies of the plugins that come with Postern.
    pub fn shipped() -> Vec<String> {
        let guests = format!("{}/../../guests", env!("CARGO_MANIFEST_DIR"));
        let plugins = std::fs::read_dir(guests).unwrap().map(|entry| entry.unwrap().path().join("policy.toml"));
        plugins.filter(|path| path.is_file()).map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }

    #[test]
    fn versions_alone_are_those_of_the_whole_policy() {
        let text = |text: &str| Text { path: "/etc/postern/policy/bridge.toml".to_owned(), text: text.to_owned() };
        let operators = ["", "versions = [\"1.1.0\"]", "withdraw = [\"masquerade\"]"];
        for shipped in shipped().into_iter().chain(["versions = [\"0.4.0\", \"1.0.0\"]\ngc = \"host\"".to_owned()]) {
            for form in [None, Form::of(&shipped), Form::of("versions = [\"0.1.0\"]")] {
                for operator in [None].into_iter().chain(operators.map(Some)) {
                    let own = || Ok::<_, PolicyError>(operator.map(text));
                    let whole = Policy::of_both(text(&shipped), form.clone(), own).unwrap();
                    let alone = Policy::versions_of_both(text(&shipped), form.clone(), own).unwrap();
                    assert_eq!(alone.as_deref(), whole.versions(), "{shipped} {operator:?}");
                }
            }
        }
        let wrong = "versions = [\"9.9.9\"]";
        assert!(Policy::versions_of_both(text(wrong), Form::of(wrong), || Ok::<_, PolicyError>(None)).is_err());
        assert!(Policy::versions_of_both(text(wrong), None, || Ok::<_, PolicyError>(None)).is_err());
    }

    /// Returns the policy made of these two files.
    fn both(shipped: &str, operator: &str) -> Policy {
        let text = |path: &str, text: &str| Text { path: path.to_owned(), text: text.to_owned() };
        let shipped = text("/usr/lib/postern/postern.d/bridge.toml", shipped);
        Policy::of_both(shipped, None, || Ok::<_, PolicyError>(Some(text("/etc/postern/policy/bridge.toml", operator))))
            .unwrap()
    }

    #[test]
    fn denies_by_default() {
        let policy = Policy::parse("", "bridge.toml").unwrap();
        assert!(Capability::ALL.iter().all(|capability| !policy.grants(*capability)));
    }

    #[test]
    fn errors_name_the_file() {
        let error = Policy::parse("[grant.netlink]", "/x/bridge.toml").unwrap_err().to_string();
        assert!(error.starts_with("policy /x/bridge.toml: [grant]: unknown field `netlink`"), "{error}");
    }

    #[test]
    fn an_operators_table_replaces_the_shipped_one() {
        let policy = both(
            "[grant.attachments]\n[grant.veth]\n[grant.bridge]\nnames = [\"a\"]\npromisc = \"true\"\n[result]\ngateways = [\"10.0.0.1\"]",
            "withdraw = [\"veth\"]\n[grant.forwarding]\n[grant.bridge]\nnames = [\"b\", \"${config.x | c*}\"]\n[result]\naddresses = [\"10.0.0.0/8\"]",
        );
        assert_eq!(policy.capabilities(), [Capability::Bridge, Capability::Forwarding, Capability::Attachments]);
        assert_eq!(policy.withdrawn(), [Capability::Veth]);
        let names = ("names", vec!["b".to_owned(), "${config.x | c*}".to_owned()]);
        let bridge = GrantView { name: "bridge", from: Origin::Operator, objects: vec![names] };
        let view = policy.view();
        assert_eq!(view[0], bridge);
        assert_eq!((view[2].name, view[2].from), ("attachments", Origin::Shipped));
        let addresses = ("addresses", vec!["10.0.0.0/8".to_owned()]);
        assert_eq!(view[3], GrantView { name: "result", from: Origin::Operator, objects: vec![addresses] });
        let granted = policy.resolve(&Json::parse(br#"{"x":"y"}"#, 4096).unwrap(), "").unwrap();
        assert_eq!(granted.view()[0].objects, [("names", vec!["b".to_owned(), "y".to_owned()])]);
        assert_eq!(granted.view()[3], view[3]);
        assert_eq!(
            (granted.plugin().as_str(), granted.operator_file().as_str()),
            ("bridge", "/etc/postern/policy/bridge.toml")
        );
    }

    #[test]
    fn an_operator_can_have_the_guest_collect() {
        assert!(!both("", "").collects_by_host());
        assert!(both("gc = \"host\"", "").collects_by_host());
        assert!(both("", "gc = \"host\"").collects_by_host());
        assert!(!both("gc = \"host\"", "gc = \"guest\"").collects_by_host());
    }

    #[test]
    fn the_operators_pin_counts() {
        let pin = |digit: &str| format!("digest = \"sha256:{}\"", digit.repeat(64));
        let file = |policy: &Policy| policy.pin_file().map(ToOwned::to_owned);
        let shipped = both(&pin("a"), "");
        assert_eq!(
            (shipped.digest(), file(&shipped).unwrap().as_str()),
            (Some("a".repeat(64).as_str()), "/usr/lib/postern/postern.d/bridge.toml")
        );
        let operator = both(&pin("a"), &pin("b"));
        assert_eq!(
            (operator.digest(), file(&operator).unwrap().as_str()),
            (Some("b".repeat(64).as_str()), "/etc/postern/policy/bridge.toml")
        );
        assert_eq!(both("", "").digest(), None);
    }

    #[test]
    fn ranges_are_shown_as_they_are_resolved() {
        let text = "[grant.leases]\ndirectories = [\"/x\"]\nranges = [\"${config.ipam.ranges.*.*}\", \"fd00::/64\"]";
        let policy = Policy::parse(text, "host-local.toml").unwrap();
        let config =
            br#"{"ipam":{"ranges":[[{"subnet":"10.0.0.0/24","rangeStart":"10.0.0.9","gateway":"10.0.0.1"}]]}}"#;
        let view = policy.resolve(&Json::parse(config, 4096).unwrap(), "").unwrap().view();
        let shown = vec!["10.0.0.0/24, 10.0.0.9-, gateway 10.0.0.1".to_owned(), "fd00::/64".to_owned()];
        assert_eq!(view[0].objects[1], ("ranges", shown));
    }

    #[test]
    fn shipped_policies_are_read() {
        let shipped = shipped();
        assert!(shipped.len() > 4);
        for text in shipped {
            let policy = Policy::parse(&text, "shipped.toml").unwrap();
            policy.resolve(&Json::parse(b"{}", 4096).unwrap(), "").unwrap();
        }
    }
}
