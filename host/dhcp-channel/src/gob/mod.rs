//! Go's encoding of values, `gob` (the page of the Go package encoding/gob describes it), as far as net/rpc needs it.
//!
//! A stream is a sequence of messages. A message is its length and either the definition of a type, or a value with the
//! number of its type. So a reader needs no knowledge of the sender's types: [`Decoder`] makes a [`Value`] of each
//! message. A writer describes each type once: [`Encoder`].
//!
//! The peer may be anybody with the rights of root, but the bytes are checked as if it were not. Each length is compared
//! with the bytes that are there, and nesting is limited.

mod read;
mod write;

pub use read::{Decoder, split};
pub use write::{Encoder, Schema};

/// The longest message in bytes. A network's configuration is in it, and nothing else of length.
pub const LONGEST: usize = 8 << 20;

/// A value of any type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `bool`.
    Bool(bool),
    /// All signed integers.
    Int(i64),
    /// All unsigned integers.
    Uint(u64),
    /// All floating-point numbers.
    Float(f64),
    /// `[]byte`, and values that their own method encodes.
    Bytes(Vec<u8>),
    /// `string`.
    Text(String),
    /// Arrays and slices.
    List(Vec<Value>),
    /// Maps, in the order of the stream.
    Map(Vec<(Value, Value)>),
    /// Structs: the fields that are present. A field with its zero value is left out.
    Struct(Vec<(String, Value)>),
}

impl Value {
    /// Returns the field of that name of a struct.
    pub fn field(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Struct(fields) => fields.iter().find(|(have, _)| have == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the text of a field; an absent one is empty, as in Go. `None` if it is no text.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.field(name) {
            None => Some(""),
            Some(Self::Text(text)) => Some(text),
            Some(_) => None,
        }
    }

    /// Returns the number of a field; an absent one is 0. `None` if it is no number.
    pub fn number(&self, name: &str) -> Option<i128> {
        match self.field(name) {
            None => Some(0),
            Some(Self::Int(number)) => Some((*number).into()),
            Some(Self::Uint(number)) => Some((*number).into()),
            Some(_) => None,
        }
    }

    /// Returns the bytes of a field; an absent one is empty. `None` if it has no bytes.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        match self.field(name) {
            None => Some(&[]),
            Some(Self::Bytes(bytes)) => Some(bytes),
            Some(_) => None,
        }
    }

    /// Returns the elements of a field; an absent one is empty. `None` if it is no list.
    pub fn list(&self, name: &str) -> Option<&[Value]> {
        match self.field(name) {
            None => Some(&[]),
            Some(Self::List(list)) => Some(list),
            Some(_) => None,
        }
    }
}

/// Bytes that are no `gob`, or more than is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no message of Go's RPC: {0}")]
pub struct GobError(pub &'static str);
