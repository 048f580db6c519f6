//! One nftables transaction: the kernel makes all its changes, or none.

use netlink_packet_core::{DefaultNla, NLM_F_APPEND, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, Hook, HookNumber, InetHookNumber, NfTablesMessage, RuleAttribute, RuleMessage,
    TableAttribute, TableMessage,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use postern_netlink::NetlinkRequest;

use super::rule::{Expression, NF_ACCEPT, comment_data, written};

/// The bytes of `struct nlmsghdr` (linux/netlink.h).
const HEADER: usize = 16;

/// `NFNL_MSG_BATCH_BEGIN`, `NFNL_BATCH_GENID`, `NFNL_SUBSYS_NFTABLES` (linux/netfilter/nfnetlink.h).
const BATCH_BEGIN: u8 = 16;
const BATCH_GENID: u16 = 1;
const NFTABLES: u16 = 10;
/// The flags of an object that must not exist yet.
const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;
/// The largest number of new rules for which the kernel returns handles. A socket has no room for very many answers.
pub(crate) const MOST_SEEN: usize = 64;

/// A table of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) family: NetfilterProtoFamily,
    pub(crate) name: &'static str,
}

impl Table {
    pub(crate) fn is_v6(self) -> bool {
        self.family == NetfilterProtoFamily::IPv6
    }
}

/// The families of rules for IP packets, with their names. Rules for bridge frames are in another family.
pub(crate) const FAMILIES: [(NetfilterProtoFamily, &str); 3] =
    [(NetfilterProtoFamily::IPv4, "ip"), (NetfilterProtoFamily::IPv6, "ip6"), (NetfilterProtoFamily::Inet, "inet")];

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = FAMILIES.iter().chain(&[(NetfilterProtoFamily::Bridge, "bridge")]);
        let family = known.into_iter().find(|(family, _)| *family == self.family).map_or("inet", |(_, name)| name);
        write!(f, "{family} {}", self.name)
    }
}

/// The hook, type and priority of a base chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BaseChain {
    pub(crate) kind: &'static str,
    pub(crate) hook: InetHookNumber,
    pub(crate) priority: i32,
}

/// One change of a batch, with the text for an error about it.
#[derive(Clone)]
pub(super) struct Change {
    operation: &'static str,
    object: String,
    request: NetlinkRequest,
}

/// The largest number of changes in one transaction, if a batch is made in parts. Usually the changes are deletions.
/// For each deletion the kernel walks through the chain, also past the rules that this transaction has deleted. So a
/// long transaction is slow.
const MOST_CHANGES: usize = 512;

/// Changes that the kernel makes together, if the rule set still has `generation`.
#[derive(Clone)]
pub(crate) struct Batch {
    pub(super) generation: u32,
    pub(super) changes: Vec<Change>,
    /// The largest number of changes in one transaction.
    most: usize,
}

/// A message to nfnetlink.
pub(crate) fn message(
    family: NetfilterProtoFamily,
    resource: u16,
    message: impl Into<NetfilterMessageInner>,
) -> NetfilterMessage {
    NetfilterMessage::new(NetfilterHeader::new(family, 0, resource), message)
}

impl Batch {
    pub(crate) fn new(generation: u32) -> Self {
        Self { generation, changes: Vec::new(), most: usize::MAX }
    }

    /// Takes the changes of an earlier batch, for the generation of this batch.
    pub(crate) fn repeat(&mut self, earlier: &Self) {
        self.changes.clone_from(&earlier.changes);
    }

    /// Allows several transactions for very many changes. After an error, earlier transactions stay.
    pub(crate) fn may_be_parts(&mut self) {
        self.most = MOST_CHANGES;
    }

    /// True if the changes are too many for one transaction.
    pub(crate) fn is_long(&self) -> bool {
        self.changes.len() > self.most
    }

    /// Adds a table. If the table exists, the result is `EEXIST`. A repeated declaration without this error would cost
    /// milliseconds.
    pub(crate) fn add_table(&mut self, table: Table, comment: Option<&str>) {
        let mut attributes = vec![TableAttribute::Name(table.name.to_owned())];
        attributes.extend(comment.map(|text| TableAttribute::UserData(comment_data(text.as_bytes()))));
        self.push("add table", table, None, NEW, NfTablesMessage::NewTable(TableMessage { attributes }));
    }

