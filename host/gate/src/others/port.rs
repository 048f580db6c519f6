//! Ports: links of the host that an earlier plugin made, and that this attachment joins to a bridge. This module finds
//! the owner of such a link, and checks that the link is free.

use super::{is_elsewhere, living_pair, may_take_over_link};
use crate::claims;
use crate::context::{Context, System, View};
use crate::effect::{Effect, Port, Veth, in_record};
use crate::errors::{kernel_error, link_gone, state_error};
use postern_cni::{Interface, NetConf, Verb};
use postern_kernel::Link;
use postern_policy::Granted;
use postern_state::Summary;
use postern_types::{ErrorCode, Mac, OpError};
use std::net::IpAddr;

/// Returns the link of the host that `prevResult` names, if policy lets it be attached. `counts` returns true for
/// a link that a record or policy confirms.
///
/// # Errors
/// [`ErrorCode::InvalidArgument`]: `prevResult` names several links. [`ErrorCode::Denied`]: neither a record nor policy
/// allows the name.
pub fn named(
    conf: &NetConf,
    granted: &Granted,
    counts: impl FnOnce(&str) -> bool,
) -> Result<Option<Interface>, OpError> {
    let previous = conf.previous_result().ok().flatten().unwrap_or_default();
    let is_meant = |link: &Interface| link.sandbox.is_empty() && granted.has_object("bridge.attach", &link.name);
    let mut links = previous.interfaces.into_iter().filter(is_meant);
    let Some(link) = links.next() else { return Ok(None) };
    if let Some(other) = links.find(|other| other.name != link.name) {
        let message =
            format!("prevResult names \"{}\" and \"{}\": it is not clear which link to attach", link.name, other.name);
        return Err(OpError::new(ErrorCode::InvalidArgument, &link.name, message)
            .hint("name only one of these links in `attach` of [grant.bridge]"));
    }
    if counts(&link.name) {
        return Ok(Some(link));
    }
    let message =
        format!("prevResult names \"{}\", and no record says that an earlier plugin made this link", link.name);
    let hint = granted.object_hint("previous.names", &link.name);
    Err(OpError::new(ErrorCode::Denied, &link.name, message).hint(hint))
}

/// Returns the attachment's end on the host: an earlier plugin's link that joined a bridge, or the attachment's host
/// end.
pub fn end(run: &Context) -> Result<Option<Link>, OpError> {
    match run.journal.ports().first() {
        Some(port) => port.link(run.system.host()?),
        None => living_pair(run),
    }
}

/// Returns the link of the host that an earlier plugin made. The record names the link, or `prevResult` on ADD.
/// The second value is the hardware address of the container's end, if `prevResult` has it.
pub fn previous_link(run: &Context, granted: &Granted) -> Result<Option<(Link, Option<Mac>)>, OpError> {
    if let Some(port) = run.journal.ports().first() {
        if run.request.verb == Verb::Add {
            run.journal.only_of_this_run(run.request, |effect| Port::of(effect).is_some(), "port")?;
        }
        return Ok(port.link(run.system.host()?)?.map(|link| (link, run.own.container_mac)));
    }
    if run.request.verb != Verb::Add {
        return Ok(None);
    }
    let request = run.request;
    let counts = |name: &str| may_take_over_link(run, name, granted);
    let Some(named) = named(&request.conf, granted, counts)? else { return Ok(None) };
    let found =
        run.system.host()?.link_by_name(&named.name).map_err(kernel_error)?.filter(|link| link.name == named.name);
    let link = found.ok_or_else(|| link_gone(&named.name))?;
    let mac = link.mac.map(|mac| Mac(mac).to_string()).unwrap_or_default();
    if !named.mac.is_empty() && !named.mac.eq_ignore_ascii_case(&mac) {
        let message =
            format!("prevResult says that \"{}\" has address {}, but its address is {mac}", named.name, named.mac);
        return Err(OpError::new(ErrorCode::Mismatch, &named.name, message)
            .hint("another link has this name now: run ADD of the earlier plugin again"));
    }
    must_be_free(run, &link)?;
    must_be_unused(run.system, &link)?;
    let previous = request.previous();
    let own = previous.own_interfaces(&request.ifname, &request.netns).into_iter();
    let own = own.filter_map(|at| previous.interfaces.get(at));
    // A link without a sandbox is on the host.
    let own = own.filter(|own| !own.sandbox.is_empty()).find(|own| !is_elsewhere(run.view(), &own.sandbox));
    Ok(Some((link, own.and_then(|own| own.mac.parse().ok()))))
}

