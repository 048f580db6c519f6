//! What a run only reads. Questions to the records of other attachments take it, and every note in the journal.

use crate::errors::state_error;
use crate::fixed::Fixed;
use crate::request::Request;
use crate::system::System;
use postern_state::{LeaseStore, Leases, NetworkKey, RecordKey, StateError};
use postern_types::OpError;
use std::path::{Path, PathBuf};

/// See the module.
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

    /// Returns the same for another attachment of this network.
    pub fn key_of(&self, container_id: &str, ifname: &str) -> Result<RecordKey, OpError> {
        Ok(RecordKey::new(self.system.home_cookie()?, &self.request.conf.name, container_id, ifname))
    }

    /// Returns the key of this network on this host.
    pub fn network_key(&self) -> Result<NetworkKey, OpError> {
        Ok(NetworkKey::new(self.system.home_cookie()?, &self.request.conf.name))
    }

    /// Returns the leases of the network in a data directory; `create` makes it if it is missing.
    pub fn leases(&self, directory: &str, create: bool) -> Result<Option<Leases>, OpError> {
        self.open_leases(directory, create).map_err(state_error)
    }

    /// As [`View::leases`], with the error of the directory: [`StateError::Untrusted`] if another user could change the
    /// leases.
    pub fn open_leases(&self, directory: &str, create: bool) -> Result<Option<Leases>, StateError> {
        // The text of a record or a configuration can be anything. A path that is not possible has no leases.
        if !create && !can_be_path(directory) {
            return Ok(None);
        }
        let store = LeaseStore {
            data_dir: PathBuf::from(directory),
            network: self.request.conf.name.clone(),
            index_root: self.fixed.places.library.join("leases"),
            boot_id: postern_state::boot_id()?,
        };
        if create { Leases::open(&store).map(Some) } else { Leases::open_existing(&store) }
    }
}

/// True if a file can have this path: `PATH_MAX` and `NAME_MAX` of limits.h, and no NUL.
pub fn can_be_path(path: &str) -> bool {
    path.len() < 4096 && !path.contains('\0') && path.split('/').all(|name| name.len() <= 255)
}

/// True for a relative directory. ADD refuses it, so its leases come from a native plugin or from Postern 0.1, in their
/// current directory. People have to remove those.
pub fn is_relative(directory: &str) -> bool {
    let relative = !Path::new(directory).is_absolute();
    if relative {
        crate::say!(
            "postern: no lease is looked for in ipam.dataDir {directory:?}, which is relative: give an absolute path"
        );
    }
    relative
}
