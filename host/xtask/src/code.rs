//! Functions that all writers of Rust share: the names of types, and the imports of a file.

use crate::model::{Def, Form, Kind, Surface, Ty};
use anyhow::Result;
use std::collections::BTreeSet;

/// The types of `types` that are written by hand, with their names in host/types.
const BY_HAND: [(&str, &str); 2] = [("link-attributes", "LinkInfo"), ("address", "Address")];

/// Returns the first lines of a file.
pub fn heading(what: &str) -> String {
    let written = "Written by `cargo xtask surface` from `wit/`. Change `wit/`, and not this file.";
    format!("{}//!\n{}\n", wrapped("//! ", what), wrapped("//! ", written))
}

/// True for the type of this name in the interface `types`.
pub fn is_common(ty: &Ty, wanted: &str) -> bool {
    matches!(ty, Ty::Of(interface, name) if interface == "types" && name == wanted)
}

impl Surface {
    /// Returns the definition of a type that is not written by hand.
    pub fn def_of(&self, ty: &Ty) -> Result<Option<&Def>> {
        match ty {
            Ty::Of(interface, name) if interface != "types" && (interface.as_str(), name.as_str()) != SYSCTL => {
                self.def(interface, name).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns the name of a type in host/types, for an owned value. `handle` is the type that stands for a handle;
    /// `None` means the type in the gate's answer.
    pub fn rust(&self, ty: &Ty, handle: Option<&str>) -> Result<String> {
        Ok(match ty {
            Ty::Unit => "()".to_owned(),
            Ty::Plain(name) | Ty::Text(name) => (*name).to_owned(),
            Ty::String => "String".to_owned(),
            Ty::Option(inner) => format!("Option<{}>", self.rust(inner, handle)?),
            Ty::List(inner) => format!("Vec<{}>", self.rust(inner, handle)?),
            Ty::Of(interface, name) => match self.def_of(ty)? {
                Some(Def { form: Form::Handle(_), rust, .. }) => handle.unwrap_or(rust).to_owned(),
                // For a link the gate answers with the link and its attributes.
                Some(Def { rust, .. }) if rust.is_empty() => "LinkInfo".to_owned(),
                Some(Def { rust, .. }) => rust.clone(),
                None if interface == SYSCTL.0 => "LinkSysctl".to_owned(),
                None => {
                    BY_HAND.iter().find(|(wit, _)| wit == name).map_or(name.clone(), |(_, rust)| (*rust).to_owned())
                }
            },
        })
    }

    /// True if a value of this type is copied. Other values are passed by reference.
    pub fn is_copied(&self, ty: &Ty) -> Result<bool> {
        Ok(match ty {
            Ty::Unit | Ty::Plain(_) | Ty::Text(_) => true,
            Ty::String | Ty::List(_) => false,
            // An optional record is a few numbers.
            Ty::Option(inner) => !matches!(**inner, Ty::String | Ty::List(_)),
            Ty::Of(..) => !matches!(self.def_of(ty)?, Some(Def { form: Form::Record(_) | Form::Value { .. }, .. })),
        })
    }

    /// Returns the type of a parameter in Rust. `handle` is the type of a handle in the parameter.
    pub fn lent(&self, ty: &Ty, handle: &str) -> Result<String> {
        Ok(match ty {
            Ty::String => "&str".to_owned(),
            Ty::List(inner) => format!("&[{}]", self.rust(inner, Some(handle))?),
            _ if self.is_copied(ty)? => self.rust(ty, Some(handle))?,
            _ => format!("&{}", self.rust(ty, Some(handle))?),
        })
    }
}

/// The type `key` of the interface `link-sysctl`. The names of the interface's functions contain the key.
pub const SYSCTL: (&str, &str) = ("link-sysctl", "key");

/// Returns the lines that import the names that `code` uses from these modules: `("postern_types", ["Mac", …])`.
pub fn imports(code: &str, modules: &[(&str, &[&str])]) -> String {
    // A name with a path needs no import.
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words: BTreeSet<_> = code.split(|c| !is_part(c)).filter_map(|path| path.split("::").next()).collect();
    let line = |(module, names): &(&str, &[&str])| {
        let used: Vec<_> = names.iter().filter(|name| words.contains(**name)).copied().collect();
        if used.is_empty() { String::new() } else { format!("use {module}::{{{}}};\n", used.join(", ")) }
    };
    modules.iter().map(line).collect()
}

impl Surface {
    /// Returns two flags: if a function takes this type, and if a function returns this type, at any depth.
    pub fn uses(&self, ty: &Ty) -> Result<(bool, bool)> {
        let (mut is_given, mut is_returned) = (false, false);
        for function in self.capabilities.iter().flat_map(|capability| &capability.functions) {
            for (_, _, param) in &function.params {
                is_given |= reaches(self, param, ty)?;
            }
            is_returned |= matches!(function.kind, Kind::Asks(_)) && reaches(self, &function.returns, ty)?;
        }
        Ok((is_given, is_returned))
    }
}

fn reaches(surface: &Surface, from: &Ty, ty: &Ty) -> Result<bool> {
    if from == ty {
        return Ok(true);
    }
    match from {
        Ty::Option(inner) | Ty::List(inner) => reaches(surface, inner, ty),
        Ty::Of(..) => match surface.def_of(from)?.map(|def| &def.form) {
            Some(Form::Record(fields) | Form::Value { fields, .. }) => {
                for field in fields {
                    if reaches(surface, &field.ty, ty)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            _ => Ok(false),
        },
        _ => Ok(false),
    }
}

/// Returns a closure with this argument and the body `code`, or the function's name if `code` only calls a function.
pub fn closure(argument: &str, code: &str) -> String {
    match code.strip_suffix(&format!("({argument})")) {
        Some(function) if function.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':') => function.to_owned(),
        _ => format!("|{argument}| {code}"),
    }
}

/// Returns a text as a doc comment; empty for an empty text.
pub fn doc(text: &str) -> String {
    if text.is_empty() { String::new() } else { wrapped("/// ", text) }
}

/// Returns a text in lines. A line has at most 120 characters, even if it is indented.
fn wrapped(mark: &str, text: &str) -> String {
    let most = if mark == "//! " { 120 } else { 112 };
    let mut lines = String::new();
    let mut line = mark.to_owned();
    for word in text.split_whitespace() {
        if line.len() + word.len() > most {
            lines.push_str(line.trim_end());
            lines.push('\n');
            mark.clone_into(&mut line);
        }
        line.push_str(word);
        line.push(' ');
    }
    lines.push_str(line.trim_end());
    lines.push('\n');
    lines
}
