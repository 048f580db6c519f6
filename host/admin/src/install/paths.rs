//! The places of an installation.

use super::layout::InstallLayout;
use super::{files, units};
use anyhow::{Context, Result, ensure};
use postern_gate::places::{self, INSTALLED, VERSIONS};
use std::convert::Infallible;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The usual directory for `lib/postern` and `bin/postern`.
const USUAL: &str = "/usr/local";
/// The directory of an installation, below the prefix.
const LIBRARY: &str = "/lib/postern";

/// The place of an installation.
#[derive(Clone, Debug, clap::Args)]
pub struct InstallPaths {
    /// The root of an image or a package: a prefix of each path. No installed file contains this prefix.
    #[arg(long, value_name = "DIR", default_value = "", value_parser = root)]
    pub(super) destdir: String,
    /// The directory for `lib/postern` and `bin/postern` [default: that of the installation that this program belongs to,
    /// else /usr/local].
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
}

impl InstallPaths {
    /// Returns the directory for `lib/postern` and `bin/postern`. An installed program means its own installation, and a
    /// program of a build means the usual place.
    pub(super) fn prefix(&self) -> PathBuf {
        let own = || {
            let own = InstallLayout::own().ok().filter(|own| own.directory().join(VERSIONS).is_dir())?;
            let prefix = own.directory().to_str()?.strip_suffix(LIBRARY)?;
            // The kernel names a path without links. The command's link has the path that the installation was given, and
            // that plugins' files name.
            let given =
                fs::read_link(Path::new(prefix).join("bin/postern")).ok().filter(|host| are_same(host, &own.host()));
            let given = given.and_then(|host| Some(PathBuf::from(host.parent()?.to_str()?.strip_suffix(LIBRARY)?)));
            Some(given.unwrap_or_else(|| PathBuf::from(prefix)))
        };
        let own = || if self.destdir.is_empty() { own() } else { None };
        self.prefix.clone().or_else(own).unwrap_or_else(|| PathBuf::from(USUAL))
    }

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
        self.prefix().join("lib/postern")
    }

    /// True if this node has another installation at a usual place.
    pub(super) fn has_other(&self) -> bool {
        let own = self.library();
        INSTALLED.iter().any(|catalog| Path::new(catalog).parent() != Some(&own) && Path::new(catalog).exists())
    }

    /// Returns the path of the command `postern`, a link.
    pub(super) fn command(&self) -> PathBuf {
        self.prefix().join("bin/postern")
    }

    /// Checks the paths, and the CNI bin directories of the installation.
    pub(super) fn check<'a>(&'a self, bins: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
        let bins = bins.into_iter().map(|bin| ("CNI_BIN", bin));
        let prefix = self.prefix();
        for (name, path) in [("PREFIX", &prefix)].into_iter().chain(bins) {
            ensure!(path.is_absolute() && path.to_str().is_some(), "{name} has to be an absolute path: {path:?}");
            self.keep_below(path)?;
        }
        ensure!(
            self.destdir.is_empty() || Path::new(&self.destdir).is_absolute(),
            "DESTDIR has to be an absolute path"
        );
        let library = self.library();
        // The command itself is a link to a path of the node.
        let commands = prefix.join("bin");
        let own = [library.join(VERSIONS), library, commands, units::directory(&prefix)];
        own.iter().try_for_each(|path| self.keep_below(path))
    }

    /// Refuses a path that leads out of DESTDIR: a link in an image's root, or `..`. The links are meant for the node, and
    /// lead to the builder's own directories here.
    pub(super) fn keep_below(&self, path: &Path) -> Result<()> {
        let (root, real) = (Path::new(&self.destdir), self.real(path));
        if self.destdir.is_empty() || !root.exists() {
            return Ok(());
        }
        let canonical = |path: &Path| path.canonicalize().with_context(|| path.display().to_string());
        let leads_to = canonical(files::nearest(&real))?;
        ensure!(
            leads_to.starts_with(canonical(root)?),
            "{} leads out of DESTDIR, to {}: make the link relative, or name another directory (--prefix, --bin-dir)",
            real.display(),
            leads_to.display()
        );
        Ok(())
    }

    /// Refuses a file that users other than root could change. The directories above an image's root are not the
    /// directories on the node, so only the file and its directory count there.
    pub(super) fn trust(&self, path: &Path) -> Result<()> {
        if self.destdir.is_empty() {
            return places::trust(path).map_err(anyhow::Error::msg);
        }
        for object in [path, path.parent().unwrap_or(path)] {
            let open = File::open(object).with_context(|| object.display().to_string())?;
            places::trust_file(object, open).map_err(anyhow::Error::msg)?;
        }
        Ok(())
    }
}

/// True if two paths lead to one file.
pub(super) fn are_same(one: &Path, other: &Path) -> bool {
    one == other || fs::canonicalize(one).is_ok_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

/// Returns DESTDIR. The root of this node is no image.
fn root(text: &str) -> Result<String, Infallible> {
    let is_this_node = fs::canonicalize(text).is_ok_and(|real| real == Path::new("/"));
    Ok(if is_this_node { String::new() } else { text.to_owned() })
}
