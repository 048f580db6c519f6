//! Rules that Postern writes and reads over netlink, compared with the rules of each installed version of the program
//! `iptables`.
//!
//! The versions are the system's own, and the versions that `tests/fetch-iptables` has put into `target/iptables`.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};

use crate::Nft;
use crate::iptables::netlink;
use crate::iptables::rule::IptablesRule;
use crate::iptables::scope::Scope;
use crate::iptables::set::TableChange;
use crate::iptables::text::{SavedRule, SavedTable};

/// Chains and rules of one table: all forms of rules that masquerading, portmap and firewall have. `NET` and
/// `ODD` are networks of the family; the prefix of `ODD` ends inside a byte. `ADDRESS`, `TO` and `BARE` are addresses.
/// `MULTICAST` is the network of all multicast addresses.
const NAT: &str = r#"
:CNI-HOSTPORT-SETMARK
:CNI-HOSTPORT-MASQ
:CNI-HOSTPORT-DNAT
:CNI-DN-0123456789abcdef01234
:CNI-0123456789abcdef01234567
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A POSTROUTING -s ADDRESS -m comment --comment "name: \"mynet\" id: \"cid1\"" -j CNI-0123456789abcdef01234567
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A OUTPUT -m addrtype ! --src-type LOCAL --dst-type LOCAL -j RETURN
-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000
-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
-A CNI-HOSTPORT-MASQ -m mark ! --mark 0x1 -j MASQUERADE --random-fully
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"n\" id: \"it's\"" -m multiport --dports 8080,8443,1,2,3,4,5,6,7,8,9,10,11,12,13 -j CNI-DN-0123456789abcdef01234
-A CNI-HOSTPORT-DNAT -p udp -m multiport --dports 53 -m comment --comment plain_comment-1 -j CNI-DN-0123456789abcdef01234
-A CNI-DN-0123456789abcdef01234 -s NET -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK
-A CNI-DN-0123456789abcdef01234 -s NET -d ADDRESS -p udp -m udp --dport 53 -j CNI-HOSTPORT-SETMARK
-A CNI-DN-0123456789abcdef01234 -d ADDRESS -p udp -m udp --dport 53 -j DNAT --to-destination TO:53
-A CNI-DN-0123456789abcdef01234 -p tcp -m tcp --sport 1 --dport 65535 -j DNAT --to-destination TO:80
-A CNI-DN-0123456789abcdef01234 -p tcp -m tcp ! --dport 443 -j ACCEPT
-A CNI-DN-0123456789abcdef01234 -p sctp -m sctp --dport 7777 -j DNAT --to-destination TO:7778
-A CNI-DN-0123456789abcdef01234 -j DNAT --to-destination BARE
-A CNI-0123456789abcdef01234567 -d NET -m comment --comment "name: \"mynet\" id: \"cid1\"" -j ACCEPT
-A CNI-0123456789abcdef01234567 -d ODD -m comment --comment "name: \"mynet\" id: \"cid1\"" -j ACCEPT
-A CNI-0123456789abcdef01234567 ! -d MULTICAST -m comment --comment "name: \"mynet\" id: \"cid1\"" -j MASQUERADE
"#;

const FILTER: &str = r#"
:CNI-FORWARD
:CNI-ADMIN
:CNI-ISOLATION-STAGE-1
:CNI-ISOLATION-STAGE-2
-A FORWARD -m comment --comment "CNI firewall plugin rules (ingressPolicy: same-bridge)" -j CNI-ISOLATION-STAGE-1
-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN
-A CNI-FORWARD -d ADDRESS -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A CNI-FORWARD ! -d ADDRESS -m conntrack ! --ctstate INVALID,NEW -j ACCEPT
-A CNI-FORWARD -s ADDRESS -j ACCEPT
-A CNI-FORWARD -s ADDRESS -d ADDRESS -p udp -m udp --dport 1 -j ACCEPT
-A CNI-FORWARD ! -s NET -i cni0 -j DROP
-A CNI-ISOLATION-STAGE-1 -i cni0 ! -o cni0 -m comment --comment "CNI firewall plugin rules (ingressPolicy: same-bridge)" -j CNI-ISOLATION-STAGE-2
-A CNI-ISOLATION-STAGE-1 -i cni0 -o cni0 -j DROP
-A CNI-ISOLATION-STAGE-1 -i br+ ! -o br+ -j RETURN
-A CNI-ISOLATION-STAGE-1 -j RETURN
-A CNI-ISOLATION-STAGE-2 -o cni0 ! -p tcp -j DROP
-A CNI-ISOLATION-STAGE-2 -m comment --comment "CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)" -j RETURN
"#;

