//! Helpers for the sentences that tell people what a plugin can do. Each group of functions of `wit/` has one sentence,
//! in [`crate::capability`]. A test finds each function of `wit/` without a sentence, because reviewers would not see
//! that function.

use crate::words::{Objects, Switch};

/// A group of functions with the same meaning for people.
pub struct Group {
    /// The sentence applies if the component imports one of these functions.
    pub functions: &'static [&'static str],
    /// Setters of the functions' arguments. The sentence applies only if the component also imports all these setters.
    pub with: &'static [&'static str],
    /// The ability of a plugin, after "can"; `None` if the policy grants no object for this ability.
    pub text: fn(&Objects<'_>) -> Option<String>,
    /// True if the functions run a native program outside of any sandbox.
    pub host_privileges: bool,
}

/// Makes a group with the same text under any policy.
pub const fn group(functions: &'static [&'static str], text: fn(&Objects<'_>) -> Option<String>) -> Group {
    Group { functions, with: &[], text, host_privileges: false }
}

/// Makes a group with its setters.
pub const fn with(
    functions: &'static [&'static str],
    with: &'static [&'static str],
    text: fn(&Objects<'_>) -> Option<String>,
) -> Group {
    Group { functions, with, text, host_privileges: false }
}

/// Returns a sentence that is the same under any policy.
pub fn say(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Returns a sentence about making, changing or deleting. Returns `None` if the policy grants only looking.
pub fn changes(objects: &Objects<'_>, text: &str) -> Option<String> {
    if objects.only_looks() { None } else { say(text) }
}

/// Returns a sentence about the objects of a policy key. Returns `None` if the policy grants no object for the key.
pub fn about(objects: &Objects<'_>, key: &str, noun: &str, text: impl FnOnce(String) -> String) -> Option<String> {
    (!objects.none(key)).then(|| text(objects.words(key, noun)))
}

/// Returns a sentence about a setting. Returns `None` if the policy leaves the key of the setting at `off`.
pub fn switched(objects: &Objects<'_>, key: &str, off: &str, text: &str) -> Option<String> {
    match objects.switch(key, off) {
        Switch::Off => None,
        Switch::On(when) => Some(format!("{text}{when}")),
    }
}

/// The methods of a route. They have no sentence, because they have no effect outside of the sandbox.
pub const IN_THE_SANDBOX: &str = "routes#[method]route.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::{groups, groups_of};
    use postern_types::Capability;
    use std::collections::BTreeSet;

    /// Returns every function of `wit/`, as components spell it.
    fn functions() -> BTreeSet<(String, String)> {
        let mut all = BTreeSet::new();
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "wit") {
                continue;
            }
            let (mut interface, mut resource) = (String::new(), None::<String>);
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let words: Vec<&str> = line.split([' ', ':', ';', '(']).filter(|word| !word.is_empty()).collect();
                match (words.as_slice(), line) {
                    (["interface", name, ..], _) => interface = (*name).to_owned(),
                    (["resource", name, ..], _) => resource = Some((*name).to_owned()),
                    (_, "    }") => resource = None,
                    ([name, "func", ..], _) => {
                        let name = name.trim_start_matches('%');
                        let full = resource.as_ref().map_or(name.to_owned(), |of| format!("[method]{of}.{name}"));
                        all.insert((interface.clone(), full));
                    }
                    _ => {}
                }
            }
        }
        all
    }

    #[test]
    fn every_function_of_wit_has_a_sentence() {
        let all = functions();
        assert!(all.len() > 50, "{all:?}");
        for (interface, function) in &all {
            if format!("{interface}#{function}").starts_with(IN_THE_SANDBOX) {
                continue;
            }
            let has_sentence =
                groups_of(interface).any(|group| group.functions.iter().chain(group.with).any(|name| name == function));
            assert!(has_sentence, "{interface}#{function} has no sentence");
        }
        for (capability, group) in groups() {
            for function in group.functions.iter().chain(group.with) {
                let key = (capability.name().to_owned(), (*function).to_owned());
                assert!(all.contains(&key), "{key:?} is not in wit/");
            }
        }
    }

    #[test]
    fn every_interface_of_wit_with_authority_is_a_capability() {
        let of_wit: BTreeSet<String> = functions().into_iter().map(|(interface, _)| interface).collect();
        let all: BTreeSet<String> = Capability::ALL.iter().map(|capability| capability.name().to_owned()).collect();
        assert_eq!(of_wit, all);
    }
}
