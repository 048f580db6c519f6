//! What a plugin may do: one small TOML file per plugin, deny by default.
//!
//! ```toml
//! digest = "sha256:…"               # this file belongs to that component
//! versions = ["1.0.0", "1.1.0"]     # CNI versions; default: all
//! withdraw = ["masquerade"]         # capabilities taken away again; for operator files
//!
//! [limits]
//! seconds = 90                      # start to end, waits and cleaning up included
//!
//! [grant.bridge]                    # one table per WIT interface
//! names = ["${config.bridge | cni0}"]
//!
//! [result]                          # what an IPAM plugin may hand out beside leases that it took
//! addresses = ["${config.ipam.addresses.*.address}"]
//! ```
//!
//! A grant whose interface has no object to choose is an empty table (`[grant.veth]`). Unknown keys are errors, and so is
//! what could never match. A table in the operator's file replaces the whole table of the shipped file.
//!
//! From file to decision: [`file`] reads the TOML by the table in [`grammar`], [`template`] fills in the configuration of
//! one run, [`granted`] is the outcome, and [`rules`] decides by it, with [`port`] for VLANs and [`ranges`] for leases. What
//! a refusal offers as the way out is made by [`line`].

mod file;
mod grammar;
mod granted;
mod limits;
mod line;
mod pattern;
pub mod port;
mod ranges;
mod rules;
mod template;
mod view;

pub use granted::{Granted, limit_hint};
pub use limits::Limits;
pub use rules::{Objects, Rule, capability_names, decide};
pub use view::{GrantView, Origin};

use crate::places;
use file::File;
use postern_cni::Json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use template::{Sources, Template};

/// A plugin's policy: shipped and operator's files put together.
#[derive(Clone, Debug)]
pub struct Policy {
    file: Arc<File>,
    /// The shipped file, for messages.
    path: PathBuf,
    /// The file that pins the component.
    pin: Option<PathBuf>,
}

impl Policy {
    /// Reads `<catalog>/<plugin>.toml` and, if there is one, the operator's file of the same name.
    ///
    /// # Errors
    /// A text for people: no policy (a plugin without one is not run), not to be trusted, or not to be understood.
    pub fn load(catalog: &Path, plugin: &str) -> Result<Self, String> {
        let path = catalog.join(format!("{plugin}.toml"));
        let Some(open) = places::open_trusted(&path)? else {
            return Err(format!(
                "plugin \"{plugin}\" has no policy at {}, and a plugin without a policy is not run; \
                 `postern add FILE.wasm --policy FILE` places both",
                path.display()
            ));
        };
        let mut policy = Self::of(read(&path, open, Origin::Shipped)?, path);
        let own = Path::new(places::OPERATOR_POLICY).join(format!("{plugin}.toml"));
        match std::fs::File::open(&own) {
            Ok(open) => {
                places::trust(&own)?;
                policy.replace_with(read(&own, open, Origin::Operator)?, own);
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("{}: {e}", own.display())),
        }
        Ok(policy.without_withdrawn())
    }

    /// The file that came with the plugin alone: what it was made for, whatever an operator's file says. `None` if there is
    /// none, or none that can be read and trusted.
    pub fn load_shipped(catalog: &Path, plugin: &str) -> Option<Self> {
        let path = catalog.join(format!("{plugin}.toml"));
        let open = places::open_trusted(&path).ok()??;
        Some(Self::of(read(&path, open, Origin::Shipped).ok()?, path).without_withdrawn())
    }

    /// Reads a policy text, without files of the operator's: `postern add`, tests.
    ///
    /// # Errors
    /// A text for people.
    pub fn parse(text: &str, path: &Path) -> Result<Self, String> {
        Ok(Self::of(parse(path, text, Origin::Shipped)?, path.to_owned()).without_withdrawn())
    }

    fn of(file: File, path: PathBuf) -> Self {
        Self { pin: file.digest.is_some().then(|| path.clone()), file: Arc::new(file), path }
    }

