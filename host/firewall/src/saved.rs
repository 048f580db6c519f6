//! The text that `iptables-save` prints and `iptables-restore` reads: the rules of one table.

use std::net::IpAddr;

use ipnet::IpNet;

/// A rule: the matches that identify our rules, and the rest as it was printed.
#[derive(Clone, Debug, PartialEq, Eq, Default, Hash)]
pub(crate) struct Rule {
    pub(crate) chain: String,
    pub(crate) source: Option<IpNet>,
    /// The destination network. The flag is true for `-d`, and false for `! -d`.
    pub(crate) destination: Option<(bool, IpNet)>,
    pub(crate) comment: Option<String>,
    /// The other matches, word by word.
    pub(crate) matches: Vec<String>,
    pub(crate) target: Option<String>,
    /// The target's options, word by word.
    pub(crate) options: Vec<String>,
}

/// A rule with its printed line, without the leading `-A`: the most exact way to delete it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedRule {
    pub(crate) rule: Rule,
    pub(crate) line: String,
    /// Its handle in nf_tables; 0 if a program printed it.
    pub(crate) handle: u64,
}

/// The rules and chains of a table, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct SavedTable {
    pub(crate) chains: Vec<String>,
    pub(crate) rules: Vec<SavedRule>,
}

impl SavedTable {
    pub(crate) fn parse(text: &str) -> Self {
        let mut table = Self::default();
        for line in text.lines() {
            if let Some(chain) = line.strip_prefix(':') {
                table.chains.extend(chain.split_whitespace().next().map(str::to_owned));
            } else if let Some(line) = line.strip_prefix("-A ") {
                table.rules.push(SavedRule { rule: Rule::parse(line), line: line.to_owned(), handle: 0 });
            }
        }
        table
    }

    pub(crate) fn has(&self, wanted: &Rule) -> bool {
        self.rules.iter().any(|saved| saved.rule == *wanted)
    }
}

impl Rule {
    /// Reads the line after `-A`.
    pub(crate) fn parse(line: &str) -> Self {
        let mut words = words(line).into_iter();
        let mut rule = Self { chain: words.next().unwrap_or_default(), ..Self::default() };
        let mut positive = true;
        while let Some(word) = words.next() {
            let is = std::mem::replace(&mut positive, true);
            match word.as_str() {
                "!" if is => positive = false,
                "-s" if is => rule.source = words.next().as_deref().and_then(network),
                "-d" => rule.destination = words.next().as_deref().and_then(network).map(|network| (is, network)),
                "-j" | "-g" if is => rule.target = words.next(),
                "--comment" if is => rule.comment = words.next(),
                "-m" if is => {
                    let extension = words.next().filter(|extension| extension != "comment");
                    rule.matches.extend(extension.into_iter().flat_map(|extension| ["-m".to_owned(), extension]));
                }
                _ => {
                    let rest = if rule.target.is_some() { &mut rule.options } else { &mut rule.matches };
                    rest.extend((!is).then(|| "!".to_owned()));
                    rest.push(word);
                }
            }
        }
        rule
    }

    /// Returns the rule as a line of input for `iptables-restore`, after `-A` or `-I`.
    pub(crate) fn line(&self) -> String {
        let mut line = self.chain.clone();
        if let Some(source) = self.source {
            line.push_str(&format!(" -s {source}"));
        }
        if let Some((is, destination)) = self.destination {
            line.push_str(&format!("{} -d {destination}", if is { "" } else { " !" }));
        }
        // The native plugins' order: the comment is the first of the matches with an extension.
        let plain = self.matches.iter().position(|word| word == "-m").unwrap_or(self.matches.len());
        let (plain, extended) = self.matches.split_at_checked(plain).unwrap_or_default();
        push_words(&mut line, plain);
        if let Some(comment) = &self.comment {
            line.push_str(&format!(" -m comment --comment {}", quoted(comment)));
        }
        push_words(&mut line, extended);
        if let Some(target) = &self.target {
            line.push_str(&format!(" -j {target}"));
        }
        push_words(&mut line, &self.options);
        line
    }
}

fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

fn push_words(line: &mut String, words: &[String]) {
    for word in words {
        let is_plain = !word.is_empty() && !word.contains([' ', '\t', '"', '\\']);
        line.push(' ');
        line.push_str(&if is_plain { word.clone() } else { quoted(word) });
    }
}

pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Splits a line as iptables-restore does: blanks separate, double quotes join, a backslash in quotes escapes.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut in_quotes = false;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                in_quotes = !in_quotes;
                word.get_or_insert_default();
            }
            '\\' if in_quotes => word.get_or_insert_default().extend(characters.next()),
            ' ' | '\t' if !in_quotes => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

/// Reads `10.1.2.3:80`, `[fd00::1]:80`, or an address alone.
pub(crate) fn target(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.split(']').next());
    text.parse().ok().or_else(|| bare?.parse().ok()).or_else(|| text.rsplit_once(':')?.0.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = r#"# Generated by iptables-save v1.8.9 (nf_tables)
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:CNI-a631aa8e1549a3b129110fd2 - [0:0]
-A POSTROUTING -s 10.1.0.3/32 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j CNI-a631aa8e1549a3b129110fd2
-A POSTROUTING -s 10.1.0.3/32 -p tcp -m tcp --dport 80 -j CNI-a631aa8e1549a3b129110fd2
-A CNI-a631aa8e1549a3b129110fd2 ! -d 224.0.0.0/4 -m comment --comment "name: \"mynet\" id: \"cid1\"" -j MASQUERADE
COMMIT
"#;

    #[test]
    fn reads_what_iptables_prints() {
        let table = SavedTable::parse(SAVED);
        assert_eq!(table.chains, ["PREROUTING", "POSTROUTING", "CNI-a631aa8e1549a3b129110fd2"]);
        let comment = Some(r#"name: "mynet" id: "cid1""#.to_owned());
        let jump = Rule {
            chain: "POSTROUTING".into(),
            source: Some("10.1.0.3/32".parse().unwrap()),
            comment: comment.clone(),
            target: Some("CNI-a631aa8e1549a3b129110fd2".into()),
            ..Rule::default()
        };
        let masquerade = Rule {
            chain: "CNI-a631aa8e1549a3b129110fd2".into(),
            destination: Some((false, "224.0.0.0/4".parse().unwrap())),
            comment,
            target: Some("MASQUERADE".into()),
            ..Rule::default()
        };
        assert_eq!(table.rules.len(), 3);
        assert_eq!(table.rules[0].rule, jump);
        assert_eq!(table.rules[2].rule, masquerade);
        // A rule that our rules don't look like still shows that it refers to the chain.
        assert_eq!(table.rules[1].rule.matches, ["-p", "tcp", "-m", "tcp", "--dport", "80"]);
        assert_eq!(table.rules[1].rule.target, jump.target);
    }

    #[test]
    fn reads_what_it_writes() {
        let rule = Rule {
            chain: "C".into(),
            source: Some("fd00::1/128".parse().unwrap()),
            destination: Some((true, "fd00::/64".parse().unwrap())),
            comment: Some(r#"a "b" \c"#.into()),
            matches: ["-p", "tcp", "-m", "multiport", "!", "--dports", "80,81", "--x", "a b"].map(Into::into).into(),
            target: Some("DNAT".into()),
            options: ["--to-destination", "[fd00::1]:80"].map(Into::into).into(),
        };
        assert_eq!(Rule::parse(&rule.line()), rule);
    }

    #[test]
    fn a_negated_source_is_not_a_source() {
        let rule = Rule::parse("POSTROUTING ! -s 10.0.0.1/32 -j C");
        assert_eq!((rule.source, rule.matches.join(" ")), (None, "! -s 10.0.0.1/32".to_owned()));
    }
}
