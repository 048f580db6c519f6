//! The channel to the DHCP service: its messages, and the gate's side of the connection.
//!
//! A connection begins with a line of HTTP, `CONNECT /postern/1`, because native daemons and their clients begin with
//! such a line for Go's net/rpc. So each side knows at once if the other side is native. Lines of JSON follow: an
//! [`Ask`] and its [`Answer`] in turn. An ask may carry the descriptor of the attachment's network namespace.

mod connect;
pub mod greeting;
mod line;
mod message;

pub use connect::{Channel, DEFAULT_SOCKET, SWITCH, ServiceError};
pub use line::{LONGEST_ANSWER, LONGEST_ASK};
pub use message::{Answer, Ask, Attachment, HeldLease, Standing};
pub use postern_dhcp::{Family, INFINITE, Lease, LeaseAddress, LeaseDns, LeaseRoute, families};

/// The CNI error code of a refusal without a more exact code. The native plugin uses it too.
pub const INTERNAL: u32 = 999;
