//! Tests of the connection: the time for which an answer counts, and the error of a failed change.

use netlink_packet_netfilter::nftables::{RuleAttribute, RuleMessage, Verdict};
use nix::sched::{CloneFlags, unshare};

use super::batch::Table;
use super::rule::verdict;
use super::set::{EntryScope, Mark, NftOwner, NftRuleSet, SharedRule};
use super::shared::{SharedChain, SharedTable};
use super::*;

const TABLE: Table = Table { family: NetfilterProtoFamily::Inet, name: "t" };

fn open() -> Nft {
    Nft::open(Instant::now() + Duration::from_secs(5)).unwrap()
}

/// Makes the table with one rule.
fn make(nft: &mut Nft, comment: &[u8]) {
    nft.change(|_, batch| {
        batch.add_table(TABLE, None);
        batch.add_chain(TABLE, "c", None, None);
        batch.append_rule(TABLE, "c", &[verdict(Verdict::Return)], Some(comment));
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_handle_is_not_used_once_the_rules_have_changed() {
    assert_eq!(std::env::var("POSTERN_PRIVATE").as_deref(), Ok("1"), "run this test by cargo, for its runner");
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    let mut nft = open();
    make(&mut nft, b"ours");
    let handle = nft.rules(TABLE, "c").unwrap()[0].handle;
    let mut plans = 0;
    nft.change(|nft, batch| {
        plans += 1;
        for rule in nft.rules(TABLE, "c")?.iter().filter(|rule| rule.commented(b"ours")) {
            batch.delete_rule(TABLE, "c", rule.handle);
        }
        if plans == 1 {
            // Between the read and the change, a foreign rule takes the place and the handle of the owner's rule.
            let mut foreign = open();
            foreign.change(|_, batch| {
                batch.delete_table(TABLE);
                Ok(())
            })?;
            make(&mut foreign, b"theirs");
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(plans, 2);
    let rules = nft.rules(TABLE, "c").unwrap();
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0].handle, handle, "the foreign rule has the same handle");
    assert!(rules[0].commented(b"theirs"));
}

#[test]
fn errors_name_the_change_that_failed() {
    assert_eq!(std::env::var("POSTERN_PRIVATE").as_deref(), Ok("1"), "run this test by cargo, for its runner");
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    let mut nft = open();
    let error = nft.change(|_, batch| {
        batch.add_table(TABLE, None);
        batch.add_chain(TABLE, "c", None, None);
        batch.flush_chain(TABLE, "missing");
        batch.add_chain(TABLE, "d", None, None);
        Ok(())
    });
    let error = error.unwrap_err();
    assert_eq!((error.operation, &*error.object), ("flush chain", "inet t missing"));
    assert_eq!(error.errno, Some(Errno::ENOENT as i32));
    assert!(nft.table(TABLE).unwrap().is_none(), "all or nothing");
}

/// Returns shared chains of a table, with a rule that leads to the owners' chains.
fn shared() -> &'static SharedTable {
    let chain = |name, has_entries, rules| SharedChain {
        name,
        base: None,
        wrong_kind: None,
        comment: None,
        rules,
        has_entries,
    };
    let lead = (shared::NftPlace::Last, vec![rule::to_chain(Verdict::Jump, "ours")]);
    let chains =
        vec![chain("ours", true, Vec::new()), chain("theirs", true, Vec::new()), chain("top", false, vec![lead])];
    Box::leak(Box::new(SharedTable { table: TABLE, comment: None, chains, kind: "kind-", is_named_for_plugins: true }))
}

fn set(shared: &'static SharedTable, owner: &str, chains: &[&str]) -> NftRuleSet {
    let entry = |chain, target: Option<&&str>| {
        let verdict = match target {
            Some(target) => rule::to_chain(Verdict::Jump, target),
            None => verdict(Verdict::Return),
        };
        SharedRule { chain, rule: vec![verdict] }
    };
    NftRuleSet {
        owner: NftOwner {
            shared,
            mark: Mark { comment: format!("kind-{owner}").into_bytes(), identifying: None },
            chains: chains.iter().map(|chain| (*chain).to_owned()).collect(),
            outer: None,
        },
        entries: vec![entry("ours", chains.first()), entry("theirs", None)],
        contents: chains.iter().map(|_| vec![vec![verdict(Verdict::Return)]]).collect(),
    }
}

fn private() {
    assert_eq!(std::env::var("POSTERN_PRIVATE").as_deref(), Ok("1"), "run this test by cargo, for its runner");
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
}

/// A set in several shared chains, with and without own chains, is made, compared, listed, found by handles and
/// removed.
#[test]
fn a_set_may_lie_in_any_chains() {
    private();
    let mut nft = open();
    let shared = shared();
    for (chains, others) in [(&["own"][..], &["other"][..]), (&[], &[])] {
        let (mine, other) = (set(shared, "mine", chains), set(shared, "other", others));
        let handles = mine.ensure(&mut nft, EntryScope::All, |_| false).unwrap().unwrap();
        assert_eq!(handles.len(), 2);
        assert!(mine.check(&mut nft, &[]).unwrap() && !other.check(&mut nft, &[]).unwrap());
        other.ensure(&mut nft, EntryScope::None, |_| false).unwrap();
        assert!(mine.check(&mut open(), &handles).unwrap() && other.check(&mut open(), &[]).unwrap());
        assert_eq!(mine.ensure(&mut nft, EntryScope::All, |_| false).unwrap(), Some(Vec::new()), "all there");
        assert_eq!(shared.list(&mut nft, |rule| rule.comment.clone()).unwrap().len(), 4);
        assert!(!shared.is_unused(&mut nft).unwrap());
        let removed = mine.owner.remove(&mut nft, &handles, &[], |_| true).unwrap();
        assert_eq!(removed, 2 + chains.len());
        assert!(!mine.check(&mut nft, &[]).unwrap() && other.check(&mut nft, &[]).unwrap());
        let gone = shared.retain(&mut nft, |rule| rule.commented(b"kind-other"), |_| Ok(())).unwrap();
        assert_eq!(gone.len(), 2);
        assert_eq!(shared.is_unused(&mut nft).unwrap(), others.is_empty(), "a chain that nothing leads to");
        other.owner.remove(&mut nft, &[], &[], |_| true).unwrap();
        assert!(shared.is_unused(&mut nft).unwrap());
        nft.change(|_, batch| {
            batch.delete_table(TABLE);
            Ok(())
        })
        .unwrap();
    }
}

/// Makes a chain of 1000 rules, each with its number as comment.
fn make_many(nft: &mut Nft) {
    nft.change(|_, batch| {
        batch.add_table(TABLE, None);
        batch.add_chain(TABLE, "c", None, None);
        for number in 0..1000 {
            let comment = number.to_string();
            batch.append_rule(TABLE, "c", &[verdict(Verdict::Return)], Some(comment.as_bytes()));
        }
        Ok(())
    })
    .unwrap();
}

fn all_of_c() -> NfTablesMessage {
    let attributes = vec![RuleAttribute::Table(TABLE.name.to_owned()), RuleAttribute::Chain("c".to_owned())];
    NfTablesMessage::GetRule(RuleMessage { attributes })
}

/// Reading of a list stops when enough was read. The next question gets a normal answer.
#[test]
fn a_list_is_read_as_far_as_needed() {
    private();
    let mut nft = open();
    make_many(&mut nft);
    let some = |nft: &mut Nft, wanted: &[u8]| {
        let has = |rules: &[NftRule]| rules.iter().any(|rule| rule.commented(wanted));
        nft.dump_until(TABLE.family, all_of_c(), |rule| Some(NftRule::read(rule)), has).unwrap().len()
    };
    let first = some(&mut nft, b"0");
    assert!((1..300).contains(&first), "{first}");
    assert_eq!(nft.retired.len(), 1);
    assert_eq!(nft.rules(TABLE, "c").unwrap().len(), 1000);
    assert_eq!((some(&mut nft, b"none"), nft.retired.len()), (1000, 1));
    assert!(some(&mut nft, b"0") < 300);
}

/// An answer is kept only as long as the rules stay the same.
#[test]
fn an_answer_is_as_old_as_the_rules() {
    private();
    let (mut nft, mut other) = (open(), open());
    make(&mut nft, b"ours");
    let count = |nft: &mut Nft| nft.look(|nft| Ok::<_, FirewallError>(nft.rules(TABLE, "c")?.len())).unwrap();
    assert_eq!((count(&mut nft), nft.memory.answers.len()), (1, 1));
    // The test empties the kept answer: an empty answer shows that the kernel is not asked again.
    let answer = nft.memory.answers.values_mut().next().unwrap();
    answer.as_mut().unwrap().clear();
    assert_eq!(count(&mut nft), 0);
    // Without a known generation the kept answer is not used.
    assert_eq!(nft.rules(TABLE, "c").unwrap().len(), 1);
    other
        .change(|_, batch| {
            batch.append_rule(TABLE, "c", &[verdict(Verdict::Return)], Some(b"theirs"));
            Ok(())
        })
        .unwrap();
    assert_eq!(count(&mut nft), 2, "another program changed the rules");
    nft.change(|nft, batch| {
        let rules = nft.rules(TABLE, "c")?;
        batch.delete_rule(TABLE, "c", rules[0].handle);
        Ok(())
    })
    .unwrap();
    assert_eq!(count(&mut nft), 1, "this connection changed them");
}
