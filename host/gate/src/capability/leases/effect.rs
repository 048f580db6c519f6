//! Leases of host-local's store.

use crate::capability::leaves::{ByContents, EffectKind};
use crate::context::Context;
use crate::effect::Addresses;
use crate::errors::state_error;
use crate::right::Right;
use crate::shell::quoted;
use crate::view::is_relative;
use postern_cni::Verb;
use postern_policy::capability::leases::DEFAULT_DIRECTORY;
use postern_state::StateError;
use postern_types::OpError;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::IpAddr;

/// Leases in a data directory, identified by their owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// host-local's `dataDir`.
    pub directory: String,
}

impl Lease {
    /// Gives back the `taken` leases of an undone ADD. Without `taken`, gives back all leases of the owner.
    fn revert(&self, run: &Context, taken: Option<&[IpAddr]>) -> Result<(), OpError> {
        if is_relative(&self.directory) {
            return Ok(());
        }
        let leases = match run.view().open_leases(&self.directory, false) {
            Ok(None) => return Ok(()),
            Ok(Some(leases)) => leases,
            // Another user may have made the files in the directory: the files are not touched, and DEL continues.
            Err(error @ StateError::Untrusted { .. }) if run.request.verb == Verb::Del => {
                crate::say!(
                    "postern: the leases of this attachment stay in ipam.dataDir {}: {error}; after a repair, `{}` \
                     frees the leases",
                    self.directory,
                    collecting(&self.directory)
                );
                return Ok(());
            }
            Err(error) => return Err(state_error(error)),
        };
        let owner = run.request.owner();
        match taken {
            Some(taken) => leases.release_addresses(&owner, taken, run.fixed.deadline.answer_by()).map(drop),
            None => leases.release(&owner, run.fixed.deadline.answer_by()).map(drop),
        }
        .map_err(state_error)
    }
}

impl EffectKind for Lease {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        self.revert(run, None)
    }

    fn undo(&self, run: &Context, taken: &[IpAddr]) -> Result<(), OpError> {
        // If no lease was taken, the store is not opened: the reservation may have failed at a lock that another
        // process still holds.
        if taken.is_empty() { Ok(()) } else { self.revert(run, Some(taken)) }
    }

    fn words(&self) -> String {
        format!("leases in {}", self.directory)
    }

    fn right(&self) -> Right<'_> {
        Right::Leases(Cow::from(&self.directory))
    }
}

impl ByContents for Lease {
    fn addresses(&self) -> Addresses<'_> {
        Addresses::HeldIn(&self.directory)
    }
}

/// Returns the command that finds unused leases in this directory.
pub fn collecting(directory: &str) -> String {
    match directory == DEFAULT_DIRECTORY {
        true => "postern gc --native".to_owned(),
        false => format!("postern gc --native --data-dir {}", quoted(directory)),
    }
}
