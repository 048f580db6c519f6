//! The facts that a run knows about other attachments: the open indexes, and the outcome of checks.

use postern_kernel::{Namespace, OpenError, Worker};
use postern_state::{ClaimIndex, Header, PortIndex, RecordKey, Summary};
use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The facts about other attachments.
#[derive(Default)]
pub struct Known {
    /// The state of attachments that have an object that this ADD wants.
    pub holders: HashMap<RecordKey, HolderState>,
    /// The index of ports, not locked, if this run has opened it.
    pub ports: Cell<Option<PortIndex>>,
    /// The index of claims, not locked, if this run has opened it.
    pub claims: Cell<Option<ClaimIndex>>,
    /// The records of the network's attachments that are not in the runtime's list of valid attachments for GC.
    pub collectable: OnceCell<Vec<Summary>>,
    /// Containers of attachments that this GC removes.
    pub containers: HashMap<RecordKey, ContainerAccess>,
}

/// The state of an attachment that has an object that an ADD wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderState {
    /// The attachment's namespace is alive.
    Alive,
    /// The state is unknown, for this reason.
    Unknown(String),
    /// The attachment is gone, but its effects could not be removed, for this reason.
    Stuck(String),
}

impl HolderState {
    /// Returns the state in words, and the operator's remedy.
    pub fn words(&self) -> String {
        match self {
            Self::Alive => "its container is alive".to_owned(),
            Self::Unknown(why) => {
                format!("it can't be told whether its container is alive ({why}): if it is gone, run `postern gc`")
            }
            Self::Stuck(why) => {
                format!("its container is gone, but its effects can't be removed ({why}): run `postern gc`")
            }
        }
    }
}

/// The access to a container.
#[derive(Clone, Debug)]
pub enum ContainerAccess {
    /// The container's namespace is gone, with all its objects.
    Gone,
    /// The container's namespace may be alive. The text is the reason why it could not be entered.
    Hidden(String),
    /// A thread in the namespace to which the container's path leads.
    In(Rc<Worker>),
}

impl ContainerAccess {
    /// Opens the namespace at the path in a record. `confine` confines the thread in the namespace.
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
