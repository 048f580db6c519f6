//! The manual and the completions have each verb, and each option of its help.

use super::command_line::verbs;
use anyhow::{Context, Result, ensure};
use postern_tests::{Node, plugin_bin};
use std::collections::BTreeSet;

/// The directory of pages and completions.
const MADE: &str = "/run/manual";

/// Returns the long options that a help describes.
fn options(help: &str) -> BTreeSet<String> {
    let is_option = |line: &&str| line.trim_start().starts_with('-');
    let words = help.lines().filter(is_option).flat_map(|line| line.split([' ', ',']));
    words.filter_map(|word| word.strip_prefix("--")).map(|name| name.trim_end_matches('.').to_owned()).collect()
}

/// Returns the help of a verb and of all verbs below it: the verb's words, and the text.
fn helps(node: &Node, words: &[String]) -> Result<Vec<(Vec<String>, String)>> {
    let help = node.postern_of(plugin_bin()?, &format!("{} --help", words.join(" ")))?;
    ensure!(help.status == 0, "{words:?}: {}", help.stderr);
    let mut all = vec![(words.to_vec(), help.stdout.clone())];
    for verb in verbs(&help.stdout) {
        all.extend(helps(node, &[words, &[verb]].concat())?);
    }
    Ok(all)
}

#[test]
fn each_verb_and_option_of_the_help_has_its_place() -> Result<()> {
    let node = Node::new()?;
    node.sh(&format!("{}/postern-admin manual {MADE} 2026-01-01", plugin_bin()?.display()))?;
    let read = |name: &str| node.sh(&format!("cat {MADE}/{name}"));
    let (bash, zsh, fish) =
        (read("completions/postern.bash")?, read("completions/_postern")?, read("completions/postern.fish")?);
    let all = helps(&node, &[])?;
    ensure!(all.len() > 25, "only {} verbs", all.len());
    let mut pages = BTreeSet::new();
    for (words, help) in &all {
        let name = [&["postern".to_owned()], words.as_slice()].concat().join("-");
        pages.insert(format!("{name}.8"));
        let page = read(&format!("man/man8/{name}.8"))?.replace("\\-", "-");
        ensure!(page.contains(&format!("\n{name} - ")), "{name}: no subject: {page}");
        for verb in verbs(help) {
            ensure!(page.contains(&format!("{name}-{verb}(8)")), "{name}: the page lacks {verb}");
        }
        // Each shell has a part for the verb.
        let label = [&["postern".to_owned()], words.as_slice()].concat().join("__subcmd__");
        let (_, part) =
            bash.split_once(&format!("\n        {label})\n")).with_context(|| format!("bash lacks {label}"))?;
        let part = part.split_once("\n            fi").context("a part has an end")?.0;
        for option in options(help) {
            ensure!(page.contains(&format!("--{option}")), "{name}: the page lacks --{option}");
            let has = |text: &str, ends: &[&str]| ends.iter().any(|end| text.contains(&format!("{option}{end}")));
            ensure!(has(part, &[" ", "\""]), "{name}: bash lacks --{option}: {part}");
            ensure!(has(&zsh, &["[", "=["]), "{name}: zsh lacks --{option}");
            ensure!(fish.contains(&format!(" -l {option} ")), "{name}: fish lacks --{option}");
        }
        if let Some(verb) = words.last() {
            ensure!(zsh.contains(&format!("({verb})\n_arguments")), "zsh lacks {verb}");
            ensure!(fish.contains(&format!("-a \"{verb}\"")), "fish lacks {verb}");
        }
    }
    // Nothing else has a page: hidden verbs have none.
    let made: BTreeSet<String> = node.sh(&format!("ls {MADE}/man/man8"))?.lines().map(str::to_owned).collect();
    ensure!(made == pages, "{:?}", made.symmetric_difference(&pages));
    Ok(())
}
