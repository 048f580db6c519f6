//! `compile COMPONENT CODE`: compiles as the installing program does, without its other steps.

use std::error::Error;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let (Some(component), Some(code)) = (env::args().nth(1), env::args().nth(2)) else {
        return Err("usage: compile COMPONENT CODE".into());
    };
    let compiled = postern_sandbox::compile::precompile(&fs::read(component)?)?;
    fs::write(code, compiled.cwasm)?;
    println!("{}", postern_sandbox::engine::fingerprint());
    println!("{}", compiled.imports.join("\n"));
    Ok(())
}
