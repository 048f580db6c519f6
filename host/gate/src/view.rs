//! The parts of a run that are only read. Functions that read records of other attachments take a [`View`], and so do
//! functions that write to the journal.

use crate::errors::state_error;
use crate::fixed::Fixed;
use crate::request::Request;
use crate::system::System;
use postern_state::{LeaseStore, Leases, NetworkKey, RecordKey, StateError};
use postern_types::OpError;
use std::path::{Path, PathBuf};

/// The parts of a run that are only read.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The request: verb and configuration of this plugin.
    pub request: &'a Request,
    pub fixed: &'a Fixed,
    pub system: &'a System,
}

impl View<'_> {
    /// Returns the key of the attachment's record. Attachments of different host namespaces have different records.
    pub fn key(&self) -> Result<RecordKey, OpError> {
        self.key_of(&self.request.container_id, &self.request.ifname)
    }

    /// Returns the key of another attachment's record in this network.
    pub fn key_of(&self, container_id: &str, ifname: &str) -> Result<RecordKey, OpError> {
        Ok(RecordKey::new(self.system.home_cookie()?, &self.request.conf.name, container_id, ifname))
    }

    /// Returns the key of this network on this host.
    pub fn network_key(&self) -> Result<NetworkKey, OpError> {
        Ok(NetworkKey::new(self.system.home_cookie()?, &self.request.conf.name))
    }

    /// Returns the leases of the network in a data directory; `create` makes a missing directory.
    pub fn leases(&self, directory: &str, create: bool) -> Result<Option<Leases>, OpError> {
        self.open_leases(directory, create).map_err(state_error)
    }

    /// Like [`View::leases`], but with the store's own error: [`StateError::Untrusted`] if another user could change
    /// the leases.
    pub fn open_leases(&self, directory: &str, create: bool) -> Result<Option<Leases>, StateError> {
        // The directory is a text of a record or a configuration. A path that is impossible has no leases.
        if !create && !can_be_path(directory) {
            return Ok(None);
        }
        let store = LeaseStore {
            data_dir: PathBuf::from(directory),
            network: self.request.conf.name.clone(),
            index_root: self.fixed.places.lease_index(),
            boot_id: postern_state::boot_id()?,
        };
        if create { Leases::open(&store).map(Some) } else { Leases::open_existing(&store) }
    }
}

/// True if a file can have this path: `PATH_MAX` and `NAME_MAX` of limits.h, and no NUL.
pub fn can_be_path(path: &str) -> bool {
    path.len() < 4096 && !path.contains('\0') && path.split('/').all(|name| name.len() <= 255)
}

/// True for a relative directory. ADD refuses a relative directory. So leases in a relative directory come from a
/// native plugin or from Postern 0.1. The directory is relative to the current directory of the program that took the
/// leases. People have to remove these leases.
pub fn is_relative(directory: &str) -> bool {
    let relative = !Path::new(directory).is_absolute();
    if relative {
        crate::say!(
            "postern: no lease is searched in ipam.dataDir {directory:?}, which is relative: give an absolute path"
        );
    }
    relative
}
