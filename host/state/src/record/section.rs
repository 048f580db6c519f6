//! A plugin's section of a record: who did it, with which component, and how far it got.
//!
//! A chain can have a plugin twice. Its first section is called after the plugin, each further one has an ordinal behind
//! that: `tuning`, `tuning#2`. So records of plugins that come once are as they were before there were ordinals.

use serde::{Deserialize, Serialize};

/// One plugin that the runtime called for the attachment, and what became of its ADD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The section's name: the plugin's, from the second on with an ordinal.
    pub name: String,
    /// SHA-256 of its component, hexadecimal.
    pub digest: String,
    /// A hash of the configuration that it was called with, which tells two sections of one plugin apart; `None` in a record
    /// of Postern 0.1.
    pub config: Option<String>,
    /// It made the attachment's link, which may be gone by now.
    pub made_link: bool,
    /// It joined with a link of another plugin, so that none of the attachment's links is its own.
    pub joined: bool,
    /// When its ADD began to change things, milliseconds since 1970.
    pub begun: u64,
    /// How far it got.
    pub stage: Stage,
    /// When it got there, milliseconds since 1970; of [`Stage::Made`] the time of the stage before.
    pub since: u64,
    /// The addresses of its result, with prefix lengths.
    pub addresses: Vec<String>,
    /// What it made for its packets to pass; empty in a record of an earlier version.
    pub path: DataPath,
}

impl Section {
    /// The plugin's name.
    #[must_use]
    pub fn plugin(&self) -> &str {
        plugin_of(&self.name)
    }
}

/// The plugin that a section of this name belongs to.
#[must_use]
pub fn plugin_of(section: &str) -> &str {
    section.split_once(ORDINAL).map_or(section, |(plugin, _)| plugin)
}

/// What stands between a plugin's name, which can't have it, and the ordinal.
const ORDINAL: char = '#';

/// The name of the plugin's next section: behind all that there are.
pub(super) fn next(sections: &[Section], plugin: &str) -> String {
    let ordinal = |section: &Section| match section.name.split_once(ORDINAL) {
        Some((_, ordinal)) => ordinal.parse().unwrap_or(1_u32),
        None => 1,
    };
    let last = sections.iter().filter(|section| section.plugin() == plugin).map(ordinal).max();
    match last.map(|last| last.saturating_add(1)) {
        None => plugin.to_owned(),
        Some(ordinal) => format!("{plugin}{ORDINAL}{ordinal}"),
    }
}

/// The section that a call of a plugin with this configuration is about: the last that was made with it, or else the plugin's
/// last one.
pub(super) fn called<'a>(sections: &'a [Section], plugin: &str, config: &str) -> Option<&'a Section> {
    let mut own = sections.iter().filter(|section| section.plugin() == plugin);
    let of_config = own.clone().rfind(|section| section.config.as_deref() == Some(config));
    of_config.or_else(|| own.next_back())
}

/// How an attachment's packets go, as it was when its ADD had made all: what an account of the node compares the kernel
/// with. Each part is absent if the plugin made no such thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataPath {
    /// The link-layer address of the container's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The container's end was set up, other than by giving it addresses.
    #[serde(skip_serializing_if = "is_false")]
    pub up: bool,
    /// The routes of the result: a destination with prefix length, then a blank and the next hop if it names one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// The bridge that the host's end is a port of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// The port has settings of its own (VLANs, isolation, hairpin mode): to join the bridge again is not enough.
    #[serde(skip_serializing_if = "is_false")]
    pub port_settings: bool,
    /// Gateways of the addresses on the host: a link, then a blank and the address with prefix length.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// The host has a route to each address through its end.
    #[serde(skip_serializing_if = "is_false")]
    pub routed: bool,
}

impl DataPath {
    fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

fn is_false(value: &bool) -> bool {
    !value
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
        /// A hash of its configuration. Postern 0.1 passes it over, and wrote none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        config: Option<String>,
    },
    /// It has made all, and has these addresses.
    Made {
        /// With prefix lengths.
        addresses: Vec<String>,
        /// Earlier versions pass it over, and write none.
        #[serde(default, skip_serializing_if = "DataPath::is_unknown")]
        path: DataPath,
    },
    /// It joins with a link of another plugin.
    Joined(bool),
    /// The runtime has the result; milliseconds since 1970.
    Given(u64),
    /// Its DEL has begun.
    Ending(bool),
    /// Its DEL is through, or its ADD was undone.
    Ended(bool),
}

/// Notes that a section makes the attachment's link.
pub(super) fn makes_link(sections: &mut [Section], name: &str) {
    sections.iter_mut().filter(|section| section.name == name).for_each(|section| section.made_link = true);
}

/// Brings the sections up to date with one line.
pub(super) fn apply(sections: &mut Vec<Section>, name: &str, change: Change) {
    match change {
        Change::Begun { digest, time, config } => {
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
            });
        }
        Change::Ended(_) => sections.retain(|section| section.name != name),
        Change::Made { addresses, path } => {
            for section in sections.iter_mut().filter(|section| section.name == name) {
                section.stage = Stage::Made;
                section.addresses.clone_from(&addresses);
                section.path.clone_from(&path);
            }
        }
        Change::Ending(_) => {
            for section in sections.iter_mut().filter(|section| section.name == name) {
                section.stage = Stage::Ending;
            }
        }
        Change::Joined(joined) => {
            for section in sections.iter_mut().filter(|section| section.name == name) {
                section.joined = joined;
            }
        }
        Change::Given(time) => {
            for section in sections.iter_mut().filter(|section| section.name == name) {
                section.stage = Stage::Given;
                section.since = time;
            }
        }
    }
}
