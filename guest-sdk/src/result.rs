//! Parts of a result.

use postern_cni::Interface;
use postern_types::LinkInfo;

/// Returns a link in the form of a result. `sandbox` is `CNI_NETNS` for links of the container, and empty for the
/// host's.
pub fn interface(link: &LinkInfo, sandbox: &str) -> Interface {
    Interface { name: link.name.clone(), mac: mac(link), sandbox: sandbox.to_owned(), ..Interface::default() }
}

/// Returns a link's address as results and messages write it; empty if it has none.
pub fn mac(link: &LinkInfo) -> String {
    link.mac.map(|mac| mac.to_string()).unwrap_or_default()
}
