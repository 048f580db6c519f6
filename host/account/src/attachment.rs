//! The account of one attachment: its record, the state of its objects in the kernel, and the differences.

use crate::busy::Holder;
use ipnet::IpNet;
use postern_firewall::AttachmentKey;
use postern_firewall::macguard::{native_id, own_id};
use postern_gate::effect::Effect;
use postern_state::{Header, Section};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// The state of an attachment: the worst state that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Record and kernel agree.
    Ok,
    /// A run has held the record for too long.
    Stuck,
    /// The ADD or the DEL has not ended.
    Incomplete,
    /// A program that writes no records has detached a living container, or attached it anew: the node is in order.
    Replaced,
    /// The container's network namespace no longer exists.
    ContainerGone,
    /// The attachment was made before the last start of the node. The kernel has none of its objects.
    PreviousBoot,
    /// Record and kernel differ.
    Drift,
    /// The record can't be read.
    Damaged,
    /// The attachment has ended, and its device is held because it may not be clean.
    Held,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Stuck => "stuck",
            Self::Incomplete => "incomplete",
            Self::Replaced => "replaced",
            Self::ContainerGone => "container gone",
            Self::PreviousBoot => "previous boot",
            Self::Drift => "drift",
            Self::Damaged => "damaged",
            Self::Held => "held",
        })
    }
}

/// A difference between record and kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deviation {
    /// The content of the record and the state of the kernel, in words.
    pub what: String,
    /// The remedy: a command, if a command helps.
    pub remedy: String,
    /// True if the remedy is a command.
    pub is_command: bool,
}

/// One effect of the record, and its state in the kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Fact {
    /// The plugin that made the effect.
    pub plugin: String,
    /// The kind of the effect: `host end`, `leases`, `masquerading`, …
    pub kind: &'static str,
    /// The effect's state, in words.
    pub found: String,
}

/// An attachment by its record.
#[derive(Clone, Debug)]
pub struct Account {
    /// The record's file.
    pub path: PathBuf,
    /// The record's attachment; `None` if the record's header can't be read.
    pub header: Option<Header>,
    /// The plugins that were called for the attachment, with their progress.
    pub sections: Vec<Section>,
    /// The effects of these plugins.
    pub effects: Vec<Effect>,
    /// The attachment's addresses, as the sections, or else the effects, list them.
    pub addresses: Vec<IpNet>,
    /// The attachment's state.
    pub state: State,
    /// True if a living process holds the record.
    pub is_held: bool,
    /// The known processes that hold the record.
    pub holders: Vec<Holder>,
    /// The reason why the namespace may be alive, although the state is [`State::ContainerGone`].
    pub doubt: Option<String>,
    /// The state of each effect.
    pub facts: Vec<Fact>,
    /// The differences between record and kernel.
    pub deviations: Vec<Deviation>,
    /// The rules that can't be looked at, in words. Their existence is unknown.
    pub unseen: Vec<String>,
    pub(crate) on_host: OnHost,
}

/// The number of a record's leases and rules that are on the host, and the number of missing leases and rules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OnHost {
    there: usize,
    gone: usize,
}

impl OnHost {
    /// True if there were leases and rules, and all of them are gone. The cause is a DEL, or a person who cleaned the
    /// node.
    fn is_released(self) -> bool {
        self.there == 0 && self.gone > 0
    }
}

/// Returns the possible names in the rules of an attachment's spoofing protection.
pub(crate) fn guard_ids(header: &Header) -> [String; 2] {
    let Header { network, container_id, ifname, .. } = header;
    [native_id(container_id, ifname), own_id(network, container_id, ifname)]
}

impl Account {
    /// Returns the key of the attachment's masquerading rules.
    pub fn masquerade_key(&self) -> Option<AttachmentKey> {
        self.header.as_ref().map(|header| AttachmentKey {
            network: header.network.clone(),
            container_id: header.container_id.clone(),
            ifname: header.ifname.clone(),
        })
    }

    /// Returns the possible IDs in the rules of the attachment's spoofing protection.
    pub fn guard_ids(&self) -> Vec<String> {
        self.header.as_ref().map(guard_ids).into_iter().flatten().collect()
    }

    /// True if leases and rules of the record are gone. The cause is a DEL without records, or a person who cleaned the
    /// node.
    pub fn is_released(&self) -> bool {
        self.on_host.is_released()
    }

    pub(crate) fn differs(&mut self, what: impl Into<String>, remedy: impl Into<String>, is_command: bool) {
        self.deviations.push(Deviation { what: what.into(), remedy: remedy.into(), is_command });
    }

    /// Adds a deviation whose remedy is `postern gc`, if this version knows all effects in the record.
    pub(crate) fn is_left(&mut self, what: impl Into<String>) {
        let is_known = self.deviations.iter().all(|deviation| deviation.remedy != WRITER);
        self.differs(what, if is_known { COLLECT } else { WRITER }, is_known);
    }

    /// Counts a lease, or a rule.
    pub(crate) fn count(&mut self, is_there: bool) {
        let number = if is_there { &mut self.on_host.there } else { &mut self.on_host.gone };
        *number = number.saturating_add(1);
    }

    /// Notes rules that can't be looked at. They count as present. Returns the words for a fact.
    pub(crate) fn unseen(&mut self, what: String) -> String {
        self.count(true);
        self.unseen.push(what.clone());
        what
    }

    pub(crate) fn fact(&mut self, plugin: &str, kind: &'static str, found: impl Into<String>) {
        self.facts.push(Fact { plugin: plugin.to_owned(), kind, found: found.into() });
    }
}

/// The remedy if no command helps. The runtime knows the configuration, and the record does not.
pub(crate) const AGAIN: &str = "start the container again, so that its runtime calls DEL and ADD";
/// The remedy if the attachment is no longer in use.
pub(crate) const COLLECT: &str = "postern gc";
/// The remedy if another program wiped an attachment's rules that the record lists.
pub const REAPPLY: &str = "postern reapply";
/// The remedy if this version doesn't know all effects in the record. Neither DEL nor `postern gc` removes unknown
/// effects.
pub(crate) const WRITER: &str = "use the version of postern that wrote the record";
