//! Parts of a result.

use postern_cni::Interface;
use postern_types::LinkInfo;

/// Returns a link in the form of a result. `sandbox` is `CNI_NETNS` for links of the container, and empty for links of
/// the host.
pub fn interface(link: &LinkInfo, sandbox: &str) -> Interface {
    Interface { name: link.name.clone(), mac: mac(link), sandbox: sandbox.to_owned(), ..Interface::default() }
}

/// True if an address of a result is the link's address. An empty address fits any link. Case does not matter: `tuning`
/// keeps the spelling of the configuration, and the kernel uses lower case.
pub fn has_mac(expected: &str, link: &LinkInfo) -> bool {
    expected.is_empty() || expected == mac(link) || link.mac.is_some_and(|mac| expected.parse() == Ok(mac))
}

/// Returns a link's address in the form of results and messages; empty if the link has no address.
pub fn mac(link: &LinkInfo) -> String {
    link.mac.map(|mac| mac.to_string()).unwrap_or_default()
}
