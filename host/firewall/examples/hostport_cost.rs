//! The cost of forwards by nftables, in microseconds, with few and with many forwards of other containers on the node.
//!
//! `cargo run --release -p postern-firewall --example hostport_cost`: medians of 40 rounds, in a namespace of its own.

use std::time::{Duration, Instant};

use postern_firewall::hostport::{HostPorts, MarkBy, PortForward};
use postern_firewall::{AttachmentKey, FirewallError, Nft};
use postern_types::{NatSources, Transport};

const ROUNDS: usize = 40;

fn ports(container: usize, host_port: u16) -> Result<HostPorts, Box<dyn std::error::Error>> {
    let address = format!("10.{}.{}.2/16", 1 + container / 256, container % 256).parse()?;
    Ok(HostPorts {
        key: AttachmentKey { network: "n".into(), container_id: format!("c{container}"), ifname: "eth0".into() },
        address,
        forwards: vec![PortForward { protocol: Transport::Tcp, host_ip: None, host_port, container_port: 80 }],
        sources: NatSources::Own,
        mark: MarkBy::Bit(13),
        conditions: Vec::new(),
    })
}

fn median(mut all: Vec<Duration>) -> u128 {
    all.sort();
    all.get(all.len() / 2).map_or(0, Duration::as_micros)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::var_os("POSTERN_PRIVATE").is_none() {
        return Err("this program changes firewall rules: run it by cargo, whose runner makes a namespace".into());
    }
    let mut nft = Nft::open(Instant::now() + Duration::from_secs(300))?;
    let mut there = 0;
    println!("containers  ensure  check  remove");
    for wanted in [10, 1000, 5000] {
        while there < wanted {
            ports(there, u16::try_from(10_000 + there)?)?.nft_ensure(&mut nft, true)?;
            there += 1;
        }
        let own = ports(60_000 % 5003 + 5000, 8080)?;
        let (mut ensure, mut check, mut remove) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let timed = |all: &mut Vec<Duration>, started: Instant| all.push(started.elapsed());
            let started = Instant::now();
            let handles = own.nft_ensure(&mut nft, true)?;
            timed(&mut ensure, started);
            let mut fresh = Nft::open(Instant::now() + Duration::from_secs(30))?;
            let started = Instant::now();
            if !own.nft_check(&mut fresh, &handles)? {
                return Err(FirewallError::new("compare", "forwards", "the forwards are missing").into());
            }
            timed(&mut check, started);
            let started = Instant::now();
            let table = own.nft_table(&mut nft)?;
            own.nft_remove(&mut nft, &handles, table)?;
            timed(&mut remove, started);
        }
        println!("{wanted:10}  {:6}  {:5}  {:6}", median(ensure), median(check), median(remove));
    }
    Ok(())
}
