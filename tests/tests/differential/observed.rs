//! Stored observations of the native side, which doesn't change between runs. They are in `target/native-observed`. The
//! name of a file is a digest of its dependencies: the case, the tests, the native plugins, the kernel and the tools. A
//! change of a dependency leads to a new observation.

use anyhow::{Context, Result};
use postern_tests::{Case, Side, has_key};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of the tests' library that an observation depends on.
const SEEN_THROUGH: [&str; 7] = ["call.rs", "case.rs", "inside.rs", "names.rs", "netlink.rs", "node.rs", "snapshot.rs"];

/// The directory of observations, and the digest of their common dependencies.
pub struct Observed {
    directory: PathBuf,
    ground: Sha256,
}

impl Observed {
    /// # Errors
    /// The sources of the tests, or a native plugin, can't be read.
    pub fn new(native: &Path) -> Result<Self> {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut ground = Sha256::new();
        let mut sources: Vec<_> = SEEN_THROUGH.iter().map(|name| tests.join("src").join(name)).collect();
        sources.extend(files(&tests.join("tests/differential"))?);
        for file in sources {
            add(&mut ground, file.to_string_lossy().as_bytes());
            add(&mut ground, &std::fs::read(&file).with_context(|| file.display().to_string())?);
        }
        // Name, length and version stand for the content of the plugins, which have 100 MB.
        for file in files(native)? {
            add(&mut ground, file.to_string_lossy().as_bytes());
            add(&mut ground, format!("{:?}", std::fs::metadata(&file)?.len()).as_bytes());
        }
        add(&mut ground, &std::fs::read(native.with_file_name("version")).unwrap_or_default());
        // The kernel, and the tools that show the state of the node.
        for words in [["uname", "-srvm"], ["ip", "-V"], ["nft", "--version"], ["iptables", "--version"]] {
            let [program, argument] = words;
            let output = Command::new(program).arg(argument).output().with_context(|| words.join(" "))?;
            add(&mut ground, &output.stdout);
        }
        // The kernel refuses some operations only in an ordinary user's namespace.
        add(&mut ground, std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default().as_bytes());
        Ok(Self { directory: tests.join("../target/native-observed"), ground })
    }

    /// Returns the native side of a case, and true if it was stored.
    ///
    /// # Errors
    /// The case can't be run.
    pub fn native(&self, case: &Case, native: &Path, ours: &Path) -> Result<(Value, bool)> {
        let mut key = self.ground.clone();
        add(&mut key, format!("{case:?}").as_bytes());
        let name: String = key.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let file = self.directory.join(name + ".json");
        if let Some(known) = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
            return Ok((known, true));
        }
        let seen = case.run(Side::Native, native, ours)?;
        // On a busy machine a native plugin ends before its addresses are ready. The next run observes the case again.
        if has_key(&seen, "tentative") {
            return Ok((seen, false));
        }
        // The rename makes the file complete or absent. A failure to store does not fail the test.
        let partial = file.with_extension(format!("{}", std::process::id()));
        let kept = std::fs::create_dir_all(&self.directory)
            .and_then(|()| std::fs::write(&partial, seen.to_string()))
            .and_then(|()| std::fs::rename(&partial, &file));
        if let Err(error) = kept {
            println!("differential: {}: {error}: this observation is not kept", file.display());
        }
        Ok((seen, false))
    }
}

/// Adds a part with its length, so that parts are separate.
fn add(digest: &mut Sha256, part: &[u8]) {
    digest.update(part.len().to_le_bytes());
    digest.update(part);
}

/// Returns the files of a directory, in the order of their names.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
