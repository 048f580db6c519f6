//! Compares the imports of each plugin's component, function by function, with the list that reviewers read:
//! `guests/imports.golden`. A component can never use a function that it doesn't import.
//!
//! Needs the components, which `make build` makes.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test, helpers included")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use wasmparser::{Parser, Payload};

/// Returns the plugins that come with Postern.
fn plugins() -> Vec<String> {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests");
    let entries = std::fs::read_dir(guests).unwrap().map(|entry| entry.unwrap());
    let plugins = entries.filter(|entry| entry.path().join("policy.toml").is_file());
    let mut names: Vec<String> = plugins.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The size limit of a component. A component should stay small, because every start maps its code. The largest component, bridge, has
/// 285,000 bytes. dhcp has two programs, the plugin and the client of the DHCP service, and a library that reads
/// packets.
fn size_limit(plugin: &str) -> u64 {
    if plugin == "dhcp" { 950_000 } else { 300_000 }
}

/// Interfaces without a function of their own. They are imported because other interfaces use their types.
const TYPES_ONLY: [&str; 2] = ["postern:cni/types", "wasi:io/error"];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests/imports.golden")
}

fn component(plugin: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = Path::new("wasm32-wasip2/guest").join(format!("postern-{plugin}.wasm"));
    let found = target.ancestors().map(|dir| dir.join(&file)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{} has not been built; `make build` builds it", file.display()))
}

/// Returns the imports of the core module, which are also the imports of the component. `wit-component` adds modules
/// that connect core module and component; their imports have no colon. The drop of a resource is left out: it tells a
/// reviewer nothing.
fn imports(plugin: &str) -> BTreeSet<String> {
    let bytes = std::fs::read(component(plugin)).unwrap();
    let mut lines = BTreeSet::new();
    for payload in Parser::new(0).parse_all(&bytes) {
        let Payload::ImportSection(section) = payload.unwrap() else { continue };
        for import in section.into_imports() {
            let import = import.unwrap();
            if import.module.contains(':') && !import.name.starts_with("[resource-drop]") {
                lines.insert(format!("{plugin}: {}#{}", import.module, import.name));
            }
        }
    }
    assert!(!lines.is_empty(), "{plugin} imports nothing at all: has the format of components changed?");
    lines
}

#[test]
fn imports_are_those_of_the_golden_list() {
    let found: Vec<String> = plugins().iter().flat_map(|plugin| imports(plugin)).collect();
    if std::env::var_os("POSTERN_BLESS").is_some() {
        std::fs::write(golden(), found.join("\n") + "\n").unwrap();
    }
    let golden = std::fs::read_to_string(golden()).unwrap();
    let golden: Vec<&str> = golden.lines().collect();
    let added: Vec<_> = found.iter().filter(|line| !golden.contains(&line.as_str())).collect();
    let removed: Vec<_> = golden.iter().filter(|line| !found.iter().any(|found| found == *line)).collect();
    assert!(
        added.is_empty() && removed.is_empty(),
        "imports that the list lacks: {added:#?}\nimports that only the list has: {removed:#?}\n\
         if the change is intended, run this test again with POSTERN_BLESS=1, and have the difference reviewed"
    );
}

/// The test above reads the imports of the core module. The component around the core module must not import more.
#[test]
fn components_import_no_other_interfaces() {
    let name = |versioned: &str| versioned.split('@').next().unwrap_or_default().to_owned();
    for plugin in &plugins() {
        let prefix = format!("{plugin}: ");
        let mut expected: BTreeSet<String> =
            imports(plugin).iter().map(|line| name(line.strip_prefix(&prefix).unwrap())).collect();
        let bytes = std::fs::read(component(plugin)).unwrap();
        let mut found = BTreeSet::new();
        for payload in Parser::new(0).parse_all(&bytes) {
            let Payload::ComponentImportSection(section) = payload.unwrap() else { continue };
            // The small component inside exports `run`. It calls the functions of the outer component by names without
            // a colon.
            let names = section.into_iter().map(|import| name(import.unwrap().name.name));
            found.extend(names.filter(|name| name.contains(':')));
        }
        expected.extend(TYPES_ONLY.iter().filter(|name| found.contains(**name)).map(|name| name.to_string()));
        assert_eq!(found, expected, "{plugin}");
    }
}

#[test]
fn components_stay_small() {
    for plugin in &plugins() {
        let size = component(plugin).metadata().unwrap().len();
        let limit = size_limit(plugin);
        assert!(size < limit, "{plugin}: {size} bytes are not less than {limit}");
    }
}
