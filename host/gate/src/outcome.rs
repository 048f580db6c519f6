//! What a guest printed, before anybody believes it.

use crate::policy::Granted;
use crate::session::Session;
use postern_cni::{CniResult, Error, IpConfig, Json, Verb};

/// What a guest may print; the sandbox stops at the same size.
const LIMIT: usize = 1 << 20;

/// Reads a guest's output: a result for a successful ADD, nothing for the other verbs, an error object for a failure.
/// `loopback` says that `lo` is the plugin's business, and its addresses are no claim then.
///
/// # Errors
/// The guest's own error, or code 999 if it printed something else, or a result that claims what isn't so.
pub fn read(
    session: &Session,
    granted: &Granted,
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
    believe(session, granted, plugin, loopback, &result)?;
    Ok(Some(result))
}

/// A result may name links and addresses that this run was given or found, or that `prevResult` has: nothing else.
fn believe(
    session: &Session,
    granted: &Granted,
    plugin: &str,
    loopback: bool,
    result: &CniResult,
) -> Result<(), Error> {
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
        if !(loopback && ip.address.addr().is_loopback()) {
            believe_address(session, granted, plugin, ip)?;
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

/// An address is the attachment's own: leased in this run, handed out by IPAM, or in `prevResult`. Only who is asked for
/// addresses can bring new ones, and only those that its policy names.
fn believe_address(session: &Session, granted: &Granted, plugin: &str, ip: &IpConfig) -> Result<(), Error> {
    let address = ip.address;
    let owned = session.owns(&address);
    let agrees = session.own.iter().any(|own| own.net == address && own.agrees_with(ip.gateway));
    if session.request.conf.ipam_type != plugin {
        return match (owned, ip.gateway) {
            (true, _) if agrees => Ok(()),
            (true, Some(gateway)) => Err(Error::internal(format!(
                "plugin \"{plugin}\" claims gateway {gateway} for {address}, which neither IPAM nor prevResult gave"
            ))),
            _ => Err(Error::internal(format!(
                "plugin \"{plugin}\" claims address {address}, which neither IPAM nor prevResult gave"
            ))),
        };
    }
    let refused = |what: String, line: String| {
        let file = granted.operator_file();
        Err(Error::internal(format!("plugin \"{plugin}\" hands out {what}, which it neither leased nor may choose"))
            .with_details(format!("an operator can allow it with `[result] {line}` in {file}")))
    };
    if !owned && !granted.may_hand_out(&address) {
        return refused(format!("address {address}"), format!("addresses = [\"{address}\"]"));
    }
    match ip.gateway {
        Some(gateway) if !agrees && !granted.may_name_gateway(&gateway) => {
            refused(format!("gateway {gateway} for {address}"), format!("gateways = [\"{gateway}\"]"))
        }
        _ => Ok(()),
    }
}

fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(200).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
