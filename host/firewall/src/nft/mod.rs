//! nf_tables of one network namespace: read, then make the missing changes in one transaction.

pub(crate) mod batch;
pub(crate) mod rule;
pub(crate) mod set;
pub(crate) mod shared;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, GenMessage, NfTablesMessage, RuleAttribute, RuleMessage, TableAttribute, TableMessage,
};
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::errno::Errno;
use postern_netlink::{Attributes, Connection, Error, Refusal, Request};

use crate::FirewallError;
use crate::error::errno_of;
use batch::{Batch, Part, Table, following, message};
use rule::Rule;
use set::{CompleteSet, Owner};

/// The number of further tries for a state that may not pass: a foreign reference, or a name that is taken.
const RETRIES: u32 = 3;

/// The most objects of one answer that are kept for the next question.
const MOST_KEPT: usize = 256;

/// `NFTA_GEN_ID`, `NFTA_TABLE_USE`, `_HANDLE`, `NFTA_CHAIN_TABLE`, `_NAME`, `_HOOK`, `_POLICY`, `_TYPE`, `NFTA_RULE_CHAIN`
/// (linux/netfilter/nf_tables.h).
const GEN_ID: u16 = 1;
const TABLE_USE: u16 = 3;
const TABLE_HANDLE: u16 = 4;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_USE: u16 = 6;
const CHAIN_TYPE: u16 = 7;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
/// `NFTA_HOOK_HOOKNUM`, with the hook and the policy that we look for (linux/netfilter.h).
const HOOK_NUMBER: u16 = 1;
const NF_INET_FORWARD: u32 = 2;
const NF_DROP: u32 = 0;

/// A connection to nf_tables, in the network namespace of the thread that opened it. One deadline covers all its
/// requests.
///
/// Closing it after a deletion waits for an RCU grace period (some 10 ms), unless the kernel has already cleaned up. On
/// DEL, keep it open while links are deleted, and drop it last.
#[derive(Debug)]
pub struct Nft {
    connection: Connection,
    deadline: Instant,
    /// The sets that this connection has completed, and the generation of the rules since then.
    complete: (Vec<CompleteSet>, u32),
    /// Connections with an answer that was not read to its end. They are closed with this one: closing one may wait.
    #[allow(dead_code, reason = "they are kept until this is dropped")]
    retired: Vec<Connection>,
    memory: Memory,
    /// A network of which a collection has found nothing, and the generation of the rules then.
    without_others: Option<(String, u32)>,
}

/// A request's type and payload. The flag is true if it asks for all objects, and not for one.
type Question = (u16, Vec<u8>, bool);

fn question(request: &Request, all: bool) -> Question {
    let (kind, _, payload) = request.parts();
    (kind, payload.to_vec(), all)
}

/// Answers of the kernel, for questions that are asked again while the rules are of the same generation.
#[derive(Debug, Default)]
struct Memory {
    generation: u32,
    /// The objects of each answer, or the refusal.
    answers: HashMap<Question, Result<Vec<Vec<u8>>, Errno>>,
    /// True while the generation is known to be the current one, or to be checked by the kernel.
    is_open: bool,
}

impl Memory {
    /// Begins to use the answers of this generation.
    fn open(&mut self, generation: u32) {
        if self.generation != generation {
            self.forget();
        }
        (self.generation, self.is_open) = (generation, true);
    }

    fn forget(&mut self) {
        self.answers.clear();
    }

    fn recall(&self, question: &Question) -> Option<&Result<Vec<Vec<u8>>, Errno>> {
        self.answers.get(question).filter(|_| self.is_open)
    }

    fn keep(&mut self, question: Question, answer: Result<Vec<Vec<u8>>, Errno>) {
        if self.is_open && answer.as_ref().map_or_else(|errno| *errno == Errno::ENOENT, |all| all.len() <= MOST_KEPT) {
            self.answers.insert(question, answer);
        }
    }
}

/// The operation and object of errors about a whole transaction.
const TRANSACTION: (&str, &str) = ("commit", "nftables transaction");

