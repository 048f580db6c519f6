//! Mounts that keep a namespace alive (`proc_pid_mountinfo(5)`), and a way to open only the namespace.
//!
//! The processes of a mount namespace control its paths. A path can be a link to another place, or a FIFO. The path can
//! also be on a file system whose program never answers. So a path is walked without following links, and only through
//! directories that the kernel has in memory. The object at the path's end is opened only after a check that it is on
//! the expected mount.
#![expect(clippy::disallowed_methods, reason = "`/proc`, and what processes have mounted")]

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::libc;
use nix::sys::stat::makedev;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Device and inode: the identity of a namespace.
pub(crate) type NamespaceId = (u64, u64);

/// `RESOLVE_CACHED` of openat2(2), since Linux 5.12: never wait for a file system.
const RESOLVE_CACHED: u64 = 0x20;

/// The number of attempts. The kernel gives up a walk in memory if a name changes meanwhile. The next attempt can
/// succeed.
const WALKS: usize = 8;

/// The longest `mountinfo`, in bytes; by default a mount namespace can have 100,000 mounts.
const LONGEST: u64 = 64 << 20;

/// A mount of nsfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The mount's number, unique while it exists.
    pub id: u64,
    /// The namespace.
    pub key: NamespaceId,
    /// The kind of the namespace: `net`, `mnt`, …
    pub kind: String,
    /// The mount's path, as seen from the root of the process whose mounts were read.
    pub point: PathBuf,
}

/// Returns the mounts of nsfs that a process sees, by number.
///
/// # Errors
/// The errors of `open(2)` and `read(2)`; `ENOENT`, `ESRCH` or `EINVAL` if the process has gone. `TimedOut` after
/// `deadline`.
pub(crate) fn read(process: &Path, deadline: Instant) -> io::Result<BTreeMap<u64, Mount>> {
    let mut lines = BufReader::with_capacity(1 << 18, File::open(process.join("mountinfo"))?.take(LONGEST));
    let (mut mounts, mut line) = (BTreeMap::new(), Vec::new());
    let mut count = 0_usize;
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if let Some(mount) = parse(&line) {
            mounts.insert(mount.id, mount);
        }
        count = count.wrapping_add(1);
        if count.is_multiple_of(1024) && Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    match lines.get_ref().limit() {
        0 => Err(io::Error::new(io::ErrorKind::FileTooLarge, "there are too many mounts")),
        _ => Ok(mounts),
    }
}

/// Reads one line of `mountinfo`, if it is a mount of nsfs.
fn parse(line: &[u8]) -> Option<Mount> {
    let text = |field: &[u8]| String::from_utf8(field.to_vec()).ok();
    let mut fields = line.trim_ascii_end().split(|byte| *byte == b' ');
    let id = text(fields.next()?)?.parse().ok()?;
    let device = text(fields.nth(1)?)?;
    let (major, minor) = device.split_once(':')?;
    let root = text(fields.next()?)?;
    let point = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
    // The options are followed by any number of optional fields.
    fields.by_ref().find(|field| *field == b"-")?;
    if fields.next()? != b"nsfs" {
        return None;
    }
    let (kind, inode) = root.strip_suffix(']')?.split_once(":[")?;
    let key = (makedev(major.parse().ok()?, minor.parse().ok()?), inode.parse().ok()?);
    Some(Mount { id, key, kind: kind.to_owned(), point })
}

/// Decodes a field. Blanks and some other characters are written as `\040`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let octal = after.first_chunk::<3>().filter(|_| *byte == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            Some((u8::from_str_radix(digits, 8).ok()?, after.get(3..)?))
        });
        let (byte, after) = octal.unwrap_or((*byte, after));
        bytes.push(byte);
        rest = after;
    }
    bytes
}

/// Walks to a mount from the directory `root`. The result is an `O_PATH` descriptor: nothing was opened, and nothing
/// can be read from it.
///
/// # Errors
/// The errors of `openat2(2)`. `EAGAIN` if the walk would have to wait for a file system. `ELOOP` if the path has a
/// link. `EXDEV` if another mount is on top of the expected mount.
pub(crate) fn walk(root: impl AsFd, mount: &Mount) -> io::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(resolve | ResolveFlag::from_bits_retain(RESOLVE_CACHED));
    let mut walks = std::iter::repeat_with(|| openat2(&root, &mount.point, how)).take(WALKS);
    let found = walks.find(|walked| !matches!(walked, Err(Errno::EAGAIN))).unwrap_or(Err(Errno::EAGAIN))?;
    match mount_id(&found)? == mount.id {
        true => Ok(found),
        false => Err(Errno::EXDEV.into()),
    }
}

/// Returns the number of the mount that has this file. The number stays the same while the file is open.
fn mount_id(file: &OwnedFd) -> io::Result<u64> {
    let info = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", file.as_raw_fd()))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::Error::other("the kernel does not tell which mount a file is in"))
}

/// Opens the namespace that `walk` found; `ESTALE` if it is not the namespace of the mount. After `walk`, the caller
/// must have verified that the mount is still a mount of nsfs.
pub(crate) fn open(found: &OwnedFd, key: NamespaceId) -> io::Result<File> {
    let file = File::open(format!("/proc/thread-self/fd/{}", found.as_raw_fd()))?;
    match identity(&file)? == key {
        true => Ok(file),
        false => Err(io::Error::from_raw_os_error(libc::ESTALE)),
    }
}

/// Returns the identity of the namespace.
pub(crate) fn identity(file: &File) -> io::Result<NamespaceId> {
    file.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_nsfs_are_understood_and_others_left() {
        let line = b"741 25 0:4 net:[4026532267] /run/netns/a\\040b\\134 rw shared:401 master:2 - nsfs nsfs rw\n";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, mount.key, mount.kind.as_str()), (741, (makedev(0, 4), 4_026_532_267), "net"));
        assert_eq!(mount.point, Path::new("/run/netns/a b\\"));
        for line in [
            &b"25 1 0:22 / /run rw - tmpfs nsfs rw"[..],
            b"25 1 0:22 net:[1] /run rw nsfs nsfs rw",
            b"25 1 0:22 net:[x] /run rw - nsfs nsfs rw",
            b"25 1 0:22 / /run rw - nsfs nsfs rw",
            b"25 1",
            b"",
        ] {
            assert_eq!(parse(line), None, "{}", String::from_utf8_lossy(line));
        }
        for end in 0..line.len() {
            let _ = parse(&line[..end]);
        }
        assert_eq!(unescape(b"a\\04"), b"a\\04");
        assert_eq!(unescape(b"\\999\\"), b"\\999\\");
    }
}
