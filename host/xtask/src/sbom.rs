//! The software bill of materials of one executable or component (`cargo xtask sbom`), and the list of crates that scanners
//! find inside an executable (`cargo xtask audit-data`). Both have exactly the linked crates: `cargo tree` resolves the
//! features of one call of cargo, as the build does. Crates that only run during a build are left out.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};
use std::{env, fs};

/// Name and version of a crate: a graph has each pair once.
type Key = (String, String);

/// A linked crate.
#[derive(Debug, PartialEq)]
struct Crate {
    licence: String,
    /// The crate belongs to this workspace, and is in no registry.
    local: bool,
    needs: BTreeSet<Key>,
}

/// The crates that are linked into one executable or component.
#[derive(Debug, PartialEq)]
struct Linked {
    root: Key,
    crates: BTreeMap<Key, Crate>,
}

/// Returns the bill of materials of a file, in CycloneDX's form.
///
/// # Errors
/// cargo does not know the root or the target, or the file can't be read.
pub fn bill(top: &Path, file: &Path, root: &str, target: &str, cargo: &[String]) -> Result<String> {
    let linked = Linked::read(top, root, target, cargo)?;
    let name = file.file_stem().context("a file has a name")?.to_string_lossy();
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let lock = fs::read_to_string(top.join("Cargo.lock"))?;
    let bill = linked.bill(&name, &sha256(&bytes), &time()?, &library()?, &checksums(&lock)?);
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

/// Returns the list of crates as scanners find it in an executable: JSON, compressed by zlib. cargo-auditable describes the
/// form (PARSING.md).
///
/// # Errors
/// cargo does not know the root or the target.
pub fn audit_data(top: &Path, root: &str, target: &str, cargo: &[String]) -> Result<Vec<u8>> {
    let list = Linked::read(top, root, target, cargo)?.audit_data().to_string();
    Ok(miniz_oxide::deflate::compress_to_vec_zlib(list.as_bytes(), 9))
}

impl Linked {
    fn read(top: &Path, root: &str, target: &str, cargo: &[String]) -> Result<Self> {
        let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(top)
            .args(["tree", "--quiet", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "depth"])
            .args(["--format", "{p}\t{l}\t", "--target", target])
            .args(cargo)
            .output()
            .context("cannot start cargo")?;
        ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
        Self::parse(&String::from_utf8(output.stdout)?, root)
    }

    /// Reads lines `DEPTHNAME vVERSION (PATH)\tLICENCE\t`. cargo prints a crate's own lines once, and ` (*)` later.
    fn parse(tree: &str, root: &str) -> Result<Self> {
        let mut crates: BTreeMap<Key, Crate> = BTreeMap::new();
        // The crates from the root to the line.
        let mut path: Vec<Key> = Vec::new();
        for line in tree.lines().filter(|line| !line.is_empty()) {
            let unknown = || format!("cargo tree's line is not understood: {line}");
            let (package, rest) = line.split_once('\t').with_context(unknown)?;
            let (licence, _) = rest.split_once('\t').with_context(unknown)?;
            let name = package.trim_start_matches(|character: char| character.is_ascii_digit());
            let depth: usize = package.strip_suffix(name).with_context(unknown)?.parse().with_context(unknown)?;
            let mut words = name.split(' ');
            let (name, version) = words.next().zip(words.next()).with_context(unknown)?;
            let key = (name.to_owned(), version.trim_start_matches('v').to_owned());
            path.truncate(depth);
            if let Some(parent) = path.last().and_then(|parent| crates.get_mut(parent)) {
                parent.needs.insert(key.clone());
            }
            path.push(key.clone());
            let licence = licence.replace('/', " OR ");
            let local = words.next().is_some_and(|word| word.starts_with("(/"));
            crates.entry(key).or_insert(Crate { licence, local, needs: BTreeSet::new() });
        }
        let Some(root) = crates.keys().find(|(name, _)| name == root).cloned() else {
            bail!("cargo tree does not print the package {root}");
        };
        Ok(Self { root, crates }.reached())
    }

    /// Leaves out crates that only another package of the same call links.
    fn reached(mut self) -> Self {
        let mut reached = BTreeSet::new();
        let mut next = vec![self.root.clone()];
        while let Some(key) = next.pop() {
            if let Some(one) = self.crates.get(&key)
                && reached.insert(key)
            {
                next.extend(one.needs.iter().cloned());
            }
        }
        self.crates.retain(|key, _| reached.contains(key));
        self
    }

    fn bill(&self, name: &str, digest: &str, time: &str, library: &Value, checksums: &BTreeMap<Key, String>) -> Value {
        let others = self.crates.iter().filter(|(key, _)| **key != self.root);
        let components = others.map(|(key, one)| one.component(key, checksums.get(key)));
        let dependencies = self.crates.iter().map(|(key, one)| {
            let mut needs: Vec<String> = one.needs.iter().map(reference).collect();
            if *key == self.root {
                needs.extend(library["bom-ref"].as_str().map(str::to_owned));
            }
            json!({ "ref": reference(key), "dependsOn": needs })
        });
        let licence = self.crates.get(&self.root).map(|root| root.licence.as_str());
        json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "timestamp": time,
                "component": {
                    "type": "application",
                    "bom-ref": reference(&self.root),
                    "name": name,
                    "version": self.root.1,
                    "hashes": [{ "alg": "SHA-256", "content": digest }],
                    "licenses": [{ "expression": licence }],
                },
            },
            "components": components.chain([library.clone()]).collect::<Vec<_>>(),
            "dependencies": dependencies.collect::<Vec<_>>(),
        })
    }

    /// Each crate names the crates that it needs by their places in the list.
    fn audit_data(&self) -> Value {
        let places: BTreeMap<&Key, usize> = self.crates.keys().enumerate().map(|(place, key)| (key, place)).collect();
        let packages = self.crates.iter().map(|(key, one)| {
            let mut package = json!({
                "name": key.0,
                "version": key.1,
                "source": if one.local { "local" } else { "crates.io" },
            });
            let needs: Vec<&usize> = one.needs.iter().filter_map(|need| places.get(need)).collect();
            if !needs.is_empty() {
                set(&mut package, "dependencies", json!(needs));
            }
            if *key == self.root {
                set(&mut package, "root", json!(true));
            }
            package
        });
        json!({ "packages": packages.collect::<Vec<_>>() })
    }
}

