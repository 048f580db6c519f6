//! The steps of a run before its guest: plugin, policy, version, record, the container's namespace, confinement.

use crate::confinement::{self, MadeDirectories};
use crate::context::{Fixed, RunParts, System, View};
use crate::deadline::Deadline;
use crate::delegation::{self, Delegation};
use crate::errors::{internal, obstacle};
use crate::launcher::Launcher;
use crate::places::Places;
use crate::prepared::{Prepared, spoken, unavailable};
use crate::request::Request;
use crate::system::{Inside, NoContainerAsked};
use crate::unrecorded::SearchedObjects;
use crate::{holders, others, status};
use nix::errno::Errno;
use postern_cni::{Env, Error, Flannel, Json, Lists, NetConf, Verb, Version, config_version, flannel};
use postern_kernel::{Namespace, OpenError};
use postern_policy::{Limits, Policy};
use postern_types::{Capability, OpError};
use std::time::Instant;

/// The runtime's request.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The plugin.
    pub name: &'a str,
    pub verb: Verb,
    pub env: &'a Env,
    pub stdin: &'a [u8],
    /// The time at which the run began.
    pub started: Instant,
}

/// The called plugin, if it can be run.
#[expect(clippy::large_enum_variant, reason = "a run has one value, and most runs have the large variant")]
pub enum Called {
    /// The plugin that the runtime called.
    Plugin(Prepared),
    /// The host acts alone, for a DEL. The text is the reason why the plugin can't be run. The host removes the effects
    /// in the record. Without a record, the host uses the attachment's names.
    Nobody(String),
}

impl Called {
    /// Returns the plugin, if it can be run.
    pub fn plugin(&self) -> Option<&Prepared> {
        match self {
            Self::Plugin(plugin) => Some(plugin),
            Self::Nobody(_) => None,
        }
    }
}

/// A run that is ready to start its guest.
pub struct PreparedRun {
    pub parts: RunParts,
    pub called: Called,
    /// See [`crate::gate::Delegates::delegation`].
    pub delegation: Result<Option<Delegation>, OpError>,
    /// The directories that were made for this run.
    pub made: MadeDirectories,
    /// The objects that the plugin may have made.
    pub part: SearchedObjects,
}

/// Carries out all steps before the guest. `refused` logs a refusal that the runtime does not get, because DEL
/// continues with the record.
pub fn begin(
    call: &Call<'_>,
    raw: (Json, Lists),
    launcher: &mut Launcher,
    refused: &dyn Fn(&Error),
) -> Result<PreparedRun, Error> {
    let Call { verb, env, .. } = *call;
    // The places are checked first. Otherwise an attacker could prepare a state directory, and the host would remove
    // the objects that its records name.
    let places = Places::find().map_err(obstacle)?;
    // A guest is needed: only the guest refuses an unreadable configuration with the plugin's own error.
    if verb == Verb::Gc && !NetConf::is_readable(&raw.0) {
        launcher.need_sandboxes();
    }
    let (request, called, part) = admit(call, raw, launcher, &places, refused)?;
    let plugin = called.plugin();
    let limits = plugin.map_or_else(Limits::default, |plugin| plugin.policy.limits().clone());
    let deadline = Deadline::new(call.started + limits.time(), limits.cleanup());
    let digest = plugin.map(|plugin| plugin.digest.clone()).unwrap_or_default();
    let mut parts = RunParts::new(request, Fixed::new(deadline, places, digest, part.makes_link()));
    let acts = plugin.is_none_or(|plugin| acts_in_container(&parts.request, &plugin.policy));
    let is_needed = acts || plugin.is_some_and(|plugin| keeps_notes(&parts.request, &plugin.policy));
    let namespace = container(&parts.request, &parts.system, is_needed, env.allows_own_netns());
    let mut run = parts.context();
    if verb.has_attachment() {
        run.journal.open_record(run.view()).map_err(internal)?;
        others::look_for_link(&mut run).map_err(internal)?;
    }
    let granted = plugin.and_then(Prepared::granted);
    let delegation = match granted.filter(|granted| granted.knows(Capability::Delegate)) {
        Some(granted) => delegation::prepare(&run, granted),
        None => Ok(None),
    };
    let namespace = match namespace {
        Ok(namespace) => namespace,
        // An attachment with a record can be removed without its namespace, even if the path now leads to another
        // namespace.
        Err(missing) if verb != Verb::Add && parts.journal.record().is_some() => {
            missing.accept(&mut parts.system);
            None
        }
        Err(missing) if verb == Verb::Del => return Err(missing.into_error()),
        // The plugin still starts, because its error about the configuration comes first, as with native plugins. All
        // its operations are refused.
        Err(missing) => {
            parts.system.no_container = Some(NoContainerAsked { error: missing.into_error(), is_asked: false.into() });
            None
        }
    };
    let made = match plugin {
        Some(plugin) => ready(&mut parts, launcher, plugin, &delegation, acts, namespace)?,
        None => {
            enter(&mut parts, namespace)?;
            MadeDirectories::default()
        }
    };
    Ok(PreparedRun { parts, called, delegation, made, part })
}

