//! The context in which one plugin runs or one effect is removed: references to the parts of the run.

use crate::audit::Audit;
use crate::deadline::Deadline;
use crate::effect::Effect;
use crate::errors::kernel_error;
pub use crate::fixed::Fixed;
pub use crate::journal::Journal;
pub use crate::own::AttachmentState;
use crate::places::Places;
use crate::request::Request;
pub use crate::system::System;
pub use crate::view::View;
use postern_cni::{Json, NetConf, Verb, Version};
use postern_kernel::Netlink;
use postern_state::Record;
use postern_types::OpError;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The context of one plugin. A delegate has its own context, with its own request.
pub struct Context<'a> {
    /// The request: verb and configuration of this plugin.
    pub request: &'a Request,
    pub fixed: &'a Fixed,
    pub system: &'a System,
    pub journal: &'a mut Journal,
    pub own: &'a mut AttachmentState,
    pub audit: &'a mut Audit,
}

impl<'a> Context<'a> {
    /// Returns the parts that are only read.
    pub fn view(&self) -> View<'a> {
        View { request: self.request, fixed: self.fixed, system: self.system }
    }

    /// Returns the socket in the container's namespace; `None` without a container, or if the record is about another
    /// container.
    pub fn netlink_of_record(&self) -> Result<Option<&'a Netlink>, OpError> {
        let container = self.system.container().filter(|_| !self.journal.has_foreign_record(self.system));
        container.map(|container| container.netlink().map_err(kernel_error)).transpose()
    }

    /// Returns a context of this run with another request.
    pub fn with<'s>(&'s mut self, request: &'s Request) -> Context<'s> {
        Context {
            request,
            fixed: self.fixed,
            system: self.system,
            journal: self.journal,
            own: self.own,
            audit: self.audit,
        }
    }
}

/// The parts of a run, with the runtime's request, or with a request that [`RunParts::of_record`] makes.
pub struct RunParts {
    pub request: Request,
    pub fixed: Fixed,
    pub system: System,
    pub journal: Journal,
    pub own: AttachmentState,
    pub audit: Audit,
}

impl RunParts {
    /// Makes the parts of a run. The run knows only the host's namespace, not yet the container's, and has no open
    /// record.
    pub fn new(request: Request, fixed: Fixed) -> Self {
        Self {
            system: System::new(&fixed.deadline, &request.netns),
            journal: Journal::new(&request.plugin, fixed.makes_links),
            own: AttachmentState::default(),
            audit: Audit::new(&fixed.places.logs, request.attachment()),
            request,
            fixed,
        }
    }

    /// Makes the parts of a run that removes the effects of a record. The run has only this record, and knows no native
    /// programs.
    pub fn of_record(record: Record<Effect>, deadline: Instant, places: Places) -> Self {
        let header = record.header();
        let mut conf = NetConf::unread(Json::Null);
        conf.name.clone_from(&header.network);
        let request = Request {
            plugin: String::new(),
            verb: Verb::Del,
            container_id: header.container_id.clone(),
            netns: header.netns_path.clone(),
            ifname: header.ifname.clone(),
            path: String::new(),
            env: Vec::new(),
            stdin: Arc::default(),
            conf: Rc::new(conf),
            is_made_by_host: false,
            version: Version::LATEST,
        };
        let deadline = Deadline::new(deadline, Duration::ZERO);
        let mut parts = Self::new(request, Fixed::new(deadline, places, String::new(), false));
        parts.journal.record = Some(record);
        parts.system.hidden = Some("the namespace was not searched for".to_owned());
        parts
    }

    /// Returns the context of the plugin that the runtime called.
    pub fn context(&mut self) -> Context<'_> {
        let Self { request, fixed, system, journal, own, audit } = self;
        Context { request, fixed, system, journal, own, audit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl RunParts {
        /// Makes the parts of a test's run, with its records in `state`.
        pub fn of_test(request: Request, state: &std::path::Path) -> Self {
            let nowhere = state.join("none");
            let places = Places { state: state.to_owned(), library: nowhere.clone(), logs: nowhere };
            let deadline = Deadline::new(Instant::now() + Duration::from_secs(9), Duration::ZERO);
            Self::new(request, Fixed::new(deadline, places, String::new(), false))
        }
    }
}
