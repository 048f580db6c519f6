//! The linking of installed executables, for their build scripts.

use std::env::var;
use std::path::Path;
use std::process::{Command, Stdio};

/// An installed executable aborts at a panic, and makes no backtraces. So nothing reads its tables for unwinding, which
/// are a sixth of its size. Tests unwind at a panic, and keep the tables.
const WITHOUT_TABLES: &str =
    "SECTIONS { /DISCARD/ : { *(.eh_frame) *(.gcc_except_table .gcc_except_table.*) } } INSERT AFTER .text;\n";

/// The proof that a linker knows some flags.
#[derive(Clone, Copy, PartialEq)]
enum Proof {
    /// An empty program can be linked.
    Linked,
    /// The empty program can also be started. A program for another architecture can't.
    Started,
}

/// Leaves out the tables for unwinding.
pub fn without_tables() {
    let Ok(out) = var("OUT_DIR") else { return };
    let script = Path::new(&out).join("without-tables.lds");
    if std::fs::write(&script, WITHOUT_TABLES).is_err() || !link(&[format!("-T{}", script.display())], Proof::Started) {
        println!("cargo:warning=the executable keeps its tables for unwinding, and is a sixth larger");
    }
}

/// Sets all flags for a release build of an executable that has no flags of its own. Other builds are linked as usual.
/// `own` is the path of this file, relative to the package.
#[allow(dead_code, reason = "some build scripts call the steps themselves")]
pub fn installed(own: &str) {
    assert!(Path::new(own).is_file(), "cargo would build this package at each call, because {own} is missing");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={own}");
    if var("PROFILE").as_deref() == Ok("release") {
        without_tables();
        packed();
    }
}

/// Packs the list of places that an executable relocates at its start. A packed list has a fraction of the pages. glibc
/// reads a packed list since 2.36, and Rust's musl also reads it. For other C libraries the list stays unpacked.
pub fn packed() {
    let is_musl = var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("musl");
    link(&["--pack-dyn-relocs=relr".to_owned()], if is_musl { Proof::Linked } else { Proof::Started });
}

/// Links with these flags, if the linker knows them.
#[allow(dead_code, reason = "only the host executable has flags of its own")]
pub fn with(flags: &[String]) -> bool {
    link(flags, Proof::Linked)
}

fn link(flags: &[String], proof: Proof) -> bool {
    let form = form(flags, proof);
    if let Some(through) = form {
        pass(through, flags);
    }
    form.is_some()
}

/// Returns the words before each flag: no word for the linker itself, `-Xlinker` for a compiler that calls the linker.
/// `None` if neither form works.
fn form(flags: &[String], proof: Proof) -> Option<&'static [&'static str]> {
    const FORMS: [&[&str]; 2] = [&[], &["-Xlinker"]];
    FORMS.into_iter().find(|through| works_with(&words(through, flags), proof))
}

fn pass(through: &[&str], flags: &[String]) {
    words(through, flags).iter().for_each(|flag| println!("cargo:rustc-link-arg-bins={flag}"));
}

fn words<'a>(through: &[&'a str], flags: &'a [String]) -> Vec<&'a str> {
    flags.iter().flat_map(|flag| through.iter().copied().chain([flag.as_str()])).collect()
}

fn works_with(flags: &[&str], proof: Proof) -> bool {
    let (Ok(rustc), Ok(target), Ok(out)) = (var("RUSTC"), var("TARGET"), var("OUT_DIR")) else { return false };
    let (source, empty) = (Path::new(&out).join("empty.rs"), Path::new(&out).join("empty"));
    if std::fs::write(&source, "fn main() {}").is_err() {
        return false;
    }
    let mut command = Command::new(rustc);
    command.args(["--target", &target, "--crate-type", "bin", "-C", "panic=abort", "-o"]).arg(&empty).arg(source);
    if let Ok(linker) = var("RUSTC_LINKER") {
        command.args(["-C", &format!("linker={linker}")]);
    }
    let inherited = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    command.args(inherited.split('\u{1f}').filter(|flag| !flag.is_empty()));
    for flag in flags {
        command.args(["-C", &format!("link-arg={flag}")]);
    }
    let succeeds = |command: &mut Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    succeeds(&mut command) && (proof == Proof::Linked || succeeds(&mut Command::new(empty)))
}