    fn replace_with(&mut self, operator: File, path: PathBuf) {
        if operator.digest.is_some() {
            self.pin = Some(path);
        }
        Arc::make_mut(&mut self.file).replace_with(operator);
    }

    fn without_withdrawn(mut self) -> Self {
        Arc::make_mut(&mut self.file).withhold();
        self
    }

    /// The digest that the plugin's component must have: SHA-256 in 64 hexadecimal digits, small letters. Of two files
    /// that pin one the operator's counts.
    pub fn digest(&self) -> Option<&str> {
        self.file.digest.as_deref()
    }

    /// The file that has the digest.
    pub fn pin_file(&self) -> Option<&Path> {
        self.pin.as_deref()
    }

    /// The CNI versions that the plugin speaks; `None` is all of them.
    pub fn versions(&self) -> Option<&[String]> {
        self.file.versions.as_deref()
    }

    /// Bounds of a run.
    pub fn limits(&self) -> &Limits {
        &self.file.limits
    }

    /// Whether an interface is granted at all.
    pub fn grants(&self, capability: &str) -> bool {
        self.file.grants.iter().any(|grant| grant.name == capability)
    }

    /// Whether an interface stands in a file, be it granted or withdrawn: the plugin may have made such things.
    pub fn knows(&self, capability: &str) -> bool {
        self.grants(capability) || self.file.withdrawn.iter().any(|grant| grant.name == capability)
    }

    /// The names of all granted interfaces.
    pub fn capabilities(&self) -> Vec<&'static str> {
        self.file.grants.iter().map(|grant| grant.name).collect()
    }

    /// The capabilities that a file takes away.
    pub fn withdrawn(&self) -> &[String] {
        &self.file.withdraw
    }

    /// What is granted, as it is written.
    pub fn view(&self) -> Vec<GrantView> {
        let view =
            |grant: &file::Grant| GrantView { capability: grant.name, from: grant.from, objects: written(grant) };
        self.file.grants.iter().map(view).collect()
    }

    /// `[result]`, as it is written.
    pub fn result_view(&self) -> Vec<(&'static str, Vec<String>)> {
        self.file.result.as_ref().map(written).unwrap_or_default()
    }

    /// Which file `[result]` stands in.
    pub fn result_origin(&self) -> Option<Origin> {
        self.file.result.as_ref().map(|result| result.from)
    }

    /// The policy for one configuration, and the `CNI_ARGS` beside it.
    ///
    /// # Errors
    /// A text for people: the configuration makes a value of the policy ambiguous.
    pub fn resolve(&self, config: &Json, args: &str) -> Result<Granted, String> {
        let sources = Sources { config, args };
        let resolve = |grant: &file::Grant| granted::Grant::resolve(grant, sources);
        Ok(Granted {
            grants: self.file.grants.iter().map(resolve).collect::<Result<_, _>>()?,
            // What is ambiguous there asks for nothing.
            withdrawn: self.file.withdrawn.iter().filter_map(|grant| resolve(grant).ok()).collect(),
            result: self.file.result.as_ref().map(resolve).transpose()?,
            file: Arc::clone(&self.file),
            path: self.path.clone(),
        })
    }
}

fn written(grant: &file::Grant) -> Vec<(&'static str, Vec<String>)> {
    let texts = |templates: &[Template]| templates.iter().map(|template| template.text().to_owned()).collect();
    grant.keys.iter().map(|(key, templates)| (key.name, texts(templates))).collect()
}

fn read(path: &Path, mut open: std::fs::File, from: Origin) -> Result<File, String> {
    places::trust_file(path, &open)?;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut open, &mut text).map_err(|e| format!("{}: {e}", path.display()))?;
    parse(path, &text, from)
}

