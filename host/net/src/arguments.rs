//! A parser for the arguments of `postern net`, without error messages for people. The host executable uses this
//! parser.

use crate::{Command, One, Places};
use std::ffi::OsString;
use std::path::PathBuf;

/// Arguments with a clear meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The verb with its arguments.
    pub command: Command,
    /// The places of networks and plugins.
    pub places: Places,
}

impl Arguments {
    /// Reads the arguments behind `net`. `None` for help, and for arguments that are or may be a mistake.
    pub fn read(arguments: &[OsString]) -> Option<Self> {
        Options::read(arguments)?.command()
    }
}

/// The arguments while they are read.
#[derive(Default)]
struct Options {
    conf_dir: Option<String>,
    cni_path: Option<String>,
    ifname: Option<String>,
    valid: Vec<(String, String)>,
    /// The verb with its arguments.
    words: Vec<String>,
}

impl Options {
    fn read(arguments: &[OsString]) -> Option<Self> {
        let mut options = Self::default();
        let mut rest = arguments.iter().map(|argument| argument.to_str());
        while let Some(argument) = rest.next() {
            let argument = argument?;
            let (name, value) = match argument.split_once('=').filter(|_| argument.starts_with("--")) {
                Some((name, value)) => (name, Some(value)),
                None => (argument, None),
            };
            if !name.starts_with('-') {
                options.words.push(Some(argument).filter(|word| !word.is_empty())?.to_owned());
                continue;
            }
            let value = value.or_else(|| rest.next().flatten())?;
            let value = Some(value).filter(|value| !value.is_empty() && !value.starts_with('-'))?.to_owned();
            let once = match name {
                "--conf-dir" => options.conf_dir.replace(value),
                "--cni-path" => options.cni_path.replace(value),
                "-i" | "--ifname" => options.ifname.replace(value),
                "--valid" => {
                    let (container, interface) = value.split_once('/')?;
                    if container.is_empty() || interface.is_empty() {
                        return None;
                    }
                    options.valid.push((container.to_owned(), interface.to_owned()));
                    None
                }
                _ => return None,
            };
            if once.is_some() {
                return None;
            }
        }
        Some(options)
    }

    /// Returns the verb with its arguments. `None` if verb and arguments don't fit together.
    fn command(self) -> Option<Arguments> {
        let Self { conf_dir, cni_path, ifname, valid, words } = self;
        let places = Places { conf_dirs: conf_dir.into_iter().map(PathBuf::from).collect(), cni_path };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let command = match *words.as_slice() {
            [verb @ ("add" | "check" | "del"), network, netns] if valid.is_empty() => {
                let one = One { network: network.to_owned(), netns: PathBuf::from(netns), ifname };
                match verb {
                    "add" => Command::Add(one),
                    "check" => Command::Check(one),
                    _ => Command::Del(one),
                }
            }
            ["gc", network] | ["gc", network, _] if ifname.is_none() => {
                Command::Gc { network: network.to_owned(), valid }
            }
            ["status", network] | ["status", network, _] if ifname.is_none() && valid.is_empty() => {
                Command::Status { network: network.to_owned() }
            }
            _ => return None,
        };
        Some(Arguments { command, places })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Arguments> {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Arguments::read(&arguments)
    }

    #[test]
    fn arguments() {
        let one = |ifname: Option<&str>| One {
            network: "n".to_owned(),
            netns: "/ns".into(),
            ifname: ifname.map(str::to_owned),
        };
        let is =
            |line: &str, command: Command| assert_eq!(read(line).map(|read| read.command), Some(command), "{line}");
        is("add n /ns", Command::Add(one(None)));
        is("check n /ns --ifname=net1", Command::Check(one(Some("net1"))));
        is("--conf-dir /etc -i net1 del n --cni-path a:b /ns", Command::Del(one(Some("net1"))));
        let valid = vec![("c".to_owned(), "e/f".to_owned()), ("d".to_owned(), "e".to_owned())];
        is("gc n --valid c/e/f --valid d/e", Command::Gc { network: "n".to_owned(), valid });
        is("status n x", Command::Status { network: "n".to_owned() });
        let Arguments { places, .. } = read("add n /ns --conf-dir=/a --cni-path /b:/c").unwrap();
        assert_eq!(places, Places { conf_dirs: vec!["/a".into()], cni_path: Some("/b:/c".to_owned()) });
    }

    #[test]
    fn what_may_be_a_mistake_is_for_the_parser() {
        for line in [
            "",
            "add",
            "add n",
            "add n /ns more",
            "validate n",
            "add n /ns --help",
            "-h",
            "add n /ns -i",
            "add n /ns -i -x",
            "add n /ns -i a -i b",
            "add n /ns --separate",
            "add n /ns --valid c/e",
            "gc n --valid c",
            "gc n --valid /e",
            "gc n -i eth0",
            "status n --valid c/e",
            "add -- n /ns",
            "add n /ns --conf-dir=",
            "add n -",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
