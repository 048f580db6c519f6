//! `port-mappings`: ports of the node that lead to the attachment's own addresses.
//!
//! The guest only names the addresses. All other data come from trusted sources. The ports come from the run's
//! configuration. Record and policy decide which addresses are accepted. Packet filter, mark and conditions come from
//! the operator's configuration.

pub mod effect;

use crate::capability::facts::{ALWAYS, Facts};
use crate::capability::port_mappings::effect::{localnet_is_on, remove_unrecorded};
use crate::capability::shared::numbers::{placed, remove_recorded, retain_chains};
use crate::context::{Context, View};
use crate::effect::PortMappings;
use crate::errors::{firewall_error, kernel_error};
use crate::gate::Gate;
use crate::request::Request;
use crate::right::Right;
use crate::{host_ports, node, others, packet_filter};
use ipnet::IpNet;
use postern_cni::{PortMap, PortMapping, Verb, parse_ip};
use postern_firewall::hostport::{self, Syntax, localnet};
use postern_firewall::{ChainKind, iptables};
use postern_kernel::{Sysctl, sysctl};
use postern_policy::Granted;
use postern_policy::capability::firewall::is_taken;
use postern_types::{Backend, ErrorCode, Forward, NatSources, OpError, Transport, host};
use std::collections::HashSet;
use std::net::IpAddr;

/// The most ports of one attachment. Podman makes one mapping for each port of a range.
pub const MOST_PORTS: usize = 16_384;

/// The policy line that allows a packet filter for forwards.
const BACKENDS: &str = "port-mappings.backends";

pub(crate) const FACTS: Facts = Facts { keeps, unrecorded: Some(collect), ..ALWAYS };

/// Returns the right to the programs of iptables, if this run may make rules with them.
fn keeps(request: &Request, granted: Option<&Granted>) -> Option<Right<'static>> {
    let map = PortMap::read(&request.conf).ok()?;
    let is_wanted = matches!(request.verb, Verb::Add | Verb::Check) && !map.mappings.is_empty();
    let by_iptables = is_wanted && named(&map).is_ok_and(|backend| backend != Some(Backend::Nftables));
    (by_iptables && granted.is_some_and(|granted| granted.has_object(BACKENDS, Backend::Iptables.name())))
        .then_some(Right::HostPorts)
}

