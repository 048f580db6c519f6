//! Files and directories that change at one instant. A run sees either the old or the complete new content.

use crate::output;
use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg, OFlag};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The ending of names that no program looks for.
pub const NEW: &str = ".postern-new";

/// True if two regular files have the same bytes.
pub fn are_same(one: &Path, other: &Path) -> bool {
    let length = |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|meta| meta.len());
    let bytes = |path: &Path| File::open(path).map(|file| BufReader::new(file).bytes());
    let compare = || -> io::Result<bool> {
        let (mut one, mut other) = (bytes(one)?, bytes(other)?);
        loop {
            match (one.next().transpose()?, other.next().transpose()?) {
                (None, None) => return Ok(true),
                (first, second) if first == second => {}
                _ => return Ok(false),
            }
        }
    };
    length(one).is_some() && length(one) == length(other) && compare().unwrap_or(false)
}

/// A file that was written beside its future name. Dropping it removes the file.
#[derive(Debug)]
pub struct Ready {
    new: PathBuf,
    path: PathBuf,
}

impl Ready {
    /// Writes the file. At no time can other users open it for writing, with any umask.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<Self> {
        let ready = Self { new: beside(path), path: path.to_owned() };
        let _ = fs::remove_file(&ready.new);
        let written =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&ready.new).and_then(|mut file| {
                file.write_all(bytes)?;
                // By the descriptor: meanwhile another object may have got this name.
                file.set_permissions(Permissions::from_mode(mode))
            });
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(ready)
    }

    /// Makes a link instead of a file.
    ///
    /// # Errors
    /// The link can't be made.
    pub fn link(path: &Path, target: &Path) -> Result<Self> {
        let ready = Self { new: beside(path), path: path.to_owned() };
        let _ = fs::remove_file(&ready.new);
        symlink(target, &ready.new).with_context(|| format!("cannot make the link {}", path.display()))?;
        Ok(ready)
    }

    /// Gives the file its name, in place of the present object.
    ///
    /// # Errors
    /// The kernel's error: a directory has that name.
    pub fn commit(self) -> Result<()> {
        fs::rename(&self.new, &self.path).with_context(|| format!("cannot replace {}", self.path.display()))
    }

    /// Exchanges the new directory with the present directory of its name, and removes the old directory.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn replace_directory(self) -> Result<()> {
        let old = self.path.with_file_name(".postern.d.old");
        remove_all(&old)?;
        if !exchange(&self.new, &self.path)? {
            fs::rename(&self.path, &old)
                .and_then(|()| fs::rename(&self.new, &self.path))
                .with_context(|| format!("cannot replace {}", self.path.display()))?;
            return remove_all(&old);
        }
        remove_all(&self.new)
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.new);
    }
}

/// Returns the path of a file before it gets its name. Runtimes do not look for this name, and catalogs ignore it.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    path.with_file_name(format!(".{name}{NEW}"))
}

/// Exchanges two names at one instant. Returns false if the file system can't exchange names.
///
/// # Errors
/// The kernel's error, for any other reason.
pub fn exchange(one: &Path, other: &Path) -> Result<bool> {
    match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        // The path is a mount point, a directory of an overlay's lower layer, or on a file system without this call.
        Err(Errno::BUSY | Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno).with_context(|| format!("cannot exchange {} and {}", one.display(), other.display())),
    }
}

/// Returns the path and its parents that don't exist, the longest first.
pub fn missing(path: &Path) -> Vec<&Path> {
    path.ancestors().take_while(|part| !part.exists()).collect()
}

