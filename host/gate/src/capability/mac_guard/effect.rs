//! Spoofing protection.

use crate::capability::leaves::{EffectKind, Reapplied};
use crate::capability::link_settings::effect::guarded;
use crate::context::{Context, System, View};
use crate::effect::{Effect, Port, Veth, in_record};
use crate::errors::{about, firewall_error, kernel_error};
use crate::others;
use crate::request::Request;
use crate::right::Right;
use postern_firewall::macguard::{self, native_id};
use postern_kernel::Link;
use postern_types::{ErrorCode, Mac, OpError};
use serde::{Deserialize, Serialize};
use std::cell::OnceCell;
use std::path::Path;

/// Spoofing protection. Earlier versions recorded no fields. Then the protection has the native name, and is for the
/// record's pair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacGuard {
    /// The name in the rules and chains; `None` for the native plugins' name of the attachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The host end that is protected.
    #[serde(default, rename = "port", skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The only address that may send on the host end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
}

impl EffectKind for MacGuard {
    /// Removes the rules, except rules of other attachments with equal names. A name that rules can't have needs no
    /// removal.
    ///
    /// Before that, the protected port is set down, so that no frame of the container passes the port without
    /// protection.
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        let host = self.host.as_deref();
        let noted = recorded(run).into_iter().find(|(guard, _)| (&guard.id, &guard.host) == (&self.id, &self.host));
        let handles = noted.map(|(_, handles)| handles).unwrap_or_default();
        let id = self.id.clone().unwrap_or_else(|| native(run.request));
        take_down(run, &id, host)?;
        let ends = run.journal.pairs().into_iter().map(|pair| pair.host);
        let ends = ends.chain(run.journal.ports().into_iter().map(|port| port.name));
        let own: Vec<String> = host.map(str::to_owned).into_iter().chain(ends).collect();
        let netlink = run.system.host()?;
        let is_there = |port: &str| !matches!(netlink.link_by_name(port), Ok(None));
        // Without a recorded pair, a native plugin made the attachment, or the record is lost. The rules are found by
        // their names, except rules that another record claims.
        let claimed = OnceCell::new();
        let is_claimed = |port: &str| match claimed.get_or_init(|| host_ends_of_others(run.view())) {
            Some(ports) => ports.iter().any(|claimed| claimed == port),
            None => true,
        };
        // The names count too if a native plugin has made the attachment again, because no record lists the new pair.
        let is_anothers = |port: &str| match own.is_empty() || run.journal.is_replaced() {
            true => is_there(port) && is_claimed(port),
            false => !own.iter().any(|own| own == port) && is_there(port),
        };
        run.system.unless_absent(|nft| macguard::remove_unless(nft, &id, &handles, is_anothers)).map(drop)
    }

    fn words(&self) -> String {
        "spoofing protection".to_owned()
    }

    fn reapply(&self, run: &mut Context) -> Result<Reapplied, OpError> {
        // Earlier versions did not record port and address. Then only an ADD can make the rules again.
        let (Some(host), Some(mac)) = (&self.host, guarded(run.journal, self)) else { return Ok(Reapplied::NoRules) };
        if is_whole(run, host, mac)? {
            return Ok(Reapplied::Complete);
        }
        let handles = follow(run.view(), self, host, mac)?;
        run.journal.known_by(&self.clone().into(), &handles);
        Ok(Reapplied::Restored)
    }

    fn right(&self) -> Right<'_> {
        Right::Network
    }
}

/// Returns the native plugins' name for the attachment's rules.
pub(crate) fn native(request: &Request) -> String {
    native_id(&request.container_id, &request.ifname)
}

/// Returns the guards that the record lists, each with the rule handles from the kernel.
pub(crate) fn recorded(run: &Context) -> Vec<(MacGuard, Vec<u64>)> {
    let effects = run.journal.effects();
    effects.into_iter().filter_map(|noted| Some((MacGuard::of(&noted.effect)?.clone(), noted.handles))).collect()
}

/// True if all rules exist that let this host end send only with this address. The rules' name is in the record.
pub(crate) fn is_whole(run: &Context, host: &str, mac: Mac) -> Result<bool, OpError> {
    // The last recorded guard counts. An earlier guard, whose name was taken, may still be listed if the note of its
    // removal failed.
    let guard = recorded(run).into_iter().rev().find(|(guard, _)| guard.host.as_deref() == Some(host));
    let (guard, handles) = guard.unwrap_or_default();
    let id = guard.id.unwrap_or_else(|| native(run.request));
    macguard::check_known(&mut *run.system.nft()?, &id, host, mac.0, &handles).map_err(firewall_error)
}

