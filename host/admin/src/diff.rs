//! `postern inspect --diff`: the abilities of a new component that the old component lacks.

use crate::authority::{Ability, abilities};
use crate::imports::Imports;
use crate::inspect::DISAGREE;
use crate::output;
use crate::subject::Subject;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// The object that `--json` prints. Keys are only ever added.
#[derive(Debug, Serialize)]
struct Report {
    old: Side,
    new: Side,
    /// Functions of `postern:cni` that only the new component imports, by interface.
    added: BTreeMap<String, Vec<String>>,
    /// Functions that only the old component imports.
    removed: BTreeMap<String, Vec<String>>,
    /// The abilities that only the new component can have, under any policy.
    gained_ceiling: Vec<Ability>,
    /// The abilities that only the new component has under the policies in force; `null` without any policy.
    gained: Option<Vec<Ability>>,
    /// True if the new component has no further abilities: exit status 0.
    no_more: bool,
}

#[derive(Debug, Serialize)]
struct Side {
    name: String,
    digest: String,
}

/// Prints the difference. A component that is given as a file is under `policy`, or else under the policy of the other
/// component.
pub fn run(old: &str, new: &str, policy: Option<&Path>, json: bool) -> Result<ExitCode> {
    let (old, new) = (Subject::open(old, policy)?, Subject::open(new, policy)?);
    let report = report(&old, &new)?;
    if json {
        output::json(&report)?;
    } else {
        output::text(&text(&report).iter().map(|line| output::one_line(line)).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(ExitCode::from(if report.no_more { 0 } else { DISAGREE }))
}

fn report(old: &Subject, new: &Subject) -> Result<Report> {
    let policy_of = |own: &Subject, other: &Subject| match (&own.policy, &other.policy) {
        (None, None) => Ok(None),
        (Some(_), _) => own.grants(None).map(Some),
        (None, Some(_)) => other.grants(None).map(Some),
    };
    let (before, after) = (policy_of(old, new)?, policy_of(new, old)?);
    let gained =
        after.map(|after| gained(&abilities(&old.imports, before.as_deref()), abilities(&new.imports, Some(&after))));
    let added = new.imports.beyond(&old.imports);
    Ok(Report {
        old: Side { name: old.name.clone(), digest: old.digest.clone() },
        new: Side { name: new.name.clone(), digest: new.digest.clone() },
        no_more: added.authority.is_empty() && gained.as_ref().is_none_or(Vec::is_empty),
        gained_ceiling: self::gained(&abilities(&old.imports, None), abilities(&new.imports, None)),
        gained,
        added: listed(&added),
        removed: listed(&old.imports.beyond(&new.imports)),
    })
}

/// Returns the abilities of the new component that no ability of the old component covers.
fn gained(old: &[Ability], new: Vec<Ability>) -> Vec<Ability> {
    new.into_iter().filter(|ability| !old.iter().any(|had| had.sentence == ability.sentence)).collect()
}

fn listed(imports: &Imports) -> BTreeMap<String, Vec<String>> {
    let list = |(interface, functions): (&String, &std::collections::BTreeSet<String>)| {
        (interface.clone(), functions.iter().cloned().collect())
    };
    imports.authority.iter().map(list).collect()
}

fn text(report: &Report) -> Vec<String> {
    let mut lines = vec![
        format!("- {}  sha256:{}", report.old.name, report.old.digest),
        format!("+ {}  sha256:{}", report.new.name, report.new.digest),
    ];
    for (sign, functions) in [('-', &report.removed), ('+', &report.added)] {
        lines.extend(
            functions.iter().map(|(interface, names)| format!("{sign} imports {interface}: {}", names.join(", "))),
        );
    }
    let sentence = |ability: &Ability| {
        let mark = if ability.host_privileges { "!! " } else { "" };
        format!("  {mark}{}", ability.sentence)
    };
    if report.no_more {
        lines.push("the new component can do nothing more than the old component".to_owned());
        return lines;
    }
    match &report.gained {
        Some(gained) if gained.is_empty() => {
            lines.push("under the policy in force, the new component can do nothing more".to_owned());
        }
        Some(gained) => {
            lines.push("under the policy in force, only the new component can".to_owned());
            lines.extend(gained.iter().map(sentence));
        }
        None => {}
    }
    if !report.gained_ceiling.is_empty() {
        lines.push("if a policy allowed everything (the ceiling), only the new component could".to_owned());
        lines.extend(report.gained_ceiling.iter().map(sentence));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(functions: &[&str], policy: Option<&str>) -> Subject {
        let imports: Vec<String> = functions
            .iter()
            .map(|name| name.split_once('#').unwrap())
            .map(|(interface, function)| format!("postern:cni/{interface}@0.1.0#{function}"))
            .collect();
        Subject::bare(&imports, policy)
    }

    #[test]
    fn the_same_component_can_do_nothing_more() {
        let both = || subject(&["bridge#find", "link#own"], None);
        let report = report(&both(), &both()).unwrap();
        assert!(report.no_more && report.added.is_empty() && report.gained.is_none());
        let less = super::report(&both(), &subject(&["link#own"], None)).unwrap();
        assert!(less.no_more);
        assert_eq!(less.removed.keys().collect::<Vec<_>>(), ["bridge"]);
    }

    #[test]
    fn a_new_import_is_more_even_where_the_policy_denies_it() {
        let old = subject(&["link#own"], Some("[grant.link]"));
        let report = report(&old, &subject(&["link#own", "forwarding#enable"], None)).unwrap();
        assert!(!report.no_more);
        assert_eq!(report.gained, Some(Vec::new()));
        assert!(report.gained_ceiling.iter().any(|ability| ability.sentence.contains("IP forwarding")));
        assert!(
            text(&report)
                .iter()
                .any(|line| line.contains("under the policy in force, the new component can do nothing"))
        );
    }

    #[test]
    fn a_wider_policy_is_more_too() {
        let old = subject(&["link#own", "veth#create"], Some("[grant.link]"));
        let new = subject(&["link#own", "veth#create"], Some("[grant.link]\n[grant.veth]"));
        let report = report(&old, &new).unwrap();
        assert!(!report.no_more && report.added.is_empty());
        let gained = report.gained.unwrap();
        assert_eq!(gained.len(), 1);
        assert!(gained[0].sentence.contains("veth pair"));
    }
}