/// A version of `iptables`. A command is `start`, then the name of a tool such as `iptables-save`.
struct Version {
    name: String,
    start: String,
}

fn versions() -> Vec<Version> {
    let mut all = vec![Version { name: "the system's".to_owned(), start: "/usr/sbin/xtables-nft-multi".to_owned() }];
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/iptables");
    for suite in ["bullseye", "bookworm", "trixie", "sid"] {
        let root = fetched.join(suite);
        let lib = root.join("lib/x86_64-linux-gnu");
        let usr = root.join("usr/lib/x86_64-linux-gnu");
        let loaders = [lib.join("ld-2.31.so"), lib.join("ld-linux-x86-64.so.2"), usr.join("ld-linux-x86-64.so.2")];
        let Some(loader) = loaders.iter().find(|loader| loader.is_file()) else {
            // The line bypasses the test program's output capture: `tests/suite` counts skipped tests.
            let _ = writeln!(
                std::io::stdout(),
                "SKIPPED: oracle (Debian {suite}): there is no iptables of Debian {suite} (tests/fetch-iptables)"
            );
            continue;
        };
        let start = format!(
            "env XTABLES_LIBDIR={0}/xtables {1} --library-path {2}:{0} {3}/usr/sbin/xtables-nft-multi",
            usr.display(),
            loader.display(),
            lib.display(),
            root.display()
        );
        all.push(Version { name: suite.to_owned(), start });
    }
    all
}

