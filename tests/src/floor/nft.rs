//! nftables rules in the native plugins' form. Each transaction is one message to the kernel, without a query before.

use anyhow::{Context, Result, bail};
use ipnet::Ipv4Net;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, connect, recv, send, socket,
};
use serde_json::Value;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// `NFPROTO_INET`, `NFPROTO_IPV4` and `NFPROTO_BRIDGE`; messages of linux/netfilter/nf_tables.h.
const INET: u8 = 1;
const IPV4: u8 = 2;
const BRIDGE: u8 = 7;
const NEW_CHAIN: u8 = 3;
const DELETE_CHAIN: u8 = 5;
const NEW_RULE: u8 = 6;
const DELETE_RULE: u8 = 8;
/// `NLM_F_REQUEST`, `_ECHO`, `_CREATE`, `_APPEND`.
const REQUEST: u16 = 1;
const ECHO: u16 = 8;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

/// The comment of the rules of [`Behind`].
const COMMENT: &str = "dnat name: \"scale0\" id: \"floor\"";

/// The prefix of the files that keep rule handles from ADD to DEL.
const HANDLES: &str = "/run/floor-handles";

pub struct Masquerade<'a> {
    pub address: Ipv4Net,
    pub name: &'a str,
}

pub struct Guard<'a> {
    pub id: &'a str,
    pub port: &'a str,
    pub mac: [u8; 6],
}

/// The rules of a plugin that is chained behind bridge.
#[derive(Clone, Copy, Debug)]
pub struct Behind {
    /// The table.
    pub table: &'static str,
    /// The attachment's own chain, and the number of rules in it.
    pub own: Option<(&'static str, usize)>,
    /// Chains that all attachments share: a name for each rule of this attachment.
    pub entries: &'static [&'static str],
}

impl Behind {
    /// Returns the name of the part for a plugin with this configuration.
    pub fn part(config: &Value) -> String {
        let word = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
        match (word("type"), word("backend")) {
            ("portmap", "nftables") => "portmap-nftables".to_owned(),
            (plugin, _) => plugin.to_owned(),
        }
    }

    /// Returns the rules of a part, for one address and one port.
    pub fn of(part: &str) -> Option<Self> {
        let (table, own, entries): (_, _, &[&str]) = match part {
            "portmap-nftables" => ("cni_hostport", None, &["hostports", "masquerading", "masquerading"]),
            "portmap" => ("nat", Some(("CNI-DN-floor", 3)), &["CNI-HOSTPORT-DNAT"]),
            "masquerade-iptables" => ("nat", Some(("CNI-floor", 2)), &["POSTROUTING"]),
            "firewall" => ("filter", None, &["CNI-FORWARD", "CNI-FORWARD"]),
            _ => return None,
        };
        Some(Self { table, own, entries })
    }

    /// Returns the file of this part's rule handles. A list can have several parts.
    fn handles(&self) -> String {
        format!("{HANDLES}-{}", self.entries.first().copied().unwrap_or(self.table))
    }
}

pub struct Nft(OwnedFd);

/// A change: family, message, flags, attributes.
type Change = (u8, u8, u16, Vec<u8>);

