//! The Container Network Interface, specifications 0.1.0 to 1.1.0, as real runtimes use it.
//!
//! Host and guests share this crate. The host reads the environment and the configuration with it. A guest reads its
//! configuration and the results of other plugins. Host and guests print results and errors. The crate does no I/O, and
//! no input makes it panic.
//!
//! The programs of the CNI project are written in Go, and runtimes know the texts and the JSON of Go's encoder.
//! [`mod@print`] and [`Fields`] behave like Go wherever the difference is visible from outside.
//!
//! A result of an old plugin, printed for a runtime of today:
//!
//! ```
//! use postern_cni::{CniResult, Version};
//!
//! let printed = br#"{"cniVersion": "0.2.0", "ip4": {"ip": "10.1.0.2/24"}}"#;
//! let result = CniResult::parse_output(printed, 1 << 20, "0.2.0")?;
//! assert!(result.to_json(Version::V1_1_0)?.contains(r#""address": "10.1.0.2/24""#));
//! # Ok::<(), postern_cni::Error>(())
//! ```

mod address;
mod args;
mod bandwidth;
mod conf;
mod error;
mod fields;
pub mod flannel;
mod json;
mod lists;
mod named;
mod names;
mod port_map;
pub mod print;
mod quote;
#[cfg(feature = "recorder")]
pub mod recorder;
mod request;
mod result;
pub mod terminal;
pub mod unicode;
mod version;

pub use address::{parse_cidr, parse_ip};
pub use args::Args;
pub use bandwidth::{BandwidthConf, RateLimit};
pub use conf::{NetConf, ValidAttachment};
pub use error::{Error, code};
pub use fields::Fields;
pub use flannel::{Flannel, SubnetFile};
pub use json::Json;
pub use lists::{Lists, parse_with_lists};
pub use names::{validate_container_id, validate_interface_name, validate_network_name};
pub use port_map::{CONDITIONS, PortMap, PortMapping};
pub use quote::quote;
pub use request::{Env, Verb, about, check_version, config_version, read_conf, validate_conf, version_output};
pub use result::{CniResult, CniRoute, Dns, Interface, IpConfig};
pub use version::{NumericVersion, Version, VersionInfo};