    pub(crate) fn delete_table(&mut self, table: Table) {
        let attributes = vec![TableAttribute::Name(table.name.to_owned())];
        self.push("delete table", table, None, 0, NfTablesMessage::DeleteTable(TableMessage { attributes }));
    }

    /// Adds a chain. If the chain exists, the result is `EEXIST`.
    pub(crate) fn add_chain(&mut self, table: Table, name: &str, base: Option<BaseChain>, comment: Option<&str>) {
        let mut attributes = chain_name(table, name);
        if let Some(BaseChain { kind, hook, priority }) = base {
            attributes.push(ChainAttribute::Type(kind.to_owned()));
            attributes.push(ChainAttribute::Hook(vec![
                Hook::Number(HookNumber::Inet(hook)),
                Hook::Priority(priority.cast_unsigned()),
            ]));
            attributes.push(ChainAttribute::Policy(NF_ACCEPT));
        }
        attributes.extend(comment.map(|text| ChainAttribute::UserData(comment_data(text.as_bytes()))));
        self.push("add chain", table, Some(name), NEW, NfTablesMessage::NewChain(ChainMessage { attributes }));
    }

    pub(crate) fn delete_chain(&mut self, table: Table, name: &str) {
        let attributes = chain_name(table, name);
        self.push("delete chain", table, Some(name), 0, NfTablesMessage::DeleteChain(ChainMessage { attributes }));
    }

    /// Adds a rule at the chain's end.
    pub(crate) fn append_rule(&mut self, table: Table, chain: &str, rule: &[Expression], comment: Option<&[u8]>) {
        self.add_rule(table, chain, false, false, written(rule, comment));
    }

    /// Adds a rule at the chain's beginning (`first`) or end. If `seen` is true, the kernel returns the rule with its
    /// handle. The handle finds the rule again.
    pub(crate) fn add_rule(&mut self, table: Table, chain: &str, first: bool, seen: bool, rule: Vec<RuleAttribute>) {
        let attributes = rule_place(table, chain).into_iter().chain(rule).collect();
        let (place, echo) = (if first { 0 } else { NLM_F_APPEND }, if seen { NLM_F_ECHO } else { 0 });
        let flags = NLM_F_CREATE | place | echo;
        self.push("add rule to", table, Some(chain), flags, NfTablesMessage::NewRule(RuleMessage { attributes }));
    }

    /// Deletes one rule. A handle is valid only in the generation in which it was read.
    pub(crate) fn delete_rule(&mut self, table: Table, chain: &str, handle: u64) {
        let mut attributes = rule_place(table, chain);
        attributes.push(RuleAttribute::Handle(handle));
        self.push("delete rule of", table, Some(chain), 0, NfTablesMessage::DeleteRule(RuleMessage { attributes }));
    }

    /// Deletes all rules of a chain.
    pub(crate) fn flush_chain(&mut self, table: Table, chain: &str) {
        let attributes = rule_place(table, chain);
        self.push("flush chain", table, Some(chain), 0, NfTablesMessage::DeleteRule(RuleMessage { attributes }));
    }

    fn push(
        &mut self,
        operation: &'static str,
        table: Table,
        chain: Option<&str>,
        flags: u16,
        change: NfTablesMessage,
    ) {
        self.changes.push(Change {
            operation,
            object: match chain {
                Some(chain) => format!("{table} {chain}"),
                None => table.to_string(),
            },
            request: NetlinkRequest::new(&message(table.family, 0, change), flags),
        });
    }

    /// Returns all changes as one transaction.
    pub(crate) fn whole(&self) -> BatchPart<'_> {
        BatchPart { changes: &self.changes, generation: self.generation }
    }

    /// Returns the changes as consecutive transactions. Each transaction has at most `room` bytes and the allowed
    /// number of changes.
    pub(crate) fn parts(&self, room: usize) -> Vec<BatchPart<'_>> {
        let mut parts: Vec<BatchPart<'_>> = Vec::new();
        let (mut first, mut length) = (0, 0);
        let size = |change: &Change| HEADER + change.request.parts().2.len().next_multiple_of(4);
        let mut add = |first: usize, end: usize| {
            let changes = self.changes.get(first..end).unwrap_or_default();
            let generation = parts.last().map_or(self.generation, |last| following(last.generation));
            parts.push(BatchPart { changes, generation });
        };
        for (index, change) in self.changes.iter().enumerate() {
            // A transaction also has a message at its beginning, and a message at its end.
            if index > first && (length + size(change) + 4 * HEADER > room || index - first >= self.most) {
                add(first, index);
                (first, length) = (index, 0);
            }
            length += size(change);
        }
        add(first, self.changes.len());
        parts
    }
}

