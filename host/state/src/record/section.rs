//! A plugin's section of a record: who did it, with which component, and how far it got.

use serde::{Deserialize, Serialize};

/// One plugin that the runtime called for the attachment, and what became of its ADD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The plugin's name.
    pub plugin: String,
    /// SHA-256 of its component, hexadecimal.
    pub digest: String,
    /// When its ADD began to change things, milliseconds since 1970.
    pub begun: u64,
    /// How far it got.
    pub stage: Stage,
    /// When it got there, milliseconds since 1970; of [`Stage::Made`] the time of the stage before.
    pub since: u64,
    /// The addresses of its result, with prefix lengths.
    pub addresses: Vec<String>,
}

/// How far an ADD got. Only [`Stage::Given`] is an attachment: a runtime believes no process that was killed, and where DEL
/// has begun something is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It is about to change things, or has.
    Begun,
    /// All is made, and the result was found good.
    Made,
    /// The runtime has the result.
    Given,
    /// Its DEL has begun.
    Ending,
}

/// A line about a section, as the record's owner writes it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Change {
    /// The plugin is about to change things.
    Begun {
        /// SHA-256 of its component.
        digest: String,
        /// Milliseconds since 1970.
        time: u64,
    },
    /// It has made all, and has these addresses.
    Made {
        /// With prefix lengths.
        addresses: Vec<String>,
    },
    /// The runtime has the result; milliseconds since 1970.
    Given(u64),
    /// Its DEL has begun.
    Ending(bool),
    /// Its DEL is through, or its ADD was undone.
    Ended(bool),
}

/// Brings the sections up to date with one line.
pub(super) fn apply(sections: &mut Vec<Section>, plugin: &str, change: Change) {
    match change {
        Change::Begun { digest, time } => {
            sections.retain(|section| section.plugin != plugin);
            let (plugin, addresses) = (plugin.to_owned(), Vec::new());
            sections.push(Section { plugin, digest, begun: time, stage: Stage::Begun, since: time, addresses });
        }
        Change::Ended(_) => sections.retain(|section| section.plugin != plugin),
        Change::Made { addresses } => {
            for section in sections.iter_mut().filter(|section| section.plugin == plugin) {
                section.stage = Stage::Made;
                section.addresses.clone_from(&addresses);
            }
        }
        Change::Ending(_) => {
            for section in sections.iter_mut().filter(|section| section.plugin == plugin) {
                section.stage = Stage::Ending;
            }
        }
        Change::Given(time) => {
            for section in sections.iter_mut().filter(|section| section.plugin == plugin) {
                section.stage = Stage::Given;
                section.since = time;
            }
        }
    }
}
