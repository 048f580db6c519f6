//! A read-only view of leases without a lock, which predicts the addresses that would be given next.
//!
//! The search is the same as in [`Leases::reserve_others`] (a test compares the two). A file that can't be read counts
//! as held. All users can read the files of a native plugin, but only root can read Postern's lease files.

use postern_state::{LeaseOwner, LeaseStore, Leases, Result, StateError, TakenAddress, full_set};
use postern_types::{Range, RangeSet};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// The leases of one network at one time. [`Self::reserve`] adds addresses, in memory only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseSnapshot {
    /// The taken addresses, each with the text of its lease. The text is empty for a file that can't be read.
    taken: HashMap<IpAddr, String>,
    /// The address last taken for each range set.
    last: BTreeMap<usize, IpAddr>,
}

impl LeaseSnapshot {
    /// Reads the leases of a network; a network without a directory has no leases. `sets` is the number of range sets.
    ///
    /// # Errors
    /// [`StateError::Untrusted`] as [`Leases::open`], [`StateError::Io`] for a directory that can't be read.
    pub fn read(store: &LeaseStore, sets: usize) -> Result<Self> {
        let Some(leases) = Leases::open_existing(store)? else { return Ok(Self::default()) };
        let last = (0..sets).filter_map(|set| Some((set, leases.last_reserved(set)?))).collect();
        Ok(Self { taken: leases.texts()?, last })
    }

    /// Takes one address from each set, as [`Leases::reserve_others`] would.
    ///
    /// # Errors
    /// [`StateError::Exhausted`] and [`StateError::Refused`], with the texts of [`Leases::reserve_others`]. After an
    /// error, no address is taken.
    pub fn reserve(
        &mut self,
        owner: &LeaseOwner,
        sets: &[RangeSet],
        requested: &[IpAddr],
    ) -> Result<Vec<TakenAddress>> {
        if requested.len() > 2 * sets.len() + 16 {
            let (requested, sets) = (requested.len(), sets.len());
            return Err(StateError::Refused(format!("{requested} addresses are requested of {sets} range sets")));
        }
        let before = self.clone();
        let taken = self.reserve_all(owner, sets, requested);
        if taken.is_err() {
            *self = before;
        }
        taken
    }

    fn reserve_all(
        &mut self,
        owner: &LeaseOwner,
        sets: &[RangeSet],
        requested: &[IpAddr],
    ) -> Result<Vec<TakenAddress>> {
        let mut wanted: Vec<IpAddr> = Vec::new();
        for ip in requested.iter().map(IpAddr::to_canonical) {
            if !wanted.contains(&ip) {
                wanted.push(ip);
            }
        }
        let mut leases = Vec::new();
        for (number, set) in sets.iter().enumerate() {
            let request = wanted.iter().position(|ip| set.range_of(*ip).is_some()).map(|place| wanted.remove(place));
            let found = match request {
                Some(ip) => self.requested(set, ip),
                None => self.next(owner, set, number),
            };
            let (ip, range) = found.map_err(|error| error.in_set(number))?;
            self.taken.insert(ip, owner.text());
            leases.push(TakenAddress { address: range.with_prefix(ip), gateway: range.gateway, set: number });
        }
        if !wanted.is_empty() {
            let rest: Vec<String> = wanted.iter().map(IpAddr::to_string).collect();
            return Err(StateError::Refused(format!("failed to allocate all requested IPs: {}", rest.join(" "))));
        }
        self.last.extend(leases.iter().map(|lease| (lease.set, lease.address.addr())));
        Ok(leases)
    }

