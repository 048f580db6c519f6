//! Whole lists: one plugin of a list has one fault, in its ADD or its DEL. The runtime then stops, and calls DEL for
//! the list. Nothing may be left.

use crate::faults::fault::{Fault, KINDS, TRACE, of_run, tracing, unlisted};
use crate::faults::{ENOUGH, is_chosen, seed, threads};
use anyhow::{Context, Result, anyhow, ensure};
use postern_tests::proof::{PRIVATE_ETC, Refusal, picture, same_picture};
use postern_tests::{Answer, Call, Node, merge, plugin_bin, shipped};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::sync::Mutex;
use std::time::Instant;

/// The number of faults that `make test` tries, of one kind in one plugin and verb.
const SAMPLE: usize = 2;

/// One list.
#[derive(Clone, Debug)]
struct Chain {
    name: &'static str,
    plugins: Vec<(&'static str, Value)>,
}

/// Lists as Kubernetes (with nftables) and Podman (with iptables) write them, and a pod network of flannel.
fn chains() -> Vec<Chain> {
    let bridge = |patch: Value| {
        let mut config = json!({
            "bridge": "br9", "isGateway": true, "ipMasq": true, "hairpinMode": true,
            "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": "10.9.0.0/24"}]]},
        });
        merge(&mut config, &patch);
        ("bridge", config)
    };
    let ports = |backend: &str| {
        let mapping = |host: u16, container: u16, protocol| json!({"hostPort": host, "containerPort": container, "protocol": protocol});
        let mappings = json!([mapping(8080, 80, "tcp"), mapping(8081, 81, "tcp"), mapping(8053, 53, "udp")]);
        ("portmap", json!({"backend": backend, "runtimeConfig": {"portMappings": mappings}}))
    };
    let rates =
        json!({"ingressRate": 8_000_000, "ingressBurst": 80_000, "egressRate": 8_000_000, "egressBurst": 80_000});
    let firewall = || ("firewall", json!({"backend": "iptables", "ingressPolicy": "same-bridge"}));
    let tuning =
        || ("tuning", json!({"mac": "02:00:00:00:00:aa", "mtu": 1400, "sysctl": {"net.core.somaxconn": "500"}}));
    let limits = || ("bandwidth", json!({"runtimeConfig": {"bandwidth": rates}}));
    let flannel = json!({
        "delegate": {"bridge": "br9", "hairpinMode": true, "ipMasqBackend": "nftables"},
        "ipam": {"routes": [{"dst": "0.0.0.0/0"}]},
    });
    let nftables = || bridge(json!({"ipMasqBackend": "nftables", "macspoofchk": true}));
    vec![
        Chain { name: "kubernetes", plugins: vec![nftables(), ports("nftables"), limits(), firewall(), tuning()] },
        Chain {
            name: "podman",
            plugins: vec![
                bridge(json!({"ipMasqBackend": "iptables"})),
                ports("iptables"),
                firewall(),
                ("tuning", json!({})),
            ],
        },
        Chain { name: "flannel", plugins: vec![("flannel", flannel), ports("nftables"), limits()] },
    ]
}

/// A node for one list.
struct Place {
    node: Node,
    chain: Chain,
    /// The picture of the node without the attachment.
    before: Value,
}

impl Place {
    fn new(chain: &Chain) -> Result<Self> {
        let node = Node::new()?;
        node.add_container("c1")?;
        node.sh(PRIVATE_ETC)?;
        node.sh(
            "mkdir -p /run/flannel
             printf 'FLANNEL_NETWORK=10.9.0.0/16\\nFLANNEL_SUBNET=10.9.0.1/24\\nFLANNEL_MTU=1450\\nFLANNEL_IPMASQ=false\\n' > /run/flannel/subnet.env",
        )?;
        let mut place = Self { node, chain: chain.clone(), before: Value::Null };
        place.policy(None)?;
        // The objects that attachments share exist from here on.
        let result = place.add(place.chain.plugins.len())?;
        place.del(&result).context("DEL without a fault")?;
        place.before = place.picture()?;
        Ok(place)
    }

    fn picture(&self) -> Result<Value> {
        picture(&self.node, &["c1"])
    }

