//! Persistent taps (requests and flags of linux/if_tun.h). rtnetlink can't make taps. A descriptor of `/dev/net/tun`
//! can make taps, in the namespace of the thread that opened the file.
#![allow(unsafe_code, reason = "ioctl(2) has no safe form")]

use crate::error::{Result, Subject};
use crate::link::check_name;
use crate::tap_maker::{REQUEST, TapMaker, serve, try_context};
use nix::errno::Errno;
use nix::libc;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;

pub use crate::tap_maker::{EXEC_CONTEXT, NAME};

/// The file that makes taps.
pub const TUN: &str = "/dev/net/tun";

/// All requests that [`crate::Worker::make_tap`] and [`crate::Worker::keep_tap`] need.
pub const REQUESTS: [u32; 5] = [
    libc::TUNSETIFF as u32,
    libc::SIOCSIFHWADDR as u32,
    libc::TUNSETOWNER as u32,
    libc::TUNSETGROUP as u32,
    libc::TUNSETPERSIST as u32,
];

/// A tap to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapSpec {
    /// The tap's name.
    pub name: String,
    /// Link-layer address.
    pub mac: [u8; 6],
    /// The user that may open the tap. `None` together with no group allows every user.
    pub owner: Option<u32>,
    /// The group that may open the tap. `None` together with no owner allows every user.
    pub group: Option<u32>,
    /// `IFF_MULTI_QUEUE`.
    pub multi_queue: bool,
    /// True leaves out the flag `IFF_NO_PI`.
    pub packet_information: bool,
    /// `IFF_VNET_HDR`.
    pub vnet_header: bool,
}

impl TapSpec {
    /// Returns the flags. With `IFF_TUN_EXCL`, the kernel refuses the name of an existing link.
    fn flags(&self) -> u16 {
        let mut flags = libc::IFF_TAP | libc::IFF_TUN_EXCL;
        for (on, flag) in [
            (self.multi_queue, libc::IFF_MULTI_QUEUE),
            (!self.packet_information, libc::IFF_NO_PI),
            (self.vnet_header, libc::IFF_VNET_HDR),
        ] {
            flags |= if on { flag } else { 0 };
        }
        flags as u16
    }
}

/// Returns a `struct ifreq` of netdevice(7): a name, and a value. The request decides the type of the value.
fn named(name: &str, parts: &[&[u8]]) -> [u8; REQUEST] {
    let mut request = [0; REQUEST];
    let (of_name, of_value) = request.split_at_mut(libc::IFNAMSIZ);
    of_name.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte);
    of_value.iter_mut().zip(parts.iter().copied().flatten()).for_each(|(to, byte)| *to = *byte);
    request
}

/// An open `/dev/net/tun`. Closing the file removes its tap, unless the tap was made persistent.
#[derive(Debug)]
pub(crate) struct TapFile {
    file: File,
    /// The process that makes the tap, if the tap needs another SELinux context than this process has.
    maker: Option<TapMaker>,
    /// The users and the groups of this user namespace.
    ids: [Ids; 2],
}

/// The IDs of a user namespace: ranges of a first ID and a length. `None` if they can't be read.
#[derive(Debug)]
struct Ids(Option<Vec<(u32, u32)>>);

impl Ids {
    /// Reads a map of user_namespaces(7).
    fn read(path: &str) -> Self {
        Self(fs::read_to_string(path).ok().map(|text| Self::parse(&text)))
    }

    fn parse(map: &str) -> Vec<(u32, u32)> {
        let entry = |line: &str| {
            let mut numbers = line.split_ascii_whitespace().map(|number| number.parse().ok());
            Some((numbers.next()??, numbers.nth(1)??))
        };
        map.lines().filter_map(entry).collect()
    }

    /// Checks that the user namespace has an ID. The kernel would refuse an unknown ID only after the tap was made.
    fn check(&self, id: Option<u32>, operation: &'static str) -> Result<()> {
        let (Some(id), Some(map)) = (id, &self.0) else { return Ok(()) };
        match map.iter().any(|(first, count)| id.checked_sub(*first).is_some_and(|at| at < *count)) {
            true => Ok(()),
            false => {
                Err(Subject { operation, object: &id }
                    .invalid("the user namespace of the runtime does not have this ID"))
            }
        }
    }
}

const SET_OWNER: &str = "set owner of tap";
const SET_GROUP: &str = "set group of tap";

