//! The effect of changed attributes of the attachment's link. Its removal restores the earlier values.
//!
//! The record has the earlier values. Postern also writes a file in the native plugin's form, for a native plugin that
//! may have to undo the change. This module writes and removes this file, and never uses its values.

use crate::capability::leaves::{ByContents, EffectKind};
use crate::capability::mac_guard::effect::{MacGuard, follow};
use crate::context::{Context, Journal};
use crate::effect::Addresses;
use crate::errors::{kernel_error, native_error, state_error};
use crate::in_container::{Losable, as_far_as_possible, give_back, losable, unless_lasting};
use crate::places;
use crate::right::Right;
use ipnet::IpNet;
use postern_cni::unicode;
use postern_kernel::{KernelError, Link, Netlink};
use postern_state::{Backups, Stage};
use postern_types::{ErrorCode, KeptRoute, LinkSettings, Mac, OpError};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Changed attributes of the attachment's link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkChange {
    /// The link's index in the container's namespace. Root in the container cannot change the index.
    pub index: u32,
    /// The changed attributes, as they were before.
    pub before: LinkSettings,
    /// The changed attributes, as they were afterwards.
    pub after: LinkSettings,
    /// The directory with the native plugin's file.
    pub directory: String,
    /// The port whose spoofing protection was changed to the new address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// IPv6 addresses that the link loses by the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_addresses: Vec<IpNet>,
    /// IPv6 routes that the link loses by the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_routes: Vec<KeptRoute>,
}

/// The least MTU of a link with IPv6 (RFC 8200, section 5). With a smaller MTU, the kernel removes IPv6 from the link.
const LEAST_WITH_IPV6: u32 = 1280;

/// Returns the IPv6 addresses and routes that the link loses by the change.
pub(crate) fn lost(netlink: &Netlink, link: &Link, settings: &LinkSettings) -> Result<Losable, KernelError> {
    match settings.mtu.is_some_and(|mtu| mtu < LEAST_WITH_IPV6) && link.mtu >= LEAST_WITH_IPV6 {
        true => losable(netlink, link.index),
        false => Ok(Losable::default()),
    }
}

impl LinkChange {
    /// Restores the address of the port's spoofing protection from the record. The link's address is not used: root in
    /// the container can change it at any time.
    fn follow_back(&self, run: &Context) -> Result<(), OpError> {
        let Some(port) = &self.port else { return Ok(()) };
        let mut others = run.journal.recorded::<LinkChange>();
        if let Some(at) = others.iter().rposition(|change| change == self) {
            others.remove(at);
        }
        if let Some(guard) = guard(run, port)?
            && let Some(mac) = led_to(&others, &guard)
        {
            follow(run.view(), &guard, port, mac)?;
        }
        Ok(())
    }
}

impl EffectKind for LinkChange {
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        let container = run.netlink_of_record()?;
        // If the link can't be reached, its protection must not change either. If all sections are removed, link and
        // protection go with the attachment.
        let is_whole = run.journal.sections().iter().all(|section| section.stage == Stage::Ending);
        if let (None, Some(why), false) = (container, run.system.hidden.as_deref(), is_whole) {
            let message = format!("the container's namespace may still exist, with the changed link in it: {why}");
            return Err(OpError::new(ErrorCode::TryAgain, &run.request.netns, message)
                .hint("run DEL, or `postern gc` once the container is gone"));
        }
        if let Some(netlink) = container {
            // The link comes first, then its protection. A kill between the two steps leaves a link that can't send,
            // and the next removal repeats both steps.
            if let Some(link) = as_far_as_possible(|| netlink.link_by_index(self.index))? {
                put_back(netlink, &link, &self.before)?;
                give_back(run, netlink, link.index, (&self.lost_addresses, &self.lost_routes))?;
            }
            self.follow_back(run)?;
        }
        // The link is restored. If the native plugin's file can't be written, because its path is unsafe or is no file,
        // the attachment is still removed.
        let directory = Path::new(&self.directory);
        let file = directory.join(Backups::name(&run.request.container_id, &run.request.ifname));
        match write_file(run, &self.directory, Some(self)) {
            Err(error) if !postern_state::is_trusted_way(directory) || !places::is_file(&file) => {
                crate::say!("postern: the native plugin's file about {} stays: {error}", run.request.ifname);
                Ok(())
            }
            done => done,
        }
    }

    fn words(&self) -> String {
        format!("{} instead of {}", self.after, self.before)
    }

    fn right(&self) -> Right<'_> {
        Right::Backups(self.directory.as_str().into())
    }
}

