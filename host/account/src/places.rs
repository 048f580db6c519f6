//! The directories of state and leases of this user's runs, for callers that only read.

use nix::unistd::{AccessFlags, access};
use postern_gate::places::{LIBRARY, LOGS, Places, STATE, is_blocked, is_directory, is_there};
use postern_state::{HeldAddress, LeaseStore, Leases};
use std::path::{Path, PathBuf};

/// Returns the directories that a run of this user would use. The directories are not made or verified.
pub fn expected() -> Places {
    let or = |path: &str, otherwise: &Path| match could_be_used(Path::new(path)) {
        true => PathBuf::from(path),
        false => otherwise.to_owned(),
    };
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    let own = runtime.map_or_else(|| PathBuf::from(STATE), |dir| PathBuf::from(dir).join("postern"));
    let state = if is_blocked(Path::new(STATE)) { PathBuf::from(STATE) } else { or(STATE, &own) };
    Places { library: or(LIBRARY, &state), logs: or(LOGS, &state), state }
}

/// True if a run could use the directory, or make it.
fn could_be_used(directory: &Path) -> bool {
    let there = directory.ancestors().find(|part| is_there(part)).unwrap_or(Path::new("/"));
    is_directory(there) && access(there, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
}

/// Opens the leases of a network in a data directory; `None` if the network has no directory there, and so no lease.
///
/// # Errors
/// A text for people: another user can write in the directory, or the directory can't be opened.
pub fn leases(places: &Places, data_dir: &Path, network: &str) -> Result<Option<Leases>, String> {
    let store = LeaseStore {
        data_dir: data_dir.to_owned(),
        network: network.to_owned(),
        index_root: places.lease_index(),
        boot_id: postern_state::boot_id().map_err(|e| e.to_string())?,
    };
    Leases::open_existing(&store).map_err(|e| e.to_string())
}

/// Returns all leases of a network in a data directory. Changes nothing.
///
/// # Errors
/// As [`leases`], and if a lease can't be read.
pub fn all_leases(places: &Places, data_dir: &Path, network: &str) -> Result<Vec<HeldAddress>, String> {
    let leases = leases(places, data_dir, network)?;
    leases.map_or(Ok(Vec::new()), |leases| leases.all().map_err(|e| e.to_string()))
}
