//! The only error type of this crate.

use nix::errno::Errno;
use postern_netlink::NetlinkError;

/// A firewall operation that failed: the operation, its object, the answer of the kernel or program, and a hint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} {object}: {}{hint}", cause(*.errno))]
pub struct FirewallError {
    /// The operation that was attempted, as a verb phrase ("add rule").
    pub operation: &'static str,
    /// The object of the operation ("inet cni_plugins_masquerade masq_checks").
    pub object: String,
    /// The kernel's answer (errno(3)), if the kernel was asked.
    pub errno: Option<i32>,
    /// A hint how to solve the problem, or the text that a program printed.
    pub hint: String,
}

impl FirewallError {
    /// Makes an error of this crate or of a crate that uses this crate; `hint` says what is wrong, and how to solve it.
    pub fn new(operation: &'static str, object: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { operation, object: object.into(), errno: None, hint: hint.into() }
    }

    pub(crate) fn errno(operation: &'static str, object: impl Into<String>, errno: Errno) -> Self {
        Self { operation, object: object.into(), errno: Some(errno as i32), hint: hint(errno).to_owned() }
    }

    pub(crate) fn io(operation: &'static str, object: impl Into<String>, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(code) => Self::errno(operation, object, Errno::from_raw(code)),
            None => Self::new(operation, object, error.to_string()),
        }
    }

    /// True if the deadline passed before the operation was done.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.errno == Some(Errno::ETIMEDOUT as i32)
    }
}

/// Returns a hint for the kernel's answer to an nftables request.
fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::EPERM | Errno::EACCES => "CAP_NET_ADMIN is needed in the network namespace's user namespace",
        Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT | Errno::ENOENT => {
            "the kernel lacks a feature for the rule: check that the kernel has nf_tables with nat and masquerade"
        }
        Errno::EBUSY => "a foreign rule still refers to this object: remove that rule first",
        Errno::ETIMEDOUT => "the allowed time has passed: look for a program that changes the rules without a pause",
        Errno::ERESTART | Errno::EINTR => "another program keeps changing the rules: try again",
        Errno::EEXIST => "another program made the object at the same time: try again",
        _ => "see errno(3)",
    }
}

/// Returns the kernel's text for its answer, if there is an answer.
fn cause(errno: Option<i32>) -> String {
    errno.map(|code| format!("{}: ", Errno::from_raw(code).desc())).unwrap_or_default()
}

/// Returns the error number of a failed request.
pub(crate) fn errno_of(error: NetlinkError) -> Errno {
    match error {
        NetlinkError::Refused { errno, .. } => Errno::from_raw(errno),
        NetlinkError::System(error) => Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO)),
        NetlinkError::Late => Errno::ETIMEDOUT,
        NetlinkError::Malformed | NetlinkError::NotUnderstood => Errno::EBADMSG,
        NetlinkError::TooLong(_) | NetlinkError::TooMany(_) => Errno::EMSGSIZE,
        NetlinkError::Changing => Errno::EAGAIN,
        NetlinkError::Partial | NetlinkError::Lost => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_operation_object_cause_and_way_out() {
        let error = FirewallError::errno("add rule", "inet t c", Errno::EPERM);
        assert_eq!(
            error.to_string(),
            "add rule inet t c: Operation not permitted: \
             CAP_NET_ADMIN is needed in the network namespace's user namespace"
        );
    }
}
