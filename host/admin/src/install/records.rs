//! Records of living attachments, when Postern is removed and installed again.

use super::files;
use crate::output;
use anyhow::{Context, Result};
use postern_account::held;
use postern_gate::places::{Places, trust};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the number of attachments that have a record, in words.
pub fn living() -> String {
    output::count(count(&postern_account::places::expected().state), "attachment", "attachments")
}

/// True if attachments have records, or devices have notes that they may not be clean. A later installation needs both.
pub fn are_needed() -> bool {
    let places = postern_account::places::expected();
    places.state.exists() && !is_clean(&places)
}

fn count(state: &Path) -> usize {
    let entries = fs::read_dir(state.join("attachments")).into_iter().flatten().flatten();
    entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).count()
}

/// True if a directory of records has neither an attachment nor a device that may not be clean, which has a note.
fn is_clean(places: &Places) -> bool {
    count(&places.state) == 0 && held::list(places).is_ok_and(|held| held.is_empty())
}

/// Returns the first of the numbered names that nothing has.
fn free(name: impl Fn(u32) -> PathBuf) -> PathBuf {
    (1..).map(name).find(|path| path.symlink_metadata().is_err()).unwrap_or_default()
}

/// Returns the name for records that are set aside.
fn aside(state: &Path, number: u32) -> PathBuf {
    PathBuf::from(format!("{}.uninstalled-{number}", state.display()))
}

/// Removes data that a later installation would use: records, notes on verified code and on node objects, leases of the
/// DHCP service, added plugins. If records are needed, the directory of records is moved instead, and the others stay: a
/// later installation, or a cleanup by hand, may need them. No run uses the moved records.
///
/// # Errors
/// An object can't be removed or moved.
pub fn forget() -> Result<()> {
    let places = postern_account::places::expected();
    if are_needed() {
        let aside = free(|number| aside(&places.state, number));
        let living = living();
        let held = held::list(&places).map_or(0, |held| held.len());
        let held = match held {
            0 => String::new(),
            held => format!(" and {} that may not be clean", output::count(held, "device", "devices")),
        };
        fs::rename(&places.state, &aside).with_context(|| format!("cannot set {} aside", places.state.display()))?;
        output::text(&format!(
            "{living}{held} had records, which no run uses any more; they are in {} until the next boot, and an installation before \
             then puts them back. Native plugins delete the objects of these attachments that they find by name.",
            aside.display()
        ))?;
        // A service of DHCP goes on to renew its leases. An index is made again from the files of leases.
        files::remove_all(&places.lease_index())?;
        let _ = fs::remove_dir(&places.library);
        if places.library.exists() {
            output::text(&format!("leases and added plugins stay in {}", places.library.display()))?;
        }
    } else {
        files::remove_all(&places.state)?;
        if places.library != places.state {
            files::remove_all(&places.library)?;
        }
    }
    if places.logs.exists() && places.logs != places.state {
        output::text(&format!("the audit log stays in {}", places.logs.display()))?;
    }
    Ok(())
}

/// Puts the records back that the last uninstallation set aside: attachments that live through both are known again.
///
/// # Errors
/// The directory can't be moved.
pub fn put_back() -> Result<()> {
    let places = postern_account::places::expected();
    let state = &places.state;
    let exists = |path: &PathBuf| path.symlink_metadata().is_ok();
    let Some(aside) = (1..).map(|number| aside(state, number)).take_while(exists).last() else { return Ok(()) };
    let kept = |why: String| output::say(format!("the records in {} stay there: {why}", aside.display()));
    if let Err(reason) = trust(&aside) {
        kept(reason.to_string());
        return Ok(());
    }
    if state.exists() && !is_clean(&places) {
        kept(format!("{} has records of its own", state.display()));
        return Ok(());
    }
    let before = free(|number| PathBuf::from(format!("{}.before-{number}", state.display())));
    let before = Places { state: before, ..places.clone() };
    if state.exists() {
        let moved = fs::rename(state, &before.state);
        moved.with_context(|| format!("cannot rename {} to {}", state.display(), before.state.display()))?;
    }
    fs::rename(&aside, state).with_context(|| format!("cannot put {} back", aside.display()))?;
    // A run may have made a record after the first look.
    match is_clean(&before) {
        true => files::remove_all(&before.state)?,
        false => output::say(format!("{} has records of its own, and stays", before.state.display())),
    }
    let known = output::count(count(state), "attachment", "attachments");
    output::text(&format!("the records of {known} are back from {}", aside.display()))
}
