//! `ipvlan`: the attachment's own link, with the link-layer address of a granted parent.
//!
//! The kernel has one mode for all ipvlans of a parent, and a new ipvlan changes the mode of the existing ipvlans. So a
//! different mode is refused. The modes are read from links in the parent's namespace, and from the records of other
//! containers. An ipvlan that a native plugin put into a container is not seen.

use super::inner::{self, NewLink};
pub(crate) use crate::capability::facts::ALWAYS as FACTS;
use crate::effect::{InnerKind, InnerLink, in_record};
use crate::errors::state_error;
use crate::gate::Gate;
use crate::guest_state::Parent;
use crate::{claims, others};
use postern_kernel::InnerLinkKind;
use postern_state::{Claim, RecordKey, Summary};
use postern_types::{ErrorCode, Handle, IpvlanInfo, IpvlanMode, LinkInfo, LinkName, OpError, host};

impl host::Ipvlan for Gate<'_> {
    fn create(&mut self, parent: Handle, mode: IpvlanMode, mtu: Option<u32>) -> Result<LinkInfo, OpError> {
        let parent = self.guest.parent(parent)?;
        let below = parent.link(self)?;
        // A new ipvlan on an ipvlan becomes a sibling of that ipvlan, on the lowest link. The lowest link can be a link
        // of the host, even if the existing ipvlan is in a container.
        let (lowest, shown) = match below.ipvlan_mode {
            Some(other) => {
                let is_here = !parent.in_container || others::leads_here(self.run.system, &below)?;
                (below.peer_index.filter(|_| is_here), Some((below.name.to_string(), other)))
            }
            None => ((!parent.in_container).then_some(parent.index), sibling(self, &parent, mode)?),
        };
        if let Some((name, other)) = shown.filter(|(_, other)| *other != mode) {
            return Err(refused(&below.name, mode, other, &format!("\"{name}\"")));
        }
        let spec = InnerLinkKind::Ipvlan { parent: parent.index, mode };
        let shares = lowest.map(|index| (index, mode));
        let wanted = NewLink { shares, ..NewLink::on(&parent, spec, mtu) };
        let others = |gate: &Gate<'_>| {
            let other = lowest.map(|index| of_others(gate, index, mode)).transpose()?.flatten();
            other.map_or(Ok(()), |(who, other, key)| {
                let known = others::words_on_holder(gate.run.view(), key.as_ref());
                Err(refused(&below.name, mode, other, &who).hint(format!("{ONE_MODE}; {known}")))
            })
        };
        inner::create(self, &wanted, others)
    }

    fn find(&mut self) -> Result<Option<IpvlanInfo>, OpError> {
        let Some(own) = inner::find(self, InnerKind::Ipvlan)? else { return Ok(None) };
        let mode = own.ipvlan_mode;
        Ok(Some(IpvlanInfo { link: inner::show(self, own)?, mode }))
    }
}

/// Returns an ipvlan with another mode on this parent, from the parent's namespace.
fn sibling(gate: &Gate<'_>, parent: &Parent, mode: IpvlanMode) -> Result<Option<(String, IpvlanMode)>, OpError> {
    let mut others = parent.stacked(gate)?.filter_map(|link| Some((link.name.to_string(), link.ipvlan_mode?)));
    Ok(others.find(|(_, other)| *other != mode))
}

/// Returns another attachment whose record lists an ipvlan of another mode on this link of the host.
fn of_others(
    gate: &Gate<'_>,
    parent: u32,
    mode: IpvlanMode,
) -> Result<Option<(String, IpvlanMode, Option<RecordKey>)>, OpError> {
    let (own, boot) = (gate.run.view().key()?, postern_state::boot_id().map_err(state_error)?);
    let home = gate.run.system.home_cookie()?;
    let others = IpvlanMode::ALL.into_iter().filter(|other| *other != mode);
    let claims: Vec<Claim> = others.map(|other| Claim::mode(parent, other.name())).collect();
    let records = claims::claimants(gate.run.view(), &claims)?;
    let other_mode = |summary: &Summary| {
        let header = summary.header.as_ref()?;
        let is_here = header.boot_id == boot && header.host_netns_cookie == home;
        let shared = in_record::<InnerLink>(summary).filter_map(|link| link.shares);
        let mut others = shared.filter(|(index, other)| is_here && *index == parent && *other != mode);
        let who = format!("{} of container {} in network {}", header.ifname, header.container_id, header.network);
        others.next().map(|(_, other)| (who, other, summary.key))
    };
    let others = records.iter().filter(|summary| summary.key.as_ref() != Some(&own));
    Ok(others.filter_map(other_mode).next())
}

const ONE_MODE: &str = "all ipvlan links of a parent have one mode: name this mode, or another `master`";

fn refused(parent: &LinkName, mode: IpvlanMode, other: IpvlanMode, who: &str) -> OpError {
    let (mode, other) = (mode.name(), other.name());
    let message = format!(
        "failed to create ipvlan: \"{parent}\" has a link in mode {other}, and a link in mode {mode} would change \
         the mode of {who}"
    );
    OpError::new(ErrorCode::Exists, parent, message).hint(ONE_MODE)
}
