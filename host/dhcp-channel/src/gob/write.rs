//! Writing.

use super::{GobError, Value};
use std::ptr;

/// A type that we send.
#[derive(Debug)]
pub enum Schema {
    /// Signed integers.
    Int,
    /// Unsigned integers.
    Uint,
    /// `[]byte`.
    Bytes,
    /// `string`.
    Text,
    /// A slice.
    List(&'static str, &'static Schema),
    /// A struct: its name, which only shows in errors, and its fields.
    Struct(&'static str, &'static [(&'static str, &'static Schema)]),
}

/// Writes the messages of one stream. A type is described before its first value.
#[derive(Debug, Default)]
pub struct Encoder {
    /// The described types. The number of each is its place here, from [`FIRST`] on.
    types: Vec<&'static Schema>,
}

/// The number of the first type that we describe: the least that Go takes is 64, and its own begin at 65.
const FIRST: i64 = 65;

impl Encoder {
    /// Returns the messages for a value.
    ///
    /// # Errors
    /// It is not of this type.
    pub fn encode(&mut self, schema: &'static Schema, value: &Value) -> Result<Vec<u8>, GobError> {
        let mut stream = Vec::new();
        let number = self.describe(schema, &mut stream);
        let mut message = Vec::new();
        put_int(&mut message, number);
        self.put(schema, value, &mut message)?;
        put_message(&mut stream, &message);
        Ok(stream)
    }

    /// Returns the number of a type, and describes it if that has not been done.
    fn describe(&mut self, schema: &'static Schema, stream: &mut Vec<u8>) -> i64 {
        match schema {
            Schema::Int => return 2,
            Schema::Uint => return 3,
            Schema::Bytes => return 5,
            Schema::Text => return 6,
            Schema::List(..) | Schema::Struct(..) => {}
        }
        if let Some(at) = self.types.iter().position(|have| ptr::eq(*have, schema)) {
            return numbered(at);
        }
        self.types.push(schema);
        let number = numbered(self.types.len() - 1);
        let mut message = Vec::new();
        put_int(&mut message, -number);
        match schema {
            Schema::List(name, element) => {
                let element = self.describe(element, stream);
                put_uint(&mut message, 2); // a slice
                put_common(&mut message, name, number);
                put_uint(&mut message, 1);
                put_int(&mut message, element);
            }
            Schema::Struct(name, fields) => {
                let types: Vec<(&str, i64)> =
                    fields.iter().map(|(name, schema)| (*name, self.describe(schema, stream))).collect();
                put_uint(&mut message, 3); // a struct
                put_common(&mut message, name, number);
                if !types.is_empty() {
                    put_uint(&mut message, 1);
                    put_uint(&mut message, types.len() as u64);
                }
                for (name, number) in types {
                    put_uint(&mut message, 1);
                    put_bytes(&mut message, name.as_bytes());
                    put_uint(&mut message, 1);
                    put_int(&mut message, number);
                    put_uint(&mut message, 0);
                }
            }
            Schema::Int | Schema::Uint | Schema::Bytes | Schema::Text => {}
        }
        // The end of the kind, and of the definition.
        message.extend([0, 0]);
        put_message(stream, &message);
        number
    }

    fn put(&self, schema: &Schema, value: &Value, message: &mut Vec<u8>) -> Result<(), GobError> {
        match (schema, value) {
            (Schema::Int, Value::Int(number)) => put_int(message, *number),
            (Schema::Uint, Value::Uint(number)) => put_uint(message, *number),
            (Schema::Bytes, Value::Bytes(bytes)) => put_bytes(message, bytes),
            (Schema::Text, Value::Text(text)) => put_bytes(message, text.as_bytes()),
            (Schema::List(_, element), Value::List(list)) => {
                put_uint(message, list.len() as u64);
                for value in list {
                    self.put(element, value, message)?;
                }
            }
            (Schema::Struct(_, fields), Value::Struct(_)) => {
                let mut distance = 0;
                for (name, schema) in *fields {
                    distance += 1;
                    if let Some(value) = value.field(name).filter(|value| !is_zero(value)) {
                        put_uint(message, distance);
                        self.put(schema, value, message)?;
                        distance = 0;
                    }
                }
                put_uint(message, 0);
            }
            _ => return Err(GobError("a value is not of its type")),
        }
        Ok(())
    }
}

/// Returns the number of a type by its place.
fn numbered(at: usize) -> i64 {
    i64::try_from(at).map_or(i64::MAX, |at| FIRST.saturating_add(at))
}

/// True for a value that Go leaves out.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Int(number) => *number == 0,
        Value::Uint(number) => *number == 0,
        Value::Float(number) => *number == 0.0,
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::Text(text) => text.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(pairs) => pairs.is_empty(),
        // Go sends every struct, an empty one as its end.
        Value::Struct(_) => false,
    }
}

/// Writes the name and the number of a type.
fn put_common(message: &mut Vec<u8>, name: &str, number: i64) {
    put_uint(message, 1);
    put_uint(message, 1);
    put_bytes(message, name.as_bytes());
    put_uint(message, 1);
    put_int(message, number);
    put_uint(message, 0);
}

fn put_message(stream: &mut Vec<u8>, message: &[u8]) {
    put_bytes(stream, message);
}