fn finish(made: Result<Result<Vec<Rule>, FirewallError>, Error>) -> Result<Vec<Rule>, FirewallError> {
    let (operation, object) = TRANSACTION;
    made.unwrap_or_else(|error| Err(FirewallError::errno(operation, object, errno_of(error))))
}

fn connect() -> Result<Connection, FirewallError> {
    // This option keeps the request out of the kernel's error messages.
    Connection::open(NETLINK_NETFILTER, |socket| socket.set_cap_ack(true))
        .map_err(|error| FirewallError::io("open", "netlink socket to nf_tables", &error))
}

/// True if a socket's error number says that the kernel has no netfilter netlink at all (socket(2)).
#[must_use]
pub fn is_absence(errno: i32) -> bool {
    [Errno::EPROTONOSUPPORT, Errno::EAFNOSUPPORT, Errno::ESOCKTNOSUPPORT, Errno::EOPNOTSUPP]
        .contains(&Errno::from_raw(errno))
}

/// A table as the kernel reported it.
pub(crate) struct TableState {
    /// The number of chains, sets, objects and flow tables in it.
    pub(crate) uses: u32,
    /// Its number. No other table of this boot has it.
    pub(crate) handle: Option<u64>,
}

/// A chain as the kernel reported it.
pub(crate) struct ChainState {
    /// "nat", "filter", …; only base chains have a type.
    pub(crate) kind: Option<String>,
    /// The number of rules in it, and of rules that lead to it.
    pub(crate) uses: u32,
}

impl Nft {
    /// Opens a connection. Every operation fails with a timeout once `deadline` has passed. A transaction that the
    /// kernel is working on is not interrupted.
    ///
    /// # Errors
    /// The kernel has no nfnetlink, or no descriptor is left.
    pub fn open(deadline: Instant) -> Result<Self, FirewallError> {
        let (complete, retired, memory) = ((Vec::new(), 0), Vec::new(), Memory::default());
        connect().map(|connection| Self { connection, deadline, complete, retired, memory, without_others: None })
    }

    /// Notes that a network has no rules besides those that stay, while the rules are of this generation.
    pub(crate) fn note_without_others(&mut self, network: &str, generation: u32) {
        self.without_others = Some((network.to_owned(), generation));
    }

    /// True if [`Nft::note_without_others`] was called for this network and generation.
    pub(crate) fn is_without_others(&self, network: &str, generation: u32) -> bool {
        self.without_others.as_ref().is_some_and(|(noted, then)| noted == network && *then == generation)
    }

    /// Sets a new deadline.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// True if nftables can be used here: the kernel has it, and we may read it.
    #[must_use]
    pub fn usable(deadline: Instant) -> bool {
        Self::open(deadline).is_ok_and(|mut nft| nft.generation().is_ok())
    }

    /// True if the kernel has no nf_tables.
    #[must_use]
    pub fn is_absent(&mut self) -> bool {
        let absent =
            |error: FirewallError| error.errno.is_some_and(|errno| errno == Errno::EINVAL as i32 || is_absence(errno));
        self.generation().is_err_and(absent)
    }

    /// Returns the rule set's generation. Every change in the namespace increments it, whoever makes the change.
    pub(crate) fn generation(&mut self) -> Result<u32, FirewallError> {
        let request = NfTablesMessage::GetGen(GenMessage { attributes: Vec::new() });
        self.ask(Request::new(&message(NetfilterProtoFamily::Unspec, 0, request), 0))
            .and_then(|reply| number(Attributes(&reply), GEN_ID).ok_or(Errno::EBADMSG))
            .map_err(|errno| FirewallError::errno("read", "the nftables generation", errno))
    }

    /// Returns the table, if it exists.
    pub(crate) fn table(&mut self, table: Table) -> Result<Option<TableState>, FirewallError> {
        let attributes = vec![TableAttribute::Name(table.name.to_owned())];
        match self.get(table.family, NfTablesMessage::GetTable(TableMessage { attributes })) {
            Ok(reply) => Ok(Some(TableState {
                uses: number(Attributes(&reply), TABLE_USE).unwrap_or(u32::MAX),
                handle: Attributes(&reply).first(TABLE_HANDLE).and_then(|handle| handle.be64()),
            })),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(FirewallError::errno("read table", table.to_string(), errno)),
        }
    }

