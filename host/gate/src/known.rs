//! What a run has found out about other attachments: their indexes as it opened them, and which of them it has looked at.

use postern_kernel::{Namespace, OpenError, Worker};
use postern_state::{ClaimIndex, Header, PortIndex, RecordKey, Summary};
use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::rc::Rc;

/// See the module.
#[derive(Default)]
pub struct Known {
    /// What is known of attachments that have what this ADD wants.
    pub holders: HashMap<RecordKey, HolderState>,
    /// The index of ports, not locked, if this run has looked into it.
    pub ports: Cell<Option<PortIndex>>,
    /// The index of claims, not locked, if this run has looked into it.
    pub claims: Cell<Option<ClaimIndex>>,
    /// The records of the network's attachments that are not valid, by the runtime's list for GC.
    pub collectable: OnceCell<Vec<Summary>>,
    /// Containers of attachments that this collection removes.
    pub containers: HashMap<RecordKey, ContainerAccess>,
}

/// What is known of an attachment that has what an ADD wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderState {
    /// Something keeps its namespace alive.
    Alive,
    /// It can't be told, for this reason.
    Unknown(String),
    /// It is gone, and this could not be removed.
    Stuck(String),
}

impl HolderState {
    /// Says what is known, and what to do.
    pub fn words(&self) -> String {
        match self {
            Self::Alive => "its container is alive".to_owned(),
            Self::Unknown(why) => {
                format!("it can't be told whether its container is alive ({why}): if it is gone, run `postern gc`")
            }
            Self::Stuck(why) => {
                format!("its container is gone, and what it left can't be removed ({why}): run `postern gc`")
            }
        }
    }
}

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
    /// Looks at the path of a record. A thread in there is confined by `confine`.
    pub fn look(header: &Header, confine: impl FnOnce() -> Result<(), String> + Send + 'static) -> Self {
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
