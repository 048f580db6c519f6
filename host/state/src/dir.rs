//! Files in one directory, opened by single names: the only place of the privileged process where a name becomes a
//! file.
//!
//! cap-std opens them with cap-fs-ext's options: by `openat2(2)` with `RESOLVE_BENEATH`, or by its own walk if the
//! kernel lacks that call. Three things hold for every file. No symbolic link is followed, opening never waits (not
//! even for a FIFO's other end), and the file lies in this directory. The caller must check owner and type.
//!
//! rustix opens directories by their paths. nix does three things, on single names or on descriptors. It reads
//! attributes, because cap-std 4.0.3 panics if a file has the earliest timestamp that the kernel can store. A panic
//! ends a run. nix lists names, because cap-std copies even unwanted names, and opens the directory once more. nix sets
//! the directory's own times, because cap-std sets times only by name.

use cap_fs_ext::{DirExt as _, FollowSymlinks, OpenOptionsFollowExt as _, OpenOptionsSyncExt as _};
use cap_std::fs::{DirBuilder, DirBuilderExt as _, File, OpenOptions, OpenOptionsExt as _};
use nix::dir::Dir as Listing;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, fstat, fstatat};
use rustix::fs::{CWD, Mode, OFlags};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The purpose of an open file. The number is the mode of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading.
    Read,
    /// Reading; made if absent. `EISDIR` for a directory, as in all modes that write.
    ReadOrCreate(u32),
    /// Reading and writing.
    Change,
    /// Reading and writing; made if absent.
    ChangeOrCreate(u32),
    /// Writing from the start; made if absent, emptied if present.
    Rewrite(u32),
    /// Writing at the file's end.
    Append,
    /// Writing at the file's end; made if absent.
    AppendOrCreate(u32),
}

impl OpenMode {
    fn options(self) -> OpenOptions {
        let mut options = OpenOptions::new();
        match self {
            Self::Read => options.read(true),
            // cap-std itself makes a file only with the right to write.
            Self::ReadOrCreate(mode) => options.read(true).mode(mode).custom_flags(OFlag::O_CREAT.bits()),
            Self::Change => options.read(true).write(true),
            Self::ChangeOrCreate(mode) => options.read(true).write(true).create(true).mode(mode),
            Self::Rewrite(mode) => options.write(true).create(true).truncate(true).mode(mode),
            Self::Append => options.append(true),
            Self::AppendOrCreate(mode) => options.append(true).create(true).mode(mode),
        };
        options.follow(FollowSymlinks::No).nonblock(true);
        options
    }
}

/// An open directory, for opening the files in it. This use needs no right to read the directory.
///
/// Errors come from the system calls; `EINVAL` for a text that is not a single name. A symbolic link in the directory
/// gives `ELOOP`, or `ENOTDIR` where a directory is expected.
#[derive(Debug)]
pub struct Dir(cap_std::fs::Dir);

