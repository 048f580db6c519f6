//! nf_tables of one network namespace: look, then change what is missing, in one transaction.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, GenMessage, NfTablesMessage, RuleAttribute, RuleMessage, TableAttribute, TableMessage,
};
use nix::errno::Errno;

use crate::FirewallError;
use crate::attribute::{be32, find, text};
use crate::batch::{Batch, Table};
use crate::rule::Rule;
use crate::transport::{Reply, Transport};

/// How often a state that need not pass (a foreign reference, a name that is taken) is looked at again.
const RETRIES: u32 = 3;

/// `NFTA_GEN_ID`, `NFTA_TABLE_USE`, `NFTA_CHAIN_TABLE`, `_NAME`, `_HOOK`, `_POLICY`, `_TYPE`, `NFTA_RULE_CHAIN`
/// (linux/netfilter/nf_tables.h).
const GEN_ID: u16 = 1;
const TABLE_USE: u16 = 3;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_USE: u16 = 6;
const CHAIN_TYPE: u16 = 7;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
/// `NFTA_HOOK_HOOKNUM`, and the values of it and of the policy that are looked for (linux/netfilter.h).
const HOOK_NUMBER: u16 = 1;
const NF_INET_FORWARD: u32 = 2;
const NF_DROP: u32 = 0;

/// A connection to nf_tables, in the network namespace of the thread that opened it, with a deadline for all it does.
///
/// Closing it after something was deleted waits for an RCU grace period (some 10 ms) unless the kernel's clean-up is
/// through: on DEL, keep it open while links are deleted, and drop it last.
#[derive(Debug)]
pub struct Nft {
    transport: Transport,
    /// What was whole when this connection last changed or compared it, and the generation of the rules since then.
    witness: Option<(Witnessed, u32)>,
}

/// A guard that was whole: its ID, port and address.
pub(crate) type Witnessed = (String, String, [u8; 6]);

/// Whether an error number of a socket says that the kernel has no netfilter netlink at all (socket(2)).
#[must_use]
pub fn is_absence(errno: i32) -> bool {
    [Errno::EPROTONOSUPPORT, Errno::EAFNOSUPPORT, Errno::ESOCKTNOSUPPORT, Errno::EOPNOTSUPP]
        .contains(&Errno::from_raw(errno))
}

/// A table as the kernel reported it.
pub(crate) struct TableState {
    /// Chains, sets, objects and flow tables in it.
    pub(crate) uses: u32,
}

/// A chain as the kernel reported it.
pub(crate) struct ChainState {
    /// "nat", "filter", …: base chains only.
    pub(crate) kind: Option<String>,
    /// Rules in it, and rules that lead to it.
    pub(crate) uses: u32,
}

impl Nft {
    /// Opens a connection. Whatever is done with it fails with a timeout once `deadline` has passed; one transaction
    /// that the kernel is working on is not interrupted.
    ///
    /// # Errors
    /// The kernel has no nfnetlink, or no descriptor is left.
    pub fn open(deadline: Instant) -> Result<Self, FirewallError> {
        Transport::open(deadline)
            .map(|transport| Self { transport, witness: None })
            .map_err(|error| FirewallError::io("open", "netlink socket to nf_tables", &error))
    }

