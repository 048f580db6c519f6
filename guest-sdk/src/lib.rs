//! The library for Postern plugins.
//!
//! A plugin is an ordinary `wasm32-wasip2` program: it implements [`Plugin`], and its `main` is [`run`]. Everything
//! that a plugin can do to the node is a typed function. Each capability of `wit/` has one module. The component
//! imports exactly the functions that the plugin calls. A policy limits these functions further, and the host undoes a
//! failed ADD.
//!
//! This small plugin only gives the container a link and its addresses:
//!
//! ```
//! use postern_guest::cni::CniResult;
//! use postern_guest::{Error, Plugin, Request, all, check, configure, fake, interface, ipam, link, veth};
//!
//! struct Minimal;
//!
//! impl Plugin for Minimal {
//!     fn add(&self, request: &Request) -> Result<CniResult, Error> {
//!         let pair = veth::create(&veth::Options::default())?;
//!         let mut result = ipam::add()?;
//!         configure::configure(&pair.container, &result.ips, &configure::kernel_routes(&result)?)?;
//!         let container = interface(&pair.container_attributes, &request.env.netns);
//!         result.interfaces = vec![interface(&pair.host_attributes, ""), container];
//!         result.ips.iter_mut().for_each(|ip| ip.interface = Some(1));
//!         Ok(result)
//!     }
//!
//!     fn del(&self, _request: &Request) -> Result<(), Error> {
//!         all([link::delete_own(), ipam::del()])
//!     }
//!
//!     fn check(&self, request: &Request) -> Result<(), Error> {
//!         let result = check::previous_result(&request.conf()?, "prevResult is required")?;
//!         let link = link::own()?.ok_or_else(|| Error::new("the container has no such link"))?;
//!         check::configuration(&link, &request.env.ifname, &result)
//!     }
//! }
//!
//! postern_guest::version!();
//! // fn main() -> std::process::ExitCode { postern_guest::run(&Minimal) }
//!
//! // Tests use the fake host through the same functions. They need neither root nor a network namespace.
//! fake::install(fake::Kernel::with_ipam(r#"{"ips": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1"}]}"#));
//! let outcome = fake::run(&Minimal, "ADD", r#"{"cniVersion": "1.0.0", "name": "n", "ipam": {"type": "static"}}"#);
//! assert!(outcome.status == 0 && outcome.stdout.contains("10.1.2.3/24"), "{outcome:?}");
//! ```

mod error;
mod plugin;
mod request;
mod result;
mod sys;

pub mod check;
pub mod configure;
#[cfg(not(target_arch = "wasm32"))]
pub mod fake;

// each capability: pub mod {file};
pub mod addresses;
pub mod attachments;
pub mod bandwidth;
pub mod bridge;
pub mod delegate;
pub mod device;
pub mod dhcp;
pub mod dummy;
pub mod firewall;
pub mod forwarding;
pub mod ipam;
pub mod ipvlan;
pub mod leases;
pub mod link;
pub mod link_settings;
pub mod link_sysctl;
pub mod loopback;
pub mod mac_guard;
pub mod macvlan;
pub mod masquerade;
pub mod namespace_sysctl;
pub mod notes;
pub mod parent;
pub mod point_to_point;
pub mod port_mappings;
pub mod resolv_conf;
pub mod routes;
pub mod source_routes;
pub mod tap;
pub mod veth;
pub mod vlan;
pub mod vrf;
// end of the list

pub use error::{DENIED, Error, all};
pub use plugin::{Plugin, run};
pub use request::{Request, dns_override, mtu, routes as routes_of};
pub use result::{has_mac, interface, mac};

/// Puts a plugin's own version into its component: the version of its package, or the given text.
///
/// Call this macro once in the program, beside `main`. `postern add` reads the version from the component. The plugin
/// prints the version if it is started without `CNI_COMMAND`: some programs choose nodes by the versions of the
/// nodes' plugins. The version must be a semantic version.
///
/// ```
/// postern_guest::version!();
/// ```
#[macro_export]
macro_rules! version {
    () => {
        $crate::version!(env!("CARGO_PKG_VERSION"));
    };
    ($version:expr) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            const TEXT: &str = $version;
            // The custom section in which WebAssembly tools look for the version.
            #[used]
            #[unsafe(link_section = "version")]
            static VERSION: [u8; TEXT.len()] = *TEXT.as_bytes().first_chunk().unwrap();
        };
    };
}

/// The types of the protocol.
pub use postern_cni as cni;
/// The values that capabilities take and return.
pub use postern_types as types;
