//! `mac-guard`: frames with another source address are dropped at the attachment's host end.
//!
//! The rules have the native plugins' name for the attachment, if this name is free. If another port's rules already
//! have this name, the attachment's rules get another name, which the record lists.

pub mod effect;

pub(crate) use crate::capability::facts::ALWAYS as FACTS;
use crate::capability::leaves::EffectKind;
use crate::capability::mac_guard::effect::{claim, is_whole, name_is_taken, native, recorded};
use crate::capability::veth;
use crate::context::Context;
use crate::effect::{Effect, MacGuard};
use crate::errors::{firewall_error, kernel_error, link_gone};
use crate::gate::Gate;
use crate::others;
use postern_firewall::macguard::{self, own_id};
use postern_types::{ErrorCode, Handle, HandleKind, Mac, OpError, host};

impl host::MacGuard for Gate<'_> {
    fn ensure(&mut self, host: Handle, mac: Mac) -> Result<(), OpError> {
        let (index, name) = self.guest.port(host)?;
        if self.guest.object(host)?.kind() == HandleKind::Port {
            must_be_takeable(self.run, index, &name)?;
            // If the container's address behind this link is unknown, the plugin chooses the address once, as for a
            // pair.
            self.run.own.container_mac.get_or_insert(mac);
        } else {
            veth::must_live(self.run, index, &name)?;
        }
        // Only the pair's first address is allowed. Another address would let frames of another container pass.
        if self.run.own.container_mac != Some(mac) {
            let message = format!("{mac} is not the address of the container's end of \"{name}\"");
            return Err(OpError::new(ErrorCode::InvalidArgument, mac.to_string(), message));
        }
        let native = native(self.run.request);
        // An effect that can't be made must not be recorded: it could never be removed.
        macguard::validate(&native).map_err(firewall_error)?;
        let guard = |id: Option<String>| Effect::from(MacGuard { id, host: Some(name.clone()), mac: Some(mac) });
        let request = self.run.request;
        let own = own_id(&request.conf.name, &request.container_id, &request.ifname);
        if !self.run.journal.has(&guard(Some(own.clone()))) {
            self.run.journal.intend(self.run.view(), guard(None))?;
            if let Some(handles) = claim(self.run.system, &native, &name, mac)? {
                self.run.journal.known_by(&guard(None), &handles);
                return Ok(());
            }
            self.run.journal.intend(self.run.view(), guard(Some(own.clone())))?;
            self.run.journal.gone(|effect| *effect == guard(None));
        }
        if let Some(handles) = claim(self.run.system, &own, &name, mac)? {
            self.run.journal.known_by(&guard(Some(own)), &handles);
            return Ok(());
        }
        Err(name_is_taken(&own, &name))
    }

    fn check(&mut self, host: Handle, mac: Mac) -> Result<(), OpError> {
        let (_, name) = self.guest.seen_end(host)?;
        if is_whole(self.run, &name, mac)? {
            return Ok(());
        }
        Err(OpError::new(ErrorCode::Mismatch, name, "the spoofing protection of this attachment is incomplete"))
    }

    fn remove(&mut self) -> Result<(), OpError> {
        self.run.journal.only_of_this_run(self.run.request, MacGuard::is, "spoofing protection")?;
        let mut guards: Vec<MacGuard> = recorded(self.run).into_iter().map(|(guard, _)| guard).collect();
        if guards.is_empty() || self.run.journal.is_replaced() {
            guards.push(MacGuard::default());
        }
        for guard in guards {
            guard.remove(self.run)?;
        }
        self.run.journal.gone(MacGuard::is);
        Ok(())
    }
}

/// Checks that a link of an earlier plugin has joined a bridge for this attachment, or can join.
fn must_be_takeable(run: &Context, index: u32, name: &str) -> Result<(), OpError> {
    let link = run.system.host()?.link_by_index(index).map_err(kernel_error)?.ok_or_else(|| link_gone(name))?;
    match run.journal.ports().first() {
        Some(port) if port.index == index => Ok(()),
        _ => others::must_be_free(run, &link),
    }
}
