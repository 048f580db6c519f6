//! `leases`: host-local's address store.

pub mod effect;

use crate::capability::facts::{ALWAYS, Facts};
pub use crate::capability::leases::effect::collecting;
use crate::capability::leaves::EffectKind;
use crate::context::{Context, View};
use crate::effect::Lease;
use crate::errors::state_error;
use crate::gate::Gate;
use crate::others::{LedTo, Lessee, OTHERWISE, looks_gone};
use crate::own::OwnAddress;
use crate::right::Right;
use crate::view::is_relative;
use crate::{collect, kept, others, settings};
use ipnet::IpNet;
use postern_cni::Verb;
pub use postern_policy::capability::leases::{DEFAULT_DIRECTORY, directory};
use postern_state::{LeaseOwner, Leases, StateError, TakenAddress as Taken};
use postern_types::{ErrorCode, LeaseGrant, LeaseRange, OpError, RangeSet, canonicalize, host};
use std::net::IpAddr;
use std::time::Instant;

/// The most ranges in one request. The limit exists because each range is compared with each other range.
const MOST_RANGES: usize = 256;

/// Checks ranges as host-local does, and fills in missing values.
///
/// # Errors
/// [`ErrorCode::InvalidArgument`], with the native plugin's words.
pub fn range_sets(sets: &[Vec<LeaseRange>]) -> Result<Vec<RangeSet>, OpError> {
    let ranges: usize = sets.iter().map(Vec::len).sum();
    if sets.len() > MOST_RANGES || ranges > MOST_RANGES {
        let message = format!("{} sets with {ranges} ranges are more than {MOST_RANGES}", sets.len());
        return Err(OpError::new(ErrorCode::InvalidArgument, "ranges", message).hint("merge adjacent ranges"));
    }
    canonicalize(sets.to_vec()).map_err(|message| OpError::new(ErrorCode::InvalidArgument, "ranges", message))
}

pub(crate) const FACTS: Facts = Facts {
    keeps: |request, granted| {
        let directory = directory(&request.conf);
        let is_allowed = granted.is_some_and(|granted| granted.has_object("leases.directories", &directory));
        (request.verb == Verb::Del || is_allowed).then(|| Right::Leases(directory.into()))
    },
    ..ALWAYS
};

impl host::Leases for Gate<'_> {
    fn reserve(&mut self, sets: &[Vec<LeaseRange>], requested: &[IpAddr]) -> Result<Vec<LeaseGrant>, OpError> {
        if self.run.journal.has_made(|undo| !undo.leases.is_empty()) {
            return Err(taken_already());
        }
        let sets = range_sets(sets)?;
        let directory = directory(&self.run.request.conf);
        let gone = || OpError::new(ErrorCode::Io, "leases", "the lease directory vanished while it was opened");
        let leases = self.run.view().leases(&directory, true)?.ok_or_else(gone)?;
        self.run.journal.intend(self.run.view(), Lease { directory })?;
        let taken = take(self.run, &leases, &sets, requested)?;
        Ok(taken_by(&mut self.run.own.addresses, taken))
    }

    fn held(&mut self) -> Result<Vec<LeaseGrant>, OpError> {
        let Some(leases) = self.run.view().leases(&directory(&self.run.request.conf), false)? else {
            return Ok(Vec::new());
        };
        Ok(held_by(leases.held(&self.run.request.owner(), self.run.fixed.deadline.answer_by()).map_err(state_error)?))
    }

    fn release(&mut self) -> Result<(), OpError> {
        collect::before_release(self.run)?;
        release_own(self.run)
    }

    fn retain(&mut self) -> Result<u32, OpError> {
        let Some(valid) = self.run.request.conf.still_valid() else { return Ok(0) };
        let owners: Vec<(&str, &str)> =
            valid.iter().map(|valid| (valid.container_id.as_str(), valid.ifname.as_str())).collect();
        // The rules of all plugins are removed before the leases.
        collect::stale_sections(self.run.view())?;
        let mut freed = 0;
        let directory = directory(&self.run.request.conf);
        if !is_relative(&directory)
            && let Some(leases) = self.run.view().leases(&directory, false)?
        {
            let view = self.run.view();
            let spared = |owner: &LeaseOwner, address: IpAddr| {
                let (network, LeaseOwner { container_id, ifname }) = (&view.request.conf.name, owner);
                let served = kept::is_served(view.system, &view.system.served, address);
                if let Some(why) = &served {
                    crate::say!("postern: {network}/{container_id}/{ifname}: its addresses are kept: {why}");
                }
                served.is_some() || collect::is_busy(view, container_id, ifname)
            };
            freed = leases.retain(&owners, spared, self.run.fixed.deadline.answer_by()).map_err(state_error)?.len();
        }
        Ok(u32::try_from(freed).unwrap_or(u32::MAX))
    }

    fn available(&mut self, sets: &[Vec<LeaseRange>]) -> Result<bool, OpError> {
        let sets = range_sets(sets)?;
        let Some(leases) = self.run.view().leases(&directory(&self.run.request.conf), false)? else {
            return Ok(true);
        };
        let full = leases.exhausted(&sets, self.run.fixed.deadline.answer_by()).map_err(state_error)?;
        let Some(set) = full.and_then(|number| sets.get(number)) else { return Ok(true) };
        let fault = format!("no IP addresses available in range set: {set}");
        Ok(settings::is_said(self.run.view(), &fault))
    }
}

