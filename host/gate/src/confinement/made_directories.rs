//! Directories that a run makes before it gives up its rights, because a rule of Landlock needs an existing directory.

use super::rights::Rights;
use crate::context::Context;
use crate::places;
use postern_cni::Verb;
use postern_confine::DirectoryRemover;
use postern_state::{Dir, is_trusted_way};
use std::fs::remove_dir;
use std::path::{Path, PathBuf};

/// Directories that were made because rules need them.
#[derive(Debug, Default)]
pub struct MadeDirectories(Option<DirectoryRemover>);

impl MadeDirectories {
    /// Makes the directories before any right is given up, and starts the process that can remove them later.
    #[expect(clippy::disallowed_methods, reason = "the leases' directories, which nobody has opened yet")]
    pub fn of(run: &Context, rights: &mut Rights) -> std::io::Result<Self> {
        let mut made = Vec::new();
        let index = run.fixed.places.lease_index();
        let open_index = || Dir::open(&index).ok();
        rights.index = if rights.leases.is_empty() { None } else { open_index() };
        let lacks_index = !rights.leases.is_empty() && rights.index.is_none();
        if run.request.verb == Verb::Add {
            let leases = rights.leases.iter().map(|(_, directory)| (directory, 0o755));
            let index = lacks_index.then_some((&index, 0o700));
            let backups = rights.backups.iter().map(|directory| (directory, 0o700));
            for (directory, mode) in leases.chain(index).chain(backups) {
                let missing: Vec<&Path> = directory
                    .ancestors()
                    .take_while(|path| !path.as_os_str().is_empty() && !places::is_there(path))
                    .collect();
                // If the directory can't be made, the operation that needs it reports the error.
                if Dir::make(directory, mode).is_ok() {
                    made.extend(missing.into_iter().map(Path::to_owned));
                }
            }
        }
        if lacks_index {
            rights.index = open_index();
        }
        // Directories of backups are checked again, because another user may have put a symbolic link into the path
        // while a directory was missing. Directories of leases are checked when their rule is made.
        rights.backups.retain(|directory| !made.contains(directory) || is_trusted_way(directory));
        // The deepest directories are removed first.
        made.sort_by_key(|directory: &PathBuf| std::cmp::Reverse(directory.components().count()));
        if made.is_empty() {
            return Ok(Self(None));
        }
        DirectoryRemover::start(&made).map(|directory_remover| Self(Some(directory_remover))).inspect_err(|_| {
            for directory in &made {
                let _ = remove_dir(directory);
            }
        })
    }

    /// Removes the directories that are empty.
    pub fn tidy(self) {
        if let Some(directory_remover) = self.0 {
            directory_remover.tidy();
        }
    }
}
