//! Writes the SDK's functions for a component. Each function calls the function that `wit-bindgen` makes.

use super::{fields, functions, given, header, lent, set_type};
use crate::code::{closure, is_common};
use crate::model::{Capability, Def, Field, Form, Function, Kind, Surface, Ty, camel, snake};
use anyhow::Result;
use std::fmt::Write;

/// Returns the functions of a capability.
pub fn file(surface: &Surface, capability: &Capability) -> Result<String> {
    let module = snake(&capability.name);
    let mut code = format!("use super::wit::{module} as wit;\n\n");
    for def in &capability.types {
        let name = camel(&def.name);
        if let Form::Handle(_) = def.form {
            write!(code, "pub(crate) use wit::{name};\n\n")?;
        } else if let Some((made_with, set)) = fields(def) {
            code += &component_options(surface, def, made_with, set)?;
        }
    }
    for function in functions(capability) {
        code += &component_call(surface, capability, function)?;
    }
    for def in &capability.types {
        code += &component_conversions(surface, capability, def)?;
    }
    if !code.replace("use super::wit::", "").contains("wit::") {
        code = code.replace(&format!("use super::wit::{module} as wit;\n"), "");
    }
    Ok(code)
}

fn component_options(surface: &Surface, def: &Def, made_with: &[Field], set: &[Field]) -> Result<String> {
    let name = camel(&def.name);
    let (mut params, mut given) = (Vec::new(), Vec::new());
    for field in made_with {
        params.push(format!("{}: {}", field.rust, lent(surface, &field.ty)?));
        given.push(passed(surface, &field.ty, &field.rust)?);
    }
    let mut code = format!(
        "/// Collects the values that the plugin sets for a call.\n#[derive(Debug)]\npub(crate) struct {name}(pub(super) wit::{name});\n\n
         impl {name} {{ pub(crate) fn new({}) -> Self {{ Self(wit::{name}::new({})) }}\n\n",
        params.join(", "),
        given.join(", "),
    );
    for field in set {
        let ty = set_type(field);
        let value = passed(surface, ty, "value")?;
        write!(
            code,
            "pub(crate) fn set_{}(&self, value: {}) {{ self.0.set_{}({value}); }}\n\n",
            field.rust,
            lent(surface, ty)?,
            snake(&field.name)
        )?;
    }
    code.push_str("}\n\n");
    Ok(code)
}

fn component_call(surface: &Surface, capability: &Capability, function: &Function) -> Result<String> {
    let header = header(surface, capability, function)?;
    let mut arguments = Vec::new();
    let mut before = String::new();
    for (_, called, ty) in &function.params {
        let value = passed(surface, ty, called)?;
        // A lent value must live until the call returns.
        if let (Ty::List(inner), Some(Def { form: Form::Value { .. }, name, .. })) =
            (ty, element(ty).map(|inner| surface.def_of(inner)).transpose()?.flatten())
            && matches!(**inner, Ty::Of(..))
        {
            writeln!(
                before,
                "let {called}: Vec<_> = {called}.iter().map(make_{}).collect();\nlet {called}: Vec<_> = {called}.iter().collect();",
                snake(name)
            )?;
            arguments.push(format!("&{called}"));
        } else {
            arguments.push(value);
        }
    }
    let call = match &function.of {
        Some(of) => format!("{}.{}({})", snake(of), snake(&function.name), arguments.join(", ")),
        None => format!("wit::{}({})", snake(&function.name), arguments.join(", ")),
    };
    if !matches!(function.kind, Kind::Asks(_)) {
        return Ok(format!("{header} {{ {before}{call} }}\n\n"));
    }
    let body = match got(surface, &function.returns, "got")? {
        Got { code, .. } if code == "got" => format!("{call}.map_err(super::failure)"),
        Got { code, fails: true } => format!("let got = {call}.map_err(super::failure)?;\n{code}"),
        Got { code, fails: false } => format!("let got = {call}.map_err(super::failure)?;\nOk({code})"),
    };
    Ok(format!("{header} {{ {before}{body} }}\n\n"))
}

fn element(ty: &Ty) -> Option<&Ty> {
    match ty {
        Ty::List(inner) | Ty::Option(inner) => Some(inner),
        _ => None,
    }
}

/// Code that passes a value to an imported function.
fn passed(surface: &Surface, ty: &Ty, value: &str) -> Result<String> {
    Ok(match ty {
        Ty::Text(_) => format!("&{value}.to_string()"),
        Ty::List(inner) => match &**inner {
            Ty::Text(_) => format!("&super::texts({value})"),
            inner => match wire(surface, inner, "each")? {
                code if code == "each" || code == "*each" => value.to_owned(),
                code => format!("&{value}.iter().map({}).collect::<Vec<_>>()", closure("each", &code)),
            },
        },
        Ty::Option(inner) => match wire(surface, inner, "value")? {
            code if code == "value" => value.to_owned(),
            code => format!("{value}.map({})", closure("value", &code)),
        },
        Ty::Of(_, name) => match surface.def_of(ty)?.map(|def| &def.form) {
            Some(Form::Value { spread: true, .. }) => format!("&{value}.0"),
            Some(Form::Value { .. }) => format!("&make_{}({value})", snake(name)),
            _ => wire(surface, ty, value)?,
        },
        _ => value.to_owned(),
    })
}

/// Code that makes a value of WIT.
fn wire(surface: &Surface, ty: &Ty, value: &str) -> Result<String> {
    Ok(match ty {
        Ty::Text(_) => format!("{value}.to_string()"),
        Ty::String => format!("{value}.clone()"),
        Ty::Option(inner) => match wire(surface, inner, "value")? {
            code if code == "value" => value.to_owned(),
            code => format!("{value}.map({})", closure("value", &code)),
        },
        Ty::List(inner) => {
            format!("{value}.iter().map({}).collect()", closure("each", &wire(surface, inner, "each")?))
        }
        Ty::Of(_, name) => match surface.def_of(ty)? {
            Some(Def { form: Form::Enum(_), .. }) => format!("wire_{}({value})", snake(name)),
            // An optional record is copied.
            Some(Def { form: Form::Record(_), .. }) => {
                let lent = if value == "value" { "&" } else { "" };
                format!("wire_{}({lent}{value})", snake(name))
            }
            _ => value.to_owned(),
        },
        _ => value.to_owned(),
    })
}

/// Code that turns the return value of an imported function into the SDK's value.
struct Got {
    code: String,
    /// True if the code gives a `Result`.
    fails: bool,
}

fn got(surface: &Surface, ty: &Ty, value: &str) -> Result<Got> {
    let sure = |code: String| Got { code, fails: false };
    let fails = |code: String| Got { code, fails: true };
    if is_common(ty, "link-attributes") {
        return Ok(sure(format!("super::link_info({value})")));
    }
    if is_common(ty, "address") {
        return Ok(fails(format!("super::address({value})")));
    }
    Ok(match ty {
        Ty::Text(_) => fails(format!("super::read(&{value})")),
        Ty::Option(inner) if matches!(**inner, Ty::Text(_)) => fails(format!("super::maybe({value}.as_deref())")),
        Ty::Option(inner) => match got(surface, inner, "got")? {
            Got { code, .. } if code == "got" => sure(value.to_owned()),
            Got { code, fails: false } => sure(format!("{value}.map({})", closure("got", &code))),
            Got { code, fails: true } => fails(format!("{value}.map({}).transpose()", closure("got", &code))),
        },
        Ty::List(inner) => match got(surface, inner, "got")? {
            Got { code, .. } if code == "got" => sure(value.to_owned()),
            Got { code, fails: false } => sure(format!("{value}.into_iter().map({}).collect()", closure("got", &code))),
            Got { code, fails: true } => {
                fails(format!("{value}.into_iter().map({}).collect::<Result<Vec<_>, Error>>()", closure("got", &code)))
            }
        },
        Ty::Of(_, name) => match surface.def_of(ty)? {
            Some(def @ Def { form: Form::Record(_) | Form::Value { .. } | Form::Enum(_), .. }) => {
                let code = format!("got_{}({value})", snake(name));
                if can_fail(surface, def)? { fails(code) } else { sure(code) }
            }
            _ => sure(value.to_owned()),
        },
        _ => sure(value.to_owned()),
    })
}

/// True if a conversion parses a text, and so can fail.
fn can_fail(surface: &Surface, def: &Def) -> Result<bool> {
    if let Form::Record(fields) | Form::Value { fields, .. } = &def.form {
        for field in fields {
            if got(surface, &field.ty, "got")?.fails {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn component_conversions(surface: &Surface, capability: &Capability, def: &Def) -> Result<String> {
    let ty = Ty::Of(capability.name.clone(), def.name.clone());
    let (is_given, is_returned) = surface.uses(&ty)?;
    let (name, function) = (camel(&def.name), snake(&def.name));
    let mut code = String::new();
    let rust = surface.rust(&ty, None)?;
    match &def.form {
        Form::Enum(cases) => {
            let arms = |from: &str, to: &str, there: bool| -> String {
                let arm = |(wit, rust): &(String, String)| {
                    let (wit, rust) = (camel(wit), camel(rust));
                    let (one, two) = if there { (rust, wit) } else { (wit, rust) };
                    format!("{from}::{one} => {to}::{two},\n")
                };
                cases.iter().map(arm).collect()
            };
            let wit = format!("wit::{name}");
            if is_given {
                write!(
                    code,
                    "fn wire_{function}(value: {rust}) -> {wit} {{ match value {{ {} }} }}\n\n",
                    arms(&rust, &wit, true)
                )?;
            }
            if is_returned {
                write!(
                    code,
                    "fn got_{function}(got: {wit}) -> {rust} {{ match got {{ {} }} }}\n\n",
                    arms(&wit, &rust, false)
                )?;
            }
        }
        Form::Record(fields) => {
            if is_given {
                let mut set = String::new();
                for field in fields {
                    let value = wire(surface, &field.ty, &format!("value.{}", field.rust))?;
                    write!(set, "{}: {value}, ", snake(&field.name))?;
                }
                write!(code, "fn wire_{function}(value: &{rust}) -> wit::{name} {{ wit::{name} {{ {set} }} }}\n\n")?;
            }
            if is_returned {
                code += &component_record(surface, capability, def, fields)?;
            }
        }
        Form::Value { fields, made_with, spread: false } => {
            if is_given {
                code += &component_value(surface, def, fields, *made_with)?;
            }
            if is_returned {
                let mut set = String::new();
                for field in fields.iter().filter(|field| field.readable) {
                    let got = got(surface, &field.ty, &format!("got.{}()", snake(&field.name)))?;
                    write!(set, "{}: {}{}, ", field.rust, got.code, if got.fails { "?" } else { "" })?;
                }
                write!(
                    code,
                    "#[allow(clippy::needless_pass_by_value, reason = \"it is dropped here\")]\nfn got_{function}(got: wit::{name}) -> Result<{rust}, Error> {{ Ok({rust} {{ {set} ..{rust}::default() }}) }}\n\n"
                )?;
            }
        }
        Form::Handle(_) | Form::Value { .. } => {}
    }
    Ok(code)
}

/// Returns the code for a value that the guest passes as a whole. Setters are called only for fields that are set.
fn component_value(surface: &Surface, def: &Def, fields: &[Field], made_with: usize) -> Result<String> {
    let name = camel(&def.name);
    let (with, set) = fields.split_at(made_with);
    let mut given = Vec::new();
    for field in with {
        given.push(passed(surface, &field.ty, &format!("value.{}", field.rust))?);
    }
    let mut body = format!("let made = wit::{name}::new({});\n", given.join(", "));
    for field in set {
        let (own, setter) = (format!("value.{}", field.rust), format!("made.set_{}", snake(&field.name)));
        let code = match &field.ty {
            Ty::Option(inner) if **inner == Ty::String => {
                format!("if let Some(value) = &{own} {{ {setter}(value); }}\n")
            }
            Ty::Option(inner) => {
                format!("if let Some(value) = {own} {{ {setter}({}); }}\n", passed(surface, inner, "value")?)
            }
            Ty::List(_) => format!("if !{own}.is_empty() {{ {setter}(&{own}); }}\n"),
            _ => format!("if {own} {{ {setter}({}); }}\n", if field.switch { "" } else { "true" }),
        };
        body += &code;
    }
    Ok(format!("fn make_{}(value: &{}) -> wit::{name} {{ {body} made }}\n\n", snake(&def.name), def.rust))
}

fn component_record(surface: &Surface, capability: &Capability, def: &Def, fields: &[Field]) -> Result<String> {
    let ty = Ty::Of(capability.name.clone(), def.name.clone());
    let (function, name) = (snake(&def.name), camel(&def.name));
    let own = format!("super::{}::", snake(&capability.name));
    let returns = given(surface, &ty)?.replace(&own, "");
    if def.rust.is_empty() {
        return Ok(format!(
            "fn got_{function}(got: wit::{name}) -> {returns} {{ (got.link, super::link_info(got.attributes)) }}\n\n"
        ));
    }
    let fails = can_fail(surface, def)?;
    let mut set = String::new();
    for field in fields {
        let value = format!("got.{}", snake(&field.name));
        let wrapped = match (surface.def_of(&field.ty)?, &field.ty) {
            (Some(Def { form: Form::Handle(_), name, .. }), Ty::Of(interface, _)) => {
                format!("crate::{}::{}({value})", snake(interface), camel(name))
            }
            _ => {
                let got = got(surface, &field.ty, &value)?;
                format!("{}{}", got.code, if got.fails { "?" } else { "" })
            }
        };
        write!(set, "{}: {wrapped}, ", field.rust)?;
    }
    if def.rest {
        write!(set, "..{returns}::default()")?;
    }
    let value = format!("{returns} {{ {set} }}");
    Ok(match fails {
        true => format!("fn got_{function}(got: wit::{name}) -> Result<{returns}, Error> {{ Ok({value}) }}\n\n"),
        false => format!("fn got_{function}(got: wit::{name}) -> {returns} {{ {value} }}\n\n"),
    })
}
