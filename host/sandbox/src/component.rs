//! The checks of a component that need no compiler: its first bytes, its imports by name, and its kind.

use crate::full_wasi::is_request;
use crate::imports::{WasiFloor, split};

/// The package that this host implements.
const PACKAGE: &str = "postern:cni";

/// The package's version, as in `wit/`.
// each package: pub(crate) const VERSION: &str = "{version}";
pub(crate) const VERSION: &str = "0.1.1";
// end of the list

/// The reasons why a component is refused.
#[derive(Debug, thiserror::Error)]
pub enum ComponentError {
    /// The bytes are not a component. The text says more.
    #[error("not a WebAssembly component: {0}")]
    NotAComponent(String),
    /// The bytes are not valid WebAssembly. The text says why.
    #[error("not a valid WebAssembly component: {0}")]
    Malformed(String),
    /// The component imports this version of the package, and this host is too old for it.
    #[error(
        "the component imports {0}, but this host has {PACKAGE}@{VERSION}: update Postern, or build the plugin for {VERSION}"
    )]
    Newer(String),
    /// The component imports this version of the package, and this host no longer has it.
    #[error(
        "the component imports {0}, but this host has {PACKAGE}@{VERSION}: build the plugin for {VERSION} (a Rust plugin: with \
         a newer postern-guest)"
    )]
    Older(String),
    /// The component imports these interfaces, and a sandbox doesn't have them.
    #[error(
        "the component imports interfaces that a plugin cannot have: {} (a plugin imports {PACKAGE} and WASI 0.2)",
        .0.join(", ")
    )]
    Imports(Vec<String>),
    /// The component does not export `wasi:cli/run`, so it is not a command.
    #[error("the component does not export wasi:cli/run: build it as a program, not as a library")]
    NotACommand,
    /// The component imports a known interface in the wrong shape.
    #[cfg(feature = "compiler")]
    #[error("the component does not fit this host's interfaces: {0:#}")]
    Shape(wasmtime::Error),
    /// This compiler can't compile for this architecture.
    #[cfg(feature = "compiler")]
    #[error(
        "this postern-compiler does not compile for the architecture \"{0}\": the compiler of a release compiles for x86_64 \
         and aarch64"
    )]
    Architecture(String),
    /// The engine gives an error.
    #[cfg(feature = "compiler")]
    #[error("cannot compile the component: {0:#}")]
    Engine(wasmtime::Error),
}

/// Checks the first eight bytes, which show the kind of the file before anything else is parsed.
pub(crate) fn check_header(wasm: &[u8]) -> Result<(), ComponentError> {
    let what = match wasm.first_chunk::<8>() {
        Some(b"\0asm\x0d\0\x01\0") => return Ok(()),
        Some(b"\0asm\x01\0\0\0") => "it is a core module, build it for wasm32-wasip2",
        Some([0x7f, b'E', b'L', b'F', ..]) => "it is a native program, or compiled already",
        _ => "it does not begin like a component",
    };
    Err(ComponentError::NotAComponent(what.to_owned()))
}

/// Checks the names of interfaces first, because the linker's message would not give the reason for a missing
/// interface.
pub(crate) fn check_names<'a>(
    imports: impl Iterator<Item = &'a str>,
    mut exports: impl Iterator<Item = &'a str>,
) -> Result<(), ComponentError> {
    let mut refused = Vec::new();
    for import in imports {
        let (name, version) = split(import);
        if name.split_once('/').is_some_and(|(package, _)| package == PACKAGE) {
            check_version(import, version)?;
        }
        if !WasiFloor::Whole.interfaces().any(|(interface, _)| interface == name) && !is_request(name) {
            refused.push(import.to_owned());
        }
    }
    if !refused.is_empty() {
        return Err(ComponentError::Imports(refused));
    }
    if exports.any(|name| split(name).0 == "wasi:cli/run") { Ok(()) } else { Err(ComponentError::NotACommand) }
}

/// Checks the version of an import of [`PACKAGE`] by the rule of `wit/VERSIONS.md`. The linker would accept a newer
/// patch version with the same functions. But this host can't know what else changed in that version.
fn check_version(import: &str, version: &str) -> Result<(), ComponentError> {
    let (wanted, own) = (numbers(version), numbers(VERSION));
    if wanted > own {
        return Err(ComponentError::Newer(import.to_owned()));
    }
    let track = |version: Option<[u64; 3]>| version.map(|[major, minor, _]| (major, minor));
    if track(wanted) == track(own) { Ok(()) } else { Err(ComponentError::Older(import.to_owned())) }
}

/// Returns the three numbers of a version. `None` for another form, such as a release candidate.
pub(crate) fn numbers(version: &str) -> Option<[u64; 3]> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    let three = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(three)
}
