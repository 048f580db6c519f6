//! Rules that choose a routing table (`ip-rule(8)`; `RTM_*RULE` and attributes of `linux/fib_rules.h`).

use crate::error::{Result, Subject, unless};
use crate::netlink::Netlink;
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleHeader, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;
use nix::libc;
use postern_netlink::NetlinkRequest;
use postern_netlink::{Attributes, ip, u8_at};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of `struct fib_rule_hdr`.
const HEADER: usize = 12;
const FRA_SRC: u16 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_TABLE: u16 = 15;

/// A rule that leads to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutingRule {
    /// The senders that the rule applies to; a prefix of length 0 is every sender.
    pub source: IpNet,
    /// The table.
    pub table: u32,
    /// The rule's priority; the lower number comes first.
    pub priority: u32,
}

impl Netlink {
    /// Returns the rules of both families that lead to a table.
    pub fn rules(&self) -> Result<Vec<RoutingRule>> {
        let subject = Subject { operation: "list", object: &"rules" };
        let mut rules = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RuleMessage::default();
            message.header.family = family;
            let request = NetlinkRequest::new(&RouteNetlinkMessage::GetRule(message), 0);
            // These errors come from a kernel without IPv6, or without rules.
            let found = unless(&[Errno::EOPNOTSUPP, Errno::EAFNOSUPPORT], self.dump(subject, request, decode))?;
            rules.extend(found.into_iter().flatten());
        }
        Ok(rules)
    }

    /// Makes packets from this address use a table. The kernel puts the rule before all other rules, except the rule
    /// for the table `local`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a kernel without these rules.
    pub fn add_source_rule(&self, source: IpAddr, table: u32) -> Result<()> {
        let object = format_args!("from {source} lookup {table}");
        let subject = Subject { operation: "add rule", object: &object };
        self.acknowledged(subject, &RouteNetlinkMessage::NewRule(message(source, table)), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Removes one rule for this source and table. False if the rule is missing.
    pub fn delete_source_rule(&self, source: IpAddr, table: u32) -> Result<bool> {
        let object = format_args!("from {source} lookup {table}");
        let subject = Subject { operation: "delete rule", object: &object };
        let deleted = self.acknowledged(subject, &RouteNetlinkMessage::DelRule(message(source, table)), 0);
        Ok(unless(&[Errno::ENOENT, Errno::EAFNOSUPPORT], deleted)?.is_some())
    }
}

fn message(source: IpAddr, table: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header = RuleHeader {
        family: if source.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 },
        src_len: if source.is_ipv4() { 32 } else { 128 },
        action: RuleAction::ToTable,
        ..RuleHeader::default()
    };
    message.attributes = vec![RuleAttribute::Source(source), RuleAttribute::Table(table)];
    message
}

/// Reads an `RTM_NEWRULE`. `Some(None)` for a rule that leads to no table.
fn decode(payload: &[u8]) -> Option<Option<RoutingRule>> {
    let any: IpAddr = match libc::c_int::from(u8_at(payload, 0)?) {
        libc::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Some(None),
    };
    if RuleAction::from(u8_at(payload, 7)?) != RuleAction::ToTable {
        return Some(None);
    }
    let length = u8_at(payload, 2)?;
    let mut rule =
        RoutingRule { source: IpNet::new(any, length).ok()?, table: u32::from(u8_at(payload, 4)?), priority: 0 };
    for attribute in Attributes(payload.get(HEADER..)?).iter() {
        match attribute.kind {
            FRA_SRC => rule.source = IpNet::new(ip(attribute.value)?, length).ok()?,
            FRA_TABLE => rule.table = attribute.u32()?,
            FRA_PRIORITY => rule.priority = attribute.u32()?,
            _ => {}
        }
    }
    Some(Some(rule))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_netlink::attribute;

    #[test]
    fn rules_are_read_and_malformed_ones_refused() {
        let header = |length: u8, action: u8| vec![2, 0, length, 0, 100, 0, 0, action, 0, 0, 0, 0];
        let message = [
            header(32, 1),
            attribute(FRA_SRC, &[10, 9, 0, 2]),
            attribute(FRA_TABLE, &1000u32.to_ne_bytes()),
            attribute(FRA_PRIORITY, &32765u32.to_ne_bytes()),
        ]
        .concat();
        let rule = RoutingRule { source: "10.9.0.2/32".parse().unwrap(), table: 1000, priority: 32765 };
        assert_eq!(decode(&message), Some(Some(rule)));
        for end in 0..message.len() {
            let _ = decode(&message[..end]);
        }
        // A rule that forbids packets leads to no table.
        assert_eq!(decode(&header(0, 8)), Some(None));
        for bad in [header(33, 1), [header(32, 1), attribute(FRA_SRC, &[1, 2])].concat(), vec![2]] {
            assert_eq!(decode(&bad), None, "{bad:?}");
        }
    }
}
