//! The test reads /proc to see the rights that the gate keeps while a guest runs.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::test_bin;
use postern_tests::{Answer, Network, Node};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

const NET_ADMIN: u64 = 1 << 12;
const KILL: u64 = 1 << 5;
const DAC_OVERRIDE: u64 = 1 << 1;
const FOWNER: u64 = 1 << 3;

/// The kernel's data about one thread.
#[derive(Debug)]
struct Thread {
    status: BTreeMap<String, String>,
}

impl Thread {
    fn read(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self { status: fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect() }
    }

    fn field(&self, name: &str) -> &str {
        self.status.get(name).map_or("", String::as_str)
    }

    fn capabilities(&self, set: &str) -> Result<u64> {
        u64::from_str_radix(self.field(set), 16).with_context(|| format!("{set} of {self:?}"))
    }
}

/// One process of the host executable while the guest is busy.
#[derive(Debug)]
struct Process {
    threads: Vec<Thread>,
    environment: String,
    descriptors: Vec<String>,
    core_limit: String,
}

/// Starts an ADD whose plugin never ends. Returns the run's processes, first the gate.
fn look(config: &serde_json::Value, want: usize) -> Result<Vec<Process>> {
    let node = Node::new()?;
    node.add_container("c1")?;
    let call = Network::new(&node, config)?.by(&test_bin()?).request(0, "ADD", "c1", &json!({}))?;
    let mut command = node.command(call.program());
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin").env("SECRET", "swordfish").envs(call.environment());
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        std::io::Write::write_all(&mut stdin, call.stdin())?;
    }
    // The gate is a descendant of timeout(1). The gate's children are the sandboxes.
    let mut seen = Vec::new();
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let gate =
            descendants(child.id())?.into_iter().find(|pid| threads(*pid).is_ok_and(|threads| is_gate(&threads)));
        let Some(gate) = gate else { continue };
        let pids: Vec<u32> = std::iter::once(gate).chain(descendants(gate)?).collect();
        let all: Result<Vec<Process>> = pids.into_iter().map(process).collect();
        // A process with a seccomp filter is confined. Data before the confinement do not count.
        seen = all.unwrap_or_default();
        let confined = seen.iter().all(|process| process.threads.iter().all(|thread| thread.field("Seccomp") == "2"));
        if seen.len() == want && confined {
            break;
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    ensure!(seen.len() == want, "{want} processes were expected: {seen:#?}");
    Ok(seen)
}

/// Returns true if a thread has the name that a gate gives itself. Sandboxes have this name too, but start later.
fn is_gate(threads: &[Thread]) -> bool {
    threads.iter().any(|thread| thread.field("Name").starts_with("ADD "))
}

fn children(pid: u32) -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("children"))?;
        children.extend(text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Ok(children)
}

fn descendants(pid: u32) -> Result<Vec<u32>> {
    let mut all = children(pid)?;
    let mut at = 0;
    while let Some(next) = all.get(at).copied() {
        all.extend(children(next).unwrap_or_default());
        at += 1;
    }
    Ok(all)
}

fn threads(pid: u32) -> Result<Vec<Thread>> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    tasks.map(|task| Ok(Thread::read(&std::fs::read_to_string(task?.path().join("status"))?))).collect()
}

fn process(pid: u32) -> Result<Process> {
    let proc = format!("/proc/{pid}");
    let proc = Path::new(&proc);
    // A sandbox is not dumpable, so even this test may not look at its files.
    let descriptors = match std::fs::read_dir(proc.join("fd")) {
        Ok(entries) => entries
            .map(|entry| Ok(std::fs::read_link(entry?.path())?.to_string_lossy().into_owned()))
            .collect::<Result<_>>()?,
        Err(_) => Vec::new(),
    };
    let limits = std::fs::read_to_string(proc.join("limits"))?;
    let core = limits.lines().find(|line| line.starts_with("Max core")).unwrap_or_default();
    Ok(Process {
        threads: threads(pid)?,
        environment: std::fs::read_to_string(proc.join("environ")).unwrap_or_default(),
        descriptors,
        core_limit: core.split_whitespace().nth(4).unwrap_or_default().to_owned(),
    })
}

