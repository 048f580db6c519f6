//! The addresses that an ADD asks for by name, and which other attachment has them.
//!
//! An ADD without such an address asks nothing here. For one with an address, this is one more system call.

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

/// The most addresses that are looked for.
const MOST: usize = 64;

/// Who holds a lease, as far as records tell.
pub enum Lessee {
    /// The attachment of this record, which lists the lease.
    Recorded(RecordKey, Box<Summary>),
    /// An attachment with a record that does not list the lease: another program gave the address.
    Elsewhere,
    /// An attachment without a record.
    Unrecorded,
}

/// Returns the addresses that a request names: `IP` in `CNI_ARGS`, `ips` of `args` and of the runtime, and the list of
/// static. A plugin refuses what can't be read.
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

/// Returns the other attachments of this host that have an address which this ADD names: a lease, or forwards that lead to
/// it. Nothing is locked.
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

/// Returns who holds a lease of this network in a data directory, by the owner that its file names.
pub fn lessee(view: View<'_>, directory: &str, owner: &LeaseOwner) -> Result<Lessee, OpError> {
    let (key, state) = (view.key_of(&owner.container_id, &owner.ifname)?, &view.fixed.places.state);
    let found = if postern_state::is_there(state, &key) { postern_state::find(state, &key) } else { Ok(None) };
    let Some(summary) = found.map_err(state_error)? else { return Ok(Lessee::Unrecorded) };
    let is_listed = in_record::<Lease>(&summary).any(|lease| Path::new(&lease.directory) == Path::new(directory));
    Ok(if is_listed { Lessee::Recorded(key, Box::new(summary)) } else { Lessee::Elsewhere })
}

/// True if a path leads to no namespace any more: nothing is there, or nothing is mounted. This proves nothing. It tells
/// which of many attachments to look at first.
pub fn looks_gone(path: &str) -> bool {
    let path = Path::new(path);
    let Ok(file) = lstat(path) else { return true };
    path.parent().and_then(|directory| lstat(directory).ok()).is_some_and(|directory| {
        directory.st_dev == file.st_dev && file.st_mode & nix::libc::S_IFMT == nix::libc::S_IFREG
    })
}