/// Fails if a link is a port, or belongs to another attachment. The check is made when the guest gets the link, and
/// again when the record lists it. So two ADDs at once see each other.
pub fn must_be_free(run: &Context, link: &Link) -> Result<(), OpError> {
    let name = &link.name;
    let refuse = |what: String, hint: &str| Err(OpError::new(ErrorCode::Exists, name, what).hint(hint));
    let host = run.system.host()?;
    if let Some(master) = link.master {
        let of = host.link_by_index(master).map_err(kernel_error)?;
        let of = of.map_or_else(|| format!("link {master}"), |master| format!("\"{}\"", master.name));
        return refuse(
            format!("\"{name}\" is a port of {of} already"),
            "only a link without a bridge can be attached; `ip link set dev NAME nomaster` takes a link out of its bridge",
        );
    }
    let pair = living_pair(run)?;
    if let Some(pair) = pair.as_ref().filter(|pair| pair.index != link.index) {
        return refuse(
            format!("this attachment has a pair already, whose host end is \"{}\"", pair.name),
            "run DEL first",
        );
    }
    let own = || match run.system.namespace() {
        Ok(namespace) => host.namespace_number(namespace.fd()).map_err(kernel_error),
        Err(_) => Ok(None),
    };
    let is_pair_of_another = pair.is_none() && link.kind == "veth" && link.peer_netnsid.is_some();
    if is_pair_of_another && link.peer_netnsid != own()? || is_link_of_others(run.view(), link)? {
        return refuse(
            format!("\"{name}\" belongs to another attachment"),
            "the earlier plugin has to make a link for this attachment",
        );
    }
    Ok(())
}

/// Fails if the node itself uses a link: otherwise the node would be cut off.
fn must_be_unused(system: &System, link: &Link) -> Result<(), OpError> {
    let host = system.host()?;
    let is_routable = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    let addresses = host.addresses(link.index).map_err(kernel_error)?;
    let address = addresses.into_iter().map(|address| address.net).find(|net| is_routable(&net.addr()));
    let used = match address {
        _ if link.kind == "bridge" => Some("is a bridge itself".to_owned()),
        Some(address) => Some(format!("has the node's address {address}")),
        None => {
            let routes = host.all_routes().map_err(kernel_error)?;
            let is_default = routes.iter().any(|(index, route)| *index == link.index && route.dst.prefix_len() == 0);
            let links = if is_default { Vec::new() } else { host.links().map_err(kernel_error)? };
            let stands_on = |other: &&Link| {
                other.kind != "veth" && other.peer_netnsid.is_none() && other.peer_index == Some(link.index)
            };
            let upper = links.iter().filter(|other| other.index != link.index).find(stands_on);
            match upper {
                _ if is_default => Some("has a default route of the node".to_owned()),
                upper => upper.map(|upper| format!("carries \"{}\"", upper.name)),
            }
        }
    };
    let Some(used) = used else { return Ok(()) };
    let message = format!("\"{}\" {used}: it can't be attached", link.name);
    Err(OpError::new(ErrorCode::Exists, &link.name, message)
        .hint("name in `attach` of [grant.bridge] only links that plugins make for containers"))
}

/// True if a record of another attachment lists this link of the host.
pub fn is_link_of_others(view: View<'_>, link: &Link) -> Result<bool, OpError> {
    Ok(owner_of_link(view, link)?.is_some())
}

/// Returns the record of another attachment that lists this link of the host.
pub fn owner_of_link(view: View<'_>, link: &Link) -> Result<Option<Summary>, OpError> {
    let boot = postern_state::boot_id().map_err(state_error)?;
    let claims = |effect: Effect, summary: &Summary| match effect {
        Effect::Veth(Veth { host, mac }) => host == link.name && link.mac.is_none_or(|have| Mac(have) == mac),
        Effect::Port(port) => {
            port.index == link.index && summary.header.as_ref().is_some_and(|header| header.boot_id == boot)
        }
        // A device is compared by its data, because it may have another name until its DEL. An index is valid only for
        // one boot.
        Effect::Device(device) => {
            let is_of_boot = || summary.header.as_ref().is_some_and(|header| header.boot_id == boot);
            device.is_claim(link) && (link.device.is_some() || is_of_boot())
        }
        Effect::Macvlan(_)
        | Effect::InnerLink(_)
        | Effect::Firewall(_)
        | Effect::Isolation(_)
        | Effect::Bandwidth(_)
        | Effect::Masquerade(_)
        | Effect::MacGuard(_)
        | Effect::Lease(_)
        | Effect::Native(_)
        | Effect::LoopbackUp(_)
        | Effect::PortMappings(_)
        | Effect::LinkChange(_)
        | Effect::LinkState(_)
        | Effect::Delegated(_)
        | Effect::SourceRoutes(_)
        | Effect::Vrf(_)
        | Effect::Dhcp(_)
        | Effect::NamespaceSetting(_) => false,
    };
    let own = view.key()?;
    let is_owner = |summary: &Summary| {
        summary.key.as_ref().is_some_and(|key| *key != own) && in_record(summary).any(|effect| claims(effect, summary))
    };
    Ok(claims::records_on_link(view, link)?.into_iter().find(is_owner))
}
