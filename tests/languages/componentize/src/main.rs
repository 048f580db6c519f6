//! Does the work of wit-bindgen and wasm-tools for C plugins, with the versions that this workspace uses anyway.
//!
//! `postern-componentize bindings WIT WORLD DIRECTORY` writes C bindings of a world. `postern-componentize component CORE
//! OUTPUT` makes a component of a core module with these bindings, and adds the adapter for wasi-libc's older WASI.

use anyhow::{Context, Result, bail};
use std::path::Path;
use wit_bindgen_core::Files;
use wit_component::ComponentEncoder;
use wit_parser::Resolve;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["bindings", wit, world, directory] => bindings(Path::new(wit), world, Path::new(directory)),
        ["component", core, output] => component(Path::new(core), Path::new(output)),
        _ => bail!("usage: postern-componentize bindings WIT WORLD DIRECTORY, or component CORE OUTPUT"),
    }
}

fn bindings(wit: &Path, world: &str, directory: &Path) -> Result<()> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit).with_context(|| wit.display().to_string())?;
    let world = resolve.select_world(&[package], Some(world))?;
    let mut files = Files::default();
    wit_bindgen_c::Opts::default().build().generate(&mut resolve, world, &mut files)?;
    std::fs::create_dir_all(directory)?;
    for (name, contents) in files.iter() {
        let path = directory.join(name);
        std::fs::write(&path, contents).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn component(core: &Path, output: &Path) -> Result<()> {
    let module = std::fs::read(core).with_context(|| core.display().to_string())?;
    let adapter = wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER;
    let component = ComponentEncoder::default()
        .module(&module)?
        .adapter("wasi_snapshot_preview1", adapter)?
        .validate(true)
        .encode()?;
    std::fs::write(output, component).with_context(|| output.display().to_string())
}
