//! The owner of a container: does `CNI_NETNS` lead to the container of the attachment's record? Without a record, a DEL
//! checks whether the container belongs to another attachment.
//!
//! A path can lead to another container later: a process ID is used again, or another namespace is mounted on the file.

use super::link::{is_link_of_index, leads_here};
use crate::claims;
use crate::context::{Context, Journal, System, View};
use crate::effect::{Effect, Veth};
use crate::errors::{kernel_error, state_error};
use crate::request::Request;
use postern_cni::Verb;
use postern_kernel::Link;
use postern_state::{Header, Summary};
use postern_types::{Mac, OpError};
use serde::Deserialize;

/// Checks whether a link of the record exists. This check comes before the record is used, because a native plugin may
/// have been used meanwhile, and does not know records.
pub fn look_for_link(run: &mut Context) -> Result<(), OpError> {
    let listed = run.journal.effects();
    let mut links = listed.iter().filter(|noted| noted.effect.is_link()).peekable();
    let has_links = links.peek().is_some();
    for noted in links {
        if noted.effect.is_living_link(run)? {
            run.journal.has_lost_link = false;
            return Ok(());
        }
    }
    run.journal.has_lost_link = has_links;
    Ok(())
}

/// Checks whether a program without records has made the attachment again, after the recorded link was gone.
///
/// The answer is yes in two cases. The container has a link with the attachment's name that no other record claims, or
/// the runtime's last result names another link. Then the record is incomplete.
pub fn compare_with_kernel(run: &mut Context) -> Result<(), OpError> {
    // The check is repeated: before the run entered the container, links in the container could not be read.
    if run.journal.has_lost_link {
        look_for_link(run)?;
    }
    if !run.journal.has_lost_link {
        return Ok(());
    }
    let previous = run.request.previous();
    let own = match run.system.link_inside(&run.request.ifname)? {
        Some(own) if leads_here(run.system, &own)? && !is_claimed(run.view(), &own)? => Some(own),
        _ => None,
    };
    // The link in the runtime's last result, if there is one.
    let given = previous.interfaces.iter().find(|link| !link.sandbox.is_empty() && link.name == run.request.ifname);
    let is_given = own.as_ref().is_some_and(|own| is_given(run.request, own));
    let foreign = run.journal.has_foreign_record(run.system);
    let is_replaced = match (own, given) {
        // `CNI_NETNS` can lead to another container now. The link belongs to the attachment only if the runtime's result
        // names it. An ADD removes nothing in this container, and needs no such check.
        (Some(_), _) if foreign && run.request.verb != Verb::Add => is_given,
        (Some(_), _) => true,
        (None, Some(_)) => !run.journal.names_listed_link(&previous),
        (None, None) => false,
    };
    run.journal.set_replaced(is_replaced);
    Ok(())
}

/// True if the container's namespace counts as gone, because `CNI_NETNS` leads to another namespace than at ADD: a path
/// can be reused.
pub fn is_foreign_container(run: &Context) -> Result<bool, OpError> {
    // The container of the runtime's last result belongs to the attachment, even if an older record names another
    // container.
    Ok(run.journal.has_foreign_record(run.system) && (!run.journal.is_replaced() || is_in_anothers(run)?))
}

/// True if a record lists the container's link for another container.
fn is_in_anothers(run: &Context) -> Result<bool, OpError> {
    run.system.link_inside(&run.request.ifname)?.map_or(Ok(false), |own| spares(run, &own))
}

/// True if this DEL must not touch a link of the container, because another container's record lists it. Then standard
/// error names the owner.
pub fn spares(run: &Context, own: &Link) -> Result<bool, OpError> {
    let Some(owner) = other_owner(run, own)? else { return Ok(false) };
    let Header { network, container_id, ifname, .. } = &owner;
    crate::say!(
        "postern: {} leads to the container of {network}/{container_id}/{ifname}, by its record: the link \"{}\" in \
         this container stays",
        run.request.netns,
        own.name
    );
    Ok(true)
}

