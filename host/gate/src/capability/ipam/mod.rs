//! `ipam`: delegation to the operator's address management plugin.

pub mod effect;

use crate::capability::facts::{Facts, WITH_ADDRESSES};
use crate::capability::leases;
use crate::effect::Native;
use crate::gate::{DelegateRun, Gate, Ran};
use crate::own::{OwnAddress, adopt};
use crate::plugin_error::AGAIN;
use crate::right::Right;
use crate::{collect, native, others};
use postern_cni::{CniResult, Error, Verb, Version, code};
use postern_types::{Capability, ErrorCode, OpError, host, ops};
use std::net::IpAddr;

/// The plugin whose leases the host can find without the plugin.
const HOST_LOCAL: &str = "host-local";

pub(crate) const FACTS: Facts = Facts {
    keeps: |request, granted| {
        let name = &request.conf.ipam_type;
        let is_allowed = granted.is_some_and(|granted| granted.has_object("ipam.native", name));
        is_allowed.then(|| Right::Program(name.clone().into()))
    },
    ..WITH_ADDRESSES
};

impl host::Ipam for Gate<'_> {
    fn add(&mut self) -> Result<String, OpError> {
        let result = answer_of(self, Verb::Add)?;
        result.ok_or_else(|| OpError::new(ErrorCode::Delegate, "", "the IPAM plugin has given no result"))
    }

    fn del(&mut self) -> Result<(), OpError> {
        answer_of(self, Verb::Del).map(drop)
    }

    fn check(&mut self) -> Result<(), OpError> {
        answer_of(self, Verb::Check).map(drop)
    }

    fn status(&mut self) -> Result<(), OpError> {
        answer_of(self, Verb::Status).map(drop)
    }

    fn gc(&mut self) -> Result<(), OpError> {
        answer_of(self, Verb::Gc).map(drop)
    }
}

/// Returns the run of the IPAM plugin, if it is a component.
pub(crate) fn delegate_of(gate: &mut Gate<'_>, operation: &ops::Ipam) -> Result<Option<DelegateRun>, OpError> {
    let verb = match operation {
        ops::Ipam::Add => Verb::Add,
        ops::Ipam::Del => Verb::Del,
        ops::Ipam::Check => Verb::Check,
        ops::Ipam::Status => Verb::Status,
        ops::Ipam::Gc => Verb::Gc,
    };
    let plugin = gate.guest.delegate(gate.run.request)?;
    if verb == Verb::Del {
        collect::before_release(gate.run)?;
    }
    let is_component = gate.delegates.launcher.has(&plugin);
    Ok(is_component.then(|| DelegateRun { plugin, request: gate.run.request.of_delegate(verb) }))
}

/// Makes the answer from the IPAM plugin's run. If no component has run, a native program is run. Returns the result of
/// an ADD.
fn answer_of(gate: &mut Gate<'_>, verb: Verb) -> Result<Option<String>, OpError> {
    let name = &gate.guest.delegate(gate.run.request)?;
    let Ran { mut outcome, hindered } = match gate.ran.take() {
        Some(ran) => ran,
        None => {
            let mut hindered = false;
            Ran { outcome: run_native(gate, name, verb, &mut hindered), hindered }
        }
    };
    if let (Verb::Add, Ok(Some(result))) = (verb, &outcome) {
        nothing_leads_to(gate, name, result)?;
    }
    if verb == Verb::Del
        && hindered
        && let Err(error) = &outcome
    {
        // The leases of host-local belong to the attachment, and are given back even if the delegate can't be run.
        let error = error.to_string();
        outcome = leases::release_own(gate.run).map(|()| None).map_err(|failed| Error::internal(failed.to_string()));
        if outcome.is_ok() {
            crate::say!("postern: leases are given back without \"{name}\": {error}");
        }
    }
    answer(name, verb, outcome, &mut gate.run.own.addresses, delegate)
}

/// The capabilities that give the attachment a host end, which frames of the node can reach.
const HOST_ENDS: [Capability; 3] = [Capability::Bridge, Capability::Veth, Capability::PointToPoint];

