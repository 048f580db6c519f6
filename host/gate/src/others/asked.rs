//! The addresses that the request of an ADD names, and the other attachments that have these addresses.
//!
//! An ADD without an address does nothing in this module. For an ADD with an address the search costs one system call.

use super::{Holder, leading_to};
use crate::context::View;
use crate::effect::{Lease, in_record};
use crate::errors::state_error;
use crate::request::Request;
use crate::view::{can_be_path, is_relative};
use nix::sys::stat::lstat;
use postern_cni::{Args, parse_cidr, parse_ip};
use postern_policy::capability::leases::directory;
use postern_state::{LeaseOwner, RecordKey, Summary};
use postern_types::OpError;
use std::net::IpAddr;
use std::path::Path;

/// The largest number of addresses that are searched.
const MOST: usize = 64;

/// The holder of a lease, as the records show it.
pub enum Lessee {
    /// The attachment of this record, which lists the lease.
    Recorded(RecordKey, Box<Summary>),
    /// An attachment with a record that does not list the lease: another program gave the address.
    Elsewhere,
    /// An attachment without a record.
    Unrecorded,
}

/// Returns the addresses that a request names: `IP` in `CNI_ARGS`, `ips` of `args` and of the runtime, and the list of
/// the plugin `static`. Invalid texts are skipped, because the plugin refuses them.
pub fn addresses(request: &Request) -> Vec<IpAddr> {
    let conf = &request.conf;
    let mut texts = Vec::new();
    for fields in [conf.args_cni(), conf.runtime_config()].into_iter().flatten() {
        texts.extend(fields.strings("ips").ok().flatten().unwrap_or_default());
    }
    if let Ok(args) = Args::parse(request.args(), &["IP", "GATEWAY"]) {
        texts.extend(args.get("IP").into_iter().flat_map(|list| list.split(',')).map(|text| text.trim().to_owned()));
    }
    let fields = conf.fields();
    let ipam = fields.object("ipam").ok().flatten();
    let listed = ipam.and_then(|ipam| ipam.objects("addresses").ok().flatten()).unwrap_or_default();
    texts.extend(listed.iter().filter_map(|entry| entry.str("address").ok().flatten().map(str::to_owned)));
    let read = |text: &String| parse_cidr(text).map(|net| net.addr()).or_else(|_| parse_ip(text)).ok();
    texts.iter().take(MOST).filter_map(read).collect()
}

/// Returns the other attachments of this host that have a lease of an address that this ADD names, or have forwards to
/// this address. No record is locked.
pub fn holders_of_asked(view: View<'_>) -> Result<Vec<Holder>, OpError> {
    let asked = addresses(view.request);
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let mut holders: Vec<Holder> = Vec::new();
    for led in leading_to(view, &asked)? {
        let has = led.words();
        holders.push(Holder { key: led.key, has, is_noted: false });
    }
    let directory = directory(&view.request.conf);
    let network = &view.request.conf.name;
    for address in asked {
        let file = Path::new(&directory).join(network).join(address.to_string());
        if is_relative(&directory) || !can_be_path(&directory) || lstat(&file).is_err() {
            continue;
        }
        let Some(owner) = view.leases(&directory, false)?.and_then(|leases| leases.owner_of(address)) else {
            continue;
        };
        if let Lessee::Recorded(key, _) = lessee(view, &directory, &owner)?
            && key != view.key()?
        {
            let has = format!("container {} has {address} ({})", owner.container_id, owner.ifname);
            holders.push(Holder { key, has, is_noted: false });
        }
    }
    Ok(holders)
}

/// Returns the holder of a lease of this network in a data directory, by the owner in the lease's file.
pub fn lessee(view: View<'_>, directory: &str, owner: &LeaseOwner) -> Result<Lessee, OpError> {
    let (key, state) = (view.key_of(&owner.container_id, &owner.ifname)?, &view.fixed.places.state);
    let found = if postern_state::is_there(state, &key) { postern_state::find(state, &key) } else { Ok(None) };
    let Some(summary) = found.map_err(state_error)? else { return Ok(Lessee::Unrecorded) };
    let is_listed = in_record::<Lease>(&summary).any(|lease| Path::new(&lease.directory) == Path::new(directory));
    Ok(if is_listed { Lessee::Recorded(key, Box::new(summary)) } else { Lessee::Elsewhere })
}

/// True if a path no longer leads to a namespace: it does not exist, or nothing is mounted on it. This fact proves
/// nothing, and only decides which of many attachments are checked first.
pub fn looks_gone(path: &str) -> bool {
    let path = Path::new(path);
    let Ok(file) = lstat(path) else { return true };
    path.parent().and_then(|directory| lstat(directory).ok()).is_some_and(|directory| {
        directory.st_dev == file.st_dev && file.st_mode & nix::libc::S_IFMT == nix::libc::S_IFREG
    })
}