    /// Returns the chain, if it and its table exist.
    pub(crate) fn chain(&mut self, table: Table, name: &str) -> Result<Option<ChainState>, FirewallError> {
        let attributes = vec![ChainAttribute::Table(table.name.to_owned()), ChainAttribute::Name(name.to_owned())];
        match self.get(table.family, NfTablesMessage::GetChain(ChainMessage { attributes })) {
            Ok(reply) => Ok(Some(ChainState {
                kind: text(Attributes(&reply), CHAIN_TYPE),
                uses: number(Attributes(&reply), CHAIN_USE).unwrap_or(u32::MAX),
            })),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(FirewallError::errno("read chain", format!("{table} {name}"), errno)),
        }
    }

    /// Returns the names of all chains of a table: none if there is no such table.
    pub(crate) fn chain_names(&mut self, table: Table) -> Result<Vec<String>, FirewallError> {
        let request = NfTablesMessage::GetChain(ChainMessage { attributes: Vec::new() });
        self.dump(table.family, request, |chain| {
            text(chain, CHAIN_NAME).filter(|_| text(chain, CHAIN_TABLE).as_deref() == Some(table.name))
        })
        .map_err(|errno| FirewallError::errno("list chains of", table.to_string(), errno))
    }

    /// Returns a family's chains for forwarded packets, each with its table. The flag is true if the chain's policy is
    /// to drop.
    pub(crate) fn forward_chains(
        &mut self,
        family: NetfilterProtoFamily,
    ) -> Result<Vec<(String, String, bool)>, FirewallError> {
        let request = NfTablesMessage::GetChain(ChainMessage { attributes: Vec::new() });
        self.dump(family, request, |chain| {
            let hook = number(chain.first(CHAIN_HOOK)?.nested(), HOOK_NUMBER)?;
            let drops = number(chain, CHAIN_POLICY) == Some(NF_DROP);
            let names = (text(chain, CHAIN_TABLE)?, text(chain, CHAIN_NAME)?, drops);
            (hook == NF_INET_FORWARD).then_some(names)
        })
        .map_err(|errno| FirewallError::errno("list", "chains", errno))
    }

    /// Returns the rules of a chain in their order: none if there is no such chain.
    pub(crate) fn rules(&mut self, table: Table, chain: &str) -> Result<Vec<Rule>, FirewallError> {
        let attributes = vec![RuleAttribute::Table(table.name.to_owned()), RuleAttribute::Chain(chain.to_owned())];
        let request = NfTablesMessage::GetRule(RuleMessage { attributes });
        self.dump(table.family, request, |rule| Some(Rule::read(rule)))
            .map_err(|errno| FirewallError::errno("list rules of", format!("{table} {chain}"), errno))
    }

    /// Returns the rule with this handle, without reading the others of its chain; `None` if there is none.
    pub(crate) fn rule(&mut self, table: Table, chain: &str, handle: u64) -> Result<Option<Rule>, FirewallError> {
        let attributes = vec![
            RuleAttribute::Table(table.name.to_owned()),
            RuleAttribute::Chain(chain.to_owned()),
            RuleAttribute::Handle(handle),
        ];
        match self.get(table.family, NfTablesMessage::GetRule(RuleMessage { attributes })) {
            Ok(reply) => Ok(Some(Rule::read(Attributes(&reply)))),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(FirewallError::errno("read rule of", format!("{table} {chain}"), errno)),
        }
    }

