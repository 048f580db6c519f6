//! The host as a plugin: environment and standard input as input, one JSON object as output, exit status 0 or 1.
//!
//! No other module of the host sees raw input. The checks come in the order of the native plugins, because the order
//! decides which error a runtime reads. Two steps are deliberately earlier. The sandbox is forked as soon as the
//! environment is valid, to save time. The container's namespace is checked before the plugin runs instead of after, so
//! that a wrong namespace changes nothing.

use crate::audit::RunRefusal;
use crate::begin::{Call, Called, PreparedRun, begin};
use crate::budget::Common;
use crate::context::Context;
use crate::errors::{internal, obstacle};
use crate::gate::{Delegates, Ran};
use crate::launcher::Launcher;
use crate::prepared::Prepared;
use crate::process::{self, Engine};
use crate::request::Request;
use crate::unrecorded::{self, SearchedObjects};
use crate::{collect, host_check, inherited, others, plugin, plugin_file, status, streams};
use postern_cni::{
    Env, Error, Json, Lists, NetConf, NumericVersion, Verb, about, code, config_version, read_conf, validate_conf,
    version_output,
};
use postern_confine::{NoPrograms, close_all_but};
use postern_types::channel::MAX_INPUT;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The greatest size of standard input, in bytes. A configuration with its `prevResult` has a few kilobytes, and 16,384
/// port mappings have two megabytes.
pub const STDIN_LIMIT: usize = MAX_INPUT;

/// The time that a runtime has to send its request. This time is part of the run's time.
const REQUEST_WITHIN: Duration = Duration::from_secs(30);

/// The time that a runtime has to read an error, after the run is over. The result is written within the time of the
/// run.
const ERROR_WITHIN: Duration = Duration::from_secs(5);

/// Performs one run. Returns the exit status.
pub fn main(name: &str, engine: Engine) -> u8 {
    inherited::put_right();
    // Descriptors that a runtime forgot to close are closed.
    if let Err(error) = close_all_but(&[0, 1, 2]) {
        crate::say!("postern: inherited descriptors stay open: {error}");
    }
    let (output, status) = match run(name, engine) {
        Ok(output) => (output, 0),
        Err(error) => (error.to_json(), 1),
    };
    let written = printed(streams::write_within(std::io::stdout(), output.as_bytes(), ERROR_WITHIN));
    process::reap();
    if written.is_ok() { status } else { 1 }
}

/// Converts the outcome of a write to standard output. `Stdout` of the standard library is not used: it would write the
/// last line only at the process's end, and could wait for ever.
fn printed(written: nix::Result<()>) -> Result<(), Error> {
    written.map_err(|errno| {
        crate::say!("postern: standard output cannot be written: {errno}");
        Error::new(code::IO_FAILURE, format!("error writing to stdout: {errno}"))
    })
}

fn run(name: &str, engine: Engine) -> Result<String, Error> {
    let env = Env::of_process()?;
    // The name is checked before a path is made of it, because a person may have typed the name.
    if !plugin_file::is_name(name) {
        return Err(Error::internal(format!("invalid plugin name: {name:?}")));
    }
    let mut launcher = Launcher::new(engine);
    if env.command.is_empty() {
        let (supported, version) = launcher.versions(name)?;
        let about = about(name, version.as_deref(), &supported);
        about.trim_end().lines().for_each(|line| crate::say!("{line}"));
        return Ok(String::new());
    }
    if env.validate()? == Some(Verb::Version) {
        let refused = |error: &Error| refused(name, &env, b"", Instant::now(), error);
        return launcher.versions(name).map(|(supported, _)| version_output(&supported)).inspect_err(refused);
    }
    let started = Instant::now();
    let refused = |error: &Error| refused(name, &env, b"", started, error);
    inherited::limits()
        .map_err(|text| Error::internal(format!("the host can't run plugin \"{name}\": {text}")))
        .inspect_err(refused)?;
    // The process title is for people who find this run hanging. The environment, which has the verb, is overwritten
    // soon.
    process::introduce(&env.command, name);
    // An unknown verb is refused after the configuration is read, as by native plugins.
    if let Ok(verb) = env.verb() {
        launcher.save_sandboxes(verb);
    }
    launcher.warm(name);
    let stdin = streams::read_input(STDIN_LIMIT, started + REQUEST_WITHIN)
        .map_err(|e| Error::new(code::IO_FAILURE, format!("error reading from stdin: {e}")))?;
    let raw = read_conf(&stdin, STDIN_LIMIT)?;
    let call = Call { name, verb: env.verb()?, env: &env, stdin: &stdin, started };
    perform(&call, raw, &mut launcher)
}

