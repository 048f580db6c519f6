//! `postern net` with the plugins of a list in one process, beside a process for each (`--separate`): answers, messages,
//! files, log and the node have to be the same. Kills of either process leave nothing that a DEL does not remove.

mod common;

use anyhow::{Context, Result, bail, ensure};
use common::{PRIVATE_ETC, each, picture, same_picture, test_bin};
use postern_tests::{Node, Random, merge, native_bin, plugin_bin};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Both ways to run a list.
const WAYS: [&str; 2] = ["", "--separate"];

/// The variables that `postern net` gets, but for the directories of plugins.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A list with the steps that are taken with it.
struct Case {
    name: &'static str,
    version: &'static str,
    plugins: Vec<Value>,
    /// Operators' policies.
    policies: Vec<(&'static str, &'static str)>,
    /// `CAP_ARGS`.
    arguments: Value,
    /// Verbs, or scripts that are run in between. `gc:NAME` is GC with that valid attachment.
    steps: Vec<String>,
    /// The number of programs that are started for the first step in each way; 0 if it does not matter.
    programs: [usize; 2],
}

/// Verbs and a second DEL, as runtimes call them.
const ALL: &[&str] = &["add", "check", "del", "del"];

fn bridge(patch: Value) -> Value {
    let mut config = json!({
        "type": "bridge", "bridge": "br9", "isGateway": true, "ipMasq": true, "hairpinMode": true, "ipMasqBackend": "nftables",
        "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": "10.9.0.0/24"}]]},
    });
    merge(&mut config, &patch);
    config
}

