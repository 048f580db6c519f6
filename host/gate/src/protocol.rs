//! The host as a plugin: environment and standard input in, one JSON object out, exit status 0 or 1.
//!
//! Nothing else in the host sees raw input. The order is the native plugins', since it decides which error a runtime
//! reads; two things are deliberately earlier. The sandbox is forked as soon as the environment is valid, to be ready
//! when the rest is; and the container's namespace is looked at before the plugin runs instead of after, so that a wrong
//! one changes nothing.

use crate::audit::Refusal;
use crate::collect;
use crate::confinement;
use crate::errors::{internal, obstacle};
use crate::inherited;
use crate::intact;
use crate::launcher::Launcher;
use crate::places::Places;
use crate::plugin;
use crate::plugin_file;
use crate::process::{self, Engine};
use crate::session::{Request, Session};
use crate::status;
use crate::streams;
use crate::unrecorded::{self, Part};
use postern_cni::version_output;
use postern_cni::{
    Env, Error, Json, Lists, NetConf, NumericVersion, Verb, Version, about, check_version, code, config_version,
    read_conf, validate_conf,
};
use postern_confine::{NoPrograms, close_all_but};
use postern_kernel::{Namespace, OpenError};
use postern_policy::{Granted, Limits, Policy};
use postern_types::Capability;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Standard input in bytes: a configuration with its `prevResult` is a few kilobytes.
pub const STDIN_LIMIT: usize = 256 << 10;

/// How long a runtime may take to send its request. That is part of the run's time.
const REQUEST_WITHIN: Duration = Duration::from_secs(30);

/// How long it may take to read an error, once the run is over. A result has the time of its run.
const ERROR_WITHIN: Duration = Duration::from_secs(5);

/// Runs one invocation. Returns the exit status.
pub fn main(name: &str, engine: Engine) -> u8 {
    inherited::put_right();
    // What a runtime forgot to close is nobody's here.
    if let Err(error) = close_all_but(&[0, 1, 2]) {
        crate::say!("postern: inherited descriptors stay open: {error}");
    }
    let (output, status) = match run(name, engine) {
        Ok(output) => (output, 0),
        Err(error) => (error.to_json(), 1),
    };
    let written = print(output.as_bytes(), Instant::now() + ERROR_WITHIN);
    process::reap();
    if written.is_ok() { status } else { 1 }
}

/// `Stdout` would write the last line by itself, and wait for ever.
fn print(output: &[u8], deadline: Instant) -> Result<(), Error> {
    streams::write(std::io::stdout(), output, deadline).map_err(|errno| {
        crate::say!("postern: standard output cannot be written: {errno}");
        Error::new(code::IO_FAILURE, format!("error writing to stdout: {errno}"))
    })
}

fn run(name: &str, engine: Engine) -> Result<String, Error> {
    let started = Instant::now();
    let env = Env::of_process()?;
    // Before any path is made of it: it may be what somebody has typed.
    if !plugin_file::is_name(name) {
        return Err(Error::internal(format!("invalid plugin name: {name:?}")));
    }
    let mut launcher = Launcher::new(engine);
    let refused = |error: &Error, stdin: &[u8]| {
        let network = validate_conf(stdin, STDIN_LIMIT).and_then(NetConf::parse).map(|conf| conf.name);
        let attachment = format!("{}/{}/{}", network.unwrap_or_default(), env.container_id, env.ifname);
        let (attachment, reason) = (attachment.as_str(), error.to_string());
        Refusal { verb: &env.command, plugin: name, attachment, reason: &reason, took: started.elapsed() }.note();
    };
    let versions = |launcher: &Launcher| supported(&launcher.policy(name).map_err(obstacle)?);
    if env.command.is_empty() {
        let about = about(name, concat!("postern ", env!("CARGO_PKG_VERSION")), &versions(&launcher)?);
        about.trim_end().lines().for_each(|line| crate::say!("{line}"));
        return Ok(String::new());
    }
    if env.validate()? == Some(Verb::Version) {
        return Ok(version_output(&versions(&launcher).inspect_err(|error| refused(error, b""))?));
    }
    inherited::limits()
        .map_err(|text| Error::internal(format!("the host can't run plugin \"{name}\": {text}")))
        .inspect_err(|error| refused(error, b""))?;
    // For whoever finds this run hanging: the environment, which has the verb, is overwritten soon.
    process::introduce(&env.command, name);
    launcher.warm(name);
    let stdin = streams::read_input(STDIN_LIMIT, started + REQUEST_WITHIN)
        .map_err(|e| Error::new(code::IO_FAILURE, format!("error reading from stdin: {e}")))?;
    let raw = read_conf(&stdin, STDIN_LIMIT)?;
    let call = Call { name, verb: env.verb()?, env: &env, stdin: &stdin, started };
    let has_no_verb = lacks_verb(call.verb, &raw.0);
    // From here on the request is one that could be done. What keeps it from a guest is in the log.
    let begun = begin(&call, raw, &mut launcher, &|error| refused(error, &stdin));
    let begun = begun.inspect_err(|error| {
        if !(has_no_verb && error.code == code::INCOMPATIBLE_VERSION) {
            refused(error, &stdin);
        }
    });
    let Begun { mut session, made, part, granted } = match begun? {
        Start::Guest(begun) => *begun,
        Start::Done(output) => return Ok(output),
    };
    let verb = call.verb;
    let outcome = act(&mut session, &mut launcher, name, part, granted);
    let outcome = if verb == Verb::Status { outcome.map_err(status::as_unavailable) } else { outcome };
    let outcome = outcome.and_then(|output| {
        // A result that the runtime can't read is an attachment that it doesn't know of.
        print(output.as_bytes(), session.deadline).inspect_err(|_| collect::undo(&mut session, 0))
    });
    session.audit.flush();
    made.tidy();
    if outcome.is_ok() && verb == Verb::Add {
        // A runtime believes this process only when it has ended: what takes time comes before the last word.
        session.runner = Rc::new(NoPrograms);
        drop(launcher);
        process::reap();
        session.given();
    } else {
        session.undone();
    }
    // A failed ADD has been undone by now: its record goes too, unless something is left in it.
    session.close_record();
    outcome.map(|()| String::new())
}

