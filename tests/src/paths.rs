//! The paths of the plugins.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// Returns the workspace's default `target` directory. `make build` and `fetch-native` write there, whatever
/// `CARGO_TARGET_DIR` says.
fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target")
}

/// Returns the plugins that come with Postern, sorted by name: every directory of `guests/` with a policy.
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

/// Returns the CNI bin directory of the native plugins: `$POSTERN_NATIVE/bin`, or the directory that
/// `tests/fetch-native` makes.
///
/// # Errors
/// There are no plugins; the message says how to get them.
pub fn native_bin() -> Result<PathBuf> {
    let root = std::env::var_os("POSTERN_NATIVE").map_or_else(|| target().join("native"), PathBuf::from);
    directory(&root.join("bin"), "tests/fetch-native fetches the native plugins")
}

/// Returns the CNI bin directory under test: `$POSTERN_CNI_BIN`, or `target/cni/bin`, which `make build` makes.
///
/// # Errors
/// There are no plugins; the message says how to get them.
pub fn plugin_bin() -> Result<PathBuf> {
    let path = std::env::var_os("POSTERN_CNI_BIN").map_or_else(|| target().join("cni/bin"), PathBuf::from);
    directory(&path, "`make build` builds the plugins, or POSTERN_CNI_BIN names another directory")
}

/// Returns a shell command that copies a CNI bin directory of the plugins under test on a node. The copied plugins'
/// files start the copied host executable.
pub fn copy_bin(from: &Path, to: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("lib/relocate.sh");
    format!("cp -a --sparse=never {} {to}; . {}; relocate {to}", from.display(), script.display())
}

fn directory(path: &Path, remedy: &str) -> Result<PathBuf> {
    let path = path.canonicalize().with_context(|| format!("no plugins in {}: {remedy}", path.display()))?;
    let bridge = path.join("bridge");
    ensure!(bridge.exists(), "no plugin `bridge` in {}: {remedy}", path.display());
    // The files of a copied `target` would start the host executable of the original `target`.
    let text = std::fs::read(&bridge).unwrap_or_default();
    let line = String::from_utf8_lossy(text.strip_prefix(b"#!").unwrap_or_default()).into_owned();
    if let Some((host, _)) = line.split_once(" --plugin=") {
        ensure!(Path::new(host).parent() == Some(&path), "{} starts {host}: {remedy}", bridge.display());
    }
    Ok(path)
}
