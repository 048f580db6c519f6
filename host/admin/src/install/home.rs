//! How an installation lies on disk.
//!
//! ```text
//! PREFIX/lib/postern/current -> versions/ID        the one name that an upgrade changes
//! PREFIX/lib/postern/postern -> current/postern    what plugins' files start; likewise postern-admin and postern.d
//! PREFIX/lib/postern/versions/ID/                  host, its sibling, and the catalog that goes with both
//! PREFIX/lib/postern/bin-directories               where plugins' files were placed, one directory a line
//! PREFIX/lib/postern/made-directories              which directories were not there before, one a line
//! ```
//!
//! A run's own executable is in one version for as long as the run takes, and its catalog is the one beside. A host that
//! lies elsewhere (a build, a package of a distribution) has its catalog beside it in one directory, and no versions.

use super::files::Ready;
use anyhow::Result;
use postern_gate::places::CATALOG;
use std::fs;
use std::path::{Path, PathBuf};

/// The directory of all versions.
pub const VERSIONS: &str = "versions";
/// The link to the version that new runs have.
pub const CURRENT: &str = "current";
/// The names that lead through it.
pub const LINKS: [&str; 3] = [CATALOG, "postern-admin", "postern"];
/// The list of CNI bin directories.
const BINS: &str = "bin-directories";
/// The list of directories that were made on the way, for who takes them away again.
const MADE: &str = "made-directories";

/// Where a host and what goes with it are.
#[derive(Clone, Debug)]
pub struct Home(PathBuf);

impl Home {
    /// That of this program.
    ///
    /// # Errors
    /// The kernel does not tell where it is.
    pub fn own() -> Result<Self> {
        let own = std::env::current_exe()?;
        Ok(Self::of(own.parent().unwrap_or(Path::new("/"))))
    }

    /// That of the programs in a directory.
    fn of(directory: &Path) -> Self {
        let versions = directory.parent().filter(|parent| parent.file_name().is_some_and(|name| name == VERSIONS));
        Self(versions.and_then(Path::parent).unwrap_or(directory).to_owned())
    }

    /// One at a path.
    pub fn at(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// What plugins' files start.
    pub fn host(&self) -> PathBuf {
        self.0.join("postern")
    }

    /// Its catalog, which may be a link.
    pub fn catalog(&self) -> PathBuf {
        self.0.join(CATALOG)
    }

    /// A list of paths beside the host.
    fn list(&self, name: &str) -> Vec<PathBuf> {
        let text = fs::read_to_string(self.0.join(name)).unwrap_or_default();
        text.lines().map(PathBuf::from).filter(|path| path.is_absolute()).collect()
    }

    /// Adds to such a list what it lacks. A path of two lines has no place there.
    fn note(&self, name: &str, paths: &[PathBuf]) -> Result<()> {
        let mut all = self.list(name);
        let before = all.len();
        for path in paths {
            if !all.contains(path) && !path.to_string_lossy().contains('\n') {
                all.push(path.clone());
            }
        }
        if all.len() == before {
            return Ok(());
        }
        let text: String = all.iter().map(|path| format!("{}\n", path.display())).collect();
        Ready::write(&self.0.join(name), text.as_bytes(), 0o644)?.commit()
    }

    /// The directories that installations have made, as far as it is known.
    pub fn made(&self) -> Vec<PathBuf> {
        self.list(MADE)
    }

    /// Notes directories that an installation has made.
    ///
    /// # Errors
    /// The list can't be written.
    pub fn note_made(&self, made: &[PathBuf]) -> Result<()> {
        self.note(MADE, made)
    }

    /// The CNI bin directories that have had files placed in, as far as it is known.
    pub fn bins(&self) -> Vec<PathBuf> {
        self.list(BINS)
    }

    /// Notes a CNI bin directory, so that `doctor` and `make uninstall` know of it.
    ///
    /// # Errors
    /// The list can't be written.
    pub fn note_bin(&self, bin: &Path) -> Result<()> {
        // The directory of the host itself is found without.
        if bin == self.0 { Ok(()) } else { self.note(BINS, &[bin.to_owned()]) }
    }

    /// All that an installation has, for who removes it.
    pub fn parts(&self) -> impl Iterator<Item = PathBuf> {
        LINKS.into_iter().rev().chain([CURRENT, VERSIONS, BINS, MADE]).map(|name| self.0.join(name))
    }
}
