//! The running gate, seen through /proc: the things that it keeps while a guest runs.

use anyhow::{Context, Result, ensure};
use postern_tests::proof::test_bin;
use postern_tests::{Answer, Call, Node, plugin_bin};
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

/// Starts an ADD whose plugin never ends, and returns its processes: the gate first.
fn look(plugin: &str, config: &serde_json::Value, want: usize) -> Result<Vec<Process>> {
    let node = Node::new()?;
    node.add_container("c1")?;
    let call = Call::new(&test_bin()?, plugin, "ADD", config.to_string()).attachment("c1", &node.netns("c1"), "eth0");
    let mut command = node.command(call.program());
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin").env("SECRET", "swordfish").envs(call.environment());
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        std::io::Write::write_all(&mut stdin, call.stdin())?;
    }
    // The gate is a descendant of timeout(1); its children are the sandboxes.
    let mut seen = Vec::new();
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let gate =
            descendants(child.id())?.into_iter().find(|pid| threads(*pid).is_ok_and(|threads| is_gate(&threads)));
        let Some(gate) = gate else { continue };
        let pids: Vec<u32> = std::iter::once(gate).chain(descendants(gate)?).collect();
        let all: Result<Vec<Process>> = pids.into_iter().map(process).collect();
        // Filtered means confined; before that the data don't count.
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

/// True if it has the name that a gate gives itself. Sandboxes have it too, and come later.
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
    // A sandbox is not dumpable: not even this test may look at its files.
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

/// Looks at what is beside the gate: this many sandboxes, which have nothing, and their bounding set is empty too. Another
/// process without capabilities may remove directories of leases.
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
    let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": "hostile", "hostile": "loop",
        "ipam": {"type": "host-local", "dataDir": "/var/lib/hostile", "ranges": [[{"subnet": "10.9.0.0/24"}]]}});
    postern_tests::merge(&mut config, patch);
    config
}

#[test]
fn the_gate_keeps_what_its_grants_need() -> Result<()> {
    // The fourth removes the lease directories of this run, if they stay empty.
    let seen = look("hostile", &endless(&json!({})), 4)?;
    let [gate, sandboxes @ ..] = seen.as_slice() else { anyhow::bail!("nothing is seen") };
    ensure!(gate.threads.len() == 1, "no thread is in the container's namespace: {gate:#?}");
    // Policy grants leases: a data directory may belong to another user.
    confined(gate, NET_ADMIN | KILL | DAC_OVERRIDE | FOWNER)?;
    // Standard streams, sockets to the sandboxes and to the kernel, namespaces; the only file is the verified code.
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

/// Its process runs another program, and has the same limits.
#[test]
fn a_plugin_with_all_of_wasi_has_no_more() -> Result<()> {
    let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "reaching", "do": "wait"});
    let seen = look("reaching", &config, 2)?;
    let [gate, sandbox] = seen.as_slice() else { anyhow::bail!("nothing is seen") };
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
    ensure!(policy.contains("[grant.leases]"), "the test above shows nothing");
    // Leases in a directory without a grant are refused, so nothing is needed for them.
    let seen = look("hostile", &endless(&json!({"ipam": {"type": "static", "dataDir": "/var/lib/other"}})), 3)?;
    confined(seen.first().context("nothing is seen")?, NET_ADMIN | KILL)
}

/// Returns the paths in a run's Landlock rules, in alphabetical order.
fn ruled(node: &Node, verb: &str, config: &serde_json::Value) -> Result<(Answer, Vec<String>)> {
    let call = Call::new(&plugin_bin()?, "bridge", verb, config.to_string());
    let trace = ["strace", "-qq", "-y", "-o", "/mnt/trace", "-e", "trace=landlock_add_rule"].map(str::to_owned);
    let answer = node.call_under(&trace, &call.attachment("c1", &node.netns("c1"), "eth0"))?;
    let trace = node.sh("cat /mnt/trace")?;
    let mut paths: Vec<String> = trace
        .lines()
        .filter_map(|line| Some(line.split_once("parent_fd=")?.1.split(['<', '>']).nth(1)?.to_owned()))
        .collect();
    paths.sort();
    Ok((answer, paths))
}

#[test]
fn files_in_reach_are_those_of_the_run_on_the_first_add_too() -> Result<()> {
    let config = |directory: &str| {
        json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "cni0",
            "ipam": {"type": "host-local", "dataDir": directory, "ranges": [[{"subnet": "10.9.0.0/24"}]]}})
    };
    let own = ["/proc/sys/net", "/run/postern", "/var/lib/postern", "/var/log/postern"];
    // The default, and a path that contains a link.
    for (prepare, directory, real) in [
        ("true", "/var/lib/cni/networks", "/var/lib/cni/networks/net"),
        ("mkdir /var/lib/real; ln -s real /var/lib/link", "/var/lib/link/new", "/var/lib/real/new/net"),
    ] {
        let node = Node::new()?;
        node.add_container("c1")?;
        node.sh(&format!("mount -t tmpfs trace /mnt; {prepare}"))?;
        let mut expected: Vec<&str> = own.to_vec();
        expected.push(real);
        expected.sort_unstable();
        // The first ADD makes the directories, the second finds them.
        for verb in ["ADD", "DEL", "ADD", "CHECK"] {
            let (answer, paths) = ruled(&node, verb, &config(directory))?;
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
    // Its last address is the gateway's.
    let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "cni0",
        "ipam": {"type": "host-local", "dataDir": "/var/lib/a/b", "ranges": [[{"subnet": "10.9.0.0/30",
            "rangeStart": "10.9.0.1", "rangeEnd": "10.9.0.1", "gateway": "10.9.0.1"}]]}});
    let call = Call::new(&plugin_bin()?, "bridge", "ADD", config.to_string());
    let call = call.attachment("c1", &node.netns("c1"), "eth0");
    let made = || node.sh("find /var/lib/a /var/lib/cni 2>/dev/null || true");
    let answer = node.call(&call)?;
    ensure!(answer.status == 1 && answer.stdout.contains("no IP addresses available"), "{answer:?}");
    // The lock of the native plugins stays, and with it the network's directory.
    ensure!(made()?.lines().count() == 4, "{}", made()?);
    node.sh("rm -r /var/lib/a")?;
    let broken = json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "cni0",
        "ipam": {"type": "host-local", "dataDir": "/var/lib/a/b", "ranges": [[{"subnet": "no network"}]]}});
    let call = Call::new(&plugin_bin()?, "bridge", "ADD", broken.to_string());
    let answer = node.call(&call.attachment("c1", &node.netns("c1"), "eth0"))?;
    ensure!(answer.status == 1 && made()?.is_empty(), "{answer:?} {}", made()?);
    Ok(())
}