/// Returns the next generation. The kernel skips 0.
fn following(generation: u32) -> u32 {
    generation.checked_add(1).unwrap_or(1)
}

/// Changes of a batch that are made together.
pub(crate) struct BatchPart<'a> {
    changes: &'a [Change],
    generation: u32,
}

impl BatchPart<'_> {
    /// Returns the transaction as requests, and the index of the last change.
    pub(crate) fn write(&self) -> (Vec<NetlinkRequest>, usize) {
        let control =
            |control: ControlMessage| NetlinkRequest::new(&message(NetfilterProtoFamily::Unspec, NFTABLES, control), 0);
        let begin = ControlMessage::Other {
            message_type: BATCH_BEGIN,
            attributes: vec![DefaultNla::new(BATCH_GENID, self.generation.to_be_bytes().to_vec())],
        };
        let mut requests = vec![control(begin)];
        requests.extend(self.changes.iter().map(|change| change.request.clone()));
        requests.push(control(ControlMessage::BatchEnd));
        (requests, self.changes.len())
    }

    /// Returns the operation and object of a request of [`BatchPart::write`]. `None` for the first and the last
    /// request, which begin and end the transaction.
    pub(crate) fn describe(&self, request: usize) -> Option<(&'static str, &str)> {
        self.changes.get(request.checked_sub(1)?).map(|change| (change.operation, change.object.as_str()))
    }
}

pub(super) fn chain_name(table: Table, chain: &str) -> Vec<ChainAttribute> {
    vec![ChainAttribute::Table(table.name.to_owned()), ChainAttribute::Name(chain.to_owned())]
}

/// Returns the attributes that name a chain and its table.
pub(super) fn rule_place(table: Table, chain: &str) -> Vec<RuleAttribute> {
    vec![RuleAttribute::Table(table.name.to_owned()), RuleAttribute::Chain(chain.to_owned())]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All changes are in the parts, in their order, and no part is too long.
    #[test]
    fn a_batch_can_be_made_in_parts() {
        let table = Table { family: NetfilterProtoFamily::IPv4, name: "t" };
        let mut batch = Batch::new(u32::MAX);
        for number in 0..100 {
            batch.add_chain(table, &format!("chain{number}"), None, None);
        }
        let length = |part: &BatchPart<'_>| {
            let (requests, _) = part.write();
            requests.iter().map(|request| HEADER + request.parts().2.len().next_multiple_of(4)).sum::<usize>()
        };
        let whole = batch.whole();
        assert_eq!((whole.changes.len(), whole.generation), (100, u32::MAX));
        let parts = batch.parts(1000);
        assert!(parts.len() > 4 && parts.iter().all(|part| length(part) <= 1000), "{}", parts.len());
        let objects: Vec<&str> = parts.iter().flat_map(|part| part.changes).map(|change| &*change.object).collect();
        let all: Vec<String> = (0..100).map(|number| format!("ip t chain{number}")).collect();
        assert_eq!(objects, all);
        assert_eq!((parts[0].generation, parts[1].generation, parts[2].generation), (u32::MAX, 1, 2));
        assert_eq!(parts[1].describe(1).unwrap().1, parts[1].changes[0].object);
        // A single change that is too long has its own transaction.
        assert_eq!(batch.parts(1).len(), 100);
        assert!(batch.parts(usize::MAX).len() == 1 && !batch.is_long());
        batch.most = 40;
        let lengths: Vec<usize> = batch.parts(usize::MAX).iter().map(|part| part.changes.len()).collect();
        assert!(lengths == [40, 40, 20] && batch.is_long(), "{lengths:?}");
    }
}