impl Nft {
    pub fn open() -> Result<Self> {
        let protocol = SockProtocol::NetlinkNetFilter;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        connect(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    pub fn add_masquerade(&mut self, rule: &Masquerade<'_>) -> Result<()> {
        let expressions = [
            meta(15),
            compare(0, &[2]),
            payload(1, 12, 4),
            compare(0, &rule.address.addr().octets()),
            payload(1, 16, 2),
            compare(1, &rule.address.network().octets()[..2]),
            expression("masq", &[]),
        ];
        let comment = format!("ffffffffffffffff-ffffffffffffffff, net: floor, if: eth0, id: {}", rule.name);
        let new = new_rule(INET, "cni_plugins_masquerade", "masq_checks", &expressions, &comment);
        let [handle] = self.commit(&[new])?[..] else { bail!("the kernel returned no rule handle") };
        Ok(std::fs::write(format!("{HANDLES}-{}", rule.name), handle.to_string())?)
    }

    pub fn delete_masquerade(&mut self, name: &str) -> Result<()> {
        let handle = std::fs::read_to_string(format!("{HANDLES}-{name}"))?.parse()?;
        self.commit(&[delete_rule(INET, "cni_plugins_masquerade", "masq_checks", Some(handle))]).map(drop)
    }

    pub fn add_guard(&mut self, guard: &Guard<'_>) -> Result<()> {
        let (port_chain, mac_chain, comment) = guard_names(guard.id);
        let mut port = guard.port.as_bytes().to_vec();
        port.resize(16, 0);
        let rule = |chain: &str, expressions: &[Vec<u8>]| new_rule(BRIDGE, "nat", chain, expressions, &comment);
        let handles = self.commit(&[
            (BRIDGE, NEW_CHAIN, CREATE, [text(1, "nat"), text(3, &port_chain)].concat()),
            (BRIDGE, NEW_CHAIN, CREATE, [text(1, "nat"), text(3, &mac_chain)].concat()),
            rule(&port_chain, &[jump(&mac_chain)]),
            rule(&mac_chain, &[payload(0, 6, 6), compare(0, &guard.mac), verdict(-5, "")]),
            rule(&mac_chain, &[verdict(0, "")]),
            rule("PREROUTING", &[meta(6), compare(0, &port), jump(&port_chain)]),
        ])?;
        let entry = handles.last().context("the kernel returned no rule handle")?;
        Ok(std::fs::write(format!("{HANDLES}-guard"), entry.to_string())?)
    }

    pub fn delete_guard(&mut self, id: &str) -> Result<()> {
        let handle = std::fs::read_to_string(Path::new(&format!("{HANDLES}-guard")))?.parse()?;
        let (port_chain, mac_chain, _) = guard_names(id);
        let chain = |name: &str| (BRIDGE, DELETE_CHAIN, 0, [text(1, "nat"), text(3, name)].concat());
        self.commit(&[
            delete_rule(BRIDGE, "nat", "PREROUTING", Some(handle)),
            delete_rule(BRIDGE, "nat", &port_chain, None),
            delete_rule(BRIDGE, "nat", &mac_chain, None),
            chain(&port_chain),
            chain(&mac_chain),
        ])
        .map(drop)
    }

    /// Makes the attachment's own chain, and as many rules in each chain as the plugin makes.
    pub fn add_behind(&mut self, behind: &Behind) -> Result<()> {
        let Behind { table, own, entries } = behind;
        let port = [meta(16), compare(0, &[6]), payload(2, 2, 2), compare(0, &[1, 2])].concat();
        let rule = |chain: &str, verdict: Vec<u8>| new_rule(IPV4, table, chain, &[port.clone(), verdict], COMMENT);
        let mut changes = Vec::new();
        if let Some((chain, rules)) = own {
            changes.push((IPV4, NEW_CHAIN, CREATE, [text(1, table), text(3, chain)].concat()));
            changes.extend((0..*rules).map(|_| rule(chain, verdict(1, ""))));
        }
        let to = own.map_or_else(|| verdict(1, ""), |(chain, _)| jump(chain));
        changes.extend(entries.iter().map(|chain| rule(chain, to.clone())));
        let handles = self.commit(&changes)?;
        let handles: Vec<String> = handles.iter().rev().take(entries.len()).rev().map(u64::to_string).collect();
        Ok(std::fs::write(behind.handles(), handles.join(" "))?)
    }

    pub fn delete_behind(&mut self, behind: &Behind) -> Result<()> {
        let Behind { table, own, entries } = behind;
        let handles = std::fs::read_to_string(behind.handles())?;
        let mut changes = Vec::new();
        for (chain, handle) in entries.iter().zip(handles.split(' ')) {
            changes.push(delete_rule(IPV4, table, chain, Some(handle.parse()?)));
        }
        if let Some((chain, _)) = own {
            changes.push(delete_rule(IPV4, table, chain, None));
            changes.push((IPV4, DELETE_CHAIN, 0, [text(1, table), text(3, chain)].concat()));
        }
        self.commit(&changes).map(drop)
    }

    /// Makes changes in one transaction. Returns the handles of new rules.
    fn commit(&mut self, changes: &[Change]) -> Result<Vec<u64>> {
        let mut datagram = message(0x10, REQUEST, 1, 0, 10, &[]);
        let last = u32::try_from(changes.len())? + 1;
        for ((family, kind, flags, attributes), sequence) in changes.iter().zip(2..) {
            let acknowledge = if sequence == last { 4 } else { 0 };
            let echo = if *kind == NEW_RULE { ECHO } else { 0 };
            let kind = u16::from(*kind) | 10 << 8;
            datagram.extend(message(kind, REQUEST | flags | acknowledge | echo, sequence, *family, 0, attributes));
        }
        datagram.extend(message(0x11, REQUEST, last + 1, 0, 10, &[]));
        send(self.0.as_raw_fd(), &datagram, MsgFlags::empty())?;
        let mut handles = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let length = recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            let mut rest = buffer.get(..length).unwrap_or_default();
            while let Some(length) = number(rest, 0).and_then(|length| usize::try_from(length).ok()) {
                let own = rest.get(..length).context("a message is cut off")?;
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                let kind = number(own, 4).unwrap_or_default() & 0xffff;
                if kind == 2 {
                    match number(own, 16).unwrap_or_default().cast_signed() {
                        0 => return Ok(handles),
                        error => bail!("nftables: {}", Errno::from_raw(-error)),
                    }
                }
                if kind == u32::from(NEW_RULE) | 10 << 8 {
                    handles.extend(handle(own.get(20..).unwrap_or_default()));
                }
            }
        }
    }
}

fn guard_names(id: &str) -> (String, String, String) {
    (format!("cni-br-iface-{id}"), format!("cni-br-iface-{id}-mac"), format!("macspoofchk-{id}"))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

/// `NFTA_RULE_HANDLE`.
fn handle(mut attributes: &[u8]) -> Option<u64> {
    while let Some(head) = number(attributes, 0) {
        let (length, kind) = (usize::try_from(head & 0xffff).ok()?, head >> 16);
        if kind & 0x3fff == 3 {
            return attributes.get(4..)?.first_chunk().copied().map(u64::from_be_bytes);
        }
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
    None
}

fn message(kind: u16, flags: u16, sequence: u32, family: u8, resource: u16, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(20 + attributes.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
    bytes.extend([sequence.to_ne_bytes(), [0; 4]].concat());
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(attributes);
    bytes
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// `NLA_F_NESTED`.
fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    attribute(kind | 0x8000, value)
}

fn text(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, format!("{text}\0").as_bytes())
}

fn be(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn expression(name: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    nested(1, &[text(1, name), nested(2, &attributes.concat())].concat())
}

fn meta(key: u32) -> Vec<u8> {
    expression("meta", &[be(2, key), be(1, 1)])
}

fn compare(operator: u32, value: &[u8]) -> Vec<u8> {
    expression("cmp", &[be(1, 1), be(2, operator), nested(3, &attribute(1, value))])
}

fn payload(base: u32, offset: u32, length: u32) -> Vec<u8> {
    expression("payload", &[be(1, 1), be(2, base), be(3, offset), be(4, length)])
}

fn verdict(code: i32, chain: &str) -> Vec<u8> {
    let mut data = be(1, code.cast_unsigned());
    if !chain.is_empty() {
        data.extend(text(2, chain));
    }
    expression("immediate", &[be(1, 0), nested(2, &nested(2, &data))])
}

fn jump(chain: &str) -> Vec<u8> {
    verdict(-3, chain)
}

fn new_rule(family: u8, table: &str, chain: &str, expressions: &[Vec<u8>], comment: &str) -> Change {
    let mut data = vec![0, u8::try_from(comment.len() + 1).unwrap_or(u8::MAX)];
    data.extend(comment.bytes());
    data.push(0);
    let attributes = [text(1, table), text(2, chain), nested(4, &expressions.concat()), attribute(7, &data)];
    (family, NEW_RULE, CREATE | APPEND, attributes.concat())
}

fn delete_rule(family: u8, table: &str, chain: &str, handle: Option<u64>) -> Change {
    let mut attributes = [text(1, table), text(2, chain)].concat();
    if let Some(handle) = handle {
        attributes.extend(attribute(3, &handle.to_be_bytes()));
    }
    (family, DELETE_RULE, 0, attributes)
}