/// Makes a directory and its parents. Other users can't write to them, with any umask.
///
/// # Errors
/// A directory can't be made.
pub fn make_directory(path: &Path) -> Result<()> {
    for part in missing(path).into_iter().rev() {
        DirBuilder::new()
            .mode(0o755)
            .create(part)
            .and_then(|()| {
                let itself = (OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits();
                let made = OpenOptions::new().read(true).custom_flags(itself).open(part)?;
                made.set_permissions(Permissions::from_mode(0o755))
            })
            .with_context(|| format!("cannot make the directory {}", part.display()))?;
    }
    Ok(())
}

/// Returns the permissions of a file or directory that users other than its owner can write.
pub fn writable_by_others(path: &Path) -> Option<u32> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    (mode & 0o022 != 0).then_some(mode)
}

/// Returns the longest part of a path that exists.
pub fn nearest(path: &Path) -> &Path {
    path.ancestors().find(|part| part.exists()).unwrap_or(Path::new("/"))
}

/// Waits until no other process changes an installation. The lock ends with the process.
///
/// # Errors
/// The directory can't be opened.
pub fn lock(directory: &Path) -> Result<Flock<File>> {
    let open = File::open(directory).with_context(|| directory.display().to_string())?;
    Flock::lock(open, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .with_context(|| directory.display().to_string())
}

/// Removes a file, a link or a whole directory; a missing object is no error.
///
/// # Errors
/// The object can't be removed.
pub fn remove_all(path: &Path) -> Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => return Ok(()),
    };
    removed.with_context(|| format!("cannot remove {}", path.display()))
}

/// Puts files into a directory beside the present ones, all at one instant: a new directory with all files replaces the
/// old one. If the file system can't exchange directories, they are written one by one in the given order.
///
/// The file `gone` of the old directory is left out, unless it is one of the new files; an empty name means no file.
///
/// # Errors
/// A file can't be written. The earlier content is still there.
pub fn replace_within(directory: &Path, files: &[(String, Vec<u8>)], gone: &str) -> Result<()> {
    let parent = directory.parent().unwrap_or(Path::new("/"));
    make_directory(parent)?;
    let new = beside(directory);
    remove_all(&new)?;
    make_directory(&new)?;
    let filled = fill(directory, &new, files, gone);
    let replaced = match filled {
        Ok(true) if directory.exists() => exchange(&new, directory),
        Ok(true) => {
            fs::rename(&new, directory).map(|()| true).with_context(|| format!("cannot make {}", directory.display()))
        }
        Ok(false) => Ok(false),
        Err(error) => Err(error),
    };
    let done = match replaced {
        Ok(true) => Ok(()),
        Ok(false) => one_by_one(directory, files, gone),
        Err(error) => Err(error),
    };
    remove_all(&new)?;
    done
}

/// Writes the files to a new directory, with links to all other files of the old directory. `false` if an object can't
/// be linked.
fn fill(old: &Path, new: &Path, files: &[(String, Vec<u8>)], gone: &str) -> Result<bool> {
    if let Ok(meta) = fs::metadata(old) {
        fs::set_permissions(new, meta.permissions())?;
        for entry in fs::read_dir(old).with_context(|| old.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name();
            if name == gone || files.iter().any(|(file, _)| name == file.as_str()) {
                continue;
            }
            if fs::hard_link(entry.path(), new.join(&name)).is_err() {
                return Ok(false);
            }
        }
    }
    for (name, bytes) in files {
        Ready::write(&new.join(name), bytes, 0o644)?.commit()?;
    }
    Ok(true)
}

fn one_by_one(directory: &Path, files: &[(String, Vec<u8>)], gone: &str) -> Result<()> {
    output::say(format!(
        "{} cannot be replaced as a whole here, so its files are replaced one after the other: a run at this \
         instant may fail",
        directory.display()
    ));
    let ready: Vec<Ready> =
        files.iter().map(|(name, bytes)| Ready::write(&directory.join(name), bytes, 0o644)).collect::<Result<_>>()?;
    ready.into_iter().try_for_each(Ready::commit)?;
    if gone.is_empty() || files.iter().any(|(file, _)| file == gone) {
        Ok(())
    } else {
        remove_all(&directory.join(gone))
    }
}