/// Fails if forwards of another attachment lead to an address of the result: traffic for the other attachment's ports
/// would reach this container. Without a host end, forwards can't reach the container, and the address may belong to a
/// separate network. Addresses from the store of leases were already checked when they were taken.
fn nothing_leads_to(gate: &mut Gate<'_>, name: &str, result: &CniResult) -> Result<(), OpError> {
    let run = &mut *gate.run;
    let is_lease = |address: &IpAddr| run.journal.has_made(|undo| undo.leases.contains(address));
    let given = result.ips.iter().map(|ip| ip.address.addr());
    let given: Vec<IpAddr> = given.filter(|address| !is_lease(address)).collect();
    if given.is_empty() {
        return Ok(());
    }
    let led = others::led_to(run, &given)?;
    let Some(led) = led.first() else { return Ok(()) };
    if !HOST_ENDS.iter().any(|capability| gate.guest.granted().has(*capability)) {
        crate::say!(
            "postern: IPAM plugin \"{name}\" gave {}: {}; if this node reaches the network of \"{}\", these rules lead to this container",
            led.address,
            led.words(),
            run.request.conf.name
        );
        return Ok(());
    }
    let message = format!("IPAM plugin \"{name}\" gave {}, and rules of this node lead to this address", led.address);
    Err(OpError::new(ErrorCode::Exists, led.address.to_string(), message).hint(leases::kept(run.view(), led)))
}

/// Runs a native program. `hindered`: see [`Ran::hindered`].
fn run_native(gate: &mut Gate<'_>, name: &str, verb: Verb, hindered: &mut bool) -> Result<Option<CniResult>, Error> {
    // The catalog lists this delegate, but its code is missing. A native program replaces the delegate only if policy
    // allows the program.
    if !gate.guest.granted().has_object("ipam.native", name) && gate.delegates.launcher.lists(name) {
        *hindered = true;
        let code = if verb == Verb::Status { code::PLUGIN_NOT_AVAILABLE } else { code::INTERNAL };
        return Err(Error::new(code, format!("plugin \"{name}\" is installed, but its code is gone from the catalog"))
            .with_details(AGAIN));
    }
    let program = native::find(name, &gate.run.request.path).map_err(|error| {
        *hindered = name == HOST_LOCAL || gate.delegates.launcher.lists(name);
        // For STATUS a missing program means that no ADD could succeed.
        if verb == Verb::Status { Error { code: code::PLUGIN_NOT_AVAILABLE, ..error } } else { error }
    })?;
    if !gate.guest.granted().has_object("ipam.native", name) {
        let listed = Native::of_run(name, gate.run).into();
        if verb == Verb::Del {
            // A policy must not prevent a DEL. The effects in the record are removed anyway.
            if !gate.run.journal.has(&listed) {
                crate::say!(
                    "postern: policy does not allow native \"{name}\", so this DEL does not run the program; addresses \
                     that the program gave the container stay reserved"
                );
            }
            return Ok(None);
        }
        return Err(Error::new(
            crate::DENIED,
            format!(
                "policy does not allow \"{}\" to run \"{name}\" as a native program with all of the host's privileges",
                gate.guest.plugin
            ),
        )
        .with_details(format!(
            "{} is no sandboxed plugin; {}",
            program.display(),
            gate.guest.granted().native_hint(name)
        )));
    }
    if verb == Verb::Add {
        // The effect is recorded first. Its undo runs the program again, because only the program knows which effects
        // it had.
        let effect = Native::of_run(name, gate.run);
        gate.run.journal.intend(gate.run.view(), effect).map_err(|error| Error::internal(error.to_string()))?;
    }
    gate.run.audit.flush();
    let result = native::run(name, &program, gate.run, verb)?;
    if verb == Verb::Del {
        gate.run.journal.gone(|effect| Native::of(effect).is_some_and(|native| native.plugin == name));
    }
    Ok(result)
}

/// Converts the outcome of a delegate to the form that its caller gets; `failed` makes the error. The addresses of a
/// result belong to the attachment from then on.
pub fn answer(
    name: &str,
    verb: Verb,
    outcome: Result<Option<CniResult>, Error>,
    own: &mut Vec<OwnAddress>,
    failed: fn(&str, Error) -> OpError,
) -> Result<Option<String>, OpError> {
    let Some(result) = outcome.map_err(|error| failed(name, error))?.filter(|_| verb == Verb::Add) else {
        return Ok(None);
    };
    let text = result.to_json(Version::LATEST).map_err(|error| failed(name, error))?;
    adopt(own, &result);
    Ok(Some(text))
}

/// Converts a delegate's error to the form that its caller gets.
pub fn delegate(name: &str, error: Error) -> OpError {
    let message = format!("IPAM plugin \"{name}\" failed: {error}");
    OpError { delegate: Some(error), ..OpError::new(ErrorCode::Delegate, name, message) }
}
