//! `postern show`: everything that belongs to one container, by its records and by the kernel.

use crate::account::{self, Attachment, Plugin, short};
use crate::ls;
use crate::output::{self, Colour, one_line};
use anyhow::{Result, bail};
use postern_cni::Version;
use postern_state::Stage;

/// Width of the first column.
const NAMES: usize = 20;

/// Prints the state of a container, given by its ID or by the beginning of the ID.
///
/// # Errors
/// No container matches, or several match. The kernel or the state directory can't be looked at.
pub fn run(container: &str, json: bool) -> Result<()> {
    let all = account::attachments()?;
    let meant = meant(&all, container)?;
    if json {
        return output::json(&meant);
    }
    let colours: Vec<(String, Colour)> = meant.iter().flat_map(|one| ls::colours(std::slice::from_ref(*one))).collect();
    let texts: Vec<String> = meant.into_iter().map(text).collect();
    output::coloured(&texts.join("\n\n"), &colours)
}

/// Returns the attachments of the container that matches.
fn meant<'a>(all: &'a [Attachment], container: &str) -> Result<Vec<&'a Attachment>> {
    let id = |one: &'a Attachment| one.container.as_deref();
    let mut ids: Vec<&str> = all.iter().filter_map(id).filter(|id| id.starts_with(container)).collect();
    if ids.contains(&container) {
        ids = vec![container];
    }
    ids.dedup();
    match ids.as_slice() {
        [one] => Ok(all.iter().filter(|attachment| id(attachment) == Some(one)).collect()),
        [] if all.is_empty() => bail!("no container \"{}\": this node has no attachments", one_line(container)),
        [] => bail!("no container \"{}\"; there are\n{}", one_line(container), ls::table(all, false)),
        many => bail!(
            "\"{}\" is the beginning of {} containers: {}",
            one_line(container),
            many.len(),
            one_line(&many.join(", "))
        ),
    }
}

fn text(one: &Attachment) -> String {
    let of = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".to_owned());
    let mut lines =
        vec![one_line(&format!("{}/{}/{}: {}", of(&one.network), of(&one.container), of(&one.interface), one.words()))];
    // The text of each line is already safe for a terminal. A command has no-break spaces, which must stay here.
    let mut line = |name: &str, text: String| lines.push(format!("  {name:NAMES$}{text}"));
    line("since", one_line(&one.age()));
    line("record", one_line(&one.record.display().to_string()));
    line("CNI_NETNS", one_line(&of(&one.netns)));
    if !one.addresses.is_empty() {
        line("addresses", one_line(&one.addresses.join(", ")));
    }
    for plugin in &one.plugins {
        line("plugin", one_line(&component(plugin)));
    }
    for holder in &one.held_by {
        let text = format!("process {} ({}), for {} s", holder.pid, holder.name, holder.age.as_secs());
        line("at work", one_line(&text));
    }
    for fact in &one.facts {
        line(fact.kind, one_line(&fact.found));
    }
    for difference in &one.differences {
        line("DIFFERS", one_line(&difference.what));
        line("  remedy", output::remedy(&difference.remedy, difference.is_command));
    }
    lines.join("\n")
}

fn component(plugin: &Plugin) -> String {
    let mut words = plugin.plugin.clone();
    match (&plugin.digest, &plugin.installed) {
        (Some(digest), Some(installed)) if digest == installed => {
            words += &format!(", sha256 {}, which is installed", short(digest));
        }
        (Some(digest), Some(installed)) => {
            words +=
                &format!(", sha256 {}; another component is installed now, sha256 {}", short(digest), short(installed));
        }
        (Some(digest), None) => words += &format!(", sha256 {}; the component is no longer installed", short(digest)),
        (None, _) => words += "; the record does not name the component",
    }
    // Most plugins support all versions, so this line is rare.
    if let Some(versions) = plugin.versions.as_ref().filter(|versions| versions.len() < Version::ALL.len()) {
        words += &format!("; CNI {} only", versions.join(", "));
    }
    match plugin.stage {
        Some(Stage::Begun) => words += "; ADD has begun",
        Some(Stage::Made) => words += "; ADD has made everything, but the runtime has not received the result",
        Some(Stage::Ending) => words += "; DEL has begun",
        Some(Stage::Given) | None => {}
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use postern_account::attachment::{Deviation, State};
    use std::path::PathBuf;

    #[test]
    fn a_command_is_shown_as_it_is_typed() {
        let command = "nsenter --net=/run/netns/c1 ip route add 0.0.0.0/0 via 10.88.0.1 dev eth0";
        let difference =
            Deviation { what: "a route\u{1b}[2J is gone".to_owned(), remedy: command.to_owned(), is_command: true };
        let one = Attachment {
            network: Some("net".to_owned()),
            container: Some("c1".to_owned()),
            interface: Some("eth0".to_owned()),
            netns: None,
            since: None,
            addresses: Vec::new(),
            plugins: Vec::new(),
            state: State::Drift,
            under_way: false,
            held_by: Vec::new(),
            record: PathBuf::new(),
            facts: Vec::new(),
            differences: vec![difference],
        };
        // Printing replaces each no-break space by a space.
        let shown = text(&one).replace('\u{a0}', " ");
        assert!(shown.contains(command) && !shown.contains("u{a0}") && !shown.contains('\u{1b}'), "{shown}");
    }
}
