//! `cargo xtask surface`: writes the files that are made from `wit/*.wit` and `wit/surface.toml`. With `--check` it
//! writes nothing, and fails if a file differs. `model` reads both sources. Each other module writes one kind of file from
//! the model, as plain Rust that people read and step through. `cargo xtask manual` writes pages of the manual.
//!
//! `cargo xtask sbom` and `cargo xtask audit-data` list the crates of one executable or component (`packages/sbom`).
//! Nothing of this crate is shipped.

mod code;
mod lists;
mod manual;
mod model;
mod operations;
mod sandbox;
mod sbom;
mod sdk;

use anyhow::{Context, Result, bail, ensure};
use model::Surface;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file and its contents.
type Written = (PathBuf, String);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["surface"] => write_surface(&root, false),
        ["surface", "--check"] => write_surface(&root, true),
        ["sbom", file, package, target, ..] => {
            let cargo = arguments.get(4..).unwrap_or_default();
            print(sbom::bill(&root, Path::new(file), package, target, cargo)?.as_bytes())
        }
        ["audit-data", package, target, ..] => {
            let cargo = arguments.get(3..).unwrap_or_default();
            print(&sbom::audit_data(&root, package, target, cargo)?)
        }
        ["manual", directory, date] => manual::write(&root, Path::new(directory), date),
        _ => bail!(
            "usage: cargo xtask surface [--check] | manual DIR YYYY-MM-DD | sbom FILE PACKAGE TARGET [CARGO-OPTION...] | audit-data PACKAGE TARGET \
             [CARGO-OPTION...]"
        ),
    }
}

fn print(bytes: &[u8]) -> Result<()> {
    Ok(std::io::stdout().lock().write_all(bytes)?)
}

fn write_surface(root: &Path, check: bool) -> Result<()> {
    let surface = Surface::read(&root.join("wit"))?;
    let mut stale = Vec::new();
    for (path, text) in written(&surface, root)? {
        let file = root.join(&path);
        if fs::read_to_string(&file).is_ok_and(|have| have == text) {
            continue;
        }
        if !check {
            fs::create_dir_all(file.parent().context("a file has a directory")?)?;
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        stale.push(path.display().to_string());
    }
    let what = stale.join("\n  ");
    ensure!(!check || stale.is_empty(), "files differ from wit/ (`cargo xtask surface` writes them):\n  {what}");
    if !stale.is_empty() {
        println!("written:\n  {what}");
    }
    Ok(())
}

/// Returns all files that are made from the surface, formatted.
fn written(surface: &Surface, root: &Path) -> Result<Vec<Written>> {
    let files =
        [operations::files(surface)?, sandbox::files(surface)?, sdk::files(surface)?, lists::files(surface, root)?];
    let format = |(path, text): Written| {
        if path.extension().is_some_and(|extension| extension == "wit") {
            return Ok((path, text));
        }
        let text = formatted(&text).with_context(|| format!("{} is no Rust", path.display()))?;
        Ok((path, text))
    };
    files.concat().into_iter().map(format).collect()
}

/// Returns Rust code as rustfmt formats it.
fn formatted(text: &str) -> Result<String> {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path", config])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start rustfmt")?;
    rustfmt.stdin.take().context("rustfmt has an input")?.write_all(text.as_bytes())?;
    let output = rustfmt.wait_with_output()?;
    ensure!(output.status.success(), "rustfmt failed on:\n{text}");
    Ok(String::from_utf8(output.stdout)?)
}
