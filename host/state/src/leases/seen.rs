//! Leases as others see them: which there are, and that one goes that nobody has.

use super::{Leases, Owner};
use crate::error::Result;
use crate::files::Directory;
use crate::lease_dir::{FileId, Slot};
use nix::sys::stat::SFlag;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A lease as it was seen without the lock: it may be gone, or another's by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The address taken.
    pub address: IpAddr,
    /// Whose it is.
    pub owner: Owner,
    text: String,
    file: FileId,
}

impl Seen {
    /// When it was taken: its file's time.
    #[must_use]
    pub fn taken(&self) -> SystemTime {
        let (seconds, nanoseconds) = self.file.written;
        UNIX_EPOCH + Duration::new(u64::try_from(seconds).unwrap_or(0), nanoseconds)
    }
}

impl Leases {
    /// All leases of the network, whoever wrote them, in the order of their addresses. Files that count as none are left
    /// out. Takes no lock and changes nothing.
    ///
    /// # Errors
    /// [`crate::StateError::Io`].
    pub fn all(&self) -> Result<Vec<Seen>> {
        let mut addresses = self.directory.addresses()?;
        addresses.sort();
        let mut all = Vec::new();
        for address in addresses {
            if let Slot::Held(text, file) = self.directory.read(address)? {
                all.push(Seen { address, owner: Owner::of(&text), text, file });
            }
        }
        Ok(all)
    }

    /// Give up a lease that was seen, if it is still the same, and return whether it was.
    ///
    /// # Errors
    /// [`crate::StateError::Locked`] at the deadline, [`crate::StateError::Io`].
    pub fn remove(&self, seen: &Seen, deadline: Instant) -> Result<bool> {
        let mut session = self.lock(deadline)?;
        let same = match self.directory.read(seen.address)? {
            Slot::Held(text, file) => text == seen.text && file == seen.file,
            _ => false,
        };
        if same {
            self.directory.remove(seen.address)?;
            session.forget(&seen.text, seen.address);
        }
        session.finish();
        Ok(same)
    }
}

/// The networks that have a directory in `data_dir`, host-local's `dataDir`, in the order of their names; `None` if there is
/// no such directory.
///
/// # Errors
/// [`crate::StateError::Untrusted`], [`crate::StateError::Io`].
pub fn networks(data_dir: &Path) -> Result<Option<Vec<String>>> {
    let Some(directory) = Directory::open(data_dir)?.map(Directory::trusted).transpose()? else { return Ok(None) };
    let mut networks = Vec::new();
    for name in directory.names()? {
        let is_directory = |mode: u32| SFlag::from_bits_truncate(mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
        if !name.starts_with('.') && directory.stat(&name)?.is_some_and(|stat| is_directory(stat.st_mode)) {
            networks.push(name);
        }
    }
    networks.sort();
    Ok(Some(networks))
}