/// Prepares the delegates, does the work that only an unconfined process can do, and confines this process.
fn ready(
    parts: &mut RunParts,
    launcher: &mut Launcher,
    called: &Prepared,
    delegation: &Result<Option<Delegation>, OpError>,
    acts: bool,
    namespace: Option<Namespace>,
) -> Result<MadeDirectories, Error> {
    let run = parts.context();
    // The policy for an earlier result matters only if the request has an earlier result.
    let has_previous = matches!(run.request.conf.previous_result(), Ok(Some(_)));
    let of_previous = called.granted().filter(|_| has_previous);
    let enters = |namespace: &Namespace| acts || others::asks_container(&run, of_previous, namespace);
    let enters = namespace.as_ref().is_some_and(enters);
    let main = delegation.as_ref().ok().and_then(Option::as_ref);
    let of_delegates = main.map(|main| main.request(run.request, run.request.verb));
    launcher.prepare_delegates(&run.fixed.places.state, of_delegates.as_ref().unwrap_or(run.request));
    if run.request.verb == Verb::Status {
        // STATUS checks disks and programs here, because the gate is not confined yet. This is safe, because no guest
        // has run yet.
        status::able(run.view(), launcher, called)?;
        if let Some(main) = main.and_then(|main| launcher.delegate(&main.plugin).ok()) {
            let request = of_delegates.as_ref().unwrap_or(run.request);
            status::able(View { request, ..run.view() }, launcher, main)?;
        }
    }
    if let Some(namespace) = &namespace
        && called.policy.knows(Capability::Dhcp)
    {
        let kept = run.system.dhcp.keep(namespace);
        kept.map_err(|error| Error::internal(format!("netns \"{}\": {error}", run.request.netns)))?;
    }
    let holders = holders::find(&run, called, of_previous);
    if !holders.is_empty() {
        let known = holders::make_way(&mut parts.context(), holders);
        parts.system.known.holders = known.inspect_err(|_| parts.journal.close_record())?;
    }
    if let Some(namespace) = namespace.as_ref().filter(|_| !enters) {
        identify(parts, &called.policy, namespace)?;
    }
    let namespace = namespace.filter(|_| enters);
    confinement::confine(parts, launcher, called, of_delegates.as_ref(), namespace).inspect_err(|_| {
        parts.journal.undone();
        parts.journal.close_record();
    })
}

