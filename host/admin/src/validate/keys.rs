//! Keys and values, compared with the tables of the plugins.

use super::finding::{Sheet, below, item};
use super::text::{Member, Node, Tree, word_at};
use postern_keys::{Form, Key, Kind, nearest};
use std::collections::HashMap;

/// The treatment of keys that no table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Unknown keys are reported: `whose` does not read them.
    Reported {
        /// The reader of the object, for messages.
        whose: &'static str,
    },
    /// Another program reads the unknown keys.
    Foreign,
}

/// The meaning of upper and lower case in keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Plugins ignore case, as Go's decoder does.
    Ignored,
    /// Runtimes read the keys of a list in one spelling.
    Matters,
}

/// Checks the keys of an object, and their values, by these tables.
pub fn object(sheet: &mut Sheet<'_>, path: &str, node: &Node, tables: &[&[Key]], unknown: Unknown, case: Case) {
    let Tree::Object(members) = &node.tree else {
        if !node.is_null() {
            sheet.error("wrong-type", node.at, path, format!("this is {}, and must be an object", node.kind()), "");
        }
        return;
    };
    let known = || tables.iter().copied().flatten();
    let spelling = |name: &str| match case {
        Case::Ignored => name.to_ascii_lowercase(),
        Case::Matters => name.to_owned(),
    };
    // How often a key is given, and the place of its last value.
    let mut given: HashMap<String, (usize, usize)> = HashMap::new();
    for (at, member) in members.iter().enumerate() {
        let (count, last) = given.entry(spelling(&member.name)).or_default();
        (*count, *last) = (*count + 1, at);
    }
    for (at, member) in members.iter().enumerate() {
        let here = below(path, &member.name);
        let is_same = |name: &str| match case {
            Case::Ignored => name.eq_ignore_ascii_case(&member.name),
            Case::Matters => name == member.name,
        };
        let (count, last) = given.get(&spelling(&member.name)).copied().unwrap_or_default();
        if let Some(counting) = members.get(last).filter(|_| last > at) {
            let again =
                if counting.name == member.name { String::new() } else { format!(", as {}", quoted(&counting.name)) };
            // On a node, a trial run finds the keys that plugins of Postern refuse.
            let message = format!("{} is given again{again}: native plugins use the last value", quoted(&member.name));
            sheet.warning("duplicate-key", member.at, &here, message, "keep only one of these keys");
        }
        match known().find(|key| is_same(key.name)) {
            Some(key) => {
                // For several spellings of a key one finding is enough.
                if key.name != member.name && count < 2 {
                    let message = format!(
                        "{} is read as `{}` by plugins in Go, which ignore the case; other programs do not ignore it",
                        quoted(&member.name),
                        key.name
                    );
                    sheet.warning("spelling", member.at, &here, message, format!("write `{}`", key.name));
                }
                let is_counted = counts(key, node);
                value(sheet, &here, &member.value, &key.kind, key.strict && is_counted);
            }
            None => unknown_key(sheet, &here, member, known().map(|key| key.name), unknown),
        }
    }
    for key in known().filter(|key| key.required) {
        let given = match case {
            Case::Ignored => node.get(key.name).is_some(),
            Case::Matters => members.iter().any(|member| member.name == key.name && !member.value.is_null()),
        };
        if !given {
            let help = format!("{}: {}", key.name, key.about);
            sheet.error("missing-key", node.at, path, format!("`{}` is missing", key.name), help);
        }
    }
}

fn unknown_key<'n>(
    sheet: &mut Sheet<'_>,
    path: &str,
    member: &Member,
    names: impl Iterator<Item = &'n str>,
    unknown: Unknown,
) {
    let Unknown::Reported { whose } = unknown else { return };
    // The search for the nearest name takes long.
    if is_for_people(&member.name) || sheet.is_full() {
        return;
    }
    let names: Vec<&str> = names.collect();
    let help = match nearest(&member.name, names.iter().copied()) {
        Some(name) if name.eq_ignore_ascii_case(&member.name) => format!("write `{name}`: the case matters here"),
        Some(name) => format!("`{name}` may be meant"),
        None => "remove the key, or look for the key in the plugin's documentation".to_owned(),
    };
    sheet.warning(
        "unknown-key",
        member.at,
        path,
        format!("{whose} has no key {}: the key is ignored", quoted(&member.name)),
        help,
    );
}

/// True for a key that is meant for people and editors. No plugin reads such a key.
fn is_for_people(name: &str) -> bool {
    let begins = |mark: &str| name.starts_with(mark);
    ["$", "_", "#", "//"].into_iter().any(begins)
        || ["comment", "comments", "description", "documentation"].iter().any(|word| name.eq_ignore_ascii_case(word))
}

