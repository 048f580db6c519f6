//! Random JSON of chosen words, and random damage to texts.

use crate::Random;
use serde_json::{Value, json};

/// The numbers of a random JSON tree: ordinary numbers, and numbers beside the limits of some type or key.
const NUMBERS: [i64; 10] = [0, 1, -1, 67, 1400, 4094, 4095, 65536, i64::MAX, i64::MIN];

/// The words that random JSON is made of.
#[derive(Debug, Clone, Copy)]
pub struct Vocabulary<'w> {
    /// Keys of objects.
    pub keys: &'w [&'static str],
    /// Texts. Some of them are values that the keys take.
    pub texts: &'w [&'static str],
}

impl Vocabulary<'_> {
    /// Returns a value of some kind, with at most this many levels of lists and objects.
    pub fn value(self, random: &mut Random, depth: usize) -> Value {
        match random.index(if depth == 0 { 8 } else { 11 }) {
            0 => Value::Null,
            1 | 2 => json!(random.chance(2)),
            3 => json!(random.one_of(&NUMBERS)),
            4 => json!(1.5),
            5 => json!("x".repeat(random.index(3000))),
            6 | 7 => json!(random.one_of(self.texts)),
            8 => (0..random.index(4)).map(|_| self.value(random, depth - 1)).collect(),
            _ => {
                let keys: Vec<_> = (0..random.index(4)).map(|_| random.one_of(self.keys)).collect();
                Value::Object(keys.into_iter().map(|key| (key.to_owned(), self.value(random, depth - 1))).collect())
            }
        }
    }

    /// Changes one place of the tree.
    pub fn change(self, random: &mut Random, tree: &mut Value) {
        let replace = random.index(4) == 0;
        match tree {
            Value::Object(map) if !replace => match random.index(3) {
                0 => {
                    let key = random.one_of(self.keys).to_owned();
                    map.insert(key, self.value(random, 3));
                }
                _ => {
                    let at = random.index(map.len().max(1));
                    if let Some((_, below)) = map.iter_mut().nth(at) {
                        self.change(random, below);
                    }
                }
            },
            Value::Array(list) if !replace && !list.is_empty() => {
                let at = random.index(list.len());
                list.get_mut(at).into_iter().for_each(|item| self.change(random, item));
            }
            other => *other = self.value(random, 3),
        }
    }
}

/// Changes bytes of a JSON text. The result is other JSON, or no JSON.
pub fn damage(random: &mut Random, text: &mut Vec<u8>) {
    for _ in 0..=random.index(3) {
        let at = random.index(text.len().max(1));
        match random.index(5) {
            0 => text.truncate(at),
            1 => {
                let byte = u8::try_from(random.index(256)).unwrap_or_default();
                text.iter_mut().skip(at).take(1).for_each(|old| *old = byte);
            }
            2 => text.insert(at.min(text.len()), random.one_of(b"{}[]\",:\\0\n\xff")),
            // A double key: the first member again, at the front.
            3 => {
                let member: Vec<u8> = text.iter().copied().skip(1).take_while(|byte| *byte != b',').collect();
                let twice = [&b"{"[..], &member, b","].concat();
                text.splice(0..text.len().min(1), twice);
            }
            // A piece of the text, before the text.
            _ => {
                let piece: Vec<u8> = text.iter().copied().skip(at).take(40).collect();
                text.splice(0..0, piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: Vocabulary<'_> = Vocabulary { keys: &["key"], texts: &["text"] };

    fn depth(value: &Value) -> usize {
        match value {
            Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or_default(),
            Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or_default(),
            _ => 0,
        }
    }

    #[test]
    fn values_of_every_kind_come_and_end() {
        let mut random = Random::new(1);
        let values: Vec<Value> = (0..1000).map(|_| WORDS.value(&mut random, 2)).collect();
        assert_eq!(values.iter().map(depth).max(), Some(2));
        for is in [Value::is_null, Value::is_boolean, Value::is_i64, Value::is_f64, Value::is_string, Value::is_array] {
            assert!(values.iter().any(is));
        }
        assert!(values.iter().any(|value| value.get("key").is_some()) && values.contains(&json!("text")));
    }

    #[test]
    fn changes_reach_every_level() {
        let (mut random, start) = (Random::new(2), json!({"top": {"list": [{"below": "old"}]}}));
        let mut changed = [false; 3];
        for _ in 0..500 {
            let mut tree = start.clone();
            WORDS.change(&mut random, &mut tree);
            changed[0] |= tree.get("key").is_some();
            changed[1] |= tree.pointer("/top/key").is_some();
            changed[2] |= tree.pointer("/top/list/0/below").is_some_and(|value| value != "old");
        }
        assert_eq!(changed, [true; 3]);
    }

    #[test]
    fn damage_makes_other_json_and_none() {
        let (mut random, start) = (Random::new(3), br#"{"one": 1, "two": 2}"#.to_vec());
        let (mut other, mut none, mut twice) = (0, 0, 0);
        for _ in 0..1000 {
            let mut text = start.clone();
            damage(&mut random, &mut text);
            match serde_json::from_slice::<Value>(&text) {
                Ok(value) if value == json!({"one": 1, "two": 2}) => {}
                Ok(_) => other += 1,
                Err(_) => none += 1,
            }
            twice += usize::from(text.starts_with(br#"{"one": 1,"one": 1"#));
        }
        assert!(other > 10 && none > 100 && twice > 10, "{other} {none} {twice}");
    }
}