/// The list that Kubernetes' nodes have, and more behind it.
fn kubernetes() -> Vec<Value> {
    vec![
        bridge(json!({})),
        json!({"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}}),
        json!({"type": "bandwidth", "capabilities": {"bandwidth": true}}),
        json!({"type": "firewall", "backend": "iptables", "ingressPolicy": "same-bridge"}),
        json!({"type": "tuning", "mtu": 1400, "sysctl": {"net.core.somaxconn": "500"}}),
    ]
}

fn capabilities() -> Value {
    json!({
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
        "bandwidth": {"ingressRate": 8_000_000, "ingressBurst": 80_000, "egressRate": 8_000_000, "egressBurst": 80_000},
    })
}

fn cases() -> Result<Vec<Case>> {
    let case = |name, plugins, steps: &[&str], programs| Case {
        name,
        version: "1.0.0",
        plugins,
        policies: Vec::new(),
        arguments: capabilities(),
        steps: steps.iter().map(|step| (*step).to_owned()).collect(),
        programs,
    };
    let swap = |at: usize, with: Value| {
        let mut plugins = kubernetes();
        if let Some(slot) = plugins.get_mut(at) {
            *slot = with;
        }
        plugins
    };
    let tuning = |more: Value| {
        let mut config = json!({"type": "tuning"});
        merge(&mut config, &more);
        config
    };
    let refusing = |plugin, text, programs| Case {
        policies: vec![(plugin, text)],
        ..case("a plugin that policy refuses", kubernetes(), &["add", "del"], programs)
    };
    let bin = native_bin()?;
    let native = |name: &str| format!("ln -sf {} /run/bin/native-{name}", bin.join(name).display());
    Ok(vec![
        case("kubernetes", kubernetes(), ALL, [1, 6]),
        Case { version: "1.1.0", ..case("collection", kubernetes(), &["add", "status", "gc", "check", "del"], [1, 6]) },
        Case {
            version: "0.3.1",
            // The native firewall does not know that version, nor does ours.
            ..case("an old version", swap(3, tuning(json!({}))), &["add", "check", "del"], [1, 6])
        },
        case(
            "iptables",
            vec![
                bridge(json!({"ipMasqBackend": "iptables"})),
                json!({"type": "portmap", "backend": "iptables", "capabilities": {"portMappings": true}}),
                json!({"type": "firewall", "backend": "iptables"}),
                tuning(json!({})),
            ],
            ALL,
            [1, 5],
        ),
        case(
            "a plugin twice",
            vec![
                bridge(json!({})),
                tuning(json!({"mtu": 1400})),
                tuning(json!({"sysctl": {"net.core.somaxconn": "99"}})),
            ],
            ALL,
            [1, 4],
        ),
        case(
            "a native one between",
            swap(2, json!({"type": "native-tuning", "mtu": 1300, "dataDir": "/run/native"})),
            &[&native("tuning"), "add", "check", "del", "del"],
            [2, 6],
        ),
        case(
            "a native main plugin",
            vec![
                {
                    let mut config = bridge(json!({"type": "native-bridge", "ipMasq": false}));
                    merge(&mut config, &json!({"ipMasqBackend": null}));
                    config
                },
                tuning(json!({"sysctl": {"net.core.somaxconn": "99"}})),
            ],
            &[&native("bridge"), "add", "check", "del", "del"],
            [3, 4],
        ),
        case(
            "a name that is taken",
            kubernetes(),
            &["ip -n c1 link add eth0 type veth peer name x", "add", "del"],
            [1, 7],
        ),
        case("a container that is gone", kubernetes(), &["add", "ip netns del c1", "check", "del", "del"], [1, 6]),
        case("no container", kubernetes(), &["ip netns del c1", "add", "del"], [2, 7]),
        Case {
            version: "1.1.0",
            ..case(
                "a collection whose DEL fails",
                kubernetes(),
                &["add", "mv /run/bin/firewall /run/bin/away", "gc", "mv /run/bin/away /run/bin/firewall", "del"],
                [1, 6],
            )
        },
        Case { version: "1.1.0", ..case("STATUS", kubernetes(), &["status", "add", "status", "del"], [1, 6]) },
        Case { version: "1.1.0", ..case("nothing to collect", kubernetes(), &["gc", "gc:other/eth0"], [1, 6]) },
        // Without the cache no DEL is called: GC itself removes the attachment, and enters its container for that.
        Case {
            version: "1.1.0",
            ..case(
                "a collection by the record",
                kubernetes(),
                &["add", "rm -r /var/lib/cni/results", "gc:other/eth0", "status", "gc:other/eth0", "del"],
                [1, 6],
            )
        },
        // Each plugin of the list tries it, and fails.
        Case {
            version: "1.1.0",
            ..case(
                "a collection that can't look into the container",
                kubernetes(),
                &[
                    "add",
                    "rm -r /var/lib/cni/results",
                    "touch /run/away; mount --bind /run/netns/c1 /run/away; umount /run/netns/c1; rm /run/netns/c1",
                    "ln -s c1 /run/netns/c1",
                    "gc:other/eth0",
                    "rm /run/netns/c1; touch /run/netns/c1; mount --bind /run/away /run/netns/c1; umount /run/away",
                    "gc:other/eth0",
                    "del",
                ],
                [1, 6],
            )
        },
        Case {
            version: "1.1.0",
            ..case(
                "STATUS where the node lacks what a plugin needs",
                swap(3, json!({"type": "firewall", "backend": "firewalld"})),
                &["status", "gc"],
                [1, 6],
            )
        },
        Case {
            version: "1.1.0",
            policies: vec![("bandwidth", "this is no policy\n")],
            ..case("STATUS and GC of a plugin that can't be run", kubernetes(), &["status", "gc:other/eth0"], [2, 4])
        },
        Case {
            version: "1.1.0",
            ..case(
                "STATUS and GC with a native one between",
                swap(2, json!({"type": "native-tuning", "mtu": 1300, "dataDir": "/run/native"})),
                &[&native("tuning"), "status", "add", "gc:other/eth0", "status", "gc", "del"],
                [2, 6],
            )
        },
        // The guest has the words for it, where the host alone would do the work.
        Case {
            version: "1.1.0",
            ..case(
                "GC of a configuration that can't be read",
                swap(1, json!({"type": "portmap", "dns": 7})),
                &["gc", "status"],
                [1, 6],
            )
        },
        case("a plugin that is not there", swap(3, json!({"type": "absent"})), &["add", "del"], [1, 5]),
        case("a configuration that one refuses", swap(4, tuning(json!({"mtu": "no"}))), &["add", "del"], [1, 0]),
        case(
            "a record that was damaged",
            kubernetes(),
            &["add", "for f in /run/postern/attachments/*; do echo '{' >> $f; done", "check", "del", "del"],
            [1, 6],
        ),
        case(
            "a record that is lost",
            kubernetes(),
            &["add", "rm /run/postern/attachments/*", "check", "del", "del"],
            [1, 6],
        ),
        refusing("portmap", "withdraw = [\"port-mappings\"]\n", [1, 0]),
        refusing("bandwidth", "this is no policy\n", [3, 0]),
        Case {
            policies: vec![("firewall", "[limits]\noperations = 1\n")],
            ..case("a plugin that asks too often", kubernetes(), &["add", "del"], [1, 0])
        },
    ])
}

/// Makes a node with a container, a network, policies and plugins in `/run/bin`.
fn node(case: &Case) -> Result<Node> {
    let node = Node::new()?;
    node.add_container("c1")?;
    node.sh(PRIVATE_ETC)?;
    node.sh(&format!("mkdir -p /run/net.d /run/bin; ln -s {}/* /run/bin/", plugin_bin()?.display()))?;
    for (plugin, text) in &case.policies {
        fs::write(node.path(format!("/etc/postern/policy/{plugin}.toml")), text)?;
    }
    let list = json!({"cniVersion": case.version, "name": "n", "plugins": case.plugins});
    fs::write(node.path("/run/net.d/n.conflist"), list.to_string())?;
    Ok(node)
}

/// What a step showed.
#[derive(Debug, PartialEq)]
struct Step {
    step: String,
    status: Option<i32>,
    stdout: String,
    stderr: String,
    log: Vec<Value>,
    records: Vec<Value>,
    cache: Vec<String>,
}

/// Names what is chosen at random by the order in which it appears.
#[derive(Default)]
struct Named(BTreeMap<String, usize>);

impl Named {
    fn plain(&mut self, text: &str) -> String {
        let mut plain = String::new();
        let mut word = String::new();
        for c in text.chars().chain(['\n']) {
            if c.is_ascii_alphanumeric() || c == ':' {
                word.push(c);
                continue;
            }
            plain.push_str(&self.word(&word));
            word.clear();
            plain.push(c);
        }
        plain
    }

    fn word(&mut self, word: &str) -> String {
        let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_link = word.strip_prefix("veth").is_some_and(|rest| rest.len() == 8 && hex(rest));
        let is_mac = word.len() == 17
            && word.split(':').count() == 6
            && word.split(':').all(|part| part.len() == 2 && hex(part));
        // The bridge's own link-local address, and names that are made of it.
        let is_hash = word.len() >= 12 && hex(word) && word.bytes().any(|byte| byte.is_ascii_digit());
        if is_link || is_mac || is_hash {
            let next = self.0.len();
            return format!("random{}", self.0.entry(word.to_owned()).or_insert(next));
        }
        word.to_owned()
    }

    /// Leaves out what differs in any two runs: times, and the kernel's numbers.
    fn value(&mut self, value: &Value) -> Value {
        const NUMBERS: [&str; 10] = [
            "time",
            "micros",
            "boot_id",
            "host_netns_cookie",
            "netns_cookie",
            "created",
            "given",
            "handles",
            "tables",
            "of",
        ];
        match value {
            Value::Object(map) => {
                let kept = map.iter().filter(|(key, _)| !NUMBERS.contains(&key.as_str()) && *key != "writer");
                kept.map(|(key, value)| (key.clone(), self.value(value))).collect()
            }
            Value::Array(list) => list.iter().map(|value| self.value(value)).collect(),
            Value::String(text) => self.plain(text.as_str()).trim_end().into(),
            other => other.clone(),
        }
    }

    fn lines(&mut self, text: &str) -> Vec<Value> {
        text.lines()
            .map(|line| serde_json::from_str(line).map_or_else(|_| line.into(), |line| self.value(&line)))
            .collect()
    }
}

fn postern() -> Result<String> {
    Ok(plugin_bin()?.join("postern").display().to_string())
}

/// The environment and the arguments of `postern net`.
fn net(command: &mut Command, arguments: &Value, way: &str, verb: &str, bin: &str) {
    let (verb, valid) = verb.split_once(':').map_or((verb, None), |(verb, valid)| (verb, Some(valid)));
    command.env_clear().envs([("PATH", PATH), ("CNI_PATH", bin), ("NETCONFPATH", "/run/net.d")]);
    command.env("CAP_ARGS", arguments.to_string()).env("CNI_IFNAME", "eth0");
    command.args(["net", verb, "n", "/run/netns/c1"]).args(Some(way).filter(|way| !way.is_empty()));
    command.args(valid.iter().flat_map(|valid| ["--valid", valid]));
}

/// Takes the steps of a case in one way. Returns them, and pictures of the node after each.
fn steps(case: &Case, way: &str) -> Result<(Vec<Step>, Vec<Value>)> {
    let node = node(case)?;
    let (mut steps, mut pictures) = (Vec::new(), Vec::new());
    let mut named = Named::default();
    let log = node.path("/var/log/postern/audit.jsonl");
    for step in &case.steps {
        if step.contains(' ') {
            node.sh(step)?;
            continue;
        }
        let before = fs::read_to_string(&log).unwrap_or_default().len();
        let trace = "/var/log/trace";
        let mut command = node.command("strace");
        let postern = postern()?;
        command.args(["-f", "-qq", "-o", trace, "-e", "trace=execve", "-e", "signal=none", &postern]);
        net(&mut command, &case.arguments, way, step, "/run/bin");
        let output = command.output()?;
        if steps.is_empty() {
            let trace = fs::read_to_string(node.path(trace))?;
            // Beside the runtime's side itself: what the host starts is the same in both ways.
            let is_start = |line: &&str| {
                let is_ours = ["/run/bin/", &postern].iter().any(|path| line.contains(&format!("execve(\"{path}")));
                is_ours && !line.contains("= -1")
            };
            let started = trace.lines().filter(is_start).count();
            let [together, separate] = case.programs;
            let expected = if way.is_empty() { together } else { separate };
            ensure!(
                expected == 0 || started == expected,
                "{}, {step} {way}: {started} programs instead of {expected}:\n{trace}",
                case.name
            );
        }
        let text = fs::read_to_string(&log).unwrap_or_default();
        let records = node.sh("cat /run/postern/attachments/* 2>/dev/null || true")?;
        let cache =
            node.sh("cd /var/lib/cni/results 2>/dev/null && for f in *; do echo $f; cat $f; echo; done || true")?;
        steps.push(Step {
            step: step.clone(),
            status: output.status.code(),
            stdout: named.plain(&String::from_utf8_lossy(&output.stdout)),
            stderr: named.plain(&String::from_utf8_lossy(&output.stderr)),
            log: named.lines(text.get(before..).unwrap_or_default()),
            records: named.lines(&records),
            cache: cache.lines().map(|line| named.plain(line)).collect(),
        });
        if node.sh("ip netns exec c1 echo here 2>&1 || true")?.ends_with("here\n") {
            let mut picture = picture(&node, &["c1"])?;
            // The names of records are made of the node's number.
            if let Some(map) = picture.as_object_mut() {
                map.remove("records");
            }
            pictures.push(picture);
        }
    }
    Ok((steps, pictures))
}

#[test]
fn both_ways_are_the_same() -> Result<()> {
    let cases = cases()?;
    println!("{} lists", cases.len());
    each(
        &cases,
        |case| format!("{} {:?}", case.name, case.policies),
        |case| {
            let [together, separate] = WAYS.map(|way| steps(case, way).with_context(|| format!("{} {way}", case.name)));
            let ((together, ours), (separate, theirs)) = (together?, separate?);
            for (one, other) in together.iter().zip(&separate) {
                ensure!(one == other, "{}:\ntogether {one:#?}\nseparate {other:#?}", case.name);
            }
            for (one, other) in ours.iter().zip(&theirs) {
                same_picture(other, one).with_context(|| case.name)?;
            }
            ensure!(together.iter().any(|step| step.step != "check"), "{}: nothing was done", case.name);
            Ok(())
        },
    )
}

/// The processes below one, itself included.
fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(next) = all.get(at).copied() {
        let tasks = fs::read_dir(format!("/proc/{next}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        at += 1;
    }
    all
}

fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn start(node: &Node, verb: &str, bin: &str) -> Result<Child> {
    let mut command = node.command(postern()?);
    net(&mut command, &capabilities(), "", verb, bin);
    Ok(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?)
}

/// Kills the runtime's side or the process of the list, at any moment of a verb.
#[test]
fn kills_leave_nothing() -> Result<()> {
    let wanted = std::env::var("POSTERN_KILLS").ok().and_then(|wanted| wanted.parse().ok()).unwrap_or(60);
    let seed = std::env::var("POSTERN_KILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let case = Case {
        name: "kills",
        version: "1.1.0",
        plugins: kubernetes(),
        policies: Vec::new(),
        arguments: capabilities(),
        steps: Vec::new(),
        programs: [0, 0],
    };
    let node = node(&case)?;
    let call = |verb: &str| -> Result<Duration> {
        let began = Instant::now();
        let output = start(&node, verb, "/run/bin")?.wait_with_output()?;
        ensure!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(began.elapsed())
    };
    // What attachments share is there from now on.
    let mut usual = BTreeMap::new();
    for _ in 0..2 {
        for verb in ["add", "check", "status", "del", "gc:other/eth0"] {
            usual.insert(verb, call(verb)?);
        }
    }
    let before = picture(&node, &["c1"])?;
    let mut random = Random::new(seed);
    let mut killed: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for round in 0..wanted {
        let verb = random.one_of(&["add", "add", "del", "check", "status", "gc:other/eth0", "gc:other/eth0"]);
        if verb != "add" {
            call("add")?;
        }
        if verb.starts_with("gc") {
            // Without it GC calls DEL first. Now it has to remove the attachment itself.
            node.sh("rm -f /var/lib/cni/results/*")?;
        }
        let mut child = start(&node, verb, "/run/bin")?;
        let most = usual.get(verb).copied().unwrap_or_default().as_micros();
        std::thread::sleep(Duration::from_micros(random.below(u64::try_from(most)?.max(1))));
        let processes = family(child.id());
        let prefix = format!("{} ", verb.split(':').next().unwrap_or_default().to_uppercase());
        // Sandboxes have the name of the gate, and come later.
        let gate = processes.iter().copied().find(|pid| name(*pid).starts_with(&prefix));
        let runner = processes.iter().copied().find(|pid| name(*pid) == "postern");
        let (whom, pid) = match random.below(2) {
            0 => ("runtime's side", runner),
            _ => ("list's process", gate),
        };
        if let Some(pid) = pid {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
            *killed.entry((whom, verb)).or_default() += 1;
        }
        let _ = child.wait()?;
        let mut said = String::new();
        child.stderr.take().context("no standard error")?.read_to_string(&mut said)?;
        ensure!(!said.contains("this is a bug"), "{said}");
        let deadline = Instant::now() + Duration::from_secs(20);
        while processes.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists()) {
            ensure!(Instant::now() < deadline, "round {round}: processes are left: {processes:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
        call("del").with_context(|| format!("round {round}: DEL after a kill of the {whom} in {verb}"))?;
        same_picture(&before, &picture(&node, &["c1"])?)
            .with_context(|| format!("round {round}, seed {seed}: {whom} killed in {verb}: {said}"))?;
    }
    println!("{killed:?}");
    for whom in ["runtime's side", "list's process"] {
        ensure!(killed.keys().any(|(who, _)| *who == whom), "the {whom} was never killed");
    }
    Ok(())
}

/// The n-th system call of a name fails, or ends its process: in the runtime's side, the process of the list and its
/// sandboxes. A DEL puts everything back.
#[test]
fn faults_leave_nothing() -> Result<()> {
    const CALLS: [(&str, &str); 15] = [
        ("sendto", "ENOBUFS"),
        ("recvfrom", "ENOBUFS"),
        ("sendmsg", "ENOBUFS"),
        ("write", "ENOSPC"),
        ("read", "EINTR"),
        ("openat", "EMFILE"),
        ("openat2", "EIO"),
        ("flock", "ENOLCK"),
        ("linkat", "ENOSPC"),
        ("unlinkat", "EIO"),
        ("socket", "EMFILE"),
        ("clone", "EAGAIN"),
        ("fork", "EAGAIN"),
        ("poll", "EINTR"),
        ("landlock_restrict_self", "EPERM"),
    ];
    let wanted = std::env::var("POSTERN_FAULTS").ok().and_then(|wanted| wanted.parse().ok()).unwrap_or(4);
    let case = Case {
        name: "faults",
        version: "1.0.0",
        plugins: kubernetes(),
        policies: Vec::new(),
        arguments: capabilities(),
        steps: Vec::new(),
        programs: [0, 0],
    };
    let node = node(&case)?;
    let call = |wrapper: &[&str], verb: &str| -> Result<(bool, String)> {
        let mut command = match wrapper.split_first() {
            None => node.command(postern()?),
            Some((program, arguments)) => {
                let mut command = node.command(program);
                command.args(arguments).arg(postern()?);
                command
            }
        };
        net(&mut command, &capabilities(), "", verb, "/run/bin");
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!said.contains("this is a bug"), "{verb}: {said}");
        Ok((output.status.success(), said))
    };
    let whole = |verb: &str| -> Result<()> {
        let (done, said) = call(&[], verb)?;
        ensure!(done, "{verb}: {said}");
        Ok(())
    };
    ["add", "check", "del"].into_iter().try_for_each(whole)?;
    let before = picture(&node, &["c1"])?;
    let mut random = Random::new(11);
    let (mut tried, mut ended) = (0, 0);
    for verb in ["add", "del"] {
        for (name, errno) in CALLS {
            for fault in [format!("error={errno}"), "signal=KILL".to_owned()] {
                for _ in 0..wanted {
                    if verb == "del" {
                        whole("add")?;
                    }
                    let inject = format!("inject={name}:{fault}:when={}", 1 + random.below(40));
                    let options = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "signal=none", "-e", &inject];
                    let (done, said) = call(&options, verb)?;
                    (tried, ended) = (tried + 1, ended + usize::from(!done));
                    whole("del").with_context(|| format!("{verb}, {inject}: {said}"))?;
                    same_picture(&before, &picture(&node, &["c1"])?)
                        .with_context(|| format!("{verb}, {inject}: {said}"))?;
                }
            }
        }
    }
    println!("{tried} faults, {ended} of them ended a list");
    ensure!(ended > tried / 10, "{ended} of {tried} faults ended anything");
    Ok(())
}

/// Each sandbox keeps its own channel and its code, and closes what belongs to the others before it loads anything.
#[test]
fn no_sandbox_has_a_descriptor_of_another() -> Result<()> {
    let case = Case {
        name: "descriptors",
        version: "1.0.0",
        plugins: kubernetes(),
        policies: Vec::new(),
        arguments: capabilities(),
        steps: Vec::new(),
        programs: [0, 0],
    };
    let node = node(&case)?;
    let trace = "/var/log/trace";
    let mut command = node.command("strace");
    let calls = "trace=close_range,prctl,mmap";
    command.args(["-f", "-qq", "-o", trace, "-e", calls, "-e", "signal=none", &postern()?]);
    net(&mut command, &capabilities(), "", "add", "/run/bin");
    let output = command.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(node.path(trace))?;
    let mut processes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in text.lines() {
        let (pid, call) = line.split_once(' ').context("a line without a process")?;
        processes.entry(pid).or_default().push(call.trim());
    }
    // Nothing else makes itself unreadable for others.
    processes.retain(|_, calls| calls.iter().any(|call| call.starts_with("prctl(PR_SET_DUMPABLE, SUID_DUMP_DISABLE")));
    // Five plugins, and host-local behind the first.
    ensure!(processes.len() == 6, "{} sandboxes: {text}", processes.len());
    for calls in processes.values() {
        let (mut next, mut kept) = (0_u64, Vec::new());
        // Its code is mapped later.
        for call in calls.iter().take_while(|call| !call.starts_with("mmap(") || call.contains("MAP_ANONYMOUS")) {
            let Some(range) = call.strip_prefix("close_range(") else { continue };
            let numbers: Vec<u64> = range.split(", ").take(2).filter_map(|number| number.parse().ok()).collect();
            let [first, last] = numbers.as_slice() else { bail!("{call}") };
            kept.extend(next..*first);
            next = last + 1;
        }
        ensure!(next > 0x7fff_fffe && kept.len() == 2, "kept: {kept:?}, from {next} on nothing was closed: {calls:#?}");
    }
    Ok(())
}

/// The files in reach of the one process are those that the processes of all plugins reach together.
#[test]
fn files_in_reach_are_those_of_all_plugins() -> Result<()> {
    let mut plugins = kubernetes();
    plugins.push(json!({"type": "tuning", "mac": "02:00:00:00:00:aa", "dataDir": "/var/lib/backups"}));
    let case = Case {
        name: "files",
        version: "1.1.0",
        plugins,
        policies: Vec::new(),
        arguments: capabilities(),
        steps: Vec::new(),
        programs: [0, 0],
    };
    let node = node(&case)?;
    let ruled = |way: &str, verb: &str| -> Result<BTreeSet<String>> {
        let mut command = node.command("strace");
        let options = ["-f", "-y", "-qq", "-o", "/var/log/trace", "-e", "trace=landlock_add_rule", "-e", "signal=none"];
        command.args(options).arg(postern()?);
        net(&mut command, &capabilities(), way, verb, "/run/bin");
        let output = command.output()?;
        ensure!(output.status.success(), "{verb} {way}: {}", String::from_utf8_lossy(&output.stderr));
        let text = fs::read_to_string(node.path("/var/log/trace"))?;
        let paths = text.lines().filter_map(|line| line.split_once("parent_fd=")?.1.split(['<', '>']).nth(1));
        // Each process has its own directory there.
        let own = |path: &str| {
            if path.starts_with("/proc/") && path.ends_with("/net") && path != "/proc/sys/net" {
                "/proc/thread-self/net".to_owned()
            } else {
                path.to_owned()
            }
        };
        Ok(paths.map(own).collect())
    };
    // What directories are made for the first time is the same, but others are made beside them.
    for verb in ["add", "del"] {
        ruled("", verb)?;
    }
    for verb in ["add", "check", "status", "gc:other/eth0", "del"] {
        let together = ruled("", verb)?;
        match verb {
            "add" => drop(ruled("", "del")?),
            "del" | "gc:other/eth0" => drop(ruled("", "add")?),
            _ => {}
        }
        let separate = ruled("--separate", verb)?;
        if verb.starts_with("gc") {
            ruled("", "add")?;
        }
        ensure!(together == separate, "{verb}: together {together:#?}\nseparate {separate:#?}");
        ensure!(verb != "add" || together.contains("/var/lib/backups"), "{together:?}");
    }
    Ok(())
}

/// A plugin that never ends is stopped in its turn, and the other plugins are not harmed.
#[test]
fn a_plugin_that_hangs_is_stopped() -> Result<()> {
    let hostile = json!({"type": "hostile", "hostile": "loop"});
    let case = Case {
        name: "hangs",
        version: "1.0.0",
        plugins: vec![bridge(json!({})), hostile],
        policies: vec![("hostile", "[limits]\nseconds = 1\n")],
        arguments: json!({}),
        steps: Vec::new(),
        programs: [0, 0],
    };
    let node = node(&case)?;
    let bin = test_bin()?.display().to_string();
    let mut words = Vec::new();
    for way in WAYS {
        let mut command = node.command(format!("{bin}/postern"));
        net(&mut command, &json!({}), way, "add", &bin);
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(said.contains("ran past its deadline and was stopped"), "{said}");
        ensure!(said.contains("what was made is removed (DEL)"), "{said}");
        words.push(said);
    }
    ensure!(words.first() == words.last(), "{words:#?}");
    let Some(left) = node
        .sh("ip -o link show type veth; cat /run/postern/attachments/* 2>/dev/null || true")?
        .lines()
        .next()
        .map(str::to_owned)
    else {
        return Ok(());
    };
    bail!("left: {left}")
}
