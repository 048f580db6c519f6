//! `link-settings`: the attributes that a plugin may give the attachment's own link.

use super::prelude::*;
use crate::pattern::Pattern;
use postern_cni::NetConf;
use postern_types::{LinkSettings, Mac};

/// The default directory of the native plugin's files.
pub const DEFAULT_DIRECTORY: &str = "/run/cni/tuning";

/// The keys of `[grant.link-settings]`.
pub const KEYS: &[Key] = &[
    key("macs", ValueKind::LinkAddress, Count::Some),
    key("mtu", ValueKind::Mtu, Count::Some),
    key("promisc", ValueKind::Flag, Count::Some),
    key("allmulti", ValueKind::Flag, Count::Some),
    key("tx-queue-length", ValueKind::Number, Count::Some),
    required("directories", ValueKind::Directory, "${config.dataDir | /run/cni/tuning}"),
];

/// Returns the directory of the native plugin's files: `dataDir`, or the default.
pub fn directory(conf: &NetConf) -> String {
    let directory = conf.fields().string("dataDir").ok().flatten().filter(|directory| !directory.is_empty());
    directory.unwrap_or_else(|| DEFAULT_DIRECTORY.to_owned())
}

impl Decide for ops::LinkSettings {
    fn rule(&self, input: &RuleInput<'_>, grant: &Grant) -> Result<&'static str, OpError> {
        match self {
            Self::Change { settings, .. } => {
                let directory = directory(input.question.conf);
                let rule = input.one_of(grant, "link-settings.directories", &directory)?;
                attributes(input, grant, settings)?;
                Ok(rule)
            }
            Self::Check { .. } | Self::Restore => Ok(grant.name),
        }
    }

    fn objects(&self, input: &RuleInput<'_>) -> Vec<Change> {
        match self {
            Self::Change { settings, .. } => {
                let mut objects = line::object("directories", &directory(input.question.conf));
                objects.extend(values(settings).into_iter().map(|(key, value)| line::text(key, value)));
                objects
            }
            Self::Check { .. } | Self::Restore => Vec::new(),
        }
    }
}

/// Returns the values that policy decides on, by their keys.
pub fn values(settings: &LinkSettings) -> Vec<(&'static str, String)> {
    let LinkSettings { mac, mtu, promisc, allmulti, tx_queue_length } = settings;
    let values = [
        ("macs", mac.map(|mac| mac.to_string())),
        ("mtu", mtu.map(|mtu| mtu.to_string())),
        ("promisc", promisc.map(|on| on.to_string())),
        ("allmulti", allmulti.map(|on| on.to_string())),
        ("tx-queue-length", tx_queue_length.map(|length| length.to_string())),
    ];
    values.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

fn attributes(input: &RuleInput<'_>, grant: &Grant, settings: &LinkSettings) -> Result<(), OpError> {
    for (key, value) in values(settings) {
        let is_granted = match settings.mac.filter(|_| key == "macs") {
            // The configuration may write the address in another form.
            Some(mac) => grant.texts("macs").any(|text| text.parse::<Mac>() == Ok(mac)),
            // An attribute that may be switched on may also be switched off.
            None if value == "false" => grant.texts(key).next().is_some(),
            None => grant.texts(key).any(|text| text == value),
        };
        if !is_granted {
            let what = match key {
                "macs" => format!("with address {value}"),
                "mtu" => format!("with MTU {value}"),
                "promisc" if value == "true" => "with promiscuous mode".to_owned(),
                "promisc" => "without promiscuous mode".to_owned(),
                "allmulti" if value == "true" => "with all multicast frames".to_owned(),
                "allmulti" => "without all multicast frames".to_owned(),
                _ => format!("with queue length {value}"),
            };
            return Err(input.key(&what, Vec::from([line::text(key, value)])));
        }
    }
    Ok(())
}

impl Granted {
    /// True if policy takes this address of the link from the configuration or from `CNI_ARGS`.
    pub fn takes_address(&self, mac: Mac) -> bool {
        let is_taken = |pattern: &Pattern| !pattern.is_written() && pattern.to_string().parse() == Ok(mac);
        self.grant(Capability::LinkSettings).is_some_and(|grant| grant.patterns("macs").any(is_taken))
    }

    /// True if policy grants any value of an attribute of the link, and this directory for the native plugin's files.
    pub fn may_change_link(&self, directory: &str) -> bool {
        let values = ["macs", "mtu", "promisc", "allmulti", "tx-queue-length"];
        self.grant(Capability::LinkSettings).is_some_and(|grant| {
            values.into_iter().any(|key| grant.texts(key).next().is_some()) && grant.matches("directories", directory)
        })
    }
}
