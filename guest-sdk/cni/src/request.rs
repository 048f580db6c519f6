//! The request of a runtime: the environment, the first checks of the configuration, and the choice of the verb.
//!
//! The order of the steps decides which error a runtime sees. Native plugins have the same order:
//! 1. [`Env::validate`]: variables, code 4. Without `CNI_COMMAND` a plugin prints its [`about`] text instead.
//! 2. For every verb except VERSION, even an unknown verb, the caller reads standard input (code 5 if reading fails).
//!    Then [`validate_conf`] checks the input, codes 6 and 7.
//! 3. [`Env::verb`]: an unknown verb, code 4.
//! 4. [`config_version`] and [`check_version`], codes 6 and 1.

use crate::error::{Error, code};
use crate::json::Json;
use crate::lists::{Lists, parse_with_lists};
use crate::names::{validate_container_id, validate_interface_name, validate_network_name};
use crate::print::compact;
use crate::quote::{quote, quote_list};
use crate::version::{NumericVersion, Version};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;

crate::named! {
    as_str, parse:
    /// A verb: the action that a runtime requests from a plugin. Its text is the value of `CNI_COMMAND`.
    #[allow(missing_docs, reason = "the names are those of the specification")]
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Verb {
        Add = "ADD",
        Del = "DEL",
        Check = "CHECK",
        Gc = "GC",
        Status = "STATUS",
        Version = "VERSION",
    }
}

impl Verb {
    /// Returns the oldest version that has the verb.
    pub const fn since(self) -> Version {
        match self {
            Verb::Add | Verb::Del | Verb::Version => Version::V0_1_0,
            Verb::Check => Version::V0_4_0,
            Verb::Gc | Verb::Status => Version::V1_1_0,
        }
    }

    /// True if the verb concerns one attachment, and so needs its container and interface.
    pub const fn has_attachment(self) -> bool {
        matches!(self, Verb::Add | Verb::Del | Verb::Check)
    }

