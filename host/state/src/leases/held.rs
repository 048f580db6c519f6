//! Leases as the account and garbage collection see them: a list, and the removal of one lease.

use super::{LeaseOwner, Leases};
use crate::error::Result;
use crate::lease_dir::{Slot, data_directory};
use crate::trust::{kind, trust_owner};
use nix::sys::stat::{Mode, SFlag};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An address that had a file when the directory was read. No lock was held: the lease may have changed or gone since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldAddress {
    /// The address.
    pub address: IpAddr,
    /// The file of the address.
    pub path: PathBuf,
    /// The owner of the lease. `None` if the file has no readable content; then the address can't be given out.
    pub owner: Option<LeaseOwner>,
    slot: Slot,
}

impl HeldAddress {
    /// Returns the time when the lease was taken: the time of its file. `None` if the file is not a lease file.
    #[must_use]
    pub fn taken(&self) -> Option<SystemTime> {
        let Slot::Held(_, file) = &self.slot else { return None };
        let (seconds, nanoseconds) = file.written;
        Some(UNIX_EPOCH + Duration::new(u64::try_from(seconds).unwrap_or(0), nanoseconds))
    }
}

impl Leases {
    /// Returns all leases of the network, of any program, in the order of their addresses. Torn files are left out.
    /// Reads every file, takes no lock and changes nothing.
    pub fn all(&self) -> Result<Vec<HeldAddress>> {
        let mut addresses = self.directory.addresses()?;
        addresses.sort();
        let mut all = Vec::new();
        for address in addresses {
            let slot = self.directory.read(address)?;
            let owner = match &slot {
                Slot::Held(text, _) => Some(LeaseOwner::of(text)),
                Slot::Foreign => None,
                Slot::Absent | Slot::Torn => continue,
            };
            all.push(HeldAddress { address, path: self.directory.path_of(address), owner, slot });
        }
        Ok(all)
    }

    /// Returns the addresses that can't be given out, each with the text of its owner. The text is empty if the file
    /// can't be read. Takes no lock and changes nothing.
    pub fn texts(&self) -> Result<HashMap<IpAddr, String>> {
        let addresses = self.directory.addresses()?;
        let mut texts: HashMap<IpAddr, String> = addresses.iter().map(|ip| (*ip, String::new())).collect();
        // Without the right to read the files, only their names are known.
        let all = self.read_all(addresses.clone(), false).map(|all| vec![all]);
        let each = || addresses.into_iter().filter_map(|ip| self.read_all(vec![ip], false).ok()).collect();
        for reading in all.unwrap_or_else(|_| each()) {
            texts.extend(reading.leases.into_iter().map(|(entry, text)| (entry.address, text)));
            for free in reading.free {
                texts.remove(&free);
            }
        }
        Ok(texts)
    }

    /// Returns the address last taken for a range set; `None` also if the file has no address.
    #[must_use]
    pub fn last_reserved(&self, set: usize) -> Option<IpAddr> {
        self.directory.last_reserved(set)
    }

    /// Releases a lease of [`Leases::all`] if it is unchanged; true if it was released. A file that is not a lease
    /// stays.
    pub fn remove(&self, held: &HeldAddress, deadline: Instant) -> Result<bool> {
        let Slot::Held(text, _) = &held.slot else { return Ok(false) };
        let mut session = self.lock(deadline)?;
        let same = self.directory.read(held.address)? == held.slot;
        if same {
            self.directory.remove(held.address)?;
            session.forget(text, held.address);
        }
        session.finish();
        Ok(same)
    }
}

/// Returns the networks that have a directory in `data_dir`, host-local's `dataDir`, in the order of their names.
/// `None` if `data_dir` does not exist. Directories of other users are left out, because Postern takes no lease in
/// them.
///
/// # Errors
/// [`crate::StateError::Untrusted`], [`crate::StateError::Io`].
pub fn networks(data_dir: &Path) -> Result<Option<Vec<String>>> {
    let (_, Some(directory)) = data_directory(data_dir)? else { return Ok(None) };
    let is_open = directory.own_stat()?.st_mode & (Mode::S_IWGRP | Mode::S_IWOTH).bits() != 0;
    let mut networks = Vec::new();
    for name in directory.names()? {
        let Some(stat) = directory.stat(&name)?.filter(|_| !name.starts_with('.')) else { continue };
        let is_theirs = || is_open && trust_owner(&directory.path_of(&name), &stat, false).is_err();
        if kind(&stat) == SFlag::S_IFDIR && !is_theirs() {
            networks.push(name);
        }
    }
    networks.sort();
    Ok(Some(networks))
}