/// Writes the audit line of a run that was refused.
fn refused(name: &str, env: &Env, stdin: &[u8], started: Instant, error: &Error) {
    let network = validate_conf(stdin, STDIN_LIMIT).and_then(NetConf::parse).map(|conf| conf.name);
    let attachment = format!("{}/{}/{}", network.unwrap_or_default(), env.container_id, env.ifname);
    let (attachment, reason) = (attachment.as_str(), error.to_string());
    RunRefusal { verb: &env.command, plugin: name, attachment, reason: &reason, took: started.elapsed() }.note();
}

/// Carries out a request, and writes its result. Returns an empty text, because nothing is left to write.
fn perform(call: &Call<'_>, raw: (Json, Lists), launcher: &mut Launcher) -> Result<String, Error> {
    let verb = call.verb;
    let refused = |error: &Error| refused(call.name, call.env, call.stdin, call.started, error);
    let has_no_verb = lacks_verb(verb, &raw.0);
    // From here on, each failure before the guest starts is written to the audit log.
    let mut prepared = begin(call, raw, launcher, &refused).inspect_err(|error| {
        if !(has_no_verb && error.code == code::INCOMPATIBLE_VERSION) {
            refused(error);
        }
    })?;
    let outcome = act(&mut prepared, launcher);
    let PreparedRun { mut parts, called, made, .. } = prepared;
    let missing = parts.system.no_container.as_ref().map(|missing| &missing.error);
    if let Err(error) = &outcome
        && (missing == Some(error) || called.plugin().is_none())
    {
        refused(error);
    }
    let outcome = if verb == Verb::Status { outcome.map_err(status::as_unavailable) } else { outcome };
    let outcome = outcome.and_then(|output| {
        // If the result can't be written, the ADD is undone: the runtime does not know of the attachment.
        printed(streams::write(std::io::stdout(), output.as_bytes(), parts.fixed.deadline.at()))
            .inspect_err(|_| collect::undo(&mut parts.context(), 0))
    });
    parts.audit.flush();
    made.tidy();
    if outcome.is_ok() && verb == Verb::Add {
        parts.system.runner = Rc::new(NoPrograms);
        parts.system.leave();
        launcher.dismiss();
        // All children have ended before the record says that the runtime has the result: a runtime accepts the result
        // only when this process has ended.
        process::reap();
        parts.journal.given();
    } else {
        parts.journal.undone();
    }
    // A failed ADD is undone at this point. Its record is removed too, unless the record still lists an effect.
    parts.journal.close_record();
    if let Called::Plugin(plugin) = called {
        // The policy is not freed, because this process ends soon.
        std::mem::forget(plugin.policy);
    }
    outcome.map(|()| String::new())
}

/// True if the configuration's version does not have this verb. This error is not logged as a refusal, because a
/// runtime gets it on each node at each request. A policy's limit on versions is logged as a refusal.
fn lacks_verb(verb: Verb, conf: &Json) -> bool {
    let version = config_version(conf).and_then(|version| NumericVersion::parse(&version));
    version.is_ok_and(|version| version < verb.since().numeric())
}