impl ByContents for LinkChange {
    fn addresses(&self) -> Addresses<'_> {
        // A lost address must not come back after its lease was given back.
        if self.lost_addresses.is_empty() { Addresses::Unconcerned } else { Addresses::Used }
    }
}

/// Returns the recorded spoofing protection of an existing port. If there are several, the last protection is in use.
pub(crate) fn guard(run: &Context, port: &str) -> Result<Option<MacGuard>, OpError> {
    if run.system.host()?.link_by_name(port).map_err(kernel_error)?.is_none() {
        return Ok(None);
    }
    Ok(run.journal.recorded::<MacGuard>().into_iter().rfind(|guard| guard.host.as_deref() == Some(port)))
}

/// Returns the attributes of a link that these settings concern.
pub(crate) fn of(link: &Link, settings: &LinkSettings) -> LinkSettings {
    LinkSettings {
        mac: settings.mac.and(link.mac).map(Mac),
        mtu: settings.mtu.map(|_| link.mtu),
        promisc: settings.promisc.map(|_| link.promisc),
        allmulti: settings.allmulti.map(|_| link.allmulti),
        tx_queue_length: settings.tx_queue_length.map(|_| link.tx_queue_length),
    }
}

/// Sets the attributes of a link that differ from `settings`. All attributes are tried; the first failure is returned.
pub(crate) fn apply(netlink: &Netlink, link: &Link, settings: &LinkSettings) -> Result<(), OpError> {
    for (what, done) in change(netlink, link, settings) {
        done.map_err(|error| {
            native_error(error, &link.name, format_args!("failed to set the {what} of \"{}\"", link.name))
        })?;
    }
    Ok(())
}

/// Restores the earlier attributes of a link. Root in the container can make an attribute impossible to restore. This
/// is no error: the attribute stays.
pub(crate) fn put_back(netlink: &Netlink, link: &Link, before: &LinkSettings) -> Result<(), OpError> {
    let mut done = change(netlink, link, before);
    if done.iter().any(|(_, done)| done.is_err()) {
        done = change(netlink, link, before);
    }
    done.into_iter().try_for_each(|(_, done)| unless_lasting(done))
}

/// Sets each of these attributes that differs. Returns the outcomes.
fn change(netlink: &Netlink, link: &Link, settings: &LinkSettings) -> Vec<(&'static str, Result<(), KernelError>)> {
    let LinkSettings { mac, mtu, promisc, allmulti, tx_queue_length } = settings;
    let index = link.index;
    let mac = mac.filter(|mac| link.mac != Some(mac.0)).map(|mac| netlink.set_mac(index, mac.0));
    let promisc = promisc.filter(|on| link.promisc != *on).map(|on| netlink.set_promisc(index, on));
    let mtu = mtu.filter(|mtu| link.mtu != *mtu).map(|mtu| netlink.set_mtu(index, mtu));
    let allmulti = allmulti.filter(|on| link.allmulti != *on).map(|on| netlink.set_allmulti(index, on));
    let length = tx_queue_length.filter(|length| link.tx_queue_length != *length);
    let length = length.map(|length| netlink.set_tx_queue_length(index, length));
    let tried = [
        ("address", mac),
        ("promiscuous mode", promisc),
        ("MTU", mtu),
        ("reception of all multicast frames", allmulti),
        ("queue length", length),
    ];
    tried.into_iter().filter_map(|(what, done)| Some((what, done?))).collect()
}

/// Writes the native plugin's file. The file has the value of each attribute before the first change in the record. The
/// file is removed if the record lists no change. `without` is a change that is being undone.
pub(crate) fn write_file(run: &Context, directory: &str, without: Option<&LinkChange>) -> Result<(), OpError> {
    let mut changes = run.journal.recorded::<LinkChange>();
    changes.retain(|change| change.directory == directory);
    if let Some(at) = without.and_then(|without| changes.iter().rposition(|change| change == without)) {
        changes.remove(at);
    }
    let name = Backups::name(&run.request.container_id, &run.request.ifname);
    let Some(backups) = Backups::open(Path::new(directory)).map_err(state_error)? else {
        return if changes.is_empty() { Ok(()) } else { Err(no_directory(directory)) };
    };
    if changes.is_empty() {
        return backups.remove(&name, &run.view().key()?).map(drop).map_err(state_error);
    }
    let mut first = LinkSettings::default();
    for LinkChange { before, .. } in changes {
        first.mac = first.mac.or(before.mac);
        first.mtu = first.mtu.or(before.mtu);
        first.promisc = first.promisc.or(before.promisc);
        first.allmulti = first.allmulti.or(before.allmulti);
        first.tx_queue_length = first.tx_queue_length.or(before.tx_queue_length);
    }
    backups.write(&name, &run.view().key()?, text(&first).as_bytes()).map_err(state_error)
}