/// Takes addresses to which no recorded rule leads. A free address can still have forwards in another record. Then the
/// address was given back without DEL of the attachment that has the forwards: by hand, by another program, or by
/// removal of the directory.
fn take(run: &mut Context, leases: &Leases, sets: &[RangeSet], requested: &[IpAddr]) -> Result<Vec<Taken>, OpError> {
    let owner = run.request.owner();
    let mut avoided: Vec<LedTo> = Vec::new();
    loop {
        let addresses: Vec<IpAddr> = avoided.iter().map(|led| led.address).collect();
        let taken = leases.reserve_others(&owner, sets, requested, &addresses, run.fixed.deadline.answer_by());
        let taken = match taken {
            // Each attachment that keeps an address gets a note, if there is room. The next ADD checks these
            // attachments.
            Err(error @ (StateError::Exhausted(_) | StateError::Refused(_))) if !avoided.is_empty() => {
                let words: Vec<String> = avoided.iter().map(|led| kept(run.view(), led)).collect();
                return Err(state_error(error).hint(words.last().cloned().unwrap_or_default()));
            }
            taken => taken.map_err(|error| refused(run, leases, sets, requested, error))?,
        };
        let addresses: Vec<IpAddr> = taken.iter().map(|lease| lease.address.addr()).collect();
        // The leases are noted before the check. So the undo gives the addresses back if the check fails.
        run.journal.note_leases(&addresses);
        let led = others::led_to(run, &addresses)?;
        if led.is_empty() {
            return Ok(taken);
        }
        leases.release_addresses(&owner, &addresses, run.fixed.deadline.answer_by()).map_err(state_error)?;
        run.journal.note_leases(&[]);
        if let Some(led) = led.iter().find(|led| requested.contains(&led.address)) {
            let message = format!("requested IP address {} is not available: rules lead to it", led.address);
            return Err(OpError::new(ErrorCode::Exists, led.address.to_string(), message).hint(kept(run.view(), led)));
        }
        avoided.extend(led);
    }
}

/// Names the attachment that keeps an address, and the operator's remedy.
pub fn kept(view: View<'_>, led: &LedTo) -> String {
    format!("{}; {}", led.words(), others::words_on_lessee(view, &led.key))
}