    /// Sets another deadline.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.transport.set_deadline(deadline);
    }

    /// Whether nftables can be used here: the kernel has it, and we may see it.
    #[must_use]
    pub fn usable(deadline: Instant) -> bool {
        Self::open(deadline).is_ok_and(|mut nft| nft.generation().is_ok())
    }

    /// Whether the kernel has no nf_tables: it knows nobody who would answer.
    #[must_use]
    pub fn is_absent(&mut self) -> bool {
        let absent =
            |error: FirewallError| error.errno.is_some_and(|errno| errno == Errno::EINVAL as i32 || is_absence(errno));
        self.generation().is_err_and(absent)
    }

    /// The rule set's generation: every change in the namespace, whoever makes it, increments it.
    pub(crate) fn generation(&mut self) -> Result<u32, FirewallError> {
        let request = NfTablesMessage::GetGen(GenMessage { attributes: Vec::new() });
        self.get(NetfilterProtoFamily::Unspec, request)
            .and_then(|reply| find(&reply, GEN_ID).and_then(be32).ok_or(Errno::EBADMSG))
            .map_err(|errno| FirewallError::errno("read", "the nftables generation", errno))
    }

    /// The table, if it exists.
    pub(crate) fn table(&mut self, table: Table) -> Result<Option<TableState>, FirewallError> {
        let attributes = vec![TableAttribute::Name(table.name.to_owned())];
        match self.get(table.family, NfTablesMessage::GetTable(TableMessage { attributes })) {
            Ok(reply) => Ok(Some(TableState { uses: find(&reply, TABLE_USE).and_then(be32).unwrap_or(u32::MAX) })),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(FirewallError::errno("read table", table.to_string(), errno)),
        }
    }

    /// The chain, if it exists (and its table).
    pub(crate) fn chain(&mut self, table: Table, name: &str) -> Result<Option<ChainState>, FirewallError> {
        let attributes = vec![ChainAttribute::Table(table.name.to_owned()), ChainAttribute::Name(name.to_owned())];
        match self.get(table.family, NfTablesMessage::GetChain(ChainMessage { attributes })) {
            Ok(reply) => Ok(Some(ChainState {
                kind: find(&reply, CHAIN_TYPE).map(text),
                uses: find(&reply, CHAIN_USE).and_then(be32).unwrap_or(u32::MAX),
            })),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(FirewallError::errno("read chain", format!("{table} {name}"), errno)),
        }
    }

    /// The names of all chains of a table: none if there is no such table.
    pub(crate) fn chain_names(&mut self, table: Table) -> Result<Vec<String>, FirewallError> {
        let request = NfTablesMessage::GetChain(ChainMessage { attributes: Vec::new() });
        self.dump(table.family, request, |chain| {
            let table_name = find(chain, CHAIN_TABLE).map(text);
            find(chain, CHAIN_NAME).map(text).filter(|_| table_name.as_deref() == Some(table.name))
        })
        .map_err(|errno| FirewallError::errno("list chains of", table.to_string(), errno))
    }

    /// The chains of a family through which forwarded packets go, each with its table and whether what no rule decides is
    /// dropped.
    pub(crate) fn forward_chains(
        &mut self,
        family: NetfilterProtoFamily,
    ) -> Result<Vec<(String, String, bool)>, FirewallError> {
        let request = NfTablesMessage::GetChain(ChainMessage { attributes: Vec::new() });
        self.dump(family, request, |chain| {
            let hook = find(chain, CHAIN_HOOK).and_then(|hook| find(hook, HOOK_NUMBER)).and_then(be32)?;
            let drops = find(chain, CHAIN_POLICY).and_then(be32) == Some(NF_DROP);
            let names = (find(chain, CHAIN_TABLE).map(text)?, find(chain, CHAIN_NAME).map(text)?, drops);
            (hook == NF_INET_FORWARD).then_some(names)
        })
        .map_err(|errno| FirewallError::errno("list", "chains", errno))
    }

    /// The rules of a chain in their order: none if there is no such chain.
    pub(crate) fn rules(&mut self, table: Table, chain: &str) -> Result<Vec<Rule>, FirewallError> {
        let attributes = vec![RuleAttribute::Table(table.name.to_owned()), RuleAttribute::Chain(chain.to_owned())];
        let request = NfTablesMessage::GetRule(RuleMessage { attributes });
        self.dump(table.family, request, |rule| Some(Rule::read(rule)))
            .map_err(|errno| FirewallError::errno("list rules of", format!("{table} {chain}"), errno))
    }

    /// The rule of this handle, without a look at the others of its chain; `None` if there is none.
    pub(crate) fn rule(&mut self, table: Table, chain: &str, handle: u64) -> Result<Option<Rule>, FirewallError> {
        let attributes = vec![
            RuleAttribute::Table(table.name.to_owned()),
            RuleAttribute::Chain(chain.to_owned()),
            RuleAttribute::Handle(handle),
        ];
        match self.get(table.family, NfTablesMessage::GetRule(RuleMessage { attributes })) {
            Ok(reply) => Ok(Some(Rule::read(&reply))),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(FirewallError::errno("read rule of", format!("{table} {chain}"), errno)),
        }
    }

    /// The rules of all chains of a table, as [`Nft::rules`], by chain and in one request: none if there is no such table.
    pub(crate) fn rules_by_chain(&mut self, table: Table) -> Result<HashMap<String, Vec<Rule>>, FirewallError> {
        let attributes = vec![RuleAttribute::Table(table.name.to_owned())];
        let request = NfTablesMessage::GetRule(RuleMessage { attributes });
        let rules = self
            .dump(table.family, request, |rule| Some((find(rule, RULE_CHAIN).map(text)?, Rule::read(rule))))
            .map_err(|errno| FirewallError::errno("list rules of", table.to_string(), errno))?;
        let mut chains: HashMap<String, Vec<Rule>> = HashMap::new();
        for (chain, rule) in rules {
            chains.entry(chain).or_default().push(rule);
        }
        Ok(chains)
    }

    /// Runs `plan`, which looks at the rule set and puts what is to change into a batch, then makes these changes,
    /// provided that nobody changed anything since `plan` began to look. If somebody did, all of it is done again.
    ///
    /// An empty batch costs nothing.
    pub(crate) fn change<T>(
        &mut self,
        plan: impl FnMut(&mut Self, &mut Batch) -> Result<T, FirewallError>,
    ) -> Result<T, FirewallError> {
        self.change_and_see(plan).map(|(value, _)| value)
    }

    /// As [`Nft::change`], and the rules of [`Batch::append_seen_rule`] as the kernel made them, in their order.
    pub(crate) fn change_and_see<T>(
        &mut self,
        mut plan: impl FnMut(&mut Self, &mut Batch) -> Result<T, FirewallError>,
    ) -> Result<(T, Vec<Rule>), FirewallError> {
        let mut attempt = 0;
        loop {
            let mut batch = Batch::new(self.generation()?);
            let outcome = plan(self, &mut batch).and_then(|value| self.commit(&batch).map(|made| (value, made)));
            let Err(error) = outcome else {
                self.passed(&batch);
                return outcome;
            };
            attempt += 1;
            let again = match error.errno.map(Errno::from_raw) {
                Some(Errno::ERESTART | Errno::EINTR | Errno::EAGAIN) => Instant::now() < self.transport.deadline(),
                Some(Errno::EEXIST | Errno::EBUSY | Errno::ENOENT) => attempt <= RETRIES,
                _ => false,
            };
            if !again {
                return Err(error);
            }
            // The first retries follow at once: conflicts last as long as one transaction.
            if attempt > RETRIES {
                std::thread::sleep(Duration::from_micros(u64::from(attempt.min(20)) * 50));
            }
        }
    }

    /// A change of our own was made: what was whole is so still, as long as nobody else changed anything meanwhile.
    fn passed(&mut self, batch: &Batch) {
        let Some((_, generation)) = &mut self.witness else { return };
        if *generation != batch.generation() {
            self.witness = None;
        } else if !batch.is_empty() {
            // The kernel leaves 0 out.
            *generation = generation.checked_add(1).unwrap_or(1);
        }
    }

    /// Remembers what is being made whole by the change that is planned.
    pub(crate) fn witness(&mut self, whole: Witnessed, batch: &Batch) {
        self.witness = Some((whole, batch.generation()));
    }

    /// Forgets it: it is being removed.
    pub(crate) fn forget(&mut self) {
        self.witness = None;
    }

    /// Whether that was whole, and nobody but this connection has changed any rule of the namespace since.
    pub(crate) fn is_untouched(&mut self, whole: &Witnessed) -> Result<bool, FirewallError> {
        match &self.witness {
            Some((seen, generation)) if seen == whole => {
                let generation = *generation;
                Ok(self.generation()? == generation)
            }
            _ => Ok(false),
        }
    }

    fn commit(&mut self, batch: &Batch) -> Result<Vec<Rule>, FirewallError> {
        let mut made = Vec::new();
        if batch.is_empty() {
            return Ok(made);
        }
        let sent = batch.write(&mut self.transport);
        let failed = |sequence: u32, errno| {
            let index = sequence.wrapping_sub(sent.first).wrapping_sub(1);
            let (operation, object) = usize::try_from(index)
                .ok()
                .and_then(|index| batch.describe(index))
                .unwrap_or(("commit", "nftables transaction"));
            FirewallError::errno(operation, object, errno)
        };
        let whole = |errno| failed(sent.first, errno);
        self.transport.send(&sent.datagram).map_err(whole)?;
        let mut error = None;
        self.transport
            .receive(sent.first, sent.last, |reply| {
                let (sequence, errno) = match reply {
                    Reply::Status { sequence, errno } => (sequence, errno),
                    // An echo. The new generation is told as well, which has no expressions.
                    Reply::Message(attributes) => {
                        made.extend(find(attributes, RULE_EXPRESSIONS).map(|_| Rule::read(attributes)));
                        return Ok(false);
                    }
                    Reply::DumpEnd | Reply::Interrupted => return Ok(false),
                };
                if errno != 0 && error.is_none() {
                    error = Some(failed(sequence, Errno::from_raw(errno)));
                }
                // Errors come in the order of the changes, and one of the whole batch comes before (or alone): the
                // last change's own success means nothing if an earlier one failed.
                Ok(sequence == sent.last || sequence == sent.first)
            })
            .map_err(whole)?;
        error.map_or(Ok(made), Err)
    }

    /// Asks for one object: its attributes.
    fn get(&mut self, family: NetfilterProtoFamily, request: NfTablesMessage) -> Result<Vec<u8>, Errno> {
        let mut datagram = Vec::new();
        let sequence = self.transport.write(&mut datagram, family, 0, NLM_F_REQUEST, request);
        self.transport.send(&datagram)?;
        let mut answer = Vec::new();
        self.transport.receive(sequence, sequence, |reply| match reply {
            Reply::Message(attributes) => {
                answer = attributes.to_vec();
                Ok(true)
            }
            Reply::Status { errno, .. } if errno != 0 => Err(Errno::from_raw(errno)),
            Reply::Status { .. } | Reply::DumpEnd => Ok(true),
            Reply::Interrupted => Ok(false),
        })?;
        Ok(answer)
    }

    /// Asks for all objects, again and again while changes get in between, and collects what `read` makes of them.
    pub(crate) fn dump<T>(
        &mut self,
        family: NetfilterProtoFamily,
        request: NfTablesMessage,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, Errno> {
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        loop {
            let mut datagram = Vec::new();
            let sequence = self.transport.write(&mut datagram, family, 0, flags, request.clone());
            self.transport.send(&datagram)?;
            let mut objects = Vec::new();
            let mut interrupted = false;
            self.transport.receive(sequence, sequence, |reply| match reply {
                Reply::Message(attributes) => {
                    objects.extend(read(attributes));
                    Ok(false)
                }
                Reply::Interrupted => {
                    interrupted = true;
                    Ok(false)
                }
                Reply::Status { errno, .. } if errno != 0 => Err(Errno::from_raw(errno)),
                Reply::Status { .. } | Reply::DumpEnd => Ok(true),
            })?;
            if !interrupted {
                return Ok(objects);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_netfilter::nftables::Verdict;
    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::rule::verdict;

    const TABLE: Table = Table { family: NetfilterProtoFamily::Inet, name: "t" };

    fn open() -> Nft {
        Nft::open(Instant::now() + Duration::from_secs(5)).unwrap()
    }

    /// The table with one rule.
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
                // Between look and change, a stranger's rule takes the place and the handle of ours.
                let mut stranger = open();
                stranger.change(|_, batch| {
                    batch.delete_table(TABLE);
                    Ok(())
                })?;
                make(&mut stranger, b"theirs");
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
}