impl Crate {
    /// A crate of this workspace has no package URL: a crate of the same name in a registry would be another one.
    fn component(&self, key: &Key, checksum: Option<&String>) -> Value {
        let mut component = json!({
            "type": "library",
            "bom-ref": reference(key),
            "name": key.0,
            "version": key.1,
        });
        if !self.licence.is_empty() {
            set(&mut component, "licenses", json!([{ "expression": self.licence }]));
        }
        if !self.local {
            set(&mut component, "purl", json!(reference(key)));
        }
        if let Some(checksum) = checksum {
            set(&mut component, "hashes", json!([{ "alg": "SHA-256", "content": checksum }]));
        }
        component
    }
}

/// Adds a key to an object.
fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(key.to_owned(), value);
    }
}

/// The name of a crate in a bill.
fn reference((name, version): &Key) -> String {
    format!("pkg:cargo/{name}@{version}")
}

fn sha256(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(&Sha256::digest(bytes))
}

/// The time of the release, so that a rebuild gives the same file.
fn time() -> Result<String> {
    let seconds = env::var("SOURCE_DATE_EPOCH").context("SOURCE_DATE_EPOCH, the release's second, is not set")?;
    let time = UNIX_EPOCH + Duration::from_secs(seconds.parse().context("SOURCE_DATE_EPOCH is no number")?);
    Ok(humantime::format_rfc3339_seconds(time).to_string())
}

