//! Diversions of Debian's dpkg. Another package that brings a file of a plugin's name then writes NAME.native beside
//! Postern's file, also when that package is upgraded or installed again.

use super::bin_dir::kept;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAM: &str = "dpkg-divert";
/// The package whose scripts call this installation.
const PACKAGE: &str = "postern-cni";

/// The diversions of one root.
pub struct Diversions<'a> {
    /// The root of an image, or empty.
    root: &'a str,
    /// True if Debian's package installs: the diversions are its own.
    is_package: bool,
}

impl<'a> Diversions<'a> {
    pub fn new(root: &'a str, means: Option<&str>) -> Self {
        Self { root, is_package: means == Some("deb") }
    }

    /// Returns the files that still need a diversion. Changes nothing.
    ///
    /// # Errors
    /// There is no dpkg, or a file is diverted to another name.
    pub fn missing(&self, files: impl Iterator<Item = PathBuf>) -> Result<Vec<PathBuf>> {
        let found = Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let database = PathBuf::from(format!("{}/var/lib/dpkg", self.root));
        ensure!(
            found.is_ok_and(|status| status.success()) && database.is_dir(),
            "--divert needs {PROGRAM} and {}, which Debian and its descendants have: leave out --divert here",
            database.display()
        );
        let mut missing = Vec::new();
        for file in files {
            let target = PathBuf::from(self.call(&[Path::new("--truename"), &file])?.trim_end_matches('\n'));
            ensure!(
                target == file || target == kept(&file),
                "{} is diverted to {}: `{PROGRAM} --list {}` names the package",
                file.display(),
                target.display(),
                file.display()
            );
            if target == file {
                missing.push(file);
            }
        }
        Ok(missing)
    }

    /// Diverts the files: all of them, or none.
    ///
    /// # Errors
    /// dpkg refuses.
    pub fn add(&self, files: &[PathBuf]) -> Result<()> {
        let owner = if self.is_package { vec!["--package", PACKAGE] } else { vec!["--local"] };
        for (at, file) in files.iter().enumerate() {
            let kept = kept(file);
            let mut words: Vec<&Path> = owner.iter().map(Path::new).collect();
            words.extend(["--no-rename", "--divert"].map(Path::new));
            words.extend([&kept, Path::new("--add"), file]);
            if let Err(error) = self.call(&words) {
                files.iter().take(at).try_for_each(|file| self.remove(file))?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes a diversion away. A missing diversion is no error.
    ///
    /// # Errors
    /// dpkg refuses.
    pub fn remove(&self, file: &Path) -> Result<()> {
        self.call(&[Path::new("--no-rename"), Path::new("--remove"), file]).map(drop)
    }

    fn call(&self, words: &[&Path]) -> Result<String> {
        let mut command = Command::new(PROGRAM);
        command.env("LC_ALL", "C").arg("--quiet");
        if !self.root.is_empty() {
            command.args(["--root", self.root]);
        }
        let output = command.args(words).stdin(Stdio::null()).output().context(PROGRAM)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{PROGRAM}: {}", said.trim().trim_start_matches("dpkg-divert: error: "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
