//! What a plugin may do: one small TOML file per plugin, deny by default.
//!
//! ```toml
//! digest = "sha256:..."             # with another component than this one the plugin is refused
//! versions = ["1.0.0", "1.1.0"]     # CNI versions; default: all
//! withdraw = ["masquerade"]         # capabilities taken away again; for operator files
//!
//! [limits]
//! seconds = 120                     # start to end, waits included
//!
//! [grant.bridge]                    # one table per WIT interface
//! names = ["${config.bridge | cni0}"]
//! ```
//!
//! A grant whose interface has no object to choose is an empty table (`[grant.veth]`). Unknown keys are errors. The
//! grammar of values is in [`template`]. A table in the operator's file replaces the whole table of the shipped file.

mod limits;
mod rules;
mod template;

pub use limits::Limits;
pub use rules::{Objects, decide};
pub use template::Template;

use crate::places;
use postern_cni::Json;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A policy file, as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct File {
    digest: Option<String>,
    versions: Option<Vec<String>>,
    withdraw: Vec<String>,
    limits: Limits,
    grant: Grants,
}

/// A grant with nothing to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct BridgeGrant {
    names: Vec<Template>,
    /// `true` lets the plugin replace an address that an operator gave the bridge.
    force_address: Option<Template>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct MasqueradeGrant {
    #[serde(default = "all_backends")]
    backends: Vec<String>,
}

fn all_backends() -> Vec<String> {
    vec!["nftables".to_owned(), "iptables".to_owned()]
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct IpamGrant {
    types: Vec<Template>,
    /// Types that may be a native program of `CNI_PATH`, which runs with all of the host's privileges.
    #[serde(default)]
    native: Vec<Template>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LeasesGrant {
    directories: Vec<Template>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ResolvConfGrant {
    files: Vec<Template>,
}

macro_rules! grants {
    ($($field:ident: $type:ty = $name:literal),* $(,)?) => {
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        struct Grants { $($field: Option<$type>),* }

        impl Grants {
            /// Every capability there is, by the name of its WIT interface.
            const NAMES: &'static [&'static str] = &[$($name),*];

            fn replace_with(&mut self, operator: Self) {
                $(if operator.$field.is_some() { self.$field = operator.$field; })*
            }

            fn withdraw(&mut self, name: &str) {
                match name { $($name => self.$field = None,)* _ => {} }
            }

            fn granted(&self) -> Vec<&'static str> {
                [$((self.$field.is_some(), $name)),*].into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect()
            }
        }
    };
}

grants! {
    link: Plain = "link",
    veth: Plain = "veth",
    addresses: Plain = "addresses",
    routes: Plain = "routes",
    link_sysctl: Plain = "link-sysctl",
    bridge: BridgeGrant = "bridge",
    point_to_point: Plain = "point-to-point",
    forwarding: Plain = "forwarding",
    masquerade: MasqueradeGrant = "masquerade",
    mac_guard: Plain = "mac-guard",
    ipam: IpamGrant = "ipam",
    leases: LeasesGrant = "leases",
    resolv_conf: ResolvConfGrant = "resolv-conf",
    loopback: Plain = "loopback",
    attachments: Plain = "attachments",
}

/// A plugin's policy: shipped and operator's files put together.
#[derive(Clone, Debug)]
pub struct Policy {
    file: File,
    /// The shipped file, for messages.
    path: PathBuf,
}

/// A policy for one run: its names taken from the operator's configuration.
#[derive(Clone, Debug)]
pub struct Granted {
    capabilities: Vec<&'static str>,
    bridges: Vec<String>,
    force_address: bool,
    backends: Vec<String>,
    ipam_types: Vec<String>,
    ipam_native: Vec<String>,
    lease_directories: Vec<String>,
    resolv_confs: Vec<String>,
    limits: Limits,
    path: PathBuf,
}

impl Policy {
    /// Reads `<catalog>/<plugin>.toml` and, if there is one, the operator's file of the same name.
    ///
    /// # Errors
    /// A text for people: no policy (a plugin without one is not run), not to be trusted, or not to be understood.
    pub fn load(catalog: &Path, plugin: &str) -> Result<Self, String> {
        let path = catalog.join(format!("{plugin}.toml"));
        let mut file = match std::fs::File::open(&path) {
            Ok(open) => parse(&path, open)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(format!(
                    "plugin \"{plugin}\" has no policy at {}, and a plugin without a policy is not run; \
                     `postern add FILE.wasm --policy FILE` places both",
                    path.display()
                ));
            }
            Err(e) => return Err(format!("{}: {e}", path.display())),
        };
        let own = Path::new(places::OPERATOR_POLICY).join(format!("{plugin}.toml"));
        match std::fs::File::open(&own) {
            Ok(open) => {
                places::trust(&own)?;
                let operator = parse(&own, open)?;
                file.digest = operator.digest.or(file.digest);
                file.versions = operator.versions.or(file.versions);
                file.grant.replace_with(operator.grant);
                file.withdraw.extend(operator.withdraw);
                file.limits.replace_with(&operator.limits);
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("{}: {e}", own.display())),
        }
        for name in std::mem::take(&mut file.withdraw) {
            file.grant.withdraw(&name);
        }
        Ok(Self { file, path })
    }

    /// Reads a policy text, without files of the operator's: `postern add`, tests.
    ///
    /// # Errors
    /// A text for people.
    pub fn parse(text: &str, path: &Path) -> Result<Self, String> {
        Ok(Self { file: parse_text(path, text)?, path: path.to_owned() })
    }

    /// The one component that this policy is for, if it says so: `sha256:` and 64 hexadecimal digits.
    pub fn digest(&self) -> Option<&str> {
        self.file.digest.as_deref()
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
        self.file.grant.granted().contains(&capability)
    }

    /// The names of all granted interfaces.
    pub fn capabilities(&self) -> Vec<&'static str> {
        self.file.grant.granted()
    }

    /// The policy for one configuration.
    ///
    /// # Errors
    /// A text for people: the configuration makes a name of the policy ambiguous.
    pub fn resolve(&self, config: &Json) -> Result<Granted, String> {
        let grant = &self.file.grant;
        let all = |templates: Option<&Vec<Template>>| -> Result<Vec<String>, String> {
            let resolved = templates.into_iter().flatten().map(|template| template.resolve(config));
            Ok(resolved.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        };
        let force = match grant.bridge.as_ref().and_then(|bridge| bridge.force_address.as_ref()) {
            Some(template) => template.resolve(config)?.is_some_and(|value| value == "true"),
            None => false,
        };
        Ok(Granted {
            capabilities: grant.granted(),
            bridges: all(grant.bridge.as_ref().map(|bridge| &bridge.names))?,
            force_address: force,
            backends: grant.masquerade.as_ref().map(|masquerade| masquerade.backends.clone()).unwrap_or_default(),
            ipam_types: all(grant.ipam.as_ref().map(|ipam| &ipam.types))?,
            ipam_native: all(grant.ipam.as_ref().map(|ipam| &ipam.native))?,
            lease_directories: all(grant.leases.as_ref().map(|leases| &leases.directories))?,
            resolv_confs: all(grant.resolv_conf.as_ref().map(|resolv_conf| &resolv_conf.files))?,
            limits: self.file.limits.clone(),
            path: self.path.clone(),
        })
    }
}