/// Converts the error of a reservation, and names the owner of the requested address, or an owner in the full ranges.
fn refused(run: &Context, leases: &Leases, sets: &[RangeSet], requested: &[IpAddr], error: StateError) -> OpError {
    let is_exhausted = matches!(error, StateError::Exhausted(_));
    let held: Vec<IpAddr> = if is_exhausted {
        let full = sets.iter().find_map(|set| {
            let taken = leases.taken_of(set).ok()?;
            postern_state::full_set(std::slice::from_ref(set), &taken).map(|_| taken)
        });
        full.unwrap_or_default()
    } else if matches!(error, StateError::Refused(_)) {
        requested.iter().copied().filter(|address| leases.owner_of(*address).is_some()).collect()
    } else {
        Vec::new()
    };
    let error = state_error(error);
    let directory = directory(&run.request.conf);
    // If a lock or a slow disk has used up the time, the error does not name the owners.
    let by = run.fixed.deadline.answer_by();
    let asked = held.iter().take(MOST_ASKED).take_while(|_| Instant::now() < by);
    let lessees = asked.filter_map(|address| Some((*address, leases.owner_of(*address)?))).map(|(address, owner)| {
        let lessee = others::lessee(run.view(), &directory, &owner).unwrap_or(Lessee::Elsewhere);
        (address, owner, lessee)
    });
    let lessees: Vec<(IpAddr, LeaseOwner, Lessee)> = lessees.collect();
    let is_gone = |lessee: &Lessee| match lessee {
        Lessee::Recorded(_, summary) => {
            summary.header.as_ref().is_some_and(|header| header.netns_path.is_empty() || looks_gone(&header.netns_path))
        }
        Lessee::Elsewhere | Lessee::Unrecorded => false,
    };
    // Among many owners, the next ADD checks the owners that seem to be gone.
    let gone: Vec<&(IpAddr, LeaseOwner, Lessee)> = lessees.iter().filter(|(.., lessee)| is_gone(lessee)).collect();
    let Some((address, owner, lessee)) = gone.first().copied().or(lessees.first()) else { return error };
    let known = match lessee {
        Lessee::Recorded(..) if is_exhausted && gone.is_empty() => OTHERWISE.to_owned(),
        Lessee::Recorded(key, _) => {
            // The owner that the message names gets its note first, because there may be no room for all notes.
            let known = others::words_on_lessee(run.view(), key);
            for (.., other) in gone.iter().skip(1) {
                if let Lessee::Recorded(key, _) = other {
                    others::words_on_lessee(run.view(), key);
                }
            }
            known
        }
        Lessee::Elsewhere => format!(
            "another program gave the address, so the record does not list it: if the container is gone, run \
             `postern gc`, and then `{}`",
            collecting(&directory)
        ),
        Lessee::Unrecorded => {
            format!(
                "no record lists this attachment: if the container is gone, `{}` gives the address back",
                collecting(&directory)
            )
        }
    };
    let more = match held.len() {
        0 | 1 => String::new(),
        many => format!(", and other containers have {} more", many - 1),
    };
    let LeaseOwner { container_id, ifname } = owner;
    error.hint(format!("container {container_id} has {address} ({ifname}){more}; {known}"))
}

/// The most leases whose owners are searched after a refusal.
const MOST_ASKED: usize = 1024;

/// Makes the answer that shows new leases. Their addresses belong to the attachment from then on.
pub fn taken_by(own: &mut Vec<OwnAddress>, taken: Vec<Taken>) -> Vec<LeaseGrant> {
    own.extend(taken.iter().map(|lease| OwnAddress { net: lease.address, gateway: lease.gateway }));
    taken.into_iter().map(|lease| LeaseGrant { address: lease.address, gateway: lease.gateway }).collect()
}

/// Makes the answer that shows the addresses that the attachment holds.
pub fn held_by(held: Vec<IpAddr>) -> Vec<LeaseGrant> {
    held.into_iter().map(|ip| LeaseGrant { address: IpNet::from(ip), gateway: None }).collect()
}

/// The error for a second reservation. Policy has checked the number of addresses of one call. A second call would take
/// the same number again.
pub fn taken_already() -> OpError {
    OpError::new(ErrorCode::Exists, "leases", "this run has taken its addresses already")
        .hint("one call takes one address from each set of ranges")
}

/// Gives back the attachment's leases in the directory that its configuration names.
pub(crate) fn release_own(run: &mut Context) -> Result<(), OpError> {
    let directory = directory(&run.request.conf);
    Lease { directory: directory.clone() }.remove(run)?;
    run.journal.gone(|effect| Lease::of(effect).is_some_and(|lease| lease.directory == directory));
    Ok(())
}
