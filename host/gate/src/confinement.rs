//! The rights that the gate keeps while guests run.
//!
//! The host does not trust its own sandbox. An attacker who escapes from a sandbox and then finds a fault in the gate
//! gets the rights that are listed here. The other rights of the runtime's root are gone.
//!
//! All rights are decided before the first guest starts, from policy, configuration and the record.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation, capability or effect has to be thought of here")]

mod calls;
mod made_directories;
mod rights;

use crate::collectable;
use crate::context::{Fixed, RunParts};
use crate::errors::internal;
use crate::launcher::Launcher;
use crate::prepared::Prepared;
use crate::request::Request;
use calls::{GATE, WITH_LOOK, WITH_TAP};
pub use made_directories::MadeDirectories;
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::Pid;
use postern_cni::{Error, Verb};
use postern_confine::{
    Access, Bus, CapabilitySet, ConfineError, Confinement, Files, Helper, NoPrograms, ReadyFilter, forget_environment,
    processor,
};
use postern_kernel::Namespace;
use postern_state::{Dir, OpenMode, Record, lease_directory};
use rights::Rights;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// The file in the state directory that shows that a missing Landlock was reported.
const SAID: &str = "no-landlock";

/// Confines this process, and the thread that enters the container's namespace. `of_delegates` is the request of
/// delegates, if it differs from the runtime's request.
///
/// A rule of Landlock needs an existing directory. So the directory of leases is made first, if an ADD may need it.
/// [`MadeDirectories`] removes it again if it stays empty. If the kernel refuses a step, no guest may run.
pub fn confine(
    parts: &mut RunParts,
    launcher: &Launcher,
    called: &Prepared,
    of_delegates: Option<&Request>,
    namespace: Option<Namespace>,
) -> Result<MadeDirectories, Error> {
    let rights = Rights::of(&mut parts.context(), launcher, called, of_delegates);
    let mut rights = rights.map_err(|error| Error::internal(error.to_string()))?;
    rights.writable(&parts.request)?;
    let made = MadeDirectories::of(&parts.context(), &mut rights).map_err(|error| {
        Error::internal(format!("the host cannot start a process, and runs no plugin without this process: {error}"))
    })?;
    let pids: Vec<Pid> = launcher.with(called).filter_map(Prepared::pid).collect();
    match give_up(parts, &pids, namespace, &rights) {
        Ok(()) => Ok(made),
        Err(error) => {
            made.tidy();
            Err(error)
        }
    }
}

fn give_up(parts: &mut RunParts, pids: &[Pid], namespace: Option<Namespace>, rights: &Rights) -> Result<(), Error> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::internal(format!("the host cannot confine itself, and runs no plugin unconfined: {error}"))
    };
    // The boot ID is read while /proc can be reached, and is kept.
    postern_state::boot_id().map_err(|error| failed(&error))?;
    let bus = if rights.bus { Bus::locate(rights.zones.clone()) } else { None };
    parts.system.runner = if rights.programs.is_empty() && bus.is_none() {
        Rc::new(NoPrograms)
    } else {
        // The helper's programs hold the record's lock. If this process is killed, a later removal of the record's
        // effects waits until these programs have ended.
        let run = parts.context();
        run.journal.begin_for(run.view(), namespace.as_ref()).map_err(internal)?;
        let lock = run.journal.record().map(Record::lock);
        // The helper starts before there is a second thread and before any right is given up: programs need the rights
        // from the runtime.
        Rc::new(Helper::start(rights.programs.clone(), bus, lock).map_err(|error| failed(&error))?)
    };
    if !rights.dhcp.is_empty() {
        parts.system.dhcp.open_for(parts.request.verb, &parts.fixed.deadline, &rights.dhcp);
    }
    // The host's namespace is opened here, because a confined process can't open it. New links are made in it, records
    // have its cookie, and devices of the node are moved back to it.
    parts.system.home().map_err(|error| failed(&error))?;
    // All other processes have been started, so this process can be pinned to one processor with its sandbox. Without a
    // sandbox this process is not pinned: a GC by the host can take long.
    if !pids.is_empty() {
        processor::pin();
    }
    forget_environment();
    let fixed = &parts.fixed;
    let confined = |filter, files: &[PathBuf]| {
        rights.confinement(fixed, filter, files).map(Arc::new).map_err(|error| failed(&error))
    };
    let sandboxes = calls::sandboxes(pids).map_err(|error| failed(&error))?;
    let confinement = confined(GATE.with(sandboxes), &[])?;
    let own = match rights.device {
        // Only this thread, in the host's namespace, searches for BPF programs on a device that was moved back, and
        // reads the device's files.
        true => {
            parts.system.sight();
            let files = parts.system.link_files();
            let path = |directory: &String| files.and_then(|files| files.path(directory));
            let files: Vec<PathBuf> = rights.device_files.iter().filter_map(path).collect();
            confined(WITH_LOOK.with(sandboxes), &files)?
        }
        false => Arc::clone(&confinement),
    };
    let tap = if rights.tap.is_some() { Some(confined(WITH_TAP.with(sandboxes), &[])?) } else { None };
    if let Some(namespace) = namespace {
        // Only the thread that makes the tap may use the requests for taps.
        let inside = tap.unwrap_or_else(|| Arc::clone(&confinement));
        let confine = move || inside.apply().map_err(|error| error.to_string());
        parts.system.enter(namespace, rights.inside(), confine).map_err(|error| failed(&error))?;
    }
    if parts.request.verb == Verb::Gc {
        let confine = || {
            let confinement = Arc::clone(&confinement);
            move || confinement.apply().map_err(|error| error.to_string())
        };
        collectable::enter_containers(parts, confine).map_err(|error| failed(&error))?;
    }
    // The memory of this process must not be written to a core file.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(|error| failed(&error))?;
    own.apply().map_err(|error| failed(&error))
}

