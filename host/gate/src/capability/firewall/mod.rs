//! `firewall`: lets the node forward traffic of the attachment's addresses, and isolates the attachment's bridge.
//!
//! Backend, admin chain, zone and ingress policy come from the operator's configuration, and never from the guest.

pub mod effect;
pub mod isolation;

use crate::capability::facts::{ALWAYS, Facts};
use crate::capability::leaves::EffectKind;
use crate::capability::shared::numbers::{is_first, placed};
use crate::context::Context;
use crate::effect::{Firewall, Isolation};
use crate::errors::{firewall_error, kernel_error};
use crate::gate::Gate;
use crate::others;
use crate::request::Request;
use crate::right::Right;
use ipnet::IpNet;
use postern_cni::Verb;
use postern_firewall::iptables::forward::AddressHandles;
use postern_firewall::{firewalld, iptables};
use postern_kernel::Link;
use postern_policy::Granted;
use postern_policy::capability::firewall::{Named, is_zone};
use postern_types::{ErrorCode, FirewallBackend, IngressPolicy, OpError, host};

pub(crate) const FACTS: Facts = Facts { keeps, ..ALWAYS };

fn keeps(request: &Request, granted: Option<&Granted>) -> Option<Right<'static>> {
    // A garbage collection removes only recorded effects. Each effect states its own right (`EffectKind::right`).
    if request.verb == Verb::Gc {
        return None;
    }
    let named = Named::of(&request.conf);
    // A removal needs no grant: it uses the zone that the network names.
    let granted_zone = || granted.and_then(|granted| granted.zone(&named));
    let zone = if request.verb == Verb::Del { Some(named.zone.clone()) } else { granted_zone() };
    let is_possible = named.backend != Some(FirewallBackend::Iptables) && firewalld::installed();
    Some(if is_possible { Right::Filters(zone.unwrap_or_default().into()) } else { Right::Forwarding })
}

impl host::Firewall for Gate<'_> {
    fn admit(&mut self, addresses: &[IpNet]) -> Result<(), OpError> {
        must_own(self, addresses)?;
        if addresses.is_empty() {
            return Ok(());
        }
        let named = Named::of(&self.run.request.conf);
        let backend = backend(self.run, &named)?;
        self.guest.granted().allows_filter(backend, &named)?;
        let (admin_chain, zone) = match backend {
            FirewallBackend::Iptables => (Some(named.admin_chain), None),
            FirewallBackend::Firewalld => (None, Some(named.zone)),
        };
        let effect = Firewall { backend, variant: None, admin_chain, zone, addresses: addresses.to_vec() };
        let by_iptables = backend == FirewallBackend::Iptables;
        let effect = placed(self.run.journal, effect, by_iptables.then_some(addresses), |made| &mut made.variant);
        // `is_first` is computed before the intent is written, because the intent itself would count. After a native
        // plugin `is_first` is false: a native firewall plugin may be earlier in the list.
        let is_first = !others::is_behind_native(self.run.journal) && is_first::<Firewall>(self.run.journal);
        self.run.journal.intend(self.run.view(), effect.clone())?;
        effect.make(self.run, is_first)
    }

    fn isolate(&mut self, ingress: IngressPolicy) -> Result<(), OpError> {
        let bridge = bridge(self.run)?.name.to_string();
        let has = |v6| self.run.own.addresses.iter().any(|own| own.net.addr().is_ipv6() == v6);
        let isolation = Isolation { bridge, ingress, v4: has(false), v6: has(true) };
        self.run.journal.intend(self.run.view(), isolation.clone())?;
        isolation.make(self.run)?;
        Ok(())
    }

    fn check(&mut self, addresses: &[IpNet]) -> Result<(), OpError> {
        must_own(self, addresses)?;
        let (run, named) = (&*self.run, Named::of(&self.run.request.conf));
        let recorded = run.journal.recorded::<Firewall>().into_iter().next();
        let backend = recorded.as_ref().map_or_else(|| backend(run, &named), |made| Ok(made.backend))?;
        let noted = recorded.as_ref().map(|made| made.numbers(run)).unwrap_or_default();
        let zone = recorded.and_then(|made| made.zone).unwrap_or_else(|| named.zone.clone());
        if backend == FirewallBackend::Firewalld {
            for address in addresses.iter().map(IpNet::addr) {
                if !firewalld::query(&zone, address, run.system.program_runner()).map_err(firewall_error)? {
                    let message = format!("failed to find the address {} in {zone} zone", firewalld::source(address));
                    return Err(OpError::new(ErrorCode::Mismatch, address.to_string(), message));
                }
            }
        }
        let admin = (backend == FirewallBackend::Iptables).then_some(named.admin_chain.as_str());
        let bridge = named_bridge(run.request);
        let isolated = IngressPolicy::parse(&named.ingress).map(|ingress| (bridge.as_str(), ingress));
        if admin.is_none() && isolated.is_none() {
            return Ok(());
        }
        let numbers = AddressHandles { addresses: addresses.to_vec(), ..noted };
        let missing = iptables::forward::missing_rule(&numbers, admin, isolated, run.system.program_runner());
        missing.map_err(firewall_error)?.map_or(Ok(()), |missing| Err(OpError::new(ErrorCode::Mismatch, "", missing)))
    }

    fn remove(&mut self) -> Result<(), OpError> {
        self.run.journal.only_of_this_run(self.run.request, Firewall::is, "forwarding rules")?;
        remove_own(self.run)
    }
}

