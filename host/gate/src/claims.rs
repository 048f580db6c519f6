//! Finds the records that may have a claim, by the index of claims ([`postern_state::ClaimIndex`]).

use crate::effect::{Device, Effect, InnerLink, LinkState, Port, Veth, in_record};
use crate::errors::{kernel_error, state_error};
use crate::system::System;
use crate::view::View;
use postern_cni::parse_cidr;
use postern_kernel::Link;
use postern_state::{Claim, ClaimIndex, Header, RecordKey, Summary};
use postern_types::OpError;
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The longest wait for the lock of the index. After this time all records are read instead.
const ASK_WITHIN: Duration = Duration::from_millis(100);

/// Returns a function that is true for a record of this boot and this host's namespace.
pub fn is_of_here(system: &System) -> Result<impl Fn(&Header) -> bool + use<>, OpError> {
    let (boot, cookie) = (postern_state::boot_id().map_err(state_error)?, system.home_cookie()?);
    Ok(move |header: &Header| header.boot_id == boot && header.host_netns_cookie == cookie)
}

/// Opens the index with its lock. An index that this run has open is used again.
pub fn open_index(view: View<'_>, before: Instant) -> Result<ClaimIndex, OpError> {
    let index = match view.system.known.claims.take() {
        Some(index) => index.lock(before),
        None => ClaimIndex::open(&view.fixed.places.state, view.system.home_cookie()?, before),
    };
    index.map_err(state_error)
}

/// Writes all records into the index, if the index is incomplete. Returns the records if they were read.
pub fn fill(view: View<'_>, index: &ClaimIndex) -> Result<Option<Vec<Summary>>, OpError> {
    if index.is_complete().map_err(state_error)? {
        return Ok(None);
    }
    let home = view.system.home_cookie()?;
    let all = postern_state::list_known(&view.fixed.places.state).map_err(state_error)?;
    for summary in &all {
        let Some(header) = summary.header.as_ref().filter(|header| header.host_netns_cookie == home) else {
            continue;
        };
        let key = header.key();
        for claim in claims_in(summary, header) {
            index.note(claim, &key).map_err(state_error)?;
        }
    }
    index.set_complete().map_err(state_error)?;
    Ok(Some(all))
}

/// Returns the records with these keys; all records for `None`.
pub fn records(view: View<'_>, keys: Option<Vec<RecordKey>>) -> Result<Vec<Summary>, OpError> {
    match keys {
        Some(keys) => {
            let found = keys.iter().map(|key| postern_state::find(&view.fixed.places.state, key));
            found.filter_map(Result::transpose).collect::<Result<_, _>>().map_err(state_error)
        }
        None => postern_state::list_known(&view.fixed.places.state).map_err(state_error),
    }
}

/// Returns the records that may have one of these claims. The first call fills the index.
pub fn candidates(view: View<'_>, claims: &[Claim], before: Instant) -> Result<Vec<Summary>, OpError> {
    let index = open_index(view, before)?;
    if let Some(all) = fill(view, &index)? {
        return Ok(all);
    }
    let mut keys = HashSet::new();
    for claim in claims {
        match index.candidates(*claim).map_err(state_error)? {
            Some(found) => keys.extend(found),
            None => return records(view, None),
        }
    }
    records(view, Some(keys.into_iter().collect()))
}

/// Returns the records that may have one of these claims. If the index can't be used (a full or read-only disk, another
/// run with the lock), all records are returned.
pub fn claimants(view: View<'_>, claims: &[Claim]) -> Result<Vec<Summary>, OpError> {
    let before = view.fixed.deadline.answer_by().min(Instant::now() + ASK_WITHIN);
    candidates(view, claims, before).or_else(|_| records(view, None))
}

/// Returns the records of this host that may list this link of the host. For a veth, records list the host end by name,
/// because the pair's other end is in another namespace.
pub fn records_on_link(view: View<'_>, link: &Link) -> Result<Vec<Summary>, OpError> {
    let mut claims = vec![Claim::link(link.index)];
    claims.extend(link.device.as_ref().map(|device| Claim::device(&device.bus, &device.name)));
    if link.kind == "veth" {
        claims.push(Claim::pair(&link.name.to_string()));
    }
    let home = view.system.home_cookie()?;
    let mut found = claimants(view, &claims)?;
    found.retain(|summary| summary.header.as_ref().is_none_or(|header| header.host_netns_cookie == home));
    Ok(found)
}

/// Returns the claims of a new effect in the record.
pub fn of_new(effect: &Effect, system: &System) -> Result<Vec<Claim>, OpError> {
    let container = match LinkState::of(effect) {
        Some(_) => Some(system.container_required()?.cookie().map_err(kernel_error)?),
        None => None,
    };
    Ok(claims_of(effect, container))
}

