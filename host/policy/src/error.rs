//! Why a policy file means nothing, or nothing certain: each error names its place, what is wrong there, and what is possible.

use crate::grammar::names;
use crate::prelude::*;
use postern_cni::Version;

/// The configuration makes a value of the policy ambiguous.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ambiguous {
    /// Of several spellings plugins take the last, and nobody should have to know.
    #[error("the configuration has both \"{first}\" and \"{second}\", and what a plugin may do depends on it")]
    Spellings {
        /// As it is spelt first.
        first: String,
        /// And then.
        second: String,
    },
    /// A key of `CNI_ARGS`.
    #[error("CNI_ARGS has {0} twice, and what a plugin may do depends on it")]
    Argument(String),
}

/// A value that can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// A placeholder that does not end.
    #[error("\"{0}\" has a `${{` without its `}}`")]
    Unclosed(String),
    /// The text between the braces.
    #[error(
        "`${{{0}}}` is no placeholder: it can be `${{config.KEY}}`, `${{config.KEY.*.KEY}}` (each element of a list), \
         `${{args.KEY}}` or `${{args.KEY.*}}` (CNI_ARGS), each with ` | DEFAULT` behind it"
    )]
    Placeholder(String),
    /// Stars that would not walk together.
    #[error("\"{text}\" has stars for different lists, `{first}` and `{second}`: those of one value must be for one")]
    Lists {
        /// The value.
        text: String,
        /// One list.
        first: String,
        /// Another.
        second: String,
    },
    /// It is not of the key's kind.
    #[error("\"{text}\" is no {possible}")]
    Kind {
        /// The value.
        text: String,
        /// The form that it must have.
        possible: &'static str,
    },
}

/// A limit beyond what is possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("[limits] {key} = {value}: it can be {least} to {most}")]
pub struct LimitError {
    /// Its key.
    pub key: String,
    /// The value in the file.
    pub value: u32,
    /// The floor.
    pub least: u32,
    /// The ceiling.
    pub most: u32,
}

/// A file that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It is no TOML, in the parser's words.
    #[error("{0}")]
    Toml(String),
    /// A key or a table that there is not.
    #[error("{place}: unknown field `{key}`, expected {}", expected(possible))]
    Unknown {
        /// The table.
        place: String,
        /// The key.
        key: String,
        /// Those that there are.
        possible: Vec<&'static str>,
    },
    /// Another type of TOML.
    #[error("{place}: it must be {wanted}, not {found}")]
    Type {
        /// The key.
        place: String,
        /// The type that the key takes.
        wanted: &'static str,
        /// The type in the file.
        found: String,
    },
    /// A digest that is none.
    #[error("digest: \"{0}\" is none: it can be \"sha256:\" and 64 hexadecimal digits")]
    Digest(String),
    /// Nobody that could collect garbage.
    #[error("gc: \"{0}\" is none: it can be \"host\" or \"guest\"")]
    Collector(String),
    /// No version is left.
    #[error("versions: the list is empty: it can have {}", versions())]
    NoVersions,
    /// A version that there is not.
    #[error("versions: \"{text}\" is no version of CNI: it can be {}", versions())]
    Version {
        /// As it is written.
        text: String,
    },
    /// A capability that there is not.
    #[error("withdraw: \"{name}\" is none: the capabilities are {}", names().join(", "))]
    Capability {
        /// As it is written.
        name: String,
    },
    /// `[limits]`, in the reader's words.
    #[error("[limits]: {0}")]
    Limits(String),
    /// One of them.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A table without the key that it is about.
    #[error("{0}: it is missing: without it nothing is granted")]
    Missing(String),
    /// A list that has to name something.
    #[error("{0}: the list is empty: name something, or take the key or its table out")]
    Empty(String),
    /// A value that can't be.
    #[error("{place}: {error}")]
    Value {
        /// The key.
        place: String,
        /// The fault.
        error: ValueError,
    },
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