/// Enters the container for the host itself. No guest runs, so nothing is confined. If the kernel refuses a thread in
/// the container, a run with a record continues, and a run without a record fails.
fn enter(parts: &mut RunParts, namespace: Option<Namespace>) -> Result<(), Error> {
    let Some(namespace) = namespace else { return Ok(()) };
    match parts.system.enter(namespace, Inside::Thread, || Ok(())) {
        Err(error) if parts.journal.record().is_some() => {
            NoContainer::Hidden(internal(error)).accept(&mut parts.system);
        }
        entered => entered.map_err(internal)?,
    }
    Ok(())
}

/// Opens the plugin, checks the version of the configuration, and starts the processes of delegates. Returns the
/// request and the plugin.
fn admit(
    call: &Call<'_>,
    raw: (Json, Lists),
    launcher: &mut Launcher,
    places: &Places,
    refused: &dyn Fn(&Error),
) -> Result<(Request, Called, SearchedObjects), Error> {
    let Call { name, verb, env, stdin, .. } = *call;
    let opened = match launcher.open(name, &places.state) {
        Ok(opened) => opened,
        // DEL continues: the effects of a plugin can be removed without the plugin.
        Err(reason) if verb == Verb::Del => {
            refused(&obstacle(&reason));
            let request = Request::read(name, env, verb, Version::LATEST, raw, stdin)?;
            let part = SearchedObjects::of(launcher.shipped_policy(name).as_ref(), &request);
            return Ok((request, Called::Nobody(reason.to_string()), part));
        }
        Err(reason) => return Err(unavailable(verb, &reason)),
    };
    let named = config_version(&raw.0)?;
    let version = match Version::parse(&named).filter(|_| verb == Verb::Del) {
        // An attachment must be removable with the version of its ADD. The run checks this version later. If the
        // component does not support the version, the record is used.
        Some(version) => version,
        None => spoken(&opened.policy, opened.versions.as_deref(), verb, &named)?,
    };
    let request = Request::read(name, env, verb, version, raw, stdin)?;
    warm_delegates(launcher, &request, &opened.policy);
    let part = SearchedObjects::of(Some(&opened.policy), &request);
    let prepared = Prepared::new(name, opened, &request);
    Ok((request, Called::Plugin(prepared), part))
}

/// Starts the processes of the delegates that the plugin's configuration names.
fn warm_delegates(launcher: &mut Launcher, request: &Request, policy: &Policy) {
    let ipam = &request.conf.ipam_type;
    let may_delegate = policy.grants(Capability::Ipam) || request.verb == Verb::Del;
    if !ipam.is_empty() && may_delegate && *ipam != request.plugin {
        launcher.warm(ipam);
    }
    if !policy.knows(Capability::Delegate) {
        return;
    }
    let Ok(flannel) = Flannel::read(&request.conf) else { return };
    let ipam = if request.conf.ipam_type.is_empty() { flannel::IPAM } else { request.conf.ipam_type.as_str() };
    for plugin in [flannel.delegate.as_str(), ipam] {
        if plugin != request.plugin && launcher.has(plugin) {
            launcher.warm(plugin);
        }
    }
}

/// The reason why a container's namespace can't be entered.
enum NoContainer {
    /// The path leads to no namespace, or to the host's namespace.
    Gone(Error),
    /// The container may be alive.
    Hidden(Error),
}

impl NoContainer {
    /// Returns the error for the runtime.
    fn into_error(self) -> Error {
        match self {
            Self::Gone(error) | Self::Hidden(error) => error,
        }
    }

    /// Continues without the namespace. If the container may be alive, effects in it stay in the record.
    fn accept(self, system: &mut System) {
        match self {
            Self::Gone(error) => crate::say!("postern: the container counts as gone: {error}"),
            Self::Hidden(error) => {
                crate::say!("postern: the container's namespace is not read: {error}");
                system.hidden = Some(error.to_string());
            }
        }
    }
}

/// True if an operation of the plugin acts in the container's namespace.
fn acts_in_container(request: &Request, policy: &Policy) -> bool {
    // An object that was made under an earlier policy may still be in the namespace.
    let may = |capability: Capability| match request.verb {
        Verb::Del => policy.knows(capability),
        Verb::Add | Verb::Check | Verb::Gc | Verb::Status | Verb::Version => policy.grants(capability),
    };
    Capability::ALL.iter().any(|capability| capability.acts_in_container() && may(*capability))
}

