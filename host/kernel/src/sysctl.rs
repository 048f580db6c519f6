//! Sysctls. Postern's own sysctls have fixed names. Sysctls of an operator's configuration are given by checked parts
//! of their name. No path is ever made from free text.

use crate::error::{Result, Subject};
use crate::link::is_link_name;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

/// A sysctl below `net/`, in the network namespace of the thread that reads or writes it.
///
/// The text form has only slashes as separators, because a link's name may contain the dots that `sysctl(8)` uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sysctl {
    /// `net/ipv4/conf/<link>/<key>`: the name of a link, and the key. `all` and `default` are not links and are
    /// refused.
    Ipv4Conf(String, &'static str),
    /// `net/ipv6/conf/<link>/<key>`. `all` and `default` are refused too.
    Ipv6Conf(String, &'static str),
    /// `net/ipv4/ip_forward`
    Ipv4Forward,
    /// `net/ipv6/conf/all/forwarding`
    Ipv6Forwarding,
}

impl fmt::Display for Sysctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv4Conf(link, key) => write!(f, "net/ipv4/conf/{link}/{key}"),
            Self::Ipv6Conf(link, key) => write!(f, "net/ipv6/conf/{link}/{key}"),
            Self::Ipv4Forward => f.write_str("net/ipv4/ip_forward"),
            Self::Ipv6Forwarding => f.write_str("net/ipv6/conf/all/forwarding"),
        }
    }
}

impl Sysctl {
    /// Returns the sysctl as a [`Setting`]. An impossible link name is an error.
    pub(crate) fn setting(&self, operation: &'static str) -> Result<Setting> {
        match self {
            Self::Ipv4Conf(link, _) | Self::Ipv6Conf(link, _)
                if !is_link_name(link) || link == "all" || link == "default" =>
            {
                Err(Subject { operation, object: self }.invalid("no link can have this name"))
            }
            _ => Ok(Setting(self.to_string().split('/').skip(1).map(str::to_owned).collect())),
        }
    }
}

/// The operations in errors.
pub(crate) const READ: &str = "read sysctl";
pub(crate) const WRITE: &str = "write sysctl";

/// Returns the value in the calling thread's namespace, without surrounding white space. `None` if the key is missing
/// (a link that is gone, IPv6 switched off at boot).
///
/// # Errors
/// `EINVAL` for an invalid link name, otherwise the errors of `open(2)` and `read(2)`.
pub fn get(key: &Sysctl) -> Result<Option<String>> {
    SysctlFile::of(&key.setting(READ)?).get()
}

/// Sets the value in the calling thread's namespace. Returns false if the sysctl already had the value. Then nothing is
/// written, so `/proc/sys` may be read-only.
///
/// # Errors
/// `EINVAL` for an invalid link name or a value that the key refuses. `ENOENT` if the key is missing. Otherwise the
/// errors of `open(2)` and `write(2)`.
pub fn set(key: &Sysctl, value: &str) -> Result<bool> {
    SysctlFile::of(&key.setting(WRITE)?).set(value)
}

/// Returns the file of a setting in the calling thread's namespace; `None` if the file is missing.
///
/// # Errors
/// The errors of `stat(2)`.
pub fn look(setting: &Setting) -> Result<Option<SettingFile>> {
    SysctlFile::of(setting).look()
}

/// The most bytes of a setting that are read. The kernel accepts at most a page.
const LIMIT: u64 = 4096;

/// A setting below `net/`, by the parts of its name. Each part is the name of one directory or file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting(Vec<String>);

impl Setting {
    /// Makes a setting from the parts of its name below `net`; `None` if a part cannot be a name.
    pub fn new<'a>(parts: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let parts: Vec<String> = parts.into_iter().map(str::to_owned).collect();
        let is_name = |part: &String| {
            (1..=64).contains(&part.len())
                && !matches!(part.as_str(), "." | "..")
                && !part.bytes().any(|byte| byte == b'/' || byte <= b' ' || byte == 0x7f)
        };
        (!parts.is_empty() && parts.len() <= 16 && parts.iter().all(is_name)).then_some(Self(parts))
    }

    /// Returns the protocol and the name below its `conf` directory; `None` for a setting of another directory.
    pub(crate) fn below_conf(&self) -> Option<(&str, String)> {
        match self.0.as_slice() {
            [protocol, conf, name @ ..] if conf == "conf" && !name.is_empty() => Some((protocol, name.join("/"))),
            _ => None,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net/{}", self.0.join("/"))
    }
}

/// The file of a setting, as the calling thread's namespace shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingFile {
    /// The kernel's number of the file. Two namespaces that show the same file have one setting in common.
    pub inode: u64,
    /// True for a file, false for a directory.
    pub is_file: bool,
    /// True if the file's owner may read the file.
    pub readable: bool,
    /// True if the file's owner may write the file. A setting that a namespace may only read belongs to another
    /// namespace.
    pub writable: bool,
}

/// A setting, with its place: a directory, and the setting's name in this directory.
pub(crate) struct SysctlFile<'a> {
    pub setting: &'a Setting,
    pub directory: BorrowedFd<'a>,
    pub name: String,
}

impl<'a> SysctlFile<'a> {
    /// Returns the place of a setting in the calling thread's namespace.
    pub(crate) fn of(setting: &'a Setting) -> Self {
        Self { setting, directory: AT_FDCWD, name: format!("/proc/sys/{setting}") }
    }