/// Whether the configuration is of a version that has no such verb. To say so refuses nothing: a runtime finds it on every
/// node, as often as it asks. What policy says of versions is a refusal.
fn lacks_verb(verb: Verb, conf: &Json) -> bool {
    let version = config_version(conf).and_then(|version| NumericVersion::parse(&version));
    version.is_ok_and(|version| version < verb.since())
}

/// What the runtime called for.
struct Call<'a> {
    name: &'a str,
    verb: Verb,
    env: &'a Env,
    stdin: &'a [u8],
    started: Instant,
}

/// A run that has come as far as its guest.
struct Begun {
    session: Session,
    made: confinement::Made,
    part: Part,
    /// What policy says of an earlier result, where there is one.
    granted: Option<Granted>,
}

/// How a run goes on.
enum Start {
    Guest(Box<Begun>),
    /// Without one: this is the answer.
    Done(String),
}

/// All that comes before the guest. `refused` notes a refusal that is none for the runtime: DEL goes by the record then.
fn begin(
    call: &Call<'_>,
    raw: (Json, Lists),
    launcher: &mut Launcher,
    refused: &dyn Fn(&Error),
) -> Result<Start, Error> {
    let Call { name, verb, env, stdin, started } = *call;
    // Whoever prepared a state directory would have records in it removed with our privileges.
    let places = Places::find().map_err(obstacle)?;
    let ready = match launcher.take(name, &places.state) {
        Ok(ready) => ready,
        // What a plugin left can be removed without it.
        Err(reason) if verb == Verb::Del => {
            let reason = reason.to_string();
            refused(&obstacle(&reason));
            let shipped = launcher.shipped_policy(name);
            return del_without_plugin(call, raw, places, shipped.as_ref(), &reason).map(Start::Done);
        }
        Err(reason) if verb == Verb::Status => return Err(Error::new(code::PLUGIN_NOT_AVAILABLE, reason.to_string())),
        Err(reason) => return Err(obstacle(reason)),
    };
    // What was attached with a version must be let go of with it, whatever policy says of it now.
    let spoken = if verb == Verb::Del { Version::ALL.to_vec() } else { supported(&ready.policy)? };
    let version = check_version(verb, &config_version(&raw.0)?, &spoken)?;
    let (end, cleanup) = (started + ready.policy.limits().time(), ready.policy.limits().cleanup());
    let request = request(name, env, verb, version, raw, stdin)?;
    let namespace = namespace(&request, &ready.policy, env.allows_own_netns());
    let may_delegate = ready.policy.grants(Capability::Ipam) || verb == Verb::Del;
    if !request.conf.ipam_type.is_empty() && may_delegate && request.conf.ipam_type != name {
        launcher.warm(&request.conf.ipam_type.clone());
    }
    let part = Part::of(Some(&ready.policy), &request);
    let policy = (verb == Verb::Status).then(|| ready.policy.clone());
    let digest = ready.digest.clone();
    let has_previous = matches!(request.conf.previous_result(), Ok(Some(_)));
    // What is ambiguous is refused when the plugin is started.
    let resolve = || ready.policy.resolve(&request.conf.raw, request.args()).ok();
    let granted = if has_previous { resolve() } else { None };
    launcher.put_back(name, ready);
    let mut session = Session::new(request, end, places);
    session.keep_for_cleanup(cleanup);
    session.digest = digest;
    session.makes_links = part.makes_link();
    session.owns_link = part.makes_link();
    if matches!(verb, Verb::Add | Verb::Del | Verb::Check) {
        session.open_record().map_err(internal)?;
        session.look_for_link().map_err(internal)?;
    }
    let namespace = match namespace {
        Ok(namespace) => namespace,
        // What has a record can be removed without its namespace, wherever the path may lead by now.
        Err(error) if verb != Verb::Add && session.record().is_some() => {
            crate::say!("postern: taking the container for gone: {error}");
            None
        }
        Err(error) => return Err(error),
    };
    if let Some(policy) = &policy {
        // Not yet confined, as it looks at disks and programs; and no guest has had a say yet.
        let delegate = launcher.shipped_policy(&session.request.conf.ipam_type);
        let keeps_leases =
            [Some(policy), delegate.as_ref()].into_iter().flatten().any(|policy| policy.knows(Capability::Leases));
        status::able(&session, policy, keeps_leases)?;
    }
    let made = confinement::confine(&mut session, launcher, namespace).inspect_err(|_| {
        session.undone();
        session.close_record();
    })?;
    Ok(Start::Guest(Box::new(Begun { session, made, part, granted })))
}