/// The error for a directory of the configuration that can't be made.
pub(crate) fn no_directory(directory: &str) -> OpError {
    let message = format!("the directory {directory} does not exist, and can't be made");
    OpError::new(ErrorCode::Io, directory, message).hint("name another directory with `dataDir`")
}

/// Returns the values of the attributes as texts, in the native plugin's order.
pub(crate) fn shown(settings: &LinkSettings) -> [Option<String>; 5] {
    let LinkSettings { mac, mtu, promisc, allmulti, tx_queue_length } = settings;
    let [mtu, length] = [mtu, tx_queue_length].map(|number| number.map(|number| number.to_string()));
    let [promisc, allmulti] = [promisc, allmulti].map(|on| on.map(|on| on.to_string()));
    [mac.map(|mac| mac.to_string()), promisc, mtu, allmulti, length]
}

/// Returns the native plugin's form: an indent of one blank, and no newline at the end.
fn text(settings: &LinkSettings) -> String {
    let keys = ["mac", "promisc", "mtu", "allmulti", "txQLen"];
    let lines = keys.into_iter().zip(shown(settings)).filter_map(|(key, value)| {
        let quote = if key == "mac" { "\"" } else { "" };
        Some(format!(" \"{key}\": {quote}{}{quote}", value?))
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { "{}".to_owned() } else { format!("{{\n{}\n}}", lines.join(",\n")) }
}

/// Reads a native plugin's file. Only attributes that a link can have are used. `None` if the content does not have the
/// native plugin's form.
pub(crate) fn parse(content: &[u8]) -> Option<LinkSettings> {
    let file: serde_json::Value = serde_json::from_str(&unicode::json(content)).ok()?;
    let file = file.as_object()?;
    let number = |key: &str| file.get(key).and_then(serde_json::Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let flag = |key: &str| file.get(key).and_then(serde_json::Value::as_bool);
    let mac = file.get("mac").and_then(serde_json::Value::as_str).and_then(|text| text.parse().ok());
    Some(LinkSettings {
        mac: mac.filter(|mac: &Mac| mac.is_unicast()),
        mtu: number("mtu").filter(|mtu| (68..=65535).contains(mtu)),
        promisc: flag("promisc"),
        allmulti: flag("allmulti"),
        tx_queue_length: number("txQLen"),
    })
}

/// Returns the address that a port's spoofing protection lets pass: its first address, or the address of the last
/// recorded change.
pub(crate) fn guarded(journal: &Journal, guard: &MacGuard) -> Option<Mac> {
    led_to(&journal.recorded::<LinkChange>(), guard)
}

/// Returns the first address of the protection, or its address after the last of these changes.
fn led_to(changes: &[LinkChange], guard: &MacGuard) -> Option<Mac> {
    let followed = changes.iter().rev().find(|change| change.port.is_some() && change.port == guard.host);
    followed.and_then(|change| change.after.mac).or(guard.mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_native_form() {
        let all = LinkSettings {
            mac: "02:00:00:00:00:09".parse().ok(),
            mtu: Some(1500),
            promisc: Some(false),
            allmulti: Some(false),
            tx_queue_length: Some(1000),
        };
        let expected = "{\n \"mac\": \"02:00:00:00:00:09\",\n \"promisc\": false,\n \"mtu\": 1500,\n \"allmulti\": false,\n \"txQLen\": 1000\n}";
        assert_eq!(text(&all), expected);
        assert_eq!(parse(expected.as_bytes()), Some(all));
        assert_eq!((text(&LinkSettings::default()).as_str(), parse(b"{}")), ("{}", Some(LinkSettings::default())));
    }

    #[test]
    fn only_attributes_that_a_link_can_have_are_taken() {
        for content in [
            r#"{"mac":"01:00:00:00:00:01"}"#,
            r#"{"mac":"00:00:00:00:00:00"}"#,
            r#"{"mac":"02:00:00:00:00:00:00:01"}"#,
            r#"{"mac":7,"mtu":"1500","promisc":1,"allmulti":"true","txQLen":1.5}"#,
            r#"{"mtu":67}"#,
            r#"{"mtu":65536}"#,
            r#"{"mtu":-1,"txQLen":-1}"#,
            r#"{"txQLen":4294967296}"#,
        ] {
            assert_eq!(parse(content.as_bytes()), Some(LinkSettings::default()), "{content}");
        }
        for content in ["", "[]", "7", "{", "{}x"] {
            assert_eq!(parse(content.as_bytes()), None, "{content}");
        }
    }
}
