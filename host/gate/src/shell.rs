//! Shell commands in messages for people.

/// Quotes a text so that a shell reads it as one word.
pub fn quoted(word: &(impl ToString + ?Sized)) -> String {
    let word = word.to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, text) in
            [("veth0a", "veth0a"), ("", "''"), ("a b", "'a b'"), ("a'b", "'a'\\''b'"), ("$x", "'$x'"), ("-n", "-n")]
        {
            assert_eq!(quoted(word), text);
        }
    }
}
