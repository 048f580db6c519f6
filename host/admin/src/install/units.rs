//! The units of the DHCP service. They are placed, but not enabled: an operator with networks of dhcp enables them.

use super::files::{self, Ready};
use super::paths::InstallPaths;
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// The directory of the host executable, as the units' texts name it.
const WRITTEN: &str = "/usr/local/lib/postern";

/// The units, each with its text.
const UNITS: [(&str, &str); 2] = [
    ("postern-dhcp.service", include_str!("../../../dhcp/units/postern-dhcp.service")),
    ("postern-dhcp.socket", include_str!("../../../dhcp/units/postern-dhcp.socket")),
];

/// Returns the directory of units below a prefix. systemd looks for them below `/usr/local` and `/usr`.
pub fn directory(prefix: &Path) -> PathBuf {
    prefix.join("lib/systemd/system")
}

/// Writes the units, with the directory of this installation.
///
/// # Errors
/// A unit can't be written.
pub fn place(place: &InstallPaths) -> Result<()> {
    let directory = place.real(&directory(&place.prefix()));
    files::make_directory(&directory)?;
    for (name, text) in UNITS {
        Ready::write(&directory.join(name), of(place, text).as_bytes(), 0o644)?.commit()?;
    }
    Ok(())
}

/// Returns a unit's text with the directory of this installation.
fn of(place: &InstallPaths, text: &str) -> String {
    text.replace(WRITTEN, &place.library().display().to_string())
}

/// True if the units are there with the texts of this installation, or if none is wanted and none is there.
pub fn are_placed(place: &InstallPaths, is_wanted: bool) -> bool {
    let directory = place.real(&directory(&place.prefix()));
    UNITS.iter().all(|(name, text)| match fs::read_to_string(directory.join(name)) {
        Ok(found) => is_wanted && found == of(place, text),
        Err(_) => !is_wanted,
    })
}

/// Removes the units. A missing unit is no error.
///
/// # Errors
/// A unit can't be removed.
pub fn remove(place: &InstallPaths) -> Result<()> {
    let directory = place.real(&directory(&place.prefix()));
    UNITS.iter().try_for_each(|(name, _)| files::remove_all(&directory.join(name)))
}
