//! The steps of a run before its guest: plugin, policy, version, record, the container's namespace, confinement.

use crate::confinement::{self, MadeDirectories};
use crate::delegation;
use crate::errors::{internal, obstacle};
use crate::holders;
use crate::launcher::{Launcher, Plugin};
use crate::places::Places;
use crate::session::{NoContainerAsked, Request, Session};
use crate::status;
use crate::unrecorded::Part;
use crate::versions::{own_versions, supported};
use nix::errno::Errno;
use postern_cni::{
    Env, Error, Flannel, Json, Lists, NetConf, Verb, Version, check_version, code, config_version, flannel, unicode,
};
use postern_kernel::{Namespace, OpenError};
use postern_policy::{Granted, Policy};
use postern_types::Capability;
use std::sync::Arc;
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
    /// The run.
    pub session: Session,
    /// The directories that were made for it.
    pub made: MadeDirectories,
    /// What its plugin may have made.
    pub part: Part,
    /// The policy for an earlier result, if there is one.
    pub granted: Option<Granted>,
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

/// A plugin that is installed and serves this request.
struct Admitted {
    /// The run, without its record.
    session: Session,
    /// What its plugin may have made.
    part: Part,
    /// The policy, if there is an earlier result.
    granted: Option<Granted>,
    /// The policy of a plugin that may delegate.
    delegating: Option<Granted>,
    /// The policy for STATUS.
    policy: Option<Policy>,
    /// True if an operation of the plugin acts in the container's namespace.
    is_needed: bool,
}

/// Returns the request that the gate works on, from a configuration that is valid for this version.
///
/// # Errors
/// Code 6: GC's lists have a wrong form.
pub fn request(
    plugin: &str,
    env: &Env,
    verb: Verb,
    version: Version,
    raw: (Json, Lists),
    stdin: &[u8],
) -> Result<Request, Error> {
    let variables = [
        ("CNI_CONTAINERID", &env.container_id),
        ("CNI_NETNS", &env.netns),
        ("CNI_IFNAME", &env.ifname),
        ("CNI_ARGS", &env.args),
        ("CNI_PATH", &env.path),
    ];
    // The lists in the configuration don't influence a DEL.
    if verb != Verb::Del {
        NetConf::check_lists(&raw.0)?;
    }
    // If common keys of a configuration have wrong types, the plugin refuses it with its own words.
    let conf = NetConf::parse_or_unread(raw.0, raw.1);
    Ok(Request {
        plugin: plugin.to_owned(),
        verb,
        container_id: env.container_id.clone(),
        netns: env.netns.clone(),
        ifname: env.ifname.clone(),
        path: env.path.clone(),
        env: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).clone())).collect(),
        stdin: Arc::new(unicode::json(stdin).into_owned()),
        conf,
        version,
    })
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
    let ready = match launcher.take(name, &places.state) {
        Ok(ready) => ready,
        // The effects of a plugin can be removed without it.
        Err(reason) if verb == Verb::Del => {
            let reason = reason.to_string();
            refused(&obstacle(&reason));
            let shipped = launcher.shipped_policy(name);
            return Ok(Start::WithoutPlugin { raw: Box::new(raw), places, shipped, reason });
        }
        Err(reason) if verb == Verb::Status => return Err(Error::new(code::PLUGIN_NOT_AVAILABLE, reason.to_string())),
        Err(reason) => return Err(obstacle(reason)),
    };
    let Admitted { mut session, part, granted, delegating, policy, is_needed } =
        admit(call, raw, launcher, ready, places)?;
    let namespace = container(&session, is_needed, env.allows_own_netns());
    if verb.has_attachment() {
        session.open_record().map_err(internal)?;
        session.look_for_link().map_err(internal)?;
    }
    if let Some(granted) = &delegating {
        session.delegation = Some(delegation::prepare(&session, granted));
    }
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
    let enters = |namespace: &Namespace| is_needed || session.asks_container(granted.as_ref(), namespace);
    let enters = namespace.as_ref().is_some_and(enters);
    if let Some(policy) = &policy {
        // The gate is not yet confined here, because this looks at disks and programs. No guest has run yet.
        able(&session, launcher, policy)?;
        let delegate = session.delegation.as_ref().and_then(|made| made.as_ref().ok()).and_then(Option::as_ref);
        if let Some(Ok(policy)) =
            delegate.filter(|made| launcher.has(&made.plugin)).map(|made| launcher.policy(&made.plugin))
        {
            session.exchange();
            let able = able(&session, launcher, &policy);
            session.exchange();
            able?;
        }
    }
    if let Some(namespace) = &namespace
        && launcher.policies().any(|(_, policy)| policy.knows(Capability::Dhcp))
    {
        let kept = session.dhcp.keep(namespace);
        kept.map_err(|error| Error::internal(format!("netns \"{}\": {error}", session.request.netns)))?;
    }
    let holders = holders::find(&session, launcher, granted.as_ref());
    if !holders.is_empty() {
        holders::make_way(&mut session, holders).inspect_err(|_| session.close_record())?;
    }
    let namespace = namespace.filter(|_| enters);
    let made = confinement::confine(&mut session, launcher, namespace).inspect_err(|_| {
        session.undone();
        session.close_record();
    })?;
    Ok(Start::Guest(Box::new(PreparedRun { session, made, part, granted })))
}