impl Dir {
    /// Opens a directory by its path, and follows symbolic links: the caller must verify the path ([`crate::trust`]).
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, OFlags::empty())
    }

    /// Opens a directory by its path, but fails if the last part of the path is a symbolic link.
    pub fn open_itself(path: &Path) -> io::Result<Self> {
        Self::open_with(path, OFlags::NOFOLLOW)
    }

    fn open_with(path: &Path, how: OFlags) -> io::Result<Self> {
        // The standard library removes `O_PATH` with musl. Then the open would need the right to read.
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC | how;
        let opened = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Self(cap_std::fs::Dir::from_std_file(opened.into())))
    }

    /// Makes a directory and its missing parents.
    #[expect(clippy::disallowed_methods, reason = "cap-std makes directories by path with one mode only")]
    pub fn make(path: &Path, mode: u32) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(mode).create(path)
    }

    /// Opens the file `name`. `ENXIO` for writing to a FIFO without a reader.
    pub fn file(&self, name: &str, how: OpenMode) -> io::Result<std::fs::File> {
        self.0.open_with(single(name)?, &how.options()).map(File::into_std)
    }

    /// Opens the directory `name`. The directory can be listed, and its times can be set.
    pub fn directory(&self, name: &str) -> io::Result<Self> {
        self.listable(single(name)?).map(|file| Self(cap_std::fs::Dir::from_std_file(file)))
    }

    fn listable(&self, name: &str) -> io::Result<std::fs::File> {
        let mut options = OpenMode::Read.options();
        self.0.open_with(name, options.custom_flags(OFlag::O_DIRECTORY.bits())).map(File::into_std)
    }

    /// As [`Dir::directory`], but the directory can't be listed: only files in it can be opened.
    pub fn way(&self, name: &str) -> io::Result<Self> {
        self.0.open_dir_nofollow(single(name)?).map(Self)
    }

    /// Makes the directory `name`, if nothing has that name.
    pub fn make_directory(&self, name: &str, mode: u32) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        match self.0.create_dir_with(single(name)?, builder.mode(mode)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    /// Returns the attributes of `name` itself; `None` if absent.
    pub fn stat(&self, name: &str) -> io::Result<Option<FileStat>> {
        match fstatat(&self.0, single(name)?, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => Ok(None),
            stat => Ok(Some(stat?)),
        }
    }

    /// Returns the attributes of the directory.
    pub fn own_stat(&self) -> io::Result<FileStat> {
        Ok(fstat(&self.0)?)
    }

    /// Moves `from` over `to`, both in this directory.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(single(from)?, &self.0, single(to)?)
    }

    /// Puts `content` at `name` in one step, with mode 0600, and replaces an existing file. No other process may use
    /// the name `temporary` meanwhile. After an error, the written part is removed.
    pub fn replace(&self, name: &str, temporary: &str, content: &[u8]) -> io::Result<()> {
        let written = self.file(temporary, OpenMode::Rewrite(0o600)).and_then(|mut file| file.write_all(content));
        written.and_then(|()| self.rename(temporary, name)).inspect_err(|_| {
            // If this removal fails too, the first failure is reported, and the next call overwrites the file.
            let _ = self.unlink(temporary);
        })
    }

    /// Gives the file `from` another name in this directory.
    pub fn link(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.hard_link(single(from)?, &self.0, single(to)?)
    }

    /// Removes the file `name`; true if it was there.
    pub fn unlink(&self, name: &str) -> io::Result<bool> {
        Ok(if_present(self.0.remove_file(single(name)?))?.is_some())
    }

    /// Returns the `wanted` names in this directory, without `.` and `..`. Names that aren't UTF-8 are left out:
    /// Postern and the native plugin never make such names.
    pub fn names_that(&self, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
        let mut listing = Listing::from_fd(OwnedFd::from(self.listable(".")?))?;
        let mut names = Vec::new();
        for entry in listing.iter() {
            if let Ok(name) = entry?.file_name().to_str()
                && name != "."
                && name != ".."
                && wanted(name)
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Converts "absent" to `None`.
///
/// # Errors
/// The object exists, and can't be opened.
pub fn if_present<T>(opened: io::Result<T>) -> io::Result<Option<T>> {
    match opened {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// Refuses a text that can't be the name of a file in a directory.
fn single(name: &str) -> io::Result<&str> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(Errno::EINVAL.into());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::tests::Scratch;
    use nix::sys::stat::{Mode, UtimensatFlags, utimensat};
    use nix::sys::time::TimeSpec;
    use nix::unistd::mkfifo;
    use std::io::{Read, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    const ALL: [OpenMode; 7] = [
        OpenMode::Read,
        OpenMode::ReadOrCreate(0o600),
        OpenMode::Change,
        OpenMode::ChangeOrCreate(0o600),
        OpenMode::Rewrite(0o600),
        OpenMode::Append,
        OpenMode::AppendOrCreate(0o600),
    ];

    #[test]
    fn nothing_is_followed_waited_for_or_reached_outside() {
        let scratch = Scratch::new();
        std::fs::write(scratch.path("secret"), "secret").unwrap();
        let at = |name: &str| scratch.path(&format!("inner/{name}"));
        std::fs::create_dir(scratch.path("inner")).unwrap();
        symlink("../secret", at("link")).unwrap();
        symlink("/", at("root")).unwrap();
        symlink("nothing", at("dangling")).unwrap();
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        let dir = Dir::open(&scratch.path("inner")).unwrap();
        for how in ALL {
            for name in ["link", "root", "dangling"] {
                assert_eq!(dir.file(name, how).unwrap_err().raw_os_error(), Some(nix::libc::ELOOP), "{name} {how:?}");
            }
            for name in ["../secret", "..", ".", "", "/etc/passwd", "link/x", "a\0b"] {
                assert_eq!(dir.file(name, how).unwrap_err().kind(), ErrorKind::InvalidInput, "{name:?} {how:?}");
            }
            // The call returns at once. Opening for reading succeeds, with nothing to read; opening for writing fails.
            let fifo = dir.file("fifo", how).map(|file| file.metadata().unwrap().is_file());
            match how {
                OpenMode::Read | OpenMode::ReadOrCreate(_) | OpenMode::Change | OpenMode::ChangeOrCreate(_) => {
                    assert!(!fifo.unwrap())
                }
                _ => assert_eq!(fifo.unwrap_err().raw_os_error(), Some(nix::libc::ENXIO), "{how:?}"),
            }
        }
        std::fs::create_dir(at("directory")).unwrap();
        for how in ALL.into_iter().filter(|how| *how != OpenMode::Read) {
            assert_eq!(dir.file("directory", how).unwrap_err().raw_os_error(), Some(nix::libc::EISDIR), "{how:?}");
        }
        for name in ["link", "root"] {
            assert_eq!(dir.directory(name).unwrap_err().raw_os_error(), Some(nix::libc::ENOTDIR));
            assert_eq!(dir.way(name).unwrap_err().raw_os_error(), Some(nix::libc::ENOTDIR));
            assert_eq!(Dir::open_itself(&at(name)).unwrap_err().raw_os_error(), Some(nix::libc::ENOTDIR));
        }
        assert_eq!(dir.directory("..").unwrap_err().kind(), ErrorKind::InvalidInput);
        // The link is removed, and its target stays.
        assert!(dir.unlink("link").unwrap() && !dir.unlink("link").unwrap());
        dir.link("root", "again").unwrap();
        dir.rename("again", "root").unwrap();
        assert_eq!(std::fs::read_to_string(scratch.path("secret")).unwrap(), "secret");
        let mut names = dir.names_that(|name| name != "fifo").unwrap();
        names.sort();
        assert_eq!(names, ["again", "dangling", "directory", "root"]);
    }

    #[test]
    fn files_are_what_was_asked_for() {
        let scratch = Scratch::new();
        Dir::make(&scratch.path("a/b"), 0o700).unwrap();
        let dir = Dir::open(&scratch.path("a")).unwrap().way("b").unwrap();
        let text = || std::fs::read_to_string(scratch.path("a/b/file")).unwrap();
        for how in [OpenMode::Read, OpenMode::Change, OpenMode::Append] {
            assert_eq!(dir.file("file", how).unwrap_err().kind(), ErrorKind::NotFound, "{how:?}");
        }
        dir.file("file", OpenMode::ChangeOrCreate(0o600)).unwrap().write_all(b"one").unwrap();
        assert_eq!(std::fs::metadata(scratch.path("a/b/file")).unwrap().permissions().mode() & 0o7777, 0o600);
        dir.file("file", OpenMode::AppendOrCreate(0o600)).unwrap().write_all(b" two").unwrap();
        dir.file("file", OpenMode::Append).unwrap().write_all(b" three").unwrap();
        assert_eq!(text(), "one two three");
        dir.file("file", OpenMode::ChangeOrCreate(0o600)).unwrap().write_all(b"1").unwrap();
        assert_eq!(text(), "1ne two three");
        dir.file("file", OpenMode::Rewrite(0o600)).unwrap().write_all(b"new").unwrap();
        let mut read = String::new();
        dir.file("file", OpenMode::Read).unwrap().read_to_string(&mut read).unwrap();
        assert_eq!(read, "new");
        drop(dir.file("held", OpenMode::ReadOrCreate(0o640)).unwrap());
        assert_eq!(dir.stat("held").unwrap().unwrap().st_mode & 0o7777, 0o640);
        dir.make_directory("c", 0o750).unwrap();
        dir.make_directory("c", 0o700).unwrap();
        assert_eq!(dir.stat("c").unwrap().unwrap().st_mode & 0o7777, 0o750);
        assert_eq!(dir.stat("d").unwrap().map(|stat| stat.st_mode), None);
        assert!(dir.directory("c").unwrap().names_that(|_| true).unwrap().is_empty());
    }

    /// cap-std's own call for the attributes of this file ends the process.
    #[test]
    fn no_time_of_a_file_is_too_much() {
        let place = Path::new("/dev/shm").join(format!("postern-times-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("file"), "").unwrap();
        let dir = Dir::open(&place).unwrap();
        for seconds in [i64::MIN, -1, i64::MAX] {
            let time = TimeSpec::new(seconds, 5);
            utimensat(&dir, "file", &time, &time, UtimensatFlags::NoFollowSymlink).unwrap();
            assert_eq!(dir.stat("file").unwrap().unwrap().st_mtime, seconds);
            assert_eq!(dir.file("file", OpenMode::Read).unwrap().metadata().unwrap().len(), 0);
        }
        std::fs::remove_dir_all(&place).unwrap();
    }
}
