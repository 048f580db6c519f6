//! One key: its name, its type and its meaning.

/// A key of an object.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The name, in the spelling of the documentation.
    pub name: &'static str,
    /// The values that the key takes.
    pub kind: Kind,
    /// The default value, as JSON.
    pub default: Option<&'static str>,
    /// True if the object is invalid without the key.
    pub required: bool,
    /// False if the plugin ignores a value that has the right type but is out of range.
    pub strict: bool,
    /// The meaning.
    pub about: &'static str,
    /// A good value, as JSON. If this is `None`, the kind decides the good value.
    pub sample: Option<&'static str>,
    /// Other keys that the value needs to have an effect, as a JSON object. If a configuration lacks these keys, only
    /// the type of the value is checked.
    pub with: Option<&'static str>,
}

/// The values that a key takes. `null` counts as absent.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// `true` or `false`, as JSON or as text.
    Switch,
    /// A whole number.
    Number {
        /// The smallest number.
        least: i64,
        /// The largest number.
        most: u64,
    },
    /// A text.
    Text(Form),
    /// A list of values.
    List(&'static Kind),
    /// An object with these keys.
    Object(&'static [Key]),
    /// An object with any keys, and values of a kind.
    Map(&'static Kind),
    /// `ipam`: the keys of the IPAM plugin that its `type` names.
    Ipam,
    /// flannel's `delegate`: the keys of the plugin that its `type` names.
    Delegate,
    /// An object with any keys and values.
    Open,
}

/// The form of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Any text.
    Free,
    /// One of these texts. The empty text stands for an absent key.
    OneOf(&'static [&'static str]),
    /// A link-layer address of six bytes, or empty.
    Mac,
    /// An IP address, or empty.
    Ip,
    /// An IP address.
    RequiredIp,
    /// An IP address with prefix length.
    Cidr,
    /// An IP address, with or without prefix length.
    IpOrCidr,
    /// A version of the specification, or empty.
    Version,
    /// A path that begins at the root, or empty.
    Path,
}

impl Key {
    /// A key with this name, kind and meaning.
    pub const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, kind, default: None, required: false, strict: true, about, sample: None, with: None }
    }

    /// A key that is true or false, false by default.
    pub const fn flag(name: &'static str, about: &'static str) -> Self {
        Self { default: Some("false"), ..Self::new(name, Kind::Bool, about) }
    }

    /// A key with any text.
    pub const fn text(name: &'static str, about: &'static str) -> Self {
        Self::new(name, Kind::Text(Form::Free), about)
    }

    /// A key with a whole number.
    pub const fn number(name: &'static str, least: i64, most: u64, about: &'static str) -> Self {
        Self::new(name, Kind::Number { least, most }, about)
    }

    /// The same key with a default, as JSON.
    #[must_use]
    pub const fn default(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    /// The same key, required.
    #[must_use]
    pub const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    /// The same key; a value out of range is ignored.
    #[must_use]
    pub const fn lenient(self) -> Self {
        Self { strict: false, ..self }
    }

    /// The same key with a good value, as JSON.
    #[must_use]
    pub const fn sample(self, sample: &'static str) -> Self {
        Self { sample: Some(sample), ..self }
    }

    /// The same key. The value counts only together with these other keys, a JSON object.
    #[must_use]
    pub const fn with(self, with: &'static str) -> Self {
        Self { with: Some(with), ..self }
    }
}

impl Form {
    /// True if the text has the form.
    pub fn fits(self, text: &str) -> bool {
        match self {
            Self::Free => true,
            Self::OneOf(words) => words.contains(&text),
            Self::Mac => text.is_empty() || is_mac(text),
            Self::Ip => text.is_empty() || postern_cni::parse_ip(text).is_ok(),
            Self::RequiredIp => postern_cni::parse_ip(text).is_ok(),
            Self::Cidr => postern_cni::parse_cidr(text).is_ok(),
            Self::IpOrCidr => postern_cni::parse_ip(text).is_ok() || postern_cni::parse_cidr(text).is_ok(),
            Self::Version => postern_cni::Version::parse(text).is_some(),
            Self::Path => text.is_empty() || text.starts_with('/'),
        }
    }

    /// Describes a valid text.
    pub fn wanted(self) -> String {
        match self {
            Self::Free => "a text".to_owned(),
            Self::OneOf(words) => {
                let words: Vec<String> =
                    words.iter().filter(|word| !word.is_empty()).map(|word| format!("\"{word}\"")).collect();
                words.join(", ")
            }
            Self::Mac => "a link-layer address of 6 bytes, such as 02:00:5e:10:00:01".to_owned(),
            Self::Ip | Self::RequiredIp => "an IP address, such as 10.1.2.3".to_owned(),
            Self::Cidr => "an IP address with its prefix length, such as 10.1.2.0/24".to_owned(),
            Self::IpOrCidr => "an IP address, such as 10.1.2.3 or 10.1.2.3/24".to_owned(),
            Self::Version => "a version of the specification, such as 1.0.0".to_owned(),
            Self::Path => "a path that begins with /".to_owned(),
        }
    }
}

/// True for six bytes in one of the three notations of Go: with colons, with hyphens, with dots.
fn is_mac(text: &str) -> bool {
    let is = |separator: char, groups: usize, digits: usize| {
        let mut count = 0;
        let good = text.split(separator).all(|group| {
            count += 1;
            group.len() == digits && group.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        good && count == groups
    };
    is(':', 6, 2) || is('-', 6, 2) || is('.', 3, 4)
}

impl Kind {
    /// Describes a valid value, for people.
    pub fn wanted(&self) -> String {
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Switch => "true or false".to_owned(),
            Self::Number { least, most } => match (*least, *most) {
                (least, most) if most >= u64::from(u32::MAX) && least == 0 => "a whole number of 0 or more".to_owned(),
                (least, most) => format!("a whole number from {least} to {most}"),
            },
            Self::Text(form) => form.wanted(),
            Self::List(_) => "a list".to_owned(),
            Self::Object(_) | Self::Map(_) | Self::Ipam | Self::Delegate | Self::Open => "an object".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for (form, good, bad) in [
            (Form::Mac, ["02:00:5e:10:00:01", "0200.5e10.0001"], ["02:00:5e:10:00", "02:00:5e:10:00:0g"]),
            (Form::Ip, ["10.1.2.3", ""], ["10.1.2", "10.1.2.3/24"]),
            (Form::Cidr, ["10.1.2.3/24", "fd00::/64"], ["10.1.2.3", ""]),
            (Form::IpOrCidr, ["10.1.2.3/24", "fd00::1"], ["10.1.2.3/33", ""]),
            (Form::Version, ["1.0.0", ""], ["1.0", "v1.0.0"]),
            (Form::Path, ["/run", ""], ["run", "./run"]),
        ] {
            for text in good {
                assert!(form.fits(text), "{form:?} {text}");
            }
            for text in bad {
                assert!(!form.fits(text), "{form:?} {text}");
            }
        }
    }
}
