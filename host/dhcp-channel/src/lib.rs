//! The channel to the DHCP service: its messages, and the end of the gate.
//!
//! A connection begins with a line of HTTP, `CONNECT /postern/1`, because native daemons and their clients begin with one for
//! Go's net/rpc. So either side knows at once that the other one is native. Then come lines of JSON, an [`Ask`] and its
//! [`Answer`] in turn. With an ask may come the descriptor of the attachment's network namespace.

mod connect;
pub mod greeting;
mod line;
mod message;

pub use connect::{Channel, DEFAULT_SOCKET, SWITCH, ServiceError};
pub use line::{LONGEST_ANSWER, LONGEST_ASK};
pub use message::{Answer, Ask, Attachment, HeldLease, Standing};
pub use postern_dhcp::{Family, INFINITE, Lease, LeaseAddress, LeaseDns, LeaseRoute, families};

/// The CNI error code of a refusal that has no better one, as the native plugin's.
pub const INTERNAL: u32 = 999;
