//! The identifier of a client: option 61, and the DUID of DHCPv6.

use crate::config::Options;
use sha2::{Digest as _, Sha256};

/// The longest identifier without its type byte. An option has at most 255 bytes, type byte included.
const LONGEST: usize = 254;

/// Returns the identifier that the native daemon gives to an attachment: a byte for "no type of hardware", then the
/// attachment's names. A longer identifier is cut, as in the native daemon.
pub fn client_id(container: &str, network: &str, ifname: &str) -> Vec<u8> {
    let names = format!("{container}/{network}/{ifname}");
    std::iter::once(0).chain(names.bytes().take(LONGEST)).collect()
}

/// Returns the identifier that the operator provides as option `dhcp-client-identifier`. The client sends it unchanged,
/// without a type byte. Also `None` if the configuration can't be read: [`Options::read`] returns the error.
pub fn provided_id(configuration: &str, args: &str) -> Option<Vec<u8>> {
    Options::read(configuration, args).ok()?.id
}

/// Returns the DHCPv6 identifier of an attachment: a DUID with a UUID (RFC 6355) computed from the attachment's names.
/// Equal names give equal identifiers.
pub fn duid(container: &str, network: &str, ifname: &str) -> Vec<u8> {
    let hash = Sha256::digest(format!("{container}/{network}/{ifname}"));
    // DUID type 4, and a UUID of version 8, whose bits are free to choose (RFC 9562).
    let mut duid = vec![0, 4];
    for (at, byte) in hash.iter().take(16).enumerate() {
        duid.push(match at {
            6 => byte & 0x0f | 0x80,
            8 => byte & 0x3f | 0x80,
            _ => *byte,
        });
    }
    duid
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
    fn a_duid_is_a_uuid_of_the_names() {
        let id = duid("abc", "net", "eth0");
        assert_eq!((id.len(), &id[..2], id[8] >> 4, id[10] >> 6), (18, &[0, 4][..], 8, 2));
        assert_eq!(id, duid("abc", "net", "eth0"));
        assert_ne!(id, duid("abc", "net", "eth1"));
    }

    #[test]
    fn an_operator_can_provide_it() {
        let conf = r#"{"name":"n","ipam":{"provide":[{"option":"dhcp-client-identifier","fromArg":"ID"}]}}"#;
        assert_eq!(provided_id(conf, "ID=node-7"), Some(b"node-7".to_vec()));
        assert_eq!(provided_id(conf, "K8S_POD_NAME=p"), None);
        assert_eq!(provided_id("{", ""), None);
    }
}
