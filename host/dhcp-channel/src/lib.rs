//! The channel to the DHCP service: its messages, the end of the gate, and the Go RPC of native daemons and clients.
//!
//! The service has one socket for two protocols. A connection begins with a line of HTTP that names one of them:
//!
//! - `CONNECT /postern/1`: lines of JSON, an [`Ask`] and its [`Answer`] in turn. With an ask may come the descriptor of
//!   the attachment's network namespace.
//! - `CONNECT /_goRPC_`: Go's net/rpc, as the native `dhcp` plugin and its daemon speak it ([`rpc`]).
//!
//! A native daemon does not know the first one and says so. [`Channel`] then speaks the second.

mod connect;
pub mod gob;
pub mod greeting;
mod line;
mod message;
pub mod rpc;

pub use connect::{Channel, ChannelError, DEFAULT_SOCKET};
pub use line::{LONGEST_ANSWER, LONGEST_ASK};
pub use message::{Answer, Ask, Attachment, Held, Standing};
pub use postern_dhcp::{Family, INFINITE, Lease, LeaseAddress, LeaseDns, LeaseRoute, families};

/// The CNI error code of a refusal that has no better one, as the native plugin's.
pub const INTERNAL: u32 = 999;
