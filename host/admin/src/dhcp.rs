//! `postern dhcp`, for the help and the manual. `postern` itself starts the program of the service, `postern-dhcpd`, which
//! reads its own arguments.

use crate::install::layout::DHCP_SERVICE;
use anyhow::{Result, bail, ensure};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// A verb of `postern dhcp`.
#[derive(clap::Subcommand)]
#[allow(dead_code, reason = "the service reads its own arguments")]
pub enum Verb {
    /// Run the service until SIGTERM. Under systemd it uses systemd's socket (postern-dhcp.socket).
    ///
    /// An option may begin with one dash, like the native daemon's options.
    Serve(Options),
}

/// The options of the service, which has the same list in its own help (host/dhcp/src/options.rs).
#[derive(clap::Args)]
#[allow(dead_code, reason = "the service reads its own arguments")]
pub struct Options {
    /// The socket [default: /run/cni/dhcp.sock].
    #[arg(long, value_name = "PATH")]
    socketpath: Option<PathBuf>,
    /// Write the process ID to this file.
    #[arg(long, value_name = "PATH")]
    pidfile: Option<PathBuf>,
    /// The directory with the node's files: a prefix of the socket's path and of the paths of namespaces.
    #[arg(long, value_name = "PATH")]
    hostprefix: Option<PathBuf>,
    /// Servers shall broadcast their answers.
    #[arg(long)]
    broadcast: bool,
    /// Wait this long for an answer [default: 10s].
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// The longest time before a packet is sent again [default: 62s].
    #[arg(long, value_name = "TIME")]
    resendmax: Option<String>,
    /// The longest time to get a lease [default: 3m28s].
    #[arg(long, value_name = "TIME")]
    resendtimeout: Option<String>,
}

/// Starts the service in place of this program.
///
/// # Errors
/// The service is not installed, or can't be started.
pub fn run(_: &Verb) -> Result<ExitCode> {
    let program = std::env::current_exe()?.with_file_name(DHCP_SERVICE);
    ensure!(
        program.is_file(),
        "there is no {}, which keeps DHCP leases: install the package postern-dhcp, or a build that has this program",
        program.display()
    );
    // The service reads the words behind `dhcp`.
    let error = Command::new(&program).args(std::env::args_os().skip(2)).exec();
    bail!("cannot start {}: {error}", program.display())
}