    /// True if the verb needs the container's namespace.
    const fn needs_namespace(self) -> bool {
        matches!(self, Verb::Add | Verb::Check)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The variables of the protocol. An unset variable counts as empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Env {
    /// `CNI_COMMAND`, the verb.
    pub command: String,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`, the path of the container's network namespace.
    pub netns: String,
    /// `CNI_IFNAME`, the name of the interface in the container.
    pub ifname: String,
    /// `CNI_ARGS`, see [`Args`](crate::Args).
    pub args: String,
    /// `CNI_PATH`, the directories with plugins, separated by colons.
    pub path: String,
    /// `CNI_NETNS_OVERRIDE`, see [`Env::allows_own_netns`].
    pub netns_override: String,
}

impl Env {
    /// Collects the variables from the environment of the process. Bytes that aren't UTF-8 are replaced. They are an
    /// error only for a verb that uses the text.
    ///
    /// # Errors
    /// Code 4 for bytes that aren't UTF-8 in the ID, the namespace or the interface of an ADD or a CHECK.
    pub fn of_process() -> Result<Env, Error> {
        Env::of(|name| std::env::var_os(name))
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>) -> Result<Env, Error> {
        let text = |name| variable(name).unwrap_or_default().to_string_lossy().into_owned();
        let command = text("CNI_COMMAND");
        let needs_all = Verb::parse(&command).is_some_and(Verb::needs_namespace);
        let used = |name| match variable(name) {
            Some(value) if needs_all && value.to_str().is_none() => {
                Err(Error::environment(format!("{name} is not valid UTF-8")))
            }
            _ => Ok(text(name)),
        };
        Ok(Env {
            command,
            container_id: used("CNI_CONTAINERID")?,
            netns: used("CNI_NETNS")?,
            ifname: used("CNI_IFNAME")?,
            args: text("CNI_ARGS"),
            path: text("CNI_PATH"),
            netns_override: text("CNI_NETNS_OVERRIDE"),
        })
    }

    /// Checks the variables that the verb needs, and returns the verb. An unknown verb needs no variables and gives
    /// `None`: the caller refuses the verb after it has checked the configuration. Variables that a verb doesn't need
    /// aren't checked.
    ///
    /// # Errors
    /// Code 4: the first invalid required variable, else the list of the missing variables.
    pub fn validate(&self) -> Result<Option<Verb>, Error> {
        let verb = Verb::parse(&self.command);
        let attachment = verb.is_some_and(Verb::has_attachment);
        let netns = verb.is_some_and(Verb::needs_namespace);
        let path = verb.is_some_and(|verb| verb != Verb::Version);
        type Check = fn(&str) -> Result<(), Error>;
        let anything: Check = |_| Ok(());
        let table = [
            ("CNI_COMMAND", &self.command, true, anything),
            ("CNI_CONTAINERID", &self.container_id, attachment, validate_container_id as Check),
            ("CNI_NETNS", &self.netns, netns, anything),
            ("CNI_IFNAME", &self.ifname, attachment, validate_interface_name as Check),
            ("CNI_PATH", &self.path, path, anything),
        ];
        let mut missing = Vec::new();
        for (name, value, required, check) in table {
            match (required, value.as_str()) {
                (false, _) => {}
                (true, "") => missing.push(name),
                (true, value) => check(value)?,
            }
        }
        if missing.is_empty() {
            return Ok(verb);
        }
        Err(Error::environment(format!("required env variables [{}] missing", missing.join(","))))
    }

    /// Returns the verb.
    ///
    /// # Errors
    /// Code 4 if the verb is unknown.
    pub fn verb(&self) -> Result<Verb, Error> {
        let unknown = || Error::environment(format!("unknown CNI_COMMAND: {}", self.command));
        Verb::parse(&self.command).ok_or_else(unknown)
    }

    /// True if `CNI_NETNS_OVERRIDE` allows `CNI_NETNS` to be the plugin's own namespace.
    pub fn allows_own_netns(&self) -> bool {
        self.netns_override == "1" || self.netns_override.eq_ignore_ascii_case("true")
    }
}

/// Parses standard input of at most `limit` bytes, and checks only the name of the network.
///
/// # Errors
/// Code 6 if the input isn't one JSON object (or `null`), or if the name isn't a text. Code 7 for a missing or invalid
/// name.
pub fn validate_conf(stdin: &[u8], limit: usize) -> Result<Json, Error> {
    let conf = Json::parse(stdin, limit).map_err(undecodable)?;
    validate_name(&conf)?;
    Ok(conf)
}

/// Works as [`validate_conf`], but returns GC's lists separately.
///
/// # Errors
/// The errors of [`validate_conf`].
pub fn read_conf(stdin: &[u8], limit: usize) -> Result<(Json, Lists), Error> {
    let (conf, lists) = parse_with_lists(stdin, limit).map_err(undecodable)?;
    validate_name(&conf)?;
    Ok((conf, lists))
}

fn undecodable(error: Error) -> Error {
    error.with_code(code::DECODING_FAILURE).context("error unmarshall network config")
}

fn validate_name(conf: &Json) -> Result<(), Error> {
    // Go prints this text for a type without a name.
    const STRUCTURE: &str = r#"struct { Name string "json:\"name\"" }"#;
    conf.fields(STRUCTURE).map_err(undecodable)?;
    let name = conf.fields("").and_then(|fields| fields.str("name")).map_err(undecodable)?;
    validate_network_name(name.unwrap_or_default())
}

/// Returns the `cniVersion` of a configuration that passed [`validate_conf`]; 0.1.0 if it is absent or empty. The
/// version may be unknown.
///
/// # Errors
/// Code 6 if `cniVersion` isn't a text.
pub fn config_version(conf: &Json) -> Result<String, Error> {
    let undecodable =
        |error: Error| error.with_code(code::DECODING_FAILURE).context("decoding version from network config");
    let version = conf.fields("").and_then(|fields| fields.string("cniVersion")).map_err(undecodable)?;
    Ok(version.filter(|version| !version.is_empty()).unwrap_or_else(|| Version::V0_1_0.to_string()))
}

/// Checks that a plugin with the versions `supported` can serve `verb` for a configuration of version `config_version`.
///
/// # Errors
/// Code 6 if the verb depends on the version and the version can't be compared with others. Code 1 if the
/// configuration's version, or every version of the plugin, is too old for the verb. Also code 1 if the plugin doesn't
/// support exactly the configuration's version.
pub fn check_version(verb: Verb, config_version: &str, supported: &[Version]) -> Result<Version, Error> {
    let config_version = if config_version.is_empty() { Version::V0_1_0.as_str() } else { config_version };
    if verb.since() > Version::V0_1_0 {
        let wanted = NumericVersion::parse(config_version)?;
        if wanted < verb.since().numeric() {
            return Err(Error::version(format!("config version does not allow {verb}")));
        }
        if !supported.iter().any(|version| wanted <= version.numeric()) {
            return Err(Error::version(format!("plugin version does not allow {verb}")));
        }
    }
    let exact = supported.iter().copied().find(|version| version.as_str() == config_version);
    exact.ok_or_else(|| {
        let config = quote(config_version);
        let supported = quote_list(supported.iter().map(|version| version.as_str()));
        Error::version("incompatible CNI versions")
            .with_details(format!("config is {config}, plugin supports {supported}"))
    })
}

/// Returns the answer to VERSION, with its newline. Its `cniVersion` is always the newest version known here.
pub fn version_output(supported: &[Version]) -> String {
    let supported = supported.iter().map(|version| Json::from(version.as_str())).collect();
    let answer = Json::Object(vec![
        ("cniVersion".to_owned(), Json::from(Version::LATEST.as_str())),
        ("supportedVersions".to_owned(), Json::Array(supported)),
    ]);
    compact(&answer) + "\n"
}

/// Returns the two lines that a plugin prints on standard error if it is started without `CNI_COMMAND`. The exit status
/// is 0.
///
/// Programs read these lines. Nomad takes the first word that is a semantic version. nerdctl takes the text after
/// `plugin ` to the end of the line. So the version is a semantic version behind a `v`, or `version unknown`, as in
/// native plugins.
pub fn about(plugin: &str, plugin_version: Option<&str>, supported: &[Version]) -> String {
    let plugin_version = plugin_version.map_or_else(|| "version unknown".to_owned(), |version| format!("v{version}"));
    let supported: Vec<&str> = supported.iter().map(|version| version.as_str()).collect();
    let supported = supported.join(", ");
    format!("CNI {plugin} plugin {plugin_version}\nCNI protocol versions supported: {supported}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(command: &str) -> Env {
        Env {
            command: command.into(),
            container_id: "c1".into(),
            netns: "/run/netns/c1".into(),
            ifname: "eth0".into(),
            path: "/opt/cni/bin".into(),
            ..Env::default()
        }
    }

    fn refused(env: &Env) -> (u32, String, String) {
        let error = env.validate().unwrap_err();
        (error.code, error.msg, error.details)
    }

    #[test]
    fn each_verb_needs_its_variables() {
        let missing = |command: &str| {
            let bare = Env { command: command.into(), ..Env::default() };
            bare.validate().map_err(|error| {
                assert_eq!(error.code, 4);
                error.msg
            })
        };
        let list = |names: &str| Err(format!("required env variables [{names}] missing"));
        assert_eq!(missing(""), list("CNI_COMMAND"));
        assert_eq!(missing("ADD"), list("CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH"));
        assert_eq!(missing("CHECK"), list("CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH"));
        assert_eq!(missing("DEL"), list("CNI_CONTAINERID,CNI_IFNAME,CNI_PATH"));
        assert_eq!(missing("GC"), list("CNI_PATH"));
        assert_eq!(missing("STATUS"), list("CNI_PATH"));
        assert_eq!(missing("VERSION"), Ok(Some(Verb::Version)));
        assert_eq!(missing("FOO"), Ok(None));
        assert_eq!(missing("add"), Ok(None));
        for verb in ["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"] {
            assert_eq!(env(verb).validate().unwrap().unwrap().as_str(), verb);
        }
        let partly = Env { netns: String::new(), ifname: String::new(), ..env("ADD") };
        assert_eq!(refused(&partly).1, "required env variables [CNI_NETNS,CNI_IFNAME] missing");
    }

    #[test]
    fn an_invalid_value_comes_before_missing_ones() {
        let bad = Env { container_id: "a b".into(), ..Env::default() };
        assert_eq!(
            refused(&Env { command: "ADD".into(), ..bad.clone() }),
            (4, "invalid characters in containerID".into(), "a b".into())
        );
        let both = Env { command: "DEL".into(), ifname: "..".into(), ..bad.clone() };
        assert_eq!(refused(&both).1, "invalid characters in containerID");
        let after_a_missing_one = Env { netns: String::new(), ifname: "a/b".into(), ..env("ADD") };
        assert_eq!(refused(&after_a_missing_one).1, "interface name contains / or : or whitespace characters");
        // A variable that is not required is not checked.
        assert_eq!(Env { path: "x".into(), command: "GC".into(), ..bad.clone() }.validate().unwrap(), Some(Verb::Gc));
        assert_eq!(Env { command: "FOO".into(), ..bad }.validate().unwrap(), None);
    }

    #[test]
    fn the_environment_is_collected() {
        let odd = |verb: &'static str, odd: &'static str| {
            Env::of(move |name| match name {
                "CNI_COMMAND" => Some(verb.into()),
                name if name == odd => Some(std::os::unix::ffi::OsStringExt::from_vec(b"K=\xe9".to_vec())),
                _ => None,
            })
        };
        for name in ["CNI_ARGS", "CNI_PATH", "CNI_NETNS", "CNI_IFNAME", "CNI_CONTAINERID"] {
            assert!(odd("DEL", name).is_ok() && odd("STATUS", name).is_ok(), "{name}");
        }
        assert_eq!(odd("ADD", "CNI_ARGS").unwrap().args, "K=\u{fffd}");
        assert_eq!(odd("CHECK", "CNI_NETNS").unwrap_err().msg, "CNI_NETNS is not valid UTF-8");
        let asked = Env::of(|name| (name != "CNI_ARGS").then(|| name.to_lowercase().into())).unwrap();
        assert_eq!((asked.ifname.as_str(), asked.netns_override.as_str()), ("cni_ifname", "cni_netns_override"));
        assert_eq!(asked.args, "");
        for (value, on) in [("1", true), ("TRUE", true), ("True", true), ("yes", false), ("0", false), ("", false)] {
            assert_eq!(Env { netns_override: value.into(), ..Env::default() }.allows_own_netns(), on, "{value}");
        }
    }

    #[test]
    fn configurations() {
        let look = |text: &str| validate_conf(text.as_bytes(), 1000).map_err(|error| (error.code, error.to_string()));
        assert!(look(r#"{"name":"n"}"#).is_ok());
        assert!(look(r#" {"NAME":"n","x":[1.5e3,{}],"name":null} "#).is_ok());
        for (text, expected) in [
            ("null", (7, "missing network name")),
            ("{}", (7, "missing network name")),
            (r#"{"name":""}"#, (7, "missing network name")),
            (r#"{"name":"a b"}"#, (7, "invalid characters found in network name; a b")),
            ("", (6, "error unmarshall network config: unexpected end of JSON input")),
            (
                "[]",
                (
                    6,
                    r#"error unmarshall network config: json: cannot unmarshal array into Go value of type struct { Name string "json:\"name\"" }"#,
                ),
            ),
            (
                r#"{"name":1}"#,
                (
                    6,
                    "error unmarshall network config: json: cannot unmarshal number into Go struct field .name of type string",
                ),
            ),
        ] {
            assert_eq!(look(text).unwrap_err(), (expected.0, expected.1.to_owned()));
        }
        assert_eq!(look(r#"{"name":"n"} x"#).unwrap_err().0, 6);
        assert_eq!(look(&" ".repeat(1001)).unwrap_err().0, 6);
    }

    #[test]
    fn versions_of_configurations() {
        let version = |text: &str| config_version(&Json::parse(text.as_bytes(), 100).unwrap());
        assert_eq!(version("{}").unwrap(), "0.1.0");
        assert_eq!(version(r#"{"cniVersion":""}"#).unwrap(), "0.1.0");
        assert_eq!(version(r#"{"cniVersion":"1.0.0","CNIVERSION":"0.4.0"}"#).unwrap(), "0.4.0");
        let error = version(r#"{"cniVersion":1}"#).unwrap_err();
        assert_eq!(error.code, 6);
        assert_eq!(
            error.msg,
            "decoding version from network config: json: cannot unmarshal number into Go struct field .cniVersion of type string"
        );
    }

    #[test]
    fn verbs_and_versions() {
        let all = &Version::ALL;
        let old = &[Version::V0_3_1, Version::V0_4_0];
        assert_eq!(check_version(Verb::Add, "", all), Ok(Version::V0_1_0));
        assert_eq!(check_version(Verb::Gc, "1.1.0", all), Ok(Version::V1_1_0));
        let refused = |verb, version: &str, supported: &[Version]| {
            let error = check_version(verb, version, supported).unwrap_err();
            (error.code, error.to_string())
        };
        for verb in [Verb::Add, Verb::Del] {
            for version in ["1.0", "v1.0.0", "9.9.9", "x"] {
                assert_eq!(
                    refused(verb, version, old),
                    (
                        1,
                        format!(
                            r#"incompatible CNI versions; config is "{version}", plugin supports ["0.3.1" "0.4.0"]"#
                        )
                    )
                );
            }
        }
        assert_eq!(refused(Verb::Check, "0.3.1", all), (1, "config version does not allow CHECK".into()));
        assert_eq!(refused(Verb::Check, "", all), (1, "config version does not allow CHECK".into()));
        assert_eq!(refused(Verb::Check, "1.0.0", old), (1, "plugin version does not allow CHECK".into()));
        assert_eq!(refused(Verb::Gc, "1.0.0", all), (1, "config version does not allow GC".into()));
        assert_eq!(refused(Verb::Gc, "1.2.0", all), (1, "plugin version does not allow GC".into()));
        assert_eq!(refused(Verb::Status, "1.0.0", all), (1, "config version does not allow STATUS".into()));
        assert_eq!(refused(Verb::Status, "1.1.0", old), (1, "plugin version does not allow STATUS".into()));
        assert!(refused(Verb::Check, "0.5.0", all).1.starts_with("incompatible CNI versions; config is \"0.5.0\""));
        assert_eq!(refused(Verb::Check, "1.0.0.0", all).0, 6);
        assert_eq!(refused(Verb::Gc, "x", all).0, 6);
    }

    #[test]
    fn answers_without_a_guest() {
        assert_eq!(
            version_output(&[Version::V0_4_0, Version::V1_0_0]),
            "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.4.0\",\"1.0.0\"]}\n"
        );
        assert_eq!(
            about("bridge", Some("0.1.0"), &[Version::V0_4_0, Version::V1_0_0]),
            "CNI bridge plugin v0.1.0\nCNI protocol versions supported: 0.4.0, 1.0.0\n"
        );
        assert!(about("lane", None, &[Version::V1_0_0]).starts_with("CNI lane plugin version unknown\n"));
        assert_eq!(env("FOO").verb().unwrap_err(), Error::environment("unknown CNI_COMMAND: FOO"));
    }
}
