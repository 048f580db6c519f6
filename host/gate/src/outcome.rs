//! What a guest printed, before anybody believes it.

use crate::session::Session;
use postern_cni::{CniResult, Error, Json, Verb};

/// What a guest may print; the sandbox stops at the same size.
const LIMIT: usize = 1 << 20;

/// `loopback` says that `lo` is the plugin's business, and its addresses are no claim then.
///
/// Reads a guest's output: a result for a successful ADD, nothing for the other verbs, an error object for a failure.
///
/// # Errors
/// The guest's own error, or code 999 if it printed something else, or a result that claims what isn't so.
pub fn read(
    session: &Session,
    plugin: &str,
    verb: Verb,
    stdout: &str,
    status: u8,
    loopback: bool,
) -> Result<Option<CniResult>, Error> {
    if status != 0 {
        let parsed = Json::parse(stdout.as_bytes(), LIMIT).and_then(|json| Error::parse(&json));
        return Err(match parsed {
            Ok(error) => error,
            Err(_) if stdout.trim().is_empty() => {
                Error::internal(format!("plugin \"{plugin}\" failed with status {status} and printed no error"))
            }
            Err(_) => Error::internal(format!(
                "plugin \"{plugin}\" failed with status {status} and printed no CNI error object: {}",
                excerpt(stdout)
            )),
        });
    }
    if verb != Verb::Add {
        return Ok(None);
    }
    if stdout.trim().is_empty() {
        return Err(Error::internal(format!("plugin \"{plugin}\" ended without printing a result")));
    }
    let result =
        CniResult::parse_output(stdout.as_bytes(), LIMIT, &session.request.conf.cni_version).map_err(|error| {
            Error::internal(format!("plugin \"{plugin}\" printed no CNI result: {error}")).with_details(excerpt(stdout))
        })?;
    believe(session, plugin, loopback, &result)?;
    Ok(Some(result))
}

/// A result may name links and addresses that this run was given or found, or that `prevResult` has: nothing else.
fn believe(session: &Session, plugin: &str, loopback: bool, result: &CniResult) -> Result<(), Error> {
    let request = &session.request;
    let previous = request.conf.previous_result().ok().flatten().unwrap_or_default();
    for interface in &result.interfaces {
        let known = previous.interfaces.contains(interface)
            || (interface.sandbox == request.netns && (interface.name == request.ifname || interface.name == "lo"))
            || (interface.sandbox.is_empty() && session.shown.contains(&interface.name));
        if !known {
            return Err(Error::internal(format!(
                "plugin \"{plugin}\" claims interface \"{}\", which it neither made nor was given",
                interface.name
            )));
        }
    }
    for ip in &result.ips {
        let known = previous.ips.iter().any(|known| known.address == ip.address)
            || session.owns(&ip.address)
            || request.conf.ipam_type == plugin
            || (loopback && ip.address.addr().is_loopback());
        if !known {
            return Err(Error::internal(format!(
                "plugin \"{plugin}\" claims address {}, which neither IPAM nor prevResult gave",
                ip.address
            )));
        }
        if ip.interface.is_some_and(|index| index >= result.interfaces.len()) {
            return Err(Error::internal(format!(
                "plugin \"{plugin}\" gives {} to an interface that its result does not have",
                ip.address
            )));
        }
    }
    Ok(())
}

fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(200).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
