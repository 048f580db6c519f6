//! `postern net`: a runtime's verbs for one container, with the arguments, variables, output and container IDs of
//! cnitool.

use crate::{lists, output, validate};
use clap::{Args, Subcommand};
use postern_net::Command;
use std::path::PathBuf;
use std::process::ExitCode;

/// The places of networks and plugins.
#[derive(Args)]
pub struct Places {
    /// The directory of network lists [default: NETCONFPATH, node.toml, or /etc/cni/net.d].
    #[arg(long, global = true, value_name = "DIR")]
    conf_dir: Option<PathBuf>,
    /// Directories of plugins, separated by colons [default: CNI_PATH, node.toml, or /opt/cni/bin,
    /// /usr/lib/cni, /usr/libexec/cni].
    #[arg(long, global = true, value_name = "DIRS")]
    cni_path: Option<String>,
    /// An option of earlier versions. A script with this option gets an error, which says to leave the option out.
    #[arg(long, global = true, hide = true)]
    separate: bool,
}

/// A verb of `postern net`.
#[derive(Subcommand)]
pub enum Verb {
    /// Attach a network namespace, and print the result.
    ///
    /// If a plugin fails, DEL of the whole list follows. No DEL follows if the cache already has an attachment of this
    /// container with this interface name.
    Add(One),
    /// Compare an attachment with the objects that ADD made.
    Check(One),
    /// Detach a network namespace. The namespace may be gone already. DEL may be repeated.
    Del(One),
    /// Remove the objects of attachments that are gone.
    ///
    /// Without --valid, GC removes every attachment of this network that the cache has, as cnitool does.
    Gc {
        /// The network's name.
        network: String,
        /// Ignored. cnitool needs the path of a namespace here.
        netns: Option<PathBuf>,
        /// An attachment that GC keeps. Can be given several times.
        #[arg(long, value_name = "CONTAINER/INTERFACE", value_parser = valid)]
        valid: Vec<(String, String)>,
    },
    /// Ask the plugins if an ADD could work. A list of a CNI version before 1.1.0 has no STATUS: the command succeeds.
    Status {
        /// The network's name.
        network: String,
        /// Ignored. cnitool needs the path of a namespace here.
        netns: Option<PathBuf>,
    },
    /// Check a network before a container needs it: keys, types, values, addresses, versions, programs, policy.
    ///
    /// An error is a configuration that a plugin, the runtime or policy refuses. A warning is a configuration that is
    /// accepted, but is probably a mistake. Errors and warnings have file, line and column. Postern knows only the keys
    /// of its own plugins. For other plugins, it checks the keys that all plugins have.
    ///
    /// Policy is checked as in `postern plan`. Nothing is changed. With --policy, the command shows the effect of a new
    /// policy instead. It lists the networks and attachments of this node whose next ADD, CHECK, STATUS, GC or DEL the
    /// policy would refuse.
    ///
    /// Exit status: 0 no error (there may be warnings); 1 errors, or something could not be read; 2 the command line makes
    /// no sense.
    Validate(validate::Options),
    /// Print the JSON Schema (2020-12) of a network list, or of one plugin's configuration.
    ///
    /// The schema of an IPAM plugin describes the object `ipam`. A schema is stricter than plugins are: an unknown key
    /// is an error.
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
    /// The path of the network namespace. The container ID is `cnitool-` and a hash of this path.
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
///
/// `postern` itself carries out the commands that it can read. It starts this program for help, for `validate` and
/// `schema`, and for unreadable command lines.
pub fn run(verb: Verb, places: Places) -> ExitCode {
    if places.separate {
        output::usage("error: leave out --separate: each plugin has a process of its own now");
        return ExitCode::from(crate::USAGE);
    }
    let found = || lists::places(places.conf_dir.as_deref(), places.cni_path.as_deref());
    let command = match verb.command() {
        Ok(command) => command,
        Err(Paper::Validate(options)) => {
            let places =
                found().map(|found| validate::Places { directories: found.conf_dirs(), cni_path: found.cni_path() });
            return match places {
                Ok(places) => validate::run(&options, &places),
                Err(error) => fails(&error),
            };
        }
        Err(Paper::Schema { plugin }) => return validate::print_schema(plugin.as_deref()),
    };
    let places = match found() {
        Ok(places) => places,
        Err(error) => return fails(&error),
    };
    let answered = postern_net::run(&command, &places).and_then(|result| match result {
        Some(result) => output::result(&result).map_err(|error| format!("{error:#}")),
        None => Ok(()),
    });
    match answered {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn fails(error: &anyhow::Error) -> ExitCode {
    output::complain(&format!("{error:#}"));
    ExitCode::FAILURE
}

/// A command that runs no plugin.
enum Paper {
    Validate(validate::Options),
    Schema { plugin: Option<String> },
}

impl Verb {
    fn command(self) -> Result<Command, Paper> {
        let one = |One { network, netns, ifname }| postern_net::One { network, netns, ifname };
        Ok(match self {
            Self::Add(of) => Command::Add(one(of)),
            Self::Check(of) => Command::Check(one(of)),
            Self::Del(of) => Command::Del(one(of)),
            Self::Gc { network, valid, .. } => Command::Gc { network, valid },
            Self::Status { network, .. } => Command::Status { network },
            Self::Validate(options) => return Err(Paper::Validate(options)),
            Self::Schema { plugin } => return Err(Paper::Schema { plugin }),
        })
    }
}
