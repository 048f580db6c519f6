//! `ipam`: delegation to the operator's address management plugin.

use crate::capability::leases;
use crate::effect::Native;
use crate::gate::Gate;
use crate::{collect, native, outcome, plugin};
use postern_cni::{CniResult, Error, Verb, Version, code};
use postern_types::{DelegateError, ErrorCode, OpError, Reply, ops};

/// The plugin that keeps leases where the host can find them by itself.
const HOST_LOCAL: &str = "host-local";

/// Carries out one operation that policy allows.
///
/// # Errors
/// What the guest gets to see.
pub fn execute(gate: &mut Gate<'_>, operation: &ops::Ipam) -> Result<Reply, OpError> {
    match operation {
        ops::Ipam::Add => run(gate, Verb::Add),
        ops::Ipam::Del => run(gate, Verb::Del),
        ops::Ipam::Check => run(gate, Verb::Check),
        ops::Ipam::Status => run(gate, Verb::Status),
        ops::Ipam::Gc => run(gate, Verb::Gc),
    }
}

/// `ipam.add`, `ipam.del`, `ipam.check`, `ipam.status`, `ipam.gc`.
fn run(gate: &mut Gate<'_>, verb: Verb) -> Result<Reply, OpError> {
    let name = gate.session.request.conf.ipam_type.clone();
    check_name(&name)?;
    if name == gate.plugin {
        // It would get the same configuration, and delegate to itself again.
        return Err(OpError::new(ErrorCode::Exhausted, &name, "an IPAM plugin delegates to itself without end"));
    }
    let most = gate.granted().limits().depth();
    if gate.depth >= most {
        return Err(OpError::new(ErrorCode::Exhausted, &name, format!("plugins delegate more than {most} deep"))
            .hint(gate.granted().limit_hint("depth", most)));
    }
    if verb == Verb::Del {
        collect::before_release(gate.session)?;
    }
    let before = std::mem::take(&mut gate.session.hindered);
    let mut outcome = if gate.launcher.has(&name) {
        plugin::run(gate.session, gate.launcher, &name, verb, gate.depth + 1)
    } else {
        run_native(gate, &name, verb)
    };
    let hindered = std::mem::replace(&mut gate.session.hindered, before);
    if verb == Verb::Del
        && hindered
        && let Err(error) = &outcome
    {
        // Its leases are the attachment's to give back, whether it can be asked to or not.
        let error = error.to_string();
        outcome =
            leases::release_own(gate.session).map(|()| None).map_err(|failed| Error::internal(failed.to_string()));
        if outcome.is_ok() {
            crate::say!("postern: leases are given back without \"{name}\": {error}");
        }
    }
    let result = outcome.map_err(|error| delegate(&name, error))?;
    match (verb, result) {
        (Verb::Add, Some(result)) => {
            let text = result.to_json(Version::LATEST).map_err(|error| delegate(&name, error))?;
            gate.session.adopt(&result);
            Ok(Reply::Result(text))
        }
        _ => Ok(Reply::Done),
    }
}

/// The native libraries' three refusals (CVE-2021-20206 is the second).
///
/// # Errors
/// [`ErrorCode::Unsupported`] for none, [`ErrorCode::InvalidArgument`] for one that is no plain name.
pub fn check_name(name: &str) -> Result<(), OpError> {
    if name.is_empty() {
        return Err(OpError::new(ErrorCode::Unsupported, "ipam.type", "no plugin name provided")
            .hint("the network's configuration has no \"ipam\": {\"type\": …}"));
    }
    if name.contains('/') || name == "." || name == ".." {
        return Err(OpError::new(ErrorCode::InvalidArgument, name, format!("invalid plugin name: {name}")));
    }
    Ok(())
}

fn run_native(gate: &mut Gate<'_>, name: &str, verb: Verb) -> Result<Option<CniResult>, Error> {
    let program = native::find(name, &gate.session.request.path).inspect_err(|_| {
        // One of ours, of which the code is gone.
        gate.session.hindered = name == HOST_LOCAL || gate.launcher.shipped_policy(name).is_some();
    });
    let program = match program {
        // No ADD could be served.
        Err(error) if verb == Verb::Status => return Err(Error { code: code::PLUGIN_NOT_AVAILABLE, ..error }),
        found => found?,
    };
    if !gate.granted().allows_native(name) {
        let listed = Native { plugin: name.to_owned() }.into();
        if verb == Verb::Del {
            // A policy must not stand in the way of a DEL. What the record lists is undone by the record.
            if !gate.session.has(&listed) {
                crate::say!(
                    "postern: policy does not allow native \"{name}\", so it is not run for this DEL; if it gave the container \
                     addresses, it still has them"
                );
            }
            return Ok(None);
        }
        return Err(Error::new(
            crate::DENIED,
            format!(
                "policy does not allow \"{}\" to run \"{name}\" as a native program with all of the host's privileges",
                gate.plugin
            ),
        )
        .with_details(format!(
            "{} is no sandboxed plugin; {}",
            program.display(),
            gate.granted().native_hint(name)
        )));
    }
    if verb == Verb::Add {
        // The program itself is run again to undo: only it knows what it did.
        gate.session.intend(Native { plugin: name.to_owned() }).map_err(|error| Error::internal(error.to_string()))?;
    }
    gate.session.audit.flush();
    let result = native::run(&program, gate.session, verb)?;
    if let Some(result) = &result {
        outcome::one_family(name, result)?;
    }
    if verb == Verb::Del {
        gate.session.gone(|effect| Native::of(effect).is_some_and(|native| native.plugin == name));
    }
    Ok(result)
}

/// A delegate's error as its caller gets it.
pub fn delegate(name: &str, error: Error) -> OpError {
    let mut converted = OpError::new(ErrorCode::Delegate, name, format!("IPAM plugin \"{name}\" failed: {error}"));
    converted.delegate = Some(DelegateError { code: error.code, msg: error.msg, details: error.details });
    converted
}
