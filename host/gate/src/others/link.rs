//! The owner of a link of the container, as the kind of the link and the records show it.

use super::is_link_of_others;
use crate::context::{Context, System, View};
use crate::effect::Effect;
use crate::errors::{kernel_error, state_error};
use postern_kernel::Link;
use postern_state::Summary;
use postern_types::OpError;

/// The other end of the container's pair, if no record has a pair.
pub enum NativeEnd {
    /// The attachment's host end.
    Own(Link),
    /// The container's link is no pair with a link of the host.
    None,
    /// `prevResult` does not name this host end.
    Unnamed(Link),
    /// A record of another attachment lists this host end.
    OfOthers(Link),
}

/// Returns the host end of the pair that the record lists and the kernel has, if there is one.
pub fn living_pair(run: &Context) -> Result<Option<Link>, OpError> {
    let host = run.system.host()?;
    for pair in run.journal.pairs() {
        if let Some(link) = pair.end(host)? {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

/// Returns the other end of a veth of the container, if it is on the host. Only the kernel is asked, because a native
/// plugin's pair has no record. Both ends must name each other, and the host end must name the container's namespace.
/// An index is unique only in one namespace, and root in the container can choose it.
pub fn mutual_end_of(system: &System, own: &Link) -> Result<Option<Link>, OpError> {
    let Some(peer) = own.peer_index else { return Ok(None) };
    let host = system.host()?;
    let number = host.namespace_number(system.namespace()?.fd()).map_err(kernel_error)?;
    let found = host.link_by_index(peer).map_err(kernel_error)?;
    let mutual = |link: &Link| link.peer_index == Some(own.index) && link.peer_netnsid == number;
    Ok(found.filter(|link| link.kind == "veth" && number.is_some() && mutual(link)))
}

/// Returns the host end of a native plugin's pair: the other end of the container's link. `prevResult` must name this
/// end as a link of the host, and no record of another attachment may list this end. Both ends and the namespace must
/// match ([`mutual_end_of`]).
pub fn end_behind_native(view: View<'_>) -> Result<Option<Link>, OpError> {
    match native_end(view)? {
        NativeEnd::Own(end) => Ok(Some(end)),
        NativeEnd::None | NativeEnd::Unnamed(_) | NativeEnd::OfOthers(_) => Ok(None),
    }
}

/// Like [`end_behind_native`], but also returns which condition fails.
pub fn native_end(view: View<'_>) -> Result<NativeEnd, OpError> {
    let own = view.system.link_inside(&view.request.ifname)?.filter(|own| own.kind == "veth");
    let end = own.map(|own| mutual_end_of(view.system, &own)).transpose()?.flatten();
    let Some(end) = end else { return Ok(NativeEnd::None) };
    let previous = view.request.previous();
    if !previous.interfaces.iter().any(|link| link.sandbox.is_empty() && link.name == end.name) {
        return Ok(NativeEnd::Unnamed(end));
    }
    Ok(if is_link_of_others(view, &end)? { NativeEnd::OfOthers(end) } else { NativeEnd::Own(end) })
}

/// True if this link of the container leads to the host.
///
/// The link is an end of a pair whose other end is on the host, is stacked on a link of the host, or is a driver's
/// device. For a pair and a stacked link the kernel names index and namespace of the link on the host. Root in the
/// container can make links of any name, but not of these kinds.
pub fn leads_here(system: &System, own: &Link) -> Result<bool, OpError> {
    if own.device.is_some() {
        return Ok(true);
    }
    let Some(peer) = own.peer_index.filter(|_| own.kind == "veth" || own.is_stacked()) else { return Ok(false) };
    let container = system.container_netlink()?;
    let number = container.namespace_number(system.home()?.fd()).map_err(kernel_error)?;
    if number.is_none() || own.peer_netnsid != number {
        return Ok(false);
    }
    let end = system.host()?.link_by_index(peer).map_err(kernel_error)?;
    Ok(end.is_some_and(|end| own.is_stacked() || end.kind == "veth"))
}

/// True if the record of another attachment of this host namespace makes this claim.
pub(crate) fn is_claimed_by(view: View<'_>, claims: impl Fn(&Summary) -> bool) -> Result<bool, OpError> {
    let own = view.key()?;
    let is_other = |summary: &Summary| summary.key.as_ref().is_some_and(|key| *key != own);
    Ok(records_here(view)?.iter().any(|summary| is_other(summary) && claims(summary)))
}

/// Returns the records of attachments of this host namespace. Other host namespaces may share the directory of records,
/// but their links, rules and addresses are in other namespaces. A record that can't be read is included, because it
/// may be of this namespace.
pub(crate) fn records_here(view: View<'_>) -> Result<Vec<Summary>, OpError> {
    let cookie = view.system.home_cookie()?;
    let mut records = postern_state::list_known(&view.fixed.places.state).map_err(state_error)?;
    records.retain(|summary| summary.header.as_ref().is_none_or(|header| header.host_netns_cookie == cookie));
    Ok(records)
}

/// True if a record notes a link with this interface index.
pub fn is_link_of_index(noted: &postern_state::NotedEffect<serde_json::Value>, index: u32) -> bool {
    let effect = serde_json::from_value::<Effect>(noted.effect.clone());
    noted.handles.contains(&u64::from(index)) && effect.is_ok_and(|effect| effect.is_link())
}
