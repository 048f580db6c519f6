//! Link-layer addresses.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An Ethernet address: six bytes, printed as `02:00:5e:10:00:01` (the kernel's lower-case form).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Mac(pub [u8; 6]);

/// The error of a text that is not a link-layer address of six bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MacParseError {
    /// The text has no form that Go's `net.ParseMAC` accepts.
    #[error("address {0}: invalid MAC address")]
    Syntax(String),
    /// The text is an EUI-64 or InfiniBand address (8 or 20 bytes). The text parses, but no Ethernet link accepts this
    /// address.
    #[error("address {0}: not an Ethernet address of 6 bytes")]
    Length(String),
}

impl Mac {
    /// True if a link can have this address: it is neither a group address nor zero.
    #[must_use]
    pub fn is_unicast(self) -> bool {
        let [first, ..] = self.0;
        first & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl TryFrom<String> for Mac {
    type Error = MacParseError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// Accepts the forms of Go's `net.ParseMAC`, as the native plugins do: `00:00:5e:00:53:01`, `00-00-5e-00-53-01`,
/// `0000.5e00.5301`. The longer forms of 8 and 20 bytes are refused as [`MacParseError::Length`].
impl FromStr for Mac {
    type Err = MacParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let syntax = || MacParseError::Syntax(text.to_owned());
        let (separator, digits) = match (text.as_bytes().get(2), text.as_bytes().get(4)) {
            (Some(b':'), _) => (':', 2),
            (Some(b'-'), _) => ('-', 2),
            (_, Some(b'.')) => ('.', 4),
            _ => return Err(syntax()),
        };
        let mut bytes = Vec::new();
        for group in text.split(separator) {
            if group.len() != digits || !group.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(syntax());
            }
            for pair in group.as_bytes().chunks(2) {
                let pair = std::str::from_utf8(pair).map_err(|_| syntax())?;
                bytes.push(u8::from_str_radix(pair, 16).map_err(|_| syntax())?);
            }
        }
        match <[u8; 6]>::try_from(bytes.as_slice()) {
            Ok(mac) => Ok(Self(mac)),
            Err(_) if matches!(bytes.len(), 8 | 20) => Err(MacParseError::Length(text.to_owned())),
            Err(_) => Err(syntax()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_go_accepts() {
        for text in ["02:00:5e:10:00:01", "02-00-5E-10-00-01", "0200.5e10.0001"] {
            assert_eq!(text.parse::<Mac>().unwrap().to_string(), "02:00:5e:10:00:01");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in
            ["", "0", "02:00:5e:10:00", "02:00:5e:10:00:0g", "2:0:5e:10:0:1", "020.05e.100.001", "02:00-5e:10:00:01"]
        {
            assert!(matches!(text.parse::<Mac>(), Err(MacParseError::Syntax(_))), "{text}");
        }
        assert!(matches!("02:00:5e:10:00:00:00:01".parse::<Mac>(), Err(MacParseError::Length(_))));
    }
}
