//! The parts that a run and its rehearsal (`postern plan`) share. They find and verify code, start the sandbox, read
//! the request, decide on each operation, and check a result.
//!
//! The rehearsal answers the operations itself. No function here carries out an operation. If plugins are opened by
//! [`Launcher::open_unnoted`], no function here writes a file.

pub use crate::attached::UnmetDemand;
pub use crate::budget::Common;
pub use crate::errors::state_error;
pub use crate::guest_state::{BridgeLink, GuestState, Object, Parent};
pub use crate::launcher::Launcher;
pub use crate::others::named;
pub use crate::outcome::{LinkAttributes, RunFacts, read};
pub use crate::own::OwnAddress;
pub use crate::own::adopt;
pub use crate::plugin::{BadEnd, serve, start};
pub use crate::prepared::{Plugin, spoken};
pub use crate::process::{Sandbox, reap};
pub use crate::protocol::STDIN_LIMIT;
pub use crate::request::Request;
pub use crate::versions::{own_versions, supported};