impl TapFile {
    /// Opens the file for the calling thread's namespace, for a tap with this SELinux context. `ENODEV` and `ENXIO`
    /// mean that the kernel has no taps.
    pub(crate) fn open(context: Option<&str>) -> Result<Self> {
        let opened = OpenOptions::new().read(true).write(true).open(TUN);
        let file = opened.map_err(|error| Subject { operation: "open", object: &TUN }.failed(error))?;
        let maker = context.map(|context| TapMaker::start(&file, context)).transpose()?;
        Ok(Self { file, maker, ids: ["uid", "gid"].map(|kind| Ids::read(&format!("/proc/thread-self/{kind}_map"))) })
    }

    /// Makes a tap that is down ([`crate::Worker::make_tap`]). The tap is not yet persistent. No tap is made for an
    /// unknown user or group.
    pub(crate) fn make(&mut self, spec: &TapSpec) -> Result<()> {
        let subject = Subject { operation: "create tap", object: &spec.name };
        check_name(subject, &spec.name)?;
        let [users, groups] = &self.ids;
        users.check(spec.owner, SET_OWNER)?;
        groups.check(spec.group, SET_GROUP)?;
        let request = named(&spec.name, &[&spec.flags().to_ne_bytes()]);
        match self.maker.take() {
            Some(maker) => maker.make(subject, &request)?,
            None => self.name(subject, libc::TUNSETIFF, request)?,
        }
        if let Some(owner) = spec.owner {
            self.number(Subject { operation: SET_OWNER, object: &owner }, libc::TUNSETOWNER, owner)?;
        }
        if let Some(group) = spec.group {
            self.number(Subject { operation: SET_GROUP, object: &group }, libc::TUNSETGROUP, group)?;
        }
        let address = named("", &[&libc::ARPHRD_ETHER.to_ne_bytes(), &spec.mac]);
        let subject = Subject { operation: "set address of", object: &spec.name };
        self.name(subject, libc::SIOCSIFHWADDR as libc::Ioctl, address)
    }

    /// Lets the tap outlive this descriptor.
    pub(crate) fn keep(self) -> Result<()> {
        self.number(Subject { operation: "keep", object: &"tap" }, libc::TUNSETPERSIST, 1)
    }

    fn name(&self, subject: Subject<'_>, request: libc::Ioctl, value: [u8; REQUEST]) -> Result<()> {
        ask(&self.file, request, value).map_err(|errno| subject.failed(errno))
    }

    fn number(&self, subject: Subject<'_>, request: libc::Ioctl, value: u32) -> Result<()> {
        // SAFETY: these requests take their argument as a number, and touch no memory of this process.
        let answer = unsafe { libc::ioctl(self.file.as_raw_fd(), request, libc::c_ulong::from(value)) };
        Errno::result(answer).map(drop).map_err(|errno| subject.failed(errno))
    }
}

fn ask(file: &impl AsRawFd, request: libc::Ioctl, mut value: [u8; REQUEST]) -> nix::Result<()> {
    // SAFETY: each of these requests reads one `ifreq` and writes an `ifreq` back. `value` has this size, and outlives
    // the call.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), request, value.as_mut_ptr()) };
    Errno::result(answer).map(drop)
}

/// Makes one tap in this process's SELinux context, for the parent process that started this program as [`NAME`]. The
/// parent's open `/dev/net/tun` is standard error.
pub fn make_for_another() {
    serve(|request| ask(&std::io::stderr(), libc::TUNSETIFF, request));
}

/// Checks if a tap can be made, with this SELinux context if there is one. No tap is made.
///
/// # Errors
/// The errors of [`crate::Worker::make_tap`], with the operations `open` and `set context`.
pub fn can_be_made(context: Option<&str>) -> Result<()> {
    TapFile::open(None)?;
    context.map_or(Ok(()), try_context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_user_namespace() {
        let has = |map: &str, id| Ids(Some(Ids::parse(map))).check(Some(id), SET_OWNER).is_ok();
        let all = "         0          0 4294967295\n";
        assert!(has(all, 0) && has(all, u32::MAX - 1) && !has(all, u32::MAX));
        let rootless = "0 1000 1\n1 100000 65536\n";
        assert!(has(rootless, 0) && has(rootless, 65_536) && !has(rootless, 65_537));
        assert!(!has("5 0 1\n", 4) && !has("", 0) && !has("x y z\n", 0));
        assert!(Ids(None).check(Some(7), SET_OWNER).is_ok() && Ids(Some(Vec::new())).check(None, SET_OWNER).is_ok());
    }
}