impl Rights {
    /// Returns the Linux capabilities to keep (capabilities(7)).
    fn capabilities(&self) -> CapabilitySet {
        // Sandboxes belong to another user, so this process needs the right to kill them. The filter lists the
        // processes that may be killed.
        let mut kept = CapabilitySet::KILL;
        if self.network {
            kept |= CapabilitySet::NET_ADMIN;
        }
        if !self.leases.is_empty() {
            // A data directory may belong to another user than root, and its modification time is restored
            // (host/state).
            kept |= CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER;
        } else if !self.backups.is_empty() {
            // The native plugin makes the directory of its files without search permission.
            kept |= CapabilitySet::DAC_OVERRIDE;
        }
        kept
    }

    /// Returns the confinement for these rights. `device_files` are directories of links below a sysfs.
    fn confinement(
        &self,
        fixed: &Fixed,
        filter: ReadyFilter,
        device_files: &[PathBuf],
    ) -> Result<Confinement, ConfineError> {
        // Records, notes on node objects, and the audit log.
        let mut paths: Vec<(&Path, Access)> =
            vec![(&fixed.places.state, Access::Own), (&fixed.places.logs, Access::Own)];
        // A directory of leases gets no rule if another user could replace its path by a symbolic link. Then opening
        // the leases fails.
        let networks = self.leases.iter().filter_map(|(directory, network)| lease_directory(directory, network));
        paths.extend(self.backups.iter().map(|directory| (directory.as_path(), Access::Own)));
        paths.extend(self.files.iter().map(|file| (file.as_path(), Access::Read)));
        paths.extend(device_files.iter().map(|directory| (directory.as_path(), Access::Change)));
        if self.network {
            // The rule is for the whole directory: a directory below it belongs to one namespace, and this process uses
            // two namespaces.
            paths.push((Path::new("/proc/sys/net"), Access::Change));
        }
        if self.legacy || !self.programs.is_empty() {
            // The files in this directory show whether there are rules of legacy iptables.
            paths.push((Path::new("/proc/thread-self/net"), Access::Read));
        }
        let networks: Vec<Dir> = networks.collect();
        let opened = networks.iter().chain(&self.index).map(|directory| (directory, Access::Own));
        let files = Files::with(paths, opened)?;
        if !files.enforced() {
            tell_of_missing_landlock(&fixed.places.state);
        }
        Ok(Confinement { capabilities: self.capabilities(), files, filter })
    }
}

/// Reports that the kernel has no Landlock. Only the first run after a boot reports it. Otherwise a runtime's log would
/// have the line for each container. `postern doctor` reports it each time.
fn tell_of_missing_landlock(state: &Path) {
    let Ok(state) = Dir::open_itself(state) else { return };
    if state.file(SAID, OpenMode::Read).is_ok() {
        return;
    }
    // If the file can't be made, the next run reports it again.
    let _ = state.file(SAID, OpenMode::ChangeOrCreate(0o600));
    crate::say!(
        "postern: this kernel has no Landlock: guests still reach no file, but an attacker who controls the gate \
         could (this message appears once)"
    );
}
