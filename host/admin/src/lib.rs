//! The command line of `postern`. The executable that runtimes start executes the program of this crate, `postern-admin`.
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "what people see goes through `output`")]

mod account;
mod add;
mod authority;
mod capability;
mod chains;
mod compile;
mod component;
mod detach;
mod dhcp;
mod diff;
mod doctor;
mod gc;
mod gc_node;
mod imports;
mod inspect;
mod install;
mod learn;
mod lists;
mod log;
mod ls;
mod manual;
mod net;
mod output;
mod own_version;
mod plan;
mod reapply;
mod remove;
mod sentences;
mod show;
mod subject;
mod validate;
mod version;
mod versions;
mod words;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The heap for a sealed sandbox, which can't map memory.
#[global_allocator]
static HEAP: postern_sandbox::Heap = postern_sandbox::Heap::new();

/// The exit status for a command line that can't be parsed.
const USAGE: u8 = 2;

/// Sandboxed CNI plugins: WebAssembly components behind one typed, guarded gate.
///
/// Under a plugin's name (bridge, host-local, ...) postern runs that plugin: see the CNI specification.
///
/// Exit status, of every verb:
///
///   0  done; nothing is wrong
///   1  an error: the verb failed, or it found a fault
///   2  the command line makes no sense
///   3  done, and the answer is no. inspect: policy and imports disagree.
///      inspect --diff: the new component can do more. plan: policy refuses
///      an operation. doctor: there are warnings only.
#[derive(Parser)]
#[command(name = "postern", bin_name = "postern", disable_version_flag = true, args_conflicts_with_subcommands = true)]
#[command(override_usage = "postern <COMMAND>\n       postern --version [--json]", arg_required_else_help = true)]
#[command(term_width = output::WIDTH, verbatim_doc_comment)]
struct Cli {
    /// Print version, commit, architecture, engine and WIT version.
    #[arg(short = 'V', long)]
    version: bool,
    /// With --version: print one JSON object. Later versions may add keys.
    ///
    /// Keys: version, commit, architecture, engine, wit.
    #[arg(long, requires = "version")]
    json: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// Compile and install a plugin: its code, its policy, and its file in the CNI bin directory. Either all three are
    /// installed, or none.
    ///
    /// A component may import only WASI and `postern:cni`, in versions that this postern supports. Other components are
    /// refused. A foreign file of the plugin's name in the CNI bin directory is kept as PLUGIN.native.
    ///
    /// With the name of an installed plugin and --bin, only that plugin's file is placed in the directory.
    Add {
        /// The component, built for wasm32-wasip2; the manifest of a bundle (`postern compile`); or an installed plugin.
        #[arg(value_name = "FILE.wasm|NAME.json|PLUGIN")]
        target: String,
        /// The plugin's policy (TOML). A plugin without a policy is not run.
        #[arg(long)]
        policy: Option<PathBuf>,
        /// The plugin's name: the `type` of network configurations [default: the file's name].
        #[arg(long)]
        name: Option<String>,
        /// The directory for code and policy [default: the catalog of this postern; on an installation that is read-only
        /// or an image: /var/lib/postern/postern.d].
        #[arg(long)]
        catalog: Option<PathBuf>,
        /// The CNI bin directory for the plugin's file. Without --bin, no file is placed.
        #[arg(long)]
        bin: Option<PathBuf>,
        /// The plugin comes with this Postern (`make build`). It prints the native plugin's version and Postern's
        /// version.
        #[arg(long, hide = true)]
        shipped: bool,
        /// Print one JSON object. Later versions may add keys.
        ///
        /// Keys: plugin, digest, imports, version, engine, size (bytes of the code), catalog, file (in the CNI bin directory, or
        /// null), kept (the new name of a foreign file, or null).
        #[arg(long)]
        json: bool,
    },
    /// Compile a plugin for other nodes, which have no compiler. Writes NAME.cwasm, NAME.json and NAME.toml.
    ///
    /// Root places the files on a node of this version of postern with `postern add DIR/NAME.json`. The code is native code:
    /// a node runs it because root placed it there.
    Compile(compile::Options),
    /// Remove a plugin that was added: its code, its policy, and its files in CNI bin directories. Kept files are put back.
    ///
    /// A plugin that comes with Postern stays. A plugin of a living attachment stays too: the attachment's DEL needs it.
    Remove {
        /// The plugin.
        plugin: String,
    },
    /// Show a plugin's imports, its policy, and its abilities in plain sentences.
    ///
    /// Exit status: 0 imports and policy agree; 1 error; 3 they disagree. They disagree if a grant has no import, if an
    /// import has no grant, or if the policy is pinned to another component.
    ///
    /// With --diff: 0 the new component can do no more than the old component; 1 error; 3 it can do more.
    Inspect {
        /// An installed plugin, or a component file (a name with a slash or ending in .wasm).
        #[arg(value_name = "PLUGIN|FILE.wasm", required_unless_present = "diff")]
        target: Option<String>,
        /// Compare two components: list the abilities that NEW has and OLD lacks. Each is a file or an installed
        /// plugin. The list is made twice: under any policy, and under the policy in force. For a file without
        /// --policy, the policy of the other component is in force.
        #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], conflicts_with_all = ["target", "network"])]
        diff: Option<Vec<String>>,
        /// Use this policy instead of the installed one.
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// Fill in the policy's placeholders from this network configuration, or from the plugin's entry in this list.
        #[arg(long, value_name = "FILE|NETWORK")]
        network: Option<String>,
        /// The plugin's `type` in the list [default: the plugin's or the file's name].
        #[arg(long)]
        name: Option<String>,
        /// Print one JSON object. Later versions may add keys.
        ///
        /// Keys: plugin, digest, version, pin {digest, file, matches}, engine, postern, imports {authority {INTERFACE: functions}, floor},
        /// has_policy, policy [{capability, from, file, objects {KEY: values}}], withdrawn, versions, component_versions, network, can
        /// [{capability, functions, sentence, host_privileges}], always, cannot, unused_grants, ungranted_imports, limits
        /// [{name, value, set}], agree. With --diff: old and new {name, digest}, added and removed {INTERFACE: functions},
        /// gained (under the policy in force, or null) and gained_ceiling, both as `can`, no_more.
        #[arg(long)]
        json: bool,
    },
    /// Print the smallest policy under which a plugin works for these networks.
    ///
    /// The plugin runs twice, as a runtime would run it: under the widest policy, then under the printed policy. The
    /// verbs are STATUS, ADD, CHECK, GC and DEL, as far as the configuration's version has them. The plugin runs in
    /// separate namespaces with a separate file system. It reaches nothing of this node.
    ///
    /// The second run proves that these configurations work under the printed policy. It does not prove that other
    /// configurations work, or that the plugin is harmless: see `postern inspect`. The gate enforces the policy in both
    /// runs. Native IPAM programs are not run.
    ///
    /// Exit status: 0 the second run succeeds like the first; 1 the second run fails, or an error.
    Learn {
        /// An installed plugin, or a component file (a name with a slash or ending in .wasm).
        #[arg(value_name = "PLUGIN|FILE.wasm")]
        target: String,
        /// Network configurations, or lists that have an entry for the plugin.
        #[arg(long, value_name = "FILE|NETWORK", num_args = 1.., required = true)]
        network: Vec<String>,
        /// The plugin's name in the runs: the `type` of the configurations [default: the plugin's or the file's name].
        #[arg(long)]
        name: Option<String>,
        /// Print one JSON object. Later versions may add keys.
        ///
        /// Keys: plugin, digest, networks [{network, outcomes [{verb, error}], denied}], unused {CAPABILITY: functions},
        /// policy (the TOML), denied (under that policy), verified.
        #[arg(long)]
        json: bool,
    },
    /// Show each operation that an ADD to a network would do on this node, with the policy's verdict. Changes nothing.
    ///
    /// The installed plugins run in their sandboxes against a simulation of this node. The simulation starts with what
    /// this user can read: links, addresses, forwarding, leases. Only the look into the container's namespace needs
    /// root.
    ///
    /// A denied operation is shown with the policy line that would allow it. The plan then goes on as if policy allowed
    /// the operation. Native plugins are not run. X stands for values that the host chooses at random.
    ///
    /// Exit status: 0 policy allows all operations; 1 a plugin fails, or an error; 3 policy refuses an operation.
    Plan {
        /// A network list (.conflist), a single configuration (.conf), or the name of a network.
        #[arg(value_name = "FILE|NETWORK")]
        target: String,
        /// Show only this plugin of the list. Earlier plugins run for their results. Later plugins do not run.
        #[arg(long, value_name = "TYPE")]
        plugin: Option<String>,
        #[command(flatten)]
        attachment: plan::Attachment,
        /// Print one JSON object. Later versions may add keys.
        ///
        /// Keys: network, version, container, ifname, plugins [{plugin, native, digest, policy [file, ...], delegates [{plugin, digest,
        /// policy}], operations [{operation, request, words, lasting (nothing, attachment, part, namespace, node, ...),
        /// verdict (allow, deny), rule, from (shipped, operator), missing, outcome, changes, plugin, depth}], error {code,
        /// msg, details}}], result, notes, allowed.
        #[arg(long)]
        json: bool,
    },
    /// Show the operations that plugins asked for on this node, and their outcomes.
    ///
    /// A container without a line in the log is an error, except with --follow.
    Log(log::Options),
    /// List the attachments of this node and their states.
    ///
    /// On a terminal, states have colours, except if NO_COLOR is set.
    ///
    /// States: ok; stuck (a run for it does not end: `postern show` names the process); incomplete (its ADD or DEL has
    /// not ended); replaced (another program, which keeps no records, detached the living container or attached it
    /// anew); container gone; previous boot; drift (record and kernel differ: `postern show` says where); damaged (the
    /// record can't be read); held (the attachment has ended, and a device that it used may not be clean: `postern gc`
    /// looks at the device again).
    Ls {
        /// Print a list of JSON objects. Later versions may add keys.
        ///
        /// Keys: network, container, interface, netns, since (milliseconds since 1970), addresses, plugins [{plugin, digest,
        /// installed, versions, stage}], state, under_way, held_by [{pid, name, since, is_stopped}], record, facts [{plugin, kind,
        /// found}], differences [{what, remedy, is_command}].
        #[arg(long)]
        json: bool,
        /// Print whole IDs, digests and dates, even if the table becomes wide.
        #[arg(long)]
        no_trunc: bool,
    },
    /// Show a container's records and its objects in the kernel, and where they differ.
    Show {
        /// The container's ID, or its beginning.
        container: String,
        /// Print the JSON of `ls` for this container.
        #[arg(long)]
        json: bool,
    },
    /// Put back rules that another program wiped, for living attachments.
    ///
    /// For use after `nft flush ruleset`, `iptables-restore`, or the reload of a firewall. It compares the records with
    /// the node, as `doctor` does, and puts missing rules back. These are rules for masquerading, spoofing protection,
    /// forwards of ports, the protection of the node's 127.0.0.0/8, the firewall (iptables, or a zone of firewalld), the
    /// isolation of bridges, and limits of rates. Links, addresses and routes are not touched. Containers keep running.
    ///
    /// An attachment whose ADD or DEL has not ended is left out. Attachments that are gone are left to `postern gc`.
    ///
    /// Exit status: 0 all rules are there; 1 some rules could not be put back or looked at.
    Reapply {
        /// Show missing rules, and change nothing.
        #[arg(long)]
        dry_run: bool,
        /// Print one JSON object. Later versions may add keys.
        ///
        /// Keys: restored [{network, container, interface, missing [words], rules [words]}], skipped [{network, container,
        /// interface, reason}], complete (attachments), problems, done (true if anything could be changed).
        #[arg(long)]
        json: bool,
    },
    /// Attach containers to networks and detach them, as a runtime does. Replaces cnitool in scripts.
    ///
    /// It reads the network's list, runs its plugins in order, and keeps the result in /var/lib/cni/results, as runtimes
    /// on libcni do. Output, errors and container IDs are those of cnitool 1.3.
    ///
    /// Variables: CNI_PATH (directories of plugins, separated by colons), NETCONFPATH (the directory of network lists).
    /// Without them, /etc/postern/node.toml may name both. Further variables:
    /// CAP_ARGS (JSON object: values for `runtimeConfig` by capability), CNI_ARGS (KEY=VALUE;KEY=VALUE), CNI_IFNAME.
    ///
    /// Each plugin is executed, as by any runtime. Plugins of this postern keep only the rights that their policy
    /// needs. Native plugins have all rights of the caller.
    ///
    /// Exit status: 0 done; 1 an error; 2 the command line makes no sense.
    Net {
        #[command(subcommand)]
        verb: net::Verb,
        #[command(flatten)]
        places: net::Places,
    },
    /// Keep the DHCP leases of attachments alive: the service of the plugin dhcp.
    Dhcp {
        #[command(subcommand)]
        verb: dhcp::Verb,
    },
    /// Find faults of this node. Show the effect and the remedy of each fault. Changes nothing.
    ///
    /// The kernel's features are tested in temporary namespaces. The kernel may load modules for that.
    ///
    /// Exit status: 0 healthy (notes are possible); 1 errors: runs fail, or state leaks; 3 warnings only.
    Doctor {
        /// The directory of the runtime's network lists [default: NETCONFPATH, node.toml, or /etc/cni/net.d].
        #[arg(long, value_name = "DIR")]
        conf_dir: Option<PathBuf>,
        /// CNI bin directory [default: the directories of the installation, of node.toml, or /opt/cni/bin].
        #[arg(long, value_name = "DIR")]
        bin: Option<PathBuf>,
        /// Print one JSON object. Later versions may add keys.
        ///
        /// Keys: healthy, findings [{severity (error, warning, note), area, place, what, why, remedy, is_command}], looked_at,
        /// left_out.
        #[arg(long)]
        json: bool,
    },
    /// Install Postern on this node: host, plugins, and their files in CNI bin directories.
    ///
    /// Run it as root from a build or an unpacked archive. Everything is checked before the first file is placed, and new
    /// runs use the new version at one instant. A foreign file of a plugin's name is kept as PLUGIN.native. Plugins that
    /// were added stay; a plugin with code for another engine is compiled again.
    ///
    /// Exit status: 0 done, shown, or nothing had to be done; 1 an error: the version was not replaced, unless the error
    /// says so. --watch has more.
    Install(install::Install),
    /// Install another version in place of the present version: the same plugins, in the same CNI bin directories.
    ///
    /// Runs that have begun end with the present version. `postern rollback` switches back.
    ///
    /// Exit status: 0 done, or shown; 1 an error: the version was not replaced, unless the error says so.
    Upgrade(install::Options),
    /// Switch new runs back to the version before the last installation.
    ///
    /// Each installation keeps the version that it replaces. A second rollback switches to the newer version again.
    ///
    /// Exit status: 0 done, or shown; 1 there is no earlier version, or an error.
    Rollback(install::Rollback),
    /// Remove Postern from this node: host, plugins, their files, records. Native plugins are put back (`make uninstall`).
    ///
    /// The objects to remove are shown first. They are removed after a yes on a terminal, or with --yes.
    ///
    /// With --bin-dir, only the files in the named directory are removed. Otherwise, records of living attachments are
    /// moved to /run, and the next installation puts them back. The audit log stays.
    Uninstall(install::Uninstall),
    /// Test the kernel's features for `doctor`, in a separate process.
    #[command(hide = true)]
    Probe,
    /// Write the manual's pages and the completions for shells to a directory, for packages.
    #[command(hide = true)]
    Manual {
        /// The directory. It is made if it is missing.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// The day on each page.
        #[arg(value_name = "YYYY-MM-DD")]
        date: String,
    },
    /// Remove the garbage of attachments that are gone, and look at held devices again. With --node, remove objects that no
    /// attachment uses.
    ///
    /// The objects are shown first. They are removed after a yes on a terminal, or with --yes.
    ///
    /// Postern looks for garbage in its records. An attachment is garbage in three cases: its network namespace is
    /// gone, it was made before the last boot, or its ADD was killed before its answer. Objects in use by a live
    /// namespace stay. They also stay if their use is unknown.
    ///
    /// If the runtimes' cache has the list of such an attachment, DEL of the whole list is called: its native plugins remove
    /// their objects too. A device that was held because it may not be clean is looked at again, and freed if it is clean.
    ///
    /// With --native, leftovers of native plugins are removed too. They are found by their names: leases, masquerading,
    /// port mappings and forwarding of addresses that no live namespace has; spoofing protection of ports that are gone;
    /// unused `ifb` links; files of flannel and tuning; attachments that only the runtimes' cache (/var/lib/cni/results)
    /// has. Leases of the last five minutes stay, and so do attachments in the cache with a live namespace.
    ///
    /// Exit status: 0 everything was removed, or shown; 1 an object could not be removed or looked at.
    Gc {
        /// Remove without asking.
        #[arg(long)]
        yes: bool,
        /// Print one JSON object. Later versions may add keys.
        ///
        /// Keys: garbage [{network, container, interface, plugin (null: all), reason, removes [words], programs [{plugin, program}]
        /// (executed with DEL; null: none), delegates_in (directories of their delegates)}], kept [{network, container,
        /// interface, reason}], held [{object, network, container, interface, reasons}], live (attachments in use), problems,
        /// done (true if anything was removed). With --native, else null: cached [{network, container, interface, programs,
        /// delegates_in}], native [{kind, network, container, interface (each null if unknown), object, reason}], native_kept
        /// [{object, reason}].
        #[arg(long)]
        json: bool,
        /// Remove leftovers of native plugins too.
        #[arg(long)]
        native: bool,
        /// A further directory with leases of native plugins (host-local's `dataDir`), beside /var/lib/cni/networks.
        #[arg(long, value_name = "DIR", requires = "native")]
        data_dir: Vec<PathBuf>,
        /// The directory of network lists [default: NETCONFPATH, node.toml, or /etc/cni/net.d]. A list in it is used only
        /// if the runtimes' cache has an equal list.
        #[arg(long, value_name = "DIR")]
        conf_dir: Option<PathBuf>,
        /// Directories of native plugins, separated by colons [default: CNI_PATH, node.toml, or /opt/cni/bin,
        /// /usr/lib/cni, /usr/libexec/cni].
        #[arg(long, value_name = "DIRS")]
        cni_path: Option<String>,
        /// The time limit for each program of a list, in seconds. A program that takes longer is killed, with all
        /// processes that it started.
        ///
        /// The default is longer than the time limit of Postern's own plugins.
        #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=3600))]
        timeout: u32,
        /// Unbind a held device that is not clean from its driver, and bind it again. This ends every other use of the
        /// device.
        ///
        /// It also removes the virtual functions of a card. Virtual links have no driver.
        #[arg(long)]
        unbind: bool,
        /// Remove only bridges, VLAN gateways, isolations of bridges, the switch `route_localnet` of links, and nftables
        /// tables that Postern made and no attachment uses.
        ///
        /// JSON keys: unused [{kind, name}], kept [words], notes [words], problems, removed [{kind, name}], done.
        #[arg(long, conflicts_with_all = ["native", "unbind"])]
        node: bool,
        /// Switch IP forwarding off as well, if Postern switched it on.
        #[arg(long, requires = "node")]
        forwarding: bool,
    },
}

