//! Compares forwards that a native plugin made by nftables. These forwards work, but their form differs from Postern's:
//!
//! * Conditions are in the shared chains. In these chains the conditions of the last network apply to all networks. So
//!   conditions are not compared.
//! * Up to version 1.9.1, only the container itself and 127.0.0.1 are masqueraded, even with `masqAll`. Later versions
//!   masquerade the container's network, or every sender. Each form is accepted.
//! * Up to version 1.9.0, forwards with a host IP have their own chain.
//!
//! Versions before 1.9.0 have rules that also forward packets for destinations outside the node (CVE-2025-67499). These
//! rules do not count.

use super::HostPorts;
use super::nft::{
    HOSTIP_HOSTPORTS, HOSTPORTS, HOSTPORTS_ALL, LOCALHOST, MASQUERADING, lead, masquerade_rule, shared_of,
};
use crate::nft::prelude::*;
use postern_types::NatSources;

impl HostPorts {
    /// True if the forwards work, in the native plugin's form or in Postern's.
    ///
    /// # Errors
    /// The kernel refuses to show the rules, or the deadline passes.
    pub fn nft_check_native(&self, nft: &mut Nft) -> Result<bool, FirewallError> {
        let table = shared_of(self.address.addr().is_ipv6()).table;
        self.is_native(|chain| nft.rules(table, chain))
    }

    pub(crate) fn is_native(
        &self,
        mut rules: impl FnMut(&str) -> Result<Vec<NftRule>, FirewallError>,
    ) -> Result<bool, FirewallError> {
        let bare = Self { conditions: Vec::new(), sources: NatSources::None, ..self.clone() }.rules();
        if bare.entries.is_empty() {
            return Ok(true);
        }
        let mut own = |chain: &str| {
            let own = rules(chain)?.into_iter().filter(|rule| bare.owner.mark.is_on(rule));
            Ok::<HashSet<_>, FirewallError>(own.map(|rule| rule.expressions()).collect())
        };
        let chains = [(HOSTPORTS, own(HOSTPORTS)?), (HOSTIP_HOSTPORTS, own(HOSTIP_HOSTPORTS)?)];
        let masquerading = own(MASQUERADING)?;
        let ours = self.rules().entries;
        let is_there = |(bare, ours): (&SharedRule, &SharedRule)| {
            chains.iter().any(|(_, present)| present.contains(&bare.rule) || present.contains(&ours.rule))
        };
        // The forwards are the first entries, in the same order in both sets.
        if !bare.entries.iter().zip(&ours).all(is_there) || !self.is_masqueraded(&masquerading) {
            return Ok(false);
        }
        let lead = lead();
        for base in ["prerouting", "output"] {
            if !rules(base)?.iter().any(|rule| rule.expressions().ends_with(&lead)) {
                return Ok(false);
            }
        }
        let reached: HashSet<String> = rules(HOSTPORTS_ALL)?.iter().filter_map(NftRule::target).collect();
        Ok(chains.iter().all(|(chain, present)| present.is_empty() || reached.contains(*chain)))
    }

    /// True if the rules masquerade every sender that gets no answers otherwise.
    fn is_masqueraded(&self, present: &HashSet<Vec<Expression>>) -> bool {
        let address = self.address.addr();
        let everything = IpNet::new(address, 0).ok().map(|net| net.trunc());
        let has = |source: Option<IpNet>| {
            let rule = masquerade_rule(source, address);
            let ours = [rule::destination_was_changed().to_vec(), rule.clone()].concat();
            present.contains(&rule) || present.contains(&ours)
        };
        let has_all = || has(None) || has(everything);
        let has_own = || has(Some(address.into())) || has(Some(self.address.trunc()));
        match self.sources {
            NatSources::None => true,
            NatSources::All => has_all() || has_own(),
            NatSources::Own => has_all() || has_own() && (address.is_ipv6() || has(Some(LOCALHOST))),
        }
    }
}
