//! Names taken from the operator's configuration.
//!
//! A policy value is a text with any number of placeholders `${config.KEY.KEY… | DEFAULT}`:
//!
//! ```text
//! value       = *( literal / placeholder )
//! placeholder = "${" path [ "|" default ] "}"
//! path        = "config" 1*( "." key )
//! key         = 1*( ALPHA / DIGIT / "_" / "-" / "/" )
//! default     = any text without "}"
//! ```
//!
//! Spaces around path and default do not count. `config` is the network configuration that the runtime sent on standard
//! input; keys match as the plugins match them, ignoring case, and a configuration that spells such a key twice is
//! refused. A string, number or boolean is taken literally: nothing in it is ever read as a pattern or a placeholder. If
//! the key is absent or null the default stands; without a default the value grants nothing.

use postern_cni::Json;
use serde::Deserialize;

/// A value of a policy file, parsed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Config { path: Vec<String>, default: Option<String> },
}

impl TryFrom<String> for Template {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text.as_str();
        while let Some((literal, after)) = rest.split_once("${") {
            let (inside, tail) = after.split_once('}').ok_or_else(|| format!("`{text}`: a `${{` without its `}}`"))?;
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            parts.push(placeholder(inside)?);
            rest = tail;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        Ok(Self(parts))
    }
}

fn placeholder(inside: &str) -> Result<Part, String> {
    let (path, default) = match inside.split_once('|') {
        Some((path, default)) => (path.trim(), Some(default.trim().to_owned())),
        None => (inside.trim(), None),
    };
    let valid = |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-/".contains(c));
    let mut keys = path.split('.');
    let rest: Vec<String> = match keys.next() {
        Some("config") => keys.map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    if rest.is_empty() || !rest.iter().all(|key| valid(key)) {
        return Err(format!("`${{{inside}}}`: a placeholder is `${{config.KEY}}` or `${{config.KEY | DEFAULT}}`"));
    }
    Ok(Part::Config { path: rest, default })
}

impl Template {
    /// The text for this configuration; `None` if it names a key that is absent and has no default.
    ///
    /// # Errors
    /// The configuration spells a key of the path twice, or the value is a list or an object.
    pub fn resolve(&self, config: &Json) -> Result<Option<String>, String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Config { path, default } => match lookup(config, path)?.or_else(|| default.clone()) {
                    Some(value) => text.push_str(&value),
                    None => return Ok(None),
                },
            }
        }
        Ok(Some(text))
    }
}

fn lookup(config: &Json, path: &[String]) -> Result<Option<String>, String> {
    let mut at = config;
    for key in path {
        let Ok(fields) = at.fields("") else { return Ok(None) };
        if let [first, second, ..] = fields.spellings(key).as_slice() {
            return Err(format!(
                "the configuration has both \"{first}\" and \"{second}\", and what a plugin may do depends on it"
            ));
        }
        match fields.get(key) {
            Some(value) => at = value,
            None => return Ok(None),
        }
    }
    match at {
        Json::Null => Ok(None),
        Json::String(text) => Ok(Some(text.clone())),
        Json::Bool(value) => Ok(Some(value.to_string())),
        Json::Number(number) => Ok(Some(number.to_string())),
        Json::Array(_) | Json::Object(_) => {
            Err(format!("\"{}\" in the configuration must be a text, a number or a boolean", path.join(".")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(template: &str, config: &str) -> Result<Option<String>, String> {
        Template::try_from(template.to_owned())?.resolve(&Json::parse(config.as_bytes(), 4096).unwrap())
    }

    #[test]
    fn takes_values_and_defaults() {
        let bridge = "${config.bridge | cni0}";
        assert_eq!(resolve(bridge, "{}").unwrap().unwrap(), "cni0");
        assert_eq!(resolve(bridge, r#"{"bridge":null}"#).unwrap().unwrap(), "cni0");
        assert_eq!(resolve(bridge, r#"{"BRIDGE":"br1"}"#).unwrap().unwrap(), "br1");
        assert_eq!(resolve("${config.ipam.type}", "{}").unwrap(), None);
        assert_eq!(resolve("a-${config.ipam.type}-b", r#"{"ipam":{"Type":"x"}}"#).unwrap().unwrap(), "a-x-b");
        assert_eq!(resolve("${config.force | false}", r#"{"force":true}"#).unwrap().unwrap(), "true");
    }

    #[test]
    fn never_expands_a_value() {
        let nested = resolve("${config.bridge}", r#"{"bridge":"${config.name}*"}"#).unwrap().unwrap();
        assert_eq!(nested, "${config.name}*");
    }

    #[test]
    fn refuses_two_spellings_and_wrong_types() {
        assert!(resolve("${config.bridge}", r#"{"bridge":"a","Bridge":"b"}"#).unwrap_err().contains("both"));
        assert!(resolve("${config.bridge}", r#"{"bridge":["a"]}"#).unwrap_err().contains("must be"));
    }

    #[test]
    fn refuses_bad_placeholders() {
        for bad in ["${config}", "${env.PATH}", "${config.}", "${config.a", "${}", "${config.a..b}", "${config.a b}"] {
            assert!(Template::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
