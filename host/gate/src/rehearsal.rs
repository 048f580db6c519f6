//! What a run and its rehearsal (`postern plan`) have in common: finding and proving code, the sandbox that runs it, the
//! request, the decision on each operation, and what is believed of a result. Who rehearses answers the operations
//! itself; nothing here carries one out, and nothing here writes where plugins are taken by [`Launcher::take_unnoted`].

pub use crate::attached::Lack;
pub use crate::budget::Common;
pub use crate::errors::state;
pub use crate::front::{Front, Object};
pub use crate::launcher::{Launcher, Plugin};
pub use crate::outcome::{Known, Seen, read};
pub use crate::plugin::{BadEnd, serve, start};
pub use crate::process::{Sandbox, reap};
pub use crate::protocol::{STDIN_LIMIT, request, supported};
pub use crate::session::port::named;
pub use crate::session::{OwnAddress, Request, adopt};
