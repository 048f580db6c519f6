//! The gate's lookups on the node: leases, bridges, and the users of a device.

use super::{Run, Scene, Stage};
use postern_account::lease_snapshot::LeaseSnapshot;
use postern_gate::capability::{bridge, leases};
use postern_gate::rehearsal::{self, GuestState, Request, state_error};
use postern_policy::Granted;
use postern_policy::capability::device::{DEFAULT_LINK, PORTS};
use postern_sim::{Kernel, Place};
use postern_state::{LeaseStore, StateError};
use postern_types::{ErrorCode, LeaseGrant, LeaseRange, OpError, Operation, Reply, host, ops};
use std::net::IpAddr;
use std::path::PathBuf;

/// The largest number of range sets whose last reserved address is read.
const MOST_SETS: usize = 16;

impl host::Leases for Scene<'_, '_> {
    fn reserve(&mut self, sets: &[Vec<LeaseRange>], requested: &[IpAddr]) -> Result<Vec<LeaseGrant>, OpError> {
        let Self { stage, run, .. } = self;
        if run.leased {
            return Err(leases::taken_already());
        }
        let sets = leases::range_sets(sets)?;
        let owner = run.request.owner();
        let taken = stage.leases(&run.request, sets.len())?.reserve(&owner, &sets, requested).map_err(state_error)?;
        run.leased = true;
        Ok(leases::taken_by(&mut run.own, taken))
    }

    fn held(&mut self) -> Result<Vec<LeaseGrant>, OpError> {
        let request = &self.run.request;
        Ok(leases::held_by(self.stage.leases(request, 0)?.held(&request.owner())))
    }

    fn release(&mut self) -> Result<(), OpError> {
        self.stage.simulate(self.run, self.guest, &ops::Leases::Release.into())?.read()
    }

    fn retain(&mut self) -> Result<u32, OpError> {
        self.stage.simulate(self.run, self.guest, &ops::Leases::Retain.into())?.read()
    }

    fn available(&mut self, sets: &[Vec<LeaseRange>]) -> Result<bool, OpError> {
        let sets = leases::range_sets(sets)?;
        Ok(self.stage.leases(&self.run.request, sets.len())?.exhausted(&sets).is_none())
    }
}

impl Stage {
    /// Returns the missing policy line, if the node itself uses the taken device.
    pub(super) fn needed_device(&self, before: &Kernel, granted: &Granted) -> Option<String> {
        let taken = before.links.get(&self.kernel.own()?.info.handle)?;
        let is_default = before.default_link.as_ref() == Some(&taken.info.name);
        let used_as = [(taken.master.is_some(), PORTS), (is_default, DEFAULT_LINK)];
        let mut missing = used_as.into_iter().filter(|(is_used, key)| *is_used && !granted.may_take(key));
        missing.next().map(|(_, key)| granted.take_hint(key))
    }

    pub(super) fn bridge(
        &mut self,
        run: &mut Run,
        guest: &mut GuestState<'_>,
        operation: &Operation,
        asked: &ops::Bridge,
    ) -> Result<Reply, OpError> {
        match asked {
            ops::Bridge::Ensure { name, .. } if guest.granted().has_vlans() && self.is_unfiltered(name) => {
                Err(bridge::unfiltered(name))
            }
            ops::Bridge::PreviousLink => {
                let given = &self.given;
                let counts = |name: &str| {
                    guest.granted().has_object("previous.names", name) || given.links.iter().any(|given| given == name)
                };
                let named = rehearsal::named(&run.request.conf, guest.granted(), counts)?;
                self.kernel.previous_link = named.map(|link| link.name);
                self.must_be_free()?;
                self.simulate(run, guest, operation)
            }
            ops::Bridge::EnsureGateways { port, .. } => {
                guest.has_joined(port)?;
                self.simulate(run, guest, operation)
            }
            ops::Bridge::Attach { port, .. } => {
                let reply = self.simulate(run, guest, operation)?;
                guest.join(port);
                Ok(reply)
            }
            ops::Bridge::Ensure { .. } | ops::Bridge::Find { .. } => self.simulate(run, guest, operation),
        }
    }

    /// True if a link of the node has this address.
    pub(super) fn is_nodes(&self, address: IpAddr) -> bool {
        let mut links = self.kernel.links.values().filter(|link| link.place == Place::Host);
        links.any(|link| link.addresses.iter().any(|have| have.net.addr() == address))
    }

    /// Fails if the link of an earlier plugin is missing or in use.
    fn must_be_free(&self) -> Result<(), OpError> {
        let Some(name) = &self.kernel.previous_link else { return Ok(()) };
        let refuse = |code, what: &str| Err(OpError::new(code, name, format!("\"{name}\" {what}")));
        match self.kernel.find(Place::Host, name) {
            None => refuse(ErrorCode::InvalidHandle, "is gone"),
            Some(link) if link.master.is_some() => refuse(ErrorCode::Exists, "is a port of a bridge already"),
            Some(link) if link.info.kind == "bridge" || link.addresses.iter().any(|have| have.scope == 0) => {
                refuse(ErrorCode::Exists, "is the node's own: it can't be attached")
            }
            Some(_) => Ok(()),
        }
    }

    /// True if there is a bridge of this name that doesn't separate VLANs.
    fn is_unfiltered(&self, name: &str) -> bool {
        let bridge = self.kernel.find(Place::Host, name).filter(|link| link.info.kind == "bridge");
        bridge.is_some_and(|bridge| !bridge.vlan_filtering)
    }

    /// Returns the leases of the request's network, read once.
    fn leases(&mut self, request: &Request, sets: usize) -> Result<&mut LeaseSnapshot, OpError> {
        let directory = PathBuf::from(leases::directory(&request.conf));
        if !self.leases.contains_key(&directory) {
            let store = LeaseStore {
                data_dir: directory.clone(),
                network: request.conf.name.clone(),
                index_root: postern_account::places::expected().lease_index(),
                boot_id: postern_state::boot_id().map_err(state_error)?,
            };
            // Reads enough sets for every later call.
            let read = match LeaseSnapshot::read(&store, sets.max(MOST_SETS)) {
                Err(StateError::Io { .. }) => {
                    let directory = directory.join(&store.network);
                    self.notes.push(format!("{} can't be read: no address counts as taken", directory.display()));
                    LeaseSnapshot::default()
                }
                other => other.map_err(state_error)?,
            };
            self.leases.insert(directory.clone(), read);
        }
        self.leases.get_mut(&directory).ok_or_else(|| OpError::new(ErrorCode::Io, "leases", "the leases are not open"))
    }
}