fn confined(process: &Process, expected: u64) -> Result<()> {
    for thread in &process.threads {
        for set in ["CapEff", "CapPrm"] {
            let have = thread.capabilities(set)?;
            ensure!(have == expected, "{set} is {have:#x} instead of {expected:#x}: {thread:#?}");
        }
        for set in ["CapInh", "CapAmb"] {
            ensure!(thread.capabilities(set)? == 0, "{set}: {thread:#?}");
        }
        ensure!(thread.field("NoNewPrivs") == "1" && thread.field("Seccomp") == "2", "{thread:#?}");
    }
    ensure!(process.environment.chars().all(|c| c == '\0'), "environment: {:?}", process.environment);
    ensure!(process.core_limit == "0", "core dumps: {}", process.core_limit);
    Ok(())
}

/// Checks the processes beside the gate: this many sandboxes without capabilities and with an empty bounding set.
/// Another process without capabilities may exist, which removes directories of leases.
fn sandboxed(beside: &[Process], sandboxes: usize) -> Result<()> {
    let mut bounded = 0;
    for process in beside {
        confined(process, 0)?;
        let [thread] = process.threads.as_slice() else { anyhow::bail!("one thread is expected: {process:#?}") };
        bounded += usize::from(thread.capabilities("CapBnd")? == 0);
    }
    ensure!(bounded == sandboxes, "{sandboxes} sandboxes with an empty bounding set are expected: {beside:#?}");
    Ok(())
}

fn endless(patch: &serde_json::Value) -> serde_json::Value {
    let mut config = json!({"type": "hostile", "hostile": "loop",
        "ipam": {"type": "host-local", "dataDir": "/var/lib/hostile", "ranges": [[{"subnet": "10.9.0.0/24"}]]}});
    postern_tests::merge(&mut config, patch);
    config
}

#[test]
fn the_gate_keeps_what_its_grants_need() -> Result<()> {
    // The fourth process removes this run's lease directories if they stay empty.
    let seen = look(&endless(&json!({})), 4)?;
    let [gate, sandboxes @ ..] = seen.as_slice() else { anyhow::bail!("no process is seen") };
    ensure!(gate.threads.len() == 1, "the gate has more than one thread: {gate:#?}");
    // Policy grants leases, and a data directory may belong to another user. So the gate keeps DAC_OVERRIDE and FOWNER.
    confined(gate, NET_ADMIN | KILL | DAC_OVERRIDE | FOWNER)?;
    // The gate has standard streams, sockets to the sandboxes and the kernel, and namespaces. Its only file is the
    // verified code.
    for target in &gate.descriptors {
        let known = [
            "/dev/null",
            "pipe:",
            "socket:",
            "net:",
            "/run/netns/",
            "/run/postern",
            "/proc/",
            "anon_inode:[landlock-ruleset]",
        ];
        ensure!(known.iter().any(|known| target.starts_with(known)), "{target} among {:?}", gate.descriptors);
    }
    sandboxed(sandboxes, 2)
}

/// The plugin's sandbox runs another program, and has the same limits.
#[test]
fn a_plugin_with_all_of_wasi_has_no_more() -> Result<()> {
    let seen = look(&json!({"type": "reaching", "do": "wait"}), 2)?;
    let [gate, sandbox] = seen.as_slice() else { anyhow::bail!("no gate with one sandbox is seen") };
    confined(gate, KILL)?;
    sandboxed(std::slice::from_ref(sandbox), 1)?;
    ensure!(
        sandbox.threads.len() == 1 && sandbox.threads.iter().all(|thread| thread.field("Name") == "postern-wasi"),
        "{sandbox:#?}"
    );
    Ok(())
}

