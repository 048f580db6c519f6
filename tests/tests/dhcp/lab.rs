//! A node with a switch, a DHCP server and containers, and the DHCP service on it.

use anyhow::{Context, Result, bail, ensure};
use postern_dhcp_channel::{Answer, Ask, Attachment, Channel, HeldLease, Lease};
use postern_tests::{Node, plugin_bin};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A test node. The DHCP server has the address 10.5.0.1 in the network 10.5.0.0/24.
pub struct Lab {
    pub node: Node,
    /// The directory of this lab's files, with the same path on the node.
    pub dir: PathBuf,
    bin: PathBuf,
}

/// The shell command that starts a program of a lab in the background.
const BACKGROUND: &str =
    "setsid sh -c 'echo $$ > \"$0\".pid; exec \"$@\"' \"$NAME\" \"$@\" >>\"$NAME\".log 2>&1 </dev/null &";

impl Lab {
    /// Makes the node with these containers. Each container has a link eth0 on the switch. The link is down.
    pub fn new(containers: &[&str]) -> Result<Self> {
        Self::with_client(containers, client_bin()?)
    }

    /// As [`Lab::new`], with the programs of another directory.
    pub fn with_client(containers: &[&str], bin: PathBuf) -> Result<Self> {
        let node = Node::new()?;
        let dir = scratch("lab")?;
        node.sh("ip link add br0 type bridge && ip link set br0 up
             ip netns add srv && ip link add s0 netns srv type veth peer name sh
             ip link set sh master br0 up
             ip -n srv addr add 10.5.0.1/24 dev s0 && ip -n srv link set s0 up && ip -n srv link set lo up")?;
        let lab = Self { node, dir, bin };
        for container in containers {
            lab.node.add_container(container)?;
            lab.link(container, "eth0")?;
        }
        Ok(lab)
    }

    /// Adds a link to a container.
    pub fn link(&self, container: &str, name: &str) -> Result<()> {
        let end = format!("h{container}{name}");
        // The kernel removes the link of an earlier container of this name some time after the namespace.
        self.node
            .sh(&format!(
                "while ip link show {end} >/dev/null 2>&1; do sleep 0.05; done
                 ip link add {name} netns {container} type veth peer name {end} && ip link set {end} master br0 up"
            ))
            .map(drop)
    }

    /// Starts a program, and returns when it has begun.
    pub fn background(&self, name: &str, command: &str) -> Result<()> {
        let path = self.dir.join(name);
        let pid = path.with_extension("pid");
        let _ = std::fs::remove_file(&pid);
        self.node.sh(&format!("NAME={} ; set -- {command} ; {BACKGROUND}", path.display()))?;
        wait(Duration::from_secs(10), || Ok(std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'))))
            .with_context(|| format!("{name} does not start"))
    }

    /// Sends a signal to a program.
    pub fn kill(&self, name: &str, signal: &str) -> Result<()> {
        self.node.sh(&format!("kill -{signal} $(cat {}.pid)", self.dir.join(name).display()))?;
        let pid = self.pid(name)?;
        let is_gone = || Ok(!Path::new(&format!("/proc/{pid}/stat")).exists());
        if signal == "STOP" || signal == "CONT" { Ok(()) } else { wait(Duration::from_secs(10), is_gone) }
    }

    /// Returns the process ID of a program.
    pub fn pid(&self, name: &str) -> Result<u32> {
        Ok(std::fs::read_to_string(self.dir.join(name).with_extension("pid"))?.trim().parse()?)
    }

    /// Returns the output of a program.
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.join(name).with_extension("log")).unwrap_or_default()
    }

    /// Starts dnsmasq with leases of two minutes, its minimum.
    pub fn dnsmasq(&self, options: &str) -> Result<()> {
        let leases = self.dir.join("dnsmasq.leases");
        self.background(
            "dnsmasq",
            &format!(
                "ip netns exec srv dnsmasq --no-daemon --conf-file=/dev/null --port=0 --interface=s0 --bind-interfaces \
                 --dhcp-range=10.5.0.50,10.5.0.99,255.255.255.0,2m --dhcp-option=3,10.5.0.1 \
                 --dhcp-leasefile={} --pid-file= --user=root --log-dhcp --no-ping {options}",
                leases.display()
            ),
        )?;
        self.until_said("dnsmasq", "sockets bound exclusively")
    }

    /// Starts Kea for these addresses, with leases of this length. A lease is renewed after a third of this length.
    pub fn kea(&self, pool: &str, seconds: u32) -> Result<()> {
        let config = json!({"Dhcp4": {
            "interfaces-config": {"interfaces": ["s0"], "dhcp-socket-type": "raw"},
            "lease-database": {"type": "memfile", "persist": false},
            "authoritative": true,
            "valid-lifetime": seconds, "renew-timer": seconds / 3, "rebind-timer": seconds / 2,
            "subnet4": [{"id": 1, "subnet": "10.5.0.0/24", "pools": [{"pool": pool}],
                "option-data": [{"name": "routers", "data": "10.5.0.1"}]}],
            "loggers": [{"name": "kea-dhcp4", "output_options": [{"output": "stdout"}], "severity": "INFO"}],
        }});
        let path = self.dir.join("kea.conf");
        std::fs::write(&path, config.to_string())?;
        let _ = std::fs::remove_file(self.dir.join("kea.log"));
        let dir = self.dir.display();
        self.background(
            "kea",
            &format!(
                "ip netns exec srv env KEA_PIDFILE_DIR={dir} KEA_LOCKFILE_DIR={dir} KEA_LOGGER_DESTINATION=stdout kea-dhcp4 -c {}",
                path.display()
            ),
        )?;
        self.until_said("kea", "DHCP4_STARTED")
    }

    /// Gives the server the IPv6 address 2001:db8:5::1 in the network 2001:db8:5::/64.
    pub fn ipv6(&self) -> Result<()> {
        self.node
            .sh("ip netns exec srv sysctl -qw net.ipv6.conf.s0.accept_dad=0 net.ipv6.conf.all.forwarding=1
             ip -n srv link set s0 down && ip -n srv link set s0 up
             ip -n srv addr add 2001:db8:5::1/64 dev s0 nodad")
            .map(drop)
    }

    /// Starts a router that advertises itself and the prefix of its network, but gives no addresses.
    pub fn router(&self) -> Result<()> {
        self.background(
            "router",
            "ip netns exec srv dnsmasq --no-daemon --conf-file=/dev/null --port=0 --interface=s0 --bind-interfaces \
             --enable-ra --dhcp-range=2001:db8:5::,ra-only,64 --pid-file= --user=root --log-dhcp",
        )?;
        self.until_said("router", "router advertisement on 2001:db8:5::")
    }

    /// Returns the server's link-local address, which is the router's address.
    pub fn router_address(&self) -> Result<std::net::IpAddr> {
        let text = self.node.sh("ip -n srv -6 -o addr show dev s0 scope link | sed 's,.*inet6 \\([^/]*\\)/.*,\\1,'")?;
        text.trim().parse().with_context(|| text.clone())
    }

    /// Starts Kea for these IPv6 addresses, with leases of this length. A lease is renewed after a third of this
    /// length. Kea keeps the server identity of its last start, unless the file of the identity was removed.
    pub fn kea6(&self, pool: &str, seconds: u32) -> Result<()> {
        let options = json!([{"name": "dns-servers", "data": "2001:db8:5::53"},
            {"name": "domain-search", "data": "one.example, two.example"}]);
        let config = json!({"Dhcp6": {
            "interfaces-config": {"interfaces": ["s0"]},
            "lease-database": {"type": "memfile", "persist": false},
            "data-directory": self.dir,
            "valid-lifetime": seconds, "preferred-lifetime": seconds,
            "renew-timer": seconds / 3, "rebind-timer": seconds / 2,
            "subnet6": [{"id": 1, "subnet": "2001:db8:5::/64", "interface": "s0", "pools": [{"pool": pool}],
                "option-data": options}],
            "loggers": [{"name": "kea-dhcp6", "output_options": [{"output": "stdout"}], "severity": "INFO"}],
        }});
        let path = self.dir.join("kea6.conf");
        std::fs::write(&path, config.to_string())?;
        let _ = std::fs::remove_file(self.dir.join("kea6.log"));
        let dir = self.dir.display();
        self.background(
            "kea6",
            &format!(
                "ip netns exec srv env KEA_PIDFILE_DIR={dir} KEA_LOCKFILE_DIR={dir} KEA_LOGGER_DESTINATION=stdout kea-dhcp6 -c {}",
                path.display()
            ),
        )?;
        self.until_said("kea6", "DHCP6_STARTED")
    }

    /// Starts the DHCP server of busybox, with leases of a minute.
    pub fn udhcpd(&self) -> Result<()> {
        let path = self.dir.join("udhcpd.conf");
        let dir = self.dir.display();
        std::fs::write(self.dir.join("udhcpd.leases"), "")?;
        std::fs::write(
            &path,
            format!(
                "start 10.5.0.50\nend 10.5.0.99\ninterface s0\nlease_file {dir}/udhcpd.leases\npidfile {dir}/udhcpd.own\n\
                 option subnet 255.255.255.0\noption router 10.5.0.1\noption lease 60\n"
            ),
        )?;
        self.background("udhcpd", &format!("ip netns exec srv busybox udhcpd -f {}", path.display()))?;
        self.until_said("udhcpd", "started")
    }

    /// Waits until the output of a program contains these words.
    pub fn until_said(&self, name: &str, words: &str) -> Result<()> {
        wait(Duration::from_secs(10), || Ok(self.log(name).contains(words)))
            .with_context(|| format!("{name} has not printed \"{words}\": {}", self.log(name)))
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("dhcp.sock")
    }

    /// Starts the service.
    pub fn serve(&self, options: &str) -> Result<()> {
        self.serve_under("", options)
    }

    /// Starts the service with a shifted boot-time clock: later or earlier by this number of seconds.
    pub fn serve_after(&self, seconds: i64) -> Result<()> {
        self.serve_under(&format!("unshare --time --boottime {seconds}"), "")
    }

    /// Starts the service through another program.
    fn serve_under(&self, wrapper: &str, options: &str) -> Result<()> {
        let program = self.bin.join("postern-dhcpd");
        self.background(
            "service",
            &format!("{wrapper} {} serve --socketpath {} {options}", program.display(), self.socket().display()),
        )?;
        wait(Duration::from_secs(10), || Ok(self.ask(&Ask::Alive).is_ok()))
            .with_context(|| format!("the service does not answer: {}", self.log("service")))
    }

    /// Sends a request to the service.
    pub fn ask(&self, ask: &Ask) -> Result<Answer> {
        let until = Instant::now() + Duration::from_secs(30);
        let mut channel = Channel::connect(&self.socket(), until)?;
        Ok(channel.ask(ask, None, until)?)
    }

    /// Acquires a lease. Fails if the service gives none.
    pub fn acquire(&self, attachment: &Attachment) -> Result<Lease> {
        match self.ask(&Ask::Acquire(attachment.clone()))? {
            Answer::Lease(lease) => Ok(lease),
            other => bail!("no lease: {other:?}\nservice: {}", self.log("service")),
        }
    }

    /// Returns all leases of the service.
    pub fn leases(&self) -> Result<Vec<HeldLease>> {
        match self.ask(&Ask::Leases)? {
            Answer::Leases(leases) => Ok(leases),
            other => bail!("{other:?}"),
        }
    }

    /// Sets the lease's address on the container's link, as the plugin does.
    pub fn configure(&self, container: &str, lease: &Lease) -> Result<()> {
        self.node.sh_in(container, &format!("ip addr add {} dev eth0", address(lease))).map(drop)
    }

    /// True if the container's link is up.
    pub fn is_up(&self, container: &str) -> Result<bool> {
        Ok(self.node.sh_in(container, "ip -o link show eth0")?.contains(",UP"))
    }

    /// Returns the hardware address of a container's link.
    pub fn mac(&self, container: &str) -> Result<[u8; 6]> {
        let script = "ip -o link show eth0 | sed 's,.*ether \\([^ ]*\\).*,\\1,'";
        let text = self.node.sh_in(container, script)?;
        let bytes: Vec<u8> = text.trim().split(':').filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        <[u8; 6]>::try_from(bytes).ok().context("no hardware address")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // `|| true`: a program that has already ended does not stop the loop.
        let pids = format!("for f in {}/*.pid; do kill -9 $(cat $f) 2>/dev/null || true; done", self.dir.display());
        let _ = self.node.sh(&pids);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Returns the address of a lease, with its prefix length.
pub fn address(lease: &Lease) -> String {
    lease.addresses.first().map(|one| one.address.to_string()).unwrap_or_default()
}

/// Returns an attachment of a container to network `net`, with these additional keys in the configuration.
pub fn attachment(container: &str, more: &Value) -> Attachment {
    let mut configuration = json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge", "ipam": {"type": "dhcp"}});
    if let (Value::Object(all), Value::Object(more)) = (&mut configuration, more) {
        all.extend(more.clone());
    }
    Attachment {
        container_id: container.to_owned(),
        network: "net".to_owned(),
        ifname: "eth0".to_owned(),
        netns: format!("/run/netns/{container}"),
        configuration: configuration.to_string(),
        ..Attachment::default()
    }
}

/// Fails if the answer is no refusal, or if its message lacks these words.
pub fn refused(answer: &Answer, expected: &str) -> Result<()> {
    match answer {
        Answer::Refused { words, .. } if words.contains(expected) => Ok(()),
        other => bail!("not \"{expected}\": {other:?}"),
    }
}

/// Waits until `holds` returns true. Fails after the time `most`.
pub fn wait(most: Duration, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let until = Instant::now() + most;
    while !holds()? {
        ensure!(Instant::now() < until, "the condition is still false after {most:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn scratch(name: &str) -> Result<PathBuf> {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("postern-dhcp-{name}-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
    Ok(path)
}

/// Returns a directory with the service and this component as its client.
fn bin_with(component: &str, digest: &str) -> Result<PathBuf> {
    let built = plugin_bin()?;
    let guest = built.join("../../wasm32-wasip2/guest").join(component);
    let bin = scratch(digest)?;
    std::fs::copy(built.join("postern-dhcpd"), bin.join("postern-dhcpd"))
        .with_context(|| format!("{} has no postern-dhcpd: `make build`", built.display()))?;
    let policy = bin.join("policy.toml");
    std::fs::write(&policy, "versions = [\"1.0.0\", \"1.1.0\"]\n")?;
    let added = std::process::Command::new(built.join("postern-admin"))
        .args(["add", &guest.to_string_lossy(), "--name", "dhcp", "--policy", &policy.to_string_lossy()])
        .arg("--catalog")
        .arg(bin.join("postern.d"))
        .output()?;
    ensure!(added.status.success(), "`tests/setup test` builds {}: {added:?}", guest.display());
    Ok(bin)
}

/// Returns the directory with the real client, which is compiled once for all tests.
fn client_bin() -> Result<PathBuf> {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    if let Some(bin) = BIN.get() {
        return Ok(bin.clone());
    }
    let bin = bin_with("postern-dhcp.wasm", "client")?;
    Ok(BIN.get_or_init(|| bin).clone())
}

/// Returns the directory with the client whose output the configuration sets.
pub fn scripted_bin() -> Result<PathBuf> {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    if let Some(bin) = BIN.get() {
        return Ok(bin.clone());
    }
    let bin = bin_with("step.wasm", "scripted")?;
    Ok(BIN.get_or_init(|| bin).clone())
}

impl Lab {
    /// Starts a relay in namespace `rt`, between its links r0 and r1.
    pub fn relay(&self) -> Result<()> {
        self.background("relay", "ip netns exec rt dhcrelay -4 -d --no-pid -i r0 -i r1 10.6.0.1")?;
        self.until_said("relay", "Sending on   Socket/fallback")
    }
}

impl Lab {
    /// Starts the native daemon at the socket of the service.
    pub fn native_daemon(&self, program: &Path) -> Result<()> {
        self.background("native", &format!("{} daemon -socketpath {}", program.display(), self.socket().display()))?;
        wait(Duration::from_secs(10), || Ok(self.socket().exists()))
    }
}