fn act(
    session: &mut Session,
    launcher: &mut Launcher,
    name: &str,
    part: Part,
    granted: Option<Granted>,
) -> Result<String, Error> {
    let verb = session.request.verb;
    if verb == Verb::Add {
        collect::recover(session).map_err(internal)?;
    }
    let owns_link = session.owns_link;
    // The plugin that made the link is the last of its chain: nothing of the attachment outlives it.
    let section = (!owns_link).then(|| session.section());
    match verb {
        Verb::Add | Verb::Check => {
            if verb == Verb::Check {
                session.hold_against_kernel().map_err(internal)?;
                if session.is_replaced() {
                    crate::say!(
                        "postern: what the record of this attachment lists is gone: it is checked as one without"
                    );
                    session.set_record_aside();
                }
            }
            if let Ok(Some(previous)) = session.request.conf.previous_result() {
                session.adopt(&previous, granted.as_ref());
            }
        }
        Verb::Del => {
            session.hold_against_kernel().map_err(internal)?;
            session.forget_foreign_container();
            session.ending(section.as_deref());
        }
        Verb::Gc | Verb::Status | Verb::Version => {}
    }
    let recorded = session.record().is_some_and(|record| !record.is_empty()) && !session.is_replaced();
    session.hindered = false;
    let outcome = plugin::run(session, launcher, name, verb, 0);
    if verb == Verb::Del {
        let hindered = outcome.is_err() && session.hindered;
        if hindered && !(recorded && owns_link) {
            unrecorded::remove(session, part).map_err(internal)?;
        }
        // The plugin has done what it knows of, or failed; what its record still lists is removed now.
        collect::by_record(session, section.as_deref()).map_err(internal)?;
        return match outcome {
            // The record is the whole truth: a plugin that fails at what is gone would keep the runtime trying for ever.
            Err(error) if recorded && owns_link => {
                crate::say!("postern: all that the record lists is removed, although {name} failed: {error}");
                Ok(String::new())
            }
            Err(error) if hindered => {
                let error = error.to_string();
                crate::say!(
                    "postern: nothing with the names of this attachment is left, although {name} failed: {error}"
                );
                Ok(String::new())
            }
            outcome => outcome.map(|_| String::new()),
        };
    }
    match outcome? {
        None if verb == Verb::Check => intact::check(session).map(|()| String::new()).map_err(obstacle),
        Some(result) => session
            .made(&result)
            .map_err(internal)
            .and_then(|()| result.to_json(session.request.version))
            .inspect_err(|_| collect::undo(session, 0)),
        None => Ok(String::new()),
    }
}

