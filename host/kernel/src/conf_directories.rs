//! The sysctls of links in another network namespace, through descriptors of the two directories that list the
//! namespace's links.
//!
//! The kernel resolves `/proc/sys/net` in the namespace of the thread that opens a path. But `net/ipv4/conf` and
//! `net/ipv6/conf` exist once for each namespace (`fs/proc/proc_sysctl.c`: symbolic links lead to them). So a
//! descriptor of one of these directories stays with the namespace in which it was opened. A thread of any namespace
//! can open the files below the descriptor. Other directories may be shared by all namespaces, and contain symbolic
//! links. Their settings need a thread in the namespace ([`crate::Worker::start`]).

use crate::error::{Result, Subject};
use crate::sysctl::{self, Setting, SettingFile, SysctlFile};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};
use std::os::fd::{AsFd, OwnedFd};

const IPV4: &str = "/proc/sys/net/ipv4/conf";
const IPV6: &str = "/proc/sys/net/ipv6/conf";

/// The directories of one namespace. A directory is missing if the kernel lacks its protocol.
#[derive(Debug)]
pub struct ConfDirectories {
    ipv4: Option<OwnedFd>,
    ipv6: Option<OwnedFd>,
    /// Settings in other directories, each with its file at the time of opening.
    looked: Vec<(Setting, Result<Option<SettingFile>>)>,
}

impl ConfDirectories {
    /// Opens the directories in the calling thread's namespace, and looks at these settings.
    pub fn open(looks: &[Setting]) -> nix::Result<Self> {
        let directory = |path| match open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()) {
            Ok(opened) => Ok(Some(opened)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        };
        let looked = looks.iter().map(|setting| (setting.clone(), sysctl::look(setting))).collect();
        Ok(Self { ipv4: directory(IPV4)?, ipv6: directory(IPV6)?, looked })
    }

    /// True if these directories differ from `own`, the directories of the calling thread's namespace. A directory that
    /// both namespaces share would lead into the caller's namespace. The test does not rely on the kernel's version.
    ///
    /// No name is looked up in the directories. The kernel keeps an entry for each name that it finds. A look-up from
    /// this namespace can't reuse the entry, and adds a new entry. Entries of a link end with the link.
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

    /// Returns the file of this setting at the time of opening; `None` if `open` did not look at this setting.
    pub fn looked_at(&self, setting: &Setting) -> Option<Result<Option<SettingFile>>> {
        self.looked.iter().find(|(looked, _)| looked == setting).map(|(_, found)| found.clone())
    }

    /// Returns the file of a setting of links. `ENOENT` if the kernel lacks the protocol.
    pub fn place<'a>(&'a self, operation: &'static str, setting: &'a Setting) -> Result<SysctlFile<'a>> {
        let subject = Subject { operation, object: setting };
        let (directory, name) = match setting.below_conf() {
            Some(("ipv4", name)) => (&self.ipv4, name),
            Some(("ipv6", name)) => (&self.ipv6, name),
            _ => return Err(subject.broken("this setting needs a thread in the link's namespace")),
        };
        let directory = directory.as_ref().ok_or_else(|| subject.failed(Errno::ENOENT))?;
        Ok(SysctlFile { setting, directory: directory.as_fd(), name })
    }
}
