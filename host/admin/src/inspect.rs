//! `postern inspect`: imports and policy of an installed plugin, side by side.

use anyhow::Result;
use postern_gate::catalog::Manifest;
use postern_gate::places;
use postern_gate::policy::Policy;
use std::collections::BTreeMap;

/// Prints them.
pub fn run(plugin: &str) -> Result<()> {
    let catalog = places::catalog().map_err(anyhow::Error::msg)?;
    let manifest = Manifest::read(&catalog, plugin).map_err(anyhow::Error::msg)?;
    let policy = Policy::load(&catalog, plugin).map_err(anyhow::Error::msg)?;
    println!("{plugin}  sha256 {}", manifest.digest);
    let mut interfaces: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for import in &manifest.imports {
        if let Some((interface, function)) = import.strip_prefix("postern:cni/").and_then(|rest| rest.split_once('#')) {
            let interface = interface.split_once('@').map_or(interface, |(name, _)| name);
            interfaces.entry(interface).or_default().push(function);
        }
    }
    if interfaces.is_empty() {
        println!("  imports no capability: it can only compute");
    }
    for (interface, functions) in interfaces {
        // `types` has no functions of its own and grants nothing.
        let verdict = if policy.grants(interface) { "granted" } else { "DENIED " };
        println!("  {verdict}  {interface}: {}", functions.join(", "));
    }
    Ok(())
}
