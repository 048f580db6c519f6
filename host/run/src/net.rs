//! `postern net`: a runtime's verbs for one container.
//!
//! The arguments that it can read are carried out here, without a start of the sibling. That one has the parser with its
//! help and its words for mistakes: it gets everything else.

use crate::together::Together;
use postern_cni::terminal::printable;
use postern_gate::Engine;
use postern_net::{Command, One, Places, run};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

/// What the arguments say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    conf_dir: Option<String>,
    cni_path: Option<String>,
    ifname: Option<String>,
    valid: Vec<(String, String)>,
    is_separate: bool,
    /// The verb, and what it is about.
    words: Vec<String>,
}

/// Carries out a verb, and returns the exit status. `None` if the sibling has to read the arguments.
pub fn main(arguments: &[OsString], engine: Engine) -> Option<u8> {
    let options = Options::read(arguments)?;
    let is_separate = options.is_separate;
    let (command, places) = options.command()?;
    // A process that ignores SIGCHLD would not learn the exit statuses of the programs that it starts.
    postern_gate::put_right();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let why = panic.payload_as_str().unwrap_or_default();
        postern_gate::say!("postern: postern itself failed at {place}: this is a bug. {why}");
        std::process::exit(1);
    }));
    let engine = (!is_separate).then_some(engine);
    let answered = run(&command, &places, Together::new(places.programs(), engine)).and_then(|result| match result {
        Some(result) => print(&result).map_err(|error| error.to_string()),
        None => Ok(()),
    });
    Some(match answered {
        Ok(()) => 0,
        Err(words) => {
            let _ = writeln!(io::stderr().lock(), "{}", printable(&words));
            1
        }
    })
}

/// Prints a result as it is, without a newline at its end.
fn print(result: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(result.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

impl Options {
    /// Reads arguments. `None` for help, for a mistake, and for anything that could be one.
    fn read(arguments: &[OsString]) -> Option<Self> {
        let mut options = Self::default();
        let mut rest = arguments.iter().map(|argument| argument.to_str());
        while let Some(argument) = rest.next() {
            let argument = argument?;
            let (name, value) = match argument.split_once('=').filter(|_| argument.starts_with("--")) {
                Some((name, value)) => (name, Some(value)),
                None => (argument, None),
            };
            if name == "--separate" && value.is_none() && !options.is_separate {
                options.is_separate = true;
                continue;
            }
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

    /// Returns the verb with its arguments. `None` if they don't belong together.
    fn command(self) -> Option<(Command, Places)> {
        let Self { conf_dir, cni_path, ifname, valid, is_separate: _, words } = self;
        let places = Places { conf_dir: conf_dir.map(PathBuf::from), cni_path };
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
        Some((command, places))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<(Command, Places, bool)> {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let options = Options::read(&arguments)?;
        let is_separate = options.is_separate;
        options.command().map(|(command, places)| (command, places, is_separate))
    }

    #[test]
    fn arguments() {
        let one = |ifname: Option<&str>| One {
            network: "n".to_owned(),
            netns: "/ns".into(),
            ifname: ifname.map(str::to_owned),
        };
        let is = |line: &str, command: Command| assert_eq!(read(line).map(|(read, ..)| read), Some(command), "{line}");
        is("add n /ns", Command::Add(one(None)));
        is("check n /ns --ifname=net1", Command::Check(one(Some("net1"))));
        is("--conf-dir /etc -i net1 del n --cni-path a:b /ns", Command::Del(one(Some("net1"))));
        let valid = vec![("c".to_owned(), "e/f".to_owned()), ("d".to_owned(), "e".to_owned())];
        is("gc n --valid c/e/f --valid d/e", Command::Gc { network: "n".to_owned(), valid });
        is("status n x", Command::Status { network: "n".to_owned() });
        let (_, places, is_separate) = read("add --separate n /ns --conf-dir=/a --cni-path /b:/c").unwrap();
        assert_eq!(places, Places { conf_dir: Some("/a".into()), cni_path: Some("/b:/c".to_owned()) });
        assert!(is_separate && !read("add n /ns").unwrap().2);
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
            "add n /ns --separate --separate",
            "add n /ns --separate=yes",
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
