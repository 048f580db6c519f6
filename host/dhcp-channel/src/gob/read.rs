//! Reading.

use super::{GobError, LONGEST, Value};
use std::collections::BTreeMap;

/// The deepest nesting of types in a value.
const DEEPEST: usize = 16;

/// The most types that a peer may define.
const MOST_TYPES: usize = 256;

/// The first number of a type that a peer defines; those below are Go's own.
const FIRST: i64 = 64;

/// A message and what follows it; `None` if it is not complete yet.
pub type Split<'a> = Option<(&'a [u8], &'a [u8])>;

/// Splits a message off a stream.
///
/// # Errors
/// It is longer than [`LONGEST`], or its length makes no sense.
pub fn split(stream: &[u8]) -> Result<Split<'_>, GobError> {
    let mut cursor = Cursor(stream);
    let length = match cursor.uint() {
        Ok(length) => length,
        // A length takes nine bytes at most.
        Err(_) if stream.len() < 9 => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST);
    let length = length.ok_or(GobError("a message is too long"))?;
    Ok(cursor.0.split_at_checked(length))
}

/// What a peer has defined.
#[derive(Clone, Debug)]
enum Type {
    Array(i64),
    Slice(i64),
    Struct(Vec<(String, i64)>),
    Map(i64, i64),
    /// Values that a method of their own encodes: bytes for everybody else.
    Opaque,
}

/// Reads the messages of one stream.
#[derive(Debug, Default)]
pub struct Decoder {
    types: BTreeMap<i64, Type>,
}

impl Decoder {
    /// Reads one message. `None` if it defines a type.
    ///
    /// # Errors
    /// It is no such message.
    pub fn message(&mut self, message: &[u8]) -> Result<Option<Value>, GobError> {
        let mut cursor = Cursor(message);
        let number = cursor.int()?;
        if number < 0 {
            let number = number.checked_neg().ok_or(GobError("a type's number is too small"))?;
            let defined = definition(&mut cursor)?;
            cursor.end()?;
            if number < FIRST || self.types.len() >= MOST_TYPES || self.types.insert(number, defined).is_some() {
                return Err(GobError("a type is defined twice, or there are too many"));
            }
            return Ok(None);
        }
        // A value that is no struct comes behind a zero.
        if !matches!(self.types.get(&number), Some(Type::Struct(_))) && cursor.uint()? != 0 {
            return Err(GobError("a value has a field and is no struct"));
        }
        let value = self.value(number, &mut cursor, 0)?;
        cursor.end()?;
        Ok(Some(value))
    }

    fn value(&self, number: i64, cursor: &mut Cursor<'_>, depth: usize) -> Result<Value, GobError> {
        if depth > DEEPEST {
            return Err(GobError("a value is nested too deeply"));
        }
        let next = depth + 1;
        Ok(match number {
            1 => Value::Bool(cursor.uint()? != 0),
            2 => Value::Int(cursor.int()?),
            3 => Value::Uint(cursor.uint()?),
            4 => Value::Float(f64::from_bits(cursor.uint()?.swap_bytes())),
            5 => Value::Bytes(cursor.bytes()?.to_vec()),
            6 => Value::Text(cursor.text()?),
            _ => match self.types.get(&number).ok_or(GobError("a value has a type that was not defined"))? {
                Type::Opaque => Value::Bytes(cursor.bytes()?.to_vec()),
                Type::Array(element) | Type::Slice(element) => {
                    let count = cursor.count()?;
                    Value::List((0..count).map(|_| self.value(*element, cursor, next)).collect::<Result<_, _>>()?)
                }
                Type::Map(key, value) => {
                    let count = cursor.count()?;
                    let mut pairs = Vec::new();
                    for _ in 0..count {
                        pairs.push((self.value(*key, cursor, next)?, self.value(*value, cursor, next)?));
                    }
                    Value::Map(pairs)
                }
                Type::Struct(fields) => {
                    let mut present = Vec::new();
                    let mut at = Fields::default();
                    while let Some(index) = at.next(cursor)? {
                        let (name, number) = fields.get(index).ok_or(GobError("a struct has no such field"))?;
                        present.push((name.clone(), self.value(*number, cursor, next)?));
                    }
                    Value::Struct(present)
                }
            },
        })
    }
}

