//! Rules that let the attachment's addresses be forwarded.

use crate::capability::leaves::{EffectKind, Reapplied};
use crate::capability::shared::numbers::{made_by_iptables, recorded};
use crate::context::Context;
use crate::effect::in_record;
use crate::errors::firewall_error;
use crate::others;
use crate::right::Right;
use ipnet::IpNet;
use postern_firewall::iptables::forward::AddressHandles;
use postern_firewall::{firewalld, iptables};
use postern_types::{FirewallBackend, IptablesVariant, OpError};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::IpAddr;

/// Rules that let the attachment's addresses be forwarded. Rules in the native form name no owner. Only the record
/// names their owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firewall {
    /// The packet filter of the rules.
    pub backend: FirewallBackend,
    /// The variant of iptables that has the rules, if known. Records of Postern 0.1 lack the variant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<IptablesVariant>,
    /// The chain of the administrator's rules, with iptables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_chain: Option<String>,
    /// The zone of firewalld.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The addresses.
    pub addresses: Vec<IpNet>,
}

impl Firewall {
    /// Returns the handles of rules and tables of this effect that the attachment's record lists.
    pub(crate) fn numbers(&self, run: &Context) -> AddressHandles {
        let (handles, tables) = run.journal.numbers(self);
        let recorded = recorded(run, &self.clone().into(), self.variant, &handles);
        AddressHandles { addresses: self.addresses.clone(), handles, tables, recorded }
    }

    /// Makes the missing rules. With `is_first`, the attachment has no rules yet. Then existing rules are not searched,
    /// and each attachment gets its own rules.
    pub(crate) fn make(&self, run: &mut Context, is_first: bool) -> Result<(), OpError> {
        match self.backend {
            FirewallBackend::Iptables => {
                let admin_chain = self.admin_chain.as_deref().unwrap_or_default();
                made_by_iptables(run, &self.clone().into(), &self.addresses, iptables::forward::tables, |runner| {
                    iptables::forward::admit(&self.addresses, admin_chain, is_first, self.variant, runner)
                })
            }
            FirewallBackend::Firewalld => self.addresses.iter().try_for_each(|address| {
                let (zone, address) = (self.zone(), address.addr());
                firewalld::add(zone, address, run.system.program_runner()).map_err(|error| {
                    // The native plugin's words.
                    let source = firewalld::source(address);
                    let message = format!("failed to add the address {source} to {zone} zone: {}", error.hint);
                    OpError { message, hint: String::new(), ..firewall_error(error) }
                })
            }),
        }
    }

    fn zone(&self) -> &str {
        self.zone.as_deref().unwrap_or_default()
    }

    fn is_complete(&self, run: &Context) -> Result<bool, OpError> {
        let runner = run.system.program_runner();
        match self.backend {
            FirewallBackend::Iptables => {
                iptables::forward::missing_rule(&self.numbers(run), self.admin_chain.as_deref(), None, runner)
                    .map(|missing| missing.is_none())
                    .map_err(firewall_error)
            }
            FirewallBackend::Firewalld => {
                for address in &self.addresses {
                    if !firewalld::query(self.zone(), address.addr(), runner).map_err(firewall_error)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }
}

impl EffectKind for Firewall {
    /// Removes the rules. Rules whose handles are in the record belong only to this attachment. Other rules for an
    /// address stay if another attachment's record admits the address in the same way.
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        // The kernel is asked first, because starting programs and reading all records cost more.
        if self.backend == FirewallBackend::Iptables && !run.system.unless_absent(iptables::forward::may_be_admitted)? {
            return Ok(());
        }
        let numbers = self.numbers(run);
        if numbers.withdraw(run.system.program_runner()).map_err(firewall_error)? {
            return Ok(());
        }
        let AddressHandles { handles, recorded, .. } = numbers;
        let withdraw = |addresses: &[IpNet], handles: &[u64]| {
            let withdrawn = iptables::forward::withdraw(addresses, handles, recorded, run.system.program_runner());
            withdrawn.map(drop).map_err(firewall_error)
        };
        if !handles.is_empty() && iptables::forward::has(&self.addresses, &handles, run.system.program_runner()) {
            return withdraw(&self.addresses, &handles);
        }
        let mut own = Vec::new();
        for address in &self.addresses {
            let admits = |other: &Self| {
                (other.backend, &other.zone) == (self.backend, &self.zone)
                    && other.addresses.iter().any(|of_other| of_other.addr() == address.addr())
            };
            if !others::is_claimed_by(run.view(), |summary| in_record::<Self>(summary).any(|made| admits(&made)))? {
                own.push(*address);
            }
        }
        match self.backend {
            FirewallBackend::Iptables => withdraw(&own, &[]),
            // firewalld has ended, so its rules are gone.
            FirewallBackend::Firewalld if !firewalld::runs(run.system.program_runner()).map_err(firewall_error)? => {
                Ok(())
            }
            FirewallBackend::Firewalld => own.iter().try_for_each(|address| {
                firewalld::remove(self.zone(), address.addr(), run.system.program_runner()).map_err(firewall_error)
            }),
        }
    }

    fn words(&self) -> String {
        match &self.zone {
            Some(zone) => format!("sources in zone {zone} of firewalld"),
            None => "rules that let the attachment's addresses be forwarded".to_owned(),
        }
    }

    fn own_addresses(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(IpNet::addr).collect()
    }

    fn right(&self) -> Right<'_> {
        match (self.backend, &self.zone) {
            (FirewallBackend::Firewalld, Some(zone)) => Right::Zone(Cow::Borrowed(zone)),
            (FirewallBackend::Firewalld | FirewallBackend::Iptables, _) => Right::Forwarding,
        }
    }

    fn reapply(&self, run: &mut Context) -> Result<Reapplied, OpError> {
        if self.is_complete(run)? {
            return Ok(Reapplied::Complete);
        }
        self.make(run, false)?;
        Ok(Reapplied::Restored)
    }
}