impl host::PortMappings for Gate<'_> {
    fn ensure(&mut self, addresses: &[IpAddr], forwards: &[Forward], masquerade: NatSources) -> Result<(), OpError> {
        let effects = effects(self, addresses, forwards, masquerade)?;
        let Some(first) = effects.first() else { return Ok(()) };
        let backend = first.backend;
        if !self.guest.granted().has_object(BACKENDS, backend.name()) {
            let message = format!("policy does not allow forwards by {}", backend.name());
            let hint = self.guest.granted().object_hint(BACKENDS, backend.name());
            return Err(OpError::new(ErrorCode::Denied, backend.name(), message).hint(hint));
        }
        if backend == Backend::Iptables {
            // An effect that can't be made must not be recorded: it could never be removed.
            iptables::validate(ChainKind::Forwards, &self.run.request.masquerade_key()).map_err(firewall_error)?;
        }
        let wanted: Vec<Forward> = effects.iter().flat_map(|effect| effect.forwards.clone()).collect();
        let claims = host_ports::claim(self.run.view(), &wanted)?;
        let is_first: Vec<bool> = effects.iter().map(|effect| !self.run.journal.has(&effect.clone().into())).collect();
        for effect in &effects {
            self.run.journal.intend(self.run.view(), effect.clone())?;
        }
        claims.note(&wanted)?;
        for (effect, is_first) in effects.iter().zip(is_first) {
            effect.make(self.run, is_first)?;
            // Old connections are removed after the rules are made, so that the next packet meets the rules. After a
            // failure the forward still works for new connections.
            if let Err(error) = effect.forget_connections(self.run.system, true) {
                crate::say!(
                    "postern: failed to delete stale UDP conntrack entries for {}: {error}",
                    effect.address.addr()
                );
            }
            open_to_localhost(self.run.view(), effect)?;
        }
        Ok(())
    }

    fn check(&mut self, addresses: &[IpAddr], forwards: &[Forward], masquerade: NatSources) -> Result<(), OpError> {
        for effect in effects(self, addresses, forwards, masquerade)? {
            if !effect.is_whole(self.run)? {
                let message = format!("the forwards to {} are incomplete", effect.address.addr());
                return Err(OpError::new(ErrorCode::Mismatch, &self.run.request.conf.name, message));
            }
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<(), OpError> {
        self.run.journal.only_of_this_run(self.run.request, PortMappings::is, "port mappings")?;
        remove_own(self.run)
    }
}

/// Returns the packet filter that a network names or implies.
fn named(map: &PortMap) -> Result<Option<Backend>, OpError> {
    Ok(map.backend().map_err(|error| invalid("backend", error.msg))?.and_then(Backend::parse))
}

/// Returns the packet filter of a network: the configured filter, or else the recorded filter, or else the node's
/// filter.
fn backend(gate: &Gate<'_>, map: &PortMap) -> Result<Backend, OpError> {
    if let Some(named) = named(map)? {
        return Ok(named);
    }
    match gate.run.journal.recorded::<PortMappings>().first() {
        Some(made) => Ok(made.backend),
        None => {
            packet_filter::default(gate.run.view(), |backend| gate.guest.granted().has_object(BACKENDS, backend.name()))
        }
    }
}

fn invalid(object: impl Into<String>, message: impl Into<String>) -> OpError {
    OpError::new(ErrorCode::InvalidArgument, object, message)
}

/// Returns the effects that a guest asks for, one for each address, if the configuration and the record agree.
fn effects(
    gate: &Gate<'_>,
    addresses: &[IpAddr],
    forwards: &[Forward],
    masquerade: NatSources,
) -> Result<Vec<PortMappings>, OpError> {
    let run = &*gate.run;
    let map = PortMap::read(&run.request.conf).map_err(|error| invalid("portMappings", error.msg))?;
    listed(&map, forwards)?;
    let most = match (map.snat, map.masq_all) {
        (false, _) => NatSources::None,
        (true, false) => NatSources::Own,
        (true, true) => NatSources::All,
    };
    if masquerade > most {
        return Err(invalid("masquerade", "the network's `snat` and `masqAll` ask for less masquerading"));
    }
    let backend = backend(gate, &map)?;
    if let Some(chain) = &map.set_mark_chain {
        hostport::validate_chain(chain).map_err(|error| invalid(chain, error.to_string()))?;
        if is_taken(chain) {
            let message = format!("externalSetMarkChain \"{chain}\" is no chain of another program that marks packets");
            return Err(invalid(chain, message).hint("name a chain that marks packets, for instance KUBE-MARK-MASQ"));
        }
    }
    let mut effects: Vec<PortMappings> = Vec::new();
    for address in addresses {
        let net = own(gate, *address)?;
        let v6 = address.is_ipv6();
        if effects.iter().any(|effect| effect.address.addr().is_ipv6() == v6) {
            return Err(invalid(address.to_string(), "forwards lead to one address of each IP version"));
        }
        let concerns = |forward: &&Forward| forward.host_address.is_none_or(|host| host.is_ipv6() == v6);
        let forwards: Vec<Forward> = forwards.iter().filter(concerns).copied().collect();
        if forwards.is_empty() {
            continue;
        }
        let by_iptables = backend == Backend::Iptables;
        let made = PortMappings {
            backend,
            variant: None,
            address: net,
            forwards,
            masquerade,
            bit: map.mark_bit.filter(|_| by_iptables),
            chain: map.set_mark_chain.clone().filter(|_| by_iptables),
            conditions: conditions(&map, v6)?,
        };
        effects.push(placed(run.journal, made, by_iptables.then_some(&[net]), |made| &mut made.variant));
    }
    Ok(effects)
}

fn listed(map: &PortMap, forwards: &[Forward]) -> Result<(), OpError> {
    let asked: usize = forwards.iter().map(|forward| usize::from(forward.count)).sum();
    if asked > MOST_PORTS || map.mappings.len() > MOST_PORTS {
        let ports = asked.max(map.mappings.len());
        let message = format!("{ports} port mappings are more than {MOST_PORTS}, the most of one attachment");
        return Err(OpError::new(ErrorCode::Exhausted, "portMappings", message)
            .hint("publish fewer ports, or give the container an address that can be reached directly"));
    }
    let known: HashSet<Forward> = map.mappings.iter().map(forward).collect::<Result<_, _>>()?;
    for asked in forwards {
        if !asked.is_possible() {
            return Err(invalid(asked.to_string(), format!("{asked} has invalid ports: ports are 1 to 65535")));
        }
        for (host_port, container_port) in asked.ports() {
            let single = Forward { host_port, container_port, count: 1, ..*asked };
            if !known.contains(&single) {
                let message = format!("runtimeConfig.portMappings of this call does not list {single}");
                return Err(invalid(single.to_string(), message)
                    .hint("a plugin can forward only ports that the runtime names in this call"));
            }
        }
    }
    Ok(())
}

/// Returns the forwards that a request asks for; none if the request can't be understood.
pub fn asked(request: &Request) -> Vec<Forward> {
    let map = PortMap::read(&request.conf).map(|map| map.mappings).unwrap_or_default();
    // The operation itself refuses a request with more ports.
    let few = map.iter().take(MOST_PORTS);
    few.map(forward).collect::<Result<_, _>>().unwrap_or_default()
}

fn forward(mapping: &PortMapping) -> Result<Forward, OpError> {
    let port = |port: i64| u16::try_from(port).ok().filter(|port| *port > 0);
    let out_of_range =
        |what: &str, port: i64| invalid("portMappings", format!("{what} {port} is not between 1 and 65535"));
    let host_port = port(mapping.host_port).ok_or_else(|| out_of_range("host port", mapping.host_port))?;
    let container_port =
        port(mapping.container_port).ok_or_else(|| out_of_range("container port", mapping.container_port))?;
    let transport = Transport::parse(&mapping.protocol).ok_or_else(|| {
        invalid("portMappings", format!("protocol \"{}\" has no ports: use tcp, udp or sctp", mapping.protocol))
    })?;
    let host_address = match mapping.host_ip.as_str() {
        "" => None,
        text => Some(parse_ip(text).map_err(|error| invalid("portMappings", error.msg))?),
    };
    Ok(Forward { transport, host_address, host_port, container_port, count: 1 })
}

/// Returns the network's conditions for one family, in a form for both packet filters.
fn conditions(map: &PortMap, v6: bool) -> Result<String, OpError> {
    let [words_v4, words_v6] = &map.conditions;
    let (words, key) = if v6 { (words_v6, "conditionsV6") } else { (words_v4, "conditionsV4") };
    let words = words.as_deref().unwrap_or_default();
    let Some(syntax) = Syntax::of(words) else { return Ok(String::new()) };
    let conditions = syntax.read(words, v6).map_err(|error| invalid(key, format!("{key}: {error}")))?;
    Ok(conditions.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
}

/// Returns one of the attachment's addresses, with its prefix length.
fn own(gate: &Gate<'_>, address: IpAddr) -> Result<IpNet, OpError> {
    if let Some(own) = gate.run.own.addresses.iter().find(|own| own.net.addr() == address) {
        return Ok(own.net);
    }
    let previous = gate.run.request.previous();
    let Some(named) = previous.ips.iter().find(|ip| ip.address.addr() == address) else {
        return Err(invalid(address.to_string(), format!("{address} is no address of this attachment")));
    };
    let (why, hint) = others::not_counting(gate.run.view(), &named.address, gate.guest.granted());
    let message =
        format!("prevResult names {address}, and no record says that an earlier plugin gave this address{why}");
    Err(OpError::new(ErrorCode::Denied, address.to_string(), message).hint(hint))
}

/// Lets the node's own 127.0.0.1 reach the container's address, and blocks 127.0.0.0/8 for all other traffic of the
/// link to the container. Without nftables this block is impossible. Then the node reaches the forward only by its
/// other addresses.
fn open_to_localhost(view: View<'_>, effect: &PortMappings) -> Result<(), OpError> {
    let (host, address) = (view.system.host()?, effect.address.addr());
    let Some(link) = effect.localnet_link(host).map_err(kernel_error)? else { return Ok(()) };
    if localnet_is_on(&link.name.to_string()).map_err(kernel_error)? && view.system.unless_absent(localnet::check)? {
        return Ok(());
    }
    if view.system.nft()?.is_absent() {
        crate::say!(
            "postern: 127.0.0.1 of the node does not reach {address}: the kernel has no nf_tables to protect \
             127.0.0.0/8"
        );
        return Ok(());
    }
    localnet::ensure(&mut *view.system.nft()?).map_err(firewall_error)?;
    let key = Sysctl::Ipv4Conf(link.name.to_string(), "route_localnet");
    node::noted(&view.fixed.places.state, host, node::LOCALNET, &link.name.to_string(), || sysctl::set(&key, "1"))
        .map_err(|error| OpError { code: ErrorCode::Io, ..kernel_error(error) })?;
    Ok(())
}

/// Removes the recorded rules. If the record may be incomplete, removes the rules with the container's name.
pub(crate) fn remove_own(run: &mut Context) -> Result<(), OpError> {
    if !remove_recorded::<PortMappings>(run)? {
        remove_unrecorded(run.view())?;
    }
    run.journal.gone(PortMappings::is);
    Ok(())
}

/// Removes the forwards of this network's containers that `valid` lacks. Only rules of iptables name their network. A
/// comment in nftables names only the container, and a container can be in several networks.
pub(crate) fn collect(run: View<'_>, valid: &[(String, String)]) -> Result<usize, OpError> {
    retain_chains(run, ChainKind::Forwards, valid)
}
