//! The places of an installation.

use super::files;
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};

/// The place of an installation.
#[derive(Clone, Debug, clap::Args)]
pub struct InstallPaths {
    /// The root of an image or a package: a prefix of each path. No installed file contains this prefix.
    #[arg(long, value_name = "DIR", default_value = "")]
    pub(super) destdir: String,
    /// The directory for `lib/postern` and `bin/postern`.
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    pub(super) prefix: PathBuf,
}

impl InstallPaths {
    /// Returns a path below DESTDIR.
    pub(super) fn real(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("{}{}", self.destdir, path.display()))
    }

    /// Returns the directories that an installation has to make first, without DESTDIR: its own, and others.
    pub(super) fn to_make<'a>(&self, others: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
        let way = |path: &Path| -> Vec<PathBuf> {
            let real = self.real(path);
            let missing = files::missing(&real).len();
            path.ancestors().take(missing).filter(|path| path.parent().is_some()).map(Path::to_owned).collect()
        };
        let mut all = way(&self.library());
        all.extend(others.flat_map(way));
        all
    }

    /// Returns the directory of the installation, without DESTDIR, as its files name it.
    pub(super) fn library(&self) -> PathBuf {
        self.prefix.join("lib/postern")
    }

    /// Returns the path of the command `postern`, a link.
    pub(super) fn command(&self) -> PathBuf {
        self.prefix.join("bin/postern")
    }

    /// Checks the paths, and the CNI bin directories of the installation.
    pub(super) fn check<'a>(&'a self, bins: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
        let bins = bins.into_iter().map(|bin| ("CNI_BIN", bin));
        for (name, path) in [("PREFIX", &self.prefix)].into_iter().chain(bins) {
            ensure!(path.is_absolute() && path.to_str().is_some(), "{name} has to be an absolute path: {path:?}");
        }
        ensure!(
            self.destdir.is_empty() || Path::new(&self.destdir).is_absolute(),
            "DESTDIR has to be an absolute path"
        );
        Ok(())
    }
}
