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
    /// What it made for its packets to pass; empty in a record of an earlier version.
    pub path: DataPath,
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
    },
    /// It has made all, and has these addresses.
    Made {
        /// With prefix lengths.
        addresses: Vec<String>,
        /// Earlier versions pass it over, and write none.
        #[serde(default, skip_serializing_if = "DataPath::is_unknown")]
        path: DataPath,
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
            let (plugin, addresses, path) = (plugin.to_owned(), Vec::new(), DataPath::default());
            sections.push(Section { plugin, digest, begun: time, stage: Stage::Begun, since: time, addresses, path });
        }
        Change::Ended(_) => sections.retain(|section| section.plugin != plugin),
        Change::Made { addresses, path } => {
            for section in sections.iter_mut().filter(|section| section.plugin == plugin) {
                section.stage = Stage::Made;
                section.addresses.clone_from(&addresses);
                section.path.clone_from(&path);
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