fn act(prepared: &mut PreparedRun, launcher: &Launcher) -> Result<String, Error> {
    let PreparedRun { parts, called, delegation, part, .. } = prepared;
    let run = &mut parts.context();
    let verb = run.request.verb;
    if verb == Verb::Add && run.system.no_container.is_none() {
        collect::recover(run).map_err(internal)?;
    }
    // The plugin that made the link is the last plugin that DEL calls, so its DEL removes all sections. The DEL of a
    // chained plugin removes only its own section, because other plugins are called later.
    let section = (!run.journal.owns_link()).then(|| run.journal.section().to_owned());
    match verb {
        Verb::Add | Verb::Check => {
            if verb == Verb::Check {
                others::compare_with_kernel(run).map_err(internal)?;
                if run.journal.is_replaced() {
                    crate::say!("postern: the recorded objects of this attachment are gone: CHECK ignores the record");
                    // The effects are gone. The file of the record stays unchanged.
                    run.journal.record = None;
                }
            }
            if let Ok(Some(previous)) = run.request.conf.previous_result() {
                others::take_over(run, &previous, called.plugin().and_then(Prepared::granted)).map_err(internal)?;
            }
        }
        Verb::Del => {
            others::compare_with_kernel(run).map_err(internal)?;
            if others::is_foreign_container(run).map_err(internal)? {
                parts.system.leave();
            }
            parts.journal.ending(section.as_deref());
        }
        Verb::Gc | Verb::Status | Verb::Version => {}
    }
    let run = &mut parts.context();
    let recorded = run.journal.record().is_some_and(|record| !record.is_empty()) && !run.journal.is_replaced();
    let ran = match called {
        Called::Plugin(plugin) => {
            plugin::run(run, &mut Common::default(), Delegates { launcher, delegation }, plugin, 0)
        }
        Called::Nobody(reason) => Ran::hindered(obstacle(reason)),
    };
    if let Some(missing) = &run.system.no_container {
        return match ran.outcome {
            Err(own) if !missing.is_asked.get() => Err(own),
            _ => Err(missing.error.clone()),
        };
    }
    if verb == Verb::Del {
        let main = delegation.as_ref().ok().and_then(Option::as_ref).map(|main| main.request(run.request, verb));
        return complete(run, called, main.as_ref(), *part, section.as_deref(), recorded, ran);
    }
    match ran.outcome? {
        None if verb == Verb::Check => host_check::check(run).map(|()| String::new()).map_err(obstacle),
        Some(result) => run
            .journal
            .made(run.view(), run.own, &result)
            .map_err(internal)
            .and_then(|()| result.to_json(run.request.version))
            .inspect_err(|_| collect::undo(run, 0)),
        None => Ok(String::new()),
    }
}

/// Completes a DEL, after the plugin has ended or failed: removes the effects that the record still lists. If the
/// record may be incomplete, objects are also searched by the attachment's names. `main` is the request for flannel's
/// delegate.
fn complete(
    run: &mut Context,
    called: &Called,
    main: Option<&Request>,
    part: SearchedObjects,
    section: Option<&str>,
    recorded: bool,
    Ran { outcome, hindered }: Ran,
) -> Result<String, Error> {
    let is_whole = recorded && section.is_none();
    let hindered = outcome.is_err() && hindered;
    let (by_names, of_record) = match called {
        Called::Plugin(_) => (hindered && !is_whole, section),
        Called::Nobody(_) => (!recorded, section.filter(|_| recorded)),
    };
    let request = main.unwrap_or(run.request);
    let removed = if by_names { unrecorded::remove(&mut run.with(request), part) } else { Ok(()) };
    let removed = removed.and_then(|()| collect::by_record(run, of_record)).map_err(internal);
    let name = &run.request.plugin;
    match (called, outcome) {
        (Called::Nobody(reason), _) => {
            removed.map_err(|error| {
                let details = format!("{} {name} itself can't be run: {reason}", error.details);
                Error { details: details.trim_start().to_owned(), ..error }
            })?;
            let what = if section.is_some() { "this plugin's work for this attachment" } else { "this attachment" };
            crate::say!("postern: nothing of {what} is left, although {name} can't be run: {reason}");
        }
        (Called::Plugin(_), outcome) => {
            removed?;
            match outcome {
                // The plugin's failure is only reported, because the record is complete. Otherwise a plugin that fails
                // because an object is gone would make the runtime retry for ever.
                Err(error) if is_whole => {
                    crate::say!("postern: all that the record lists is removed, although {name} failed: {error}");
                }
                Err(error) if hindered => {
                    crate::say!(
                        "postern: nothing with the names of this attachment is left, although {name} failed: {error}"
                    );
                }
                outcome => drop(outcome?),
            }
        }
    }
    Ok(String::new())
}
