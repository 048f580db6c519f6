//! Port forwards that Postern makes over netlink equal the port forwards that the program `iptables` makes.

use std::cell::RefCell;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use postern_confine::{Direct, NoPrograms};

use crate::AttachmentKey;
use crate::hostport::{HostPorts, MarkBy, PortForward};
use crate::iptables::{ProgramRunner, RuleHandles};
use postern_types::{NatSources, Transport};

fn saved() -> Vec<String> {
    let text = Command::new("sh").args(["-c", "iptables-save -t nat; ip6tables-save -t nat"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn all() -> Vec<HostPorts> {
    let mut all = Vec::new();
    for address in ["10.1.0.2/16", "fd00::2/64"] {
        for (number, sources) in [NatSources::None, NatSources::All, NatSources::Own].into_iter().enumerate() {
            let forward = |protocol, host_port| PortForward { protocol, host_ip: None, host_port, container_port: 80 };
            let mut forwards: Vec<PortForward> = (8000..8020).map(|port| forward(Transport::Tcp, port)).collect();
            forwards.extend([forward(Transport::Udp, 53), forward(Transport::Sctp, 77)]);
            let of = address.starts_with("10");
            forwards.push(PortForward {
                host_ip: Some(if of { "10.9.9.9" } else { "fd00::9" }.parse().unwrap()),
                ..forward(Transport::Tcp, 9000)
            });
            all.push(HostPorts {
                key: AttachmentKey { network: "n".into(), container_id: format!("c{number}"), ifname: "eth0".into() },
                address: address.parse().unwrap(),
                forwards,
                sources,
                mark: MarkBy::Bit(13),
                conditions: Vec::new(),
            });
        }
    }
    all
}

#[test]
fn is_what_the_program_leaves() {
    let deadline = Instant::now() + Duration::from_secs(30);
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    for ports in all() {
        ports.iptables_ensure_in(None, ProgramRunner { runner: &Direct, deadline, nft: None }).unwrap();
    }
    let theirs = saved();
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    let nft = RefCell::new(None);
    let without = ProgramRunner { runner: &NoPrograms, deadline, nft: Some(&nft) };
    let mut handles = Vec::new();
    for ports in all() {
        let made = ports.iptables_ensure_in(None, without).unwrap();
        for handles in [&[], made.as_slice()] {
            assert!(ports.iptables_check(RuleHandles { handles, ..RuleHandles::default() }, without).unwrap());
        }
        assert!(ports.iptables_ensure_in(None, without).unwrap().is_empty());
        // TCP has two rules, of 15 and 6 ports. Each other protocol has one rule.
        assert_eq!(made.len(), 4);
        handles.push(made);
    }
    assert_eq!(saved(), theirs);
    for (number, (ports, made)) in all().iter().zip(&handles).enumerate() {
        // The handles may be lost, or belong to the other family's rules.
        let known = match number % 3 {
            0 => made.as_slice(),
            1 => &[],
            _ => handles[0].as_slice(),
        };
        assert!(ports.iptables_remove(RuleHandles { handles: known, ..RuleHandles::default() }, without).unwrap() > 0);
        assert!(!ports.iptables_check(RuleHandles { handles: made, ..RuleHandles::default() }, without).unwrap());
    }
    let left = saved();
    assert!(!left.iter().any(|line| line.contains("CNI-DN")), "{left:?}");
}