fn put_bytes(message: &mut Vec<u8>, bytes: &[u8]) {
    put_uint(message, bytes.len() as u64);
    message.extend(bytes);
}

fn put_int(message: &mut Vec<u8>, number: i64) {
    let bits = if number < 0 { (!number as u64) << 1 | 1 } else { (number as u64) << 1 };
    put_uint(message, bits);
}

fn put_uint(message: &mut Vec<u8>, number: u64) {
    if number < 128 {
        message.push(number as u8);
        return;
    }
    let bytes = number.to_be_bytes();
    let count = 8 - number.leading_zeros() as usize / 8;
    message.push((count as u8).wrapping_neg());
    message.extend(bytes.iter().skip(8 - count));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gob::{Decoder, split};

    /// As the page of Go's package shows them.
    #[test]
    fn numbers_as_the_documentation_of_go_has_them() {
        for (number, bytes) in [(0, vec![0]), (7, vec![7]), (256, vec![0xfe, 1, 0]), (u64::MAX, vec![0xf8; 1])] {
            let mut message = Vec::new();
            put_uint(&mut message, number);
            assert_eq!(message.get(..bytes.len()), Some(&bytes[..]), "{number}");
        }
        for (number, bytes) in [(-129, vec![0xfe, 1, 1]), (64, vec![0xff, 128]), (-65, vec![0xff, 129])] {
            let mut message = Vec::new();
            put_int(&mut message, number);
            assert_eq!(message, bytes, "{number}");
        }
    }

    /// `type Point struct { X, Y int }`, value {22, 33}, and the bytes of the documentation.
    #[test]
    fn the_point_of_the_documentation_of_go() {
        static POINT: Schema = Schema::Struct("Point", &[("X", &Schema::Int), ("Y", &Schema::Int)]);
        let value = Value::Struct(vec![("X".to_owned(), Value::Int(22)), ("Y".to_owned(), Value::Int(33))]);
        let stream = Encoder::default().encode(&POINT, &value).unwrap();
        let expected = [
            0x1f, 0xff, 0x81, 0x03, 0x01, 0x01, 0x05, 0x50, 0x6f, 0x69, 0x6e, 0x74, 0x01, 0xff, 0x82, 0x00, 0x01, 0x02,
            0x01, 0x01, 0x58, 0x01, 0x04, 0x00, 0x01, 0x01, 0x59, 0x01, 0x04, 0x00, 0x00, 0x00, 0x07, 0xff, 0x82, 0x01,
            0x2c, 0x01, 0x42, 0x00,
        ];
        assert_eq!(stream, expected);
        assert_eq!(decode(&stream), [value]);
    }

    fn decode(mut stream: &[u8]) -> Vec<Value> {
        let (mut decoder, mut values) = (Decoder::default(), Vec::new());
        while let Some((message, rest)) = split(stream).unwrap() {
            values.extend(decoder.message(message).unwrap());
            stream = rest;
        }
        values
    }

    #[test]
    fn what_is_written_is_read() {
        static INNER: Schema = Schema::Struct("Inner", &[("Text", &Schema::Text), ("Bytes", &Schema::Bytes)]);
        static OUTER: Schema =
            Schema::Struct("Outer", &[("Zero", &Schema::Uint), ("List", &Schema::List("[]Inner", &INNER))]);
        let inner = |text: &str| {
            Value::Struct(vec![
                ("Text".to_owned(), Value::Text(text.to_owned())),
                ("Bytes".to_owned(), Value::Bytes(vec![0; 300])),
            ])
        };
        let value = Value::Struct(vec![("List".to_owned(), Value::List(vec![inner("a"), inner("\u{fc}")]))]);
        let mut encoder = Encoder::default();
        let mut stream = encoder.encode(&OUTER, &value).unwrap();
        let first = stream.len();
        stream.extend(encoder.encode(&OUTER, &value).unwrap());
        assert!(stream.len() - first < first, "a type is described once");
        assert_eq!(decode(&stream), [value.clone(), value]);
    }

    #[test]
    fn bytes_that_make_no_sense_are_refused() {
        static TEXT: Schema = Schema::Struct("T", &[("Text", &Schema::Text)]);
        let value = Value::Struct(vec![("Text".to_owned(), Value::Text("text".to_owned()))]);
        let stream = Encoder::default().encode(&TEXT, &value).unwrap();
        // Each byte, each value: nothing panics, takes long or allocates what the bytes do not hold.
        for at in 0..stream.len() {
            for byte in 0..=255 {
                let mut spoilt = stream.clone();
                spoilt[at] = byte;
                let (mut decoder, mut rest) = (Decoder::default(), &spoilt[..]);
                while let Ok(Some((message, after))) = split(rest) {
                    if decoder.message(message).is_err() {
                        break;
                    }
                    rest = after;
                }
            }
        }
        assert!(Decoder::default().message(&[0xff, 0x82, 0]).is_err(), "a type that was not defined");
        assert!(split(&[0xf8, 1, 0, 0, 0, 0, 0, 0, 0]).is_err(), "a length of 2^56");
        assert_eq!(split(&[0xfe, 1]).unwrap(), None);
    }
}