    fn open(&self, access: OFlag) -> nix::Result<File> {
        openat(self.directory, self.name.as_str(), access | OFlag::O_CLOEXEC, Mode::empty()).map(File::from)
    }

    fn subject(&self, operation: &'static str) -> Subject<'_> {
        Subject { operation, object: self.setting }
    }

    /// Works as [`get`].
    pub(crate) fn get(&self) -> Result<Option<String>> {
        let subject = self.subject(READ);
        match self.open(OFlag::O_RDONLY) {
            Ok(file) => value_of(&file).map(Some).map_err(|error| subject.failed(error)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(subject.failed(errno)),
        }
    }

    /// Works as [`set`].
    pub(crate) fn set(&self, value: &str) -> Result<bool> {
        let subject = self.subject(WRITE);
        let file = match self.open(OFlag::O_RDWR) {
            Ok(file) => file,
            // The file can't be opened for writing, but the setting may have the value already.
            Err(_) if self.get()?.as_deref() == Some(value) => return Ok(false),
            Err(errno) => return Err(subject.failed(errno)),
        };
        if value_of(&file).map_err(|error| subject.failed(error))? == value {
            return Ok(false);
        }
        // The kernel accepts a value only at offset 0.
        file.write_all_at(value.as_bytes(), 0).map_err(|error| subject.failed(error))?;
        Ok(true)
    }

    /// Works as [`look`].
    pub(crate) fn look(&self) -> Result<Option<SettingFile>> {
        match fstatat(self.directory, self.name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(SettingFile {
                inode: found.st_ino,
                is_file: SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG,
                readable: found.st_mode & 0o400 != 0,
                writable: found.st_mode & 0o200 != 0,
            })),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.subject("look at sysctl").failed(errno)),
        }
    }

    /// Returns the value, without its final newline.
    pub(crate) fn read(&self) -> Result<String> {
        let subject = self.subject(READ);
        let mut value = Vec::new();
        let file = self.open(OFlag::O_RDONLY).map_err(|errno| subject.failed(errno))?;
        file.take(LIMIT + 1).read_to_end(&mut value).map_err(|error| subject.failed(error))?;
        if value.len() as u64 > LIMIT {
            return Err(subject.failed(Errno::E2BIG));
        }
        let value = String::from_utf8_lossy(&value);
        Ok(value.strip_suffix('\n').unwrap_or(&value).to_owned())
    }

    /// Writes a value unchanged.
    pub(crate) fn write(&self, value: &str) -> Result<()> {
        let subject = self.subject(WRITE);
        let mut file = self.open(OFlag::O_WRONLY).map_err(|errno| subject.failed(errno))?;
        file.write_all(value.as_bytes()).map_err(|error| subject.failed(error))
    }
}

/// Reads a value. It is a single number, which one read returns whole.
fn value_of(mut file: &File) -> io::Result<String> {
    let mut value = [0; 128];
    let length = file.read(&mut value)?;
    Ok(String::from_utf8_lossy(value.get(..length).unwrap_or_default()).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_built_from_link_names_only() {
        let key = Sysctl::Ipv4Conf("eth0.100".to_owned(), "arp_notify");
        assert_eq!(SysctlFile::of(&key.setting("").unwrap()).name, "/proc/sys/net/ipv4/conf/eth0.100/arp_notify");
        let forwarding = Sysctl::Ipv6Forwarding.setting("").unwrap();
        assert_eq!(SysctlFile::of(&forwarding).name, "/proc/sys/net/ipv6/conf/all/forwarding");
        for link in ["", ".", "..", "../../kernel", "a/b", "all", "default", "sixteen-letters-", "a\0"] {
            let key = Sysctl::Ipv6Conf(link.to_owned(), "accept_ra");
            assert!(get(&key).unwrap_err().is(Errno::EINVAL), "{link}");
            assert!(set(&key, "0").unwrap_err().is(Errno::EINVAL), "{link}");
        }
    }

    #[test]
    fn a_setting_has_names_as_parts() {
        let setting = |parts: &[&str]| Setting::new(parts.iter().copied());
        assert_eq!(
            SysctlFile::of(&setting(&["ipv4", "conf", "eth0.1", "arp_filter"]).unwrap()).name,
            "/proc/sys/net/ipv4/conf/eth0.1/arp_filter"
        );
        let (long, many) = ("a".repeat(65), ["a"; 17]);
        for parts in [
            &[][..],
            &[""],
            &["a", "", "b"],
            &["."],
            &["..", "kernel"],
            &["a/b"],
            &["a\0"],
            &["a\n"],
            &["a b"],
            &[&long],
            &many,
        ] {
            assert_eq!(setting(parts), None, "{parts:?}");
        }
        let found = look(&setting(&["ipv4", "ip_forward"]).unwrap()).unwrap().unwrap();
        assert!(found.is_file && found.readable && found.writable);
        assert!(!look(&setting(&["ipv4"]).unwrap()).unwrap().unwrap().is_file);
        assert_eq!(look(&setting(&["ipv4", "nothing"]).unwrap()).unwrap(), None);
        let read = |parts: &[&str]| SysctlFile::of(&setting(parts).unwrap()).read();
        assert!(matches!(read(&["ipv4", "ip_forward"]).unwrap().as_str(), "0" | "1"));
        assert!(read(&["ipv4", "nothing"]).unwrap_err().is(Errno::ENOENT));
    }
}