    /// Returns the rules of all chains of a table, by chain, in one request: none if there is no such table.
    pub(crate) fn rules_by_chain(&mut self, table: Table) -> Result<HashMap<String, Vec<Rule>>, FirewallError> {
        let attributes = vec![RuleAttribute::Table(table.name.to_owned())];
        let request = NfTablesMessage::GetRule(RuleMessage { attributes });
        let rules = self
            .dump(table.family, request, |rule| Some((text(rule, RULE_CHAIN)?, Rule::read(rule))))
            .map_err(|errno| FirewallError::errno("list rules of", table.to_string(), errno))?;
        let mut chains: HashMap<String, Vec<Rule>> = HashMap::new();
        for (chain, rule) in rules {
            chains.entry(chain).or_default().push(rule);
        }
        Ok(chains)
    }

    /// Runs `plan`, then makes the changes that it put into the batch. `plan` reads the rule set first. If another
    /// program changes the rules after `plan` began, all of it is done again.
    ///
    /// An empty batch costs nothing.
    pub(crate) fn change<T>(
        &mut self,
        plan: impl FnMut(&mut Self, &mut Batch) -> Result<T, FirewallError>,
    ) -> Result<T, FirewallError> {
        self.change_and_see(plan).map(|(value, _)| value)
    }

    /// As [`Nft::change`]. It also returns the rules of [`Batch::append_seen_rule`] as the kernel made them, in their
    /// order.
    pub(crate) fn change_and_see<T>(
        &mut self,
        mut plan: impl FnMut(&mut Self, &mut Batch) -> Result<T, FirewallError>,
    ) -> Result<(T, Vec<Rule>), FirewallError> {
        let mut attempt = 0;
        loop {
            let mut batch = Batch::new(self.generation()?);
            // The kernel refuses the batch if its generation has passed, and so whatever was read before.
            self.memory.open(batch.generation());
            let planned = plan(self, &mut batch);
            self.memory.is_open = false;
            let outcome = planned.and_then(|value| self.commit(&batch).map(|made| (value, made)));
            let Err(error) = outcome else {
                self.note_commit(&batch);
                return outcome;
            };
            // The failed plan completed no set.
            self.complete.0.clear();
            attempt += 1;
            let again = match error.errno.map(Errno::from_raw) {
                Some(Errno::ERESTART | Errno::EINTR | Errno::EAGAIN) => Instant::now() < self.deadline,
                Some(Errno::EEXIST | Errno::EBUSY | Errno::ENOENT) => attempt <= RETRIES,
                _ => false,
            };
            if !again {
                return Err(error);
            }
            // The first retries follow at once: a conflict lasts as long as one transaction.
            if attempt > RETRIES {
                std::thread::sleep(Duration::from_micros(u64::from(attempt.min(20)) * 50));
            }
        }
    }

    /// Asks several questions about the rules as they are now. An answer that is needed again, here or in a change of the
    /// same rules, is not asked for twice.
    pub(crate) fn look<T, E: From<FirewallError>>(
        &mut self,
        questions: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let generation = self.generation()?;
        self.memory.open(generation);
        let answers = questions(self);
        self.memory.is_open = false;
        answers
    }

    /// Notes a change of our own. A complete set stays complete if no other program changed a rule meanwhile.
    fn note_commit(&mut self, batch: &Batch) {
        let (complete, generation) = &mut self.complete;
        if *generation != batch.generation() {
            complete.clear();
        } else if !batch.is_empty() {
            *generation = following(*generation);
        }
    }

    /// Notes the set that the planned change completes.
    pub(crate) fn note_complete(&mut self, made: CompleteSet, batch: &Batch) {
        let (complete, generation) = &mut self.complete;
        if *generation != batch.generation() {
            complete.clear();
            *generation = batch.generation();
        }
        complete.push(made);
    }

    /// Forgets the sets of an owner: they are being removed or made again.
    pub(crate) fn forget(&mut self, owner: &Owner<'_>) {
        self.complete.0.retain(|complete| !complete.is_of(owner));
    }

    /// True if that set was complete, and no other connection has changed a rule of the namespace since.
    pub(crate) fn is_still_complete(&mut self, set: &CompleteSet) -> Result<bool, FirewallError> {
        let (complete, generation) = &self.complete;
        let generation = *generation;
        Ok(complete.contains(set) && self.generation()? == generation)
    }

