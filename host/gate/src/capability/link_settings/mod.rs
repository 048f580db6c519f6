//! `link-settings`: attributes of the attachment's own link. DEL restores their earlier values.

pub mod effect;

use crate::capability::facts::{Facts, NEVER};
use crate::capability::link_settings::effect::{apply, guard, lost, of, parse, put_back, shown, write_file};
use crate::capability::mac_guard::effect::follow;
use crate::capability::shared::may_be_native;
use crate::cause::{LARGEST_MTU, no_address, no_mtu};
use crate::context::{Context, System};
use crate::effect::LinkChange;
use crate::errors::{kernel_error, link_gone, state_error};
use crate::gate::Gate;
use crate::request::Request;
use crate::right::Right;
use crate::{collect, others};
use postern_cni::{Fields, Verb};
use postern_kernel::Link;
pub use postern_policy::capability::link_settings::DEFAULT_DIRECTORY;
use postern_policy::capability::link_settings::directory;
use postern_state::Backups;
use postern_types::{Capability, ErrorCode, Handle, LinkSettings, Mac, OpError, host};
use std::path::Path;

/// The longest file of a native plugin that is read, in bytes. The native plugin writes about 100 bytes.
const LIMIT: u64 = 4096;

pub(crate) const FACTS: Facts = Facts {
    keeps: |request, granted| {
        let directory = directory(&request.conf);
        let may_change = || granted.is_some_and(|granted| granted.may_change_link(&directory));
        let is_needed = request.verb == Verb::Del || request.verb == Verb::Add && may_change();
        is_needed.then(|| Right::Backups(directory.into()))
    },
    ..NEVER
};

impl host::LinkSettings for Gate<'_> {
    fn change(&mut self, handle: Handle, settings: &LinkSettings) -> Result<(), OpError> {
        let (index, name) = self.guest.own(handle)?;
        possible(settings)?;
        let directory = directory(&self.run.request.conf);
        if !Path::new(&directory).is_absolute() {
            let message = format!("dataDir {directory} is relative, and would be another directory for each caller");
            return Err(OpError::new(ErrorCode::InvalidArgument, directory, message).hint("give an absolute path"));
        }
        let link = own_link(self.run.system, index, &name)?;
        if settings.is_empty() {
            return Ok(());
        }
        let port = guarded_port(self, settings)?;
        let netlink = self.run.system.container_netlink()?;
        let (lost_addresses, lost_routes) = lost(netlink, &link, settings).map_err(kernel_error)?;
        let (before, after) = (of(&link, settings), settings.clone());
        let change = LinkChange { index, before, after, directory, port, lost_addresses, lost_routes };
        self.run.journal.intend(self.run.view(), change.clone())?;
        write_file(self.run, &change.directory, None)?;
        apply(netlink, &link, settings)?;
        if let (Some(port), Some(mac)) = (&change.port, settings.mac)
            && let Some(guard) = guard(self.run, port)?
        {
            let handles = follow(self.run.view(), &guard, port, mac)?;
            self.run.journal.known_by(&guard.into(), &handles);
        }
        if settings.mac.is_some() {
            self.run.own.container_mac = settings.mac;
        }
        Ok(())
    }

    fn check(&mut self, handle: Handle, settings: &LinkSettings) -> Result<(), OpError> {
        let (index, name) = self.guest.own(handle)?;
        let have = of(&own_link(self.run.system, index, &name)?, settings);
        let shown = |of: &LinkSettings| shown(of).map(Option::unwrap_or_default);
        // The native plugin's words and order.
        let names = ["Ethernet", "promisc", "MTU", "all-multicast mode", "Transmit Queue Length"];
        let compared = names.into_iter().zip(shown(settings).into_iter().zip(shown(&have)));
        let Some((what, (wanted, found))) = { compared }.find(|(_, (wanted, found))| wanted != found) else {
            return Ok(());
        };
        let (words, found) = match what {
            "promisc" => (format!("link {name} configured promisc"), u8::from(found == "true").to_string()),
            what => (format!("configured {what} of {name}"), found),
        };
        let message = format!("Error: Tuning {words} is {wanted}, current value is {found}");
        Err(OpError::new(ErrorCode::Mismatch, &name, message))
    }

    fn restore(&mut self) -> Result<(), OpError> {
        let run = &mut *self.run;
        run.journal.only_of_this_run(run.request, LinkChange::is, "changed link")?;
        collect::take_back(run, LinkChange::is)?;
        let is_known = self.guest.granted().knows(Capability::LinkSettings);
        if is_known && may_be_native::<LinkChange>(run) { restore_native(run) } else { Ok(()) }
    }
}

