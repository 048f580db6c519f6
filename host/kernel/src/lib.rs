//! Postern's changes to the kernel's network: links, bridge ports, addresses, routes, rules, sysctls and
//! namespaces. This crate is mechanism only. Its functions do what the caller says, and know no plugins and no policy.
//!
//! Messages are built with rtnetlink's builders and sent over a small blocking socket (`postern-netlink`). A run needs
//! a dozen answers, one after the other. An async executor would cost more than all the answers.
//!
//! Any request can fail: no answer comes in time, no link has the index (`ENODEV`), a list keeps changing (`EAGAIN`) or
//! is too long. The section `# Errors` of a function lists only further errors.
//!
//! A netlink socket belongs to the namespace in which it was opened. The caller keeps a socket for its own namespace,
//! and gets a socket of the container's namespace from a [`Worker`]. A worker is a thread in the container's namespace,
//! or the calling thread, which enters the namespace and returns.

mod address;
mod conf_directories;
mod error;
mod home;
mod link;
mod link_files;
mod namespace;
mod netlink;
mod port;
mod qdisc;
mod random;
mod route;
mod rule;
pub mod sysctl;
pub mod tap;
mod tap_maker;
pub mod tcx;
mod whole_route;
mod worker;

pub use address::LinkAddress;
pub use error::{KernelError, Result, describe};
pub use home::{NumberedNamespace, cookie_of, namespace_of};
pub use link::{BusDevice, InnerLinkKind, InnerSpec, Link, LinkUse, Settings, Treatment, VethSpec};
pub use link_files::{FileSettings, LinkFiles};
pub use namespace::{Namespace, OpenError};
pub use netlink::Netlink;
pub use qdisc::{Qdisc, TokenBucket};
pub use random::{random_mac, random_veth_name};
pub use route::MAIN_TABLE;
pub use rule::RoutingRule;
pub use sysctl::Sysctl;
pub use tap::TapSpec;
pub use worker::Worker;
