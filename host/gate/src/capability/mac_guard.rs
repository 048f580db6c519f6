//! `mac-guard`: frames with another source address are dropped at the attachment's host end.
//!
//! The rules have the native plugins' name for the attachment, if it is free. If the rules of another port already have
//! that name, these rules get their own name, which the record lists.

use crate::capability::facts::{Facts, Needed};
use crate::capability::veth;
use crate::effect::mac_guard::{claim, is_whole, name_is_taken, native, recorded};
use crate::effect::{Effect, MacGuard};
use crate::errors::{firewall_error, kernel_error, link_gone};
use crate::gate::Gate;
use crate::session::Session;
use postern_cni::Verb;
use postern_firewall::macguard::{self, own_id};
use postern_types::{ErrorCode, Handle, Kind, Mac, OpError, host};

/// The facts about it that the host needs beside its operations.
pub const FACTS: Facts = Facts { needed: Needed::Always, keeps: |_, _| None, unrecorded: None };

impl host::MacGuard for Gate<'_> {
    /// `mac-guard.ensure`.
    fn ensure(&mut self, host: Handle, mac: Mac) -> Result<(), OpError> {
        let (index, name) = self.front.port(host)?;
        if self.front.object(host)?.kind() == Kind::Port {
            must_be_takeable(self.session, index, &name)?;
            // If nothing tells the address behind such a link, the plugin chooses it once, as it does for a pair.
            self.session.container_mac.get_or_insert(mac);
        } else {
            veth::must_live(self.session, index, &name)?;
        }
        // Only the address that the pair was made with is allowed. Another one would let frames of another container pass.
        if self.session.container_mac != Some(mac) {
            let message = format!("{mac} is not the address of the container's end of \"{name}\"");
            return Err(OpError::new(ErrorCode::InvalidArgument, mac.to_string(), message));
        }
        let native = native(self.session);
        // An effect that can't be made must not be recorded: it could never be removed.
        macguard::validate(&native).map_err(firewall_error)?;
        let guard = |id: Option<String>| Effect::from(MacGuard { id, host: Some(name.clone()), mac: Some(mac) });
        let request = self.session.request;
        let own = own_id(&request.conf.name, &request.container_id, &request.ifname);
        if !self.session.has(&guard(Some(own.clone()))) {
            self.session.intend(guard(None))?;
            if let Some(handles) = claim(self.session, &native, &name, mac)? {
                self.session.known_by(&guard(None), &handles);
                return Ok(());
            }
            self.session.intend(guard(Some(own.clone())))?;
            self.session.gone(|effect| *effect == guard(None));
        }
        if let Some(handles) = claim(self.session, &own, &name, mac)? {
            self.session.known_by(&guard(Some(own)), &handles);
            return Ok(());
        }
        Err(name_is_taken(&own, &name))
    }

    /// `mac-guard.check`.
    fn check(&mut self, host: Handle, mac: Mac) -> Result<(), OpError> {
        let (_, name) = self.front.seen_end(host)?;
        if is_whole(self.session, &name, mac)? {
            return Ok(());
        }
        Err(OpError::new(ErrorCode::Mismatch, name, "the spoofing protection of this attachment is not all there"))
    }

    /// `mac-guard.remove`.
    fn remove(&mut self) -> Result<(), OpError> {
        if self.session.request.verb == Verb::Add {
            self.session.only_of_this_run(|effect| MacGuard::of(effect).is_some(), "spoofing protection")?;
        }
        let mut guards: Vec<MacGuard> = recorded(self.session).into_iter().map(|(guard, _)| guard).collect();
        if guards.is_empty() || self.session.is_replaced() {
            guards.push(MacGuard::default());
        }
        for guard in guards {
            guard.revert(self.session)?;
        }
        self.session.gone(|effect| MacGuard::of(effect).is_some());
        Ok(())
    }
}

/// Checks that a link of an earlier plugin has joined for this attachment, or can join.
fn must_be_takeable(session: &Session, index: u32, name: &str) -> Result<(), OpError> {
    let link = session.host()?.link_by_index(index).map_err(kernel_error)?.ok_or_else(|| link_gone(name))?;
    match session.ports().first() {
        Some(port) if port.index == index => Ok(()),
        _ => session.must_be_free(&link),
    }
}
