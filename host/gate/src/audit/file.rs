//! The file of the log. Many processes append to the file at once. A log that has grown large is set aside, without the
//! loss of a line.

use super::LOG;
use crate::places;
use nix::sys::stat::{FileStat, fstat};
use postern_state::{Dir, OpenMode};
use serde_json::json;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The size in bytes beyond which a log is set aside. So the log and the previous log have a limit.
pub(super) const LIMIT: u64 = 8 << 20;

/// The name of the log that was set aside, and temporary names.
const BEFORE: &str = "audit.jsonl.1";
const OLD: &str = "audit.jsonl.old";
const NEW: &str = "audit.jsonl.new";

/// The longest wait for a lock, which other processes hold for microseconds.
///
/// A process that is stopped while it holds the lock must not stop all other processes. The other processes then write
/// without the lock: at worst into the file that is about to be set aside.
const PATIENCE: Duration = Duration::from_secs(1);

/// The log of one process.
#[derive(Debug)]
pub(super) struct LogFile {
    /// The directory of the log.
    pub(super) directory: PathBuf,
    limit: u64,
    open: Option<Open>,
    /// The longest wait for the lock. After one failed wait, this run does not wait again.
    patience: Duration,
}

impl LogFile {
    /// Makes the log in `directory`. The file is opened when there is something to write.
    pub(super) fn new(directory: &Path, limit: u64) -> Self {
        Self { directory: directory.to_owned(), limit, open: None, patience: PATIENCE }
    }

    /// Appends whole lines. After an error none of them is in the log.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        loop {
            let open = match self.open.take() {
                Some(open) => open,
                None => Open::new(&self.directory)?,
            };
            let locked = lock(&open.file, self.patience)?;
            if !locked {
                self.patience = Duration::ZERO;
            }
            let outcome = open.append(lines, locked, self.limit);
            // The lock is released explicitly, and not by closing the file: a sandbox that was forked meanwhile has the
            // lock's descriptor too.
            open.file.unlock()?;
            if outcome? {
                self.open = Some(open);
                return Ok(());
            }
        }
    }
}

/// The open log, and its open directory.
#[derive(Debug)]
struct Open {
    directory: Dir,
    file: File,
    /// The file's status when it was opened. Its device and inode stay the same.
    stat: FileStat,
}

impl Open {
    fn new(path: &Path) -> io::Result<Self> {
        let directory = places::directory(path).map_err(io::Error::other)?;
        places::trust_file(path, &directory).map_err(io::Error::other)?;
        let file = directory.file(LOG, OpenMode::AppendOrCreate(0o600))?;
        places::trust_file(&path.join(LOG), &file).map_err(io::Error::other)?;
        let stat = fstat(&file)?;
        Ok(Self { directory, file, stat })
    }

    /// Appends the lines. Returns false if this file is no longer the log: then the lines belong in the new log.
    fn append(&self, lines: &[u8], locked: bool, limit: u64) -> io::Result<bool> {
        let mut whole = None;
        if locked {
            // Another process may have set the log aside, or an operator may have removed it.
            let Some(log) = self.directory.stat(LOG)?.filter(|named| same(named, &self.stat)) else { return Ok(false) };
            let size = u64::try_from(log.st_size).unwrap_or(0);
            if size > limit {
                match self.set_aside(&self.stat) {
                    Ok(()) => return Ok(false),
                    // The line is still written: a log that is too long is better than a missing line.
                    Err(e) => crate::say!("postern: the audit log cannot be set aside as {BEFORE}: {e}"),
                }
            }
            whole = Some(size);
        }
        let written = (&self.file).write_all(lines);
        if let (Err(_), Some(size)) = (&written, whole) {
            // Removes the incomplete line, which would damage the next line.
            self.file.set_len(size)?;
        }
        written.map(|()| true)
    }

    /// Puts a new file in the log's place. The caller holds the log's lock. A log exists at each moment. After an
    /// interruption each line is in one of the two files.
    fn set_aside(&self, own: &FileStat) -> io::Result<()> {
        // After an interruption, the names of both logs lead to the same file.
        let before = self.directory.stat(BEFORE)?.filter(|before| !same(before, own));
        let line = json!({
            "time": crate::clock::now(), "note": "rotated", "dropped_bytes": before.map_or(0, |before| before.st_size),
        });
        let mut new = self.directory.file(NEW, OpenMode::Rewrite(0o600))?;
        new.write_all(format!("{line}\n").as_bytes())?;
        self.directory.unlink(OLD)?;
        self.directory.link(LOG, OLD)?;
        self.directory.rename(OLD, BEFORE)?;
        self.directory.rename(NEW, LOG)
    }
}

fn same(one: &FileStat, other: &FileStat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// True if the lock was acquired in time.
fn lock(file: &File, patience: Duration) -> io::Result<bool> {
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if start.elapsed() > patience => return Ok(false),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(e)) => return Err(e),
        }
    }
}