fn parse(path: &Path, text: &str, from: Origin) -> Result<File, String> {
    File::parse(text, from).map_err(|e| format!("policy {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy that these two files make.
    fn both(shipped: &str, operator: &str) -> Policy {
        let shipped_path = PathBuf::from("/usr/lib/postern/postern.d/bridge.toml");
        let own_path = PathBuf::from("/etc/postern/policy/bridge.toml");
        let operator = parse(&own_path, operator, Origin::Operator).unwrap();
        let mut policy = Policy::of(parse(&shipped_path, shipped, Origin::Shipped).unwrap(), shipped_path);
        policy.replace_with(operator, own_path);
        policy.without_withdrawn()
    }

    #[test]
    fn denies_by_default() {
        let policy = Policy::parse("", Path::new("bridge.toml")).unwrap();
        assert!(capability_names().iter().all(|name| !policy.grants(name)));
    }

    #[test]
    fn errors_name_the_file() {
        let error = Policy::parse("[grant.netlink]", Path::new("/x/bridge.toml")).unwrap_err();
        assert!(error.starts_with("policy /x/bridge.toml: [grant]: unknown field `netlink`"), "{error}");
    }

    #[test]
    fn an_operators_table_replaces_the_shipped_one() {
        let policy = both(
            "[grant.attachments]\n[grant.veth]\n[grant.bridge]\nnames = [\"a\"]\npromisc = \"true\"\n[result]\ngateways = [\"10.0.0.1\"]",
            "withdraw = [\"veth\"]\n[grant.forwarding]\n[grant.bridge]\nnames = [\"b\", \"${config.x | c*}\"]\n[result]\naddresses = [\"10.0.0.0/8\"]",
        );
        assert_eq!(policy.capabilities(), ["bridge", "forwarding", "attachments"]);
        assert_eq!(policy.withdrawn(), ["veth"]);
        let names = ("names", vec!["b".to_owned(), "${config.x | c*}".to_owned()]);
        let bridge = GrantView { capability: "bridge", from: Origin::Operator, objects: vec![names] };
        let view = policy.view();
        assert_eq!(view[0], bridge);
        assert_eq!((view[2].capability, view[2].from), ("attachments", Origin::Shipped));
        assert_eq!(policy.result_view(), [("addresses", vec!["10.0.0.0/8".to_owned()])]);
        assert_eq!(policy.result_origin(), Some(Origin::Operator));
        let granted = policy.resolve(&Json::parse(br#"{"x":"y"}"#, 4096).unwrap(), "").unwrap();
        assert_eq!(granted.view()[0].objects, [("names", vec!["b".to_owned(), "y".to_owned()])]);
        assert_eq!(granted.result_view(), policy.result_view());
        assert_eq!(
            (granted.plugin().as_str(), granted.operator_file().as_str()),
            ("bridge", "/etc/postern/policy/bridge.toml")
        );
    }

    #[test]
    fn the_operators_pin_counts() {
        let pin = |digit: &str| format!("digest = \"sha256:{}\"", digit.repeat(64));
        let file = |policy: &Policy| policy.pin_file().map(|path| path.display().to_string());
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
        let policy = Policy::parse(text, Path::new("host-local.toml")).unwrap();
        let config =
            br#"{"ipam":{"ranges":[[{"subnet":"10.0.0.0/24","rangeStart":"10.0.0.9","gateway":"10.0.0.1"}]]}}"#;
        let view = policy.resolve(&Json::parse(config, 4096).unwrap(), "").unwrap().view();
        let shown = vec!["10.0.0.0/24, 10.0.0.9-, gateway 10.0.0.1".to_owned(), "fd00::/64".to_owned()];
        assert_eq!(view[0].objects[1], ("ranges", shown));
    }

    #[test]
    fn shipped_policies_are_read() {
        for plugin in ["bridge", "host-local", "loopback", "ptp", "static"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../guests/{plugin}/policy.toml"));
            let policy = Policy::parse(&std::fs::read_to_string(&path).unwrap(), &path).unwrap();
            policy.resolve(&Json::parse(b"{}", 4096).unwrap(), "").unwrap();
        }
    }
}
