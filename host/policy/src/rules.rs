//! The decision: may this plugin carry out this operation on this object?
//!
//! Policy names the allowed interfaces and objects; its rule for each operation is in [`capability`]. Other rules hold
//! for every plugin under any policy: a handle was given to this run, an address is the attachment's own. The gate
//! checks these other rules when it carries out the operation.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

use super::capability;
use super::grammar::LOOK_ONLY;
use super::granted::{Grant, Granted};
use super::line::{self, Change};
use super::view::Origin;
use crate::prelude::*;
use core::cell::Cell;
use postern_cni::{NetConf, Verb};
use postern_types::{
    Capability, ErrorCode, Handle, HandleKind as ObjectKind, Lasting, OpError, Operation, WithoutGrant,
};

/// An operation to decide on, with the facts that a rule may need. A fact is looked up only when a rule asks for it.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The operation.
    pub operation: &'a Operation,
    /// The verb that the guest runs for.
    pub verb: Verb,
    /// The operator's configuration. It supplies the objects that an operation does not name.
    pub conf: &'a NetConf,
    /// True if the record says that the called plugin made the attachment's link. A plugin may not remove another
    /// plugin's link.
    pub owns_link: bool,
    /// Returns the kind of object that a handle of this run stands for.
    pub kind: &'a dyn Fn(Handle) -> Option<ObjectKind>,
}

/// The rule that allowed an operation, for the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The capability, and the key if the policy chose an object: `bridge.names`.
    pub name: &'static str,
    /// The file with the rule.
    pub from: Origin,
}

/// True if a plugin may make an effect of the kind `lasting` on this verb. Only ADD makes effects, because nothing
/// would undo effects of other verbs.
pub fn allows(lasting: Lasting, verb: Verb) -> bool {
    match lasting {
        Lasting::Nothing => true,
        Lasting::Attachment | Lasting::Link | Lasting::Namespace | Lasting::Part | Lasting::Node => verb == Verb::Add,
        Lasting::Removal => match verb {
            Verb::Add | Verb::Del => true,
            Verb::Check | Verb::Gc | Verb::Status | Verb::Version => false,
        },
        Lasting::Release => verb == Verb::Del,
        Lasting::Collection => verb == Verb::Gc,
    }
}

/// Decides by the purpose of the verb, by policy, and by the rights that every attachment has on its DEL.
///
/// # Errors
/// [`ErrorCode::Denied`], with a hint how to allow the operation.
pub fn decide(granted: &Granted, question: Question<'_>) -> Result<Rule, OpError> {
    let (operation, verb) = (question.operation, question.verb);
    if !allows(operation.lasting(), verb) {
        let message = format!("{} is not for {}", operation.name(), verb.as_str());
        return Err(OpError::new(ErrorCode::Denied, verb.as_str(), message).hint(
            "a plugin makes objects on ADD, removes them on ADD and DEL, gives addresses back on DEL, and collects on \
                   GC; the host undoes a failed ADD",
        ));
    }
    rule(granted, question).or_else(|refusal| {
        let own = verb == Verb::Del && is_allowed_without_grant(granted, &question);
        if own { Ok(Rule { name: "own", from: Origin::Host }) } else { Err(refusal) }
    })
}

/// True if the operation needs no grant on DEL.
fn is_allowed_without_grant(granted: &Granted, question: &Question<'_>) -> bool {
    match question.operation.row().without_grant {
        WithoutGrant::Refused => false,
        WithoutGrant::Allowed => true,
        WithoutGrant::IfLinkMaker => question.owns_link,
        WithoutGrant::IfAddressPlugin => question.conf.ipam_type == granted.plugin(),
        WithoutGrant::IfNamed => granted.knows(question.operation.capability()),
    }
}

