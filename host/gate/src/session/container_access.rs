//! The containers that a collection has to enter, because a link in there has no end on the host. A confined gate can
//! neither look at a path nor enter a namespace, so it happens before confinement.

use super::Session;
use crate::effect::Effect;
use crate::errors::state_error;
use postern_cni::Attachment;
use postern_kernel::{Namespace, OpenError, Worker};
use postern_state::{Header, NetworkKey, RecordKey, Summary, Valid};
use postern_types::{ErrorCode, OpError};
use std::collections::HashMap;
use std::rc::Rc;

/// The number of containers that one collection enters. Each of them takes a thread.
const MOST: usize = 64;

/// The way into a container, as it was found.
#[derive(Clone, Debug)]
pub enum ContainerAccess {
    /// Its namespace is gone, and with it what was in there.
    Gone,
    /// It may be alive: the reason why it could not be entered.
    Hidden(String),
    /// A thread in the namespace that its path leads to.
    In(Rc<Worker>),
}

impl ContainerAccess {
    fn look(header: &Header, confine: impl FnOnce() -> Result<(), String> + Send + 'static) -> Self {
        match Namespace::open(&header.netns_path) {
            Ok(namespace) => match Worker::start(&namespace, confine) {
                Ok(worker) => Self::In(Rc::new(worker)),
                Err(error) => Self::Hidden(error.to_string()),
            },
            Err(OpenError::NotExist { .. } | OpenError::NotNamespace { .. }) => Self::Gone,
            Err(error @ OpenError::Io { .. }) => Self::Hidden(error.to_string()),
        }
    }
}

impl Session<'_> {
    /// Returns the records of this network's attachments that are not valid, as they were at the first call. Later ones are
    /// spared anyway. Of all other records only the file names are read, which name the network. (Those of Postern 0.1 do
    /// not.)
    ///
    /// The list is empty if the runtime has not said which attachments are valid: nothing may be removed then.
    ///
    /// # Errors
    /// The records can't be listed.
    pub fn collectable_records(&self) -> Result<&[Summary], OpError> {
        if let Some(collectable_records) = self.collectable_records.get() {
            return Ok(collectable_records);
        }
        let Some(valid) = self.request.conf.still_valid() else { return Ok(&[]) };
        let here = self.home_cookie()?;
        let name = &self.request.conf.name;
        let network = NetworkKey::new(here, name);
        let key = |of: &Attachment| RecordKey::in_network(network, here, name, &of.container_id, &of.ifname);
        let valid = Valid { network, attachments: valid.into_iter().map(key).collect() };
        let collectable_records = postern_state::list_collectable(&self.state, &valid).map_err(state_error)?;
        Ok(self.collectable_records.get_or_init(|| collectable_records))
    }

    /// Enters the containers of the attachments that are to be collected. Each thread is confined by one of `confine`.
    ///
    /// # Errors
    /// The records can't be listed.
    pub fn enter_collectable_containers<C>(&mut self, confine: impl Fn() -> C) -> Result<(), OpError>
    where
        C: FnOnce() -> Result<(), String> + Send + 'static,
    {
        let network = &self.request.conf.name;
        let (mut accesses, mut entered) = (HashMap::new(), 0);
        for summary in self.collectable_records()? {
            let (Some(key), Some(header)) = (&summary.key, &summary.header) else { continue };
            let effects = summary.effects.iter().filter_map(|noted| serde_json::from_value(noted.effect.clone()).ok());
            if header.network != *network || !needs_container(effects) {
                continue;
            }
            let found = match entered < MOST {
                true => ContainerAccess::look(header, confine()),
                false => {
                    ContainerAccess::Hidden(format!("a collection enters {MOST} containers, and the next one others"))
                }
            };
            entered += usize::from(matches!(found, ContainerAccess::In(_)));
            accesses.insert(*key, found);
        }
        self.container_access_by_record = accesses;
        Ok(())
    }

    /// Returns the access to another attachment's container, for the session that removes it. If that fails, a later
    /// operation of the plugin may try it again.
    pub fn access_of(&self, key: &RecordKey) -> Option<ContainerAccess> {
        self.container_access_by_record.get(key).cloned()
    }

    /// Makes it the container of this session.
    pub fn use_access(&mut self, found: ContainerAccess) {
        self.hidden = None;
        match found {
            ContainerAccess::Gone => {}
            ContainerAccess::Hidden(why) => self.hidden = Some(why),
            ContainerAccess::In(worker) => self.worker = Some(worker),
        }
    }

    /// Notes that the container may be alive although it was not entered.
    pub fn hide_container(&mut self, why: String) {
        self.hidden = Some(why);
    }

    /// Looks for the container of the record, if that lists something in there. For a process that is not confined.
    pub fn look_for_container(&mut self) {
        let Some(record) = self.record() else { return };
        if needs_container(record.effects(None).into_iter().map(|noted| noted.effect)) {
            let found = ContainerAccess::look(record.header(), || Ok(()));
            self.use_access(found);
        }
    }

    /// Returns the container, to remove what an effect left in there. `None` if it is gone, or is another attachment's.
    ///
    /// # Errors
    /// It may be alive, and could not be entered: `what` may be in there still, and is not given up.
    pub fn container_with(&self, what: &str) -> Result<Option<&Worker>, OpError> {
        let container = self.container().filter(|_| !self.has_foreign_record());
        match (container, self.hidden()) {
            (None, Some(why)) => {
                let message = format!("its namespace may be alive, and with it its {what}: {why}");
                Err(OpError::new(ErrorCode::TryAgain, &self.request.netns, message)
                    .hint("run DEL, or `postern gc` once the container is gone"))
            }
            (container, _) => Ok(container),
        }
    }

    /// Returns the reason why it is unknown if the container's namespace is alive. `None` if it is known, or if the runtime
    /// has named it.
    pub fn hidden(&self) -> Option<&str> {
        self.hidden.as_deref()
    }
}

fn needs_container(effects: impl IntoIterator<Item = Effect>) -> bool {
    effects.into_iter().any(|effect| effect.needs().is_in_container())
}
