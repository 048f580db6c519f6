//! The rules for the names of containers, networks and interfaces.

use crate::error::{Error, code};

/// True for a letter or digit, followed by letters, digits, `_`, `.` and `-`.
fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// Checks a container ID.
///
/// # Errors
/// Code 3 if the ID is empty, code 4 if it has invalid characters.
pub fn validate_container_id(id: &str) -> Result<(), Error> {
    match id {
        "" => Err(Error::new(code::UNKNOWN_CONTAINER, "missing containerID")),
        _ if is_name(id) => Ok(()),
        _ => Err(Error::environment("invalid characters in containerID").with_details(id)),
    }
}

/// Checks a network name.
///
/// # Errors
/// Code 7 if the name is empty or has invalid characters.
pub fn validate_network_name(name: &str) -> Result<(), Error> {
    match name {
        "" => Err(Error::config("missing network name")),
        _ if is_name(name) => Ok(()),
        _ => Err(Error::config("invalid characters found in network name").with_details(name)),
    }
}

/// Checks the name of an interface by the rules of the kernel (`dev_valid_name`). A valid name has 1 to 15 bytes and no
/// slash, colon or white space. It is neither `.` nor `..`.
///
/// # Errors
/// Code 4.
pub fn validate_interface_name(name: &str) -> Result<(), Error> {
    match name {
        "" => Err(Error::environment("interface name is empty")),
        _ if name.len() > 15 => Err(Error::environment("interface name is too long")
            .with_details("interface name should be less than 16 characters")),
        "." | ".." => Err(Error::environment("interface name is . or ..")),
        _ if name.chars().any(|c| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control()) => {
            Err(Error::environment("interface name contains / or : or whitespace characters"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_ids_and_network_names() {
        for good in ["a", "0", "A.b-c_d", &"x".repeat(300)] {
            assert_eq!(validate_container_id(good), Ok(()));
            assert_eq!(validate_network_name(good), Ok(()));
        }
        for bad in ["_a", ".a", "-a", "a b", "a/b", "a\n", "ä", "a\0", "../a", "a:b"] {
            let id = validate_container_id(bad).unwrap_err();
            assert_eq!((id.code, id.details.as_str()), (4, bad));
            let name = validate_network_name(bad).unwrap_err();
            assert_eq!((name.code, name.details.as_str()), (7, bad));
            assert_eq!(name.msg, "invalid characters found in network name");
        }
        assert_eq!(validate_container_id("").unwrap_err().code, 3);
        assert_eq!(validate_network_name("").unwrap_err(), Error::config("missing network name"));
    }

    #[test]
    fn interface_names() {
        for good in ["a", "eth0", "exactly15bytes_", "a.b", "...", "ä", "-", "a%d"] {
            assert_eq!(validate_interface_name(good), Ok(()));
        }
        for (bad, message) in [
            ("", "interface name is empty"),
            ("exactly16bytes__", "interface name is too long"),
            ("ääääääää", "interface name is too long"),
            (".", "interface name is . or .."),
            ("..", "interface name is . or .."),
            ("a/b", "interface name contains / or : or whitespace characters"),
            ("a:b", "interface name contains / or : or whitespace characters"),
            ("a b", "interface name contains / or : or whitespace characters"),
            ("a\u{3000}", "interface name contains / or : or whitespace characters"),
            ("a\u{a0}", "interface name contains / or : or whitespace characters"),
            ("a\n", "interface name contains / or : or whitespace characters"),
        ] {
            let error = validate_interface_name(bad).unwrap_err();
            assert_eq!((error.code, error.msg.as_str()), (4, message), "{bad:?}");
        }
        let long = validate_interface_name("exactly16bytes__").unwrap_err();
        assert_eq!(long.details, "interface name should be less than 16 characters");
    }
}
