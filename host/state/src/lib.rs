//! The files that Postern keeps on disk: IP leases, attachment records and notes on node objects. The leases are shared
//! with the native host-local plugin. The records are the journal for undoing an ADD and for DEL. Node objects outlive
//! attachments.
//!
//! This crate is only mechanism for the privileged process: no CNI parsing, no policy. Three rules always hold:
//!
//! * Locks are `flock(2)` locks and obey a deadline. A lock belongs to the open file, which a forked process shares. So
//!   fork helpers before taking a lock: otherwise a helper keeps the lock until it ends.
//! * Files in a directory are opened by single names, and links are not followed ([`Dir`]). So no file can redirect
//!   Postern.
//! * Nothing is synced to disk. A power cut ends every attachment. So only two things matter: no reader sees a torn
//!   file, and state of an earlier boot is recognised.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open files without postern_state::Dir"))]

mod backups;
mod claims;
mod dir;
pub mod doubts;
mod error;
mod files;
mod host_ports;
mod lease_dir;
mod lease_index;
mod leases;
pub mod node;
mod record;
mod routing_lock;
mod slots;
mod trust;

use std::sync::OnceLock;

pub use backups::Backups;
pub use claims::{Claim, ClaimIndex, forget_complete};
pub use dir::{Dir, OpenMode, if_present};
pub use error::{Result, StateError, is_passing};
pub use host_ports::PortIndex;
pub use lease_dir::{open_place as lease_directory, place as lease_place};
pub use leases::{HeldAddress, LeaseOwner, LeaseStore, Leases, TakenAddress, full_set, networks};
pub use record::{
    DataPath, Header, NetworkKey, NotedEffect, Record, RecordKey, Section, Stage, Summary, Valid, find, has_progress,
    is_busy, is_there, list, list_collectable, list_known, list_of, list_others, list_with, plugin_of, tidy,
};
pub use routing_lock::RoutingLock;
pub use slots::SlotHolder;
pub use trust::{TrustError, is_trusted_way, kind, trust, trust_file, trust_stat, trust_way};

/// Returns the identity of the running kernel from `/proc/sys/kernel/random/boot_id` (proc_sys_kernel(5)). The identity
/// changes with every boot, and is read once per process.
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
