//! The layout of an installation on disk.
//!
//! ```text
//! PREFIX/lib/postern/current -> versions/ID        the only name that an upgrade changes
//! PREFIX/lib/postern/previous -> versions/ID       the version before, for `postern rollback`
//! PREFIX/lib/postern/postern -> current/postern    the link for plugins' files; also postern-admin, postern.d, schemas
//! PREFIX/lib/postern/versions/ID/                  host, its sibling, the catalog that goes with both, and the schemas
//! PREFIX/lib/postern/bin-directories               the CNI bin directories with plugins' files, one per line
//! PREFIX/lib/postern/made-directories              directories that installations made, one per line
//! PREFIX/lib/postern/placed-files                  plugins' files in CNI bin directories, one per line
//! PREFIX/lib/postern/diverted-files                files that Debian's dpkg knows as diverted, one per line
//! PREFIX/lib/postern/installed-by                  the means of the last installation
//! PREFIX/lib/postern/given-up                      plugins' files that `install --watch` leaves to another installer
//! ```
//!
//! An image of a system extension has PREFIX/lib/postern without versions, and nothing writes to it. The operator's plugins
//! and the lists of their CNI bin directories and files are then in /var/lib/postern.
//!
//! A run's executable stays in one version during the whole run, and uses the catalog beside it. A host executable at
//! another place (a build, a package of a distribution) has its catalog in the same directory, and no versions.

use super::files::{self, Ready};
use crate::component::COMPILER;
use anyhow::Result;
use postern_gate::PROGRAM;
pub use postern_gate::places::VERSIONS;
use postern_gate::places::{self, CATALOG};
use std::fs;
use std::path::{Path, PathBuf};

/// The link to the version that new runs use.
pub const CURRENT: &str = "current";
/// The link to the version that new runs used before.
pub const PREVIOUS: &str = "previous";
/// The directory of the JSON Schemas for editors. `postern net schema` prints the same schemas.
pub const SCHEMAS: &str = "schemas";
/// The programs of each installation.
pub const PROGRAMS: [&str; 2] = ["postern", "postern-admin"];
/// The programs that an installation may lack: each is a package of its own.
pub const OPTIONAL: [&str; 3] = [COMPILER, DHCP_SERVICE, PROGRAM];
/// The DHCP service.
pub const DHCP_SERVICE: &str = "postern-dhcpd";
/// The names that lead through the link `current`.
pub const LINKS: [&str; 4] = [CATALOG, SCHEMAS, "postern-admin", "postern"];
/// The directory for the files of a package manager, which an installation links or copies.
pub const BUNDLE: &str = "bundle";
/// The list of CNI bin directories.
const BINS: &str = "bin-directories";
/// The list of plugins' files that installations and `postern add` placed in CNI bin directories.
const PLACED: &str = "placed-files";
/// The list of files that have a diversion of an installation.
const DIVERTED: &str = "diverted-files";
/// The file with the means of the last installation: source, archive, deb, rpm, image, sysext.
const MEANS: &str = "installed-by";
/// The means of an installation that is an image of a system extension.
const SYSEXT: &str = "sysext";
/// The list of plugins' files that another installer changed again and again.
const GIVEN_UP: &str = "given-up";
/// The list of files that the package postern-cni has placed.
const TAKEN: &str = "bundle/taken";
/// The list of directories that were made for an installation, so that an uninstall can remove them.
const MADE: &str = "made-directories";

/// Returns the package of an optional program.
pub fn package_of(program: &str) -> &str {
    if program == DHCP_SERVICE { "postern-dhcp" } else { program }
}

/// True if a package manager calls the installation.
pub fn is_package(means: &str) -> bool {
    ["deb", "rpm"].contains(&means)
}

/// The directory of a host executable and the files that belong to it.
#[derive(Clone, Debug)]
pub struct InstallLayout(PathBuf);

impl InstallLayout {
    /// Returns the layout that this program belongs to.
    ///
    /// # Errors
    /// The kernel does not report the program's path.
    pub fn own() -> Result<Self> {
        let own = std::env::current_exe()?;
        Ok(Self::of(own.parent().unwrap_or(Path::new("/"))))
    }

    /// Returns the layout of the programs in a directory.
    fn of(directory: &Path) -> Self {
        let versions = directory.parent().filter(|parent| parent.file_name().is_some_and(|name| name == VERSIONS));
        Self(versions.and_then(Path::parent).unwrap_or(directory).to_owned())
    }

