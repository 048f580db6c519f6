//! Compiles a component ahead of time. Components that a sandbox would not run are refused.

use crate::engine::config;
use crate::full_wasi::is_request;
use crate::imports::{WasiFloor, link, split};
use std::sync::Arc;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, types};
use wasmtime::{CustomCodeMemory, Engine};

/// The package that this host implements.
const PACKAGE: &str = "postern:cni";

/// The package's version, as in `wit/`.
// each package: const VERSION: &str = "{version}";
const VERSION: &str = "0.1.1";
// end of the list

/// The name of this platform, if the compiler knows it.
const TARGET: Option<&str> =
    match (cfg!(target_arch = "x86_64"), cfg!(target_arch = "aarch64"), cfg!(target_env = "musl")) {
        (true, _, false) => Some("x86_64-unknown-linux-gnu"),
        (true, _, true) => Some("x86_64-unknown-linux-musl"),
        (_, true, false) => Some("aarch64-unknown-linux-gnu"),
        (_, true, true) => Some("aarch64-unknown-linux-musl"),
        _ => None,
    };

/// A component that a sandbox can load.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Machine code for this architecture and [`crate::engine::fingerprint`].
    pub cwasm: Vec<u8>,
    /// The component's imports, down to functions, sorted: `postern:cni/bridge@0.1.0#ensure`. The component can never
    /// call other functions.
    pub imports: Vec<String>,
}

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
    #[error("the component does not fit this host's interfaces: {0:#}")]
    Shape(wasmtime::Error),
    /// The engine gives an error.
    #[error("cannot compile the component: {0:#}")]
    Engine(wasmtime::Error),
}

/// Compiles a component, if a sandbox of this version can load and run it. Takes seconds for each megabyte. For an
/// untrusted component call this function through [`crate::compile_process`].
///
/// # Errors
/// See [`ComponentError`].
pub fn precompile(wasm: &[u8]) -> Result<Compiled, ComponentError> {
    check_header(wasm)?;
    let mut config = config().map_err(ComponentError::Engine)?;
    config.with_custom_code_memory(Some(Arc::new(NeverRun)));
    // The code is for any processor of the architecture, because a named target has no further features. So the code
    // still works after the virtual machine moves. And no run has to query the processor, which takes long in a virtual
    // machine.
    if let Some(target) = TARGET {
        config.target(target).map_err(ComponentError::Engine)?;
    }
    let engine = Engine::new(&config).map_err(ComponentError::Engine)?;
    let component = Component::new(&engine, wasm).map_err(ComponentError::Engine)?;
    let shape = component.component_type();
    check_names(shape.imports(&engine).map(|(name, _)| name), shape.exports(&engine).map(|(name, _)| name))?;
    // The remaining faults are functions that are missing or have another type. The linker detects them with a good
    // message.
    let floor = WasiFloor::of(shape.imports(&engine).map(|(name, _)| name));
    link(&engine, &component, floor).map_err(ComponentError::Shape)?;
    Ok(Compiled { cwasm: component.serialize().map_err(ComponentError::Engine)?, imports: imports(&engine, &shape) })
}

/// An engine setting for code that is compiled and written to a file, and never run here.
struct NeverRun;

impl CustomCodeMemory for NeverRun {
    fn required_alignment(&self) -> usize {
        4096
    }

    fn publish_executable(&self, _start: *const u8, _length: usize) -> wasmtime::Result<()> {
        Ok(())
    }

    fn unpublish_executable(&self, _start: *const u8, _length: usize) -> wasmtime::Result<()> {
        Ok(())
    }
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
fn numbers(version: &str) -> Option<[u64; 3]> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    let three = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(three)
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

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = r#"
        (core module $m (func (export "run") (result i32) (i32.const 0)))
        (core instance $program (instantiate $m))
        (func $run (result (result)) (canon lift (core func $program "run")))
        (instance $command (export "run" (func $run)))
        (export "wasi:cli/run@0.2.3" (instance $command))"#;

    fn refused(imports: &str) -> ComponentError {
        precompile(&wat::parse_str(format!("(component {imports} {PROGRAM})")).unwrap()).unwrap_err()
    }