/// DEL for a plugin that can't be run: it is no longer installed or no longer to be trusted, or its policy can't be read. Its
/// record is enough, and without one the attachment's names are. `shipped` is what the plugin is made for, as far as that is
/// known.
///
/// # Errors
/// What could not be removed, and why the plugin can't be run.
fn del_without_plugin(
    call: &Call<'_>,
    raw: (Json, Lists),
    places: Places,
    shipped: Option<&Policy>,
    reason: &str,
) -> Result<String, Error> {
    let Call { name, env, stdin, started, .. } = *call;
    let request = request(name, env, Verb::Del, Version::LATEST, raw, stdin)?;
    let namespace = container(&request, true, env.allows_own_netns());
    let part = Part::of(shipped, &request);
    let deadline = started + Limits::default().time();
    let mut session = Session::new(request, deadline, places);
    session.makes_links = part.makes_link();
    session.open_record().map_err(internal)?;
    session.look_for_link().map_err(internal)?;
    // Of a chained plugin only its own goes: others of the attachment are called after it.
    let section = (!session.owns_link).then(|| session.section());
    match namespace {
        Ok(Some(namespace)) => match session.enter(namespace, || Ok(())) {
            // The record is enough, where the kernel has no thread for this process.
            Err(error) if session.record().is_some() => {
                crate::say!("postern: the container's namespace is not looked at: {error}");
            }
            entered => entered.map_err(internal)?,
        },
        Ok(None) => {}
        Err(error) if session.record().is_some() => {
            crate::say!("postern: taking the container for gone: {error}");
        }
        Err(error) => return Err(error),
    }
    session.hold_against_kernel().map_err(internal)?;
    session.forget_foreign_container();
    let recorded = session.record().is_some_and(|record| !record.is_empty());
    let removed = if recorded && !session.is_replaced() {
        collect::by_record(&mut session, section.as_deref()).map(drop)
    } else {
        unrecorded::remove(&mut session, part).and_then(|()| collect::by_record(&mut session, None).map(drop))
    };
    session.audit.flush();
    session.close_record();
    removed.map_err(|error| {
        let mut error = internal(error);
        error.details = format!("{} {name} itself can't be run: {reason}", error.details).trim_start().to_owned();
        error
    })?;
    let what = if section.is_some() { "what this plugin did for this attachment" } else { "this attachment" };
    crate::say!("postern: nothing of {what} is left, although {name} can't be run: {reason}");
    Ok(String::new())
}

/// The versions that a plugin speaks under its policy.
///
/// # Errors
/// Code 999: the policy names one that there is not.
pub fn supported(policy: &Policy) -> Result<Vec<Version>, Error> {
    let Some(versions) = policy.versions() else { return Ok(Version::ALL.to_vec()) };
    versions
        .iter()
        .map(|text| {
            Version::parse(text).ok_or_else(|| Error::internal(format!("policy: \"{text}\" is no version of CNI")))
        })
        .collect()
}

/// What the gate works on, of a configuration that is valid for this version.
///
/// # Errors
/// Code 6: standard input is not UTF-8.
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
    // What a DEL removes no list has a say in.
    if verb != Verb::Del {
        NetConf::check_lists(&raw.0)?;
    }
    // A configuration whose common keys have wrong types is the plugin's to refuse, in its own words.
    let conf = NetConf::parse_or_unread(raw.0, raw.1);
    Ok(Request {
        plugin: plugin.to_owned(),
        verb,
        container_id: env.container_id.clone(),
        netns: env.netns.clone(),
        ifname: env.ifname.clone(),
        path: env.path.clone(),
        env: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).clone())).collect(),
        stdin: String::from_utf8(stdin.to_vec())
            .map_err(|_| Error::decoding("error unmarshall network config: it is not UTF-8"))?,
        conf,
        version,
    })
}

/// Opens the container's namespace, and refuses the host's own.
fn namespace(request: &Request, policy: &Policy, allows_own: bool) -> Result<Option<Namespace>, Error> {
    // What was made under an earlier policy is in there still.
    let may = |capability: Capability| match request.verb {
        Verb::Del => policy.knows(capability),
        Verb::Add | Verb::Check | Verb::Gc | Verb::Status | Verb::Version => policy.grants(capability),
    };
    let needed = Capability::ALL.iter().any(|capability| capability.acts_in_container() && may(*capability));
    container(request, needed, allows_own)
}

/// The same for who knows whether it is `needed`.
fn container(request: &Request, needed: bool, allows_own: bool) -> Result<Option<Namespace>, Error> {
    let attachment = matches!(request.verb, Verb::Add | Verb::Del | Verb::Check);
    if !attachment || request.netns.is_empty() {
        return Ok(None);
    }
    match Namespace::open(&request.netns) {
        Ok(namespace) => {
            if !allows_own && request.verb != Verb::Check && is_own(&namespace)? {
                return Err(Error::same_netns());
            }
            Ok(needed.then_some(namespace))
        }
        Err(_) if !needed => Ok(None),
        Err(OpenError::NotExist { .. }) if request.verb == Verb::Del => Ok(None),
        Err(error) if request.verb == Verb::Del => Err(Error::internal(error.to_string())),
        Err(error) => Err(Error::internal(format!("failed to open netns \"{}\": {error}", request.netns))),
    }
}

fn is_own(namespace: &Namespace) -> Result<bool, Error> {
    let own = Namespace::current().map_err(|error| Error::internal(error.to_string()))?;
    namespace.same_as(&own).map_err(|error| Error::internal(format!("cannot compare network namespaces: {error}")))
}
