//! Random values that must be unique, but not secret.

use std::hash::{BuildHasher, RandomState};

/// Returns eight random bytes. The standard library seeds this hasher from the kernel's generator, differently each
/// time.
fn random() -> [u8; 8] {
    RandomState::new().hash_one(0u8).to_ne_bytes()
}

/// Returns a random number below `end`. `end` is at most 256.
pub(crate) fn random_below(end: u32) -> u32 {
    let [byte, ..] = random();
    u32::from(byte).checked_rem(end).unwrap_or_default()
}

/// Returns a random link-layer address: unicast, and locally administered (IEEE 802, second bit of the first byte).
pub fn random_mac() -> [u8; 6] {
    let [first, b, c, d, e, f, ..] = random();
    [first & 0xfe | 0x02, b, c, d, e, f]
}

/// Returns a name for the host end of a veth pair: `veth` and eight hexadecimal digits, as the native plugins make
/// them.
pub fn random_veth_name() -> String {
    random_name("veth")
}

/// Returns the name `prefix` and eight hexadecimal digits. `prefix` has at most seven bytes.
pub(crate) fn random_name(prefix: &str) -> String {
    let [a, b, c, d, ..] = random();
    format!("{prefix}{a:02x}{b:02x}{c:02x}{d:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn addresses_are_local_unicast_and_differ() {
        let macs: HashSet<_> = (0..1000).map(|_| random_mac()).collect();
        assert_eq!(macs.len(), 1000);
        assert!(macs.iter().all(|mac| mac[0] & 3 == 2));
        // Every other bit takes both values.
        for byte in 0..6 {
            assert_eq!(macs.iter().fold(0, |bits, mac| bits | mac[byte]), if byte == 0 { 0xfe } else { 0xff });
            assert_eq!(macs.iter().fold(0xff, |bits, mac| bits & mac[byte]), if byte == 0 { 0x02 } else { 0 });
        }
    }

    #[test]
    fn names_are_veth_and_eight_digits() {
        let names: HashSet<_> = (0..1000).map(|_| random_veth_name()).collect();
        assert!(names.len() > 990);
        for name in names {
            let digits = name.strip_prefix("veth").unwrap();
            assert!(digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()));
        }
    }
}
