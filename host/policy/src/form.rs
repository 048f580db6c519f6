//! A policy text that `postern add` has parsed. The result is kept in the plugin's manifest, because parsing TOML
//! in each run would take longer than the decision.

use crate::prelude::*;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// A text, and the tables in it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Form {
    text: String,
    tables: Table,
}

/// The longest text that is kept, in bytes: a manifest has a limit too. A longer text is parsed at each run.
const LONGEST: usize = 32 << 10;

impl Form {
    /// Parses a text. `None` if the text is no TOML, or too long to be kept.
    pub fn of(text: &str) -> Option<Self> {
        let tables = toml::from_str(text).ok()?;
        (text.len() <= LONGEST).then(|| Self { text: text.to_owned(), tables })
    }

    /// True if the tables are the result of parsing the text.
    pub fn is_true(&self) -> bool {
        Self::of(&self.text).is_some_and(|read| read.tables == self.tables)
    }

    /// Returns the tables, if this is the form of exactly this text. So a changed file is always parsed again.
    pub(crate) fn tables_of(self, text: &str) -> Option<Table> {
        self.is_of(text).then_some(self.tables)
    }

    /// True if this is the form of exactly this text.
    pub(crate) fn is_of(&self, text: &str) -> bool {
        self.text == text
    }

    /// Returns the value of one key.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.tables.get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::shipped;

    #[test]
    fn a_form_of_another_text_is_not_taken() {
        let form = Form::of("gc = \"host\"").unwrap();
        assert!(form.is_true());
        assert!(form.clone().tables_of("gc = \"guest\"").is_none());
        assert!(form.clone().tables_of("gc = \"host\" ").is_none());
        assert_eq!(form.tables_of("gc = \"host\""), toml::from_str("gc = \"host\"").ok());
        assert!(Form::of("gc =").is_none());
        assert!(Form::of(&"#".repeat(LONGEST)).is_some() && Form::of(&"#".repeat(LONGEST + 1)).is_none());
    }

    #[test]
    fn every_shipped_policy_is_the_same_after_it_was_kept() {
        for text in shipped() {
            let kept = serde_json::to_string(&Form::of(&text).unwrap()).unwrap();
            let read: Form = serde_json::from_str(&kept).unwrap();
            assert!(read.is_true());
            assert_eq!(read.tables_of(&text), toml::from_str(&text).ok());
        }
    }

    #[test]
    fn a_form_that_lies_is_found_out() {
        let form: Form = serde_json::from_str(r#"{"text": "gc = \"host\"", "tables": {"gc": "guest"}}"#).unwrap();
        assert!(!form.is_true());
    }
}
