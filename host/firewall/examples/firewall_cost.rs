//! The cost of firewall changes: Postern's netlink transactions compared with the programs that native plugins start.
//!
//! `cargo run --release -p postern-firewall --example firewall_cost` prints medians of 40 rounds, in microseconds of
//! wall-clock time. It measures with 0 and with 100 other attachments, in a network namespace that the cargo runner
//! makes.

use std::cell::RefCell;
use std::error::Error;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use postern_firewall::{AttachmentKey, ChainKind, Nft, iptables, macguard, masquerade};

const ROUNDS: usize = 40;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    if std::env::var_os("POSTERN_PRIVATE").is_none() {
        return Err("this program changes firewall rules: run it by cargo, whose runner makes a namespace".into());
    }
    netlink(0)?;
    netlink(100)?;
    programs()
}

fn addresses() -> Result<[IpNet; 2], Box<dyn Error>> {
    Ok(["10.1.0.2/16".parse()?, "fd00:1::2/64".parse()?])
}

/// Measures Postern's own transactions, with `others` other attachments on the node.
fn netlink(others: usize) -> Outcome {
    let addrs = addresses()?;
    let mut nft = open()?;
    for number in 0..others {
        masquerade::nft_ensure(&mut nft, &key(&format!("other{number}")), &addrs, false)?;
        macguard::claim(&mut nft, &format!("other{number}-eth0"), &format!("veth{number}"), MAC, |_| false)?;
    }

    println!("masquerade, two addresses, own netlink transactions, {others} other attachments");
    let ours = key("cid1");
    let mut times = [const { Vec::new() }; 6];
    for round in 0..2 * ROUNDS {
        times[0].push(timed(|| {
            masquerade::nft_ensure(&mut nft, &ours, &addrs, false)?;
            Ok(())
        })?);
        times[1].push(timed(|| {
            masquerade::nft_ensure(&mut nft, &ours, &addrs, false)?;
            Ok(())
        })?);
        times[2].push(timed(|| check(masquerade::nft_check_known(&mut nft, &ours, &addrs, &[])?))?);
        times[3].push(timed(|| check(masquerade::nft_remove_known(&mut nft, &ours, &[])? == 2))?);
        // After a deletion, closing the connection waits for the kernel's clean-up. Half of the rounds close the connection at once.
        // The other half pauses first, as long as other work takes, such as deleting a link.
        if round % 2 == 0 {
            times[4].push(reopen(&mut nft)?);
        } else {
            std::thread::sleep(Duration::from_millis(40));
            times[5].push(reopen(&mut nft)?);
        }
    }
    report(
        &["ensure", "ensure, all there", "check", "remove", "close at once after remove", "close 40 ms after"],
        times,
    );

    println!("MAC check, own netlink transactions, {others} other attachments");
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        let id = "cid1-eth0";
        times[0].push(timed(|| Ok(macguard::claim(&mut nft, id, "veth9999", MAC, |_| false).map(drop)?))?);
        times[1].push(timed(|| check(macguard::check_known(&mut nft, id, "veth9999", MAC, &[])?))?);
        times[2].push(timed(|| check(macguard::remove_unless(&mut nft, id, &[], |_| false)?))?);
        reopen(&mut nft)?;
    }
    report(&["ensure", "check", "remove"], times);
    Ok(())
}

/// Measures the programs that native plugins start, and the programs that Postern starts for iptables.
fn programs() -> Outcome {
    println!("masquerade, two addresses, nft -f - (what a native plugin starts)");
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        let add = "add rule inet cni_plugins_masquerade masq_checks \
             ip saddr 10.1.0.2 ip daddr != 10.1.0.0/16 masquerade comment \"x\"\n\
             add rule inet cni_plugins_masquerade masq_checks \
             ip6 saddr fd00:1::2 ip6 daddr != fd00:1::/64 masquerade comment \"x\"\n";
        times[0].push(timed(|| run("nft", &["-f", "-"], add))?);
        let declared = format!(
            "add table inet cni_plugins_masquerade\nadd chain inet cni_plugins_masquerade masq_checks\n\
             add chain inet cni_plugins_masquerade postrouting {{ type nat hook postrouting priority 100; }}\n{add}"
        );
        times[1].push(timed(|| run("nft", &["-f", "-"], &declared))?);
        let list = ["-a", "list", "chain", "inet", "cni_plugins_masquerade", "masq_checks"];
        times[2].push(timed(|| run("nft", &list, ""))?);
        run("nft", &["flush", "chain", "inet", "cni_plugins_masquerade", "masq_checks"], "")?;
    }
    report(&["add two rules", "add table, chains and two rules", "list the chain"], times);

    let (ours, addrs) = (key("cid1"), addresses()?);
    let one = addrs.get(..1).unwrap_or_default();
    let mut nft = open()?;
    for (how, by_program) in [("iptables over netlink", false), ("iptables-save and iptables-restore", true)] {
        println!("masquerade, one address, {how}");
        let mut times = [const { Vec::new() }; 5];
        for _ in 0..ROUNDS {
            let own = RefCell::new(None);
            let deadline = soon();
            let nft_of = (!by_program).then_some(&own);
            let runner = iptables::ProgramRunner { runner: &postern_confine::Direct, deadline, nft: nft_of };
            let mut handles = Vec::new();
            times[0].push(timed(|| {
                handles = iptables::ensure_in(None, &ours, one, runner)?;
                Ok(())
            })?);
            let tables = iptables::nat_tables(one, runner);
            let known =
                iptables::RuleHandles { handles: &handles, tables: &tables, ..iptables::RuleHandles::default() };
            times[1].push(timed(|| check(iptables::check_known(&ours, one, known, runner)?))?);
            times[2].push(timed(|| check(iptables::remove_known(&ours, one, known, runner)? > 0))?);
            times[3].push(timed(|| check(!iptables::may_exist(&mut nft, ChainKind::Masquerading, &ours)?))?);
            times[4].push(timed(|| {
                drop(own.take());
                Ok(())
            })?);
        }
        report(&["ensure", "check", "remove", "may_exist", "close"], times);
    }
    Ok(())
}

/// Closes the connection, opens another connection, and returns how long the closing took.
fn reopen(nft: &mut Nft) -> Result<Duration, Box<dyn Error>> {
    let old = std::mem::replace(nft, open()?);
    timed(|| {
        drop(old);
        Ok(())
    })
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn open() -> Result<Nft, Box<dyn Error>> {
    Ok(Nft::open(soon())?)
}

fn key(container_id: &str) -> AttachmentKey {
    AttachmentKey { network: "mynet".into(), container_id: container_id.into(), ifname: "eth0".into() }
}

fn check(holds: bool) -> Outcome {
    if holds { Ok(()) } else { Err("the measured call didn't do its work".into()) }
}

fn timed(work: impl FnOnce() -> Outcome) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn run(program: &str, arguments: &[&str], input: &str) -> Outcome {
    let mut child = Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    check(child.wait()?.success())
}

fn report<const N: usize>(labels: &[&str; N], times: [Vec<Duration>; N]) {
    for (label, mut times) in labels.iter().zip(times) {
        times.sort_unstable();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        println!("  {label:<40} {:>8}", median.as_micros());
    }
}
