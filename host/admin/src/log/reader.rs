//! A reader for a log that other processes write and rotate meanwhile.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The log, and the position of the reader.
pub struct Reader {
    path: PathBuf,
    /// Inode of the file that was read last, and the number of bytes read.
    last: (u64, u64),
}

impl Reader {
    pub fn new(path: PathBuf) -> Self {
        Self { path, last: (0, 0) }
    }

    /// Returns all lines: of the earlier log file, and of the present file.
    pub fn all(&mut self) -> Result<Vec<String>> {
        // The new file is read first. So a file that is rotated between the two reads is read twice, and not missed.
        let new = self.read(&self.path, 0)?;
        let mut lines = match self.read(&self.path.with_extension("jsonl.1"), 0)? {
            Some((inode, _, lines)) if new.as_ref().is_none_or(|(other, ..)| inode != *other) => lines,
            _ => Vec::new(),
        };
        if let Some((inode, end, own)) = new {
            self.last = (inode, end);
            lines.extend(own);
        }
        Ok(lines)
    }

    /// Returns the lines written since the last read.
    pub fn new_lines(&mut self) -> Result<Vec<String>> {
        let (inode, end) = self.last;
        let Ok(now) = std::fs::metadata(&self.path) else { return Ok(Vec::new()) };
        let mut lines = Vec::new();
        let mut from = end;
        if now.ino() != inode || now.len() < end {
            // Read the rest of the rotated file.
            if let Some((old, _, rest)) = self.read(&self.path.with_extension("jsonl.1"), end)?
                && old == inode
            {
                lines.extend(rest);
            }
            from = 0;
        }
        if let Some((inode, end, own)) = self.read(&self.path, from)? {
            self.last = (inode, end);
            lines.extend(own);
        }
        Ok(lines)
    }

    /// Returns the inode, the end of the last whole line, and the lines from `start` on; `None` if there is no such
    /// file.
    fn read(&self, path: &PathBuf, start: u64) -> Result<Option<(u64, u64, Vec<String>)>> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("{}", path.display())),
        };
        let mut bytes = Vec::new();
        let inode = file
            .seek(SeekFrom::Start(start))
            .and_then(|_| file.read_to_end(&mut bytes))
            .and_then(|_| file.metadata())
            .map(|metadata| metadata.ino())
            .with_context(|| format!("{}", path.display()))?;
        // A line that is being written is read later, when it is whole.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        bytes.truncate(whole);
        let lines = String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect();
        Ok(Some((inode, start + whole as u64, lines)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn nothing_is_lost_when_the_log_is_set_aside() {
        let directory = std::env::temp_dir().join(format!("postern-log-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("audit.jsonl");
        let append = |text: &str| {
            let mut file = File::options().create(true).append(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        let mut reader = Reader::new(path.clone());
        assert!(reader.all().unwrap().is_empty() && reader.new_lines().unwrap().is_empty());
        append("1\n2\nhalf");
        assert_eq!(reader.all().unwrap(), ["1", "2"]);
        append(" of three\n4\n");
        std::fs::rename(&path, path.with_extension("jsonl.1")).unwrap();
        assert!(reader.new_lines().unwrap().is_empty());
        append("5\n");
        assert_eq!(reader.new_lines().unwrap(), ["half of three", "4", "5"]);
        append("6\n");
        assert_eq!(reader.new_lines().unwrap(), ["6"]);
        assert_eq!(Reader::new(path.clone()).all().unwrap(), ["1", "2", "half of three", "4", "5", "6"]);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
