//! Compiles a component ahead of time. Components that a sandbox would not run are refused.

use crate::component::{ComponentError, check_header, check_names};
use crate::engine::config_for;
use crate::imports::{WasiFloor, link};
use std::sync::Arc;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, types};
use wasmtime::{CustomCodeMemory, Engine};

/// The architectures that Postern runs on, by Rust's names (`std::env::consts::ARCH`), each with the compiler's name of the
/// platform. The code does not depend on the C library. But an engine that loads its code must name its own platform.
const PLATFORMS: [(&str, &str); 2] = if cfg!(target_env = "musl") {
    [("x86_64", "x86_64-unknown-linux-musl"), ("aarch64", "aarch64-unknown-linux-musl")]
} else {
    [("x86_64", "x86_64-unknown-linux-gnu"), ("aarch64", "aarch64-unknown-linux-gnu")]
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

/// Compiles a component for this architecture, if a sandbox of this version can load and run the component. Takes
/// seconds for each megabyte. For an untrusted component call this function through [`crate::component_process`].
///
/// # Errors
/// See [`ComponentError`].
pub fn precompile(wasm: &[u8]) -> Result<Compiled, ComponentError> {
    precompile_for(std::env::consts::ARCH, wasm)
}

/// As [`precompile`], for a node of an architecture (`x86_64`, `aarch64`).
///
/// # Errors
/// See [`ComponentError`].
pub fn precompile_for(architecture: &str, wasm: &[u8]) -> Result<Compiled, ComponentError> {
    check_header(wasm)?;
    // The name is checked before the work of a whole compilation.
    let foreign = match architecture == std::env::consts::ARCH {
        true => None,
        false => Some(engine_for(architecture)?),
    };
    let engine = engine_for(std::env::consts::ARCH)?;
    let component = Component::new(&engine, wasm).map_err(ComponentError::Engine)?;
    let shape = component.component_type();
    check_names(shape.imports(&engine).map(|(name, _)| name), shape.exports(&engine).map(|(name, _)| name))?;
    // The remaining faults are functions that are missing or have another type. The linker detects them with a good
    // message.
    let floor = WasiFloor::of(shape.imports(&engine).map(|(name, _)| name));
    link(&engine, &component, floor).map_err(ComponentError::Shape)?;
    let cwasm = match foreign {
        None => component.serialize(),
        // The engine of another architecture can load nothing here. So it can't do the checks above.
        Some(foreign) => foreign.precompile_component(wasm),
    };
    Ok(Compiled { cwasm: cwasm.map_err(ComponentError::Engine)?, imports: imports(&engine, &shape) })
}

/// Returns an engine that compiles for an architecture.
fn engine_for(architecture: &str) -> Result<Engine, ComponentError> {
    let mut config = config_for(architecture).map_err(ComponentError::Engine)?;
    config.with_custom_code_memory(Some(Arc::new(NeverRun)));
    // The code is for any processor of the architecture, because a named target has no further features. So the code
    // still works after the virtual machine moves. And no run has to query the processor, which takes long in a virtual
    // machine.
    match PLATFORMS.into_iter().find(|(name, _)| *name == architecture) {
        Some((_, platform)) => {
            config.target(platform).map_err(|_| ComponentError::Architecture(architecture.to_owned()))?
        }
        None if architecture == std::env::consts::ARCH => &mut config,
        None => return Err(ComponentError::Architecture(architecture.to_owned())),
    };
    Engine::new(&config).map_err(ComponentError::Engine)
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
    use crate::component::{VERSION, numbers};

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
