//! The sysctls that Postern uses, by name only: no path is ever made from free text.

use crate::error::{Result, Subject};
use crate::link::is_link_name;
use nix::errno::Errno;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};

/// A sysctl below `net/`, of the network namespace that the reading or writing thread is in.
///
/// The text form has only slashes as separators, because a link's name may contain the dots that `sysctl(8)` uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sysctl {
    /// `net/ipv4/conf/<link>/<key>`
    Ipv4Conf {
        /// A link's name. `all` and `default` are not links and are refused.
        link: String,
        /// The key, `arp_notify` for example.
        key: &'static str,
    },
    /// `net/ipv6/conf/<link>/<key>`
    Ipv6Conf {
        /// A link's name. `all` and `default` are not links and are refused.
        link: String,
        /// The key, `accept_ra` for example.
        key: &'static str,
    },
    /// `net/ipv4/ip_forward`
    Ipv4Forward,
    /// `net/ipv6/conf/all/forwarding`
    Ipv6Forwarding,
}

impl fmt::Display for Sysctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv4Conf { link, key } => write!(f, "net/ipv4/conf/{link}/{key}"),
            Self::Ipv6Conf { link, key } => write!(f, "net/ipv6/conf/{link}/{key}"),
            Self::Ipv4Forward => f.write_str("net/ipv4/ip_forward"),
            Self::Ipv6Forwarding => f.write_str("net/ipv6/conf/all/forwarding"),
        }
    }
}

impl Sysctl {
    fn path(&self, operation: &'static str) -> Result<String> {
        match self {
            Self::Ipv4Conf { link, .. } | Self::Ipv6Conf { link, .. }
                if !is_link_name(link) || link == "all" || link == "default" =>
            {
                Err(Subject { operation, object: self }.invalid("no link can have this name"))
            }
            _ => Ok(format!("/proc/sys/{self}")),
        }
    }
}

/// Returns the value in the calling thread's namespace, without surrounding white space. `None` if there is no such key
/// (a link that is gone, IPv6 switched off at boot).
///
/// # Errors
/// `EINVAL` for an invalid link name, otherwise those of `open(2)` and `read(2)`.
pub fn get(key: &Sysctl) -> Result<Option<String>> {
    let operation = "read sysctl";
    let subject = Subject { operation, object: key };
    let mut file = match File::open(key.path(operation)?) {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => return Ok(None),
        Err(error) => return Err(subject.failed(&error)),
    };
    // The values are single numbers; one read gets all of it.
    let mut value = [0; 128];
    let length = file.read(&mut value).map_err(|error| subject.failed(&error))?;
    let value = String::from_utf8_lossy(value.get(..length).unwrap_or_default());
    Ok(Some(value.trim().to_owned()))
}

/// Sets the value in the calling thread's namespace. Returns false if it was already set: then nothing is written, so a
/// read-only `/proc/sys` is no obstacle.
///
/// # Errors
/// `EINVAL` for an invalid link name or a value that the key refuses, `ENOENT` if there is no such key, otherwise those
/// of `open(2)` and `write(2)`.
pub fn set(key: &Sysctl, value: &str) -> Result<bool> {
    if get(key)?.as_deref() == Some(value) {
        return Ok(false);
    }
    let operation = "write sysctl";
    OpenOptions::new()
        .write(true)
        .open(key.path(operation)?)
        .and_then(|mut file| file.write_all(value.as_bytes()))
        .map_err(|error| Subject { operation, object: key }.failed(&error))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_built_from_link_names_only() {
        let key = Sysctl::Ipv4Conf { link: "eth0.100".to_owned(), key: "arp_notify" };
        assert_eq!(key.path("read sysctl").unwrap(), "/proc/sys/net/ipv4/conf/eth0.100/arp_notify");
        assert_eq!(Sysctl::Ipv6Forwarding.path("").unwrap(), "/proc/sys/net/ipv6/conf/all/forwarding");
        for link in ["", ".", "..", "../../kernel", "a/b", "all", "default", "sixteen-letters-", "a\0"] {
            let key = Sysctl::Ipv6Conf { link: link.to_owned(), key: "accept_ra" };
            assert!(get(&key).unwrap_err().is(Errno::EINVAL), "{link}");
            assert!(set(&key, "0").unwrap_err().is(Errno::EINVAL), "{link}");
        }
    }
}
