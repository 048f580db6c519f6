//! The host's firewall, in the formats of the native CNI plugins: mechanism, no decisions.
//!
//! This crate works in the network namespace of the calling thread. It removes only objects with the mark (comment,
//! chain name) of the given owner. The gate decides on the operation and the attachment.
//!
//! | module | content |
//! |---|---|
//! | [`masquerade`] | source NAT of an attachment's addresses, by nftables |
//! | [`iptables`] | source NAT by the system's iptables; addresses that are forwarded; bridges that are isolated |
//! | [`firewalld`] | addresses that are forwarded, by firewalld |
//! | [`hostport`] | ports of the node that lead to an attachment (`portMappings`) |
//! | [`macguard`] | a bridge port may send from one MAC only (`macspoofchk`) |
//! | [`account`] | a list of the rules on the node, with their owners |
//!
//! nftables is used over netlink ([`Nft`], by `postern-netlink`). A rule costs tens of microseconds over netlink, and
//! milliseconds through the `nft` program. The distribution chooses one of two kernel interfaces for iptables. Rules of
//! the nf_tables variant are read and written over netlink too. If the variant is legacy iptables or unknown, the
//! system's own programs are run, once per family and change.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//! use postern_firewall::{AttachmentKey, Nft, masquerade};
//!
//! let key = AttachmentKey {
//!     network: "mynet".into(),
//!     container_id: "cid1".into(),
//!     ifname: "eth0".into(),
//! };
//! let mut nft = Nft::open(Instant::now() + Duration::from_secs(5))?;
//! masquerade::nft_ensure(&mut nft, &key, &["10.1.0.2/16".parse()?], false)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod account;
pub mod conntrack;
mod error;
pub mod firewalld;
pub mod hostport;
pub mod iptables;
mod key;
pub mod macguard;
mod marked;
pub mod masquerade;
mod nft;
mod octets;
mod program;
mod served;
mod variant;

pub use error::FirewallError;
pub use key::{AttachmentKey, ChainKind};
pub use nft::shared::SharedTable;
pub use nft::{Nft, is_absence};
pub use served::{Served, ServingRule};
