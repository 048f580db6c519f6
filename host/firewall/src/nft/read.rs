//! Tables, chains and rules as the kernel reports them.

use std::collections::HashMap;

use netlink_packet_netfilter::NetfilterProtoFamily;
use netlink_packet_netfilter::nftables::{
    ChainMessage, GenMessage, NfTablesMessage, RuleAttribute, RuleMessage, TableAttribute, TableMessage,
};
use nix::errno::Errno;
use postern_netlink::{Attributes, NetlinkRequest};

use super::Nft;
use super::batch::{Table, chain_name, message, rule_place};
use super::rule::{NF_DROP, NftRule};
use crate::FirewallError;

/// `NFTA_GEN_ID`, `NFTA_TABLE_USE`, `_HANDLE`, `NFTA_CHAIN_TABLE`, `_NAME`, `_HOOK`, `_POLICY`, `_USE`, `_TYPE`,
/// `NFTA_RULE_TABLE`, `_CHAIN`, `_EXPRESSIONS` (linux/netfilter/nf_tables.h).
const GEN_ID: u16 = 1;
const TABLE_USE: u16 = 3;
const TABLE_HANDLE: u16 = 4;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_USE: u16 = 6;
const CHAIN_TYPE: u16 = 7;
pub(crate) const RULE_TABLE: u16 = 1;
pub(crate) const RULE_CHAIN: u16 = 2;
pub(crate) const RULE_EXPRESSIONS: u16 = 4;
/// `NFTA_HOOK_HOOKNUM`, and the hook of forwarded packets (linux/netfilter.h).
const HOOK_NUMBER: u16 = 1;
const NF_INET_FORWARD: u32 = 2;

/// A table as the kernel reported it.
pub(crate) struct TableState {
    /// The number of chains, sets, objects and flow tables in the table.
    pub(crate) uses: u32,
    /// The table's number, which is unique until the node reboots.
    pub(crate) handle: Option<u64>,
}

/// A chain as the kernel reported it.
pub(crate) struct ChainState {
    /// "nat", "filter", …; only base chains have a type.
    pub(crate) kind: Option<String>,
    /// The number of rules in the chain, and of rules that lead to the chain.
    pub(crate) uses: u32,
}

impl Nft {
    /// Returns the rule set's generation. Every change in the namespace, by any program, increments the generation.
    pub(crate) fn generation(&mut self) -> Result<u32, FirewallError> {
        let request = NfTablesMessage::GetGen(GenMessage { attributes: Vec::new() });
        self.ask(NetlinkRequest::new(&message(NetfilterProtoFamily::Unspec, 0, request), 0))
            .and_then(|reply| number(Attributes(&reply), GEN_ID).ok_or(Errno::EBADMSG))
            .map_err(|errno| FirewallError::errno("read", "the nftables generation", errno))
    }

    /// Returns the table, if it exists.
    pub(crate) fn table(&mut self, table: Table) -> Result<Option<TableState>, FirewallError> {
        let attributes = vec![TableAttribute::Name(table.name.to_owned())];
        let answer = self.get(table.family, NfTablesMessage::GetTable(TableMessage { attributes }));
        let read = |table: Attributes<'_>| TableState {
            uses: number(table, TABLE_USE).unwrap_or(u32::MAX),
            handle: table.first(TABLE_HANDLE).and_then(|handle| handle.be64()),
        };
        found(answer, read).map_err(|errno| FirewallError::errno("read table", table.to_string(), errno))
    }

    /// Returns the chain, if the chain and its table exist.
    pub(crate) fn chain(&mut self, table: Table, name: &str) -> Result<Option<ChainState>, FirewallError> {
        let attributes = chain_name(table, name);
        let answer = self.get(table.family, NfTablesMessage::GetChain(ChainMessage { attributes }));
        let read = |chain: Attributes<'_>| ChainState {
            kind: text(chain, CHAIN_TYPE),
            uses: number(chain, CHAIN_USE).unwrap_or(u32::MAX),
        };
        found(answer, read).map_err(|errno| FirewallError::errno("read chain", format!("{table} {name}"), errno))
    }

    /// Returns the names of all chains of a table. A missing table has no chains.
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

    /// Returns the rules of a chain in their order. A missing chain has no rules.
    pub(crate) fn rules(&mut self, table: Table, chain: &str) -> Result<Vec<NftRule>, FirewallError> {
        self.dump(table.family, all_rules(table, Some(chain)), |rule| Some(NftRule::read(rule)))
            .map_err(|errno| FirewallError::errno("list rules of", format!("{table} {chain}"), errno))
    }

    /// Returns the rule with this handle, without reading other rules of its chain; `None` if there is no such rule.
    pub(crate) fn rule(&mut self, table: Table, chain: &str, handle: u64) -> Result<Option<NftRule>, FirewallError> {
        let mut attributes = rule_place(table, chain);
        attributes.push(RuleAttribute::Handle(handle));
        let answer = self.get(table.family, NfTablesMessage::GetRule(RuleMessage { attributes }));
        found(answer, NftRule::read)
            .map_err(|errno| FirewallError::errno("read rule of", format!("{table} {chain}"), errno))
    }

    /// Returns the rules of all chains of a table, by chain, in one request. A missing table has no rules.
    pub(crate) fn rules_by_chain(&mut self, table: Table) -> Result<HashMap<String, Vec<NftRule>>, FirewallError> {
        let rules = self
            .dump(table.family, all_rules(table, None), |rule| Some((text(rule, RULE_CHAIN)?, NftRule::read(rule))))
            .map_err(|errno| FirewallError::errno("list rules of", table.to_string(), errno))?;
        let mut chains: HashMap<String, Vec<NftRule>> = HashMap::new();
        for (chain, rule) in rules {
            chains.entry(chain).or_default().push(rule);
        }
        Ok(chains)
    }
}

/// Returns the question for all rules of a table, or of one chain.
pub(crate) fn all_rules(table: Table, chain: Option<&str>) -> NfTablesMessage {
    let mut attributes = vec![RuleAttribute::Table(table.name.to_owned())];
    attributes.extend(chain.map(|chain| RuleAttribute::Chain(chain.to_owned())));
    NfTablesMessage::GetRule(RuleMessage { attributes })
}

/// Reads an object; `None` if the kernel has no such object.
fn found<T>(answer: Result<Vec<u8>, Errno>, read: impl Fn(Attributes<'_>) -> T) -> Result<Option<T>, Errno> {
    match answer {
        Err(Errno::ENOENT) => Ok(None),
        answer => answer.map(|object| Some(read(Attributes(&object)))),
    }
}

fn number(object: Attributes<'_>, kind: u16) -> Option<u32> {
    object.first(kind)?.be32()
}

fn text(object: Attributes<'_>, kind: u16) -> Option<String> {
    Some(object.first(kind)?.text_lossy().into_owned())
}
