//! `postern`, as people type it. The executable that runtimes start hands over to this one, which contains the
//! compiler.
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "what people see goes through `output`")]

mod account;
mod add;
mod authority;
mod capability;
mod chains;
mod component;
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
mod output;
mod plan;
mod reapply;
mod sentences;
mod show;
mod subject;
mod words;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit status for a command line that can't be parsed.
const USAGE: u8 = 2;

/// Sandboxed CNI plugins: WebAssembly components behind one typed, guarded gate.
///
/// Called under a plugin's name (bridge, host-local, ...) postern is that plugin: see the CNI specification.
///
/// Exit status, of every verb:
///
///   0  done; nothing is wrong
///   1  an error: it could not be done, or something is wrong
///   2  the command line makes no sense
///   3  done, and the answer is a no: policy and imports disagree (inspect), a
///      new component can do more (inspect --diff), policy refuses something
///      (plan), there are warnings only (doctor)
#[derive(Parser)]
#[command(name = "postern", bin_name = "postern", version, propagate_version = true)]
#[command(term_width = output::WIDTH, verbatim_doc_comment)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Compile a plugin and place it: code, policy, and a file under its name in the CNI bin directory, all or nothing.
    ///
    /// Refuses a component that imports anything but `postern:cni` of this version and what every WASI command needs. A file
    /// in the CNI bin directory that is not Postern's is kept as PLUGIN.native.
    ///
    /// With the name of an installed plugin instead of a component, and --bin: places that plugin's file there.
    Add {
        /// The component, built for wasm32-wasip2; or an installed plugin.
        #[arg(value_name = "FILE.wasm|PLUGIN")]
        target: String,
        /// Its policy (TOML). A plugin without one is not run.
        #[arg(long)]
        policy: Option<PathBuf>,
        /// The plugin's name: the `type` of network configurations [default: the file's name].
        #[arg(long)]
        name: Option<String>,
        /// Where code and policy go [default: the catalog of this postern].
        #[arg(long)]
        catalog: Option<PathBuf>,
        /// CNI bin directory to place the plugin's file in; none is placed without it.
        #[arg(long)]
        bin: Option<PathBuf>,
        /// One JSON object, to which keys are only ever added.
        ///
        /// plugin, digest, imports, engine, size (bytes of the code), catalog, file (in the CNI bin directory, or null), kept
        /// (the new name of what was there and isn't ours, or null).
        #[arg(long)]
        json: bool,
    },
    /// What a plugin can ask for (its imports), what it may do (its policy), and what that comes to in plain sentences.
    ///
    /// Exit status: 0 imports and policy agree; 1 error (no such plugin, not to be trusted, not to be understood); 3 they
    /// disagree: a grant that no import uses, an import that nothing grants, or a pin to another component. With --diff:
    /// 0 the new component can do nothing that the old one could not; 1 error; 3 it can.
    Inspect {
        /// An installed plugin, or a component file (a name with a slash or ending in .wasm).
        #[arg(value_name = "PLUGIN|FILE.wasm", required_unless_present = "diff")]
        target: Option<String>,
        /// Compare two components, each a file or an installed plugin: what could NEW do that OLD could not, whatever
        /// policy says, and under the policy in force? A file without --policy is judged by the other one's policy.
        #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], conflicts_with_all = ["target", "network"])]
        diff: Option<Vec<String>>,
        /// Use this policy instead of the installed one.
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// Fill the policy's placeholders in from this network configuration, or from the plugin's entry of this list.
        #[arg(long, value_name = "FILE")]
        network: Option<PathBuf>,
        /// The plugin's `type` in the list [default: the plugin's or the file's name].
        #[arg(long)]
        name: Option<String>,
        /// One JSON object, to which keys are only ever added.
        ///
        /// plugin, digest, pin {digest, file, matches}, engine, postern, imports {authority {INTERFACE: functions}, floor},
        /// has_policy, policy [{capability, from, file, objects {KEY: values}}], withdrawn, versions, network, can
        /// [{capability, functions, sentence, host_privileges}], always, cannot, unused_grants, ungranted_imports, limits
        /// [{name, value, set}], agree. With --diff: old and new {name, digest}, added and removed {INTERFACE: functions},
        /// gained (under the policy in force, or null) and gained_ceiling, both as `can`, no_more.
        #[arg(long)]
        json: bool,
    },
    /// The smallest policy under which a plugin can do what it did for these networks.
    ///
    /// Runs the plugin as a runtime does (STATUS, ADD, CHECK, GC, DEL, as far as the configuration's version has them) in
    /// namespaces and a file system of its own, which nothing of this node is in, under the widest policy that can be
    /// written; prints the policy that covers what it was seen to do; and runs it again under that one.
    ///
    /// It proves that these configurations work under the printed policy. It does not prove that others do, or that a
    /// plugin which did no harm here means none: that is what `postern inspect` is for. The gate has no mode that lets
    /// through what a policy denies. Native IPAM programs are not run.
    ///
    /// Exit status: 0 the same runs succeed under the printed policy; 1 they don't, or an error.
    Learn {
        /// An installed plugin, or a component file (a name with a slash or ending in .wasm).
        #[arg(value_name = "PLUGIN|FILE.wasm")]
        target: String,
        /// Network configurations, or lists that have an entry for the plugin.
        #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
        network: Vec<PathBuf>,
        /// The name to run it by: the `type` of the configurations [default: the plugin's or the file's name].
        #[arg(long)]
        name: Option<String>,
        /// One JSON object, to which keys are only ever added.
        ///
        /// plugin, digest, networks [{network, outcomes [{verb, error}], denied}], unused {CAPABILITY: functions}, policy (the
        /// TOML), denied (under that policy), verified.
        #[arg(long)]
        json: bool,
    },
    /// What an ADD to a network would do on this node: every operation of every plugin, in order, with policy's verdict.
    ///
    /// Runs the installed plugins, sandboxed as always, against a simulation of this node that is seeded with what this
    /// user can read: links, addresses, forwarding, leases. Nothing is changed anywhere, and root is not needed. What
    /// policy denies is shown with the line that would allow it, and the plan goes on as if it were allowed. Native
    /// plugins are not run. What the host chooses at random is shown as X.
    ///
    /// Exit status: 0 policy allows all of it; 1 a plugin fails, or an error; 3 policy refuses something.
    Plan {
        /// A network list (.conflist) or a single configuration (.conf).
        #[arg(value_name = "CONFLIST")]
        list: PathBuf,
        /// Show this plugin of the list alone; those before it are run for their result, those behind it not at all.
        #[arg(long, value_name = "TYPE")]
        plugin: Option<String>,
        #[command(flatten)]
        attachment: plan::Attachment,
        /// One JSON object, to which keys are only ever added.
        ///
        /// network, version, container, ifname, plugins [{plugin, native, digest, policy [files], delegates [{plugin, digest,
        /// policy}], operations [{operation, request, words, lasting (nothing, attachment, part, namespace, node, ...),
        /// verdict (allow, deny), rule, from (shipped, operator), missing, outcome, changes, plugin, depth}], error {code,
        /// msg, details}}], result, notes, allowed.
        #[arg(long)]
        json: bool,
    },
    /// What plugins asked for on this node, and how it ended.
    ///
    /// A container of which the log has no line is an error, but with --follow.
    Log(log::Options),
    /// The attachments of this node, and how they are.
    ///
    /// States: ok; stuck (a run for it does not end: `postern show` says which process); incomplete (its ADD or DEL has not
    /// ended); container gone; previous boot; drift (record and kernel differ: `postern show` says where); damaged (the record
    /// can't be read).
    Ls {
        /// A list of objects, to which keys are only ever added.
        ///
        /// network, container, interface, netns, since (milliseconds since 1970), addresses, plugins [{plugin, digest,
        /// installed, stage}], state, under_way, held_by [{pid, name, since, is_stopped}], record, facts [{plugin, kind, found}], differences [{what, remedy,
        /// is_command}].
        #[arg(long)]
        json: bool,
        /// Nothing is shortened: whole IDs, digests and dates, however wide the table becomes.
        #[arg(long)]
        no_trunc: bool,
    },
    /// All that belongs to a container: what its records say, what the kernel has, and where the two differ.
    Show {
        /// The container's ID, or the beginning of it.
        container: String,
        /// As that of `ls`, for this container.
        #[arg(long)]
        json: bool,
    },
    /// Put back firewall rules of living attachments that another program wiped.
    ///
    /// For use after `nft flush ruleset`, `iptables-restore`, or the reload of a firewall. It compares the records with
    /// the node, as `doctor` does, and puts back the rules that are missing: masquerading and spoofing protection. Links,
    /// addresses and routes are not touched. Containers keep running.
    ///
    /// Exit status: 0 all rules are there; 1 some could not be put back or looked at.
    Reapply {
        /// Show what is missing, and change nothing.
        #[arg(long)]
        dry_run: bool,
        /// One JSON object, to which keys are only ever added.
        ///
        /// restored [{network, container, interface, missing [words], rules [words]}], skipped [{network, container,
        /// interface, reason}], complete (attachments), problems, done (whether anything could be changed).
        #[arg(long)]
        json: bool,
    },
    /// What is wrong with this node, why it matters, and what mends it. Changes nothing.
    ///
    /// What the kernel can do is tried out in namespaces that are thrown away; it may load modules for that.
    ///
    /// Exit status: 0 healthy (there may be notes); 1 errors: runs fail, or state leaks; 3 warnings only.
    Doctor {
        /// Where the runtime's network lists are.
        #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
        conf_dir: PathBuf,
        /// CNI bin directory.
        #[arg(long, value_name = "DIR", default_value = lists::CNI_BIN)]
        bin: PathBuf,
        /// One JSON object, to which keys are only ever added.
        ///
        /// healthy, findings [{severity (error, warning, note), area, place, what, why, remedy, is_command}], looked_at,
        /// left_out.
        #[arg(long)]
        json: bool,
    },
    /// What `make install` does with a build.
    #[command(hide = true)]
    Install {
        /// The build: a directory with postern, postern-admin and postern.d.
        #[arg(long, value_name = "DIR")]
        from: PathBuf,
        #[command(flatten)]
        place: install::InstallPaths,
    },
    /// What `make uninstall` does.
    #[command(hide = true)]
    Uninstall {
        #[command(flatten)]
        place: install::InstallPaths,
    },
    /// What `doctor` tries out, in a process of its own.
    #[command(hide = true)]
    Probe,
    /// Remove what attachments left that are gone, or, with --node, what no attachment uses any more.
    ///
    /// Shows what would be removed, and removes it after a yes (on a terminal) or with --yes. It goes by Postern's own records:
    /// of attachments whose network namespace is gone, which were made before the machine was last started, or whose ADD was
    /// killed before the runtime had an answer. What a live namespace uses stays, and where that can't be told, too.
    ///
    /// With --native also what native plugins (bridge, ptp, host-local) left, known by the names that they give: leases and
    /// masquerading rules whose address no live namespace has, and spoofing protection of ports that are gone. What the
    /// runtime's cache (/var/lib/cni/results) has a living namespace for stays, and a lease of the last five minutes.
    ///
    /// Exit status: 0 all that was to be removed is, or was shown; 1 something could not be removed or looked at.
    Gc {
        /// Remove without asking.
        #[arg(long)]
        yes: bool,
        /// One JSON object, to which keys are only ever added.
        ///
        /// garbage [{network, container, interface, plugin (null: all), reason, removes [words]}], kept [{network, container,
        /// interface, reason}], live (attachments in use), problems, done (whether anything was removed). With --native, else
        /// null: native [{kind, network, container, interface (each null where the names don't tell), object, reason}],
        /// native_kept [{object, reason}].
        #[arg(long)]
        json: bool,
        /// Adopt what native plugins left, too.
        #[arg(long)]
        native: bool,
        /// Look for leases of native plugins here as well as in /var/lib/cni/networks: host-local's `dataDir`.
        #[arg(long, value_name = "DIR", requires = "native")]
        data_dir: Vec<PathBuf>,
        /// Where the network lists are: what a native IPAM program is run again with to give its addresses back.
        #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
        conf_dir: PathBuf,
        /// Where native plugins are: directories, separated by colons [default: CNI_PATH, or where distributions have
        /// them].
        #[arg(long, value_name = "DIRS")]
        cni_path: Option<String>,
        /// Instead: bridges, VLAN gateways and nftables tables that Postern made and that no attachment uses.
        ///
        /// With --json: unused [{kind, name}], kept [words], problems, removed [{kind, name}], done.
        #[arg(long, conflicts_with = "native")]
        node: bool,
        /// Switch IP forwarding off as well, if Postern switched it on.
        #[arg(long, requires = "node")]
        forwarding: bool,
    },
}

