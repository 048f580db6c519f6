//! `delegate`: runs the main plugin of a flannel network.

pub mod effect;

use crate::budget::Common;
use crate::capability::delegate::effect as delegated;
use crate::capability::facts::{ALWAYS, Facts};
use crate::capability::ipam::answer;
use crate::capability::parent;
use crate::context::Context;
use crate::delegation::Delegation;
use crate::effect::Delegated;
use crate::errors::kernel_error;
use crate::gate::{DelegateRun, Gate, Ran};
use crate::right::Right;
use crate::{collect, native};
use ipnet::IpNet;
use postern_cni::{CniResult, Error, Verb, code};
use postern_kernel::Netlink;
use postern_policy::capability::delegate::named;
use postern_types::{ErrorCode, OpError, SubnetFile, host, ops};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const FACTS: Facts = Facts {
    keeps: |request, granted| {
        let [plugin, _, directory] = named(&request.conf);
        let granted = granted?;
        let writes = matches!(request.verb, Verb::Add | Verb::Del);
        Some(Right::Delegate {
            program: granted.allows_native_delegate(&plugin).then(|| plugin.into()),
            directory: (writes && granted.has_object("delegate.directories", &directory)).then(|| directory.into()),
        })
    },
    ..ALWAYS
};

impl host::Delegate for Gate<'_> {
    fn subnet_file(&mut self) -> Result<SubnetFile, OpError> {
        made(self)?.and_then(|delegation| delegation.subnet.clone()).ok_or_else(|| {
            let verb = self.run.request.verb.as_str();
            OpError::new(ErrorCode::NotFound, verb, format!("{verb} does not use the subnet file"))
        })
    }

    fn add(&mut self, _config: &str) -> Result<String, OpError> {
        answer_of(self, Verb::Add)?.ok_or_else(no_result)
    }

    fn del(&mut self) -> Result<(), OpError> {
        let Some(Delegation { plugin, .. }) = made(self)? else { return Ok(()) };
        if self.ran.is_none() && !self.guest.granted().allows_native_delegate(plugin) {
            // A policy must not prevent a DEL. The effects in the record are removed anyway.
            if self.run.journal.recorded::<Delegated>().is_empty() {
                crate::say!(
                    "postern: policy does not allow native \"{plugin}\", so this DEL does not run \"{plugin}\"; the \
                     program's effects stay"
                );
            }
            return Ok(());
        }
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

/// Returns the delegation that was prepared for this run; `None` if nothing was delegated.
fn made<'a>(gate: &Gate<'a>) -> Result<Option<&'a Delegation>, OpError> {
    gate.delegates.delegation.as_ref().map(Option::as_ref).map_err(Clone::clone)
}

fn no_result() -> OpError {
    OpError::new(ErrorCode::Delegate, "", "the delegate has given no result")
}

/// Returns the delegate's run, if the delegate is a component. For an ADD the delegation is recorded first.
pub(crate) fn delegate_of(gate: &mut Gate<'_>, operation: &ops::Delegate) -> Result<Option<DelegateRun>, OpError> {
    let verb = match operation {
        ops::Delegate::SubnetFile => return Ok(None),
        ops::Delegate::Add { config } => {
            note(gate, config)?;
            Verb::Add
        }
        ops::Delegate::Del => Verb::Del,
        ops::Delegate::Check => Verb::Check,
        ops::Delegate::Status => Verb::Status,
        ops::Delegate::Gc => Verb::Gc,
    };
    let Some(delegation) = made(gate)? else { return Ok(None) };
    if !gate.delegates.launcher.has(&delegation.plugin) {
        return Ok(None);
    }
    gate.guest.delegate_main(&delegation.plugin)?;
    let request = delegation.request(gate.run.request, verb);
    Ok(Some(DelegateRun { plugin: delegation.plugin.clone(), request }))
}

/// Checks a delegation, and writes it down.
fn note(gate: &mut Gate<'_>, config: &str) -> Result<(), OpError> {
    let delegation = made(gate)?.ok_or_else(no_result)?;
    let (plugin, text) = (delegation.plugin.clone(), delegation.text.clone());
    gate.guest.delegate_main(&plugin)?;
    delegation.compare(config)?;
    if let Some(subnet) = &delegation.subnet {
        spares_node(gate.run.system.host()?, subnet)?;
    }
    let native = !gate.delegates.launcher.has(&plugin);
    if native {
        native::find(&plugin, &gate.run.request.path).map_err(|error| failed(&plugin, error))?;
        may_be_native(gate, &plugin)?;
    }
    let journal = &*gate.run.journal;
    let is_of_run = journal.has_made(|undo| Delegated::is(&undo.effect));
    if is_of_run || !journal.recorded::<Delegated>().is_empty() && !journal.has_lost_link {
        let message = "the attachment has been delegated already";
        return Err(OpError::new(ErrorCode::Exists, plugin, message).hint("run DEL first"));
    }
    // The effect is recorded anew, because another program may have removed the file with the delegate's configuration
    // (`delegated::write`).
    gate.run.journal.gone(Delegated::is);
    let [_, _, directory] = named(&gate.run.request.conf);
    let directory = delegated::place(gate.run.view(), &directory)?;
    let delegated = Delegated { plugin, native, config: text.to_string(), directory: directory.clone() };
    gate.run.journal.intend(gate.run.view(), delegated)?;
    if let Some(directory) = directory {
        delegated::write(gate.run.view(), &directory, &text)?;
    }
    Ok(())
}