#[test]
fn without_leases_there_is_no_way_past_file_modes() -> Result<()> {
    let bin = test_bin()?;
    let policy = std::fs::read_to_string(bin.join("postern.d/hostile.toml"))?;
    ensure!(policy.contains("[grant.leases]"), "hostile's policy grants no leases, so the test above proves nothing");
    // Policy refuses leases in this directory, so the gate needs no capability for leases.
    let seen = look(&endless(&json!({"ipam": {"type": "static", "dataDir": "/var/lib/other"}})), 3)?;
    confined(seen.first().context("no process is seen")?, NET_ADMIN | KILL)
}

/// Makes a call under strace with these options. Returns the answer and the trace.
fn traced(network: &Network, verb: &str, options: &[&str]) -> Result<(Answer, String)> {
    let strace = ["strace", "-qq", "-o", "/mnt/trace"].iter().chain(options).map(|word| (*word).to_owned());
    let call = network.request(0, verb, "c1", &json!({}))?;
    let answer = network.node.call_under(&strace.collect::<Vec<_>>(), &call)?;
    Ok((answer, network.node.sh("cat /mnt/trace")?))
}

/// A network of a bridge with leases in this directory.
fn bridge(node: &Node, directory: &str, range: &serde_json::Value) -> Result<Network> {
    let ipam = json!({"type": "host-local", "dataDir": directory, "ranges": [[range]]});
    Network::new(node, &json!({"cniVersion": "1.0.0", "type": "bridge", "bridge": "cni0", "ipam": ipam}))
}

/// Returns the paths in a run's Landlock rules, in alphabetical order.
fn ruled(network: &Network, verb: &str) -> Result<(Answer, Vec<String>)> {
    let (answer, trace) = traced(network, verb, &["-y", "-e", "trace=landlock_add_rule"])?;
    let mut paths: Vec<String> = trace
        .lines()
        .filter_map(|line| Some(line.split_once("parent_fd=")?.1.split(['<', '>']).nth(1)?.to_owned()))
        .collect();
    paths.sort();
    Ok((answer, paths))
}

#[test]
fn files_in_reach_are_those_of_the_run_on_the_first_add_too() -> Result<()> {
    let own = ["/proc/sys/net", "/run/postern", "/var/lib/postern/leases", "/var/log/postern"];
    // The default directory, and a path that contains a symbolic link.
    for (prepare, directory, real) in [
        ("true", "/var/lib/cni/networks", "/var/lib/cni/networks/net"),
        ("mkdir /var/lib/real; ln -s real /var/lib/link", "/var/lib/link/new", "/var/lib/real/new/net"),
    ] {
        let node = Node::new()?;
        node.add_container("c1")?;
        // The operator's catalog is out of reach.
        node.sh(&format!("mount -t tmpfs trace /mnt; mkdir -p /var/lib/postern/postern.d; {prepare}"))?;
        let mut expected: Vec<&str> = own.to_vec();
        expected.push(real);
        expected.sort_unstable();
        let network = bridge(&node, directory, &json!({"subnet": "10.9.0.0/24"}))?;
        // The first ADD makes the directories, and the second finds them.
        for verb in ["ADD", "DEL", "ADD", "CHECK"] {
            let (answer, paths) = ruled(&network, verb)?;
            ensure!(verb == "CHECK" || answer.status == 0, "{verb}: {answer:?}");
            ensure!(paths == expected, "{directory}, {verb}: {paths:?}");
        }
    }
    Ok(())
}

#[test]
fn what_was_made_for_leases_goes_if_there_are_none() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    // The range's only address is the gateway's.
    let only =
        json!({"subnet": "10.9.0.0/30", "rangeStart": "10.9.0.1", "rangeEnd": "10.9.0.1", "gateway": "10.9.0.1"});
    let made = || node.sh("find /var/lib/a /var/lib/cni 2>/dev/null || true");
    let answer = bridge(&node, "/var/lib/a/b", &only)?.call("ADD", "c1")?;
    ensure!(answer.status == 1 && answer.stdout.contains("no IP addresses available"), "{answer:?}");
    // The native plugins' lock file stays, and so does the network's directory.
    ensure!(made()?.lines().count() == 4, "{}", made()?);
    node.sh("rm -r /var/lib/a")?;
    let answer = bridge(&node, "/var/lib/a/b", &json!({"subnet": "no network"}))?.call("ADD", "c1")?;
    ensure!(answer.status == 1 && made()?.is_empty(), "{answer:?} {}", made()?);
    Ok(())
}