    #[test]
    fn tells_the_imports_down_to_functions() {
        let wat = format!(
            r#"(component
                (import "postern:cni/veth@0.1.0" (instance
                    (export "options" (type $o (sub resource)))
                    (export "[constructor]options" (func (result (own $o))))))
                (import "wasi:cli/environment@0.2.0" (instance
                    (export "get-arguments" (func (result (list string))))))
                {PROGRAM})"#
        );
        let compiled = precompile(&wat::parse_str(wat).unwrap()).unwrap();
        let expected = ["postern:cni/veth@0.1.0#[constructor]options", "wasi:cli/environment@0.2.0#get-arguments"];
        assert_eq!(compiled.imports, expected);
        assert!(compiled.cwasm.starts_with(b"\x7fELF"));
    }

    #[test]
    fn refuses_what_is_no_component() {
        for (bytes, why) in [
            (&b"\0asm\x01\0\0\0"[..], "core module"),
            (b"\x7fELF\x02\x01\x01\0", "native"),
            (b"", "begin"),
            (b"#!/bin/sh\n", "begin"),
        ] {
            let error = precompile(bytes).unwrap_err();
            assert!(matches!(&error, ComponentError::NotAComponent(what) if what.contains(why)), "{error}");
        }
        assert!(matches!(precompile(b"\0asm\x0d\0\x01\0garbage"), Err(ComponentError::Engine(_))));
    }

    #[test]
    fn refuses_another_version_and_names_both() {
        let host = format!("this host has postern:cni@{VERSION}: ");
        for (version, way_out) in [
            ("0.1.2", "update Postern, or build"),
            ("0.1.99999", "update Postern, or build"),
            ("0.2.0", "update Postern, or build"),
            ("1.1.0", "update Postern, or build"),
            ("0.0.1", "build the plugin for"),
            ("0.0.99", "build the plugin for"),
            // A release candidate fits no other version.
            ("0.1.1-rc.1", "build the plugin for"),
        ] {
            let error = refused(&format!(r#"(import "postern:cni/link@{version}" (instance))"#));
            let words = error.to_string();
            assert!(words.contains(&format!("imports postern:cni/link@{version}, ")), "{words}");
            assert!(words.contains(&format!("{host}{way_out}")), "{words}");
        }
    }

    #[test]
    fn a_component_of_an_older_patch_version_fits() {
        let own = numbers(VERSION).unwrap();
        for patch in 0..=own[2] {
            let wat = format!(r#"(component (import "postern:cni/link@0.1.{patch}" (instance)) {PROGRAM})"#);
            precompile(&wat::parse_str(wat).unwrap()).unwrap();
        }
    }

    #[test]
    fn refuses_two_versions_of_an_interface() {
        // The two interfaces have no common name.
        let error = refused(
            r#"(import "wasi:cli/environment@0.2.0" (instance (export "get-arguments" (func (result (list string))))))
            (import "wasi:cli/environment@0.2.6" (instance (export "initial-cwd" (func (result (option string))))))"#,
        );
        assert!(error.to_string().contains("wasi:cli/environment in two versions"), "{error}");
    }

    #[test]
    fn tells_what_is_wrong_with_an_import() {
        for (import, why) in [
            (r#"(import "postern:cni/link@0.1.0" (func))"#, "expected function found instance"),
            (r#"(import "postern:cni/link@0.1.0" (instance (export "no-such" (func))))"#, "no-such"),
        ] {
            let error = refused(import);
            assert!(format!("{error:?}").contains(why), "{error:?}");
        }
    }

    #[test]
    fn refuses_what_a_sandbox_does_not_have() {
        for import in [
            "wasi:keyvalue/store@0.2.0",
            "wasi:nn/graph@0.2.0",
            "wasi:http/proxy@0.2.0",
            "env",
            "a:b/c",
            "postern:cni/raw@0.1.0",
        ] {
            let error = refused(&format!(r#"(import "{import}" (instance))"#));
            assert!(matches!(&error, ComponentError::Imports(names) if *names == [import]), "{error}");
            assert!(error.to_string().contains(import), "{error}");
        }
    }

    /// Names of functions would be a thirteenth of a file, and no run reads them.
    #[test]
    fn the_code_has_no_names_of_functions() {
        let compiled = precompile(&wat::parse_str(format!("(component {PROGRAM})")).unwrap()).unwrap();
        assert!(!compiled.cwasm.windows(8).any(|bytes| bytes == b"wasm[0]:"));
    }

    /// The linker has each interface, for any use by a component.
    #[test]
    fn takes_all_of_wasi() {
        for (import, whole) in [
            ("wasi:cli/environment@0.2.0", false),
            ("wasi:random/random@0.2.0", false),
            ("wasi:io/streams@0.2.12", false),
            ("wasi:clocks/wall-clock@0.2.9", true),
            ("wasi:clocks/monotonic-clock@0.2.9", true),
            ("wasi:filesystem/types@0.2.0", true),
            ("wasi:filesystem/preopens@0.2.0", true),
            ("wasi:sockets/instance-network@0.2.0", true),
            ("wasi:sockets/ip-name-lookup@0.2.0", true),
            ("wasi:sockets/network@0.2.0", true),
            ("wasi:sockets/tcp@0.2.0", true),
            ("wasi:sockets/tcp-create-socket@0.2.0", true),
            ("wasi:sockets/udp@0.2.0", true),
            ("wasi:sockets/udp-create-socket@0.2.0", true),
            ("wasi:http/types@0.2.10", true),
            ("wasi:http/outgoing-handler@0.2.10", true),
        ] {
            let component = format!(r#"(component (import "{import}" (instance)) {PROGRAM})"#);
            precompile(&wat::parse_str(component).unwrap()).unwrap();
            assert_eq!(crate::needs_all_of_wasi(&[format!("{import}#get")]), whole, "{import}");
        }
        assert!(!crate::needs_all_of_wasi(&["postern:cni/bridge@0.1.0#find".to_owned()]));
    }

    #[test]
    fn refuses_the_wrong_shape() {
        for function in [r#""route" (func)"#, r#""enable" (func (param "path" string))"#] {
            let error = refused(&format!(r#"(import "postern:cni/forwarding@0.1.0" (instance (export {function})))"#));
            assert!(matches!(error, ComponentError::Shape(_)), "{error}");
            assert!(error.to_string().contains("postern:cni/forwarding@0.1.0"), "{error}");
        }
    }

    #[test]
    fn refuses_a_library() {
        assert!(matches!(precompile(&wat::parse_str("(component)").unwrap()), Err(ComponentError::NotACommand)));
    }
}