/// Makes the answer from the delegate's run. If no component has run, a native program is run. Returns the result of an
/// ADD.
fn answer_of(gate: &mut Gate<'_>, verb: Verb) -> Result<Option<String>, OpError> {
    let Some(delegation) = made(gate)? else { return Ok(None) };
    let plugin = &delegation.plugin;
    let ran = match gate.ran.take() {
        Some(ran) => ran,
        None => {
            gate.guest.delegate_main(plugin)?;
            if verb != Verb::Del {
                may_be_native(gate, plugin)?;
            }
            let request = delegation.request(gate.run.request, verb);
            Ran { outcome: run_native(&mut gate.run.with(&request), gate.common, plugin), hindered: false }
        }
    };
    gate.hindered |= ran.hindered;
    let text = answer(plugin, verb, ran.outcome, &mut gate.run.own.addresses, failed)?;
    match verb {
        // A native delegate does not know Postern's records.
        Verb::Gc => collect::stale_sections(gate.run.view()).map(drop)?,
        Verb::Del if delegation.of_native => {
            let [_, _, directory] = named(&gate.run.request.conf);
            delegated::remove(gate.run, &directory, &delegation.text)?;
        }
        Verb::Add | Verb::Check | Verb::Del | Verb::Status | Verb::Version => {}
    }
    Ok(text)
}

fn may_be_native(gate: &Gate<'_>, plugin: &str) -> Result<(), OpError> {
    if gate.guest.granted().allows_native_delegate(plugin) {
        return Ok(());
    }
    let message = format!(
        "policy does not allow \"{}\" to run \"{plugin}\" as a native program with all of the host's privileges",
        gate.guest.plugin
    );
    Err(OpError::new(ErrorCode::Denied, plugin, message)
        .hint(gate.guest.granted().object_hint("delegate.native", plugin)))
}

fn run_native(run: &mut Context, common: &mut Common, plugin: &str) -> Result<Option<CniResult>, Error> {
    let verb = run.request.verb;
    let program = match native::find(plugin, &run.request.path) {
        // For STATUS a missing delegate means that no ADD could succeed.
        Err(error) if verb == Verb::Status => return Err(Error { code: code::PLUGIN_NOT_AVAILABLE, ..error }),
        found => found?,
    };
    run.audit.flush();
    let result = native::run(plugin, &program, run, verb)?;
    if let Some(result) = &result {
        let links = result.interfaces.iter().filter(|link| link.sandbox.is_empty());
        common.shown.extend(links.map(|link| link.name.clone()));
    }
    Ok(result)
}

/// Converts a delegate's error to the form that its caller gets.
pub fn failed(plugin: &str, error: Error) -> OpError {
    let message = format!("delegate \"{plugin}\" failed: {error}");
    OpError { delegate: Some(error), ..OpError::new(ErrorCode::Delegate, plugin, message) }
}

/// Refuses a subnet that covers an address of loopback or of a default route's link: the node would lose its connection
/// to other hosts. A subnet may cover addresses of other links: `flannel.1` has the subnet's first address, and the
/// bridge has the subnet's gateway.
///
/// # Errors
/// [`ErrorCode::InvalidArgument`]: the subnet covers a refused address. Or the kernel refuses to list addresses or
/// routes.
pub fn spares_node(netlink: &Netlink, subnet: &SubnetFile) -> Result<(), OpError> {
    let covers = |subnet: &IpNet, address: IpAddr, link: &str| {
        let message = format!("subnet {subnet} covers {address}, an address of {link}");
        OpError::new(ErrorCode::InvalidArgument, subnet.to_string(), message)
            .hint("the networks of flannel must not overlap with the node's own networks")
    };
    for subnet in &subnet.subnets {
        // All of 127.0.0.0/8 belongs to loopback, even if the kernel lists no address in it.
        let (v4, v6) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST));
        if subnet.network().is_loopback() || subnet.contains(&v4) || subnet.contains(&v6) {
            return Err(covers(subnet, if subnet.addr().is_ipv4() { v4 } else { v6 }, "loopback"));
        }
    }
    let lo = netlink.link_by_name("lo").map_err(kernel_error)?.map(|link| link.index);
    let own = netlink.all_addresses().map_err(kernel_error)?;
    let covered = |net: &IpNet| subnet.subnets.iter().find(|subnet| subnet.contains(&net.addr())).copied();
    let mut defaults = None;
    for (index, address) in own {
        let Some(subnet) = covered(&address.net) else { continue };
        if defaults.is_none() {
            defaults = Some(parent::default_links(netlink)?);
        }
        let is_default = defaults.as_ref().is_some_and(|links| links.contains(&index));
        if is_default || lo == Some(index) {
            let link = if is_default { "the default route's link" } else { "loopback" };
            return Err(covers(&subnet, address.net.addr(), link));
        }
    }
    Ok(())
}
