//! Measures netavark, which sets up networks for Podman without plugins. The network has a bridge, masquerading and one
//! port. As for the plugins, the bridge and the network's rules exist already, because another container of the network
//! stays attached.

use anyhow::{Context, Result, ensure};
use postern_tests::measure::{Measured, timed};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// netavark's package, unpacked with the C library that it needs (`tests/fetch-runtime`).
pub struct Netavark {
    program: PathBuf,
    loader: PathBuf,
    /// The version that netavark prints.
    pub version: String,
}

/// A container: its namespace, and Podman's description of it for netavark.
struct Container {
    netns: String,
    input: String,
}

/// A network with a container that stays attached.
pub struct Network<'a> {
    program: &'a Netavark,
    measured: Container,
}

/// Returns the directory of the package if it exists: in `$POSTERN_RUNTIMES`, or in `target/runtimes`.
pub fn package() -> Option<PathBuf> {
    let runtimes = PathBuf::from(std::env::var_os("POSTERN_RUNTIMES").unwrap_or_else(|| "target/runtimes".into()));
    Some(runtimes.join("netavark")).filter(|directory| directory.is_dir())
}

impl Netavark {
    /// Finds netavark in its package's directory, and asks for its version.
    pub fn of(package: &Path) -> Result<Self> {
        let found = |words: &[&str]| -> Result<PathBuf> {
            let output = Command::new("find").arg(package.join("usr/lib")).args(words).output()?;
            let text = String::from_utf8(output.stdout)?;
            Ok(text.lines().next().with_context(|| format!("netavark: no {words:?} in its package"))?.into())
        };
        let loader = found(&["-path", "*-linux-gnu/ld-linux-*"])?;
        let mut netavark = Self { program: found(&["-path", "*/podman/netavark"])?, loader, version: String::new() };
        let output = netavark.command().arg("--version").output()?;
        ensure!(output.status.success(), "netavark: {}", String::from_utf8_lossy(&output.stderr).trim());
        netavark.version = String::from_utf8(output.stdout)?.replace("netavark ", "").trim().to_owned();
        Ok(netavark)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.loader);
        command.arg("--library-path").args(self.loader.parent()).arg(&self.program);
        // nftables is the default of Debian's build. The variable overrides the note of an earlier run.
        command.env("NETAVARK_FW", "nftables");
        command
    }

    /// Makes a network with the address range `10.NUMBER.0.0/16`. The container in the first namespace stays attached.
    /// The container in the second namespace is measured, with this node port.
    pub fn network(&self, number: usize, netns: [String; 2], port: u16) -> Result<Network<'_>> {
        let [stays, measured] = netns;
        let stays = container(number, 2, stays, &Value::Null);
        let port = json!([{"container_port": 80, "host_ip": "", "host_port": port, "protocol": "tcp", "range": 1}]);
        let made = self.call("setup", &stays)?;
        ensure!(made.succeeded, "netavark: {}", made.stdout);
        Ok(Network { program: self, measured: container(number, 3, measured, &port) })
    }

    fn call(&self, verb: &str, container: &Container) -> Result<Measured> {
        let mut command = self.command();
        command.args(["--config", "/run/netavark", verb, &container.netns]);
        timed(&mut command, container.input.as_bytes())
    }
}

impl Network<'_> {
    /// Attaches or detaches the measured container. Returns `None` for CHECK, which netavark lacks.
    pub fn call(&self, verb: &str) -> Result<Option<Measured>> {
        let verb = match verb {
            "add" => "setup",
            "del" => "teardown",
            _ => return Ok(None),
        };
        self.program.call(verb, &self.measured).map(Some)
    }
}

/// Returns the container with this address, and Podman's description of the container and the network.
fn container(network: usize, address: usize, netns: String, ports: &Value) -> Container {
    let name = format!("chain{network}");
    let input = json!({
        "container_id": format!("{address:064}"), "container_name": format!("c{address}"), "port_mappings": ports,
        "networks": {&name: {"interface_name": "eth0", "static_ips": [format!("10.{network}.0.{address}")]}},
        "network_info": {&name: {
            "name": name, "id": format!("{network:064}"), "driver": "bridge", "network_interface": name,
            "subnets": [{"subnet": format!("10.{network}.0.0/16"), "gateway": format!("10.{network}.0.1")}],
            "ipv6_enabled": false, "internal": false, "dns_enabled": false, "ipam_options": {"driver": "host-local"},
        }},
    });
    Container { netns, input: input.to_string() }
}
