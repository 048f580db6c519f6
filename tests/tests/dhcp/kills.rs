//! Random kills of runs and of the service while attachments are made and removed. No address is lost or given twice,
//! and nothing is left. `POSTERN_KILL_SEED` sets the seed.

use crate::lab::wait;
use crate::plugin::{lab_with, network};
use anyhow::{Context, Result, anyhow, ensure};
use postern_tests::{Attachment, Network, Random};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const CONTAINERS: [&str; 4] = ["c1", "c2", "c3", "c4"];
/// The number of rounds. The test checks all attachments after each round.
const ROUNDS: usize = 2;
/// The number of runs of each container in a round.
const ACTS: usize = 5;
/// The number of kills of the service in a round.
const KILLS: usize = 2;

/// One container.
struct Worker {
    container: &'static str,
    random: Random,
    /// The result of the container's ADD, or null.
    result: Value,
    /// True if a run was killed or failed. The runtime then calls DEL.
    is_unknown: bool,
    killed: usize,
    added: usize,
}

impl Worker {
    /// The attachment, with the result of its ADD.
    fn attachment(&self, network: &Network) -> Attachment {
        Attachment { result: self.result.clone(), ..network.attachment(self.container) }
    }

    fn act(&mut self, network: &Network) -> Result<()> {
        let verb = match (&self.result, self.is_unknown) {
            (_, true) => "DEL",
            (Value::Null, _) => "ADD",
            _ => "DEL",
        };
        let previous = if self.result.is_null() { json!({}) } else { json!({"prevResult": self.result}) };
        let mut child = network.node.start(&network.request(0, verb, self.container, &previous)?)?;
        if self.random.chance(2) {
            std::thread::sleep(Duration::from_millis(self.random.below(1200)));
            child.kill()?;
        }
        let output = child.wait_with_output()?;
        if output.status.signal().is_some() {
            self.killed += 1;
            self.is_unknown = true;
            return Ok(());
        }
        match (verb, output.status.code()) {
            ("ADD", Some(0)) => {
                self.result = serde_json::from_slice(&output.stdout)?;
                self.added += 1;
            }
            ("DEL", Some(0)) => (self.result, self.is_unknown) = (Value::Null, false),
            // The service was killed meanwhile, so the error is about DHCP.
            (_, Some(1)) => {
                let error: Value = serde_json::from_slice(&output.stdout).context("no error object")?;
                let words = error.get("msg").and_then(Value::as_str).unwrap_or_default();
                ensure!(words.contains("DHCP"), "{verb} of {}: {error}", self.container);
                self.is_unknown = true;
            }
            (_, status) => anyhow::bail!("{verb} of {}: {status:?}: {output:?}", self.container),
        }
        Ok(())
    }
}

/// Fails if an attached container lacks its address or lease, or if two containers have the same address. Call
/// this function while the service runs and no run is active.
fn judge(network: &Network, workers: &[Worker]) -> Result<()> {
    let mut addresses = BTreeSet::new();
    for worker in workers.iter().filter(|worker| worker.result.is_object() && !worker.is_unknown) {
        worker.attachment(network).check()?;
        let shown = network.node.sh_in(worker.container, "ip -o -4 addr show dev eth0 | awk '{print $4}'")?;
        let wanted = worker.result.pointer("/ips/0/address").and_then(Value::as_str).unwrap_or_default();
        ensure!(shown.trim() == wanted, "{}: {shown} instead of {wanted}", worker.container);
        ensure!(addresses.insert(wanted.to_owned()), "{wanted} is given twice");
    }
    Ok(())
}

#[test]
fn kills_of_runs_and_service_lose_and_double_no_address() -> Result<()> {
    let seed = std::env::var("POSTERN_KILL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("POSTERN_KILL_SEED={seed}");
    let lab = lab_with(
        "--dhcp-authoritative",
        "ip netns add c2; ip netns add c3; ip netns add c4; ip link set br0 address 02:00:00:00:05:01",
    )?;
    let network = network(&lab, &json!({"type": "bridge", "bridge": "br0"}))?;
    let worker = |(number, container): (usize, &&'static str)| Worker {
        container,
        random: Random::new(seed * 100 + number as u64),
        result: Value::Null,
        is_unknown: false,
        killed: 0,
        added: 0,
    };
    let mut workers: Vec<Worker> = CONTAINERS.iter().enumerate().map(worker).collect();
    let mut random = Random::new(seed);
    for round in 0..ROUNDS {
        std::thread::scope(|scope| -> Result<()> {
            let threads: Vec<_> = workers
                .iter_mut()
                .map(|worker| scope.spawn(|| (0..ACTS).try_for_each(|_| worker.act(&network))))
                .collect();
            for _ in 0..KILLS {
                std::thread::sleep(Duration::from_millis(700 + random.below(1500)));
                lab.kill("service", "KILL")?;
                lab.serve("")?;
            }
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
        })
        .and_then(|()| judge(&network, &workers))
        .with_context(|| format!("seed {seed}, round {round}: {}", lab.log("service")))?;
    }
    // If no DEL could release a lease, the container's next attachment releases the lease.
    for worker in &mut workers {
        if worker.is_unknown || worker.result.is_object() {
            network.attachment(worker.container).del()?;
        }
        network.add(worker.container)?.del()?;
    }
    ensure!(lab.leases()?.is_empty(), "{:?}", lab.leases()?);
    let left = lab.node.sh("ls /var/lib/postern/dhcp /run/postern/attachments | grep -v : || true")?;
    ensure!(left.trim().is_empty(), "{left}");
    let served = || std::fs::read_to_string(lab.dir.join("dnsmasq.leases"));
    wait(Duration::from_secs(5), || Ok(served()?.trim().is_empty()))
        .with_context(|| format!("the server keeps {:?}: {}", served(), lab.log("dnsmasq")))?;
    let sum = |of: fn(&Worker) -> usize| workers.iter().map(of).sum::<usize>();
    let (killed, added) = (sum(|worker| worker.killed), sum(|worker| worker.added));
    println!("{killed} runs killed, {added} leases, {} kills of the service", ROUNDS * KILLS);
    ensure!(killed > 0 && added > 0, "no run was killed, or no ADD succeeded");
    Ok(())
}
