//! The containers that GC must enter, because some links exist only in a container. GC enters the containers before its
//! confinement, because a confined gate can neither open a path nor enter a namespace.

use crate::context::{RunParts, View};
use crate::effect::{Effect, in_record};
use crate::errors::state_error;
use crate::known::ContainerAccess;
use postern_cni::ValidAttachment;
use postern_state::{RecordKey, Summary, Valid};
use postern_types::OpError;
use std::collections::HashMap;

/// The largest number of containers that one GC enters. Each container needs a thread.
const MOST: usize = 64;

/// Returns the records of this network's invalid attachments, as the records were at the first call. GC spares later
/// records anyway. Of a valid attachment or another network, only the record's file name is read: the name shows
/// the network. (A file name of Postern 0.1 does not show the network.)
///
/// The list is empty if the runtime has not named the valid attachments: then nothing may be removed.
pub fn records(view: View<'_>) -> Result<&[Summary], OpError> {
    let known = &view.system.known.collectable;
    if let Some(records) = known.get() {
        return Ok(records);
    }
    let Some(valid) = view.request.conf.still_valid() else { return Ok(&[]) };
    let here = view.system.home_cookie()?;
    let (name, network) = (&view.request.conf.name, view.network_key()?);
    let key = |of: &ValidAttachment| RecordKey::in_network(network, here, name, &of.container_id, &of.ifname);
    let valid = Valid { network, attachments: valid.into_iter().map(key).collect() };
    let records = postern_state::list_collectable(&view.fixed.places.state, &valid).map_err(state_error)?;
    Ok(known.get_or_init(|| records))
}

/// Enters the containers of the attachments that are to be collected. For each thread, `confine` makes the function
/// that confines the thread.
pub fn enter_containers<C>(parts: &mut RunParts, confine: impl Fn() -> C) -> Result<(), OpError>
where
    C: FnOnce() -> Result<(), String> + Send + 'static,
{
    let view = parts.context().view();
    let (mut accesses, mut entered) = (HashMap::new(), 0);
    for summary in records(view)? {
        let (Some(key), Some(header)) = (&summary.key, &summary.header) else { continue };
        if header.network != view.request.conf.name || !needs_container(in_record(summary)) {
            continue;
        }
        let found = match entered < MOST {
            true => ContainerAccess::look(header, confine()),
            false => ContainerAccess::Hidden(format!(
                "one GC enters {MOST} containers, and a later GC enters this container"
            )),
        };
        entered += usize::from(matches!(found, ContainerAccess::In(_)));
        accesses.insert(*key, found);
    }
    parts.system.known.containers = accesses;
    Ok(())
}

/// Finds the container of the record, if the record lists effects in the container. The process must not be confined.
pub fn look_for_container(parts: &mut RunParts) {
    let Some(record) = parts.journal.record() else { return };
    if needs_container(record.effects(None).into_iter().map(|noted| noted.effect)) {
        let found = ContainerAccess::look(record.header(), || Ok(()));
        parts.system.use_access(found);
    }
}

fn needs_container(effects: impl IntoIterator<Item = Effect>) -> bool {
    effects.into_iter().any(|effect| effect.kind().right().is_in_container())
}
