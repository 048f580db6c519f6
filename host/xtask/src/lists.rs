//! The lists of capabilities in files that people write.
//!
//! A list stands between two comments. The first comment has the pattern of each line:
//! `// each capability: mod {file};`. In the pattern `{name}` is the name in WIT, `{file}` and `{Type}` are the names
//! in Rust, and `{Operations}` has all of the capability's operations. A list can be limited to some capabilities: with
//! keys, without keys, without links in their answers, or without an operation that collects garbage.
//! `// each resource: …` has `{resource}` and `{Resource}` too. `// each package: …` is one line, with `{version}`. The
//! second comment is `// end of the list`.

use crate::Written;
use crate::code::is_common;
use crate::model::{Capability, Form, Surface, Ty, camel, snake};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

/// The files with such lists.
const FILES: [&str; 12] = [
    "guest-sdk/sim/src/capability/mod.rs",
    "guest-sdk/src/lib.rs",
    "guest-sdk/src/sys/component/mod.rs",
    "guest-sdk/src/sys/native/mod.rs",
    "host/admin/src/capability/mod.rs",
    "host/admin/src/plan/handles.rs",
    "host/gate/src/capability/mod.rs",
    "host/gate/src/collector.rs",
    "host/policy/src/capability/mod.rs",
    "host/sandbox/src/bindings/mod.rs",
    "host/sandbox/src/component.rs",
    "wit/world.wit",
];

/// The end of a list.
const END: &str = "// end of the list";

/// Returns the files of `FILES`, with their lists filled in.
pub fn files(surface: &Surface, root: &Path) -> Result<Vec<Written>> {
    let file = |path: &&str| {
        let text = fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        Ok((path.into(), with_lists(surface, &text).with_context(|| (*path).to_owned())?))
    };
    FILES.iter().map(file).collect()
}

fn with_lists(surface: &Surface, text: &str) -> Result<String> {
    let mut written = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        written.push_str(line);
        written.push('\n');
        let begin = line.trim_start();
        let Some((each, row)) = begin.strip_prefix("// each ").and_then(|list| list.split_once(": ")) else { continue };
        let rows = match each {
            "capability" => capabilities(surface, row, |_| true),
            "capability with keys" => capabilities(surface, row, |capability| capability.keys),
            "capability without keys" => capabilities(surface, row, |capability| !capability.keys),
            "capability without links" => {
                let shows_links = |capability: &Capability| {
                    capability.operations.iter().any(|operation| shows_link(surface, &operation.reply))
                };
                capabilities(surface, row, |capability| !shows_links(capability))
            }
            "capability without collection" => {
                let collects = |capability: &Capability| {
                    capability.operations.iter().any(|operation| operation.leaves == "Collection")
                };
                capabilities(surface, row, |capability| !collects(capability))
            }
            "resource" => resources(surface, row),
            "package" => vec![row.replace("{version}", &surface.version)],
            _ => continue,
        };
        let mut rows = rows;
        // rustfmt sorts modules.
        if row.contains("mod {file};") {
            rows.sort();
        }
        let indent = line.strip_suffix(begin).unwrap_or_default();
        for row in rows {
            written.push_str(&format!("{indent}{row}\n"));
        }
        written.push_str(&format!("{indent}{END}\n"));
        ensure!(lines.any(|line| line.trim() == END), "a list has no `{END}`");
    }
    Ok(written)
}

fn capabilities(surface: &Surface, row: &str, wanted: impl Fn(&Capability) -> bool) -> Vec<String> {
    let row = |capability: &Capability| {
        let operations: Vec<_> = capability.operations.iter().map(|operation| camel(&operation.name)).collect();
        filled(&row.replace("{Operations}", &operations.join(", ")), &capability.name)
    };
    surface.capabilities.iter().filter(|capability| wanted(capability)).map(row).collect()
}

/// True if an answer of this type has a link in it.
fn shows_link(surface: &Surface, ty: &Ty) -> bool {
    match ty {
        Ty::Option(inner) | Ty::List(inner) => shows_link(surface, inner),
        ty if is_common(ty, "link-attributes") => true,
        ty => match surface.def_of(ty).ok().flatten().map(|def| &def.form) {
            Some(Form::Handle(_)) => true,
            Some(Form::Record(fields)) => fields.iter().any(|field| shows_link(surface, &field.ty)),
            Some(Form::Enum(_) | Form::Value { .. }) | None => false,
        },
    }
}

fn resources(surface: &Surface, row: &str) -> Vec<String> {
    let mut rows = Vec::new();
    for capability in &surface.capabilities {
        for def in &capability.types {
            if matches!(def.form, Form::Handle(_) | Form::Value { .. }) {
                let row = row.replace("{resource}", &def.name).replace("{Resource}", &camel(&def.name));
                rows.push(filled(&row, &capability.name));
            }
        }
    }
    rows
}

fn filled(row: &str, name: &str) -> String {
    row.replace("{name}", name).replace("{file}", &snake(name)).replace("{Type}", &camel(name))
}
