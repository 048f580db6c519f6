//! `postern net`: a runtime's verbs for one container, with the arguments, variables, output and container IDs of
//! cnitool.

use crate::{lists, output, validate};
use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand};
use postern_cni::quote;
use postern_net::{Attachment, Cache, Failure, Programs, Rest, Runtime, load};
use serde_json::{Map, Value};
use sha2::{Digest, Sha512};
use std::env;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

/// Where networks and plugins are.
#[derive(Args)]
pub struct Places {
    /// The directory of network lists [default: NETCONFPATH, or /etc/cni/net.d].
    #[arg(long, global = true, value_name = "DIR")]
    conf_dir: Option<PathBuf>,
    /// Directories of plugins, separated by colons [default: CNI_PATH, or those of distributions].
    #[arg(long, global = true, value_name = "DIRS")]
    cni_path: Option<String>,
}

/// A verb of `postern net`.
#[derive(Subcommand)]
pub enum Verb {
    /// Attach a network namespace, and print the result.
    ///
    /// If a plugin fails, DEL of the whole list follows. It does not if the namespace was attached by this interface name
    /// before.
    Add(One),
    /// Compare an attachment with what ADD made.
    Check(One),
    /// Detach a network namespace. It may be gone, and DEL may be repeated.
    Del(One),
    /// Remove what is left of attachments that are gone.
    ///
    /// As with cnitool, without --valid no attachment is valid: each one that the cache has for this network is removed.
    Gc {
        /// The network's name.
        network: String,
        /// Ignored; cnitool wants one here.
        netns: Option<PathBuf>,
        /// An attachment that stays. Can be given several times.
        #[arg(long, value_name = "CONTAINER/INTERFACE", value_parser = valid)]
        valid: Vec<(String, String)>,
    },
    /// Ask the plugins if an ADD could work. Lists before CNI 1.1.0 have no STATUS: it succeeds.
    Status {
        /// The network's name.
        network: String,
        /// Ignored; cnitool wants one here.
        netns: Option<PathBuf>,
    },
    /// Check a network before a container needs it: keys, types, values, addresses, versions, programs, policy.
    ///
    /// An error is what a plugin, the runtime or policy refuses. A warning is what works, and probably not as it was meant.
    /// Each one has file, line and column. Keys of plugins that are not shipped with Postern are not known: of these, only
    /// the keys that all plugins have are checked.
    ///
    /// Policy is asked as `postern plan` asks it. Nothing is changed. With --policy it says instead which networks and
    /// attachments of this node a change of policy would refuse, at the next ADD, CHECK, STATUS, GC or DEL.
    ///
    /// Exit status: 0 no error (there may be warnings); 1 errors, or something could not be read; 2 the command line makes
    /// no sense.
    Validate(validate::Options),
    /// Print the JSON Schema (2020-12) of a network list, or of one plugin's configuration.
    ///
    /// For an IPAM plugin it is the schema of `ipam`. A schema is stricter than plugins are: an unknown key is an error.
    Schema {
        /// A plugin that is shipped with Postern.
        plugin: Option<String>,
    },
}

/// One attachment.
#[derive(Args)]
pub struct One {
    /// The network's name, as in its list.
    network: String,
    /// The path of the network namespace. The container ID is `cnitool-` and a hash of it.
    netns: PathBuf,
    /// The interface's name in the namespace [default: CNI_IFNAME, or eth0].
    #[arg(short, long, value_name = "NAME")]
    ifname: Option<String>,
}

fn valid(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('/').filter(|(container, interface)| !container.is_empty() && !interface.is_empty());
    let (container, interface) = pair.ok_or("wanted: the container's ID, a slash, and the interface's name")?;
    Ok((container.to_owned(), interface.to_owned()))
}