    fn requested<'r>(&self, set: &'r RangeSet, ip: IpAddr) -> Result<(IpAddr, &'r Range)> {
        let unavailable =
            || StateError::Refused(format!("requested IP address {ip} is not available in range set {set}"));
        let range = set.range_of(ip).ok_or_else(unavailable)?;
        if range.gateway == Some(ip) {
            return Err(StateError::Refused(format!("requested ip {ip} is subnet's gateway")));
        }
        if self.taken.contains_key(&ip) { Err(unavailable()) } else { Ok((ip, range)) }
    }

    fn next<'r>(&self, owner: &LeaseOwner, set: &'r RangeSet, number: usize) -> Result<(IpAddr, &'r Range)> {
        if let Some(ip) = self.held(owner).into_iter().find(|ip| set.range_of(*ip).is_some()) {
            return Err(StateError::Refused(format!(
                "{ip} has been allocated to {}, duplicate allocation is not allowed",
                owner.container_id
            )));
        }
        let mut free = set.walk(self.last.get(&number).copied()).filter(|(ip, _)| !self.taken.contains_key(ip));
        free.next().ok_or_else(|| StateError::Exhausted(format!("no IP addresses available in range set: {set}")))
    }

    /// Returns the addresses of `owner`, and the addresses of old lease files that name only its container.
    pub fn held(&self, owner: &LeaseOwner) -> Vec<IpAddr> {
        let mut held: Vec<IpAddr> = self
            .taken
            .iter()
            .filter(|(_, text)| **text == owner.text() || text.as_str() == owner.old_text())
            .map(|(ip, _)| *ip)
            .collect();
        held.sort();
        held
    }

    /// Returns the first set without a free address, if any.
    pub fn exhausted(&self, sets: &[RangeSet]) -> Option<usize> {
        full_set(sets, &self.taken.keys().copied().collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_types::{LeaseRange, canonicalize};
    use std::time::{Duration, Instant};

    fn set(subnet: &str, end: &str) -> Vec<LeaseRange> {
        vec![LeaseRange { subnet: subnet.parse().unwrap(), start: None, end: end.parse().ok(), gateway: None }]
    }

    /// Each call of a long sequence returns the result that the snapshot before the call predicts, including errors and
    /// their texts.
    #[test]
    fn it_gives_what_reserve_gives() {
        let scratch = std::env::temp_dir().join(format!("postern-lease-snapshot-{}", std::process::id()));
        std::fs::create_dir(&scratch).unwrap();
        let store = LeaseStore {
            data_dir: scratch.join("data"),
            network: "net".to_owned(),
            index_root: scratch.join("index"),
            boot_id: "one".to_owned(),
        };
        assert_eq!(LeaseSnapshot::read(&store, 2).unwrap(), LeaseSnapshot::default());
        assert!(!scratch.join("data").exists(), "looking made the directory");
        let sets = canonicalize(vec![set("10.0.0.0/28", "10.0.0.9"), set("fd00::/64", "")]).unwrap();
        let leases = Leases::open(&store).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let directory = scratch.join("data/net");
        let mut failures = 0;
        for round in 0..40_u32 {
            let owner = LeaseOwner::new(format!("c{}", round % 13), "eth0");
            let requested: Vec<IpAddr> = match round % 7 {
                3 => vec![[10, 0, 0, 1 + u8::try_from(round % 9).unwrap()].into()],
                5 => vec!["fd00::7".parse().unwrap(), "192.0.2.1".parse().unwrap()],
                6 => vec!["fd00::9".parse().unwrap(); usize::try_from(round).unwrap()],
                _ => Vec::new(),
            };
            if round % 11 == 10 {
                // A native plugin leaves this file if it is killed between creating and writing.
                let _ = std::fs::File::create_new(directory.join("10.0.0.8"));
            }
            let files = |path: &std::path::Path| {
                let mut names: Vec<_> = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name()).collect();
                names.sort();
                names
            };
            let before = files(&directory);
            let mut snapshot = LeaseSnapshot::read(&store, sets.len()).unwrap();
            let foretold = snapshot.reserve(&owner, &sets, &requested).map_err(|error| error.to_string());
            assert_eq!(files(&directory), before, "looking changed the directory");
            let given =
                leases.reserve_others(&owner, &sets, &requested, &[], deadline).map_err(|error| error.to_string());
            assert_eq!(foretold, given, "round {round}");
            failures += u32::from(given.is_err());
            let again = LeaseSnapshot::read(&store, sets.len()).unwrap();
            assert_eq!(again.held(&owner), snapshot.held(&owner), "round {round}");
            assert_eq!(
                again.exhausted(&sets),
                leases.exhausted(&sets, deadline).unwrap(),
                "round {round}: whether a set is full"
            );
            if round % 5 == 4 {
                leases.release(&owner, deadline).unwrap();
            }
        }
        std::fs::remove_dir_all(&scratch).unwrap();
        assert!((5..35).contains(&failures), "{failures} of 40 rounds failed: some must fail, some must succeed");
    }
}
