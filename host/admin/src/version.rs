//! `postern --version`: the data that tell one build from another.

use crate::output;
use anyhow::Result;
use postern_sandbox::engine;
use serde::Serialize;
use std::env::consts::ARCH;

/// The object that `--json` prints. Keys are only ever added.
#[derive(Serialize)]
struct Version<'a> {
    version: &'a str,
    /// The commit that the program is built from, or `unknown`.
    commit: &'a str,
    architecture: &'a str,
    /// The engine that the code of plugins must be compiled for. It names the version of wasmtime.
    engine: &'a str,
    /// The package of the functions that plugins call.
    wit: &'a str,
}

/// Prints the version.
///
/// # Errors
/// Standard output can't be written.
pub fn run(commit: Option<&str>, json: bool) -> Result<()> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        commit: commit.filter(|commit| !commit.is_empty()).unwrap_or("unknown"),
        architecture: ARCH,
        engine: &engine::fingerprint(),
        wit: env!("POSTERN_WIT"),
    };
    if json { output::json(&version) } else { output::text(&version.words()) }
}

impl Version<'_> {
    /// Returns one line for each value. Scripts read the first line of programs: name and version.
    fn words(&self) -> String {
        let Self { version, commit, architecture, engine, wit } = self;
        format!(
            "postern {version}\ncommit        {commit}\narchitecture  {architecture}\nengine        {engine}\nwit           {wit}"
        )
    }
}
