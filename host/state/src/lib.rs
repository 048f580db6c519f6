//! What Postern keeps on disk: IP leases shared with the native host-local plugin, attachment records (the journal from
//! which an ADD is undone and a DEL is done), and notes on node objects that outlive attachments.
//!
//! Everything here is mechanism for the privileged process: no CNI parsing, no policy. Three rules hold throughout:
//!
//! * Locks are `flock(2)` locks and obey a deadline. They belong to the open file, which a fork shares: fork helpers
//!   before taking a lock, or the lock outlives this process for as long as they live.
//! * What is in a directory is opened by single names, which are never followed ([`Dir`]): nothing in it can redirect.
//! * Nothing is synced to disk. A power cut ends every attachment, so what matters is that a file is never seen torn,
//!   and that state of an earlier boot is recognised as such.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests look at the files by themselves"))]

mod dir;
mod error;
mod files;
mod lease_dir;
mod lease_index;
mod leases;
pub mod node;
mod record;
mod trust;

use std::sync::OnceLock;

pub use dir::{Dir, How};
pub use error::{Result, StateError};
pub use lease_dir::place as lease_place;
pub use leases::{Held, Lease, LeaseStore, Leases, Owner, Snapshot, networks};
pub use record::{
    DataPath, Effect, Header, NetworkKey, Record, RecordKey, Section, Stage, Summary, Valid, is_busy, list, list_of,
    list_others, list_strangers, plugin_of, tidy,
};
pub use trust::{TrustError, kind, trust, trust_file, trust_stat};

/// Identity of the running kernel, from `/proc/sys/kernel/random/boot_id` (proc_sys_kernel(5)): changes with every boot. Read
/// once per process.
///
/// # Errors
/// [`StateError::Io`] if `/proc` isn't mounted.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel's own")]
pub fn boot_id() -> Result<String> {
    static KNOWN: OnceLock<String> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let path = std::path::Path::new("/proc/sys/kernel/random/boot_id");
    std::fs::read_to_string(path)
        .map(|text| KNOWN.get_or_init(|| text.trim().to_owned()).clone())
        .map_err(|source| StateError::io("read", path, source))
}
