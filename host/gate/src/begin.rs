//! The steps of a run before its guest: plugin, policy, version, record, the container's namespace, confinement.

use crate::confinement::{self, MadeDirectories};
use crate::delegation::{self, Delegation};
use crate::errors::{internal, obstacle};
use crate::holders;
use crate::launcher::Launcher;
use crate::places::Places;
use crate::prepared::{Plugin, Prepared, spoken, unavailable};
use crate::request::Request;
use crate::session::{NoContainerAsked, OwnedSession, Session};
use crate::status;
use crate::unrecorded::Part;
use nix::errno::Errno;
use postern_cni::{Env, Error, Flannel, Json, Lists, NetConf, Verb, Version, config_version, flannel};
use postern_kernel::{Namespace, OpenError};
use postern_policy::Policy;
use postern_types::{Capability, OpError};
use std::time::Instant;

/// The runtime's request.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The plugin.
    pub name: &'a str,
    /// The verb.
    pub verb: Verb,
    /// The variables.
    pub env: &'a Env,
    /// Standard input.
    pub stdin: &'a [u8],
    /// When the run began.
    pub started: Instant,
}

/// A run that has come as far as its guest.
pub struct PreparedRun {
    /// The request, and what its plugins share.
    pub owned: OwnedSession,
    /// The plugin that the runtime called.
    pub called: Prepared,
    /// The judgement on the version of its configuration.
    pub spoken: Result<(), Error>,
    /// See [`crate::gate::Delegates::delegation`].
    pub delegation: Result<Option<Delegation>, OpError>,
    /// The directories that were made for it.
    pub made: MadeDirectories,
    /// What its plugin may have made.
    pub part: Part,
}

/// The next step of a run.
pub enum Start {
    /// The guest.
    Guest(Box<PreparedRun>),
    /// DEL, and the plugin can't be run. Its record is enough to remove what it made.
    WithoutPlugin {
        /// The configuration.
        raw: Box<(Json, Lists)>,
        /// The directories of the host.
        places: Places,
        /// The plugin's shipped policy, if it is known.
        shipped: Option<Policy>,
        /// Why the plugin can't be run.
        reason: String,
    },
}

/// Does everything that comes before the guest. `refused` notes a refusal that the runtime does not get: DEL then uses
/// the record.
///
/// # Errors
/// The error for the runtime.
pub fn begin(
    call: &Call<'_>,
    raw: (Json, Lists),
    launcher: &mut Launcher,
    refused: &dyn Fn(&Error),
) -> Result<Start, Error> {
    let Call { name, verb, env, .. } = *call;
    // An attacker who prepared a state directory could have records in it removed with our privileges.
    let places = Places::find().map_err(obstacle)?;
    // A guest refuses what it can't read, with its own words.
    if verb == Verb::Gc && !NetConf::is_readable(&raw.0) {
        launcher.need_sandboxes();
    }
    let opened = match launcher.open(name, &places.state) {
        Ok(opened) => opened,
        // The effects of a plugin can be removed without it.
        Err(reason) if verb == Verb::Del => {
            let reason = reason.to_string();
            refused(&obstacle(&reason));
            let shipped = launcher.shipped_policy(name);
            return Ok(Start::WithoutPlugin { raw: Box::new(raw), places, shipped, reason });
        }
        Err(reason) => return Err(unavailable(verb, &reason)),
    };
    let (request, called, spoken) = admit(call, raw, opened)?;
    warm_delegates(launcher, &request, &called.policy);
    let limits = called.policy.limits();
    let part = Part::of(Some(&called.policy), &request);
    let mut owned = OwnedSession::new(request, call.started + limits.time(), places);
    let mut session = owned.session();
    session.keep_for_cleanup(limits.cleanup());
    session.digest.clone_from(&called.digest);
    session.makes_links = part.makes_link();
    session.owns_link = part.makes_link();
    let is_needed = acts_in_container(session.request, &called.policy);
    let namespace = container(&session, is_needed, env.allows_own_netns());
    if verb.has_attachment() {
        session.open_record().map_err(internal)?;
        session.look_for_link().map_err(internal)?;
    }
    let delegation = match called.granted().filter(|granted| granted.knows(Capability::Delegate)) {
        Some(granted) => delegation::prepare(&session, granted),
        None => Ok(None),
    };
    let of_delegates = match &delegation {
        Ok(Some(delegation)) => Some(delegation.request(session.request, verb)),
        Ok(None) | Err(_) => None,
    };
    let namespace = match namespace {
        Ok(namespace) => namespace,
        // An attachment with a record can be removed without its namespace, wherever the path leads by now.
        Err(missing) if verb != Verb::Add && session.record().is_some() => {
            missing.accept(&mut session);
            None
        }
        Err(missing) if verb == Verb::Del => return Err(missing.into_error()),
        // A plugin that refuses its configuration says so first, as natively. It can do nothing else.
        Err(missing) => {
            session.no_container = Some(NoContainerAsked { error: missing.into_error(), is_asked: false });
            None
        }
    };
    // Only an earlier result has addresses to take over.
    let has_previous = matches!(session.request.conf.previous_result(), Ok(Some(_)));
    let of_previous = called.granted().filter(|_| has_previous);
    let enters = |namespace: &Namespace| is_needed || session.asks_container(of_previous, namespace);
    let enters = namespace.as_ref().is_some_and(enters);
    let of_delegates = of_delegates.as_ref().unwrap_or(session.request);
    launcher.prepare_delegates(&session.state, of_delegates);
    if verb == Verb::Status {
        // The gate is not yet confined here, because this looks at disks and programs. No guest has run yet.
        able(&session, launcher, &called)?;
        let main = delegation.as_ref().ok().and_then(Option::as_ref);
        if let Some(main) = main.and_then(|delegation| launcher.delegate(&delegation.plugin).ok()) {
            able(&session.part(of_delegates), launcher, main)?;
        }
    }
    if let Some(namespace) = &namespace
        && called.policy.knows(Capability::Dhcp)
    {
        let kept = session.dhcp.keep(namespace);
        kept.map_err(|error| Error::internal(format!("netns \"{}\": {error}", session.request.netns)))?;
    }
    let holders = holders::find(&session, &called, of_previous);
    if !holders.is_empty() {
        holders::make_way(&mut session, holders).inspect_err(|_| session.close_record())?;
    }
    let namespace = namespace.filter(|_| enters);
    let made = confinement::confine(&mut session, launcher, &called, of_delegates, namespace).inspect_err(|_| {
        session.undone();
        session.close_record();
    })?;
    Ok(Start::Guest(Box::new(PreparedRun { owned, called, spoken, delegation, made, part })))
}