/// Rust's standard library, which contains the C library musl in executables.
fn library() -> Result<Value> {
    let output = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("--version").output()?;
    let said = String::from_utf8(output.stdout)?;
    let version = said.split(' ').nth(1).context("rustc --version prints no version")?.trim();
    Ok(json!({
        "type": "library",
        "bom-ref": format!("rust-std@{version}"),
        "name": "std",
        "version": version,
        "description": "Rust's standard library, with the C library of its target",
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
    }))
}

/// Returns the registry's checksum of each crate.
fn checksums(lock: &str) -> Result<BTreeMap<Key, String>> {
    let lock: toml::Table = lock.parse().context("Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("Cargo.lock has no package")?;
    let text = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
    let one = |package| Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?));
    Ok(packages.iter().filter_map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What cargo prints for a call with two packages.
    const TREE: &str = "0host v0.2.0 (/src/host)\tApache-2.0\t\n\
        1anyhow v1.0.1\tMIT/Apache-2.0\t\n\
        1gate v0.2.0 (/src/gate)\tApache-2.0\t\n\
        2anyhow v1.0.1\tMIT/Apache-2.0\t\n\
        2libc v0.2.9\tMIT\t\n\
        \n\
        0service v0.2.0 (/src/service)\tApache-2.0\t\n\
        1gate v0.2.0 (/src/gate)\tApache-2.0\t (*)\n\
        1tokio v1.0.0\tMIT\t\n";

    fn names(linked: &Linked) -> Vec<&str> {
        linked.crates.keys().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn each_package_has_the_crates_that_it_links() {
        let host = Linked::parse(TREE, "host").unwrap();
        assert_eq!(names(&host), ["anyhow", "gate", "host", "libc"]);
        let service = Linked::parse(TREE, "service").unwrap();
        assert_eq!(names(&service), ["anyhow", "gate", "libc", "service", "tokio"]);
        let error = Linked::parse(TREE, "postern").unwrap_err().to_string();
        assert_eq!(error, "cargo tree does not print the package postern");
        assert!(Linked::parse("host v0.2.0", "host").is_err());
    }

    #[test]
    fn a_bill_names_licence_checksum_and_dependencies() {
        let lock = "[[package]]\nname = \"anyhow\"\nversion = \"1.0.1\"\nchecksum = \"abc\"\n\
            [[package]]\nname = \"gate\"\nversion = \"0.2.0\"\n";
        let linked = Linked::parse(TREE, "host").unwrap();
        let bill =
            linked.bill("postern", "00ff", "2026-01-01T00:00:00Z", &library().unwrap(), &checksums(lock).unwrap());
        let anyhow = &bill["components"][0];
        assert_eq!(anyhow["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(anyhow["hashes"][0]["content"], "abc");
        assert_eq!(anyhow["purl"], "pkg:cargo/anyhow@1.0.1");
        let gate = &bill["components"][1];
        assert_eq!((gate["name"].as_str(), gate.get("purl")), (Some("gate"), None));
        let root = bill["dependencies"].as_array().unwrap().iter().find(|one| one["ref"] == "pkg:cargo/host@0.2.0");
        let needs = root.unwrap()["dependsOn"].as_array().unwrap();
        assert_eq!(needs.len(), 3);
        assert!(needs.last().unwrap().as_str().unwrap().starts_with("rust-std@"));
        assert_eq!(bill["metadata"]["component"]["hashes"][0]["content"], "00ff");
    }

    #[test]
    fn an_executable_lists_its_crates_by_place() {
        let list = Linked::parse(TREE, "host").unwrap().audit_data();
        let expected = json!({ "packages": [
            { "name": "anyhow", "version": "1.0.1", "source": "crates.io" },
            { "name": "gate", "version": "0.2.0", "source": "local", "dependencies": [0, 3] },
            { "name": "host", "version": "0.2.0", "source": "local", "dependencies": [0, 1], "root": true },
            { "name": "libc", "version": "0.2.9", "source": "crates.io" },
        ]});
        assert_eq!(list, expected);
    }
}