/// Refuses attributes that no link can have, before anything is recorded.
fn possible(settings: &LinkSettings) -> Result<(), OpError> {
    if let Some((mac, (why, way_out))) = settings.mac.and_then(|mac| Some((mac, no_address(mac)?))) {
        let message = format!("cannot assign requested address: {why}");
        return Err(OpError::new(ErrorCode::InvalidArgument, mac.to_string(), message).hint(way_out));
    }
    if let Some((mtu, (why, way_out))) = settings.mtu.and_then(|mtu| Some((mtu, no_mtu(mtu, LARGEST_MTU)?))) {
        let message = format!("invalid argument: {why}");
        return Err(OpError::new(ErrorCode::InvalidArgument, mtu.to_string(), message).hint(way_out));
    }
    Ok(())
}

/// Returns the port with spoofing protection of this attachment, if the address is to be changed. The rules change only
/// to an address that the operator or the runtime names: policy may allow more addresses. A plugin of a third party may
/// have its own key for the address, and the grant names this key.
fn guarded_port(gate: &Gate<'_>, settings: &LinkSettings) -> Result<Option<String>, OpError> {
    let run = &*gate.run;
    let Some(mac) = settings.mac else { return Ok(None) };
    let Some(end) = others::end(run)? else { return Ok(None) };
    if guard(run, &end.name.to_string())?.is_none() {
        return Ok(None);
    }
    if gate.guest.granted().takes_address(mac) || named_addresses(run.request).contains(&mac) {
        return Ok(Some(end.name.to_string()));
    }
    let message = format!(
        "neither configuration nor CNI_ARGS names {mac}: the spoofing protection of \"{}\" does not change to this \
         address",
        end.name
    );
    Err(OpError::new(ErrorCode::InvalidArgument, mac.to_string(), message)
        .hint("name the address as `mac`, `args.cni.mac` or `runtimeConfig.mac`, as MAC in CNI_ARGS, or by the key that [grant.link-settings] `macs` names"))
}

/// Returns the addresses that configuration, `args`, `CNI_ARGS` and `runtimeConfig` name for the link.
fn named_addresses(request: &Request) -> Vec<Mac> {
    let fields = request.conf.fields();
    let text = |fields: &Fields<'_>| fields.string("mac").ok().flatten();
    let runtime = fields.object("runtimeConfig").ok().flatten();
    let args = fields.object("args").ok().flatten();
    let cni = args.as_ref().and_then(|args| args.object("cni").ok().flatten());
    let variable = request.args().split(';').rev().find_map(|pair| pair.strip_prefix("MAC=")).map(str::to_owned);
    let named = [text(&fields), runtime.as_ref().and_then(text), cni.as_ref().and_then(text), variable];
    named.into_iter().flatten().filter_map(|text| text.parse().ok()).collect()
}

fn own_link(system: &System, index: u32, name: &str) -> Result<Link, OpError> {
    system.container_netlink()?.link_by_index(index).map_err(kernel_error)?.ok_or_else(|| link_gone(name))
}

/// Restores the values in a native plugin's file, and removes the file. No record lists the change.
fn restore_native(run: &Context) -> Result<(), OpError> {
    let (place, request) = (directory(&run.request.conf), run.request);
    if !Path::new(&place).is_absolute() {
        return Ok(());
    }
    let name = Backups::name(&request.container_id, &request.ifname);
    let found = Backups::open(Path::new(&place)).and_then(|backups| {
        let Some(backups) = backups else { return Ok(None) };
        Ok(backups.read(&name, LIMIT)?.map(|content| (backups, content)))
    });
    let (backups, content) = match found {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(()),
        // Another user may have written the file: its values are not used, and DEL continues.
        Err(error) => {
            crate::say!("postern: the native plugin's file about {} is not used: {error}", request.ifname);
            return Ok(());
        }
    };
    if let Some(why) = run.system.hidden.as_deref() {
        crate::say!("postern: the earlier attributes of {} are not restored: {why}", request.ifname);
        return Ok(());
    }
    if let Some(netlink) = run.system.netlink_inside()? {
        let link = netlink.link_by_name(&request.ifname).map_err(kernel_error)?;
        match (link, parse(&content)) {
            (Some(link), _) if others::spares(run, &link)? => {}
            (Some(link), Some(before)) => put_back(netlink, &link, &before)?,
            (Some(_), None) => crate::say!("postern: {place}/{name} is no file of the native plugin: it is not used"),
            (None, _) => {}
        }
    }
    backups.remove(&name, &run.view().key()?).map(drop).map_err(state_error)
}
