//! The imports and the version of a component, found without compiling the component.

use crate::component::{ComponentError, check_header, check_names};
use wasmparser::component_types::ComponentEntityType;
use wasmparser::{FuncValidatorAllocations, Parser, Payload, ValidPayload, Validator, WasmFeatures};

/// The custom section with the version of a component, as text. `postern_guest::version!` and the tools of WebAssembly
/// write it. `wasm-tools metadata` shows it.
const VERSION: &str = "version";

/// The facts that a component's file shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The component's imports, down to functions, sorted: `postern:cni/bridge@0.1.0#ensure`.
    pub imports: Vec<String>,
    /// The version, as the author wrote it. It is not checked.
    pub version: Option<String>,
}

/// Returns the contents of a component.
///
/// The whole component is validated, including its code. Only [`crate::compile::precompile`] checks that the functions
/// have this host's types.
///
/// # Errors
/// The bytes are not a component, or a sandbox would not run it: see [`ComponentError`].
pub fn read(wasm: &[u8]) -> Result<Contents, ComponentError> {
    check_header(wasm)?;
    // The engine later refuses some of these features.
    let mut validator = Validator::new_with_features(WasmFeatures::default());
    let mut buffers = FuncValidatorAllocations::default();
    let (mut imports, mut exports) = (Vec::new(), Vec::new());
    let (mut depth, mut types) = (0_u32, None);
    // The version of the component has priority over the version of the core module in it, which a compiler made.
    let (mut version, mut of_program) = (None, None);
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        match &payload {
            Payload::Version { .. } => depth += 1,
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section.clone() {
                    imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section.clone() {
                    exports.push(export?.name.name.to_owned());
                }
            }
            Payload::CustomSection(section) if section.name() == VERSION => {
                let text = || String::from_utf8_lossy(section.data()).into_owned();
                if depth == 1 { &mut version } else { &mut of_program }.get_or_insert_with(text);
            }
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        match validator.payload(&payload)? {
            ValidPayload::Func(function, body) => {
                let mut function = function.into_validator(std::mem::take(&mut buffers));
                function.validate(&body)?;
                buffers = function.into_allocations();
            }
            ValidPayload::End(of) if depth == 0 => types = Some(of),
            _ => {}
        }
    }
    check_names(imports.iter().map(String::as_str), exports.iter().map(String::as_str))?;
    let Some(types) = types else { return Err(ComponentError::NotAComponent("it has no end".to_owned())) };
    let mut names = Vec::new();
    for import in imports {
        match types.as_ref().component_item_for_import(&import).map(|item| item.ty) {
            Some(ComponentEntityType::Instance(instance)) => {
                let Some(instance) = types.as_ref().get(instance) else { continue };
                let functions =
                    instance.exports.iter().filter(|(_, item)| matches!(item.ty, ComponentEntityType::Func(_)));
                names.extend(functions.map(|(function, _)| format!("{import}#{function}")));
            }
            _ => names.push(import),
        }
    }
    names.sort();
    Ok(Contents { imports: names, version: version.or(of_program) })
}

impl From<wasmparser::BinaryReaderError> for ComponentError {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Malformed(error.to_string())
    }
}

#[cfg(all(test, feature = "compiler"))]
mod tests {
    use super::*;
    use crate::compile::precompile;

    /// Both ways to read a component must have the same result.
    #[test]
    fn the_compiler_sees_the_same_imports() {
        let wat = r#"(component
            (import "postern:cni/veth@0.1.0" (instance
                (export "options" (type $o (sub resource)))
                (export "[constructor]options" (func (result (own $o))))))
            (import "wasi:cli/environment@0.2.0" (instance
                (export "get-arguments" (func (result (list string))))))
            (component (import "a" (func)) (export "b" (func 0)))
            (core module $m (func (export "run") (result i32) (i32.const 0)))
            (core instance $program (instantiate $m))
            (func $run (result (result)) (canon lift (core func $program "run")))
            (instance $command (export "run" (func $run)))
            (export "wasi:cli/run@0.2.3" (instance $command)))"#;
        let wasm = wat::parse_str(wat).unwrap();
        let Contents { imports, version } = read(&wasm).unwrap();
        assert_eq!(imports, precompile(&wasm).unwrap().imports);
        assert!(imports.contains(&"postern:cni/veth@0.1.0#[constructor]options".to_owned()));
        assert_eq!(version, None);
    }

    #[test]
    fn the_components_own_version_has_priority_over_its_programs() {
        let version = |own: &str, of_program: &str| {
            let wat = format!(
                r#"(component
                (core module $m {of_program} (func (export "run") (result i32) (i32.const 0)))
                (core instance $program (instantiate $m))
                (func $run (result (result)) (canon lift (core func $program "run")))
                (instance $command (export "run" (func $run)))
                (export "wasi:cli/run@0.2.3" (instance $command)) {own})"#
            );
            read(&wat::parse_str(wat).unwrap()).unwrap().version
        };
        let (one, two) = (r#"(@custom "version" "1.2.3")"#, r#"(@custom "version" "0.9.0\n\1b[2J\ff")"#);
        assert_eq!(version("", "").as_deref(), None);
        assert_eq!(version(one, "").as_deref(), Some("1.2.3"));
        assert_eq!(version("", one).as_deref(), Some("1.2.3"));
        assert_eq!(version(one, two).as_deref(), Some("1.2.3"));
        assert_eq!(version(two, one).as_deref(), Some("0.9.0\n\u{1b}[2J\u{fffd}"));
    }

    #[test]
    fn what_is_refused_is_refused_before_the_compiler() {
        let component = |wat: &str| wat::parse_str(format!("(component {wat})")).unwrap();
        assert!(matches!(read(&component("")), Err(ComponentError::NotACommand)));
        let files = component(r#"(import "wasi:keyvalue/store@0.2.0" (instance))"#);
        assert!(matches!(read(&files), Err(ComponentError::Imports(names)) if names == ["wasi:keyvalue/store@0.2.0"]));
        let version = component(r#"(import "postern:cni/link@0.2.0" (instance))"#);
        assert!(matches!(read(&version), Err(ComponentError::Newer(_))));
        for bytes in [&b""[..], b"\0asm\x01\0\0\0", b"\x7fELF\x02\x01\x01\0"] {
            assert!(matches!(read(bytes), Err(ComponentError::NotAComponent(_))));
        }
        for bytes in [&b"\0asm\x0d\0\x01\0garbage"[..], &files[..files.len() - 3]] {
            assert!(matches!(read(bytes), Err(ComponentError::Malformed(_))));
        }
    }

    #[test]
    fn code_that_is_not_valid_is_refused() {
        let wasm = wat::parse_str("(component (core module (func (result i32) (i64.const 0))))").unwrap();
        assert!(matches!(read(&wasm), Err(ComponentError::Malformed(why)) if why.contains("type mismatch")));
    }
}
