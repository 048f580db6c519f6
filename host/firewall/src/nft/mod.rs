//! nf_tables of one network namespace. Callers read the rules, and then make the missing changes in one transaction.

pub(crate) mod batch;
mod expression;
pub(crate) mod read;
pub(crate) mod rule;
pub(crate) mod set;
pub(crate) mod shared;

/// Imports of the files that make rules.
pub(crate) mod prelude {
    pub(crate) use super::batch::{BaseChain, Table};
    pub(crate) use super::rule::{self, Expression, NftRule, Side};
    pub(crate) use super::set::{EntryScope, Mark, NftOwner, NftRuleSet, SharedRule};
    pub(crate) use super::shared::{NftPlace, SharedChain, SharedTable};
    pub(crate) use crate::{AttachmentKey, FirewallError, Nft};
    pub(crate) use ipnet::IpNet;
    pub(crate) use netlink_packet_netfilter::NetfilterProtoFamily;
    pub(crate) use netlink_packet_netfilter::nftables::{InetHookNumber, Verdict};
    pub(crate) use std::collections::HashSet;
    pub(crate) use std::net::IpAddr;
    pub(crate) use std::sync::LazyLock;
}

use std::collections::HashMap;
use std::time::{Duration, Instant};

use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::NfTablesMessage;
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::errno::Errno;
use postern_netlink::{Attributes, Connection, DumpLimits, NetlinkError, NetlinkRequest, RefusedRequest};

use crate::FirewallError;
use crate::error::errno_of;
use crate::variant;
use batch::{Batch, BatchPart, Table, message};
use read::RULE_EXPRESSIONS;
use rule::NftRule;

/// The number of further attempts after an error that may be permanent: a foreign reference, or a name that is taken.
const RETRIES: u32 = 3;

/// The largest answer, in objects, that is kept for the next question.
const MOST_KEPT: usize = 256;

/// A connection to nf_tables, in the network namespace of the thread that opened it. One deadline covers all its
/// requests.
///
/// After a deletion, closing the connection waits for an RCU grace period (some 10 ms), unless the kernel has already
/// cleaned up. On DEL, keep the connection open while links are deleted, and drop it last.
#[derive(Debug)]
pub struct Nft {
    connection: Connection,
    deadline: Instant,
    /// Connections with an answer that was not read to its end. They are closed together with this connection, because
    /// closing may wait.
    #[allow(dead_code, reason = "the connections are kept until `Nft` is dropped")]
    retired: Vec<Connection>,
    memory: Memory,
    /// A network in which GC found no rules to remove, and the generation of the rules at that time.
    pub(crate) without_others: Option<(String, u32)>,
    /// True if all iptables rules in this namespace are in nf_tables, for IPv4 and for IPv6.
    serves_iptables: [Option<bool>; 2],
}

/// A request's type and payload. The flag is true for a request of all objects, false for a request of one object.
type Question = (u16, Vec<u8>, bool);

fn question(request: &NetlinkRequest, all: bool) -> Question {
    let (kind, _, payload) = request.parts();
    (kind, payload.to_vec(), all)
}

/// Answers of the kernel, for repeated questions as long as the rules have the same generation.
#[derive(Debug, Default)]
struct Memory {
    generation: u32,
    /// The objects of each answer, or the refusal.
    answers: HashMap<Question, Result<Vec<Vec<u8>>, Errno>>,
    /// True while the generation is known to be current, or while the kernel will check the generation.
    is_open: bool,
}