    /// Returns the layout at a path.
    pub fn at(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// True if a directory is one of this installation's versions.
    pub fn has_version(&self, directory: &Path) -> bool {
        directory.starts_with(self.0.join(VERSIONS))
    }

    /// Returns the layout's directory.
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// Returns the executable that plugins' files start.
    pub fn host(&self) -> PathBuf {
        self.0.join("postern")
    }

    /// Returns the layout's catalog, which may be a link.
    pub fn catalog(&self) -> PathBuf {
        self.0.join(CATALOG)
    }

    /// Reads a list of paths beside the host executable.
    fn list(&self, name: &str) -> Vec<PathBuf> {
        let text = fs::read_to_string(self.0.join(name)).unwrap_or_default();
        text.lines().map(PathBuf::from).filter(|path| path.is_absolute()).collect()
    }

    /// Adds the missing paths to a list. A path with a newline is left out.
    fn note(&self, name: &str, paths: &[PathBuf]) -> Result<()> {
        self.change(name, paths, |_| true)
    }

    /// Takes paths out of a list, and adds the missing paths.
    fn change(&self, name: &str, add: &[PathBuf], stays: impl Fn(&Path) -> bool) -> Result<()> {
        let before = self.list(name);
        let mut all: Vec<PathBuf> = before.iter().filter(|path| stays(path)).cloned().collect();
        for path in add {
            if !all.contains(path) && !path.to_string_lossy().contains('\n') {
                all.push(path.clone());
            }
        }
        if all == before {
            return Ok(());
        }
        let text: String = all.iter().map(|path| format!("{}\n", path.display())).collect();
        Ready::write(&self.0.join(name), text.as_bytes(), 0o644)?.commit()
    }

    /// Returns the directories that installations have made, as far as they are known.
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

    /// True if no command changes the installation: it belongs to an image, or its file system is read-only.
    pub fn is_fixed(&self) -> bool {
        self.means().as_deref() == Some(SYSEXT) || places::is_blocked(&self.0)
    }

    /// Returns the directory of the operator's files, for an installation that no command changes.
    fn of_operator() -> Self {
        Self(PathBuf::from(places::LIBRARY))
    }

    /// Returns the layout with the lists that commands change.
    fn noting(&self) -> Self {
        if self.is_fixed() { Self::of_operator() } else { self.clone() }
    }

    /// Reads a list, and the operator's list beside a fixed installation.
    fn whole_list(&self, name: &str) -> Vec<PathBuf> {
        let own = self.list(name);
        if self.is_fixed() { own.into_iter().chain(Self::of_operator().list(name)).collect() } else { own }
    }

    /// Returns the CNI bin directories that files were placed in, as far as they are known.
    pub fn bins(&self) -> Vec<PathBuf> {
        self.whole_list(BINS)
    }

    /// Notes a CNI bin directory, so that `doctor` and `make uninstall` know of it.
    ///
    /// # Errors
    /// The list can't be written.
    pub fn note_bin(&self, bin: &Path) -> Result<()> {
        // The directory of the host executable itself needs no note.
        if bin == self.0 || self.bins().iter().any(|noted| noted == bin) {
            return Ok(());
        }
        let at = self.noting();
        files::make_directory(at.directory())?;
        at.note(BINS, &[bin.to_owned()])
    }

    /// Takes a CNI bin directory and its files out of the lists.
    ///
    /// # Errors
    /// A list can't be written.
    pub fn forget_bin(&self, bin: &Path) -> Result<()> {
        let at = self.noting();
        at.change(BINS, &[], |noted| noted != bin)?;
        at.change(PLACED, &[], |file| file.parent() != Some(bin))
    }

    /// Returns the plugins' files that were placed in CNI bin directories.
    pub fn placed(&self) -> Vec<PathBuf> {
        self.whole_list(PLACED)
    }

    /// Notes plugins' files, so that `doctor` knows which files are gone. An earlier note goes unless the file `stays`.
    ///
    /// # Errors
    /// The list can't be written.
    pub fn note_placed(&self, placed: &[PathBuf], stays: impl Fn(&Path) -> bool) -> Result<()> {
        let at = self.noting();
        files::make_directory(at.directory())?;
        at.change(PLACED, placed, stays)
    }

    /// Takes a plugin's file out of the list.
    ///
    /// # Errors
    /// The list can't be written.
    pub fn forget_placed(&self, file: &Path) -> Result<()> {
        self.noting().change(PLACED, &[], |noted| noted != file)
    }

    /// Returns the files with a diversion.
    pub fn diverted(&self) -> Vec<PathBuf> {
        self.list(DIVERTED)
    }

    /// Notes diversions of files.
    ///
    /// # Errors
    /// The list can't be written.
    pub fn note_diverted(&self, files: &[PathBuf]) -> Result<()> {
        self.note(DIVERTED, files)
    }

    /// Takes a file out of the list of diversions.
    ///
    /// # Errors
    /// The list can't be written.
    pub fn forget_diverted(&self, file: &Path) -> Result<()> {
        self.change(DIVERTED, &[], |noted| noted != file)
    }

    /// Returns the means of the last installation, if it is known.
    pub fn means(&self) -> Option<String> {
        let text = fs::read_to_string(self.0.join(MEANS)).ok()?;
        Some(text.trim().to_owned()).filter(|means| !means.is_empty())
    }

    /// Notes the means of an installation.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn note_means(&self, means: &str) -> Result<()> {
        Ready::write(&self.0.join(MEANS), format!("{means}\n").as_bytes(), 0o644)?.commit()
    }

    /// Returns the plugins' files that `postern install --watch` leaves to another installer.
    pub fn given_up(&self) -> Vec<PathBuf> {
        self.list(GIVEN_UP)
    }

    /// Notes these files, and no others.
    ///
    /// # Errors
    /// The list can't be written.
    pub fn note_given_up(&self, paths: &[PathBuf]) -> Result<()> {
        files::remove_all(&self.0.join(GIVEN_UP))?;
        self.note(GIVEN_UP, paths)
    }

    /// Returns all parts of an installation, for its removal.
    pub fn parts(&self) -> impl Iterator<Item = PathBuf> {
        // A removal that was killed is repeated: a package's script asks for the means first.
        let parts = [CURRENT, PREVIOUS, VERSIONS, BINS, MADE, PLACED, DIVERTED, GIVEN_UP, TAKEN, MEANS];
        LINKS.into_iter().rev().chain(parts).map(|name| self.0.join(name))
    }
}
