//! The checks that a guest's output must pass.

use crate::DENIED;
use crate::attached::UnmetDemand;
use crate::budget::Common;
use crate::context::Context;
use crate::errors::kernel_error;
use crate::native;
use crate::own::OwnAddress;
use crate::request::Request;
use crate::sysfs::pci_of;
use ipnet::IpNet;
use postern_cni::{CniResult, Error, Interface, IpConfig, Json, Verb, code};
use postern_policy::Granted;
use postern_types::OpError;
use std::net::IpAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The greatest size of a guest's output in bytes; the sandbox has the same limit.
const LIMIT: usize = 1 << 20;

/// The facts of a run that are compared with a result.
pub struct RunFacts<'a> {
    /// The request.
    pub request: &'a Request,
    /// The attachment's addresses.
    pub own: &'a [OwnAddress],
    /// The links that guests were shown, and the gate's refusals.
    pub common: &'a Common,
    /// Returns the current state of the link that a result names. The link is in the container if the interface has a
    /// sandbox, and otherwise on the host.
    pub seen: &'a dyn Fn(&Interface) -> Result<Option<LinkAttributes>, OpError>,
    /// Returns the first demand of policy that the attachment's port does not meet.
    pub unmet_demand: &'a dyn Fn(&Granted) -> Result<Option<UnmetDemand>, OpError>,
}

/// The attributes of a link, except its name and address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkAttributes {
    /// The MTU in bytes.
    pub mtu: u32,
    /// The PCI device of the link.
    pub pci: Option<String>,
}

/// Returns the current state of a link that a result of this run names.
pub fn seen(run: &Context<'_>, interface: &Interface) -> Result<Option<LinkAttributes>, OpError> {
    let netlink = match interface.sandbox.is_empty() {
        true => run.system.host()?,
        false => run.system.container_netlink()?,
    };
    let link = netlink.link_by_name(&interface.name).map_err(kernel_error)?;
    // The kernel also finds a link by an alternative name, but results must use its main name.
    let link = link.filter(|link| link.name == interface.name);
    Ok(link.map(|link| LinkAttributes { mtu: link.mtu, pci: pci_of(&link) }))
}

