//! What the runs of a list share in their one process ([`crate::list`]): the container's namespace with the thread in it,
//! for GC those of all containers that it enters, and a socket. A confined process can't enter a namespace again.

use super::container_access::ContainerAccesses;
use super::{Session, SharedNft, journal};
use crate::places::Places;
use postern_confine::NoPrograms;
use postern_kernel::tcx::Sight;
use postern_kernel::{Home, LinkFiles, Namespace, Worker};
use std::rc::Rc;

/// See the module.
#[derive(Debug)]
pub struct Shared {
    /// The directories that the runs write to.
    pub places: Places,
    container: Option<(Rc<Worker>, Rc<Namespace>)>,
    collectable: ContainerAccesses,
    home: Option<Rc<Home>>,
    nft: SharedNft,
    sight: Option<Sight>,
    link_files: Option<Option<Rc<LinkFiles>>>,
}

impl Shared {
    /// Returns the number of the container's namespace, if there is one.
    pub fn cookie(&self) -> Option<u64> {
        self.container.as_ref().and_then(|(worker, _)| worker.cookie().ok())
    }
}

impl Session {
    /// Returns the directories that this run writes to.
    pub fn places(&self) -> Places {
        Places { state: self.state.clone(), library: self.library.clone(), logs: self.logs.clone() }
    }

    /// Returns what later runs need of this one.
    pub fn shared(&self) -> Shared {
        let container = self.worker.clone().zip(self.namespace.clone());
        Shared {
            places: self.places(),
            container,
            collectable: Rc::clone(&self.container_access_by_record),
            home: self.home.get().cloned(),
            nft: Rc::clone(&self.nft),
            sight: self.sight.get().copied(),
            link_files: self.link_files.get().cloned(),
        }
    }

    /// Has no container any more: its plugin needs none.
    pub fn leave_container(&mut self) {
        (self.worker, self.namespace) = (None, None);
    }

    /// Goes on in the process of an earlier run. Programs can't be started there.
    pub fn join_process(&mut self, shared: &Shared) {
        self.runner = Rc::new(NoPrograms);
        self.share(&shared.nft);
        self.container_access_by_record = Rc::clone(&shared.collectable);
        if let Some(home) = &shared.home {
            self.home = Rc::clone(home).into();
        }
        if let Some(sight) = shared.sight {
            self.sight = sight.into();
        }
        if let Some(link_files) = &shared.link_files {
            self.link_files = link_files.clone().into();
        }
    }

    /// Uses the container's namespace of an earlier run.
    pub fn join_container(&mut self, shared: &Shared) {
        if let Some((worker, namespace)) = &shared.container {
            (self.worker, self.namespace) = (Some(Rc::clone(worker)), Some(Rc::clone(namespace)));
        }
    }

    /// Knows of the record what `other` has read, without opening it: the record of a list's attachment is the same for
    /// all of its plugins.
    pub fn foresee(&mut self, other: &Self) {
        self.whole = other.record().is_some_and(|record| journal::is_whole_for(record, &self.request.plugin));
        self.link_gone = other.link_gone;
        self.share(&other.nft);
    }
}