/// Reads the definition of a type: a struct of one field, which says the kind.
fn definition(cursor: &mut Cursor<'_>) -> Result<Type, GobError> {
    let mut kinds = Fields::default();
    let mut defined = None;
    while let Some(kind) = kinds.next(cursor)? {
        let mut fields = Fields::default();
        let (mut first, mut second, mut members) = (0, 0, Vec::new());
        while let Some(field) = fields.next(cursor)? {
            match (kind, field) {
                (_, 0) => common(cursor)?,
                (0, 2) => drop(cursor.int()?),
                (2, 1) => {
                    for _ in 0..cursor.count()? {
                        members.push(member(cursor)?);
                    }
                }
                (0 | 1 | 3, 1) => first = cursor.int()?,
                (3, 2) => second = cursor.int()?,
                _ => return Err(GobError("a type has a part that is not known")),
            }
        }
        defined = Some(match kind {
            0 => Type::Array(first),
            1 => Type::Slice(first),
            2 => Type::Struct(members),
            3 => Type::Map(first, second),
            4..=6 => Type::Opaque,
            _ => return Err(GobError("a type is of an unknown kind")),
        });
    }
    defined.ok_or(GobError("a type is of no kind"))
}

/// Skips the name and the number of a type, which are there for error messages.
fn common(cursor: &mut Cursor<'_>) -> Result<(), GobError> {
    let mut fields = Fields::default();
    while let Some(field) = fields.next(cursor)? {
        match field {
            0 => drop(cursor.bytes()?),
            1 => drop(cursor.int()?),
            _ => return Err(GobError("a type has a part that is not known")),
        }
    }
    Ok(())
}

/// Reads a field of a struct's type: its name and its type.
fn member(cursor: &mut Cursor<'_>) -> Result<(String, i64), GobError> {
    let mut fields = Fields::default();
    let (mut name, mut number) = (String::new(), 0);
    while let Some(field) = fields.next(cursor)? {
        match field {
            0 => name = cursor.text()?,
            1 => number = cursor.int()?,
            _ => return Err(GobError("a type has a part that is not known")),
        }
    }
    Ok((name, number))
}

/// The numbers of a struct's fields. Each is sent as the distance from the one before; zero ends the struct.
#[derive(Debug, Default)]
struct Fields(u64);

impl Fields {
    /// Returns the index of the next field that is present.
    fn next(&mut self, cursor: &mut Cursor<'_>) -> Result<Option<usize>, GobError> {
        let distance = cursor.uint()?;
        if distance == 0 {
            return Ok(None);
        }
        self.0 = self.0.checked_add(distance).ok_or(GobError("a struct has no such field"))?;
        usize::try_from(self.0 - 1).map(Some).map_err(|_| GobError("a struct has no such field"))
    }
}

/// The rest of a message.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], GobError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(GobError("a message ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn end(&self) -> Result<(), GobError> {
        if self.0.is_empty() { Ok(()) } else { Err(GobError("a message has more than its value")) }
    }

    /// A number below 128 is one byte. Any other is the negated count of its bytes, and those bytes.
    fn uint(&mut self) -> Result<u64, GobError> {
        let [first] = *self.take(1)? else { return Err(GobError("a message ends too early")) };
        if first < 128 {
            return Ok(first.into());
        }
        let count = usize::from(first.wrapping_neg());
        if count > 8 {
            return Err(GobError("a number is too long"));
        }
        Ok(self.take(count)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// The lowest bit says whether the others are inverted.
    fn int(&mut self) -> Result<i64, GobError> {
        let number = self.uint()?;
        let half = i64::try_from(number >> 1).unwrap_or(i64::MAX);
        Ok(if number & 1 == 1 { !half } else { half })
    }

    /// Reads a number of elements. Each takes a byte at least.
    fn count(&mut self) -> Result<usize, GobError> {
        let count = usize::try_from(self.uint()?).unwrap_or(usize::MAX);
        if count > self.0.len() { Err(GobError("a list is longer than its message")) } else { Ok(count) }
    }

    fn bytes(&mut self) -> Result<&'a [u8], GobError> {
        let count = self.count()?;
        self.take(count)
    }

    fn text(&mut self) -> Result<String, GobError> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| GobError("a text is not UTF-8"))
    }
}