/// Returns a key for a message: between backticks, if the key contains no backtick.
pub fn quoted(name: &str) -> String {
    match name.chars().all(|c| c.is_ascii_graphic() && c != '`') && !name.is_empty() {
        true => format!("`{name}`"),
        false => postern_cni::quote(name),
    }
}

/// True if the other keys that a value needs are present.
fn counts(key: &Key, node: &Node) -> bool {
    let with = key.with.and_then(postern_keys::sample::object).unwrap_or_default();
    with.iter().all(|(name, value)| value.as_bool().is_none_or(|is_on| node.is_on(name) == is_on))
}

/// Checks a value. With `is_strict`, a plugin refuses a value out of range.
pub fn value(sheet: &mut Sheet<'_>, path: &str, node: &Node, kind: &Kind, is_strict: bool) {
    if node.is_null() {
        return;
    }
    let wrong = |sheet: &mut Sheet<'_>| {
        let message = format!("this is {}, and must be {}", node.kind(), expected(kind));
        let help = match (&node.tree, kind) {
            (Tree::Text(text), Kind::Bool) if matches!(text.as_str(), "true" | "false") => {
                format!("write {text} without quotes")
            }
            (Tree::Text(text), Kind::Number { .. }) if text.parse::<i64>().is_ok() => {
                format!("write {text} without quotes")
            }
            _ => String::new(),
        };
        sheet.error("wrong-type", node.at, path, message, help);
    };
    match (kind, &node.tree) {
        (Kind::Bool | Kind::Switch, Tree::Bool(_)) => {}
        (Kind::Switch, Tree::Text(text)) if ["true", "false"].iter().any(|word| text.eq_ignore_ascii_case(word)) => {}
        (Kind::Number { least, most }, Tree::Number(number)) => {
            // The message shows the file's spelling, not the number that plugins get: people search for the spelling.
            let spelt = word_at(sheet.text, node.at).unwrap_or_default();
            let whole = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
            match whole {
                None => {
                    sheet.error("wrong-type", node.at, path, format!("{spelt} is no whole number of 64 bits"), "");
                }
                Some(number) if number < i128::from(*least) || number > i128::from(*most) => {
                    out_of_range(sheet, path, node, spelt, kind.wanted(), is_strict);
                }
                Some(_) if spelt.contains(['.', 'e', 'E']) => {
                    let message = format!(
                        "{spelt} is read as {number}, because libcni passes {number} on; other programs refuse {spelt}"
                    );
                    sheet.warning("spelling", node.at, path, message, format!("write {number}"));
                }
                Some(_) => {}
            }
        }
        (Kind::Text(form), Tree::Text(text)) => {
            if !form.fits(text) {
                let near = match form {
                    Form::OneOf(words) => nearest(text, words.iter().copied().filter(|word| !word.is_empty())),
                    _ => None,
                };
                let near = near.map(|near| format!(" (`{near}` may be meant)")).unwrap_or_default();
                let wanted = format!("{}{near}", form.wanted());
                out_of_range(sheet, path, node, &postern_cni::quote(text), wanted, is_strict);
            }
        }
        (Kind::List(inner), Tree::List(items)) => {
            for (at, one) in items.iter().enumerate() {
                value(sheet, &item(path, at), one, inner, is_strict);
            }
        }
        (Kind::Object(keys), Tree::Object(_)) => {
            let unknown = Unknown::Reported { whose: "this object" };
            object(sheet, path, node, &[keys], unknown, Case::Ignored);
        }
        (Kind::Map(inner), Tree::Object(members)) => {
            for member in members {
                value(sheet, &below(path, &member.name), &member.value, inner, is_strict);
            }
        }
        (Kind::Ipam | Kind::Delegate | Kind::Open, Tree::Object(_)) => {}
        _ => wrong(sheet),
    }
}

fn expected(kind: &Kind) -> String {
    match kind {
        Kind::Text(_) => "a text".to_owned(),
        Kind::Number { .. } => "a whole number".to_owned(),
        other => other.wanted(),
    }
}

fn out_of_range(sheet: &mut Sheet<'_>, path: &str, node: &Node, found: &str, wanted: String, is_strict: bool) {
    let help = format!("wanted: {wanted}");
    if is_strict {
        sheet.error("bad-value", node.at, path, format!("{found} is no value for this key"), help);
    } else {
        sheet.warning("bad-value", node.at, path, format!("{found} has no effect here"), help);
    }
}
