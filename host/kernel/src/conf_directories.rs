//! The sysctls of links in another network namespace, through descriptors of the two directories that list its links.
//!
//! The kernel resolves `/proc/sys/net` in the namespace of the thread that looks. But `net/ipv4/conf` and `net/ipv6/conf`
//! exist once for each namespace (`fs/proc/proc_sysctl.c`: links lead there). So a descriptor of one of them stays with
//! the namespace in which it was opened, and a thread of any namespace can open the files below it. Every other
//! directory may belong to all namespaces, with links in it: those need a thread ([`crate::Worker::start`]).

use crate::error::{Result, Subject};
use crate::sysctl::{self, Setting, SettingFile, SysctlFile};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};
use std::os::fd::{AsFd, OwnedFd};

const IPV4: &str = "/proc/sys/net/ipv4/conf";
const IPV6: &str = "/proc/sys/net/ipv6/conf";

/// The directories of one namespace. One is missing if the kernel has no such protocol.
#[derive(Debug)]
pub struct ConfDirectories {
    ipv4: Option<OwnedFd>,
    ipv6: Option<OwnedFd>,
    /// Settings elsewhere, and what a look at them found when they were opened.
    looked: Vec<(Setting, Result<Option<SettingFile>>)>,
}

impl ConfDirectories {
    /// Opens them in the calling thread's namespace, and looks at these settings.
    pub fn open(looks: &[Setting]) -> nix::Result<Self> {
        let directory = |path| match open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()) {
            Ok(opened) => Ok(Some(opened)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        };
        let looked = looks.iter().map(|setting| (setting.clone(), sysctl::look(setting))).collect();
        Ok(Self { ipv4: directory(IPV4)?, ipv6: directory(IPV6)?, looked })
    }

    /// True if they are not the same directories as `own`, those of the calling thread's namespace. This does not trust the
    /// kernel's version: a directory that both namespaces show would lead into the caller's own.
    ///
    /// No name is looked up in them. The kernel keeps an entry for each name that it finds. From this namespace it does not
    /// find that entry again, so each look-up would add one. Entries of a link go with the link.
    pub fn lead_elsewhere(&self, own: &Self) -> bool {
        let elsewhere = |there: &Option<OwnedFd>, here: &Option<OwnedFd>| {
            let (Some(there), Some(here)) = (there, here) else { return there.is_none() };
            match (fstat(there), fstat(here)) {
                (Ok(there), Ok(here)) => (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino),
                _ => false,
            }
        };
        elsewhere(&self.ipv4, &own.ipv4) && elsewhere(&self.ipv6, &own.ipv6)
    }

    /// Returns what a look at this setting found when they were opened; `None` if it was not looked at then.
    pub fn looked_at(&self, setting: &Setting) -> Option<Result<Option<SettingFile>>> {
        self.looked.iter().find(|(looked, _)| looked == setting).map(|(_, found)| found.clone())
    }

    /// Returns the file of a setting of links. It is an error (`ENOENT`) if the kernel has no such protocol.
    pub fn place<'a>(&'a self, operation: &'static str, setting: &'a Setting) -> Result<SysctlFile<'a>> {
        let subject = Subject { operation, object: setting };
        let (directory, name) = match setting.below_conf() {
            Some(("ipv4", name)) => (&self.ipv4, name),
            Some(("ipv6", name)) => (&self.ipv6, name),
            _ => return Err(subject.broken("it needs a thread in its namespace")),
        };
        let directory = directory.as_ref().ok_or_else(|| subject.failed(Errno::ENOENT))?;
        Ok(SysctlFile { setting, directory: directory.as_fd(), name })
    }
}