/// Reads a guest's output: a result for a successful ADD, nothing for the other verbs, an error object for a failure.
/// `loopback` is true if the plugin's task is `lo`: then the addresses of `lo` are not checked as claims.
///
/// # Errors
/// The guest's own error. An error with code 999 if the guest printed something else, or a result with a false claim.
pub fn read(
    run: &RunFacts<'_>,
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
            Ok(error) if error.code == DENIED => refusal(run, plugin, error),
            // A native IPAM program that failed without an error object has code 0, "unknown", in the native library.
            Ok(error) if error.code == 0 && !error.msg.is_empty() => Error { code: code::INTERNAL, ..error },
            Ok(error) if !error.msg.is_empty() => error,
            _ if stdout.trim().is_empty() => {
                Error::internal(format!("plugin \"{plugin}\" failed with status {status} and printed no error"))
            }
            _ => Error::internal(format!(
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
    let result = CniResult::parse_output(stdout.as_bytes(), LIMIT, &run.request.conf.cni_version).map_err(|error| {
        Error::internal(format!("plugin \"{plugin}\" printed no CNI result: {error}")).with_details(excerpt(stdout))
    })?;
    require(run, granted, plugin)?;
    believe(run, granted, plugin, loopback, &result)?;
    Ok(Some(result))
}

/// Checks a guest's error that has the code of the gate's refusals. The error must contain the message of a refusal of
/// this run; other words may be around it. The details always come from the gate, because people copy them into
/// policies.
fn refusal(run: &RunFacts<'_>, plugin: &str, error: Error) -> Error {
    match run.common.refusals.iter().find(|refusal| error.msg.contains(&refusal.msg)) {
        Some(refusal) => Error { details: refusal.details.clone(), ..error },
        None => Error::internal(format!(
            "plugin \"{plugin}\" failed with code {DENIED}, which only the gate may use, but no refusal of the gate has \
             these words: {}",
            excerpt(&error.msg)
        )),
    }
}

/// Checks that a result names only links and addresses that this run was given or found, or that `prevResult` has.
fn believe(
    run: &RunFacts<'_>,
    granted: &Granted,
    plugin: &str,
    loopback: bool,
    result: &CniResult,
) -> Result<(), Error> {
    let request = run.request;
    let previous = request.previous();
    for interface in &result.interfaces {
        let before = previous
            .interfaces
            .iter()
            .find(|before| (&before.name, &before.sandbox) == (&interface.name, &interface.sandbox));
        let is_own = interface.name == request.ifname;
        let known = previous.interfaces.contains(interface)
            // The attachment's interface may have a new hardware address, even if an earlier plugin wrote another
            // sandbox.
            || (is_own && before.is_some())
            || (interface.sandbox == request.netns && (is_own || interface.name == "lo"))
            || (interface.sandbox.is_empty() && run.common.shown.contains(&interface.name));
        if !known {
            return Err(Error::internal(format!(
                "plugin \"{plugin}\" claims interface \"{}\", which it neither made nor was given",
                interface.name
            )));
        }
        believe_details(run, granted, plugin, interface, before)?;
    }
    // An address that is passed on unchanged belongs to the earlier plugin. The address, its gateway and its index are
    // not checked.
    let passes = |ip: &&IpConfig| request.conf.ipam_type != plugin && previous.ips.contains(ip);
    for ip in result.ips.iter().filter(|ip| !passes(ip)) {
        native::one_family(plugin, [ip])?;
        if !(loopback && ip.address.addr().is_loopback() && ip.gateway.is_none()) {
            believe_address(run, granted, plugin, ip)?;
        }
        let is_listed = |index| usize::try_from(index).is_ok_and(|index| index < result.interfaces.len());
        if !ip.interface.is_none_or(is_listed) {
            return Err(Error::internal(format!(
                "plugin \"{plugin}\" gives {} to an interface that its result does not have",
                ip.address
            )));
        }
    }
    Ok(())
}

/// Checks the attributes of a link in a result: MTU and PCI device. They must equal the kernel's values, or the values
/// in `before` (the link's entry in `prevResult`). A socket must exist, and policy must name it, because no guest can
/// make a socket.
fn believe_details(
    run: &RunFacts<'_>,
    granted: &Granted,
    plugin: &str,
    interface: &Interface,
    before: Option<&Interface>,
) -> Result<(), Error> {
    let Interface { name, mtu, pci_id, socket_path, .. } = interface;
    let claims = |what: String| Error::internal(format!("plugin \"{plugin}\" claims {what}"));
    let is_new = |is_said: bool, is_same: fn(&Interface, &Interface) -> bool| {
        is_said && !before.is_some_and(|before| is_same(before, interface))
    };
    if is_new(!socket_path.is_empty(), |a, b| a.socket_path == b.socket_path) {
        if !granted.has_object("result.sockets", socket_path) {
            return Err(claims(format!("socket \"{socket_path}\" for interface \"{name}\""))
                .with_details(granted.object_hint("result.sockets", socket_path)));
        }
        is_socket(socket_path)
            .map_err(|why| claims(format!("socket \"{socket_path}\" for interface \"{name}\": {why}")))?;
    }
    let says_mtu = is_new(*mtu != 0, |a, b| a.mtu == b.mtu);
    let says_device = is_new(!pci_id.is_empty(), |a, b| a.pci_id == b.pci_id);
    if !says_mtu && !says_device {
        return Ok(());
    }
    let seen = (run.seen)(interface).map_err(|error| {
        Error::internal(format!(
            "the claims of plugin \"{plugin}\" about interface \"{name}\" can't be checked: {error}"
        ))
    })?;
    let seen = seen.ok_or_else(|| claims(format!("interface \"{name}\", which does not exist")))?;
    if says_mtu && *mtu != i64::from(seen.mtu) {
        return Err(claims(format!("MTU {mtu} for interface \"{name}\", which has {}", seen.mtu)));
    }
    if says_device && seen.pci.as_ref() != Some(pci_id) {
        let is = seen.pci.map_or_else(|| "belongs to none".to_owned(), |pci| format!("belongs to {pci}"));
        return Err(claims(format!("PCI device \"{pci_id}\" for interface \"{name}\", which {is}")));
    }
    Ok(())
}

/// Checks that the path itself is a socket. A symbolic link is refused, because its target could change before the
/// socket is used.
#[expect(clippy::disallowed_methods, reason = "a path of the result, which is looked at and not opened")]
fn is_socket(path: &str) -> Result<(), String> {
    let found = Path::new(path).symlink_metadata().map_err(|error| error.to_string())?;
    if found.file_type().is_socket() { Ok(()) } else { Err("it is no socket".to_owned()) }
}

/// Checks that the demands of policy on an ADD are met now.
fn require(run: &RunFacts<'_>, granted: &Granted, plugin: &str) -> Result<(), Error> {
    let unmet_demand = (run.unmet_demand)(granted).map_err(|error| {
        Error::internal(format!("the work of plugin \"{plugin}\" can't be compared with its policy: {error}"))
    })?;
    let Some(UnmetDemand { what, line }) = unmet_demand else { return Ok(()) };
    let details = match line.as_str() {
        "[grant.mac-guard] required" => {
            format!("{line} demands it; {}", granted.object_hint("mac-guard.required", "false"))
        }
        _ => format!("{line} demands it, in its policy or in {}", granted.operator_file()),
    };
    Err(Error::internal(format!("plugin \"{plugin}\" {what}")).with_details(details))
}

/// Checks that an address is the attachment's own: leased in this run, given by IPAM, or made by an earlier plugin.
///
/// Addresses of `prevResult` may always be passed on unchanged. Only the IPAM plugin can add new addresses, and only
/// addresses that its policy names.
fn believe_address(run: &RunFacts<'_>, granted: &Granted, plugin: &str, ip: &IpConfig) -> Result<(), Error> {
    let address = ip.address;
    let owned = run.own.iter().any(|own| own.net == address);
    let agrees = run.own.iter().any(|own| own.net == address && own.agrees_with(ip.gateway));
    if run.request.conf.ipam_type != plugin {
        let previous = run.request.previous();
        if previous.ips.iter().any(|known| (known.address, known.gateway) == (ip.address, ip.gateway)) {
            return Ok(());
        }
        let claims = |what: String| {
            Error::internal(format!("plugin \"{plugin}\" claims {what}, which neither IPAM nor prevResult gave"))
        };
        return match (owned, ip.gateway) {
            (true, _) if agrees => Ok(()),
            (true, Some(gateway)) => Err(claims(format!("gateway {gateway} for {address}"))),
            _ if run.request.conf.ipam_type.is_empty() => {
                let details = format!("`ipam` has no `type`: \"type\": \"{plugin}\" lets the plugin give addresses");
                Err(claims(format!("address {address}")).with_details(details))
            }
            _ => Err(claims(format!("address {address}"))),
        };
    }
    let refused = |what: String, hint: String| {
        Err(Error::internal(format!("plugin \"{plugin}\" hands out {what}, which it neither leased nor may choose"))
            .with_details(hint))
    };
    if !owned && !granted.may_hand_out(&address) {
        return refused(format!("address {address}"), granted.addresses_hint("result.addresses", &address));
    }
    match ip.gateway {
        Some(gateway) if !agrees && !granted.may_name_gateway(&address, &gateway) => refused(
            format!("gateway {gateway} for {address}"),
            granted.object_hint("result.gateways", &gateway_line(&address, &gateway)),
        ),
        _ => Ok(()),
    }
}

/// Returns the policy line that allows a gateway for all addresses of a network.
fn gateway_line(address: &IpNet, gateway: &IpAddr) -> String {
    match address.contains(gateway) {
        true => gateway.to_string(),
        false => format!("{} via {gateway}", address.trunc()),
    }
}

fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(200).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests;