fn main() -> ExitCode {
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
    run(cli.verb).unwrap_or_else(|error| {
        output::say(format!("{error:#}"));
        ExitCode::FAILURE
    })
}

fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Add { target, policy, name, catalog, bin, json } => {
            add::run(&add::Options { target, policy, name, catalog, bin, json })?;
        }
        Verb::Install { from, place } => install::run(&from, &place)?,
        Verb::Uninstall { place } => install::uninstall(&place)?,
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
        Verb::Plan { list, plugin, attachment, json } => {
            return plan::run(&list, plugin.as_deref(), &attachment, json);
        }
        Verb::Log(options) => log::run(&options)?,
        Verb::Ls { json, no_trunc } => ls::run(json, no_trunc)?,
        Verb::Show { container, json } => show::run(&container, json)?,
        Verb::Doctor { conf_dir, bin, json } => return doctor::run(&conf_dir, &bin, json),
        Verb::Reapply { dry_run, json } => return reapply::run(dry_run, json),
        Verb::Probe => output::json(&doctor::probe::run())?,
        Verb::Gc { node: true, forwarding, yes, json, .. } => return gc_node::run(forwarding, yes, json),
        Verb::Gc { yes, json, native, data_dir, conf_dir, cni_path, .. } => {
            let cni_path = lists::cni_path(cni_path.as_deref());
            return gc::run(&gc::Options { yes, json, native, data_dir, conf_dir, cni_path });
        }
    }
    Ok(ExitCode::SUCCESS)
}
