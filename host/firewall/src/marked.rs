//! Rules of the node, grouped by the attachment that their mark names.

use std::net::IpAddr;

/// The rules that bear the mark of one attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// The place of the rules: `inet cni_plugins_masquerade masq_checks`, `iptables nat CNI-…`, …
    pub place: String,
    /// The rules' comment, or another text that names the attachment. Any program may have written it.
    pub mark: String,
    /// The addresses that the rules masquerade.
    pub addresses: Vec<IpAddr>,
    /// The commands that remove the rules, in this order. Empty if a shell could read a command as more than plain
    /// words.
    pub commands: Vec<String>,
}

/// Adds a rule to the rules of its attachment.
pub(crate) fn gather(all: &mut Vec<Marked>, rule: Marked) {
    match all.iter_mut().find(|marked| marked.place == rule.place && marked.mark == rule.mark) {
        Some(marked) => {
            marked.addresses.extend(rule.addresses);
            marked.commands.extend(rule.commands);
        }
        None => all.push(rule),
    }
}