/// Checks a plugin and its request. The processes of its delegates are started.
///
/// # Errors
/// The error for the runtime.
fn admit(
    call: &Call<'_>,
    raw: (Json, Lists),
    launcher: &mut Launcher,
    ready: Plugin,
    places: Places,
) -> Result<Admitted, Error> {
    let Call { name, verb, env, stdin, started } = *call;
    let version = config_version(&raw.0)?;
    let named = ready.versions.as_deref();
    let spoken = match verb {
        // An attachment must be removed with the version that made it, even if policy no longer allows that version. What
        // the component does not support, its record removes.
        Verb::Del if Version::parse(&version).is_some() => Version::ALL.to_vec(),
        Verb::Del => own_versions(named),
        Verb::Add | Verb::Check | Verb::Gc | Verb::Status | Verb::Version => supported(ready.policy.versions(), named)?,
    };
    let version = check_version(verb, &version, &spoken)?;
    let (end, cleanup) = (started + ready.policy.limits().time(), ready.policy.limits().cleanup());
    let request = request(name, env, verb, version, raw, stdin)?;
    let is_needed = acts_in_container(&request, &ready.policy);
    let may_delegate = ready.policy.grants(Capability::Ipam) || verb == Verb::Del;
    if !request.conf.ipam_type.is_empty() && may_delegate && request.conf.ipam_type != name {
        launcher.warm(&request.conf.ipam_type.clone());
    }
    let delegating = ready.policy.knows(Capability::Delegate);
    if delegating {
        warm_delegates(launcher, &request);
    }
    let part = Part::of(Some(&ready.policy), &request);
    let policy = (verb == Verb::Status).then(|| ready.policy.clone());
    let digest = ready.digest.clone();
    let has_previous = matches!(request.conf.previous_result(), Ok(Some(_)));
    // An ambiguous value is refused when the plugin is started.
    let resolve = || ready.policy.resolve(request.conf.raw(), request.args()).ok();
    let granted = if has_previous { resolve() } else { None };
    let delegating = if delegating { resolve() } else { None };
    launcher.put_back(name, ready);
    let mut session = Session::new(request, end, places);
    session.keep_for_cleanup(cleanup);
    session.digest = digest;
    session.makes_links = part.makes_link();
    session.owns_link = part.makes_link();
    Ok(Admitted { session, part, granted, delegating, policy, is_needed })
}

/// Starts the processes of the plugins that a network of flannel names.
fn warm_delegates(launcher: &mut Launcher, request: &Request) {
    let Ok(flannel) = Flannel::read(&request.conf) else { return };
    let ipam = if request.conf.ipam_type.is_empty() { flannel::IPAM } else { request.conf.ipam_type.as_str() };
    for plugin in [flannel.delegate.as_str(), ipam] {
        if plugin != request.plugin && launcher.has(plugin) {
            launcher.warm(plugin);
        }
    }
}

/// Checks that the host could do its part of an ADD by the plugin of this policy. For a process that is not confined.
///
/// # Errors
/// As [`status::able`].
fn able(session: &Session, launcher: &Launcher, policy: &Policy) -> Result<(), Error> {
    let delegate = launcher.shipped_policy(&session.request.conf.ipam_type);
    let keeps_leases =
        [Some(policy), delegate.as_ref()].into_iter().flatten().any(|policy| policy.knows(Capability::Leases));
    status::able(session, policy, keeps_leases)
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