/// Makes the rules, unless rules for another existing port have the name `id`. Returns the handles of the new rules.
pub(crate) fn claim(system: &System, id: &str, host: &str, mac: Mac) -> Result<Option<Vec<u64>>, OpError> {
    let netlink = system.host()?;
    // A port whose state can't be read counts as existing.
    let is_there = |port: &str| !matches!(netlink.link_by_name(port), Ok(None));
    macguard::claim(&mut *system.nft()?, id, host, mac.0, is_there).map_err(firewall_error)
}

/// Lets the port send only with this address, instead of its earlier address. Returns the handles of the new rules.
pub(crate) fn follow(view: View<'_>, guard: &MacGuard, host: &str, mac: Mac) -> Result<Vec<u64>, OpError> {
    let id = guard.id.clone().unwrap_or_else(|| native(view.request));
    claim(view.system, &id, host, mac)?.ok_or_else(|| name_is_taken(&id, host))
}

/// Returns the error for an ID that the rules of another port have.
pub(crate) fn name_is_taken(id: &str, host: &str) -> OpError {
    let message = format!("the rules named {id} guard a port that is not \"{host}\"");
    OpError::new(ErrorCode::Exists, id, message).hint("`postern doctor` shows the owner of these rules")
}

/// Sets the protected port down, if it is up and in a bridge. The port is `host`, or else all ports that the record
/// lists, or else the port that the rules name. Another plugin's link leaves its bridge instead.
fn take_down(run: &Context, id: &str, host: Option<&str>) -> Result<(), OpError> {
    let netlink = run.system.host()?;
    let (pairs, joined) = (run.journal.pairs(), run.journal.ports());
    for port in joined.iter().filter(|port| host.is_none_or(|host| host == port.name)) {
        port.leave(netlink)?;
    }
    let mut ports = Vec::new();
    for pair in pairs.iter().filter(|pair| host.is_none_or(|host| host == pair.host)) {
        ports.extend(pair.end(netlink)?);
    }
    if pairs.is_empty() && joined.is_empty() {
        ports.extend(unrecorded(run.view(), id)?);
    }
    for port in ports.iter().filter(|port| port.up && port.master.is_some()) {
        netlink.set_down(port.index).map_err(about(&port.name))?;
    }
    Ok(())
}

/// Returns the ports in the rules of an attachment without a recorded pair. The other end of a port must be in the
/// container's namespace, and no other attachment's record may list the port.
fn unrecorded(view: View<'_>, id: &str) -> Result<Vec<Link>, OpError> {
    // If the container's namespace is gone, the pair is gone.
    let Ok(namespace) = view.system.namespace() else { return Ok(Vec::new()) };
    let netlink = view.system.host()?;
    let Some(number) = netlink.namespace_number(namespace.fd()).map_err(kernel_error)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for port in view.system.unless_absent(macguard::list)?.iter().filter(|port| port.id == id) {
        let link = netlink.link_by_name(&port.ifname).map_err(kernel_error)?;
        let link = link.filter(|link| link.kind == "veth" && link.peer_netnsid == Some(number));
        let is_anothers =
            |link: &Link| host_ends_of_others(view).is_none_or(|ends| ends.iter().any(|end| link.name == *end));
        found.extend(link.filter(|link| !is_anothers(link)));
    }
    Ok(found)
}

/// Returns the host ends that the records of other attachments list; `None` if the records can't be read.
fn host_ends_of_others(view: View<'_>) -> Option<Vec<String>> {
    let own = view.key().ok()?;
    let summaries = others::records_here(view).ok()?;
    // The file name still shows the attachment of an unreadable record that was set aside.
    let is_own = |path: &Path| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| own.is_named(name));
    let others = summaries.into_iter().filter(|summary| !is_own(&summary.path));
    let effects = others.flat_map(|summary| in_record(&summary).collect::<Vec<_>>());
    let of_pair = |effect: &Effect| Veth::of(effect).map(|pair| pair.host.clone());
    let end = |effect: Effect| of_pair(&effect).or_else(|| Port::of(&effect).map(|port| port.name.clone()));
    Some(effects.filter_map(end).collect())
}
