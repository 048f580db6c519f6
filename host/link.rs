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
    /// The empty program can also be started. A program for another architecture is linked only, and the same linker
    /// must make a program for this machine that can be started.
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
    let (Ok(target), Ok(host), Ok(own)) = (var("TARGET"), var("HOST"), var("CARGO_CFG_TARGET_ARCH")) else {
        return false;
    };
    let Some(here) = host.split('-').next() else { return false };
    let starts = |target: &str| empty_program(target, flags).is_some_and(|mut program| succeeds(&mut program));
    match proof {
        Proof::Linked => empty_program(&target, flags).is_some(),
        Proof::Started if here == own => starts(&target),
        // Rust's names of targets begin with the architecture.
        Proof::Started => empty_program(&target, flags).is_some() && starts(&target.replacen(&own, here, 1)),
    }
}

/// Links an empty program for a target with these flags, and returns the command that starts the program.
fn empty_program(target: &str, flags: &[&str]) -> Option<Command> {
    let (Ok(rustc), Ok(out)) = (var("RUSTC"), var("OUT_DIR")) else { return None };
    let (source, empty) = (Path::new(&out).join("empty.rs"), Path::new(&out).join("empty"));
    std::fs::write(&source, "fn main() {}").ok()?;
    let mut command = Command::new(rustc);
    command.args(["--target", target, "--crate-type", "bin", "-C", "panic=abort", "-o"]).arg(&empty).arg(source);
    if let Ok(linker) = var("RUSTC_LINKER") {
        command.args(["-C", &format!("linker={linker}")]);
    }
    let inherited = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    command.args(inherited.split('\u{1f}').filter(|flag| !flag.is_empty()));
    for flag in flags {
        command.args(["-C", &format!("link-arg={flag}")]);
    }
    succeeds(&mut command).then(|| Command::new(empty))
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