/// Returns the filters of system calls that a run installs, as strace shows them, and its questions to bpf(2).
fn filters(plugin: &str, verb: &str, node: &Node, config: &serde_json::Value) -> Result<(Vec<String>, usize)> {
    let call = Call::new(&plugin_bin()?, plugin, verb, config.to_string());
    let trace = [
        "strace",
        "-f",
        "-qq",
        "-v",
        "-s",
        "9999",
        "-o",
        "/mnt/trace",
        "-e",
        "trace=prctl,seccomp,bpf",
        "-e",
        "signal=none",
    ]
    .map(str::to_owned);
    let answer = node.call_under(&trace, &call.attachment("c1", &node.netns("c1"), "eth0"))?;
    ensure!(answer.status == 0, "{plugin} {verb}: {answer:?}");
    let trace = node.sh("cat /mnt/trace")?;
    let installs = |line: &&str| line.contains("SECCOMP_MODE_FILTER");
    let lines: Vec<String> = trace.lines().filter(installs).map(str::to_owned).collect();
    Ok((lines, trace.lines().filter(|line| line.contains("bpf(BPF_PROG_QUERY")).count()))
}

/// The right to ask for programs on a link is that of a gate that may bring a device home, and of no other thread.
#[test]
fn only_a_device_gives_the_gate_a_question_to_bpf() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh("mount -t tmpfs trace /mnt; ip link add dev1 type veth peer name wire1")?;
    // `k` of a comparison with the call's number.
    let asks = |filters: &[String]| {
        let number = format!("{:#x}", nix::libc::SYS_bpf);
        filters.iter().filter(|filter| filter.contains(&format!("BPF_JEQ, {number},"))).count()
    };
    let bridge = json!({"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "cni0",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}]]}});
    let device = json!({"cniVersion": "1.1.0", "name": "net", "type": "host-device", "device": "dev1"});
    for (plugin, config, given) in [("bridge", &bridge, 0), ("host-device", &device, 1)] {
        for verb in ["ADD", "DEL"] {
            let (filters, questions) = filters(plugin, verb, &node, config)?;
            // The gate and a sandbox.
            ensure!(filters.len() >= 2, "{plugin} {verb}: {filters:?}");
            ensure!(asks(&filters) == given, "{plugin} {verb}: {} of {filters:?}", asks(&filters));
            ensure!((questions > 0) == (given > 0), "{plugin} {verb}: {questions} questions");
        }
    }
    Ok(())
}

/// Settings of links that come and go are reached by directories that were opened in the container's namespace. Others take a
/// thread there: `all`, `default`, `lo`, and settings of the whole namespace.
#[test]
fn only_settings_of_links_that_come_and_go_need_no_thread() -> Result<()> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh("mount -t tmpfs trace /mnt")?;
    // Both namespaces have a link of this name, so that one test sees which of them was changed.
    for place in [String::new(), format!("nsenter --net={} ", node.netns("c1"))] {
        node.sh(&format!("{place}ip link add eth0 type veth peer name eth1"))?;
    }
    for (key, path, value, threads) in [
        ("net.ipv4.conf.eth0.arp_filter", "ipv4/conf/eth0/arp_filter", "1", 0),
        // Every namespace has this name: a look-up from outside leaves a name in the kernel.
        ("net.ipv4.conf.lo.arp_filter", "ipv4/conf/lo/arp_filter", "1", 1),
        ("net.core.somaxconn", "core/somaxconn", "501", 1),
    ] {
        let read =
            |place: &str| node.sh(&format!("{place} cat /proc/sys/net/{path}")).map(|text| text.trim().to_owned());
        let before = read("")?;
        let config = json!({"cniVersion": "1.1.0", "name": "net", "type": "tuning", "sysctl": {key: value},
            "prevResult": {"cniVersion": "1.1.0", "ips": []}});
        let (filters, _) = filters("tuning", "ADD", &node, &config)?;
        // The gate, a sandbox, and the thread.
        ensure!(filters.len() == 2 + threads, "{key}: {filters:?}");
        let inside = read(&format!("nsenter --net={}", node.netns("c1")))?;
        ensure!(inside == value && read("")? == before && before != value, "{key}: {inside}, {before}");
    }
    Ok(())
}
