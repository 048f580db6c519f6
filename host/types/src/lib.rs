//! The messages between guest and gate.
//!
//! Every privileged request of a plugin is one [`Operation`], of one [`Capability`]. An operation is plain data: it is
//! serialised, decided on, journalled, carried out and audited. The sandbox turns a WIT call into an `Operation`. The
//! gate answers with a [`Reply`] or an [`OpError`]. A guest has no other way to the kernel.
//!
//! This crate has no side effects. It is shared by the gate, the sandbox and the guest SDK, and compiles for
//! `wasm32-wasip2`. The fake host of the guest SDK answers the same operations in unit tests.

#[cfg(feature = "channel")]
pub mod channel;
mod error;
mod forward;
mod link_name;
mod log;
mod mac;
mod message;
mod operation;
mod ranges;
mod reply;
mod surface;
mod table;
mod values;
mod whole_route;

pub use error::{DENIED, ErrorCode, OpError};
pub use forward::{Forward, ForwardParseError, NatSources, Transport};
pub use link_name::LinkName;
pub use mac::{Mac, MacParseError};
pub use message::{FromSandbox, GuestLimits, NO_CODE_ALLOWED, Start, ToSandbox};
pub use operation::{Handle, Logged};
pub use postern_cni::{Dns, RateLimit, SubnetFile};
pub use ranges::{Range, RangeSet, canonicalize, canonicalize_numbered};
pub use reply::Reply;
pub use surface::{Capability, Host, Operation, host, ops};
pub use table::{ActsIn, HandleKind, Lasting, OperationTable, Row, Takes, WithoutGrant};
pub use values::{
    Address, Backend, BridgeInfo, DeviceKey, DhcpLease, FirewallBackend, IngressPolicy, IptablesVariant, IpvlanInfo,
    IpvlanMode, KeptRoute, LONGEST_NOTE, LeaseGrant, LeaseRange, LinkInfo, LinkSettings, LinkSysctl, LoopbackState,
    MacvlanInfo, MacvlanMode, PortSpec, Route, RouteSource, TapSettings, VethPair, VlanId, VlanInfo,
};
pub use whole_route::{NextHop, WholeRoute};
