//! Access to files (landlock(7)).

use crate::ConfineError;
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr,
};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The newest set of Landlock rights that is requested. An older kernel enforces the rights that it knows.
const KNOWN: ABI = ABI::V5;

/// The access to all files below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read files and list directories.
    Read,
    /// Read and write existing files: sysctls.
    Change,
    /// Also make and remove files and directories.
    Own,
    /// Only remove empty directories.
    RemoveEmpty,
    /// Only remove files that are no directories.
    RemoveFiles,
}

impl Access {
    fn rights(self) -> BitFlags<AccessFs> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let change = read | AccessFs::WriteFile | AccessFs::Truncate;
        match self {
            Self::Read => read,
            Self::Change => change,
            Self::Own => {
                let make = AccessFs::MakeReg | AccessFs::MakeDir;
                change | make | AccessFs::RemoveFile | AccessFs::RemoveDir | AccessFs::Refer
            }
            Self::RemoveEmpty => AccessFs::RemoveDir.into(),
            Self::RemoveFiles => AccessFs::RemoveFile.into(),
        }
    }
}

/// The files that a thread can still reach. The thread can't open, make, rename or remove other files. Open files stay
/// open.
#[derive(Debug)]
pub struct Files {
    rules: RulesetCreated,
    enforced: bool,
}

impl Files {
    /// Makes rules for everything below these paths. A missing path needs no rule. A kernel without Landlock enforces
    /// nothing.
    ///
    /// # Errors
    /// The kernel refuses the rules.
    pub fn new<'a>(paths: impl IntoIterator<Item = (&'a Path, Access)>) -> Result<Self, ConfineError> {
        Self::with(paths, [] as [(OwnedFd, Access); 0])
    }

    /// Makes rules for these paths, and for files and directories that are open already. If another user can replace
    /// the last part of a path, a rule by path could be for another object. So the caller must open and verify such a
    /// file.
    ///
    /// # Errors
    /// The kernel refuses the rules.
    pub fn with<'a>(
        paths: impl IntoIterator<Item = (&'a Path, Access)>,
        opened: impl IntoIterator<Item = (impl AsFd, Access)>,
    ) -> Result<Self, ConfineError> {
        let failed = |error: landlock::RulesetError| ConfineError::new("landlock", error);
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(KNOWN))
            .map_err(failed)?
            .create()
            .map_err(failed)?;
        for (path, access) in paths {
            // With musl the standard library removes `O_PATH`, so its open would need the right to read.
            let file = match open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()) {
                Ok(file) => file,
                // The path is missing, or out of reach already.
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::EPERM) => continue,
                Err(error) => return Err(ConfineError::new("landlock", error)),
            };
            rules = with_rule(rules, file, access)?;
        }
        for (file, access) in opened {
            rules = with_rule(rules, file, access)?;
        }
        // A kernel without Landlock gives no descriptor.
        let descriptor: Option<OwnedFd> =
            rules.try_clone().map_err(|error| ConfineError::new("landlock", error))?.into();
        Ok(Self { rules, enforced: descriptor.is_some() })
    }

    /// True if the kernel has Landlock and has enabled it.
    pub fn enforced(&self) -> bool {
        self.enforced
    }

    /// Restricts the calling thread, and every thread and process that it starts. Needs `PR_SET_NO_NEW_PRIVS`.
    pub(crate) fn restrict(&self) -> Result<(), ConfineError> {
        let rules = self.rules.try_clone().map_err(|error| ConfineError::new("landlock", error))?;
        rules.restrict_self().map(drop).map_err(|error| ConfineError::new("landlock", error))
    }
}

/// Adds the rule for an open file, or for everything below an open directory.
fn with_rule(rules: RulesetCreated, file: impl AsFd, access: Access) -> Result<RulesetCreated, ConfineError> {
    let stat = fstat(&file).map_err(|errno| ConfineError::new("landlock", errno))?;
    let is_directory = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits();
    let rights = if is_directory { access.rights() } else { access.rights() & AccessFs::from_file(KNOWN) };
    if rights.is_empty() {
        // A file is in place of the directory, so the directory's rights do not apply.
        return Ok(rules);
    }
    rules.add_rule(PathBeneath::new(file, rights)).map_err(|error| ConfineError::new("landlock", error))
}
