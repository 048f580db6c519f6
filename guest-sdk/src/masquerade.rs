//! Source NAT for the attachment's own addresses.

use crate::error::Error;
use crate::sys;
use postern_cni::Fields;
use postern_types::Backend;

/// The meaning of the keys `ipMasq` and `ipMasqBackend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MasqueradeConfig {
    /// No masquerading.
    No,
    /// Masquerading by the node's default packet filter.
    Yes,
    /// Masquerading by this packet filter.
    By(Backend),
}

impl MasqueradeConfig {
    /// Reads both keys. The backend is checked only if `ipMasq` is true.
    ///
    /// # Errors
    /// Code 999 for a key of the wrong type, code 7 for a backend that doesn't exist.
    pub fn read(fields: &Fields<'_>) -> Result<Self, Error> {
        let backend = fields.str("ipMasqBackend")?;
        if !fields.bool("ipMasq")?.unwrap_or(false) {
            return Ok(Self::No);
        }
        match backend {
            None => Ok(Self::Yes),
            Some("nftables") => Ok(Self::By(Backend::Nftables)),
            Some("iptables") => Ok(Self::By(Backend::Iptables)),
            Some(other) => Err(Error::config(format!("unknown ipmasq backend \"{other}\""))),
        }
    }

    /// Makes the rules, if any are wanted.
    pub fn ensure(self) -> Result<(), Error> {
        match self {
            Self::No => Ok(()),
            Self::Yes => ensure(None),
            Self::By(backend) => ensure(Some(backend)),
        }
    }

    /// Compares the rules, if any are wanted. Without a named backend, the rules of either backend are accepted: the
    /// default may have changed since the ADD, or a native plugin may have made the rules.
    pub fn check(self) -> Result<(), Error> {
        match self {
            Self::No => Ok(()),
            Self::Yes => check(None),
            Self::By(backend) => check(Some(backend)),
        }
    }
}

/// Makes the rules, if they are missing; `None` means the node's default backend.
pub fn ensure(backend: Option<Backend>) -> Result<(), Error> {
    sys::masquerade::ensure(backend)
}

/// Compares the rules with the expected rules; `None` means the rules in the attachment's record, or else the rules of
/// any backend.
///
/// # Errors
/// Among others [`postern_types::ErrorCode::Mismatch`].
pub fn check(backend: Option<Backend>) -> Result<(), Error> {
    sys::masquerade::check(backend)
}

/// Removes the attachment's rules of both backends. The call succeeds if there is nothing to remove.
pub fn remove() -> Result<(), Error> {
    sys::masquerade::remove()
}
