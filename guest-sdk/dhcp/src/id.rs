//! The identifier of a client: option 61.

use crate::config::Options;

/// The longest identifier without its type byte: an option has 255 bytes.
const LONGEST: usize = 254;

/// Returns the identifier that the native daemon gives to an attachment: its names, after a byte for "no type of
/// hardware". A longer one is cut, as natively.
pub fn client_id(container: &str, network: &str, ifname: &str) -> Vec<u8> {
    let names = format!("{container}/{network}/{ifname}");
    std::iter::once(0).chain(names.bytes().take(LONGEST)).collect()
}

/// Returns the identifier that the operator provides as an option instead (`dhcp-client-identifier`). It goes on the
/// wire as it is, without a type byte. A configuration that can't be read provides none: [`Options::read`] has the error.
pub fn provided_id(configuration: &str, args: &str) -> Option<Vec<u8>> {
    Options::read(configuration, args).ok()?.id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_those_of_the_native_daemon() {
        assert_eq!(client_id("abc", "net", "eth0"), b"\0abc/net/eth0");
        let long = client_id(&"c".repeat(300), "net", "eth0");
        assert_eq!((long.len(), long.last()), (255, Some(&b'c')));
    }

    #[test]
    fn an_operator_can_provide_it() {
        let conf = r#"{"name":"n","ipam":{"provide":[{"option":"dhcp-client-identifier","fromArg":"ID"}]}}"#;
        assert_eq!(provided_id(conf, "ID=node-7"), Some(b"node-7".to_vec()));
        assert_eq!(provided_id(conf, "K8S_POD_NAME=p"), None);
        assert_eq!(provided_id("{", ""), None);
    }
}
