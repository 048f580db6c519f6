//! Leases of host-local's store.

use super::{Addresses, ByContents, Leaves};
use crate::errors::state_error;
use crate::need::Need;
use crate::session::Session;
use crate::shell::quoted;
use postern_cni::Verb;
use postern_policy::capability::leases::DEFAULT_DIRECTORY;
use postern_state::StateError;
use postern_types::OpError;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::IpAddr;
use std::path::Path;

/// Leases in a data directory, identified by their owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// host-local's `dataDir`.
    pub directory: String,
}

impl Lease {
    /// Gives back the leases that an undone ADD took or, by the record, all leases of the owner.
    fn revert(&self, session: &Session, taken: Option<&[IpAddr]>) -> Result<(), OpError> {
        if is_relative(&self.directory) {
            return Ok(());
        }
        let leases = match session.open_leases(&self.directory, false) {
            Ok(None) => return Ok(()),
            Ok(Some(leases)) => leases,
            // What is there may be anybody's: nothing is touched, and no DEL waits for it.
            Err(error @ StateError::Untrusted { .. }) if session.request.verb == Verb::Del => {
                crate::say!(
                    "postern: the leases of this attachment stay in ipam.dataDir {}: {error}; once that is mended, `{}` gives them \
                     back",
                    self.directory,
                    collecting(&self.directory)
                );
                return Ok(());
            }
            Err(error) => return Err(state_error(error)),
        };
        let owner = session.request.owner();
        match taken {
            Some(taken) => leases.release_addresses(&owner, taken, session.answer_by()).map(drop),
            None => leases.release(&owner, session.answer_by()).map(drop),
        }
        .map_err(state_error)
    }
}

impl Leaves for Lease {
    fn remove(&self, session: &Session, taken: Option<&[IpAddr]>) -> Result<(), OpError> {
        match taken {
            // The reservation failed, perhaps at a lock that another process still holds.
            Some([]) => Ok(()),
            Some(taken) => self.revert(session, Some(taken)),
            None => self.revert(session, None),
        }
    }

    fn words(&self) -> String {
        format!("leases in {}", self.directory)
    }

    fn needs(&self) -> Need<'_> {
        Need::Leases(Cow::from(&self.directory))
    }
}

impl ByContents for Lease {
    fn addresses(&self) -> Addresses<'_> {
        Addresses::HeldIn(&self.directory)
    }
}

/// True for a relative directory. ADD refuses it, so its leases come from a native plugin or from Postern 0.1, in their
/// current directory. People have to remove those.
pub(crate) fn is_relative(directory: &str) -> bool {
    let relative = !Path::new(directory).is_absolute();
    if relative {
        crate::say!(
            "postern: no lease is looked for in ipam.dataDir {directory:?}, which is relative: give an absolute path"
        );
    }
    relative
}

/// Returns the command that looks in this directory for leases that nobody uses.
pub fn collecting(directory: &str) -> String {
    match directory == DEFAULT_DIRECTORY {
        true => "postern gc --native".to_owned(),
        false => format!("postern gc --native --data-dir {}", quoted(directory)),
    }
}
