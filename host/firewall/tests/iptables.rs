//! Masquerading by iptables, verified with iptables-save.

#![allow(clippy::expect_used, reason = "a helper outside the test functions")]

mod common;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use std::cell::RefCell;
use std::path::Path;
use std::time::Instant;

use ipnet::IpNet;

use common::{addrs, key, nft, own_namespace, tool};
use postern_confine::{Direct, NoPrograms, Program, ProgramOutput, Run};
use postern_firewall::ChainKind::{self, Masquerading};
use postern_firewall::hostport::{HostPorts, MarkBy, PortForward};
use postern_firewall::iptables::{
    ProgramRunner, RuleHandles, check_known, ensure_in, list, may_exist, needs_program, remove_all, remove_known,
    remove_seen, retain, usable,
};
use postern_firewall::iptables::{Recorded, forward};
use postern_firewall::{AttachmentKey, FirewallError, Nft, iptables};
use postern_types::{NatSources, Transport};

const DUAL: [&str; 2] = ["10.1.0.3/16", "fd00:1::3/64"];

/// The rules that the native bridge plugin 1.9.1 leaves for network mynet, container cid1.
const NATIVE: [&str; 6] = [
    r#"-A POSTROUTING -s 10.1.0.3/32 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j CNI-a631aa8e1549a3b129110fd2"#,
    r#"-A CNI-a631aa8e1549a3b129110fd2 -d 10.1.0.0/16 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j ACCEPT"#,
    r#"-A CNI-a631aa8e1549a3b129110fd2 ! -d 224.0.0.0/4 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j MASQUERADE"#,
    r#"-A POSTROUTING -s fd00:1::3/128 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j CNI-a631aa8e1549a3b129110fd2"#,
    r#"-A CNI-a631aa8e1549a3b129110fd2 -d fd00:1::/64 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j ACCEPT"#,
    r#"-A CNI-a631aa8e1549a3b129110fd2 ! -d ff00::/8 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j MASQUERADE"#,
];

/// In a mount namespace with this file, the nf_tables variant is used through its programs.
const BY_PROGRAM: &str = "/mnt/by-program";

/// A runner in this process that fails if an unneeded program is started.
struct Witness;

impl Run for Witness {
    fn run(&self, program: &Program, deadline: Instant) -> std::io::Result<ProgramOutput> {
        let is_nft = std::fs::canonicalize(&program.path)?.ends_with("xtables-nft-multi");
        let tables = std::fs::read_to_string("/proc/thread-self/net/ip_tables_names").unwrap_or_default();
        let is_needed = !is_nft || !tables.is_empty() || Path::new(BY_PROGRAM).exists();
        assert!(is_needed, "{program:?} was started");
        Direct.run(program, deadline)
    }
}

/// Returns a runner in this process, with some seconds for its programs.
fn soon() -> ProgramRunner<'static> {
    // The connection is closed with the process.
    let nft: &'static RefCell<Option<Nft>> = Box::leak(Box::default());
    let nft = (!Path::new(BY_PROGRAM).exists()).then_some(nft);
    ProgramRunner { runner: &Witness, deadline: common::soon(), nft }
}

fn ensure(key: &AttachmentKey, addrs: &[IpNet], runner: ProgramRunner<'_>) -> Result<Vec<u64>, FirewallError> {
    ensure_in(None, key, addrs, runner)
}

fn check(key: &AttachmentKey, addrs: &[IpNet], runner: ProgramRunner<'_>) -> Result<bool, FirewallError> {
    check_known(key, addrs, RuleHandles::default(), runner)
}

fn remove(key: &AttachmentKey, addrs: &[IpNet], runner: ProgramRunner<'_>) -> Result<usize, FirewallError> {
    remove_known(key, addrs, RuleHandles::default(), runner)
}

