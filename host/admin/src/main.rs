//! `postern`, as people type it. The executable that runtimes start hands over to this one, which has the compiler.

mod add;
mod inspect;
mod log;

use anyhow::Result;
use clap::{Parser, Subcommand};
use postern_gate::places::Places;
use std::path::PathBuf;

/// Sandboxed CNI plugins: WebAssembly components behind one typed, guarded gate.
///
/// Called under a plugin's name (bridge, host-local, ...) postern is that plugin: see the CNI specification.
#[derive(Parser)]
#[command(name = "postern", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Compile a plugin and place it: code, policy, and a link under its name in the CNI bin directory.
    ///
    /// Refuses a component that imports anything but `postern:cni` of this version and what every WASI command needs.
    Add {
        /// The component, built for wasm32-wasip2.
        file: PathBuf,
        /// Its policy (TOML). A plugin without one is not run.
        #[arg(long)]
        policy: PathBuf,
        /// The plugin's name: the `type` of network configurations [default: the file's name].
        #[arg(long)]
        name: Option<String>,
        /// Where code and policy go [default: the catalog of this postern].
        #[arg(long)]
        catalog: Option<PathBuf>,
        /// CNI bin directory to make the link in; none is made without it.
        #[arg(long)]
        bin: Option<PathBuf>,
    },
    /// What a plugin can do (its imports) and what it may do (its policy).
    Inspect {
        /// Name of an installed plugin.
        plugin: String,
    },
    /// What plugins asked for on this node, and how it ended.
    Log {
        /// Only this container.
        #[arg(long)]
        container: Option<String>,
        /// Only what was refused.
        #[arg(long)]
        denied: bool,
        /// The lines of the log as they are.
        #[arg(long)]
        json: bool,
    },
    /// Remove what nothing uses any more.
    Gc {
        /// Bridges, VLAN gateways and nftables tables that Postern made and that no attachment uses.
        #[arg(long, required = true)]
        node: bool,
        /// Switch IP forwarding off as well, if Postern switched it on.
        #[arg(long)]
        forwarding: bool,
    },
}

fn main() -> Result<()> {
    match Cli::parse().verb {
        Verb::Add { file, policy, name, catalog, bin } => add::run(&file, &policy, name, catalog, bin),
        Verb::Inspect { plugin } => inspect::run(&plugin),
        Verb::Log { container, denied, json } => log::run(container.as_deref(), denied, json),
        Verb::Gc { node: _, forwarding } => {
            let places = Places::find().map_err(anyhow::Error::msg)?;
            for line in postern_gate::node::collect(&places, forwarding).map_err(anyhow::Error::msg)? {
                println!("{line}");
            }
            Ok(())
        }
    }
}