/// Returns the rule of the policy that allows an operation, on any verb.
///
/// # Errors
/// [`ErrorCode::Denied`]. The hint is the policy line that would allow the operation.
pub fn rule(granted: &Granted, question: Question<'_>) -> Result<Rule, OpError> {
    let input = RuleInput { granted, question, asked: Cell::default() };
    let decide = capability::of(question.operation);
    let capability = decide.granted_by(&input);
    let Some(grant) = granted.grant(capability) else {
        return Err(match granted.written(capability) {
            Some(_) => input.withheld(capability),
            None if granted.is_withdrawn(capability) => input.refuse("", "", granted.withdrawn_hint(capability)),
            None => input.deny(capability, "", "", decide.objects(&input)),
        });
    };
    Ok(Rule { name: decide.rule(&input, grant)?, from: grant.from })
}

/// A question to a policy: the input of each rule.
pub struct RuleInput<'a> {
    /// The policy.
    pub granted: &'a Granted,
    /// The question.
    pub question: Question<'a>,
    /// The last object that the rule missed, as a change that adds the object. A rule for several keys lists its
    /// objects itself ([`capability::Decide::objects`]).
    pub asked: Cell<Vec<Change>>,
}

impl RuleInput<'_> {
    /// Returns the rule `CAPABILITY.KEY` if that key of the operation's own table has this object.
    pub fn one_of(&self, grant: &Grant, rule: &'static str, object: &str) -> Result<&'static str, OpError> {
        let (_, key) = rule.split_once('.').unwrap_or_default();
        if grant.matches(key, object) {
            return Ok(rule);
        }
        self.asked.set(line::object(key, object));
        let capability = self.question.operation.capability();
        let kind = capability::keys(capability).iter().find(|known| known.name == key).map(|known| known.kind);
        if let Some(Err(impossible)) = kind.map(|kind| kind.check_text(object)) {
            return Err(self.refuse(object, &on(object), format!("no policy can allow it: {impossible}")));
        }
        Err(self.deny(capability, object, &on(object), vec![line::text(key, object)]))
    }

    /// Checks that a link may be made with this MTU. `on` names the link.
    pub fn mtu(&self, grant: &Grant, mtu: Option<u32>, on: &str) -> Result<(), OpError> {
        mtu.map_or(Ok(()), |mtu| self.says(grant, "mtu", &mtu.to_string(), &format!("{on}with MTU {mtu}")))
    }

    /// Checks that a key of the operation's own table has exactly this text. `what` describes the text in a refusal.
    pub fn says(&self, grant: &Grant, key: &'static str, text: &str, what: &str) -> Result<(), OpError> {
        if grant.texts(key).any(|granted| granted == text) {
            return Ok(());
        }
        Err(self.key(what, vec![line::text(key, text)]))
    }

    /// Checks that the grant is not `look-only`.
    pub fn changes(&self, grant: &Grant) -> Result<&'static str, OpError> {
        if grant.on(LOOK_ONLY.name) {
            return Err(self.key("", vec![Change::Without(LOOK_ONLY.name)]));
        }
        Ok(grant.name)
    }

    /// Returns a refusal by a key of the operation's own table.
    pub fn key(&self, what: &str, changes: Vec<Change>) -> OpError {
        let what = if what.is_empty() { String::new() } else { format!(" {what}") };
        self.deny(self.question.operation.capability(), "", &what, changes)
    }

    /// Returns a refusal that these changes of a capability's table would lift.
    pub fn deny(&self, capability: Capability, object: &str, what: &str, changes: Vec<Change>) -> OpError {
        self.refuse(object, what, self.granted.hint(capability, changes))
    }

    fn withheld(&self, capability: Capability) -> OpError {
        let hint = format!(
            "`when` of [grant.{capability}] allows the operation only if the network asks for {capability}; {} for all \
             networks",
            self.granted.hint(capability, vec![Change::Without("when")])
        );
        self.refuse("", " in this network", hint)
    }

    /// Returns a refusal.
    pub fn refuse(&self, object: &str, what: &str, hint: String) -> OpError {
        let (plugin, operation) = (self.granted.plugin(), self.question.operation.name());
        OpError::new(ErrorCode::Denied, object, format!("policy does not allow plugin \"{plugin}\" {operation}{what}"))
            .hint(hint)
    }
}

/// Returns the object as text for a refusal.
pub fn on(object: &str) -> String {
    format!(" on \"{object}\"")
}

#[cfg(test)]
mod tests;
