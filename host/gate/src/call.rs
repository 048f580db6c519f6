//! A guest's calls to the gate: the only way by which a guest reaches the node.

use crate::audit::AuditEntry;
use crate::capability;
use crate::errors::kernel_error;
use crate::gate::{DelegateRun, Gate};
use postern_policy::{Rule, allows};
use postern_types::{ErrorCode, OpError, Operation, Reply};
use std::time::Instant;

/// A guest's call that is not in the audit log yet.
pub struct OpenCall<'o> {
    operation: &'o Operation,
    start: Instant,
    rule: Option<Rule>,
}

/// Decides on an operation. Returns the delegate, if any, that must run before the gate answers the operation. [`end`]
/// must be called next.
pub fn begin<'o>(
    gate: &mut Gate<'_>,
    operation: &'o Operation,
) -> (OpenCall<'o>, Result<Option<DelegateRun>, OpError>) {
    let start = Instant::now();
    let (rule, delegate) = match admit(gate, operation) {
        Ok(rule) => (Some(rule), prepare(gate, operation)),
        Err(refusal) => (None, Err(refusal)),
    };
    (OpenCall { operation, start, rule }, delegate)
}

/// Writes a call to the audit log. The guest's error gets the operation's name.
pub fn end(gate: &mut Gate<'_>, call: OpenCall<'_>, outcome: Result<Reply, OpError>) -> Result<Reply, OpError> {
    let OpenCall { operation, start, rule } = call;
    let outcome = outcome.map_err(|mut error| {
        if error.operation.is_empty() {
            operation.name().clone_into(&mut error.operation);
        }
        error
    });
    // A refusal by policy is no fault of the plugin or the attachment. A DEL continues without the operation.
    let by_policy = |error: &OpError| match error.code {
        ErrorCode::Denied => allows(operation.lasting(), gate.run.request.verb),
        code => code == ErrorCode::Exhausted,
    };
    if outcome.as_ref().is_err_and(by_policy) {
        gate.hindered = true;
    }
    if let Err(error) = &outcome {
        gate.common.note(error);
    }
    let verb = gate.run.request.verb;
    gate.run.audit.note(&AuditEntry {
        verb,
        plugin: gate.guest.plugin,
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
    gate.run.fixed.deadline.in_time()?;
    let request = gate.run.request;
    gate.guest.count(gate.common, &request.plugin)?;
    if let Some(missing) = &gate.run.system.no_container {
        missing.refuse(&request.netns)?;
    }
    // The namespace is entered before the first operation, because a path can lead to a namespace of another kind.
    if gate.guest.is_first()
        && let Some(container) = gate.run.system.container()
    {
        container.netlink().map_err(kernel_error)?;
    }
    gate.guest.decide(request, gate.run.journal.owns_link(), operation)
}

/// Prepares an admitted operation: the plugin's section of the record is begun.
fn prepare(gate: &mut Gate<'_>, operation: &Operation) -> Result<Option<DelegateRun>, OpError> {
    if operation.lasting().is_recorded() {
        gate.run.journal.begin(gate.run.view())?;
    }
    capability::delegate_of(gate, operation)
}
