//! Runs native plugins of `CNI_PATH`, as the specification asks ("Section 4: Plugin Delegation").
#![expect(
    clippy::disallowed_methods,
    reason = "the runtime's directories of programs, each of which is judged by its path"
)]

use crate::context::Context;
use crate::errors::{obstacle, of_program};
use crate::{places, plugin_file};
use nix::errno::Errno;
use postern_cni::{CniResult, Error, IpConfig, Json, Verb, code};
use postern_confine::{Allowed, Environment, Program, ProgramOutput};
use postern_types::{ErrorCode, OpError};
use std::path::{Path, PathBuf};

/// The greatest size of a delegate's output, in bytes.
const LIMIT: usize = 1 << 20;

/// Refuses the names that the native libraries refuse: an empty name, and a name that is no plain file name
/// (CVE-2021-20206).
pub fn check_name(name: &str) -> Result<(), OpError> {
    if name.is_empty() {
        return Err(OpError::new(ErrorCode::InvalidArgument, "ipam.type", "no plugin name provided")
            .hint("the network's configuration has no \"ipam\": {\"type\": …}"));
    }
    if name.contains('/') || name == "." || name == ".." {
        return Err(OpError::new(ErrorCode::InvalidArgument, name, format!("invalid plugin name: {name}")));
    }
    Ok(())
}

/// Finds a plugin in the directories of `CNI_PATH`: the first regular file of this name that is not Postern's own file.
/// The error has the native library's text.
pub fn find(name: &str, path: &str) -> Result<PathBuf, Error> {
    // The name is checked here too, because it can come from a record. The plugin must be a file of these directories.
    if check_name(name).is_err() {
        return Err(Error::internal(format!("invalid plugin name: {name}")));
    }
    let directories: Vec<&str> = path.split(':').filter(|directory| !directory.is_empty()).collect();
    let own = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    for directory in &directories {
        let candidate = Path::new(directory).join(name);
        if candidate.is_file() {
            // The program gets all privileges of this process.
            places::trust(&candidate).map_err(obstacle)?;
            // Postern's own file for a plugin is skipped: without the plugin in the catalog, Postern would call itself.
            let is_own = std::fs::canonicalize(&candidate).is_ok_and(|real| real == own);
            if is_own || plugin_file::read(&candidate).is_some() {
                continue;
            }
            return Ok(candidate);
        }
    }
    Err(Error::internal(format!("failed to find plugin \"{name}\" in path [{}]", directories.join(" "))))
}

/// Returns the permission for a helper to run a delegate, as [`run`] does.
pub fn allowed(path: PathBuf) -> Allowed {
    Allowed { path, arguments: <[String]>::is_empty, input: |_| true, variable: Some(|name| name.starts_with("CNI_")) }
}

/// Checks that every gateway has the IP version of its address. A gateway of the other version is invalid under any
/// configuration and any policy.
pub fn one_family<'r>(plugin: &str, ips: impl IntoIterator<Item = &'r IpConfig>) -> Result<(), Error> {
    for ip in ips {
        if let Some(gateway) = ip.gateway.filter(|gateway| gateway.is_ipv4() != ip.address.addr().is_ipv4()) {
            return Err(Error::internal(format!(
                "plugin \"{plugin}\" says gateway {gateway} for {}: they are of different IP versions",
                ip.address
            )));
        }
    }
    Ok(())
}

/// Runs a plugin as a delegate. The plugin gets the environment of this process with this verb, and the attachment's
/// standard input. Each gateway of the result has the IP version of its address. The error is the delegate's own error
/// object. The error has code 0 if the delegate failed without an error object, or if the object can't be understood. A
/// delegate's code 110 becomes 999.
pub fn run(plugin: &str, path: &Path, run: &Context, verb: Verb) -> Result<Option<CniResult>, Error> {
    let result = run_with(path, run, verb, run.request.stdin.to_string())?;
    one_family(plugin, result.iter().flat_map(|result| &result.ips))?;
    Ok(result)
}

/// Like [`run`], but with this standard input.
pub fn run_with(path: &Path, run: &Context, verb: Verb, input: String) -> Result<Option<CniResult>, Error> {
    // The values come from the request: they equal the values of the environment, except in garbage collection, which
    // acts for other attachments.
    let request = run.request;
    let variables = [
        ("CNI_COMMAND", verb.as_str()),
        ("CNI_CONTAINERID", &request.container_id),
        ("CNI_IFNAME", &request.ifname),
        ("CNI_NETNS", &request.netns),
        ("CNI_PATH", &request.path),
    ];
    let program = Program {
        path: path.to_owned(),
        arguments: Vec::new(),
        environment: Environment::Inherited(
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ),
        input,
    };
    let output =
        run.system.runner.run(&program, run.fixed.deadline.answer_by()).map_err(|error| unrunnable(path, &error))?;
    if output.status != Some(0) {
        return Err(of_program(failure(&output)));
    }
    for line in output.stderr.trim_end().lines() {
        crate::say!("{}", line);
    }
    match verb {
        Verb::Add => CniResult::parse_output(output.stdout.as_bytes(), LIMIT, &request.conf.cni_version).map(Some),
        _ => Ok(None),
    }
}

fn unrunnable(path: &Path, error: &std::io::Error) -> Error {
    if error.raw_os_error() == Some(Errno::ETIMEDOUT as i32) {
        return Error::internal(format!("native plugin {} ran past the deadline and was killed", path.display()));
    }
    Error::new(code::UNKNOWN, format!("netplugin failed with no error message: fork/exec {}: {error}", path.display()))
}

/// Returns the native library's error for a delegate that failed.
fn failure(output: &ProgramOutput) -> Error {
    let ProgramOutput { status, ended, stdout, stderr } = output;
    let unknown = |words: String| Error::new(code::UNKNOWN, words);
    if !stdout.is_empty() {
        let parsed = Json::parse(stdout.as_bytes(), LIMIT).and_then(|json| Error::parse(&json));
        return parsed.unwrap_or_else(|error| {
            unknown(format!("netplugin failed but error parsing its diagnostic message {stdout:?}: {error}"))
        });
    }
    if !stderr.is_empty() {
        return unknown(format!("netplugin failed: {stderr:?}"));
    }
    let status = status.map_or_else(|| ended.clone(), |code| format!("exit status {code}"));
    unknown(format!("netplugin failed with no error message: {status}"))
}
