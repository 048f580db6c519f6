//! The settings of links that only files below `/sys` show: settings of packet processing and of queues.
//!
//! A sysfs shows the links of the network namespace in which it was mounted, and `/sys` can belong to another
//! namespace. So Postern mounts its own sysfs, which no path leads to. The mount must be made before the process gives
//! up rights.

use crate::error::{Result, Subject};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::Mode;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// The files of a link. A write to one of these files also sets each NAPI instance of the link (netdev genl has a
/// setting for each instance).
const OF_LINK: [&str; 3] = ["gro_flush_timeout", "napi_defer_hard_irqs", "threaded"];
/// The files of each queue, by the queue's direction.
const OF_QUEUES: [(&str, &[&str]); 2] = [
    ("rx", &["rps_cpus", "rps_flow_cnt"]),
    (
        "tx",
        &[
            "tx_maxrate",
            "xps_cpus",
            "xps_rxqs",
            "byte_queue_limits/hold_time",
            "byte_queue_limits/limit_max",
            "byte_queue_limits/limit_min",
            "byte_queue_limits/stall_thrs",
        ],
    ),
];
/// The limit on queues: more than any driver has.
const MOST_QUEUES: u32 = 4096;

/// A snapshot: files, and their values. A file of queues has a value for each queue, or one value if all values are
/// equal.
pub type FileSettings = BTreeMap<String, Vec<String>>;

/// A sysfs of one network namespace.
#[derive(Debug)]
pub struct LinkFiles(OwnedFd);

impl LinkFiles {
    /// Mounts a sysfs for the calling thread's network namespace.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`, or if another mount covers a part of `/sys`; `ENODEV` without sysfs; `ENOSYS`
    /// before Linux 5.2.
    pub fn mount() -> Result<Self> {
        let subject = Subject { operation: "mount", object: &"sysfs" };
        let flags =
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let mounted = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|context| {
            fsconfig_create(&context)?;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)
        });
        mounted.map(Self).map_err(|errno| subject.failed(errno))
    }

    /// Returns the directory of a link's files below the mount: `devices/virtual/net/eth0`. `None` if the link is
    /// missing.
    pub fn directory(&self, link: &str) -> Result<Option<String>> {
        let subject = Subject { operation: "look for files of", object: &link };
        if link.contains('/') {
            return Err(subject.invalid("no link can have this name"));
        }
        match readlinkat(&self.0, format!("class/net/{link}").as_str()) {
            // `../../devices/…`
            Ok(led) => {
                let led = led.to_str().and_then(|led| led.strip_prefix("../../")).filter(|led| is_plain(led));
                led.map(|led| Some(led.to_owned())).ok_or_else(|| subject.broken("its path has an unexpected form"))
            }
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(subject.failed(errno)),
        }
    }

    /// Returns the path of a directory below the mount, for this process alone.
    #[must_use]
    pub fn path(&self, directory: &str) -> Option<PathBuf> {
        is_plain(directory).then(|| PathBuf::from(format!("/proc/self/fd/{}/{directory}", self.0.as_raw_fd())))
    }

    /// Returns the settings of the link whose files are in this directory.
    ///
    /// # Errors
    /// A file can't be opened: `EACCES` if the process is confined and has no right to the file.
    pub fn read(&self, directory: &str) -> Result<FileSettings> {
        let mut settings = FileSettings::new();
        for name in OF_LINK {
            settings.extend(self.value(directory, name)?.map(|value| (name.to_owned(), vec![value])));
        }
        for (direction, names) in OF_QUEUES {
            for name in names {
                let mut values = Vec::new();
                for queue in 0..MOST_QUEUES {
                    match self.value(directory, &of_queue(direction, queue, name))? {
                        Some(value) => values.push(value),
                        None => break,
                    }
                }
                if values.iter().all(|value| Some(value) == values.first()) {
                    values.truncate(1);
                }
                if !values.is_empty() {
                    settings.insert(format!("{direction}/{name}"), values);
                }
            }
        }
        Ok(settings)
    }

    /// Sets the files to the values of a snapshot. A file that can't be set keeps its value.
    pub fn put_back(&self, directory: &str, settings: &FileSettings) {
        for (name, values) in settings {
            match name.split_once('/').filter(|_| !OF_LINK.contains(&name.as_str())) {
                None => {
                    for value in values {
                        let _ = self.set(directory, name, value);
                    }
                }
                Some((direction, name)) => {
                    for queue in 0..MOST_QUEUES {
                        let at = if values.len() == 1 { 0 } else { usize::try_from(queue).unwrap_or(usize::MAX) };
                        let Some(value) = values.get(at) else { break };
                        // An error means that the last queue was passed.
                        if self.set(directory, &of_queue(direction, queue, name), value).is_err() {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Returns the content of a file; `None` if the file is missing, or if the link lacks the setting.
    fn value(&self, directory: &str, name: &str) -> Result<Option<String>> {
        let subject = Subject { operation: "read", object: &format_args!("{directory}/{name}") };
        let mut file = match self.open(directory, name, OFlag::O_RDONLY) {
            Ok(file) => file,
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(None),
            Err(errno) => return Err(subject.failed(errno)),
        };
        let mut value = String::new();
        let mut read = file.read_to_string(&mut value);
        // A setting that ADD could not read keeps the device down after DEL. So the read is repeated after an error
        // that may pass.
        if read.as_ref().is_err_and(|error| !is_absence(error)) {
            value.clear();
            read = file.rewind().and_then(|()| file.read_to_string(&mut value));
        }
        Ok(read.ok().map(|_| value.trim().to_owned()))
    }

    fn set(&self, directory: &str, name: &str, value: &str) -> std::io::Result<()> {
        self.open(directory, name, OFlag::O_WRONLY)?.write_all(value.as_bytes())
    }

    fn open(&self, directory: &str, name: &str, access: OFlag) -> nix::Result<File> {
        if !is_plain(directory) {
            return Err(Errno::EINVAL);
        }
        openat(
            &self.0,
            format!("{directory}/{name}").as_str(),
            access | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW,
            Mode::empty(),
        )
        .map(File::from)
    }
}

fn of_queue(direction: &str, queue: u32, name: &str) -> String {
    format!("queues/{direction}-{queue}/{name}")
}

/// True for the error of a setting that the link does not have. A link with one queue lacks some settings.
fn is_absence(error: &std::io::Error) -> bool {
    let absences = [Errno::ENOENT, Errno::EOPNOTSUPP, Errno::EINVAL, Errno::ENODEV];
    error.raw_os_error().is_some_and(|errno| absences.contains(&Errno::from_raw(errno)))
}

/// True for a directory of devices without `..`.
fn is_plain(directory: &str) -> bool {
    directory.starts_with("devices/") && directory.split('/').all(|part| !part.is_empty() && part != "..")
}
