//! A plugin's section of a record: the plugin, its component, and its progress.
//!
//! A chain can have a plugin twice. Its first section has the plugin's name. Each further section has the name and an
//! ordinal: `tuning`, `tuning#2`. So a record without repeated plugins has the same form as in versions without
//! ordinals.

use super::{MOST_BYTES, Record};
use crate::error::{Result, StateError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A record of this length in bytes takes no more notes of plugins. The rest of the room is for effects and progress.
const ROOM_FOR_NOTES: u64 = MOST_BYTES / 4;

/// One plugin that the runtime called for the attachment, and the progress of its ADD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The section's name: the plugin's name, with an ordinal from the second section on.
    pub name: String,
    /// SHA-256 of the plugin's component, hexadecimal.
    pub digest: String,
    /// A hash of the configuration of the plugin's call. The hash distinguishes two sections of one plugin. `None` in a
    /// record of Postern 0.1.
    pub config: Option<String>,
    /// True if the plugin made the attachment's link. The link may be gone by now.
    pub made_link: bool,
    /// True if the plugin joined a link of another plugin to a bridge. Such a plugin owns no link of the attachment.
    pub joined: bool,
    /// The time when the plugin's ADD began to make effects, milliseconds since 1970.
    pub begun: u64,
    /// The progress of the plugin's ADD.
    pub stage: Stage,
    /// The time when the ADD reached this stage, milliseconds since 1970. [`Stage::Made`] keeps the time of the
    /// previous stage.
    pub since: u64,
    /// The addresses of the plugin's result, with prefix lengths.
    pub addresses: Vec<String>,
    /// The data path that the plugin made for the attachment's packets; empty in a record of an earlier version.
    pub path: DataPath,
    /// The text that the plugin itself keeps.
    pub note: Option<String>,
}

impl Section {
    /// Returns the plugin's name.
    #[must_use]
    pub fn plugin(&self) -> &str {
        plugin_of(&self.name)
    }
}

impl<E: Serialize + DeserializeOwned + Clone> Record<E> {
    /// Notes the text that the plugin of `section` keeps, in place of its earlier text. An empty text removes the
    /// earlier text. Earlier versions ignore the note. A replaced text still takes room until the record ends.
    ///
    /// # Errors
    /// As [`Record::append`]. After an error the earlier text still counts.
    pub fn keep(&mut self, section: &str, text: &str) -> Result<()> {
        if self.content.length + text.len() as u64 > ROOM_FOR_NOTES {
            return Err(StateError::Exhausted(format!(
                "record {}: the room for notes of plugins, {} KiB, is used up",
                self.directory.path_of(&self.name).display(),
                ROOM_FOR_NOTES >> 10
            )));
        }
        self.change(section, Change::Note(text.to_owned()))
    }

    /// Returns the name of a plugin's next section, after all its present sections.
    #[must_use]
    pub fn next_section(&self, plugin: &str) -> String {
        let ordinal = |section: &Section| match section.name.split_once(ORDINAL) {
            Some((_, ordinal)) => ordinal.parse().unwrap_or(1_u32),
            None => 1,
        };
        let last = self.sections().iter().filter(|section| section.plugin() == plugin).map(ordinal).max();
        match last.map(|last| last.saturating_add(1)) {
            None => plugin.to_owned(),
            Some(ordinal) => format!("{plugin}{ORDINAL}{ordinal}"),
        }
    }

    /// Returns the section that a call of a plugin belongs to: the plugin's last section with this hash of the
    /// configuration, or else the plugin's last section. `None` if the plugin has no section.
    #[must_use]
    pub fn called_section(&self, plugin: &str, config: &str) -> Option<&Section> {
        let mut own = self.sections().iter().filter(|section| section.plugin() == plugin);
        let of_config = own.clone().rfind(|section| section.config.as_deref() == Some(config));
        of_config.or_else(|| own.next_back())
    }
}

/// Returns the plugin that a section of this name belongs to.
#[must_use]
pub fn plugin_of(section: &str) -> &str {
    section.split_once(ORDINAL).map_or(section, |(plugin, _)| plugin)
}