/// Runs a test three times, each time in its own namespace: over netlink, with the nf_tables programs of iptables, and
/// with the legacy programs.
fn both(test: impl Fn() + Sync) {
    let none = None::<&str>;
    let tmpfs = |onto: &str| mount(Some("t"), onto, Some("tmpfs"), MsFlags::empty(), none).expect("mount a tmpfs");
    let own_mounts = || {
        own_namespace();
        unshare(CloneFlags::CLONE_NEWNS).expect("unshare the mount namespace");
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("make mounts private");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            own_namespace();
            test();
        });
        scope.spawn(|| {
            own_mounts();
            tmpfs("/mnt");
            std::fs::write(BY_PROGRAM, "").expect("mark the namespace");
            test();
        });
        scope.spawn(|| {
            own_mounts();
            tmpfs("/etc/alternatives");
            for name in ["iptables", "ip6tables"] {
                for tool in ["", "-save", "-restore"] {
                    let link = format!("/etc/alternatives/{name}{tool}");
                    std::os::unix::fs::symlink(format!("/usr/sbin/{name}-legacy{tool}"), link).expect("choose legacy");
                }
            }
            assert!(tool("iptables", "iptables --version").contains("legacy"));
            test();
        });
    });
}

/// Returns the rules of both families' `nat` tables.
fn rules() -> Vec<String> {
    let saved = tool("iptables", "iptables-save -t nat; ip6tables-save -t nat");
    saved.lines().filter(|line| line.starts_with("-A")).map(str::to_owned).collect()
}

/// Counts the plugins' chains in both families' `nat` tables.
fn chains() -> usize {
    tool("iptables", "iptables-save -t nat; ip6tables-save -t nat").matches(":CNI-").count()
}

/// Runs the native plugin's own commands for one address.
fn make_native(iptables: &str, address: &str, network: &str, multicast: &str) {
    tool(
        "iptables",
        &format!(
            r#"chain=CNI-a631aa8e1549a3b129110fd2; comment='name: "mynet" id: "cid1"'
            {iptables} -t nat -N $chain --wait
            {iptables} -t nat -A $chain -d {network} -j ACCEPT -m comment --comment "$comment" --wait
            {iptables} -t nat -A $chain ! -d {multicast} -j MASQUERADE -m comment --comment "$comment" --wait
            {iptables} -t nat -A POSTROUTING -s {address} -j $chain -m comment --comment "$comment" --wait"#
        ),
    );
}

#[test]
fn is_usable() {
    both(|| {
        let runner = ProgramRunner { runner: &Direct, ..soon() };
        assert!(usable(runner), "a program is missing, try: apt-get install iptables");
    });
}

#[test]
fn writes_what_native_writes() {
    both(|| {
        ensure(&key("cid1"), &addrs(&DUAL), soon()).unwrap();
        assert_eq!(rules(), NATIVE);
        ensure(&key("cid1"), &addrs(&DUAL), soon()).unwrap();
        assert_eq!(rules(), NATIVE);
        assert!(check(&key("cid1"), &addrs(&DUAL), soon()).unwrap());
        // The native plugin asks by these commands.
        tool(
            "iptables",
            r#"chain=CNI-a631aa8e1549a3b129110fd2; comment='name: "mynet" id: "cid1"'
        iptables -t nat -C $chain -d 10.1.0.3/16 -j ACCEPT -m comment --comment "$comment" --wait
        iptables -t nat -C $chain ! -d 224.0.0.0/4 -j MASQUERADE -m comment --comment "$comment" --wait
        iptables -t nat -C POSTROUTING -s 10.1.0.3 -j $chain -m comment --comment "$comment" --wait
        ip6tables -t nat -C POSTROUTING -s fd00:1::3 -j $chain -m comment --comment "$comment" --wait"#,
        );
        assert!(remove(&key("cid1"), &addrs(&DUAL), soon()).unwrap() > 0);
        assert_eq!((rules().len(), chains()), (0, 0));
        assert_eq!(remove(&key("cid1"), &addrs(&DUAL), soon()).unwrap(), 0);
    });
}