/// Carries out the command line. `commit` is the commit that the program is built from.
pub fn main(commit: Option<&str>) -> ExitCode {
    if std::env::args_os().next().is_some_and(|called| called == postern_gate::tap::NAME) {
        postern_gate::tap::main();
        return ExitCode::SUCCESS;
    }
    // anyhow would take a backtrace for each error.
    postern_confine::forget_backtraces();
    // A process that ignores SIGCHLD would not learn the exit statuses of the programs that it starts.
    postern_gate::put_right();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        output::say(format!(
            "postern itself failed at {place}: this is a bug. {}",
            panic.payload_as_str().unwrap_or("")
        ));
        std::process::exit(1);
    }));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version: the text is Postern's own.
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => {
            output::usage(&error.to_string());
            return ExitCode::from(USAGE);
        }
    };
    let done = match cli.verb {
        Some(verb) => run(verb),
        None if cli.version => version::run(commit, cli.json).map(|()| ExitCode::SUCCESS),
        None => {
            output::usage(&Cli::command().render_usage().to_string());
            return ExitCode::from(USAGE);
        }
    };
    done.unwrap_or_else(|error| {
        output::say(format!("{error:#}"));
        ExitCode::FAILURE
    })
}

fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Add { target, policy, name, catalog, bin, shipped, json } => {
            add::run(&add::Options { target, policy, name, catalog, bin, shipped, json })?;
        }
        Verb::Remove { plugin } => remove::run(&plugin)?,
        Verb::Compile(options) => compile::run(&options)?,
        Verb::Install(options) => return install::install(&options),
        Verb::Upgrade(options) => install::upgrade(&options)?,
        Verb::Rollback(options) => install::rollback(&options)?,
        Verb::Uninstall(options) => return install::uninstall(&options),
        Verb::Inspect { target, diff, policy, network, name, json } => {
            return match (diff.as_deref(), target) {
                (Some([old, new]), _) => diff::run(old, new, policy.as_deref(), json),
                (_, target) => inspect::run(
                    &target.unwrap_or_default(),
                    policy.as_deref(),
                    network.as_deref(),
                    name.as_deref(),
                    json,
                ),
            };
        }
        Verb::Learn { target, network, name, json } => return learn::run(&target, &network, name, json),
        Verb::Plan { target, plugin, attachment, json } => {
            return plan::run(&target, plugin.as_deref(), &attachment, json);
        }
        Verb::Log(options) => log::run(&options)?,
        Verb::Ls { json, no_trunc } => ls::run(json, no_trunc)?,
        Verb::Show { container, json } => show::run(&container, json)?,
        Verb::Net { verb, places } => return Ok(net::run(verb, places)),
        Verb::Doctor { conf_dir, bin, json } => return doctor::run(conf_dir.as_deref(), bin, json),
        Verb::Dhcp { verb } => return dhcp::run(&verb),
        Verb::Reapply { dry_run, json } => return reapply::run(dry_run, json),
        Verb::Probe => output::json(&doctor::probe::run())?,
        Verb::Manual { directory, date } => manual::write(&Cli::command(), &directory, &date)?,
        Verb::Gc { node: true, forwarding, yes, json, .. } => return gc_node::run(forwarding, yes, json),
        Verb::Gc { yes, json, native, data_dir, conf_dir, cni_path, timeout, unbind, .. } => {
            let places = lists::places(conf_dir.as_deref(), cni_path.as_deref())?;
            let (conf_dirs, cni_path) = (places.conf_dirs(), places.cni_path());
            let limit = Duration::from_secs(timeout.into());
            return gc::run(&gc::Options { yes, json, native, data_dir, conf_dirs, cni_path, limit, unbind });
        }
    }
    Ok(ExitCode::SUCCESS)
}
