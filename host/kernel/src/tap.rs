//! Persistent taps (requests and flags of linux/if_tun.h). rtnetlink can't make them: a descriptor of `/dev/net/tun` does, and
//! it belongs to the namespace of the thread that opened it.
#![allow(unsafe_code, reason = "ioctl(2) has no safe form")]

use crate::error::{Result, Subject};
use crate::link::is_link_name;
use nix::errno::Errno;
use nix::libc;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

/// The file that makes taps.
pub const TUN: &str = "/dev/net/tun";

/// The link-layer type in a `struct sockaddr` (`ARPHRD_ETHER`).
const ETHERNET: u16 = 1;

/// The requests that [`crate::Worker::make_tap`] and [`crate::Worker::keep_tap`] need, and no others.
pub const REQUESTS: [libc::Ioctl; 5] =
    [libc::TUNSETIFF, libc::SIOCSIFHWADDR as libc::Ioctl, libc::TUNSETOWNER, libc::TUNSETGROUP, libc::TUNSETPERSIST];

/// A tap to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapSpec {
    /// Its name.
    pub name: String,
    /// Link-layer address.
    pub mac: [u8; 6],
    /// The user that may open it; `None` for any, if there is no group either.
    pub owner: Option<u32>,
    /// The group that may open it; likewise.
    pub group: Option<u32>,
    /// `IFF_MULTI_QUEUE`.
    pub multi_queue: bool,
    /// No `IFF_NO_PI`.
    pub packet_information: bool,
    /// `IFF_VNET_HDR`.
    pub vnet_header: bool,
}

impl TapSpec {
    /// A link of that name is never taken for the new one: `IFF_TUN_EXCL`.
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

/// `struct ifreq` of netdevice(7): a name, and a value of a type that the request decides.
#[repr(C)]
struct Named {
    name: [u8; libc::IFNAMSIZ],
    value: [u8; 24],
}

const _: () = assert!(size_of::<Named>() == size_of::<libc::ifreq>(), "the kernel copies a whole ifreq");

impl Named {
    fn new(name: &str, parts: &[&[u8]]) -> Self {
        let mut request = Self { name: [0; libc::IFNAMSIZ], value: [0; 24] };
        request.name.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte);
        let value = parts.iter().copied().flatten();
        request.value.iter_mut().zip(value).for_each(|(to, byte)| *to = *byte);
        request
    }
}

/// An open `/dev/net/tun`. A tap that it made is gone when it is closed, unless that was to be kept.
#[derive(Debug)]
pub(crate) struct TapFile(File);

impl TapFile {
    /// Opens the file for the calling thread's namespace.
    ///
    /// # Errors
    /// `ENOENT`: there is no such file; `ENODEV` or `ENXIO`: the kernel has no taps; `EACCES`, `EPERM`.
    pub(crate) fn open() -> Result<Self> {
        let opened = OpenOptions::new().read(true).write(true).open(TUN);
        opened.map(Self).map_err(|error| Subject { operation: "open", object: &TUN }.failed(&error))
    }

    /// Makes a tap, down. It is not yet persistent.
    ///
    /// # Errors
    /// `EBUSY` or `EEXIST` if the name is taken, `EINVAL` for a bad name, and for a user or group that this user namespace does
    /// not have; `EADDRNOTAVAIL` for an address that is not unicast, `EPERM` without `CAP_NET_ADMIN` over the namespace.
    pub(crate) fn make(&self, spec: &TapSpec) -> Result<()> {
        let subject = Subject { operation: "create tap", object: &spec.name };
        if !is_link_name(&spec.name) {
            return Err(subject.invalid("no link can have this name"));
        }
        self.name(subject, libc::TUNSETIFF, Named::new(&spec.name, &[&spec.flags().to_ne_bytes()]))?;
        if let Some(owner) = spec.owner {
            self.number(Subject { operation: "set owner of tap", object: &owner }, libc::TUNSETOWNER, owner)?;
        }
        if let Some(group) = spec.group {
            self.number(Subject { operation: "set group of tap", object: &group }, libc::TUNSETGROUP, group)?;
        }
        let address = Named::new("", &[&ETHERNET.to_ne_bytes(), &spec.mac]);
        let subject = Subject { operation: "set address of", object: &spec.name };
        self.name(subject, libc::SIOCSIFHWADDR as libc::Ioctl, address)
    }

    /// Lets the tap outlive this descriptor.
    ///
    /// # Errors
    /// None is expected.
    pub(crate) fn keep(self) -> Result<()> {
        self.number(Subject { operation: "keep", object: &"tap" }, libc::TUNSETPERSIST, 1)
    }

    fn name(&self, subject: Subject<'_>, request: libc::Ioctl, mut value: Named) -> Result<()> {
        // SAFETY: each of these requests reads one `ifreq` and writes one back. `value` is as large, and lives until then.
        let answer = unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw mut value) };
        Errno::result(answer).map(drop).map_err(|errno| subject.refused(errno as i32, None))
    }

    fn number(&self, subject: Subject<'_>, request: libc::Ioctl, value: u32) -> Result<()> {
        // SAFETY: these requests take their argument as a number, and touch no memory of this process.
        let answer = unsafe { libc::ioctl(self.0.as_raw_fd(), request, libc::c_ulong::from(value)) };
        Errno::result(answer).map(drop).map_err(|errno| subject.refused(errno as i32, None))
    }
}