/// Returns the claims of a record. Each record claims `lo` of its container, because any attachment may need `lo`.
fn claims_in(summary: &Summary, header: &Header) -> Vec<Claim> {
    let mut claims: Vec<Claim> = addresses_of(summary).map(Claim::from).collect();
    claims.extend(in_record::<Effect>(summary).flat_map(|effect| claims_of(&effect, header.netns_cookie)));
    claims.extend(header.netns_cookie.map(Claim::loopback));
    claims
}

/// Returns the claims of an effect, for a container's namespace with this cookie.
fn claims_of(effect: &Effect, container: Option<u64>) -> Vec<Claim> {
    let mut claims: Vec<Claim> = effect.kind().own_addresses().into_iter().map(Claim::from).collect();
    claims.extend(Veth::of(effect).map(|pair| Claim::pair(&pair.host.to_string())));
    claims.extend(Port::of(effect).map(|port| Claim::link(port.index)));
    claims.extend(Device::of(effect).map(|device| match &device.device {
        Some((bus, name)) => Claim::device(bus, name),
        None => Claim::link(device.index),
    }));
    let shared = InnerLink::of(effect).and_then(|link| link.shares);
    claims.extend(shared.map(|(parent, mode)| Claim::mode(parent, mode.name())));
    claims.extend(LinkState::of(effect).zip(container).and_then(|(state, container)| state.claim(container)));
    claims
}

/// Returns the attachment's addresses in a record: the addresses in its sections, and the own addresses of its effects.
/// Other addresses in a record are not the attachment's: a route's destination, a gateway, or an address that root in
/// the container put on a link.
pub fn addresses_of(summary: &Summary) -> impl Iterator<Item = IpAddr> {
    let given = summary.sections.iter().flat_map(|section| &section.addresses);
    let given = given.filter_map(|text| parse_cidr(text).ok()).map(|net| net.addr());
    // An effect of a later version can't be read, and is skipped: its section has the addresses of the result.
    given.chain(in_record::<Effect>(summary).flat_map(|effect| effect.kind().own_addresses()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases are all effects with addresses, in the form of records. Only the attachment's own addresses count.
    #[test]
    fn an_effect_has_only_the_attachments_own_addresses() {
        let route = |dst: &str, via: &str| {
            format!(
                r#"{{"dst":"{dst}","gateway":"{via}","source":"10.6.0.9","mtu":null,"advmss":null,"priority":null,"table":254,"scope":0,"protocol":3}}"#
            )
        };
        for (effect, own) in [
            (r#"{"effect":"masquerade","backend":"nftables","addresses":["10.1.0.2/24","fd00::2/64"]}"#.to_owned(), "10.1.0.2 fd00::2"),
            (r#"{"effect":"firewall","backend":"iptables","admin_chain":"10.1.0.9","addresses":["10.1.0.2/24"]}"#.to_owned(), "10.1.0.2"),
            (r#"{"effect":"dhcp","socket":"/run/10.1.0.9","addresses":["10.1.0.2/24"]}"#.to_owned(), "10.1.0.2"),
            (
                r#"{"effect":"port-mappings","backend":"nftables","address":"10.1.0.2/24","forwards":["tcp:8080:80@192.0.2.1"],"masquerade":"own","conditions":"-s 10.1.0.9"}"#.to_owned(),
                "10.1.0.2",
            ),
            (
                format!(
                    r#"{{"effect":"source-routes","index":2,"rules":[{{"source":"10.1.0.2","table":100}}],"routes":[{}],"moved":[{}],"hints":[]}}"#,
                    route("0.0.0.0/0", "10.1.0.1"),
                    route("10.60.0.1/32", "10.60.0.2"),
                ),
                "10.1.0.2",
            ),
            (
                format!(
                    r#"{{"effect":"vrf","index":2,"name":"10.1.0.8","table":7,"made":true,"addresses":["fd00::77/64"],"moved":[{}]}}"#,
                    route("10.60.0.1/32", "10.60.0.2"),
                ),
                "",
            ),
            (r#"{"effect":"native","plugin":"other","config":"10.1.0.9"}"#.to_owned(), ""),
            (r#"{"effect":"lease","directory":"10.1.0.9"}"#.to_owned(), ""),
            (r#"{"effect":"of a later version","address":"10.1.0.9"}"#.to_owned(), ""),
        ] {
            let read = serde_json::from_str::<Effect>(&effect);
            assert_eq!(read.is_ok(), !effect.contains("later version"), "{effect}");
            let found = read.iter().flat_map(|effect| effect.kind().own_addresses());
            let found: Vec<String> = found.map(|own| own.to_string()).collect();
            assert_eq!(found.join(" "), own, "{effect}");
        }
    }
}
