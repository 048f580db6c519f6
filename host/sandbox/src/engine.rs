//! The engine's settings. Compiled code fits only an engine of the same settings, so one function serves both the
//! compiling and the loading program.

use std::sync::Arc;
use wasmtime::{Config, Engine, ModuleVersionStrategy};

use crate::code::Executable;
use crate::memory::{GUARD, RESERVATION, Reserve};

/// The version of wasmtime in `Cargo.lock`; wasmtime itself doesn't export it. A test compares both versions.
const WASMTIME: &str = "48.0.8";

/// The number of changes of [`config`] that make earlier compiled code unusable.
const REVISION: u32 = 2;

/// Returns the name of the engine that code must be compiled for: wasmtime's version, the architecture, and the
/// settings. The name can be a file name. The code has the name, and code with another name is refused. The name has no
/// CPU features: wasmtime compares them when it loads code.
pub fn fingerprint() -> String {
    fingerprint_for(std::env::consts::ARCH)
}

/// The architectures that Postern runs on, by Rust's names (`std::env::consts::ARCH`).
pub const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// Returns the name of the engine that a node of an architecture (`x86_64`, `aarch64`) has, in this version of Postern.
pub fn fingerprint_for(architecture: &str) -> String {
    format!("wasmtime-{WASMTIME}-{architecture}-{REVISION}")
}

/// Returns the settings, with or without a compiler.
///
/// # Errors
/// The fingerprint is too long for wasmtime.
pub fn config() -> wasmtime::Result<Config> {
    config_for(std::env::consts::ARCH)
}

/// Returns the settings for code of an architecture.
///
/// # Errors
/// As [`config`].
pub(crate) fn config_for(architecture: &str) -> wasmtime::Result<Config> {
    let mut config = Config::new();
    config
        .module_version(ModuleVersionStrategy::Custom(fingerprint_for(architecture)))?
        // `code::load` maps the code read-only. `Executable` adds the permission to execute it.
        .with_custom_code_memory(Some(Arc::new(Executable)))
        // A trap shows its kind. A backtrace has no reader, and a stripped guest has no names for it.
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false)
        // Names of functions: a thirteenth of a file, and only tools for people read them.
        .debug_symbols(false)
        // No panic unwinds through a guest: panics abort on both sides.
        .native_unwind_info(false)
        // A process runs one call of one guest, without streams, futures or tasks.
        .concurrency_support(false)
        // The values of `Reserve`. Both values are the engine's own defaults, and compiled code depends on them.
        .memory_reservation(RESERVATION)
        .memory_guard_size(GUARD)
        // A memory is initialised by copying. A mapping of the file would need a descriptor after confinement, and
        // saves nothing if the guest writes to most pages.
        .memory_init_cow(false);
    Ok(config)
}

/// Makes an engine with these settings. Installs wasmtime's handlers for the signals of traps.
///
/// # Errors
/// This CPU or kernel lacks a feature that the settings need.
pub fn engine() -> wasmtime::Result<Engine> {
    Engine::new(&config()?)
}

/// As [`engine`], with the memories of guests from `reserve`.
///
/// # Errors
/// As [`engine`].
pub(crate) fn engine_with(reserve: &Reserve) -> wasmtime::Result<Engine> {
    let mut config = config()?;
    config.with_host_memory(Arc::new(reserve.clone()));
    Engine::new(&config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_is_linked() {
        let lock = include_str!("../../../Cargo.lock");
        let (_, after) = lock.split_once("name = \"wasmtime\"\nversion = \"").unwrap();
        assert_eq!(after.split_once('"').unwrap().0, WASMTIME);
    }

    #[test]
    fn the_fingerprint_is_fit_for_a_file_name() {
        assert!(fingerprint().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)));
        assert!(engine().is_ok());
    }
}
