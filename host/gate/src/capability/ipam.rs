//! `ipam`: delegation to the operator's address management plugin.

use crate::effect::Effect;
use crate::gate::Gate;
use crate::{collect, native, outcome, plugin};
use postern_cni::{CniResult, Error, Verb, Version};
use postern_types::{DelegateError, ErrorCode, OpError, Reply};

/// `ipam.add`, `ipam.del`, `ipam.check`, `ipam.status`, `ipam.gc`.
pub fn run(gate: &mut Gate<'_>, verb: Verb) -> Result<Reply, OpError> {
    let name = gate.session.request.conf.ipam_type.clone();
    check_name(&name)?;
    if name == gate.plugin {
        // It would get the same configuration, and delegate to itself again.
        return Err(OpError::new(ErrorCode::Exhausted, &name, "an IPAM plugin delegates to itself without end"));
    }
    let most = gate.granted().limits().depth();
    if gate.depth >= most {
        return Err(OpError::new(ErrorCode::Exhausted, &name, format!("plugins delegate more than {most} deep"))
            .hint(format!("[limits] depth in {}", gate.granted().operator_file())));
    }
    if verb == Verb::Del {
        collect::before_release(gate.session)?;
    }
    let outcome = if gate.launcher.has(&name) {
        plugin::run(gate.session, gate.launcher, &name, verb, gate.depth + 1)
    } else {
        run_native(gate, &name, verb)
    };
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
    let program = native::find(name, &gate.session.request.path)?;
    if !gate.granted().allows_native(name) {
        let request = &gate.session.request;
        if verb == Verb::Del && gate.session.record().is_none() && request.conf.raw_previous_result().is_none() {
            // What was refused on ADD has left nothing: a runtime must be able to let go of it.
            crate::say!("postern: policy does not allow native \"{name}\", and nothing shows that it was ever run");
            return Ok(None);
        }
        let file = gate.granted().operator_file();
        return Err(Error::new(
            crate::DENIED,
            format!(
                "policy does not allow \"{}\" to run \"{name}\" as a native program with all of the host's privileges",
                gate.plugin
            ),
        )
        .with_details(format!(
            "{} is no sandboxed plugin; an operator can allow it with `[grant.ipam] types = [\"{name}\"] native = \
             [\"{name}\"]` in {file}",
            program.display()
        )));
    }
    if verb == Verb::Add {
        // The program itself is run again to undo: only it knows what it did.
        gate.session
            .intend(Effect::Native { plugin: name.to_owned() })
            .map_err(|error| Error::internal(error.to_string()))?;
    }
    gate.session.audit.flush();
    let result = native::run(&program, gate.session, verb)?;
    if let Some(result) = &result {
        outcome::one_family(name, result)?;
    }
    if verb == Verb::Del {
        gate.session.gone(|effect| matches!(effect, Effect::Native { plugin } if plugin == name));
    }
    Ok(result)
}

/// A delegate's error as its caller gets it.
pub fn delegate(name: &str, error: Error) -> OpError {
    let mut converted = OpError::new(ErrorCode::Delegate, name, format!("IPAM plugin \"{name}\" failed: {error}"));
    converted.delegate = Some(DelegateError { code: error.code, msg: error.msg, details: error.details });
    converted
}