impl Granted {
    /// Bounds of the run.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether an interface is granted at all.
    pub fn has(&self, capability: &str) -> bool {
        self.capabilities.contains(&capability)
    }

    /// Whether policy lets this delegate be a native program.
    pub fn allows_native(&self, plugin: &str) -> bool {
        self.ipam_native.iter().any(|name| name == plugin)
    }

    /// Whether policy lets this plugin be the IPAM delegate.
    pub fn allows_ipam(&self, plugin: &str) -> bool {
        self.ipam_types.iter().any(|name| name == plugin)
    }

    /// Where an operator would widen it.
    pub fn operator_file(&self) -> String {
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        format!("{}/{name}", places::OPERATOR_POLICY)
    }
}

fn parse(path: &Path, mut open: std::fs::File) -> Result<File, String> {
    places::trust_file(path, &open)?;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut open, &mut text).map_err(|e| format!("{}: {e}", path.display()))?;
    parse_text(path, &text)
}

fn parse_text(path: &Path, text: &str) -> Result<File, String> {
    let file: File = toml::from_str(text).map_err(|e| format!("policy {}: {e}", path.display()))?;
    file.limits.check().map_err(|text| format!("policy {}: {text}", path.display()))?;
    for name in &file.withdraw {
        if !Grants::NAMES.contains(&name.as_str()) {
            return Err(format!(
                "policy {}: `withdraw` names \"{name}\", but the capabilities are {}",
                path.display(),
                Grants::NAMES.join(", ")
            ));
        }
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Result<Policy, String> {
        Policy::parse(text, Path::new("bridge.toml"))
    }

    #[test]
    fn denies_by_default() {
        let policy = policy("").unwrap();
        assert!(Grants::NAMES.iter().all(|name| !policy.grants(name)));
    }

    #[test]
    fn refuses_unknown_keys_and_says_what_is_possible() {
        assert!(policy("[grant.netlink]").unwrap_err().contains("expected one of"));
        assert!(policy("[grant.veth]\nname = \"x\"").unwrap_err().contains("unknown field"));
        assert!(policy("withdraw = [\"nat\"]").unwrap_err().contains("the capabilities are"));
        assert!(policy("[limits]\nminutes = 1").unwrap_err().contains("expected one of"));
    }

    #[test]
    fn takes_names_from_the_configuration() {
        let policy = policy(
            "[grant.bridge]\nnames = [\"${config.bridge | cni0}\"]\nforce-address = \"${config.forceAddress | false}\"",
        )
        .unwrap();
        let granted = policy.resolve(&Json::parse(br#"{"Bridge":"br1","forceaddress":true}"#, 4096).unwrap()).unwrap();
        assert_eq!((granted.bridges, granted.force_address), (vec!["br1".to_owned()], true));
        let granted = policy.resolve(&Json::parse(b"{}", 4096).unwrap()).unwrap();
        assert_eq!((granted.bridges, granted.force_address), (vec!["cni0".to_owned()], false));
    }
}
