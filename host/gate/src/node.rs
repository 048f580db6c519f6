//! Notes on node objects: objects that Postern made and attachments share. Node objects outlive attachments; `postern
//! gc --node` removes unused node objects. Without a note this removal is impossible, but a missing note is no error of
//! the attachment.

use crate::clock::now;
use crate::errors::{self, kernel_error};
use postern_kernel::Netlink;
use postern_state::node::{self, NodeObject};
use postern_types::OpError;
use serde_json::{Value, json};
use std::path::Path;

/// Kind of a bridge that was created.
pub const BRIDGE: &str = "bridge";
/// Kind of a VLAN gateway that was created.
pub const VLAN_GATEWAY: &str = "vlan-gateway";
/// Kind of an IP version whose forwarding was switched on.
pub const FORWARDING: &str = "forwarding";

/// Kind of a link with `route_localnet`.
pub const LOCALNET: &str = "route-localnet";
/// Kind of an isolated bridge.
pub const ISOLATION: &str = "isolation";

/// Notes an object, and then calls `make`. The note comes first, because an object without a note would never be
/// collected.
///
/// `make` returns true if this run made the object. If not, the note is removed again. For a link that was made, the
/// index is noted too, because a foreign link may later have the same name.
pub fn noted<E>(
    state: &Path,
    host: &Netlink,
    kind: &str,
    name: &str,
    make: impl FnOnce() -> Result<bool, E>,
) -> Result<bool, E> {
    let object = object(host, kind, name);
    let is_new = object.clone().and_then(|object| node::note(state, &object).map_err(errors::state_error));
    let made = make();
    let kept = match (&made, is_new, object) {
        (_, Err(reason), _) | (_, _, Err(reason)) => Err(reason),
        (Ok(true), _, Ok(_)) if kind == FORWARDING => Ok(()),
        (Ok(true), _, Ok(object)) => match host.link_by_name(name).map_err(kernel_error) {
            Ok(Some(link)) => {
                let detail = json!({ INDEX: link.index });
                node::update(state, &NodeObject { detail, ..object }).map_err(errors::state_error)
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        },
        // The note stays: the kernel may have made the link, and only the answer was lost.
        (Err(_), Ok(true), Ok(_)) if is_link(kind) && !matches!(host.link_by_name(name), Ok(None)) => Ok(()),
        // The note is removed, unless another run made the object meanwhile, and noted its index.
        (_, Ok(true), Ok(object)) => node::find(state, kind, name, object.host_netns_cookie)
            .and_then(|noted| match noted {
                Some(noted) if noted.detail.is_null() => node::remove(state, kind, name, object.host_netns_cookie),
                _ => Ok(false),
            })
            .map(drop)
            .map_err(errors::state_error),
        (_, Ok(false), Ok(_)) => Ok(()),
    };
    if let Err(reason) = kept {
        crate::say!("postern: the note on {kind} {name} for `postern gc --node` is incomplete: {reason}");
    }
    made
}

/// True if objects of this kind are links, and not settings.
fn is_link(kind: &str) -> bool {
    [BRIDGE, VLAN_GATEWAY].contains(&kind)
}

/// The key of the link's index in [`NodeObject::detail`].
pub const INDEX: &str = "index";

fn object(host: &Netlink, kind: &str, name: &str) -> Result<NodeObject, OpError> {
    Ok(NodeObject {
        kind: kind.to_owned(),
        name: name.to_owned(),
        boot_id: postern_state::boot_id().map_err(errors::state_error)?,
        host_netns_cookie: host.cookie().map_err(kernel_error)?,
        created: now(),
        detail: Value::Null,
    })
}