/// Runs a verb. Errors are printed in cnitool's form.
pub fn run(verb: &Verb, places: &Places) -> ExitCode {
    match verb {
        Verb::Validate(options) => {
            let cni_path = lists::cni_path(places.cni_path.as_deref());
            return validate::run(options, &validate::Places { directory: directory(places), cni_path });
        }
        Verb::Schema { plugin } => return validate::print_schema(plugin.as_deref()),
        Verb::Add(_) | Verb::Check(_) | Verb::Del(_) | Verb::Gc { .. } | Verb::Status { .. } => {}
    }
    match tried(verb, places) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Returns the directory of network lists.
fn directory(places: &Places) -> PathBuf {
    let variable = || env::var_os("NETCONFPATH").filter(|path| !path.is_empty()).map(PathBuf::from);
    places.conf_dir.clone().or_else(variable).unwrap_or_else(|| "/etc/cni/net.d".into())
}

fn tried(verb: &Verb, places: &Places) -> Result<()> {
    let directory = directory(places);
    let network = match verb {
        Verb::Add(one) | Verb::Check(one) | Verb::Del(one) => &one.network,
        Verb::Gc { network, .. } | Verb::Status { network, .. } => network,
        Verb::Validate(_) | Verb::Schema { .. } => return Ok(()),
    };
    let list = load(&directory, network)?;
    let plugins = Programs::of_path(&lists::cni_path(places.cni_path.as_deref()));
    let runtime = Runtime { plugins, cache: Cache::usual() };
    match verb {
        Verb::Add(one) => match runtime.add(&list, &attachment(one)?) {
            Ok(outcome) => output::result(&outcome.to_json()?)?,
            Err(Failure { error, rest }) => bail!(match rest {
                Rest::Nothing => error.to_string(),
                Rest::Removed => format!("{error}\nwhat was made is removed (DEL)"),
                Rest::Stayed(after) => format!("{error}\nDEL after it failed too: {after}"),
                Rest::Untouched => format!("{error}\nnothing is removed: `postern net del` does that"),
            }),
        },
        Verb::Check(one) => runtime.check(&list, &attachment(one)?)?,
        Verb::Del(one) => runtime.delete(&list, &attachment(one)?)?,
        Verb::Gc { valid, .. } => runtime.collect(&list, (!valid.is_empty()).then_some(valid))?,
        Verb::Status { .. } => runtime.status(&list)?,
        Verb::Validate(_) | Verb::Schema { .. } => {}
    }
    Ok(())
}

fn attachment(one: &One) -> Result<Attachment> {
    let netns = clean(&env::current_dir().unwrap_or_default().join(&one.netns));
    let netns = netns.to_str().ok_or_else(|| anyhow!("the path of the namespace is no UTF-8"))?.to_owned();
    let text = |name: &str| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    Ok(Attachment {
        container_id: container_id(&netns),
        netns,
        ifname: one.ifname.clone().or_else(|| text("CNI_IFNAME")).unwrap_or_else(|| "eth0".to_owned()),
        args: args(&text("CNI_ARGS").unwrap_or_default())?,
        capability_args: capability_args(&text("CAP_ARGS").unwrap_or_default())?,
    })
}

/// Returns cnitool's ID for a namespace: the first ten bytes of the SHA-512 of its path, in hex.
fn container_id(netns: &str) -> String {
    let hash = Sha512::digest(netns.as_bytes());
    let hex: String = hash.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    format!("cnitool-{hex}")
}

/// Shortens an absolute path by its text alone, as cnitool does: without `.`, `..` and double slashes.
fn clean(path: &Path) -> PathBuf {
    let mut short = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => short.push(name),
            Component::ParentDir => drop(short.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    short
}

fn args(text: &str) -> Result<Vec<(String, String)>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let pair = |pair: &str| {
        let parts = pair.split_once('=');
        let parts = parts.filter(|(key, value)| !key.is_empty() && !value.is_empty() && !value.contains('='));
        let (key, value) = parts.ok_or_else(|| anyhow!("invalid CNI_ARGS pair {}", quote(pair)))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    text.split(';').map(pair).collect()
}

fn capability_args(text: &str) -> Result<Map<String, Value>> {
    if text.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => bail!("CAP_ARGS is no JSON object"),
        Err(error) => bail!("CAP_ARGS is no JSON: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_cnitools() {
        // The first path and its ID are in cnitool's own documentation.
        assert_eq!(container_id("/var/run/netns/testing"), "cnitool-77383ca0a0715733ca6f");
        assert_eq!(clean(Path::new("/var//run/./x/../netns/testing/")), Path::new("/var/run/netns/testing"));
        assert_eq!(clean(Path::new("/../a")), Path::new("/a"));
    }

    #[test]
    fn arguments() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(args("A=1;B=2").unwrap(), [pair("A", "1"), pair("B", "2")]);
        assert!(args("").unwrap().is_empty());
        for wrong in ["A", "A=", "=1", "A=1;", "A=1=2", ";"] {
            assert!(args(wrong).is_err(), "{wrong}");
        }
        assert!(capability_args("[]").is_err() && capability_args("{").is_err());
        assert!(capability_args("null").unwrap().is_empty());
        assert_eq!(capability_args(r#"{"mac": "x"}"#).unwrap().len(), 1);
    }
}