    /// Makes the changes of a batch. It is one transaction if the kernel takes it. A process without privileges on the
    /// node may send no more than `net.core.wmem_max` allows: then it is several, and an error leaves those before.
    fn commit(&mut self, batch: &Batch) -> Result<Vec<Rule>, FirewallError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.memory.forget();
        let made = match self.transact(&batch.whole()) {
            Err(Error::System(error)) if error.raw_os_error() == Some(Errno::EMSGSIZE as i32) => {
                let mut made = Vec::new();
                for part in batch.parts(self.connection.room()) {
                    match self.transact(&part) {
                        Ok(Ok(more)) => made.extend(more),
                        refused => return finish(refused),
                    }
                }
                return Ok(made);
            }
            outcome => outcome,
        };
        finish(made)
    }

    /// Makes some changes in one transaction. Returns the new rules that the kernel shows, or its refusal.
    fn transact(&self, part: &Part<'_>) -> Result<Result<Vec<Rule>, FirewallError>, Error> {
        let mut made = Vec::new();
        let (requests, last) = part.write();
        let refusal = self.connection.transact(&requests, last, self.deadline, |echo| {
            // The kernel also reports the new generation, which has no expressions.
            let rule = attributes(echo);
            made.extend(rule.first(RULE_EXPRESSIONS).map(|_| Rule::read(rule)));
        })?;
        let refused = |refusal: Refusal| {
            let (operation, object) = part.describe(refusal.request).unwrap_or(TRANSACTION);
            FirewallError::errno(operation, object, Errno::from_raw(refusal.errno))
        };
        Ok(refusal.map_or(Ok(made), |refusal| Err(refused(refusal))))
    }

    /// Requests one object. Returns its attributes.
    fn get(&mut self, family: NetfilterProtoFamily, request: NfTablesMessage) -> Result<Vec<u8>, Errno> {
        let request = Request::new(&message(family, 0, request), 0);
        let question = question(&request, false);
        if let Some(answer) = self.memory.recall(&question) {
            return answer.as_ref().map(|all| all.first().cloned().unwrap_or_default()).map_err(|errno| *errno);
        }
        let answer = self.ask(request);
        self.memory.keep(question, answer.clone().map(|object| vec![object]));
        answer
    }

    fn ask(&self, request: Request) -> Result<Vec<u8>, Errno> {
        let answer = self.connection.get(request, self.deadline, |answer| Some(attributes(answer).0.to_vec()));
        answer.map_err(errno_of).map(Option::unwrap_or_default)
    }

    /// Requests all objects and collects the results of `read`. It asks again while other changes interrupt the answer.
    pub(crate) fn dump<T>(
        &mut self,
        family: NetfilterProtoFamily,
        request: NfTablesMessage,
        read: impl Fn(Attributes<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Errno> {
        let request = Request::new(&message(family, 0, request), 0);
        // Only the deadline limits the answer: a node can have any number of rules.
        let limits = (usize::MAX, usize::MAX);
        if !self.memory.is_open {
            let objects = self.connection.dump(request, self.deadline, limits, |answer, all| {
                all.extend(read(attributes(answer)));
                Some(())
            });
            return objects.map_err(errno_of);
        }
        let seen = |objects: &[Vec<u8>]| objects.iter().filter_map(|object| read(Attributes(object))).collect();
        let question = question(&request, true);
        if let Some(Ok(objects)) = self.memory.recall(&question) {
            return Ok(seen(objects));
        }
        let objects = self.connection.dump(request, self.deadline, limits, |answer, all| {
            all.push(attributes(answer).0.to_vec());
            Some(())
        });
        let objects = objects.map_err(errno_of)?;
        let all = seen(&objects);
        self.memory.keep(question, Ok(objects));
        Ok(all)
    }

    /// As [`Nft::dump`], until `enough` holds for the objects that were read so far. What the kernel has not shown yet is
    /// not read.
    pub(crate) fn dump_until<T>(
        &mut self,
        family: NetfilterProtoFamily,
        request: NfTablesMessage,
        read: impl Fn(Attributes<'_>) -> Option<T>,
        enough: impl FnMut(&[T]) -> bool,
    ) -> Result<Vec<T>, FirewallError> {
        let request = Request::new(&message(family, 0, request), 0);
        let failed = |errno| FirewallError::errno("list", "rules", errno);
        let read = |answer: &[u8]| read(attributes(answer));
        let (objects, whole) = self
            .connection
            .dump_until(request, self.deadline, read, enough)
            .map_err(|error| failed(errno_of(error)))?;
        if !whole {
            self.retired.push(std::mem::replace(&mut self.connection, connect()?));
        }
        Ok(objects)
    }
}

impl Nft {
    /// Requests all objects of another part of netfilter.
    pub(crate) fn dump_raw<T>(
        &mut self,
        request: Request,
        read: impl Fn(Attributes<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Errno> {
        let objects = self.connection.dump(request, self.deadline, (usize::MAX, usize::MAX), |answer, all| {
            all.extend(read(attributes(answer)));
            Some(())
        });
        objects.map_err(errno_of)
    }

    /// Requests a change of another part of netfilter. The request asks for an acknowledgement.
    pub(crate) fn ask_raw(&mut self, request: Request) -> Result<(), Errno> {
        self.connection.ask(&[request], self.deadline, |_| {}).map(drop).map_err(errno_of)
    }
}

/// Returns the attributes of an answer, which follow `struct nfgenmsg`.
fn attributes(answer: &[u8]) -> Attributes<'_> {
    Attributes(answer.get(4..).unwrap_or_default())
}

fn number(object: Attributes<'_>, kind: u16) -> Option<u32> {
    object.first(kind)?.be32()
}

fn text(object: Attributes<'_>, kind: u16) -> Option<String> {
    Some(object.first(kind)?.text_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use netlink_packet_netfilter::nftables::Verdict;
    use nix::sched::{CloneFlags, unshare};

    use super::rule::verdict;
    use super::set::{Entry, Look, Mark, RuleSet};
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
        assert_eq!(std::env::var("POSTERN_PRIVATE").as_deref(), Ok("1"), "run by cargo, for its runner");
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
                // Between look and change, a foreign rule takes the place and the handle of ours.
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
        assert_eq!(rules[0].handle, handle, "the case that this is about");
        assert!(rules[0].commented(b"theirs"));
    }

    #[test]
    fn errors_name_the_change_that_failed() {
        assert_eq!(std::env::var("POSTERN_PRIVATE").as_deref(), Ok("1"), "run by cargo, for its runner");
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
    fn shared() -> SharedTable {
        let chain = |name, has_entries, rules| SharedChain {
            name,
            base: None,
            wrong_kind: None,
            comment: None,
            rules,
            has_entries,
        };
        let lead = (shared::Place::Last, vec![rule::to_chain(Verdict::Jump, "ours")]);
        let chains =
            vec![chain("ours", true, Vec::new()), chain("theirs", true, Vec::new()), chain("top", false, vec![lead])];
        SharedTable { table: TABLE, comment: None, chains, kind: "kind-", is_named_for_plugins: true }
    }

    fn set<'a>(shared: &'a SharedTable, owner: &str, chains: &[&str]) -> RuleSet<'a> {
        let entry = |chain, target: Option<&&str>| {
            let verdict = match target {
                Some(target) => rule::to_chain(Verdict::Jump, target),
                None => verdict(Verdict::Return),
            };
            Entry { chain, rule: vec![verdict] }
        };
        RuleSet {
            owner: Owner {
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
        assert_eq!(std::env::var("POSTERN_PRIVATE").as_deref(), Ok("1"), "run by cargo, for its runner");
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
    }

    /// A set in several shared chains, with its own chains and without. It is made, compared, listed, found by handles
    /// and removed.
    #[test]
    fn a_set_may_lie_in_any_chains() {
        private();
        let mut nft = open();
        let shared = shared();
        for (chains, others) in [(&["own"][..], &["other"][..]), (&[], &[])] {
            let (mine, other) = (set(&shared, "mine", chains), set(&shared, "other", others));
            let handles = mine.ensure(&mut nft, Look::All, |_| false).unwrap().unwrap();
            assert_eq!(handles.len(), 2);
            assert!(mine.check(&mut nft, &[]).unwrap() && !other.check(&mut nft, &[]).unwrap());
            other.ensure(&mut nft, Look::None, |_| false).unwrap();
            assert!(mine.check(&mut open(), &handles).unwrap() && other.check(&mut open(), &[]).unwrap());
            assert_eq!(mine.ensure(&mut nft, Look::All, |_| false).unwrap(), Some(Vec::new()), "all there");
            assert_eq!(shared.list(&mut nft, |rule| rule.comment.clone()).unwrap().len(), 4);
            assert!(!shared.is_unused(&mut nft).unwrap());
            let removed = mine.owner.remove(&mut nft, &handles, |_| true).unwrap();
            assert_eq!((removed.entries, removed.chains), (2, chains.len()));
            assert!(!mine.check(&mut nft, &[]).unwrap() && other.check(&mut nft, &[]).unwrap());
            let gone = shared.retain(&mut nft, |rule| rule.commented(b"kind-other"), |_| Ok(())).unwrap();
            assert_eq!(gone.len(), 2);
            assert_eq!(shared.is_unused(&mut nft).unwrap(), others.is_empty(), "a chain that nothing leads to");
            other.owner.remove(&mut nft, &[], |_| true).unwrap();
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

    /// A list is left where enough of it was read. The next question is answered as any.
    #[test]
    fn a_list_is_read_as_far_as_needed() {
        private();
        let mut nft = open();
        make_many(&mut nft);
        let some = |nft: &mut Nft, wanted: &[u8]| {
            let has = |rules: &[Rule]| rules.iter().any(|rule| rule.commented(wanted));
            nft.dump_until(TABLE.family, all_of_c(), |rule| Some(Rule::read(rule)), has).unwrap().len()
        };
        let first = some(&mut nft, b"0");
        assert!((1..300).contains(&first), "{first}");
        assert_eq!(nft.retired.len(), 1);
        assert_eq!(nft.rules(TABLE, "c").unwrap().len(), 1000);
        assert_eq!((some(&mut nft, b"none"), nft.retired.len()), (1000, 1));
        assert!(some(&mut nft, b"0") < 300);
    }

    /// An answer is remembered while the rules are the same, and no longer.
    #[test]
    fn an_answer_is_as_old_as_the_rules() {
        private();
        let (mut nft, mut other) = (open(), open());
        make(&mut nft, b"ours");
        let count = |nft: &mut Nft| nft.look(|nft| Ok::<_, FirewallError>(nft.rules(TABLE, "c")?.len())).unwrap();
        assert_eq!((count(&mut nft), nft.memory.answers.len()), (1, 1));
        // The kernel is not asked again: this answer is not its own.
        let answer = nft.memory.answers.values_mut().next().unwrap();
        answer.as_mut().unwrap().clear();
        assert_eq!(count(&mut nft), 0);
        // Nor is it where no generation is known.
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

    /// A refused change does not count as made.
    #[test]
    fn a_refused_change_completes_nothing() {
        private();
        let mut nft = open();
        let shared = shared();
        let mine = set(&shared, "mine", &[]);
        mine.ensure(&mut nft, Look::All, |_| false).unwrap();
        let complete = nft.complete.0.first().cloned().unwrap();
        assert!(nft.is_still_complete(&complete).unwrap());
        mine.owner.remove(&mut nft, &[], |_| true).unwrap();
        assert!(!nft.is_still_complete(&complete).unwrap());
        let refused = nft.change(|nft, batch| {
            nft.note_complete(complete.clone(), batch);
            batch.flush_chain(TABLE, "missing");
            Ok(())
        });
        assert!(refused.is_err() && !nft.is_still_complete(&complete).unwrap());
    }
}
