//! A component file, examined before it is used.
//!
//! Every command that takes a file follows these steps: read it, compare the pin, find its imports, compare the policy.
//! A component that is to run is compiled after these steps. A process without privileges parses the content
//! (`postern_sandbox::component_process`).

use crate::capability::groups_of;
use crate::imports::Imports;
use crate::output;
use crate::sentences::IN_THE_SANDBOX;
use anyhow::{Context, Result, anyhow, ensure};
use postern_gate::catalog::{self, WasiExtent};
use postern_gate::places::trust;
use postern_sandbox::component_process::{self, Contents};
use postern_sandbox::needs_all_of_wasi;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest file in bytes. The largest normal components, which contain an interpreter, have a tenth of this size.
const LARGEST: u64 = 256 << 20;

/// The program that compiles components.
pub const COMPILER: &str = "postern-compiler";

/// A component whose bytes were read.
pub struct Component {
    path: PathBuf,
    wasm: Vec<u8>,
    /// SHA-256, hexadecimal.
    pub digest: String,
}

impl Component {
    /// Reads the file without parsing it.
    ///
    /// # Errors
    /// The file can't be read, or is too large.
    pub fn open(path: &Path) -> Result<Self> {
        let name = || format!("component {}", path.display());
        let mut wasm = Vec::new();
        File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut wasm)).with_context(name)?;
        let size = LARGEST >> 20;
        ensure!(wasm.len() as u64 <= LARGEST, "{} is larger than {size} MiB: no component is", name());
        Ok(Self { path: path.to_owned(), digest: catalog::sha256(&wasm), wasm })
    }

    /// Returns the component's imports, as a manifest lists them, and its version. Nothing is compiled.
    ///
    /// # Errors
    /// The file is not a component that a sandbox would run.
    pub fn contents(&self) -> Result<Contents> {
        let contents =
            component_process::read(&self.wasm).map_err(|reason| anyhow!("{}: {reason}", self.path.display()))?;
        let Contents { imports, .. } = &contents;
        for (interface, functions) in &Imports::parse(imports).authority {
            for function in functions {
                ensure!(
                    is_known(interface, function),
                    "{}: the component imports {interface}#{function}, which this host does not have: build the plugin \
                     with a matching postern-guest",
                    self.path.display()
                );
            }
        }
        Ok(contents)
    }

    /// Returns the bytes of the file.
    pub fn into_bytes(self) -> Vec<u8> {
        self.wasm
    }

    /// Returns the component's imports alone.
    ///
    /// # Errors
    /// As [`Component::contents`].
    pub fn imports(&self) -> Result<Vec<String>> {
        self.contents().map(|contents| contents.imports)
    }

    /// Compiles the component, and returns the machine code for an architecture (`x86_64`, `aarch64`). Call this function
    /// only after pin, imports and policy were compared.
    ///
    /// # Errors
    /// The compiler is not installed, refuses the component, or takes more than its limits for a component of this size.
    pub fn compile(&self, architecture: &str) -> Result<Vec<u8>> {
        let compiler = compiler()?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        output::during(&format!("compiling {name}"), || component_process::compile(&compiler, architecture, &self.wasm))
            .map_err(|reason| anyhow!("{}: {reason}", self.path.display()))
    }
}

/// Returns the program that compiles: it lies beside this one.
fn compiler() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let compiler = own.with_file_name(COMPILER);
    ensure!(
        compiler.is_file(),
        "there is no {}, which compiles components: install the package postern-compiler, or a build that has this program. Or \
         let `postern compile` compile the plugin on another machine, and run `postern add DIR/NAME.json` here",
        compiler.display()
    );
    // A user who can change this program, as in a user's own build, needs no compiler to get this process's privileges.
    if trust(&own).is_ok() {
        trust(&compiler).map_err(anyhow::Error::msg)?;
    }
    Ok(compiler)
}

/// Returns the extent of WASI that a component with these imports needs.
pub fn wasi_extent(imports: &[String]) -> WasiExtent {
    if needs_all_of_wasi(imports) { WasiExtent::Whole } else { WasiExtent::Small }
}

/// True if commands for people have a sentence about the function ([`crate::sentences`]), or if it needs none. A
/// constructor and a route's methods act only on the guest's own objects: they give no authority, and need no sentence.
/// If the host lacks such a function, [`Component::compile`] refuses the component.
fn is_known(interface: &str, function: &str) -> bool {
    if function.starts_with("[constructor]") || format!("{interface}#{function}").starts_with(IN_THE_SANDBOX) {
        return true;
    }
    groups_of(interface).any(|group| group.functions.contains(&function) || group.with.contains(&function))
}
