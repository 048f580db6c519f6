//! The gate: the one function through which a guest reaches the node.

use crate::audit::Entry;
use crate::errors::kernel_error;
use crate::gate::Gate;
use postern_policy::{Rule, allows};
use postern_types::{ErrorCode, OpError, Operation, Reply};
use std::time::Instant;

/// Decides on an operation, carries it out, and writes it down.
///
/// # Errors
/// The error that the guest gets, with the operation's name filled in.
pub fn call(gate: &mut Gate<'_>, operation: &Operation) -> Result<Reply, OpError> {
    let start = Instant::now();
    let (rule, outcome) = match admit(gate, operation) {
        Ok(rule) => (Some(rule), execute(gate, operation)),
        Err(refusal) => (None, Err(refusal)),
    };
    let outcome = outcome.map_err(|mut error| {
        if error.operation.is_empty() {
            operation.name().clone_into(&mut error.operation);
        }
        error
    });
    // The refusal is the fault neither of the plugin nor of the attachment. A DEL continues without the operation.
    let by_policy = |error: &OpError| match error.code {
        ErrorCode::Denied => allows(operation.lasting(), gate.session.request.verb),
        code => code == ErrorCode::Exhausted,
    };
    if outcome.as_ref().is_err_and(by_policy) {
        gate.session.hindered = true;
    }
    if let Err(error) = &outcome {
        gate.session.common.note(error);
    }
    gate.session.audit.note(&Entry {
        verb: gate.session.request.verb,
        plugin: gate.front.plugin,
        digest: gate.digest,
        operation,
        rule: rule.map(|rule| rule.name),
        from: rule.map(|rule| rule.from.name()),
        outcome: &outcome,
        took: start.elapsed(),
    });
    outcome
}

fn admit(gate: &mut Gate<'_>, operation: &Operation) -> Result<Rule, OpError> {
    gate.session.in_time()?;
    gate.front.count(&mut gate.session.common, &gate.session.request.plugin)?;
    if let Some(missing) = &mut gate.session.no_container {
        missing.refuse(&gate.session.request.netns)?;
    }
    // A path can lead to a namespace of another kind. That shows when it is entered: before anything is done.
    if gate.front.is_first()
        && let Some(container) = gate.session.container()
    {
        container.netlink().map_err(kernel_error)?;
    }
    gate.front.decide(&gate.session.request, gate.session.owns_link, operation)
}

/// Carries out an admitted operation. Before that, the record gets a note that this plugin changes things.
fn execute(gate: &mut Gate<'_>, operation: &Operation) -> Result<Reply, OpError> {
    if operation.lasting().is_recorded() {
        gate.session.begin()?;
    }
    operation.ask(gate)
}
