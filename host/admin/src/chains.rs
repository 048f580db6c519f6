//! Finds plugins in the chain of an attachment that may have left rules for the attachment's addresses. Postern can't
//! undo the work of such a plugin. The runtimes' cache has the exact list of plugins. Without a cache entry, the
//! operator's list with the network's name is used.

use crate::doctor::installed;
use crate::lists::{self, List};
use postern_account::results;
use postern_gate::Header;
use postern_gate::catalogs::Catalogs;
use std::collections::HashMap;
use std::path::PathBuf;

/// Native plugins that leave no object on the host for a container's address. Their effects are on the
/// container's own link or namespace, or are removed with the host end of the pair.
const HARMLESS: [&str; 5] = ["tuning", "sbr", "vrf", "bandwidth", "loopback"];

/// The plugins of each network, and the plugins of Postern.
pub struct Chains {
    lists: HashMap<String, Vec<String>>,
    ours: Vec<String>,
}

impl Chains {
    /// Reads the operator's lists.
    pub fn new(directories: &[PathBuf]) -> Self {
        let lists = lists::of_directories(directories).into_iter().filter_map(|(_, list)| list.ok());
        Self {
            lists: lists.map(|list| (list.name().to_owned(), plugins(&list))).collect(),
            ours: Catalogs::find().as_ref().map(installed).unwrap_or_default(),
        }
    }

    /// Returns the reason why the chain of an attachment may have left rules for its addresses. `None` if all
    /// plugins of the chain belong to Postern or leave no rules, or if the plugins are unknown.
    pub fn leaves_rules(&self, header: &Header) -> Option<String> {
        let cached = results::chain(header);
        let plugins = cached.as_ref().or_else(|| self.lists.get(&header.network))?;
        let foreign: Vec<&str> = plugins
            .iter()
            .map(String::as_str)
            .filter(|plugin| !HARMLESS.contains(plugin) && !self.ours.iter().any(|ours| ours == plugin))
            .collect();
        if foreign.is_empty() {
            return None;
        }
        Some(format!(
            "only DEL of the chain undoes the work of native {}: let the runtime remove the container, or call DEL, for \
             instance with cnitool",
            foreign.join(", ")
        ))
    }
}

fn plugins(list: &List) -> Vec<String> {
    list.plugins().map(str::to_owned).collect()
}
