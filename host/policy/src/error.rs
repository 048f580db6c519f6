//! Errors of policy files that are wrong or ambiguous. Each error names the place, the fault, and the possible values.

use crate::grammar::names;
use crate::prelude::*;
use postern_cni::Version;

/// The configuration makes a value of the policy ambiguous.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ambiguous {
    /// A key is spelt in two ways. Plugins take the last spelling, and people who read the configuration should not
    /// have to know this.
    #[error("the configuration has both \"{first}\" and \"{second}\", and the policy depends on this key")]
    Spellings {
        /// The first spelling.
        first: String,
        /// The second spelling.
        second: String,
    },
    /// `CNI_ARGS` has a key twice.
    #[error("CNI_ARGS has {0} twice, and the policy depends on this key")]
    Argument(String),
}

/// An impossible value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("\"{0}\" has a `${{` without its `}}`")]
    Unclosed(String),
    #[error(
        "`${{{0}}}` is no placeholder: it can be `${{config.KEY}}`, `${{config.KEY.*.KEY}}` (each element of a list), \
         `${{args.KEY}}` or `${{args.KEY.*}}` (CNI_ARGS), each can end with ` | DEFAULT`"
    )]
    Placeholder(String),
    #[error("\"{text}\" has stars for different lists, `{first}` and `{second}`: a value can have one list only")]
    Lists { text: String, first: String, second: String },
    #[error("\"{text}\" is no {possible}")]
    Kind { text: String, possible: &'static str },
}

/// A limit outside of its possible range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("[limits] {key} = {value}: it can be {least} to {most}")]
pub struct LimitError {
    pub key: String,
    pub value: u32,
    pub least: u32,
    pub most: u32,
}

/// A file that can't be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The file is no TOML; the text is the parser's.
    #[error("{0}")]
    Toml(String),
    #[error("{place}: unknown field `{key}`, expected {}", expected(possible))]
    Unknown { place: String, key: String, possible: Vec<&'static str> },
    #[error("{place}: it must be {wanted}, not {found}")]
    Type { place: String, wanted: &'static str, found: String },
    #[error("digest: \"{0}\" is no digest: it can be \"sha256:\" and 64 hexadecimal digits")]
    Digest(String),
    #[error("gc: \"{0}\" is no collector: it can be \"host\" or \"guest\"")]
    Collector(String),
    #[error("versions: the list is empty: it can have {}", versions())]
    NoVersions,
    #[error("versions: \"{text}\" is no version of CNI: it can be {}", versions())]
    Version { text: String },
    #[error("withdraw: \"{name}\" is no capability: the capabilities are {}", names().join(", "))]
    Capability { name: String },
    /// The limits can't be read; the text is the parser's.
    #[error("[limits]: {0}")]
    Limits(String),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("{0}: the key is missing: without this key nothing is granted")]
    Missing(String),
    #[error("{0}: the list is empty: name something, or remove the key or its table")]
    Empty(String),
    #[error("{place}: {error}")]
    Value { place: String, error: ValueError },
}

fn expected(possible: &[&str]) -> String {
    match possible {
        [one] => format!("`{one}`"),
        several => format!("one of `{}`", several.join("`, `")),
    }
}

fn versions() -> String {
    Version::ALL.iter().map(|version| format!("\"{version}\"")).collect::<Vec<_>>().join(", ")
}