fn must_own(gate: &Gate<'_>, addresses: &[IpNet]) -> Result<(), OpError> {
    let Some(foreign) = addresses.iter().find(|address| !gate.run.own.owns(address)) else { return Ok(()) };
    let (why, hint) = others::not_counting(gate.run.view(), foreign, gate.guest.granted());
    let message = format!("no record says that an earlier plugin gave {foreign} to this attachment{why}");
    Err(OpError::new(ErrorCode::Denied, foreign.to_string(), message).hint(hint))
}

/// Returns the packet filter: the filter that the network names, or else firewalld if it runs, or else iptables.
fn backend(run: &Context, named: &Named) -> Result<FirewallBackend, OpError> {
    if named.backend == Some(FirewallBackend::Iptables) {
        return Ok(FirewallBackend::Iptables);
    }
    let runs = firewalld::runs(run.system.program_runner()).map_err(firewall_error)?;
    match named.backend {
        Some(_) if !runs => {
            let message = "the network wants firewalld, which does not run on this node";
            Err(OpError::new(ErrorCode::Unsupported, "firewalld", message)
                .hint("start firewalld, or set \"backend\" to \"iptables\""))
        }
        Some(_) | None => Ok(if runs { FirewallBackend::Firewalld } else { FirewallBackend::Iptables }),
    }
}

/// Returns the recorded handles of the rules, if the record is enough; `None` if the run has to search.
pub(crate) fn noted(run: &Context) -> Option<Vec<AddressHandles>> {
    let recorded = run.journal.recorded::<Firewall>();
    let is_known = match run.request.verb {
        Verb::Add | Verb::Status | Verb::Version => true,
        Verb::Check | Verb::Del => run.journal.record_is_whole() && !run.journal.is_replaced() && !recorded.is_empty(),
        Verb::Gc => false,
    };
    let by_iptables = recorded.into_iter().filter(|made| made.backend == FirewallBackend::Iptables);
    let noted: Vec<AddressHandles> = by_iptables.map(|made| made.numbers(run)).collect();
    (is_known && noted.iter().all(|numbers| !numbers.handles.is_empty())).then_some(noted)
}

/// Returns the name of the bridge in `prevResult`, by the native plugin's convention.
fn named_bridge(request: &Request) -> String {
    request.previous().interfaces.into_iter().next().map(|first| first.name).unwrap_or_default()
}

/// Returns the link of which the attachment's host end is a port, as the kernel says.
fn master(run: &Context) -> Result<Option<Link>, OpError> {
    let end = others::end(run)?.map_or_else(|| others::end_behind_native(run.view()), |end| Ok(Some(end)))?;
    let master = end.as_ref().and_then(|end| end.master);
    master.map_or(Ok(None), |master| run.system.host()?.link_by_index(master).map_err(kernel_error))
}