/// If the names of two attachments have the same hash, each attachment has its own rules. Its removal removes only
/// these rules.
#[test]
fn names_that_run_together() {
    let of = |network: &str, container_id: &str| AttachmentKey {
        network: network.into(),
        container_id: container_id.into(),
        ifname: "eth0".into(),
    };
    both(|| {
        let (first, second) = (of("net", "1abc"), of("net1", "abc"));
        ensure(&first, &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        let before = rules();
        ensure(&second, &addrs(&["10.2.0.3/16"]), soon()).unwrap();
        ensure(&second, &addrs(&["10.2.0.3/16"]), soon()).unwrap();
        assert_eq!((rules().len(), chains()), (6, 2), "{:?}", rules());
        assert!(check(&first, &addrs(&["10.1.0.3/16"]), soon()).unwrap());
        assert!(check(&second, &addrs(&["10.2.0.3/16"]), soon()).unwrap());
        assert!(may_exist(&mut nft(), Masquerading, &second).unwrap());
        remove(&second, &addrs(&["10.2.0.3/16"]), soon()).unwrap();
        assert_eq!(rules(), before);
        ensure(&second, &addrs(&["10.2.0.3/16"]), soon()).unwrap();
        remove(&first, &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        assert!(check(&second, &addrs(&["10.2.0.3/16"]), soon()).unwrap());
        // A collection of one network keeps the other network's rules.
        assert_eq!(retain(Masquerading, "net", &[], || Ok(Vec::new()), soon()).unwrap(), Vec::<String>::new());
        assert_eq!(retain(Masquerading, "net1", &[], || Ok(Vec::new()), soon()).unwrap(), ["abc"]);
        assert_eq!((rules().len(), chains()), (0, 0));
    });
}

/// Rules with an impossible name count as absent and as removed.
#[test]
fn names_have_limits() {
    both(|| {
        let long = key(&"c".repeat(300));
        assert!(postern_firewall::iptables::validate(Masquerading, &long).is_err());
        assert!(ensure(&long, &addrs(&DUAL), soon()).is_err() && !check(&long, &addrs(&DUAL), soon()).unwrap());
        assert_eq!(remove(&long, &addrs(&DUAL), soon()).unwrap(), 0);
        assert_eq!(remove_all(&long, &[], Recorded::No, soon()).unwrap(), 0);
        assert_eq!(rules().len(), 0);
    });
}

/// A container without known addresses loses all rules, except rules of addresses of its other attachments.
#[test]
fn addresses_of_others_are_spared() {
    both(|| {
        ensure(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        ensure(&key("cid1"), &addrs(&["10.1.0.4/16"]), soon()).unwrap();
        remove_all(&key("cid1"), &["10.1.0.4".parse().unwrap()], Recorded::No, soon()).unwrap();
        assert!(check(&key("cid1"), &addrs(&["10.1.0.4/16"]), soon()).unwrap());
        assert!(!check(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap());
    });
}

#[test]
fn rules_of_a_native_plugin_are_taken_over() {
    both(|| {
        make_native("iptables", "10.1.0.3", "10.1.0.3/16", "224.0.0.0/4");
        make_native("ip6tables", "fd00:1::3", "fd00:1::3/64", "ff00::/8");
        assert_eq!(rules(), NATIVE);
        assert!(check(&key("cid1"), &addrs(&DUAL), soon()).unwrap());
        ensure(&key("cid1"), &addrs(&DUAL), soon()).unwrap();
        assert_eq!(rules(), NATIVE);
        remove(&key("cid1"), &addrs(&DUAL), soon()).unwrap();
        assert_eq!((rules().len(), chains()), (0, 0));
    });
}

#[test]
fn the_chain_stays_while_another_attachment_uses_it() {
    both(|| {
        let second = AttachmentKey { ifname: "eth1".into(), ..key("cid1") };
        ensure(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        let before = rules();
        ensure(&second, &addrs(&["10.1.0.4/16"]), soon()).unwrap();
        remove(&second, &addrs(&["10.1.0.4/16"]), soon()).unwrap();
        assert_eq!(rules(), before);
        assert!(check(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap());
        remove(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        assert_eq!((rules().len(), chains()), (0, 0));
    });
}

#[test]
fn a_second_network_is_accepted_before_masquerading() {
    both(|| {
        ensure(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        ensure(&key("cid1"), &addrs(&["10.1.0.3/16", "10.2.0.3/16"]), soon()).unwrap();
        let rules = rules();
        let at = |text: &str| rules.iter().position(|rule| rule.contains(text)).unwrap();
        assert!(at("-d 10.2.0.0/16") < at("MASQUERADE"), "{rules:#?}");
        assert_eq!(rules.len(), 5);
    });
}

#[test]
fn foreign_references_keep_the_chain() {
    both(|| {
        ensure(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        tool("iptables", "iptables -t nat -A POSTROUTING -p tcp --dport 80 -j CNI-a631aa8e1549a3b129110fd2");
        remove_all(&key("cid1"), &[], Recorded::No, soon()).unwrap();
        assert_eq!(chains(), 1);
        tool("iptables", "iptables -t nat -F POSTROUTING");
        remove_all(&key("cid1"), &[], Recorded::No, soon()).unwrap();
        assert_eq!((rules().len(), chains()), (0, 0));
    });
}

#[test]
fn leaked_and_old_rules_go_too() {
    both(|| {
        make_native("iptables", "10.1.0.3", "10.1.0.3/16", "224.0.0.0/4");
        tool(
            "iptables",
            r#"iptables -t nat -A POSTROUTING -s 10.1.0.3/16 -j CNI-a631aa8e1549a3b129110fd2 \
           -m comment --comment 'name: "mynet" id: "cid1"'"#,
        );
        remove(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        assert_eq!((rules().len(), chains()), (0, 0));
        // Another program flushed the rules: only the chain is left.
        make_native("iptables", "10.1.0.3", "10.1.0.3/16", "224.0.0.0/4");
        tool("iptables", "iptables -t nat -F");
        assert!(!check(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap());
        remove(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
        assert_eq!((rules().len(), chains()), (0, 0));
    });
}

#[test]
fn collection_keeps_valid_and_foreign_rules() {
    both(|| {
        let other = AttachmentKey { network: "other".into(), ..key("cid9") };
        ensure(&other, &addrs(&["10.9.0.2/16"]), soon()).unwrap();
        ensure(&key("cid1"), &addrs(&DUAL), soon()).unwrap();
        ensure(&key("cid2"), &addrs(&["10.1.0.4/16"]), soon()).unwrap();
        tool("iptables", "iptables -t nat -A POSTROUTING -s 192.0.2.1 -j ACCEPT");
        assert_eq!(
            retain(Masquerading, "mynet", &[("cid2".to_owned(), String::new())], || Ok(Vec::new()), soon()).unwrap(),
            ["cid1"]
        );
        assert!(check(&key("cid2"), &addrs(&["10.1.0.4/16"]), soon()).unwrap());
        assert!(check(&other, &addrs(&["10.9.0.2/16"]), soon()).unwrap());
        let after = rules();
        assert!(after.iter().all(|rule| !rule.contains("cid1")), "{after:#?}");
        assert!(after.iter().any(|rule| rule.contains("192.0.2.1")), "{after:#?}");
    });
}

#[test]
fn the_cheap_look_sees_the_chain() {
    own_namespace();
    assert!(!may_exist(&mut nft(), Masquerading, &key("cid1")).unwrap());
    ensure(&key("cid1"), &addrs(&["fd00:1::3/64"]), soon()).unwrap();
    assert!(may_exist(&mut nft(), Masquerading, &key("cid1")).unwrap());
    assert!(!may_exist(&mut nft(), Masquerading, &key("cid2")).unwrap());
    // nf_tables does not show the content of legacy tables.
    tool("iptables", "iptables-legacy -t nat -S");
    assert!(may_exist(&mut nft(), Masquerading, &key("cid2")).unwrap());
}

#[test]
fn twenty_at_once_lose_nothing() {
    both(|| {
        std::thread::scope(|scope| {
            for number in 0..20 {
                scope.spawn(move || {
                    ensure(&key(&format!("id{number}")), &addrs(&[&format!("10.1.0.{number}/16")]), soon()).unwrap();
                });
            }
        });
        assert_eq!((rules().len(), chains()), (60, 20));
        std::thread::scope(|scope| {
            for number in 0..20 {
                scope.spawn(move || {
                    remove(&key(&format!("id{number}")), &addrs(&[&format!("10.1.0.{number}/16")]), soon()).unwrap();
                });
            }
        });
        assert_eq!((rules().len(), chains()), (0, 0));
    });
}

#[test]
fn names_that_could_be_commands_are_refused() {
    both(|| {
        let evil = key("x\"\nCOMMIT\n*filter\n-P INPUT DROP");
        ensure(&evil, &addrs(&DUAL), soon()).unwrap_err();
        assert_eq!(remove(&evil, &addrs(&DUAL), soon()).unwrap(), 0, "nothing can have that name");
        assert_eq!(rules().len(), 0);
    });
}

#[test]
fn the_deadline_holds() {
    both(|| {
        let past = ProgramRunner { deadline: std::time::Instant::now(), ..soon() };
        let error = ensure(&key("cid1"), &addrs(&DUAL), past).unwrap_err();
        assert!(error.is_timeout(), "{error}");
    });
}

#[test]
fn rules_are_listed_with_their_owners_and_removed_one_by_one() {
    both(|| {
        assert_eq!(list(soon()).unwrap(), []);
        make_native("iptables", "10.1.0.3", "10.1.0.3/16", "224.0.0.0/4");
        make_native("ip6tables", "fd00:1::3", "fd00:1::3/64", "ff00::/8");
        ensure(&key("cid2"), &addrs(&["10.1.0.4/16"]), soon()).unwrap();
        // There are foreign rules, one of them similar, and a chain that no rule leads to yet.
        tool(
            "iptables",
            r#"iptables -t nat -A POSTROUTING -s 10.1.0.9 -j MASQUERADE
            iptables -t nat -N CNI-other
            iptables -t nat -A POSTROUTING -s 10.1.0.9 -m comment --comment 'name: "mynet" id: "cid9"' -j CNI-other
            iptables -t nat -N CNI-0123456789abcdef01234567"#,
        );
        let before = rules();
        let seen = list(soon()).unwrap();
        let mut told: Vec<_> =
            seen.iter().map(|seen| format!("{} {} {}", seen.source, seen.key.network, seen.key.container_id)).collect();
        told.sort();
        assert_eq!(told, ["10.1.0.3/32 mynet cid1", "10.1.0.4/32 mynet cid2", "fd00:1::3/128 mynet cid1"]);

        let (v4, others): (Vec<_>, Vec<_>) =
            seen.iter().cloned().partition(|seen| seen.source == "10.1.0.3/32".parse().unwrap());
        assert!(remove_seen(&v4, soon()).unwrap() > 0);
        let cid1 = "a631aa8e1549a3b129110fd2";
        let (ours, theirs): (Vec<_>, Vec<_>) =
            before.iter().partition(|rule| rule.contains(cid1) && !rule.contains("fd00") && !rule.contains("ff00"));
        assert_eq!((ours.len(), rules().iter().collect::<Vec<_>>()), (3, theirs), "the other family's chain stays");
        assert_eq!(list(soon()).unwrap(), others);
        assert_eq!(remove_seen(&v4, soon()).unwrap(), 0);
        remove_seen(&others, soon()).unwrap();
        assert_eq!((rules().len(), chains()), (2, 2), "the rules of other owners");
    });
}

/// Batches and programs change one table at the same time: all rules are there afterwards.
#[test]
fn batches_and_programs_lose_nothing_of_each_other() {
    own_namespace();
    let number = |of: usize| format!("10.1.0.{of}/16");
    std::thread::scope(|scope| {
        for of in 0..16 {
            scope.spawn(move || ensure(&key(&format!("id{of}")), &addrs(&[&number(of)]), soon()).unwrap());
        }
        for of in 16..24 {
            scope.spawn(move || {
                let by_program = ProgramRunner { runner: &Direct, nft: None, ..soon() };
                ensure(&key(&format!("id{of}")), &addrs(&[&number(of)]), by_program).unwrap();
            });
        }
    });
    assert_eq!((rules().len(), chains()), (72, 24));
    std::thread::scope(|scope| {
        for of in 0..24 {
            scope.spawn(move || {
                let runner = ProgramRunner { runner: &Direct, ..soon() };
                let runner = if of % 3 == 0 { ProgramRunner { nft: None, ..runner } } else { runner };
                remove(&key(&format!("id{of}")), &addrs(&[&number(of)]), runner).unwrap();
            });
        }
    });
    assert_eq!((rules().len(), chains()), (0, 0));
}

/// Unreadable foreign rules are ignored. If an unreadable rule leads to the attachment's chain, the program `iptables`
/// is used. Without a program the rule counts as a foreign rule.
#[test]
fn rules_in_another_form() {
    own_namespace();
    let odd = "-m limit --limit 1/sec";
    tool("iptables", &format!("iptables -t nat -A POSTROUTING {odd} -j ACCEPT"));
    ensure(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap();
    assert!(check(&key("cid1"), &addrs(&["10.1.0.3/16"]), soon()).unwrap());
    let chain = "CNI-a631aa8e1549a3b129110fd2";
    tool("iptables", &format!("iptables -t nat -A POSTROUTING {odd} -j {chain}"));
    let none = ProgramRunner { runner: &NoPrograms, ..soon() };
    let program = ProgramRunner { runner: &Direct, ..soon() };
    let needs = |of: Option<&str>| needs_program(none, Masquerading, of.map(key).as_ref());
    let [with, without] = [program, none].map(|runner| check(&key("cid1"), &addrs(&["10.1.0.3/16"]), runner).unwrap());
    assert_eq!((with, without), (false, false), "a foreign rule has the chain's name");
    remove(&key("cid1"), &addrs(&["10.1.0.3/16"]), none).unwrap();
    assert_eq!(chains(), 1, "a foreign rule leads to the chain");
    tool("iptables", &format!("iptables -t nat -D POSTROUTING {odd} -j {chain}"));
    remove(&key("cid1"), &addrs(&["10.1.0.3/16"]), none).unwrap();
    assert_eq!((rules().len(), chains()), (1, 0), "{:?}", rules());
    // An unreadable rule in the chain is removed with the chain, but only `iptables` can compare the rule.
    ensure(&key("cid1"), &addrs(&["10.1.0.3/16"]), none).unwrap();
    assert!(!needs(Some("cid1")) && !needs(None));
    tool("iptables", &format!("iptables -t nat -A {chain} {odd} -j RETURN"));
    assert!(needs(Some("cid1")) && needs(None));
    assert!(!needs(Some("cid2")));
    remove(&key("cid1"), &addrs(&["10.1.0.3/16"]), none).unwrap();
    assert_eq!((rules().len(), chains()), (1, 0), "{:?}", rules());
}

/// An unreadable rule in the attachment's own chain of portmap, or in a shared chain, needs the program `iptables`.
#[test]
fn forwards_in_another_form_need_the_program() {
    own_namespace();
    let none = ProgramRunner { runner: &NoPrograms, ..soon() };
    let needs = |of: &str| needs_program(none, ChainKind::Forwards, Some(&key(of)));
    let forward = PortForward { protocol: Transport::Tcp, host_ip: None, host_port: 8080, container_port: 80 };
    let ports = HostPorts {
        key: key("cid1"),
        address: "10.1.0.3/16".parse().unwrap(),
        forwards: vec![forward],
        sources: NatSources::Own,
        mark: MarkBy::Bit(13),
        conditions: Vec::new(),
    };
    ports.iptables_ensure_in(None, none).unwrap();
    assert!(!needs("cid1"));
    // Chains of a valid container and shared chains are never collected.
    let other = |known: &[&str]| {
        let known: Vec<(String, String)> = known.iter().map(|id| ((*id).to_owned(), "eth0".to_owned())).collect();
        iptables::others_may_exist(&mut nft(), "mynet", &known).unwrap()
    };
    assert!(other(&[]) && other(&["cid2"]) && !other(&["cid1"]));
    // Chains of other networks are never collected, and their rules are not read. Only `iptables` could read these
    // rules.
    let foreign = AttachmentKey { network: "mynet2".to_owned(), ..key("cid2") };
    HostPorts { key: foreign.clone(), ..ports.clone() }.iptables_ensure_in(None, none).unwrap();
    ensure(&foreign, &addrs(&["10.2.0.3/16"]), soon()).unwrap();
    assert!(other(&[]) && !other(&["cid1"]));
    tool(
        "iptables",
        "iptables -t nat -N CNI-EMPTY; iptables -t nat -A CNI-HOSTPORT-DNAT -m limit --limit 1/sec -j CNI-EMPTY",
    );
    assert!(!other(&["cid1"]));
    // A chain to which no rule leads any more belongs to the network that a rule in the chain names.
    let stray = |network: &str| {
        let rule = format!("-m comment --comment 'name: \"{network}\" id: \"x\"' -j ACCEPT");
        tool("iptables", &format!("iptables -t nat -F CNI-EMPTY; iptables -t nat -A CNI-EMPTY {rule}"));
    };
    tool("iptables", "iptables -t nat -D CNI-HOSTPORT-DNAT -m limit --limit 1/sec -j CNI-EMPTY");
    stray("mynet2");
    assert!(!other(&["cid1"]));
    stray("mynet");
    assert!(other(&["cid1"]));
    tool("iptables", "iptables -t nat -F CNI-EMPTY; iptables -t nat -X CNI-EMPTY");
    HostPorts { key: foreign.clone(), ..ports.clone() }.iptables_remove(RuleHandles::default(), none).unwrap();
    remove(&foreign, &addrs(&["10.2.0.3/16"]), soon()).unwrap();
    let own = tool("iptables", "iptables -t nat -S | sed -n 's/^-N \\(CNI-DN-.*\\)/\\1/p'");
    let own = own.trim();
    tool("iptables", &format!("iptables -t nat -A {own} -m limit --limit 1/sec -j RETURN"));
    assert!(needs("cid1") && !needs("cid2"));
    ports.iptables_remove(RuleHandles::default(), none).unwrap();
    assert!(!needs("cid1") && !other(&[]));
    tool("iptables", "iptables -t nat -A CNI-HOSTPORT-SETMARK -m limit --limit 1/sec -j MARK --set-mark 1");
    assert!(needs("cid1") && needs("cid2"));
}

/// Returns the lines of a chain of table `filter`.
fn lines(chain: &str) -> Vec<String> {
    let all = tool("iptables", &format!("iptables -S {chain}"));
    all.lines().filter(|line| line.starts_with("-A")).map(str::to_owned).collect()
}

/// Each attachment has its own rules. A rule is found by its handle among many other rules, even equal rules. If rules
/// are made again, they have new handles and are searched by content.
#[test]
fn rules_of_an_address_are_found_by_their_handles() {
    own_namespace();
    let none = ProgramRunner { runner: &NoPrograms, ..soon() };
    let one = addrs(&["10.1.0.3/16", "fd00::3/64"]);
    let before = forward::admit(&addrs(&["10.1.0.2/16"]), "CNI-ADMIN", true, None, none).unwrap();
    let many: String = (0..600)
        .map(|number| format!("-A CNI-FORWARD -s 10.2.{}.{} -j ACCEPT\n", number / 200, number % 200))
        .collect();
    let restore =
        |text: &str| tool("iptables", &format!("printf '*filter\n%sCOMMIT\n' '{text}' | iptables-restore --noflush"));
    restore(&many);
    let ours = forward::admit(&one, "CNI-ADMIN", true, None, none).unwrap();
    let others = forward::admit(&one, "CNI-ADMIN", true, None, none).unwrap();
    assert_eq!((before.len(), ours.len(), others.len()), (2, 4, 4));
    assert_eq!(lines("CNI-FORWARD").len(), 1 + 2 + 600 + 2 + 2);
    assert_eq!(lines("FORWARD").len(), 1, "the shared rule is there once");
    let missing = |handles: &[u64]| {
        let numbers = forward::AddressHandles {
            addresses: one.clone(),
            handles: handles.to_vec(),
            ..forward::AddressHandles::default()
        };
        forward::missing_rule(&numbers, Some("CNI-ADMIN"), None, none).unwrap()
    };
    for handles in [&ours[..], &others, &[], &before] {
        assert_eq!(missing(handles), None);
    }
    assert!(
        forward::has(&one, &ours, none) && !forward::has(&one, &before, none) && !forward::has(&one, &ours[..2], none)
    );
    assert_eq!(forward::withdraw(&one, &ours, Recorded::No, none).unwrap(), 4);
    assert!(!forward::has(&one, &ours, none) && forward::has(&one, &others, none));
    assert_eq!(lines("CNI-FORWARD").len(), 1 + 2 + 600 + 2);
    // Existing rules are not made again.
    assert!(forward::admit(&one, "CNI-ADMIN", false, None, none).unwrap().is_empty());
    // Another program restores the rules: the handles now belong to other rules.
    let more = "sed '/^COMMIT/i -A INPUT -s 10.3.0.1 -j ACCEPT\\n-A INPUT -s 10.3.0.2 -j ACCEPT'";
    tool("iptables", &format!("iptables-save -t filter | sed '/10.1.0.2/d' | {more} | iptables-restore"));
    assert_eq!(missing(&others), None);
    assert!(!forward::has(&one, &others, none));
    // One of the rules, or a rule that leads to them, is removed.
    for wrong in ["-D CNI-FORWARD -s 10.1.0.3 -j ACCEPT", "-D CNI-FORWARD 1", "-D FORWARD 1"] {
        tool("iptables", &format!("iptables {wrong}"));
        assert!(missing(&others).is_some() && missing(&[]).is_some(), "{wrong}");
        forward::admit(&one, "CNI-ADMIN", false, None, none).unwrap();
        assert_eq!(missing(&others), None, "{wrong}");
    }
    // Without handles, all copies of each rule are removed.
    tool("iptables", "iptables -A CNI-FORWARD -s 10.1.0.3 -j ACCEPT");
    assert_eq!(forward::withdraw(&one, &[], Recorded::No, none).unwrap(), 5);
    assert_eq!(lines("CNI-FORWARD").len(), 1 + 600);
}

/// Rules are removed by their handles, without reading the rules, as long as their table exists.
#[test]
fn numbers_lead_to_these_rules_or_to_none() {
    own_namespace();
    let none = ProgramRunner { runner: &NoPrograms, ..soon() };
    let one = addrs(&["10.1.0.3/16", "fd00::3/64"]);
    assert!(forward::tables(&one, none).is_empty(), "there are no tables yet");
    forward::admit(&addrs(&["10.1.0.2/16", "fd00::2/64"]), "CNI-ADMIN", true, None, none).unwrap();
    let admit = || {
        let tables = forward::tables(&one, none);
        let handles = forward::admit(&one, "CNI-ADMIN", true, None, none).unwrap();
        assert_eq!((tables.len(), handles.len(), forward::tables(&one, none)), (2, 4, tables.clone()));
        forward::AddressHandles { addresses: one.clone(), handles, tables, recorded: Recorded::No }
    };
    let (ours, others) = (admit(), admit());
    assert!(!forward::needs_program(none, Some(std::slice::from_ref(&ours))));
    assert!(ours.withdraw(none).unwrap());
    assert!(!forward::has(&one, &ours.handles, none) && forward::has(&one, &others.handles, none));
    assert!(!ours.withdraw(none).unwrap(), "the rules are gone");
    assert_eq!(lines("CNI-FORWARD").len(), 1 + 2 + 2);
    // Without the tables' handles, or with handles of other tables, nothing is removed.
    for tables in [Vec::new(), vec![others.tables[0]], vec![others.tables[1], others.tables[0]]] {
        assert!(!forward::AddressHandles { tables, ..others.clone() }.withdraw(none).unwrap());
    }
    // A rule is gone, so a search has to find the other rules.
    tool("iptables", "iptables -D CNI-FORWARD -s 10.1.0.3 -j ACCEPT");
    assert!(!others.withdraw(none).unwrap());
    assert_eq!(forward::withdraw(&one, &[], Recorded::No, none).unwrap(), 3);
    // The table is made again, and its rules have the handles of the earlier rules.
    let ours = admit();
    tool("iptables", "nft delete table ip filter; iptables -N CNI-FORWARD");
    let many: String = (0..40).map(|number| format!("-A CNI-FORWARD -s 10.3.0.{number} -j ACCEPT\n")).collect();
    tool("iptables", &format!("printf '*filter\n%sCOMMIT\n' '{many}' | iptables-restore --noflush"));
    let taken = tool("nft", "nft -a list table ip filter");
    assert!(ours.handles[..2].iter().all(|handle| taken.contains(&format!("# handle {handle}\n"))), "{taken}");
    assert!(!ours.withdraw(none).unwrap());
    assert_eq!(lines("CNI-FORWARD").len(), 40);
}