    /// Writes the operators' policies, with the number of operations in `fault`.
    fn policy(&self, fault: Option<&Fault>) -> Result<()> {
        for plugin in shipped()? {
            let text = match fault {
                Some(Fault::Operations { plugin: whose, allowed }) if *whose == plugin => {
                    format!("[limits]\nseconds = 10\noperations = {allowed}\n")
                }
                _ => "[limits]\nseconds = 10\n".to_owned(),
            };
            fs::write(self.node.path(format!("/etc/postern/policy/{plugin}.toml")), text)?;
        }
        Ok(())
    }

    fn call(&self, at: usize, verb: &str, previous: &Value, wrapper: &[String]) -> Result<Answer> {
        let (plugin, config) = self.chain.plugins.get(at).context("a plugin")?;
        let mut config = config.clone();
        merge(&mut config, &json!({"cniVersion": "1.0.0", "name": "net", "type": plugin, "prevResult": previous}));
        let call = Call::new(&plugin_bin()?, plugin, verb, config.to_string());
        self.node.call_under(wrapper, &call.attachment("c1", &self.node.netns("c1"), "eth0"))
    }

    /// Calls ADD of the list's first plugins.
    fn add(&self, count: usize) -> Result<Value> {
        (0..count).try_fold(Value::Null, |previous, at| {
            self.call(at, "ADD", &previous, &[])?.success().with_context(|| format!("ADD of plugin {at}"))
        })
    }

    /// Calls DEL of the whole list. After a failed ADD a runtime has no result to pass on.
    fn del(&self, result: &Value) -> Result<()> {
        (0..self.chain.plugins.len()).rev().try_for_each(|at| {
            self.call(at, "DEL", result, &[])?.success().with_context(|| format!("DEL of plugin {at}")).map(drop)
        })
    }

    /// Returns all faults that a plugin of the list can have in a verb, by kind.
    fn faults(&self, at: usize, verb: &str, all: bool) -> Result<[Vec<Fault>; 3]> {
        let log = self.node.path("/var/log/postern/audit.jsonl");
        let traced = |previous: &Value| {
            fs::write(&log, "")?;
            self.call(at, verb, previous, &tracing())?.success()
        };
        let result = if verb == "ADD" {
            traced(&self.add(at)?)?
        } else {
            let result = self.add(self.chain.plugins.len())?;
            for behind in (at + 1..self.chain.plugins.len()).rev() {
                self.call(behind, "DEL", &result, &[])?.success()?;
            }
            traced(&result)?;
            result
        };
        let mut operations = BTreeMap::new();
        for line in fs::read_to_string(&log)?.lines() {
            let line: Value = serde_json::from_str(line)?;
            let plugin = line.get("plugin").and_then(Value::as_str).unwrap_or_default();
            if plugin != "postern" {
                *operations.entry(plugin.to_owned()).or_default() += 1;
            }
        }
        let trace = fs::read_to_string(self.node.path(TRACE))?;
        let unlisted = unlisted(&trace);
        ensure!(unlisted.is_empty(), "the lists of `fault.rs` lack system calls: {unlisted:?}");
        self.del(&result)?;
        same_picture(&self.before, &self.picture()?).context("after a list without a fault")?;
        Ok(of_run(&trace, &operations, all))
    }

    /// Makes one run of the list with a fault in one plugin. Returns true if that plugin's run failed or was killed.
    fn run(&self, at: usize, verb: &str, fault: &Fault) -> Result<bool> {
        let count = self.chain.plugins.len();
        let wrapper = fault.wrapper();
        let with_fault = |verb: &str, previous: &Value| {
            self.policy(Some(fault))?;
            let answer = self.call(at, verb, previous, &wrapper);
            self.policy(None)?;
            answer
        };
        let (answer, known) = if verb == "ADD" {
            let answer = with_fault("ADD", &self.add(at)?)?;
            let mut known = Value::Null;
            if answer.status == 0 {
                known = (at + 1..count).try_fold(answer.success()?, |previous, next| {
                    self.call(next, "ADD", &previous, &[])?.success().with_context(|| format!("ADD of plugin {next}"))
                })?;
            }
            (answer, known)
        } else {
            let known = self.add(count)?;
            for behind in (at + 1..count).rev() {
                self.call(behind, "DEL", &known, &[])?.success()?;
            }
            (with_fault("DEL", &known)?, known)
        };
        let said = answer.stdout.clone() + &answer.stderr;
        ensure!(!said.to_lowercase().contains("panicked") && !said.contains("this is a bug"), "{answer:?}");
        match (answer.status, fault) {
            (0, _) => {}
            (1, _) => drop(Refusal::of(&answer)?),
            (_, Fault::Kill { .. }) => {}
            _ => anyhow::bail!("neither success nor an error object: {answer:?}"),
        }
        self.del(&known)?;
        same_picture(&self.before, &self.picture()?).with_context(|| said.trim().to_owned())?;
        Ok(answer.status != 0)
    }
}