/// Judges the version of the configuration, and makes the request and its plugin of it. The judgement is the plugin's to
/// tell on DEL: an attachment must be removed with the version that made it, and what the component does not support, its
/// record removes.
///
/// # Errors
/// The error for the runtime.
fn admit(call: &Call<'_>, raw: (Json, Lists), opened: Plugin) -> Result<(Request, Prepared, Result<(), Error>), Error> {
    let Call { name, verb, env, stdin, .. } = *call;
    let named = config_version(&raw.0)?;
    let spoken = spoken(&opened.policy, opened.versions.as_deref(), verb, &named);
    let version = match Version::parse(&named).filter(|_| verb == Verb::Del) {
        Some(version) => version,
        None => spoken.clone()?,
    };
    let request = Request::read(name, env, verb, version, raw, stdin)?;
    let prepared = Prepared::new(name, opened, &request);
    Ok((request, prepared, spoken.map(drop)))
}

/// Starts the processes of the plugins that this one delegates to, by its configuration.
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

/// Checks that the host could do its part of an ADD by this plugin. For a process that is not confined.
///
/// # Errors
/// As [`status::able`].
fn able(session: &Session, launcher: &Launcher, plugin: &Prepared) -> Result<(), Error> {
    let delegate = launcher.shipped_policy(&session.request.conf.ipam_type);
    let keeps_leases =
        [Some(&plugin.policy), delegate.as_ref()].into_iter().flatten().any(|policy| policy.knows(Capability::Leases));
    status::able(session, plugin, keeps_leases)
}

/// The reason why a container's namespace can't be entered.
pub enum NoContainer {
    /// Its path leads to no namespace, or to the host's.
    Gone(Error),
    /// It may be alive.
    Hidden(Error),
}

impl NoContainer {
    /// Returns the error for the runtime.
    pub fn into_error(self) -> Error {
        match self {
            Self::Gone(error) | Self::Hidden(error) => error,
        }
    }

    /// Goes on without the namespace. What may be left in a living one is not given up.
    pub fn accept(self, session: &mut Session) {
        match self {
            Self::Gone(error) => crate::say!("postern: taking the container for gone: {error}"),
            Self::Hidden(error) => {
                crate::say!("postern: the container's namespace is not looked at: {error}");
                session.hide_container(error.to_string());
            }
        }
    }
}

/// True if an operation of the plugin acts in the container's namespace.
fn acts_in_container(request: &Request, policy: &Policy) -> bool {
    // An object that was made under an earlier policy may still be in it.
    let may = |capability: Capability| match request.verb {
        Verb::Del => policy.knows(capability),
        Verb::Add | Verb::Check | Verb::Gc | Verb::Status | Verb::Version => policy.grants(capability),
    };
    Capability::ALL.iter().any(|capability| capability.acts_in_container() && may(*capability))
}

/// Opens the container's namespace of a request, and refuses the host's own. One that is not `needed` may be absent.
pub fn container(session: &Session, needed: bool, allows_own: bool) -> Result<Option<Namespace>, NoContainer> {
    let request = &session.request;
    if !request.verb.has_attachment() || request.netns.is_empty() {
        return Ok(None);
    }
    match Namespace::open(&request.netns) {
        Ok(namespace) => {
            if allows_own || request.verb == Verb::Check || !is_own(session, &namespace).map_err(NoContainer::Hidden)? {
                return Ok(Some(namespace));
            }
            match request.verb {
                // The number of an ended process is that of another one by now. No attachment is in this namespace.
                Verb::Del => Ok(taken_for_gone(&Error::same_netns())),
                _ => Err(NoContainer::Gone(Error::same_netns())),
            }
        }
        Err(_) if !needed => Ok(None),
        Err(OpenError::NotExist { .. }) if request.verb == Verb::Del => Ok(None),
        // The file of a pinned namespace stays after a reboot, and a runtime asks until the DEL succeeds.
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

/// True if no namespace can be at a path.
fn leads_nowhere(error: &OpenError) -> bool {
    match error {
        OpenError::NotExist { .. } | OpenError::NotNamespace { .. } => true,
        OpenError::Io { errno, .. } => {
            let nowhere = [Errno::ENOTDIR, Errno::ELOOP, Errno::ENAMETOOLONG].map(|errno| Some(errno as i32));
            nowhere.contains(errno)
        }
    }
}

/// Says why a DEL goes on without its container.
fn taken_for_gone(why: &dyn std::fmt::Display) -> Option<Namespace> {
    crate::say!("postern: taking the container for gone: {why}");
    None
}

fn is_own(session: &Session, namespace: &Namespace) -> Result<bool, Error> {
    let own = session.home().map_err(internal)?;
    namespace.same_as(own).map_err(|error| Error::internal(format!("cannot compare network namespaces: {error}")))
}
