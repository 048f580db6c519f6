//! The floor: the netlink messages of an ADD and of a DEL, sent by a program that does nothing else. Their time is the
//! kernel's, on a node that is equally full.

use crate::nft::{Behind, Guard, Masquerade, Nft};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::resource::UsageWho;
use postern_kernel::{Namespace, Netlink, Sysctl, VethSpec, Worker, random_mac, sysctl};
use postern_tests::measure::{Sample, usage};
use std::process::Command;
use std::time::{Duration, Instant};

const HOST_END: &str = "floor";
const BRIDGE: &str = "scale0";
const ADDRESS: &str = "10.100.255.250/16";
const COMMENT: &str = "ffffffffffffffff-ffffffffffffffff, net: scale0, if: eth0, id: floor";

/// The parts that are measured.
#[derive(Clone)]
pub struct Features {
    pub masquerade: bool,
    pub guard: bool,
    /// A plugin and its packet filter: its rules are measured, and no pair.
    pub behind: Option<(String, String)>,
}

/// Measures a verb once, in a process of its own, as plugins are.
pub fn measure(verb: &str, features: &Features) -> Result<Sample> {
    let (plugin, backend) = features.behind.clone().unwrap_or_default();
    let flags = [features.masquerade.to_string(), features.guard.to_string(), plugin, backend];
    let output = Command::new(std::env::current_exe()?).arg("floor").arg(verb).args(&flags).output()?;
    ensure!(output.status.success(), "floor {verb}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<i64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [wall, cpu, faults] = numbers[..] else { bail!("floor {verb}: {text}") };
    Ok(Sample { wall, cpu, faults })
}

/// Runs `floor add|del MASQUERADE GUARD PLUGIN BACKEND`. It prints microseconds of wall time and of CPU time, and page faults.
pub fn run(arguments: &[String]) -> Result<()> {
    let [verb, masquerade, guard, plugin, backend] = arguments else {
        bail!("floor add|del MASQUERADE GUARD PLUGIN BACKEND")
    };
    let features = Features { masquerade: masquerade.parse()?, guard: guard.parse()?, behind: None };
    if let Some(behind) = Behind::of(plugin, backend) {
        let meter = Meter::start()?;
        let mut nft = Nft::open()?;
        match verb.as_str() {
            "add" => nft.add_behind(&behind)?,
            _ => nft.delete_behind(&behind)?,
        }
        drop(nft);
        return meter.print();
    }
    // The namespace is entered before: the cost is the same on any node.
    let worker = Worker::start(&Namespace::open("/run/netns/probe")?, || Ok(()))?;
    worker.netlink()?;
    let home = Namespace::current()?;
    let meter = Meter::start()?;
    match verb.as_str() {
        "add" => add(&worker, &home, &features)?,
        _ => delete(&features)?,
    }
    meter.print()
}

fn add(worker: &Worker, home: &Namespace, features: &Features) -> Result<()> {
    let container = worker.netlink()?;
    let host = Netlink::open()?;
    let bridge = host.link_by_name(BRIDGE)?.context("no bridge")?;
    let mac = random_mac();
    container.create_veth(&VethSpec {
        name: "floor0",
        mtu: None,
        mac: Some(mac),
        peer_name: HOST_END,
        peer_mac: random_mac(),
        peer_ns: home.fd(),
    })?;
    let own = container.link_by_name("floor0")?.context("no link")?;
    let end = host.link_by_name(HOST_END)?.context("no link")?;
    host.set_up(end.index)?;
    sysctl::set(&Sysctl::Ipv6Conf { link: HOST_END.to_owned(), key: "accept_ra" }, "0")?;
    host.attach_port(end.index, bridge.index, false, false)?;
    if features.guard {
        Nft::open()?.add_guard(&Guard { id: "floor-floor0", port: HOST_END, mac })?;
    }
    for (family, key, value) in [("ipv6", "accept_dad", "0"), ("ipv4", "arp_notify", "1")] {
        let link = "floor0".to_owned();
        let sysctl = if family == "ipv4" { Sysctl::Ipv4Conf { link, key } } else { Sysctl::Ipv6Conf { link, key } };
        worker.sysctl_set(&sysctl, value)?;
    }
    container.add_address(own.index, ADDRESS.parse()?)?;
    container.set_up(own.index)?;
    host.addresses(bridge.index)?;
    if features.masquerade {
        Nft::open()?.add_masquerade(&Masquerade { source: [10, 100, 255, 250], comment: COMMENT })?;
    }
    while !host.link_by_index(end.index)?.is_some_and(|link| link.running) {
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

fn delete(features: &Features) -> Result<()> {
    let mut nft = Nft::open()?;
    if features.masquerade {
        // The handle was returned when the rule was made.
        nft.delete_masquerade()?;
    }
    if features.guard {
        nft.delete_guard("floor-floor0")?;
    }
    let host = Netlink::open()?;
    let end = host.link_by_name(HOST_END)?.context("no link")?;
    host.delete_link(end.index)?;
    drop(nft);
    Ok(())
}

/// What this process has used since some instant.
struct Meter {
    start: Instant,
    before: Sample,
}

impl Meter {
    fn start() -> Result<Self> {
        Ok(Self { before: usage(UsageWho::RUSAGE_SELF)?, start: Instant::now() })
    }

    fn print(&self) -> Result<()> {
        let wall = self.start.elapsed().as_micros();
        let used = usage(UsageWho::RUSAGE_SELF)?.beyond(self.before);
        println!("{wall} {} {}", used.cpu, used.faults);
        Ok(())
    }
}
