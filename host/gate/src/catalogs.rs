//! The two catalogs of a host executable: the installation's own, and the operator's.
//!
//! An installation that is read-only, or whose directory belongs to a package, gets no further plugin. The operator's
//! plugins of such a node are in [`ADDED`]. The own catalog comes first, so a file in [`ADDED`] replaces no plugin of the
//! installation. A run looks into [`ADDED`] only if the own catalog lacks the plugin.

use crate::places;
use crate::plugin_error::PluginError;
use crate::{catalog, plugin_file};
use nix::sys::statvfs::{FsFlags, statvfs};
use std::path::{Path, PathBuf};

/// The operator's catalog, in [`places::LIBRARY`].
pub const ADDED: &str = "/var/lib/postern/postern.d";

/// The catalogs of this executable.
#[derive(Clone, Debug)]
pub struct Catalogs {
    own: PathBuf,
    added: PathBuf,
}

impl Catalogs {
    /// Finds the catalogs. The caller has to judge the own catalog with [`places::trust`].
    ///
    /// # Errors
    /// There is no own catalog; the error names the places.
    pub fn find() -> Result<Self, PluginError> {
        places::catalog().map(|own| Self { own, added: PathBuf::from(ADDED) })
    }

    /// Returns the installation's catalog.
    pub fn own(&self) -> &Path {
        &self.own
    }

    /// Returns the operator's catalog, which need not exist.
    pub fn added(&self) -> &Path {
        &self.added
    }

    /// Returns the existing catalogs, the own catalog first.
    pub fn all(&self) -> impl Iterator<Item = &Path> {
        let added = places::is_there(&self.added).then_some(self.added.as_path());
        std::iter::once(self.own.as_path()).chain(added)
    }

    /// Returns the catalog that has a plugin. This is the own catalog too if both have a plugin of this name, or none.
    ///
    /// # Errors
    /// Only the operator's catalog has the plugin, and this catalog is refused.
    pub fn of(&self, plugin: &str) -> Result<&Path, PluginError> {
        Ok(self.only_added(plugin)?.unwrap_or(&self.own))
    }

    /// Returns the operator's catalog if only this catalog has the plugin.
    ///
    /// # Errors
    /// As [`Self::judge`].
    pub fn only_added(&self, plugin: &str) -> Result<Option<&Path>, PluginError> {
        if !has(&self.added, plugin) || has(&self.own, plugin) {
            return Ok(None);
        }
        self.judge()?;
        Ok(Some(&self.added))
    }

    /// True if both catalogs have a plugin of this name. Then no run uses the operator's plugin.
    pub fn both_have(&self, plugin: &str) -> bool {
        has(&self.own, plugin) && has(&self.added, plugin)
    }

    /// True if a catalog has compiled code of this name.
    pub(crate) fn have_code(&self, plugin: &str) -> bool {
        [&self.own, &self.added].into_iter().any(|catalog| places::is_file(&catalog::code_path(catalog, plugin)))
    }

    /// True if a catalog has a policy of this name.
    pub(crate) fn have_policy(&self, plugin: &str) -> bool {
        [&self.own, &self.added].into_iter().any(|catalog| places::is_file(&policy_path(catalog, plugin)))
    }

    /// Refuses an operator's catalog that is a link, that another user could change, or whose code the kernel would not
    /// run.
    ///
    /// # Errors
    /// The defect, with the path.
    pub fn judge(&self) -> Result<(), PluginError> {
        // The owner of a link is named first: another user's link is an attack, and root's is a mistake.
        places::trust(&self.added)?;
        places::directory(&self.added)?;
        refuse_noexec(&self.added)
    }
}

/// Refuses a directory on a file system that is mounted noexec: the kernel makes no code in it executable.
///
/// # Errors
/// The file system is mounted noexec, or can't be looked at.
pub fn refuse_noexec(directory: &Path) -> Result<(), PluginError> {
    let system = statvfs(directory).map_err(|errno| PluginError::unreadable(directory, errno))?;
    if !system.flags().contains(FsFlags::ST_NOEXEC) {
        return Ok(());
    }
    let directory = directory.display();
    Err(PluginError(format!(
        "{directory} is on a file system that is mounted noexec, so no code in it can be run; `findmnt --target {directory}` \
         shows the mount; mount {} without noexec",
        places::LIBRARY
    )))
}

/// True if a catalog has code or a policy of this name.
pub fn has(catalog: &Path, plugin: &str) -> bool {
    plugin_file::is_name(plugin)
        && [catalog::code_path(catalog, plugin), policy_path(catalog, plugin)].iter().any(|path| places::is_there(path))
}

fn policy_path(catalog: &Path, plugin: &str) -> PathBuf {
    catalog.join(format!("{plugin}.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Two catalogs in a directory of the test.
    struct Place(PathBuf, Catalogs);

    impl Place {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("postern-catalogs-{name}-{}", std::process::id()));
            let (own, added) = (dir.join("own"), dir.join("added"));
            for path in [&dir, &own, &added] {
                std::fs::create_dir(path).unwrap();
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
            std::fs::write(own.join("bridge.cwasm"), "").unwrap();
            std::fs::write(added.join("theirs.cwasm"), "").unwrap();
            std::fs::write(added.join("theirs.toml"), "").unwrap();
            Self(dir, Catalogs { own, added })
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_own_catalog_comes_first() {
        let place = Place::new("first");
        let catalogs = &place.1;
        assert_eq!(catalogs.of("bridge"), Ok(catalogs.own()));
        assert_eq!(catalogs.of("none"), Ok(catalogs.own()));
        assert_eq!(catalogs.of("theirs"), Ok(catalogs.added()));
        assert!(catalogs.have_code("theirs") && catalogs.have_policy("theirs") && !catalogs.both_have("theirs"));
        // A part of a plugin counts: otherwise the operator's code would run for an incomplete plugin of the installation.
        std::fs::write(catalogs.own().join("theirs.toml"), "").unwrap();
        assert_eq!(catalogs.of("theirs"), Ok(catalogs.own()));
        assert!(catalogs.both_have("theirs"));
        // A name with a slash leads nowhere.
        assert_eq!(catalogs.of("../added/theirs"), Ok(catalogs.own()));
    }

    #[test]
    fn the_operators_catalog_is_a_directory_that_others_cannot_write() {
        let place = Place::new("refused");
        let catalogs = &place.1;
        let mode = |mode| std::fs::set_permissions(catalogs.added(), std::fs::Permissions::from_mode(mode)).unwrap();
        for (bits, written) in [(0o775, true), (0o757, true), (0o1777, true), (0o755, false)] {
            mode(bits);
            match catalogs.of("theirs") {
                Err(error) => {
                    let text = error.to_string();
                    assert!(written && text.contains("added can be written by others"), "{text}");
                }
                Ok(_) => assert!(!written, "{bits:o}"),
            }
            // A plugin of the installation does not depend on the other catalog.
            assert_eq!(catalogs.of("bridge"), Ok(catalogs.own()));
        }
        let moved = place.0.join("moved");
        std::fs::rename(catalogs.added(), &moved).unwrap();
        symlink(&moved, catalogs.added()).unwrap();
        let text = catalogs.of("theirs").unwrap_err().to_string();
        assert!(text.contains("added") && text.contains("no symbolic link"), "{text}");
    }
}
