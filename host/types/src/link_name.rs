//! The name of a link in the kernel's form: bytes. Root in a container can choose nearly any bytes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{self, Write};

/// The character that begins the two hexadecimal digits of one byte. No link has a name with `%`, and look-ups refuse
/// `%`.
const ESCAPE: char = '%';

/// A name, an alternative name or an alias of a link.
///
/// In a text, `%` and each byte that is no printable text become `%` and two hexadecimal digits. Two names never have
/// the same text. No link has a name with `%`: the kernel replaces `%d` by a number and refuses any other `%`. So the
/// text of one link can't be the name of another link.
#[derive(Clone, Default, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName(Vec<u8>);

impl LinkName {
    /// Takes the kernel's bytes, without the zero byte that ends them.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// True if the name has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the name as a text; `None` if a byte has to be escaped.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok().filter(|text| !text.contains(is_escaped))
    }

    /// Reads the text that shows a name. A `%` without two digits stands for itself.
    #[must_use]
    pub fn from_shown(text: &str) -> Self {
        let mut bytes = Vec::with_capacity(text.len());
        let mut parts = text.split(ESCAPE);
        bytes.extend(parts.next().unwrap_or_default().bytes());
        for part in parts {
            let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
            match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                Some(byte) => {
                    bytes.push(byte);
                    bytes.extend(part.bytes().skip(2));
                }
                None => {
                    bytes.push(b'%');
                    bytes.extend(part.bytes());
                }
            }
        }
        Self(bytes)
    }
}

fn is_escaped(c: char) -> bool {
    c == ESCAPE || c.is_control()
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = self.text() {
            return f.pad(text);
        }
        let mut shown = String::new();
        let escape = |shown: &mut String, bytes: &[u8]| {
            bytes.iter().for_each(|byte| write!(shown, "{ESCAPE}{byte:02x}").unwrap_or_default());
        };
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match is_escaped(c) {
                    true => escape(&mut shown, c.encode_utf8(&mut [0; 4]).as_bytes()),
                    false => shown.push(c),
                }
            }
            escape(&mut shown, chunk.invalid());
        }
        f.pad(&shown)
    }
}

impl AsRef<[u8]> for LinkName {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl From<&str> for LinkName {
    fn from(name: &str) -> Self {
        Self(name.as_bytes().to_vec())
    }
}

impl From<String> for LinkName {
    fn from(name: String) -> Self {
        Self(name.into_bytes())
    }
}

/// The text of the name, for messages.
impl From<&LinkName> for String {
    fn from(name: &LinkName) -> Self {
        name.to_string()
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for LinkName {
    fn eq(&self, other: &T) -> bool {
        self.0 == other.as_ref()
    }
}

impl PartialEq<LinkName> for String {
    fn eq(&self, other: &LinkName) -> bool {
        other == self
    }
}

impl Serialize for LinkName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LinkName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::from_shown(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_a_text_is_shown_as_it_is() {
        for name in ["lo", "eth0.100", "käse", "a\\xff", "veth$'\"", "`"] {
            let own = LinkName::from(name);
            assert_eq!((own.text(), own.to_string().as_str()), (Some(name), name));
            assert!(own == *name && LinkName::from_shown(name) == own);
        }
    }

    /// Two names never have the same text, and the text leads back to the name.
    #[test]
    fn other_names_are_escaped_without_ambiguity() {
        for (name, shown) in [
            (&b"\xff"[..], "%ff"),
            (b"\\xff", "\\xff"),
            (b"%ff", "%25ff"),
            (b"%", "%25"),
            (b"eth\xc3\x28", "eth%c3("),
            (b"\xc3\xa4\xc3", "ä%c3"),
            (b"a\x1b[2J\n", "a%1b[2J%0a"),
            ("a\u{85}".as_bytes(), "a%c2%85"),
        ] {
            let own = LinkName::new(name);
            assert_eq!(own.to_string(), shown);
            assert_eq!(LinkName::from_shown(shown), own);
            assert!(own.text().is_none_or(|text| text == shown));
            assert_eq!(serde_json::from_str::<LinkName>(&serde_json::to_string(&own).unwrap()).unwrap(), own);
        }
        for byte in 0..=u8::MAX {
            for name in [vec![byte], vec![b'a', byte, 0xff], vec![0xe2, 0x82, byte], vec![b'%', byte]] {
                let own = LinkName::new(name);
                assert_eq!(LinkName::from_shown(&own.to_string()), own);
            }
        }
    }

    #[test]
    fn a_percent_sign_without_digits_stands_for_itself() {
        for text in ["100%", "100% of", "%", "%%", "%fx", "%é", "a%"] {
            assert_eq!(LinkName::from_shown(text), *text);
        }
    }
}
