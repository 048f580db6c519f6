//! A component's imports, split into authority and the floor that every program needs.

use postern_sandbox::needs_all_of_wasi;
use postern_types::Capability;
use std::collections::{BTreeMap, BTreeSet};

/// The package whose functions reach the node.
const PACKAGE: &str = "postern:cni/";

/// The meaning of a plugin's WASI interfaces, for people.
pub const FLOOR: &str = "arguments, the environment's CNI_* variables, standard input, output and error in memory, random \
                         numbers, exit; no file, socket, clock or program of the node";

/// The meaning, for people, of the WASI interfaces of a component that imports more than the floor.
pub const WHOLE: &str = "the component finds no argument and no directory; every socket, look-up of a name and request is refused; \
                         it has a clock, the environment's CNI_* variables, standard streams in memory, random numbers and exit";

/// Imports, split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imports {
    /// Functions of `postern:cni` by interface, as components spell them: `[method]bridge.attach`.
    pub authority: BTreeMap<String, BTreeSet<String>>,
    /// Every other import, as written: the sandbox implements it from its own memory.
    pub floor: Vec<String>,
}

impl Imports {
    /// Splits the imports of a manifest, such as `postern:cni/bridge@0.1.0#ensure`.
    pub fn parse(list: &[String]) -> Self {
        let mut imports = Self::default();
        for import in list {
            let Some((interface, function)) = import.strip_prefix(PACKAGE).and_then(|rest| rest.split_once('#')) else {
                // An imported type gives no authority.
                if !import.starts_with(PACKAGE) {
                    imports.floor.push(import.clone());
                }
                continue;
            };
            let interface = interface.split_once('@').map_or(interface, |(name, _)| name);
            imports.authority.entry(interface.to_owned()).or_default().insert(function.to_owned());
        }
        imports
    }

    /// True if the component imports more of WASI than the floor.
    pub fn has_all_of_wasi(&self) -> bool {
        needs_all_of_wasi(&self.floor)
    }

    /// True if the component can ask for an operation of this capability.
    pub fn has(&self, capability: Capability) -> bool {
        self.authority.contains_key(capability.name())
    }

    /// Returns the functions that `self` has and `other` lacks.
    #[must_use]
    pub fn beyond(&self, other: &Self) -> Self {
        let none = BTreeSet::new();
        let mut authority = BTreeMap::new();
        for (interface, functions) in &self.authority {
            let more: BTreeSet<String> =
                functions.difference(other.authority.get(interface).unwrap_or(&none)).cloned().collect();
            if !more.is_empty() {
                authority.insert(interface.clone(), more);
            }
        }
        let floor = self.floor.iter().filter(|import| !other.floor.contains(import)).cloned().collect();
        Self { authority, floor }
    }

    /// Returns a line for each interface: `bridge: attach, ensure`.
    pub fn lines(&self) -> Vec<String> {
        let line = |(interface, functions): (&String, &BTreeSet<String>)| {
            format!("{interface}: {}", functions.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", "))
        };
        self.authority.iter().map(line).collect()
    }
}

/// Returns `[method]bridge.attach` as people write it: `bridge.attach`; a constructor is `new options`.
fn plain(function: &str) -> String {
    match function.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some(("constructor", resource)) => format!("new {resource}"),
        Some((_, name)) => name.to_owned(),
        None => function.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(list: &[&str]) -> Imports {
        Imports::parse(&list.iter().map(|import| (*import).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn tells_authority_from_the_floor() {
        let imports = imports(&[
            "postern:cni/bridge@0.1.0#[method]bridge.attach",
            "postern:cni/bridge@0.1.0#find",
            "postern:cni/routes@0.1.0#[constructor]route",
            "wasi:cli/exit@0.2.6#exit",
        ]);
        assert_eq!(imports.lines(), ["bridge: bridge.attach, find", "routes: new route"]);
        assert_eq!(imports.floor, ["wasi:cli/exit@0.2.6#exit"]);
    }

    #[test]
    fn a_newer_patch_version_is_no_difference() {
        let old = imports(&["postern:cni/bridge@0.1.0#find", "postern:cni/link@0.1.0#own"]);
        let new = imports(&["postern:cni/bridge@0.1.7#find", "postern:cni/bridge@0.1.7#ensure"]);
        assert_eq!(new.beyond(&old).lines(), ["bridge: ensure"]);
        assert_eq!(old.beyond(&new).lines(), ["link: own"]);
        assert_eq!(old.beyond(&old), Imports::default());
    }
}
