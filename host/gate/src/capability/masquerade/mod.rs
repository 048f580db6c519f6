//! `masquerade`: source NAT for the attachment's own addresses.

pub mod effect;

use crate::capability::facts::{Facts, WITH_ADDRESSES};
use crate::capability::leaves::EffectKind;
use crate::capability::shared::numbers::{busy, is_first, remove_recorded, retain_chains};
use crate::context::{AttachmentState, Context, Journal, View};
use crate::effect::Masquerade;
use crate::errors::firewall_error;
use crate::gate::Gate;
use crate::own::OwnAddress;
use crate::packet_filter;
use crate::right::Right;
use ipnet::IpNet;
use postern_firewall::{ChainKind, iptables, masquerade};
use postern_types::{Backend, ErrorCode, OpError, host};

fn own(own: &AttachmentState) -> Vec<IpNet> {
    own.addresses.iter().map(|OwnAddress { net, .. }| *net).collect()
}

pub(crate) const FACTS: Facts = Facts {
    keeps: |_, granted| {
        granted.is_some_and(|granted| granted.allows_backend(Backend::Iptables)).then_some(Right::Iptables)
    },
    unrecorded: Some(collect),
    ..WITH_ADDRESSES
};

impl host::Masquerade for Gate<'_> {
    fn ensure(&mut self, backend: Option<Backend>) -> Result<(), OpError> {
        let (key, own) = (self.run.request.masquerade_key(), own(self.run.own));
        if own.is_empty() {
            return Ok(());
        }
        let allows = |backend| self.guest.granted().allows_backend(backend);
        let backend = backend.map_or_else(|| packet_filter::default(self.run.view(), allows), Ok)?;
        if backend == Backend::Iptables {
            // An effect that can't be made must not be recorded: it could never be removed.
            iptables::validate(ChainKind::Masquerading, &key).map_err(firewall_error)?;
        }
        let made = Masquerade::of_run(self.run, backend, &own);
        // `is_first` is computed before the intent is written, because the intent itself would count.
        let is_first = is_first::<Masquerade>(self.run.journal);
        self.run.journal.intend(self.run.view(), made.clone())?;
        made.make(self.run, is_first)
    }

    fn check(&mut self, backend: Option<Backend>) -> Result<(), OpError> {
        let (key, own) = (self.run.request.masquerade_key(), own(self.run.own));
        if own.is_empty() {
            return Ok(());
        }
        for backend in backends(self.run.journal, backend) {
            if Masquerade::of_run(self.run, backend, &own).is_whole(self.run)? {
                return Ok(());
            }
        }
        let (network, message) = (key.network, "the masquerading rules of this attachment are incomplete");
        Err(OpError::new(ErrorCode::Mismatch, network, message))
    }

    fn remove(&mut self) -> Result<(), OpError> {
        self.run.journal.only_of_this_run(self.run.request, Masquerade::is, "masquerading")?;
        remove_own(self.run)
    }
}

/// Returns the packet filters that may have the rules: the named filter, or the filters in the record. A native plugin
/// may have made the rules with either filter.
fn backends(journal: &Journal, named: Option<Backend>) -> Vec<Backend> {
    if let Some(named) = named {
        return vec![named];
    }
    let recorded: Vec<Backend> = journal.recorded::<Masquerade>().iter().map(|made| made.backend).collect();
    if recorded.is_empty() { Backend::ALL.to_vec() } else { recorded }
}

/// Removes the recorded rules. If the record may be incomplete, removes the rules of the attachment's addresses from
/// both packet filters.
pub(crate) fn remove_own(run: &mut Context) -> Result<(), OpError> {
    if !remove_recorded::<Masquerade>(run)? {
        // The configuration may have changed since the ADD, so iptables and nftables are searched.
        let addresses: Vec<IpNet> = run.request.previous().ips.iter().map(|ip| ip.address).collect();
        Masquerade { backend: Backend::Nftables, variant: None, addresses: addresses.clone() }.remove(run)?;
        Masquerade { backend: Backend::Iptables, variant: None, addresses }.remove(run)?;
    }
    run.journal.gone(Masquerade::is);
    Ok(())
}

/// Removes the rules of this network's attachments that `valid` lacks, from both packet filters. Each rule names the
/// network in its comment. The rules of attachments that an ADD is making stay.
pub(crate) fn collect(run: View<'_>, valid: &[(String, String)]) -> Result<usize, OpError> {
    let network = &run.request.conf.name;
    let removed = run.system.unless_absent(|nft| masquerade::nft_retain(nft, network, valid, || busy(run)))?.len();
    Ok(removed + retain_chains(run, ChainKind::Masquerading, valid)?)
}
