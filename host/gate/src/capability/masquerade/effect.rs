//! Masquerading rules.

use crate::capability::leaves::{EffectKind, Reapplied};
use crate::capability::shared::numbers::{made_by_iptables, of_others, placed, recorded};
use crate::context::{Context, View};
use crate::errors::firewall_error;
use crate::right::Right;
use ipnet::IpNet;
use postern_firewall::iptables::{Recorded, RuleHandles};
use postern_firewall::{ChainKind, iptables, masquerade};
use postern_types::{Backend, IptablesVariant, OpError};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Masquerading rules. In nftables the rules are identified by the attachment. In iptables they are identified by the
/// addresses, because attachments of one container share a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Masquerade {
    /// The packet filter of the rules.
    pub backend: Backend,
    /// The variant of iptables that has the rules, if known. Records of Postern 0.1 lack the variant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<IptablesVariant>,
    /// The addresses with masqueraded traffic.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
}

impl Masquerade {
    /// Returns the recorded effect for these addresses or, if there is none, the effect of a new ADD.
    pub(crate) fn of_run(run: &Context, backend: Backend, addresses: &[IpNet]) -> Self {
        let wanted = Self { backend, variant: None, addresses: addresses.to_vec() };
        let by_iptables = backend == Backend::Iptables;
        placed(run.journal, wanted, by_iptables.then_some(addresses), |made| &mut made.variant)
    }

    /// Makes the rules, and notes their handles. With `is_first`, the attachment has no rules yet, and nftables is not
    /// searched. Handles are noted only if there is one for each address. Without noted handles the next check searches
    /// all rules.
    pub(crate) fn make(&self, run: &mut Context, is_first: bool) -> Result<(), OpError> {
        let (key, addresses) = (run.request.masquerade_key(), self.addresses.as_slice());
        if self.backend == Backend::Iptables {
            return made_by_iptables(run, &self.clone().into(), addresses, iptables::nat_tables, |runner| {
                iptables::ensure_in(self.variant, &key, addresses, runner)
            });
        }
        let handles =
            masquerade::nft_ensure(&mut *run.system.nft()?, &key, addresses, is_first).map_err(firewall_error)?;
        if handles.len() == addresses.len() {
            run.journal.known_by(&self.clone().into(), &handles);
        }
        Ok(())
    }

    pub(crate) fn is_whole(&self, run: &Context) -> Result<bool, OpError> {
        let (key, (handles, tables)) = (run.request.masquerade_key(), run.journal.numbers(self));
        match self.backend {
            Backend::Nftables => masquerade::nft_check_known(&mut *run.system.nft()?, &key, &self.addresses, &handles),
            Backend::Iptables => {
                let known = RuleHandles { handles: &handles, tables: &tables, recorded: self.recorded(run, &handles) };
                iptables::check_known(&key, &self.addresses, known, run.system.program_runner())
            }
        }
        .map_err(firewall_error)
    }

    fn recorded(&self, run: &Context, handles: &[u64]) -> Recorded {
        // The handles count only if they are complete: the programs of the two IP families may use different variants
        // of iptables.
        let handles = if handles.len() == self.addresses.len() { handles } else { &[] };
        recorded(run, &self.clone().into(), self.variant, handles)
    }
}

impl EffectKind for Masquerade {
    /// Removes the rules of one backend.
    ///
    /// If no addresses are known, this function removes the iptables rules of all attachments of the container to the
    /// network. Rules that another record claims stay. A native attachment may lose its masquerading too. Otherwise
    /// rules would stay for ever.
    fn remove(&self, run: &Context) -> Result<(), OpError> {
        let (key, (handles, tables)) = (run.request.masquerade_key(), run.journal.numbers(self));
        if self.backend == Backend::Nftables {
            return run.system.unless_absent(|nft| masquerade::nft_remove_known(nft, &key, &handles)).map(drop);
        }
        // The kernel is asked first, because starting programs costs more.
        if !iptables::has_legacy_nat()
            && !run.system.unless_absent(|nft| iptables::may_exist(nft, ChainKind::Masquerading, &key))?
        {
            return Ok(());
        }
        let (recorded, runner) = (self.recorded(run, &handles), run.system.program_runner());
        let removed = if self.addresses.is_empty() {
            iptables::remove_all(&key, &addresses_of_others(run.view())?, recorded, runner)
        } else {
            let known = RuleHandles { handles: &handles, tables: &tables, recorded };
            iptables::remove_known(&key, &self.addresses, known, runner)
        };
        removed.map(drop).map_err(firewall_error)
    }

    fn words(&self) -> String {
        "masquerading rules".to_owned()
    }

    fn own_addresses(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(IpNet::addr).collect()
    }

    fn right(&self) -> Right<'_> {
        match self.backend {
            Backend::Nftables => Right::Network,
            Backend::Iptables => Right::Iptables,
        }
    }

    fn reapply(&self, run: &mut Context) -> Result<Reapplied, OpError> {
        // Earlier versions did not record the addresses. Then only an ADD can make the rules again.
        if self.addresses.is_empty() {
            return Ok(Reapplied::NoRules);
        }
        if self.is_whole(run)? {
            return Ok(Reapplied::Complete);
        }
        self.make(run, false)?;
        Ok(Reapplied::Restored)
    }
}

/// Returns the addresses of the container's other attachments to the network, if their records list masquerading by
/// iptables.
fn addresses_of_others(view: View<'_>) -> Result<Vec<IpAddr>, OpError> {
    let request = view.request;
    let made: Vec<(_, Masquerade)> =
        of_others(view, |key| key.network == request.conf.name && key.container_id == request.container_id)?;
    let by_iptables = made.into_iter().filter(|(_, made)| made.backend == Backend::Iptables);
    Ok(by_iptables.flat_map(|(_, made)| made.addresses).map(|net| net.addr()).collect())
}
