//! The objects of an installation outside of its own directory and the CNI bin directories: the command `postern`, and
//! the units of the DHCP service. A container that installs on its node may have no access to their directories. Then
//! the installation goes on without them.

use super::files::{Ready, make_directory, nearest};
use super::paths::InstallPaths;
use super::units;
use crate::output;
use anyhow::Result;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use std::fs;
use std::path::{Path, PathBuf};

/// The objects, and the directories that can't be written.
pub struct Extras<'a> {
    place: &'a InstallPaths,
    /// The directory of the command.
    command: PathBuf,
    units: PathBuf,
    /// The reasons why the command and the units are left out.
    blocked: [Option<Errno>; 2],
}

impl<'a> Extras<'a> {
    pub fn of(place: &'a InstallPaths) -> Self {
        let command = place.command().parent().unwrap_or(Path::new("/")).to_owned();
        let units = units::directory(&place.prefix());
        let blocked = [&command, &units].map(|directory| blocked(&place.real(directory)));
        Self { place, command, units, blocked }
    }

    /// Returns the directories that get objects, without DESTDIR.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        let all = [&self.command, &self.units].into_iter().zip(&self.blocked);
        all.filter(|(_, blocked)| blocked.is_none()).map(|(directory, _)| directory.as_path())
    }

    /// True if the node has the units.
    pub fn are_units_there(&self) -> bool {
        let [_, units] = self.blocked;
        units.is_none()
    }

    /// Says what is left out.
    pub fn say(&self) {
        let objects = [("the command postern is", &self.command), ("the units of the DHCP service are", &self.units)];
        for ((object, directory), blocked) in objects.into_iter().zip(self.blocked) {
            if let Some(errno) = blocked {
                let directory = self.place.real(directory);
                output::say(format!("{object} left out: {} can't be written ({errno})", directory.display()));
            }
        }
    }

    /// Places the objects. Without a DHCP service, its units are removed.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn place(&self, host: &Path, has_service: bool) -> Result<()> {
        let [command, units] = self.blocked;
        if command.is_none() {
            let path = self.place.real(&self.place.command());
            make_directory(path.parent().unwrap_or(Path::new("/")))?;
            Ready::link(&path, host)?.commit()?;
        }
        match (units, has_service) {
            (Some(_), _) => Ok(()),
            (None, true) => units::place(self.place),
            (None, false) => units::remove(self.place),
        }
    }

    /// True if each object that [`Extras::place`] places is there.
    pub fn are_placed(&self, host: &Path, has_service: bool) -> bool {
        let [command, units] = self.blocked;
        let has_command = || fs::read_link(self.place.real(&self.place.command())).is_ok_and(|target| target == host);
        (command.is_some() || has_command()) && (units.is_some() || units::are_placed(self.place, has_service))
    }
}

/// Returns the reason why a directory, or the parent in which it would be made, can't be written: a read-only disk, or
/// another owner.
fn blocked(directory: &Path) -> Option<Errno> {
    let refusal = access(nearest(directory), AccessFlags::W_OK | AccessFlags::X_OK).err()?;
    [Errno::EROFS, Errno::EACCES, Errno::EPERM].contains(&refusal).then_some(refusal)
}