impl Memory {
    /// Begins to use the answers of this generation.
    fn open(&mut self, generation: u32) {
        if self.generation != generation {
            self.answers.clear();
        }
        (self.generation, self.is_open) = (generation, true);
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

fn finish(made: Result<Result<Vec<NftRule>, FirewallError>, NetlinkError>) -> Result<Vec<NftRule>, FirewallError> {
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

impl Nft {
    /// Opens a connection. Every operation fails with a timeout once `deadline` has passed. A transaction that the
    /// kernel is working on is not interrupted.
    ///
    /// # Errors
    /// The kernel has no nfnetlink, or no descriptor is left.
    pub fn open(deadline: Instant) -> Result<Self, FirewallError> {
        Ok(Self {
            connection: connect()?,
            deadline,
            retired: Vec::new(),
            memory: Memory::default(),
            without_others: None,
            serves_iptables: [None; 2],
        })
    }

    /// True if all iptables rules in this namespace are in nf_tables. The first answer is kept as long as the
    /// connection: for a run, a list or one command. Otherwise rules of one run could be in two places.
    pub(crate) fn serves_iptables(&mut self, v6: bool) -> bool {
        let known = self.variant(v6);
        if known.is_none() {
            *known = variant::serves(v6);
        }
        *known == Some(true)
    }

    /// The earlier answer of [`variant::serves`], if there is one.
    pub(crate) fn variant(&mut self, v6: bool) -> &mut Option<bool> {
        let [v4_serves, v6_serves] = &mut self.serves_iptables;
        if v6 { v6_serves } else { v4_serves }
    }

    /// Sets a new deadline.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Opens a connection if nftables can be used here: the kernel has nftables, and this process may read the rules.
    #[must_use]
    pub fn usable(deadline: Instant) -> Option<Self> {
        let mut nft = Self::open(deadline).ok()?;
        nft.generation().ok().map(|_| nft)
    }

    /// True if the kernel has no nf_tables.
    #[must_use]
    pub fn is_absent(&mut self) -> bool {
        let absent =
            |error: FirewallError| error.errno.is_some_and(|errno| errno == Errno::EINVAL as i32 || is_absence(errno));
        self.generation().is_err_and(absent)
    }

    /// Runs `plan`, then makes the changes that it put into the batch. `plan` reads the rule set first. If another
    /// program changes the rules after `plan` began, the plan is made again.
    ///
    /// An empty batch costs nothing.
    pub(crate) fn change<T>(
        &mut self,
        plan: impl FnMut(&mut Self, &mut Batch) -> Result<T, FirewallError>,
    ) -> Result<T, FirewallError> {
        self.change_and_see(plan).map(|(value, _)| value)
    }

    /// As [`Nft::change`]. Also returns the rules that were added with `seen` ([`Batch::add_rule`]), as the kernel made
    /// them, in their order.
    pub(crate) fn change_and_see<T>(
        &mut self,
        mut plan: impl FnMut(&mut Self, &mut Batch) -> Result<T, FirewallError>,
    ) -> Result<(T, Vec<NftRule>), FirewallError> {
        let mut attempt = 0;
        loop {
            let mut batch = Batch::new(self.generation()?);
            // The kernel refuses a batch of an old generation. So earlier answers of this generation may be used.
            self.memory.open(batch.generation);
            let planned = plan(self, &mut batch);
            self.memory.is_open = false;
            let outcome = planned.and_then(|value| self.commit(&batch).map(|made| (value, made)));
            let Err(error) = outcome else { return outcome };
            attempt += 1;
            let again = match error.errno.map(Errno::from_raw) {
                Some(Errno::ERESTART | Errno::EINTR | Errno::EAGAIN) => Instant::now() < self.deadline,
                Some(Errno::EEXIST | Errno::EBUSY | Errno::ENOENT) => attempt <= RETRIES,
                _ => false,
            };
            if !again {
                return Err(error);
            }
            // The first retries follow without a pause, because a conflict lasts only as long as one transaction.
            if attempt > RETRIES {
                std::thread::sleep(Duration::from_micros(u64::from(attempt.min(20)) * 50));
            }
        }
    }

    /// Deletes all these rules in the table with this number, by chains and handles, without reading them. The kernel
    /// never uses a handle twice in a table, and never uses a table's number twice.
    ///
    /// Returns false, and changes nothing, if the table or a rule is gone.
    pub(crate) fn delete_numbered(
        &mut self,
        table: Table,
        number: u64,
        rules: &[(&str, u64)],
    ) -> Result<bool, FirewallError> {
        let deleted = self.change(|nft, batch| {
            let is_same = nft.table(table)?.is_some_and(|state| state.handle == Some(number));
            for (chain, handle) in rules.iter().filter(|_| is_same) {
                batch.delete_rule(table, chain, *handle);
            }
            Ok(is_same)
        });
        match deleted {
            Err(error) if error.is_timeout() => Err(error),
            deleted => Ok(deleted.unwrap_or(false)),
        }
    }

    /// Asks several questions about the current rules. Each answer is kept. While the rules are the same, a repeated
    /// question or a change uses the kept answer again.
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

    /// Makes the changes of a batch. One transaction has all changes, if the kernel accepts it. A process without
    /// privileges on the node may send only `net.core.wmem_max` bytes. Then several transactions are made, and an error
    /// leaves the earlier transactions.
    fn commit(&mut self, batch: &Batch) -> Result<Vec<NftRule>, FirewallError> {
        if batch.changes.is_empty() {
            return Ok(Vec::new());
        }
        self.memory.answers.clear();
        if !batch.is_long() {
            match self.transact(&batch.whole()) {
                Err(NetlinkError::System(error)) if error.raw_os_error() == Some(Errno::EMSGSIZE as i32) => {}
                made => return finish(made),
            }
        }
        let mut made = Vec::new();
        for part in batch.parts(self.connection.room()) {
            made.extend(finish(self.transact(&part))?);
        }
        Ok(made)
    }

    /// Makes some changes in one transaction. Returns the new rules that the kernel shows, or the kernel's refusal.
    fn transact(&self, part: &BatchPart<'_>) -> Result<Result<Vec<NftRule>, FirewallError>, NetlinkError> {
        let mut made = Vec::new();
        let (requests, last) = part.write();
        let refusal = self.connection.transact(&requests, last, self.deadline, |echo| {
            // The kernel also reports the new generation, which has no expressions.
            let rule = attributes(echo);
            made.extend(rule.first(RULE_EXPRESSIONS).map(|_| NftRule::read(rule)));
        })?;
        let refused = |refusal: RefusedRequest| {
            let (operation, object) = part.describe(refusal.request).unwrap_or(TRANSACTION);
            FirewallError::errno(operation, object, Errno::from_raw(refusal.errno))
        };
        Ok(refusal.map_or(Ok(made), |refusal| Err(refused(refusal))))
    }

    /// Requests one object. Returns its attributes.
    fn get(&mut self, family: NetfilterProtoFamily, request: NfTablesMessage) -> Result<Vec<u8>, Errno> {
        let request = NetlinkRequest::new(&message(family, 0, request), 0);
        let question = question(&request, false);
        if let Some(answer) = self.memory.recall(&question) {
            return answer.as_ref().map(|all| all.first().cloned().unwrap_or_default()).map_err(|errno| *errno);
        }
        let answer = self.ask(request);
        self.memory.keep(question, answer.clone().map(|object| vec![object]));
        answer
    }

    fn ask(&self, request: NetlinkRequest) -> Result<Vec<u8>, Errno> {
        let answer = self.connection.get(request, self.deadline, |answer| Some(attributes(answer).0.to_vec()));
        answer.map_err(errno_of).map(Option::unwrap_or_default)
    }

    /// Requests all objects and collects the results of `read`. The request is repeated while other changes interrupt
    /// the answer.
    pub(crate) fn dump<T>(
        &mut self,
        family: NetfilterProtoFamily,
        request: NfTablesMessage,
        read: impl Fn(Attributes<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Errno> {
        let request = NetlinkRequest::new(&message(family, 0, request), 0);
        if !self.memory.is_open {
            return self.dump_raw(request, read);
        }
        let seen = |objects: &[Vec<u8>]| objects.iter().filter_map(|object| read(Attributes(object))).collect();
        let question = question(&request, true);
        if let Some(Ok(objects)) = self.memory.recall(&question) {
            return Ok(seen(objects));
        }
        let objects = self.dump_raw(request, |object| Some(object.0.to_vec()))?;
        let all = seen(&objects);
        self.memory.keep(question, Ok(objects));
        Ok(all)
    }

    /// As [`Nft::dump`], until `enough` is true for the objects that were read so far. The rest of the answer is not
    /// read.
    pub(crate) fn dump_until<T>(
        &mut self,
        family: NetfilterProtoFamily,
        request: NfTablesMessage,
        read: impl Fn(Attributes<'_>) -> Option<T>,
        enough: impl FnMut(&[T]) -> bool,
    ) -> Result<Vec<T>, FirewallError> {
        let request = NetlinkRequest::new(&message(family, 0, request), 0);
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

    /// Requests all objects of any part of netfilter. No kept answer is used.
    pub(crate) fn dump_raw<T>(
        &mut self,
        request: NetlinkRequest,
        read: impl Fn(Attributes<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Errno> {
        let read = |answer: &[u8]| Some(read(attributes(answer)));
        self.connection.dump(request, self.deadline, DumpLimits::NONE, read).map_err(errno_of)
    }

    /// Requests a change of a part of netfilter other than nf_tables. The request asks for an acknowledgement.
    pub(crate) fn ask_raw(&mut self, request: NetlinkRequest) -> Result<(), Errno> {
        self.connection.ask(&[request], self.deadline, |_| {}).map_err(errno_of)
    }
}

/// Returns the attributes of an answer, which follow `struct nfgenmsg`.
fn attributes(answer: &[u8]) -> Attributes<'_> {
    Attributes(answer.get(4..).unwrap_or_default())
}

#[cfg(test)]
mod tests;
