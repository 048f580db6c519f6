//! Compiling a component ahead of time, and refusing the ones that a sandbox would not run.

use crate::engine::engine;
use crate::guest::linker;
use crate::wasi::FLOOR;
use std::fmt;
use wasmtime::Engine;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, types};

/// The package that this host implements.
const PACKAGE: &str = "postern:cni";

/// The version of it, as in `wit/`.
const VERSION: &str = "0.1.0";

/// A component that a sandbox can load.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Machine code for this CPU and [`crate::engine::fingerprint`].
    pub cwasm: Vec<u8>,
    /// What the component imports, down to functions, sorted: `postern:cni/bridge@0.1.0#ensure`. Its ceiling.
    pub imports: Vec<String>,
}

/// Why a component is refused.
#[derive(Debug)]
pub enum Error {
    /// The bytes are something else. Tells what.
    NotAComponent(String),
    /// It imports another version of the package: this one.
    Version(String),
    /// It imports these, which a sandbox does not have.
    Imports(Vec<String>),
    /// It does not export `wasi:cli/run`, so it is not a command.
    NotACommand,
    /// It imports an interface of the right name in the wrong shape.
    Shape(wasmtime::Error),
    /// The engine refuses or fails.
    Engine(wasmtime::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAComponent(what) => write!(f, "not a WebAssembly component: {what}"),
            Self::Version(import) => write!(
                f,
                "the component imports {import}, but this host has {PACKAGE}@{VERSION}: build the plugin with a \
                 matching postern-guest"
            ),
            Self::Imports(names) => write!(
                f,
                "the component imports what a plugin cannot have: {} (files, sockets and clocks are absent; a plugin \
                 imports {PACKAGE} and the WASI interfaces that every command needs)",
                names.join(", ")
            ),
            Self::NotACommand => {
                write!(f, "the component does not export wasi:cli/run: build it as a program, not as a library")
            }
            Self::Shape(error) => write!(f, "the component does not fit this host's interfaces: {error:#}"),
            Self::Engine(error) => write!(f, "cannot compile the component: {error:#}"),
        }
    }
}

impl std::error::Error for Error {}

/// Compiles a component, if it is one that a sandbox of this version can load and run.
///
/// # Errors
/// See [`Error`].
pub fn precompile(wasm: &[u8]) -> Result<Compiled, Error> {
    check_header(wasm)?;
    let engine = engine().map_err(Error::Engine)?;
    let component = Component::new(&engine, wasm).map_err(Error::Engine)?;
    let shape = component.component_type();
    check_imports(&engine, &shape)?;
    if !shape.exports(&engine).any(|(name, _)| interface(name).0 == "wasi:cli/run") {
        return Err(Error::NotACommand);
    }
    // What is left are functions that are missing or have another type: the linker knows, and says it well.
    linker(&engine).and_then(|linker| linker.instantiate_pre(&component)).map_err(Error::Shape)?;
    Ok(Compiled { cwasm: component.serialize().map_err(Error::Engine)?, imports: imports(&engine, &shape) })
}

/// The eight bytes in front tell what it is before anything parses the rest.
fn check_header(wasm: &[u8]) -> Result<(), Error> {
    let what = match wasm.first_chunk::<8>() {
        Some(b"\0asm\x0d\0\x01\0") => return Ok(()),
        Some(b"\0asm\x01\0\0\0") => "it is a core module, build it for wasm32-wasip2",
        Some([0x7f, b'E', b'L', b'F', ..]) => "it is a native program, or compiled already",
        _ => "it does not begin like one",
    };
    Err(Error::NotAComponent(what.to_owned()))
}

/// Interface names decide first, because a linker's message about a missing one would not tell why it is missing.
fn check_imports(engine: &Engine, shape: &types::Component) -> Result<(), Error> {
    let mut refused = Vec::new();
    for (import, _) in shape.imports(engine) {
        let (name, version) = interface(import);
        if name.split_once('/').is_some_and(|(package, _)| package == PACKAGE) {
            if !compatible(version) {
                return Err(Error::Version(import.to_owned()));
            }
        } else if !FLOOR.contains(&name) {
            refused.push(import.to_owned());
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(Error::Imports(refused)) }
}

/// `package/interface` and version of an import's name.
fn interface(import: &str) -> (&str, &str) {
    import.split_once('@').unwrap_or((import, ""))
}

/// Below 1.0.0 it is the minor version that breaks (semver.org, 4), and that the linker goes by.
fn compatible(version: &str) -> bool {
    let track = |version: &str| version.rsplit_once('.').map(|(track, _)| track.to_owned());
    track(version) == track(VERSION)
}

fn imports(engine: &Engine, shape: &types::Component) -> Vec<String> {
    let mut names = Vec::new();
    for (import, item) in shape.imports(engine) {
        match item.ty {
            ComponentItem::ComponentInstance(instance) => {
                let functions =
                    instance.exports(engine).filter(|(_, item)| matches!(item.ty, ComponentItem::ComponentFunc(_)));
                names.extend(functions.map(|(function, _)| format!("{import}#{function}")));
            }
            _ => names.push(import.to_owned()),
        }
    }
    names.sort();
    names
}