/// The character between a plugin's name and the ordinal. A plugin's name can't contain this character.
const ORDINAL: char = '#';

/// The data path of an attachment's packets at the end of its ADD. `postern ls` and `postern doctor` compare the
/// kernel's state with this data path. A field is empty if the plugin made no object of this kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataPath {
    /// The link-layer address of the container's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// True if the plugin set the container's end up without giving it addresses.
    #[serde(skip_serializing_if = "is_false")]
    pub up: bool,
    /// The routes of the result: a destination with prefix length, then a blank and the next hop if there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// The bridge of which the host end is a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// True if the port has its own settings (VLANs, isolation, hairpin mode). To join the bridge again would not
    /// restore these settings.
    #[serde(skip_serializing_if = "is_false")]
    pub port_settings: bool,
    /// The gateways on the host, for the attachment's addresses: a link, then a blank and the gateway's address with
    /// prefix length.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// True if the host has a route to each address through the host end.
    #[serde(skip_serializing_if = "is_false")]
    pub routed: bool,
}

impl DataPath {
    fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

pub(super) fn is_false(value: &bool) -> bool {
    !value
}

/// The progress of an ADD. The attachment is complete only in [`Stage::Given`]. In earlier stages the runtime does not
/// have the result, because a runtime ignores the output of a killed process. In [`Stage::Ending`], effects may be
/// gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The ADD will make effects next, or has made some effects.
    Begun,
    /// All effects are made, and the result was found good.
    Made,
    /// The runtime has the result.
    Given,
    /// The section's DEL has begun.
    Ending,
}

/// A change of a section, as a line of the record has it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Change {
    /// The plugin is about to make effects.
    Begun {
        /// SHA-256 of the plugin's component.
        digest: String,
        /// Milliseconds since 1970.
        time: u64,
        /// A hash of the plugin's configuration. Postern 0.1 ignores the hash, and writes no hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        config: Option<String>,
    },
    /// The plugin has made all effects, and its result has these addresses.
    Made {
        /// The addresses, with prefix lengths.
        addresses: Vec<String>,
        /// Earlier versions ignore the data path, and write no data path.
        #[serde(default, skip_serializing_if = "DataPath::is_unknown")]
        path: DataPath,
    },
    /// The plugin joins a link of another plugin to a bridge.
    Joined(bool),
    /// The plugin keeps this text, in place of its earlier text. An empty text removes the earlier text. Earlier
    /// versions ignore the line.
    Note(String),
    /// The runtime has the result; milliseconds since 1970.
    Given(u64),
    /// The section's DEL has begun.
    Ending(bool),
    /// The section's DEL is complete, or its ADD was undone.
    Ended(bool),
}

/// Updates the sections with one line.
pub(super) fn apply(sections: &mut Vec<Section>, name: &str, change: Change) {
    let own = sections.iter_mut().find(|section| section.name == name);
    match (change, own) {
        (Change::Begun { digest, time, config }, _) => {
            sections.retain(|section| section.name != name);
            sections.push(Section {
                name: name.to_owned(),
                digest,
                config,
                made_link: false,
                joined: false,
                begun: time,
                stage: Stage::Begun,
                since: time,
                addresses: Vec::new(),
                path: DataPath::default(),
                note: None,
            });
        }
        (Change::Ended(_), _) => sections.retain(|section| section.name != name),
        (Change::Made { addresses, path }, Some(own)) => {
            (own.stage, own.addresses, own.path) = (Stage::Made, addresses, path);
        }
        (Change::Ending(_), Some(own)) => own.stage = Stage::Ending,
        (Change::Joined(joined), Some(own)) => own.joined = joined,
        (Change::Note(text), Some(own)) => own.note = Some(text).filter(|text| !text.is_empty()),
        (Change::Given(time), Some(own)) => (own.stage, own.since) = (Stage::Given, time),
        (Change::Made { .. } | Change::Ending(_) | Change::Joined(_) | Change::Note(_) | Change::Given(_), None) => {}
    }
}
