//! Where the plugins are.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// The workspace's `target` directory: of `CARGO_TARGET_DIR`'s default, whatever this build uses, because `make build`
/// and `fetch-native` write there.
fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target")
}

/// The plugins that come with Postern, in the order of their names: whatever has a policy in `guests/`.
///
/// # Errors
/// The directory can't be read.
pub fn shipped() -> Result<Vec<String>> {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(guests)? {
        let entry = entry?;
        if entry.path().join("policy.toml").is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The CNI bin directory of the native plugins: `$POSTERN_NATIVE/bin`, or what `tests/fetch-native` fetched.
///
/// # Errors
/// Without the plugins there; the message says how to get them.
pub fn native_bin() -> Result<PathBuf> {
    let root = std::env::var_os("POSTERN_NATIVE").map_or_else(|| target().join("native"), PathBuf::from);
    directory(&root.join("bin"), "tests/fetch-native fetches the native plugins")
}

/// The CNI bin directory under test: `$POSTERN_CNI_BIN`, or what `make build` left in `target/cni/bin`.
///
/// # Errors
/// Without the plugins there; the message says how to get them.
pub fn plugin_bin() -> Result<PathBuf> {
    let path = std::env::var_os("POSTERN_CNI_BIN").map_or_else(|| target().join("cni/bin"), PathBuf::from);
    directory(&path, "`make build` builds them, POSTERN_CNI_BIN names another directory")
}

/// A shell command that copies a CNI bin directory of the plugins under test, as seen on a node. Plugins' files in the copy
/// start the host beside them, and not the one that they were copied from.
pub fn copy_bin(from: &Path, to: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("lib/relocate.sh");
    format!("cp -a {} {to}; . {}; relocate {to}", from.display(), script.display())
}

fn directory(path: &Path, remedy: &str) -> Result<PathBuf> {
    let path = path.canonicalize().with_context(|| format!("no plugins in {}: {remedy}", path.display()))?;
    let bridge = path.join("bridge");
    ensure!(bridge.exists(), "no plugin `bridge` in {}: {remedy}", path.display());
    // A copied `target` would have another tree's host tested.
    let text = std::fs::read(&bridge).unwrap_or_default();
    let line = String::from_utf8_lossy(text.strip_prefix(b"#!").unwrap_or_default()).into_owned();
    if let Some((host, _)) = line.split_once(" --plugin=") {
        ensure!(Path::new(host).parent() == Some(&path), "{} starts {host}: {remedy}", bridge.display());
    }
    Ok(path)
}
