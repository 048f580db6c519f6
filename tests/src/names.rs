//! Symbols for random texts: veth names, hardware addresses, and IPv6 addresses made from hardware addresses.

use std::collections::BTreeMap;

/// The symbols for the random texts seen so far. A test keeps them for a whole case, so that a name keeps its symbol
/// after the link is gone.
#[derive(Debug, Default, Clone)]
pub struct Names {
    symbols: BTreeMap<String, String>,
    literal: String,
}

impl Names {
    /// Makes an empty set of symbols. `literal` is the case's input. Addresses in the input get no symbol.
    pub fn new(literal: &str) -> Self {
        Self { symbols: BTreeMap::new(), literal: literal.to_lowercase() }
    }

    /// Sets the symbol for a text that the test chose.
    pub fn fixed(&mut self, text: &str, symbol: &str) {
        self.symbols.insert(text.to_owned(), symbol.to_owned());
    }

    /// Gives a random link name a symbol, if it has none.
    pub fn link(&mut self, name: &str, symbol: &str) {
        if is_random_veth(name) {
            self.symbols.entry(name.to_owned()).or_insert_with(|| symbol.to_owned());
        }
    }

    /// Gives a hardware address the symbol of its link, unless the address has a symbol or is in the case's input.
    pub fn hardware(&mut self, address: &str, owner: &str) {
        let zero = address.chars().all(|digit| matches!(digit, '0' | ':'));
        if !zero && is_hardware(address) && !self.literal.contains(address) {
            self.symbols.entry(address.to_owned()).or_insert_with(|| format!("mac({owner})"));
        }
    }

    /// Returns `text` with symbols for all random parts.
    pub fn apply(&self, text: &str) -> String {
        let mut result = text.to_owned();
        // Longer texts come first: one path may be the beginning of another path.
        let mut known: Vec<_> = self.symbols.iter().collect();
        known.sort_by_key(|(random, _)| std::cmp::Reverse(random.len()));
        for (random, symbol) in known {
            if result.contains(random.as_str()) {
                result = result.replace(random.as_str(), symbol);
            }
        }
        let result = scan(&result, ('v', 0), 12, is_random_veth, |_| "veth(?)".to_owned());
        scan(&result, (':', 2), 17, is_hardware, |address| {
            let known = self.literal.contains(&address.to_lowercase())
                || address.chars().all(|digit| matches!(digit, '0' | 'f' | ':'));
            if known { address.to_owned() } else { "mac(?)".to_owned() }
        })
    }
}

fn is_random_veth(name: &str) -> bool {
    name.strip_prefix("veth").is_some_and(|rest| rest.len() == 8 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_hardware(text: &str) -> bool {
    text.len() == 17
        && text.bytes().enumerate().all(|(at, byte)| if at % 3 == 2 { byte == b':' } else { byte.is_ascii_hexdigit() })
}

/// Replaces every part that `is` accepts. Each part has `length` bytes, with the ASCII character `mark` after `before`
/// bytes. `is` sees only text around a mark, because tests are built without optimisation and snapshots are long.
fn scan(
    text: &str,
    (mark, before): (char, usize),
    length: usize,
    is: impl Fn(&str) -> bool,
    symbol: impl Fn(&str) -> String,
) -> String {
    let mut result = String::with_capacity(text.len());
    // The text before `done` is in the result. The search for the next mark starts at `from`.
    let (mut done, mut from) = (0, 0);
    while let Some(found) = text.get(from..).and_then(|rest| rest.find(mark)) {
        let at = from + found;
        from = at + 1;
        let Some(start) = at.checked_sub(before).filter(|start| *start >= done) else { continue };
        let Some(stretch) = text.get(start..start + length).filter(|stretch| is(stretch)) else { continue };
        result.push_str(text.get(done..start).unwrap_or_default());
        result.push_str(&symbol(stretch));
        done = start + length;
        from = done;
    }
    result.push_str(text.get(done..).unwrap_or_default());
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_among_others_get_symbols() {
        let names = Names::new("");
        for (text, expected) in [
            ("vveth01234567v", "vveth(?)v"),
            ("veth0123456é veth01234567", "veth0123456é veth(?)"),
            ("é52:54:00:11:22:33é", "émac(?)é"),
            (":52:54:00:11:22:33:44", ":mac(?):44"),
            ("52:54:00:11:22:3352:54:00:11:22:33", "mac(?)mac(?)"),
            ("é::1 :", "é::1 :"),
            ("", ""),
        ] {
            assert_eq!(names.apply(text), expected);
        }
    }

    #[test]
    fn random_texts_get_symbols() {
        let mut names = Names::new(r#"{"mac":"02:AA:00:00:00:01"}"#);
        names.link("veth01234567", "veth(c1/eth0)");
        names.link("eth0", "never");
        names.hardware("52:54:00:11:22:33", "host/cni0");
        names.hardware("02:aa:00:00:00:01", "never");
        assert_eq!(
            names.apply(
                "veth01234567 veth89abcdef eth0 52:54:00:11:22:33 66:66:66:66:66:66 02:aa:00:00:00:01 00:00:00:00:00:00"
            ),
            "veth(c1/eth0) veth(?) eth0 mac(host/cni0) mac(?) 02:aa:00:00:00:01 00:00:00:00:00:00"
        );
    }
}