/// True if a note may be written or read. Notes are kept for the container that has the namespace.
fn keeps_notes(request: &Request, policy: &Policy) -> bool {
    matches!(request.verb, Verb::Add | Verb::Check) && policy.grants(Capability::Notes)
}

/// Reads the cookie of a container's namespace that the run does not enter. The record names the container by this
/// cookie. A namespace that can't be entered is an error only if the run keeps a note for the container.
fn identify(parts: &mut RunParts, policy: &Policy, namespace: &Namespace) -> Result<(), Error> {
    let is_recorded = |capability: &Capability| capability.is_recorded() && policy.grants(*capability);
    let writes = parts.request.verb == Verb::Add && Capability::ALL.iter().any(is_recorded);
    let keeps_notes = keeps_notes(&parts.request, policy);
    if !writes && !keeps_notes {
        return Ok(());
    }
    match parts.journal.identify(namespace) {
        Err(error) if keeps_notes => Err(internal(error)),
        // Native IPAM plugins also work without the right to enter the container.
        _ => Ok(()),
    }
}

/// Opens the container's namespace of a request, and refuses the host's own namespace. A namespace that is not `needed`
/// may be absent.
fn container(
    request: &Request,
    system: &System,
    needed: bool,
    allows_own: bool,
) -> Result<Option<Namespace>, NoContainer> {
    if !request.verb.has_attachment() || request.netns.is_empty() {
        return Ok(None);
    }
    match Namespace::open(&request.netns) {
        Ok(namespace) => {
            if allows_own || request.verb == Verb::Check || !is_own(system, &namespace).map_err(NoContainer::Hidden)? {
                return Ok(Some(namespace));
            }
            match request.verb {
                // The path names the process ID of a process that has ended, and another process has this ID now. No
                // attachment is in this namespace.
                Verb::Del => Ok(taken_for_gone(&Error::same_netns())),
                _ => Err(NoContainer::Gone(Error::same_netns())),
            }
        }
        Err(_) if !needed => Ok(None),
        Err(OpenError::NotExist { .. }) if request.verb == Verb::Del => Ok(None),
        // The file of a pinned namespace stays after a reboot, and a runtime repeats DEL until it succeeds.
        Err(error) if request.verb == Verb::Del && leads_nowhere(&error) => Ok(taken_for_gone(&error)),
        Err(error) => {
            let text = match request.verb {
                Verb::Del => error.to_string(),
                _ => format!("failed to open netns \"{}\": {error}", request.netns),
            };
            Err(match error {
                OpenError::NotExist { .. } | OpenError::NotNamespace { .. } => NoContainer::Gone(Error::internal(text)),
                OpenError::Io { .. } => NoContainer::Hidden(Error::internal(text)),
            })
        }
    }
}

/// True if the error proves that the path leads to no namespace.
fn leads_nowhere(error: &OpenError) -> bool {
    match error {
        OpenError::NotExist { .. } | OpenError::NotNamespace { .. } => true,
        OpenError::Io { errno, .. } => {
            let nowhere = [Errno::ENOTDIR, Errno::ELOOP, Errno::ENAMETOOLONG].map(|errno| Some(errno as i32));
            nowhere.contains(errno)
        }
    }
}

/// Reports why a DEL continues without its container.
fn taken_for_gone(why: &dyn std::fmt::Display) -> Option<Namespace> {
    crate::say!("postern: the container counts as gone: {why}");
    None
}

fn is_own(system: &System, namespace: &Namespace) -> Result<bool, Error> {
    let own = system.home().map_err(internal)?;
    namespace.same_as(own).map_err(|error| Error::internal(format!("cannot compare network namespaces: {error}")))
}