/// Returns the attachment of another container whose record lists a link of the container. Other records are read only
/// if this DEL has no own record that names the container.
///
/// The record of this container's attachment may have another network's name. The link of the runtime's last result
/// belongs to this attachment, unless a record lists the link.
pub fn other_owner(run: &Context, own: &Link) -> Result<Option<Header>, OpError> {
    if run.request.verb != Verb::Del || knows_container(run.journal) {
        return Ok(None);
    }
    let (key, lists) = (run.view().key()?, lists(run.system, own)?);
    let (boot, cookie) = here(run.system)?;
    // A damaged record of this attachment is left out: it may have been set aside, and names no other owner.
    let mut records = claims::records(run.view(), None)?;
    let is_own = |header: &Header| header.key() == key;
    records.retain(|summary| {
        summary.key.as_ref().is_some_and(|of| *of != key) || summary.header.as_ref().is_some_and(is_own)
    });
    let headers = || records.iter().filter_map(|summary| summary.header.as_ref());
    let is_of_this = |header: &Header| header.container_id == run.request.container_id;
    let mut listed = records.iter().filter(|summary| lists(summary)).filter_map(|summary| summary.header.as_ref());
    if let Some(owner) = listed.find(|header| !is_of_this_interface(run.request, header)) {
        return Ok(Some(owner.clone()));
    }
    let mut in_there = headers().filter(|header| header.boot_id == boot && header.netns_cookie == Some(cookie));
    if is_given(run.request, own) || in_there.clone().any(is_of_this) {
        return Ok(None);
    }
    Ok(in_there.next().cloned())
}

/// True if a record is about the interface and container of this run, in any network.
pub fn is_of_this_interface(request: &Request, header: &Header) -> bool {
    header.container_id == request.container_id && header.ifname == request.ifname
}

/// True if this attachment's record names the container's namespace, and the recorded link exists.
pub fn knows_container(journal: &Journal) -> bool {
    let is_known = journal.record().is_some_and(|record| record.header().netns_cookie.is_some());
    is_known && !journal.is_replaced() && !journal.has_lost_link
}

/// True if the runtime's last result has this link of the container.
pub(super) fn is_given(request: &Request, own: &Link) -> bool {
    let previous = request.previous();
    let mut given = previous.interfaces.iter();
    let given = given.find(|link| !link.sandbox.is_empty() && link.name == request.ifname);
    let mac = own.mac.map(|mac| Mac(mac).to_string());
    mac.zip(given).is_some_and(|(mac, given)| given.mac.eq_ignore_ascii_case(&mac))
}

/// True if another attachment's record lists this link of the container, or its host end. `CNI_NETNS` may lead to
/// another container now, and the link may have moved to another network.
pub fn is_claimed(view: View<'_>, own: &Link) -> Result<bool, OpError> {
    Ok(claiming(view, own)?.is_some())
}

/// Like [`is_claimed`], but returns the other attachment's record.
pub fn claiming(view: View<'_>, own: &Link) -> Result<Option<Summary>, OpError> {
    let (key, lists) = (view.key()?, lists(view.system, own)?);
    let is_other = |summary: &Summary| summary.key.as_ref().is_some_and(|of| *of != key);
    Ok(claims::records(view, None)?.into_iter().find(|summary| is_other(summary) && lists(summary)))
}

/// Returns a function that is true for a record that lists this link of the container. The link is found by its index
/// in the container or, for a pair, by the host end. A device of the node may be one end of a pair too.
fn lists(system: &System, own: &Link) -> Result<impl Fn(&Summary) -> bool + use<>, OpError> {
    let (boot, cookie) = here(system)?;
    let home = system.home_cookie()?;
    let end = match own.peer_index.filter(|_| own.kind == "veth") {
        Some(peer) => system.host()?.link_by_index(peer).map_err(kernel_error)?,
        None => None,
    };
    let index = own.index;
    let is_pair = move |pair: &Veth| {
        end.as_ref().is_some_and(|end| pair.host == end.name && end.mac.is_none_or(|mac| Mac(mac) == pair.mac))
    };
    Ok(move |summary: &Summary| {
        let header = summary.header.as_ref();
        // The boot is compared too, because cookies of namespaces start anew after a reboot.
        let is_in_there = header.is_some_and(|header| header.boot_id == boot && header.netns_cookie == Some(cookie));
        let is_here = header.is_none_or(|header| header.host_netns_cookie == home);
        summary.effects.iter().any(|noted| {
            let is_end =
                || Effect::deserialize(&noted.effect).is_ok_and(|effect| Veth::of(&effect).is_some_and(&is_pair));
            is_in_there && is_link_of_index(noted, index) || is_here && is_end()
        })
    })
}

/// Returns the boot ID, and the cookie of the container's namespace.
fn here(system: &System) -> Result<(String, u64), OpError> {
    let boot = postern_state::boot_id().map_err(state_error)?;
    Ok((boot, system.container_required()?.cookie().map_err(kernel_error)?))
}