impl Version {
    /// Runs one of the version's tools in a shell; `input` is the tool's standard input.
    fn run(&self, v6: bool, tool: &str, input: &str) -> String {
        let name = if v6 { "ip6tables" } else { "iptables" };
        let script = format!("{} {name}{tool} <<'END'\n{input}\nEND\n", self.start);
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {name}{tool}: {complaints}\n{input}", self.name);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the table as this version prints it, without the lines that contain a time.
    fn saved(&self, v6: bool, table: &str) -> String {
        let text = self.run(v6, &format!("-save -t {table}"), "");
        text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    }
}

/// Returns chains and rules for a family.
fn filled(text: &str, v6: bool) -> (Vec<String>, Vec<String>) {
    let values = match v6 {
        false => ["10.1.0.2/32", "10.1.0.0/16", "10.1.0.0/20", "224.0.0.0/4", "10.1.0.2:", "10.1.0.2"],
        true => ["fd00::2/128", "fd00::/64", "fd00::/61", "ff00::/8", "[fd00::2]:", "fd00::2"],
    };
    let names = ["ADDRESS", "NET", "ODD", "MULTICAST", "TO:", "BARE"];
    let text = names.iter().zip(values).fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
    let of = |prefix: &str| text.lines().filter_map(|line| line.strip_prefix(prefix)).map(str::to_owned).collect();
    (of(":"), of("-A "))
}

fn own_namespace() -> Nft {
    assert_eq!(std::env::var("POSTERN_PRIVATE").as_deref(), Ok("1"), "run this test by cargo, for its runner");
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    Nft::open(Instant::now() + Duration::from_secs(60)).unwrap()
}

/// Returns the changes that make these chains and rules.
fn additions(chains: &[String], rules: &[String]) -> Vec<TableChange> {
    let rules = rules.iter().map(|rule| TableChange::Add { rule: IptablesRule::parse(rule), first: false });
    chains.iter().cloned().map(TableChange::NewChain).chain(rules).collect()
}

/// Returns the text with which `iptables-restore` makes these chains and rules.
fn input(table: &str, chains: &[String], rules: &[String]) -> String {
    let rules: String = rules.iter().map(|rule| format!("-A {rule}\n")).collect();
    let chains: String = chains.iter().map(|chain| format!("-N {chain}\n")).collect();
    format!("*{table}\n{chains}{rules}COMMIT")
}

fn change(nft: &mut Nft, v6: bool, table: &'static str, changes: &[TableChange]) {
    let plan = |_: &SavedTable| changes.to_vec();
    assert_eq!(netlink::change(nft, v6, &Scope::whole(table), false, &plan), Ok((changes.len(), Vec::new())));
}

/// Calls a test for each version, family and table.
fn each(test: impl Fn(&Version, bool, &'static str, &[String], &[String])) {
    for version in versions() {
        for v6 in [false, true] {
            for (table, text) in [("nat", NAT), ("filter", FILTER)] {
                let (chains, rules) = filled(text, v6);
                test(&version, v6, table, &chains, &rules);
            }
        }
    }
}

/// Each version of `iptables` lists Postern's rules like its own rules, finds each rule, and deletes all rules.
#[test]
fn every_version_reads_what_is_written() {
    each(|version, v6, table, chains, rules| {
        own_namespace();
        version.run(v6, "-restore --noflush", &input(table, chains, rules));
        let theirs = version.saved(v6, table);
        let mut nft = own_namespace();
        change(&mut nft, v6, table, &additions(chains, rules));
        assert_eq!(sorted(&version.saved(v6, table)), sorted(&theirs), "{}", version.name);
        for rule in rules {
            version.run(v6, &format!(" -t {table} -C {rule}"), "");
        }
        for rule in rules {
            version.run(v6, &format!(" -t {table} -D {rule}"), "");
        }
        for chain in chains {
            version.run(v6, &format!(" -t {table} -X {chain}"), "");
        }
        assert!(!version.saved(v6, table).contains("CNI-"), "{}: {}", version.name, version.saved(v6, table));
    });
}

/// Postern reads the rules of each version as that version prints the rules, and deletes the rules.
#[test]
fn what_every_version_writes_is_read() {
    each(|version, v6, table, chains, rules| {
        let mut nft = own_namespace();
        version.run(v6, "-restore --noflush", &input(table, chains, rules));
        let theirs = SavedTable::parse(&version.saved(v6, table));
        let ours = netlink::look(&mut nft, v6, &Scope::whole(table), false);
        let ours = ours.unwrap_or_else(|error| panic!("{}: {error:?}", version.name));
        let lines = |table: &SavedTable| table.rules.iter().map(SavedRule::line).collect::<Vec<_>>();
        let (mut own, mut printed) = (lines(&ours), lines(&theirs));
        own.sort();
        printed.sort();
        assert_eq!(own, printed, "{}", version.name);
        let mut removals: Vec<TableChange> = ours.rules.into_iter().map(TableChange::Delete).collect();
        removals.extend(chains.iter().cloned().map(TableChange::Flush));
        removals.extend(chains.iter().cloned().map(TableChange::DeleteChain));
        change(&mut nft, v6, table, &removals);
        assert!(!version.saved(v6, table).contains("CNI-"), "{}", version.name);
    });
}

/// Returns lines in an order that does not depend on which chain was made first.
fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // Rules of one chain keep their order.
    lines.sort_by_key(|line| line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>());
    lines
}

/// If Postern can't write or read a rule over netlink, it changes nothing and leaves the rule to `iptables`.
#[test]
fn other_rules_are_left_to_the_program() {
    let mut nft = own_namespace();
    let version = &versions()[0];
    let wanted = additions(&["CNI-1".to_owned()], &["CNI-1 -m limit --limit 1/sec -j ACCEPT".to_owned()]);
    let refused = netlink::change(&mut nft, false, &Scope::whole("filter"), false, &|_| wanted.clone());
    assert!(refused.is_err() && !version.saved(false, "filter").contains("CNI-1"), "{refused:?}");
    // A foreign rule in another form is ignored, unless the rule is in a plugin's chain or leads to a plugin's chain.
    version.run(false, " -A FORWARD -m limit --limit 1/sec -j ACCEPT", "");
    let seen = netlink::look(&mut nft, false, &Scope::whole("filter"), false).unwrap();
    assert!(seen.rules.is_empty());
    version.run(false, "-restore --noflush", "*filter\n-N CNI-1\n-A CNI-1 -m limit --limit 1/sec -j ACCEPT\nCOMMIT");
    assert!(netlink::look(&mut nft, false, &Scope::whole("filter"), false).is_err());
    let lenient = netlink::look(&mut nft, false, &Scope::whole("filter"), true).unwrap();
    assert_eq!(lenient.rules.len(), 1);
    // Base chains keep their policy.
    version.run(false, " -F CNI-1", "");
    version.run(false, " -P FORWARD DROP", "");
    change(&mut nft, false, "filter", &additions(&[], &["FORWARD -s 10.1.0.2/32 -j ACCEPT".to_owned()]));
    assert!(version.saved(false, "filter").contains(":FORWARD DROP"));
}
