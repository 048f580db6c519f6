//! The commands of `postern net`, with the arguments, variables, output and container IDs of cnitool.

use crate::{Attachment, Cache, Failure, Programs, Rest, Runtime, load_from};
use postern_cni::{Error, quote};
use serde_json::{Map, Value};
use sha2::{Digest, Sha512};
use std::env;
use std::path::{Component, Path, PathBuf};

/// The directories in which distributions place plugins.
pub const DIRECTORIES: [&str; 3] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];

/// The directory of network lists.
const LISTS: &str = "/etc/cni/net.d";

/// The places of networks and plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The directories of network lists, in the order of the search; an empty list means [`Places::or`], or
    /// `/etc/cni/net.d`.
    pub conf_dirs: Vec<PathBuf>,
    /// Directories of plugins, separated by colons; `None` means [`Places::or`], or the directories of distributions.
    pub cni_path: Option<String>,
}

impl Places {
    /// Fills in the places that are not named: from `NETCONFPATH` and `CNI_PATH`, else from the operator's settings.
    /// `settings` returns directories of lists, and directories of plugins.
    ///
    /// # Errors
    /// The settings are needed, and can't be read.
    pub fn or<E>(mut self, settings: impl FnOnce() -> Result<(Vec<String>, Vec<String>), E>) -> Result<Self, E> {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        if self.conf_dirs.is_empty() {
            self.conf_dirs.extend(variable("NETCONFPATH").map(PathBuf::from));
        }
        self.cni_path = self.cni_path.or_else(|| Some(variable("CNI_PATH")?.to_string_lossy().into_owned()));
        if self.conf_dirs.is_empty() || self.cni_path.is_none() {
            let (lists, plugins) = settings()?;
            if self.conf_dirs.is_empty() {
                self.conf_dirs.extend(lists.into_iter().map(PathBuf::from));
            }
            if self.cni_path.is_none() && !plugins.is_empty() {
                self.cni_path = Some(plugins.join(":"));
            }
        }
        Ok(self)
    }

    /// Returns the directories of network lists.
    pub fn conf_dirs(&self) -> Vec<PathBuf> {
        if self.conf_dirs.is_empty() { vec![PathBuf::from(LISTS)] } else { self.conf_dirs.clone() }
    }

    /// Returns the directories of plugins, separated by colons.
    pub fn cni_path(&self) -> String {
        self.cni_path.clone().unwrap_or_else(|| DIRECTORIES.join(":"))
    }
}

/// A verb with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Attach a namespace.
    Add(One),
    /// Compare an attachment with the objects that ADD made.
    Check(One),
    /// Detach a namespace.
    Del(One),
    /// Remove the objects of attachments that are gone.
    Gc {
        /// The network's name.
        network: String,
        /// The attachments that stay: container ID and interface. If the list is empty, all attachments of the cache
        /// are removed.
        valid: Vec<(String, String)>,
    },
    /// Ask the plugins if an ADD could work.
    Status {
        /// The network's name.
        network: String,
    },
}

/// One attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct One {
    /// The network's name, as in its list.
    pub network: String,
    /// The path of the network namespace.
    pub netns: PathBuf,
    /// The interface's name in the namespace; `None` means `CNI_IFNAME`, or `eth0`.
    pub ifname: Option<String>,
}

/// Carries out a verb, and returns the result of ADD.
///
/// # Errors
/// The text that cnitool would print. After a failed ADD, also whether DEL has removed the attachment's objects.
pub fn run(command: &Command, places: &Places) -> Result<Option<String>, String> {
    let words = |error: Error| error.to_string();
    let network = match command {
        Command::Add(one) | Command::Check(one) | Command::Del(one) => &one.network,
        Command::Gc { network, .. } | Command::Status { network } => network,
    };
    let list = load_from(&places.conf_dirs(), network).map_err(words)?;
    let runtime = Runtime { plugins: Programs::of_path(&places.cni_path()), cache: Cache::usual() };
    match command {
        Command::Add(one) => {
            return match runtime.add(&list, &attachment(one)?) {
                Ok(outcome) => outcome.to_json().map(Some).map_err(words),
                Err(Failure { error, rest }) => Err(match rest {
                    Rest::Nothing => error.to_string(),
                    Rest::Removed => format!("{error}\nDEL has removed the attachment's objects"),
                    Rest::Stayed(after) => format!("{error}\nthe DEL that followed has failed too: {after}"),
                    Rest::Untouched => format!("{error}\nnothing is removed: `postern net del` removes the attachment"),
                }),
            };
        }
        Command::Check(one) => runtime.check(&list, &attachment(one)?),
        Command::Del(one) => runtime.delete(&list, &attachment(one)?),
        Command::Gc { valid, .. } => runtime.collect(&list, (!valid.is_empty()).then_some(valid)),
        Command::Status { .. } => runtime.status(&list),
    }
    .map(|()| None)
    .map_err(words)
}

fn attachment(one: &One) -> Result<Attachment, String> {
    let netns = clean(&env::current_dir().unwrap_or_default().join(&one.netns));
    let netns = netns.to_str().ok_or("the path of the namespace is no UTF-8")?.to_owned();
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
pub fn container_id(netns: &str) -> String {
    let mut hex = base16ct::lower::encode_string(&Sha512::digest(netns.as_bytes()));
    hex.truncate(20);
    format!("cnitool-{hex}")
}

/// Shortens the text of an absolute path, as cnitool does: without `.`, `..` and double slashes.
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

fn args(text: &str) -> Result<Vec<(String, String)>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let pair = |pair: &str| {
        let parts = pair.split_once('=');
        let parts = parts.filter(|(key, value)| !key.is_empty() && !value.is_empty() && !value.contains('='));
        let (key, value) = parts.ok_or_else(|| format!("invalid CNI_ARGS pair {}", quote(pair)))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    text.split(';').map(pair).collect()
}

fn capability_args(text: &str) -> Result<Map<String, Value>, String> {
    if text.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err("CAP_ARGS is no JSON object".to_owned()),
        Err(error) => Err(format!("CAP_ARGS is no JSON: {error}")),
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