/// True if the bridge of the attachment's host end now has the isolation of `ingress`, in the IP versions of the
/// attachment's addresses.
pub(crate) fn is_isolated(run: &Context, ingress: IngressPolicy) -> Result<bool, OpError> {
    let addresses: Vec<IpNet> = run.own.addresses.iter().map(|own| own.net).collect();
    if addresses.is_empty() {
        return Ok(true);
    }
    let Some(bridge) = master(run)?.filter(|link| link.kind == "bridge") else { return Ok(false) };
    let name = bridge.name.to_string();
    let isolated = Some((name.as_str(), ingress));
    let numbers = AddressHandles { addresses, ..AddressHandles::default() };
    iptables::forward::missing_rule(&numbers, None, isolated, run.system.program_runner())
        .map(|missing| missing.is_none())
        .map_err(firewall_error)
}

/// Returns the bridge of which the attachment's host end is a port. The kernel names the bridge, not `prevResult`: a
/// false `prevResult` could name a link of the node. Then the node would forward no more traffic from this link.
fn bridge(run: &Context) -> Result<Link, OpError> {
    let named = named_bridge(run.request);
    let is = match master(run)? {
        Some(link) if link.kind == "bridge" && link.name == named => return Ok(link),
        Some(link) if link.kind == "bridge" => format!("a port of \"{}\"", link.name),
        _ => "no port of a bridge".to_owned(),
    };
    let message = format!("prevResult names \"{named}\" as the bridge, and this attachment's host end is {is}");
    Err(OpError::new(ErrorCode::InvalidArgument, named, message)
        .hint("\"ingressPolicy\" is for lists that begin with a bridge plugin"))
}

/// Removes the rules that admit the attachment's addresses. The addresses come from the record, or from `prevResult` if
/// the record has no section of this plugin.
pub(crate) fn remove_own(run: &mut Context) -> Result<(), OpError> {
    for made in run.journal.recorded::<Firewall>() {
        made.remove(run)?;
    }
    let plugin = &run.request.plugin;
    let has_part = run.journal.record().is_some_and(|record| record.sections().iter().any(|of| of.plugin() == plugin));
    if run.request.verb != Verb::Add && (!has_part || run.journal.is_replaced()) {
        revert_unrecorded(run)?;
    }
    run.journal.gone(Firewall::is);
    Ok(())
}

/// Removes a native plugin's rules for the addresses of `prevResult`. If the record lists addresses, only these
/// addresses count. The record lists no addresses if a native plugin of the list gave the addresses. Addresses in
/// records of other attachments never count.
fn revert_unrecorded(run: &Context) -> Result<(), OpError> {
    let previous = run.request.previous();
    let sections = run.journal.record().filter(|_| !run.journal.is_replaced()).map(postern_state::Record::sections);
    let own: Vec<&String> = sections.unwrap_or_default().iter().flat_map(|section| &section.addresses).collect();
    let knows = |address: &IpNet| own.is_empty() || own.contains(&&address.to_string());
    let mut addresses: Vec<IpNet> = previous.ips.iter().map(|ip| ip.address).filter(knows).collect();
    let mut foreign = Vec::new();
    for address in &addresses {
        if others::is_held(run.view(), address.addr())? {
            foreign.push(*address);
        }
    }
    addresses.retain(|address| !foreign.contains(address));
    if addresses.is_empty() {
        return Ok(());
    }
    let named = Named::of(&run.request.conf);
    // A zone that can't exist is not searched.
    let zone = Some(named.zone)
        .filter(|zone| named.backend != Some(FirewallBackend::Iptables) && firewalld::installed() && is_zone(zone));
    let backend = FirewallBackend::Iptables;
    let by_iptables = Firewall { backend, variant: None, admin_chain: None, zone: None, addresses };
    if zone.is_some() {
        Firewall { backend: FirewallBackend::Firewalld, zone, ..by_iptables.clone() }.remove(run)?;
    }
    by_iptables.remove(run)
}