/// The numbers of faults of one kind: possible faults, tried faults, and faults that ended the plugin's run.
#[derive(Clone, Copy, Default)]
struct Figures([usize; 3]);

type Report = (BTreeMap<(&'static str, usize), Figures>, Vec<String>);

#[test]
fn whole_lists_end_with_their_del() -> Result<()> {
    let start = Instant::now();
    let wanted = std::env::var("POSTERN_FAULTS").unwrap_or_default();
    let all = wanted == "all";
    let sample = if wanted.is_empty() { SAMPLE } else { wanted.parse().unwrap_or(usize::MAX) };
    let only = std::env::var("POSTERN_FAULTS_ONLY").unwrap_or_default();
    let mut work: Vec<(Chain, usize, &'static str)> = chains()
        .into_iter()
        .flat_map(|chain| {
            let places = (0..chain.plugins.len()).flat_map(|at| [(at, "ADD"), (at, "DEL")]).collect::<Vec<_>>();
            places.into_iter().map(move |(at, verb)| (chain.clone(), at, verb))
        })
        .filter(|(chain, _, verb)| is_chosen(&only, chain.name, verb))
        .collect();
    work.reverse();
    let (work, report) = (Mutex::new(work), Mutex::new(Report::default()));
    std::thread::scope(|scope| {
        let search = || -> Result<()> {
            while let Some((chain, at, verb)) = work.lock().ok().and_then(|mut work| work.pop()) {
                search(&chain, at, verb, (sample, all), &report)?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..threads()).map(|_| scope.spawn(search)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })?;
    let (figures, failures) = report.into_inner().map_err(|_| anyhow!("a thread panicked"))?;
    let mut text = format!("{:<12} {:<20} {:>8} {:>6} {:>6}\n", "list", "fault", "n max", "tried", "ended");
    for ((name, kind), Figures([possible, tried, ended])) in &figures {
        let kind = KINDS.get(*kind).copied().unwrap_or_default();
        let _ = writeln!(text, "{name:<12} {kind:<20} {possible:>8} {tried:>6} {ended:>6}");
    }
    println!("{text}{} s", start.elapsed().as_secs());
    ensure!(failures.is_empty(), "{} faults left something:\n{}", failures.len(), failures.join("\n\n"));
    let ended = |of: usize| {
        figures.iter().filter(|((_, kind), _)| *kind == of).map(|(_, Figures([.., ended]))| ended).sum::<usize>()
    };
    ensure!(!only.is_empty() || (0..3).all(|kind| ended(kind) > 0), "no run was ended by one kind of fault");
    Ok(())
}

/// Tries the faults of one plugin of a list in one verb.
fn search(
    chain: &Chain,
    at: usize,
    verb: &'static str,
    (sample, all): (usize, bool),
    report: &Mutex<Report>,
) -> Result<()> {
    let named = |error: anyhow::Error| error.context(format!("{}, {verb} of plugin {at}", chain.name));
    let mut place = Place::new(chain).map_err(named)?;
    let faults = place.faults(at, verb, all).map_err(named)?;
    for (kind, faults) in faults.iter().enumerate() {
        let mut found = [faults.len(), 0, 0];
        let stride = faults.len().div_ceil(sample).max(1);
        // The sample is spread over all calls: late faults leave more objects behind.
        for fault in faults.iter().skip((at * 7 + stride / 2 + seed()) % stride).step_by(stride) {
            found[1] += 1;
            match place.run(at, verb, fault) {
                Ok(ended) => found[2] += usize::from(ended),
                Err(error) => {
                    let mut report = report.lock().map_err(|_| anyhow!("a thread panicked"))?;
                    report.1.push(format!("{}, {verb} of plugin {at}: {fault}: {error:#}", chain.name));
                    if report.1.len() >= ENOUGH {
                        return Ok(());
                    }
                    drop(report);
                    place = Place::new(chain).map_err(named)?;
                }
            }
        }
        let mut report = report.lock().map_err(|_| anyhow!("a thread panicked"))?;
        let Figures(sum) = report.0.entry((chain.name, kind)).or_default();
        sum.iter_mut().zip(found).for_each(|(sum, more)| *sum += more);
    }
    Ok(())
}