/// Returns the seccomp filters that a run installs, as strace shows them, and the number of its bpf(2) queries.
fn filters(network: &Network, verb: &str) -> Result<(Vec<String>, usize)> {
    let options = ["-f", "-v", "-s", "9999", "-e", "trace=prctl,seccomp,bpf", "-e", "signal=none"];
    let (answer, trace) = traced(network, verb, &options)?;
    ensure!(answer.status == 0, "{verb}: {answer:?}");
    let installs = |line: &&str| line.contains("SECCOMP_MODE_FILTER");
    let lines: Vec<String> = trace.lines().filter(installs).map(str::to_owned).collect();
    Ok((lines, trace.lines().filter(|line| line.contains("bpf(BPF_PROG_QUERY")).count()))
}

/// Only a gate that may move a device back may query a link's BPF programs. No other thread may.
#[test]
fn only_a_device_gives_the_gate_a_question_to_bpf() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh("mount -t tmpfs trace /mnt; ip link add dev1 type veth peer name wire1")?;
    // `k` is the value with which a filter compares the call's number.
    let asks = |filters: &[String]| {
        let number = format!("{:#x}", nix::libc::SYS_bpf);
        filters.iter().filter(|filter| filter.contains(&format!("BPF_JEQ, {number},"))).count()
    };
    let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]});
    for (plugin, config, given) in [
        ("bridge", json!({"type": "bridge", "bridge": "cni0", "ipam": ipam}), 0),
        ("host-device", json!({"type": "host-device", "device": "dev1"}), 1),
    ] {
        let network = Network::new(&node, &config)?;
        for verb in ["ADD", "DEL"] {
            let (filters, questions) = filters(&network, verb).context(plugin)?;
            // The gate and a sandbox each install a filter.
            ensure!(filters.len() >= 2, "{plugin} {verb}: {filters:?}");
            ensure!(asks(&filters) == given, "{plugin} {verb}: {} of {filters:?}", asks(&filters));
            ensure!((questions > 0) == (given > 0), "{plugin} {verb}: {questions} questions");
        }
    }
    Ok(())
}

/// For settings of links that come and go, the gate uses directories that it opened in the container's namespace.
/// Settings of `all`, `default`, `lo` and the whole namespace need a thread in this namespace.
#[test]
fn only_settings_of_links_that_come_and_go_need_no_thread() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh("mount -t tmpfs trace /mnt")?;
    // Both namespaces have a link of this name, so the test sees in which namespace the setting changed.
    for place in [String::new(), format!("nsenter --net={} ", node.netns("c1"))] {
        node.sh(&format!("{place}ip link add eth0 type veth peer name eth1"))?;
    }
    for (key, path, value, threads) in [
        ("net.ipv4.conf.eth0.arp_filter", "ipv4/conf/eth0/arp_filter", "1", 0),
        // Every namespace has a link `lo`. A look-up from outside would leave the other namespace's entry in the
        // kernel.
        ("net.ipv4.conf.lo.arp_filter", "ipv4/conf/lo/arp_filter", "1", 1),
        ("net.core.somaxconn", "core/somaxconn", "501", 1),
    ] {
        let read =
            |place: &str| node.sh(&format!("{place} cat /proc/sys/net/{path}")).map(|text| text.trim().to_owned());
        let before = read("")?;
        let previous = json!({"cniVersion": "1.1.0", "ips": []});
        let tuning = json!({"type": "tuning", "sysctl": {key: value}, "prevResult": previous});
        let (filters, _) = filters(&Network::new(&node, &tuning)?, "ADD")?;
        // The gate, a sandbox and the thread each install a filter.
        ensure!(filters.len() == 2 + threads, "{key}: {filters:?}");
        let inside = read(&format!("nsenter --net={}", node.netns("c1")))?;
        ensure!(inside == value && read("")? == before && before != value, "{key}: {inside}, {before}");
    }
    Ok(())
}
